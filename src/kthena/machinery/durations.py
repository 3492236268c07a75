"""Go durations as integer nanoseconds: `1h30m`, `100ms`, `1.5s`.

Every duration of the Kubernetes API is in this syntax. Verdicts, values and error texts are those of
Go's `time.ParseDuration`, the canonical text is that of `Duration.String`.
"""

from typing import Final

from kthena.machinery.gotext import quote_bytes

NANOSECOND: Final = 1
MICROSECOND: Final = 1000 * NANOSECOND
MILLISECOND: Final = 1000 * MICROSECOND
SECOND: Final = 1000 * MILLISECOND
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE

_UNITS = {
    "ns": NANOSECOND,
    "us": MICROSECOND,
    "µs": MICROSECOND,  # U+00B5, the micro sign
    "μs": MICROSECOND,  # U+03BC, the Greek letter
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
_DIGITS = frozenset("0123456789")
_LIMIT = 2**63


class DurationError(ValueError):
    """A text that is no duration; the message is Go's."""


def parse_duration(text: str) -> int:
    """The nanoseconds that a duration text stands for.

    Raises:
        DurationError: the text is no duration, or beyond 64-bit nanoseconds (292 years).
    """
    unsigned = text[1:] if text[:1] in ("-", "+") else text
    if unsigned == "0":
        return 0
    if not unsigned:
        raise _invalid(text)
    total, position = 0, 0
    while position < len(unsigned):
        amount, position = _parse_term(text, unsigned, position)
        total += amount
        if total > _LIMIT:
            raise _invalid(text)
    if text[0] == "-":
        return -total
    if total >= _LIMIT:
        raise _invalid(text)
    return total


def _parse_term(text: str, unsigned: str, position: int) -> tuple[int, int]:
    """One number with its unit, in nanoseconds, and the position after it."""
    whole_end = _skip_digits(unsigned, position)
    whole, fraction, end = unsigned[position:whole_end], "", whole_end
    if unsigned[end : end + 1] == ".":
        end = _skip_digits(unsigned, end + 1)
        fraction = unsigned[whole_end + 1 : end]
    if not whole and not fraction:
        raise _invalid(text)
    significant = whole.lstrip("0") or "0"
    # Twenty digits are beyond the limit, whatever their unit.
    if len(significant) > 19 or int(significant) > _LIMIT:
        raise _invalid(text)
    unit_end = end
    while (
        unit_end < len(unsigned) and unsigned[unit_end] not in _DIGITS and unsigned[unit_end] != "."
    ):
        unit_end += 1
    unit = unsigned[end:unit_end]
    if not unit:
        raise DurationError(f"time: missing unit in duration {quote_bytes(text)}")
    if unit not in _UNITS:
        raise DurationError(
            f"time: unknown unit {quote_bytes(unit)} in duration {quote_bytes(text)}"
        )
    amount = int(significant) * _UNITS[unit] + _fraction_of(fraction, _UNITS[unit])
    if amount > _LIMIT:
        raise _invalid(text)
    return amount, unit_end


def _fraction_of(digits: str, unit: int) -> int:
    """The decimal fraction of a unit, cut to whole nanoseconds in the float arithmetic that Go uses.

    Digits beyond 63 bits of precision are dropped, as there.
    """
    value, scale = 0, 1.0
    for digit in digits:
        grown = value * 10 + int(digit)
        if value > (_LIMIT - 1) // 10 or grown > _LIMIT:
            break
        value, scale = grown, scale * 10
    return int(float(value) * (float(unit) / scale))


def _skip_digits(text: str, position: int) -> int:
    while position < len(text) and text[position] in _DIGITS:
        position += 1
    return position


def _invalid(text: str) -> DurationError:
    return DurationError(f"time: invalid duration {quote_bytes(text)}")


def format_duration(nanoseconds: int) -> str:
    """The canonical text of a duration: `1h30m0s`, `1.5s`, `100ms`, `0s`."""
    if not nanoseconds:
        return "0s"
    sign, magnitude = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if magnitude < SECOND:
        for unit, size in (("ms", MILLISECOND), ("µs", MICROSECOND), ("ns", NANOSECOND)):
            if magnitude >= size:
                return f"{sign}{_decimal(magnitude, size)}{unit}"
    minutes, rest = divmod(magnitude, MINUTE)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, SECOND)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    if hours:
        text = f"{hours}h{text}"
    return sign + text


def _decimal(amount: int, unit: int) -> str:
    """`amount / unit` in decimals, the unit being a power of ten, without trailing zeros."""
    whole, rest = divmod(amount, unit)
    if not rest:
        return str(whole)
    places = len(str(unit)) - 1
    return f"{whole}.{rest:0{places}d}".rstrip("0")
