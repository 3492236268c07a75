"""What a plan found out, for the status: counted after the plan's deletions, before its creations."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from kthena.workload.identity import group_name
from kthena.workload.planner.formation import Formation
from kthena.workload.planner.origins import Podless
from kthena.workload.planner.recovery import Waiting, surplus_pods
from kthena.workload.planner.scheduling import falls_back
from kthena.workload.planner.situation import Situation
from kthena.workload.planner.slots import Health, Slot
from kthena.workload.status import Counters, Findings, HeldUp

_STARTING: Final = {"ContainerCreating", "PodInitializing"}


def find(
    situation: Situation,
    *,
    surplus: Collection[int],
    podless: Podless,
    replaced: Collection[int],
    waiting: Sequence[Waiting],
    formation: Formation,
) -> Findings:
    """The findings of a plan that deletes `surplus` groups, and `replaced` ones to create anew."""
    slots = situation.slots.values()
    staying = [slot for slot in slots if slot.ordinal not in surplus]
    available = [
        slot for slot in staying if slot.health is Health.AVAILABLE and slot.ordinal not in replaced
    ]
    unready = sorted({slot.ordinal for slot in slots} - {slot.ordinal for slot in available})
    outdated = [slot.ordinal for slot in staying if slot.outdated and not slot.protected]
    unknown = [
        slot.ordinal
        for slot in staying
        if slot.revision is None
        and not situation.is_whole_group(slot)
        and slot.ordinal not in replaced
    ]
    back_offs = [one.pod.place.instance for one in waiting if one.recoveries]
    looping = sorted(
        {f"{group_name(situation.name, key.group)}/{key.role_id}" for key in back_offs}
    )
    bare = {key.group for key in formation.wanted - situation.services.keys()}
    unfinished = [
        slot.ordinal for slot in available if slot.ordinal in bare or _has_surplus(situation, slot)
    ]
    absent = max(0, situation.desired_groups - len(staying))
    return Findings(
        counters=_count(situation, {*surplus, *replaced}, len(available), podless),
        current_revision=_current_revision(situation),
        update_revision=situation.history.update.name,
        selector_role=situation.selector_role,
        missing=absent - sum(podless),
        unready=unready,
        unfinished=unfinished,
        outdated=outdated,
        refused=situation.observed.refused,
        falls_back=falls_back(situation.observed),
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
    old = sum(_is_old(slot) for slot in living)
    updated = len(living) - old + podless.live
    old += podless.old
    replicas = len(situation.slots) + sum(podless)
    available += sum(podless)
    done = replicas == updated == available == situation.desired_groups
    # Kthena calls the updated groups current once a rollout is over, unless there is a partition.
    current = updated if done and situation.partition == 0 else old
    return Counters(replicas, current, updated, available)


def _has_surplus(situation: Situation, slot: Slot) -> bool:
    """Whether pods of the group that are to go, alone or with their instance, still exist."""
    if any(len(slot.group.roles.get(role, ())) > wanted for role, wanted in slot.replicas.items()):
        return True
    return any(slot.surplus.values()) or any(
        surplus_pods(instance, situation.history.size_of(instance), instance.pods.values())
        for instance in slot.group.instances
    )


def _is_old(slot: Slot) -> bool:
    """Whether a group is not of the live revision, or may not be."""
    return slot.outdated or slot.revision is None


def _current_revision(situation: Situation) -> str:
    """The revision of the groups that are not updated: the stored one while any of them has it."""
    stored = str((situation.modelserving.get("status") or {}).get("currentRevision") or "")
    first, others = _take_first(_old_revisions(situation))
    if first is None or stored in others:
        return situation.history.update.name if first is None else stored
    return first


def _take_first(names: Iterator[str]) -> tuple[str | None, set[str]]:
    first = next(names, None)
    return first, set(itertools.chain([first] if first is not None else [], names))


def _old_revisions(situation: Situation) -> Iterator[str]:
    """Revisions of groups that are not updated, by ordinal; protected ones count without pods."""
    ordinals = sorted(situation.slots.keys() | situation.recorded.keys())
    for ordinal in ordinals:
        slot = situation.slots.get(ordinal)
        if slot is not None and _is_old(slot) and (slot.protected or not slot.terminating):
            if slot.revision is not None:
                yield slot.revision.name
            else:
                yield next(iter(slot.group.instances)).revision
        elif (
            slot is None and ordinal < situation.desired_groups and situation.is_protected(ordinal)
        ):
            recorded = situation.recorded[ordinal]
            if recorded.name not in situation.history.current_names:
                yield recorded.name
