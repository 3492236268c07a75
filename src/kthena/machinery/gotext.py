"""Texts as Go's standard library reads and writes them: integers, quoted strings, JSON values.

Error messages of the API server come from Go, and users compare them; these functions give the same
verdicts and the same bytes.
"""

import json
import math
import re
import unicodedata
from decimal import Decimal
from typing import Any

_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_INT64 = 2**63 - 1

_SHORT_ESCAPES = {
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


def parse_int(text: str) -> int:
    """The integer that `strconv.Atoi` reads: ASCII digits with an optional sign, 64 bits.

    Raises:
        ValueError: it is none; the message is Go's without the name of the function.
    """
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"parsing {quote(text)}: invalid syntax")
    digits = text.lstrip("+-").lstrip("0") or "0"
    number = int(digits) if len(digits) <= 19 else _MAX_INT64 + 2
    if text[0] == "-":
        number = -number
    if not -_MAX_INT64 - 1 <= number <= _MAX_INT64:
        raise ValueError(f"parsing {quote(text)}: value out of range")
    return number


def quote(text: str) -> str:
    """The text as `strconv.Quote` writes it, as `%q` does."""
    return '"' + "".join(map(_escape, text)) + '"'


def quote_bytes(text: str) -> str:
    r"""The text as package `time` quotes it in errors: bytes outside ASCII as `\xNN`."""
    parts = []
    for character in text:
        if character in '"\\':
            parts.append("\\" + character)
        elif " " <= character <= "~" or character == "\x7f":
            parts.append(character)
        else:
            parts.extend(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))
    return '"' + "".join(parts) + '"'


def _escape(character: str) -> str:
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    code = ord(character)
    if is_print(character):
        return character
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def is_print(character: str) -> bool:
    """What `unicode.IsPrint` says: letters, marks, numbers, punctuation, symbols, the plain space."""
    return character == " " or unicodedata.category(character)[0] in "LMNPS"


def show_value(value: Any) -> str:
    """A JSON value as `%v` shows it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{name}:{show_value(value[name])}' for name in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(show_value, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_float(value)
    return "<nil>" if value is None else str(value)


def show_syntax(value: Any) -> str:
    """A JSON value as `%#v` shows it."""
    if isinstance(value, dict):
        members = (f"{quote(name)}:{show_syntax(value[name])}" for name in sorted(value))
        return f"map[string]interface {{}}{{{', '.join(members)}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(show_syntax, value))}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, float):
        return format_float(value)
    return quote(value) if isinstance(value, str) else str(value)


def show_type(value: Any) -> str:
    """The type of a JSON value as `%T` shows it."""
    if value is None:
        return "<nil>"
    names = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}")


def format_float(value: float) -> str:
    """A float as Go's `%v` prints it: shortest digits, an exponent below 1e-04 and from 1e+06 on."""
    return _format_float(value, -4, 6)


def format_json(value: Any) -> str:
    """A JSON value as Go's encoder writes it: keys sorted, `<`, `>` and `&` escaped, `1.0` as `1`."""
    if isinstance(value, dict):
        members = (f"{format_json(key)}:{format_json(value[key])}" for key in sorted(value))
        return f"{{{','.join(members)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(format_json, value))}]"
    if isinstance(value, float):
        return _format_float(value, -6, 21)
    text = json.dumps(value, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _format_float(value: float, lowest_exponent: int, first_exponent: int) -> str:
    """The shortest text that reads back as `value`, with an exponent outside the given range."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    number = Decimal(repr(value)).normalize()
    exponent = number.adjusted()
    if lowest_exponent <= exponent < first_exponent:
        return f"{number:f}"
    mantissa, _, _ = f"{number:e}".partition("e")
    padding = 2 if first_exponent == 6 or exponent > 0 else 1
    return f"{mantissa}e{exponent:+0{padding + 1}d}"
