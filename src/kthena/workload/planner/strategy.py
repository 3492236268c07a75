"""What a spec says of rollouts, as numbers: what is kept, and how much may be down or added at once.

A partition that covers all ordinals below the count keeps everything, also what has a higher one.
"""

from typing import Final

from kthena.api.workload.modelserving import (
    ModelServingSpec,
    Role,
    RollingUpdateConfiguration,
)
from kthena.machinery.intorstring import IntOrPercentError, scale
from kthena.workload.identity import InstanceKey

ROLE_ROLLING_UPDATE: Final = "RoleRollingUpdate"


class Strategy:
    """The rollout settings of one spec. Read-only; values that cannot be read count as unset.

    With `accepted` unset nothing is rolled out, and what the settings protect is what it was.
    """

    def __init__(self, spec: ModelServingSpec, *, accepted: bool) -> None:
        strategy = spec.rollout_strategy
        self.by_roles = strategy is not None and strategy.type == ROLE_ROLLING_UPDATE
        """Whether single role instances are rolled, where anything is."""
        self.rolls_roles = accepted and self.by_roles
        """Whether single role instances are rolled."""
        self.rolls_groups = accepted and not self.by_roles
        """Whether whole groups are rolled."""
        configuration = strategy.rolling_update_configuration if strategy else None
        if configuration is None or self.by_roles:
            configuration = RollingUpdateConfiguration()
        self._groups = max(spec.replicas, 0)
        self.partition = _scaled(
            configuration.partition or 0, self._groups, fallback=0, round_up=True
        )
        """Groups with a lower ordinal keep their revision."""
        self.max_surge = _scaled(
            configuration.max_surge or 0, self._groups, fallback=0, round_up=True
        )
        """Groups that a rollout may add to the count for its time."""
        down = _scaled(configuration.max_unavailable, self._groups, fallback=1, round_up=False)
        self.max_unavailable = max(down, 0 if self.max_surge else 1)
        """Groups that a rollout may have down at once; at least 1 where none is added, or it could
        not proceed."""
        self._roles: dict[str, Role] = {role.name: role for role in spec.template.roles}

    def protects(self, group: int) -> bool:
        """Whether the partition keeps a group at its revision."""
        return group < self.partition or 0 < self._groups <= self.partition

    def protects_instance(self, key: InstanceKey) -> bool:
        """Whether the partition of its role keeps an instance at its revision."""
        role = self._roles.get(key.role)
        if not self.by_roles or role is None:
            return False
        replicas = max(role.replicas, 0)
        partition = _scaled(role.partition or 0, replicas, fallback=0, round_up=True)
        return key.ordinal < partition or 0 < replicas <= partition

    def max_unavailable_of(self, role: str) -> int:
        """Instances of a role that a rollout may have down at once in a group; at least 1."""
        known = self._roles.get(role)
        if known is None:
            return 1
        replicas = max(known.replicas, 0)
        return max(1, _scaled(known.max_unavailable, replicas, fallback=1, round_up=False))


def _scaled(value: int | str, total: int, *, fallback: int, round_up: bool) -> int:
    try:
        return max(0, scale(value, total, round_up=round_up))
    except IntOrPercentError:
        return fallback
