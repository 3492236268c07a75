"""Conversions between types, and the functions on strings that are CEL's own."""

from collections.abc import Callable
from typing import Any

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.functions import Library
from kthena.machinery.cel.library import numbers, times
from kthena.machinery.cel.typesystem import Type
from kthena.machinery.cel.values import CelError, TypeValue, conversion_error, type_name
from kthena.machinery.gotext import format_float
from kthena.machinery.regexp import RegexpError, compile_regexp

LIBRARY = Library()

A = types.parameter("A")

LIBRARY.member("contains", [types.STRING, types.STRING], types.BOOL)(
    lambda text, part: part in text
)
LIBRARY.member("endsWith", [types.STRING, types.STRING], types.BOOL)(str.endswith)
LIBRARY.member("startsWith", [types.STRING, types.STRING], types.BOOL)(str.startswith)


@LIBRARY.function("matches", [types.STRING, types.STRING], types.BOOL)
@LIBRARY.member("matches", [types.STRING, types.STRING], types.BOOL)
def _matches(text: str, pattern: str) -> bool:
    try:
        return compile_regexp(pattern).search(text)
    except RegexpError as exc:
        raise CelError(str(exc)) from exc


LIBRARY.function("type", [A], types.type_of(A))(lambda value: TypeValue(type_name(value)))
LIBRARY.function("dyn", [A], types.DYN)(lambda value: value)


def _converted(value: Any, target: str, result: Any) -> Any:
    """What a parser gave for a text; an error where it gave none."""
    if result is None:
        raise conversion_error(value, target)
    return result


def _identity(value: Any) -> Any:
    return value


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decode(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as exc:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from exc


_BOOL_TEXTS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_CONVERSIONS: list[tuple[str, Type, list[tuple[Type, Callable[[Any], Any]]]]] = [
    (
        "int",
        types.INT,
        [
            (types.INT, _identity),
            (types.DOUBLE, numbers.double_to_int),
            (types.DURATION, lambda value: value.nanoseconds),
            (types.STRING, lambda text: _converted(text, "int", numbers.parse_int(text))),
            (types.TIMESTAMP, times.unix_seconds),
            (types.UINT, lambda value: numbers.checked_int(int(value))),
        ],
    ),
    (
        "uint",
        types.UINT,
        [
            (types.UINT, _identity),
            (types.DOUBLE, numbers.double_to_uint),
            (types.INT, numbers.checked_uint),
            (types.STRING, lambda text: _converted(text, "uint", numbers.parse_uint(text))),
        ],
    ),
    (
        "double",
        types.DOUBLE,
        [
            (types.DOUBLE, _identity),
            (types.INT, float),
            (types.STRING, lambda text: _converted(text, "double", numbers.parse_double(text))),
            (types.UINT, float),
        ],
    ),
    (
        "bool",
        types.BOOL,
        [
            (types.BOOL, _identity),
            (types.STRING, lambda text: _converted(text, "bool", _BOOL_TEXTS.get(text))),
        ],
    ),
    ("bytes", types.BYTES, [(types.BYTES, _identity), (types.STRING, _encode)]),
    (
        "string",
        types.STRING,
        [
            (types.STRING, _identity),
            (types.BOOL, lambda value: "true" if value else "false"),
            (types.BYTES, _decode),
            (types.DOUBLE, format_float),
            (types.DURATION, times.duration_text),
            (types.INT, str),
            (types.TIMESTAMP, times.timestamp_text),
            (types.UINT, lambda value: str(int(value))),
        ],
    ),
    (
        "duration",
        types.DURATION,
        [
            (types.DURATION, _identity),
            (types.INT, lambda value: _converted(value, "google.protobuf.Duration", None)),
            (types.STRING, times.parse_duration_text),
        ],
    ),
    (
        "timestamp",
        types.TIMESTAMP,
        [
            (types.TIMESTAMP, _identity),
            (types.INT, times.from_unix_seconds),
            (types.STRING, times.parse_timestamp),
        ],
    ),
]
for _name, _result, _sources in _CONVERSIONS:
    for _source, _convert in _sources:
        LIBRARY.function(_name, [_source], _result)(_convert)
