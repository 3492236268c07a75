"""The body of a reply of an engine, read whole."""

import asyncio

from kthena.router.proxy.errors import UpstreamProtocolError
from kthena.router.proxy.upstream import Exchange


async def read_body(exchange: Exchange, limit: int) -> bytes:
    """The whole body of a reply whose head is here.

    Raises:
        UpstreamError: it broke off, or is larger than `limit` bytes.
    """
    reader = _Reader(exchange, limit)
    exchange.listener = reader
    exchange.relay(reader)
    if not exchange.ended:
        await reader.done
    if reader.left < 0:
        raise UpstreamProtocolError(f"the reply is larger than {limit} bytes")
    if exchange.failure is not None:
        raise exchange.failure
    return b"".join(reader.pieces)


class _Reader:
    """Listener and sink of an exchange."""

    def __init__(self, exchange: Exchange, limit: int) -> None:
        self.pieces: list[bytes] = []
        self.left = limit
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._exchange = exchange

    def on_head(self, exchange: Exchange) -> None:
        raise AssertionError(f"the head is here already: {exchange.status}")

    def on_end(self, exchange: Exchange) -> None:
        del exchange
        if not self.done.done():
            self.done.set_result(None)

    def write(self, data: bytes) -> None:
        self.left -= len(data)
        if self.left < 0:
            self._exchange.abort()
        else:
            self.pieces.append(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def finish(self) -> None:
        """The end is heard of as a listener."""
