"""The server side of the proxy: one connection of a client, read into requests answered in order.

A connection parses one request at a time; what a client pipelines waits as raw bytes. While a
request is being answered its connection is still read, so that a client that leaves is noticed at
once and its reply is told (`Reply.on_gone`). A client that closes its sending side has left: as in
Go's net/http, there are no half-open clients.

Deadlines (head, body, idle, stalled writes) are attributes that one sweep per server compares with
the clock: a timer for each would cost more than the parsing.
"""

import asyncio
import socket
import struct
from collections import deque
from typing import Final, Protocol, cast

import httptools

from kthena.router.proxy.errors import RouterError
from kthena.router.proxy.flow_control import REQUEST_IN_PROGRESS, ReadGate
from kthena.router.proxy.framing import (
    CONTINUE,
    NO_BODY,
    Header,
    bad_request,
    body_too_large,
    buffers_full,
    chunks_too_small,
    head_too_large,
    read_framing,
    settle_repeated,
    split_target,
    too_slow,
)
from kthena.router.proxy.headers import (
    REQUEST_FIELDS_INSPECTED,
    REQUEST_FIELDS_REPLACED,
    connection_tokens,
    keeps_alive,
)
from kthena.router.proxy.limits import Limits
from kthena.router.proxy.liveness import probe_when_silent
from kthena.router.proxy.reply import Reply
from kthena.router.proxy.request import Request

_FEED_BYTES: Final = 64 * 1024
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class Handler(Protocol):
    """What answers requests."""

    def __call__(self, request: Request, reply: Reply) -> None:
        """Answer now or later, exactly once; a `request.refusal` is answered as it is."""
        ...


class ServerState:
    """What the connections of one server share.

    Mutable state: the open connections, the bytes of request bodies that are held, and whether the
    server is ending or has ended.
    """

    def __init__(self, limits: Limits, handler: Handler) -> None:
        self.limits = limits
        self.handler = handler
        self.connections: set[ClientConnection] = set()
        self.buffered_bytes = 0
        self.ending = False
        self.ended = False
        self.drained: asyncio.Future[None] | None = None

    def forget(self, connection: "ClientConnection") -> None:
        """A connection is closed."""
        self.connections.discard(connection)
        if self.drained is not None and not self.connections and not self.drained.done():
            self.drained.set_result(None)


