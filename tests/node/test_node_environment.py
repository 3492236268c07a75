import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.local.node.environment import (
    ConfigError,
    PodFacts,
    References,
    container_environment,
    data_of,
    expand,
    field_value,
    needed_references,
    resource_value,
)
from kthena.machinery.objects import NamespacedName

POD = {
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u1",
        "labels": {"app": "x", "a/b": "c"},
        "annotations": {"note": "line\ntwo"},
    },
    "spec": {"serviceAccountName": "runner"},
}
FACTS = PodFacts(POD, "127.3.0.9", "node-a", "127.3.0.1", {"cpu": "8", "memory": "1Gi"})
MAP = {"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"A": "1", "b.c": "2"}}
SECRET = {
    "kind": "Secret",
    "metadata": {"name": "s"},
    "data": {"KEY": base64.b64encode(b"hush").decode()},
    "stringData": {"PLAIN": "text"},
}
FOUND = References({"m": MAP}, {"s": SECRET})


def env(entries: list[Any], **container: Any) -> dict[str, str]:
    return container_environment({"env": entries, **container}, FACTS, FOUND)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$(MISSING)", "$(MISSING)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("$", "$"),
        ("$$", "$"),
        ("$()", "$()"),
        ("$(A)$(A)", "11"),
        ("a$$b", "a$b"),
        ("$(A$(B))", "$(A$(B))"),
    ],
)
def test_expansion_follows_the_kubelet(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


@given(st.text(alphabet="$()AB x"))
def test_expansion_without_references_only_halves_dollars(text: str) -> None:
    if "$(A)" not in text and "$(B)" not in text:
        assert expand(text, {"A": "1", "B": "2"}) == text.replace("$$", "$")


def test_a_value_sees_the_earlier_variables_only() -> None:
    made = env(
        [
            {"name": "LATE", "value": "$(FIRST)-$(SECOND)"},
            {"name": "FIRST", "value": "1"},
            {"name": "SECOND", "value": "$(FIRST)2"},
            {"name": "FIRST", "value": "again"},
            {"name": "EMPTY"},
        ]
    )

    assert made == {"LATE": "$(FIRST)-$(SECOND)", "FIRST": "again", "SECOND": "12", "EMPTY": ""}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u1"),
        ("metadata.labels['app']", "x"),
        ("metadata.labels['a/b']", "c"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['huawei.com/AscendReal']", ""),
        ("metadata.labels", 'a/b="c"\napp="x"'),
        ("metadata.annotations", 'note="line\\ntwo"'),
        ("spec.nodeName", "node-a"),
        ("spec.serviceAccountName", "runner"),
        ("status.podIP", "127.3.0.9"),
        ("status.podIPs", "127.3.0.9"),
        ("status.hostIP", "127.3.0.1"),
    ],
)
def test_fields_of_the_downward_api(path: str, value: str) -> None:
    assert field_value(path, FACTS) == value


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"spec\.replicas"):
        field_value("spec.replicas", FACTS)


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.cpu", None, "2"),
        ("limits.cpu", "1m", "1500"),
        ("limits.memory", "1Mi", "256"),
        ("limits.memory", "0", str(256 * 2**20)),
        ("requests.cpu", "1m", "250"),
        ("requests.memory", None, "0"),
        ("limits.ephemeral-storage", None, "0"),
    ],
)
def test_resources_in_units_of_the_divisor(resource: str, divisor: str | None, value: str) -> None:
    container = {
        "resources": {"limits": {"cpu": "1500m", "memory": "256Mi"}, "requests": {"cpu": "0.25"}}
    }
    reference = {"resource": resource, **({"divisor": divisor} if divisor else {})}

    assert resource_value(reference, container, FACTS) == value


def test_without_a_limit_the_nodes_own_amount_counts() -> None:
    assert resource_value({"resource": "limits.cpu"}, {}, FACTS) == "8"
    assert resource_value({"resource": "limits.memory", "divisor": "1Mi"}, {}, FACTS) == "1024"
    with pytest.raises(ConfigError, match="cpu"):
        resource_value({"resource": "cpu"}, {}, FACTS)


def test_objects_fill_the_environment_in_order() -> None:
    made = env(
        [{"name": "A", "value": "own $(x_A)"}],
        envFrom=[
            {"configMapRef": {"name": "m"}},
            {"prefix": "x_", "configMapRef": {"name": "m"}},
            {"secretRef": {"name": "s"}},
            {"configMapRef": {"name": "gone", "optional": True}},
        ],
    )

    assert made == {
        "A": "own 1", "b.c": "2", "x_A": "1", "x_b.c": "2", "KEY": "hush", "PLAIN": "text",
    }  # fmt: skip


def test_keys_of_objects() -> None:
    made = env(
        [
            {"name": "M", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "b.c"}}},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "KEY"}}},
            {
                "name": "O",
                "valueFrom": {"secretKeyRef": {"name": "s", "key": "x", "optional": True}},
            },
            {"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ]
    )

    assert made == {"M": "2", "S": "hush", "P": "127.3.0.9"}


@pytest.mark.parametrize(
    ("container", "text"),
    [
        ({"envFrom": [{"configMapRef": {"name": "gone"}}]}, 'configmap "gone" not found'),
        ({"envFrom": [{"secretRef": {"name": "gone"}}]}, 'secret "gone" not found'),
        (
            {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k"}}}]},
            'secret "gone" not found',
        ),
        (
            {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]},
            "couldn't find key k in configmap m",
        ),
        ({"env": [{"name": "X", "valueFrom": {"fileKeyRef": {}}}]}, "env X: valueFrom fileKeyRef"),
    ],
)
def test_what_is_missing_is_named(container: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        container_environment(container, FACTS, FOUND)


def test_references_are_collected() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "m"}}, {"secretRef": {"name": "s"}}],
        "env": [
            {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "n", "key": "k"}}},
            {"name": "Y", "value": "1"},
        ],
    }
    needed = needed_references(POD, [container])

    assert needed.config_maps == {NamespacedName("ns", "m"), NamespacedName("ns", "n")}
    assert needed.secrets == {NamespacedName("ns", "s")}


def test_binary_data_and_broken_base64() -> None:
    binary = {"data": {"a": "text"}, "binaryData": {"b": base64.b64encode(b"\xff").decode()}}
    assert data_of(binary, secret=False) == {"a": b"text", "b": b"\xff"}
    with pytest.raises(ConfigError, match="no base64"):
        data_of({"kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "%"}}, secret=True)
