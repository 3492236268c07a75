"""Durations and timestamps: parsing, texts, ranges and parts."""

import datetime as dt
import re
import zoneinfo
from collections.abc import Callable

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.functions import Library
from kthena.machinery.cel.library import numbers
from kthena.machinery.cel.values import CelError, Duration, Timestamp, conversion_error
from kthena.machinery.durations import DurationError, parse_duration

LIBRARY = Library()

_SECOND = 1_000_000_000
_MIN_UNIX = -62135596800
_MAX_UNIX = 253402300799
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def checked_duration(nanoseconds: int) -> Duration:
    """The duration; raises `CelError` beyond 64 bits."""
    return Duration(numbers.checked_int(nanoseconds))


def checked_timestamp(nanoseconds: int, offset_s: int = 0) -> Timestamp:
    """The timestamp; raises `CelError` outside of the years 1 to 9999."""
    if not _MIN_UNIX <= nanoseconds // _SECOND <= _MAX_UNIX:
        raise CelError("timestamp overflow")
    return Timestamp(nanoseconds, offset_s)


def unix_seconds(value: Timestamp) -> int:
    """Seconds since 1970, rounded down."""
    return value.nanoseconds // _SECOND


def from_unix_seconds(seconds: int) -> Timestamp:
    """The timestamp that many seconds after 1970."""
    return checked_timestamp(seconds * _SECOND)


def parse_duration_text(text: str) -> Duration:
    """The duration that a text in Go's syntax stands for."""
    try:
        return Duration(parse_duration(text))
    except DurationError as exc:
        raise conversion_error(text, "google.protobuf.Duration") from exc


def parse_timestamp(text: str) -> Timestamp:
    """The point in time that a text in RFC 3339 stands for."""
    parsed = read_timestamp(text)
    if parsed is None:
        raise conversion_error(text, "google.protobuf.Timestamp")
    return parsed


def read_timestamp(text: str) -> Timestamp | None:
    """As `parse_timestamp`, but None where the text is none."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    fraction, sign, zone_hours, zone_minutes = found.groups()[6:]
    offset = 0
    if sign:
        if int(zone_hours) > 24 or int(zone_minutes) > 60:
            return None
        offset = (int(zone_hours) * 60 + int(zone_minutes)) * (-60 if sign == "-" else 60)
    try:
        local = dt.datetime(year or 4, month, day, hour, minute, second, tzinfo=dt.UTC)
    except ValueError:
        return None
    if not year:
        raise CelError("timestamp overflow")
    seconds = int((local - _EPOCH).total_seconds()) - offset
    nanoseconds = int((fraction or "0")[:9].ljust(9, "0"))
    return checked_timestamp(seconds * _SECOND + nanoseconds, offset)


def duration_text(value: Duration) -> str:
    """Seconds, with the fraction that a double holds."""
    whole, rest = abs(value.nanoseconds) // _SECOND, abs(value.nanoseconds) % _SECOND
    seconds = float(whole) + rest / _SECOND
    return f"{numbers.positional(-seconds if value.nanoseconds < 0 else seconds)}s"


def timestamp_text(value: Timestamp) -> str:
    """RFC 3339 in the zone of the value, with nanoseconds as far as there are any."""
    local = _local(value, value.offset_s)
    fraction = f"{value.nanoseconds % _SECOND:09d}".rstrip("0")
    text = local.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + (f".{fraction}" if fraction else "")
    if not value.offset_s:
        return text + "Z"
    sign = "-" if value.offset_s < 0 else "+"
    minutes = abs(value.offset_s) // 60
    return f"{text}{sign}{minutes // 60:02d}:{minutes % 60:02d}"


def _local(value: Timestamp, offset_s: int) -> dt.datetime:
    """The wall clock, to the second, in a zone with this offset.

    Unlike Go, it fails where the zone takes the first or last day out of the years 1 to 9999.
    """
    try:
        return _EPOCH + dt.timedelta(seconds=value.nanoseconds // _SECOND + offset_s)
    except OverflowError as exc:
        raise CelError("timestamp overflow") from exc


def _offset(value: Timestamp, zone: str) -> int:
    """Seconds east of Greenwich in a zone: the name of one, or hours and minutes."""
    hours, colon, minutes = zone.partition(":")
    if colon:
        hour_count, minute_count = _atoi(hours), _atoi(minutes)
        return 60 * (hour_count * 60 + (-minute_count if zone[0] == "-" else minute_count))
    if zone in ("", "UTC", "Local"):
        return 0
    if zone[0] in "/\\" or ".." in zone:
        raise CelError("time: invalid location name")
    try:
        offset = _local(value, 0).astimezone(zoneinfo.ZoneInfo(zone)).utcoffset()
    except OverflowError as exc:
        raise CelError("timestamp overflow") from exc
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise CelError(f"unknown time zone {zone}") from exc
    return int(offset.total_seconds()) if offset is not None else 0


def _atoi(text: str) -> int:
    number = numbers.parse_int(text)
    if number is None:
        raise CelError(f'strconv.Atoi: parsing "{text}": invalid syntax')
    return number


_FIELDS: dict[str, Callable[[dt.datetime], int]] = {
    "getFullYear": lambda local: local.year,
    "getMonth": lambda local: local.month - 1,
    "getDayOfYear": lambda local: local.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda local: local.day - 1,
    "getDate": lambda local: local.day,
    "getDayOfWeek": lambda local: local.isoweekday() % 7,
    "getHours": lambda local: local.hour,
    "getMinutes": lambda local: local.minute,
    "getSeconds": lambda local: local.second,
}


def _declare_field(name: str, field: Callable[[dt.datetime], int]) -> None:
    LIBRARY.member(name, [types.TIMESTAMP], types.INT)(lambda value: field(_local(value, 0)))
    LIBRARY.member(name, [types.TIMESTAMP, types.STRING], types.INT)(
        lambda value, zone: field(_local(value, _offset(value, zone)))
    )


for _name, _field in _FIELDS.items():
    _declare_field(_name, _field)


@LIBRARY.member("getMilliseconds", [types.TIMESTAMP], types.INT)
def _milliseconds(value: Timestamp) -> int:
    return value.nanoseconds % _SECOND // 1_000_000


@LIBRARY.member("getMilliseconds", [types.TIMESTAMP, types.STRING], types.INT)
def _milliseconds_in(value: Timestamp, zone: str) -> int:
    _offset(value, zone)
    return _milliseconds(value)


def _declare_total(name: str, unit: int) -> None:
    LIBRARY.member(name, [types.DURATION], types.INT)(
        lambda value: numbers.divide(value.nanoseconds, unit)
    )


for _name, _unit in (
    ("getHours", 3600 * _SECOND),
    ("getMinutes", 60 * _SECOND),
    ("getSeconds", _SECOND),
    ("getMilliseconds", 1_000_000),
):
    _declare_total(_name, _unit)
