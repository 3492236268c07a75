"""Bodies of requests: what their content type is, and how much of them is read.

JSON, YAML and, for built-in kinds, protobuf are read; anything else is refused with the status code
that tells a client to fall back.
"""

from typing import Final

from starlette.requests import ClientDisconnect, Request

from kthena.local.apiserver import errors
from kthena.local.apiserver.dialect import Dialect
from kthena.local.apiserver.mediatypes import JSON
from kthena.local.apiserver.negotiation import is_media_type, parse_media_type

MAX_BODY_BYTES: Final = 3 * 1024 * 1024
"""The longest body of a request, as kube-apiserver's."""

_MAX_DRAINED_BYTES: Final = 4 * MAX_BODY_BYTES
"""How much of a body beyond the limit is read and dropped, so that its sender sees the reply."""


async def read_body(request: Request) -> bytes:
    """The whole body.

    Raises:
        ApiError: 413, it is too long; 400, the client went away while it sent it.
    """
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size <= MAX_BODY_BYTES:
                chunks.append(chunk)
            else:
                chunks.clear()
                if size > _MAX_DRAINED_BYTES:
                    break
    except ClientDisconnect as exc:
        raise errors.bad_request("the client closed the connection in its request") from exc
    if size > MAX_BODY_BYTES:
        raise errors.too_large(f"limit is {MAX_BODY_BYTES}")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def content_type(request: Request) -> str:
    """The media type of the body without parameters; JSON where the client says nothing."""
    header = request.headers.get("content-type", "")
    return parse_media_type(header).type or JSON


def require_readable(request: Request, dialect: Dialect) -> str:
    """The content type of a body, which is read for kinds of the dialect.

    Raises:
        ApiError: 415, it is not.
    """
    name = content_type(request)
    header = request.headers.get("content-type", "")
    if name not in dialect.body_types or (header and not is_media_type(header)):
        raise errors.unsupported_media_type(dialect.told_types)
    return name
