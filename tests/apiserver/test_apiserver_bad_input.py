"""Garbage never hangs the server and never is an internal error."""

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.apiserver import APPLY, CORE, CRDS, JSON, Api, Definition, Server, config_map, pod

ETCD_LIMIT = "etcdserver: request is too large"


@pytest.fixture
def maps(namespace: str) -> str:
    return f"{CORE}/namespaces/{namespace}/configmaps"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"5",
        b"\xff\xfe\x00",
        b"{} trailing",
        b'{"metadata": 5}',
        b'{"metadata": []}',
        b'{"metadata": null}',
        b'{"metadata": {"name": 5}}',
        b'{"metadata": {"labels": []}}',
        b'{"kind": 5}',
        b'{"apiVersion": {}, "kind": "ConfigMap"}',
        b'{"apiVersion": "a/b/c", "kind": "ConfigMap"}',
        b'{"data": {"k": null}, "metadata": {"name": "A"}}',
    ],
)
def test_broken_bodies_are_client_errors(api: Api, maps: str, body: bytes) -> None:
    for query in ({}, {"fieldValidation": "Strict"}):
        headers = {"Content-Type": JSON}
        reply = api.request("POST", maps, body, query=query, headers=headers)
        assert 400 <= reply.status < 500, (body, reply.body)
        assert reply.body["kind"] == "Status"


@pytest.mark.parametrize(
    ("media", "status"),
    [
        ("text/plain", 415),
        ("application/xml", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/cbor", 415),
        ("application/json; charset=utf-8", 201),
        ("APPLICATION/JSON", 201),
    ],
)
def test_content_types(api: Api, maps: str, media: str, status: int) -> None:
    body = json.dumps(config_map("a")).encode()
    reply = api.request("POST", maps, body, headers={"Content-Type": media})
    assert reply.status == status
    if status == 415:
        assert reply.reason == "UnsupportedMediaType"
        assert "accepted media types include: application/json, application/yaml" in reply.message


def test_body_without_a_content_type_is_json(api: Api, maps: str) -> None:
    connection = api.connect()
    body = json.dumps(config_map("a")).encode()
    connection.putrequest("POST", maps)
    connection.putheader("Authorization", f"Bearer {api.server.token}")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    assert connection.getresponse().status == 201
    connection.close()


def test_oversize_body_is_refused_and_the_server_lives(api: Api, maps: str) -> None:
    body = json.dumps(config_map("a", {"k": "x" * (4 * 1024 * 1024)})).encode()
    reply = api.request("POST", maps, body, headers={"Content-Type": JSON})
    assert (reply.status, reply.reason) == (413, "RequestEntityTooLarge")
    api.close()
    api.get(maps).expect(200)


def test_object_that_is_too_large_to_store(api: Api, namespace: str) -> None:
    path = f"{CORE}/namespaces/{namespace}/pods"
    annotations = {"a": "x" * 200_000}
    reply = api.create(path, pod("p", annotations={**annotations, "b": "x" * 100_000}))
    assert (reply.status, reply.causes) == (422, [("metadata.annotations", "FieldValueTooLong")])
    env = [{"name": f"E{index}", "value": "x" * 1000} for index in range(1700)]
    spec = {"containers": [{"name": "c", "image": "x", "env": env}]}
    reply = api.create(path, pod("p", spec))
    assert (reply.status, reply.reason, reply.message) == (500, "", ETCD_LIMIT)
    assert api.get(f"{path}/p").status == 404
    env += [{"name": f"F{index}", "value": "x" * 1000} for index in range(700)]
    reply = api.create(path, pod("p", {"containers": [{"name": "c", "image": "x", "env": env}]}))
    assert (reply.status, reply.reason) == (500, "")
    assert "trying to send message larger than max (" in reply.message
    assert reply.message.endswith(" vs. 2097152)")


def test_object_that_is_too_large_with_its_managed_fields_is_stored_without(
    api: Api, maps: str
) -> None:
    large = {f"{index}".rjust(250, "k"): "v" for index in range(3500)}
    for name in "bcd":
        made = api.create(maps, config_map(name, {"k": "v"})).expect(201)
        assert made["metadata"]["managedFields"]
    replies = [
        api.create(maps, config_map("a", large)),
        api.patch(f"{maps}/b", {"data": large}),
        api.put(f"{maps}/c", config_map("c", large)),
    ]
    for reply, status in zip(replies, (201, 200, 200), strict=True):
        assert len(reply.expect(status)["data"]) >= len(large)
        assert "managedFields" not in reply.body["metadata"]
    # An apply is about nothing else, and is refused.
    body = json.dumps(config_map("d", large)).encode()
    query = {"fieldManager": "m", "force": "true"}
    reply = api.request("PATCH", f"{maps}/d", body, query=query, headers={"Content-Type": APPLY})
    assert (reply.status, reply.reason, reply.message) == (500, "", ETCD_LIMIT)
    assert api.get(f"{maps}/d").expect(200)["data"] == {"k": "v"}


def test_deep_nesting_is_refused(api: Api, widgets: Definition, namespace: str) -> None:
    path = widgets.collection(namespace)
    for depth, statuses in ((150, (201,)), (100_000, (400, 413, 422))):
        inner = '{"a":' * depth + "1" + "}" * depth
        body = (
            f'{{"apiVersion":"{widgets.group}/v1","kind":"Widget","metadata":{{"name":"w"}},'
            f'"spec":{{"free":{inner}}}}}'
        )
        reply = api.request("POST", path, body.encode(), headers={"Content-Type": JSON})
        assert reply.status in statuses, (depth, reply.body)
    api.get(f"{path}/w").expect(200)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/default/pods/a/b/c/d",
        "/api/v1/namespaces//pods",
        "/api/v1/namespaces/default/",
        "/api/v1//pods",
        "/api/v1/namespaces/%2e%2e/pods",
        "/api/v1/namespaces/default/pods/%00",
        "/api/v1/namespaces/default/pods/%ff%fe",
        "/api/v1/namespaces/a%2fb/pods/x",
        "/apis//v1/pods",
        "/apis/apps",
        "/api/v1/pods/x",
        "/" + "x" * 5000,
    ],
)
def test_odd_paths(api: Api, path: str) -> None:
    for method in ("GET", "DELETE"):
        reply = api.request(method, path)
        # A real server fails on some; the embedded one knows no path that it fails on.
        assert reply.status < 500 or not api.server.embedded, reply.body


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "BREW", "POST", "PUT", "PATCH"])
def test_odd_methods(api: Api, maps: str, method: str) -> None:
    for path in (maps, f"{maps}/a", "/api/v1/configmaps", "/version", "/apis/apps"):
        reply = api.request(method, path, b"{}" if method in ("POST", "PUT", "PATCH") else None)
        assert reply.status < 500, (method, path, reply.body)


