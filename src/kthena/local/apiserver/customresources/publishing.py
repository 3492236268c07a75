"""Schemas of custom resources as OpenAPI documents show them.

They say of embedded resources and of integers-or-strings what the API knows of them, and leave out what
validates nothing. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final

from kthena.machinery.objects import Object

_SILENT: Final = ("example", "externalDocs", "id", "$schema")
_NESTED_MAPS: Final = ("properties", "patternProperties", "definitions")
_NESTED: Final = ("items", "additionalProperties", "not")
_NESTED_LISTS: Final = ("allOf", "anyOf", "oneOf")
_CONVENTIONS: Final = (
    "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/"
    "api-conventions.md#"
)
_TYPE_META: Final = {
    "apiVersion": {
        "description": "apiVersion defines the versioned schema of this representation of an object. "
        f"{_CONVENTIONS}resources",
        "type": "string",
    },
    "kind": {
        "description": "kind is a string value representing the type of this object. In CamelCase. "
        f"{_CONVENTIONS}types-kinds",
        "type": "string",
    },
}


def published_schema(declared: Mapping[str, Any], metadata: Object) -> Object:
    """The schema of a node; `metadata` is the schema of the metadata of embedded resources."""
    schema: Object = {}
    for key, value in declared.items():
        if key in _SILENT:
            continue
        if key in _NESTED_MAPS and isinstance(value, Mapping):
            schema[key] = {name: published_schema(below, metadata) for name, below in value.items()}
        elif key in _NESTED and isinstance(value, Mapping):
            schema[key] = published_schema(value, metadata)
        elif key in _NESTED_LISTS and isinstance(value, list):
            schema[key] = [published_schema(below, metadata) for below in value]
        else:
            schema[key] = value
    if schema.get("x-kubernetes-int-or-string") and not schema.get("allOf"):
        schema.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    if schema.get("x-kubernetes-embedded-resource"):
        properties = schema.get("properties") or {}
        schema["properties"] = {**properties, **_TYPE_META, "metadata": metadata}
        required = schema.get("required") or []
        missing = [name for name in ("kind", "apiVersion") if name not in required]
        schema["required"] = [*required, *missing]
    return schema
