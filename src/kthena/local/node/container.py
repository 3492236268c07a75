"""One container of a pod: started, restarted and stopped as the kubelet does.

The runner owns its `record`; whoever shows it (the pod's status) is told of every change. What a
start needs comes from a `ContainerHost`, anew each time. Hooks and probes are in `observer`.
"""

import asyncio
import contextlib
import signal as signals
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from kthena.kube.clock import Clock, wait_for
from kthena.local.node.backoff import BackOff, format_delay
from kthena.local.node.environment import ConfigError
from kthena.local.node.images import ImageNotMappedError
from kthena.local.node.observer import Observer, Prepared
from kthena.local.node.podstatus import ContainerRecord, Running, Terminated
from kthena.local.node.processes import ContainerProcess, Exit, StartError
from kthena.local.node.timekeeping import StartPlace, Timekeeping

_CONFIG_RETRY_S: Final = 2.0
_START_ERROR_CODE: Final = 128


class ContainerHost(Protocol):
    """The pod around a container."""

    @property
    def description(self) -> str:
        """`pod=NAME_NAMESPACE(UID)`, for messages."""

    @property
    def grace_s(self) -> float:
        """The pod's own grace period."""

    async def prepare(self, container: Mapping[str, Any], attempt: int) -> Prepared:
        """What the next start needs.

        Raises:
            ConfigError: something that it refers to is missing; it is tried again.
            ImageNotMappedError: no program stands for its image.
        """

    def event(self, kind: str, reason: str, message: str) -> None:
        """Record an event of the pod; `kind` is Normal or Warning."""


