"""Garbage collection by owner references: background, foreground, orphan."""

from typing import Any

import pytest

from support.apiserver import CORE, Api, Definition, config_map, eventually, owned_by, pod

HOLD = "test.kthena.io/hold"


@pytest.fixture
def maps(namespace: str) -> str:
    return f"{CORE}/namespaces/{namespace}/configmaps"


def gone(api: Api, path: str) -> None:
    eventually(lambda: api.get(path).status == 404)


def make(api: Api, maps: str, name: str, *owners: Any, **metadata: Any) -> Any:
    references = [reference for owner in owners for reference in owned_by(owner)]
    return api.create(maps, config_map(name, ownerReferences=references, **metadata)).expect(201)


def test_dependents_follow_their_owner(api: Api, maps: str) -> None:
    owner = make(api, maps, "owner")
    child = make(api, maps, "child", owner)
    make(api, maps, "grandchild", child)
    make(api, maps, "other")
    api.delete(f"{maps}/owner", propagationPolicy="Background").expect(200)
    gone(api, f"{maps}/child")
    gone(api, f"{maps}/grandchild")
    api.get(f"{maps}/other").expect(200)


def test_background_is_the_default(api: Api, maps: str) -> None:
    owner = make(api, maps, "owner")
    make(api, maps, "child", owner)
    api.delete(f"{maps}/owner").expect(200)
    gone(api, f"{maps}/child")


def test_dependent_with_a_living_owner_stays_and_forgets_the_dead_one(api: Api, maps: str) -> None:
    first, second = make(api, maps, "first"), make(api, maps, "second")
    make(api, maps, "child", first, second)
    api.delete(f"{maps}/first").expect(200)

    def forgot() -> bool:
        references = api.get(f"{maps}/child").expect(200)["metadata"]["ownerReferences"]
        return [reference["name"] for reference in references] == ["second"]

    eventually(forgot)
    api.delete(f"{maps}/second").expect(200)
    gone(api, f"{maps}/child")


def test_orphans_are_let_go(api: Api, maps: str) -> None:
    owner = make(api, maps, "owner")
    make(api, maps, "child", owner)
    # A real collector knows a dependent only when its own watch has shown it.
    eventually(lambda: api.get(f"{maps}/child").status == 200)
    api.delete(f"{maps}/owner", {"propagationPolicy": "Orphan"}).expect(200)
    gone(api, f"{maps}/owner")
    child = api.get(f"{maps}/child").expect(200)
    assert "ownerReferences" not in child["metadata"]


def test_owner_waits_for_the_dependents_that_block_it(api: Api, maps: str) -> None:
    owner = make(api, maps, "owner")
    references = owned_by(owner, blockOwnerDeletion=True)
    body = config_map("child", ownerReferences=references, finalizers=[HOLD])
    api.create(maps, body).expect(201)
    reply = api.delete(f"{maps}/owner", {"propagationPolicy": "Foreground"}).expect(200)
    assert reply["metadata"]["finalizers"] == ["foregroundDeletion"]
    eventually(lambda: "deletionTimestamp" in api.get(f"{maps}/child").body["metadata"])
    assert "deletionTimestamp" in api.get(f"{maps}/owner").expect(200)["metadata"]
    api.patch(f"{maps}/child", {"metadata": {"finalizers": None}}).expect(200)
    gone(api, f"{maps}/child")
    gone(api, f"{maps}/owner")


def test_owner_does_not_wait_for_dependents_that_do_not_block(api: Api, maps: str) -> None:
    owner = make(api, maps, "owner")
    make(api, maps, "child", owner, finalizers=[HOLD])
    eventually(lambda: api.get(f"{maps}/child").status == 200)
    api.delete(f"{maps}/owner", {"propagationPolicy": "Foreground"}).expect(200)
    gone(api, f"{maps}/owner")
    eventually(lambda: "deletionTimestamp" in api.get(f"{maps}/child").body["metadata"])
    api.patch(f"{maps}/child", {"metadata": {"finalizers": None}}).expect(200)


def test_foreground_without_dependents_ends_at_once(api: Api, maps: str) -> None:
    make(api, maps, "owner")
    api.delete(f"{maps}/owner", {"propagationPolicy": "Foreground"}).expect(200)
    gone(api, f"{maps}/owner")


def test_foreground_goes_down_all_levels(api: Api, maps: str) -> None:
    owner = make(api, maps, "owner")
    first = owned_by(owner, blockOwnerDeletion=True)
    child = api.create(maps, config_map("child", ownerReferences=first)).expect(201)
    second = owned_by(child, blockOwnerDeletion=True)
    api.create(maps, config_map("leaf", ownerReferences=second, finalizers=[HOLD])).expect(201)
    api.delete(f"{maps}/owner", {"propagationPolicy": "Foreground"}).expect(200)
    eventually(lambda: "deletionTimestamp" in api.get(f"{maps}/leaf").body["metadata"])
    for name in ("owner", "child"):
        api.get(f"{maps}/{name}").expect(200)
    api.patch(f"{maps}/leaf", {"metadata": {"finalizers": None}}).expect(200)
    for name in ("leaf", "child", "owner"):
        gone(api, f"{maps}/{name}")


