"""Where a message begins and ends, and which requests are refused before anybody looks inside.

llhttp parses strictly: CL with TE, repeated or signed lengths, obs-fold, bare line feeds, blanks in
chunk sizes and unknown transfer codings never come through. This module adds what a parser leaves to
its user: Host, version, transfer codings that nobody here decodes, the form of the target, and the
refusals of what passes a limit.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from kthena.router.proxy.errors import RouterError
from kthena.router.proxy.limits import Limits
from kthena.router.reasons import Reason

Header = tuple[bytes, bytes]
"""A header field: its name in lower case, its value as sent."""

LAST_CHUNK: Final = b"0\r\n\r\n"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}

_LIST_FIELDS: Final = frozenset({b"connection", b"x-forwarded-for"})
_ABSOLUTE_FORM = re.compile(rb"https?://[^/?#]*", re.IGNORECASE)
_CHUNK_OVERHEAD_FACTOR = 16
_DOT_SEGMENTS = frozenset({".", ".."})
_CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f]")


def status_line(status: int) -> bytes:
    """The first line of a reply; statuses without a registered phrase get none."""
    return STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def encode_chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; `data` is not empty, since an empty chunk ends the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def bad_request(message: str, *, status: int = 400) -> RouterError:
    """The refusal of a request that is not HTTP as it should be."""
    return RouterError(status, Reason.REQUEST_PARSING, message)


def body_too_large(limit: int) -> RouterError:
    """The refusal of a body above the limit, which it names."""
    return RouterError(
        413,
        Reason.BODY_TOO_LARGE,
        f"the request body is larger than the limit of {limit} bytes (max_body_bytes)",
    )


def head_too_large(limits: Limits) -> RouterError:
    """The refusal of a head above the limits, which it names."""
    return bad_request(
        f"the request head is larger than {limits.max_head_bytes} bytes "
        f"or {limits.max_headers} fields",
        status=431,
    )


def too_slow(part: str) -> RouterError:
    """The refusal of a request whose head or body did not arrive in time."""
    return RouterError(
        408, Reason.REQUEST_TIMEOUT, f"the {part} of the request did not arrive in time"
    )


def buffers_full() -> RouterError:
    """The refusal of a body while those of other requests fill the memory set aside for them."""
    return RouterError(
        503,
        Reason.OVERLOADED,
        "the router holds as many request bodies as it may (max_buffered_bytes); try again",
        retry_after_s=1,
    )


def chunks_too_small(wire_bytes: int, body_bytes: int, limits: Limits) -> bool:
    """Whether a chunked body costs far more on the wire than it carries.

    Extensions, tiny chunks and trailers cost work without ever reaching the body limit.
    """
    return wire_bytes > limits.max_head_bytes + _CHUNK_OVERHEAD_FACTOR * body_bytes


def settle_repeated(fields: list[Header]) -> dict[bytes, bytes]:
    """Fields by name: lists (`Connection`, `X-Forwarded-For`) are joined, else the first counts.

    Raises:
        RouterError: 400 for more than one Host.
    """
    known = dict(fields)
    if len(known) == len(fields):
        return known
    known.clear()
    for name, value in fields:
        if name not in known:
            known[name] = value
        elif name in _LIST_FIELDS:
            known[name] += b", " + value
        elif name == b"host":
            raise bad_request("a request needs exactly one Host header")
    return known


class Framing(NamedTuple):
    """How the body of a request arrives. Without a length and not chunked there is none."""

    content_length: int
    chunked: bool
    expects_continue: bool


NO_BODY: Final = Framing(0, chunked=False, expects_continue=False)


def read_framing(known: Mapping[bytes, bytes], version: str) -> Framing:
    """The framing of a request's body.

    Raises:
        RouterError: 400, 417, 501 or 505.
    """
    if version not in {"1.1", "1.0"}:
        raise bad_request(f"HTTP/{version} is not spoken here; use HTTP/1.1", status=505)
    if version == "1.1" and b"host" not in known:
        raise bad_request("a request needs exactly one Host header")
    length = int(known.get(b"content-length", b"0"))
    coding = known.get(b"transfer-encoding")
    if coding is not None:
        _check_transfer_encoding(coding, version)
    if not length and coding is None:
        return NO_BODY
    expectation = known.get(b"expect")
    if expectation is not None and expectation.lower() != b"100-continue":
        raise bad_request("the only known expectation is 100-continue", status=417)
    return Framing(length, coding is not None, expectation is not None and version == "1.1")


def _check_transfer_encoding(value: bytes, version: str) -> None:
    if version == "1.0":
        raise bad_request("HTTP/1.0 has no Transfer-Encoding")
    if value.lower() != b"chunked":
        raise bad_request("the only known transfer coding is chunked", status=501)


@lru_cache(maxsize=1024)
def split_target(target: bytes) -> tuple[bytes, str]:
    """The target in origin form as it is sent on, and its decoded path without the query.

    Raises:
        RouterError: 400 for a target that is no path, or whose path could mean another one to the
            engine (dot segments, control characters, bytes that are not UTF-8).
    """
    if target[:1] != b"/":
        authority = _ABSOLUTE_FORM.match(target)
        if authority is None:
            raise bad_request("the request target is neither a path nor an http URL")
        target = target[authority.end() :]
        if target[:1] != b"/":
            target = b"/" + target
    if b"#" in target:
        raise bad_request("the request target has a fragment")
    path = _decode_path(target.partition(b"?")[0])
    return target, path


def _decode_path(raw: bytes) -> str:
    try:
        path = (unquote_to_bytes(raw) if b"%" in raw else raw).decode()
    except UnicodeDecodeError as exc:
        raise bad_request("the request path is not UTF-8") from exc
    if _CONTROL_CHARACTERS.search(path):
        raise bad_request("the request path has control characters")
    if "/." in path and not _DOT_SEGMENTS.isdisjoint(path.split("/")):
        raise bad_request("the request path has dot segments")
    return path
