"""What a lost or failed pod takes with it, when, and how often."""

from typing import Any

import pytest

from kthena.machinery.objects import annotations_of, uid_of
from kthena.workload.planner.recovery import back_off, failure_of
from support.workload_api import CrashedError
from support.workload_view import Place, place_of
from support.workload_world import World, role, rolling, serving

POLICIES = ["ServingGroupRecreate", "RoleRecreate", "None"]
RECOVERIES = "modelserving.volcano.sh/recoveries"


def settled(*roles: dict[str, Any], **more: Any) -> World:
    world = World()
    world.apply(serving(*roles, **more))
    world.settle()
    world.take_calls()
    return world


def uids(world: World) -> dict[str, str]:
    return {name: uid_of(pod) for name, pod in world.pods().items()}


def changed(world: World, before: dict[str, str]) -> set[str]:
    """Pods that are not the ones they were."""
    return {name for name, uid in uids(world).items() if before.get(name) != uid}


def reach(world: World, policy: str, name: str) -> set[str]:
    """The pods that a policy makes anew when one is lost."""
    lost = place_of(name)

    def unit(place: Place) -> tuple[object, ...]:
        if policy == "ServingGroupRecreate":
            return (place.group,)
        instance = (place.group, place.role, place.instance)
        return instance if policy == "RoleRecreate" else (*instance, place.index)

    return {other for other in world.pods() if unit(place_of(other)) == unit(lost)}


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "controller stopped"])
@pytest.mark.parametrize("lost", ["ms-0-prefill-0-0", "ms-0-prefill-0-2", "ms-1-decode-0-0"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_deleted_pod_comes_back_with_what_the_policy_names(
    policy: str, lost: str, stopped: bool
) -> None:
    world = settled(
        role("prefill", workers=2), role("decode", replicas=1), replicas=2, recoveryPolicy=policy
    )
    before, expected = uids(world), reach(world, policy, lost)

    world.kill(lost)
    if stopped:
        world.end_terminations()
        world.restart_controller()
    world.settle()

    assert changed(world, before) == expected
    assert set(uids(world)) == set(before)


@pytest.mark.parametrize("policy", ["ServingGroupRecreate", "RoleRecreate"])
def test_siblings_go_as_soon_as_a_pod_is_on_its_way_out(policy: str) -> None:
    world = settled(role(workers=2), recoveryPolicy=policy)
    world.kill("ms-0-decode-0-1")

    world.sync()

    deleted = {call for call in world.take_calls() if call.startswith("delete")}
    assert deleted == {"delete Pod ms-0-decode-0-0", "delete Pod ms-0-decode-0-2"}


@pytest.mark.parametrize("policy", POLICIES)
def test_an_instance_that_was_never_whole_is_completed(policy: str) -> None:
    world = World()
    world.apply(serving(role(workers=2), recoveryPolicy=policy))
    world.fault = lambda call: "refuse" if call.name == "ms-0-decode-0-1" else None
    world.sync()
    world.run_pods()
    before = uids(world)
    assert len(before) == 2
    world.fault = lambda _call: None

    world.settle()

    assert changed(world, before) == {"ms-0-decode-0-1"}


def test_a_role_that_grows_is_no_loss_for_its_group() -> None:
    world = settled(role(), replicas=2, recoveryPolicy="ServingGroupRecreate")
    before = uids(world)
    world.scale_role("decode", 2)
    world.fault = lambda call: "refuse" if call.name == "ms-1-decode-1-0" else None
    world.sync()
    world.sync()
    world.fault = lambda _call: None
    world.settle()

    assert changed(world, before) == {"ms-0-decode-1-0", "ms-1-decode-1-0"}


def test_a_whole_instance_that_is_lost_takes_its_group_with_it() -> None:
    world = settled(role("prefill"), role("decode"), recoveryPolicy="ServingGroupRecreate")
    before = uids(world)
    world.kill("ms-0-decode-0-0")
    world.end_terminations()
    world.restart_controller()

    world.settle()

    assert changed(world, before) == set(before)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_restarted_container_is_a_failure_but_not_with_none(policy: str) -> None:
    world = settled(role("prefill", workers=1), role("decode"), recoveryPolicy=policy)
    before = uids(world)
    world.crash("ms-0-prefill-0-1")

    world.settle()

    expected = set() if policy == "None" else reach(world, policy, "ms-0-prefill-0-1")
    assert changed(world, before) == expected


@pytest.mark.parametrize("policy", POLICIES)
def test_a_failed_pod_is_replaced_under_every_policy(policy: str) -> None:
    world = settled(role("prefill", workers=1), role("decode"), recoveryPolicy=policy)
    before = uids(world)
    world.fail("ms-0-prefill-0-1")

    world.settle()

    assert changed(world, before) == reach(world, policy, "ms-0-prefill-0-1")


def test_a_pod_may_recover_within_its_grace_period() -> None:
    world = settled(role(workers=1), restartGracePeriodSeconds=60)
    before = uids(world)
    world.crash("ms-0-decode-0-0")
    decision = world.sync()
    assert decision is not None
    assert decision.requeue_after_s == 60
    world.advance(59)
    world.sync()
    assert not [call for call in world.take_calls() if call.startswith("delete")]

    world.start("ms-0-decode-0-0")
    world.advance(100)
    world.settle()

    assert changed(world, before) == set()


def test_a_pod_that_does_not_recover_goes_when_its_grace_period_is_over() -> None:
    world = settled(role(workers=1), restartGracePeriodSeconds=60)
    world.crash("ms-0-decode-0-0")
    world.sync()
    world.advance(60)

    world.sync()

    assert "delete Pod ms-0-decode-0-0" in world.take_calls()


def test_later_crashes_do_not_prolong_the_grace_period() -> None:
    world = World()
    world.apply(serving(role(), restartGracePeriodSeconds=60))
    world.sync()
    world.start("ms-0-decode-0-0", ready=False)
    for _ in range(6):
        world.advance(10)
        world.crash("ms-0-decode-0-0")
        world.sync()
        world.restart_controller()
    assert not [call for call in world.take_calls() if call.startswith("delete")]

    world.advance(10)
    world.sync()

    assert "delete Pod ms-0-decode-0-0" in world.take_calls()


def test_a_restart_of_long_ago_is_no_failure() -> None:
    world = settled(role())
    before = uids(world)
    world.edit(lambda spec: spec["template"].update(restartGracePeriodSeconds=60))
    world.crash("ms-0-decode-0-0")
    world.sync()
    world.advance(20)
    world.start("ms-0-decode-0-0")
    world.advance(3600)
    world.start("ms-0-decode-0-0", ready=False)
    world.advance(3600)

    world.sync()

    assert changed(world, before) == set()
    assert not [call for call in world.take_calls() if call.startswith("delete")]


def test_readiness_lost_without_a_restart_is_seen_and_left_alone() -> None:
    world = settled(role())
    world.start("ms-0-decode-0-0", ready=False)

    world.sync()

    assert world.take_calls() == ["status ModelServing ms"]
    assert world.objects["ModelServing"]["ms"]["status"]["availableReplicas"] == 0


def test_crash_loops_wait_longer_each_time_and_start_anew_after_a_while() -> None:
    world = settled(role())
    waits = []
    for _ in range(5):
        world.crash("ms-0-decode-0-0")
        decision = world.sync()
        assert decision is not None
        waits.append(decision.requeue_after_s or 0.0)
        world.advance(waits[-1])
        world.sync()
        world.end_terminations()
        world.sync()
        world.sync()
        world.run_pods()
    assert waits == [0, 10, 20, 40, 80]

    world.advance(700)
    world.crash("ms-0-decode-0-0")
    decision = world.sync()
    assert decision is not None
    assert decision.requeue_after_s is None


def test_a_crash_loop_is_shown_and_its_pod_stays_for_its_logs() -> None:
    world = settled(role())
    for _ in range(2):
        world.crash("ms-0-decode-0-0")
        world.sync()
        if world.objects["Pod"]["ms-0-decode-0-0"]["metadata"].get("deletionTimestamp"):
            world.end_terminations()
            world.sync()
            world.sync()

    status = world.objects["ModelServing"]["ms"]["status"]
    conditions = {c["type"]: c for c in status["conditions"]}
    assert conditions["Stalled"]["status"] == "True"
    assert conditions["Stalled"]["reason"] == "CrashLoopBackOff"
    assert "ms-0/decode-0" in conditions["Stalled"]["message"]
    assert list(world.pods()) == ["ms-0-decode-0-0"]


@pytest.mark.parametrize("crash_at", range(1, 7))
def test_the_count_of_a_crash_loop_survives_the_controller(crash_at: int) -> None:
    world = settled(role(workers=1))
    counted = [0]

    def fault(_call: object) -> str | None:
        counted[0] += 1
        return "crash-after" if counted[0] == crash_at else None

    world.crash("ms-0-decode-0-0")
    world.fault = fault
    for _ in range(6):
        try:
            world.sync()
        except CrashedError:
            world.restart_controller()
        world.end_terminations()
    world.settle()

    pod = world.pods()["ms-0-decode-0-1"]
    assert annotations_of(pod)[RECOVERIES].startswith("1@")
    assert RECOVERIES not in annotations_of(world.objects["ModelServing"]["ms"])


def test_a_failed_deletion_does_not_count_twice() -> None:
    world = settled(role())
    world.crash("ms-0-decode-0-0")
    world.fault = lambda call: "refuse" if call.verb == "delete" else None
    for _ in range(3):
        world.sync()
    world.fault = lambda _call: None
    world.settle()

    pod = world.pods()["ms-0-decode-0-0"]
    assert annotations_of(pod)[RECOVERIES].startswith("1@")


def test_a_lost_pod_of_a_protected_group_comes_from_the_groups_own_revision() -> None:
    # A lost pod of a held group must match its siblings in template, size and readiness.
    world = settled(role(workers=1), replicas=2, rolloutStrategy=rolling(partition=1))

    def change(spec: dict[str, Any]) -> None:
        spec["template"]["roles"][0]["workerReplicas"] = 2
        container = spec["template"]["roles"][0]["entryTemplate"]["spec"]["containers"][0]
        container["env"] = [{"name": "NEW", "value": "1"}]

    world.edit(change)
    world.settle()
    world.kill("ms-0-decode-0-0")
    world.settle()

    pods = {name: pod for name, pod in world.pods().items() if name.startswith("ms-0-")}
    assert len(pods) == 2
    env = {
        e["name"]: e.get("value") for e in pods["ms-0-decode-0-0"]["spec"]["containers"][0]["env"]
    }
    assert env["GROUP_SIZE"] == "2"
    assert "NEW" not in env
    assert (
        len(
            {pod["metadata"]["labels"]["modelserving.volcano.sh/revision"] for pod in pods.values()}
        )
        == 1
    )
    status = world.objects["ModelServing"]["ms"]["status"]
    assert status["availableReplicas"] == 2


@pytest.mark.parametrize(
    ("recoveries", "seconds"), [(0, 0), (1, 10), (2, 20), (5, 160), (6, 300), (10**6, 300)]
)
def test_the_back_off_doubles_up_to_five_minutes(recoveries: int, seconds: int) -> None:
    assert back_off(recoveries).total_seconds() == seconds


@pytest.mark.parametrize(
    ("status", "failed"),
    [
        ({}, False),
        ({"phase": "Pending"}, False),
        ({"phase": "Unknown"}, False),
        ({"phase": "Succeeded"}, False),
        ({"phase": "Failed"}, True),
        ({"phase": "Running", "containerStatuses": [{"restartCount": 1}]}, True),
        ({"phase": "Pending", "initContainerStatuses": [{"restartCount": 2}]}, True),
        (
            {
                "phase": "Running",
                "initContainerStatuses": [
                    {"restartCount": 2, "state": {"terminated": {"exitCode": 0}}}
                ],
                "containerStatuses": [{"restartCount": 0}],
            },
            False,
        ),
        ({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}, False),
    ],
)  # fmt: skip
def test_what_counts_as_a_failed_pod(status: dict[str, Any], failed: bool) -> None:
    assert failure_of({"status": status})[0] is failed


def test_no_name_is_used_again_before_the_last_sibling_is_gone() -> None:
    world = settled(role(workers=2), role("other"))
    world.kill("ms-0-decode-0-1")
    world.sync()
    for gone in ("ms-0-decode-0-1", "ms-0-decode-0-0"):
        world.drop("Pod", gone)
        world.take_calls()
        world.sync()
        assert not [call for call in world.take_calls() if call.startswith("create")]

    world.drop("Pod", "ms-0-decode-0-2")
    world.sync()

    assert len([call for call in world.take_calls() if call.startswith("create")]) == 3
