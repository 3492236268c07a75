"""Watchers: who is told of which change, as which event.

The hub gets every change of the store and hands it to the watchers of its bucket. An update that
moves an object into a selector is an ADDED event for that watcher, one that moves it out a DELETED
event with the object's last matching state. A watcher keeps a bounded queue; one that does not read
fast enough is closed and has to start again from the last version that it has seen, as with
kube-apiserver, so that nobody waits for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kthena.local.apiserver.options import ListOptions
from kthena.local.apiserver.store import Change, ChangeType, Entry
from kthena.machinery.objects import Object
from kthena.machinery.selectors import FieldSelector, LabelSelector

DEFAULT_QUEUE_LENGTH: Final = 4096
MAX_QUEUE_BYTES: Final = 32 * 1024 * 1024
"""How much of objects may wait for a watcher, however few events it is."""


@dataclass(slots=True, eq=False)
class WatchEvent:
    """An event of all watchers of one selection; the type is that of the wire.

    `lost_at` is the revision at which the object left the selection, 0 where it did not: the event
    shows the state before, at that revision. Mutable: the last encoding is kept, since watchers
    mostly want the same one.
    """

    type: str
    entry: Entry
    lost_at: int = 0
    _frame_of: object = None
    _frame: bytes = b""

    def frame(self, form: object, encode: Callable[["WatchEvent"], bytes]) -> bytes:
        """The event in a form, as `encode` makes it."""
        if self._frame_of is not form:
            self._frame = encode(self)
            self._frame_of = form
        return self._frame


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

    def __init__(self, after: int, limit: int) -> None:
        self._after = after
        self._limit = limit
        self._pending: deque[WatchEvent] = deque()
        self._pending_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self.closed = False

    def offer(self, event: WatchEvent, revision: int) -> None:
        """Queue the event of a revision; a full queue closes the watcher."""
        if self.closed or revision <= self._after:
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
    """Hands changes to watchers. Mutable state: the watchers by bucket and selection."""

    def __init__(self, queue_length: int = DEFAULT_QUEUE_LENGTH) -> None:
        self._queue_length = queue_length
        self._watchers: dict[str, dict[Selection, set[Watcher]]] = {}

    def publish(self, change: Change, obj: Object) -> None:
        """Observe the store."""
        del obj
        slow = []
        for selection, watchers in self._watchers.get(change.bucket, {}).items():
            event = selection.event(change)
            if event is None:
                continue
            for watcher in watchers:
                watcher.offer(event, change.revision)
                if watcher.closed:
                    slow.append((selection, watcher))
        for selection, watcher in slow:
            self.remove(change.bucket, selection, watcher)

    def add(self, bucket: str, selection: Selection, after: int) -> Watcher:
        """A new watcher of the changes after a revision, from here on."""
        watcher = Watcher(after, self._queue_length)
        self._watchers.setdefault(bucket, {}).setdefault(selection, set()).add(watcher)
        return watcher

    def remove(self, bucket: str, selection: Selection, watcher: Watcher) -> None:
        """Forget a watcher; one that is not known is no error."""
        selections = self._watchers.get(bucket, {})
        watchers = selections.get(selection, set())
        watchers.discard(watcher)
        if selection in selections and not watchers:
            del selections[selection]

    def close_bucket(self, bucket: str, after_s: float = 0) -> None:
        """End the watches of a resource that is no longer served, or is served in another way.

        With `after_s` those that are there now end so much later.
        """
        watchers = [each for group in self._watchers.get(bucket, {}).values() for each in group]
        if not watchers:
            return
        if after_s:
            loop = asyncio.get_running_loop()
            loop.call_later(after_s, _close_all, watchers)
        else:
            del self._watchers[bucket]
            _close_all(watchers)

    def close(self) -> None:
        """End all watches."""
        for bucket in tuple(self._watchers):
            self.close_bucket(bucket)

    def __len__(self) -> int:
        """How many watchers there are."""
        return sum(len(group) for each in self._watchers.values() for group in each.values())


def _close_all(watchers: Iterable[Watcher]) -> None:
    for watcher in watchers:
        watcher.close()


def selected(changes: Iterable[Change], selection: Selection) -> Iterator[WatchEvent]:
    """The events that earlier changes are for a client."""
    for change in changes:
        event = selection.event(change)
        if event is not None:
            yield event
