"""An informer keeps a `Store` equal to the server's list of one resource, and tells of changes.

It lists in pages, then watches with bookmarks from the list's resource version. A watch that the
server ends at its time limit goes on from the last version seen; any other end (an error, a 410, a
cut, silence) leads to a new list, after a jittered back-off. So a deletion that no watch delivered
is delivered by the next list, and no expired version is tried twice.

The resource may be absent (its CRD is not installed) or forbidden: it is then tried again every few
seconds. What the store held stays, since a failed read says nothing about the objects.

The behaviour is that of client-go's reflector, with two differences: silence counts as a failure
(client-go relies on TCP), and objects that were replaced under the same name (another UID) are
reported as a deletion and an addition.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TypeAlias

from kthena.kube.backoff import Backoff, BackoffConfig, Draw
from kthena.kube.client import KubeClient, WatchEvent, WatchParams
from kthena.kube.clock import Clock, SystemClock, before
from kthena.kube.errors import ApiError, ConnectionFailed, Forbidden, Gone, NotFound
from kthena.kube.metrics import KubeMetrics
from kthena.kube.store import Store
from kthena.machinery.objects import (
    NamespacedName,
    Object,
    key_of,
    metadata_of,
    resource_version_of,
    uid_of,
)
from kthena.machinery.resources import Resource
from kthena.telemetry.logging import get_logger

log = get_logger("kube.informer")

SHORT_WATCH_S = 1.0
"""A watch that ends sooner has failed, and one that stands longer has succeeded."""

MAX_RETRY_AFTER_S = 30.0
"""A longer `Retry-After` of the server is not obeyed."""

_CHANGES_PER_TURN = 200
"""How many changes of a list are handed out before other tasks get their turn."""


class ChangeType(StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change:
    """A change that the store has made already. `old` is None for ADDED, `new` for DELETED.

    A DELETED one carries the last state that is known, which need not be the final one.
    """

    type: ChangeType
    old: Object | None
    new: Object | None

    @property
    def object(self) -> Object:
        """The new object, or the old one of a deletion."""
        obj = self.new if self.new is not None else self.old
        assert obj is not None  # noqa: S101 - every change has at least one
        return obj

    @property
    def key(self) -> NamespacedName:
        """Namespace and name of the object."""
        return key_of(self.object)


Handler: TypeAlias = Callable[[Change], None]


class InformerState(Enum):
    """How far the store can be relied on."""

    STARTING = "Starting"
    """Nothing was listed yet."""
    ABSENT = "Absent"
    """The server does not have the resource: its CRD is not installed."""
    FORBIDDEN = "Forbidden"
    """The client may not list or watch it."""
    FAILING = "Failing"
    """List or watch fail; the store is as it was at the last success."""
    SYNCED = "Synced"
    """The store follows the server."""


_STATES = [state.value for state in InformerState]


@dataclass(frozen=True, slots=True)
class InformerConfig:
    """What to watch, and how patiently.

    `transform` is applied to each object before it is stored and must keep its metadata's name,
    namespace, uid and resourceVersion. `silence_timeout_s` is how long a watch may bring neither
    event nor bookmark; an API server sends a bookmark every minute. `watch_timeout_s` is asked of
    the server, up to doubled by chance. `poll_s` is the longest time between two attempts to list
    an absent or forbidden resource.
    """

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    page_size: int = 500
    transform: Callable[[Object], Object] | None = None
    silence_timeout_s: float = 90.0
    watch_timeout_s: float = 300.0
    poll_s: float = 3.0
    backoff: BackoffConfig = field(default_factory=BackoffConfig)


class Informer:
    """Keeps `store` equal to what the server has of `resource`; `run` does the work.

    Handlers are called synchronously, after the store has changed, in the order of the changes of
    each object; they only enqueue keys. One that raises is logged and does not stop the others.

    Mutable state: the store, with the changes of a list that are not handed out yet; the version
    from which a watch can go on (empty: list first); the state with its reason; and what is known
    of the watch: whether it is open, when it was last heard, and whether the last one failed.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        config: InformerConfig | None = None,
        clock: Clock | None = None,
        *,
        draw: Draw = random.random,
        metrics: KubeMetrics | None = None,
    ) -> None:
        self.resource = resource
        namespace = config.namespace if config is not None else ""
        self.name = f"{namespace}/{resource}" if namespace else str(resource)
        self.store = Store()
        self.synced = asyncio.Event()
        """Set while the store has been listed and the resource is neither absent nor forbidden."""
        self.current = asyncio.Event()
        """Set while nothing has failed since the last list: the store is what the server said last."""
        self._client = client
        self._config = config or InformerConfig()
        self._clock = clock or SystemClock()
        self._draw = draw
        self._metrics = metrics
        self._backoff = Backoff(self._config.backoff, draw)
        self._handlers: list[Handler] = []
        self._state_handlers: list[Callable[[], None]] = []
        self._undelivered: list[Change] = []
        self._state = InformerState.STARTING
        self._reason = "not listed yet"
        self._version = ""
        self._heard = 0.0
        self._open = False
        self._watch_failed = False

    @property
    def state(self) -> InformerState:
        """How far the store can be relied on."""
        return self._state

    @property
    def reason(self) -> str:
        """Why the state is not SYNCED, in one line; empty when it is."""
        return self._reason

    def add_handler(self, handler: Handler) -> None:
        """Call `handler` for each change from now on, and at once for every object that is there."""
        self._handlers.append(handler)
        for obj in list(self.store):
            self._call(handler, Change(ChangeType.ADDED, None, obj))

    def add_state_handler(self, handler: Callable[[], None]) -> None:
        """Call `handler` whenever the state has changed."""
        self._state_handlers.append(handler)

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            started = self._clock.monotonic()
            try:
                if not self._version:
                    await self._list()
                    started = self._clock.monotonic()
                await self._deliver()
                await self._watch()
                continue
            except ApiError as exc:
                self.current.clear()
                self._watch_failed = bool(self._version)
                self._version = ""
                if self._clock.monotonic() - started > self._config.backoff.cap_s:
                    self._backoff.reset()
                delay = self._account_for(exc)
            await self._clock.sleep(delay)

    def reset(self) -> None:
        """Forget everything, as before the first `run`: whatever the store held is gone.

        For a resource that has been removed from the server. To be called while `run` does not run.
        """
        self._undelivered.clear()
        self._version, self._watch_failed = "", False
        self.synced.clear()
        self.current.clear()
        gone = [self.store.remove(key_of(obj)) for obj in list(self.store)]
        self._dispatch(Change(ChangeType.DELETED, old, None) for old in gone)
        self._enter(InformerState.STARTING, "not listed yet")

    def _account_for(self, exc: ApiError) -> float:
        """Enter the state that the error means; the seconds until the next attempt."""
        match exc:
            case NotFound():
                reason = f"{self.resource} is not known to the server: its CRD is not installed"
                self._enter(InformerState.ABSENT, reason)
                return self._poll_delay()
            case Forbidden():
                self._enter(InformerState.FORBIDDEN, exc.message)
                return self._poll_delay()
            case Gone() if self._state is InformerState.SYNCED:
                log.debug("resource version expired", informer=self.name)
            case _:
                self._enter(InformerState.FAILING, str(exc))
        return max(self._backoff.next(), min(exc.retry_after_s or 0.0, MAX_RETRY_AFTER_S))

    def _poll_delay(self) -> float:
        return self._config.poll_s * (0.7 + 0.3 * self._draw())

    async def _list(self) -> None:
        """Make the store equal to the server's list."""
        listed: dict[NamespacedName, Object] = {}
        limit, token = self._config.page_size, ""
        while True:
            try:
                page = await self._client.list_page(
                    self.resource,
                    self._config.namespace,
                    label_selector=self._config.label_selector,
                    field_selector=self._config.field_selector,
                    limit=limit,
                    continue_token=token,
                )
            except Gone:
                if not token:
                    raise
                # The pages took longer than the server keeps versions: take all in one.
                listed.clear()
                limit, token = 0, ""
                continue
            for obj in page.items:
                listed[key_of(obj)] = self._transformed(obj)
            token = page.continue_token
            if not token:
                break
        await self._replace(listed)
        self._version = page.resource_version
        if self._metrics is not None:
            self._metrics.listed(self.name)

    async def _deliver(self) -> None:
        """Hand out the changes of a list, in turns with other tasks; then the list counts."""
        while self._undelivered:
            batch = self._undelivered[:_CHANGES_PER_TURN]
            del self._undelivered[:_CHANGES_PER_TURN]
            self._dispatch(batch)
            await asyncio.sleep(0)
        self.current.set()
        if not self._watch_failed:
            self._enter(InformerState.SYNCED, "")

    async def _replace(self, listed: dict[NamespacedName, Object]) -> None:
        """Change the store to what was listed.

        It happens at once for whoever reads the store, except before the first list counts: then
        nobody does, and other tasks get their turn in between.
        """
        for key in [key_of(obj) for obj in self.store]:
            if key not in listed:
                gone = self.store.remove(key)
                self._undelivered.append(Change(ChangeType.DELETED, gone, None))
        for index, obj in enumerate(listed.values(), start=1):
            self._undelivered += self._put(obj)
            if index % _CHANGES_PER_TURN == 0 and not self.synced.is_set():
                await asyncio.sleep(0)

    def _put(self, obj: Object) -> Iterator[Change]:
        old = self.store.get(key_of(obj))
        if old is not None and resource_version_of(old) == resource_version_of(obj):
            return
        self.store.put(obj)
        if old is not None and uid_of(old) != uid_of(obj):
            yield Change(ChangeType.DELETED, old, None)
            old = None
        kind = ChangeType.ADDED if old is None else ChangeType.MODIFIED
        yield Change(kind, old, obj)

    async def _watch(self) -> None:
        """Follow the server until it ends the watch in good order."""
        started = self._heard = self._clock.monotonic()
        self._open = False
        try:
            await before(self._follow(), self._silence())
        except TimeoutError:
            silent = f"the watch brought nothing for {self._config.silence_timeout_s:g} s"
            raise ConnectionFailed(silent, request=f"watch {self.name}") from None
        if self._clock.monotonic() - started < SHORT_WATCH_S:
            short = "the server ended the watch at once"
            raise ConnectionFailed(short, request=f"watch {self.name}")

    async def _follow(self) -> None:
        params = WatchParams(
            resource_version=self._version,
            label_selector=self._config.label_selector,
            field_selector=self._config.field_selector,
            timeout_s=int(self._config.watch_timeout_s * (1 + self._draw())),
        )
        watch = await self._client.open_watch(self.resource, self._config.namespace, params)
        self._open = True
        async with aclosing(watch):
            async for event in watch:
                self._heard = self._clock.monotonic()
                self._stands()
                self._dispatch(self._changes_of(event))
                self._version = resource_version_of(event.object) or self._version

    async def _silence(self) -> None:
        """Return when the watch has been silent for too long."""
        await self._clock.sleep(SHORT_WATCH_S)
        if self._open:
            self._stands()
        while True:
            quiet = self._clock.monotonic() - self._heard
            if quiet >= self._config.silence_timeout_s:
                return
            await self._clock.sleep(self._config.silence_timeout_s - quiet)

    def _stands(self) -> None:
        """The watch works: what an earlier one suffered is over."""
        if self._watch_failed:
            self._watch_failed = False
            self._enter(InformerState.SYNCED, "")

    def _changes_of(self, event: WatchEvent) -> Iterable[Change]:
        if event.type == "BOOKMARK":
            return ()
        if event.type != "DELETED":
            return list(self._put(self._transformed(event.object)))
        if self.store.remove(key_of(event.object)) is None:
            return ()
        return (Change(ChangeType.DELETED, self._transformed(event.object), None),)

    def _transformed(self, obj: Object) -> Object:
        return obj if self._config.transform is None else self._config.transform(obj)

    def _dispatch(self, changes: Iterable[Change]) -> None:
        for change in changes:
            for handler in self._handlers:
                self._call(handler, change)

    def _call(self, handler: Handler, change: Change) -> None:
        try:
            handler(change)
        except Exception:
            log.exception("handler of a change failed", informer=self.name, object=str(change.key))

    def _enter(self, state: InformerState, reason: str) -> None:
        """Change the state; a change is logged, a repetition is not."""
        changed = state is not self._state
        self._state, self._reason = state, reason
        if state is InformerState.SYNCED:
            self.synced.set()
        elif state in (InformerState.ABSENT, InformerState.FORBIDDEN):
            self.synced.clear()
        if not changed:
            return
        if self._metrics is not None:
            self._metrics.informer_state(self.name, state.value, _STATES)
        fields = {"informer": self.name, "objects": len(self.store)}
        if state is InformerState.SYNCED:
            log.info("informer synced", **fields)
        else:
            log.warning("informer not synced", state=state.value, reason=reason, **fields)
        for handler in self._state_handlers:
            handler()


def drop_managed_fields(obj: Object) -> Object:
    """A transform: the object without `metadata.managedFields`, often half of its size."""
    metadata = metadata_of(obj)
    if "managedFields" not in metadata:
        return obj
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**obj, "metadata": kept}
