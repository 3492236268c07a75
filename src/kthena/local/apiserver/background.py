"""Work that follows a write: the controllers of the server, run on its loop between requests.

A job is a key and a function of that key; one that is already waiting is not added twice. Jobs run
in order, a few at a time, so that requests get their turn.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, Final

from kthena.telemetry.logging import get_logger

_BATCH: Final = 32
_LOG: Final = get_logger("local.apiserver")


class Background:
    """Mutable state: the waiting jobs in order, and whether a run is scheduled."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[Callable[[Any], None], Hashable], None] = {}
        self._scheduled = False
        self._stopped = False

    def add(self, function: Callable[[Any], None], key: Hashable) -> None:
        """Call `function(key)` soon; after the stop, never."""
        if not self._stopped:
            self._jobs[function, key] = None
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
        """Run all jobs, and those that they add, at once."""
        while self._jobs:
            self._run_batch()

    def stop(self) -> None:
        """Drop what waits and take nothing more."""
        self._stopped = True
        self._jobs.clear()
