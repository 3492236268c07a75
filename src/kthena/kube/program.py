"""A program made of informers and controllers: how its parts start, go on, and stop.

Everything runs in one task group. A part that fails by a mistake of its own is logged and started
again; it takes no other down. Controllers that write for all replicas run only while the lease is
held. The end is ordered: controllers finish the keys in work, events are written, the lease is
released, then informers and all others stop. Signals and the exit status are the caller's.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kthena.kube.backoff import Backoff, BackoffConfig, Draw
from kthena.kube.clock import Clock, SystemClock, wait_for
from kthena.kube.controller import ControllerRunner
from kthena.kube.election import LeaderElector
from kthena.kube.events import EventRecorder
from kthena.kube.informer import Informer
from kthena.kube.readiness import ComponentState
from kthena.telemetry.logging import get_logger

log = get_logger("kube.program")

OnLost = Literal["exit", "campaign"]

Run: TypeAlias = Callable[[], Awaitable[None]]
"""Does a part's work until it is cancelled."""


class LeadershipLost(Exception):  # noqa: N818 - it is an event that ends the program
    """The lease was lost, and the program is one that ends then."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a program is made of.

    `controllers` always run; `elected` ones only while `elector` leads (always, without an
    elector). `on_lost` is what losing the lease means: the program ends, or only its elected
    controllers pause until the lease is won again. `others` are whatever else runs beside them, by
    name: a server, informers that come and go.
    """

    informers: Sequence[Informer] = ()
    controllers: Sequence[ControllerRunner] = ()
    elected: Sequence[ControllerRunner] = ()
    elector: LeaderElector | None = None
    on_lost: OnLost = "exit"
    recorders: Sequence[EventRecorder] = ()
    others: Mapping[str, Run] = field(default_factory=dict)
    grace_s: float = 10.0


class Program:
    """Runs `parts` until `stop`.

    Mutable state: the running tasks of controllers and of elected ones, and why the end has come.
    """

    def __init__(
        self, parts: Parts, clock: Clock | None = None, *, draw: Draw = random.random
    ) -> None:
        self._parts = parts
        self._clock = clock or SystemClock()
        self._draw = draw
        self._stopping = asyncio.Event()
        self._lost = False
        self._working: set[asyncio.Task[None]] = set()
        self._leading: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Begin the ordered end; `run` returns after it."""
        self._stopping.set()

    def readiness(self) -> list[ComponentState]:
        """The state of every controller, and of the lease."""
        parts = self._parts
        states = [runner.readiness() for runner in (*parts.controllers, *parts.elected)]
        if parts.elector is not None:
            states.append(parts.elector.readiness())
        return states

    async def run(self) -> None:
        """Run everything until `stop` or cancellation, then end it in order.

        Raises:
            LeadershipLost: the lease was lost, and `on_lost` is "exit".
        """
        parts = self._parts
        async with asyncio.TaskGroup() as group:

            def start(name: str, run: Run) -> "asyncio.Task[None]":
                return group.create_task(self._supervise(name, run), name=name)

            def work(runner: ControllerRunner) -> "asyncio.Task[None]":
                task = start(runner.name, runner.run)
                self._working.add(task)
                task.add_done_callback(self._working.discard)
                return task

            def on_started() -> None:
                self._leading = {work(runner) for runner in parts.elected}

            background = [start(f"informer {each.name}", each.run) for each in parts.informers]
            background += [start("events", recorder.run) for recorder in parts.recorders]
            background += [start(name, run) for name, run in parts.others.items()]
            for runner in parts.controllers:
                work(runner)
            campaign = None
            if parts.elector is None:
                on_started()
            else:
                elector = parts.elector
                campaign = start("election", lambda: elector.run(on_started, self._on_lost))
            try:
                await self._stopping.wait()
            finally:
                await self._end(campaign)
                for task in background:
                    task.cancel()
        if self._lost:
            raise LeadershipLost("the lease was lost; another process may lead")

    def _on_lost(self) -> None:
        for task in self._leading:
            task.cancel()
        self._leading.clear()
        if self._parts.on_lost == "exit" and not self._stopping.is_set():
            self._lost = True
            self._stopping.set()

    async def _end(self, campaign: "asyncio.Task[None] | None") -> None:
        parts = self._parts
        for runner in (*parts.controllers, *parts.elected):
            runner.stop()
        if self._working:
            try:
                await wait_for(self._clock, asyncio.wait(self._working), parts.grace_s)
            except TimeoutError:
                names = sorted(task.get_name() for task in self._working)
                log.warning("controllers did not finish in time", controllers=", ".join(names))
        working = list(self._working)
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        for recorder in parts.recorders:
            await recorder.flush(parts.grace_s / 5)
        if campaign is not None and parts.elector is not None:
            campaign.cancel()
            await asyncio.gather(campaign, return_exceptions=True)
            await parts.elector.release()

    async def _supervise(self, name: str, run: Run) -> None:
        """Run a part again after it has failed by a mistake; return when it returns."""
        backoff = Backoff(BackoffConfig(initial_s=1.0, cap_s=30.0), self._draw)
        while True:
            try:
                await run()
            except Exception:
                delay = backoff.next()
                log.exception("part failed, starting it again", part=name, after_s=round(delay, 1))
                await self._clock.sleep(delay)
            else:
                return
