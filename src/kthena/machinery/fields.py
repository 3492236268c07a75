"""Field errors: what is wrong, where, and why, in the words of the Kubernetes API.

Validation collects these in lists and never raises one by one, so that a user sees every mistake of
an object at once. Texts and `Status` causes follow k8s.io/apimachinery/pkg/util/validation/field
and apiextensions, since users and tools read them.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeAlias

from kthena.machinery.gotext import quote


class ErrorType(Enum):
    """Kinds of field errors: the text that users see, and the `reason` of the Status cause."""

    NOT_FOUND = ("Not found", "FieldValueNotFound")
    REQUIRED = ("Required value", "FieldValueRequired")
    DUPLICATE = ("Duplicate value", "FieldValueDuplicate")
    INVALID = ("Invalid value", "FieldValueInvalid")
    NOT_SUPPORTED = ("Unsupported value", "FieldValueNotSupported")
    FORBIDDEN = ("Forbidden", "FieldValueForbidden")
    TOO_LONG = ("Too long", "FieldValueTooLong")
    TOO_MANY = ("Too many", "FieldValueTooMany")
    INTERNAL = ("Internal error", "InternalError")
    TYPE_INVALID = ("Invalid value", "FieldValueTypeInvalid")

    @property
    def text(self) -> str:
        """The words between the path and the value."""
        return self.value[0]

    @property
    def reason(self) -> str:
        """The machine-readable reason of the cause in a `Status`."""
        return self.value[1]


class _Omitted(Enum):
    OMITTED = "omitted"


OMITTED: Final = _Omitted.OMITTED
"""As the `value` of an error: the text names no value (objects and lists in failures of rules)."""


class Verbatim(str):
    """As the `value` of an error: a text that is shown as it is."""

    __slots__ = ()


_WITHOUT_VALUE = {ErrorType.REQUIRED, ErrorType.FORBIDDEN, ErrorType.TOO_LONG, ErrorType.INTERNAL}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One mistake in one field. `path` is dotted, with `[0]` and `[key]` for items."""

    path: str
    type: ErrorType
    value: Any
    detail: str

    @property
    def message(self) -> str:
        """The text of the cause: everything but the path."""
        head = self.type.text
        if self.type not in _WITHOUT_VALUE and self.value is not OMITTED:
            head = f"{head}: {format_value(self.value)}"
        return f"{head}: {self.detail}" if self.detail else head

    def __str__(self) -> str:
        """`path: Invalid value: "x": why`."""
        return f"{self.path}: {self.message}"


ErrorList: TypeAlias = list[FieldError]


def format_value(value: Any) -> str:
    """The value as the API server prints it: strings and floats as Go's `%q` and `%v`, else JSON."""
    if isinstance(value, Verbatim):
        return value
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, float):
        return format_float(value)
    return format_json(value)


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


def child(path: str, name: str) -> str:
    """The path of a named field below `path`."""
    return f"{path}.{name}" if path else name


def item(path: str, key: object) -> str:
    """The path of a list index or a map key below `path`."""
    return f"{path}[{key}]"


def join_errors(errors: Iterable[FieldError]) -> str:
    """All errors in one text: the single one as it is, several in brackets, repeated ones once."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
