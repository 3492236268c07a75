"""The JSON types of `metadata`: what the API server says of values that it cannot decode.

Typed decoding comes before validation, stops at the first mistake, and its text is that of Go's
`encoding/json` for the struct `ObjectMeta`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kthena.machinery.conditions import parse_time
from kthena.machinery.gotext import format_json, quote

_OBJECT_META = {
    **dict.fromkeys(("name", "generateName", "namespace", "resourceVersion", "selfLink"), "string"),
    "uid": "types.UID",
    "generation": "int64",
    "deletionGracePeriodSeconds": "int64",
    "creationTimestamp": "time",
    "deletionTimestamp": "time",
    "labels": "map[string]string",
    "annotations": "map[string]string",
    "finalizers": "[]string",
    "ownerReferences": "[]v1.OwnerReference",
    "managedFields": "[]v1.ManagedFieldsEntry",
}
_STRUCTS = {
    "v1.OwnerReference": {
        **dict.fromkeys(("apiVersion", "kind", "name"), "string"),
        "uid": "types.UID",
        "controller": "bool",
        "blockOwnerDeletion": "bool",
    },
    "v1.ManagedFieldsEntry": {
        **dict.fromkeys(("manager", "apiVersion", "fieldsType", "subresource"), "string"),
        "operation": "v1.ManagedFieldsOperationType",
        "time": "time",
    },
}
_LAYOUT = "2006-01-02T15:04:05Z07:00"
_TIME_ELEMENTS = (
    *(("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T")),
    *(("15", r"\d\d"), (":", ":"), ("04", r"\d\d"), (":", ":"), ("05", r"\d\d(?:[.,]\d+)?")),
    ("Z07:00", r"Z|[+-]\d\d:\d\d"),
)
_TIME_RANGES = {
    "01": ("month", 1, 12),
    "15": ("hour", 0, 23),
    "04": ("minute", 0, 59),
    "05": ("second", 0, 59),
    "Z07:00": ("time zone offset hour", 0, 24),
}
"""What is checked as soon as an element is read; the day of the month is at the end."""


def decode_problem(metadata: Any, kind: str = "") -> str:
    """The text of the decoding error, or an empty one where the types are right.

    Fields that are unknown or null are passed over.

    Args:
        metadata: the value of an object's `metadata`.
        kind: the kind of a built-in object; empty for a custom resource, whose metadata the server
            decodes on its own, so that its texts name no way to it.
    """
    if metadata is None:
        return ""
    if not isinstance(metadata, dict):
        if kind:
            return _mismatch(metadata, f"{kind}.metadata", "v1.ObjectMeta")
        return f"json: cannot unmarshal {_json_name(metadata)} into Go value of type v1.ObjectMeta"
    way = "metadata." if kind else ""
    return next(_struct_problems(metadata, "ObjectMeta", _OBJECT_META, way), "")


def _struct_problems(
    value: dict[str, Any], struct: str, types: Mapping[str, str], way: str
) -> Iterator[str]:
    for name, entry in value.items():
        if name in types:
            yield from _problems(entry, types[name], f"{struct}.{way}{name}", f"{way}{name}.")


def _problems(value: Any, expected: str, field: str, way: str) -> Iterator[str]:
    """The mistakes in one value of a Go type; `field` is how texts name its place."""
    if value is None:
        return
    if not _fits(value, expected):
        yield _mismatch(value, field, "string" if expected == "time" else expected)
    elif expected == "time":
        problem = time_problem(value)
        if problem:
            yield problem
    elif expected in _STRUCTS:
        struct = expected.removeprefix("v1.")
        yield from _struct_problems(value, struct, _STRUCTS[expected], way)
    elif isinstance(value, list):
        for entry in value:
            yield from _problems(entry, expected.removeprefix("[]"), field, way)
    elif isinstance(value, dict):
        for entry in value.values():
            yield from _problems(entry, "string", field, way)


def _fits(value: Any, expected: str) -> bool:
    if expected.startswith("[]"):
        return isinstance(value, list)
    if expected.startswith("map[") or expected in _STRUCTS:
        return isinstance(value, dict)
    if expected == "int64":
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and -(2**63) <= value < 2**63
    return isinstance(value, bool if expected == "bool" else str)


def _mismatch(value: Any, field: str, expected: str) -> str:
    shown = _json_name(value)
    if shown == "number" and expected == "int64":
        shown = f"number {format_json(value)}"
    return f"json: cannot unmarshal {shown} into Go struct field {field} of type {expected}"


def _json_name(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "bool"}
    return names.get(type(value), "number")


def time_problem(text: str) -> str:
    """What Go's `time.Parse` says of a text that is no RFC 3339 time; empty for one that is."""
    try:
        parse_time(text)
    except ValueError:
        return f"parsing time {quote(text)}{_time_cause(text)}"
    return ""


def _time_cause(text: str) -> str:
    rest = text
    for element, pattern in _TIME_ELEMENTS:
        match = re.match(pattern, rest, re.ASCII)
        if match is None:
            return f" as {quote(_LAYOUT)}: cannot parse {quote(rest)} as {quote(element)}"
        rest = rest[match.end() :]
        name, low, high = _TIME_RANGES.get(element, ("", 0, 0))
        digits = re.search(r"\d\d", match.group(), re.ASCII)
        if name and digits and not low <= int(digits.group()) <= high:
            return f": {name} out of range"
    return f": extra text: {quote(rest)}" if rest else ": day out of range"
