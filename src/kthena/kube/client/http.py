"""HTTP/1.1 to one API server, over TCP or TLS: the `Transport` of real clusters.

Requests share a bounded pool of kept-alive connections, most recently used first; each stream (a
watch, a log) has a connection of its own, so that watches never starve requests. llhttp does the
parsing (through httptools). Invariant: an exchange ends exactly once, as complete, failed or given
up, and only a complete one leaves its connection to the next.

httpx2 is not used for this: side by side (TLS, loopback) it takes four to seven times the CPU for
a request, and API calls are most of what a controller does.

It follows no redirects and knows no proxies. It sends a request twice in two cases: with renewed
credentials after a 401, and a GET whose kept-alive connection turns out to be closed before the
first byte of a reply, as Go's net/http does.
"""

import asyncio
import base64
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools

from kthena.kube.client.transport import BufferedReply, Reply, Request
from kthena.kube.errors import ClientConfigError, ConnectionFailed

CONNECT_TIMEOUT_S = 10.0
MAX_CONNECTIONS = 32
KEEP_ALIVE_S = 30.0
MAX_BUFFERED_BYTES = 1 << 20


class Credentials(Protocol):
    """Gives the value of the `Authorization` header."""

    async def authorization(self) -> str | None:
        """The value to send; None for no header. It may be a cached one."""
        ...

    async def renewed(self, rejected: str | None) -> str | None:
        """The value to try after the server answered 401 to `rejected`; the same if there is none.

        Raises:
            ClientConfigError: a credential plugin or token file failed.
        """
        ...


class Anonymous:
    """No credentials, or only a client certificate."""

    async def authorization(self) -> str | None:
        """No header."""
        return None

    async def renewed(self, rejected: str | None) -> str | None:
        """There is nothing to renew."""
        return rejected


