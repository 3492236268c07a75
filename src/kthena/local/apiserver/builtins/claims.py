"""PersistentVolumeClaims. They are stored; nothing binds them to volumes."""

from collections.abc import Sequence
from typing import Any, Final

from kthena.local.apiserver import errors as api_errors
from kthena.local.apiserver.admission import copy_fields
from kthena.local.apiserver.builtins.fielderrors import (
    check_text,
    forbidden,
    invalid,
    required,
    unsupported,
)
from kthena.local.apiserver.builtins.workloads import check_label_selector
from kthena.local.apiserver.strategies import STATUS_FIELD, PlainStrategy, StatusStrategy
from kthena.machinery.fields import ErrorList, Verbatim
from kthena.machinery.names import check_dns1123_subdomain
from kthena.machinery.objects import Object, name_of
from kthena.machinery.quantity import Quantity
from kthena.machinery.resources import Resource

RESOURCE: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PROTECTION: Final = "kubernetes.io/pvc-protection"
"""The finalizer that keeps a claim while a pod uses it."""

_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_SINGLE: Final = "ReadWriteOncePod"
_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", _SINGLE)
_VOLUME_MODES: Final = ("Block", "Filesystem")
_POSITIVE: Final = "must be greater than zero"
_FIXED: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
    "bound claims\n"
)
_NO_GROWTH: Final = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc "
    "must support resize"
)
_SOURCES: Final = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def default(obj: Object) -> None:
    """A claim waits for a volume with a file system."""
    obj["status"].setdefault("phase", "Pending")
    obj["spec"].setdefault("volumeMode", "Filesystem")


class ClaimStrategy(PlainStrategy):
    """Writes of PersistentVolumeClaims: most of the spec is fixed."""

    repeats_metadata = True
    reset_fields = STATUS_FIELD

    def prepare_create(self, obj: Object) -> None:
        """It starts without a volume, and with the finalizer of the admission plugin."""
        obj["status"] = {"phase": "Pending"}
        finalizers = obj["metadata"].get("finalizers") or []
        if PROTECTION not in finalizers:
            obj["metadata"]["finalizers"] = [*finalizers, PROTECTION]
        _normalize_sources(obj["spec"])

    def prepare_update(self, new: Object, old: Object) -> None:
        """Keep the status."""
        copy_fields(new, old, ("status",))
        _normalize_sources(new["spec"])

    def validate_create(self, obj: Object) -> ErrorList:
        """Access modes, a size, names."""
        spec = obj["spec"]
        errors = _check_modes(spec)
        errors += _check_size(spec)
        name = spec.get("storageClassName")
        if name:
            errors += check_text("spec.storageClassName", name, check_dns1123_subdomain)
        mode = spec.get("volumeMode")
        if mode not in (None, *_VOLUME_MODES):
            errors.append(unsupported("spec.volumeMode", mode, _VOLUME_MODES))
        for field in ("dataSource", "dataSourceRef"):
            if spec.get(field) is not None:
                errors += _check_source(spec[field], f"spec.{field}")
        source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
        if source is not None and reference is not None:
            detail = "must match dataSourceRef"
            if reference.get("namespace"):
                detail = "may not be specified when dataSourceRef.namespace is specified"
            if reference.get("namespace") or not _are_same(source, reference):
                errors.append(invalid("spec", Verbatim("{}"), detail))
        name = spec.get("volumeAttributesClassName")
        if name:
            errors += check_text("spec.volumeAttributesClassName", name, check_dns1123_subdomain)
        return errors

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """Only the size of a bound claim, and the volume of one without, may change."""
        errors = self.validate_create(new)
        after, before = dict(new["spec"]), dict(old["spec"])
        annotations = [obj["metadata"].get("annotations") or {} for obj in (new, old)]
        old_class = annotations[1].get(_OLD_CLASS)
        if annotations[0].get(_OLD_CLASS) != old_class:
            path = f"metadata.annotations.{_OLD_CLASS}"
            errors.append(invalid(path, annotations[0].get(_OLD_CLASS) or "", "field is immutable"))
        if not before.get("volumeName"):
            copy_fields(before, after, ("volumeName",))
        if before.get("storageClassName") is None:
            copy_fields(before, after, ("storageClassName",))
        if new["status"].get("phase") == "Bound":
            copy_fields(before, after, ("volumeAttributesClassName",))
            requests = (after.get("resources") or {}).get("requests") or {}
            old_requests = (before.get("resources") or {}).get("requests") or {}
            after["resources"] = {
                **(after.get("resources") or {}),
                "requests": {**requests, "storage": old_requests.get("storage")},
            }
        if after != before:
            changed = sorted(
                name for name in {*after, *before} if after.get(name) != before.get(name)
            )
            errors.append(forbidden("spec", f"{_FIXED}changed: {', '.join(changed)}"))
        errors += _check_shrinking(new, old)
        if new["spec"].get("volumeMode") != old["spec"].get("volumeMode"):
            mode = new["spec"].get("volumeMode")
            errors.append(invalid("volumeMode", mode, "field is immutable"))
        if not errors:
            _refuse_growth(new, old)
        return errors

    def warnings(self, new: Object, old: Object | None) -> Sequence[str]:
        """Old annotations, and sizes that are no whole number of bytes."""
        del old
        found = []
        if _OLD_CLASS in (new["metadata"].get("annotations") or {}):
            found.append(
                f"metadata.annotations[{_OLD_CLASS}]: deprecated since v1.8; use "
                '"storageClassName" attribute instead'
            )
        for name in ("requests", "limits"):
            size = ((new["spec"].get("resources") or {}).get(name) or {}).get("storage")
            if size is not None and Quantity.parse(size).value.denominator != 1:
                found.append(
                    f'spec.resources.{name}[storage]: fractional byte value "{size}" is invalid, '
                    "must be an integer"
                )
        return found