def test_methods_that_a_place_has_not(api: Api, maps: str, unique: str) -> None:
    for method, path in (
        ("PUT", maps),
        ("POST", f"{maps}/a"),
        ("POST", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/namespaces"),
        ("PATCH", "/api/v1/configmaps"),
    ):
        reply = api.request(method, path, b"{}")
        assert (reply.status, reply.reason) == (405, "MethodNotAllowed"), (method, path)


def test_bytes_that_are_no_http(embedded_apiserver: Server) -> None:
    address = urlsplit(embedded_apiserver.url)
    for content in (b"\x16\x03\x01\x02\x00\x01\x00", b"GARBAGE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
    client = Api(embedded_apiserver)
    client.get("/readyz").expect(200)
    client.close()


def test_client_that_leaves_in_its_body(embedded_apiserver: Server) -> None:
    address = urlsplit(embedded_apiserver.url)
    head = (
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {embedded_apiserver.token}\r\nContent-Length: 1000\r\n\r\n{{"
    )
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(head.encode())
    client = Api(embedded_apiserver)
    client.get("/readyz").expect(200)
    client.close()


@pytest.mark.parametrize(
    "value", ["%", "%zz", "a%00b", "a=b&a=c", ";", "\x7f", "in (", "a in ()", "a,,b", "=", "!"]
)
def test_odd_queries(api: Api, maps: str, value: str) -> None:
    for name in ("labelSelector", "fieldSelector", "limit", "continue", "dryRun", "watch"):
        reply = api.get(maps, **{name: value, "timeoutSeconds": "1"})
        assert reply.status < 500, (name, reply.body)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("metadata", "spec", "status", "kind", "apiVersion", "name", "labels", "data"),
                    *("containers", "ports", "selector", "template", "versions", "names", "group"),
                    *("ownerReferences", "finalizers", "annotations", "replicas", "type", "x"),
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@settings(max_examples=40)
@given(document=_JSON)
def test_no_document_is_an_internal_error(embedded_apiserver: Server, document: Any) -> None:
    client = Api(embedded_apiserver)
    try:
        for path in (
            "/api/v1/namespaces/default/pods",
            "/api/v1/namespaces/default/services",
            "/api/v1/namespaces/default/secrets",
            "/api/v1/namespaces/default/events",
            "/api/v1/nodes",
            "/apis/apps/v1/namespaces/default/deployments",
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            CRDS,
        ):
            reply = client.create(path, document, dryRun="All")
            assert reply.status < 500, (path, reply.body)
    finally:
        client.close()


@settings(max_examples=60)
@given(patch=_JSON, kind=st.sampled_from(["merge-patch", "json-patch", "strategic-merge-patch"]))
def test_no_patch_is_an_internal_error(embedded_apiserver: Server, patch: Any, kind: str) -> None:
    client = Api(embedded_apiserver)
    try:
        path = "/api/v1/namespaces/default/pods"
        client.create(path, pod("fuzzed"))
        reply = client.patch(f"{path}/fuzzed", patch, f"application/{kind}+json", dryRun="All")
        assert reply.status < 500, reply.body
        path = f"{CRDS}/nosuch.example.com"
        assert client.patch(path, patch, f"application/{kind}+json").status < 500
    finally:
        client.close()
