"""Paths, methods and content types that are not quite what clients send."""

import pytest

from support.apiserver import CORE, YAML, Api, config_map

NAMESPACES = f"{CORE}/namespaces"


@pytest.mark.parametrize("path", ["/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1"])
def test_discovery_may_end_in_a_slash(api: Api, path: str) -> None:
    assert api.get(f"{path}/").expect(200) == api.get(path).expect(200)
    assert api.get(f"{path}/").headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", ["/api", "/api/v1", "/apis/apps/v1"])
def test_discovery_is_only_read(api: Api, path: str) -> None:
    for end in ("", "/"):
        reply = api.create(f"{path}{end}", {})
        assert (reply.status, reply.reason) == (405, "MethodNotAllowed")


def test_empty_namespace_is_all_of_them(api: Api, namespace: str) -> None:
    api.create(f"{NAMESPACES}/{namespace}/configmaps", config_map("a")).expect(201)
    items = api.get(f"{NAMESPACES}//configmaps").expect(200)["items"]
    assert any(each["metadata"]["namespace"] == namespace for each in items)
    for reply in (api.get(f"{NAMESPACES}//configmaps/a"), api.delete(f"{NAMESPACES}//configmaps")):
        assert (reply.status, reply.message) == (400, "Namespace parameter required.")


@pytest.mark.parametrize(
    "path", ["//pods", "/namespaces/x//pods", "/nodes//x", "/namespaces///pods"]
)
def test_empty_parts_are_parts(api: Api, path: str) -> None:
    reply = api.get(f"{CORE}{path}")
    assert (reply.status, reply.reason) == (404, "NotFound")


@pytest.mark.parametrize("name", [".", "..", "%2e%2e"])
def test_names_are_no_directories(api: Api, namespace: str, name: str) -> None:
    plain = name.replace("%2e", ".")
    for method in ("GET", "DELETE"):
        reply = api.request(method, f"{NAMESPACES}/{namespace}/configmaps/{name}")
        assert reply.status == 400
        assert reply.message == f"Name parameter invalid: \"{plain}\": may not be '{plain}'"


@pytest.mark.parametrize("method", ["FOO", "PROPFIND", "get", "TRACE"])
def test_unknown_methods_are_not_allowed(api: Api, namespace: str, method: str) -> None:
    for path in (f"{NAMESPACES}/{namespace}/configmaps", "/api/v1", "/version"):
        reply = api.request(method, path)
        assert (reply.status, reply.reason) == (405, "MethodNotAllowed")


@pytest.mark.parametrize("odd", ["; ,", "; charset", ";;", "; a=b; a=c", ';x="a', "; =b", ";x=y z"])
def test_content_types_are_well_formed(api: Api, namespace: str, odd: str) -> None:
    headers = {"Content-Type": f"application/json{odd}"}
    path = f"{NAMESPACES}/{namespace}/configmaps"
    reply = api.request("POST", path, config_map("a"), headers=headers)
    assert (reply.status, reply.reason) == (415, "UnsupportedMediaType")
    headers = {"Content-Type": 'application/json; charset=utf-8; x="y z"'}
    api.request("POST", path, config_map("a"), headers=headers).expect(201)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"a: b: c", "yaml: mapping values are not allowed in this context (613a20623a2063)"),
        (b"kind: [\n", "yaml: line 1: did not find expected node content (6b696e643a205b0a)"),
        (b"a: *x\n", "yaml: unknown anchor 'x' referenced (613a202a780a)"),
    ],
)
def test_yaml_errors_are_those_of_go(api: Api, namespace: str, body: bytes, cause: str) -> None:
    path = f"{NAMESPACES}/{namespace}/configmaps"
    reply = api.request("POST", path, body, headers={"Content-Type": YAML})
    assert reply.status == 400
    prefix = "the object provided is unrecognized (must be of type ConfigMap): "
    assert reply.message == f"{prefix}{cause}"


def test_repeated_keys_of_yaml_are_told_by_line(api: Api, namespace: str) -> None:
    body = b"metadata: {name: a}\ndata:\n  k: v\n  k: w\n"
    path, headers = f"{NAMESPACES}/{namespace}/configmaps", {"Content-Type": YAML}
    strict = {"fieldValidation": "Strict"}
    told = 'line 4: key "k" already set in map'
    reply = api.request("POST", path, body, query=strict, headers=headers)
    assert reply.status == 400
    assert reply.message.endswith(f"strict decoding error: yaml: unmarshal errors:\n  {told}")
    reply = api.request("POST", path, body, headers=headers)
    assert (reply.expect(201)["data"], reply.warnings) == ({"k": "w"}, [told])
