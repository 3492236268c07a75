"""Slots: group ordinals that are in use, with what their groups are made from and can do now."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum

from kthena.workload.planner.groups import Group, Instance
from kthena.workload.revisions import Revision


class Health(IntEnum):
    """What a group can do now."""

    DOWN = 0
    """Some role has no instance ready: the group cannot serve."""
    DEGRADED = 1
    """It serves, but not all its instances are ready."""
    AVAILABLE = 2
    """Every instance that it should have is ready."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A group that has pods."""

    ordinal: int
    group: Group
    revision: Revision | None
    """What it is made from; None where that is unknown, and then its pods are left as they are."""
    replicas: Mapping[str, int]
    """Instances of each role that it should have; those that it has where its revision is unknown."""
    surplus: Mapping[str, Collection[int]]
    """Ordinals of the instances that are too many, by role."""
    health: Health
    protected: bool
    """Whether the partition keeps it at its revision."""
    surge: bool
    """Whether an update has added it to the count."""
    outdated: bool
    """Whether it, or an instance that no partition protects, is to become what the live spec makes."""
    old: bool
    """Whether it is not, or not yet, altogether what the live spec makes; or that is unknown."""

    @property
    def terminating(self) -> bool:
        """Whether all its pods are terminating."""
        return not self.group.living


def health_of(
    group: Group,
    replicas: Mapping[str, int],
    surplus: Mapping[str, Collection[int]],
    is_available: Callable[[Instance], bool],
) -> Health:
    """The health of a group that should have so many instances of each role.

    Instances in `surplus`, by role, do not count: they are about to be deleted.
    """
    health = Health.AVAILABLE
    for role, wanted in replicas.items():
        too_many = surplus.get(role, ())
        ready = sum(
            is_available(instance)
            for ordinal, instance in group.roles.get(role, {}).items()
            if ordinal not in too_many
        )
        if ready < wanted:
            if ready == 0:
                return Health.DOWN
            health = Health.DEGRADED
    return health
