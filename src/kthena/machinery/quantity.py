"""Kubernetes quantities: fixed-point numbers with a suffix (`1500m`, `2Gi`, `1e3`).

Values are exact fractions. Parsing, rounding and the canonical text follow
k8s.io/apimachinery/pkg/api/resource, its peculiarities included, since the API server stores and
compares those texts: fractions below a billionth round away from zero, binary quantities are capped
at 2^63-1, and a text that is canonical already is kept as it was written.
"""

import re
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any

_MAX_INT64 = 2**63 - 1
_MAX_INT64_DIGITS = 18
_MAX_DIGITS = 4000
_MAX_EXPONENT = 1000
"""Go accepts any 32-bit exponent; beyond this one, exact arithmetic would eat all memory."""

_FORMAT_TEXT = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_NUMERIC_TEXT = "unable to parse numeric part of quantity"
_SUFFIX_TEXT = "unable to parse quantity's suffix"

# What apimachinery's scanner accepts, which is wider than the regular expression in its error text.
# Possessive, so that a long text fails in linear time.
_SHAPE = re.compile(r"([+-]?)(0*+)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[-+]?[0-9]*+)")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")


class QuantityError(ValueError):
    """A text that is no quantity; the message is apimachinery's."""


class Format(Enum):
    """The family of suffixes that a quantity is printed with."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


_DECIMAL_SUFFIXES = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_BY_EXPONENT = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_BY_EXPONENT = {exponent: suffix for suffix, exponent in _BINARY_SUFFIXES.items()}


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """A number with a family of suffixes. Equality, order and hash are those of the number."""

    value: Fraction
    format: Format = field(default=Format.DECIMAL_SI, compare=False)
    text: str = field(default="", compare=False, repr=False)
    """What was parsed, where that is the canonical text already; else empty."""
    scale: int | None = field(default=None, compare=False, repr=False)
    """The power of ten that apimachinery counts in; None where it falls back to big decimals."""

    @classmethod
    def parse(cls, text: str | int) -> "Quantity":
        """The quantity that a text or a JSON integer stands for.

        Raises:
            QuantityError: it is none, with the words of `resource.ParseQuantity`.
        """
        if isinstance(text, int):
            text = str(text)
        shape = _SHAPE.fullmatch(text)
        if not text or shape is None:
            raise QuantityError(_FORMAT_TEXT)
        sign, _, whole, fraction, suffix = shape.groups(default="")
        number = _Number(negative=sign == "-", whole=whole or "0", fraction=fraction)
        if len(number.digits) > _MAX_DIGITS:
            raise QuantityError(_NUMERIC_TEXT)
        exponent, suffix_format = _interpret(suffix)
        if suffix_format is Format.BINARY_SI:
            return _parse_binary(text, number, exponent)
        return _parse_decimal(text, number, exponent, suffix_format)

    def __str__(self) -> str:
        """The canonical form, as `Quantity.String` of apimachinery gives it."""
        return self.text or _canonical(self.value, self.format)

    def __add__(self, other: "Quantity") -> "Quantity":
        """The exact sum; the suffixes are those of `self`, or of `other` where `self` is zero."""
        return _combine(self, other, self.value + other.value)

    def __sub__(self, other: "Quantity") -> "Quantity":
        """The exact difference, with suffixes as for a sum."""
        return _combine(self, other, self.value - other.value)

    def as_int(self) -> int:
        """The value rounded away from zero to an integer of any size."""
        quotient, remainder = divmod(abs(self.value.numerator), self.value.denominator)
        magnitude = quotient + (remainder != 0)
        return magnitude if self.value >= 0 else -magnitude

    def exact_int(self) -> int | None:
        """What `Quantity.AsInt64` gives, or None where it refuses.

        It refuses fractions, values beyond 64 bits, and whole numbers that were written with a
        decimal point or a suffix below one (`1.0`, `1000m`).
        """
        if self.scale is None or self.scale < 0 or abs(self.value) > _MAX_INT64:
            return None
        return int(self.value)

    def as_float(self) -> float:
        """The nearest float; infinite where the value is beyond the range of floats."""
        try:
            return float(self.value)
        except OverflowError:
            return float("inf") if self.value > 0 else float("-inf")


def _combine(left: Quantity, right: Quantity, value: Fraction) -> Quantity:
    scale = None
    if left.scale is not None and right.scale is not None:
        scale = min(left.scale, right.scale) if left.value else right.scale
        if abs(value / Fraction(10) ** scale) > _MAX_INT64:
            scale = None
    return Quantity(value, left.format if left.value else right.format, scale=scale)


def is_quantity(value: Any) -> bool:
    """Whether a JSON value is a quantity: an integer or a text that parses."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return False
    try:
        Quantity.parse(value)
    except QuantityError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Number:
    """The digits of a quantity, leading zeros removed from the whole part."""

    negative: bool
    whole: str
    fraction: str

    @property
    def digits(self) -> str:
        return self.whole + self.fraction

    @property
    def value(self) -> Fraction:
        magnitude = Fraction(int(self.digits), 10 ** len(self.fraction))
        return -magnitude if self.negative else magnitude


