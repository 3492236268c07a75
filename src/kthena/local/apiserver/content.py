"""Bodies and media types: what a client sends, what it accepts, and how a reply is written.

Only JSON is written; JSON, YAML and, for built-in kinds, protobuf are read. What else a client asks
for is refused with the status codes that tell it to fall back. The forms of a reply are the object
itself, a `Table`, and `PartialObjectMetadata`, asked for by parameters of `Accept` as kubectl does.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from starlette.requests import ClientDisconnect, Request

from kthena.local.apiserver import errors, gojson

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
READABLE: Final = (JSON, YAML)
WRITABLE: Final = (JSON,)

MAX_BODY_BYTES: Final = 3 * 1024 * 1024
"""The longest body of a request, as kube-apiserver's."""

_MAX_DRAINED_BYTES: Final = 4 * MAX_BODY_BYTES
"""How much of a body beyond the limit is read and dropped, so that its sender sees the reply."""


class Form(Enum):
    """The form of a reply; the value is the kind that `as=` names."""

    OBJECT = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


class MediaType(NamedTuple):
    """One alternative of an `Accept` header."""

    type: str
    parameters: dict[str, str]


def parse_media_type(text: str) -> MediaType:
    """A media type with its parameters; names are in lower case."""
    head, *rest = text.split(";")
    parameters = {}
    for part in rest:
        name, _, value = part.partition("=")
        parameters[name.strip().lower()] = value.strip().strip('"')
    return MediaType(head.strip().lower(), parameters)


def parse_accept(header: str) -> list[MediaType]:
    """The alternatives of an `Accept` header, best first."""
    if not header.strip():
        return [MediaType(JSON, {})]
    types = [parse_media_type(part) for part in header.split(",")]
    return sorted(types, key=_quality, reverse=True)


def _quality(media: MediaType) -> float:
    try:
        return float(media.parameters.get("q", "1"))
    except ValueError:
        return 0.0


_FORM_GROUPS: Final = {
    ("meta.k8s.io", "v1"): (Form.TABLE, Form.METADATA, Form.METADATA_LIST),
}


def negotiate(header: str, forms: Sequence[Form]) -> Form:
    """The form that the client likes best among those that the endpoint can give.

    Raises:
        ApiError: 406, there is none.
    """
    unconvertible = False
    for media in parse_accept(header):
        if media.type not in (JSON, "application/*", "*/*"):
            continue
        name = media.parameters.get("as", "")
        if not name:
            return Form.OBJECT
        group = media.parameters.get("g", ""), media.parameters.get("v", "")
        for form in _FORM_GROUPS.get(group, ()):
            if form.value == name and form in forms:
                return form
        unconvertible = True
    if unconvertible:
        raise errors.not_convertible(WRITABLE)
    raise errors.not_acceptable(WRITABLE)


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


def require_readable(request: Request, *, builtin: bool) -> str:
    """The content type of a body that is an object of a built-in kind, or of another one.

    Raises:
        ApiError: 415, it is not read here.
    """
    name = content_type(request)
    readable = (*READABLE, PROTOBUF) if builtin else READABLE
    if name not in readable:
        raise errors.unsupported_media_type(readable)
    return name


class Parsed(NamedTuple):
    """A decoded body and the fields that occurred more than once in it."""

    value: Any
    duplicates: list[str]


def parse_json(body: bytes, *, strict: bool) -> Parsed:
    """A JSON body; `strict` looks for duplicate fields.

    Raises:
        JSONError: it is no JSON, with Go's text.
    """
    value = gojson.decode(body)
    return Parsed(value, gojson.duplicate_fields(body) if strict else [])
