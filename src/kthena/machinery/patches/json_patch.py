"""JSON Patch (RFC 6902) with the verdicts and texts of the API server.

Those are evanphx/json-patch's, which is looser than the RFC: `replace` adds an absent member, `copy`
of an absent member adds null, negative indices count from the end, and a number equals another only
where both are integers or both are not.
"""

from collections.abc import Callable
from typing import Any, Final

from kthena.machinery.gotext import parse_int
from kthena.machinery.objects import copy_json, equal_json

MAX_OPERATIONS: Final = 10_000

_MISSING = "missing value"
_INVALID_INDEX = "invalid index referenced"


class JsonPatchError(ValueError):
    """A patch that cannot be decoded (status 400), is too long (413) or does not apply (422)."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


def apply_json_patch(document: Any, operations: Any) -> Any:
    """The document after all operations, or none of them.

    Args:
        document: a JSON object or list.
        operations: the decoded patch, a list of objects.

    Raises:
        JsonPatchError: the patch is malformed, too long, or one operation does not apply.
    """
    _check_operations(operations)
    document = copy_json(document)
    for operation in operations:
        kind = operation.get("op")
        apply = _OPERATIONS.get(kind) if isinstance(kind, str) else None
        if apply is None:
            name = kind if isinstance(kind, str) else "unknown"
            raise JsonPatchError(f"Unexpected kind: {name}")
        document = apply(document, operation)
    return document


def _check_operations(operations: Any) -> None:
    if not isinstance(operations, list):
        kind = _go_kind(operations)
        raise JsonPatchError(
            f"json: cannot unmarshal {kind} into Go value of type jsonpatch.Patch", 400
        )
    for operation in operations:
        if not isinstance(operation, dict):
            kind = _go_kind(operation)
            raise JsonPatchError(
                f"json: cannot unmarshal {kind} into Go value of type jsonpatch.Operation", 400
            )
    if len(operations) > MAX_OPERATIONS:
        raise JsonPatchError(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, "
            f"got {len(operations)}",
            413,
        )


def _go_kind(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "bool"}
    return "null" if value is None else names.get(type(value), "number")


Container = dict[str, Any] | list[Any]


def _add(document: Container, operation: dict[str, Any]) -> Container:
    path = _path(operation, "path", "add operation failed to decode path", terse=True)
    container, key = _find(document, path)
    if container is None:
        cause = f'add operation does not apply: doc is missing path: "{path}": {_MISSING}'
        raise JsonPatchError(cause)
    _insert(container, key, copy_json(operation.get("value")), f"error in add for path: '{path}'")
    return document


def _remove(document: Container, operation: dict[str, Any]) -> Container:
    path = _path(operation, "path", "remove operation failed to decode path", terse=True)
    container, key = _find(document, path)
    if container is None:
        cause = f'remove operation does not apply: doc is missing path: "{path}": {_MISSING}'
        raise JsonPatchError(cause)
    _delete(container, key, f"error in remove for path: '{path}'")
    return document


def _replace(document: Container, operation: dict[str, Any]) -> Container:
    path = _path(operation, "path", "replace operation failed to decode path")
    value = copy_json(operation.get("value"))
    if not path:
        if not isinstance(value, dict | list):
            raise JsonPatchError("replace operation value must be object or array: %!w(<nil>)")
        return value
    container, key = _find(document, path)
    if container is None:
        cause = f"replace operation does not apply: doc is missing path: {path}: {_MISSING}"
        raise JsonPatchError(cause)
    if isinstance(container, dict):
        container[key] = value
        return document
    try:
        container[_index(container, key)] = value
    except _BadIndexError:
        cause = f"replace operation does not apply: doc is missing key: {path}: {_MISSING}"
        raise JsonPatchError(cause) from None
    return document


def _move(document: Container, operation: dict[str, Any]) -> Container:
    source = _path(operation, "from", "move operation failed to decode from")
    container, key = _find(document, source)
    if container is None:
        cause = f"move operation does not apply: doc is missing from path: {source}: {_MISSING}"
        raise JsonPatchError(cause)
    value = _get(container, key, f"error in move for path: '{key}'")
    _delete(container, key, f"error in move for path: '{key}'")
    path = _path(operation, "path", "move operation failed to decode path")
    container, key = _find(document, path)
    if container is None:
        cause = (
            f"move operation does not apply: doc is missing destination path: {path}: {_MISSING}"
        )
        raise JsonPatchError(cause)
    _insert(container, key, value, f"error in move for path: '{path}'")
    return document


def _copy(document: Container, operation: dict[str, Any]) -> Container:
    source = _path(operation, "from", "copy operation failed to decode from")
    container, key = _find(document, source)
    if container is None:
        cause = f"copy operation does not apply: doc is missing from path: {source}: {_MISSING}"
        raise JsonPatchError(cause)
    value = copy_json(_get(container, key, f"error in copy for from: '{source}'"))
    path = _path(operation, "path", "copy operation failed to decode path", terse=True)
    container, key = _find(document, path)
    if container is None:
        cause = (
            f"copy operation does not apply: doc is missing destination path: {path}: {_MISSING}"
        )
        raise JsonPatchError(cause)
    _insert(container, key, value, "error while adding value during copy")
    return document


def _test(document: Container, operation: dict[str, Any]) -> Container:
    path = _path(operation, "path", "test operation failed to decode path")
    expected = operation.get("value")
    actual: Any = document
    if path:
        container, key = _find(document, path)
        if container is None:
            cause = f"test operation does not apply: is missing path: {path}: {_MISSING}"
            raise JsonPatchError(cause)
        actual = _get(container, key, f"error in test for path: '{path}'")
    if not equal_json(actual, expected):
        raise JsonPatchError(f"testing value {path} failed: test failed")
    return document


_OPERATIONS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def _path(operation: dict[str, Any], member: str, problem: str, *, terse: bool = False) -> str:
    """The pointer in a member of the operation. `terse` errors do not say what is wrong with it."""
    path = operation.get(member)
    if isinstance(path, str):
        return path
    if terse:
        raise JsonPatchError(f"{problem}: {_MISSING}")
    if path is None:
        comma = "," if member == "from" else ""
        raise JsonPatchError(f"{problem}: operation{comma} missing {member} field: {_MISSING}")
    kind = _go_kind(path)
    raise JsonPatchError(f"{problem}: json: cannot unmarshal {kind} into Go value of type string")


def _find(document: Container, path: str) -> tuple[Container | None, str]:
    """The container that a pointer leads into, None where there is none, and the key in it.

    What stands before the first slash is ignored; a pointer without one leads nowhere.
    """
    _, *parts = path.split("/")
    if not parts:
        return None, ""
    *parents, key = (part.replace("~1", "/").replace("~0", "~") for part in parts)
    current: Any = document
    for part in parents:
        try:
            current = (
                current.get(part) if isinstance(current, dict) else current[_index(current, part)]
            )
        except _BadIndexError:
            return None, ""
        if not isinstance(current, dict | list):
            return None, ""
    return current, key


class _BadIndexError(Exception):
    """An index that is no number, or out of bounds; the message is the library's."""


