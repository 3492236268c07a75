"""Pods and services that are missing, and what the new ones look like.

A whole instance, or a whole group, is created at once and only when nothing is left of its former
self, so no name is used again while a sibling of its last bearer lives. Pods are created in batches:
the rest follows once these are seen, so that no spec, however large, makes an endless plan.
"""

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from kthena.api.kubernetes import PODS, SERVICES
from kthena.api.volcano import POD_GROUPS
from kthena.machinery.resources import Resource
from kthena.workload.children.pods import PodIdentity, build_pod
from kthena.workload.children.services import build_service
from kthena.workload.identity import (
    ENTRY_POSITION,
    InstanceKey,
    PodPlace,
    entry_name,
    pod_name,
)
from kthena.workload.planner.gangs import Gangs
from kthena.workload.planner.groups import Instance
from kthena.workload.planner.observed import Belonging
from kthena.workload.planner.origins import Origins
from kthena.workload.planner.plan import CreatePod, CreateService
from kthena.workload.planner.recovery import is_fresh, recoveries_of
from kthena.workload.planner.scale import missing_ordinals
from kthena.workload.planner.scheduling import scheduler_of
from kthena.workload.planner.situation import Situation
from kthena.workload.planner.slots import Slot
from kthena.workload.records import ANNOTATION_RECOVERIES
from kthena.workload.revisions import Revision, RoleTemplate, role_hash
from kthena.workload.status import Problem

BATCH: Final = 1000
"""Pods that one plan creates at most."""


