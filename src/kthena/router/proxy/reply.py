"""The reply to one request: written once, in order, in whatever framing its client understands.

A `Reply` is the sink that an engine's reply is relayed into, and the way local answers leave. The
head is held back until the first byte of the body, so that a small reply is one segment.
"""

from typing import TYPE_CHECKING, Protocol

from kthena.router.proxy.framing import LAST_CHUNK, encode_chunk, status_line
from kthena.router.proxy.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable

_STATUSES_WITHOUT_BODY = frozenset({204, 304})


class ReplyChannel(Protocol):
    """What a reply needs of its connection."""

    @property
    def ending(self) -> bool:
        """Whether the connection takes no further request."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes; after the connection is lost, nothing happens."""
        ...

    def reply_finished(self, *, keep_alive: bool) -> None:
        """The reply is complete: go on to the next request, or close."""
        ...

    def cut(self, *, reset: bool) -> None:
        """Close after what was written.

        With a reset where the end of the connection would mean that the reply is complete.
        """
        ...


class Source(Protocol):
    """Where the body of a reply comes from, able to wait."""

    def pause(self) -> None:
        """Send no more for now."""
        ...

    def resume(self) -> None:
        """Go on."""
        ...


class Reply:
    """One reply.

    Mutable state (class attributes are the defaults): `started` once a head was given (from then on no other reply is possible),
    `finished` once it is complete, `gone` once the client has left before that.
    """

    started: bool = False
    finished: bool = False
    gone: bool = False
    status: int = 0
    source: Source | None = None
    on_gone: "Callable[[], object] | None" = None
    """Called once if the client leaves before the reply is finished."""

    _chunked = False
    _until_close = False
    _no_body = False
    _stalled = False
    _head = b""

    def __init__(self, channel: ReplyChannel, request: Request, *, keep_alive: bool) -> None:
        self._channel = channel
        self._request = request
        self._keep_alive = keep_alive

    def send(self, status: int, fields: bytes, body: bytes) -> None:
        """A whole reply: `fields` are complete header lines without the length."""
        self.start(status, fields, length=len(body))
        if body:
            self.write(body)
        self.finish()

    def start(self, status: int, fields: bytes, *, length: int | None) -> None:
        """Begin the reply. `length` is the size of the body, None when it is not known."""
        self.started = True
        self.status = status
        request = self._request
        self._no_body = request.method == "HEAD" or status in _STATUSES_WITHOUT_BODY
        if self._channel.ending:
            self._keep_alive = False
        if status == 204:
            framing = b""
        elif length is not None:
            framing = b"content-length: %d\r\n" % length
        elif self._no_body:
            framing = b""
        elif request.version == "1.1":
            self._chunked = True
            framing = b"transfer-encoding: chunked\r\n"
        else:
            self._until_close = True
            self._keep_alive = False
            framing = b""
        if not self._keep_alive:
            framing += b"connection: close\r\n"
        elif request.version == "1.0":
            framing += b"connection: keep-alive\r\n"
        self._head = b"%b%b%b\r\n" % (status_line(status), fields, framing)

    def write(self, data: bytes) -> None:
        """Some bytes of the body, never none."""
        if self.gone or self._no_body:
            return
        if self._chunked:
            data = encode_chunk(data)
        if self._head:
            data, self._head = self._head + data, b""
        self._channel.write(data)

    def flush(self) -> None:
        """Send the head, although no byte of the body is here yet."""
        if self._head and not self.gone:
            head, self._head = self._head, b""
            self._channel.write(head)

    def finish(self) -> None:
        """The body is complete; the connection may serve the next request."""
        self.finished = True
        self.source = self.on_gone = None
        if self.gone:
            return
        tail = LAST_CHUNK if self._chunked else b""
        if self._head or tail:
            data, self._head = self._head + tail, b""
            self._channel.write(data)
        self._channel.reply_finished(keep_alive=self._keep_alive)

    def cut(self) -> None:
        """End an incomplete reply so that the client cannot take it for a complete one."""
        if self.gone or self.finished:
            return
        self.flush()
        self.gone = True
        self.source = self.on_gone = None
        self._channel.cut(reset=self._until_close)

    def attach(self, source: Source) -> None:
        """Let back-pressure reach `source` until the reply is finished."""
        self.source = source
        if self._stalled:
            source.pause()

    def stall(self) -> None:
        """The client reads too slowly."""
        self._stalled = True
        if self.source is not None:
            self.source.pause()

    def unstall(self) -> None:
        """The client has caught up."""
        self._stalled = False
        if self.source is not None:
            self.source.resume()

    def client_left(self) -> None:
        """The connection is gone before the reply was finished."""
        self.gone = True
        self.source = None
        callback, self.on_gone = self.on_gone, None
        if callback is not None:
            callback()
