"""The schemas of the built-in kinds: complete in themselves, and fit for a CRD."""

from collections.abc import Iterator
from typing import Any

import pytest

from kthena.api import kubernetes, openapi
from kthena.machinery.resources import Resource

_REF = "#/components/schemas/"

USED = [value for value in vars(kubernetes).values() if isinstance(value, Resource)]


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def test_every_reference_has_a_target() -> None:
    components = openapi.load_components()
    for reference in _references(dict(components)):
        assert reference.removeprefix(_REF) in components


@pytest.mark.parametrize("resource", USED, ids=str)
def test_every_built_in_kind_in_use_has_a_schema_and_a_list(resource: Resource) -> None:
    for kind in (resource.kind, resource.list_kind):
        schema = openapi.component_for(resource.group, resource.version, kind)
        assert schema is not None, kind
        assert "metadata" in schema["properties"]


@pytest.mark.parametrize(
    ("group", "version", "kind"),
    [
        ("", "v1", "PersistentVolumeClaim"),
        ("events.k8s.io", "v1", "Event"),
        ("policy", "v1", "PodDisruptionBudget"),
        ("autoscaling", "v1", "Scale"),
        ("autoscaling", "v2", "HorizontalPodAutoscaler"),
        ("networking.k8s.io", "v1", "NetworkPolicy"),
        ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
        ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding"),
        ("authorization.k8s.io", "v1", "SelfSubjectAccessReview"),
        ("", "v1", "Status"),
        ("", "v1", "DeleteOptions"),
    ],
)
def test_kinds_that_local_mode_serves_have_a_schema(group: str, version: str, kind: str) -> None:
    assert openapi.component_for(group, version, kind) is not None


def test_an_unknown_kind_has_none() -> None:
    assert openapi.component_for("batch", "v1", "Job") is None


def test_merge_keys_are_kept() -> None:
    pod_spec = openapi.load_components()[openapi.POD_SPEC]["properties"]
    assert pod_spec["containers"]["x-kubernetes-patch-merge-key"] == "name"
    assert pod_spec["volumes"]["x-kubernetes-patch-strategy"] == "merge,retainKeys"


def test_the_pod_spec_is_structural() -> None:
    pod_spec = openapi.pod_spec_schema()
    assert list(_references(pod_spec)) == []
    container = pod_spec["properties"]["containers"]["items"]["properties"]
    assert container["env"]["x-kubernetes-list-map-keys"] == ["name"]
    assert container["ports"]["items"]["properties"]["protocol"] == {
        "type": "string",
        "default": "TCP",
    }
    assert container["resources"]["properties"]["limits"]["additionalProperties"] == {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": openapi.QUANTITY_PATTERN,
        "x-kubernetes-int-or-string": True,
    }
    probe = container["livenessProbe"]["properties"]
    assert probe["httpGet"]["properties"]["port"]["x-kubernetes-int-or-string"] is True


def test_each_call_gives_a_schema_of_its_own() -> None:
    openapi.pod_spec_schema()["properties"].clear()
    assert openapi.pod_spec_schema()["properties"]


def test_the_release_is_known() -> None:
    assert openapi.kubernetes_release().count(".") == 2
