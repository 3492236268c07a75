"""Whose children are: adoption, what former owners left, and what belongs to others."""

import copy
from typing import Any

import pytest

from kthena.api.workload.names import RESERVED_LABELS
from kthena.machinery.objects import Object, controller_of, labels_of, name_of, uid_of
from kthena.workload.identity import InstanceKey
from kthena.workload.planner.observed import Belonging, belonging
from kthena.workload.planner.plan import InstanceState
from support.workload_world import World, role, rolling, serving, template

PREFIX = "modelserving.volcano.sh/"


def settled(*roles: dict[str, Any], **more: Any) -> World:
    world = World()
    world.apply(serving(*roles, **more))
    world.settle()
    world.take_calls()
    return world


def conditions(world: World) -> dict[str, dict[str, str]]:
    status = world.objects["ModelServing"]["ms"]["status"]
    return {condition["type"]: condition for condition in status["conditions"]}


def pod(
    pod_name: str, labels: dict[str, str] | None = None, owner: dict[str, Any] | None = None
) -> Object:
    metadata: dict[str, Any] = {"name": pod_name, "labels": labels or {f"{PREFIX}name": "ms"}}
    if owner is not None:
        metadata["ownerReferences"] = [{"controller": True, "name": "x", "uid": "x", **owner}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}


REPLICA_SET = {"kind": "ReplicaSet", "apiVersion": "apps/v1"}
MODEL_SERVING = {"kind": "ModelServing", "apiVersion": "workload.serving.volcano.sh/v1alpha1"}


def test_orphans_are_adopted_and_nothing_restarts() -> None:
    world = settled(role(workers=1), replicas=2)
    before = {name: uid_of(each) for name, each in world.objects["Pod"].items()}
    world.orphan()
    world.apply(serving(role(workers=1), replicas=2))

    world.settle()

    assert {name: uid_of(each) for name, each in world.pods().items()} == before
    owner = uid_of(world.objects["ModelServing"]["ms"])
    for kind in ("Pod", "Service", "ControllerRevision"):
        for child in world.objects[kind].values():
            reference = controller_of(child)
            assert reference is not None
            assert reference["uid"] == owner
    assert not [call for call in world.take_calls() if call.startswith(("create", "delete"))]


def test_orphans_of_another_template_are_adopted_and_then_rolled() -> None:
    world = settled(replicas=3)
    world.orphan()
    world.apply(serving(role(image="engine:2"), replicas=3))
    world.sync()
    deleted = [call for call in world.take_calls() if call.startswith("delete Pod")]
    assert len(deleted) == 1

    world.settle()

    images = {each["spec"]["containers"][0]["image"] for each in world.pods().values()}
    assert images == {"engine:2"}


def test_children_of_a_former_modelserving_of_the_name_are_cleared_away() -> None:
    world = settled(role(workers=1), replicas=2)
    old = {uid_of(each) for each in world.objects["Pod"].values()}
    world.delete_modelserving()
    world.apply(serving(role(workers=1), replicas=2))

    world.settle()

    new = {uid_of(each) for each in world.pods().values()}
    assert len(new) == 4
    assert not new & old
    assert {name_of(each) for each in world.objects["Pod"].values()} == set(world.pods())
    assert len(world.objects["ControllerRevision"]) == 1


def test_owners_change_only_on_the_word_of_the_server() -> None:
    # A cache may hold the former ModelServing while the server has its successor and its pods.
    world = settled()
    world.freeze("ModelServing")
    world.delete_modelserving()
    world.collect_garbage()
    world.end_terminations()
    world.apply(serving())
    fresh = world.cache("ModelServing")
    successor = world.objects["ModelServing"]["ms"]
    world.pretend("ModelServing", {"ms": successor})
    world.sync()
    assert len(world.pods()) == 1
    world.take_calls()
    world.pretend("ModelServing", fresh)

    world.sync()

    assert world.take_calls() == []


@pytest.mark.parametrize(
    "foreign",
    [
        pod("ms-5-decode-0-0", owner=REPLICA_SET),
        pod("ms-6-decode-0-0", owner=MODEL_SERVING),
        pod("unrelated"),
        pod("ms-7-decode-0-0", {f"{PREFIX}name": "other"}),
    ],
    ids=["of another controller", "of another modelserving", "without a place", "of another name"],
)  # fmt: skip
def test_what_belongs_to_others_is_never_touched(foreign: Object) -> None:
    world = settled(replicas=2)
    world.put(foreign)
    before = copy.deepcopy(world.objects["Pod"][name_of(foreign)]["metadata"])
    world.set_image("engine:2")
    world.settle()
    world.scale(0)
    world.settle()
    world.scale(1)
    world.settle()

    after = world.objects["Pod"][name_of(foreign)]["metadata"]
    assert {**after, "resourceVersion": ""} == {**before, "resourceVersion": ""}


def test_a_pod_without_owner_that_lacks_a_revision_is_not_taken() -> None:
    world = settled()
    stranger = pod("ms-1-decode-0-0")
    world.put(stranger)

    world.settle()

    assert controller_of(world.objects["Pod"]["ms-1-decode-0-0"]) is None


def test_a_name_that_somebody_else_has_is_shown_and_tried_again() -> None:
    world = World()
    world.put(pod("ms-0-decode-0-0", owner=REPLICA_SET))
    world.apply(serving(replicas=2))
    world.sync()
    world.sync()

    assert sorted(world.pods()) == ["ms-1-decode-0-0"]
    failure = conditions(world)["ReplicaFailure"]
    assert failure["reason"] == "NameConflict"
    assert "Pod ms-0-decode-0-0" in failure["message"]

    world.drop("Pod", "ms-0-decode-0-0")
    world.settle()
    assert sorted(world.pods()) == ["ms-0-decode-0-0", "ms-1-decode-0-0"]
    assert "ReplicaFailure" not in conditions(world)


