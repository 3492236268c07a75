"""The status of a Deployment: counts and the conditions Available and Progressing. Pure.

Reasons and messages are those of kube-controller-manager's deployment controller.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from kthena.machinery.conditions import (
    Condition,
    find_condition,
    format_time,
    parse_time,
    set_condition,
)
from kthena.machinery.intorstring import scale
from kthena.machinery.objects import Object, name_of

_DEADLINE_S: Final = 600


def deployment_status(
    deployment: Object, new: Object | None, old: Sequence[Object], now: datetime
) -> tuple[dict[str, Any], float | None]:
    """The status, and the seconds until the progress deadline where it runs."""
    every = [*old, *([new] if new is not None else [])]
    desired = deployment["spec"].get("replicas", 1)
    counts = {
        "replicas": _sum(every, "replicas"),
        "updatedReplicas": _sum([new] if new is not None else [], "replicas"),
        "readyReplicas": _sum(every, "readyReplicas"),
        "availableReplicas": _sum(every, "availableReplicas"),
    }
    counts["unavailableReplicas"] = max(
        max(desired, counts["replicas"]) - counts["availableReplicas"], 0
    )
    before = deployment.get("status") or {}
    conditions = list(before.get("conditions") or [])
    conditions = set_condition(conditions, _available(deployment, counts), now)
    progressing, left_s = _progressing(deployment, new, counts, now)
    conditions = set_condition(conditions, progressing, now)
    moved = _has_moved(deployment, counts)
    conditions = [_stamped(entry, before, now, moved=moved) for entry in conditions]
    return {**counts, "conditions": conditions}, left_s


def _available(deployment: Object, counts: dict[str, int]) -> Condition:
    desired = deployment["spec"].get("replicas", 1)
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    unavailable = scale(rolling.get("maxUnavailable", "25%"), desired, round_up=False)
    if counts["availableReplicas"] >= desired - unavailable:
        text = "Deployment has minimum availability."
        return Condition("Available", "True", "MinimumReplicasAvailable", text)
    text = "Deployment does not have minimum availability."
    return Condition("Available", "False", "MinimumReplicasUnavailable", text)


def _progressing(
    deployment: Object, new: Object | None, counts: dict[str, int], now: datetime
) -> tuple[Condition, float | None]:
    desired = deployment["spec"].get("replicas", 1)
    name = name_of(new) if new is not None else ""
    complete = (
        counts["updatedReplicas"] == counts["replicas"] == counts["availableReplicas"] == desired
    )
    if new is not None and complete:
        text = f'ReplicaSet "{name}" has successfully progressed.'
        return Condition("Progressing", "True", "NewReplicaSetAvailable", text), None
    before = find_condition((deployment.get("status") or {}).get("conditions") or [], "Progressing")
    deadline_s = deployment["spec"].get("progressDeadlineSeconds", _DEADLINE_S)
    left_s = _left(before, deadline_s, now)
    if left_s <= 0 and not _has_moved(deployment, counts):
        text = f'ReplicaSet "{name}" has timed out progressing.'
        return Condition("Progressing", "False", "ProgressDeadlineExceeded", text), None
    text = f'ReplicaSet "{name}" is progressing.' if name else "Creating a new ReplicaSet."
    reason = "ReplicaSetUpdated" if name else "NewReplicaSetCreated"
    return Condition("Progressing", "True", reason, text), max(left_s, 1.0)


def _left(before: Object | None, deadline_s: float, now: datetime) -> float:
    """Seconds until the deadline, counted from the last progress."""
    if before is None or before.get("reason") == "NewReplicaSetAvailable":
        return deadline_s
    try:
        since = parse_time(before.get("lastUpdateTime"))
    except ValueError:
        return deadline_s
    return (since + timedelta(seconds=deadline_s) - now).total_seconds()


def _has_moved(deployment: Object, counts: dict[str, int]) -> bool:
    before = deployment.get("status") or {}
    return any((before.get(name) or 0) != count for name, count in counts.items())


def _stamped(entry: Object, before: Any, now: datetime, *, moved: bool) -> Object:
    """`lastUpdateTime` of Progressing moves with the counts and the reason."""
    old = find_condition(before.get("conditions") or [], str(entry.get("type"))) or {}
    fresh = moved if entry.get("type") == "Progressing" else False
    if fresh or old.get("reason") != entry.get("reason") or not old.get("lastUpdateTime"):
        return {**entry, "lastUpdateTime": format_time(now)}
    return entry


def _sum(replica_sets: Sequence[Object], name: str) -> int:
    return sum(int((owned.get("status") or {}).get(name) or 0) for owned in replica_sets)
