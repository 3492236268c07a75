"""Rolling updates by groups: budget, partition, revisions of slots, and the way back."""

from typing import Any

import pytest

from kthena.machinery.objects import labels_of, uid_of
from support.workload_api import CrashedError
from support.workload_view import place_of
from support.workload_world import World, is_ready, role, rolling, serving


def settled(*roles: dict[str, Any], **more: Any) -> World:
    world = World()
    world.apply(serving(*roles, **more))
    world.settle()
    world.take_calls()
    return world


def images(world: World) -> dict[int, set[str]]:
    """The images of each group's entry pods."""
    found: dict[int, set[str]] = {}
    for name, pod in world.pods().items():
        image = pod["spec"]["containers"][0]["image"]
        if place_of(name).index == 0:
            found.setdefault(place_of(name).group, set()).add(image)
    return found


def ready_groups(world: World) -> int:
    by_group: dict[int, list[bool]] = {}
    for name, pod in world.pods().items():
        alive = is_ready(pod) and not pod["metadata"].get("deletionTimestamp")
        by_group.setdefault(place_of(name).group, []).append(alive)
    return sum(all(states) for states in by_group.values())


def deleted_groups(world: World) -> set[int]:
    calls = [call.split() for call in world.take_calls()]
    return {place_of(call[2]).group for call in calls if call[:2] == ["delete", "Pod"]}


@pytest.mark.parametrize(
    ("max_unavailable", "first"),
    [
        (1, {3}),
        (2, {2, 3}),
        ("50%", {2, 3}),
        ("10%", {3}),
        ("0%", {3}),
        (0, {3}),
        (9, {0, 1, 2, 3}),
    ],
)
def test_so_many_groups_are_replaced_at_once_from_the_highest(
    max_unavailable: Any, first: set[int]
) -> None:
    world = settled(replicas=4, rolloutStrategy=rolling(maxUnavailable=max_unavailable))
    world.set_image("engine:2")

    world.sync()

    assert deleted_groups(world) == first


def test_a_rollout_waits_for_the_new_group_before_it_takes_the_next() -> None:
    world = settled(replicas=3)
    world.set_image("engine:2")
    world.sync()
    assert deleted_groups(world) == {2}
    world.end_terminations()
    world.sync()
    for _ in range(3):
        world.sync()
    assert deleted_groups(world) == set()

    world.run_pods()
    world.sync()

    assert deleted_groups(world) == {1}


def test_a_rollout_never_goes_below_its_budget_and_ends() -> None:
    world = settled(role("prefill", workers=1), role("decode"), replicas=4)
    world.set_image("engine:2")
    for _ in range(40):
        world.sync()
        assert ready_groups(world) >= 3
        world.end_terminations()
        world.sync()
        assert ready_groups(world) >= 3
        world.run_pods()

    assert images(world) == {group: {"engine:2"} for group in range(4)}


def test_a_controller_that_is_killed_at_any_call_keeps_the_budget() -> None:
    for crash_at in range(1, 12):
        world = settled(role(workers=1), replicas=3)
        world.set_image("engine:2")
        counted = [0]

        def fault(_call: object, counted: list[int] = counted, at: int = crash_at) -> str | None:
            counted[0] += 1
            return "crash-after" if counted[0] == at else None

        world.fault = fault
        for _ in range(30):
            try:
                world.sync()
            except CrashedError:
                world.restart_controller()
            assert ready_groups(world) >= 2, crash_at
            world.end_terminations()
            world.run_pods()

        assert images(world) == {group: {"engine:2"} for group in range(3)}


def test_groups_that_are_down_are_replaced_at_once_and_cost_nothing() -> None:
    # A rollout must begin also when everything is broken already.
    world = World()
    world.apply(serving(role(image="cannot-be-pulled"), replicas=3, rolloutStrategy=rolling()))
    world.sync()
    world.set_image("engine:2")

    world.sync()

    assert deleted_groups(world) == {0, 1, 2}
    world.settle()
    assert images(world) == {group: {"engine:2"} for group in range(3)}


