"""Exchanges for coroutines: wait for a head, an end or a whole body."""

import asyncio
from collections.abc import Callable

from kthena.router.proxy.errors import UpstreamProtocolError
from kthena.router.proxy.pool import ConnectionPool
from kthena.router.proxy.upstream import Address, Exchange, OutboundRequest


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
    waiter = _Waiter(wait_for_head=True)
    exchange = pool.send(address, request, waiter, on_end)
    try:
        await waiter.done
    except asyncio.CancelledError:
        exchange.abandon()
        raise
    if not exchange.status and exchange.failure is not None:
        raise exchange.failure
    return exchange


async def read_body(exchange: Exchange, limit: int) -> bytes:
    """The whole body of a reply whose head is here. Cancellation closes the connection.

    Raises:
        UpstreamError: it broke off, or is larger than `limit` bytes.
    """
    body = _Collector(exchange, limit)
    waiter = _Waiter(wait_for_head=False)
    exchange.listener = waiter
    exchange.relay(body)
    try:
        if not exchange.ended:
            await waiter.done
    except asyncio.CancelledError:
        exchange.abandon()
        raise
    if body.overflowed:
        raise UpstreamProtocolError(f"the reply is larger than {limit} bytes", received=True)
    if exchange.failure is not None:
        raise exchange.failure
    return b"".join(body.pieces)


class _Waiter:
    """A listener that resolves a future at the head, or at the end."""

    def __init__(self, *, wait_for_head: bool) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait_for_head = wait_for_head

    def on_head(self, exchange: Exchange) -> None:
        del exchange
        if self._wait_for_head:
            self._resolve()

    def on_end(self, exchange: Exchange) -> None:
        del exchange
        self._resolve()

    def _resolve(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class _Collector:
    """A sink that keeps a bounded body."""

    def __init__(self, exchange: Exchange, limit: int) -> None:
        self.pieces: list[bytes] = []
        self.overflowed = False
        self._exchange = exchange
        self._left = limit

    def write(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self.overflowed = True
            self._exchange.abort()
        else:
            self.pieces.append(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def finish(self) -> None:
        """The waiting task sees the end of the exchange."""
