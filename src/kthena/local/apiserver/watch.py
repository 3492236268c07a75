"""Watchers: who is told of which change, as which event.

The hub gets every change of the store and hands it to the watchers of its bucket. An update that
moves an object into a selector is an ADDED event for that watcher, one that moves it out a DELETED
event with the object's last matching state. A watcher keeps a bounded queue; one that does not read
fast enough is closed and has to start again from the last version that it has seen, as with
kube-apiserver, so that nobody waits for it.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from kthena.local.apiserver.options import ListOptions
from kthena.local.apiserver.store import Change, ChangeType, Entry
from kthena.machinery.objects import Object
from kthena.machinery.selectors import FieldSelector, LabelSelector

DEFAULT_QUEUE_LENGTH: Final = 4096
MAX_QUEUE_BYTES: Final = 32 * 1024 * 1024
"""How much of objects may wait for a watcher, however few events it is."""


class WatchEvent(NamedTuple):
    """An event of one watcher; the type is that of the wire.

    `lost_at` is the revision at which the object left the selection, 0 where it did not: the event
    shows the state before, at that revision.
    """

    type: str
    entry: Entry
    lost_at: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries of a bucket a client wants to see."""

    namespace: str
    labels: LabelSelector
    fields: FieldSelector

    @classmethod
    def of(cls, namespace: str, options: ListOptions) -> "Selection":
        """The selection of a request."""
        return cls(namespace, options.labels, options.fields)

    @property
    def everything(self) -> bool:
        """Whether no selector narrows the namespace."""
        return self.labels.empty and self.fields.empty

    def matches(self, entry: Entry) -> bool:
        """Whether the entry is wanted; its namespace is not looked at."""
        return self.labels.matches(entry.labels) and self.fields.matches(entry.field)

    def event(self, change: Change) -> WatchEvent | None:
        """What the change is for this client, or None where it is nothing."""
        if self.namespace and change.entry.key.namespace != self.namespace:
            return None
        if self.everything:
            return WatchEvent(change.type.value, change.entry)
        is_wanted = change.type is not ChangeType.DELETED and self.matches(change.entry)
        was_wanted = change.previous is not None and self.matches(change.previous)
        if change.type is ChangeType.DELETED:
            return WatchEvent("DELETED", change.entry) if was_wanted else None
        if is_wanted:
            return WatchEvent("MODIFIED" if was_wanted else "ADDED", change.entry)
        if was_wanted and change.previous is not None:
            return WatchEvent("DELETED", change.previous, change.revision)
        return None


class Watcher:
    """The queue of one client.

    Mutable state: pending events and their size, whether more can come, and the future that its
    reader waits on.
    """

    def __init__(self, selection: Selection, after: int, limit: int) -> None:
        self._selection = selection
        self._after = after
        self._limit = limit
        self._pending: deque[WatchEvent] = deque()
        self._pending_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self.closed = False

    def offer(self, change: Change) -> None:
        """Queue the event that the change is, if any; a full queue closes the watcher."""
        if self.closed or change.revision <= self._after:
            return
        event = self._selection.event(change)
        if event is None:
            return
        if len(self._pending) >= self._limit or self._pending_bytes > MAX_QUEUE_BYTES:
            self._take()
            self.close()
            return
        self._pending.append(event)
        self._pending_bytes += len(event.entry.data)
        self._wake()

    @property
    def pending(self) -> bool:
        """Whether events wait to be read."""
        return bool(self._pending)

    def close(self) -> None:
        """End the stream after what is pending."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, timeout_s: float) -> list[WatchEvent]:
        """All pending events; empty after `timeout_s` without one, or at the end of the stream."""
        if not self._pending and not self.closed:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(timeout_s, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        return self._take()

    def _take(self) -> list[WatchEvent]:
        events = list(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        return events


class WatchHub:
    """Hands changes to watchers. Mutable state: the watchers by bucket."""

    def __init__(self, queue_length: int = DEFAULT_QUEUE_LENGTH) -> None:
        self._queue_length = queue_length
        self._watchers: dict[str, set[Watcher]] = defaultdict(set)

    def publish(self, change: Change, obj: Object) -> None:
        """Observe the store."""
        del obj
        for watcher in tuple(self._watchers.get(change.bucket, ())):
            watcher.offer(change)
            if watcher.closed:
                self.remove(change.bucket, watcher)

    def add(self, bucket: str, selection: Selection, after: int) -> Watcher:
        """A new watcher of the changes after a revision, from here on."""
        watcher = Watcher(selection, after, self._queue_length)
        self._watchers[bucket].add(watcher)
        return watcher

    def remove(self, bucket: str, watcher: Watcher) -> None:
        """Forget a watcher; one that is not known is no error."""
        self._watchers[bucket].discard(watcher)

    def close_bucket(self, bucket: str) -> None:
        """End the watches of a resource that is no longer served."""
        for watcher in self._watchers.pop(bucket, ()):
            watcher.close()

    def close(self) -> None:
        """End all watches."""
        for bucket in tuple(self._watchers):
            self.close_bucket(bucket)

    def __len__(self) -> int:
        """How many watchers there are."""
        return sum(map(len, self._watchers.values()))


def selected(changes: Iterable[Change], selection: Selection) -> Iterator[WatchEvent]:
    """The events that earlier changes are for a client."""
    for change in changes:
        event = selection.event(change)
        if event is not None:
            yield event
