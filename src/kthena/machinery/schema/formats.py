"""String formats that the API server enforces in schemas, with the verdicts of kube-openapi's strfmt.

Formats it does not know are ignored; so are those of numbers (`int32`, `double`). Dashes in the name
of a format do not count: `date-time` and `datetime` are one.
"""

import datetime as dt
import ipaddress
import re
from collections.abc import Callable
from functools import cache

from kthena.machinery.durations import (
    HOUR,
    MICROSECOND,
    MILLISECOND,
    MINUTE,
    NANOSECOND,
    SECOND,
    DurationError,
    parse_duration,
)
from kthena.machinery.regexp import Regexp, compile_regexp
from kthena.machinery.schema.mailbox import is_email
from kthena.machinery.schema.urls import is_request_uri

_HEX12 = re.compile(r"[0-9a-fA-F]{24}")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))")
_SCALA_TERM = re.compile(r"([0-9]+)[\t\n\f\r ]*([A-Za-zµ]+)")
_SCALA_UNITS = (
    (("ns", "nano"), NANOSECOND),
    (("us", "µs", "micro"), MICROSECOND),
    (("ms", "milli"), MILLISECOND),
    (("s", "sec"), SECOND),
    (("m", "min"), MINUTE),
    (("h", "hr", "hour"), HOUR),
    (("d", "day"), 24 * HOUR),
    (("w", "wk", "week"), 7 * 24 * HOUR),
)
_MAX_INT64 = 2**63 - 1
_MAX_DIGITS = 19
_OCTET = re.compile(r"0*[0-9]{1,3}")
_PREFIX = re.compile(r"0*[0-9]{1,3}")
_UUID = r"[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}"
_ANY = "[0-9a-f]"
_VARIANT = "[89ab]"
_HOSTNAME = (
    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)"
    r"|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}"
    r"([a-zA-Z\p{L}]){2,63})$"
)
_CREDIT_CARD = re.compile(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}"
)
_BYTE = r"(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])"
_BLANK = r"[\t\n\f\r ]*"
_SHORT_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"


@cache
def _hostname() -> Regexp:
    """Compiled on first use: few schemas have the format, and it takes a tenth of a second."""
    return compile_regexp(_HOSTNAME)


def find_format(name: str) -> Callable[[str], bool] | None:
    """The check of a format, or None for one that is not enforced."""
    return _FORMATS.get(name.replace("-", ""))


def _full(pattern: str, flags: int = 0) -> Callable[[str], bool]:
    compiled = re.compile(pattern, flags)
    return lambda text: compiled.fullmatch(text) is not None


def is_date(text: str) -> bool:
    """A full date of RFC 3339."""
    found = _DATE.fullmatch(text)
    if found is None:
        return False
    year, month, day = map(int, found.groups())
    try:
        # Go has a year 0; it is a leap year, as 2000 is.
        dt.date(year or 2000, month, day)
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    parts = text.lower().split("t")
    if len(parts) < 2 or not is_date(parts[0]):
        return False
    found = _TIME.fullmatch(parts[1])
    return found is not None and found[1] <= "23" and found[2] <= "59" and found[3] <= "59"


def parse_long_duration(text: str) -> int | None:
    """The nanoseconds of a Go duration, or of one in Scala's words (`3 days`); None for no duration.

    Amounts beyond 64 bits wrap around, as they do on the server.
    """
    try:
        return parse_duration(text)
    except DurationError:
        pass
    total, is_known = 0, False
    for factor, unit in _SCALA_TERM.findall(text):
        if len(factor.lstrip("0")) > _MAX_DIGITS or int(factor.lstrip("0") or "0") > _MAX_INT64:
            return None
        for variants, nanoseconds in _SCALA_UNITS:
            if unit.lower() in variants or unit.lower().startswith(variants[-1]):
                total += int(factor.lstrip("0") or "0") * nanoseconds
                is_known = True
    return (total + 2**63) % 2**64 - 2**63 if is_known else None


def _parse_ipv4(text: str) -> bool:
    """Leading zeros are allowed, as in Go before 1.17."""
    octets = text.split(".")
    return len(octets) == 4 and all(
        _OCTET.fullmatch(octet) is not None and int(octet[-3:]) <= 255 for octet in octets
    )


