"""Events do not stay: they are removed an hour after they were last written, as in a cluster."""

from datetime import datetime, timedelta
from typing import Final

from kthena.api.kubernetes import EVENTS
from kthena.local.apiserver.background import Background
from kthena.local.apiserver.registry import Registry
from kthena.local.apiserver.store import Change, ChangeType
from kthena.machinery.conditions import format_time
from kthena.machinery.objects import Object

BUCKET: Final = str(EVENTS)
LIFETIME: Final = timedelta(hours=1)
INTERVAL: Final = timedelta(minutes=1)


class EventExpiry:
    """Looks for old events when a new one comes, once in `INTERVAL`.

    Mutable state: when it looks next.
    """

    def __init__(self, registry: Registry, background: Background) -> None:
        self._registry = registry
        self._background = background
        self._next = registry.now()

    def observe(self, change: Change, obj: Object) -> None:
        """Observe the store."""
        del obj
        if change.bucket == BUCKET and change.type is ChangeType.ADDED:
            now = self._registry.now()
            if now >= self._next:
                self._next = now + INTERVAL
                self._background.add(self.expire, now)

    def expire(self, now: datetime) -> None:
        """Remove what is too old at `now`."""
        oldest = format_time(now - LIFETIME)
        store = self._registry.store
        for entry in store.list(BUCKET):
            if _last_written(entry.decode()) < oldest:
                store.delete(BUCKET, entry)


def _last_written(event: Object) -> str:
    """The latest time in an event; the texts sort as the times do."""
    series = event.get("series") or {}
    times = (
        event["metadata"]["creationTimestamp"],
        event.get("lastTimestamp"),
        event.get("eventTime"),
        series.get("lastObservedTime"),
    )
    return max(str(time) for time in times if time)
