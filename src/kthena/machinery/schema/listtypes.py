"""Uniqueness in lists: items of sets, and the keys of items in list-maps.

Follows apiextensions' `listtype`. Each value that occurs more than once is reported at its second
place.
"""

from typing import Any

from kthena.machinery.fields import ErrorList, ErrorType, FieldError, child, item
from kthena.machinery.gotext import format_json
from kthena.machinery.schema.structural import StructuralSchema


def check_list_types(value: Any, schema: StructuralSchema | None, path: str = "") -> ErrorList:
    """The duplicates in the lists of a value."""
    if schema is None or not schema.has_keyed_lists:
        return []
    errors: ErrorList = []
    if type(value) is dict:
        for key, entry in value.items():
            if schema.additional_schema is not None:
                errors += check_list_types(entry, schema.additional_schema, item(path, key))
            errors += check_list_types(entry, schema.properties.get(key), child(path, key))
    elif type(value) is list:
        errors += _check_list(value, schema, path)
        if schema.items is not None and schema.items.has_keyed_lists:
            for index, entry in enumerate(value):
                errors += check_list_types(entry, schema.items, item(path, index))
    return errors


def _check_list(value: list[Any], schema: StructuralSchema, path: str) -> ErrorList:
    if schema.list_type == "map":
        return _check_list_map(value, schema.list_map_keys, path)
    if schema.list_type != "set":
        return []
    return [
        FieldError(item(path, index), ErrorType.DUPLICATE, value[index], "")
        for index in _second_places(value)
    ]


def _check_list_map(value: list[Any], keys: tuple[str, ...], path: str) -> ErrorList:
    for index, entry in enumerate(value):
        if entry is not None and type(entry) is not dict:
            detail = "must be an object for an array of list-type map"
            return [FieldError(item(path, index), ErrorType.INVALID, entry, detail)]
    found = [{key: entry[key] for key in keys if key in entry} if entry else {} for entry in value]
    return [
        FieldError(item(path, index), ErrorType.DUPLICATE, found[index], "")
        for index in _second_places(found)
    ]


def _identity(value: Any) -> Any:
    """What tells values apart: as in Go, 1, 1.0 and true are different."""
    if type(value) is dict:
        return frozenset((key, _identity(entry)) for key, entry in value.items())
    return format_json(value) if type(value) is list else (type(value), value)


def _second_places(values: list[Any]) -> list[int]:
    """The index of each value's second occurrence."""
    times: dict[Any, int] = {}
    places = []
    for index, value in enumerate(values):
        identity = _identity(value)
        times[identity] = times.get(identity, 0) + 1
        if times[identity] == 2:
            places.append(index)
    return places
