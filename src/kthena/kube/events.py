"""Events of core/v1: what happened to an object, for people who look at it.

`record` only puts an event into a bounded queue and never fails; one task writes. Identical events
are one object with a count, as client-go's recorder makes them, and a source may write 25 events
about an object at once and then one every 5 minutes. Events are a courtesy: what cannot be written
after a few attempts is dropped, counted and logged once for each cause.
"""

import asyncio
import contextlib
import random
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from kthena.api.kubernetes import EVENTS
from kthena.kube.backoff import Backoff, BackoffConfig, Draw
from kthena.kube.client import KubeClient, PatchType
from kthena.kube.clock import Clock, SystemClock, wait_for
from kthena.kube.errors import (
    AlreadyExists,
    ApiError,
    ConnectionFailed,
    NotFound,
    ServerTimeout,
    ServiceUnavailable,
    TooManyRequests,
)
from kthena.kube.metrics import KubeMetrics
from kthena.kube.ratelimit import TokenBucket
from kthena.machinery.objects import (
    Object,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from kthena.telemetry.logging import get_logger

log = get_logger("kube.events")

EventKind = Literal["Normal", "Warning"]

MAX_MESSAGE = 1024
MAX_NAME = 253
QUEUE_CAPACITY = 1000
CACHE_CAPACITY = 4096
SPAM_BURST = 25
SPAM_RATE = 1 / 300
ATTEMPTS = 5

_PASSING = (ConnectionFailed, ServerTimeout, ServiceUnavailable, TooManyRequests)

K = TypeVar("K")
V = TypeVar("V")


class _Subject(NamedTuple):
    """The object that an event is about, and which kind of event."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    type: EventKind


class _Key(NamedTuple):
    """Events with equal keys are one object with a count."""

    subject: _Subject
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Occurrences:
    """How often an event has happened that is not written yet."""

    count: int
    first: datetime
    last: datetime
    resource_version: str


@dataclass(frozen=True, slots=True)
class _Written:
    """The event object that exists, and its count."""

    name: str
    count: int


class EventRecorder:
    """Writes events whose source is `source`, on the node `host` if given; `run` does the writing.

    Mutable state: the events to write, in order; those written, and the token bucket of each
    subject (both bounded, the least recently used going first); the causes of drops already logged.
    """

    def __init__(
        self,
        client: KubeClient,
        source: str,
        clock: Clock | None = None,
        *,
        host: str = "",
        draw: Draw = random.random,
        metrics: KubeMetrics | None = None,
    ) -> None:
        self._client = client
        self._source = source
        self._host = host
        self._clock = clock or SystemClock()
        self._metrics = metrics
        self._backoff = Backoff(BackoffConfig(), draw)
        self._queue: OrderedDict[_Key, _Occurrences] = OrderedDict()
        self._written: _Cache[_Key, _Written] = _Cache(CACHE_CAPACITY)
        self._buckets: _Cache[_Subject, TokenBucket] = _Cache(CACHE_CAPACITY)
        self._last_stamp = 0
        self._logged: set[str] = set()
        self._wanted = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def record(self, obj: Object, kind: EventKind, reason: str, message: str) -> None:
        """Note that something happened to `obj`. Returns at once and never raises.

        `reason` is one word in CamelCase; the message is cut to 1024 characters.
        """
        subject = _Subject(
            str(obj.get("apiVersion") or ""),
            str(obj.get("kind") or ""),
            namespace_of(obj),
            name_of(obj),
            uid_of(obj),
            kind,
        )
        bucket = self._buckets.get(subject) or TokenBucket(SPAM_RATE, SPAM_BURST)
        self._buckets.put(subject, bucket)
        if not bucket.try_take(self._clock.monotonic()):
            self._drop("spam", reason)
            return
        key = _Key(subject, reason, message[:MAX_MESSAGE])
        now = self._clock.now()
        waiting = self._queue.get(key)
        if waiting is not None:
            self._queue[key] = replace(waiting, count=waiting.count + 1, last=now)
            return
        if len(self._queue) >= QUEUE_CAPACITY:
            self._drop("queue_full", reason)
            return
        self._queue[key] = _Occurrences(1, now, now, resource_version_of(obj))
        self._empty.clear()
        self._wanted.set()

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._queue:
                key, occurrences = self._queue.popitem(last=False)
                await self._write_patiently(key, occurrences)
            self._empty.set()

    async def flush(self, timeout_s: float) -> None:
        """Return when all recorded events are written or dropped, or the time has passed."""
        try:
            await wait_for(self._clock, self._empty.wait(), timeout_s)
        except TimeoutError:
            log.warning("events were not written in time", waiting=len(self._queue))

    async def _write_patiently(self, key: _Key, occurrences: _Occurrences) -> None:
        name = self._event_name(key.subject.name)
        self._backoff.reset()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._write(key, occurrences, name)
            except _PASSING as exc:
                if attempt == ATTEMPTS:
                    self._drop(exc.reason or type(exc).__name__, key.reason, str(exc))
                    return
                await self._clock.sleep(max(self._backoff.next(), exc.retry_after_s or 0.0))
            except ApiError as exc:
                self._drop(exc.reason or type(exc).__name__, key.reason, str(exc))
                return
            else:
                return

    async def _write(self, key: _Key, occurrences: _Occurrences, name: str) -> None:
        namespace = key.subject.namespace or "default"
        written = self._written.get(key)
        if written is not None:
            count = written.count + occurrences.count
            body = {"count": count, "lastTimestamp": _seconds(occurrences.last)}
            try:
                await self._client.patch(EVENTS, written.name, namespace, body, PatchType.MERGE)
            except NotFound:
                pass  # it has expired: begin a new one
            else:
                self._written.put(key, _Written(written.name, count))
                return
        event = self._event(key, occurrences, name, namespace)
        with contextlib.suppress(AlreadyExists):  # an attempt whose reply was lost has written it
            await self._client.create(EVENTS, event)
        self._written.put(key, _Written(name, occurrences.count))

    def _event(
        self, key: _Key, occurrences: _Occurrences, name: str, namespace: str
    ) -> dict[str, Any]:
        subject = key.subject
        involved = {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
            "resourceVersion": occurrences.resource_version,
        }
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {field: value for field, value in involved.items() if value},
            "type": subject.type,
            "reason": key.reason,
            "message": key.message,
            "count": occurrences.count,
            "firstTimestamp": _seconds(occurrences.first),
            "lastTimestamp": _seconds(occurrences.last),
            "source": {"component": self._source, **({"host": self._host} if self._host else {})},
            "reportingComponent": self._source,
            "reportingInstance": self._host,
        }

    def _event_name(self, subject: str) -> str:
        """`<name>.<time in hex>`, as client-go names events; the time is made unique."""
        stamp = int(self._clock.now().timestamp() * 1_000_000) * 1000
        self._last_stamp = max(stamp, self._last_stamp + 1)
        suffix = f".{self._last_stamp:x}"
        return subject[: MAX_NAME - len(suffix)].rstrip(".-") + suffix

    def _drop(self, cause: str, reason: str, error: str = "") -> None:
        if self._metrics is not None:
            self._metrics.event_dropped(cause)
        if cause not in self._logged:
            self._logged.add(cause)
            log.warning("event dropped", cause=cause, reason=reason, error=error)


class _Cache(Generic[K, V]):
    """A bounded map that loses the least recently used entry."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)


def _seconds(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
