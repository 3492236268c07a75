"""What is to be done about a Deployment and about a ReplicaSet. Pure.

The rules are kube-controller-manager's (`pkg/controller/deployment`, `pkg/controller/replicaset`):
a template has one ReplicaSet; a rolling update keeps the pods between `replicas - maxUnavailable`
available ones and `replicas + maxSurge`; Recreate ends the old pods first. Orphaned pods are not
adopted, and a paused Deployment is scaled but not rolled.
"""

import copy
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from kthena.api.kubernetes import DEPLOYMENTS, REPLICA_SETS
from kthena.local.deployments.progress import deployment_status
from kthena.machinery.conditions import find_condition, parse_time
from kthena.machinery.intorstring import scale
from kthena.machinery.names import GENERATED_ALPHABET
from kthena.machinery.objects import (
    Object,
    annotations_of,
    is_terminating,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
)
from kthena.machinery.resources import Resource

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_HASH_LENGTH: Final = 10
_DEFAULT_SHARE: Final = "25%"
_HISTORY: Final = 10


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """What to do: create a ReplicaSet, change the size of some, delete some, write the status.

    `revision` is what the Deployment's annotation should say; `requeue_s` is when to look again.
    """

    create: Object | None = None
    resize: tuple[tuple[Object, int], ...] = ()
    delete: tuple[Object, ...] = ()
    status: dict[str, Any] = field(default_factory=dict)
    revision: str = ""
    requeue_s: float | None = None


@dataclass(frozen=True, slots=True)
class ReplicaSetPlan:
    """What to do: create so many pods, delete these, write the status."""

    create: int
    delete: tuple[Object, ...]
    status: dict[str, Any]
    requeue_s: float | None = None


# --- Deployments -----------------------------------------------------------------------------


def plan_deployment(
    deployment: Object, replica_sets: Sequence[Object], now: datetime
) -> DeploymentPlan:
    """The plan for a Deployment, given the ReplicaSets that it owns."""
    spec = deployment["spec"]
    desired = _replicas(deployment)
    ordered = sorted(replica_sets, key=lambda owned: (_created(owned), name_of(owned)))
    new = _current(spec["template"], ordered)
    old = [owned for owned in ordered if owned is not new]
    revision = _revision(new, old)
    create: Object | None = None
    resize: list[tuple[Object, int]] = []
    if spec.get("paused"):
        if new is not None and not any(_replicas(owned) for owned in old):
            resize = _resized([(new, desired)])
    elif (spec.get("strategy") or {}).get("type") == "Recreate":
        create, resize = _recreate(deployment, new, old, desired, revision)
    else:
        create, resize = _roll(deployment, new, old, desired, revision)
    status, requeue_s = deployment_status(deployment, new, old, now)
    return DeploymentPlan(
        create=create,
        resize=tuple(resize),
        delete=_expired(spec, old),
        status=status,
        revision=revision,
        requeue_s=requeue_s,
    )


