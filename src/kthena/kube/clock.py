"""Time as a parameter.

Everything that waits or stamps takes a `Clock`, so that tests decide when time passes. `FakeClock`
is shipped code: simulations use it too.
"""

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Wall time for stamps, monotonic time for intervals, and waiting."""

    def now(self) -> datetime:
        """The wall time, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; the origin means nothing."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; at once when they are not positive. Cancellation passes."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        """The wall time, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """`time.monotonic()`."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """`asyncio.sleep`."""
        await asyncio.sleep(max(seconds, 0))


class FakeClock:
    """A clock that stands still until `advance` is called.

    Mutable state: the elapsed seconds and a heap of sleepers, each a future resolved when its time
    has come. Sleepers wake in order of their deadline, ties in order of arrival.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """The start plus everything that was advanced."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """The seconds advanced so far."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced by `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Later in any case: lost in rounding, a tiny sleep would let its caller spin for ever.
        deadline = max(self._elapsed + seconds, math.nextafter(self._elapsed, math.inf))
        heapq.heappush(self._sleepers, (deadline, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move time forward, waking sleepers one by one and letting each run before the next."""
        target = self._elapsed + seconds
        while self._sleepers and self._sleepers[0][0] <= target:
            deadline, _, future = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, deadline)
            if not future.done():
                future.set_result(None)
            await settle()
        self._elapsed = target
        await settle()


async def settle(rounds: int = 10) -> None:
    """Let ready callbacks of the running loop run; no time passes."""
    for _ in range(rounds):
        await asyncio.sleep(0)


async def wait_for(clock: Clock, awaitable: Awaitable[T], seconds: float) -> T:
    """The result of `awaitable`, cancelled when it takes longer than `seconds` of `clock`.

    Raises:
        TimeoutError: the time has passed; the awaitable has ended by then.
    """
    return await before(awaitable, clock.sleep(seconds))


async def before(awaitable: Awaitable[T], limit: Awaitable[None]) -> T:
    """The result of `awaitable`, if it comes before `limit` ends; both have ended afterwards.

    Raises:
        TimeoutError: `limit` ended first.
    """
    work = asyncio.ensure_future(awaitable)
    timer = asyncio.ensure_future(limit)
    try:
        await asyncio.wait({work, timer}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        timer.result()
        raise TimeoutError
    finally:
        work.cancel()
        timer.cancel()
        await asyncio.gather(work, timer, return_exceptions=True)