class ClaimStatusStrategy(StatusStrategy):
    """The status of a PersistentVolumeClaim."""

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """Capacities are not negative."""
        del old
        return [
            invalid(
                f"status.capacity[{name}]", Verbatim(amount), "must be a valid resource quantity"
            )
            for name, amount in (new["status"].get("capacity") or {}).items()
            if Quantity.parse(amount).value < 0
        ]


def _refuse_growth(new: Object, old: Object) -> None:
    """No storage class can allow it, as none are served.

    Raises:
        ApiError: 403, the claim is to grow.
    """
    after, before = (_storage(obj["spec"].get("resources")) or "0" for obj in (new, old))
    if Quantity.parse(after) > Quantity.parse(before):
        raise api_errors.forbidden(RESOURCE, name_of(old), _NO_GROWTH)


def _check_modes(spec: Object) -> ErrorList:
    path, modes = "spec.accessModes", spec.get("accessModes") or ()
    errors: ErrorList = []
    if not modes:
        errors.append(required(path, "at least 1 access mode is required"))
    if spec.get("selector") is not None:
        errors += check_label_selector(spec["selector"], "spec.selector")
    errors += [unsupported(path, mode, _MODES) for mode in modes if mode not in _MODES]
    if _SINGLE in modes and any(mode in _MODES and mode != _SINGLE for mode in modes):
        detail = "may not use ReadWriteOncePod with other access modes"
        errors.append(forbidden(path, detail))
    return errors


def _storage(resources: Object | None) -> Any:
    return ((resources or {}).get("requests") or {}).get("storage")


def _check_size(spec: Object) -> ErrorList:
    path, size = "spec.resources[storage]", _storage(spec.get("resources"))
    if size is None:
        return [required(path)]
    if Quantity.parse(size).value <= 0:
        return [invalid(path, size, _POSITIVE)]
    return []


def _check_shrinking(new: Object, old: Object) -> ErrorList:
    """A size may become smaller only down to what a failed growth has left."""
    after, before = (_storage(obj["spec"].get("resources")) or "0" for obj in (new, old))
    capacity = (old["status"].get("capacity") or {}).get("storage") or "0"
    if Quantity.parse(after) < Quantity.parse(before) and Quantity.parse(after) <= Quantity.parse(
        capacity
    ):
        detail = "field can not be less than status.capacity"
        return [forbidden("spec.resources.requests.storage", detail)]
    return []


def _check_source(source: Object, path: str) -> ErrorList:
    group, kind = source.get("apiGroup") or "", source["kind"]
    errors = [required(f"{path}.{name}") for name in ("name", "kind") if not source[name]]
    if not group and kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.append(invalid(path, kind, detail))
    if group:
        errors += check_text(f"{path}.apiGroup", group, check_dns1123_subdomain)
    return errors


def _are_same(source: Object, reference: Object) -> bool:
    return all(source.get(name) == reference.get(name) for name in ("apiGroup", "kind", "name"))


def _normalize_sources(spec: Object) -> None:
    """Each of the two names of the source follows the other; foreign ones of the old name go."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        if ((source.get("apiGroup") or ""), source["kind"]) in _SOURCES:
            spec["dataSourceRef"] = dict(source)
        else:
            del spec["dataSource"]
    elif reference is not None and source is None and not reference.get("namespace"):
        names = ("apiGroup", "kind", "name")
        spec["dataSource"] = {name: reference.get(name) for name in names}
