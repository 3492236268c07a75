"""JSON merge patch (RFC 7386) as the API server applies it.

One difference to the RFC, kept because the server has it: nulls inside objects of a new list are
dropped, unless the list replaces an object.
"""

from typing import Any

from kthena.machinery.objects import Object, copy_json


class MergePatchError(ValueError):
    """A patch that is no JSON object and no array."""

    status = 400


def apply_merge_patch(document: Object, patch: Any) -> Any:
    """The document with the members of the patch merged in; a null takes its member away.

    An array takes the place of the document.

    Raises:
        MergePatchError: the patch is neither an object nor an array.
    """
    if isinstance(patch, list):
        return _without_nulls(patch)
    if not isinstance(patch, dict):
        raise MergePatchError("Invalid JSON Patch")
    return _merge(document, patch)


def _merge(document: Object, patch: Object) -> Object:
    result: Object = copy_json(document)
    for key, value in patch.items():
        current = result.get(key)
        if value is None:
            result.pop(key, None)
        elif not isinstance(current, dict):
            result[key] = _without_nulls(value)
        elif isinstance(value, dict):
            result[key] = _merge(current, value)
        else:
            result[key] = copy_json(value)
    return result


def _without_nulls(value: Any) -> Any:
    """A copy without the members that are null; elements of lists that are null stay."""
    if isinstance(value, dict):
        return {key: _without_nulls(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [_without_nulls(entry) for entry in value]
    return value
