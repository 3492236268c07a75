"""Functions on strings of cel-go's extension, version 2. Positions count code points."""

from typing import Any

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.functions import Library
from kthena.machinery.cel.library.formatting import format_string
from kthena.machinery.cel.values import CelError

LIBRARY = Library()

_STRING = types.STRING
_INT = types.INT
_STRINGS = types.list_of(types.STRING)
_GO_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_UPPER = str.maketrans({chr(code): chr(code - 32) for code in range(ord("a"), ord("z") + 1)})
_LOWER = str.maketrans({chr(code): chr(code + 32) for code in range(ord("A"), ord("Z") + 1)})
_QUOTE_ESCAPES = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)


def _out_of_range(index: int) -> CelError:
    return CelError(f"index out of range: {index}")


@LIBRARY.member("charAt", [_STRING, _INT], _STRING)
def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


@LIBRARY.member("indexOf", [_STRING, _STRING], _INT)
def _index_of(text: str, part: str) -> int:
    return _index_of_from(text, part, 0)


@LIBRARY.member("indexOf", [_STRING, _STRING, _INT], _INT)
def _index_of_from(text: str, part: str, offset: int) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.find(part, offset) if offset < len(text) else -1


@LIBRARY.member("lastIndexOf", [_STRING, _STRING], _INT)
def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


@LIBRARY.member("lastIndexOf", [_STRING, _STRING, _INT], _INT)
def _last_index_of_from(text: str, part: str, offset: int) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.rfind(part, 0, offset + len(part)) if offset < len(text) else -1


@LIBRARY.member("lowerAscii", [_STRING], _STRING)
def _lower_ascii(text: str) -> str:
    return text.translate(_LOWER)


@LIBRARY.member("upperAscii", [_STRING], _STRING)
def _upper_ascii(text: str) -> str:
    return text.translate(_UPPER)


@LIBRARY.member("replace", [_STRING, _STRING, _STRING], _STRING)
def _replace(text: str, old: str, new: str) -> str:
    return text.replace(old, new)


@LIBRARY.member("replace", [_STRING, _STRING, _STRING, _INT], _STRING)
def _replace_some(text: str, old: str, new: str, count: int) -> str:
    return text.replace(old, new, max(count, -1))


@LIBRARY.member("split", [_STRING, _STRING], _STRINGS)
def _split(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else list(text)


@LIBRARY.member("split", [_STRING, _STRING, _INT], _STRINGS)
def _split_some(text: str, separator: str, count: int) -> list[str]:
    if count < 0:
        return _split(text, separator)
    if count == 0:
        return []
    if separator:
        return text.split(separator, count - 1)
    if len(text) <= count:
        return list(text)
    return [*text[: count - 1], text[count - 1 :]]


@LIBRARY.member("substring", [_STRING, _INT], _STRING)
def _substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text[start:]


@LIBRARY.member("substring", [_STRING, _INT, _INT], _STRING)
def _substring_range(text: str, start: int, end: int) -> str:
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


@LIBRARY.member("trim", [_STRING], _STRING)
def _trim(text: str) -> str:
    return text.strip(_GO_SPACES)


@LIBRARY.member("join", [_STRINGS], _STRING)
def _join(parts: Any) -> str:
    return _join_with(parts, "")


@LIBRARY.member("join", [_STRINGS, _STRING], _STRING)
def _join_with(parts: Any, separator: str) -> str:
    texts = list(parts)
    for text in texts:
        if type(text) is not str:
            raise CelError(f"join: invalid input: {text}")
    return separator.join(texts)


@LIBRARY.function("strings.quote", [_STRING], _STRING)
def _quote(text: str) -> str:
    return f'"{text.translate(_QUOTE_ESCAPES)}"'


LIBRARY.member("format", [_STRING, types.list_of(types.DYN)], _STRING)(format_string)
