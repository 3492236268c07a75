"""Namespaces: their content goes with them."""

from typing import Any

import pytest

from support.apiserver import (
    CORE,
    Api,
    Definition,
    Server,
    config_map,
    embedded_api,
    eventually,
    pod,
)

HOLD = "test.kthena.io/hold"
NAMESPACES = f"{CORE}/namespaces"


def test_namespace_has_its_label_and_finalizer(api: Api, namespace: str) -> None:
    body = api.get(f"{NAMESPACES}/{namespace}").expect(200)
    assert body["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace}
    assert body["spec"] == {"finalizers": ["kubernetes"]}
    assert body["status"] == {"phase": "Active"}


def test_namespace_names_are_labels(api: Api) -> None:
    reply = api.create(NAMESPACES, {"metadata": {"name": "a.b"}})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.causes == [("metadata.name", "FieldValueInvalid")]


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "kube-node-lease"])
def test_system_namespaces_are_there(api: Api, name: str) -> None:
    eventually(lambda: api.get(f"{NAMESPACES}/{name}").status == 200)


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_system_namespaces_stay(api: Api, name: str) -> None:
    reply = api.delete(f"{NAMESPACES}/{name}")
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert "this namespace may not be deleted" in reply.message


def test_system_namespace_is_looked_at_before_it_is_kept(api: Api) -> None:
    reply = api.delete(f"{NAMESPACES}/default", {"preconditions": {"uid": "another"}})
    assert (reply.status, reply.reason) == (409, "Conflict")


def test_finalize_changes_nothing_but_finalizers(api: Api, namespace: str) -> None:
    path = f"{NAMESPACES}/{namespace}"
    body = api.get(path).expect(200)
    body["spec"]["finalizers"] = ["kubernetes", HOLD]
    body["status"] = {"phase": "Terminating"}
    held = api.put(f"{path}/finalize", body).expect(200)
    assert set(held["spec"]["finalizers"]) == {"kubernetes", HOLD}
    assert held["status"]["phase"] == "Active"
    held["spec"]["finalizers"] = ["kubernetes"]
    api.put(f"{path}/finalize", held).expect(200)
    assert api.put(f"{path}/configmaps/a/finalize", config_map("a")).status == 404


def test_deletion_takes_everything_along(api: Api, widgets: Definition, namespace: str) -> None:
    inside = f"{NAMESPACES}/{namespace}"
    api.create(f"{inside}/configmaps", config_map("a")).expect(201)
    api.create(f"{inside}/pods", pod("p")).expect(201)
    api.create(widgets.collection(namespace), widgets.object("w")).expect(201)
    body = api.delete(inside).expect(200)
    assert (body["kind"], body["status"]["phase"]) == ("Namespace", "Terminating")
    eventually(lambda: api.get(inside).status == 404, timeout_s=60)
    for path in (f"{inside}/configmaps", f"{inside}/pods", widgets.collection(namespace)):
        assert api.get(path).body["items"] == []


def terminating(api: Api, namespace: str) -> Any:
    """A namespace that cannot end, since an object in it is held."""
    inside = f"{NAMESPACES}/{namespace}"
    api.create(f"{inside}/configmaps", config_map("held", finalizers=[HOLD])).expect(201)
    api.delete(inside).expect(200)
    held = f"{inside}/configmaps/held"
    eventually(lambda: "deletionTimestamp" in api.get(held).body["metadata"])
    return api.get(inside).expect(200)


def test_held_content_holds_the_namespace(api: Api, namespace: str) -> None:
    body = terminating(api, namespace)
    inside = f"{NAMESPACES}/{namespace}"
    assert body["status"]["phase"] == "Terminating"
    assert body["metadata"]["deletionTimestamp"]
    api.patch(f"{inside}/configmaps/held", {"metadata": {"finalizers": None}}).expect(200)
    eventually(lambda: api.get(inside).status == 404, timeout_s=60)


def test_nothing_new_comes_into_a_terminating_namespace(api: Api, namespace: str) -> None:
    terminating(api, namespace)
    inside = f"{NAMESPACES}/{namespace}"
    reply = api.create(f"{inside}/configmaps", config_map("new"))
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert reply.message == (
        'configmaps "new" is forbidden: unable to create new content in namespace '
        f"{namespace} because it is being terminated"
    )
    assert reply.causes == [("metadata.namespace", "NamespaceTerminating")]
    # What is there can still be changed.
    api.patch(f"{inside}/configmaps/held", {"data": {"k": "v"}}).expect(200)
    api.patch(f"{inside}/configmaps/held", {"metadata": {"finalizers": None}}).expect(200)


def test_second_deletion_answers_as_the_first(api: Api, namespace: str) -> None:
    terminating(api, namespace)
    inside = f"{NAMESPACES}/{namespace}"
    reply = api.delete(inside)
    assert reply.status in (200, 409)
    api.patch(f"{inside}/configmaps/held", {"metadata": {"finalizers": None}}).expect(200)


def test_bound_pods_end_with_grace(api: Api, namespace: str, server: Server) -> None:
    inside = f"{NAMESPACES}/{namespace}"
    api.create(f"{inside}/pods", pod("p", {"nodeName": "n1"})).expect(201)
    api.delete(inside).expect(200)
    eventually(lambda: "deletionTimestamp" in api.get(f"{inside}/pods/p").body["metadata"])
    assert api.get(inside).expect(200)["status"]["phase"] == "Terminating"
    api.delete(f"{inside}/pods/p", gracePeriodSeconds=0).expect(200)
    # A real controller estimates the grace period and comes back when it is over.
    eventually(lambda: api.get(inside).status == 404, timeout_s=60)


def test_server_rests_while_a_namespace_waits(unique: str) -> None:
    with embedded_api() as (server, api):
        inside = f"{NAMESPACES}/{unique}"
        api.create(NAMESPACES, {"metadata": {"name": unique}}).expect(201)
        terminating(api, unique)
        eventually(lambda: len(server.core.background) == 0)
        revision = server.core.store.revision
        api.get(inside).expect(200)
        assert (len(server.core.background), server.core.store.revision) == (0, revision)


def test_finalize_is_what_lets_a_namespace_go(api: Api, unique: str) -> None:
    body = {"metadata": {"name": unique}, "spec": {"finalizers": ["kubernetes", HOLD]}}
    made = api.create(NAMESPACES, body).expect(201)
    assert sorted(made["spec"]["finalizers"]) == ["kubernetes", HOLD]
    path = f"{NAMESPACES}/{unique}"
    api.delete(path).expect(200)
    rest = eventually(lambda: _only_hold(api.get(path).body))
    # An ordinary update does not change the finalizers.
    api.put(path, {**rest, "spec": {"finalizers": []}}).expect(200)
    assert api.get(path).expect(200)["spec"]["finalizers"] == [HOLD]
    newest = api.get(path).body
    api.put(f"{path}/finalize", {**newest, "spec": {"finalizers": []}}).expect(200)
    eventually(lambda: api.get(path).status == 404)


def _only_hold(body: Any) -> Any:
    return body if body["spec"]["finalizers"] == [HOLD] else None


def test_phase_is_the_servers(api: Api, namespace: str) -> None:
    path = f"{NAMESPACES}/{namespace}"
    body = api.get(path).body
    body["status"]["phase"] = "Terminating"
    assert api.put(path, body).expect(200)["status"]["phase"] == "Active"
