"""The scale subresource's fields: replicas must be 32-bit counts, the selector a string."""

from dataclasses import dataclass
from typing import Any

from kthena.machinery.fields import ErrorList, ErrorType, FieldError
from kthena.machinery.gotext import show_value
from kthena.machinery.objects import Object

_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where a kind keeps its replicas and selector: dotted paths with a leading dot."""

    spec_replicas: str
    status_replicas: str
    label_selector: str | None = None


def check_scale(obj: Object, paths: ScalePaths | None, *, status_only: bool = False) -> ErrorList:
    """What is wrong with the fields that the scale subresource reads, as apiextensions checks them."""
    if paths is None:
        return []
    errors: ErrorList = []
    if not status_only:
        errors += _check_replicas(obj, paths.spec_replicas)
    errors += _check_replicas(obj, paths.status_replicas)
    if paths.label_selector is not None:
        _, mistake = _find(obj, paths.label_selector, str)
        if mistake:
            errors.append(FieldError(paths.label_selector, ErrorType.INVALID, "", mistake))
    return errors


def _check_replicas(obj: Object, path: str) -> ErrorList:
    replicas, mistake = _find(obj, path, int)
    if mistake:
        return [FieldError(path, ErrorType.INVALID, 0, mistake)]
    if replicas is None:
        return []
    if replicas < 0:
        detail = "should be a non-negative integer"
        return [FieldError(path, ErrorType.INVALID, replicas, detail)]
    if replicas > _MAX_INT32:
        detail = f"should be less than or equal to {_MAX_INT32}"
        return [FieldError(path, ErrorType.INVALID, replicas, detail)]
    return []


_GO_NAMES = {int: "int64", str: "string"}
_GO_TYPES: dict[type, str] = {
    str: "string",
    int: "int64",
    float: "float64",
    bool: "bool",
    list: "[]interface {}",
    dict: "map[string]interface {}",
    type(None): "<nil>",
}


def _find(obj: Object, path: str, kind: type) -> tuple[Any, str]:
    """The value at a path, or None; and what is wrong with it, or with what is on the way."""
    value: Any = obj
    names = path.removeprefix(".").split(".")
    for depth, name in enumerate(names):
        if value is None:
            return None, ""
        if type(value) is not dict:
            return None, _accessor_error(names[:depth], value, "map[string]interface{}")
        if name not in value:
            return None, ""
        value = value[name]
    if type(value) is not kind:
        return None, _accessor_error(names, value, _GO_NAMES[kind])
    return value, ""


def _accessor_error(names: list[str], value: Any, expected: str) -> str:
    actual = _GO_TYPES[type(value)]
    if isinstance(value, bool):
        value = "true" if value else "false"
    elif value is None:
        value = "<nil>"
    where = ".".join(names)
    return (
        f".{where} accessor error: {show_value(value)} is of the type {actual}, expected {expected}"
    )
