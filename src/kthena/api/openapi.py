"""The OpenAPI schemas of Kubernetes' built-in kinds, and the structural schemas made of them.

`data/kubernetes-openapi.json` is written by `tools/gen_podspec.py` from a kube-apiserver. Components
are as that server publishes them: references, zero-value defaults and merge keys included. Their
descriptions are in a file of their own, as only documents need them. A CRD needs another form (`structural`): no references, no enumerations, and only the
defaults that a field declares, as controller-gen writes a PodSpec into Kthena's CRDs.
"""

import gzip
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

import msgspec

POD_SPEC = "io.k8s.api.core.v1.PodSpec"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"

QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
"""The pattern that every CRD has for a quantity."""

_REF = "#/components/schemas/"
_TEMPLATE_METADATA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
_REPLACED: dict[tuple[str, str], dict[str, Any]] = {
    # A pod may repeat an address; a list-map in a CRD would refuse the template.
    ("io.k8s.api.core.v1.PodSpec", "hostAliases"): {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "hostnames": {
                    "type": "array",
                    "items": {"type": "string"},
                    "x-kubernetes-list-type": "atomic",
                },
                "ip": {"type": "string"},
            },
            "required": ["ip"],
        },
    },
    # Kubernetes allows nothing but labels and annotations there.
    ("io.k8s.api.core.v1.PersistentVolumeClaimTemplate", "metadata"): _TEMPLATE_METADATA,
}
_UNDEFAULTED = {
    # A default that Kthena's CRDs lack would appear in live templates and look like an edit.
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "cachingMode"),
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", "kind"),
}
_KEPT = ("type", "format", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
         "x-kubernetes-map-type")  # fmt: skip


class _File(TypedDict):
    kubernetes: str
    schemas: dict[str, dict[str, Any]]


@cache
def _load() -> _File:
    source = Path(__file__).with_name("data") / "kubernetes-openapi.json"
    return msgspec.json.decode(source.read_bytes(), type=_File)


def kubernetes_release() -> str:
    """The release of Kubernetes that the schemas are from, for instance `1.35.4`."""
    return _load()["kubernetes"]


def load_components() -> Mapping[str, dict[str, Any]]:
    """All component schemas by name, for instance `io.k8s.api.core.v1.Pod`.

    References are `#/components/schemas/<name>`, and each one's target is present. The result is
    shared: callers must not change it.
    """
    return _load()["schemas"]


@cache
def _descriptions() -> Mapping[str, Mapping[str, str]]:
    source = Path(__file__).with_name("data") / "kubernetes-descriptions.json.gz"
    text = gzip.decompress(source.read_bytes())
    return msgspec.json.decode(text, type=dict[str, dict[str, str]])


def described_component(name: str) -> dict[str, Any]:
    """A component schema with the descriptions that the server publishes.

    The result may be changed at its top; what is below is shared.

    Raises:
        KeyError: the file does not hold it.
    """
    component, texts = dict(load_components()[name]), _descriptions().get(name, {})
    if "" in texts:
        component["description"] = texts[""]
    if "properties" in component:
        component["properties"] = {
            key: {"description": texts[key], **value} if key in texts else value
            for key, value in component["properties"].items()
        }
    return component


def component_name(group: str, version: str, kind: str) -> str | None:
    """The name of the component schema of a kind, or None for one that the file does not hold."""
    return _names_by_kind().get((group, version, kind))


def component_for(group: str, version: str, kind: str) -> dict[str, Any] | None:
    """The component schema of a kind, or None for one that the file does not hold."""
    name = component_name(group, version, kind)
    return None if name is None else load_components()[name]


@cache
def _names_by_kind() -> dict[tuple[str, str, str], str]:
    return {
        (entry["group"], entry["version"], entry["kind"]): name
        for name, schema in load_components().items()
        for entry in schema.get("x-kubernetes-group-version-kind", ())
    }


def pod_spec_schema() -> dict[str, Any]:
    """The structural schema of a PodSpec; a new one at each call, for the caller to change."""
    return structural(POD_SPEC)


def structural(name: str) -> dict[str, Any]:
    """The component as a structural schema of a CRD, all references resolved.

    Enumerations are left out and no other bound is there: what a PodSpec may hold is decided by
    the API server that gets the pod. Defaults are those of optional fields; the zero values that
    OpenAPI publishes for required ones mean nothing.
    """
    if name == INT_OR_STRING:
        return int_or_string()
    if name == QUANTITY:
        return {**int_or_string(), "pattern": QUANTITY_PATTERN}
    return _structural(load_components()[name], name)


def int_or_string() -> dict[str, Any]:
    """The structural schema of an integer or a string."""
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    }


def _structural(node: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    reference = node.get("$ref")
    if reference is None and len(node.get("allOf", ())) == 1:
        reference = node["allOf"][0]["$ref"]
    if reference is not None:
        return structural(str(reference).removeprefix(_REF))

    schema = {key: node[key] for key in _KEPT if key in node}
    if "items" in node:
        schema["items"] = _structural(node["items"])
    if "additionalProperties" in node:
        schema["additionalProperties"] = _structural(node["additionalProperties"])
    required = node.get("required", ())
    if "properties" in node:
        schema["properties"] = {
            key: _property(value, required=key in required, field=(name, key))
            for key, value in node["properties"].items()
        }
    if required:
        schema["required"] = sorted(required)
    return schema


def _property(node: Mapping[str, Any], *, required: bool, field: tuple[str, str]) -> dict[str, Any]:
    if field in _REPLACED:
        return deepcopy(_REPLACED[field])
    schema = _structural(node)
    default = node.get("default")
    if default is not None and default != {} and not required and field not in _UNDEFAULTED:
        schema["default"] = default
    return schema
