"""Requests as admission policies see them: who wants what done with which object."""

from collections.abc import Callable
from typing import Any, Final

from kthena.local.apiserver.kinds import Kind
from kthena.local.apiserver.options import DeleteOptions
from kthena.local.apiserver.policies.matching import Attributes
from kthena.local.apiserver.registry import Review
from kthena.local.apiserver.verbs.call import ResourceCall
from kthena.machinery.objects import Object, name_of
from kthena.machinery.resources import Resource

_OPTIONS_VERSION: Final = "meta.k8s.io/v1"
Show = Callable[[Object], Object]
"""What stands for an object at the path of a subresource."""


def reviewer(call: ResourceCall, show: Show | None = None) -> Review | None:
    """Applies the policies to a write at the path; None where there are none to apply.

    The review raises ApiError where the request is denied.
    """
    enforcer = call.core.policies
    if not enforcer.active:
        return None

    def review(new: Object | None, old: Object | None) -> None:
        seen = [None if obj is None else _shown(call, obj, show) for obj in (new, old)]
        attributes = _attributes(call, seen[0], seen[1])
        enforcer.review(attributes, call.warnings)

    return review


def deletion_reviewer(call: ResourceCall, options: DeleteOptions) -> Review | None:
    """The same for a deletion of the object of the path, or of one of a collection."""
    enforcer = call.core.policies
    if not enforcer.active:
        return None
    given = _delete_options(options)

    def review(new: Object | None, old: Object | None) -> None:
        del new
        seen = None if old is None else _shown(call, old, None)
        enforcer.review(_attributes(call, None, seen, given), call.warnings)

    return review


def binding_reviewer(call: ResourceCall, binding: Object) -> Review | None:
    """The same for the assignment of the pod of the path to a node, of which policies see `binding`."""
    enforcer = call.core.policies
    if not enforcer.active:
        return None

    def review(new: Object | None, old: Object | None) -> None:
        del new, old
        seen = _shown(call, binding, lambda obj: obj)
        enforcer.review(_attributes(call, seen, None), call.warnings)

    return review


def _shown(call: ResourceCall, obj: Object, show: Show | None) -> Object:
    if show is None:
        return call.kind.named(obj)
    sent = call.representation.resource
    return {"kind": sent.kind, "apiVersion": sent.api_version, **show(obj)}


def _attributes(
    call: ResourceCall, new: Object | None, old: Object | None, options: Object | None = None
) -> Attributes:
    operation = "DELETE" if new is None else "CREATE" if old is None else "UPDATE"
    sent, resource = call.representation.resource, call.kind.resource
    name = call.path.name or (name_of(new) if new is not None else "")
    is_namespace = (resource.group, resource.plural) == ("", "namespaces")
    is_same = sent is resource
    given = _write_options(call, operation) if options is None else options
    return Attributes(
        operation=operation,
        resource=resource,
        subresource=call.path.subresource,
        kind=(sent.group, sent.version, sent.kind),
        namespace=name if is_namespace else call.path.namespace,
        name=name,
        object=new,
        old_object=old,
        options=given,
        user=call.user,
        dry_run=bool(given.get("dryRun")),
        equivalents=_equivalents(call),
        convert=_converter(call) if is_same else None,
    )


def _write_options(call: ResourceCall, operation: str) -> Object:
    kind = "CreateOptions" if operation == "CREATE" else "UpdateOptions"
    options: Object = {"kind": kind, "apiVersion": _OPTIONS_VERSION}
    if call.query.texts("dryRun"):
        options["dryRun"] = call.query.texts("dryRun")
    for name in ("fieldManager", "fieldValidation"):
        if call.query.text(name):
            options[name] = call.query.text(name)
    return options


def _delete_options(options: DeleteOptions) -> Object:
    preconditions = {"uid": options.uid, "resourceVersion": options.resource_version}
    given: dict[str, Any] = {
        "gracePeriodSeconds": options.grace_period_s,
        "preconditions": {key: value for key, value in preconditions.items() if value} or None,
        "orphanDependents": options.orphan_dependents,
        "propagationPolicy": options.propagation,
        "dryRun": ["All"] if options.dry_run else None,
    }
    named = {"kind": "DeleteOptions", "apiVersion": _OPTIONS_VERSION}
    return {**named, **{key: value for key, value in given.items() if value is not None}}


def _siblings(call: ResourceCall) -> list[Kind]:
    """Other kinds that show the same objects."""
    kind = call.kind
    return [
        other for other in call.core.catalog if other.bucket == kind.bucket and other is not kind
    ]


def _equivalents(call: ResourceCall) -> list[Resource]:
    return [other.resource for other in _siblings(call)]


def _converter(call: ResourceCall) -> Callable[[Object, Resource], Object]:
    def convert(obj: Object, resource: Resource) -> Object:
        other = next(kind for kind in _siblings(call) if kind.resource == resource)
        stored = call.kind.stored(obj)
        form = stored if other.conversion is None else other.conversion.from_stored(stored)
        return {**other.named(form), "kind": resource.kind, "apiVersion": resource.api_version}

    return convert