def template_hash(template: Any) -> str:
    """A name for a pod template: equal templates have equal names."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    digest = hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), digest_size=_HASH_LENGTH
    ).digest()
    return "".join(GENERATED_ALPHABET[byte % len(GENERATED_ALPHABET)] for byte in digest)


def _current(template: Any, owned: Sequence[Object]) -> Object | None:
    """The oldest ReplicaSet of this template."""
    for candidate in owned:
        if _plain_template(candidate) == template:
            return candidate
    return None


def _plain_template(replica_set: Object) -> Any:
    """Its template without the label that was added to it."""
    template = copy.deepcopy(replica_set["spec"]["template"])
    labels = (template.get("metadata") or {}).get("labels") or {}
    labels.pop(HASH_LABEL, None)
    return template


def _recreate(
    deployment: Object, new: Object | None, old: Sequence[Object], desired: int, revision: str
) -> tuple[Object | None, list[tuple[Object, int]]]:
    """End all old pods, and only when they are gone start the new ones."""
    if any(_replicas(owned) or _status(owned, "replicas") for owned in old):
        return None, _resized([(owned, 0) for owned in old])
    if new is None:
        return _new_replica_set(deployment, desired, revision), []
    return None, _resized([(new, desired)])


def _roll(
    deployment: Object, new: Object | None, old: Sequence[Object], desired: int, revision: str
) -> tuple[Object | None, list[tuple[Object, int]]]:
    """One step of a rolling update: grow the new ReplicaSet, then shrink the old ones."""
    surge, unavailable = _bounds(deployment, desired)
    others = sum(_replicas(owned) for owned in old)
    room = max(desired + surge - others, 0)
    if new is None:
        return _new_replica_set(deployment, min(desired, room), revision), []
    size = _replicas(new)
    target = min(desired, max(size, room)) if size <= desired else desired
    shrunk = _shrink(new, target, old, desired - unavailable)
    return None, _resized([(new, target), *shrunk])


def _shrink(
    new: Object, target: int, old: Sequence[Object], minimum: int
) -> list[tuple[Object, int]]:
    """Sizes of the old ReplicaSets that keep `minimum` pods available.

    First the pods that are not available go, since they serve nobody; then as many available ones
    as the minimum allows.
    """
    sizes = {uid_of(owned): _replicas(owned) for owned in old}
    every = target + sum(sizes.values())
    missing = max(target - _status(new, "availableReplicas"), 0)
    spare = max(every - minimum - missing, 0)
    for owned in old:
        size = sizes[uid_of(owned)]
        idle = min(max(size - _status(owned, "availableReplicas"), 0), spare)
        sizes[uid_of(owned)] = size - idle
        spare -= idle
    available = sum(_status(owned, "availableReplicas") for owned in (new, *old))
    # Never beyond what the sizes allow either: counts lag behind them.
    surplus = min(max(available - minimum, 0), spare)
    for owned in old:
        down = min(sizes[uid_of(owned)], surplus)
        sizes[uid_of(owned)] -= down
        surplus -= down
    return [(owned, sizes[uid_of(owned)]) for owned in old]


def _bounds(deployment: Object, desired: int) -> tuple[int, int]:
    """MaxSurge (rounded up) and maxUnavailable (rounded down, 1 when both are 0)."""
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    surge = scale(rolling.get("maxSurge", _DEFAULT_SHARE), desired, round_up=True)
    unavailable = scale(rolling.get("maxUnavailable", _DEFAULT_SHARE), desired, round_up=False)
    if not surge and not unavailable:
        unavailable = 1
    return surge, min(unavailable, desired)


def _new_replica_set(deployment: Object, replicas: int, revision: str) -> Object:
    spec = deployment["spec"]
    name = template_hash(spec["template"])
    template = copy.deepcopy(spec["template"])
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    labels[HASH_LABEL] = name
    selector = copy.deepcopy(spec["selector"])
    selector.setdefault("matchLabels", {})[HASH_LABEL] = name
    return {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {
            "name": f"{name_of(deployment)}-{name}",
            "namespace": namespace_of(deployment),
            "labels": dict(labels),
            "annotations": {REVISION: revision},
            "ownerReferences": [owner_reference(deployment, DEPLOYMENTS)],
        },
        "spec": {
            "replicas": replicas,
            "selector": selector,
            "template": template,
            "minReadySeconds": spec.get("minReadySeconds") or 0,
        },
    }


def _revision(new: Object | None, old: Sequence[Object]) -> str:
    """One more than the highest of the others, or what the current ReplicaSet has already."""
    highest = max((_revision_of(owned) for owned in old), default=0)
    present = _revision_of(new) if new is not None else 0
    return str(max(present, highest + 1))


def _revision_of(replica_set: Object) -> int:
    text = annotations_of(replica_set).get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def _expired(spec: Any, old: Sequence[Object]) -> tuple[Object, ...]:
    """Empty ReplicaSets beyond the history limit, oldest revisions first."""
    limit = spec.get("revisionHistoryLimit")
    empty = [
        owned
        for owned in old
        if not _replicas(owned) and not _status(owned, "replicas") and not is_terminating(owned)
    ]
    empty.sort(key=_revision_of)
    surplus = len(empty) - (_HISTORY if limit is None else int(limit))
    return tuple(empty[: max(surplus, 0)])


def _resized(sizes: Sequence[tuple[Object, int]]) -> list[tuple[Object, int]]:
    return [(owned, size) for owned, size in sizes if size != _replicas(owned)]


# --- ReplicaSets -----------------------------------------------------------------------------


def plan_replica_set(replica_set: Object, pods: Sequence[Object], now: datetime) -> ReplicaSetPlan:
    """The plan for a ReplicaSet, given the pods that it owns."""
    active = [pod for pod in pods if _is_active(pod)]
    surplus = len(active) - _replicas(replica_set)
    victims = sorted(active, key=_deletion_rank)[: max(surplus, 0)]
    status, requeue_s = _replica_set_status(replica_set, active, now)
    return ReplicaSetPlan(max(-surplus, 0), tuple(victims), status, requeue_s)


def new_pod(replica_set: Object, suffix: str) -> Object:
    """A pod of the ReplicaSet."""
    template = copy.deepcopy(replica_set["spec"]["template"])
    metadata = template.get("metadata") or {}
    name = f"{name_of(replica_set)}-{suffix}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "name": name,
            "generateName": f"{name_of(replica_set)}-",
            "namespace": namespace_of(replica_set),
            "ownerReferences": [owner_reference(replica_set, REPLICA_SETS)],
        },
        "spec": template.get("spec") or {},
    }


def owner_reference(owner: Object, resource: Resource) -> dict[str, Any]:
    """The reference of a controller to be put on what it owns."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _replica_set_status(
    replica_set: Object, active: Sequence[Object], now: datetime
) -> tuple[dict[str, Any], float | None]:
    """Counts of pods; and when a pod that is ready becomes available by `minReadySeconds`."""
    wanted = labels_of(replica_set["spec"]["template"])
    minimum = timedelta(seconds=replica_set["spec"].get("minReadySeconds") or 0)
    ready = [since for pod in active if (since := _ready_since(pod)) is not None]
    available = [since for since in ready if since + minimum <= now]
    waits = [(since + minimum - now).total_seconds() for since in ready if since + minimum > now]
    labelled = sum(wanted.items() <= labels_of(pod).items() for pod in active)
    status = {
        "replicas": len(active),
        "fullyLabeledReplicas": labelled,
        "readyReplicas": len(ready),
        "availableReplicas": len(available),
    }
    return status, min(waits, default=None)


