"""The states of role instances before and after a plan, for the events that tell of them."""

from collections.abc import Collection, Iterable

from kthena.workload.identity import InstanceKey
from kthena.workload.planner.plan import InstanceState
from kthena.workload.planner.situation import Situation


def states_before(situation: Situation) -> dict[InstanceKey, InstanceState]:
    """The state of each instance as observed; those of terminating groups have none."""
    states = {}
    for slot in situation.slots.values():
        if slot.terminating:
            continue
        for instance in slot.group.instances:
            if not instance.living:
                state = InstanceState.DELETING
            elif situation.history.is_available(instance):
                state = InstanceState.RUNNING
            else:
                state = InstanceState.CREATING
            states[instance.key] = state
    return states


def states_after(
    situation: Situation,
    *,
    deleted_groups: Collection[int],
    deleted_instances: Collection[InstanceKey],
    begun: Iterable[InstanceKey],
) -> dict[InstanceKey, InstanceState]:
    """The states once the plan is carried out; instances of deleted groups have none."""
    states = {
        key: InstanceState.DELETING if key in deleted_instances else state
        for key, state in states_before(situation).items()
        if key.group not in deleted_groups
    }
    states.update(dict.fromkeys(begun, InstanceState.CREATING))
    return states
