"""The HTTP server of the router alone, with a handler that tells what it read."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from kthena.router.proxy.limits import Limits
from kthena.router.proxy.reply import Reply
from kthena.router.proxy.request import Request
from kthena.router.proxy.server import Server
from kthena.router.replies import send_error
from support.router_client import Client

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JSON = b"content-type: application/json\r\n"


class Recorder:
    """A handler that keeps requests and answers each with what it saw."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.replies: list[Reply] = []
        self.answering = True

    def __call__(self, request: Request, reply: Reply) -> None:
        self.requests.append(request)
        self.replies.append(reply)
        if self.answering:
            self.answer(request, reply)

    @staticmethod
    def answer(request: Request, reply: Reply) -> None:
        if request.refusal is not None:
            send_error(reply, request.refusal, NOW)
            return
        body = json.dumps(
            {"method": request.method, "path": request.path, "body": request.body.decode("latin-1")}
        )
        reply.send(200, JSON, body.encode())


class HttpFleet:
    """A listening server."""

    def __init__(self, server: Server, port: int, handler: Recorder) -> None:
        self.server = server
        self.port = port
        self.handler = handler

    async def connect(self) -> Client:
        return await Client.connect(self.port)


@asynccontextmanager
async def listening(
    limits: Limits | None = None, *, sweep_interval_s: float = 0.02, answering: bool = True
) -> AsyncIterator[HttpFleet]:
    """A server on a free port."""
    handler = Recorder()
    handler.answering = answering
    server = Server(limits or Limits(), handler, sweep_interval_s=sweep_interval_s)
    port = await server.listen("127.0.0.1", 0)
    try:
        yield HttpFleet(server, port, handler)
    finally:
        await server.close(0)


class MemoryTransport(asyncio.Transport):
    """A transport without a socket: keeps what is written, and delivers when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closing = False
        self.aborted = False
        self.ended = False
        self.paused = False
        self.on_close: Callable[[], None] | None = None

    def write(self, data: "bytes | bytearray | memoryview") -> None:
        self.written += data

    def write_eof(self) -> None:
        self.ended = True

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 4711) if name == "peername" else default