class Basic(Anonymous):
    """A name and a password that never change."""

    def __init__(self, name: str, password: str) -> None:
        encoded = base64.b64encode(f"{name}:{password}".encode()).decode()
        self._value = f"Basic {encoded}"

    async def authorization(self) -> str | None:
        """The scheme Basic of RFC 7617."""
        return self._value


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An API server and how to reach it: URL, TLS (None for plain HTTP), credentials, namespace."""

    server: str
    credentials: Credentials
    ssl_context: ssl.SSLContext | None = None
    namespace: str = "default"


class HttpTransport:
    """Connections to the API server of `endpoint`.

    Mutable state: the idle connections (newest last), all open ones, and the semaphore that bounds
    the exchanges which are no streams.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        max_connections: int = MAX_CONNECTIONS,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        url = urlsplit(endpoint.server)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ClientConfigError(f"server {endpoint.server!r} is no http or https URL")
        self._endpoint = endpoint
        self._host = url.hostname
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._ssl_context = endpoint.ssl_context if url.scheme == "https" else None
        self._authority = url.netloc
        self._prefix = url.path.rstrip("/")
        self._keep_alive_s = keep_alive_s
        self._slots = asyncio.Semaphore(max_connections)
        self._idle: deque[_Connection] = deque()
        self._open: set[_Connection] = set()
        self._closed = False

    async def send(self, request: Request) -> Reply:
        """The reply, when its head is there; with renewed credentials after a 401."""
        credentials = self._endpoint.credentials
        authorization = await _header(request, credentials.authorization())
        reply = await self._exchange(request, authorization)
        if reply.status != 401:
            return reply
        body = await reply.read()
        renewed = await _header(request, credentials.renewed(authorization))
        if renewed == authorization:
            return BufferedReply(reply.status, body, reply.headers)
        return await self._exchange(request, renewed)

    async def aclose(self) -> None:
        """Close every connection and wait until it is closed; requests in flight fail."""
        self._closed = True
        connections = list(self._open)
        for connection in connections:
            connection.abort()
        await asyncio.gather(*(connection.lost for connection in connections))

    async def _exchange(self, request: Request, authorization: str | None) -> "_HttpReply":
        head = self._head(request, authorization)
        while True:
            if not request.streamed:
                await self._slots.acquire()
            try:
                connection = self._reusable() or await self._connect(request)
            except BaseException:
                if not request.streamed:
                    self._slots.release()
                raise
            reused = connection.exchanges > 0
            reply = _HttpReply(request, connection, self._finish)
            connection.start(reply, head + request.body)
            try:
                await reply.head
            except ConnectionFailed:
                if reused and reply.was_never_begun and request.method == "GET":
                    continue
                raise
            except asyncio.CancelledError:
                reply.give_up()
                raise
            return reply

    def _finish(self, reply: "_HttpReply") -> None:
        """Called once by each exchange, when it has ended."""
        if not reply.request.streamed:
            self._slots.release()
        if reply.leaves_connection_usable and not self._closed:
            reply.connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(reply.connection)
        else:
            reply.connection.abort()

    def _reusable(self) -> "_Connection | None":
        newest_useless = asyncio.get_running_loop().time() - self._keep_alive_s
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since > newest_useless and connection.is_open:
                return connection
            connection.abort()
        return None

    async def _connect(self, request: Request) -> "_Connection":
        if self._closed:
            raise ConnectionFailed("the client is closed", request=str(request))
        limit = min(CONNECT_TIMEOUT_S, request.timeout_s)
        try:
            async with asyncio.timeout(limit):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self._open),
                    self._host,
                    self._port,
                    ssl=self._ssl_context,
                )
        except TimeoutError as exc:
            raise ConnectionFailed(
                f"cannot connect to {self._endpoint.server} within {limit:g} s",
                request=str(request),
            ) from exc
        except OSError as exc:  # includes every TLS failure
            cause = "connection refused" if isinstance(exc, ConnectionRefusedError) else exc
            raise ConnectionFailed(
                f"cannot connect to {self._endpoint.server}: {cause}", request=str(request)
            ) from exc
        return connection

    def _head(self, request: Request, authorization: str | None) -> bytes:
        lines = [
            f"{request.method} {self._prefix}{request.target} HTTP/1.1",
            f"Host: {self._authority}",
        ]
        if authorization is not None:
            lines.append(f"Authorization: {authorization}")
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {len(request.body)}")
        if any("\r" in line or "\n" in line for line in lines) or " " in request.target:
            raise ValueError(f"{request}: a line break or a space in the target or a header")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _header(request: Request, asked: Awaitable[str | None]) -> str | None:
    """What the credentials answer. Without them no request is sent, so there is no reply either."""
    try:
        return await asked
    except ClientConfigError as exc:
        raise ConnectionFailed(str(exc), request=str(request)) from exc


