"""Resources embedded in others (`x-kubernetes-embedded-resource`): their type and metadata.

Follows apiextensions' `objectmeta`: metadata becomes what ObjectMeta can hold, `apiVersion` and
`kind` must be there and well-formed. Names need only be fit for a path. Metadata of wrong types is
an error of validation here; the API server refuses to decode such a request, with the same words.
"""

from dataclasses import replace
from typing import Any, Final

from kthena.machinery.fields import ErrorList, ErrorType, FieldError, child, item
from kthena.machinery.metadata import validate_object_meta
from kthena.machinery.metadata_types import decode_problem
from kthena.machinery.names import check_dns1035_label, check_path_segment
from kthena.machinery.resources import Resource
from kthena.machinery.schema.structural import StructuralSchema

_META_FIELDS = frozenset(
    {
        "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation",
        "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "labels",
        "annotations", "ownerReferences", "finalizers", "managedFields",
    }
)  # fmt: skip
_ANY_RESOURCE: Final = Resource("embedded.invalid", "v1", "embedded", "Embedded", namespaced=False)
"""Stands for the resource of an embedded object, which is not known."""


def coerce_embedded(value: Any, schema: StructuralSchema | None, path: str = "") -> list[str]:
    """Removes what ObjectMeta does not have from embedded metadata, in place; returns the paths."""
    removed: list[str] = []
    if schema is None or not schema.has_embedded:
        return removed
    if type(value) is dict:
        if schema.embedded_resource and "metadata" in value:
            removed += _coerce_metadata(value, child(path, "metadata"))
        for key, entry in value.items():
            removed += coerce_embedded(entry, schema.child(key), child(path, key))
    elif type(value) is list:
        for index, entry in enumerate(value):
            removed += coerce_embedded(entry, schema.items, item(path, index))
    return removed


def _coerce_metadata(resource: dict[str, Any], path: str) -> list[str]:
    metadata = resource["metadata"]
    if metadata is None:
        resource["metadata"] = {}
    if decode_problem(metadata) or type(metadata) is not dict:
        return []
    unknown = [key for key in metadata if key not in _META_FIELDS]
    resource["metadata"] = kept = {
        # Empty fields do not survive the way through Go's struct, nor do nulls in maps.
        key: {k: v or "" for k, v in entry.items()} if type(entry) is dict else entry
        for key, entry in metadata.items()
        if entry and key in _META_FIELDS
    }
    if metadata.get("deletionGracePeriodSeconds") == 0:
        kept["deletionGracePeriodSeconds"] = 0
    return [f"{path}.{key}" for key in unknown]


def check_embedded(value: Any, schema: StructuralSchema | None, path: str = "") -> ErrorList:
    """What is wrong with the type and metadata of embedded resources."""
    errors: ErrorList = []
    if schema is None or not schema.has_embedded:
        return errors
    if type(value) is dict:
        if schema.embedded_resource:
            errors += _check_resource(value, path)
        for key, entry in value.items():
            if key in schema.properties:
                errors += check_embedded(entry, schema.properties[key], child(path, key))
            else:
                errors += check_embedded(entry, schema.additional_schema, item(path, key))
    elif type(value) is list:
        for index, entry in enumerate(value):
            errors += check_embedded(entry, schema.items, item(path, index))
    return errors


def _check_resource(value: dict[str, Any], path: str) -> ErrorList:
    errors = [
        FieldError(child(path, name), ErrorType.REQUIRED, "", "")
        for name in ("apiVersion", "kind")
        if name not in value
    ]
    for name, find_mistake in (("apiVersion", _api_version_mistake), ("kind", _kind_mistake)):
        if name in value:
            is_text = isinstance(value[name], str)
            mistake = find_mistake(value[name]) if is_text else "must be a string"
            if mistake is not None:
                errors += _invalid(child(path, name), value[name], [mistake])
    return errors + _check_metadata(value.get("metadata"), child(path, "metadata"))


def _api_version_mistake(api_version: str) -> str | None:
    if not api_version:
        return "must not be empty"
    if api_version.count("/") > 1:
        return f"unexpected GroupVersion string: {api_version}"
    return None


def _kind_mistake(kind: str) -> str | None:
    if not kind:
        return "must not be empty"
    messages = check_dns1035_label(kind.lower())
    if messages:
        return "may have mixed case, but should otherwise match: " + ",".join(messages)
    return None


def _check_metadata(metadata: Any, path: str) -> ErrorList:
    problem = decode_problem(metadata)
    if problem:
        return _invalid(path, metadata, [problem])
    metadata = metadata or {}
    errors: ErrorList = []
    for name in ("generateName", "name"):
        text = metadata.get(name) or ""
        errors += _invalid(child(path, name), text, check_path_segment(text))
    resource = replace(_ANY_RESOURCE, namespaced=bool(metadata.get("namespace")))
    named = {**metadata, "name": "checked-above", "generateName": ""}
    return errors + validate_object_meta({"metadata": named}, resource, path)


def _invalid(path: str, value: Any, messages: list[str]) -> ErrorList:
    return [FieldError(path, ErrorType.INVALID, value, message) for message in messages]
