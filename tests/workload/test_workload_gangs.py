"""Gangs: the PodGroup of each group, the pods that name it, and Volcano that comes and goes."""

import copy
from typing import Any

import pytest

from kthena.local.podgroups import pod_group_crd
from kthena.machinery.objects import Object, annotations_of, labels_of, name_of, uid_of
from kthena.workload.children.podgroups import PodGroupForm
from support.workload_api import Call
from support.workload_world import World, container, role, rolling, serving

GROUP_NAME = "scheduling.k8s.io/group-name"
PREFIX = "modelserving.volcano.sh/"
GANG: dict[str, Any] = {"gangPolicy": {"minRoleReplicas": {"prefill": 2, "decode": 1}}}


def example(**more: Any) -> Object:
    """The example of Kthena's documentation."""
    return serving(
        role("prefill", replicas=2, workers=1), role("decode", replicas=2, workers=1), **more
    )


def gang_world(manifest: Object) -> World:
    world = World()
    world.install_volcano()
    world.apply(manifest)
    world.settle()
    world.take_calls()
    return world


def spec_of(world: World, name: str = "ms-0") -> dict[str, Any]:
    spec: dict[str, Any] = world.objects["PodGroup"][name]["spec"]
    return spec


def conditions(world: World) -> dict[str, dict[str, str]]:
    status = world.objects["ModelServing"]["ms"]["status"]
    return {condition["type"]: condition for condition in status["conditions"]}


def gangs_of_pods(world: World) -> set[str | None]:
    return {annotations_of(pod).get(GROUP_NAME) for pod in world.pods().values()}


def schedulers(world: World) -> set[str | None]:
    return {pod["spec"].get("schedulerName") for pod in world.pods().values()}


def older_form() -> PodGroupForm:
    """PodGroups of a Volcano that knows no sub-groups and no topology."""
    definition = copy.deepcopy(pod_group_crd())
    version = definition["spec"]["versions"][0]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del fields["subGroupPolicy"]
    del fields["networkTopology"]
    form = PodGroupForm.of(definition)
    assert form is not None
    return form


def test_a_group_has_a_pod_group_with_the_minima_of_its_roles() -> None:
    world = gang_world(example(**GANG))

    (pod_group,) = world.objects["PodGroup"].values()
    owner = world.objects["ModelServing"]["ms"]
    assert name_of(pod_group) == "ms-0"
    assert labels_of(pod_group) == {f"{PREFIX}name": "ms", f"{PREFIX}group-name": "ms-0"}
    assert annotations_of(pod_group) == {GROUP_NAME: "ms-0"}
    (reference,) = pod_group["metadata"]["ownerReferences"]
    assert (reference["uid"], reference["controller"]) == (uid_of(owner), True)
    assert "blockOwnerDeletion" not in reference

    def sub_group(name: str, minimum: int) -> dict[str, Any]:
        return {
            "name": name,
            "labelSelector": {"matchLabels": {f"{PREFIX}name": "ms", f"{PREFIX}role": name}},
            "matchLabelKeys": [f"{PREFIX}role-id"],
            "subGroupSize": 2,
            "minSubGroups": minimum,
        }

    assert pod_group["spec"] == {
        "minMember": 6,
        "minResources": {},
        "queue": "default",
        "subGroupPolicy": [sub_group("prefill", 2), sub_group("decode", 1)],
    }


def test_pods_name_their_pod_group_and_their_part_in_it() -> None:
    world = gang_world(example(replicas=2))

    for name, pod in world.pods().items():
        annotations = annotations_of(pod)
        assert annotations[GROUP_NAME] == name.rsplit("-", 3)[0]
        assert annotations["volcano.sh/task-spec"] == "-".join(name.split("-")[2:4])
    assert schedulers(world) == {"volcano"}


def test_a_pod_group_is_written_before_the_pods_of_its_group() -> None:
    world = World()
    world.install_volcano()
    world.apply(example())

    world.sync()

    calls = world.take_calls()
    assert calls.index("create PodGroup ms-0") < min(
        index for index, call in enumerate(calls) if call.startswith("create Pod ")
    )


