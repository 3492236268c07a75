"""A client for router tests: raw bytes out, replies parsed by h11."""

import asyncio
import json
import socket
import struct
from dataclasses import dataclass
from typing import Any, Self, cast

import h11


@dataclass
class ClientReply:
    """One complete reply."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    version: str

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object of an OpenAI-shaped body."""
        error: dict[str, Any] = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error


class Client:
    """One connection to the router."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.pending = b""

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1") -> Self:
        reader, writer = await asyncio.open_connection(host, port)
        return cls(reader, writer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def pause(self) -> None:
        """Read nothing, so that the kernel's buffers fill."""
        cast("asyncio.Transport", self.writer.transport).pause_reading()

    def resume(self) -> None:
        cast("asyncio.Transport", self.writer.transport).resume_reading()

    def close(self) -> None:
        """Leave with a FIN."""
        self.writer.close()

    def reset(self) -> None:
        """Leave with a RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def read_reply(self, method: str = "POST") -> ClientReply:
        """The next reply, in whatever framing; raises h11.RemoteProtocolError if it is broken."""
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=64 << 20)
        parser.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        parser.send(h11.EndOfMessage())
        if self.pending:
            parser.receive_data(self.pending)
        self.pending = b""
        head: h11.Response | None = None
        body = bytearray()
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                parser.receive_data(await self.reader.read(65536))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                self.pending, _ = parser.trailing_data
                headers = [(name.decode(), value.decode()) for name, value in head.headers]
                return ClientReply(
                    head.status_code, headers, bytes(body), head.http_version.decode()
                )
            elif not isinstance(event, h11.InformationalResponse):
                raise AssertionError(f"unexpected {event!r}")

    async def read_until(self, marker: bytes) -> bytes:
        """Raw bytes up to and including the marker."""
        data = self.pending
        while marker not in data:
            more = await self.reader.read(65536)
            if not more:
                raise AssertionError(f"closed before {marker!r}: {data!r}")
            data += more
        end = data.index(marker) + len(marker)
        self.pending = data[end:]
        return data[:end]

    async def read_to_end(self) -> bytes:
        """Everything until the router closes; a reset counts as the end."""
        data, self.pending = self.pending, b""
        try:
            return data + await self.reader.read()
        except ConnectionResetError:
            return data

    async def ask(self, body: Any, **headers: str) -> ClientReply:
        """POST a chat request on this connection and read its reply."""
        self.send(chat(body, **headers))
        return await self.read_reply()


def chat(
    body: Any,
    *,
    path: str = "/v1/chat/completions",
    method: str = "POST",
    version: str = "1.1",
    **headers: str,
) -> bytes:
    """The bytes of a request with a JSON body; underscores in header names are dashes."""
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/{version}", "host: router.example", "x-test: yes"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines.append(f"content-length: {len(encoded)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + encoded


def get(path: str, *, method: str = "GET", version: str = "1.1", **headers: str) -> bytes:
    """The bytes of a request without a body."""
    lines = [f"{method} {path} HTTP/{version}", "host: router.example"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
