"""The `scale` subresource: an autoscaling/v1 Scale made of the object's own fields."""

from collections.abc import Callable
from typing import Any, Final

from starlette.responses import Response

from kthena.local.apiserver import errors
from kthena.local.apiserver.builtins.printers import SCALES
from kthena.local.apiserver.content import Form
from kthena.local.apiserver.decoding import Expected
from kthena.local.apiserver.gotypes import decoder_for
from kthena.local.apiserver.kinds import Kind, ScalePaths
from kthena.local.apiserver.mediatypes import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from kthena.local.apiserver.registry import Write
from kthena.local.apiserver.tables import object_table, partial_metadata
from kthena.local.apiserver.verbs.call import Call
from kthena.local.apiserver.verbs.patching import read_patch
from kthena.local.apiserver.verbs.writing import check_name, check_namespace, read_object
from kthena.machinery.fields import ErrorType, FieldError
from kthena.machinery.objects import Object, copy_json
from kthena.machinery.resources import Resource
from kthena.machinery.selectors import label_selector_from_object

SCALE: Final = Resource("autoscaling", "v1", "scale", "Scale")
_EXPECTED: Final = Expected(SCALE, decoder_for("autoscaling.v1.Scale", "Scale"), builtin=True)
_MERGE_SCHEMA: Final = "io.k8s.api.autoscaling.v1.Scale"
_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


async def get_scale(call: Call) -> Response:
    """The Scale of the object of the path."""
    form = call.object_form()
    entry = call.core.registry.get(call.kind, call.key)
    return _reply(call, call.kind.read(entry), form)


async def update_scale(call: Call) -> Response:
    """A new number of replicas."""
    form = call.object_form()
    options, scale = await read_object(call, "UpdateOptions", _EXPECTED)
    check_namespace(call, scale)
    check_name(call.path.name, scale)
    write = Write(options, call.warnings, guards_uid=True)
    return _write(call, lambda _: scale, write, form)


async def patch_scale(call: Call) -> Response:
    """A patch of the Scale."""
    types = [JSON_PATCH, MERGE_PATCH]
    if call.kind.builtin:
        types.append(STRATEGIC_PATCH)
    patching = await read_patch(call, types)
    form = call.object_form()

    def transform(scale: Object) -> Object:
        patched = patching.apply(scale, _MERGE_SCHEMA)
        decoded = patching.decode(patched, _EXPECTED, call.warnings)
        check_namespace(call, decoded)
        check_name(call.path.name, decoded)
        return decoded

    return _write(call, transform, Write(patching.options, call.warnings), form)


def _reply(call: Call, obj: Object, form: Form) -> Response:
    """The Scale of an object in the form that the client wants."""
    scale = _scale_of(call.kind, obj)
    if form is Form.TABLE:
        rows = object_table(SCALES, scale, call.include, call.core.config.now())
        rows["metadata"] = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        return call.value_reply(rows)
    return call.value_reply(partial_metadata(scale) if form is Form.METADATA else scale)


def _write(call: Call, make: Callable[[Object], Object], write: Write, form: Form) -> Response:
    kind, paths = call.kind, call.kind.scale or ScalePaths()

    def transform(old: Object | None) -> Object:
        if old is None:
            raise errors.not_found(kind.resource, call.path.name)
        scale = make(_scale_of(kind, old))
        replicas = (scale.get("spec") or {}).get("replicas") or 0
        if kind.builtin and replicas < 0:
            _refuse_negative(call.path.name, replicas)
        new: Object = copy_json(old)
        for name in ("uid", "resourceVersion"):
            if scale["metadata"].get(name):
                new["metadata"][name] = scale["metadata"][name]
        if not scale["metadata"].get("resourceVersion"):
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        _set(new, paths.replicas, replicas)
        return new

    written = call.core.registry.update(kind, call.key, transform, write=write)
    return _reply(call, written.entry.decode(), form)


def _refuse_negative(name: str, replicas: int) -> None:
    detail = "must be greater than or equal to 0"
    error = FieldError("spec.replicas", ErrorType.INVALID, replicas, detail)
    raise errors.invalid(SCALE.group, SCALE.kind, name, [error])


def _scale_of(kind: Kind, obj: Object) -> Object:
    """The Scale of an object."""
    paths = kind.scale or ScalePaths()
    metadata = obj["metadata"]
    status: Object = {"replicas": _get(obj, paths.status_replicas) or 0}
    selector = _get(obj, paths.selector) if paths.selector else None
    if isinstance(selector, dict):
        selector = str(label_selector_from_object(selector))
    if selector:
        status["selector"] = selector
    replicas = _get(obj, paths.replicas)
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": {name: metadata[name] for name in _METADATA if metadata.get(name)},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _get(obj: Any, path: str) -> Any:
    for name in path.split("."):
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def _set(obj: Any, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        obj = obj.setdefault(name, {})
    obj[last] = value
