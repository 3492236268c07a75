"""Groups and role instances: creation, growth, shrinking, and who goes first."""

from typing import Any

import pytest

from kthena.machinery.objects import uid_of
from kthena.workload.planner.plan import CreatePod, DeletePod
from kthena.workload.planner.planner import plan
from support.workload_invariants import Invariants
from support.workload_view import place_of
from support.workload_world import World, role, rolling, serving

COST = "controller.kubernetes.io/pod-deletion-cost"


def settled(*roles: dict[str, Any], **more: Any) -> World:
    world = World()
    world.apply(serving(*roles, **more))
    world.settle()
    world.take_calls()
    return world


def groups(world: World) -> set[int]:
    return {place_of(name).group for name in world.pods()}


def instances(world: World, role_name: str, group: int = 0) -> set[int]:
    places = map(place_of, world.pods())
    return {place.instance for place in places if (place.group, place.role) == (group, role_name)}


def set_cost(world: World, group: int, cost: str) -> None:
    for name in world.pods():
        if place_of(name).group == group:
            world.patch("Pod", name, lambda pod: pod["metadata"].update(annotations={COST: cost}))


def test_each_object_is_created_once_and_nothing_is_written_at_rest() -> None:
    world = World()
    world.apply(serving(role("prefill", workers=1), role("decode", workers=1), replicas=2))

    world.settle()

    calls = world.take_calls()
    created = [call for call in calls if call.startswith("create")]
    assert len(created) == len(set(created)) == 8 + 4 + 1
    world.sync()
    assert world.take_calls() == []


def test_services_come_before_pods_and_revisions_before_both() -> None:
    world = World()
    world.apply(serving(role(workers=1)))

    world.sync()

    kinds = [call.split()[1] for call in world.take_calls() if call.startswith("create")]
    assert kinds == ["ControllerRevision", "Service", "Pod", "Pod"]


def test_only_roles_with_a_worker_template_have_services() -> None:
    world = settled(role("prefill"), role("decode", workerTemplate={"spec": {"containers": []}}))

    assert sorted(world.objects["Service"]) == ["ms-0-decode-0-0"]


def test_a_deleted_service_comes_back() -> None:
    world = settled(role(workers=1))
    world.remove("Service", "ms-0-decode-0-0")

    world.sync()

    assert world.take_calls() == ["create Service ms-0-decode-0-0", "status ModelServing ms"]


def test_groups_grow_by_the_smallest_free_ordinals() -> None:
    world = settled(replicas=4)
    for ordinal in (1, 3):
        set_cost(world, ordinal, "-1")
    world.scale(2)
    world.settle()
    assert groups(world) == {0, 2}

    world.scale(5)
    world.settle()

    assert groups(world) == {0, 1, 2, 3, 4}


def test_groups_beyond_the_count_take_the_place_of_missing_ones() -> None:
    world = settled(replicas=6)
    for ordinal in (1, 2, 3, 4):
        set_cost(world, ordinal, "-1")
    world.scale(2)
    world.settle()
    assert groups(world) == {0, 5}

    world.scale(4)
    world.settle()

    assert groups(world) == {0, 1, 2, 5}


def test_highest_ordinals_go_first() -> None:
    world = settled(replicas=4)
    world.scale(2)
    world.settle()

    assert groups(world) == {0, 1}
    assert not [name for name in world.objects["Service"] if name.startswith(("ms-2", "ms-3"))]


def test_groups_that_are_not_available_go_before_those_that_are() -> None:
    world = settled(replicas=3)
    world.start("ms-0-decode-0-0", ready=False)
    world.scale(2)
    world.sync()

    assert world.take_calls()[-2:] == ["delete Pod ms-0-decode-0-0", "status ModelServing ms"]