def _parse_ipv6(text: str, *, sloppy: bool) -> bool:
    if "%" in text or ":" not in text:
        return False
    head, colon, tail = text.rpartition(":")
    if sloppy and "." in tail and _parse_ipv4(tail):
        text = f"{head}{colon}1.2.3.4"
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_ipv4(text: str) -> bool:
    """Also an IPv6 address with an IPv4 tail: the server looks for a dot."""
    return "." in text and (_parse_ipv4(text) or _parse_ipv6(text, sloppy=True))


def _is_ipv6(text: str) -> bool:
    return _parse_ipv6(text, sloppy=False)


def _is_cidr(text: str) -> bool:
    address, _, prefix = text.partition("/")
    if _PREFIX.fullmatch(prefix) is None:
        return False
    bits = 32 if _parse_ipv4(address) else 128 if _parse_ipv6(address, sloppy=True) else -1
    return int(prefix[-3:]) <= bits


def _is_mac(text: str) -> bool:
    for separator, digits in ((":", 2), ("-", 2), (".", 4), ("", 2)):
        pair = f"[0-9a-fA-F]{{{digits}}}"
        for octets in (6, 8, 20):
            pattern = f"{pair}({re.escape(separator)}{pair}){{{octets * 2 // digits - 1}}}"
            if re.fullmatch(pattern, text):
                return True
    return False


def _is_hostname(text: str) -> bool:
    encoded = text.encode("utf-8", "surrogatepass")
    return (
        _hostname().search(text)
        and len(encoded) <= 255
        and all(len(label) <= 63 for label in encoded.split(b"."))
    )


def _is_isbn10(text: str) -> bool:
    digits = re.sub(r"[\t\n\f\r -]+", "", text)
    if re.fullmatch("[0-9]{9}[0-9X]", digits) is None:
        return False
    values = [10 if digit == "X" else int(digit) for digit in digits]
    return sum(weight * value for weight, value in enumerate(values, start=1)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = re.sub(r"[\t\n\f\r -]+", "", text)
    if re.fullmatch("[0-9]{13}", digits) is None:
        return False
    checksum = sum(int(digit) * (3 if index % 2 else 1) for index, digit in enumerate(digits[:12]))
    return int(digits[12]) == (10 - checksum % 10) % 10


def _is_credit_card(text: str) -> bool:
    digits = re.sub("[^0-9]+", "", text)
    if _CREDIT_CARD.fullmatch(digits) is None:
        return False
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if index % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _is_ssn(text: str) -> bool:
    return len(text) == 11 and re.fullmatch(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}", text) is not None


def _limited(pattern: str, limit: int) -> Callable[[str], bool]:
    matches = _full(pattern)
    return lambda text: len(text) <= limit and matches(text)


_FORMATS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": lambda text: _HEX12.fullmatch(text) is not None,
    "uri": is_request_uri,
    "email": is_email,
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "cidr": _is_cidr,
    "mac": _is_mac,
    "uuid": _full(_UUID % (_ANY, _ANY), re.IGNORECASE | re.ASCII),
    "uuid3": _full(_UUID % ("3", _ANY), re.IGNORECASE | re.ASCII),
    "uuid4": _full(_UUID % ("4", _VARIANT), re.IGNORECASE | re.ASCII),
    "uuid5": _full(_UUID % ("5", _VARIANT), re.IGNORECASE | re.ASCII),
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "creditcard": _is_credit_card,
    "ssn": _is_ssn,
    "hexcolor": _full("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _full(
        rf"rgb\({_BLANK}{_BYTE}{_BLANK},{_BLANK}{_BYTE}{_BLANK},{_BLANK}{_BYTE}{_BLANK}\)"
    ),
    "byte": _full("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "password": lambda _text: True,
    "date": is_date,
    "datetime": _is_date_time,
    "duration": lambda text: parse_long_duration(text) is not None,
    "k8sshortname": _limited(_SHORT_NAME, 63),
    "k8slongname": _limited(rf"{_SHORT_NAME}(\.{_SHORT_NAME})*", 253),
}