def test_a_group_that_is_down_goes_before_one_that_serves() -> None:
    world = settled(replicas=3)
    world.start("ms-0-decode-0-0", ready=False)
    world.set_image("engine:2")

    world.sync()

    assert deleted_groups(world) == {0}


def test_an_unavailable_protected_group_counts_against_the_budget() -> None:
    world = settled(replicas=3, rolloutStrategy=rolling(partition=1))
    world.start("ms-0-decode-0-0", ready=False)
    world.set_image("engine:2")

    world.sync()

    assert deleted_groups(world) == set()


def test_an_edit_of_everything_at_once_takes_one_group_at_a_time() -> None:
    world = settled(role(workers=1), replicas=3)

    def change(spec: dict[str, Any]) -> None:
        only = spec["template"]["roles"][0]
        only["entryTemplate"]["spec"]["containers"][0]["image"] = "engine:2"
        only["workerReplicas"] = 2
        only["replicas"] = 2

    world.edit(change)
    for _ in range(4):
        world.sync()
        serving_groups = sum(
            is_ready(pod) and not pod["metadata"].get("deletionTimestamp")
            for name, pod in world.pods().items()
            if name.endswith("decode-0-0")
        )
        assert serving_groups >= 2

    world.settle()
    assert images(world) == {group: {"engine:2"} for group in range(3)}
    assert len(world.pods()) == 3 * 2 * 3


@pytest.mark.parametrize(
    ("replicas", "partition", "updated"),
    [(5, 3, {3, 4}), (5, "50%", {3, 4}), (4, "50%", {2, 3}), (2, 5, set()), (2, 2, set()),
     (2, "100%", set()), (3, 0, {0, 1, 2}), (3, "0%", {0, 1, 2})],
)  # fmt: skip
def test_the_partition_keeps_low_ordinals_at_their_revision(
    replicas: int, partition: Any, updated: set[int]
) -> None:
    world = settled(replicas=replicas, rolloutStrategy=rolling(partition=partition))
    world.set_image("engine:2")
    world.settle()

    found = images(world)
    assert {group for group, kinds in found.items() if kinds == {"engine:2"}} == updated
    status = world.objects["ModelServing"]["ms"]["status"]
    assert status["updatedReplicas"] == len(updated)
    assert status["availableReplicas"] == replicas


def test_nothing_is_updated_when_the_partition_covers_all_groups_also_sparse_ones() -> None:
    world = settled(replicas=4)
    cost = {"controller.kubernetes.io/pod-deletion-cost": "-1"}
    for name in ("ms-0-decode-0-0", "ms-1-decode-0-0"):
        world.patch("Pod", name, lambda pod: pod["metadata"].update(annotations=cost))
    world.scale(2)
    world.settle()
    world.edit(lambda spec: spec.update(rolloutStrategy=rolling(partition=2)))
    world.set_image("engine:2")

    world.settle()

    assert images(world) == {2: {"engine:1"}, 3: {"engine:1"}}


def test_new_groups_above_the_partition_are_new_and_below_it_old() -> None:
    world = settled(replicas=5, rolloutStrategy=rolling(partition=3))
    world.set_image("engine:2")
    world.settle()

    world.scale(7)
    world.settle()
    assert images(world)[6] == {"engine:2"}

    world.scale(2)
    world.settle()
    status = world.objects["ModelServing"]["ms"]["status"]
    assert (status["updatedReplicas"], status["currentReplicas"]) == (0, 2)
    world.scale(3)
    world.settle()
    assert images(world) == {0: {"engine:1"}, 1: {"engine:1"}, 2: {"engine:1"}}


