"""A proxy between a client and an API server, that misbehaves on request.

The client speaks plain HTTP to it, and it speaks to the server as the server wants (TLS or not). It
can break every connection, swallow everything without an error, or see to chosen requests itself:
one, or all of them for a while.
"""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from kthena.kube.client import ClientConfig
from kthena.kube.client.http import HttpTransport
from kthena.kube.client.kubeconfig import load_endpoint
from support.kube_server import TcpServer, http_reply, read_request


class ApiProxy:
    """Forwards to the API server at `server`; a context manager."""

    def __init__(self, server: str, context: ssl.SSLContext | None) -> None:
        url = urlsplit(server)
        self._host, self._port = url.hostname or "", url.port or 443
        self._context = context if url.scheme == "https" else None
        self._listener = TcpServer(self._converse)
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._broken = False
        self._silent: set[asyncio.StreamWriter] = set()
        self._answers: deque[tuple[Callable[[bytes], bool], bytes]] = deque()
        self._failing: Callable[[bytes], bool] | None = None
        self._failure: bytes | None = None
        self.answered = 0
        """How many requests got an answer, or none, from the proxy."""

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

    def silence(self) -> None:
        """Bring clients nothing more on the connections that are open; new ones work."""
        self._silent |= self._writers

    def restore(self) -> None:
        """Work again. What was swallowed stays lost: those connections are broken."""
        self.cut()
        self._broken = False
        self._passing.set()

    def answer(self, status: int, matches: Callable[[bytes], bool]) -> None:
        """Answer the next request whose head matches."""
        self._answers.append((matches, _refusal(status)))

    def fail(self, status: int | None, matches: Callable[[bytes], bool]) -> None:
        """Answer every request whose head matches until `mend`; without a status, never answer.

        Connections that are open are broken, so that what they carried is asked for again.
        """
        self._failing = matches
        self._failure = None if status is None else _refusal(status)
        self.restore()

    def mend(self) -> None:
        """End what `fail` has begun."""
        self._failing = None
        self.restore()

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
                if self._failing is not None and self._failing(head):
                    self.answered += 1
                    if self._failure is None:
                        await reader.read()
                        return
                    writer.write(self._failure)
                    await writer.drain()
                    return
                if self._answers and self._answers[0][0](head):
                    self.answered += 1
                    writer.write(self._answers.popleft()[1])
                    await writer.drain()
                    return
                upstream_writer.write(head + body)
        finally:
            self._writers -= {writer, upstream_writer}
            self._silent -= {writer, upstream_writer}
            back.cancel()
            upstream_writer.transport.abort()
            await asyncio.gather(back, return_exceptions=True)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                await self._passing.wait()
                if sink not in self._silent:
                    sink.write(data)
                    await sink.drain()
        sink.close()


def _refusal(status: int) -> bytes:
    body = b'{"kind":"Status","code":%d,"message":"from the proxy"}' % status
    return http_reply(body, status, "Connection: close\r\n")


@contextlib.asynccontextmanager
async def proxy_of(kubeconfig: Path) -> AsyncIterator[ApiProxy]:
    """A proxy in front of the server of a kubeconfig."""
    endpoint = load_endpoint(ClientConfig(kubeconfig=kubeconfig))
    async with ApiProxy(endpoint.server, endpoint.ssl_context) as proxy:
        yield proxy


def through(proxy: ApiProxy, kubeconfig: Path) -> HttpTransport:
    """A transport to the server of a kubeconfig, with its credentials, through the proxy."""
    endpoint = load_endpoint(ClientConfig(kubeconfig=kubeconfig))
    return HttpTransport(replace(endpoint, server=proxy.url, ssl_context=None))
