"""A queue of keys for workers, with the guarantees of client-go's workqueue.

A key that is added several times before a worker takes it is handed out once. A key is never with
two workers: added while it is being processed, it is handed out again after `done`. `retry` adds a
key after a delay that doubles with each failure until `forget`. Of several delayed adds of a key
the earliest counts, and an immediate one takes their place, since a reconciliation that starts
later sees all that they were for.
"""

import asyncio
import contextlib
import heapq
import itertools
import math
from collections import deque
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from kthena.kube.clock import Clock, SystemClock

K = TypeVar("K", bound=Hashable)

BASE_DELAY_S = 0.005
MAX_DELAY_S = 60.0

_NEVER = (math.inf, 0)


class QueueShutDown(Exception):  # noqa: N818 - a signal to workers, as asyncio.QueueShutDown
    """The queue hands out nothing more."""


class QueueMetrics(Protocol):
    """What a queue reports; `kthena.kube.metrics.ControllerMetrics` is one."""

    def added(self) -> None:
        """A key was added that did not wait already."""
        ...

    def retried(self) -> None:
        """A key was added by `retry`."""
        ...

    def waited(self, seconds: float) -> None:
        """A worker got a key that had waited so long."""
        ...

    def depth(self, keys: int) -> None:
        """So many keys wait for a worker."""
        ...


class WorkQueue(Generic[K]):
    """Keys in the order of their first add.

    Mutable state: the waiting keys in order, with the time at which each was added; the keys being
    processed, and those of them to hand out again; the delayed keys with their times, twice (a map
    that counts and a heap that may hold outdated entries); failures by key; waiting workers.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        max_delay_s: float = MAX_DELAY_S,
        metrics: QueueMetrics | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._max_delay_s = max_delay_s
        self._metrics = metrics
        self._waiting: dict[K, float] = {}
        self._processing: set[K] = set()
        self._again: dict[K, float] = {}
        self._due: dict[K, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = itertools.count()
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at = 0.0
        self._failures: dict[K, int] = {}
        self._workers: deque[asyncio.Future[None]] = deque()
        self._shut_down = False
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        """How many keys wait for a worker; delayed ones and those being processed do not count."""
        return len(self._waiting)

    @property
    def delayed(self) -> int:
        """How many keys will be added later."""
        return len(self._due)

    def add(self, key: K) -> None:
        """Hand out the key as soon as a worker is free; nothing happens after shutdown."""
        if self._shut_down:
            return
        self._due.pop(key, None)
        if key in self._waiting or key in self._again:
            return
        if self._metrics is not None:
            self._metrics.added()
        now = self._clock.monotonic()
        if key in self._processing:
            self._again[key] = now
        else:
            self._enqueue(key, now)

    def add_after(self, key: K, delay_s: float) -> None:
        """Add the key after `delay_s` seconds, unless it waits already or comes earlier anyway."""
        if delay_s <= 0:
            self.add(key)
            return
        due = (self._clock.monotonic() + delay_s, next(self._sequence))
        comes_earlier = key in self._waiting or key in self._again
        if self._shut_down or comes_earlier or self._due.get(key, _NEVER) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (*due, key))
        if len(self._heap) > 2 * len(self._due) + 64:
            self._heap = [entry for entry in self._heap if self._counts(entry)]
            heapq.heapify(self._heap)
        self._set_alarm()

    def retry(self, key: K, at_least_s: float = 0.0) -> float:
        """Add the key after its back-off, or `at_least_s` if that is longer; the delay."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # The exponent is bounded: a large one overflows long after the cap is reached.
        delay = min(self._max_delay_s, BASE_DELAY_S * 2.0 ** min(failures, 64))
        delay = max(delay, at_least_s)
        if self._metrics is not None:
            self._metrics.retried()
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """The key succeeded: its next retry starts with the shortest delay again."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How many retries there were since the last `forget`."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key; it is being processed until `done`.

        Raises:
            QueueShutDown: the queue is shut down, and nothing is left to hand out.
        """
        while not self._waiting:
            if self._shut_down:
                raise QueueShutDown
            worker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._workers.append(worker)
            try:
                await worker
            except asyncio.CancelledError:
                with contextlib.suppress(ValueError):  # passed over by a wake-up since
                    self._workers.remove(worker)
                if not worker.cancelled():
                    self._wake()  # this worker was to take a key: another one must
                raise
        key = next(iter(self._waiting))
        added = self._waiting.pop(key)
        self._processing.add(key)
        if self._metrics is not None:
            self._metrics.waited(self._clock.monotonic() - added)
            self._metrics.depth(len(self._waiting))
        return key

    def done(self, key: K) -> None:
        """The worker has finished with the key, whatever came of it.

        Raises:
            ValueError: the key is not being processed.
        """
        if key not in self._processing:
            raise ValueError(f"{key} is not being processed")
        self._processing.remove(key)
        if key in self._again:
            self._enqueue(key, self._again.pop(key))
        elif not self._processing and not self._waiting:
            self._idle.set()

    def shut_down(self, *, drain: bool = False) -> None:
        """Take no more keys and drop the delayed ones; with `drain`, waiting ones are handed out.

        Without `drain` they are dropped, and so are the second turns of keys being processed.
        """
        self._shut_down = True
        self._due.clear()
        self._heap.clear()
        if self._alarm is not None:
            self._alarm.cancel()
        if not drain:
            self._waiting.clear()
            self._again.clear()
            if self._metrics is not None:
                self._metrics.depth(0)
        if not self._processing and not self._waiting:
            self._idle.set()
        for worker in self._workers:
            if not worker.done():
                worker.set_result(None)
        self._workers.clear()

    async def join(self) -> None:
        """Return when no key waits and none is being processed; delayed ones do not count."""
        await self._idle.wait()

    def _enqueue(self, key: K, added: float) -> None:
        self._waiting[key] = added
        self._idle.clear()
        if self._metrics is not None:
            self._metrics.depth(len(self._waiting))
        self._wake()

    def _wake(self) -> None:
        """Let one waiting worker look for a key."""
        while self._workers:
            worker = self._workers.popleft()
            if not worker.done():
                worker.set_result(None)
                return

    def _counts(self, entry: tuple[float, int, K]) -> bool:
        """Whether an entry of the heap is the one that counts for its key."""
        return self._due.get(entry[2]) == entry[:2]

    def _set_alarm(self) -> None:
        """See to it that a task waits for the earliest delayed key."""
        while self._heap and not self._counts(self._heap[0]):
            heapq.heappop(self._heap)
        if not self._heap:
            return
        earliest = self._heap[0][0]
        if self._alarm is not None and not self._alarm.done():
            if self._alarm_at <= earliest:
                return
            self._alarm.cancel()
        self._alarm_at = earliest
        self._alarm = asyncio.get_running_loop().create_task(self._ring(earliest))

    async def _ring(self, at: float) -> None:
        await self._clock.sleep(at - self._clock.monotonic())
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._counts(entry):
                self.add(entry[2])
        self._alarm = None
        self._set_alarm()
