"""ConfigMaps, Secrets, Nodes, Leases and Events."""

import base64
from typing import Any

import pytest

from support.apiserver import CORE, Api, config_map


@pytest.fixture
def inside(namespace: str) -> str:
    return f"{CORE}/namespaces/{namespace}"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_secret_text_becomes_data(api: Api, inside: str) -> None:
    body = {
        "metadata": {"name": "s"},
        "data": {"a": b64("old"), "b": b64("kept")},
        "stringData": {"a": "new"},
    }
    made = api.create(f"{inside}/secrets", body).expect(201)
    assert made["data"] == {"a": b64("new"), "b": b64("kept")}
    assert "stringData" not in made
    assert made["type"] == "Opaque"
    new = api.patch(f"{inside}/secrets/s", {"stringData": {"c": "x"}}).expect(200)
    assert new["data"]["c"] == b64("x")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"data": {"a": "not base64!"}}, 400),
        ({"data": {"bad key": b64("x")}}, 422),
        ({"type": "kubernetes.io/tls"}, 422),
        ({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{"}}, 422),
        ({"type": "kubernetes.io/basic-auth"}, 422),
        ({"type": "kubernetes.io/service-account-token"}, 422),
        ({"type": "my.io/own"}, 201),
    ],
)
def test_secrets_are_checked(api: Api, inside: str, body: Any, status: int) -> None:
    reply = api.create(f"{inside}/secrets", {"metadata": {"name": "s"}, **body})
    assert reply.status == status, reply.body


@pytest.mark.parametrize(
    ("sent", "kept"), [(None, ""), ([], ""), ([1, 2], b64("\x01\x02")), ([None], b64("\0"))]
)
def test_bytes_may_be_numbers(api: Api, inside: str, sent: Any, kept: str) -> None:
    for plural, field in (("secrets", "data"), ("configmaps", "binaryData")):
        body = {"metadata": {"name": "b"}, field: {"k": sent}}
        assert api.create(f"{inside}/{plural}", body).expect(201)[field] == {"k": kept}


@pytest.mark.parametrize("sent", [[300], [-1], [1.5], ["x"], [[1]], {"a": 1}, 1])
def test_bytes_are_bytes(api: Api, inside: str, sent: Any) -> None:
    body = {"metadata": {"name": "b"}, "binaryData": {"k": sent}}
    reply = api.create(f"{inside}/configmaps", body)
    assert (reply.status, reply.reason) == (400, "BadRequest")
    kind = "uint8" if isinstance(sent, list) else "[]uint8"
    assert reply.message.endswith(f"into Go struct field ConfigMap.binaryData of type {kind}")


def test_secret_type_is_fixed(api: Api, inside: str) -> None:
    api.create(f"{inside}/secrets", {"metadata": {"name": "s"}}).expect(201)
    reply = api.patch(f"{inside}/secrets/s", {"type": "my.io/own"})
    assert (reply.status, reply.causes) == (422, [("type", "FieldValueInvalid")])


@pytest.mark.parametrize("plural", ["configmaps", "secrets"])
def test_immutable_data_stays(api: Api, inside: str, plural: str) -> None:
    path = f"{inside}/{plural}"
    body = {"metadata": {"name": "i"}, "data": {"k": b64("v")}, "immutable": True}
    api.create(path, body).expect(201)
    reply = api.patch(f"{path}/i", {"data": {"k": b64("w")}})
    assert (reply.status, reply.causes) == (422, [("data", "FieldValueForbidden")])
    reply = api.patch(f"{path}/i", {"immutable": False})
    assert reply.causes == [("immutable", "FieldValueForbidden")]
    api.patch(f"{path}/i", {"metadata": {"labels": {"x": "y"}}}).expect(200)


def test_config_map_limits(api: Api, inside: str) -> None:
    path = f"{inside}/configmaps"
    body = config_map("a", {"k": "v"})
    body["binaryData"] = {"k": b64("v")}
    reply = api.create(path, body)
    assert (reply.status, reply.reason) == (422, "Invalid")
    big = config_map("a", {"k": "x" * (1024 * 1024 + 1)})
    reply = api.create(path, big)
    assert (reply.status, reply.causes) == (422, [("[]", "FieldValueTooLong")])
    assert "may not be more than 1048576 bytes" in reply.message


def test_node_is_cluster_scoped_and_has_a_status(api: Api, unique: str) -> None:
    path = f"{CORE}/nodes"
    body = {
        "metadata": {"name": unique},
        "status": {"capacity": {"cpu": "4", "memory": "8192Mi"}},
    }
    made = api.create(path, body).expect(201)
    assert "namespace" not in made["metadata"]
    assert made["status"]["capacity"] == {"cpu": "4", "memory": "8Gi"}
    patch = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    new = api.patch(f"{path}/{unique}/status", patch).expect(200)
    assert new["status"]["conditions"][0]["type"] == "Ready"
    assert "generation" not in new["metadata"]
    new["spec"]["unschedulable"] = True
    api.put(f"{path}/{unique}", new).expect(200)
    body = api.get(path, fieldSelector=f"spec.unschedulable=true,metadata.name={unique}").body
    assert len(body["items"]) == 1
    api.delete(f"{path}/{unique}").expect(200)


def test_lease_is_checked(api: Api, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    spec = {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "renewTime": "2024-01-01T00:00:00.123456Z",
        "leaseTransitions": 0,
    }
    made = api.create(path, {"metadata": {"name": "l"}, "spec": spec}).expect(201)
    assert made["spec"] == spec
    reply = api.create(path, {"metadata": {"name": "m"}, "spec": {"leaseDurationSeconds": 0}})
    assert reply.causes == [("spec.leaseDurationSeconds", "FieldValueInvalid")]
    made["spec"]["holderIdentity"] = "you"
    new = api.put(f"{path}/l", made).expect(200)
    reply = api.put(f"{path}/l", made)
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert new["spec"]["holderIdentity"] == "you"


def event(name: str, namespace: str) -> Any:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "p", "uid": "u"},
        "reason": "Started",
        "message": "it runs",
        "type": "Normal",
        "count": 1,
        "source": {"component": "test"},
        "firstTimestamp": "2024-01-01T00:00:00Z",
        "lastTimestamp": "2024-01-01T00:00:00Z",
    }


