"""Nulls and defaults, applied top-down by a structural schema.

Follows apiextensions' defaulting. A null where the schema says no `nullable` is as good as absent: it
is replaced by the default, or dropped where there is none (but never from a list). A default is
itself defaulted in turn. Objects that are absent get no defaults inside.
"""

from typing import Any

from kthena.machinery.schema.structural import UNSET, StructuralSchema


def copy_json(value: Any) -> Any:
    """A deep copy of a JSON value. Integers beyond 64 bits become floats, as Go decodes them."""
    kind = type(value)
    if kind is dict:
        return {key: copy_json(entry) for key, entry in value.items()}
    if kind is list:
        return [copy_json(entry) for entry in value]
    if kind is int and not _MIN_INT64 <= value <= _MAX_INT64:
        return float(value)
    return value


_MIN_INT64 = -(2**63)
_MAX_INT64 = 2**63 - 1


def drop_nulls(value: Any, schema: StructuralSchema | None) -> None:
    """Removes the nulls that are neither allowed nor replaced by a default, in place."""
    if schema is None:
        return
    if type(value) is dict:
        for key in [key for key, entry in value.items() if entry is None]:
            below = schema.properties.get(key) or schema.additional_schema
            if below is not None and not below.nullable and below.default is UNSET:
                del value[key]
        for key, entry in value.items():
            if type(entry) in (dict, list):
                drop_nulls(entry, schema.properties.get(key) or schema.additional_schema)
    elif type(value) is list:
        for entry in value:
            if type(entry) in (dict, list):
                drop_nulls(entry, schema.items)


def apply_defaults(value: Any, schema: StructuralSchema | None) -> None:
    """Fills in defaults, in place."""
    if schema is None:
        return
    if type(value) is dict:
        _default_object(value, schema)
    elif type(value) is list:
        items = schema.items
        if items is None:
            return
        for index, entry in enumerate(value):
            if entry is None and not items.nullable:
                value[index] = _default_of(items)
            if type(value[index]) in (dict, list):
                apply_defaults(value[index], items)


def _default_object(value: dict[str, Any], schema: StructuralSchema) -> None:
    for name, below in schema.defaulted:
        if name not in value or (value[name] is None and not below.nullable):
            value[name] = copy_json(below.default)
    additional = schema.additional_schema
    for key, entry in value.items():
        below_or_none = schema.properties.get(key)
        if below_or_none is None:
            below_or_none = additional
            if entry is None and additional is not None and not additional.nullable:
                value[key] = _default_of(additional)
        if type(value[key]) in (dict, list):
            apply_defaults(value[key], below_or_none)


def _default_of(schema: StructuralSchema) -> Any:
    """The default, or the null that stands for its absence."""
    return None if schema.default is UNSET else copy_json(schema.default)
