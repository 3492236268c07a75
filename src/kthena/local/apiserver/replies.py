"""HTTP replies: JSON bodies with the headers that clients of the API look at."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kthena.local.apiserver import errors

_HEADERS: Final = {"Cache-Control": "no-cache, private", "Content-Type": "application/json"}
_RAW_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
_MAX_WARNINGS_BYTES: Final = 4096


def json_reply(body: bytes, status: int = 200, warnings: Sequence[str] = ()) -> Response:
    """A reply with an encoded JSON body, which ends in a line break as in the API."""
    response = Response(body + b"\n", status_code=status, headers=_HEADERS)
    response.raw_headers += warning_headers(warnings)
    return response


class StreamedReply:
    """An ASGI response whose JSON body comes in pieces, each made when the last has been taken."""

    def __init__(self, pieces: Iterable[bytes], warnings: Sequence[str] = ()) -> None:
        self._pieces = pieces
        self._headers = [*_RAW_HEADERS, *warning_headers(warnings)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"\n"})


def warning_headers(warnings: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """The headers that carry warnings, each once, as many as have room."""
    headers = []
    size = 0
    for text in dict.fromkeys(warnings):
        value = _warning(text)
        size += len(value)
        if size > _MAX_WARNINGS_BYTES:
            break
        headers.append((b"warning", value))
    return headers


def object_reply(value: Any, status: int = 200, warnings: Sequence[str] = ()) -> Response:
    """A reply with a JSON value."""
    return json_reply(msgspec.json.encode(value), status, warnings)


def error_reply(error: errors.ApiError, warnings: Sequence[str] = ()) -> Response:
    """The reply that an error is."""
    body = msgspec.json.encode(error.status)
    if error.pretty:
        body = msgspec.json.format(body, indent=2)
    response = json_reply(body, error.code, warnings)
    if error.retry_after_s:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def not_found_page() -> Response:
    """The reply for a path that is not of the API at all."""
    headers = {"Cache-Control": "no-cache, private", "X-Content-Type-Options": "nosniff"}
    return Response("404 page not found\n", 404, headers, media_type="text/plain; charset=utf-8")


def _warning(text: str) -> bytes:
    """A warning as RFC 7234 has it; control characters would end the header."""
    clean = "".join(character if character.isprintable() else " " for character in text)
    escaped = clean.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'.encode()
