"""Specs that ask for what this version does not do, and schedulers that are not there."""

from typing import Any

import pytest

from kthena.workload.planner.observed import Capabilities
from support.workload_world import World, role, serving

REFUSED: dict[str, dict[str, Any]] = {
    "spec.plugins": {"plugins": [{"name": "demo-pod-tweaks", "type": "BuiltIn"}]},
}


def conditions(world: World) -> dict[str, dict[str, str]]:
    status = world.objects["ModelServing"]["ms"]["status"]
    return {condition["type"]: condition for condition in status["conditions"]}


def refuse(world: World, more: dict[str, Any]) -> None:
    """Add what is not supported to the stored object."""

    def change(spec: dict[str, Any]) -> None:
        spec.update(more)

    world.edit(change)


def live(more: dict[str, Any], **spec: Any) -> World:
    """A ModelServing with running groups to whose spec something is added."""
    world = World()
    world.apply(serving(role("prefill", workers=1), role("decode"), replicas=2, **spec))
    world.settle()
    refuse(world, more)
    world.take_calls()
    return world


@pytest.mark.parametrize("field", REFUSED)
def test_a_new_modelserving_is_not_accepted_and_gets_no_group(field: str) -> None:
    world = World()
    world.apply(serving(replicas=2, **REFUSED[field]))

    world.settle()

    assert world.pods() == {}
    assert conditions(world)["Accepted"]["status"] == "False"
    assert conditions(world)["Accepted"]["reason"] == "NotSupported"
    assert field in conditions(world)["Accepted"]["message"]
    assert conditions(world)["Stalled"]["status"] == "True"
    assert conditions(world)["Ready"]["status"] == "False"
    assert conditions(world)["Reconciling"]["status"] == "False"


@pytest.mark.parametrize("field", REFUSED)
def test_live_groups_stay_are_healed_and_counted(field: str) -> None:
    world = live(REFUSED[field])
    world.settle()
    assert not [call for call in world.take_calls() if "Pod" in call]
    assert conditions(world)["Available"]["status"] == "True"
    assert conditions(world)["Accepted"]["status"] == "False"

    world.kill("ms-0-prefill-0-1")
    world.settle()

    assert len(world.pods()) == 6
    assert world.objects["ModelServing"]["ms"]["status"]["availableReplicas"] == 2


@pytest.mark.parametrize("field", REFUSED)
def test_a_live_group_that_is_made_anew_as_a_whole_comes_back(field: str) -> None:
    world = live(REFUSED[field], recoveryPolicy="ServingGroupRecreate")
    world.kill("ms-1-decode-0-0")

    world.settle()

    assert len(world.pods()) == 6


@pytest.mark.parametrize("field", ["spec.plugins"])
def test_no_update_is_rolled_out_and_the_status_does_not_hide_it(field: str) -> None:
    world = live(REFUSED[field])
    world.set_image("engine:2", "decode")

    world.settle()

    assert not [call for call in world.take_calls() if "Pod" in call]
    assert conditions(world)["Ready"]["status"] == "False"
    assert conditions(world)["UpdateInProgress"]["status"] == "False"


@pytest.mark.parametrize("policy", ["RoleRecreate", "ServingGroupRecreate", "None"])
@pytest.mark.parametrize("seen", [True, False], ids=["seen dying", "found gone"])
def test_the_last_pod_of_a_group_that_kthena_left_comes_back(policy: str, seen: bool) -> None:
    world = World(capabilities=Capabilities(volcano=True))
    world.apply(serving(role(workerTemplate={"spec": {"containers": []}}), recoveryPolicy=policy))
    world.settle()
    (name,) = world.objects["ControllerRevision"]
    world.patch("ControllerRevision", name, lambda stored: stored["metadata"].pop("annotations"))
    refuse(world, REFUSED["spec.plugins"])
    world.kill("ms-0-decode-0-0")
    if seen:
        world.sync()
    world.end_terminations()
    world.restart_controller()

    world.settle()

    assert list(world.pods()) == ["ms-0-decode-0-0"]


def test_a_refused_modelserving_can_be_scaled_down_and_not_up() -> None:
    world = live(REFUSED["spec.plugins"])
    world.scale(5)
    world.settle()
    assert len(world.pods()) == 6

    world.scale(1)
    world.settle()
    assert len(world.pods()) == 3

    world.scale(2)
    world.settle()
    assert len(world.pods()) == 3


def test_taking_the_field_away_goes_on() -> None:
    world = World()
    world.apply(serving(replicas=2, **REFUSED["spec.plugins"]))
    world.settle()
    world.edit(lambda spec: spec.pop("plugins"))

    world.settle()

    assert len(world.pods()) == 2
    assert conditions(world)["Accepted"]["status"] == "True"
    assert conditions(world)["Stalled"]["status"] == "False"


def test_a_refused_modelserving_with_a_huge_count_is_planned_at_once() -> None:
    world = World()
    world.apply(serving(replicas=2_000_000_000, **REFUSED["spec.plugins"]))

    world.settle()

    assert conditions(world)["Stalled"]["status"] == "True"


def schedulers(world: World) -> set[str | None]:
    return {pod["spec"].get("schedulerName") for pod in world.pods().values()}


def test_without_volcano_pods_go_to_the_default_scheduler_and_the_status_says_so() -> None:
    world = World()
    world.apply(serving())
    world.settle()

    assert schedulers(world) == {None}
    assert conditions(world)["Accepted"]["reason"] == "SchedulerFallback"
    assert conditions(world)["Ready"]["status"] == "True"


@pytest.mark.parametrize(
    ("capabilities", "name", "expected"),
    [
        (Capabilities(volcano=True), "volcano", "volcano"),
        (Capabilities(scheduler_fallback=False), "volcano", "volcano"),
        (Capabilities(), "mine", "mine"),
    ],
)
def test_otherwise_the_named_scheduler_gets_the_pods(
    capabilities: Capabilities, name: str, expected: str
) -> None:
    world = World(capabilities=capabilities)
    world.apply(serving(schedulerName=name))
    world.settle()

    assert schedulers(world) == {expected}
    assert conditions(world)["Accepted"]["reason"] == "Accepted"


def test_volcano_appearing_later_restarts_nothing() -> None:
    world = World()
    world.apply(serving(replicas=2))
    world.settle()
    world.take_calls()
    world.capabilities = Capabilities(volcano=True)

    world.settle()

    assert not [call for call in world.take_calls() if "Pod" in call]
    world.scale(3)
    world.settle()
    assert schedulers(world) == {None, "volcano"}


def test_workers_without_a_template_are_shown_as_a_problem() -> None:
    world = World()
    broken = role(workers=2)
    del broken["workerTemplate"]
    world.apply(serving(broken))

    world.sync()
    world.run_pods()
    world.sync()

    assert list(world.pods()) == ["ms-0-decode-0-0"]
    assert conditions(world)["ReplicaFailure"]["reason"] == "MissingWorkerTemplate"
    assert conditions(world)["Ready"]["status"] == "False"
