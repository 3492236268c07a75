"""Field errors: what is wrong, where, and why, in the words of the Kubernetes API.

Validation collects these in lists and never raises one by one, so that a user sees every mistake of
an object at once. Texts and `Status` causes follow k8s.io/apimachinery/pkg/util/validation/field
and apiextensions, since users and tools read them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from kthena.machinery.gotext import format_float, format_json, quote


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
