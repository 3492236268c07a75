"""The plan of one ModelServing, step by step. Start reading here.

The same function drives the controller and the simulator of the tests. It keeps nothing between two
calls, so a controller that is stopped anywhere goes on where it was.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from kthena.machinery.objects import Object, is_terminating, metadata_of, name_of, uid_of
from kthena.workload.children.identity import InstanceKey, owner_reference
from kthena.workload.planner.bookkeeping import Books, plan_counters, plan_history, plan_revisions
from kthena.workload.planner.findings import find
from kthena.workload.planner.formation import Formation
from kthena.workload.planner.groups import Instance, Pod
from kthena.workload.planner.observed import Belonging, Observed
from kthena.workload.planner.plan import (
    Action,
    Adopt,
    DeletePod,
    DeleteService,
    DeleteStale,
    InstanceState,
    Plan,
)
from kthena.workload.planner.recovery import (
    SERVING_GROUP_RECREATE,
    Recovery,
    Waiting,
    plan_recovery,
)
from kthena.workload.planner.rollout import replaced_groups
from kthena.workload.planner.scale import departing_groups, podless_groups
from kthena.workload.planner.situation import Situation, Slot
from kthena.workload.records import Recoveries
from kthena.workload.status import build_status


@dataclass(slots=True)
class _Draft:
    """What the steps have decided so far."""

    doomed: list[Pod] = field(default_factory=list)
    notes: list[Action] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    counters: dict[InstanceKey, Recoveries] = field(default_factory=dict)
    closing: set[InstanceKey] = field(default_factory=set)
    """Instances that are deleted, alone, whether or not they are made again."""
    remade_groups: set[int] = field(default_factory=set)


def plan(observed: Observed, now: datetime) -> Plan:
    """What to do for a ModelServing, given what can be observed."""
    # 1. Leave a ModelServing that is being deleted to the garbage collector.
    if is_terminating(observed.modelserving):
        return Plan()
    situation = Situation(observed, now)
    draft = _Draft()

    # 2. Take in orphans, and clear away what a former ModelServing of this name left.
    ownership = list(_plan_ownership(situation))

    # 3. Remove groups that are too many; then replace groups that are outdated.
    departing = departing_groups(situation)
    staying = [slot for slot in situation.slots.values() if slot.ordinal not in departing]
    podless = podless_groups(situation, departing)
    replaced = replaced_groups(situation, staying, sum(podless)) if situation.accepted else set()
    for ordinal in departing | replaced:
        draft.doomed += situation.slots[ordinal].group.living

    # 4. In every other group: scale its roles, recover what failed or was lost, fill what lacks.
    #    A group on its way out is left to go: it is made again as a whole.
    formation = Formation(situation)
    for slot in staying:
        if slot.ordinal not in replaced and not slot.gone:
            _plan_group(situation, slot, formation, draft)

    # 5. Add groups that are missing.
    formation.add_groups(departing)

    # 6. Write down what cannot be derived, before any pod is touched.
    disturbed = bool(draft.doomed) or any(slot.gone for slot in staying)
    books = Books(situation, staying, formation, disturbed=disturbed)
    counters = plan_counters(books, draft.counters)
    actions: list[Action] = [*ownership, *plan_revisions(books)]
    actions += [counters] if counters else []

    # 7. Delete, then create: services before the pods that need them.
    actions += draft.notes
    actions += dict.fromkeys(DeletePod(pod.name, pod.uid) for pod in draft.doomed)
    actions += _surplus_services(situation, formation, {slot.ordinal for slot in staying})
    actions += formation.services.values()
    actions += formation.pods

    # 8. Say how things stand, and forget revisions that nothing refers to.
    findings = find(
        situation,
        departing=departing,
        podless=podless,
        replaced=replaced | draft.remade_groups,
        waiting=draft.waiting,
        formation=formation,
    )
    status = build_status(observed.modelserving, findings, now)
    actions += plan_history(books, _status_revisions(observed.modelserving, status))
    return Plan(
        actions=tuple(actions),
        status=status,
        requeue_after_s=_requeue_after(draft, formation, now),
        before=_states(situation),
        after=_states_after(
            situation, departing | replaced | draft.remade_groups, draft, formation
        ),
    )


def _plan_ownership(situation: Situation) -> Iterator[Adopt | DeleteStale]:
    owner = owner_reference(situation.modelserving)
    for resource in situation.observed.children:
        for child in situation.belonging(resource, Belonging.ORPHAN):
            metadata = metadata_of(child)
            yield Adopt(
                resource=resource,
                name=name_of(child),
                uid=uid_of(child),
                resource_version=str(metadata.get("resourceVersion") or ""),
                owner_references=(*(metadata.get("ownerReferences") or ()), owner),
            )
        for child in situation.belonging(resource, Belonging.STALE):
            if not is_terminating(child):
                yield DeleteStale(resource, name_of(child), uid_of(child))


def _plan_group(situation: Situation, slot: Slot, formation: Formation, draft: _Draft) -> None:
    staying: list[Instance] = []
    for instance in slot.group.instances:
        if instance.key.ordinal in slot.leaving.get(instance.key.role, ()):
            draft.closing.add(instance.key)
            draft.doomed += instance.living
        else:
            staying.append(instance)
    recovery = plan_recovery(situation, slot, staying)
    _take_over(draft, recovery)
    if recovery.remade and situation.spec.recovery_policy == SERVING_GROUP_RECREATE:
        draft.remade_groups.add(slot.ordinal)
        return
    draft.closing |= recovery.remade
    formation.fill_group(slot, recovery.remade)


def _take_over(draft: _Draft, recovery: Recovery) -> None:
    draft.doomed += recovery.deleted
    draft.notes += recovery.annotated
    draft.waiting += recovery.waiting
    draft.counters |= recovery.counters


def _surplus_services(
    situation: Situation, formation: Formation, staying: Collection[int]
) -> Iterator[DeleteService]:
    """Services of instances that are not wanted and have no pods left.

    Those of a group that is on its way out to be made again are kept for it.
    """
    if formation.is_full:
        return
    for key, service in situation.services.items():
        slot = situation.slots.get(key.group)
        if key in formation.wanted or is_terminating(service):
            continue
        if key.group in staying and key.group not in formation.filled:
            continue
        if slot is not None and key.ordinal in slot.group.roles.get(key.role, {}):
            continue
        yield DeleteService(name_of(service), uid_of(service))


def _requeue_after(draft: _Draft, formation: Formation, now: datetime) -> float | None:
    if formation.is_full:
        return 0.0
    return min(((one.due - now).total_seconds() for one in draft.waiting), default=None)


def _status_revisions(modelserving: Object, status: Object) -> set[str]:
    """Revisions that the stored or the new status names."""
    statuses = (modelserving.get("status") or {}, status)
    return {
        str(one.get(field) or "")
        for one in statuses
        for field in ("currentRevision", "updateRevision")
    }


def _states(situation: Situation) -> dict[InstanceKey, InstanceState]:
    """The state of each instance as observed; groups that are on their way out have none."""
    states = {}
    for slot in situation.slots.values():
        if slot.gone:
            continue
        for instance in slot.group.instances:
            if not instance.living:
                state = InstanceState.DELETING
            elif instance.is_available(situation.history.size_of(instance)):
                state = InstanceState.RUNNING
            else:
                state = InstanceState.CREATING
            states[instance.key] = state
    return states


def _states_after(
    situation: Situation, leaving: Collection[int], draft: _Draft, formation: Formation
) -> dict[InstanceKey, InstanceState]:
    states = {
        key: InstanceState.DELETING if key in draft.closing else state
        for key, state in _states(situation).items()
        if key.group not in leaving
    }
    for key in formation.instances:
        states[key] = InstanceState.CREATING
    for ordinal, revision in formation.groups.items():
        for role, wanted in situation.replicas_of(revision).items():
            for number in range(min(wanted, len(formation.pods))):
                states[InstanceKey(ordinal, role, number)] = InstanceState.CREATING
    return states
