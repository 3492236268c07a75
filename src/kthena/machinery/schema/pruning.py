"""Pruning: removing from an object what its structural schema does not name.

Follows apiextensions' pruning. TypeMeta and ObjectMeta at the root and in embedded resources are
left alone here.
"""

from typing import Any

from kthena.machinery.objects import Object
from kthena.machinery.schema.structural import StructuralSchema

_META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def prune(obj: Object, schema: StructuralSchema) -> list[str]:
    """Removes unknown fields from a resource, in place.

    Returns:
        The paths removed, sorted, as the server names them in `unknown field "spec.roles[0].x"`.
    """
    removed = _prune_object(obj, schema, is_resource=True, keep_unknown=schema.preserve_unknown)
    return sorted(path[1:] for path in removed)


def prune_value(value: Any, schema: StructuralSchema) -> list[str]:
    """Removes unknown fields from a value below the root, in place; returns what it removed."""
    return sorted(path.removeprefix(".") for path in _prune(value, schema))


def _prune(value: Any, schema: StructuralSchema | None, *, keep_unknown: bool = False) -> list[str]:
    """Prunes in place; the paths removed start with a dot or a bracket."""
    if type(value) not in (dict, list):
        return []
    if schema is None:
        return [] if keep_unknown else _prune_unspecified(value)
    keep_unknown = keep_unknown or schema.preserve_unknown
    if type(value) is dict:
        return _prune_object(
            value, schema, is_resource=schema.embedded_resource, keep_unknown=keep_unknown
        )
    return [
        f"[{index}]{path}"
        for index, entry in enumerate(value)
        if type(entry) in (dict, list)
        # An array that preserves unknown fields extends this to its items.
        for path in _prune(entry, schema.items, keep_unknown=keep_unknown)
    ]


def _prune_object(
    value: dict[str, Any], schema: StructuralSchema, *, is_resource: bool, keep_unknown: bool
) -> list[str]:
    removed = []
    unknown = []
    for key, entry in value.items():
        if is_resource and key in _META_FIELDS:
            continue
        below = schema.properties.get(key)
        if below is None and schema.additional_properties is None:
            unknown.append(key)
        elif type(entry) in (dict, list):
            path_below = _prune(entry, below or schema.additional_schema)
            removed += [f".{key}{path}" for path in path_below]
    if not keep_unknown:
        for key in unknown:
            del value[key]
            removed.append(f".{key}")
    return removed


def _prune_unspecified(value: dict[str, Any] | list[Any]) -> list[str]:
    """A value without a schema loses every member of its objects."""
    if isinstance(value, dict):
        removed = [f".{key}" for key in value]
        value.clear()
        return removed
    return [
        f"[{index}]{path}"
        for index, entry in enumerate(value)
        if type(entry) in (dict, list)
        for path in _prune_unspecified(entry)
    ]
