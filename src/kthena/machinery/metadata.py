"""Validation of `metadata`: what the API server demands of every object, on create and on update.

Texts and order are those of apimachinery's ValidateObjectMeta and ValidateObjectMetaUpdate; the
syntax of names depends on the resource, as the registries of the API server have it. Whoever decodes
a request asks `metadata_types` first: here, values of the wrong JSON type are one error.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from kthena.machinery.conditions import format_time, parse_time
from kthena.machinery.fields import OMITTED, ErrorList, ErrorType, FieldError, child, item
from kthena.machinery.gotext import is_print, quote
from kthena.machinery.metadata_types import decode_problem
from kthena.machinery.names import (
    check_dns1035_label,
    check_dns1123_label,
    check_dns1123_subdomain,
    check_label_value,
    check_path_segment,
    check_qualified_name,
)
from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource

ANNOTATIONS_MAX_BYTES: Final = 256 * 1024
FINALIZER_ORPHAN: Final = "orphan"
FINALIZER_FOREGROUND: Final = "foregroundDeletion"

_MANAGER_MAX_BYTES = 128
_SUBRESOURCE_MAX_BYTES = 256

NameCheck = Callable[[str], list[str]]

_NAME_CHECKS: dict[tuple[str, str], NameCheck] = {
    ("", "namespaces"): check_dns1123_label,
    ("", "services"): check_dns1035_label,
    ("rbac.authorization.k8s.io", "roles"): check_path_segment,
    ("rbac.authorization.k8s.io", "rolebindings"): check_path_segment,
    ("rbac.authorization.k8s.io", "clusterroles"): check_path_segment,
    ("rbac.authorization.k8s.io", "clusterrolebindings"): check_path_segment,
}

# The built-in groups whose kinds demand finalizers with a domain; custom resources do not.
_QUALIFYING_GROUPS = frozenset(
    (
        *("", "apps", "autoscaling", "batch", "discovery.k8s.io", "events.k8s.io"),
        *("networking.k8s.io", "rbac.authorization.k8s.io", "scheduling.k8s.io", "storage.k8s.io"),
    )
)
_STANDARD_FINALIZERS = frozenset(("kubernetes", FINALIZER_ORPHAN, FINALIZER_FOREGROUND))


def validate_object_meta(obj: Object, resource: Resource, path: str = "metadata") -> ErrorList:
    """What is wrong with the metadata of an object that is to be created.

    The name has been generated and the namespace filled in before. Most names are DNS subdomains;
    services and namespaces have stricter names, RBAC objects looser ones.
    """
    if errors := _check_types(obj, path):
        return errors
    metadata = obj.get("metadata") or {}
    check = _NAME_CHECKS.get((resource.group, resource.plural), check_dns1123_subdomain)
    return [
        *_validate_names(metadata, check, path),
        *_validate_namespace(metadata, path, namespaced=resource.namespaced),
        *_validate_common(metadata, path),
        *_validate_qualified_finalizers(metadata, resource.group, child(path, "finalizers")),
    ]


def validate_any_object_meta(obj: Object, resource: Resource, path: str = "metadata") -> ErrorList:
    """What no object may have, whatever its kind allows: the check that follows those of the kind."""
    if errors := _check_types(obj, path):
        return errors
    metadata = obj.get("metadata") or {}
    return [
        *_validate_names(metadata, check_path_segment, path),
        *_validate_namespace(metadata, path, namespaced=resource.namespaced),
        *_validate_common(metadata, path),
    ]


def validate_any_object_meta_update(new: Object, old: Object, path: str = "metadata") -> ErrorList:
    """What no successor of a stored object may have, whatever its kind allows."""
    if errors := _check_types(new, path):
        return errors
    metadata, before = new.get("metadata") or {}, old.get("metadata") or {}
    return [
        *_validate_common(metadata, path),
        *validate_metadata_change(metadata, before, path),
    ]


def validate_object_meta_update(
    new: Object, old: Object, path: str = "metadata", *, repeats_changes: bool = True
) -> ErrorList:
    """What is wrong with the metadata of `new` as the successor of the stored object `old`.

    A mistake stands in the list as often as the API server finds it: it checks an update once for
    all kinds and, where it `repeats_changes`, once more for the kind. Joined texts say it once.
    """
    if errors := _check_types(new, path):
        return errors
    metadata, before = new.get("metadata") or {}, old.get("metadata") or {}
    changes = validate_metadata_change(metadata, before, path)
    group, _, _ = str(new.get("apiVersion") or "").rpartition("/")
    return [
        *_validate_common(metadata, path),
        *changes,
        *(changes if repeats_changes else ()),
        *_validate_qualified_finalizers(metadata, group, child(path, "finalizers")),
    ]


def validate_metadata_change(
    metadata: Mapping[str, Any], before: Mapping[str, Any], path: str = "metadata"
) -> ErrorList:
    """What apimachinery's ValidateObjectMetaUpdate says of new metadata in place of older."""
    return [
        *_validate_new_finalizers(metadata, before, child(path, "finalizers")),
        *_validate_versions(metadata, before, path),
        *_validate_immutable(metadata, before, path),
        *_validate_maps(metadata, path),
        *_validate_owner_references(metadata, child(path, "ownerReferences")),
        *_validate_managed_fields(metadata, child(path, "managedFields")),
    ]