@pytest.mark.parametrize("crash_at", [None, *range(1, 8)])
def test_a_lost_protected_group_comes_back_as_it_was(crash_at: int | None) -> None:
    world = settled(replicas=3, rolloutStrategy=rolling(partition=2))
    world.set_image("engine:2")
    world.settle()
    world.set_image("engine:3")
    counted = [0]

    def fault(_call: object) -> str | None:
        counted[0] += 1
        return "crash-before" if counted[0] == crash_at else None

    world.fault = fault
    for name in ("ms-0-decode-0-0", "ms-1-decode-0-0"):
        world.kill(name)
    world.end_terminations()
    try:
        world.sync()
    except CrashedError:
        world.restart_controller()
    world.fault = lambda _call: None
    world.settle()

    assert images(world) == {0: {"engine:1"}, 1: {"engine:1"}, 2: {"engine:3"}}


@pytest.mark.parametrize("back", [False, True], ids=["forward", "back"])
def test_a_move_that_was_cut_short_leaves_a_group_what_it_was(back: bool) -> None:
    world = settled(replicas=2, rolloutStrategy=rolling(partition=1 if back else 0))
    if back:
        world.set_image("engine:2")
        world.settle()
    world.set_image("engine:1" if back else "engine:2")
    lost = 1 if back else 0
    before = images(world)[lost]
    world.kill(f"ms-{lost}-decode-0-0")
    world.end_terminations()
    world.fault = lambda _call: "crash-after"
    with pytest.raises(CrashedError):
        world.sync()
    world.fault = lambda _call: None
    world.restart_controller()
    world.edit(lambda spec: spec.update(rolloutStrategy=rolling(partition=2)))

    world.settle()

    assert images(world)[lost] == before


def test_each_protected_group_keeps_its_own_revision() -> None:
    world = settled(replicas=3, rolloutStrategy=rolling(partition=1))
    world.set_image("engine:2")
    world.settle()
    world.edit(lambda spec: spec.update(rolloutStrategy=rolling(partition=3)))
    world.set_image("engine:3")
    world.settle()
    for name in list(world.pods()):
        world.kill(name)
    world.end_terminations()
    world.restart_controller()

    world.settle()

    assert images(world) == {0: {"engine:1"}, 1: {"engine:2"}, 2: {"engine:2"}}


def test_going_back_in_mid_rollout_leaves_nothing_of_the_revision_between() -> None:
    world = settled(replicas=5, rolloutStrategy=rolling(partition=2))
    world.set_image("engine:2")
    world.settle()
    world.kill("ms-0-decode-0-0")
    world.set_image("engine:1")
    world.settle()

    assert images(world) == {group: {"engine:1"} for group in range(5)}
    status = world.objects["ModelServing"]["ms"]["status"]
    assert status["currentRevision"] == status["updateRevision"]
    assert len(world.objects["ControllerRevision"]) == 1


def test_going_back_before_anything_rolled_touches_nothing() -> None:
    world = settled(replicas=3)
    uids = {name: uid_of(pod) for name, pod in world.pods().items()}
    world.set_image("engine:2")
    world.set_image("engine:1")

    world.settle()

    assert uids == {name: uid_of(pod) for name, pod in world.pods().items()}


@pytest.mark.parametrize(
    "change",
    [
        {"recoveryPolicy": "None"},
        {"rolloutStrategy": rolling(maxUnavailable=2, partition=1)},
        {"schedulerName": "other"},
    ],
)
def test_settings_that_are_no_part_of_pods_roll_nothing(change: dict[str, Any]) -> None:
    world = settled(role(workers=1), replicas=2)
    world.edit(lambda spec: spec.update(change))
    world.edit(lambda spec: spec["template"].update(restartGracePeriodSeconds=7))
    world.edit(lambda spec: spec["template"]["roles"][0].update(maxUnavailable=2))

    world.settle()

    assert not [call for call in world.take_calls() if "Pod" in call]


def test_the_order_of_roles_and_of_notations_rolls_nothing() -> None:
    world = settled(role("prefill"), role("decode"), replicas=2)

    def change(spec: dict[str, Any]) -> None:
        spec["template"]["roles"].reverse()
        for each in spec["template"]["roles"]:
            each["entryTemplate"]["metadata"] = {}
            each["entryTemplate"]["spec"]["containers"][0]["resources"] = {}

    world.edit(change)
    world.settle()

    assert not [call for call in world.take_calls() if "Pod" in call or "Revision" in call]