class ClientConnection(asyncio.Protocol):
    """One connection of a client.

    Mutable state of the connection: the request being read, requests and bytes that wait their turn,
    the reply being written, and the deadline for whatever the client has to do next.
    """

    def __init__(self, state: ServerState, loop: asyncio.AbstractEventLoop) -> None:
        self._state = state
        self._limits = state.limits
        self._loop = loop
        self._deadline: float | None = None
        self._reply: Reply | None = None
        self._reply_body_bytes = 0
        self._queue: deque[Request] = deque()
        self._held = bytearray()
        self._advancing = False
        self._write_paused = False
        self._refused = False
        self._lingering = False
        self._closed = False
        # The request being read.
        self._reading = False
        self._in_body = False
        self._head_timed = False
        self._url = b""
        self._known: list[Header] = []
        self._lines: list[bytes] = []
        self._framing = NO_BODY
        self._request: Request | None = None
        self._body: list[bytes] = []
        self._reserved = 0
        self._wire_bytes = 0
        self._continue_due = False
        self._body_of_upgrade = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        probe_when_silent(self._transport)
        self._gate = ReadGate(self._transport)
        self._parser = httptools.HttpRequestParser(self)
        peer = transport.get_extra_info("peername")
        self._client = str(peer[0]) if isinstance(peer, tuple) else ""
        self._state.connections.add(self)
        self._expect_within(self._limits.head_timeout_s)
        if self._state.ended:  # it was being accepted meanwhile, and nobody sweeps any more
            self.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes of a client."""
        if self._lingering:
            return
        if self._reply is not None:
            self._hold(data)
        else:
            self._feed(data)
            self._advance()

    def eof_received(self) -> None:
        """The client has left. The socket closes by itself, but not before it has taken what waits.

        The engine is stopped now: a client that reads no more would keep it busy meanwhile.
        """
        self._closed = True
        reply = self._take_reply()
        if reply is not None:
            reply.client_left()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        del exc
        self._closed = True
        self._deadline = None
        self._state.forget(self)
        self._forget_body()
        for request in self._queue:
            self._state.buffered_bytes -= len(request.body)
        self._queue.clear()
        reply = self._take_reply()
        if reply is not None:
            reply.client_left()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._write_paused = True
        self._expect_within(self._limits.write_stall_timeout_s)
        if self._reply is not None:
            self._reply.stall()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._write_paused = False
        if self._reply is not None:
            self._deadline = None
            self._reply.unstall()
        elif not self._lingering and not self._closed:
            self._await_client()

    # What the server asks of a connection

    @property
    def idle(self) -> bool:
        """Whether no request is being read or answered."""
        return self._reply is None and not self._reading

    def sweep(self, now: float) -> None:
        """Act on a deadline that has passed."""
        if self._deadline is None or now < self._deadline:
            return
        self._deadline = None
        if self._reading and self._reply is None and not self._lingering:
            self._refuse(too_slow("body" if self._in_body else "head"))
            self._advance()
        else:
            self._closed = True
            self._transport.abort()

    def end(self) -> None:
        """Close now if idle; a request in progress is answered first."""
        if self.idle and not self._lingering:
            self._close()

    def abort(self) -> None:
        """Close at once."""
        self._closed = True
        self._transport.abort()

    # What a reply asks of its connection (ReplyChannel)

    @property
    def ending(self) -> bool:
        """Whether the connection takes no further request."""
        return self._state.ending

    def write(self, data: bytes) -> None:
        """Send bytes; nothing happens after the connection is lost."""
        if not self._closed and not self._transport.is_closing():
            self._transport.write(data)

    def cut(self, *, reset: bool) -> None:
        """Close after what was written; with a reset where an ordinary end would mislead."""
        self._closed = True
        if not reset or self._transport.is_closing():
            self._transport.close()
            return
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()

    def reply_finished(self, *, keep_alive: bool) -> None:
        """Go on to the next request, or close."""
        self._take_reply()
        if self._closed:
            return
        if keep_alive and not self._state.ending:
            self._advance()
        else:
            self._linger()

    # Answering

    def _advance(self) -> None:
        """Answer what is complete, then read on what was held."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._reply is None and not self._closed and not self._lingering:
                if self._queue:
                    self._answer(self._queue.popleft())
                elif self._held:
                    held, self._held = bytes(self._held), bytearray()
                    self._feed(held)
                else:
                    self._await_client()
                    return
        finally:
            self._advancing = False

    def _answer(self, request: Request) -> None:
        if not self._write_paused:
            self._deadline = None
        self._reply = reply = Reply(self, request, keep_alive=request.keep_alive)
        self._reply_body_bytes = len(request.body)
        if self._write_paused:
            reply.stall()
        self._state.handler(request, reply)

    def _take_reply(self) -> Reply | None:
        """The reply in progress, which from here on is no longer in progress."""
        reply, self._reply = self._reply, None
        self._state.buffered_bytes -= self._reply_body_bytes
        self._reply_body_bytes = 0
        return reply

    def _await_client(self) -> None:
        """Nothing can go on before the client sends more: read, and say for how long."""
        self._gate.lift(REQUEST_IN_PROGRESS)
        if not self._reading:
            self._expect_within(self._limits.idle_timeout_s)
        elif self._in_body:
            if self._continue_due:
                self._continue_due = False
                self.write(CONTINUE)
            self._expect_within(self._limits.body_idle_timeout_s)
        elif not self._head_timed:
            self._head_timed = True
            self._expect_within(self._limits.head_timeout_s)

    def _linger(self) -> None:
        """Close, but let the client read the reply first: closing with unread bytes resets it."""
        self._lingering = True
        self._held.clear()
        self._gate.lift(REQUEST_IN_PROGRESS)
        closing = self._transport.is_closing()
        if self._reading and not closing and self._transport.can_write_eof():
            self._transport.write_eof()
            self._expect_within(self._limits.linger_s)
        else:
            self._close()

    def _close(self) -> None:
        self._closed = True
        self._transport.close()

    def _expect_within(self, seconds: float) -> None:
        self._deadline = self._loop.time() + seconds

    # Reading

    def _hold(self, data: bytes) -> None:
        self._held += data
        if len(self._held) > self._limits.max_pipelined_bytes:
            self._gate.hold(REQUEST_IN_PROGRESS)

    def _feed(self, data: bytes) -> None:
        """Parse in pieces of bounded size; what follows a complete request waits."""
        if len(data) <= _FEED_BYTES:
            self._feed_piece(data)
            return
        for start in range(0, len(data), _FEED_BYTES):
            self._feed_piece(data[start : start + _FEED_BYTES])
            if self._queue:
                self._held += data[start + _FEED_BYTES :]
                return

    def _feed_piece(self, piece: bytes) -> None:
        while piece:
            self._wire_bytes += len(piece)
            try:
                self._parser.feed_data(piece)
                self._check_progress()
            except httptools.HttpParserUpgrade as upgrade:
                piece = self._ignore_upgrade(piece[upgrade.args[0] :])
                continue
            except httptools.HttpParserError as exc:
                # Whatever follows a request that asked to close the connection is not read.
                if not self._queue or self._queue[-1].keep_alive:
                    self._refuse(bad_request(f"the request is not HTTP/1.1: {exc}"))
            return

    def _check_progress(self) -> None:
        """Refuse a request that grows beyond the limits before it is complete."""
        if not self._reading or self._refused:
            return
        limits = self._limits
        if not self._in_body:
            fields = len(self._known) + len(self._lines)
            if self._wire_bytes > limits.max_head_bytes or fields > limits.max_headers:
                self._refuse(head_too_large(limits))
        elif self._framing.chunked and chunks_too_small(self._wire_bytes, self._reserved, limits):
            self._refuse(bad_request("the chunks of the request body are too small"))

    def _ignore_upgrade(self, rest: bytes) -> bytes:
        """What to parse instead of an upgrade, which a server may ignore.

        llhttp leaves everything after such a head to the new protocol, so the body is read by a
        fresh parser behind a head that frames it the same way.
        """
        if self._refused:
            return b""
        self._parser = httptools.HttpRequestParser(self)
        self._body_of_upgrade = True
        if self._framing.chunked:
            framing = b"transfer-encoding: chunked\r\n"
        else:
            framing = b"content-length: %d\r\n" % self._framing.content_length
        return b"POST / HTTP/1.1\r\nhost: x\r\n%b\r\n%b" % (framing, rest)

    def _refuse(self, error: RouterError) -> None:
        """Answer with an error after the requests before it, and read nothing else."""
        self._refused = True
        self._reading = True
        self._forget_body()
        self._held.clear()
        request = self._request or Request("GET", "1.1", self._client, {}, [])
        request.refusal = error
        request.keep_alive = False
        self._queue.append(request)

    def _forget_body(self) -> None:
        self._state.buffered_bytes -= self._reserved
        self._body = []
        self._reserved = 0

    # httptools callbacks

    def on_url(self, url: bytes) -> None:
        """A part of the request target; the first one begins a request."""
        if not self._body_of_upgrade:
            self._reading = True
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field, or a trailer, which ends here."""
        name, value = name.lower(), value.rstrip(b" ")  # the parser leaves trailing blanks
        if name in REQUEST_FIELDS_INSPECTED:
            self._known.append((name, value))
            if name in REQUEST_FIELDS_REPLACED:
                return
        self._lines.append(b"%b: %b\r\n" % (name, value))

    def on_headers_complete(self) -> None:
        """The head is complete."""
        known, self._known = self._known, []
        lines, self._lines = self._lines, []
        if self._refused or self._body_of_upgrade:
            return
        self._in_body = True
        version = self._parser.get_http_version()
        method = self._parser.get_method().decode("ascii")
        try:
            request = Request(method, version, self._client, settle_repeated(known), lines)
            self._request = request
            self._check_head(request, len(known))
        except RouterError as error:
            self._refuse(error)

    def on_body(self, data: bytes) -> None:
        """Bytes of the body, without chunk framing, counted as they come.

        A length that is only announced takes no memory, so it must not keep others out.
        """
        if self._refused:
            return
        self._body.append(data)
        self._reserved += len(data)
        self._state.buffered_bytes += len(data)
        if self._reserved > self._limits.max_body_bytes:
            self._refuse(body_too_large(self._limits.max_body_bytes))
        elif self._state.buffered_bytes > self._limits.max_buffered_bytes:
            self._refuse(buffers_full())

    def on_message_complete(self) -> None:
        """A request is complete, unless its body follows a wish to upgrade."""
        request = self._request
        if self._refused or request is None:
            return
        if self._parser.should_upgrade() and not self._body_of_upgrade:
            return
        body = self._body
        request.body = body[0] if len(body) == 1 else b"".join(body)
        self._queue.append(request)
        self._request = None
        self._url = b""
        self._body = []
        self._reserved = self._wire_bytes = 0
        self._reading = self._in_body = self._head_timed = False
        self._continue_due = self._body_of_upgrade = False

    def _check_head(self, request: Request, known_fields: int) -> None:
        """Raises RouterError for a request that need not be read any further."""
        limits, known = self._limits, request.known
        if known_fields + len(request.lines) > limits.max_headers or (
            self._wire_bytes > limits.max_head_bytes and _size_of(request) > limits.max_head_bytes
        ):
            raise head_too_large(limits)
        if request.method == "CONNECT":
            raise bad_request("this is no tunnel: CONNECT is not served", status=405)
        framing = self._framing = read_framing(known, request.version)
        if len(self._url) > limits.max_target_bytes:
            raise bad_request(
                f"the request target is longer than {limits.max_target_bytes} bytes", status=414
            )
        request.target, request.path = split_target(self._url)
        connection = known.get(b"connection")
        if connection is not None:
            request.connection_tokens = connection_tokens(connection)
        request.keep_alive = keeps_alive(request.connection_tokens, request.version)
        length = framing.content_length
        self._continue_due = framing.expects_continue
        if length:
            if length > limits.max_body_bytes:
                raise body_too_large(limits.max_body_bytes)
            if self._state.buffered_bytes + length > limits.max_buffered_bytes:
                raise buffers_full()


def _size_of(request: Request) -> int:
    known = sum(len(name) + len(value) + 4 for name, value in request.known.items())
    return known + sum(map(len, request.lines))
