"""The `scale` subresource: an autoscaling/v1 Scale made of the object's own fields."""

from collections.abc import Callable
from typing import Any, Final

from starlette.responses import Response

from kthena.local.apiserver import errors
from kthena.local.apiserver.admission import set_managed_fields
from kthena.local.apiserver.builtins.printers import SCALES
from kthena.local.apiserver.builtins.subresources import SCALE
from kthena.local.apiserver.content import content_type
from kthena.local.apiserver.dialect import CUSTOM
from kthena.local.apiserver.mediatypes import APPLY_PATCH
from kthena.local.apiserver.negotiation import Form
from kthena.local.apiserver.options import WriteOptions
from kthena.local.apiserver.registry import Write
from kthena.local.apiserver.tables import object_table, partial_metadata
from kthena.local.apiserver.verbs.admitting import reviewer
from kthena.local.apiserver.verbs.applying import read_apply
from kthena.local.apiserver.verbs.call import ResourceCall
from kthena.local.apiserver.verbs.patching import check_patch_type, read_patch
from kthena.local.apiserver.verbs.patchresult import Reader
from kthena.local.apiserver.verbs.writing import check_name, check_namespace, read_object
from kthena.machinery.managedfields.fieldsets import field
from kthena.machinery.managedfields.scale import ReplicasPaths, object_entries, scale_entries
from kthena.machinery.managedfields.tracking import Tracker, describe
from kthena.machinery.objects import Object, copy_json
from kthena.machinery.schema.scale import ScalePaths
from kthena.machinery.selectors import label_selector_from_object

_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


async def get_scale(call: ResourceCall) -> Response:
    """The Scale of the object of the path."""
    form = call.object_form()
    entry = call.core.registry.get(call.kind, call.key)
    return _reply(call, call.kind.read(entry), form)


async def update_scale(call: ResourceCall) -> Response:
    """A new number of replicas."""
    form = call.object_form()
    options, scale = await read_object(call, "UpdateOptions")
    check_namespace(call, scale)
    check_name(call.path.name, scale)
    write = Write(options, call.warnings, guards_uid=True)
    tracker = call.tracker

    def transform(old: Object) -> Object:
        return _tracked(tracker, old, scale, options)

    return _write(call, transform, write, form)


async def patch_scale(call: ResourceCall) -> Response:
    """A patch of the Scale."""
    check_patch_type(call)
    if content_type(call.request) == APPLY_PATCH:
        return await _apply_scale(call)
    patching = await read_patch(call)
    form = call.object_form()

    tracker = call.tracker

    def transform(scale: Object) -> Object:
        reader = Reader(call.representation, call.core.catalog, call.warnings)
        decoded = patching.apply(scale, reader)
        check_namespace(call, decoded)
        check_name(call.path.name, decoded)
        return _tracked(tracker, scale, decoded, patching.options)

    return _write(call, transform, Write(patching.options, call.warnings), form)


async def _apply_scale(call: ResourceCall) -> Response:
    """A Scale as a manager wants it."""
    applying = await read_apply(call)
    form = call.object_form()
    tracker = call.tracker

    def transform(old: Object) -> Object:
        scale = applying.apply(old, tracker, call.representation)
        if call.kind.dialect is CUSTOM and scale.get("spec") != old.get("spec"):
            # kube-apiserver cannot do this either: it takes the Scale for a custom resource.
            raise errors.ApiError(
                500,
                "",
                f"failed to convert new object ({describe(applying.config, SCALE.resource)}) to "
                "proper version: request to convert CR to an invalid group/version: "
                f"{SCALE.resource.api_version}",
            )
        check_namespace(call, scale)
        check_name(call.path.name, scale)
        return scale

    return _write(call, transform, Write(applying.options, call.warnings), form)


def _tracked(tracker: Tracker, old: Object, new: Object, options: WriteOptions) -> Object:
    """The new Scale, with who owns its replicas."""
    set_managed_fields(new, tracker.record(old, new, options.field_manager))
    return new


def _replicas_paths(call: ResourceCall) -> ReplicasPaths:
    """Where each version of the kind holds its replicas."""
    found: dict[str, tuple[str, ...] | None] = {}
    for kind in call.core.catalog:
        if kind.bucket != call.kind.bucket:
            continue
        subresource = kind.subresources.get("scale")
        paths = None if subresource is None else subresource.scale
        found[kind.resource.api_version] = (
            None if paths is None else tuple(map(field, _names(paths.spec_replicas)))
        )
    return found


def _paths(call: ResourceCall) -> ScalePaths:
    subresource = call.subresource
    if subresource is None or subresource.scale is None:
        raise errors.no_such_resource()
    return subresource.scale


def _reply(call: ResourceCall, obj: Object, form: Form) -> Response:
    """The Scale of an object in the form that the client wants."""
    scale = _scale_of(obj, _paths(call))
    if form is Form.TABLE:
        rows = object_table(SCALES, scale, call.include, call.core.config.now())
        rows["metadata"] = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        return call.value_reply(rows)
    return call.value_reply(partial_metadata(scale) if form is Form.METADATA else scale)


def _write(
    call: ResourceCall, make: Callable[[Object], Object], write: Write, form: Form
) -> Response:
    kind, paths = call.kind, _paths(call)
    write.review = reviewer(call, lambda obj: _scale_of(obj, paths))

    def transform(old: Object | None) -> Object:
        if old is None:
            raise errors.not_found(kind.resource, call.path.name)
        entries, versions = old["metadata"].get("managedFields"), _replicas_paths(call)
        before = _scale_of(old, paths)
        set_managed_fields(before, scale_entries(entries, versions))
        scale = make(before)
        _check(call, scale)
        new: Object = copy_json(old)
        written = scale["metadata"].get("managedFields")
        api_version = kind.resource.api_version
        set_managed_fields(new, object_entries(entries, written, api_version, versions))
        for name in ("uid", "resourceVersion"):
            if scale["metadata"].get(name):
                new["metadata"][name] = scale["metadata"][name]
        if not scale["metadata"].get("resourceVersion"):
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        _set(new, paths.spec_replicas, (scale.get("spec") or {}).get("replicas") or 0)
        return new

    write.tracks = False
    written = call.core.registry.update(kind, call.key, transform, write=write)
    return _reply(call, kind.read(written.entry), form)


def _check(call: ResourceCall, scale: Object) -> None:
    check = call.subresource.check if call.subresource is not None else None
    found = check(scale) if check is not None else []
    if found:
        raise errors.invalid_object(call.representation.resource, call.path.name, found)


def _scale_of(obj: Object, paths: ScalePaths) -> Object:
    """The Scale of an object."""
    metadata, resource = obj["metadata"], SCALE.resource
    status: Object = {"replicas": _get(obj, paths.status_replicas) or 0}
    selector = _get(obj, paths.label_selector) if paths.label_selector else None
    if isinstance(selector, dict):
        selector = str(label_selector_from_object(selector))
    if selector:
        status["selector"] = selector
    replicas = _get(obj, paths.spec_replicas)
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {name: metadata[name] for name in _METADATA if metadata.get(name)},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _names(path: str) -> list[str]:
    return path.removeprefix(".").split(".")


def _get(obj: Any, path: str) -> Any:
    for name in _names(path):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def _set(obj: Any, path: str, value: Any) -> None:
    *parents, last = _names(path)
    for name in parents:
        obj = obj.setdefault(name, {})
    obj[last] = value