def test_only_an_instance_that_gets_a_pod_is_said_to_be_creating() -> None:
    world = World()
    world.put(pod("ms-0-decode-0-0", owner=REPLICA_SET))
    world.apply(serving(replicas=2))

    decision = world.sync()

    assert decision is not None
    assert decision.after == {InstanceKey(1, "decode", 0): InstanceState.CREATING}


def test_a_foreign_service_in_the_way_holds_back_the_pods_that_need_it() -> None:
    world = World()
    service = pod("ms-0-decode-0-0", owner=REPLICA_SET)
    world.put({**service, "kind": "Service"})
    world.apply(serving(role("prefill"), role("decode", workers=1)))

    world.sync()

    assert sorted(world.pods()) == ["ms-0-prefill-0-0"]
    assert "Service ms-0-decode-0-0" in conditions(world)["ReplicaFailure"]["message"]


def test_a_service_that_is_refused_holds_back_only_its_instance() -> None:
    world = World()
    world.apply(serving(role(workers=1), replicas=2))
    world.fault = lambda call: (
        "refuse" if (call.kind, call.name) == ("Service", "ms-0-decode-0-0") else None
    )

    world.sync()

    assert sorted(world.pods()) == ["ms-1-decode-0-0", "ms-1-decode-0-1"]


def test_a_modelserving_that_is_being_deleted_is_left_alone() -> None:
    world = settled(replicas=2)
    world.delete_modelserving(foreground=True)
    world.drop("Pod", "ms-0-decode-0-0")
    status = copy.deepcopy(world.objects["ModelServing"]["ms"]["status"])

    decision = world.sync()

    assert decision is not None
    assert decision.actions == ()
    assert world.objects["ModelServing"]["ms"]["status"] == status


def test_owned_pods_of_no_place_are_ignored() -> None:
    world = settled()
    owner = uid_of(world.objects["ModelServing"]["ms"])
    world.put(
        pod("debug", owner={**MODEL_SERVING, "name": "ms", "uid": owner})
    )  # fmt: skip

    world.settle()

    assert world.take_calls() == []


@pytest.mark.parametrize("label", sorted(RESERVED_LABELS))
def test_a_label_of_a_template_does_not_hide_a_live_pod(label: str) -> None:
    # Kthena lets a template win over its own labels, so live pods may carry another group's name.
    world = settled(role(workers=1), replicas=2)
    for name in list(world.pods()):
        world.patch("Pod", name, lambda each: each["metadata"]["labels"].update({label: "theirs"}))
    before = {name: uid_of(each) for name, each in world.pods().items()}
    world.settle()
    assert not [call for call in world.take_calls() if "Pod" in call]
    assert conditions(world)["Ready"]["status"] == "True"

    world.kill("ms-1-decode-0-1")
    world.settle()
    assert {name for name, each in world.pods().items() if uid_of(each) != before[name]} == {
        "ms-1-decode-0-0",
        "ms-1-decode-0-1",
    }

    world.set_image("engine:2")
    world.settle()
    images = {each["spec"]["containers"][0]["image"] for each in world.pods().values()}
    assert images == {"engine:2", "engine:1-worker"}
    world.scale(0)
    world.settle()
    assert world.pods() == {}


@pytest.mark.parametrize("label", sorted(RESERVED_LABELS))
def test_a_reserved_label_in_a_template_means_nothing_for_new_pods(label: str) -> None:
    plain = settled(role(workers=1), replicas=2)
    templates: dict[str, Any] = {
        field: template(metadata={"labels": {label: "theirs"}})
        for field in ("entryTemplate", "workerTemplate")
    }
    world = settled(role(workers=1, **templates), replicas=2)

    def labels(each: World) -> dict[str, dict[str, str]]:
        passing = ("revision", "role-template-hash")
        return {
            name: {k: v for k, v in labels_of(pod).items() if not k.endswith(passing)}
            for name, pod in each.pods().items()
        }

    assert labels(world) == labels(plain)
    assert "theirs" not in {v for pod in world.pods().values() for v in labels_of(pod).values()}
    assert conditions(world)["Ready"]["status"] == "True"


@pytest.mark.parametrize(
    ("name", "whose"),
    [("ms-0123456789", Belonging.ORPHAN), ("ms-other", Belonging.FOREIGN)],
)
def test_an_orphaned_revision_is_known_by_its_name(name: str, whose: Belonging) -> None:
    labels = {f"{PREFIX}name": "ms", f"{PREFIX}revision": "0123456789"}
    stored = {"kind": "ControllerRevision", "metadata": {"name": name, "labels": labels}}

    assert belonging(stored, serving()) is whose


def test_a_protected_group_that_is_adopted_keeps_its_revision() -> None:
    world = settled(replicas=2, rolloutStrategy=rolling(partition=1))
    world.set_image("engine:2")
    world.settle()
    manifest = copy.deepcopy(world.objects["ModelServing"]["ms"])
    world.orphan()
    world.apply(
        {key: manifest[key] for key in ("apiVersion", "kind", "spec")}
        | {"metadata": {"name": "ms"}}
    )
    world.settle()
    world.kill("ms-0-decode-0-0")
    world.settle()

    images = [each["spec"]["containers"][0]["image"] for each in world.pods().values()]
    assert images == ["engine:1", "engine:2"]
