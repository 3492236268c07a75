"""Which header fields cross the router, and what it adds.

Hop-by-hop fields (RFC 9110, 7.6.1) and those that `Connection` names end here, in both directions.
Towards an engine `Host` is the endpoint, `X-Forwarded-*` tell who asked, and `X-Request-Id` is kept
or made; credentials pass, since engines may ask for them. No `Via` is added, since engines have no
use for it.

While a head is parsed, fields that the router looks at are kept as pairs, and those that cross it
become lines at once: most are never looked at again.
"""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from kthena.router.proxy.framing import Header
from kthena.router.proxy.request import Request

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
REQUEST_FIELDS_REPLACED: Final = HOP_BY_HOP | {
    b"content-length",
    b"expect",
    b"host",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-request-id",
}
"""Fields of a request that end here or are written anew."""

REQUEST_FIELDS_INSPECTED: Final = REQUEST_FIELDS_REPLACED | {b"content-encoding", b"content-type"}
"""Fields of a request that are kept as pairs."""

REPLY_FIELDS_REPLACED: Final = HOP_BY_HOP | {b"content-length", b"x-request-id"}
"""Fields of a reply that end here or are written anew."""

REPLY_FIELDS_INSPECTED: Final = REPLY_FIELDS_REPLACED | {b"content-type", b"retry-after"}
"""Fields of a reply that are kept as pairs."""

_REQUEST_ID = re.compile(rb"[!#-\[\]-~]{1,128}")  # visible ASCII without quote and backslash


def connection_tokens(value: bytes) -> frozenset[bytes]:
    """The options of a `Connection` field, in lower case."""
    return frozenset(token.strip().lower() for token in value.split(b","))


def keeps_alive(tokens: frozenset[bytes], version: str) -> bool:
    """Whether the sender of these connection options can use the connection once more."""
    if b"close" in tokens:
        return False
    return version == "1.1" or b"keep-alive" in tokens


def first_value(headers: Iterable[Header], name: bytes) -> bytes | None:
    """The value of the first field of that name (lower case), or None."""
    for field, value in headers:
        if field == name:
            return value
    return None


def usable_request_id(value: bytes) -> str | None:
    """The client's request id, or None where it may not go into logs and headers."""
    if _REQUEST_ID.fullmatch(value) is None:
        return None
    return value.decode("ascii")


def join_lines(lines: list[bytes], dropped: AbstractSet[bytes]) -> bytes:
    """Header lines as they are sent, without those of the fields `dropped`."""
    if dropped:
        lines = [line for line in lines if line.partition(b":")[0] not in dropped]
    return b"".join(lines)


def upstream_fields(request: Request, dropped: frozenset[bytes], request_id: str) -> bytes:
    """The header lines of a request to an engine, all but `Host` and the body's length.

    `dropped` are fields that end here beyond those which always do. `X-Forwarded-For` is extended by
    the client's address; `X-Forwarded-Host` and `-Proto` of a proxy in front are kept.
    """
    known = request.known
    client, tokens = request.client.encode(), request.connection_tokens
    hops = known.get(b"x-forwarded-for")
    return (
        b"%bx-request-id: %b\r\nx-forwarded-for: %b\r\nx-forwarded-host: %b\r\nx-forwarded-proto: %b\r\n"
        % (
            join_lines(request.lines, dropped | tokens if tokens else dropped),
            request_id.encode(),
            client if hops is None else b"%b, %b" % (hops, client),
            known.get(b"x-forwarded-host") or known.get(b"host", b""),
            known.get(b"x-forwarded-proto", b"http"),
        )
    )
