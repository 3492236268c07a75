"""What is wrong with a list of `metav1.Condition`."""

import re
from typing import Final

from kthena.local.apiserver.builtins.fielderrors import (
    check_text,
    duplicate,
    invalid,
    required,
    unsupported,
)
from kthena.machinery.fields import ErrorList, ErrorType, FieldError
from kthena.machinery.names import check_qualified_name
from kthena.machinery.objects import Object

_STATUSES: Final = ("False", "True", "Unknown")
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_RULE: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. "
    "'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex "
    "used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)
_MAX_REASON_BYTES: Final = 1024
_MAX_MESSAGE_BYTES: Final = 32 * 1024


def check_conditions(conditions: list[Object] | None, path: str) -> ErrorList:
    """Each type once, with a status, a reason and a time."""
    errors: ErrorList = []
    seen = set()
    for index, condition in enumerate(conditions or ()):
        below = f"{path}[{index}]"
        if condition["type"] in seen:
            errors.append(duplicate(f"{below}.type", condition["type"]))
        seen.add(condition["type"])
        errors += _check_condition(condition, below)
    return errors


def _check_condition(condition: Object, path: str) -> ErrorList:
    errors = check_text(f"{path}.type", condition["type"], check_qualified_name)
    if condition["status"] not in _STATUSES:
        errors.append(unsupported(f"{path}.status", condition["status"], _STATUSES))
    generation = condition.get("observedGeneration") or 0
    if generation < 0:
        detail = "must be greater than or equal to zero"
        errors.append(invalid(f"{path}.observedGeneration", generation, detail))
    if condition.get("lastTransitionTime") is None:
        errors.append(required(f"{path}.lastTransitionTime"))
    reason, message = condition.get("reason") or "", condition.get("message") or ""
    if not reason:
        errors.append(required(f"{path}.reason"))
    elif not _REASON.fullmatch(reason):
        errors.append(invalid(f"{path}.reason", reason, _REASON_RULE))
    for name, text, limit in (
        ("reason", reason, _MAX_REASON_BYTES),
        ("message", message, _MAX_MESSAGE_BYTES),
    ):
        if len(text.encode()) > limit:
            detail = f"may not be more than {limit} bytes"
            errors.append(FieldError(f"{path}.{name}", ErrorType.TOO_LONG, "", detail))
    return errors