class ContainerRunner:
    """Runs one container until its restart policy is satisfied or it is stopped.

    Mutable state: the record, the number of the run that is next or present, its process with the
    observer, and whether stopping has begun.
    """

    def __init__(
        self,
        container: Mapping[str, Any],
        record: ContainerRecord,
        host: ContainerHost,
        time: Timekeeping,
        on_change: Callable[[], None],
    ) -> None:
        self.record = record
        self._container = container
        self._host = host
        self._time = time
        self._on_change = on_change
        self._attempt = record.restarts
        self._process: ContainerProcess | None = None
        self._observer: Observer | None = None
        self._place: StartPlace | None = None
        self._stopping = asyncio.Event()
        self._stop_grace_s = 0.0

    async def run(self, policy: str) -> None:
        """Run and restart as `policy` says. Returns when it is done or was stopped."""
        back_off = BackOff()
        started = self._time.scaled.monotonic()
        while (end := await self._run_once()) is not None:
            if self._stopping.is_set() or not _restarts(policy, end):
                return
            back_off = back_off.after_end(self._time.scaled.monotonic() - started)
            if back_off.delay_s and await self._crash_loop(back_off.delay_s):
                return
            back_off = back_off.after_restart()
            started = self._time.scaled.monotonic()
            self._attempt += 1

    async def stop(self, grace_s: float) -> None:
        """Stop for good: preStop hook, stop signal, and after `grace_s` SIGKILL."""
        self._stop_grace_s = grace_s
        self._stopping.set()
        await self.end(grace_s)

    def kill(self) -> None:
        """Stop for good, at once."""
        self._stop_grace_s = 0.0
        self._stopping.set()
        if self._process is not None:
            self._process.kill()

    async def dispose(self) -> None:
        """Stop for good, at once, and wait until no process is left."""
        self.kill()
        if self._process is not None:
            await self._process.dispose()

    # What the observer of a run reports and demands.

    def listening(self) -> None:
        """A stand-in accepts connections: the next container may start."""
        if self._place is not None:
            self._place.leave()

    def started(self) -> None:
        """The container counts as started."""
        self._set(started=True)

    def ready(self, *, ready: bool) -> None:
        """Its readiness is known."""
        if ready != self.record.ready:
            self._set(ready=ready)

    async def end(self, grace_s: float | None) -> None:
        """End the present run: preStop, stop signal, and SIGKILL after the grace period."""
        process, observer = self._process, self._observer
        if process is None or observer is None or process.ended:
            return
        limit = self._host.grace_s if grace_s is None else grace_s
        wall = self._time.wall
        deadline = wall.monotonic() + limit
        await observer.pre_stop(limit)
        process.signal(_stop_signal(self._container))
        try:
            await wait_for(wall, process.wait(), deadline - wall.monotonic())
        except TimeoutError:
            process.kill()
            await process.wait()

    # One run.

    async def _run_once(self) -> Terminated | None:
        """Start, watch and record one run; None when it was stopped before it started."""
        prepared = await self._prepare()
        if prepared is None:
            return None
        try:
            process = await self._start(prepared)
        except StartError as error:
            self._host.event("Warning", "Failed", f"Error: {error}")
            now = self._time.wall.now()
            self.record = replace(self.record, restarts=self._attempt)
            return self._ended(Terminated(_START_ERROR_CODE, "StartError", now, message=str(error)))
        started_at = self._time.wall.now()
        self._process = process
        self._observer = Observer(self._container, prepared, self, self._time, self._host.event)
        self._set(
            state=Running(started_at),
            container_id=prepared.container_id,
            last=self._last(),
            restarts=self._attempt,
        )
        self._host.event("Normal", "Started", f"Started container {self.record.name}")
        try:
            end = await self._watch(process, self._observer)
        finally:
            await process.dispose()
        return self._ended(
            Terminated(
                exit_code=end.code,
                reason="Completed" if end.code == 0 else "Error",
                finished_at=self._time.wall.now(),
                started_at=started_at,
                signal=end.signal,
                container_id=prepared.container_id,
            )
        )

    async def _prepare(self) -> Prepared | None:
        """What the run needs, waiting for what is missing; None when it was stopped first."""
        said = ""
        while not self._stopping.is_set():
            try:
                return await self._host.prepare(self._container, self._attempt)
            except ImageNotMappedError as error:
                reason, message = "ErrImagePull", str(error)
            except ConfigError as error:
                reason, message = "CreateContainerConfigError", str(error)
            if message != said:
                said = message
                self.record = self.record.waits(reason, message)
                self._on_change()
                self._host.event("Warning", "Failed", f"Error: {reason}: {message}")
            await self._pause(self._time.wall, _CONFIG_RETRY_S)
        return None

    async def _start(self, prepared: Prepared) -> ContainerProcess:
        """Start the process when it is its turn.

        Processes that start together share the processors, so few may start at a time: a stand-in
        keeps its place until it listens, has ended, or has had enough time to.
        """
        self._place = await self._time.start_place()
        try:
            process = await ContainerProcess.start(prepared.process, self._on_limit)
        except BaseException:
            self._place.leave()
            raise
        if not prepared.program.port:
            self._place.leave()
        return process

    async def _watch(self, process: ContainerProcess, observer: Observer) -> Exit:
        """The end of the process; hooks and probes are over by then."""
        async with asyncio.TaskGroup() as group:
            observing = group.create_task(observer.observe())
            if self._stopping.is_set():
                # The stop came while the process was being started, and found none to end.
                group.create_task(self.end(self._stop_grace_s))
            end = await process.wait()
            observing.cancel()
        return end

    def _on_limit(self, text: str) -> None:
        self._host.event("Warning", "LimitedByHost", f"container {self.record.name}: {text}")

    async def _crash_loop(self, delay_s: float) -> bool:
        """Wait for the back-off; True when the container was stopped meanwhile."""
        name = self.record.name
        message = (
            f"back-off {format_delay(delay_s)} restarting failed container={name} "
            f"{self._host.description}"
        )
        self.record = self.record.waits("CrashLoopBackOff", message)
        self._on_change()
        self._host.event("Warning", "BackOff", f"Back-off restarting failed container {name}")
        await self._pause(self._time.scaled, delay_s)
        return self._stopping.is_set()

    async def _pause(self, clock: Clock, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await wait_for(clock, self._stopping.wait(), seconds)

    # The record.

    def _last(self) -> Terminated | None:
        state = self.record.state
        return state if isinstance(state, Terminated) else self.record.last

    def _ended(self, end: Terminated) -> Terminated:
        if self._place is not None:
            self._place.leave()
        self.record = replace(self.record, last=self._last()).ended(end)
        self._on_change()
        return end

    def _set(self, **changes: Any) -> None:
        self.record = replace(self.record, **changes)
        self._on_change()


def _restarts(policy: str, end: Terminated) -> bool:
    return policy == "Always" or (policy == "OnFailure" and end.exit_code != 0)


def _stop_signal(container: Mapping[str, Any]) -> int:
    name = str((container.get("lifecycle") or {}).get("stopSignal") or "SIGTERM")
    return int(getattr(signals, name, signals.SIGTERM))
