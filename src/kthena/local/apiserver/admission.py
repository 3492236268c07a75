"""From a decoded object to one that may be stored: metadata, preparation, validation.

These are the steps of the generic registry of kube-apiserver (`BeforeCreate`, `BeforeUpdate`) and of
its NamespaceLifecycle plugin. What is particular to a kind is in its `Strategy`. Pure: time, uid and
names are parameters; objects are changed in place.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from kthena.local.apiserver import errors
from kthena.local.apiserver.kinds import Kind, Strategy
from kthena.local.apiserver.store import encode
from kthena.machinery.conditions import format_time
from kthena.machinery.managedfields.entries import same_but_for_times
from kthena.machinery.metadata import (
    validate_any_object_meta,
    validate_object_meta,
    validate_object_meta_update,
)
from kthena.machinery.names import GENERATED_ALPHABET
from kthena.machinery.objects import Object, is_terminating, name_of
from kthena.machinery.resources import Resource

_SET_BY_SERVER: Final = (
    *("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    "selfLink",
)
_SUFFIX_LENGTH: Final = 5
_MAX_PREFIX_LENGTH: Final = 58


def ensure_metadata(obj: Object) -> dict[str, Any]:
    """The object's metadata, to be changed; it is added where it is missing."""
    found = obj.get("metadata")
    if found is None:
        found = obj["metadata"] = {}
    result: dict[str, Any] = found
    return result


def set_namespace(obj: Object, namespace: str) -> None:
    """Give the object the namespace of the request, or none if that has none."""
    meta = ensure_metadata(obj)
    if namespace:
        meta["namespace"] = namespace
    else:
        meta.pop("namespace", None)


def namespace_terminating(resource: Resource, name: str, namespace: str) -> errors.ApiError:
    """403: the namespace takes no new objects."""
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    detail = f"unable to create new content in namespace {namespace} because it is being terminated"
    return errors.forbidden(resource, name, detail, [cause])


def wipe_system_fields(obj: Object) -> None:
    """Drop what a client cannot set on a new object."""
    meta = ensure_metadata(obj)
    for name in _SET_BY_SERVER:
        meta.pop(name, None)


def drop_repeated_owners(obj: Object, *, is_body: bool = False) -> list[str]:
    """Remove owner references that repeat an earlier one; the result is warnings for the client.

    `is_body` is whether the object was sent as it is: of one that a patch has made the API server
    believes that admission has changed it.
    """
    meta = ensure_metadata(obj)
    references = meta.get("ownerReferences")
    if not references or not isinstance(references, list):
        return []
    distinct: list[Any] = []
    repeated: list[str] = []
    seen: set[bytes] = set()
    for reference in references:
        # By its text: a body may hold tens of thousands, too many to compare each with each.
        text = encode(reference)
        if text in seen:
            repeated.append(str(reference.get("uid")))
        else:
            seen.add(text)
            distinct.append(reference)
    if not repeated:
        return []
    meta["ownerReferences"] = distinct
    uids = ", ".join(dict.fromkeys(repeated))
    when = "" if is_body else " after mutating admission happens"
    warning = (
        f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references "
        "in 1.20+, and may reject such requests as early as 1.24; please fix your requests; "
        f"duplicate UID(s) observed: {uids}"
    )
    return [warning]


def set_managed_fields(obj: Object, entries: list[dict[str, Any]]) -> None:
    """Give the object the entries of who owns its fields, or none."""
    meta = ensure_metadata(obj)
    if entries:
        meta["managedFields"] = entries
    else:
        meta.pop("managedFields", None)


def keep_times(new: Object, old: Object) -> None:
    """Leave the times of managers as they were where an update changes nothing else."""
    meta, before = ensure_metadata(new), ensure_metadata(old)
    after, entries = meta.get("managedFields"), before.get("managedFields")
    if not after or not entries or after == entries or not same_but_for_times(after, entries):
        return
    if {**new, "metadata": {**meta, "managedFields": entries}} == old:
        meta["managedFields"] = entries


def generate_name(prefix: str, choose: Callable[[str], str]) -> str:
    """A name that starts with the prefix; `choose` picks one of the characters that it is given."""
    suffix = "".join(choose(GENERATED_ALPHABET) for _ in range(_SUFFIX_LENGTH))
    return prefix[:_MAX_PREFIX_LENGTH] + suffix


def prepare_create(kind: Kind, obj: Object, uid: str, now: datetime) -> None:
    """Make a decoded object a new one of its kind.

    The name has been generated, if at all.

    Raises:
        ApiError: 422, it breaks the rules of its kind; 500, it has a resourceVersion.
    """
    meta = ensure_metadata(obj)
    meta["uid"] = uid
    meta["creationTimestamp"] = format_time(now)
    kind.strategy.prepare_create(obj)
    found = [] if kind.strategy.checks_metadata else validate_object_meta(obj, kind.resource)
    found += kind.strategy.validate_create(obj)
    if not found and kind.strategy.checks_metadata:
        found = validate_any_object_meta(obj, kind.resource)
    if found:
        raise errors.invalid_object(kind.errors_as or kind.resource, name_of(obj), found)
    version = meta.get("resourceVersion")
    if version != "0":
        meta.pop("resourceVersion", None)
    if _is_version(version):
        raise errors.internal("resourceVersion should not be set on objects to be created")


def _is_version(text: Any) -> bool:
    """Whether it is a version other than 0; what is none is not looked at."""
    return isinstance(text, str) and text.isascii() and text.isdigit() and int(text) != 0


def prepare_update(kind: Kind, strategy: Strategy, new: Object, old: Object) -> None:
    """Make a decoded object the successor of a stored one.

    Raises:
        ApiError: 422, the object or the change breaks the rules of its kind.
    """
    meta, before = ensure_metadata(new), ensure_metadata(old)
    _keep(meta, before, "generation")
    strategy.prepare_update(new, old)
    if not meta.get("uid"):
        meta["uid"] = before["uid"]
    _keep(meta, before, "creationTimestamp")
    meta.pop("selfLink", None)
    if is_terminating(old):
        _keep(meta, before, "deletionTimestamp")
    if before.get("deletionGracePeriodSeconds") is not None:
        meta.setdefault("deletionGracePeriodSeconds", before["deletionGracePeriodSeconds"])
    found = []
    if not strategy.checks_metadata:
        repeats = strategy.repeats_changes
        found += validate_object_meta_update(kind.named(new), old, repeats_changes=repeats)
    if strategy.repeats_metadata:
        found += validate_object_meta(new, kind.resource)
    found += strategy.validate_update(new, old)
    if found:
        raise errors.invalid_object(kind.errors_as or kind.resource, name_of(old), found)


def _keep(meta: dict[str, Any], before: dict[str, Any], name: str) -> None:
    """Give `meta` the field as it was before, or none."""
    if name in before:
        meta[name] = before[name]
    else:
        meta.pop(name, None)


def bump_generation(obj: Object) -> None:
    """Count a change of what the object's controller acts on."""
    meta = ensure_metadata(obj)
    meta["generation"] = (meta.get("generation") or 0) + 1


def copy_fields(target: Object, source: Object, names: Iterable[str]) -> None:
    """Give `target` the top-level fields of `source`, or none where `source` has none."""
    for name in names:
        if name in source:
            target[name] = source[name]
        else:
            target.pop(name, None)
