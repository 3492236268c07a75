"""Which groups are replaced now because the template has changed (ServingGroupRollingUpdate).

Groups that are down cost nothing: replacing them takes nothing away, so a broken revision can always
be rolled over. Beyond that, at least `replicas - maxUnavailable` groups serve, and an available group
is taken only while more than so many are available. All groups count, protected ones and those that
the update has added included.
"""

from collections.abc import Collection

from kthena.workload.planner.situation import Situation
from kthena.workload.planner.slots import Health, Slot


def replaced_groups(situation: Situation, staying: Collection[Slot], podless: int) -> set[int]:
    """Ordinals of the groups to delete, so that they are made again from the live spec."""
    candidates = [slot for slot in staying if _may_be_replaced(situation, slot)]
    candidates.sort(key=lambda slot: (slot.health, -slot.ordinal))
    # A group that has no pods because its roles are scaled to zero lacks nothing; any other that
    # does not exist is as down as one that cannot serve.
    available = podless + sum(slot.health is Health.AVAILABLE for slot in staying)
    serving = podless + sum(slot.health is not Health.DOWN for slot in staying)
    floor = situation.desired_groups - situation.strategy.max_unavailable
    replaced = set()
    for slot in candidates:
        if slot.health is not Health.DOWN:
            if serving <= floor:
                break
            if slot.health is Health.AVAILABLE:
                if available <= floor:
                    break
                available -= 1
            serving -= 1
        replaced.add(slot.ordinal)
    return replaced


def _may_be_replaced(situation: Situation, slot: Slot) -> bool:
    """Whether the group is another revision's, or cannot be healed for want of its revision."""
    if slot.protected:
        return False
    return slot.outdated or (slot.revision is None and not situation.is_whole_group(slot))
