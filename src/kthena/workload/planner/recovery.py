"""What a pod that failed or was lost takes with it, and when.

A pod has failed when its phase says so, or when one of its containers ended while the pod has not
been ready since (not with policy `None`, which leaves containers to the kubelet). It may recover for
`restartGracePeriodSeconds`. A pod is lost when it is missing from an instance that was whole before,
or is terminating. With it go, and come back together, its instance (`RoleRecreate`) or its group
(`ServingGroupRecreate`).

An instance that fails again soon after it was made anew waits longer each time before it is deleted,
as kubelet's back-off does; so its logs stay readable, and it may still recover by itself.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from kthena.machinery.conditions import FALSE, find_condition, format_time
from kthena.machinery.objects import Object, annotations_of
from kthena.workload.identity import InstanceKey
from kthena.workload.planner.groups import Instance, Pod
from kthena.workload.planner.plan import AnnotatePod
from kthena.workload.planner.situation import Situation
from kthena.workload.planner.slots import Slot
from kthena.workload.records import (
    ANNOTATION_FAILING_SINCE,
    ANNOTATION_RECOVERIES,
    Recoveries,
    time_or_none,
)

NONE: Final = "None"
SERVING_GROUP_RECREATE: Final = "ServingGroupRecreate"

BACKOFF_INITIAL: Final = timedelta(seconds=10)
BACKOFF_MAX: Final = timedelta(seconds=300)
BACKOFF_RESET: Final = timedelta(seconds=600)
"""An instance that held out so long since it was made anew starts from no back-off."""

_CLOCK_SLACK: Final = timedelta(seconds=5)
"""How much later than the end of a container its pod may be reported unready."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A failed pod that is given time."""

    pod: Pod
    due: datetime
    recoveries: int
    """How often its instance was made anew already; above 0 it is in back-off."""


@dataclass(slots=True)
class Recovery:
    """What recovery does to the instances of one group."""

    deleted: list[Pod] = field(default_factory=list)
    annotated: list[AnnotatePod] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    counters: dict[InstanceKey, Recoveries] = field(default_factory=dict)
    """Counters to carry over to the pods that replace the deleted ones."""
    recreated: set[InstanceKey] = field(default_factory=set)
    """Instances of which no pod is created before all are gone."""


def plan_recovery(situation: Situation, slot: Slot, staying: Iterable[Instance]) -> Recovery:
    """Recovery of a group whose instances in `staying` are to stay."""
    recovery = Recovery()
    known = [
        instance for instance in staying if situation.history.template_of(instance) is not None
    ]
    policy = situation.spec.recovery_policy
    failed = {instance.key: _failed_pods(situation, instance, recovery) for instance in known}
    for instance in known:
        size = situation.history.size_of(instance)
        recovery.deleted += surplus_pods(instance, size, instance.living)
    if policy == NONE:
        for instance in known:
            recovery.deleted += failed[instance.key]
            _carry_counter(situation, instance, recovery, failed=bool(failed[instance.key]))
        return recovery
    broken = [
        instance
        for instance in known
        if failed[instance.key] or _has_lost_pods(situation, slot, instance)
    ]
    if policy == SERVING_GROUP_RECREATE and (broken or _has_lost_instances(slot)):
        broken = list(slot.group.instances)
    for instance in broken:
        recovery.recreated.add(instance.key)
        recovery.deleted += instance.living
        _carry_counter(situation, instance, recovery, failed=bool(failed.get(instance.key)))
    return recovery


def recoveries_of(situation: Situation, instance: Instance) -> Recoveries | None:
    """The counter for new pods of an instance; None where it is over."""
    kept = situation.recoveries.get(instance.key)
    counters = [counter for counter in (_carried(instance), kept) if counter is not None]
    newest = max(counters, key=_age, default=None)
    return newest if newest and is_fresh(newest, situation.now) else None


def surplus_pods(instance: Instance, size: int, pods: Collection[Pod]) -> list[Pod]:
    """Those of its pods beyond the instance's size. One of another revision goes with its group."""
    return [pod for pod in pods if pod.place.position >= size and pod.revision == instance.revision]


def is_fresh(counter: Recoveries, now: datetime) -> bool:
    """Whether the last recovery is recent enough to matter."""
    return now - counter.at < BACKOFF_RESET


def back_off(recoveries: int) -> timedelta:
    """How long a failed pod stays after its instance was made anew so many times."""
    if recoveries <= 0:
        return timedelta()
    doublings = min(recoveries - 1, 16)
    return min(BACKOFF_INITIAL * (1 << doublings), BACKOFF_MAX)


def failure_of(pod: Object) -> tuple[bool, datetime | None]:
    """Whether a pod that is not ready has failed, and since when as far as its status says."""
    status = pod.get("status") or {}
    ended = max(_ends(status), default=None)
    unready = _unready_since(status)
    if status.get("phase") == "Failed":
        return True, ended or unready
    if not any(_restarts(status)):
        return False, None
    if ended is None:
        return True, unready
    # A container that ended before the pod was last ready is an old story.
    if unready is not None and ended < unready - _CLOCK_SLACK:
        return False, None
    return True, ended


