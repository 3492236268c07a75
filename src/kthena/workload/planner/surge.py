"""Groups that an update adds to the count for its time, so that it takes none away (`maxSurge`).

They have ordinals from the count on, are of the live revision, and are known by their record: a group
with a high ordinal that some other way came to be is no such. They stay as long as groups below the
count lack what they stand in for, and no partition protects them.
"""

from collections.abc import Collection
from typing import NamedTuple

from kthena.workload.planner.situation import Situation
from kthena.workload.planner.slots import Health, Slot


class Surge(NamedTuple):
    """What becomes of the groups that an update adds."""

    surplus: set[int]
    """Ordinals of those that have to go, those that are terminating already included."""
    missing: int
    """How many there should be beyond those that exist."""


def plan_surge(situation: Situation, regular: Collection[Slot], podless: int) -> Surge:
    """The groups to add and to remove, given the others that stay and the number without pods."""
    present = [slot for slot in situation.slots.values() if slot.surge]
    pending = sum(not slot.protected and _is_pending(slot) for slot in regular)
    pending += max(0, situation.desired_groups - len(regular) - podless)
    wanted = min(len(present), pending)
    # A group that is down is replaced at once: nothing has to stand in for it.
    waits = any(
        slot.outdated and not slot.protected and slot.health is not Health.DOWN for slot in regular
    )
    if (
        waits
        and situation.strategy.rolls_groups
        and not situation.is_podless(situation.history.update)
    ):
        wanted = max(wanted, min(situation.strategy.max_surge, pending))

    def rank(slot: Slot) -> tuple[bool, bool, int, int, int]:
        whole = situation.is_whole_group(slot)
        return not slot.terminating, whole, slot.health, slot.group.deletion_cost, -slot.ordinal

    available = podless + sum(slot.health is Health.AVAILABLE for slot in [*regular, *present])
    floor = situation.desired_groups - situation.strategy.max_unavailable
    surplus: set[int] = set()
    for slot in sorted(present, key=rank)[: len(present) - wanted]:
        if slot.health is Health.AVAILABLE:
            if available <= floor:
                break
            available -= 1
        surplus.add(slot.ordinal)
    return Surge(surplus, max(0, wanted - len(present)))


def _is_pending(slot: Slot) -> bool:
    """Whether a group is not yet of the live revision and available."""
    return slot.outdated or slot.health is not Health.AVAILABLE
