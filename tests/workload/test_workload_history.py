"""Revisions by content: names, collisions, missing and unreadable ones."""

import copy
from typing import Any

import pytest

from kthena.machinery.objects import Object, annotations_of, labels_of, name_of
from kthena.workload.revisions import (
    Revision,
    find_revision,
    name_revision,
    read_revision,
    read_roles,
    role_hash,
)
from support.workload_world import World, role, rolling, serving

PREFIX = "modelserving.volcano.sh/"
SLOTS = f"{PREFIX}slots"


def roles_of(*raw: dict[str, Any]) -> Any:
    roles = read_roles(list(raw))
    assert roles is not None
    return roles


def test_the_same_roles_in_another_order_are_the_same_revision() -> None:
    left = Revision("a", roles_of(role("a"), role("b")))
    right = Revision("b", roles_of(role("b", replicas=5), role("a")))

    assert left.is_same(right)
    assert name_revision(left.roles, "ms", []) == name_revision(right.roles, "ms", [])


def test_a_revision_keeps_the_name_that_it_has() -> None:
    known = [
        Revision("old", roles_of(role(image="x"))),
        Revision("named-by-another-program", roles_of(role())),
    ]

    found = find_revision(roles_of(role()), known, preferred="")

    assert found is known[1]


def test_of_equal_revisions_the_one_in_the_status_counts_then_the_newest() -> None:
    stored: list[Object] = [{"revision": number} for number in (1, 2)]
    known = [Revision(name, roles_of(role()), obj) for name, obj in zip("ab", stored, strict=True)]

    assert find_revision(roles_of(role()), known, preferred="a") is known[0]
    assert find_revision(roles_of(role()), known, preferred="") is known[1]


def test_a_name_that_is_taken_is_not_used() -> None:
    roles = roles_of(role())
    first = name_revision(roles, "ms", [])
    taken: Object = {"metadata": {"name": f"ms-{first}"}}

    assert name_revision(roles, "ms", [taken]) not in ("", first)


@pytest.mark.parametrize(
    "data", [None, {}, {"data": None}, {"data": []}, [], {"data": [{"x": 1}]}, {"data": "x"}]
)
def test_data_that_holds_no_roles_is_no_revision(data: Any) -> None:
    stored = {"metadata": {"name": "ms-x"}, "data": data}

    assert read_revision(stored, modelserving="ms") is None


def test_a_revision_without_label_is_named_by_its_object() -> None:
    stored = {"metadata": {"name": "ms-x"}, "data": {"data": [role()]}}

    revision = read_revision(stored, modelserving="ms")

    assert revision is not None
    assert revision.name == "x"


def test_a_role_hash_depends_on_its_role_alone() -> None:
    roles = roles_of(role("a"), role("b"))

    assert role_hash(roles["a"]) == role_hash(roles_of(role("a", replicas=3))["a"])
    assert role_hash(roles["a"]) != role_hash(roles["b"])


def test_a_stored_revision_has_kthenas_layout() -> None:
    world = World()
    manifest = serving(role(workers=1, replicas=2))
    world.apply(manifest)
    world.sync()

    (stored,) = world.objects["ControllerRevision"].values()
    revision = labels_of(stored)[f"{PREFIX}revision"]
    assert name_of(stored) == f"ms-{revision}"
    assert labels_of(stored) == {f"{PREFIX}name": "ms", f"{PREFIX}revision": revision}
    assert stored["data"] == {"data": manifest["spec"]["template"]["roles"]}
    assert stored["revision"] == 1


def test_a_collision_of_names_gets_another_name() -> None:
    world = World()
    world.apply(serving())
    world.sync()
    (name,) = world.objects["ControllerRevision"]
    other = World()
    other.put(
        {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {"name": name, "labels": {f"{PREFIX}name": "ms"},
                         "ownerReferences": [{"controller": True, "kind": "X", "name": "x", "uid": "x"}]},
            "data": {"data": [role(image="quite-another")]},
            "revision": 1,
        }
    )  # fmt: skip
    other.apply(serving())

    other.settle()

    assert len(other.pods()) == 1
    assert len(other.objects["ControllerRevision"]) == 2


@pytest.mark.parametrize("text", ["", "nonsense", '{"groups":"0-","forming":{}}'])
def test_a_record_that_was_tampered_with_restarts_nothing_and_is_mended(text: str) -> None:
    world = World()
    world.apply(serving(role(workers=1), replicas=3, recoveryPolicy="ServingGroupRecreate"))
    world.settle()
    world.take_calls()
    (name,) = world.objects["ControllerRevision"]
    world.patch("ControllerRevision", name, lambda obj: annotations_of(obj).update({SLOTS: text}))

    world.settle()
    assert not [call for call in world.take_calls() if "Pod" in call]

    world.scale(4)
    world.settle()
    assert '"groups":"0-3"' in annotations_of(world.objects["ControllerRevision"][name])[SLOTS]


def test_a_record_that_is_gone_costs_at_most_the_memory_of_empty_slots() -> None:
    world = World()
    world.apply(serving(replicas=3, rolloutStrategy=rolling(partition=1)))
    world.settle()
    world.set_image("engine:2")
    world.settle()
    for name in list(world.objects["ControllerRevision"]):
        world.patch("ControllerRevision", name, lambda obj: annotations_of(obj).clear())
    before = copy.deepcopy(world.pods())
    world.take_calls()

    world.settle()

    assert {call.split()[1] for call in world.take_calls()} <= {"ControllerRevision"}
    assert world.pods() == before


def test_a_revision_that_only_the_last_status_named_is_forgotten_without_being_asked() -> None:
    world = World()
    world.apply(serving(replicas=0))
    world.settle()
    before = set(world.objects["ControllerRevision"])
    world.set_image("engine:2")

    world.settle()

    assert len(world.objects["ControllerRevision"]) == 1
    assert not before & world.objects["ControllerRevision"].keys()
