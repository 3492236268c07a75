"""What a plain YAML scalar means to Kubernetes: the rules of sigs.k8s.io/yaml.

They are those of YAML 1.1 with gaps and additions: `yes` and `on` are booleans and `010` is octal,
but `12:30` and dates are texts, and `1e3` is a number. The values are those that the API server gets
after the detour over JSON, where `1.0` is the integer 1.
"""

import math
import re
from decimal import Decimal
from typing import Any

_WORDS: dict[str, Any] = {
    **dict.fromkeys(
        ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True
    ),
    **dict.fromkeys(
        ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False
    ),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER = re.compile(
    r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]([0-7]+)|0([0-7]+)|(0|[1-9][0-9]*))"
)
_BASES = (16, 2, 8, 8, 10)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_DOT_FLOAT = re.compile(r"\.[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+(?:_[0-9]+)*)?")
_MAX_DIGITS = 4000
_MIN_INT64 = -(2**63)
_MAX_INT64 = 2**63 - 1
_MAX_UINT64 = 2**64 - 1


def resolve_plain(text: str) -> Any:
    """The JSON value of a plain scalar: None, a boolean, a number, or the text itself.

    `.inf` and `.nan` give floats that JSON does not have; the caller refuses them.
    """
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if first == ".":
        number = text.replace("_", "") if _DOT_FLOAT.fullmatch(text) else ""
        return _to_float(number, text)
    if first not in "0123456789+-":
        return text
    plain = text.replace("_", "")
    match = _INTEGER.fullmatch(plain)
    if match and len(plain) <= _MAX_DIGITS:
        value = _to_integer(match)
        if _MIN_INT64 <= value <= _MAX_UINT64:
            # Go's parser has one more type, unsigned; the API server reads it back as a float.
            return value if value <= _MAX_INT64 else float(value)
    return _to_float(plain if _FLOAT.fullmatch(plain) else "", text)


def is_integer(text: str) -> bool:
    """Whether a plain scalar is written as an integer, in any base."""
    return _INTEGER.fullmatch(text.replace("_", "")) is not None


def _to_integer(match: re.Match[str]) -> int:
    sign, *digits = match.groups()
    for text, base in zip(digits, _BASES, strict=True):
        if text is not None:
            return int(f"{sign}{text}", base)
    raise AssertionError(f"integer {match[0]!r} without digits")


def _to_float(number: str, text: str) -> Any:
    """The value of a number, or the text where there is none or it is beyond the range."""
    value = float(number) if number else math.inf
    return through_json(value) if math.isfinite(value) else text


def through_json(value: float) -> int | float:
    """The number that reading back its JSON text gives: an integer where it has no fraction."""
    if not math.isfinite(value) or not value.is_integer():
        return value
    whole = int(Decimal(repr(value)))
    return whole if _MIN_INT64 <= whole <= _MAX_INT64 else value