def test_without_its_pod_group_a_group_gets_no_pod() -> None:
    def refuse(call: Call) -> str | None:
        return "refuse" if str(call) == "create PodGroup ms-1" else None

    world = World()
    world.install_volcano()
    world.apply(example(replicas=2))
    world.fault = refuse
    for _ in range(3):
        world.sync()

    assert gangs_of_pods(world) == {"ms-0"}
    assert conditions(world)["ReplicaFailure"]["reason"] == "FailedCreate"
    assert "ms-1" in conditions(world)["ReplicaFailure"]["message"]

    world.fault = lambda _call: None
    world.settle()
    assert gangs_of_pods(world) == {"ms-0", "ms-1"}


def resources(**amounts: dict[str, str]) -> dict[str, Any]:
    return {"spec": {"containers": [container(resources=amounts), container(name="side")]}}


def test_min_resources_are_requests_and_for_what_has_none_the_limits() -> None:
    entry = resources(limits={"cpu": "1", "nvidia.com/gpu": "8"}, requests={"cpu": "500m"})
    worker = resources(requests={"cpu": "250m", "memory": "1Gi"})
    both = role("both", replicas=2, workers=2, entryTemplate=entry, workerTemplate=worker)

    world = gang_world(serving(both))

    assert spec_of(world)["minResources"] == {
        "cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "16",
    }  # fmt: skip


@pytest.mark.parametrize("theirs", ["2", "2000m", 2])
def test_a_settled_pod_group_is_not_written_however_its_quantities_are_spelled(
    theirs: Any,
) -> None:
    entry = resources(requests={"cpu": "2", "memory": "0"})
    world = gang_world(serving(role(entryTemplate=entry)))

    def respell(pod_group: Object) -> None:
        pod_group["spec"]["minResources"]["cpu"] = theirs
        pod_group["spec"]["minTaskMember"] = {"x": 1}

    world.patch("PodGroup", "ms-0", respell)
    world.settle()

    assert world.take_calls() == []


def test_a_queue_that_comes_and_goes_is_followed() -> None:
    world = gang_world(serving())

    def queue(name: str | None) -> None:
        def change(owner: Object) -> None:
            owner["metadata"]["annotations"] = (
                {"scheduling.volcano.sh/queue-name": name} if name else {}
            )

        world.patch("ModelServing", "ms", change)
        world.settle()

    queue("gpu")
    assert spec_of(world)["queue"] == "gpu"
    queue(None)
    assert spec_of(world)["queue"] == "default"
    assert world.take_calls() == ["update PodGroup ms-0"] * 2


def test_topology_is_that_of_the_group_and_of_each_role() -> None:
    group, each = {"mode": "hard", "highestTierAllowed": 2}, {"mode": "soft"}
    world = gang_world(example(networkTopology={"groupPolicy": group, "rolePolicy": each}))

    assert spec_of(world)["networkTopology"] == group
    assert [s["networkTopology"] for s in spec_of(world)["subGroupPolicy"]] == [each, each]


def test_a_topology_that_is_taken_away_leaves_the_pod_group_standing() -> None:
    world = gang_world(example(networkTopology={"groupPolicy": {"highestTierName": "rack"}}))
    before = uid_of(world.objects["PodGroup"]["ms-0"])

    world.edit(lambda spec: spec["template"].pop("networkTopology"))
    world.settle()

    assert "networkTopology" not in spec_of(world)
    assert uid_of(world.objects["PodGroup"]["ms-0"]) == before
    assert "update PodGroup ms-0" in world.take_calls()


def test_minima_follow_the_roles_before_their_pods_do() -> None:
    world = gang_world(example())
    world.scale_role("decode", 3)

    world.settle()

    calls = world.take_calls()
    assert spec_of(world)["minMember"] == 10
    first = next(index for index, call in enumerate(calls) if "create Pod " in call)
    assert calls.index("update PodGroup ms-0") < first


def test_a_protected_group_keeps_the_minima_of_its_own_revision() -> None:
    world = gang_world(serving(role(workers=1), replicas=2, rolloutStrategy=rolling(partition=1)))

    world.edit(lambda spec: spec["template"]["roles"][0].update(workerReplicas=3))
    world.settle()

    assert spec_of(world, "ms-0")["minMember"] == 2
    assert spec_of(world, "ms-1")["minMember"] == 4
    world.kill("ms-0-decode-0-1")
    world.settle()
    assert spec_of(world, "ms-0")["minMember"] == 2


