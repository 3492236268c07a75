"""The head of an engine's reply: what is looked at, what is sent on, and where the body ends."""

from typing import Final, NamedTuple

from kthena.router.proxy.errors import UpstreamProtocolError
from kthena.router.proxy.framing import Header
from kthena.router.proxy.headers import first_value


class ReplyHead(NamedTuple):
    """A status, fields that are looked at, lines that are sent on, and the body's framing."""

    status: int
    known: list[Header]
    lines: list[bytes]
    content_length: int | None
    chunked: bool

    def header(self, name: bytes) -> bytes | None:
        """The first value of a field in `REPLY_FIELDS_INSPECTED` (name in lower case), or None."""
        return first_value(self.known, name)


NO_HEAD: Final = ReplyHead(0, [], [], None, chunked=False)


def read_reply_framing(known: list[Header]) -> tuple[int | None, bool]:
    """The length of a reply's body, if it is given, and whether it is chunked.

    Raises:
        UpstreamProtocolError: it is in a transfer coding that nobody here can take off.
    """
    length, chunked = None, False
    for name, value in known:
        if name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            # Anything else, the parser reads until the connection ends.
            if chunked or value.lower() != b"chunked":
                raise UpstreamProtocolError(f"its transfer coding {value!r} is unknown")
            chunked = True
    return length, chunked