def test_event_is_seen_in_both_groups(api: Api, inside: str, namespace: str) -> None:
    made = api.create(f"{inside}/events", event("e", namespace)).expect(201)
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    new = api.get(f"{path}/e").expect(200)
    assert (new["apiVersion"], new["kind"]) == ("events.k8s.io/v1", "Event")
    assert new["metadata"] == made["metadata"] or (
        new["metadata"]["uid"] == made["metadata"]["uid"]
    )
    assert (new["note"], new["regarding"]["name"]) == ("it runs", "p")
    assert (new["deprecatedCount"], new["deprecatedSource"]) == (1, {"component": "test"})

    body = {
        "metadata": {"name": "f"},
        "eventTime": "2024-01-01T00:00:00.000000Z",
        "reason": "Stopped",
        "action": "Stop",
        "type": "Warning",
        "note": "it stopped",
        "regarding": {"kind": "Pod", "namespace": namespace, "name": "p"},
        "reportingController": "test.io/me",
        "reportingInstance": "me-1",
    }
    api.create(path, body).expect(201)
    old = api.get(f"{inside}/events/f").expect(200)
    assert (old["message"], old["involvedObject"]["name"]) == ("it stopped", "p")
    assert (old["reportingComponent"], old["reportingInstance"]) == ("test.io/me", "me-1")
    for group, field in ((f"{inside}/events", "involvedObject.name"), (path, "regarding.name")):
        found = api.get(group, fieldSelector=f"{field}=p,type=Warning").expect(200)
        assert [item["metadata"]["name"] for item in found["items"]] == ["f"]


def test_event_watch_sees_both_groups(api: Api, inside: str, namespace: str) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    version = api.get(path).body["metadata"]["resourceVersion"]
    with api.watch(path, resourceVersion=version) as watch:
        api.create(f"{inside}/events", event("e", namespace)).expect(201)
        seen = watch.next()
    assert seen.object["note"] == "it runs"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (
            {"involvedObject": {"kind": "Pod", "namespace": "other", "name": "p"}},
            "involvedObject.namespace",
        ),
    ],
)
def test_event_of_another_namespace_is_invalid(
    api: Api, inside: str, namespace: str, change: Any, field: str
) -> None:
    reply = api.create(f"{inside}/events", {**event("e", namespace), **change})
    assert (reply.status, reply.causes) == (422, [(field, "FieldValueInvalid")])


def test_new_events_need_their_fields(api: Api, namespace: str) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    body = {"metadata": {"name": "e"}, "eventTime": "2024-01-01T00:00:00.000000Z"}
    reply = api.create(path, body)
    assert (reply.status, reply.reason) == (422, "Invalid")
    fields = {name for name, _ in reply.causes}
    assert {"reportingController", "reportingInstance", "action", "reason"} <= fields


def test_service_account_is_stored(api: Api, inside: str) -> None:
    made = api.create(f"{inside}/serviceaccounts", {"metadata": {"name": "bot"}}).expect(201)
    assert made["kind"] == "ServiceAccount"
    assert api.delete(f"{inside}/serviceaccounts/bot").expect(200)["kind"] == "ServiceAccount"
