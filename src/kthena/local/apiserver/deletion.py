"""What a deletion does to an object: at once, or first marked, with finalizers and a grace period.

The rules are those of kube-apiserver's generic registry: a grace period can only be shortened, the
propagation policy becomes a finalizer that the garbage collector takes off, and nothing is removed
while a finalizer stands. Pure: the object is changed in place, the caller stores or removes it.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from kthena.api.kubernetes import NAMESPACES
from kthena.local.apiserver import errors
from kthena.local.apiserver.admission import bump_generation, ensure_metadata
from kthena.local.apiserver.kinds import Step
from kthena.local.apiserver.options import DeleteOptions
from kthena.machinery.conditions import format_time, parse_time
from kthena.machinery.metadata import FINALIZER_FOREGROUND, FINALIZER_ORPHAN
from kthena.machinery.objects import Object, is_terminating, name_of
from kthena.machinery.resources import Resource


class Grace(Protocol):
    """How long an object of a kind may take to stop."""

    def __call__(self, obj: Object, requested_s: int | None) -> int:
        """Seconds; 0 for none. `requested_s` is what the client asks for."""
        ...


def check_preconditions(resource: Resource, obj: Object, options: DeleteOptions) -> None:
    """Whether the object is the one that the client means.

    Raises:
        ApiError: 409, it is not.
    """
    meta = ensure_metadata(obj)
    if resource == NAMESPACES:
        _check_namespace_preconditions(meta, options)
        return
    if options.uid is not None and options.uid != meta["uid"]:
        cause = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({meta['uid']}). The object might have been deleted and then recreated"
        )
        raise errors.precondition_conflict(resource, name_of(obj), cause)
    version = meta["resourceVersion"]
    if options.resource_version is not None and options.resource_version != version:
        cause = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match "
            f"the ResourceVersion in record ({version}). The object might have been modified"
        )
        raise errors.precondition_conflict(resource, name_of(obj), cause)


def _check_namespace_preconditions(meta: dict[str, Any], options: DeleteOptions) -> None:
    """Namespaces have a check of their own, with other words."""
    for name, wanted, found in (
        ("UID", options.uid, meta["uid"]),
        ("ResourceVersion", options.resource_version, meta["resourceVersion"]),
    ):
        if wanted is not None and wanted != found:
            cause = (
                f"Precondition failed: {name} in precondition: {wanted}, {name} in object meta: "
                f"{found}"
            )
            raise errors.conflict(NAMESPACES, meta["name"], cause)


def plan_deletion(obj: Object, options: DeleteOptions, grace: Grace | None, now: datetime) -> Step:
    """Decide, and mark the object where it is to be stored. Preconditions hold."""
    graceful_s: int | None = None
    if grace is not None:
        step, graceful_s = _begin_grace(obj, options, grace, now)
        if step is Step.NOTHING:
            return step
    set_policy_finalizers(obj, options)
    pending = bool(ensure_metadata(obj).get("finalizers"))
    if graceful_s is not None:
        return Step.STORE if pending or graceful_s > 0 else Step.STORE_AND_REMOVE
    if pending:
        _mark(obj, now)
        return Step.STORE
    return Step.REMOVE


def plan_ungraceful(obj: Object, options: DeleteOptions, now: datetime) -> Step:
    """The plan for objects that have nothing to stop."""
    return plan_deletion(obj, options, None, now)


def plan_uncollected(obj: Object, options: DeleteOptions, now: datetime) -> Step:
    """The plan for objects that the garbage collector knows nothing of: no policy applies."""
    plain = replace(options, propagation=None, orphan_dependents=None)
    return plan_deletion(obj, plain, None, now)


def _begin_grace(
    obj: Object, options: DeleteOptions, grace: Grace, now: datetime
) -> tuple[Step, int | None]:
    """Set or shorten the grace period; the second value is the period where it was."""
    meta = ensure_metadata(obj)
    requested = options.grace_period_s
    if requested is not None and requested < 0:
        requested = 1
    if not is_terminating(obj):
        seconds = grace(obj, requested)
        meta["deletionTimestamp"] = format_time(now + timedelta(seconds=seconds))
        meta["deletionGracePeriodSeconds"] = seconds
        if meta.get("generation"):
            bump_generation(obj)
        return Step.STORE, seconds
    current = meta.get("deletionGracePeriodSeconds")
    if not current:
        return Step.STORE, None
    if requested is None or requested >= current:
        return Step.NOTHING, None
    moment = parse_time(meta["deletionTimestamp"]) + timedelta(seconds=requested - current)
    if moment < now:
        moment = now
        requested = min(requested, 1)
    meta["deletionTimestamp"] = format_time(moment)
    meta["deletionGracePeriodSeconds"] = requested
    return Step.STORE, requested


def _mark(obj: Object, now: datetime) -> None:
    """Mark an object that only waits for its finalizers."""
    meta = ensure_metadata(obj)
    if not is_terminating(obj) and meta.get("generation"):
        bump_generation(obj)
    if not is_terminating(obj) or parse_time(meta["deletionTimestamp"]) > now:
        meta["deletionTimestamp"] = format_time(now)
    meta["deletionGracePeriodSeconds"] = 0


def set_policy_finalizers(obj: Object, options: DeleteOptions) -> None:
    """Write the propagation policy as a finalizer."""
    meta = ensure_metadata(obj)
    before: list[Any] = list(meta.get("finalizers") or ())
    policy = _policy(before, options)
    after = [name for name in before if name not in (FINALIZER_ORPHAN, FINALIZER_FOREGROUND)]
    if policy == "Orphan":
        after.append(FINALIZER_ORPHAN)
    elif policy == "Foreground":
        after.append(FINALIZER_FOREGROUND)
    if set(before) == set(after):
        return
    if after:
        meta["finalizers"] = after
    else:
        meta.pop("finalizers")


def _policy(finalizers: list[Any], options: DeleteOptions) -> str:
    """What the client says, else what an earlier deletion said, else the background."""
    if options.orphan_dependents is not None:
        return "Orphan" if options.orphan_dependents else "Background"
    if options.propagation is not None:
        return options.propagation
    for name in finalizers:
        if name == FINALIZER_ORPHAN:
            return "Orphan"
        if name == FINALIZER_FOREGROUND:
            return "Foreground"
    return "Background"


def is_finished(new: Object, old: Object) -> bool:
    """Whether an update leaves nothing that holds a terminating object back."""
    if ensure_metadata(new).get("finalizers") or not is_terminating(old):
        return False
    return not ensure_metadata(old).get("deletionGracePeriodSeconds")
