"""Events of a ModelServing: one for each transition, none for what stays as it is.

Reasons of role instances are Kthena's (`RoleCreating`, `RoleRunning`, `RoleDeleting`); the others
tell of conditions that need somebody's attention.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from kthena.api.conditions import ACCEPTED, REPLICA_FAILURE, STALLED
from kthena.machinery.conditions import TRUE, find_condition
from kthena.machinery.objects import Object
from kthena.workload.identity import InstanceKey, group_name
from kthena.workload.planner.plan import Adopt, DeleteStale, InstanceState, Plan
from kthena.workload.status import (
    POD_GROUPS_MISSING,
    POD_GROUPS_TOO_OLD,
    SCHEDULER_FALLBACK,
)

_REASONS: Final = {
    InstanceState.CREATING: ("RoleCreating", "Creating"),
    InstanceState.RUNNING: ("RoleRunning", "Running"),
    InstanceState.DELETING: ("RoleDeleting", "Deleting"),
}


@dataclass(frozen=True, slots=True)
class Event:
    """One event about the ModelServing."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def instance_events(
    modelserving: str,
    before: Mapping[InstanceKey, InstanceState],
    after: Mapping[InstanceKey, InstanceState],
) -> Iterator[Event]:
    """An event for each role instance that has entered another state."""
    for key, state in after.items():
        if before.get(key) is not state:
            reason, word = _REASONS[state]
            group = group_name(modelserving, key.group)
            yield Event("Normal", reason, f"Role {key.role}/{key.role_id} of {group} is {word}")


def ownership_events(plan: Plan) -> Iterator[Event]:
    """An event for each child that is taken in or cleared away."""
    for action in plan.actions:
        match action:
            case Adopt():
                text = f"Adopted {action.resource.kind} {action.name}, which had no controller"
                yield Event("Normal", "Adopted", text)
            case DeleteStale():
                text = (
                    f"Deleted {action.resource.kind} {action.name}, "
                    "left by a former ModelServing of this name"
                )
                yield Event("Normal", "StaleChildDeleted", text)


def condition_events(before: Object, after: Object) -> Iterator[Event]:
    """An event for each condition that now says something which needs attention."""
    for condition in after.get("conditions") or ():
        old = find_condition(before.get("conditions") or (), str(condition["type"])) or {}
        if _facts(old) != _facts(condition) and _needs_attention(condition):
            yield Event("Warning", str(condition["reason"]), str(condition["message"]))


def _facts(condition: Mapping[str, Any]) -> tuple[Any, Any]:
    return condition.get("status"), condition.get("reason")


def _needs_attention(condition: Mapping[str, Any]) -> bool:
    kind, true = condition["type"], condition["status"] == TRUE
    if kind == ACCEPTED:
        return not true or condition["reason"] in _NOTABLE
    # What else stalls a ModelServing has its event from Accepted.
    stalled = kind == STALLED and condition["reason"] not in _ACCEPTED_REASONS
    return true and (kind == REPLICA_FAILURE or stalled)


_NOTABLE: Final = frozenset({SCHEDULER_FALLBACK, POD_GROUPS_MISSING, POD_GROUPS_TOO_OLD})
_ACCEPTED_REASONS: Final = frozenset({"NotSupported", "Invalid", POD_GROUPS_MISSING})
