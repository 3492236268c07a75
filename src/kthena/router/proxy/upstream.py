"""The client side of the proxy: connections to engines, and the exchanges on them.

An `UpstreamConnection` owns socket and parser and serves one `Exchange` at a time. An `Exchange` is
one request and its reply, as whoever forwards it sees them: it outlives its turn on a connection, and
may be sent on a second one when the first turns out dead. Everything happens in callbacks, from the
socket to the client's socket, without a task in between.

Mutable state is touched from the loop's thread only.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, cast

import httptools

from kthena.router.address import Address
from kthena.router.body.piece import Piece
from kthena.router.proxy.errors import (
    ConnectionLostError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
)
from kthena.router.proxy.flow_control import PEER_IS_SLOW, ReadGate
from kthena.router.proxy.headers import REPLY_FIELDS_INSPECTED, REPLY_FIELDS_REPLACED
from kthena.router.proxy.liveness import probe_when_silent
from kthena.router.proxy.reply_head import NO_HEAD, ReplyHead, read_reply_framing

if TYPE_CHECKING:
    from kthena.router.proxy.framing import Header

_MAX_HEAD_BYTES: Final = 256 * 1024
_MAX_DISCARDED_BYTES: Final = 256 * 1024
_DISCARD_TIMEOUT_S: Final = 10.0
_JOINED_BODY_BYTES: Final = 64 * 1024
_METHODS_WITHOUT_LENGTH: Final = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


@dataclass(slots=True)
class OutboundRequest:
    """A request to an engine, all but the address.

    `fields` are complete header lines without `Host` and the body's length. `deadline` is the loop
    time by which the reply must have begun.
    """

    method: str
    target: bytes
    fields: bytes
    body: tuple[Piece, ...]
    deadline: float | None = None

    def encode(self, authority: bytes) -> list[Piece]:
        """The bytes to send: one piece for small bodies, so that they leave in one segment."""
        size = sum(map(len, self.body))
        length = b""
        if size or self.method not in _METHODS_WITHOUT_LENGTH:
            length = b"content-length: %d\r\n" % size
        head = b"%b %b HTTP/1.1\r\nhost: %b\r\n%b%b\r\n" % (
            self.method.encode(),
            self.target,
            authority,
            self.fields,
            length,
        )
        if size <= _JOINED_BODY_BYTES:
            return [b"".join((head, *self.body))]
        return [head, *self.body]


class Sink(Protocol):
    """Where the body of a reply goes.

    Nothing is called after `finish`. A sink that cannot go on aborts the exchange itself.
    """

    def write(self, data: bytes) -> None:
        """Some bytes of the body, never none."""
        ...

    def flush(self) -> None:
        """No byte of the body is here yet: what is held back (the head) should leave."""
        ...

    def finish(self) -> None:
        """The body is complete."""
        ...


class Listener(Protocol):
    """Whom an exchange tells how it goes."""

    def on_head(self, exchange: "Exchange") -> None:
        """Status and header fields are here. The body waits until it is relayed or discarded."""
        ...

    def on_end(self, exchange: "Exchange") -> None:
        """It is over: complete, or with a `failure`, before the head or after it. Called once."""
        ...


class Unheard:
    """The listener of an exchange that nobody cares for any more."""

    def on_head(self, exchange: "Exchange") -> None:
        """Let the body go."""
        exchange.discard()

    def on_end(self, exchange: "Exchange") -> None:
        """Nothing."""


_UNHEARD: Final = Unheard()


class Exchange:
    """One request to an engine and its reply.

    Mutable state (class attributes are the defaults): the head once it is here (`status` is 0
    before); at the end `ended`, with `complete` or a `failure`. Between them body bytes wait until a
    sink is attached.
    """

    status: int = 0
    reply: ReplyHead = NO_HEAD
    received: bool = False
    """Whether a byte of a reply has arrived."""
    reused: bool = False
    """Whether it went out on a connection that had served another exchange."""
    ended: bool = False
    complete: bool = False
    failure: UpstreamError | None = None
    connection: "UpstreamConnection | None" = None
    connecting: asyncio.Task[None] | None = None

    _pending: list[bytes] | None = None
    _sink: Sink | None = None
    _timer: asyncio.TimerHandle | None = None

    def __init__(
        self, request: OutboundRequest, listener: Listener, on_end: Callable[[], None]
    ) -> None:
        self.request = request
        self.listener: Listener = listener
        self._on_end = on_end

    def relay(self, sink: Sink) -> None:
        """Send the body to `sink`, beginning with what is already here. Called once."""
        self._sink = sink
        pending, self._pending = self._pending, None
        if pending:
            sink.write(pending[0] if len(pending) == 1 else b"".join(pending))
        elif not self.complete:
            sink.flush()
        if self.complete:
            sink.finish()

    def hand_over(self, listener: Listener) -> None:
        """Let `listener` take the reply, whose head is here; it hears of the end too."""
        self.listener = listener
        listener.on_head(self)
        if self.ended:
            self.listener.on_end(self)

    def discard(self) -> None:
        """Let the reply end unseen, so that its connection can be used again; within bounds."""
        self.listener = _UNHEARD
        if not self.ended:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_DISCARD_TIMEOUT_S, self.abort)
            self.relay(_Discard(self))

    def abandon(self) -> None:
        """Nobody wants the reply: close its connection, so that the engine stops."""
        self.listener = _UNHEARD
        self.abort()

    def abort(self) -> None:
        """End now, if it has not ended, and close the connection."""
        self.fail(ConnectionLostError("the exchange was given up"))

    def fail(self, error: UpstreamError) -> None:
        """End now with an error, if it has not ended, and close the connection."""
        if self.connecting is not None:
            self.connecting.cancel()
        if self.connection is not None:
            self.connection.drop()
        self.end(error)

    def pause(self) -> None:
        """Stop reading the reply: whoever takes it is slow."""
        if self.connection is not None:
            self.connection.gate.hold(PEER_IS_SLOW)

    def resume(self) -> None:
        """Read on."""
        if self.connection is not None:
            self.connection.gate.lift(PEER_IS_SLOW)

    # What its connection tells it

    def begin(self, head: ReplyHead, body: list[bytes]) -> None:
        """The head is here, and perhaps some of the body."""
        self.reply = head
        self.status = head.status
        self._pending = body
        self.listener.on_head(self)

    def more(self, body: list[bytes]) -> None:
        """More of the body is here."""
        if self._sink is not None:
            self._sink.write(body[0] if len(body) == 1 else b"".join(body))
        elif self._pending is None:
            self._pending = body
        else:
            self._pending += body

    def end(self, failure: UpstreamError | None) -> None:
        """It is over."""
        if self.ended:
            return
        self.ended = True
        self.connection = self.connecting = None
        if self._timer is not None:
            self._timer.cancel()
        self._on_end()
        if failure is None:
            self.complete = True
            if self._sink is not None:
                self._sink.finish()
        self.failure = failure
        self.listener.on_end(self)


class _Discard:
    """A sink for a bounded body that nobody reads."""

    __slots__ = ("_exchange", "_left")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._left = _MAX_DISCARDED_BYTES

    def write(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self._exchange.abort()

    def flush(self) -> None:
        """Nothing is held back."""

    def finish(self) -> None:
        """Nothing is left to do."""


class ConnectionOwner(Protocol):
    """What a connection tells the pool that it belongs to."""

    def idle(self, connection: "UpstreamConnection") -> None:
        """It can serve another exchange."""
        ...

    def lost(
        self,
        connection: "UpstreamConnection",
        exchange: Exchange | None,
        error: ConnectionLostError | None,
    ) -> None:
        """It is closed. An exchange that it was serving has not been told."""
        ...


class UpstreamConnection(asyncio.Protocol):
    """One connection to an engine.

    Mutable state: the exchange being served (None while idle), what the parser has seen of its reply,
    and `closed`. Bytes that arrive while idle answer nothing that was asked: the connection is
    closed, since everything after them would be off by one reply.
    """

    def __init__(self, address: Address, owner: ConnectionOwner) -> None:
        self.address = address
        self.closed = False
        self.retired = False
        """Whether it is to be closed after its exchange."""
        self.idle_since = 0.0
        self._owner = owner
        self._opened = False
        # Per exchange.
        self._exchange: Exchange | None = None
        self._head_only = False
        self._status = 0
        self._known: list[Header] = []
        self._lines: list[bytes] = []
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._begun = False
        self._message_complete = False
        self._keep_alive = False
        self._head = NO_HEAD

    def start(self, exchange: Exchange) -> None:
        """Send an exchange's request; the connection is idle and open."""
        request = exchange.request
        exchange.connection = self
        self._exchange = exchange
        self._head_only = request.method == "HEAD"
        self._status = 0
        self._head_bytes = 0
        self._begun = self._message_complete = False
        if self._known or self._lines:
            self._known, self._lines = [], []
        pieces = request.encode(self.address.authority)
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        else:
            self._transport.writelines(pieces)

    @property
    def usable(self) -> bool:
        """Whether an exchange can be started: a loop may know of a loss before it tells."""
        return not self.closed and not self._transport.is_closing()

    def close(self) -> None:
        """Close an idle connection."""
        self.closed = True
        self._transport.close()

    def drop(self) -> None:
        """Close at once, or as soon as it opens; the exchange is not told."""
        self.closed = True
        self._exchange = None
        if self._opened:
            self._transport.abort()

    def sweep(self, now: float) -> None:
        """Fail an exchange whose reply has not begun by its deadline."""
        exchange = self._exchange
        if exchange is None or exchange.status:
            return
        deadline = exchange.request.deadline
        if deadline is not None and now >= deadline:
            exchange.fail(UpstreamTimeoutError("the engine did not answer in time"))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast("asyncio.Transport", transport)
        self._opened = True
        if self.closed:
            self._transport.abort()
        else:
            probe_when_silent(self._transport)
        self.gate = ReadGate(self._transport)
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of a reply."""
        exchange = self._exchange
        if exchange is None:
            self.drop()
            return
        exchange.received = True
        error: UpstreamError | None = None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            self._keep_alive = False
            if not self._message_complete:
                why = exc.__context__ or exc
                error = UpstreamProtocolError(f"the reply is not HTTP/1.1: {why}")
        self._tell(exchange, len(data))
        if error is not None:
            exchange.fail(error)

    def eof_received(self) -> None:
        """The engine sends no more: the end of a reply without a length, else a loss."""
        self.closed = True
        head = self._head
        until_close = head.content_length is None and not head.chunked
        if self._exchange is not None and self._begun and until_close:
            self._keep_alive = False
            self._message_complete = True
            self._tell(self._exchange, 0)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self.closed = True
        exchange, self._exchange = self._exchange, None
        error = None
        if exchange is not None:
            why = f": {exc}" if exc else ""
            error = ConnectionLostError(
                f"the engine closed the connection before its reply was complete{why}"
            )
        self._owner.lost(self, exchange, error)

    # httptools callbacks

    def on_message_begin(self) -> None:
        """A message begins; what follows a reply answers nothing and spoils the connection."""
        if self._message_complete:
            self._keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field, or a trailer, which ends here."""
        name, value = name.lower(), value.rstrip(b" ")  # the parser leaves trailing blanks
        if name in REPLY_FIELDS_INSPECTED:
            self._known.append((name, value))
            if name in REPLY_FIELDS_REPLACED:
                return
        self._lines.append(b"%b: %b\r\n" % (name, value))

    def on_headers_complete(self) -> None:
        """The head of a reply; informational ones end here."""
        known, self._known = self._known, []
        lines, self._lines = self._lines, []
        status = self._parser.get_status_code()
        if status < 200 or self._message_complete:
            return
        self._head = ReplyHead(status, known, lines, *read_reply_framing(known))
        self._status = status
        self._keep_alive = self._parser.should_keep_alive()
        if self._head_only:
            self._message_complete = True
            self._keep_alive = False

    def on_body(self, data: bytes) -> None:
        """Bytes of the body, without chunk framing."""
        if not self._message_complete:
            self._body.append(data)

    def on_message_complete(self) -> None:
        """The reply has ended; an informational one has not answered the request."""
        if self._status:
            self._message_complete = True

    def _tell(self, exchange: Exchange, size: int) -> None:
        """Tell the exchange what the last bytes held; the connection is free before it hears."""
        body, complete = self._body, self._message_complete
        if body:
            self._body = []
        if complete:
            self._exchange = None
            # An engine that answers before it has read the request may never read the rest.
            if self._keep_alive and not self._transport.get_write_buffer_size():
                self.gate.lift(PEER_IS_SLOW)
                self._owner.idle(self)
            else:
                self.close()
            exchange.connection = None
        if self._status and not self._begun:
            self._begun = True
            exchange.begin(self._head, body)
        elif body:
            exchange.more(body)
        elif not self._status:
            self._head_bytes += size
            if self._head_bytes > _MAX_HEAD_BYTES:
                exchange.fail(UpstreamProtocolError("the head of the reply is too large"))
        if complete:
            exchange.end(None)
