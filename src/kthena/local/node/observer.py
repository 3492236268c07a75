"""What happens around a running container: its postStart hook, its probes, its preStop hook.

An `Observer` belongs to one run. It reports `started` and `ready`, and asks for the run's end when
a hook or probe demands it; the run itself is its owner's. Delays and periods are of the scaled
clock, timeouts of the wall's.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from kthena.kube.clock import before, wait_for
from kthena.local.node.actions import Outcome, Target, connect, cut_output, run_action
from kthena.local.node.images import Program
from kthena.local.node.probes import Probe, ProbeKind, Verdict, parse_probe
from kthena.local.node.processes import ContainerProcess, ProcessSpec, StartError
from kthena.local.node.timekeeping import Timekeeping

_SETTLED_S: Final = 0.5
_PORT_POLL_S: Final = 0.03
_CONNECT_TIMEOUT_S: Final = 1.0
_HOOK_LIMIT_S: Final = 3600.0

EventSink = Callable[[str, str, str], None]
"""Records an event of the pod: type (Normal or Warning), reason, message."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What one start of a container needs."""

    program: Program
    process: ProcessSpec
    address: str
    container_id: str


class Run(Protocol):
    """The run that is observed."""

    def listening(self) -> None:
        """A stand-in accepts connections; told at once for other programs."""

    def started(self) -> None:
        """The container counts as started."""

    def ready(self, *, ready: bool) -> None:
        """Its readiness changed."""

    def end(self, grace_s: float | None) -> Awaitable[None]:
        """End the run; None means the pod's own grace period."""


