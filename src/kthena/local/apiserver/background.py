"""Work that follows a write: the controllers of the server, run on its loop between requests.

A job is a key and a function of that key; one that is already waiting is not added twice. Jobs run
in order, a few at a time, so that requests get their turn. A job that could not be done is put off,
and not tried again at once.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, Final

from kthena.telemetry.logging import get_logger

_BATCH: Final = 32
_DRAINED_AT_MOST: Final = 1_000_000
"""Jobs that run before there is a loop: a job that always adds another must not hold up the start."""

_LOG: Final = get_logger("local.apiserver")


_Job = tuple[Callable[[Any], None], Hashable]


class Background:
    """Mutable state: the waiting jobs in order, those put off, and whether a run is scheduled.

    `_put_off` has the timers of jobs, or their delays in seconds as long as no loop runs.
    """

    def __init__(self) -> None:
        self._jobs: dict[_Job, None] = {}
        self._put_off: dict[_Job, asyncio.TimerHandle | float] = {}
        self._scheduled = False
        self._stopped = False

    def add(self, function: Callable[[Any], None], key: Hashable) -> None:
        """Call `function(key)` soon; after the stop, never."""
        if not self._stopped:
            self._jobs[function, key] = None
            self._schedule()

    def add_later(self, function: Callable[[Any], None], key: Hashable, delay_s: float) -> None:
        """Call `function(key)` after `delay_s` seconds, and not before; the last delay counts."""
        if self._stopped:
            return
        job = (function, key)
        before = self._put_off.pop(job, None)
        if isinstance(before, asyncio.TimerHandle):
            before.cancel()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._put_off[job] = delay_s
        else:
            self._put_off[job] = loop.call_later(delay_s, self._resume, job)

    def _resume(self, job: _Job) -> None:
        del self._put_off[job]
        self.add(*job)

    def start(self) -> None:
        """Take up, on the running loop, what was added before there was one."""
        for (function, key), delay_s in list(self._put_off.items()):
            if not isinstance(delay_s, asyncio.TimerHandle):
                self.add_later(function, key, delay_s)
        if self._jobs:
            self._schedule()

    def _schedule(self) -> None:
        if self._scheduled:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # No loop runs yet; `drain` does the work.
            return
        self._scheduled = True
        loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        self._run_batch()
        if self._jobs:
            self._schedule()

    def _run_batch(self) -> None:
        for _ in range(min(_BATCH, len(self._jobs))):
            function, key = next(iter(self._jobs))
            del self._jobs[function, key]
            try:
                function(key)
            except Exception:  # noqa: BLE001 - a worker loop: what nobody foresaw is logged
                # One job that fails must not keep the others from running.
                _LOG.exception("background job failed", key=str(key))

    def __len__(self) -> int:
        """How many jobs wait."""
        return len(self._jobs)

    def drain(self) -> None:
        """Run all jobs, and those that they add, at once; jobs that are put off are left.

        What never comes to an end is left to the loop.
        """
        for _ in range(0, _DRAINED_AT_MOST, _BATCH):
            if not self._jobs:
                return
            self._run_batch()
        _LOG.warning("background jobs left to the loop", waiting=len(self._jobs))

    def stop(self) -> None:
        """Drop what waits and take nothing more."""
        self._stopped = True
        self._jobs.clear()
        for timer in self._put_off.values():
            if isinstance(timer, asyncio.TimerHandle):
                timer.cancel()
        self._put_off.clear()