def _check_types(obj: Object, path: str) -> ErrorList:
    """One error where decoding would have failed; nothing else can be said then."""
    problem = decode_problem(obj.get("metadata"))
    return [FieldError(path, ErrorType.INVALID, OMITTED, problem)] if problem else []


def _validate_common(metadata: Mapping[str, Any], path: str) -> ErrorList:
    return [
        *_validate_generation(metadata, path),
        *_validate_maps(metadata, path),
        *_validate_owner_references(metadata, child(path, "ownerReferences")),
        *_validate_finalizers(metadata, child(path, "finalizers")),
        *_validate_managed_fields(metadata, child(path, "managedFields")),
    ]


def _invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, ErrorType.INVALID, value, detail)


def _validate_names(metadata: Mapping[str, Any], check: NameCheck, path: str) -> ErrorList:
    errors = []
    prefix, name = metadata.get("generateName") or "", metadata.get("name") or ""
    if prefix:
        errors = [
            _invalid(child(path, "generateName"), prefix, message)
            for message in _check_prefix(prefix, check)
        ]
    name_path = child(path, "name")
    if not name:
        required = FieldError(name_path, ErrorType.REQUIRED, "", "name or generateName is required")
        return [*errors, required]
    return errors + [_invalid(name_path, name, message) for message in check(name)]


def _check_prefix(prefix: str, check: NameCheck) -> list[str]:
    """The messages for a name that starts with the prefix; it may end with a dash."""
    if check is check_path_segment:
        return [message for message in check(prefix) if message.startswith("may not contain")]
    masked = f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix
    return check(masked)


def _validate_namespace(metadata: Mapping[str, Any], path: str, *, namespaced: bool) -> ErrorList:
    namespace, below = metadata.get("namespace") or "", child(path, "namespace")
    if not namespaced:
        if namespace:
            return [FieldError(below, ErrorType.FORBIDDEN, "", "not allowed on this type")]
        return []
    if not namespace:
        return [FieldError(below, ErrorType.REQUIRED, "", "")]
    return [_invalid(below, namespace, message) for message in check_dns1123_label(namespace)]


def _validate_generation(metadata: Mapping[str, Any], path: str) -> ErrorList:
    generation = metadata.get("generation") or 0
    if generation >= 0:
        return []
    below = child(path, "generation")
    return [_invalid(below, generation, "must be greater than or equal to 0")]


