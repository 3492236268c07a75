"""Updates that add groups for their time (`maxSurge`): where, how many, how long, and never sparse."""

import json
from typing import Any

import pytest

from kthena.machinery.objects import annotations_of, is_terminating, uid_of
from kthena.workload.records import ANNOTATION_SLOTS
from support.workload_api import CrashedError
from support.workload_view import place_of
from support.workload_world import World, by_roles, is_ready, role, rolling, serving

COST = "controller.kubernetes.io/pod-deletion-cost"


def surging(surge: Any = 1, unavailable: Any = 0, **more: Any) -> dict[str, Any]:
    return rolling(maxSurge=surge, maxUnavailable=unavailable, **more)


def settled(strategy: dict[str, Any], *roles: dict[str, Any], **more: Any) -> World:
    world = World()
    world.apply(serving(*roles, **{"replicas": 3, "rolloutStrategy": strategy, **more}))
    world.settle()
    world.take_calls()
    return world


def groups(world: World) -> dict[int, str]:
    """The image of each group that is not on its way out, by ordinal."""
    return {
        place_of(name).group: pod["spec"]["containers"][0]["image"]
        for name, pod in world.pods().items()
        if not is_terminating(pod)
    }


def ready(world: World) -> int:
    found: dict[int, list[bool]] = {}
    for name, pod in world.pods().items():
        alive = is_ready(pod) and not is_terminating(pod)
        found.setdefault(place_of(name).group, []).append(alive)
    return sum(all(each) for each in found.values())


