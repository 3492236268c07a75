"""Bodies in protobuf, which kubectl and other clients in Go send for built-in kinds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.local.apiserver import protobuf
from kthena.local.apiserver.gotypes import decoder_for
from kthena.machinery.objects import Object
from support.apiserver import (
    CORE,
    CRDS,
    Api,
    Definition,
    Server,
    config_map,
    embedded_api,
    pod,
)

PROTOBUF = "application/vnd.kubernetes.protobuf"


def varint(number: int) -> bytes:
    out = bytearray()
    number &= (1 << 64) - 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def message(api_version: str, kind: str, raw: bytes) -> bytes:
    names = field(1, api_version) + field(2, kind)
    return protobuf.PREFIX + field(1, names) + field(2, raw) + field(3, "") + field(4, "")


def config_map_message(name: str) -> bytes:
    metadata = field(1, name) + field(11, field(1, "x") + field(2, "y"))
    raw = field(1, metadata) + field(2, field(1, "k") + field(2, "v"))
    return message("v1", "ConfigMap", raw)


def post(api: Api, path: str, body: bytes) -> Any:
    return api.request("POST", path, body, headers={"Content-Type": PROTOBUF})


def test_object_is_created_from_a_message(api: Api, namespace: str) -> None:
    path = f"{CORE}/namespaces/{namespace}/configmaps"
    made = post(api, path, config_map_message("a")).expect(201)
    assert (made["metadata"]["labels"], made["data"]) == ({"x": "y"}, {"k": "v"})
    body = config_map_message("a")
    reply = api.request("PUT", f"{path}/a", body, headers={"Content-Type": PROTOBUF})
    assert reply.status == 200


def test_delete_options_as_a_message(api: Api, namespace: str) -> None:
    path = f"{CORE}/namespaces/{namespace}/pods"
    api.create(path, pod("p", {"nodeName": "n1"})).expect(201)
    options = message("v1", "DeleteOptions", field(1, 5))
    headers = {"Content-Type": PROTOBUF}
    body = api.request("DELETE", f"{path}/p", options, headers=headers).expect(200)
    assert body["metadata"]["deletionGracePeriodSeconds"] == 5
    now = message("v1", "DeleteOptions", field(1, 0))
    api.request("DELETE", f"{path}/p", now, headers=headers).expect(200)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        protobuf.PREFIX,
        protobuf.PREFIX + b"\x0a\xff\xff",
        protobuf.PREFIX + b"\xff" * 20,
        message("v1", "ConfigMap", b"\x0a\x7f"),
        message("v1", "ConfigMap", field(1, 5)),
        message("v1", "Pod", b""),
        message("v1", "Nosuch", b""),
        message("apps/v1", "Deployment", b""),
    ],
)
def test_broken_messages_are_client_errors(api: Api, namespace: str, body: bytes) -> None:
    reply = post(api, f"{CORE}/namespaces/{namespace}/configmaps", body)
    assert 400 <= reply.status < 500, reply.body
    assert reply.body["kind"] == "Status"


def test_custom_resources_have_no_such_form() -> None:
    # A real server of this release drops the connection.
    with embedded_api() as (_, api):
        widgets = Definition("widgets.test.kthena.io")
        widgets.install(api)
        body = message(f"{widgets.group}/v1", "Widget", b"")
        reply = post(api, widgets.collection("default"), body)
        assert (reply.status, reply.reason) == (415, "UnsupportedMediaType")


def test_replies_are_json_for_clients_that_take_both(api: Api, namespace: str) -> None:
    reply = api.get(f"{CORE}/namespaces/{namespace}", accept=f"application/json,{PROTOBUF};q=0.5")
    assert reply.headers["content-type"] == "application/json"


def normal(value: Object) -> Any:
    """The object without its names, decoded as JSON would be."""
    kind = value["kind"]
    name = protobuf._struct_name(value["apiVersion"], kind)
    return decoder_for(name, kind).decode(dict(value)).obj


@pytest.mark.cluster
def test_messages_of_a_real_server_say_what_its_json_says(real_server: Server, unique: str) -> None:
    api, namespace = Api(real_server), unique
    api.create(f"{CORE}/namespaces", {"metadata": {"name": namespace}}).expect(201)
    definition = Definition(f"{unique}.test.kthena.io")
    inside = f"{CORE}/namespaces/{namespace}"
    container = {
        "name": "c",
        "image": "x",
        "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "ports": [{"containerPort": 80}],
        "livenessProbe": {"httpGet": {"port": "web", "path": "/x"}},
        "resources": {
            "requests": {"cpu": "1500m", "nvidia.com/gpu": 1},
            "limits": {"nvidia.com/gpu": 1},
        },
        "securityContext": {"runAsUser": -0, "privileged": False},
    }
    spec = {
        "containers": [container],
        "securityContext": {"supplementalGroups": [1, 2, 300]},
        "volumes": [
            {"name": "e", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "h", "hostPath": {"path": "/"}},
        ],
        "tolerations": [{"key": "a", "operator": "Exists"}],
    }
    api.create(f"{inside}/pods", pod("p", spec, annotations={"a": "b"})).expect(201)
    binary = {**config_map("m", {"k": "v"}), "binaryData": {"b": "AAEC"}}
    api.create(f"{inside}/configmaps", binary).expect(201)
    lease = {"metadata": {"name": "l"}, "spec": {"renewTime": "2024-01-01T00:00:00.123456Z"}}
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    api.create(leases, lease).expect(201)
    revisions = f"/apis/apps/v1/namespaces/{namespace}/controllerrevisions"
    revision = {"metadata": {"name": "r"}, "data": {"a": [1, None]}, "revision": -0}
    api.create(revisions, revision).expect(201)
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "targetPort": "web"}]}}
    api.create(f"{inside}/services", service).expect(201)
    definition.install(api)
    for path in (
        f"{inside}/pods/p",
        f"{inside}/configmaps/m",
        f"{leases}/l",
        f"{revisions}/r",
        f"{inside}/services/s",
        definition.path,
        inside,
    ):
        told = api.get(path).expect(200)
        connection = api.connect()
        headers = {"Authorization": f"Bearer {api.server.token}", "Accept": PROTOBUF}
        connection.request("GET", path, headers=headers)
        content = connection.getresponse().read()
        connection.close()
        read = protobuf.decode(content)
        assert (read["apiVersion"], read["kind"]) == (told["apiVersion"], told["kind"])
        assert normal(read) == normal(told), path
    api.delete(definition.path).expect(200)
    api.delete(inside).expect(200)
    api.close()


def test_negative_numbers() -> None:
    read = protobuf.decode(message("v1", "DeleteOptions", field(1, -5)))
    assert read["gracePeriodSeconds"] == -5


def test_definition_of_many_types() -> None:
    schema = field(5, "object") + field(29, field(1, "a") + field(2, field(5, "string")))
    version = field(1, "v1") + field(2, 1) + field(3, 1) + field(4, field(1, schema))
    spec = field(1, "a.io") + field(7, version)
    read = protobuf.decode(
        message("apiextensions.k8s.io/v1", "CustomResourceDefinition", field(2, spec))
    )
    (entry,) = read["spec"]["versions"]
    assert entry["served"] is True
    found = entry["schema"]["openAPIV3Schema"]
    assert found == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert CRDS.startswith(f"/apis/{read['apiVersion']}")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for body in (protobuf.PREFIX + data, message("v1", "Pod", data)):
        try:
            protobuf.decode(body)
        except protobuf.ProtobufError:
            continue


def test_nesting_is_limited() -> None:
    schema = b""
    for _ in range(5000):
        schema = field(29, field(1, "a") + field(2, schema))
    version = field(1, "v1") + field(4, field(1, schema))
    body = message(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", field(2, field(7, version))
    )
    with pytest.raises(protobuf.ProtobufError, match="nesting too deep"):
        protobuf.decode(body)
