"""Which groups are too many, and which ordinals are missing.

Victims go in the order of Kthena: what is on its way out already, then what is not available, then
what is cheap to delete, then the highest ordinal; the partition's groups go last. New ordinals are
the smallest free ones.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterator

from kthena.workload.planner.groups import Health
from kthena.workload.planner.situation import Situation, Slot


def departing_groups(situation: Situation) -> set[int]:
    """Ordinals of the groups that have to go, those that are going already included.

    A group on its way out that would not be made again anyway takes nobody's place.
    """
    wanted = situation.desired_groups
    departing = {
        slot.ordinal for slot in situation.slots.values() if slot.gone and slot.ordinal >= wanted
    }
    staying = [slot for slot in situation.slots.values() if slot.ordinal not in departing]
    excess = len(staying) - wanted
    if excess > 0:
        staying.sort(key=lambda slot: _group_rank(situation, slot))
        departing.update(slot.ordinal for slot in staying[:excess])
    return departing


def _group_rank(situation: Situation, slot: Slot) -> tuple[bool, bool, bool, int, int]:
    group = slot.group
    whole = not group.terminating and all(
        instance.is_complete(situation.history.size_of(instance)) for instance in group.instances
    )
    available = slot.health is Health.AVAILABLE
    return slot.protected, whole, available, group.deletion_cost, -slot.ordinal


def podless_groups(situation: Situation, departing: Collection[int]) -> tuple[int, int]:
    """How many groups exist without pods, because their roles are all scaled to zero.

    First those of the live revision, then those that the partition keeps at another one.
    """
    present, wanted = situation.slots.keys(), situation.desired_groups
    missing = max(0, wanted - (len(present) - len(departing)))
    kept = wanted if situation.is_protected(wanted - 1) else min(situation.partition, wanted)
    protected = min(missing, kept - sum(ordinal < kept for ordinal in present))
    recorded = sorted(
        ordinal for ordinal in situation.recorded if ordinal < kept and ordinal not in present
    )[:protected]
    revisions = Counter(situation.recorded[ordinal].name for ordinal in recorded)
    revisions[situation.base_revision.name] += protected - len(recorded)
    revisions[situation.history.update.name] += missing - protected
    live = old = 0
    for name, count in revisions.items():
        if situation.is_podless(situation.history.known[name]):
            if name in situation.history.current_names:
                live += count
            else:
                old += count
    return live, old


def missing_ordinals(
    present: Collection[int], departing: Collection[int], wanted: int
) -> Iterator[int]:
    """The smallest free ordinals below `wanted`, as many as are missing.

    Lazily: a spec may ask for two billion.
    """
    missing = wanted - (len(present) - len(departing))
    free = (ordinal for ordinal in range(wanted) if ordinal not in present)
    return itertools.islice(free, max(missing, 0))
