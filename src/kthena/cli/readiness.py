"""Whether objects are ready, as their own status says: kstatus' rules on a plain object.

An object without a status, or whose status speaks of an earlier generation, is in progress. The
kinds of this project carry `Ready`, `Reconciling` and `Stalled`; a Deployment is judged as kstatus
does it.
"""

from dataclasses import dataclass
from typing import Literal

from kthena.machinery.conditions import find_condition, is_true
from kthena.machinery.objects import Object, generation_of

State = Literal["Ready", "InProgress", "Failed"]


@dataclass(frozen=True)
class Readiness:
    """One object's state, and why in one line."""

    state: State
    message: str = ""


def readiness_of(obj: Object) -> Readiness:
    """The state of one object. A kind without conditions is ready once it exists."""
    status = obj.get("status") or {}
    conditions = status.get("conditions") or []
    if obj.get("kind") == "Deployment":
        return _deployment(obj)
    if obj.get("kind") not in _OWN_KINDS:
        return Readiness("Ready")
    if status.get("observedGeneration") != generation_of(obj):
        return Readiness("InProgress", "its controller has not looked at it yet")
    stalled = find_condition(conditions, "Stalled")
    if stalled is not None and stalled.get("status") == "True":
        return Readiness("Failed", _reason(stalled))
    ready = find_condition(conditions, "Ready")
    if ready is not None and ready.get("status") == "True":
        return Readiness("Ready", str(ready.get("message") or ""))
    return Readiness("InProgress", _reason(ready) if ready else "no condition Ready yet")


_OWN_KINDS = {
    "ModelServing",
    "ModelServer",
    "ModelRoute",
    "AutoscalingPolicy",
    "ExternalModelProvider",
}


def _reason(condition: Object) -> str:
    return f"{condition.get('reason')}: {condition.get('message')}"


def _deployment(obj: Object) -> Readiness:
    status, replicas = obj.get("status") or {}, (obj.get("spec") or {}).get("replicas", 1)
    if (status.get("observedGeneration") or 0) < generation_of(obj):
        return Readiness("InProgress", "its controller has not looked at it yet")
    ready = status.get("readyReplicas") or 0
    message = f"{ready} of {replicas} pods are ready"
    updated = status.get("updatedReplicas") or 0
    if updated < replicas or ready < replicas or (status.get("replicas") or 0) > updated:
        return Readiness("InProgress", message)
    available = is_true(status.get("conditions") or [], "Available")
    return Readiness("Ready" if available else "InProgress", message)