def status(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.objects["ModelServing"]["ms"]["status"]
    return found


def is_true(world: World, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in status(world)["conditions"])


def turn(world: World) -> None:
    world.sync()
    world.end_terminations()
    world.sync()
    world.run_pods()


@pytest.mark.parametrize(
    ("surge", "added"), [(1, {3}), (2, {3, 4}), ("34%", {3, 4}), ("1%", {3}), (9, {3, 4, 5})]
)
def test_so_many_groups_are_added_with_ordinals_from_the_count_on(
    surge: Any, added: set[int]
) -> None:
    world = settled(surging(surge))
    world.set_image("engine:2")

    world.sync()

    assert groups(world).keys() == {0, 1, 2} | added
    assert {groups(world)[ordinal] for ordinal in added} == {"engine:2"}
    assert not [call for call in world.take_calls() if call.startswith("delete")]


@pytest.mark.parametrize("surge", [0, "0%", None])
def test_without_a_surge_one_group_is_down_whatever_the_spec_says(surge: Any) -> None:
    world = settled(surging(surge, 0))
    world.set_image("engine:2")

    world.sync()

    assert groups(world) == {0: "engine:1", 1: "engine:1"}


@pytest.mark.parametrize(
    ("surge", "unavailable", "least", "most"), [(1, 0, 3, 4), (2, 0, 3, 5), (1, 1, 2, 4)]
)
def test_an_update_keeps_both_bounds_and_ends_dense(
    surge: int, unavailable: int, least: int, most: int
) -> None:
    world = settled(surging(surge, unavailable), role("prefill", workers=1), role("decode"))
    world.set_image("engine:2")
    for _ in range(15):
        turn(world)
        assert ready(world) >= least
        assert len(groups(world)) <= most
        assert status(world)["availableReplicas"] <= status(world)["replicas"] <= most

    world.settle()
    found = world.pods().items()
    images = {
        pod["spec"]["containers"][0]["image"] for name, pod in found if place_of(name).index == 0
    }
    assert images == {"engine:2"}
    assert groups(world).keys() == {0, 1, 2}
    assert status(world)["replicas"] == status(world)["updatedReplicas"] == 3


@pytest.mark.parametrize("crash_at", range(1, 16))
def test_a_controller_that_is_killed_at_any_call_ends_dense_and_takes_nothing_away(
    crash_at: int,
) -> None:
    world = settled(surging())
    world.set_image("engine:2")
    counted = [0]

    def fault(_call: object) -> str | None:
        counted[0] += 1
        return "crash-after" if counted[0] == crash_at else None

    world.fault = fault
    for _ in range(12):
        try:
            world.sync()
        except CrashedError:
            world.restart_controller()
        assert ready(world) >= 3
        assert len(groups(world)) <= 4
        world.end_terminations()
        world.run_pods()
    world.settle()

    assert groups(world) == dict.fromkeys(range(3), "engine:2")


def test_a_surge_is_not_ready_before_it_is_over() -> None:
    world = settled(surging())
    world.set_image("engine:2")
    while len(groups(world)) > 3 or "engine:1" in groups(world).values():
        world.sync()
        assert not is_true(world, "Ready")
        assert not is_true(world, "Available")
        world.end_terminations()
        world.run_pods()
    world.settle()

    assert is_true(world, "Ready")
    notes = [
        annotations_of(s)[ANNOTATION_SLOTS] for s in world.objects["ControllerRevision"].values()
    ]
    assert not [note for note in notes if "surge" in json.loads(note)]


def test_groups_that_are_down_need_no_surge() -> None:
    world = World()
    world.apply(serving(role(image="broken"), replicas=3, rolloutStrategy=surging()))
    world.sync()
    world.set_image("engine:2")
    world.sync()
    world.end_terminations()
    world.sync()

    assert groups(world) == dict.fromkeys(range(3), "engine:2")


def test_a_failing_group_alone_brings_no_surge() -> None:
    world = settled(surging())
    world.start("ms-1-decode-0-0", ready=False)
    world.sync()

    assert groups(world).keys() == {0, 1, 2}


def test_a_broken_revision_takes_nothing_away_and_can_be_rolled_back() -> None:
    world = settled(surging())
    before = {name: uid_of(pod) for name, pod in world.pods().items()}
    world.set_image("broken")
    for _ in range(4):
        world.sync()
        world.end_terminations()
    assert ready(world) == 3
    world.set_image("engine:1")

    world.settle()

    assert {name: uid_of(pod) for name, pod in world.pods().items()} == before


def test_a_newer_template_replaces_the_surge_as_well() -> None:
    world = settled(surging())
    world.set_image("engine:2")
    world.sync()
    world.run_pods()
    world.set_image("engine:3")
    for _ in range(12):
        turn(world)
        assert ready(world) >= 3
    world.settle()

    assert groups(world) == dict.fromkeys(range(3), "engine:3")


@pytest.mark.parametrize(
    ("partition", "updated"), [(1, {1, 2}), (2, {2}), ("50%", {2}), (3, set()), (5, set())]
)
def test_the_partition_holds_and_leaves_no_gap(partition: Any, updated: set[int]) -> None:
    world = settled(surging(2, partition=partition))
    world.set_image("engine:2")
    for _ in range(10):
        turn(world)
        assert ready(world) >= 3
    world.settle()

    assert groups(world).keys() == {0, 1, 2}
    assert {o for o, image in groups(world).items() if image == "engine:2"} == updated


def test_a_partition_that_comes_to_cover_all_ends_the_surge() -> None:
    world = settled(surging())
    world.set_image("engine:2")
    world.sync()
    world.run_pods()
    world.edit(lambda spec: spec.update(rolloutStrategy=surging(partition=3)))

    world.settle()

    assert groups(world) == dict.fromkeys(range(3), "engine:1")


@pytest.mark.parametrize("replicas", [1, 2, 4, 6])
def test_scaling_in_the_middle_ends_dense(replicas: int) -> None:
    world = settled(surging())
    world.set_image("engine:2")
    world.sync()
    world.run_pods()
    world.scale(replicas)
    for _ in range(20):
        turn(world)
        assert ready(world) >= min(3, replicas)
    world.settle()

    assert groups(world) == dict.fromkeys(range(replicas), "engine:2")


def test_a_group_of_a_surge_that_the_count_reaches_stays() -> None:
    world = settled(surging())
    world.set_image("engine:2")
    world.sync()
    world.run_pods()
    before = uid_of(world.pods()["ms-3-decode-0-0"])
    world.scale(4)
    world.settle()

    assert uid_of(world.pods()["ms-3-decode-0-0"]) == before


def test_scaling_down_in_the_middle_takes_the_group_that_is_being_replaced() -> None:
    world = settled(surging(), replicas=4)
    world.set_image("engine:2")
    world.sync()
    world.run_pods()
    world.sync()
    world.take_calls()
    world.scale(3)
    world.sync()

    # Group 3 is on its way out already and comes back no more; so the next one has its turn.
    assert [c for c in world.take_calls() if c.startswith("delete")] == [
        "delete Pod ms-2-decode-0-0"
    ]
    assert ready(world) == 3
    world.settle()
    assert groups(world) == dict.fromkeys(range(3), "engine:2")


@pytest.mark.parametrize("strategy", [rolling(), by_roles()], ids=["no surge", "by roles"])
def test_without_a_surge_from_now_on_the_groups_go_when_the_others_serve(
    strategy: dict[str, Any],
) -> None:
    world = settled(surging(2))
    world.set_image("engine:2")
    world.sync()
    world.run_pods()
    world.sync()
    world.edit(lambda spec: spec.update(rolloutStrategy=strategy))
    for _ in range(10):
        turn(world)
    world.settle()

    assert groups(world) == dict.fromkeys(range(3), "engine:2")


def test_groups_with_high_ordinals_of_another_making_are_no_surge() -> None:
    world = settled(surging())
    world.patch(
        "Pod", "ms-0-decode-0-0", lambda pod: pod["metadata"].update(annotations={COST: "-9"})
    )
    world.scale(2)
    world.settle()
    assert groups(world).keys() == {1, 2}
    world.set_image("engine:2")
    world.sync()
    assert groups(world).keys() == {1, 2, 3}

    world.settle()

    assert groups(world) == {0: "engine:2", 1: "engine:2"}


def test_a_lost_group_of_a_surge_comes_back_while_it_is_needed() -> None:
    world = settled(surging())
    world.set_image("engine:2")
    world.sync()
    world.run_pods()
    world.kill("ms-3-decode-0-0")
    for _ in range(12):
        turn(world)
        assert ready(world) >= 3 or 3 not in groups(world)

    world.settle()
    assert groups(world) == dict.fromkeys(range(3), "engine:2")


def test_scaling_to_zero_takes_the_surge_too() -> None:
    world = settled(surging())
    world.set_image("engine:2")
    world.sync()
    world.run_pods()
    world.scale(0)
    world.settle()

    assert world.pods() == {}
    assert status(world)["replicas"] == 0