def _failed_pods(situation: Situation, instance: Instance, recovery: Recovery) -> list[Pod]:
    """The failed pods of an instance whose time is up; the others are given time."""
    if instance.ready == len(instance.living):
        return []
    counter = _carried(instance)
    count = counter.count if counter and is_fresh(counter, situation.now) else 0
    grace = timedelta(
        seconds=max(0, min(situation.spec.template.restart_grace_period_seconds, _YEAR_S))
    )
    size = situation.history.size_of(instance)
    due_pods = []
    for pod in instance.living:
        if pod.ready or pod.place.position >= size:
            continue
        if situation.spec.recovery_policy == NONE and not pod.failed:
            continue
        failed, since = failure_of(pod.obj)
        if not failed:
            continue
        noted = _noted_failure(pod, since)
        start = noted or since or situation.now
        due = start + max(grace, back_off(count))
        if due <= situation.now:
            due_pods.append(pod)
            continue
        recovery.waiting.append(Waiting(pod, due, count))
        if noted is None:
            note = {ANNOTATION_FAILING_SINCE: format_time(start)}
            recovery.annotated.append(AnnotatePod(pod.name, pod.uid, note))
    return due_pods


_YEAR_S: Final = 365 * 24 * 3600
"""More than anyone waits for a pod; keeps dates in range."""


def _noted_failure(pod: Pod, since: datetime | None) -> datetime | None:
    """The noted start of the present failure; a note of a former one does not count.

    Later crashes of a pod that has not been ready since do not restart its time.
    """
    noted = time_or_none(annotations_of(pod.obj).get(ANNOTATION_FAILING_SINCE))
    unready = _unready_since(pod.obj.get("status") or {})
    if noted is None or (unready is not None and noted < unready - _CLOCK_SLACK):
        return None
    return min(noted, since) if since is not None else noted


def _has_lost_pods(situation: Situation, slot: Slot, instance: Instance) -> bool:
    """Whether pods are missing from, or terminating in, an instance that was whole before."""
    if situation.is_forming(slot, instance.key):
        return False
    return not situation.is_whole(instance)


def _has_lost_instances(slot: Slot) -> bool:
    """Whether instances that the group had are gone altogether."""
    revision = slot.revision
    record = revision.record if revision else None
    if revision is None or record is None or slot.ordinal in record.forming.groups:
        return False
    for role, wanted in slot.replicas.items():
        present = slot.group.roles.get(role, {})
        forming = sum(
            key.group == slot.ordinal and key.role == role and key.ordinal not in present
            for key in record.forming.instances
        )
        if len(present) + forming < min(wanted, record.replicas.get(role, 0)):
            return True
    return False


def _carry_counter(
    situation: Situation, instance: Instance, recovery: Recovery, *, failed: bool
) -> None:
    """Keep the counter of an instance that loses pods, one higher if that is for a failure.

    A counter that is newer than the instance's pods counts their failure already.
    """
    counter, carried = recoveries_of(situation, instance), _carried(instance)
    if failed and (counter is None or (carried is not None and _age(carried) >= _age(counter))):
        counter = Recoveries((counter.count if counter else 0) + 1, situation.now)
    if counter is not None:
        recovery.counters[instance.key] = counter


def _carried(instance: Instance) -> Recoveries | None:
    """The counter that the pods of an instance carry."""
    texts = (annotations_of(pod.obj).get(ANNOTATION_RECOVERIES) for pod in instance.pods.values())
    return max((c for text in texts if (c := Recoveries.parse(text))), key=_age, default=None)


def _age(counter: Recoveries) -> tuple[datetime, int]:
    return counter.at, counter.count


def _containers(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All containers but the init containers that are done: their restarts are over."""
    for container in status.get("initContainerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended is None or ended.get("exitCode"):
            yield container
    yield from status.get("containerStatuses") or ()


def _restarts(status: Mapping[str, Any]) -> Iterator[int]:
    return (int(container.get("restartCount") or 0) for container in _containers(status))


def _ends(status: Mapping[str, Any]) -> Iterator[datetime]:
    """When containers that were restarted, or that failed, ended."""
    for container in _containers(status):
        for state in ("state", "lastState"):
            terminated = (container.get(state) or {}).get("terminated") or {}
            moment = time_or_none(terminated.get("finishedAt"))
            if moment is not None and (terminated.get("exitCode") or container.get("restartCount")):
                yield moment


def _unready_since(status: Mapping[str, Any]) -> datetime | None:
    condition = find_condition(status.get("conditions") or (), "Ready")
    if condition is None or condition.get("status") != FALSE:
        return None
    return time_or_none(condition.get("lastTransitionTime"))