def _interpret(suffix: str) -> tuple[int, Format]:
    """The exponent (of 2 for binary suffixes, else of 10) and the family of a suffix."""
    if suffix in _DECIMAL_SUFFIXES:
        return _DECIMAL_SUFFIXES[suffix], Format.DECIMAL_SI
    if suffix in _BINARY_SUFFIXES:
        return _BINARY_SUFFIXES[suffix], Format.BINARY_SI
    match = _EXPONENT.fullmatch(suffix)
    if match is None or len(match[1]) > _MAX_DIGITS or abs(int(match[1])) > _MAX_INT64:
        raise QuantityError(_SUFFIX_TEXT)
    # Go narrows the exponent to 32 bits without a check.
    exponent = (int(match[1]) + 2**31) % 2**32 - 2**31
    if exponent > _MAX_EXPONENT:
        raise QuantityError(f"{_SUFFIX_TEXT}: exponents end at {_MAX_EXPONENT}")
    return exponent, Format.DECIMAL_EXPONENT


def _parse_decimal(text: str, number: _Number, exponent: int, suffix_format: Format) -> Quantity:
    scale = exponent - len(number.fraction)
    digits = number.digits
    if len(digits) <= _MAX_INT64_DIGITS and scale >= -9:
        value = number.value * Fraction(10) ** exponent
        canonical = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
        return Quantity(value, suffix_format, text if canonical else "", scale)
    if exponent < -_MAX_EXPONENT:
        # Every digit is below a billionth.
        value = Fraction((number.value > 0) - (number.value < 0), 10**9)
    else:
        value = _round_to_nano(number.value * Fraction(10) ** exponent)
    return Quantity(value, suffix_format)


def _parse_binary(text: str, number: _Number, exponent: int) -> Quantity:
    value = number.value * 2**exponent
    # The digits that a 64-bit integer has left for the number, in apimachinery's estimate.
    room = 15 - len(number.whole) - exponent * 3 // 10 - 1
    if not number.fraction and room >= 0:
        canonical = int(number.digits) % 8 != 0
        return Quantity(value, Format.BINARY_SI, text if canonical else "", 0)
    value = max(-Fraction(_MAX_INT64), min(_round_to_nano(value), Fraction(_MAX_INT64)))
    small = 0 < abs(value) < 1
    return Quantity(value, Format.DECIMAL_SI if small else Format.BINARY_SI)


def _round_to_nano(value: Fraction) -> Fraction:
    """The next multiple of a billionth, away from zero."""
    scaled = abs(value) * 10**9
    magnitude = Fraction(-(-scaled.numerator // scaled.denominator), 10**9)
    return magnitude if value >= 0 else -magnitude


def _canonical(value: Fraction, suffix_format: Format) -> str:
    if not value:
        return "0"
    if suffix_format is Format.BINARY_SI and abs(value) >= 1024 and value.denominator == 1:
        mantissa, exponent = _strip_factor(value.numerator, 1024)
        return f"{mantissa}{_BINARY_BY_EXPONENT.get(exponent * 10, '')}"
    mantissa, exponent = _decimal_parts(value)
    shift = exponent % 3
    mantissa, exponent = mantissa * 10**shift, exponent - shift
    if suffix_format is Format.DECIMAL_EXPONENT:
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    # An exponent without a suffix (1000E) prints none, as in apimachinery.
    return f"{mantissa}{_DECIMAL_BY_EXPONENT.get(exponent, '')}"


def _decimal_parts(value: Fraction) -> tuple[int, int]:
    """The value as mantissa and exponent of 10, the mantissa without trailing zeros.

    Quantities are decimal fractions, so the denominator divides a power of 10.
    """
    places = 0
    while value.denominator != 1:
        value *= 10
        places += 1
    mantissa, zeros = _strip_factor(value.numerator, 10)
    return mantissa, zeros - places


def _strip_factor(number: int, factor: int) -> tuple[int, int]:
    times = 0
    while number % factor == 0:
        number //= factor
        times += 1
    return number, times
