"""A small HTTP client for the mock engine: whole replies and streams over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from kthena.local.engine.config import EngineConfig, KVTransfer, Timing
from kthena.local.engine.server import EngineServer

MODEL = "mock/model"
FAST = Timing(time_to_first_token_s=0, tokens_per_s=0)
CHAT = "/v1/chat/completions"


@dataclass
class HttpReply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Stream:
    """A reply that is still being received."""

    status: int
    headers: dict[str, str]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    events: list[str] = field(default_factory=list)

    async def next_event(self) -> str:
        """The data of the next server-sent event; empty at the end of the stream."""
        while True:
            line = (await self.reader.readline()).decode().strip()
            if not line and self.reader.at_eof():
                return ""
            if line.startswith("data: "):
                self.events.append(line.removeprefix("data: "))
                return self.events[-1]

    async def rest(self) -> list[str]:
        while await self.next_event():
            pass
        return self.events

    def leave(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def engine(
    *, timing: Timing = FAST, kv: KVTransfer | None = None, **settings: Any
) -> AsyncIterator[EngineServer]:
    """A running engine on a free port."""
    settings.setdefault("models", (MODEL,))
    config = EngineConfig(port=0, timing=timing, kv=kv or KVTransfer(), **settings)
    async with EngineServer(config) as server:
        yield server


async def send(
    server: EngineServer, method: str, path: str, body: Any = None, **headers: str
) -> Stream:
    """Send a request and read the head of the reply."""
    reader, writer = await asyncio.open_connection(server.engine.config.host, server.port)
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: engine", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(raw)}")
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + raw)
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except BaseException:
        writer.transport.abort()
        raise
    fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    return Stream(int(head[0].split()[1]), fields, reader, writer)


async def call(
    server: EngineServer, method: str, path: str, body: Any = None, **headers: str
) -> HttpReply:
    """A whole reply."""
    stream = await send(server, method, path, body, **headers)
    try:
        raw = await stream.reader.read()
    finally:
        stream.writer.transport.abort()
    if stream.headers.get("transfer-encoding") == "chunked":
        raw = _dechunk(raw)
    return HttpReply(stream.status, stream.headers, raw)


async def post(server: EngineServer, path: str, body: Any, **headers: str) -> HttpReply:
    return await call(server, "POST", path, body, **headers)


async def stream_of(server: EngineServer, path: str, body: Any) -> list[Any]:
    """The events of a whole stream, decoded, the closing `[DONE]` as text."""
    stream = await send(server, "POST", path, {**body, "stream": True})
    assert stream.status == 200, await stream.reader.read()
    events = await stream.rest()
    stream.writer.close()
    return [event if event == "[DONE]" else json.loads(event) for event in events]


async def metrics_of(server: EngineServer) -> dict[str, float]:
    """The samples of `/metrics` by name and labels as written."""
    text = (await call(server, "GET", "/metrics")).body.decode()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def chat(text: str = "hello", /, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}


async def until(condition: Any, timeout_s: float = 5.0) -> None:
    """Wait until the condition holds; the servers under test run in this very loop."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is awaited is another program's state
            await asyncio.sleep(0.005)


def _dechunk(raw: bytes) -> bytes:
    body = b""
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        length = int(size, 16)
        body += raw[:length]
        raw = raw[length + 2 :]
    return body