@pytest.mark.parametrize(
    ("costs", "left"), [({0: "-5"}, {1, 2}), ({2: "10", 1: "nonsense"}, {0, 2})]
)
def test_cheap_groups_go_first(costs: dict[int, str], left: set[int]) -> None:
    world = settled(replicas=3)
    for group, cost in costs.items():
        set_cost(world, group, cost)
    world.scale(2)
    world.settle()

    assert groups(world) == left


def test_protected_groups_go_last_and_only_when_they_must() -> None:
    world = settled(replicas=4, rolloutStrategy=rolling(partition=2))
    world.start("ms-0-decode-0-0", ready=False)
    world.scale(3)
    world.sync()
    assert "delete Pod ms-3-decode-0-0" in world.take_calls()

    world.scale(1)
    world.settle()
    assert groups(world) == {1}


def test_groups_on_their_way_out_count_as_victims() -> None:
    world = settled(replicas=4)
    world.kill("ms-1-decode-0-0")
    world.scale(3)

    world.sync()

    assert not [call for call in world.take_calls() if call.startswith("delete")]


def test_scaling_to_zero_and_back_within_the_grace_period_ends_well() -> None:
    world = settled(role(workers=1), replicas=4)
    for _ in range(5):
        world.scale(0)
        world.sync()
        world.scale(4)
        world.sync()
        world.sync()
        assert not [call for call in world.take_calls() if call.startswith("create")]
        world.settle()
        assert groups(world) == {0, 1, 2, 3}
        assert len(world.objects["Service"]) == 4
        world.take_calls()


def test_a_group_is_not_made_again_before_all_its_pods_are_gone() -> None:
    world = settled(role("prefill"), role("decode"))
    world.scale(0)
    world.sync()
    world.scale(1)
    world.drop("Pod", "ms-0-decode-0-0")

    world.sync()

    assert not [call for call in world.take_calls() if call.startswith("create")]


def test_a_terminating_group_beyond_the_count_takes_nobodys_place() -> None:
    world = settled(replicas=3)
    world.scale(2)
    world.sync()
    world.kill("ms-0-decode-0-0")
    world.drop("Pod", "ms-0-decode-0-0")
    world.take_calls()

    world.sync()

    assert "create Pod ms-0-decode-0-0" in world.take_calls()


def test_roles_grow_and_shrink_in_every_group_without_a_rollout() -> None:
    world = settled(role("prefill"), role("decode", replicas=2), replicas=2)
    uids = {name: uid_of(pod) for name, pod in world.pods().items()}
    world.scale_role("decode", 3)
    world.settle()
    assert all(instances(world, "decode", group) == {0, 1, 2} for group in (0, 1))

    world.scale_role("decode", 1)
    world.settle()

    assert all(instances(world, "decode", group) == {0} for group in (0, 1))
    assert all(uids[name] == uid_of(pod) for name, pod in world.pods().items())


def test_role_scaling_reaches_protected_groups() -> None:
    world = settled(
        role("prefill"), role("decode"), replicas=2, rolloutStrategy=rolling(partition=2)
    )
    world.set_image("engine:2")
    world.scale_role("decode", 2)
    world.settle()

    assert instances(world, "decode", 0) == {0, 1}
    new = world.pods()["ms-0-decode-1-0"]
    assert new["spec"]["containers"][0]["image"] == "engine:1"


def test_the_first_instance_of_the_counted_role_goes_last() -> None:
    world = settled(role("prefill", replicas=3), role("decode", replicas=3))
    for name in ("ms-0-prefill-0-0", "ms-0-decode-0-0"):
        world.start(name, ready=False)
    world.scale_role("prefill", 1)
    world.scale_role("decode", 2)
    world.settle()

    assert instances(world, "prefill") == {0}
    assert instances(world, "decode") == {1, 2}


