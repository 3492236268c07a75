"""Whether an object has come to what its spec asks for, as kstatus reads it.

The rules are those of sigs.k8s.io/cli-utils' kstatus, which Flux, Argo CD and `kubectl wait` users
rely on: what holds for any object first, then what is particular to a kind, then the condition
`Ready`. An object of a kind without conditions is current once it exists.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from kthena.machinery.conditions import find_condition, is_true
from kthena.machinery.objects import Object, generation_of, is_terminating

State = Literal["Current", "InProgress", "Failed", "Terminating"]


@dataclass(frozen=True, slots=True)
class ObjectStatus:
    """One object's state, and why in one line."""

    state: State
    message: str = ""


_CURRENT: Final = ObjectStatus("Current")


def status_of(obj: Object, *, expects_ready: bool = False) -> ObjectStatus:
    """The state of one object.

    With `expects_ready`, the object is of a kind whose controller always reports `Ready`: it is in
    progress until the condition is there, and speaks of the object's generation.
    """
    general = _general(obj, expects_ready=expects_ready)
    if general is not None:
        return general
    status: dict[str, Any] = obj.get("status") or {}
    particular = _KINDS.get(str(obj.get("kind")))
    if particular is not None:
        return particular(obj, status)
    conditions = status.get("conditions") or []
    if find_condition(conditions, "Ready") is None:
        return ObjectStatus("InProgress", "no condition Ready yet") if expects_ready else _CURRENT
    state: State = "Current" if is_true(conditions, "Ready") else "InProgress"
    return ObjectStatus(state, _reason(conditions, "Ready"))


def _general(obj: Object, *, expects_ready: bool) -> ObjectStatus | None:
    """What holds for an object of any kind."""
    if is_terminating(obj):
        return ObjectStatus("Terminating", "it is being deleted")
    status: dict[str, Any] = obj.get("status") or {}
    observed = status.get("observedGeneration")
    behind = observed is not None and observed != generation_of(obj)
    if behind or (expects_ready and observed is None):
        return ObjectStatus("InProgress", "its controller has not looked at it yet")
    conditions = status.get("conditions") or []
    if is_true(conditions, "Reconciling"):
        return ObjectStatus("InProgress", _reason(conditions, "Reconciling"))
    if is_true(conditions, "Stalled"):
        return ObjectStatus("Failed", _reason(conditions, "Stalled"))
    return None


def _reason(conditions: list[Object], condition_type: str) -> str:
    condition = find_condition(conditions, condition_type) or {}
    return f"{condition.get('reason')}: {condition.get('message')}"


def _replicated(obj: Object, status: dict[str, Any]) -> ObjectStatus:
    """A Deployment or ReplicaSet."""
    wanted = (obj.get("spec") or {}).get("replicas", 1)
    ready = status.get("readyReplicas") or 0
    message = f"{ready} of {wanted} pods are ready"
    if status.get("observedGeneration") is None:
        return ObjectStatus("InProgress", "its controller has not looked at it yet")
    updated = status.get("updatedReplicas", status.get("replicas")) or 0
    present = status.get("replicas") or 0
    counts = (updated, ready, status.get("availableReplicas") or 0)
    reached = all(count >= wanted for count in counts) and present <= updated
    conditions = status.get("conditions") or []
    progressing = find_condition(conditions, "Progressing")
    if progressing is not None and progressing.get("reason") == "ProgressDeadlineExceeded":
        return ObjectStatus("Failed", _reason(conditions, "Progressing"))
    return ObjectStatus("Current" if reached else "InProgress", message)


def _pod(obj: Object, status: dict[str, Any]) -> ObjectStatus:
    del obj
    phase = status.get("phase")
    if phase == "Succeeded":
        return ObjectStatus("Current", "it has succeeded")
    if phase == "Failed":
        return ObjectStatus("Failed", str(status.get("message") or "it has failed"))
    if is_true(status.get("conditions") or [], "Ready"):
        return ObjectStatus("Current", "it is ready")
    waiting = [
        entry["state"]["waiting"]
        for entry in status.get("containerStatuses") or ()
        if (entry.get("state") or {}).get("waiting")
    ]
    crashed = next((each for each in waiting if each.get("reason") == "CrashLoopBackOff"), None)
    if crashed is not None:
        return ObjectStatus("Failed", f"CrashLoopBackOff: {crashed.get('message') or ''}")
    reasons = ", ".join(str(each.get("reason")) for each in waiting)
    return ObjectStatus("InProgress", reasons or f"its phase is {phase or 'Pending'}")


def _definition(obj: Object, status: dict[str, Any]) -> ObjectStatus:
    """A CustomResourceDefinition."""
    del obj
    conditions = status.get("conditions") or []
    names = find_condition(conditions, "NamesAccepted")
    if names is not None and names.get("status") == "False":
        return ObjectStatus("Failed", _reason(conditions, "NamesAccepted"))
    if is_true(conditions, "Established"):
        return ObjectStatus("Current", "it is established")
    return ObjectStatus("InProgress", "it is not established yet")


_KINDS: Final[dict[str, Callable[[Object, dict[str, Any]], ObjectStatus]]] = {
    "CustomResourceDefinition": _definition,
    "Deployment": _replicated,
    "Pod": _pod,
    "ReplicaSet": _replicated,
}
