"""Rolling updates by role instances: budgets, partitions, what stays, and what is told meanwhile."""

import json
from typing import Any

import pytest

from kthena.machinery.objects import annotations_of, is_terminating, labels_of, name_of, uid_of
from kthena.workload.records import ANNOTATION_SLOTS
from support.workload_api import CrashedError
from support.workload_view import place_of
from support.workload_world import World, by_roles, is_ready, role, rolling, serving, template

REVISION = "modelserving.volcano.sh/revision"
HASH = "modelserving.volcano.sh/role-template-hash"


def settled(*roles: dict[str, Any], **more: Any) -> World:
    world = World()
    world.apply(serving(*roles, **{"rolloutStrategy": by_roles(), **more}))
    world.settle()
    world.take_calls()
    return world


def status(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.objects["ModelServing"]["ms"]["status"]
    return found


def condition(world: World, kind: str) -> str:
    return str(next(c["status"] for c in status(world)["conditions"] if c["type"] == kind))


def images(world: World) -> dict[str, str]:
    """The image of each entry pod, by its place in the group and its group."""
    return {
        name.removeprefix("ms-").removesuffix("-0"): pod["spec"]["containers"][0]["image"]
        for name, pod in world.pods().items()
        if place_of(name).index == 0
    }


def uids(world: World, role_name: str = "") -> dict[str, str]:
    return {
        name: uid_of(pod)
        for name, pod in world.pods().items()
        if role_name in ("", place_of(name).role)
    }


def deleted(world: World) -> set[str]:
    calls = [call.split() for call in world.take_calls()]
    return {call[2].removeprefix("ms-") for call in calls if call[:2] == ["delete", "Pod"]}


def ready_instances(world: World, role_name: str = "decode", size: int = 1) -> int:
    found: dict[int, int] = {}
    for name, pod in world.pods().items():
        place = place_of(name)
        if place.role == role_name and is_ready(pod) and not is_terminating(pod):
            found[place.instance] = found.get(place.instance, 0) + 1
    return sum(count == size for count in found.values())


@pytest.mark.parametrize(
    ("max_unavailable", "first"),
    [
        (1, {"0-decode-3-0"}),
        (2, {"0-decode-3-0", "0-decode-2-0"}),
        ("50%", {"0-decode-3-0", "0-decode-2-0"}),
        ("74%", {"0-decode-3-0", "0-decode-2-0"}),
        ("10%", {"0-decode-3-0"}),
        (0, {"0-decode-3-0"}),
    ],
)
def test_so_many_instances_are_replaced_at_once_from_the_highest(
    max_unavailable: Any, first: set[str]
) -> None:
    world = settled(role(replicas=4, maxUnavailable=max_unavailable))
    world.set_image("engine:2")

    world.sync()

    assert deleted(world) == first


def test_a_rollout_never_goes_below_the_budget_of_a_role_and_ends() -> None:
    world = settled(role(replicas=3, workers=1))
    world.set_image("engine:2")
    for _ in range(20):
        world.sync()
        assert ready_instances(world, size=2) >= 2
        world.end_terminations()
        world.sync()
        assert ready_instances(world, size=2) >= 2
        world.run_pods()

    assert set(images(world).values()) == {"engine:2"}


def test_instances_that_are_not_available_go_at_once_and_first() -> None:
    world = settled(role(replicas=4))
    for broken in ("ms-0-decode-0-0", "ms-0-decode-1-0"):
        world.start(broken, ready=False)
    world.set_image("engine:2")

    world.sync()

    assert deleted(world) == {"0-decode-0-0", "0-decode-1-0"}


def test_each_role_of_each_group_has_a_budget_of_its_own() -> None:
    world = settled(role("prefill", replicas=2), role("decode", replicas=2), replicas=2)
    world.set_image("engine:2")

    world.sync()

    assert deleted(world) == {f"{g}-{r}-1-0" for g in (0, 1) for r in ("prefill", "decode")}


@pytest.mark.parametrize("crash_at", range(1, 14))
def test_a_controller_that_is_killed_at_any_call_keeps_the_budget_and_goes_on(
    crash_at: int,
) -> None:
    world = settled(role("prefill"), role("decode", replicas=3, workers=1))
    kept = uids(world, "prefill")
    world.set_image("engine:2", "decode")
    counted = [0]

    def fault(_call: object) -> str | None:
        counted[0] += 1
        return "crash-after" if counted[0] == crash_at else None

    world.fault = fault
    for _ in range(15):
        try:
            world.sync()
        except CrashedError:
            world.restart_controller()
        assert ready_instances(world, size=2) >= 2
        world.end_terminations()
        world.run_pods()
    world.fault = lambda _call: None
    world.settle()

    assert {images(world)[f"0-decode-{i}"] for i in range(3)} == {"engine:2"}
    assert uids(world, "prefill") == kept


@pytest.mark.parametrize(
    ("partition", "updated"),
    [(1, {1, 2, 3}), ("50%", {2, 3}), ("26%", {2, 3}), (4, set()), (9, set()), (0, {0, 1, 2, 3})],
)
def test_the_partition_of_a_role_keeps_low_ordinals(partition: Any, updated: set[int]) -> None:
    world = settled(role(replicas=4, partition=partition), replicas=2)
    world.set_image("engine:2")

    world.settle()

    found = images(world)
    for group in range(2):
        new = {i for i in range(4) if found[f"{group}-decode-{i}"] == "engine:2"}
        assert new == updated
    complete = len(updated) == 4
    assert status(world)["updatedReplicas"] == (2 if complete else 0)
    assert status(world)["currentReplicas"] == 2
    same = status(world)["currentRevision"] == status(world)["updateRevision"]
    assert same is complete
    assert condition(world, "Ready") == "True"


def test_a_lost_protected_instance_comes_back_as_it_was_whatever_happened_since() -> None:
    world = settled(role("prefill"), role("decode", replicas=3, partition=2))
    world.set_image("engine:2")
    world.settle()
    world.edit(lambda spec: spec["template"]["roles"][1].update(partition=3))
    world.set_image("engine:3")
    world.settle()
    for name in list(world.pods()):
        world.kill(name)
    world.end_terminations()
    world.restart_controller()

    world.settle()

    assert images(world) == {
        "0-prefill-0": "engine:3",
        "0-decode-0": "engine:1",
        "0-decode-1": "engine:1",
        "0-decode-2": "engine:2",
    }


def test_new_instances_below_the_partition_are_made_as_the_first_one_is() -> None:
    world = settled(role(replicas=2, partition=2))
    world.set_image("engine:2")
    world.settle()
    world.edit(lambda spec: spec["template"]["roles"][0].update(replicas=4, partition=3))

    world.settle()
    assert list(images(world).values()) == ["engine:1", "engine:1", "engine:1", "engine:2"]

    world.scale(2)
    world.settle()
    assert [images(world)[f"1-decode-{i}"] for i in range(4)] == list(images(world).values())[:4]


def test_protected_instances_count_for_the_budget() -> None:
    world = settled(role(replicas=3, partition=1))
    world.start("ms-0-decode-0-0", ready=False)
    world.set_image("engine:2")

    world.sync()

    assert deleted(world) == set()


def test_instances_of_unchanged_roles_stay_with_their_labels() -> None:
    world = settled(role("prefill", workers=1), role("decode", replicas=2), replicas=2)
    kept = uids(world, "prefill")
    before = {n: labels_of(p)[REVISION] for n, p in world.pods().items()}
    world.set_image("engine:2", "decode")
    world.settle()

    assert uids(world, "prefill") == kept
    after = {name: labels_of(pod) for name, pod in world.pods().items()}
    assert {after[name][REVISION] for name in kept} == {before[name] for name in kept}
    assert after["ms-0-decode-0-0"][REVISION] == status(world)["updateRevision"]
    assert status(world)["updatedReplicas"] == status(world)["availableReplicas"] == 2
    assert condition(world, "Ready") == "True"
    world.take_calls()
    world.restart_controller()
    world.settle()
    assert world.take_calls() == []


@pytest.mark.parametrize("removed", [False, True], ids=["changed", "removed"])
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_a_later_switch_to_the_strategy_by_groups_touches_nothing(
    removed: bool, restarted: bool
) -> None:
    world = settled(role("prefill"), role("decode"), role("extra"), replicas=2)
    if removed:
        # All pods keep the label of the former revision.
        world.edit(lambda spec: spec["template"]["roles"].pop())
    else:
        world.set_image("engine:2", "decode")
    world.settle()
    before = uids(world)
    world.edit(lambda spec: spec.update(rolloutStrategy=rolling()))
    if restarted:
        world.restart_controller()
    world.settle()
    assert uids(world) == before

    world.kill("ms-1-prefill-0-0")
    world.settle()

    assert {n for n, uid in uids(world).items() if before[n] != uid} == {"ms-1-prefill-0-0"}
    assert status(world)["updatedReplicas"] == 2


def test_a_later_update_by_groups_takes_one_group_at_a_time() -> None:
    world = settled(role("prefill"), role("decode"), replicas=3)
    world.set_image("engine:2", "decode")
    world.settle()
    world.edit(lambda spec: spec.update(rolloutStrategy=rolling()))
    world.set_image("engine:3", "prefill")
    world.take_calls()

    world.sync()

    assert deleted(world) == {"2-prefill-0-0", "2-decode-0-0"}
    world.settle()
    assert len({labels_of(pod)[REVISION] for pod in world.pods().values()}) == 1


def test_a_switch_in_the_middle_goes_on_by_groups() -> None:
    world = settled(role(replicas=2), replicas=2)
    world.set_image("engine:2")
    world.sync()
    world.edit(lambda spec: spec.update(rolloutStrategy=rolling()))

    world.settle()

    assert set(images(world).values()) == {"engine:2"}
    assert status(world)["updatedReplicas"] == 2


def test_groups_that_the_partition_keeps_in_mid_rollout_keep_their_instances() -> None:
    world = settled(role("prefill"), role("decode", replicas=2, partition=1))
    world.set_image("engine:2")
    world.settle()
    before = images(world)
    world.edit(lambda spec: spec["template"]["roles"][1].pop("partition"))
    world.edit(lambda spec: spec.update(rolloutStrategy=rolling(partition=1)))
    world.settle()
    assert images(world) == before
    for name in list(world.pods()):
        world.kill(name)
    world.end_terminations()
    world.restart_controller()

    world.settle()

    assert images(world) == before


def test_instances_that_are_gone_are_not_forgotten_while_the_rest_of_their_group_goes() -> None:
    world = settled(role("prefill"), role("decode", replicas=2, partition=1))
    world.set_image("engine:2")
    world.settle()
    before = images(world)
    world.edit(lambda spec: spec.update(rolloutStrategy=rolling(partition=1)))
    for name in list(world.pods()):
        world.kill(name)
    world.drop("Pod", "ms-0-decode-0-0")
    world.sync()
    world.end_terminations()
    world.restart_controller()

    world.settle()

    assert images(world) == before


def test_instances_of_removed_roles_go_at_once_and_new_roles_come() -> None:
    world = settled(role("prefill"), role("decode", replicas=3, workerTemplate=template()))

    def change(spec: dict[str, Any]) -> None:
        spec["template"]["roles"][1] = role("extra", workers=1)

    kept = uids(world, "prefill")
    world.edit(change)
    world.sync()

    assert deleted(world) == {f"0-decode-{i}-0" for i in range(3)}
    world.settle()
    assert uids(world, "prefill") == kept
    assert set(images(world)) == {"0-prefill-0", "0-extra-0"}
    assert list(world.objects["Service"]) == ["ms-0-extra-0-0"]


def test_the_order_of_roles_and_their_counts_roll_nothing() -> None:
    world = settled(role("prefill"), role("decode", replicas=2))
    before = uids(world)
    world.edit(lambda spec: spec["template"]["roles"].reverse())
    world.scale_role("decode", 3)
    world.settle()

    assert before.items() <= uids(world).items()
    assert set(world.pods()) - set(before) == {"ms-0-decode-2-0"}


def test_more_workers_make_instances_anew_one_by_one() -> None:
    world = settled(role(replicas=2, workers=1))
    world.edit(lambda spec: spec["template"]["roles"][0].update(workerReplicas=2))
    world.sync()
    assert deleted(world) == {"0-decode-1-0", "0-decode-1-1"}

    world.settle()

    assert len(world.pods()) == 6


def test_a_group_is_available_and_updated_only_when_nothing_of_it_rolls() -> None:
    world = settled(role(replicas=2))
    old = status(world)["currentRevision"]
    world.set_image("engine:2")
    seen = []
    for _ in range(12):
        world.sync()
        now = status(world)
        seen.append((now["availableReplicas"], now["updatedReplicas"], condition(world, "Ready")))
        new = [name for name, image in images(world).items() if image == "engine:2"]
        if len(new) < 2:
            assert seen[-1] == (0, 0, "False")
            assert now["currentRevision"] == old or not new
        world.end_terminations()
        world.sync()
        world.run_pods()

    assert seen[-1] == (1, 1, "True")
    assert status(world)["currentRevision"] == status(world)["updateRevision"] != old


def test_a_group_is_not_updated_while_a_replacement_cannot_be_created() -> None:
    world = settled(role("prefill"), role("decode"))
    world.set_image("engine:2", "decode")
    world.fault = lambda call: "refuse" if (call.verb, call.kind) == ("create", "Pod") else None
    for _ in range(5):
        world.sync()
        world.end_terminations()
        assert status(world)["updatedReplicas"] == 0
        assert status(world)["availableReplicas"] == 0
    assert condition(world, "ReplicaFailure") == "True"
    world.fault = lambda _call: None

    world.settle()

    assert status(world)["updatedReplicas"] == 1


def test_a_broken_template_can_be_rolled_over() -> None:
    world = settled(role(replicas=3))
    world.set_image("broken")
    world.sync()
    world.end_terminations()
    world.sync()
    assert ready_instances(world) == 2
    world.set_image("engine:1")
    world.take_calls()
    for _ in range(6):
        world.sync()
        assert ready_instances(world) >= 2
        world.end_terminations()

    world.settle()

    assert set(images(world).values()) == {"engine:1"}


def test_going_back_leaves_nothing_of_the_revision_between() -> None:
    world = settled(role("prefill"), role("decode", replicas=3))
    world.set_image("engine:2", "decode")
    for _ in range(3):
        world.sync()
        world.end_terminations()
        world.sync()
        world.run_pods()
    world.set_image("engine:1", "decode")

    world.settle()

    assert set(images(world).values()) == {"engine:1"}
    assert len(world.objects["ControllerRevision"]) == 1
    assert status(world)["currentRevision"] == status(world)["updateRevision"]


def test_the_revision_is_written_before_any_pod_and_the_old_one_kept_while_used() -> None:
    world = settled(role("prefill"), role("decode"))
    (old,) = world.objects["ControllerRevision"]
    world.set_image("engine:2", "decode")
    world.sync()
    calls = world.take_calls()
    assert calls[0].startswith("create ControllerRevision")
    assert calls.index("delete Pod ms-0-decode-0-0") > calls.index(
        f"annotate ControllerRevision {old}"
    )
    world.settle()

    assert old in world.objects["ControllerRevision"]
    assert len(world.objects["ControllerRevision"]) == 2
    notes = {
        name: json.loads(annotations_of(stored)[ANNOTATION_SLOTS])
        for name, stored in world.objects["ControllerRevision"].items()
    }
    assert notes[old]["instances"] == {"prefill/0": "0"}
    assert notes[old]["groups"] == ""

    world.set_image("engine:2", "prefill")
    world.settle()
    assert old not in world.objects["ControllerRevision"]


@pytest.mark.parametrize("policy", ["RoleRecreate", "None"])
def test_a_lost_pod_of_an_outdated_instance_brings_the_new_template(policy: str) -> None:
    world = settled(role(replicas=2, workers=1), recoveryPolicy=policy)
    world.set_image("engine:2")
    world.kill("ms-0-decode-0-1")
    world.sync()

    assert deleted(world) == {"0-decode-0-0"}
    world.settle()
    assert set(images(world).values()) == {"engine:2"}
    by_instance: dict[int, set[str]] = {}
    for name, pod in world.pods().items():
        by_instance.setdefault(place_of(name).instance, set()).add(labels_of(pod)[HASH])
    assert all(len(hashes) == 1 for hashes in by_instance.values())


def test_what_is_not_known_is_left_alone_until_it_lacks_something() -> None:
    world = settled(role(replicas=2))
    for name, stored in list(world.objects["ControllerRevision"].items()):
        world.drop("ControllerRevision", name_of(stored) or name)
    world.set_image("engine:2")
    before = uids(world)
    world.settle()
    assert uids(world) == before

    world.start("ms-0-decode-0-0", ready=False)
    world.kill("ms-0-decode-1-0")
    world.settle()

    assert images(world) == {"0-decode-0": "engine:1", "0-decode-1": "engine:2"}