def test_owner_that_never_was_takes_the_dependent_along(api: Api, maps: str) -> None:
    owner = make(api, maps, "owner")
    owner["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    make(api, maps, "child", owner)
    gone(api, f"{maps}/child")
    api.get(f"{maps}/owner").expect(200)


def test_owner_of_an_unknown_kind_keeps_the_dependent(api: Api, maps: str) -> None:
    stranger = {
        "apiVersion": "nosuch.io/v1",
        "kind": "Nosuch",
        "metadata": {"name": "x", "uid": "11111111-2222-3333-4444-555555555555"},
    }
    make(api, maps, "child", stranger)
    owner = make(api, maps, "owner")
    make(api, maps, "probe", owner)
    api.delete(f"{maps}/owner").expect(200)
    gone(api, f"{maps}/probe")
    api.get(f"{maps}/child").expect(200)


def test_reference_written_later_counts(api: Api, maps: str) -> None:
    owner = make(api, maps, "owner")
    make(api, maps, "child")
    patch = {"metadata": {"ownerReferences": owned_by(owner)}}
    api.patch(f"{maps}/child", patch).expect(200)
    api.delete(f"{maps}/owner").expect(200)
    gone(api, f"{maps}/child")


def test_custom_resource_owns_pods(api: Api, widgets: Definition, namespace: str) -> None:
    path, pods = widgets.collection(namespace), f"{CORE}/namespaces/{namespace}/pods"
    owner = api.create(path, widgets.object("w")).expect(201)
    references = owned_by(owner, controller=True, blockOwnerDeletion=True)
    api.create(pods, pod("p", ownerReferences=references)).expect(201)
    # A real collector learns of a new kind some time after the CRD.
    api.delete(f"{path}/w", {"propagationPolicy": "Background"}).expect(200)
    eventually(lambda: api.get(f"{pods}/p").status == 404, timeout_s=60)


def test_dependents_of_custom_resources_go_with_their_definition(
    api: Api, widgets: Definition, maps: str, namespace: str
) -> None:
    path = widgets.collection(namespace)
    for name in ("first", "w"):
        owner = api.create(path, widgets.object(name)).expect(201)
        make(api, maps, f"of-{name}", owner)
    # A real collector learns of a new kind some time after the CRD.
    api.delete(f"{path}/first").expect(200)
    eventually(lambda: api.get(f"{maps}/of-first").status == 404, timeout_s=60)
    api.delete(widgets.path).expect(200)
    gone(api, widgets.path)
    gone(api, f"{maps}/of-w")


def test_cluster_scoped_dependent_of_a_namespaced_owner_is_kept(
    api: Api, maps: str, unique: str
) -> None:
    owner = make(api, maps, "owner")
    node = {"metadata": {"name": f"{unique}-node", "ownerReferences": owned_by(owner)}}
    path = f"{CORE}/nodes"
    api.create(path, node).expect(201)
    make(api, maps, "probe", owner)
    api.delete(f"{maps}/owner").expect(200)
    gone(api, f"{maps}/probe")
    api.get(f"{path}/{unique}-node").expect(200)
    api.delete(f"{path}/{unique}-node").expect(200)


def test_collector_takes_many(api: Api, maps: str) -> None:
    owner = make(api, maps, "owner")
    for index in range(60):
        make(api, maps, f"child-{index}", owner)
    api.delete(f"{maps}/owner").expect(200)
    eventually(lambda: api.get(maps).body["items"] == [], timeout_s=60)


@pytest.mark.parametrize(
    ("references", "field"),
    [
        ([{"apiVersion": "v1", "kind": "X", "name": "", "uid": "u"}], "name"),
        ([{"apiVersion": "v1", "kind": "", "name": "n", "uid": "u"}], "kind"),
        ([{"apiVersion": "v1", "kind": "X", "name": "n", "uid": ""}], "uid"),
        ([{"apiVersion": "v1", "kind": "Event", "name": "n", "uid": "u"}], ""),
        (
            [
                {"apiVersion": "v1", "kind": "X", "name": "n", "uid": u, "controller": True}
                for u in "ab"
            ],
            "",
        ),
    ],
)
def test_references_are_validated(
    api: Api, maps: str, references: list[dict[str, Any]], field: str
) -> None:
    reply = api.create(maps, config_map("a", ownerReferences=references))
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.causes[0][0].startswith("metadata.ownerReferences")
    assert reply.causes[0][0].endswith(field)
