"""What groups without pods are made from: the live revision, or the one that the partition keeps.

A group below the partition that has lost its pods comes back at the revision that its slot was
recorded at; one that never was is made as the first protected group is.
"""

from collections import Counter
from collections.abc import Collection
from functools import cached_property
from typing import NamedTuple

from kthena.workload.planner.situation import Situation
from kthena.workload.revisions import Revision


class Podless(NamedTuple):
    """How many groups exist without pods, because their roles are all scaled to zero."""

    live: int
    """Those of the live revision."""
    old: int
    """Those that the partition keeps at another one."""


class Origins:
    """The revisions of groups that have no pods, in one situation. Read-only."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation

    def revision_for(self, ordinal: int) -> Revision:
        """What a group that has no pods is to be made from."""
        situation = self._situation
        if not situation.is_protected(ordinal):
            return situation.history.update
        return situation.recorded.get(ordinal) or self._base

    def podless_groups(self, surplus: Collection[int]) -> Podless:
        """The groups without pods, once those in `surplus` are gone."""
        situation = self._situation
        present, wanted = situation.slots.keys(), situation.desired_groups
        missing = max(0, wanted - (len(present) - len(surplus)))
        kept = wanted if situation.is_protected(wanted - 1) else min(situation.partition, wanted)
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
        history = situation.history
        status = situation.modelserving.get("status") or {}
        return history.known.get(status.get("currentRevision", ""), history.update)
