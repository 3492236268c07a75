"""What the API server says against an object, in one line: the object, the fields, the causes.

A server lists some causes that only follow from others, and says strict decoding of a patch with the
whole patch ahead of it; what is left out here helps nobody.
"""

import re
from typing import Any

from kthena.kube.errors import ApiError, Invalid

_STRICT = re.compile(r"strict decoding error: (.*)", re.DOTALL)
_FOLLOWS = re.compile(r"some validation rules were not checked|accessor error")
_PATCH = re.compile(r'^patch: Invalid value: "(?:[^"\\]|\\.)*": ', re.DOTALL)


def explain(error: ApiError, subject: str) -> str:
    """The refusal of `subject`, for instance `ModelServing default/qwen3`."""
    strict = _STRICT.search(error.full_message)
    if strict is not None:
        return f"{subject}: {strict[1]}"
    if not isinstance(error, Invalid):
        return f"{subject}: {_PATCH.sub('', error.full_message)}"
    causes = [_cause(cause) for cause in error.full_causes if not _follows(cause)]
    if not causes:
        return f"{subject}: {error.full_message}"
    return f"{subject}: {'; '.join(dict.fromkeys(causes))}"


def _follows(cause: dict[str, Any]) -> bool:
    return cause.get("field") == "<nil>" or bool(_FOLLOWS.search(str(cause.get("message"))))


def _cause(cause: dict[str, Any]) -> str:
    field, message = str(cause.get("field") or "").removeprefix("."), str(cause.get("message"))
    return f"{field}: {message}" if field else message