def _index(values: list[Any], key: str, size: int | None = None) -> int:
    """The position that a key names, from the end where it is negative."""
    size = len(values) if size is None else size
    try:
        index = parse_int(key)
    except ValueError as error:
        raise _BadIndexError(f"strconv.Atoi: {error}") from None
    if not -size <= index < size:
        raise _BadIndexError(f"Unable to access invalid index: {index}: {_INVALID_INDEX}")
    return index + size if index < 0 else index


def _get(container: Container, key: str, problem: str) -> Any:
    """The member, None where an object has none."""
    if isinstance(container, dict):
        return container.get(key)
    try:
        return container[_index(container, key)]
    except _BadIndexError as error:
        raise JsonPatchError(f"{problem}: {error}") from None


def _insert(container: Container, key: str, value: Any, problem: str) -> None:
    if isinstance(container, dict):
        container[key] = value
        return
    if key == "-":
        container.append(value)
        return
    try:
        container.insert(_index(container, key, len(container) + 1), value)
    except _BadIndexError as error:
        cause = str(error)
        if cause.startswith("strconv"):
            cause = f"value was not a proper array index: '{key}': {cause}"
        raise JsonPatchError(f"{problem}: {cause}") from None


def _delete(container: Container, key: str, problem: str) -> None:
    if isinstance(container, dict):
        if key not in container:
            cause = f"Unable to remove nonexistent key: {key}: {_MISSING}"
            raise JsonPatchError(f"{problem}: {cause}")
        del container[key]
        return
    try:
        del container[_index(container, key)]
    except _BadIndexError as error:
        raise JsonPatchError(f"{problem}: {error}") from None