def test_a_pod_group_goes_with_its_group() -> None:
    world = gang_world(example(replicas=3))

    world.scale(1)
    world.settle()

    assert set(world.objects["PodGroup"]) == {"ms-0"}
    for name in ("prefill", "decode"):
        world.scale_role(name, 0)
    world.settle()
    assert set(world.objects["PodGroup"]) == set()


def test_a_pod_group_that_was_deleted_comes_back() -> None:
    world = gang_world(example())
    world.remove("PodGroup", "ms-0")

    world.settle()

    assert spec_of(world)["minMember"] == 8
    assert not [call for call in world.take_calls() if " Pod " in call]


def test_a_pod_group_of_somebody_else_is_not_touched_and_the_group_waits() -> None:
    world = World()
    world.install_volcano()
    foreign: dict[str, Any] = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "ms-0", "labels": {f"{PREFIX}name": "ms"}},
        "spec": {"minMember": 99},
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u", "controller": True}
    foreign["metadata"]["ownerReferences"] = [owner]
    world.put(foreign)
    world.apply(example(replicas=2))
    for _ in range(4):
        world.sync()
        world.run_pods()

    assert spec_of(world)["minMember"] == 99
    assert gangs_of_pods(world) == {"ms-1"}
    assert conditions(world)["ReplicaFailure"]["reason"] == "NameConflict"
    assert not [call for call in world.take_calls() if call.endswith("PodGroup ms-0")]

    world.remove("PodGroup", "ms-0")
    world.settle()
    assert gangs_of_pods(world) == {"ms-0", "ms-1"}


def test_a_pod_group_without_an_owner_is_adopted() -> None:
    world = gang_world(example())
    world.patch("PodGroup", "ms-0", lambda obj: obj["metadata"].update(ownerReferences=[]))

    world.settle()

    (reference,) = world.objects["PodGroup"]["ms-0"]["metadata"]["ownerReferences"]
    assert reference["controller"] is True
    assert "blockOwnerDeletion" not in reference


def test_no_pod_group_for_another_scheduler() -> None:
    world = gang_world(example(schedulerName="mine", **GANG))

    assert world.objects["PodGroup"] == {}
    assert gangs_of_pods(world) == {None}
    assert conditions(world)["Accepted"]["reason"] == "Accepted"


def test_a_gang_policy_means_nothing_to_another_scheduler_without_volcano() -> None:
    world = World()
    world.apply(example(schedulerName="mine", **GANG))
    world.settle()

    assert len(world.pods()) == 8
    assert conditions(world)["Accepted"]["reason"] == "Accepted"


@pytest.mark.parametrize(
    "needs",
    [GANG, {"networkTopology": {"groupPolicy": {"mode": "soft"}}}],
    ids=["gang", "topology"],
)
def test_new_groups_wait_for_the_crd_and_then_go_on(needs: dict[str, Any]) -> None:
    world = World()
    world.apply(example(**needs))
    world.settle()

    assert world.pods() == {}
    found = conditions(world)
    assert (found["Accepted"]["status"], found["Accepted"]["reason"]) == (
        "True",
        "PodGroupsMissing",
    )
    assert (found["Stalled"]["status"], found["Stalled"]["reason"]) == ("True", "PodGroupsMissing")
    assert (found["Ready"]["status"], found["Reconciling"]["status"]) == ("False", "False")

    world.install_volcano()
    world.settle()
    assert gangs_of_pods(world) == {"ms-0"}
    assert conditions(world)["Ready"]["status"] == "True"
    assert conditions(world)["Accepted"]["reason"] == "Accepted"


def live_without_volcano(**spec: Any) -> World:
    """A gang that runs, and whose Volcano is gone."""
    world = gang_world(example(replicas=2, **GANG, **spec))
    world.remove_volcano()
    world.settle()
    world.take_calls()
    return world


@pytest.mark.parametrize("policy", ["RoleRecreate", "ServingGroupRecreate", "None"])
def test_a_live_gang_is_healed_without_the_crd(policy: str) -> None:
    world = live_without_volcano(recoveryPolicy=policy)
    assert conditions(world)["Ready"]["status"] == "True"
    assert conditions(world)["Stalled"]["status"] == "False"
    assert conditions(world)["Accepted"]["reason"] == "PodGroupsMissing"

    world.kill("ms-0-decode-0-1")
    world.settle()

    assert len(world.pods()) == 16
    assert schedulers(world) == {"volcano"}
    assert conditions(world)["Ready"]["status"] == "True"


