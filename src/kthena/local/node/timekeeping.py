"""Time on a node: a clock that may run faster than the wall, and turns for starting.

At scale 10 an `initialDelaySeconds` of 180 takes 18 seconds. What a process needs in real time (a
probe's timeout, the grace period of a stop) is measured with the plain clock.
"""

import asyncio
from datetime import datetime
from typing import Final

from kthena.kube.clock import Clock

_MIN_FAILURE_PERIOD_S: Final = 1.0
_START_PATIENCE_S: Final = 10.0


class ScaledClock:
    """`clock`, `scale` times as fast for intervals and waiting. Stamps are the wall's."""

    def __init__(self, clock: Clock, scale: float) -> None:
        if not scale > 0:
            raise ValueError(f"time scale {scale:g} must be above 0; 1 is real time, 10 is faster")
        self._clock = clock
        self._scale = scale

    def now(self) -> datetime:
        """The wall time, in UTC."""
        return self._clock.now()

    def monotonic(self) -> float:
        """Scaled seconds since an arbitrary origin."""
        return self._clock.monotonic() * self._scale

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of the scaled clock."""
        await self._clock.sleep(seconds / self._scale)


class StartPlace:
    """A place among the containers that are starting; left once, or taken back after 10 s."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._held = True
        self._timer = asyncio.get_running_loop().call_later(_START_PATIENCE_S, self.leave)

    def leave(self) -> None:
        """Let the next container start. Further calls do nothing."""
        if self._held:
            self._held = False
            self._timer.cancel()
            self._places.release()


class Timekeeping:
    """The clocks of a node, and the places for containers that are starting.

    Mutable state: the semaphore of places.
    """

    def __init__(self, wall: Clock, scale: float, parallel_starts: int) -> None:
        self.wall = wall
        self.scaled: Clock = ScaledClock(wall, scale)
        self._scale = scale
        self._places = asyncio.Semaphore(parallel_starts)

    async def start_place(self) -> StartPlace:
        """A place to start in, in order of asking."""
        await self._places.acquire()
        return StartPlace(self._places)

    def failure_period(self, period_s: float) -> float:
        """The period of a probe that can kill its container: at least a second of real time.

        However fast the manifest's clock runs, a process needs real time to start.
        """
        return max(period_s, min(period_s, _MIN_FAILURE_PERIOD_S) * self._scale)
