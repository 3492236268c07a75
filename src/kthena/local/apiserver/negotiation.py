"""What a client accepts: the media types and forms of a reply, as its headers name them.

Only JSON is written. The forms of a reply are the object itself, a `Table`, and
`PartialObjectMetadata`, asked for by parameters of `Accept` as kubectl does.
"""

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from kthena.local.apiserver import errors
from kthena.local.apiserver.mediatypes import JSON

WRITABLE: Final = (JSON,)

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER: Final = rf'\s*;\s*{_WORD}\s*=\s*(?:{_WORD}|"(?:[^"\\]|\\.)*")'
_MEDIA_TYPE: Final = re.compile(rf"\s*{_WORD}(?:/{_WORD})?(?:{_PARAMETER})*\s*;?\s*")
_PARAMETER_NAME: Final = re.compile(rf";\s*({_WORD})\s*=")


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


def is_media_type(text: str) -> bool:
    """Whether a text is one media type with parameters that each have a name, once, and a value."""
    names = [name.lower() for name in _PARAMETER_NAME.findall(text)]
    return bool(_MEDIA_TYPE.fullmatch(text)) and len(names) == len(set(names))


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
