"""`string.format(list)`: the clauses `%s %d %f %e %b %x %X %o` of cel-go, in its English locale."""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from kthena.machinery.cel.library import times
from kthena.machinery.cel.typesystem import Type
from kthena.machinery.cel.values import (
    CelError,
    Duration,
    Timestamp,
    TypeValue,
    Uint,
    find_in_map,
    is_list,
    is_map,
    type_name,
)
from kthena.machinery.gotext import format_float, quote

_CLAUSE = re.compile(r"%(?:%|(?:\.([0-9]*))?(.?))", re.DOTALL)
_SUPERSCRIPTS = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")
_DEFAULT_PRECISION = 6
_MAX_PRECISION_DIGITS = 18
_MOST_DIGITS = 1100
"""No double has more digits after the point."""
_MAX_WIDTH = 1_000_000
"""Go's limit."""
_SPECIAL_TEXTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def format_string(template: str, values: Any) -> str:
    """The template with its clauses replaced by the values, in order."""
    arguments = list(values)
    position = 0

    def replace(found: re.Match[str]) -> str:
        nonlocal position
        if found.group() == "%%":
            return "%"
        if found.group() == "%":
            raise CelError(_UNFINISHED)
        if position >= len(arguments):
            raise CelError(f"index {position} out of range")
        mistake = _clause_mistake(found)
        if mistake is not None:
            raise CelError(mistake)
        precision, clause = found.groups()
        position += 1
        digits = _DEFAULT_PRECISION if precision is None else int(precision)
        try:
            return _CLAUSES[clause](arguments[position - 1], digits)
        except CelError as exc:
            raise CelError(f"error during formatting: {exc}") from exc

    return _CLAUSE.sub(replace, template)


