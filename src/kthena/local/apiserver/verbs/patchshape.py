"""The JSON of a patch, before it is applied: what no patch of its type can be is refused."""

from typing import Any, Final

from kthena.local.apiserver import errors
from kthena.local.apiserver.mediatypes import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from kthena.machinery.gotext import quote

_NO_PATCH: Final = "Invalid JSON Patch"
_TEXTS: Final = ("op", "path", "from")
_KNOWN: Final = (*_TEXTS, "value")


def read_shape(value: Any, media: str, *, strict: bool) -> tuple[Any, list[str]]:
    """The patch, and its fields that no operation of a JSON Patch has.

    Where nobody asks for warnings or errors of unknown fields (`strict` is false), the API server
    does not look at a patch before it applies it, and other texts tell what is wrong.

    Raises:
        ApiError: 400, it is no patch of the type.
    """
    if media == JSON_PATCH:
        return _read_json_patch(value, strict=strict)
    if isinstance(value, dict):
        return value, []
    if media == MERGE_PATCH:
        if isinstance(value, list) and not strict:
            # It takes the place of the object, of which it is none.
            return value, []
        if value is None or not strict:
            raise errors.bad_request(_NO_PATCH)
        raise _undecodable(value, "value of type map[string]interface {}", "error decoding patch: ")
    if value is None:
        return {}, []
    raise _undecodable(value, "value of type map[string]interface {}")


def unreadable(cause: str, media: str, *, strict: bool) -> errors.ApiError:
    """400: a patch that is no JSON; `strict` is as for `read_shape`."""
    if strict and media != STRATEGIC_PATCH:
        return errors.bad_request(f"error decoding patch: {cause}")
    return errors.bad_request(_NO_PATCH if media == MERGE_PATCH else cause)


def _read_json_patch(value: Any, *, strict: bool) -> tuple[Any, list[str]]:
    if value is None:
        return [], []
    prefix = "error decoding patch: " if strict else ""
    element = "handlers.jsonPatchOp" if strict else "jsonpatch.Operation"
    if not isinstance(value, list):
        target = f"[]{element}" if strict else "jsonpatch.Patch"
        raise _undecodable(value, f"value of type {target}", prefix)
    unknown: list[str] = []
    for index, operation in enumerate(value):
        if operation is None:
            continue
        if not isinstance(operation, dict):
            raise _undecodable(operation, f"value of type {element}", prefix)
        if not strict:
            continue
        for name, entry in operation.items():
            if name not in _KNOWN:
                unknown.append(f"unknown field {quote(f'[{index}].{name}')}")
            elif name in _TEXTS and not isinstance(entry, str | None):
                target = f"struct field jsonPatchOp.{name} of type string"
                raise _undecodable(entry, target, prefix)
    return [{} if operation is None else operation for operation in value], unknown


def _undecodable(value: Any, target: str, prefix: str = "") -> errors.ApiError:
    return errors.bad_request(f"{prefix}json: cannot unmarshal {_go_kind(value)} into Go {target}")


def _go_kind(value: Any) -> str:
    names = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}
    return "null" if value is None else names.get(type(value), "object")
