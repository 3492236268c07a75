"""The rules of CustomResourceDefinitions, as ValidateCustomResourceDefinition of apiextensions has them.

The API server looks at a CRD in an older form: what all versions have in common (the schema, the
subresources, the columns, the selectable fields) stands once, directly below `spec`, and errors say
so. Schemas and their CEL rules are judged by the check that is passed in. Not offered: conversion
webhooks.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from kthena.local.apiserver.builtins.fielderrors import (
    check_choice,
    duplicate,
    forbidden,
    invalid,
    required,
    unsupported,
)
from kthena.machinery.fields import ErrorList, ErrorType, FieldError
from kthena.machinery.names import check_dns1035_label, check_dns1123_subdomain
from kthena.machinery.objects import Object
from kthena.machinery.schema.custom import SINGLE_VERSION_PATH
from kthena.machinery.schema.structural import SchemaError

_SCOPES: Final = ("Cluster", "Namespaced")
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = (
    *("byte", "date", "date-time", "double", "float", "int32", "int64", "password"),
)
_SCALE_PATHS: Final = (
    ("specReplicasPath", (".spec.",), "should be a json path under .spec"),
    ("statusReplicasPath", (".status.",), "should be a json path under .status"),
)
_SELECTOR_PATHS: Final = (".spec.", ".status.")
_MAX_SELECTABLE_FIELDS: Final = 8
_MAX_WARNING_LENGTH: Final = 256
_NO_SCHEMA: Final = (
    "may only be set when `version.schema.openAPIV3Schema` is not included",
    "may only be set when validations.schema is included",
)
"""What is said of selectable fields of a version, and of all versions, without a schema beside them."""

_MIXED_CASE: Final = "may have mixed case, but should otherwise match: "

SchemaCheck = Callable[[Object, int, str], object]
"""Compiles the schema of a version, found by its index, or raises SchemaError with its path."""


def is_shared(crd: Object, name: str) -> bool:
    """Whether all versions say the same in a field, so that it stands below `spec`."""
    values = [version.get(name) for version in crd["spec"]["versions"] or ()]
    return all(value == values[0] for value in values)


def schema_path(crd: Object, index: int) -> str:
    """Where errors in the schema of a version are reported."""
    if is_shared(crd, "schema"):
        return SINGLE_VERSION_PATH
    return f"spec.versions[{index}].schema.openAPIV3Schema"


def check_definition(crd: Object, check_schema: SchemaCheck) -> ErrorList:
    """What is wrong with a CRD, apart from its metadata."""
    spec = crd["spec"]
    versions = spec["versions"] or []
    errors = _check_group(spec["group"])
    errors += check_choice("spec.scope", spec["scope"], _SCOPES)
    errors += [
        required(f"spec.versions[{index}].schema.openAPIV3Schema")
        for index, version in enumerate(versions)
        if not (version.get("schema") or {}).get("openAPIV3Schema")
    ]
    parts = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
    shared = {part for part in parts if is_shared(crd, part)}
    for index, version in enumerate(versions):
        below = f"spec.versions[{index}]"
        if found := check_dns1035_label(version["name"]):
            errors.append(invalid(f"{below}.name", version["name"], ",".join(found)))
        errors += _check_deprecation(version, below)
        for part in parts:
            if part not in shared:
                errors += _check_part(crd, index, part, below, check_schema)
    errors += _check_versions(spec["versions"])
    errors += _check_names(spec["names"])
    for part in parts:
        if part in shared and versions:
            errors += _check_part(crd, 0, part, "spec", check_schema)
    errors += _check_conversion(spec["conversion"])
    errors += _check_stored_versions(crd)
    if spec.get("preserveUnknownFields"):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead"
        )
        errors.append(invalid("spec.preserveUnknownFields", value=True, detail=detail))
    return errors


def _check_group(group: str) -> ErrorList:
    if not group:
        return [required("spec.group")]
    if found := check_dns1123_subdomain(group):
        return [invalid("spec.group", group, ",".join(found))]
    if "." not in group:
        return [invalid("spec.group", group, "should be a domain with at least one dot")]
    return []


def _check_part(
    crd: Object, index: int, part: str, path: str, check_schema: SchemaCheck
) -> ErrorList:
    """One part of a version, wherever it stands."""
    version = crd["spec"]["versions"][index]
    if part == "schema":
        return _check_schema(crd, index, check_schema)
    if part == "subresources":
        scale = (version.get(part) or {}).get("scale")
        return [] if scale is None else _check_scale(scale, f"{path}.subresources.scale")
    if part == "additionalPrinterColumns":
        columns = enumerate(version.get(part) or ())
        return [
            error for i, column in columns for error in _check_column(column, f"{path}.{part}[{i}]")
        ]
    fields, below = version.get(part) or (), f"{path}.{part}"
    if fields and is_shared(crd, part) != is_shared(crd, "schema"):
        # They are looked up in the schema beside them, which stands elsewhere.
        return [invalid(below, "", _NO_SCHEMA[path == "spec"])]
    return _check_selectable_fields(fields, below)


def _check_schema(crd: Object, index: int, check_schema: SchemaCheck) -> ErrorList:
    version = crd["spec"]["versions"][index]
    if not (version.get("schema") or {}).get("openAPIV3Schema"):
        return []
    try:
        check_schema(crd, index, schema_path(crd, index))
    except SchemaError as exc:
        return list(exc.errors)
    return []


def _check_deprecation(version: Object, path: str) -> ErrorList:
    warning, below = version.get("deprecationWarning"), f"{path}.deprecationWarning"
    if warning is None:
        return []
    if not version.get("deprecated"):
        return [invalid(below, warning, "can only be set for deprecated versions")]
    if len(warning) > _MAX_WARNING_LENGTH:
        return [invalid(below, warning, "must be <= 256 characters long")]
    if not warning:
        return [invalid(below, warning, "must not be an empty string")]
    return []


def _check_scale(scale: Object, path: str) -> ErrorList:
    errors: ErrorList = []
    for name, prefixes, detail in _SCALE_PATHS:
        value = scale.get(name) or ""
        if value:
            errors += _check_path(f"{path}.{name}", value, prefixes, detail)
        else:
            errors.append(required(f"{path}.{name}"))
    selector = scale.get("labelSelectorPath")
    if selector:
        detail = "should be a json path under either .spec or .status"
        errors += _check_path(f"{path}.labelSelectorPath", selector, _SELECTOR_PATHS, detail)
    return errors


def _check_path(path: str, value: str, prefixes: tuple[str, ...], detail: str) -> ErrorList:
    if not value.startswith("."):
        return [invalid(path, value, "must be a simple json path starting with .")]
    return [] if value.startswith(prefixes) else [invalid(path, value, detail)]


def _check_column(column: Object, path: str) -> ErrorList:
    errors: ErrorList = []
    if not column["name"]:
        errors.append(required(f"{path}.name"))
    detail = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not column["type"]:
        errors.append(required(f"{path}.type", detail))
    elif column["type"] not in _COLUMN_TYPES:
        errors.append(invalid(f"{path}.type", column["type"], detail))
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        detail = f"must be one of {','.join(_COLUMN_FORMATS)}"
        errors.append(invalid(f"{path}.format", column["format"], detail))
    if not column["jsonPath"]:
        errors.append(required(f"{path}.JSONPath"))
    else:
        errors += _check_path(f"{path}.JSONPath", column["jsonPath"], (".",), "")
    return errors


def _check_selectable_fields(fields: Any, path: str) -> ErrorList:
    errors: ErrorList = []
    seen: set[str] = set()
    for index, field in enumerate(fields):
        below, value = f"{path}[{index}].jsonPath", field["jsonPath"]
        if not value:
            errors.append(required(below))
            continue
        if not value.startswith("."):
            errors.append(invalid(below, value, "is an invalid path: it does not start with ."))
        elif value.startswith(".metadata"):
            errors.append(invalid(below, value, "must not point to fields in metadata"))
        if value in seen:
            errors.append(duplicate(below, value))
        seen.add(value)
    if len(seen) > _MAX_SELECTABLE_FIELDS:
        detail = f"must have at most {_MAX_SELECTABLE_FIELDS} items"
        errors.append(FieldError(path, ErrorType.TOO_MANY, len(seen), detail))
    return errors


def _check_versions(versions: list[Object] | None) -> ErrorList:
    errors: ErrorList = []
    names = [version["name"] for version in versions or ()]
    if len(set(names)) != len(names):
        errors.append(invalid("spec.versions", versions, "must contain unique version names"))
    if sum(bool(version["storage"]) for version in versions or ()) != 1:
        detail = "must have exactly one version marked as storage version"
        errors.append(invalid("spec.versions", versions, detail))
    if names and (found := check_dns1035_label(names[0])):
        errors.append(invalid("spec.version", names[0], ",".join(found)))
    return errors


def _check_names(names: Object) -> Iterator[FieldError]:
    path = "spec.names"
    for name in ("plural", "singular", "kind", "listKind"):
        if not names.get(name):
            yield required(f"{path}.{name}")
    for name in ("plural", "singular", "kind", "listKind"):
        value = names.get(name) or ""
        mixed = name in ("kind", "listKind")
        found = check_dns1035_label(value.lower() if mixed else value) if value else []
        if found:
            detail = (_MIXED_CASE if mixed else "") + ",".join(found)
            yield invalid(f"{path}.{name}", value, detail)
    yield from _check_labels(f"{path}.shortNames", names.get("shortNames"))
    if names["kind"] and names["kind"] == names.get("listKind"):
        detail = "kind and listKind may not be the same"
        yield invalid(f"{path}.listKind", names["listKind"], detail)
    yield from _check_labels(f"{path}.categories", names.get("categories"))


def _check_labels(path: str, values: list[str] | None) -> Iterator[FieldError]:
    for index, value in enumerate(values or ()):
        if found := check_dns1035_label(value):
            yield invalid(f"{path}[{index}]", value, ",".join(found))


def _check_conversion(conversion: Object) -> ErrorList:
    path, strategy = "spec.conversion", conversion["strategy"]
    if not strategy:
        return [required(f"{path}.strategy")]
    if strategy != "None":
        return [unsupported(f"{path}.strategy", strategy, ("None",))]
    if conversion.get("webhook") is not None:
        detail = "should not be set when strategy is not set to Webhook"
        return [forbidden(f"{path}.webhookClientConfig", detail)]
    return []


def _check_stored_versions(crd: Object) -> ErrorList:
    path, stored = "status.storedVersions", crd["status"].get("storedVersions")
    if not stored:
        return [invalid(path, stored, "must have at least one stored version")]
    names = {version["name"] for version in crd["spec"]["versions"] or ()}
    return [
        invalid(f"{path}[{index}]", name, _still_stored(name))
        for index, name in enumerate(stored)
        if name not in names
    ]


def _still_stored(name: str) -> str:
    return (
        f"missing from spec.versions; {name} was previously a storage version, and must remain in "
        f"spec.versions until a storage migration ensures no data remains persisted in {name} and "
        f"removes {name} from status.storedVersions"
    )
