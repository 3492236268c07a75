"""Field paths of rules (`.spec.roles`, `['a.b'].c`): parsing, and looking them up in a schema.

Follows apiextensions' `ValidFieldPath`: names only, no list index; a quoted name takes the escapes of
a JSONPath string.
"""

import re
from collections.abc import Iterator

from kthena.machinery.fields import child, item
from kthena.machinery.schema.structural import StructuralSchema

_TOKEN = re.compile(r"'(?:.*?)(?<!\\)'|[.\[\]]|[^.\[\]']+[^.\[\]]*|'.*", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "'": "'",
    "\\": "\\",
}


class FieldPathError(ValueError):
    """A field path that is malformed, or names nothing in the schema."""


def resolve_field_path(text: str, schema: StructuralSchema) -> str:
    """The path as error messages write it, relative to a node: `spec.roles`, `spec[a.b]`.

    Raises:
        FieldPathError: the path is malformed, or leads outside of the schema.
    """
    path = ""
    for name in _names(text):
        if schema.properties:
            below = schema.properties.get(name)
            path = child(path, name)
        else:
            below = schema.additional_schema
            path = item(path, name)
        if below is None:
            raise FieldPathError("does not refer to a valid field")
        schema = below
    return path


def _names(text: str) -> Iterator[str]:
    pieces = iter(_TOKEN.findall(text))
    for piece in pieces:
        if piece == ".":
            yield _next(pieces)
        elif piece == "[":
            name = _next(pieces)
            if len(name) < 2 or not name.startswith("'") or not name.endswith("'"):
                raise FieldPathError(f"expected single quoted string but got {name}")
            yield _ESCAPE.sub(_unescape, name[1:-1])
            closing = _next(pieces)
            if closing != "]":
                raise FieldPathError(f"expected ] but got {closing}")
        else:
            raise FieldPathError(f"expected [ or . but got: {piece}")


def _next(pieces: Iterator[str]) -> str:
    piece = next(pieces, None)
    if piece is None:
        raise FieldPathError("unexpected end of JSON path")
    return piece


def _unescape(found: re.Match[str]) -> str:
    if found[1] not in _ESCAPES:
        raise FieldPathError(f"invalid escape char {found[0]}")
    return _ESCAPES[found[1]]
