"""Texts and checked arithmetic of numbers, as Go and cel-go have them."""

import math
import re
from decimal import Decimal

from kthena.machinery.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    CelError,
    Uint,
)

_INT = re.compile(r"[+-]?[0-9]+")
_UINT = re.compile(r"[0-9]+")
_MAX_DIGITS = 20
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+"
)
_SPECIAL = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE)


def checked_int(value: int) -> int:
    """The int itself; raises `CelError` beyond 64 bits."""
    if MIN_INT <= value <= MAX_INT:
        return value
    raise CelError("integer overflow")


def checked_uint(value: int) -> Uint:
    """The value as a uint; raises `CelError` beyond 64 bits."""
    if 0 <= value <= MAX_UINT:
        return Uint(value)
    raise CelError("unsigned integer overflow")


def divide(dividend: int, divisor: int) -> int:
    """The quotient, rounded towards zero."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def remainder(dividend: int, divisor: int) -> int:
    """What is left of a division rounded towards zero."""
    return dividend - divide(dividend, divisor) * divisor


def double_to_int(value: float) -> int:
    """The whole part; raises `CelError` beyond 64 bits."""
    if not math.isfinite(value) or not MIN_INT < value < MAX_INT:
        raise CelError("integer overflow")
    return checked_int(int(value))


def double_to_uint(value: float) -> Uint:
    """The whole part; raises `CelError` beyond 64 bits or below zero."""
    if not math.isfinite(value) or not 0 <= value < 2**64:
        raise CelError("unsigned integer overflow")
    return Uint(int(value))


def parse_int(text: str) -> int | None:
    """A decimal of 64 bits, as `strconv.ParseInt`; None where it is none."""
    value = _whole(_INT, text)
    return value if value is not None and MIN_INT <= value <= MAX_INT else None


def parse_uint(text: str) -> Uint | None:
    """An unsigned decimal of 64 bits, as `strconv.ParseUint`; None where it is none."""
    value = _whole(_UINT, text)
    return Uint(value) if value is not None and value <= MAX_UINT else None


def _whole(syntax: re.Pattern[str], text: str) -> int | None:
    """Python refuses to read numbers of thousands of digits; so many are out of range anyway."""
    if syntax.fullmatch(text) is None or len(text.lstrip("+-0")) > _MAX_DIGITS:
        return None
    return int(text)


def parse_double(text: str) -> float | None:
    """A number as `strconv.ParseFloat` reads it; None where it is none or out of range."""
    if _SPECIAL.fullmatch(text):
        return float(text)
    try:
        if _DECIMAL.fullmatch(text):
            value = float(text)
        elif _HEXADECIMAL.fullmatch(text):
            value = float.fromhex(text)
        else:
            return None
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def positional(value: float) -> str:
    """The shortest digits without exponent: Go's `'f', -1`."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    text = f"{Decimal(repr(value)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
