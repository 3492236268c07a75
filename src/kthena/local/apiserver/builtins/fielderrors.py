"""Short forms of field errors, for validation that follows k8s.io/kubernetes closely."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kthena.machinery.fields import ErrorList, ErrorType, FieldError
from kthena.machinery.gotext import quote

NO_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
NEGATIVE = "must be greater than or equal to 0"
IMMUTABLE = "field is immutable"


def required(path: str, detail: str = "") -> FieldError:
    """A missing value."""
    return FieldError(path, ErrorType.REQUIRED, "", detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """A value that breaks a rule."""
    return FieldError(path, ErrorType.INVALID, value, detail)


def forbidden(path: str, detail: str) -> FieldError:
    """A value that may not be here."""
    return FieldError(path, ErrorType.FORBIDDEN, "", detail)


def duplicate(path: str, value: Any) -> FieldError:
    """A value that has to be unique."""
    return FieldError(path, ErrorType.DUPLICATE, value, "")


def not_found(path: str, value: Any) -> FieldError:
    """A reference to nothing."""
    return FieldError(path, ErrorType.NOT_FOUND, value, "")


def unsupported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    """A word that is not among the known ones."""
    texts = ", ".join(map(quote, supported))
    return FieldError(path, ErrorType.NOT_SUPPORTED, value, f"supported values: {texts}")


def check_text(path: str, value: str, check: Callable[[str], list[str]]) -> ErrorList:
    """One error for each message of `check`."""
    return [invalid(path, value, message) for message in check(value)]


def check_choice(path: str, value: str | None, supported: Sequence[str]) -> ErrorList:
    """A word of a closed set, which must be given."""
    if not value:
        return [required(path)]
    return [] if value in supported else [unsupported(path, value, supported)]


def check_not_negative(path: str, value: int) -> ErrorList:
    """A number that may be zero."""
    return [invalid(path, value, NEGATIVE)] if value < 0 else []


def check_port_number(path: str, value: int) -> ErrorList:
    """A TCP or UDP port."""
    if 1 <= value <= 65535:
        return []
    return [invalid(path, value, "must be between 1 and 65535, inclusive")]
