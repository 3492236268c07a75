"""Exchanges for coroutines: wait for the head of a reply."""

import asyncio
from collections.abc import Callable

from kthena.router.address import Address
from kthena.router.proxy.pool import ConnectionPool
from kthena.router.proxy.upstream import Exchange, OutboundRequest


async def send_and_wait(
    pool: ConnectionPool,
    address: Address,
    request: OutboundRequest,
    on_end: Callable[[], None],
) -> Exchange:
    """Send a request and wait for the head of its reply. Cancellation closes the connection.

    Raises:
        UpstreamError: there is none.
    """
    waiter = _Waiter()
    exchange = pool.send(address, request, waiter, on_end)
    try:
        await waiter.done
    except asyncio.CancelledError:
        exchange.abandon()
        raise
    if not exchange.status and exchange.failure is not None:
        raise exchange.failure
    return exchange


class _Waiter:
    """A listener that resolves a future at the head, or at the end where there is none."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_head(self, exchange: Exchange) -> None:
        del exchange
        self._resolve()

    def on_end(self, exchange: Exchange) -> None:
        del exchange
        self._resolve()

    def _resolve(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
