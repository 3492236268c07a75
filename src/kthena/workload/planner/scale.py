"""Which groups and which role instances are too many, and which ordinals are missing.

Victims go in the order of Kthena: what is not whole, then what is not available, then what is cheap
to delete, then the highest ordinal. The partition's groups go last of all groups, and instance 0 of
the role in the selector last of its role. New ordinals are the smallest free ones.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeAlias

from kthena.workload.identity import InstanceKey
from kthena.workload.planner.groups import Group, Instance
from kthena.workload.planner.history import History
from kthena.workload.planner.slots import Health, Slot

_Rank: TypeAlias = tuple[bool, bool, bool, int, int]
"""The lowest goes first."""

_InstanceRank: TypeAlias = tuple[tuple[bool, bool], bool, bool, int, int]
"""Likewise."""


def surplus_groups(
    slots: Collection[Slot], wanted: int, is_whole: Callable[[Instance], bool]
) -> set[int]:
    """Ordinals of the groups that have to go, those that are terminating already included.

    A terminating group that would not be created again anyway takes nobody's place.
    """
    surplus = {slot.ordinal for slot in slots if slot.terminating and slot.ordinal >= wanted}
    staying = [slot for slot in slots if slot.ordinal not in surplus]
    excess = len(staying) - wanted
    if excess > 0:
        staying.sort(key=lambda slot: _group_rank(slot, is_whole))
        surplus.update(slot.ordinal for slot in staying[:excess])
    return surplus


def _group_rank(slot: Slot, is_whole: Callable[[Instance], bool]) -> _Rank:
    group = slot.group
    whole = not group.has_terminating and all(map(is_whole, group.instances))
    available = slot.health is Health.AVAILABLE
    return slot.protected, whole, available, group.deletion_cost, -slot.ordinal


def surplus_instances(
    group: Group,
    replicas: Mapping[str, int],
    history: History,
    *,
    selector_role: str,
    is_protected: Callable[[InstanceKey], bool],
) -> dict[str, Collection[int]]:
    """Ordinals of the instances of a group that have to go, by role.

    `replicas` are those of the group's revision. A role that neither it nor the live spec has goes
    as a whole. Instances that a partition protects go last.
    """
    surplus: dict[str, Collection[int]] = {}
    for role, instances in group.roles.items():
        wanted = replicas.get(role)
        if wanted is None and role not in history.update.roles:
            surplus[role] = instances.keys()
        elif wanted is not None and len(instances) > wanted:
            kept = {
                ordinal: (role == selector_role and ordinal == 0, is_protected(instance.key))
                for ordinal, instance in instances.items()
            }
            surplus[role] = _surplus_of_role(instances, wanted, history, kept)
    return surplus


def _surplus_of_role(
    instances: Mapping[int, Instance],
    wanted: int,
    history: History,
    kept: Mapping[int, tuple[bool, bool]],
) -> frozenset[int]:
    """Ordinals of the instances of a role that have to go, those already terminating included.

    The higher an instance stands in `kept`, by ordinal, the later it goes; while one that stays so is
    not ready, one that is stays in its place.
    """
    surplus = {
        ordinal
        for ordinal, instance in instances.items()
        if not instance.living and ordinal >= wanted
    }
    staying = [instance for ordinal, instance in instances.items() if ordinal not in surplus]
    excess = len(staying) - wanted

    def rank(instance: Instance) -> _InstanceRank:
        return (
            kept[instance.key.ordinal],
            history.is_whole(instance),
            history.is_available(instance),
            instance.deletion_cost,
            -instance.key.ordinal,
        )

    if excess > 0:
        ranked = sorted(staying, key=rank)
        victims, others = ranked[:excess], ranked[excess:]
        ready = list(filter(history.is_available, victims))
        lacking = wanted - sum(map(history.is_available, others))
        # What is kept may not be ready: what serves in its place goes later.
        spared = ready[-lacking:] if lacking > 0 else []
        surplus.update(one.key.ordinal for one in victims if one not in spared)
    return frozenset(surplus)


def missing_ordinals(
    present: Collection[int], surplus: Collection[int], wanted: int
) -> Iterator[int]:
    """The smallest free ordinals below `wanted`, as many as are missing.

    Lazily: a spec may ask for two billion.
    """
    missing = wanted - (len(present) - len(surplus))
    free = (ordinal for ordinal in range(wanted) if ordinal not in present)
    return itertools.islice(free, max(missing, 0))
