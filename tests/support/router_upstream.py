"""An engine for router tests: real sockets, and a script for every reply.

A behaviour is a coroutine that gets a `Turn` and does what an engine might: answer, stream, stall,
close, reset. Requests are parsed by h11, so that what the router sends is judged by another parser.
"""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Self, cast

import h11

Behaviour = Callable[["Turn"], Awaitable[None]]


class Incoming:
    """A request as the engine sees it."""

    def __init__(self, head: h11.Request, body: bytes, connection: int, index: int) -> None:
        self.method = head.method.decode()
        self.target = head.target.decode()
        self.headers = [(name.decode(), value.decode()) for name, value in head.headers]
        self.body = body
        self.connection = connection
        self.index = index

    def header(self, name: str) -> str | None:
        values = self.all(name)
        return values[0] if values else None

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Turn:
    """The engine's turn to answer one request."""

    def __init__(self, connection: "_Connection", request: Incoming) -> None:
        self._connection = connection
        self.request = request
        self.left = asyncio.Event()

    def send(self, data: bytes) -> None:
        if not self._connection.transport.is_closing():
            self._connection.transport.write(data)

    async def drain(self) -> None:
        await self._connection.can_write.wait()

    def json(self, body: Any, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> None:
        encoded = json.dumps(body).encode()
        self.head(status, [("content-type", "application/json"), *headers], len(encoded))
        self.send(encoded)

    def head(
        self,
        status: int = 200,
        headers: Iterable[tuple[str, str]] = (),
        length: int | None = None,
    ) -> None:
        lines = [f"HTTP/1.1 {status} Whatever"]
        lines += [f"{name}: {value}" for name, value in headers]
        if length is not None:
            lines.append(f"content-length: {length}")
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode())

    def stream_head(self, content_type: str = "text/event-stream") -> None:
        self.head(200, [("content-type", content_type), ("transfer-encoding", "chunked")])

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def event(self, payload: Any) -> None:
        self.chunk(b"data: " + json.dumps(payload).encode() + b"\n\n")

    def stream_end(self) -> None:
        self.send(b"0\r\n\r\n")

    def close(self) -> None:
        self._connection.transport.close()

    def reset(self) -> None:
        reset_transport(self._connection.transport)


def reset_transport(transport: asyncio.Transport) -> None:
    """Close with a RST."""
    if not transport.is_closing():
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()


async def answer(turn: Turn) -> None:
    """The plain good answer: says which model the engine was asked for."""
    model = turn.request.json.get("model") if turn.request.body else None
    turn.json({"object": "chat.completion", "model": model})


def replying(body: Any, status: int = 200, **headers: str) -> Behaviour:
    """Always the same JSON reply; underscores in header names are dashes."""

    async def behaviour(turn: Turn) -> None:
        turn.json(body, status, [(name.replace("_", "-"), v) for name, v in headers.items()])

    return behaviour


async def hang(turn: Turn) -> None:
    """Never answer; wait until the router leaves."""
    await turn.left.wait()


async def reset(turn: Turn) -> None:
    """Read the request and reset the connection."""
    turn.reset()


async def close(turn: Turn) -> None:
    """Read the request and close the connection."""
    turn.close()


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, upstream: "Upstream", number: int) -> None:
        self.upstream = upstream
        self.number = number
        self.can_write = asyncio.Event()
        self.can_write.set()
        self.served = 0
        self.turn: Turn | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self.parser = h11.Connection(h11.SERVER, max_incomplete_event_size=64 << 20)
        self.head: h11.Request | None = None
        self.body = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.upstream.open.add(self)

    def pause_writing(self) -> None:
        self.can_write.clear()

    def resume_writing(self) -> None:
        self.can_write.set()

    def data_received(self, data: bytes) -> None:
        self.parser.receive_data(data)
        if self.turn is None:
            self.parse()

    def parse(self) -> None:
        while True:
            event = self.parser.next_event()
            if isinstance(event, h11.Request):
                self.head, self.body = event, bytearray()
            elif isinstance(event, h11.Data):
                self.body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert self.head is not None
                incoming = Incoming(self.head, bytes(self.body), self.number, self.served)
                self.served += 1
                self.turn = Turn(self, incoming)
                self.upstream.requests.append(incoming)
                task = asyncio.get_running_loop().create_task(self.run(self.turn))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
                return
            else:
                return

    async def run(self, turn: Turn) -> None:
        await self.upstream.behaviour(turn)
        self.turn = None
        if self.upstream.keep_alive_s is not None:
            served = self.served
            loop = asyncio.get_running_loop()
            loop.call_later(self.upstream.keep_alive_s, self.close_if_idle, served)
        trailing, _ = self.parser.trailing_data
        self.parser = h11.Connection(h11.SERVER, max_incomplete_event_size=64 << 20)
        if trailing:
            self.data_received(trailing)

    def close_if_idle(self, served: int) -> None:
        """The keep-alive limit has passed since the request of that number."""
        if self.turn is None and self.served == served and not self.transport.is_closing():
            if self.upstream.reset_idle:
                reset_transport(self.transport)
            else:
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.can_write.set()
        self.upstream.open.discard(self)
        if self.turn is not None:
            self.upstream.aborted.append(self.turn.request)
            self.upstream.abort_seen.set()
            self.turn.left.set()


class Upstream:
    """A scripted engine on a loopback address.

    `requests` are those it has read completely, `aborted` those whose connection the router closed
    before the behaviour was through, `open` the connections.
    """

    def __init__(
        self,
        behaviour: Behaviour = answer,
        host: str = "127.0.0.1",
        *,
        keep_alive_s: float | None = None,
        reset_idle: bool = False,
    ) -> None:
        self.behaviour = behaviour
        self.host = host
        self.keep_alive_s = keep_alive_s
        self.reset_idle = reset_idle
        self.port = 0
        self.requests: list[Incoming] = []
        self.aborted: list[Incoming] = []
        self.abort_seen = asyncio.Event()
        self.open: set[_Connection] = set()
        self.accepted = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(
            self._accept, self.host, self.port
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def _accept(self) -> _Connection:
        self.accepted += 1
        return _Connection(self, self.accepted)

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Refuse connections from here on and cut the open ones."""
        self._server.close()
        tasks = [task for connection in self.open for task in connection.tasks]
        for connection in list(self.open):
            connection.transport.abort()
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def close_idle(self) -> None:
        """Close every connection that waits for a request, as a keep-alive limit does."""
        for connection in self.open:
            if connection.turn is None:
                connection.transport.close()
