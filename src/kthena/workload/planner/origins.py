"""What groups and instances without pods are made from: the live revision, or one that is kept.

What a partition protects comes back at the revision that its place was recorded at; what never was
is made as its first protected sibling is. So is an instance of a group that has yet to be replaced.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import NamedTuple

from kthena.workload.identity import InstanceKey
from kthena.workload.planner.situation import Situation
from kthena.workload.planner.slots import Slot
from kthena.workload.revisions import Revision


class Podless(NamedTuple):
    """How many groups exist without pods, because their roles are all scaled to zero."""

    live: int
    """Those of the live revision."""
    old: int
    """Those that the partition keeps at another one."""


class Origins:
    """The revisions of groups and instances that have no pods, in one situation. Read-only."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation

    def revision_for(self, ordinal: int) -> Revision:
        """What a group that has no pods is to be made from."""
        situation = self._situation
        if not situation.is_protected(ordinal):
            return situation.history.update
        return situation.recorded.get(ordinal) or self._base

    def of_instance(self, key: InstanceKey, group: Revision, slot: Slot | None) -> Revision:
        """What an instance that has no pods is to be made from; it has the role.

        `group` is the revision of its group and has the role, `slot` the group itself where it has
        pods.
        """
        situation = self._situation
        if situation.strategy.protects_instance(key):
            return self._kept(key, slot)
        if situation.strategy.rolls_roles:
            return situation.history.update
        kept = slot.protected or slot.outdated if slot else situation.is_protected(key.group)
        if not kept or key.group not in situation.mixed:
            return group
        return self._recorded(key) or next(self._siblings(key, slot), group)

    def podless_groups(self, surplus: Collection[int]) -> Podless:
        """The groups without pods, once those in `surplus` are gone."""
        situation = self._situation
        present, wanted = situation.regular.keys(), situation.desired_groups
        missing = max(0, wanted - (len(present) - len(surplus)))
        partition = situation.strategy.partition
        kept = wanted if situation.is_protected(wanted - 1) else min(partition, wanted)
        protected = min(missing, kept - sum(ordinal < kept for ordinal in present))
        recorded = sorted(
            ordinal for ordinal in situation.recorded if ordinal < kept and ordinal not in present
        )[:protected]
        revisions = Counter(situation.recorded[ordinal].name for ordinal in recorded)
        revisions[self._base.name] += protected - len(recorded)
        revisions[situation.history.update.name] += missing - protected
        live = old = 0
        for name, count in revisions.items():
            if situation.is_podless(situation.history.known[name]):
                if name in situation.history.current_names:
                    live += count
                else:
                    old += count
        return Podless(live, old)

    @cached_property
    def _base(self) -> Revision:
        """What a protected group is made from that never was: what the first protected one has."""
        situation = self._situation
        known = {slot.ordinal: slot.revision for slot in situation.slots.values() if slot.revision}
        for ordinal in sorted(known.keys() | situation.recorded.keys()):
            if situation.is_protected(ordinal):
                return known.get(ordinal) or situation.recorded[ordinal]
        return self._current or situation.history.update

    @property
    def _current(self) -> Revision | None:
        status = self._situation.modelserving.get("status") or {}
        return self._situation.history.known.get(status.get("currentRevision", ""))

    def _kept(self, key: InstanceKey, slot: Slot | None) -> Revision:
        """What an instance that the partition of its role protects is made from."""
        recorded = self._recorded(key)
        if recorded is not None:
            return recorded
        if key.group not in self._situation.mixed:
            alone = self._situation.recorded.get(key.group)
            if alone is not None and key.role in alone.roles:
                return alone
        sibling = next(self._siblings(key, slot), None) or self._bases.get(key.role)
        if sibling is not None:
            return sibling
        current = self._current
        has_role = current is not None and key.role in current.roles
        return current if current and has_role else self._situation.history.update

    def _recorded(self, key: InstanceKey) -> Revision | None:
        recorded = self._situation.recorded_instances.get(key)
        return recorded if recorded is not None and key.role in recorded.roles else None

    def _siblings(self, key: InstanceKey, slot: Slot | None) -> Iterator[Revision]:
        """The revisions of the instances of its role in its group, by ordinal."""
        history = self._situation.history
        instances = slot.group.roles.get(key.role, {}) if slot else {}
        for _, instance in sorted(instances.items()):
            if history.template_of(instance) is not None:
                yield history.known[instance.revision]

    @cached_property
    def _bases(self) -> dict[str, Revision]:
        """For each role the revision of its first protected instance, of whatever group."""
        situation = self._situation
        found = {
            instance.key: situation.history.known[instance.revision]
            for slot in situation.slots.values()
            for instance in slot.group.instances
            if situation.history.template_of(instance) is not None
        }
        known = {**situation.recorded_instances, **found}
        bases: dict[str, Revision] = {}
        for key in sorted(known):
            if situation.strategy.protects_instance(key) and key.role in known[key].roles:
                bases.setdefault(key.role, known[key])
        return bases
