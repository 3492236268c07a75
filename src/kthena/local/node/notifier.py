"""A wake-up call that several tasks may wait for, each missing none."""

import asyncio
from collections.abc import AsyncIterator, Callable


class Notifier:
    """Tells waiters that something has changed.

    Mutable state: how often it was given, and the futures of those who wait for the next time.
    Calls in quick succession wake a waiter once.
    """

    def __init__(self) -> None:
        self._count = 0
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Wake everyone who waits."""
        self._count += 1
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds; it is looked at now and after each call."""
        while not condition():
            await self._next()

    async def each(self) -> AsyncIterator[None]:
        """Yield once for what has happened so far, then after further calls, for ever."""
        seen = -1
        while True:
            if seen == self._count:
                await self._next()
            seen = self._count
            yield

    async def _next(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
