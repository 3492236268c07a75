"""A listening server: accepts clients, sweeps their deadlines, and ends without dropping replies."""

import asyncio
from typing import Final

from kthena.router.proxy.connection import ClientConnection, Handler, ServerState
from kthena.router.proxy.limits import Limits

_BACKLOG: Final = 2048
_SWEEP_INTERVAL_S: Final = 0.5
_ABORT_INTERVAL_S: Final = 0.05


class Server:
    """One handler behind one or more listening sockets.

    Mutable state: the listening sockets, the connections (shared with them), and the sweep's timer.
    """

    def __init__(
        self, limits: Limits, handler: Handler, *, sweep_interval_s: float = _SWEEP_INTERVAL_S
    ) -> None:
        self._state = ServerState(limits, handler)
        self._sweep_interval_s = sweep_interval_s
        self._listeners: list[asyncio.Server] = []
        self._sweep_timer: asyncio.TimerHandle | None = None

    async def listen(self, host: str, port: int) -> int:
        """Accept clients on `host` (empty: all interfaces, IPv6 included) and return the port.

        Raises:
            OSError: the address cannot be bound; the text names it.
        """
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            lambda: ClientConnection(self._state, loop), host or None, port, backlog=_BACKLOG
        )
        self._listeners.append(listener)
        if self._sweep_timer is None:
            self._schedule_sweep(loop)
        bound: int = listener.sockets[0].getsockname()[1]
        return bound

    @property
    def connections(self) -> int:
        """Clients connected."""
        return len(self._state.connections)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of request bodies held."""
        return self._state.buffered_bytes

    async def close(self, drain_s: float) -> None:
        """Accept nothing more, answer what is in progress for up to `drain_s`, then cut the rest."""
        self._state.ending = True
        for listener in self._listeners:
            listener.close()
        for connection in list(self._state.connections):
            connection.end()
        loop = asyncio.get_running_loop()
        if self._state.connections:
            drained = self._state.drained = loop.create_future()
            await asyncio.wait([drained], timeout=drain_s)
            while not drained.done():
                # One that was being accepted when the listener closed comes after the others.
                for connection in list(self._state.connections):
                    connection.abort()
                await asyncio.wait([drained], timeout=_ABORT_INTERVAL_S)
        self._state.ended = True
        for listener in self._listeners:
            await listener.wait_closed()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def _schedule_sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep_timer = loop.call_later(self._sweep_interval_s, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in list(self._state.connections):
            connection.sweep(now)
        self._schedule_sweep(loop)