def _validate_maps(metadata: Mapping[str, Any], path: str) -> ErrorList:
    """Labels and annotations."""
    errors = []
    below = child(path, "labels")
    for key, value in (metadata.get("labels") or {}).items():
        errors += [_invalid(below, key, message) for message in check_qualified_name(key)]
        errors += [_invalid(below, value, message) for message in check_label_value(value or "")]
    below = child(path, "annotations")
    size = 0
    for key, value in (metadata.get("annotations") or {}).items():
        # Keys of annotations are those of labels, but for the case.
        messages = check_qualified_name(key.lower())
        errors += [_invalid(below, key, message) for message in messages]
        size += _byte_length(key) + _byte_length(value or "")
    if size > ANNOTATIONS_MAX_BYTES:
        errors.append(_too_long(below, ANNOTATIONS_MAX_BYTES))
    return errors


def annotations_fit(annotations: Mapping[str, str]) -> bool:
    """Whether annotations are within the size that an object may have of them."""
    size = sum(_byte_length(key) + _byte_length(value) for key, value in annotations.items())
    return size <= ANNOTATIONS_MAX_BYTES


def _byte_length(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _too_long(path: str, limit: int) -> FieldError:
    return FieldError(path, ErrorType.TOO_LONG, "", f"may not be more than {limit} bytes")


def _validate_owner_references(metadata: Mapping[str, Any], path: str) -> ErrorList:
    errors: ErrorList = []
    references = [_owner_reference(entry or {}) for entry in metadata.get("ownerReferences") or ()]
    first = ""
    for reference in references:
        errors += _validate_owner_reference(reference, path)
        if not reference.get("controller"):
            continue
        controller = f"{reference['kind']}/{reference['name']}"
        if first:
            detail = (
                "Only one reference can have Controller set to true. Found "
                f'"true" in references for {first} and {controller}'
            )
            errors.append(_invalid_references(path, references, detail))
        else:
            first = controller
    return errors


def _owner_reference(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The reference with its fields in the order in which the API server prints them."""
    reference = {name: entry.get(name) or "" for name in ("apiVersion", "kind", "name", "uid")}
    flags = ("controller", "blockOwnerDeletion")
    return reference | {name: entry[name] for name in flags if entry.get(name) is not None}


def _validate_owner_reference(reference: Mapping[str, Any], path: str) -> ErrorList:
    errors = []
    api_version = reference["apiVersion"]
    if not api_version.rpartition("/")[2] or api_version.count("/") > 1:
        below = child(path, "apiVersion")
        errors.append(_invalid(below, api_version, "version must not be empty"))
    errors += [
        _invalid(child(path, name), "", "must not be empty")
        for name in ("kind", "name", "uid")
        if not reference[name]
    ]
    if (api_version, reference["kind"]) == ("v1", "Event"):
        detail = "/v1, Kind=Event is disallowed from being an owner"
        errors.append(_invalid_references(path, reference, detail))
    return errors


def _invalid_references(path: str, value: Any, detail: str) -> FieldError:
    """The error with the fields of the references in their order, where other values are sorted."""
    shown = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _invalid(path, OMITTED, f"{shown}: {detail}")


def _validate_finalizers(metadata: Mapping[str, Any], path: str) -> ErrorList:
    finalizers = _finalizers_of(metadata)
    errors = [
        _invalid(path, finalizer, message)
        for finalizer in finalizers
        for message in check_qualified_name(finalizer)
    ]
    if FINALIZER_ORPHAN in finalizers and FINALIZER_FOREGROUND in finalizers:
        detail = f"finalizer {FINALIZER_ORPHAN} and {FINALIZER_FOREGROUND} cannot be both set"
        errors.append(_invalid(path, finalizers, detail))
    return errors


def _finalizers_of(metadata: Mapping[str, Any]) -> list[str]:
    return [finalizer or "" for finalizer in metadata.get("finalizers") or ()]


def _validate_qualified_finalizers(metadata: Mapping[str, Any], group: str, path: str) -> ErrorList:
    if group not in _QUALIFYING_GROUPS:
        return []
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        _invalid(item(path, index), finalizer, detail)
        for index, finalizer in enumerate(_finalizers_of(metadata))
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS
    ]


def _validate_managed_fields(metadata: Mapping[str, Any], path: str) -> ErrorList:
    errors = []
    for index, item_or_null in enumerate(metadata.get("managedFields") or ()):
        entry, below = item_or_null or {}, item(path, index)
        operation, fields_type = entry.get("operation") or "", entry.get("fieldsType") or ""
        if operation not in ("Apply", "Update"):
            detail = "must be `Apply` or `Update`"
            errors.append(_invalid(child(below, "operation"), operation, detail))
        if fields_type not in ("", "FieldsV1"):
            detail = "must be `FieldsV1`"
            errors.append(_invalid(child(below, "fieldsType"), fields_type, detail))
        errors += validate_field_manager(entry.get("manager") or "", child(below, "manager"))
        if _byte_length(entry.get("subresource") or "") > _SUBRESOURCE_MAX_BYTES:
            errors.append(_too_long(child(below, "subresource"), _SUBRESOURCE_MAX_BYTES))
    return errors


def default_field_manager(user_agent: str) -> str:
    """The field manager of a client that names none: what it calls itself, up to the version.

    It is always valid: what cannot be printed is left out, and what does not fit is cut off.
    """
    manager, size = "", 0
    for character in filter(is_print, user_agent.partition("/")[0]):
        size += _byte_length(character)
        if size > _MANAGER_MAX_BYTES:
            break
        manager += character
    return manager


def validate_field_manager(manager: str, path: str) -> ErrorList:
    """What is wrong with the name of a field manager; an empty one is good."""
    errors = []
    if _byte_length(manager) > _MANAGER_MAX_BYTES:
        errors.append(_too_long(path, _MANAGER_MAX_BYTES))
    position = 0
    for character in manager:
        if not is_print(character):
            detail = f"invalid character U+{ord(character):04X} (at position {position})"
            errors.append(_invalid(path, manager, detail))
        position += _byte_length(character)
    return errors


def _validate_new_finalizers(
    metadata: Mapping[str, Any], before: Mapping[str, Any], path: str
) -> ErrorList:
    if not before.get("deletionTimestamp"):
        return []
    extra = set(_finalizers_of(metadata)) - set(_finalizers_of(before))
    if not extra:
        return []
    shown = ", ".join(quote(finalizer) for finalizer in sorted(extra))
    detail = (
        "no new finalizers can be added if the object is being deleted, "
        f"found new finalizers []string{{{shown}}}"
    )
    return [FieldError(path, ErrorType.FORBIDDEN, "", detail)]


def _validate_versions(
    metadata: Mapping[str, Any], before: Mapping[str, Any], path: str
) -> ErrorList:
    errors = []
    if not metadata.get("resourceVersion"):
        below = child(path, "resourceVersion")
        errors.append(_invalid(below, "", "must be specified for an update"))
    generation = metadata.get("generation") or 0
    if generation < (before.get("generation") or 0):
        errors.append(_invalid(child(path, "generation"), generation, "must not be decremented"))
    return errors


def _validate_immutable(
    metadata: Mapping[str, Any], before: Mapping[str, Any], path: str
) -> ErrorList:
    errors = []
    for name in ("name", "namespace", "uid"):
        value = metadata.get(name) or ""
        if value != (before.get(name) or ""):
            errors.append(_invalid(child(path, name), value, "field is immutable"))
    for name in ("creationTimestamp", "deletionTimestamp"):
        moment = _normal_time(metadata.get(name))
        if moment != _normal_time(before.get(name)):
            errors.append(_invalid(child(path, name), moment, "field is immutable"))
    name = "deletionGracePeriodSeconds"
    if metadata.get(name) != before.get(name):
        errors.append(_invalid(child(path, name), metadata.get(name), "field is immutable"))
    return errors


def _normal_time(text: str | None) -> str | None:
    """The text of the same moment in UTC; a text that is no time stays as it is."""
    if not text:
        return None
    try:
        return format_time(parse_time(text))
    except ValueError:
        return text
