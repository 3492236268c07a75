"""What the controller has written and not seen yet: no plan is made from caches that lack it.

Creations and deletions are `kube.expectations`. Patches are awaited by resource version: the cache
must show the version that the patch made, or a later one.
"""

from dataclasses import dataclass
from typing import Final

from kthena.kube.clock import Clock
from kthena.kube.expectations import Expectations
from kthena.kube.informer import Change, ChangeType
from kthena.machinery.objects import NamespacedName, Object, key_of, metadata_of
from kthena.machinery.resources import Resource

TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Awaited:
    version: str
    since: float


class OwnWrites:
    """The writes of each ModelServing that are awaited.

    Mutable state: the expectations, and for each key the patched objects with their versions.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expectations: Expectations[NamespacedName] = Expectations(clock, TIMEOUT_S)
        self._versions: dict[NamespacedName, dict[tuple[Resource, NamespacedName], _Awaited]] = {}

    def expect_creation(
        self, key: NamespacedName, resource: Resource, name: NamespacedName
    ) -> None:
        """Call before an object is created."""
        self._expectations.expect_creation(key, resource, name)

    def creation_failed(
        self, key: NamespacedName, resource: Resource, name: NamespacedName
    ) -> None:
        """Call when it was not."""
        self._expectations.creation_failed(key, resource, name)

    def expect_deletion(self, key: NamespacedName, uid: str) -> None:
        """Call before an object is deleted."""
        self._expectations.expect_deletion(key, uid)

    def deletion_failed(self, key: NamespacedName, uid: str) -> None:
        """Call when it was not, or was gone already."""
        self._expectations.deletion_failed(key, uid)

    def expect_version(self, key: NamespacedName, resource: Resource, written: Object) -> None:
        """Call with what a patch returned."""
        awaited = _Awaited(_version(written), self._clock.monotonic())
        self._versions.setdefault(key, {})[resource, key_of(written)] = awaited

    def observe(self, key: NamespacedName, resource: Resource, change: Change) -> None:
        """Call with every change to an object of this key, before the key is queued."""
        self._expectations.observe(key, resource, change)
        versions = self._versions.get(key)
        awaited = versions.get((resource, change.key)) if versions else None
        if versions is None or awaited is None:
            return
        gone = change.type is ChangeType.DELETED
        if gone or _is_reached(awaited.version, _version(change.object)):
            del versions[resource, change.key]
            if not versions:
                del self._versions[key]

    def see(self, key: NamespacedName, resource: Resource, cached: Object) -> None:
        """Call with what a cache holds: the change may have come before the reply to the patch."""
        self.observe(key, resource, Change(ChangeType.MODIFIED, cached, cached))

    def awaited(self, key: NamespacedName) -> list[tuple[Resource, NamespacedName]]:
        """The patched objects that are awaited."""
        return list(self._versions.get(key, ()))

    def wait_s(self, key: NamespacedName) -> float:
        """Seconds until the key may be planned for at the latest; 0 when all writes are seen."""
        wait = self._expectations.wait_s(key)
        now = self._clock.monotonic()
        versions = self._versions.get(key, {})
        for name, awaited in list(versions.items()):
            left = awaited.since + TIMEOUT_S - now
            if left <= 0:
                del versions[name]
            wait = max(wait, left)
        if not versions:
            self._versions.pop(key, None)
        return wait

    def forget(self, key: NamespacedName) -> None:
        """The ModelServing is gone."""
        self._expectations.forget(key)
        self._versions.pop(key, None)


def _version(obj: Object) -> str:
    return str(metadata_of(obj).get("resourceVersion") or "")


def _is_reached(awaited: str, seen: str) -> bool:
    """Whether a version is the awaited one or a later one; versions are numbers that grow."""
    if awaited.isdecimal() and seen.isdecimal():
        return int(seen) >= int(awaited)
    return awaited == seen