def test_without_the_crd_no_update_takes_a_live_gang_down() -> None:
    world = live_without_volcano()
    world.set_image("engine:2")
    world.settle()

    assert not [call for call in world.take_calls() if " Pod " in call]
    assert conditions(world)["Stalled"]["reason"] == "PodGroupsMissing"

    world.install_volcano()
    world.settle()
    assert conditions(world)["Ready"]["status"] == "True"
    assert set(world.objects["PodGroup"]) == {"ms-0", "ms-1"}


def test_a_gang_whose_crd_returns_gets_its_pod_groups_back() -> None:
    world = live_without_volcano()
    world.kill("ms-0-decode-0-1")
    world.settle()
    assert gangs_of_pods(world) == {"ms-0", "ms-1"}

    world.install_volcano()
    world.settle()

    assert set(world.objects["PodGroup"]) == {"ms-0", "ms-1"}
    assert conditions(world)["Accepted"]["reason"] == "Accepted"


def test_a_group_that_was_begun_without_gangs_goes_on_without() -> None:
    world = World()
    world.apply(example(replicas=1))
    world.settle()
    world.install_volcano()
    world.kill("ms-0-decode-0-1")
    world.settle()
    assert gangs_of_pods(world) == {None}
    assert world.objects["PodGroup"] == {}

    world.scale(2)
    world.settle()
    assert gangs_of_pods(world) == {None, "ms-1"}
    assert set(world.objects["PodGroup"]) == {"ms-1"}


def test_what_an_older_volcano_cannot_say_is_not_asked_for_and_told() -> None:
    world = World()
    world.install_volcano(older_form())
    topology = {"groupPolicy": {"mode": "hard"}, "rolePolicy": {"mode": "hard"}}
    world.apply(example(networkTopology=topology, **GANG))
    world.settle()
    world.take_calls()

    assert spec_of(world) == {"minMember": 6, "minResources": {}, "queue": "default"}
    message = conditions(world)["Accepted"]["message"]
    assert conditions(world)["Accepted"]["reason"] == "PodGroupsTooOld"
    for part in ("groupPolicy", "rolePolicy", "gangPolicy"):
        assert part in message
    world.sync()
    assert world.take_calls() == []


def test_a_definition_that_serves_no_pod_groups_gives_no_form() -> None:
    definition = pod_group_crd()
    definition["spec"]["versions"][0]["served"] = False
    assert PodGroupForm.of(definition) is None
    definition["spec"]["versions"][0] |= {"served": True, "schema": {}}
    assert PodGroupForm.of(definition) is None


def test_a_gang_that_kthena_left_is_taken_over_without_a_write() -> None:
    world = gang_world(example(**GANG))

    def as_kthena_writes(pod_group: Object) -> None:
        # Go leaves out what is empty.
        pod_group["spec"].pop("minResources")
        pod_group["spec"]["minTaskMember"] = {}
        pod_group["metadata"]["annotations"]["note"] = "theirs"

    world.patch("PodGroup", "ms-0", as_kthena_writes)
    world.restart_controller()

    world.settle()

    assert world.take_calls() == []
    world.kill("ms-0-decode-0-1")
    world.settle()
    assert gangs_of_pods(world) == {"ms-0"}
    assert not [call for call in world.take_calls() if "PodGroup" in call]


def test_pods_that_name_no_pod_group_are_not_waited_for() -> None:
    world = gang_world(example())
    world.patch("Pod", "ms-0-decode-0-0", lambda pod: pod["metadata"]["annotations"].clear())

    world.settle()

    assert spec_of(world)["minMember"] == 0
    assert {each["minSubGroups"] for each in spec_of(world)["subGroupPolicy"]} == {0}
    world.kill("ms-0-decode-1-0")
    world.settle()
    assert conditions(world)["Ready"]["status"] == "True"


def test_a_protected_group_that_is_scaled_to_no_pods_keeps_no_pod_group() -> None:
    world = gang_world(serving(role(), replicas=2, rolloutStrategy=rolling(partition=1)))

    world.scale_role("decode", 0)
    world.settle()
    assert world.objects["PodGroup"] == {}

    world.scale_role("decode", 1)
    world.settle()
    assert set(world.objects["PodGroup"]) == {"ms-0", "ms-1"}