class Observer:
    """Hooks and probes of one run."""

    def __init__(
        self,
        container: Mapping[str, Any],
        prepared: Prepared,
        run: Run,
        time: Timekeeping,
        event: EventSink,
    ) -> None:
        self._container = container
        self._prepared = prepared
        self._run = run
        self._time = time
        self._event = event
        self._name = str(container.get("name"))
        self._lifecycle: Mapping[str, Any] = container.get("lifecycle") or {}

    async def observe(self) -> None:
        """Hooks and probes from the start of the process on, until cancelled."""
        listening = asyncio.ensure_future(self._until_listening())
        try:
            if not await self._post_start():
                return
            startup = self._probe("startup")
            if startup is not None and not await self._until_started(startup, listening):
                return
            self._run.started()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch_readiness(listening))
                liveness = self._probe("liveness")
                if liveness is not None:
                    group.create_task(self._watch_liveness(liveness))
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def pre_stop(self, limit_s: float) -> None:
        """Run the preStop hook within the grace period. It never keeps the container from ending."""
        hook = self._lifecycle.get("preStop")
        if not hook or limit_s <= 0:
            return
        try:
            outcome = await wait_for(self._time.wall, self._hook(hook, limit_s), limit_s)
        except TimeoutError:
            outcome = Outcome(success=False, text="it outlasted the grace period")
        if not outcome.success:
            self._event("Warning", "FailedPreStopHook", f"PreStopHook failed: {outcome.text}")

    # Hooks.

    async def _post_start(self) -> bool:
        hook = self._lifecycle.get("postStart")
        if not hook:
            return True
        outcome = await self._hook(hook, _HOOK_LIMIT_S)
        if not outcome.success:
            self._event("Warning", "FailedPostStartHook", f"PostStartHook failed: {outcome.text}")
            await self._run.end(None)
        return outcome.success

    async def _hook(self, hook: Mapping[str, Any], timeout_s: float) -> Outcome:
        action = next(iter(hook))
        if action == "sleep":
            await self._time.scaled.sleep(float(hook[action].get("seconds") or 0))
            return Outcome(success=True)
        if action == "exec" and not self._may_exec("a lifecycle hook"):
            return Outcome(success=True)
        return await run_action(action, hook[action], self._target(), timeout_s)

    # Probes.

    async def _until_listening(self) -> None:
        """Return once a stand-in accepts connections; at once for other programs."""
        port = self._prepared.program.port
        while port:
            outcome = await connect(self._prepared.address, port, _CONNECT_TIMEOUT_S)
            if outcome.success:
                break
            await self._time.wall.sleep(_PORT_POLL_S)
        self._run.listening()

    async def _until_started(self, probe: Probe, listening: "asyncio.Future[None]") -> bool:
        """Whether the startup probe succeeds; the run is ended when it does not."""
        verdict = await self._follow(probe, lambda verdict: verdict.healthy is not None, listening)
        if not verdict.healthy:
            await self._unhealthy(probe)
        return bool(verdict.healthy)

    async def _watch_readiness(self, listening: "asyncio.Future[None]") -> None:
        probe = self._probe("readiness")
        if probe is None:
            # A stand-in is ready once it listens. Of any other program a kubelet knows that it runs
            # when it looks, once in a second: one that ends at its start is never ready.
            await asyncio.shield(listening)
            if not self._prepared.program.port:
                await self._time.wall.sleep(_SETTLED_S)
            self._run.ready(ready=True)
            return

        def report(verdict: Verdict) -> bool:
            if verdict.healthy is not None:
                self._run.ready(ready=verdict.healthy)
            return False

        await self._follow(probe, report, listening)

    async def _watch_liveness(self, probe: Probe) -> None:
        await self._follow(probe, lambda verdict: verdict.healthy is False)
        await self._unhealthy(probe)

    async def _follow(
        self,
        probe: Probe,
        enough: Callable[[Verdict], bool],
        listening: "asyncio.Future[None] | None" = None,
    ) -> Verdict:
        """Probe until a verdict is enough, and return it.

        The first probe of a stand-in waits until it listens, so that readiness need not wait for
        the next period.
        """
        clock = self._time.scaled
        period_s = probe.period_s
        if probe.kind != "readiness":
            period_s = self._time.failure_period(period_s)
        await clock.sleep(probe.initial_delay_s)
        if listening is not None:
            with contextlib.suppress(TimeoutError):
                await before(asyncio.shield(listening), clock.sleep(period_s))
        verdict = Verdict()
        while True:
            outcome = await run_action(probe.action, probe.handler, self._target(), probe.timeout_s)
            if not outcome.success and verdict.last is not False:
                kind = probe.kind.capitalize()
                self._event("Warning", "Unhealthy", f"{kind} probe failed: {outcome.text}")
            verdict = verdict.after(probe, success=outcome.success)
            if enough(verdict):
                return verdict
            await clock.sleep(period_s)

    async def _unhealthy(self, probe: Probe) -> None:
        text = f"Container {self._name} failed {probe.kind} probe, will be restarted"
        self._event("Normal", "Killing", text)
        await self._run.end(probe.termination_grace_s)

    def _probe(self, kind: ProbeKind) -> Probe | None:
        probe = parse_probe(self._container, kind)
        if probe is None or probe.action != "exec" or self._may_exec(f"its {kind}Probe"):
            return probe
        return None

    # Commands.

    def _may_exec(self, what: str) -> bool:
        """Whether the image map allows host commands; an event says what is left out."""
        if self._prepared.program.entry.exec_allowed:
            return True
        self._event(
            "Warning",
            "ExecNotAllowed",
            f"container {self._name}: {what} is left out, since the image map entry "
            f"{self._prepared.program.entry.pattern!r} does not allow host commands (exec: true)",
        )
        return False

    def _target(self) -> Target:
        return Target(self._container, self._prepared.address, self._exec)

    async def _exec(self, command: Sequence[str], timeout_s: float) -> Outcome:
        """Run a command with the container's environment and mounts."""
        main = self._prepared.process
        log = Path(main.log).with_suffix(".exec")
        # Its own marker, so that clearing up after a command never reaches the container.
        marker = f"{main.container_id}/exec"
        spec = replace(main, argv=list(command), log=str(log), container_id=marker)
        log.unlink(missing_ok=True)
        try:
            process = await ContainerProcess.start(spec)
        except StartError as error:
            return Outcome(success=False, text=str(error))
        try:
            end = await wait_for(self._time.wall, process.wait(), timeout_s)
        except TimeoutError:
            return Outcome(success=False, text=f"command timed out after {timeout_s:g}s")
        finally:
            await process.dispose()
        return Outcome(success=end.code == 0, text=cut_output(log.read_bytes()))
