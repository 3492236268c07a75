"""Controllers: what they promise, and how they are run.

A `Controller` makes the world agree with one object, given its key. A `ControllerRunner` feeds it
keys from a queue through a number of workers. Invariants: a key is never with two workers; an error
in one key is logged, retried with back-off and stops no other; nothing is reconciled before every
informer that the controller reads is synced, and where that is asked for, while one cannot read.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

from kthena.kube.clock import Clock, SystemClock
from kthena.kube.errors import ApiError, Conflict
from kthena.kube.informer import Change, Informer, InformerState
from kthena.kube.metrics import KubeMetrics
from kthena.kube.readiness import ComponentState
from kthena.kube.workqueue import MAX_DELAY_S, QueueShutDown, WorkQueue
from kthena.machinery.objects import NamespacedName, controller_of, namespace_of
from kthena.machinery.resources import Resource
from kthena.telemetry.logging import get_logger

log = get_logger("kube.controller")


@dataclass(frozen=True, slots=True)
class Requeue:
    """Reconcile the key again after so many seconds, unless something happens before."""

    after_s: float


class TerminalError(Exception):
    """A reconciliation failed and a repetition is of no use until something changes."""


class Controller(Protocol):
    """Level-triggered: decides from what can be read now, never from which event came.

    `reconcile` gets the key of an object that may be gone. It returns None when nothing more is
    needed, or a `Requeue` for a time. It raises to be retried with back-off; an `ExceptionGroup`
    joins the errors of siblings, and `TerminalError` is not retried. It may be cancelled at any
    await, and is called again with the same key later.
    """

    @property
    def name(self) -> str:
        """The name in logs, metrics and readiness."""
        ...

    async def reconcile(self, key: NamespacedName) -> Requeue | None:
        """Make the world agree with the object of this key."""
        ...


class ControllerState(Enum):
    """What a controller is doing."""

    WAITING = "Waiting"
    """Its informers have not listed yet."""
    SLEEPING = "Sleeping"
    """A resource that it needs is absent or forbidden."""
    STANDBY = "Standby"
    """Its informers are synced; its workers have not been started (another process leads)."""
    RUNNING = "Running"
    """Its workers take keys."""


_STATES = [state.value for state in ControllerState]

KeysOf: TypeAlias = Callable[[Change], Iterable[NamespacedName]]
"""Which keys a change concerns."""


class ControllerRunner:
    """Runs one controller once each of `informers` is synced, and while they stay so.

    Mutable state: the queue, the worker tasks with those in the middle of a key, and the state as
    last reported.
    """

    def __init__(
        self,
        controller: Controller,
        informers: Sequence[Informer],
        *,
        workers: int = 4,
        max_delay_s: float = MAX_DELAY_S,
        clock: Clock | None = None,
        metrics: KubeMetrics | None = None,
    ) -> None:
        self.name = controller.name
        self.careful = False
        """Whether it also waits while an informer cannot read, until that has listed again.

        For controllers that delete what cannot be had back. To be set before `run`.
        """
        self._controller = controller
        self._informers = tuple(informers)
        self._worker_count = workers
        self._clock = clock or SystemClock()
        self._kube_metrics = metrics
        self._metrics = metrics.controller(self.name) if metrics is not None else None
        self.queue: WorkQueue[NamespacedName] = WorkQueue(
            self._clock, max_delay_s=max_delay_s, metrics=self._metrics
        )
        self._workers: set[asyncio.Task[None]] = set()
        self._busy: set[asyncio.Task[None]] = set()
        self._reported: ControllerState | None = None
        for informer in self._informers:
            informer.add_state_handler(self._report)

    def enqueue_on(self, informer: Informer, keys_of: KeysOf) -> None:
        """Add the keys that each change seen by `informer` concerns."""

        def handle(change: Change) -> None:
            for key in keys_of(change):
                self.queue.add(key)

        informer.add_handler(handle)

    @property
    def state(self) -> ControllerState:
        """What the controller is doing."""
        if any(informer.state in _ASLEEP for informer in self._informers):
            return ControllerState.SLEEPING
        if not self._informers_synced():
            return ControllerState.WAITING
        return ControllerState.RUNNING if self._workers else ControllerState.STANDBY

    def readiness(self) -> ComponentState:
        """The state, with what is wrong with the informers."""
        state = self.state
        problems = [informer.reason for informer in self._informers if informer.reason]
        detail = "; ".join([state.value.lower(), *problems])
        return ComponentState(self.name, state is not ControllerState.WAITING, detail)

    async def run(self) -> None:
        """Work until `stop`. When cancelled, the keys in work go back to the queue.

        It may be run again after a cancellation, not after `stop`.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._worker_count):
                    self._workers.add(group.create_task(self._work()))
                self._report()
        finally:
            self._workers.clear()
            self._busy.clear()
            self._report()

    def stop(self) -> None:
        """Take no more keys; `run` returns when those in work are finished."""
        self.queue.shut_down()
        for worker in self._workers - self._busy:
            worker.cancel()

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this coroutine runs in a task
        while True:
            try:
                key = await self.queue.get()
            except QueueShutDown:
                return
            try:
                for informer in self._informers:
                    await informer.synced.wait()
                    if self.careful:
                        await informer.current.wait()
                self._busy.add(task)
                await self._reconcile(key, task)
            except asyncio.CancelledError:
                self.queue.add(key)
                raise
            finally:
                self._busy.discard(task)
                self.queue.done(key)

    async def _reconcile(self, key: NamespacedName, task: "asyncio.Task[None]") -> None:
        started = self._clock.monotonic()
        try:
            requeue = await self._controller.reconcile(key)
        except asyncio.CancelledError as exc:
            if task.cancelling():
                raise
            # Not this worker was cancelled but something that the controller waited for.
            result = self._failed(key, exc)
        except Exception as exc:  # noqa: BLE001 - the worker loop: one key must not stop others
            result = self._failed(key, exc)
        else:
            self.queue.forget(key)
            result = "success"
            if requeue is not None:
                self.queue.add_after(key, requeue.after_s)
                result = "requeue_after"
        if self._metrics is not None:
            self._metrics.reconciled(result, self._clock.monotonic() - started)

    def _failed(self, key: NamespacedName, exc: BaseException) -> str:
        """Log the error and see to a retry, unless it is of no use; the result for metrics."""
        causes = list(_leaves(exc))
        fields: dict[str, Any] = {
            "controller": self.name,
            "key": str(key),
            "error": "; ".join(str(cause) or type(cause).__name__ for cause in causes),
        }
        if all(isinstance(cause, TerminalError) for cause in causes):
            self.queue.forget(key)
            log.error("reconcile failed, not retried", **fields)
            return "terminal_error"
        asked = [cause.retry_after_s or 0.0 for cause in causes if isinstance(cause, ApiError)]
        fields["retry_in_s"] = round(self.queue.retry(key, max(asked, default=0.0)), 3)
        if all(isinstance(cause, Conflict) for cause in causes):
            log.debug("reconcile met a newer object", **fields)
        elif all(isinstance(cause, ApiError | TerminalError) for cause in causes):
            log.warning("reconcile failed", **fields)
        else:
            log.exception("reconcile failed", **fields)  # noqa: LOG004 - called while handling exc
        return "error"

    def _informers_synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self._informers)

    def _report(self) -> None:
        """Log the state and set the metric, when it has changed."""
        state = self.state
        if state is self._reported:
            return
        self._reported = state
        if self._kube_metrics is not None:
            self._kube_metrics.controller_state(self.name, state.value, _STATES)
        detail = self.readiness().detail
        if state is ControllerState.SLEEPING:
            log.warning("controller sleeps", controller=self.name, detail=detail)
        else:
            log.info("controller state", controller=self.name, detail=detail)


_ASLEEP = (InformerState.ABSENT, InformerState.FORBIDDEN)


def own_key(change: Change) -> Iterable[NamespacedName]:
    """The key of the changed object itself."""
    return (change.key,)


def owner_keys(resource: Resource) -> KeysOf:
    """A function to the key of the changed object's controller, where it is of this kind.

    Of an object that changed hands, both owners are concerned.
    """

    def keys_of(change: Change) -> Iterable[NamespacedName]:
        keys: dict[NamespacedName, None] = {}
        for obj in (change.old, change.new):
            owner = controller_of(obj) if obj is not None else None
            if obj is None or owner is None or owner.get("kind") != resource.kind:
                continue
            if str(owner.get("apiVersion", "")).partition("/")[0] == resource.group:
                namespace = namespace_of(obj) if resource.namespaced else ""
                keys[NamespacedName(namespace, str(owner.get("name")))] = None
        return keys

    return keys_of


def _leaves(exc: BaseException) -> Iterable[BaseException]:
    """The single errors in an exception and the groups inside it."""
    if isinstance(exc, BaseExceptionGroup):
        for inner in exc.exceptions:
            yield from _leaves(inner)
    else:
        yield exc
