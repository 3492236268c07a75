"""What a plan found out, for the status: counted after the plan's deletions, before its creations."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kthena.workload.identity import group_name
from kthena.workload.planner.formation import Formation
from kthena.workload.planner.history import History
from kthena.workload.planner.origins import Podless
from kthena.workload.planner.recovery import Waiting, surplus_pods
from kthena.workload.planner.scheduling import falls_back, waits_for_pod_groups
from kthena.workload.planner.situation import Situation
from kthena.workload.planner.slots import Health, Slot
from kthena.workload.status import Counters, Findings, HeldUp

_STARTING: Final = {"ContainerCreating", "PodInitializing"}


@dataclass(frozen=True, slots=True)
class Losses:
    """What a plan takes away, by ordinals of groups."""

    surplus: Collection[int]
    """Groups that are deleted for good."""
    replaced: Collection[int]
    """Groups that are deleted to be created anew."""
    rolling: Collection[int]
    """Groups that lose instances which are created anew, because these are outdated."""


def find(
    situation: Situation,
    losses: Losses,
    *,
    podless: Podless,
    waiting: Sequence[Waiting],
    formation: Formation,
) -> Findings:
    """The findings of a plan."""
    slots, replaced = situation.slots.values(), losses.replaced
    staying = [slot for slot in slots if slot.ordinal not in losses.surplus]
    impaired = {*replaced, *losses.rolling}
    available = [
        slot for slot in staying if slot.health is Health.AVAILABLE and slot.ordinal not in impaired
    ]
    unready = sorted({slot.ordinal for slot in slots} - {slot.ordinal for slot in available})
    outdated = [slot.ordinal for slot in staying if slot.outdated and not slot.protected]
    unknown = [
        slot.ordinal
        for slot in staying
        if _cannot_be_healed(situation, slot) and slot.ordinal not in replaced
    ]
    back_offs = [one.pod.place.instance for one in waiting if one.recoveries]
    looping = sorted(
        {f"{group_name(situation.name, key.group)}/{key.role_id}" for key in back_offs}
    )
    bare = {key.group for key in formation.wanted - situation.services.keys()}
    unfinished = [
        slot.ordinal
        for slot in available
        if slot.ordinal in bare or slot.surge or _has_surplus(situation, slot)
    ]
    absent = max(0, situation.desired_groups - sum(not slot.surge for slot in staying))
    return Findings(
        counters=_count(situation, {*losses.surplus, *replaced}, len(available), podless),
        current_revision=_current_revision(situation),
        update_revision=situation.history.update.name,
        selector_role=situation.selector_role,
        missing=absent - sum(podless),
        unready=unready,
        unfinished=unfinished,
        outdated=outdated,
        refused=situation.observed.refused,
        falls_back=falls_back(situation.observed),
        waits_for_pod_groups=waits_for_pod_groups(situation.observed),
        unheard=formation.gangs.find_unheard(),
        crash_looping=looping,
        held_up=list(_held_up(situation.slots[ordinal] for ordinal in unready)),
        unknown=unknown,
        problems=[*situation.history.problems.values(), *formation.problems.values()],
    )


def _held_up(slots: Iterable[Slot]) -> Iterator[HeldUp]:
    """What keeps containers of these groups from running, beyond the time that a start takes."""
    for slot in slots:
        for instance in slot.group.instances:
            for pod in instance.living:
                status = pod.obj.get("status") or {}
                for name in ("initContainerStatuses", "containerStatuses"):
                    for container in status.get(name) or ():
                        waiting = (container.get("state") or {}).get("waiting") or {}
                        reason = str(waiting.get("reason") or "")
                        if reason and reason not in _STARTING:
                            yield HeldUp(pod.name, reason, str(waiting.get("message") or ""))


def _count(
    situation: Situation, deleted: Collection[int], available: int, podless: Podless
) -> Counters:
    living = [
        slot
        for slot in situation.slots.values()
        if not slot.terminating and slot.ordinal not in deleted
    ]
    old = sum(slot.old for slot in living)
    updated = len(living) - old + podless.live
    old += podless.old
    replicas = len(situation.slots) + sum(podless)
    available += sum(podless)
    done = replicas == updated == available == situation.desired_groups
    # Kthena calls the updated groups current once a rollout is over, unless there is a partition.
    current = updated if done and situation.strategy.partition == 0 else old
    return Counters(replicas, current, updated, available)


def _has_surplus(situation: Situation, slot: Slot) -> bool:
    """Whether pods of the group that are to go, alone or with their instance, still exist."""
    if any(len(slot.group.roles.get(role, ())) > wanted for role, wanted in slot.replicas.items()):
        return True
    return any(slot.surplus.values()) or any(
        surplus_pods(instance, situation.history.size_of(instance), instance.pods.values())
        for instance in slot.group.instances
    )


def _cannot_be_healed(situation: Situation, slot: Slot) -> bool:
    """Whether something is missing from the group and nobody knows what it was made from."""
    if slot.revision is None:
        return not situation.is_whole_group(slot)
    history = situation.history
    return situation.strategy.rolls_roles and any(
        history.template_of(one) is None
        and not history.is_whole(one)
        and not situation.must_roll(one)
        for one in slot.group.instances
    )


def _current_revision(situation: Situation) -> str:
    """The revision of the groups that are not updated: the stored one while any of them has it."""
    stored = str((situation.modelserving.get("status") or {}).get("currentRevision") or "")
    first, others = _take_first(_old_revisions(situation))
    if first is None or stored in others:
        return situation.history.update.name if first is None else stored
    return first


def _old_names(history: History, slot: Slot) -> Iterator[str]:
    """The revision of a group that is not updated, or those of its instances that are not."""
    if slot.revision is not None and slot.revision.name not in history.current_names:
        yield slot.revision.name
        return
    for instance in slot.group.instances:
        if history.template_of(instance) is None or history.differs(instance):
            yield instance.revision


def _take_first(names: Iterator[str]) -> tuple[str | None, set[str]]:
    first = next(names, None)
    return first, set(itertools.chain([first] if first is not None else [], names))


def _old_revisions(situation: Situation) -> Iterator[str]:
    """Revisions of groups that are not updated, by ordinal; protected ones count without pods."""
    ordinals = sorted(situation.slots.keys() | situation.recorded.keys())
    for ordinal in ordinals:
        slot = situation.slots.get(ordinal)
        if slot is not None and slot.old and (slot.protected or not slot.terminating):
            yield from _old_names(situation.history, slot)
        elif (
            slot is None and ordinal < situation.desired_groups and situation.is_protected(ordinal)
        ):
            recorded = situation.recorded[ordinal]
            if recorded.name not in situation.history.current_names:
                yield recorded.name
