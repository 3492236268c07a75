"""Connections: uvicorn's, with limits on the head of a request.

uvicorn reads heads of any length, for any time, before the token in them is looked at. Here a head
that is too long is answered with 431, and a connection on which none is complete in time is closed,
as kube-apiserver does both. Bodies are limited where they are read.
"""

import asyncio
import re
from enum import Enum, auto
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

MAX_HEAD_BYTES: Final = 1024 * 1024

_TOO_LONG: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 35\r\nconnection: close\r\n\r\n"
    b"431 Request Header Fields Too Large"
)


_METHOD: Final = re.compile(rb"\A([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?= )")
_PARSED_METHODS: Final = frozenset(
    (b"CONNECT", b"DELETE", b"GET", b"HEAD", b"OPTIONS", b"PATCH", b"POST", b"PUT", b"TRACE")
)
_OTHER_METHOD: Final = b"PURGE"
"""A method that the parser knows and the API does not, in place of those that neither knows."""


def _known_method(match: re.Match[bytes]) -> bytes:
    return match[0] if match[0] in _PARSED_METHODS else _OTHER_METHOD


class _Reading(Enum):
    """The part of a request that comes next."""

    NOTHING = auto()
    HEAD = auto()
    BODY = auto()


class Connection(HttpToolsProtocol):
    """Mutable state: what is being read, the size of a head so far, and the timer that ends it."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        head_timeout_s: float,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._head_timeout_s = head_timeout_s
        self._reading = _Reading.NOTHING
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has to say what it wants in time."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """No more is to come."""
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what belongs to a head, and let the parser have it."""
        if self._waits_for_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.write(_TOO_LONG)
                self.transport.close()
                return
        if self._reading is _Reading.NOTHING:
            data = _METHOD.sub(_known_method, data, count=1)
        super().data_received(data)
        if self._waits_for_head and not self.transport.is_closing():
            self._await_head()
        else:
            self._end_head()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._reading = _Reading.HEAD
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._reading = _Reading.BODY
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is there too."""
        self._reading = _Reading.NOTHING
        super().on_message_complete()

    @property
    def _waits_for_head(self) -> bool:
        """Whether a head comes next, and no reply is under way that may take as long as it likes."""
        cycle: RequestResponseCycle | None = self.cycle
        if self._reading is _Reading.NOTHING:
            return cycle is None or cycle.response_complete
        return self._reading is _Reading.HEAD

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_timeout_s, self.transport.close)

    def _end_head(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
