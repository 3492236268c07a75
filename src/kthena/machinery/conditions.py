"""Status conditions in the standard form of the Kubernetes API, and its timestamps.

`lastTransitionTime` moves only when the status of a condition changes. Lists keep their order, and
an unchanged list compares equal to the old one, so that a controller can skip the write.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final, Literal

from kthena.machinery.objects import Object

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

ConditionStatus = Literal["True", "False", "Unknown"]

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Condition:
    """What a controller says of an object: one aspect, its status, and why.

    `reason` is a CamelCase word for programs, `message` a sentence for people.
    `observed_generation` is left out of the object where it is None.
    """

    type: str
    status: ConditionStatus
    reason: str
    message: str = ""
    observed_generation: int | None = None


def find_condition(conditions: Sequence[Object], condition_type: str) -> Object | None:
    """The first condition of a type, or None."""
    for condition in conditions:
        if condition.get("type") == condition_type:
            return condition
    return None


def is_true(conditions: Sequence[Object], condition_type: str) -> bool:
    """Whether the condition is there and True. Staleness is for the caller to judge."""
    condition = find_condition(conditions, condition_type)
    return condition is not None and condition.get("status") == TRUE


def set_condition(conditions: Sequence[Object], new: Condition, now: datetime) -> list[Object]:
    """The conditions with `new` in place of the one of its type, or at the end.

    The transition time is `now` where the status changes or the condition is new, else the old one.
    Fields of the old condition that `Condition` does not know are kept. The input is not changed.
    """
    old = find_condition(conditions, new.type)
    entry: Object = dict(old or {})
    moved = old is None or old.get("status") != new.status or not old.get("lastTransitionTime")
    entry |= {
        "type": new.type,
        "status": new.status,
        "reason": new.reason,
        "message": new.message,
        "lastTransitionTime": format_time(now) if moved else entry["lastTransitionTime"],
    }
    if new.observed_generation is not None:
        entry["observedGeneration"] = new.observed_generation
    if old is None:
        return [*conditions, entry]
    return [entry if condition is old else condition for condition in conditions]


def remove_condition(conditions: Sequence[Object], condition_type: str) -> list[Object]:
    """The conditions without those of a type."""
    return [condition for condition in conditions if condition.get("type") != condition_type]


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as `metav1.Time` is written; fractions are cut.

    Raises:
        ValueError: the moment has no time zone.
    """
    if moment.tzinfo is None:
        raise ValueError(f"time {moment.isoformat()} has no time zone; give it one, such as UTC")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def format_micro_time(moment: datetime) -> str:
    """RFC 3339 in UTC with six decimals, as `metav1.MicroTime` is written (leases, events)."""
    return f"{format_time(moment)[:-1]}.{moment.microsecond:06d}Z"


def parse_time(text: Any) -> datetime:
    """The moment of an RFC 3339 text, in UTC; decimals beyond microseconds are cut.

    Raises:
        ValueError: the value is no such text.
    """
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is no RFC 3339 time, such as 2026-01-31T08:00:00Z")
    *numbers, fraction, sign, hours, minutes = match.groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        zone = timezone(-offset if sign == "-" else offset)
        year, month, day, hour, minute, second = map(int, numbers)
        micros = int((fraction or "0")[:6].ljust(6, "0"))
        moment = datetime(year, month, day, hour, minute, second, micros, zone)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is no RFC 3339 time: {error}") from None