class _Connection(asyncio.Protocol):
    """One connection; it carries one exchange at a time.

    Mutable state: the transport, the running exchange, and how many there have been.
    """

    def __init__(self, open_connections: set["_Connection"]) -> None:
        self._transport: asyncio.Transport | None = None
        self._reply: _HttpReply | None = None
        self._open_connections = open_connections
        self.exchanges = 0
        self.idle_since = 0.0
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def start(self, reply: "_HttpReply", data: bytes) -> None:
        """Send a request; its reply gets every byte that arrives until it ends."""
        self._reply = reply
        self.exchanges += 1
        if self._transport is None or self._transport.is_closing():
            reply.connection_lost(None)
        else:
            self._transport.write(data)

    def end(self) -> None:
        """The running exchange has ended."""
        self._reply = None

    def abort(self) -> None:
        """Close at once; what was not sent is dropped."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Stop reading: the reader of the reply is behind."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again; does nothing on a connection that is closed."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclasses
        self._open_connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._reply is None:
            self.abort()  # an idle connection has nothing to say
        else:
            self._reply.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_connections.discard(self)
        self.lost.set_result(None)
        if self._reply is not None:
            self._reply.connection_lost(exc)


class _HttpReply:
    """The reply to one request: the callbacks of its parser, and what its reader sees.

    Mutable state: the head, the buffered chunks, and how the exchange has ended (`_complete`,
    `_error`, or neither while it runs; `was_never_begun` when the connection was closed before the
    first byte).
    """

    def __init__(
        self,
        request: Request,
        connection: _Connection,
        on_end: Callable[["_HttpReply"], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.request = request
        self.connection = connection
        self.status = 0
        self.headers: dict[str, str] = {}
        self.head: asyncio.Future[None] = loop.create_future()
        self.was_never_begun = False
        self._nothing_received = True
        self._parser = httptools.HttpResponseParser(self)
        self._on_end = on_end
        self._ended = False
        self._complete = False
        self._keep_alive = False
        self._error: ConnectionFailed | None = None
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._paused = False
        self._reader: asyncio.Future[None] | None = None
        self._timer = loop.call_later(request.timeout_s, self._time_out)

    @property
    def leaves_connection_usable(self) -> bool:
        """Whether the exchange has ended so that the next one can follow on its connection."""
        return self._complete and self._keep_alive

    # The reader's side.

    async def read(self) -> bytes:
        """The rest of the body."""
        try:
            parts = [chunk async for chunk in self.chunks()]
        finally:
            self.give_up()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives: whatever is there, in one piece."""
        while True:
            if self._chunks:
                data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
                self._chunks.clear()
                self._buffered = 0
                self._resume()
                yield data
            elif self._complete:
                return
            elif self._error is not None:
                raise self._error
            else:
                self._reader = asyncio.get_running_loop().create_future()
                try:
                    await self._reader
                finally:
                    self._reader = None

    async def aclose(self) -> None:
        """Give the connection up, unless the reply is complete."""
        self.give_up()

    def give_up(self) -> None:
        """As `aclose`; does nothing when the exchange has ended."""
        if not self._ended:
            self._fail("the reply was closed by its reader")

    # The connection's side.

    def feed(self, data: bytes) -> None:
        """Parse what has arrived."""
        self._nothing_received = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            self._fail(f"the server sent no valid HTTP reply: {exc}")

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of the connection ends the exchange, well only for a body without a length."""
        if self._ended:
            return
        framed = "content-length" in self.headers or "transfer-encoding" in self.headers
        if self.status and not framed and exc is None:
            self._end_complete()
            return
        self.was_never_begun = self._nothing_received
        cause = str(exc) if exc else "the server closed the connection"
        self._fail(f"{cause} {'in the middle of' if self.status else 'before'} the reply")

    def on_message_begin(self) -> None:
        """A second message on one exchange is nothing that was asked for."""
        if self._ended:
            self.connection.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, of the final or of an interim reply."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is there; interim replies (1xx) do not count."""
        status = self._parser.get_status_code()
        if self._ended:
            return
        if status < 200:
            self.headers.clear()
            return
        self.status = status
        self._keep_alive = self._parser.should_keep_alive()
        if self.request.streamed:
            self._timer.cancel()
        if not self.head.done():
            self.head.set_result(None)

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self._ended:
            return
        self._chunks.append(data)
        self._buffered += len(data)
        if self._buffered > MAX_BUFFERED_BYTES and not self._paused:
            self._paused = True
            self.connection.pause()
        self._wake()

    def on_message_complete(self) -> None:
        """The reply is complete, unless it was an interim one."""
        if self.status:
            self._end_complete()

    # How it ends.

    def _end_complete(self) -> None:
        self._complete = True
        self._resume()
        self._end()

    def _time_out(self) -> None:
        what = "complete reply" if self.status else "reply"
        self._fail(f"no {what} within {self.request.timeout_s:g} s")

    def _fail(self, message: str) -> None:
        self._error = ConnectionFailed(message, request=str(self.request))
        self._end()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._timer.cancel()
        self.connection.end()
        if not self.head.done():
            if self._error is not None:
                self.head.set_exception(self._error)
            else:
                self.head.set_result(None)
        self._wake()
        self._on_end(self)

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self.connection.resume()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
