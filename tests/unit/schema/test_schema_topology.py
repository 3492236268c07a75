"""List topology: told once, of built-in kinds and of custom resources alike."""

from collections.abc import Mapping
from typing import Any

import pytest

from kthena.api.openapi import load_components, structural
from kthena.machinery.schema.custom import SINGLE_VERSION_PATH
from kthena.machinery.schema.openapi import COMPONENT_PREFIX, OpenApiSchema
from kthena.machinery.schema.structural import decode
from kthena.machinery.schema.topology import Topology

POD_SPEC = "io.k8s.api.core.v1.PodSpec"


def resolve(reference: str) -> Mapping[str, Any]:
    return load_components()[reference.removeprefix(COMPONENT_PREFIX)]


BUILTIN: Topology = OpenApiSchema.of_component(POD_SPEC, resolve)
CUSTOM: Topology = decode(structural(POD_SPEC), SINGLE_VERSION_PATH)


def find(schema: Topology, path: str) -> Topology:
    """The node at a path; an empty part stands for the items of a list."""
    for name in path.split("."):
        nested = schema.child(name) if name else schema.items
        assert nested is not None, path
        schema = nested
    return schema


@pytest.mark.parametrize("schema", [BUILTIN, CUSTOM], ids=["builtin", "custom"])
@pytest.mark.parametrize(
    ("path", "list_type", "keys"),
    [
        ("containers", "map", ("name",)),
        ("containers..ports", "map", ("containerPort", "protocol")),
        ("containers..args", "atomic", ()),
        ("tolerations", "atomic", ()),
        ("imagePullSecrets", "map", ("name",)),
    ],
)
def test_lists_of_a_pod(schema: Topology, path: str, list_type: str, keys: tuple[str, ...]) -> None:
    found = find(schema, path)
    assert (found.type, found.list_type, found.list_map_keys) == ("array", list_type, keys)


@pytest.mark.parametrize("schema", [BUILTIN, CUSTOM], ids=["builtin", "custom"])
def test_maps_of_a_pod(schema: Topology) -> None:
    assert find(schema, "nodeSelector").map_type == "atomic"
    assert find(schema, "nodeSelector.any").type == "string"
    assert not find(schema, "nodeSelector").properties
    assert schema.child("unknown") is None


def test_only_built_in_kinds_take_strategic_patches() -> None:
    ports = "containers..ports"
    builtin, custom = find(BUILTIN, ports), find(CUSTOM, ports)
    assert (builtin.patch_strategy, builtin.patch_merge_key) == ("merge", "containerPort")
    assert (custom.patch_strategy, custom.patch_merge_key) == ("", "")


def test_a_recursive_schema_is_seen_as_far_as_it_is_looked_at() -> None:
    props = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
    schema = OpenApiSchema.of_component(props, resolve)
    assert find(schema, "not.not.properties.any.required").list_type == "atomic"
