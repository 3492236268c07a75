"""Which role instances are replaced now because their template has changed (RoleRollingUpdate).

Each role of each group has a budget of its own. Instances that are not available cost nothing; of
the available ones so many are taken that `replicas - maxUnavailable` stay. All instances count,
protected ones included. What no longer has a role in the live spec is surplus and not decided here.
"""

from collections.abc import Iterable

from kthena.workload.planner.groups import Instance
from kthena.workload.planner.situation import Situation
from kthena.workload.planner.slots import Slot


def rolled_instances(
    situation: Situation, slot: Slot, staying: Iterable[Instance]
) -> list[Instance]:
    """The instances of a group to delete, or that are on their way out, to be made anew.

    Those that are not available go first, then those with high ordinals.
    """
    members: dict[str, list[Instance]] = {}
    for instance in staying:
        members.setdefault(instance.key.role, []).append(instance)
    is_available = situation.history.is_available
    rolled = []
    for role, wanted in slot.replicas.items():
        present = members.get(role, [])
        available = sum(map(is_available, present))
        floor = wanted - situation.strategy.max_unavailable_of(role)
        candidates = [instance for instance in present if situation.must_roll(instance)]
        candidates.sort(key=lambda one: (is_available(one), -one.key.ordinal))
        for instance in candidates:
            if is_available(instance):
                if available <= floor:
                    break
                available -= 1
            rolled.append(instance)
    return rolled
