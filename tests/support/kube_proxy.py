"""A proxy between a client and a real API server, that misbehaves on request.

The client speaks plain HTTP to it, and it speaks TLS to the server. It can break every connection,
swallow everything without an error, or answer chosen requests itself.
"""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit

from support.kube_server import TcpServer, http_reply, read_request


class ApiProxy:
    """Forwards to the API server at `server`; a context manager."""

    def __init__(self, server: str, context: ssl.SSLContext) -> None:
        url = urlsplit(server)
        self._host, self._port = url.hostname or "", url.port or 443
        self._context = context
        self._listener = TcpServer(self._converse)
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._broken = False
        self._answers: deque[tuple[Callable[[bytes], bool], bytes]] = deque()
        self.answered = 0

    @property
    def url(self) -> str:
        return self._listener.url

    async def __aenter__(self) -> Self:
        await self._listener.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._passing.set()
        self.cut()
        await self._listener.__aexit__()

    def cut(self) -> None:
        """Break every connection and refuse new ones."""
        self._broken = True
        for writer in self._writers:
            writer.transport.abort()

    def swallow(self) -> None:
        """Let nothing through, in neither direction, and close nothing."""
        self._passing.clear()

    def restore(self) -> None:
        """Work again. What was swallowed stays lost: those connections are broken."""
        self.cut()
        self._broken = False
        self._passing.set()

    def answer(self, status: int, matches: Callable[[bytes], bool]) -> None:
        """Answer the next request whose head matches."""
        body = b'{"kind":"Status","code":%d,"message":"from the proxy"}' % status
        reply = http_reply(body, status, "Connection: close\r\n")
        self._answers.append((matches, reply))

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._broken:
            return
        upstream_reader, upstream_writer = await asyncio.open_connection(
            self._host, self._port, ssl=self._context
        )
        self._writers |= {writer, upstream_writer}
        back = asyncio.ensure_future(self._pump(upstream_reader, writer))
        try:
            while True:
                head, body = await read_request(reader)
                await self._passing.wait()
                if self._answers and self._answers[0][0](head):
                    self.answered += 1
                    writer.write(self._answers.popleft()[1])
                    await writer.drain()
                    return
                upstream_writer.write(head + body)
        finally:
            self._writers -= {writer, upstream_writer}
            back.cancel()
            upstream_writer.transport.abort()
            await asyncio.gather(back, return_exceptions=True)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                await self._passing.wait()
                sink.write(data)
                await sink.drain()
        sink.close()