def test_what_serves_in_place_of_the_first_instance_goes_when_that_is_ready() -> None:
    world = settled(role("decode", replicas=2))
    world.start("ms-0-decode-0-0", ready=False)
    world.scale_role("decode", 1)

    world.sync()
    status = world.objects["ModelServing"]["ms"]["status"]
    assert set(world.pods()) == {"ms-0-decode-0-0", "ms-0-decode-1-0"}
    assert not [call for call in world.take_calls() if "Pod" in call]
    assert status["availableReplicas"] == 1
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "False"

    world.settle()
    assert set(world.pods()) == {"ms-0-decode-0-0"}


def test_all_roles_at_zero_are_groups_without_pods() -> None:
    world = settled(role("prefill", replicas=0), role("decode", replicas=0), replicas=3)

    status = world.objects["ModelServing"]["ms"]["status"]
    assert (status["replicas"], status["availableReplicas"], status["updatedReplicas"]) == (3, 3, 3)
    assert world.pods() == {}

    world.scale_role("decode", 1)
    world.settle()
    assert groups(world) == {0, 1, 2}


def test_nothing_is_being_formed_in_a_protected_group_whose_roles_are_at_zero() -> None:
    world = World()
    world.apply(serving(role(workers=1), rolloutStrategy=rolling(partition="100%")))
    world.fault = lambda call: "refuse" if call.name == "ms-0-decode-0-1" else None
    world.sync()
    world.fault = lambda _call: None
    world.kill("ms-0-decode-0-0")
    world.end_terminations()
    world.scale_role("decode", 0)

    world.settle()

    Invariants(world).check_rest()
    world.scale_role("decode", 1)
    world.settle()
    assert len(world.pods()) == 2


@pytest.mark.parametrize("updated", [False, True], ids=["scaled away", "updated"])
def test_a_group_that_goes_while_its_roles_are_at_zero_is_counted_right(updated: bool) -> None:
    world = settled(role("prefill"), role("decode", replicas=2))
    checks = Invariants(world)
    checks.check_world()
    if updated:
        world.set_image("engine:2", "prefill")
    else:
        world.scale(0)
    for name in ("prefill", "decode"):
        world.scale_role(name, 0)

    observed = world.observe()
    assert observed is not None
    checks.check_plan(observed, plan(observed, world.now))
    world.settle()

    checks.check_rest()
    assert world.pods() == {}


def test_scaling_during_a_rollout_keeps_to_the_budget_and_ends_on_the_new_revision() -> None:
    world = settled(replicas=3, rolloutStrategy=rolling())
    world.set_image("engine:2")
    world.sync()
    world.scale(5)
    world.settle()

    images = {pod["spec"]["containers"][0]["image"] for pod in world.pods().values()}
    assert images == {"engine:2"}
    assert groups(world) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("field", ["replicas", "role", "workers"])
def test_a_huge_count_is_worked_off_in_batches(field: str) -> None:
    world = World()
    huge = 2_000_000_000
    match field:
        case "replicas":
            world.apply(serving(replicas=huge))
        case "role":
            world.apply(serving(role(replicas=huge)))
        case _:
            world.apply(serving(role(workers=huge)))

    observed = world.observe()
    assert observed is not None
    decision = plan(observed, world.now)

    assert sum(isinstance(action, CreatePod) for action in decision.actions) == 1000
    assert decision.requeue_after_s == 0


def test_negative_counts_of_a_stored_object_mean_none() -> None:
    world = World()
    world.apply(serving(role(replicas=-1), replicas=-5))

    world.settle()

    assert world.pods() == {}


def test_a_batch_that_is_full_is_not_taken_for_a_loss() -> None:
    world = World()
    world.apply(serving(replicas=400, recoveryPolicy="ServingGroupRecreate"))
    world.settle()
    world.scale_role("decode", 4)
    deleted = []
    for _ in range(4):
        decision = world.sync()
        assert decision is not None
        deleted += [action for action in decision.actions if isinstance(action, DeletePod)]
        world.run_pods()

    assert deleted == []
    assert len(world.pods()) == 1600
