"""The plan of one ModelServing, step by step. Start reading here.

The same function drives the controller and the simulator of the tests. It keeps nothing between two
calls, so a controller that is stopped anywhere goes on where it was.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from kthena.api.volcano import POD_GROUPS
from kthena.machinery.objects import (
    is_terminating,
    metadata_of,
    name_of,
    resource_version_of,
    uid_of,
)
from kthena.workload.identity import InstanceKey, owner_reference
from kthena.workload.planner.bookkeeping import Books, plan_counters, plan_history, plan_revisions
from kthena.workload.planner.findings import Losses, find
from kthena.workload.planner.formation import Formation
from kthena.workload.planner.gangs import Gangs
from kthena.workload.planner.groups import Instance, Pod
from kthena.workload.planner.observed import Belonging, Observed
from kthena.workload.planner.origins import Origins
from kthena.workload.planner.plan import (
    Action,
    Adopt,
    DeletePod,
    DeleteService,
    DeleteStale,
    Plan,
)
from kthena.workload.planner.recovery import (
    SERVING_GROUP_RECREATE,
    Recovery,
    Waiting,
    plan_recovery,
)
from kthena.workload.planner.roles import rolled_instances
from kthena.workload.planner.rollout import replaced_groups
from kthena.workload.planner.scale import surplus_groups
from kthena.workload.planner.situation import Situation
from kthena.workload.planner.slots import Slot
from kthena.workload.planner.surge import plan_surge
from kthena.workload.planner.transitions import states_after, states_before
from kthena.workload.records import Recoveries
from kthena.workload.status import build_status

_FORGETTING_S: Final = 1.0
"""When to look again for revisions that only the former status names: its write asks for no turn."""


@dataclass(slots=True)
class _Draft:
    """What the steps have decided so far."""

    to_delete: list[Pod] = field(default_factory=list)
    notes: list[Action] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    counters: dict[InstanceKey, Recoveries] = field(default_factory=dict)
    deleted_instances: set[InstanceKey] = field(default_factory=set)
    """Instances that are deleted without their group, whether or not they are created anew."""
    recreated_groups: set[int] = field(default_factory=set)
    rolling_groups: set[int] = field(default_factory=set)
    """Groups that lose instances because these are outdated."""


def plan(observed: Observed, now: datetime) -> Plan:
    """What to do for a ModelServing, given what can be observed."""
    # 1. Leave a ModelServing that is being deleted to the garbage collector.
    if is_terminating(observed.modelserving):
        return Plan()
    situation = Situation(observed, now)
    draft = _Draft()

    # 2. Take in orphans, and clear away what a former ModelServing of this name left.
    ownership = list(_plan_ownership(situation))

    # 3. Remove groups that are too many, and see which an update adds; then replace groups that are
    #    outdated, unless their roles are rolled one by one.
    regular, origins = situation.regular, Origins(situation)
    too_many = surplus_groups(regular.values(), situation.desired_groups, situation.is_whole)
    podless = origins.podless_groups(too_many)
    kept = [slot for slot in regular.values() if slot.ordinal not in too_many]
    surge = plan_surge(situation, kept, sum(podless))
    surplus = too_many | surge.surplus
    staying = [slot for slot in situation.slots.values() if slot.ordinal not in surplus]
    by_groups = situation.strategy.rolls_groups
    replaced = replaced_groups(situation, staying, sum(podless)) if by_groups else set()
    for ordinal in surplus | replaced:
        draft.to_delete += situation.slots[ordinal].group.living

    # 4. In every other group: scale its roles, roll them where they are rolled one by one, recover
    #    what failed or was lost, fill what lacks. A terminating group is left to go: it is created
    #    anew as a whole.
    gangs = Gangs(situation)
    formation = Formation(situation, origins, gangs)
    for slot in staying:
        if slot.ordinal not in replaced and not slot.terminating:
            _plan_group(situation, slot, formation, draft)

    # 5. Add groups that are missing.
    formation.add_groups(too_many)
    formation.add_surge(surge.missing)

    # 6. Write down what cannot be derived, before any pod is touched.
    disturbed = bool(draft.to_delete) or any(slot.terminating for slot in staying)
    books = Books(situation, staying, formation, disturbed=disturbed)
    counters = plan_counters(books, draft.counters)
    actions: list[Action] = [*ownership, *plan_revisions(books)]
    actions += [counters] if counters else []

    # 7. Delete, then create: PodGroups and services before the pods that need them.
    actions += _plan_pod_groups(gangs, staying, replaced | draft.recreated_groups, formation)
    actions += draft.notes
    actions += dict.fromkeys(DeletePod(pod.name, pod.uid) for pod in draft.to_delete)
    actions += _surplus_services(situation, formation, {slot.ordinal for slot in staying})
    actions += formation.services.values()
    actions += formation.pods

    # 8. Say how things stand, and forget revisions that nothing refers to.
    findings = find(
        situation,
        Losses(surplus, replaced | draft.recreated_groups, draft.rolling_groups),
        podless=podless,
        waiting=draft.waiting,
        formation=formation,
    )
    status = build_status(observed.modelserving, findings, now)
    old_status = observed.modelserving.get("status") or {}
    deletions, more_to_forget = plan_history(books, old_status, status)
    actions += deletions
    return Plan(
        actions=tuple(actions),
        status=status,
        requeue_after_s=_requeue_after(draft, formation, now, more_to_forget=more_to_forget),
        before=states_before(situation),
        after=states_after(
            situation,
            deleted_groups=surplus | replaced | draft.recreated_groups,
            deleted_instances=draft.deleted_instances,
            begun=formation.begun,
        ),
    )


def _plan_ownership(situation: Situation) -> Iterator[Adopt | DeleteStale]:
    for resource in situation.observed.children:
        blocks = resource is not POD_GROUPS
        owner = owner_reference(situation.modelserving, blocks_deletion=blocks)
        for child in situation.belonging(resource, Belonging.ORPHAN):
            metadata = metadata_of(child)
            yield Adopt(
                resource=resource,
                name=name_of(child),
                uid=uid_of(child),
                resource_version=resource_version_of(child),
                owner_references=(*(metadata.get("ownerReferences") or ()), owner),
            )
        for child in situation.belonging(resource, Belonging.STALE):
            if not is_terminating(child):
                yield DeleteStale(resource, name_of(child), uid_of(child))


def _plan_group(situation: Situation, slot: Slot, formation: Formation, draft: _Draft) -> None:
    staying: list[Instance] = []
    for instance in slot.group.instances:
        if instance.key.ordinal in slot.surplus.get(instance.key.role, ()):
            draft.deleted_instances.add(instance.key)
            draft.to_delete += instance.living
        else:
            staying.append(instance)
    rolled = rolled_instances(situation, slot, staying) if situation.strategy.rolls_roles else []
    if rolled:
        draft.rolling_groups.add(slot.ordinal)
    for instance in rolled:
        draft.deleted_instances.add(instance.key)
        draft.to_delete += instance.living
        staying.remove(instance)
    recovery = plan_recovery(situation, slot, staying)
    _take_over(draft, recovery)
    if recovery.recreated and situation.spec.recovery_policy == SERVING_GROUP_RECREATE:
        draft.recreated_groups.add(slot.ordinal)
        return
    draft.deleted_instances |= recovery.recreated
    formation.fill_group(slot, recovery.recreated.union(one.key for one in rolled))


def _take_over(draft: _Draft, recovery: Recovery) -> None:
    draft.to_delete += recovery.deleted
    draft.notes += recovery.annotated
    draft.waiting += recovery.waiting
    draft.counters |= recovery.counters


def _plan_pod_groups(
    gangs: Gangs, staying: Collection[Slot], leaving: Collection[int], formation: Formation
) -> Iterator[Action]:
    """PodGroups to write and to delete. Those of groups in `leaving` are kept for what follows them."""
    lasting = [slot for slot in staying if slot.ordinal not in leaving and not slot.terminating]
    yield from gangs.plan_upserts(lasting, formation.groups)
    if not formation.is_full:
        begun = gangs.begun_with_pods(formation.groups)
        yield from gangs.plan_deletions({slot.ordinal for slot in staying} | begun)


def _surplus_services(
    situation: Situation, formation: Formation, staying: Collection[int]
) -> Iterator[DeleteService]:
    """Services of instances that are not wanted and have no pods left.

    Those of a terminating group that is created anew are kept for it.
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


def _requeue_after(
    draft: _Draft, formation: Formation, now: datetime, *, more_to_forget: bool
) -> float | None:
    if formation.is_full:
        return 0.0
    delays = [(one.due - now).total_seconds() for one in draft.waiting]
    if more_to_forget:
        delays.append(_FORGETTING_S)
    return min(delays, default=None)
