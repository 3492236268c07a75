"""The CustomResourceDefinition of a kind: its struct's schema with names, rules and columns."""

from collections.abc import Sequence
from typing import Any

from kthena.api.crd.docs import attribute_docs, class_doc
from kthena.api.crd.guards import validation
from kthena.api.crd.schema import struct_schema
from kthena.api.kinds import KindDefinition
from kthena.api.registry import Column, KindInfo, Scale
from kthena.api.rules import Rule

_API_VERSION = {
    "type": "string",
    "description": "The version of the schema that this object is written in.",
}
_KIND = {"type": "string", "description": "The kind of this object."}


def definition(kind: KindDefinition) -> dict[str, Any]:
    """The CRD as the API server takes it; equal input gives equal output."""
    info = kind.info
    names: dict[str, Any] = {
        "kind": info.resource.kind,
        "listKind": info.resource.list_kind,
        "plural": info.resource.plural,
        "singular": info.singular,
    }
    if info.short_names:
        names["shortNames"] = list(info.short_names)
    if info.categories:
        names["categories"] = list(info.categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(info.resource)},
        "spec": {
            "group": info.resource.group,
            "names": names,
            "scope": "Namespaced" if info.resource.namespaced else "Cluster",
            "versions": [_version(info, root_schema(kind))],
        },
    }


def root_schema(kind: KindDefinition) -> dict[str, Any]:
    """The schema of the whole object, rules included."""
    metadata: dict[str, Any] = {"type": "object"}
    if kind.name_pattern:
        metadata["properties"] = {"name": {"type": "string", "pattern": kind.name_pattern}}
    docs = attribute_docs(kind.struct)
    schema: dict[str, Any] = {
        "type": "object",
        "description": class_doc(kind.struct),
        "properties": {
            "apiVersion": _API_VERSION,
            "kind": _KIND,
            "metadata": metadata,
            "spec": {**struct_schema(kind.spec), "description": docs["spec"]},
            "status": {**struct_schema(kind.status, defaults=False), "description": docs["status"]},
        },
    }
    for rule in kind.rules:
        node = _node(schema, rule)
        node.setdefault("x-kubernetes-validations", []).append(validation(rule))
    return schema


def _node(root: dict[str, Any], rule: Rule) -> dict[str, Any]:
    node = root
    for part in rule.at.split(".") if rule.at else ():
        name = part.rstrip("[]{}")
        try:
            node = node["properties"][name]
            for opening in part[len(name) :: 2]:
                node = node["items" if opening == "[" else "additionalProperties"]
        except KeyError as error:
            raise ValueError(f"rule {rule.message!r}: no node {rule.at!r}") from error
    return node


def _version(info: KindInfo, schema: dict[str, Any]) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}}
    if info.scale is not None:
        subresources["scale"] = _scale(info.scale)
    version: dict[str, Any] = {
        "name": info.resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": subresources,
    }
    if info.columns:
        version["additionalPrinterColumns"] = _columns(info.columns)
    if info.deprecation:
        version["deprecated"] = True
        version["deprecationWarning"] = info.deprecation
    return version


def _scale(scale: Scale) -> dict[str, str]:
    return {
        "specReplicasPath": scale.spec_replicas,
        "statusReplicasPath": scale.status_replicas,
        "labelSelectorPath": scale.label_selector,
    }


def _columns(columns: Sequence[Column]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for column in columns:
        entry: dict[str, Any] = {
            "name": column.name,
            "type": column.type,
            "jsonPath": column.json_path,
        }
        if column.priority:
            entry["priority"] = column.priority
        entries.append(entry)
    return entries
