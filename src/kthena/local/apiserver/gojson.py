"""JSON as Go reads it: the same verdicts, the same error texts, and duplicate fields found.

msgspec decodes; only where it refuses a text does the scanner here look for the reason that Go
would give. Invalid UTF-8 and lone surrogates become U+FFFD and nesting is limited, as in
encoding/json.
"""

import itertools
import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Self

import msgspec

from kthena.machinery.gotext import quote

MAX_DEPTH: Final = 200
"""Deeper values are refused, where Go allows 10,000: no object comes near, and recursion must end."""

_MAX_DIGITS: Final = 4000
_TOO_DEEP: Final = "exceeded max depth"
_SPACE: Final = " \t\r\n"
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class JSONError(ValueError):
    """The text is no JSON; the message is Go's."""


class Spelled(float):
    """A number with a fraction or an exponent that knows how it was written: `str` says so."""

    _text: str

    def __new__(cls, text: str) -> Self:
        """The number of a JSON text."""
        made = super().__new__(cls, _number(text))
        made._text = text
        return made

    def __str__(self) -> str:
        return self._text


def _number(text: str) -> float:
    """A number with a fraction or an exponent."""
    value = float(text)
    if math.isinf(value):
        raise JSONError(f"json: cannot unmarshal number {text} into Go value of type float64")
    return value


def _integer(text: str) -> float:
    """An integer; one of more digits than Python converts is as good as infinite."""
    return int(text) if len(text) <= _MAX_DIGITS else _number(text)


_DECODER: Final = msgspec.json.Decoder(float_hook=_number)


def decode(body: bytes) -> Any:
    """The value of a JSON text; of duplicate fields the last one counts.

    Raises:
        JSONError: it is none.
    """
    return _decode(body, _DECODER, _number)


def decode_spelled(body: bytes) -> tuple[Any, bool]:
    """The same with numbers that are `Spelled`, and whether there are any.

    Raises:
        JSONError: it is no JSON.
    """
    found: list[Spelled] = []

    def number(text: str) -> float:
        found.append(Spelled(text))
        return found[-1]

    value = _decode(body, msgspec.json.Decoder(float_hook=number), number)
    return value, bool(found)