def test_a_role_that_is_removed_or_added_in_mid_rollout_does_no_harm() -> None:
    world = settled(role("prefill"), role("decode"), replicas=3)
    world.set_image("engine:2")
    world.sync()
    world.edit(lambda spec: spec["template"]["roles"].pop())
    world.sync()
    assert ready_groups(world) >= 2
    world.edit(lambda spec: spec["template"]["roles"].append(role("extra", workers=1)))
    world.settle()

    names = {place_of(name).role for name in world.pods()}
    assert names == {"prefill", "extra"}
    assert sorted(world.objects["Service"]) == [f"ms-{group}-extra-0-0" for group in range(3)]


def test_groups_before_their_turn_are_healed_and_scaled_at_their_own_revision() -> None:
    world = settled(role("prefill"), role("decode"), replicas=3)
    world.set_image("engine:2")
    world.sync()
    world.kill("ms-0-decode-0-0")
    world.end_terminations()
    world.scale_role("prefill", 2)

    world.sync()

    old = labels_of(world.pods()["ms-1-decode-0-0"])["modelserving.volcano.sh/revision"]
    assert labels_of(world.pods()["ms-1-prefill-1-0"])["modelserving.volcano.sh/revision"] == old


def test_revisions_are_written_first_kept_while_used_and_then_removed() -> None:
    world = settled(replicas=2, rolloutStrategy=rolling(partition=1))
    first = list(world.objects["ControllerRevision"])
    world.set_image("engine:2")
    world.sync()
    assert world.take_calls()[0].startswith("create ControllerRevision")
    world.settle()
    assert len(world.objects["ControllerRevision"]) == 2

    world.edit(lambda spec: spec.update(rolloutStrategy=rolling()))
    world.settle()

    assert len(world.objects["ControllerRevision"]) == 1
    assert list(world.objects["ControllerRevision"]) != first


def test_no_pod_is_made_when_its_revision_cannot_be_written() -> None:
    world = World()
    world.apply(serving(replicas=2))
    world.fault = lambda call: "refuse" if call.kind == "ControllerRevision" else None

    world.sync()

    assert world.pods() == {}
    conditions = world.objects["ModelServing"]["ms"]["status"]["conditions"]
    assert {c["type"] for c in conditions if c["status"] == "True"} >= {"ReplicaFailure"}


def test_all_groups_protected_from_the_start_still_have_a_revision() -> None:
    world = settled(replicas=2, rolloutStrategy=rolling(partition=2))

    assert len(world.objects["ControllerRevision"]) == 1
    world.set_image("engine:2")
    world.kill("ms-0-decode-0-0")
    world.settle()
    assert images(world) == {0: {"engine:1"}, 1: {"engine:1"}}


def test_a_stale_cache_of_pods_does_not_take_a_second_group() -> None:
    world = settled(replicas=3)
    world.set_image("engine:2")
    world.freeze("Pod")
    world.sync()
    world.take_calls()
    for _ in range(3):
        world.sync()

    assert deleted_groups(world) == set()


def test_a_revision_stays_while_a_pod_of_it_is_on_its_way_out() -> None:
    world = settled(replicas=2, rolloutStrategy=rolling(partition=1))
    world.set_image("engine:2")
    world.settle()
    cheap = {"controller.kubernetes.io/pod-deletion-cost": "-9"}
    world.edit(lambda spec: spec.update(rolloutStrategy=rolling(partition=0, maxUnavailable=1)))
    world.start("ms-1-decode-0-0", ready=False)
    world.patch("Pod", "ms-0-decode-0-0", lambda pod: pod["metadata"].update(annotations=cheap))
    world.scale(1)
    world.start("ms-1-decode-0-0")
    for _ in range(4):
        world.sync()
    assert len(world.objects["ControllerRevision"]) == 2

    world.end_terminations()
    world.settle()

    assert len(world.objects["ControllerRevision"]) == 1