_WRONG_TYPES = {
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, "
    "durations, and timestamps",
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "o": "octal clause can only be used on integers",
    "x": "only integers, byte buffers, and strings can be formatted as hex",
    "X": "only integers, byte buffers, and strings can be formatted as hex",
}
_INTEGERS = frozenset({"int", "uint"})
_STATIC_TYPES: dict[str, frozenset[str]] = {
    "s": _INTEGERS
    | {"list", "map", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null"},
    "d": _INTEGERS,
    "f": frozenset({"double", "string"}),
    "e": frozenset({"double", "string"}),
    "b": _INTEGERS | {"bool"},
    "o": _INTEGERS,
    "x": _INTEGERS | {"string", "bytes"},
    "X": _INTEGERS | {"string", "bytes"},
}
"""The names of the static types that a clause takes, beside dyn."""


def check_clauses(template: str, types: Sequence[Type]) -> tuple[int | None, str] | None:
    """What is wrong with a literal template for arguments of these types.

    Returns:
        The index of the argument at fault, if it is one, and the text; None if all is well.
    """
    position = 0
    for found in _CLAUSE.finditer(template):
        if found.group() == "%%":
            continue
        if found.group() == "%":
            return None, _UNFINISHED
        if position >= len(types):
            return None, f"index {position} out of range"
        mistake = _clause_mistake(found)
        if mistake is not None:
            return None, mistake
        clause = found[2]
        given = types[position]
        if given.kind != "dyn" and given.name not in _STATIC_TYPES[clause]:
            name = _RUNTIME_NAMES.get(given.name, given.name)
            return position, f"error during formatting: {_WRONG_TYPES[clause]}, was given {name}"
        position += 1
    if position < len(types):
        return None, (
            f"too many arguments supplied to string.format (expected {position}, got {len(types)})"
        )
    return None


_RUNTIME_NAMES = {
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
    "null": "null_type",
}


_UNFINISHED = "unexpected end of string"


def _clause_mistake(found: re.Match[str]) -> str | None:
    """What is wrong with a clause by itself."""
    precision, clause = found.groups()
    text = "could not parse formatting clause: "
    if not clause:
        return f"{text}error while parsing precision: could not find end of precision specifier"
    if precision is not None and (not precision or len(precision) > _MAX_PRECISION_DIGITS):
        reason = "value out of range" if precision else "invalid syntax"
        return (
            f"{text}error while parsing precision: error while converting precision to integer: "
            f"strconv.Atoi: parsing {quote(precision)}: {reason}"
        )
    if clause not in _CLAUSES:
        return f"{text}unrecognized formatting clause {quote(clause)}"
    return None


def _wrong_type(clause: str, value: Any) -> CelError:
    return CelError(f"{_WRONG_TYPES[clause]}, was given {type_name(value)}")


def _text(value: Any, _precision: int = 0) -> str:
    if value is None:
        return "null"
    if is_list(value):
        return f"[{', '.join(map(_nested, value))}]"
    if is_map(value):
        pairs = sorted(f"{_nested(key)}:{_nested(find_in_map(value, key)[1])}" for key in value)
        return f"{{{', '.join(pairs)}}}"
    for python_type, convert in _TEXTS:
        if isinstance(value, python_type):
            return convert(value)
    raise _wrong_type("s", value)


def _decode(value: bytes) -> str:
    return value.decode("utf-8", "replace")


_TEXTS: list[tuple[type, Callable[[Any], str]]] = [
    (str, str),
    (bool, lambda value: "true" if value else "false"),
    (int, lambda value: str(int(value))),
    (float, format_float),
    (bytes, _decode),
    (Timestamp, times.timestamp_text),
    (Duration, times.duration_text),
    (TypeValue, lambda value: value.name),
]


def _nested(value: Any) -> str:
    """An element of a list or a map: as a literal of CEL."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bytes):
        return "b" + quote(_decode(value))
    if isinstance(value, float):
        return f"{value:.6f}" if math.isfinite(value) else quote(format_float(value))
    if isinstance(value, (Duration, Timestamp)):
        return f'{"duration" if isinstance(value, Duration) else "timestamp"}("{_text(value)}")'
    if isinstance(value, TypeValue):
        return value.name
    return _text(value)


def _decimal(value: Any, _precision: int) -> str:
    if type(value) not in (int, Uint):
        raise _wrong_type("d", value)
    return str(int(value))


def _double(value: Any, clause: str) -> float:
    if isinstance(value, str) and value in _SPECIAL_TEXTS:
        return _SPECIAL_TEXTS[value]
    if not isinstance(value, float):
        raise _wrong_type(clause, value)
    return value


def _fixed(value: Any, precision: int) -> str:
    number = _double(value, "f")
    if not math.isfinite(number):
        return _not_finite(number)
    return f"{number:,.{min(precision, _MOST_DIGITS)}f}"


def _scientific(value: Any, precision: int) -> str:
    """cel-go takes the precision for a width: there are always six digits."""
    width = min(precision, _MAX_WIDTH)
    number = _double(value, "e")
    if not math.isfinite(number):
        return _not_finite(number).rjust(width)
    mantissa, _, exponent = f"{number:.6e}".partition("e")
    power = f"{int(exponent):03d}" if int(exponent) < 0 else f"{int(exponent):02d}"
    text = f"{mantissa}×10{power.translate(_SUPERSCRIPTS)}"  # noqa: RUF001 - the sign that Go's printer uses
    return text.rjust(width)


def _not_finite(number: float) -> str:
    return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"


def _binary(value: Any, _precision: int) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if not isinstance(value, int):
        raise _wrong_type("b", value)
    return f"{int(value):b}"


def _octal(value: Any, _precision: int) -> str:
    if type(value) not in (int, Uint):
        raise _wrong_type("o", value)
    return f"{int(value):o}"


def _hexadecimal(value: Any, _precision: int) -> str:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").hex()
    if isinstance(value, bytes):
        return value.hex()
    if type(value) not in (int, Uint):
        raise _wrong_type("x", value)
    return f"{int(value):x}"


_CLAUSES: dict[str, Callable[[Any, int], str]] = {
    "s": _text,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "o": _octal,
    "x": _hexadecimal,
    "X": lambda value, precision: _hexadecimal(value, precision).upper(),
}
