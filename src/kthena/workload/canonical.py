"""The canonical form of a role: what two roles must share for their pods to be the same.

Roles come from live specs and from ControllerRevisions that another program wrote, so the form does
not depend on how a value was written down: nulls, empty structs and zero values that mean the same
as absence are dropped, quantities become numbers, and the CRD's defaults are left out. What differs
in meaning (`labelSelector: {}`, `enableServiceLinks: false`, a label with an empty value) differs
here too.

Counts and rollout settings of a role are no part of it: changing them makes no pod different.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from kthena.machinery.names import GENERATED_ALPHABET
from kthena.machinery.quantity import Quantity, is_quantity

ROLE_SETTINGS: Final = frozenset({"replicas", "maxUnavailable", "partition"})
"""Fields of a role that say how many pods there are and how they roll, not what they are."""

_STRING_MAPS: Final = frozenset(
    {
        "labels",
        "annotations",
        "nodeSelector",
        "matchLabels",
        "volumeAttributes",
        "attributes",
        "options",
    }
)
"""Fields that hold users' own keys: an empty value is a value."""

_QUANTITY_MAPS: Final = frozenset({"limits", "requests", "overhead"})
_QUANTITIES: Final = frozenset({"sizeLimit", "divisor"})

_MEANINGFUL_EMPTY: Final = frozenset({"labelSelector", "namespaceSelector", "workerTemplate"})
"""Structs that say something by being there: an empty selector matches all, an absent one nothing;
a worker template, even an empty one, gives a role its headless service."""

_MEANINGFUL_FALSE: Final = frozenset(
    {
        "automountServiceAccountToken",
        "enableServiceLinks",
        "hostUsers",
        "runAsNonRoot",
        "allowPrivilegeEscalation",
    }
)
"""Switches whose absence means true, or takes the value of an outer struct."""

_MEANINGLESS_ZERO: Final = frozenset(
    {
        "hostPort",
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    }
)
"""Numbers for which the API reads 0 as absence."""

_HASH_LENGTH: Final = 10


def canonical_role(role: Mapping[str, Any]) -> str:
    """The canonical form of one role, as JSON text."""
    kept = {key: value for key, value in role.items() if key not in ROLE_SETTINGS}
    return json.dumps(_struct(kept), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical_value(value: Any) -> Any:
    """The canonical form of a struct or of any other value, as plain data."""
    return _struct(value) if isinstance(value, dict) else value


def short_hash(text: str) -> str:
    """Ten characters, valid in names and label values, that stand for the text (47 bits)."""
    number = int.from_bytes(hashlib.sha256(text.encode()).digest())
    digits = []
    for _ in range(_HASH_LENGTH):
        number, digit = divmod(number, len(GENERATED_ALPHABET))
        digits.append(GENERATED_ALPHABET[digit])
    return "".join(digits)


def _struct(fields: Mapping[str, Any], parent: str = "") -> dict[str, Any]:
    result = {}
    for key, value in fields.items():
        if parent == "ports" and key == "protocol" and value == "TCP":
            continue
        kept = _field(key, value)
        if kept is not None:
            result[key] = kept
    return result


def _field(key: str, value: Any) -> Any:
    """The canonical value of a field of a struct, or None where it says no more than absence."""
    match value:
        case bool():
            says_more = value or key in _MEANINGFUL_FALSE
        case dict():
            return _mapping(key, value)
        case list():
            return [_item(key, item) for item in value] or None
        case int() | str() if key in _QUANTITIES:
            value = _quantity(value)
            says_more = value != "0"
        case _:
            says_more = value not in (None, "") and (value != 0 or key not in _MEANINGLESS_ZERO)
    return value if says_more else None


def _mapping(key: str, value: dict[str, Any]) -> dict[str, Any] | None:
    if key in _STRING_MAPS:
        return value or None
    if key in _QUANTITY_MAPS:
        return {name: _quantity(amount) for name, amount in value.items()} or None
    return _struct(value) or ({} if key in _MEANINGFUL_EMPTY else None)


def _item(key: str, value: Any) -> Any:
    """A list keeps its length: positions matter."""
    return _struct(value, parent=key) if isinstance(value, dict) else value


def _quantity(value: Any) -> Any:
    return str(Quantity.parse(value).value) if is_quantity(value) else value
