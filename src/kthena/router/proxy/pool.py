"""Connections to engines, kept open between requests: one deque per endpoint.

The connection used last is used next, so that surplus ones age at the other end and are closed. An
engine may close an idle connection at any moment, also while the next request is on its way to it:
such a request is sent once more on a new connection, provided that it went out on a reused one and
not one byte came back. Anything beyond that is for whoever forwards to decide.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Final

from kthena.router.address import Address
from kthena.router.proxy.errors import ConnectError, ConnectionLostError, UpstreamTimeoutError
from kthena.router.proxy.limits import PoolLimits
from kthena.router.proxy.upstream import (
    Exchange,
    Listener,
    OutboundRequest,
    UpstreamConnection,
)

_TRIM_EVERY: Final = 64
_SWEEP_INTERVAL_S: Final = 0.05


class ConnectionPool:
    """Sends requests to engines over pooled connections; lives in one loop.

    Mutable state: the idle connections by address, oldest first, and all open ones.
    """

    def __init__(self, limits: PoolLimits, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._time = monotonic
        self._idle: dict[Address, deque[UpstreamConnection]] = {}
        self._open: set[UpstreamConnection] = set()
        self._retained: Collection[Address] | None = None
        self._closing = False
        self._until_trim = _TRIM_EVERY
        self._sweep_timer: asyncio.TimerHandle | None = None
        self.resent = 0
        """Requests that were sent once more because their reused connection was dead."""

    def send(
        self,
        address: Address,
        request: OutboundRequest,
        listener: Listener,
        on_end: Callable[[], None],
    ) -> Exchange:
        """Send a request. `listener` hears of its reply, `on_end` is called once before its end."""
        exchange = Exchange(request, listener, on_end)
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            if connection.usable:
                exchange.reused = True
                connection.start(exchange)
                return exchange
        self._connect(address, exchange)
        return exchange

    def retain(self, addresses: Collection[Address]) -> None:
        """Keep no connection to an endpoint that is not among `addresses` beyond its exchange."""
        self._retained = addresses
        for connection in self._open:
            connection.retired = connection.address not in addresses
        for address in [address for address in self._idle if address not in addresses]:
            for connection in self._idle.pop(address):
                connection.close()

    def close(self) -> None:
        """Close every connection. Exchanges in progress fail."""
        self._closing = True
        self._idle.clear()
        for connection in list(self._open):
            connection.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    @property
    def open_connections(self) -> int:
        """Connections open, in use or idle."""
        return len(self._open)

    @property
    def idle_connections(self) -> int:
        """Connections that wait for a request."""
        return sum(map(len, self._idle.values()))

    # What connections tell (ConnectionOwner)

    def idle(self, connection: UpstreamConnection) -> None:
        """Keep a connection for the next request."""
        if connection.closed or connection.retired:
            connection.close()
            return
        idle = self._idle.get(connection.address)
        if idle is None:
            idle = self._idle[connection.address] = deque()
        connection.idle_since = self._time()
        idle.append(connection)
        self._until_trim -= 1
        if not self._until_trim or len(idle) > self._limits.max_idle_per_endpoint:
            self._trim(idle)

    def lost(
        self,
        connection: UpstreamConnection,
        exchange: Exchange | None,
        error: ConnectionLostError | None,
    ) -> None:
        """Forget a connection; what it was serving is sent once more or fails."""
        self._open.discard(connection)
        idle = self._idle.get(connection.address)
        if idle is not None and connection in idle:
            idle.remove(connection)
            if not idle:
                del self._idle[connection.address]
        if exchange is None:
            return
        if exchange.reused and not exchange.received and not self._closing:
            self.resent += 1
            exchange.reused = False
            exchange.connection = None
            self._connect(connection.address, exchange)
        else:
            exchange.end(error)

    def _trim(self, idle: deque[UpstreamConnection]) -> None:
        """Close surplus and aged connections. Once in a while is enough: engines close them too."""
        self._until_trim = _TRIM_EVERY
        aged = self._time() - self._limits.idle_timeout_s
        while idle and (
            idle[0].idle_since < aged or len(idle) > self._limits.max_idle_per_endpoint
        ):
            idle.popleft().close()

    def _connect(self, address: Address, exchange: Exchange) -> None:
        loop = asyncio.get_running_loop()
        exchange.connecting = loop.create_task(self._open_for(address, exchange, loop))

    async def _open_for(
        self, address: Address, exchange: Exchange, loop: asyncio.AbstractEventLoop
    ) -> None:
        deadline = exchange.request.deadline
        allowed = self._limits.connect_timeout_s
        if deadline is not None:
            allowed = min(allowed, deadline - loop.time())
        connection = UpstreamConnection(address, self)
        try:
            async with asyncio.timeout(allowed):
                await loop.create_connection(lambda: connection, address.host, address.port)
        except asyncio.CancelledError:
            connection.drop()  # it may have opened in the same moment
            raise
        except TimeoutError:
            if deadline is not None and loop.time() >= deadline:
                exchange.end(UpstreamTimeoutError(f"no connection to {address} in time"))
            else:
                exchange.end(ConnectError(f"no connection to {address} within {allowed:g} s"))
            return
        except (OSError, UnicodeError) as exc:  # the latter for a host that is none
            why = getattr(exc, "strerror", None) or exc
            exchange.end(ConnectError(f"no connection to {address}: {why}"))
            return
        if not connection.usable:
            exchange.end(ConnectError(f"{address} closed the connection at once"))
            return
        self._open.add(connection)
        if self._sweep_timer is None:
            self._sweep(loop)
        connection.retired = self._retained is not None and address not in self._retained
        exchange.connecting = None
        connection.start(exchange)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look for passed deadlines as long as connections are open: a timer each would cost more."""
        now = loop.time()
        for connection in list(self._open):
            connection.sweep(now)
        self._sweep_timer = None
        if self._open:
            self._sweep_timer = loop.call_later(_SWEEP_INTERVAL_S, self._sweep, loop)
