"""Expectations: act on a key only after one's own last writes have come back through the watch.

An informer's store lags behind what its owner has just created or deleted; deciding again before it
has caught up would create the same things twice. The owner notes what it is about to do, the
informer's handler notes what it sees, and until both agree, or a time has passed, the key has to
wait. As client-go's UID-tracking expectations, with names for creations, since children here have
names that are known beforehand, and with versions for objects that were changed.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kthena.kube.clock import Clock, SystemClock
from kthena.kube.informer import Change, ChangeType
from kthena.machinery.objects import (
    NamespacedName,
    Object,
    is_terminating,
    key_of,
    resource_version_of,
    uid_of,
)
from kthena.machinery.resources import Resource
from kthena.telemetry.logging import get_logger

log = get_logger("kube.expectations")

K = TypeVar("K", bound=Hashable)

TIMEOUT_S = 60.0


@dataclass(slots=True)
class _Pending:
    since: float
    creations: set[tuple[Resource, NamespacedName]] = field(default_factory=set)
    deletions: set[str] = field(default_factory=set)
    versions: dict[tuple[Resource, NamespacedName], str] = field(default_factory=dict)


class Expectations(Generic[K]):
    """What the owner of each key has written and not yet seen.

    Mutable state: per key the creations, deletions and versions awaited, and when the last was added.
    """

    def __init__(self, clock: Clock | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._clock = clock or SystemClock()
        self._timeout_s = timeout_s
        self._pending: dict[K, _Pending] = {}

    def expect_creation(self, key: K, resource: Resource, name: NamespacedName) -> None:
        """Call before the create is sent: the watch may be faster than its reply."""
        self._note(key).creations.add((resource, name))

    def expect_deletion(self, key: K, uid: str) -> None:
        """Call before the delete is sent."""
        self._note(key).deletions.add(uid)

    def creation_failed(self, key: K, resource: Resource, name: NamespacedName) -> None:
        """Call when nothing needs to be seen, because the create was refused.

        After a `ConnectionFailed` or `ServerTimeout` nobody knows. Leave it then, the time limit
        helps, unless the same thing always gets the same name: a second create of that is refused.
        """
        self._discard(key, creation=(resource, name))

    def deletion_failed(self, key: K, uid: str) -> None:
        """Call when the delete was refused, or the object was gone already; else as above."""
        self._discard(key, deletion=uid)

    def expect_version(self, key: K, resource: Resource, written: Object) -> None:
        """Call with an object as the server has it: it must be seen so, or as it was later."""
        self._note(key).versions[resource, key_of(written)] = resource_version_of(written)

    def observe(self, key: K, resource: Resource, change: Change) -> None:
        """Call from the handler with the key that owns the changed object.

        An object that has begun to terminate counts as deleted.
        """
        if key not in self._pending:
            return
        if change.type is ChangeType.ADDED:
            self._discard(key, creation=(resource, change.key))
        if change.type is ChangeType.DELETED or is_terminating(change.object):
            self._discard(key, deletion=uid_of(change.object))
        if change.type is ChangeType.DELETED:
            self._discard(key, version=(resource, change.key))
        else:
            self.see(key, resource, change.object)

    def see(self, key: K, resource: Resource, cached: Object) -> None:
        """Call with what a store holds: it may have changed before the write was answered."""
        pending, name = self._pending.get(key), key_of(cached)
        awaited = pending.versions.get((resource, name)) if pending else None
        if awaited is not None and _is_reached(awaited, resource_version_of(cached)):
            self._discard(key, version=(resource, name))

    def awaited(self, key: K) -> list[tuple[Resource, NamespacedName]]:
        """The objects of which a version is awaited."""
        pending = self._pending.get(key)
        return list(pending.versions) if pending else []

    def wait_s(self, key: K) -> float:
        """Seconds until the key may be acted on at the latest; 0 when all is seen or timed out."""
        pending = self._pending.get(key)
        if pending is None:
            return 0.0
        left = pending.since + self._timeout_s - self._clock.monotonic()
        if left > 0:
            return left
        log.warning(
            "own writes were not seen in time",
            key=str(key),
            creations=len(pending.creations),
            deletions=len(pending.deletions),
            versions=len(pending.versions),
        )
        del self._pending[key]
        return 0.0

    def forget(self, key: K) -> None:
        """The key is gone: nothing is expected of it."""
        self._pending.pop(key, None)

    def _note(self, key: K) -> _Pending:
        now = self._clock.monotonic()
        pending = self._pending.setdefault(key, _Pending(now))
        pending.since = now
        return pending

    def _discard(
        self,
        key: K,
        *,
        creation: tuple[Resource, NamespacedName] | None = None,
        deletion: str = "",
        version: tuple[Resource, NamespacedName] | None = None,
    ) -> None:
        pending = self._pending.get(key)
        if pending is None:
            return
        if creation is not None:
            pending.creations.discard(creation)
        if version is not None:
            pending.versions.pop(version, None)
        pending.deletions.discard(deletion)
        if not pending.creations and not pending.deletions and not pending.versions:
            del self._pending[key]


def _is_reached(awaited: str, seen: str) -> bool:
    """Whether a version is the awaited one or a later one; versions are numbers that grow."""
    if awaited.isdecimal() and seen.isdecimal():
        return int(seen) >= int(awaited)
    return awaited == seen