@dataclass(slots=True)
class Formation:
    """What one plan creates. It collects, group by group."""

    situation: Situation
    origins: Origins
    gangs: Gangs
    pods: list[CreatePod] = field(default_factory=list)
    services: dict[InstanceKey, CreateService] = field(default_factory=dict)
    groups: dict[int, Revision] = field(default_factory=dict)
    """Groups without pods that are to have some, with what they are made from."""
    surge: set[int] = field(default_factory=set)
    """Those of `groups` that are added to the count."""
    made: dict[InstanceKey, Revision] = field(default_factory=dict)
    """Instances without pods that are to have some, with what they are made from."""
    instances: set[InstanceKey] = field(default_factory=set)
    """Instances that are asked for in groups that have pods."""
    begun: set[InstanceKey] = field(default_factory=set)
    """Instances that had no pods and get at least one."""
    filled: set[int] = field(default_factory=set)
    """Groups that were compared with their revision."""
    wanted: set[InstanceKey] = field(default_factory=set)
    """Instances that should have a service, whether they have it or not."""
    problems: dict[str, Problem] = field(default_factory=dict)
    """What stands in the way, by the name of the object concerned."""

    @property
    def is_full(self) -> bool:
        """Whether the batch holds no more pods; then there may be more to create."""
        return len(self.pods) >= BATCH

    def fill_group(self, slot: Slot, recreated: Collection[InstanceKey]) -> None:
        """Add what a group lacks against its own revision.

        Instances in `recreated` get no pod before all of theirs are gone.
        """
        revision = slot.revision
        if revision is None:
            return
        self.filled.add(slot.ordinal)
        for name, wanted in slot.replicas.items():
            surplus = slot.surplus.get(name, ())
            present = slot.group.roles.get(name, {})
            for ordinal, instance in present.items():
                own = self.situation.history.known.get(instance.revision)
                if ordinal in surplus or own is None or name not in own.roles:
                    continue
                self._want_service(own.roles[name], instance.key)
                if instance.key not in recreated and not self.situation.is_whole(instance):
                    self._add_pods(own, own.roles[name], instance.key)
            for ordinal in missing_ordinals(present, surplus, wanted):
                if self.is_full:
                    return
                key = InstanceKey(slot.ordinal, name, ordinal)
                self.instances.add(key)
                self._add_instance(key, revision, slot)

    def add_groups(self, surplus: Collection[int]) -> None:
        """Add the groups that are missing."""
        for ordinal in self._missing_groups(surplus):
            revision = self.origins.revision_for(ordinal)
            podless = self.situation.is_podless(revision)
            if self.is_full or (podless and not self.situation.is_protected(ordinal)):
                return
            self._add_group(ordinal, revision)

    def add_surge(self, missing: int) -> None:
        """Add so many groups to the count, of the live revision."""
        situation = self.situation
        free = (
            ordinal
            for ordinal in itertools.count(situation.desired_groups)
            if ordinal not in situation.slots
        )
        for ordinal in itertools.islice(free, min(missing, BATCH)):
            if self.is_full:
                return
            self.surge.add(ordinal)
            self._add_group(ordinal, situation.history.update)

    def _add_group(self, ordinal: int, revision: Revision) -> None:
        self.groups[ordinal] = revision
        for name, wanted in self.situation.replicas_of(revision).items():
            for number in range(wanted):
                if self.is_full:
                    return
                self._add_instance(InstanceKey(ordinal, name, number), revision, None)

    def _missing_groups(self, surplus: Collection[int]) -> Iterator[int]:
        """The groups to add, a batch at most. A refused spec gets back what it had, no more."""
        situation = self.situation
        wanted, present = situation.desired_groups, situation.regular.keys()
        missing = missing_ordinals(present, surplus, wanted)
        if not situation.accepted:
            # A service outlives the pods of its group, and goes with a group that is scaled away.
            had = {*situation.recorded, *(key.group for key in situation.services)}
            lost = sorted(one for one in had if one < wanted and one not in present)
            missing = iter(lost[: max(0, wanted - (len(present) - len(surplus)))])
        return itertools.islice(missing, BATCH)

    def _add_instance(self, key: InstanceKey, group: Revision, slot: Slot | None) -> None:
        """Add an instance that has no pods, with its service, to a group of this revision."""
        revision = self.made[key] = self.origins.of_instance(key, group, slot)
        role = revision.roles[key.role]
        self._want_service(role, key)
        self._add_pods(revision, role, key)

    def _want_service(self, role: RoleTemplate, key: InstanceKey) -> None:
        if not role.has_service:
            return
        self.wanted.add(key)
        if key in self.situation.services:
            return
        if not self._is_taken(SERVICES, entry_name(self.situation.name, key)):
            self.services[key] = CreateService(build_service(self.situation.modelserving, key))

    def _add_pods(self, revision: Revision, role: RoleTemplate, key: InstanceKey) -> None:
        """Add the pods that an instance lacks."""
        situation = self.situation
        if not situation.history.is_usable(revision):
            return
        service = entry_name(situation.name, key) if role.has_service else None
        if service is not None and self._is_taken(SERVICES, service):
            return
        pod_group = self.gangs.pod_group_of(key.group)
        if pod_group is not None and (
            self.gangs.is_held_up(key.group) or self._is_taken(POD_GROUPS, pod_group)
        ):
            return
        instance = situation.find_instance(key)
        existing = instance.pods if instance else {}
        identity = PodIdentity(
            revision=revision.name,
            role_hash=situation.role_hashes.get((revision.name, role.name)) or role_hash(role),
            scheduler=scheduler_of(situation.observed),
            annotations=self._annotations(key, instance),
        )
        for index in range(role.size):
            if self.is_full:
                return
            place = PodPlace(key, index)
            if index in existing or self._is_taken(PODS, pod_name(situation.name, place)):
                continue
            if index != ENTRY_POSITION and role.worker_template is None:
                self.problems[role.name] = Problem(
                    "MissingWorkerTemplate",
                    f"role {role.name} has workerReplicas {role.worker_replicas} and no "
                    "workerTemplate; add one, or set workerReplicas to 0",
                )
                return
            pod = build_pod(situation.modelserving, role, place, identity)
            self.pods.append(CreatePod(pod, service, pod_group))
            if instance is None:
                self.begun.add(key)

    def _annotations(self, key: InstanceKey, instance: Instance | None) -> dict[str, str]:
        kept = self.situation.recoveries.get(key)
        counter = recoveries_of(self.situation, instance) if instance else kept
        annotations = self.gangs.annotations(key)
        if counter is not None and is_fresh(counter, self.situation.now):
            annotations[ANNOTATION_RECOVERIES] = counter.format()
        return annotations

    def _is_taken(self, resource: Resource, name: str) -> bool:
        """Whether somebody else has the name. A former ModelServing's child gives it up by itself."""
        whose = self.situation.taken_names.get((resource, name))
        if whose is Belonging.FOREIGN:
            self.problems[name] = Problem(
                "NameConflict",
                f"{resource.kind} {name} exists and is not of this ModelServing; "
                "delete it, or rename the ModelServing",
            )
        return whose is not None