def unspelled(value: Any) -> Any:
    """The value with plain numbers for those that are `Spelled`."""
    if isinstance(value, dict):
        return {key: unspelled(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [unspelled(entry) for entry in value]
    return float(value) if isinstance(value, Spelled) else value


def _decode(body: bytes, decoder: msgspec.json.Decoder[Any], number: Callable[[str], float]) -> Any:
    try:
        value = decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, OverflowError, ValueError):
        return _decode_slowly(body, number)
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Whether the value is nested no deeper than is allowed.

    Raises:
        JSONError: it is.
    """
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise JSONError(_TOO_DEEP)


def _children(node: Any) -> Iterable[Any]:
    """What a list or an object holds; nothing for other values."""
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


def _decode_slowly(body: bytes, number: Callable[[str], float]) -> Any:
    _Scanner(body).document()
    text = body.decode("utf-8", errors="replace")
    return _without_surrogates(json.loads(text, parse_float=number, parse_int=_integer))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


class _Duplicate(Exception):  # noqa: N818 - ends a scan, and is no error
    """A field occurs twice."""


def _no_duplicates(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) != len({key for key, _ in pairs}):
        raise _Duplicate


def duplicate_fields(body: bytes) -> list[str]:
    """The paths of fields that occur more than once, for instance `spec.containers[0].name`.

    The text must be one that `decode` accepts.
    """
    try:
        json.loads(body.decode("utf-8", errors="replace"), object_pairs_hook=_no_duplicates)
    except _Duplicate:
        found: list[str] = []
        _Scanner(body, found.append).document()
        return list(dict.fromkeys(found))
    return []


def _ignore(path: str) -> None:
    del path


class _Scanner:
    """Walks one text, as Latin-1, since Go's errors speak of bytes.

    A space stands behind the text: with it Go's scanner finds out whether a literal is complete.
    Mutable state: the position and the depth.
    """

    def __init__(self, body: bytes, on_duplicate: Callable[[str], None] = _ignore) -> None:
        self._text = body.decode("latin-1") + " "
        self._end = len(body)
        self._position = 0
        self._depth = 0
        self._on_duplicate = on_duplicate

    def document(self) -> None:
        """One value and nothing behind it."""
        self._value("")
        if character := self._peek():
            raise self._invalid(character, "after top-level value")

    def _peek(self) -> str:
        """The next character that is no space, or the empty string."""
        while self._position < self._end and self._text[self._position] in _SPACE:
            self._position += 1
        return self._text[self._position] if self._position < self._end else ""

    def _next(self, where: str) -> str:
        character = self._peek()
        if not character:
            raise _ended()
        if where and character not in '{["-0123456789tfn':
            raise self._invalid(character, where)
        return character

    def _invalid(self, character: str, where: str) -> JSONError:
        return JSONError(f"invalid character {_quote(character)} {where}")

    def _value(self, path: str) -> None:
        character = self._next("looking for beginning of value")
        if character in "{[":
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise JSONError(_TOO_DEEP)
            if character == "{":
                self._object(path)
            else:
                self._array(path)
            self._depth -= 1
        elif character == '"':
            self._string()
        elif character in "tfn":
            self._literal({"t": "true", "f": "false", "n": "null"}[character])
        else:
            self._number()

    def _object(self, path: str) -> None:
        self._position += 1
        seen: set[str] = set()
        if self._peek() == "}":
            self._position += 1
            return
        while True:
            character = self._peek()
            if not character:
                raise _ended()
            if character != '"':
                raise self._invalid(character, "looking for beginning of object key string")
            key = self._string()
            below = f"{path}.{key}" if path else key
            if key in seen:
                self._on_duplicate(below)
            seen.add(key)
            self._separator(":", "after object key")
            self._value(below)
            if self._separator(",}", "after object key:value pair") == "}":
                return

    def _array(self, path: str) -> None:
        self._position += 1
        if self._peek() == "]":
            self._position += 1
            return
        for index in itertools.count():
            self._value(f"{path}[{index}]")
            if self._separator(",]", "after array element") == "]":
                return

    def _separator(self, expected: str, where: str) -> str:
        character = self._peek()
        if not character:
            raise _ended()
        if character not in expected:
            raise self._invalid(character, where)
        self._position += 1
        return character

    def _string(self) -> str:
        start = self._position
        text, position = self._text, start + 1
        while True:
            if position >= self._end:
                raise _ended()
            character = text[position]
            if character == '"':
                break
            if character < " ":
                raise self._invalid(character, "in string literal")
            position += 1
            if character == "\\":
                position = self._escape(position)
        self._position = position + 1
        quoted = text[start : position + 1].encode("latin-1").decode("utf-8", errors="replace")
        decoded: str = json.loads(quoted)
        return decoded

    def _escape(self, position: int) -> int:
        character = self._text[position]
        if character == "u":
            for digit in self._text[position + 1 : position + 5]:
                if digit not in "0123456789abcdefABCDEF":
                    raise self._invalid(digit, r"in \u hexadecimal character escape")
            return position + 5
        if character not in '"\\/bfnrt':
            raise self._invalid(character, "in string escape code")
        return position + 1

    def _literal(self, word: str) -> None:
        for offset, expected in enumerate(word):
            character = self._text[self._position + offset]
            if character != expected:
                raise self._invalid(character, f"in literal {word} (expecting {_quote(expected)})")
        self._position += len(word)

    def _number(self) -> None:
        match = _NUMBER.match(self._text, self._position)
        if match is None:
            raise self._invalid(self._text[self._position + 1], "in numeric literal")
        self._position = match.end()
        if self._text[self._position] == ".":
            raise self._invalid(
                self._text[self._position + 1], "after decimal point in numeric literal"
            )
        if self._text[self._position] in "eE":
            sign = self._text[self._position + 1] in "+-"
            raise self._invalid(
                self._text[self._position + 1 + sign], "in exponent of numeric literal"
            )


def _ended() -> JSONError:
    return JSONError("unexpected end of JSON input")


def _quote(character: str) -> str:
    r"""A character as Go quotes it in these errors."""
    if character == "'":
        return r"'\''"
    if character == '"':
        return "'\"'"
    return f"'{quote(character)[1:-1]}'"