def _is_active(pod: Object) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return not is_terminating(pod) and phase not in {"Succeeded", "Failed"}


def _ready_since(pod: Object) -> datetime | None:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = find_condition(conditions, "Ready")
    if ready is None or ready.get("status") != "True":
        return None
    try:
        return parse_time(ready.get("lastTransitionTime"))
    except ValueError:
        return parse_time(metadata_of(pod).get("creationTimestamp"))


def _deletion_rank(pod: Object) -> tuple[Any, ...]:
    """Who goes first: as the ReplicaSet controller ranks pods."""
    status = pod.get("status") or {}
    phases = {"Pending": 0, "Unknown": 1, "Running": 2}
    cost = annotations_of(pod).get(_DELETION_COST, "0")
    since = _ready_since(pod)
    restarts = max(
        (int(entry.get("restartCount") or 0) for entry in status.get("containerStatuses") or ()),
        default=0,
    )
    return (
        bool((pod.get("spec") or {}).get("nodeName")),
        phases.get(str(status.get("phase")), 0),
        since is not None,
        int(cost) if cost.removeprefix("-").isdecimal() else 0,
        -since.timestamp() if since else 0.0,
        -restarts,
        _reversed(_created(pod)),
        name_of(pod),
    )


def _reversed(stamp: str) -> tuple[int, ...]:
    """Sorts younger pods first."""
    return tuple(-ord(character) for character in stamp)


def _created(obj: Object) -> str:
    return str(metadata_of(obj).get("creationTimestamp") or "")


def _replicas(obj: Object) -> int:
    replicas = obj["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)


def _status(obj: Object, name: str) -> int:
    return int((obj.get("status") or {}).get(name) or 0)
