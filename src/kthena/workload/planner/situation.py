"""What the observed objects amount to: slots of groups, each with its revision, health and rights.

A slot is a group ordinal that is in use. Everything that the steps of a plan need is computed here
once; nothing here decides.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from kthena.api.kubernetes import CONTROLLER_REVISIONS, PODS, SERVICES
from kthena.api.workload.modelserving import RollingUpdateConfiguration
from kthena.api.workload.names import SCHEDULER_VOLCANO
from kthena.machinery.intorstring import IntOrPercentError, scale
from kthena.machinery.objects import Object, annotations_of, name_of
from kthena.machinery.resources import Resource
from kthena.workload.children.identity import ENTRY_POSITION, InstanceKey, parse_place
from kthena.workload.planner.groups import (
    Group,
    Health,
    build_groups,
    departing_instances,
    health_of,
)
from kthena.workload.planner.history import History, read_history
from kthena.workload.planner.observed import Belonging, Observed, belonging
from kthena.workload.records import (
    ANNOTATION_RECOVERIES,
    Recoveries,
    parse_recoveries,
)
from kthena.workload.revisions import Revision, RoleTemplate


@dataclass(frozen=True, slots=True)
class Slot:
    """A group that has pods."""

    ordinal: int
    group: Group
    revision: Revision | None
    """What it is made from; None where that is unknown, and then its pods are left as they are."""
    health: Health
    protected: bool
    """Whether the partition keeps it at its revision."""
    outdated: bool
    leaving: Mapping[str, Collection[int]]
    """Ordinals of the instances that are too many, by role."""

    @property
    def gone(self) -> bool:
        """Whether all its pods are on their way out."""
        return not self.group.living


class Situation:
    """One observation, put in order. Read-only; the derived views are computed when first asked."""

    def __init__(self, observed: Observed, now: datetime) -> None:
        self.observed = observed
        self.now = now
        self.modelserving = observed.modelserving
        self.name = observed.name
        self.spec = observed.spec
        self.desired_groups = max(observed.spec.replicas, 0)
        self._replicas: dict[str, Mapping[str, int]] = {}
        self._children = {
            resource: _sort(children, self.modelserving)
            for resource, children in observed.children.items()
        }
        self.groups: Mapping[int, Group] = build_groups(self.name, self.held(PODS))
        revisions = list(self.held(CONTROLLER_REVISIONS))
        self.history: History = read_history(observed, revisions, self.groups.values())

    def held(self, resource: Resource) -> Iterator[Object]:
        """The children that are ours, or will be once the plan is carried out."""
        return self.belonging(resource, Belonging.OURS, Belonging.ORPHAN)

    def belonging(self, resource: Resource, *whose: Belonging) -> Iterator[Object]:
        """The children of one resource that belong so."""
        return itertools.chain.from_iterable(self._children[resource][one] for one in whose)

    @property
    def accepted(self) -> bool:
        """Whether the spec asks only for what is implemented."""
        return not self.observed.refused

    @cached_property
    def slots(self) -> Mapping[int, Slot]:
        """The groups that have pods, by ordinal in ascending order."""
        return {ordinal: self._slot(self.groups[ordinal]) for ordinal in sorted(self.groups)}

    @cached_property
    def services(self) -> Mapping[InstanceKey, Object]:
        """Our services by the instance that they belong to."""
        services = {}
        for service in self.held(SERVICES):
            place = parse_place(self.name, name_of(service))
            if place is not None and place.position == ENTRY_POSITION:
                services[place.instance] = service
        return services

    @cached_property
    def taken_names(self) -> Mapping[tuple[Resource, str], Belonging]:
        """Names of pods and services that others have, by whose they are."""
        return {
            (resource, name_of(child)): whose
            for resource in (PODS, SERVICES)
            for whose in (Belonging.STALE, Belonging.FOREIGN)
            for child in self.belonging(resource, whose)
        }

    @cached_property
    def partition(self) -> int:
        """Groups with a lower ordinal keep their revision."""
        return self._scaled(self._rolling.partition or 0, fallback=0, round_up=True)

    @cached_property
    def max_unavailable(self) -> int:
        """Groups that a rollout may have down at once; at least 1, or it could not proceed."""
        return max(1, self._scaled(self._rolling.max_unavailable, fallback=1, round_up=False))

    def is_protected(self, ordinal: int) -> bool:
        """Whether the partition keeps a group at its revision: all, where it covers all."""
        return ordinal < self.partition or 0 < self.desired_groups <= self.partition

    def role_replicas(self, role: RoleTemplate) -> int:
        """Instances of a role that a group should have: the live spec's count where it has one."""
        live = self.history.update.roles.get(role.name)
        return (live or role).replicas

    def replicas_of(self, revision: Revision) -> Mapping[str, int]:
        """Instances of each role in a group of this revision, in the order of the live spec."""
        replicas = self._replicas.get(revision.name)
        if replicas is None:
            replicas = self._replicas[revision.name] = self._count_replicas(revision)
        return replicas

    def _count_replicas(self, revision: Revision) -> Mapping[str, int]:
        order = {name: index for index, name in enumerate(self.history.update.roles)}
        names = sorted(revision.roles, key=lambda name: (order.get(name, len(order)), name))
        return {name: self.role_replicas(revision.roles[name]) for name in names}

    def is_podless(self, revision: Revision) -> bool:
        """Whether groups of this revision have no pods: all their roles are scaled to zero."""
        return not any(self.role_replicas(role) for role in revision.roles.values())

    @cached_property
    def selector_role(self) -> str:
        """The role whose first instance stands for its group in the scale subresource."""
        roles = self.history.update.roles.values()
        return next((role.name for role in roles if role.replicas > 0), next(iter(roles)).name)

    @cached_property
    def scheduler(self) -> str | None:
        """The scheduler of new pods; None for the cluster's default."""
        wanted = self.spec.scheduler_name
        return None if self.falls_back else wanted

    @cached_property
    def falls_back(self) -> bool:
        """Whether pods go to the default scheduler although the spec names `volcano`.

        A gang or a topology is what Volcano is for: with one there is no fallback.
        """
        capabilities, template = self.observed.capabilities, self.spec.template
        return (
            self.spec.scheduler_name == SCHEDULER_VOLCANO
            and not capabilities.volcano
            and capabilities.scheduler_fallback
            and template.gang_policy is None
            and template.network_topology is None
        )

    def revision_for(self, ordinal: int) -> Revision:
        """What a group that has no pods is to be made from."""
        if not self.is_protected(ordinal):
            return self.history.update
        return self.recorded.get(ordinal) or self.base_revision

    @cached_property
    def recoveries(self) -> Mapping[InstanceKey, Recoveries]:
        """The counters that the ModelServing keeps for instances that are being made anew."""
        text = annotations_of(self.modelserving).get(ANNOTATION_RECOVERIES)
        return parse_recoveries(text)

    @cached_property
    def role_hashes(self) -> Mapping[tuple[str, str], str]:
        """The template hash that pods of a revision and role carry already, whoever computed it."""
        found: dict[tuple[str, str], set[str]] = {}
        for slot in self.slots.values():
            for instance in slot.group.instances:
                for pod in instance.pods.values():
                    if pod.role_hash:
                        key = (pod.revision, instance.key.role)
                        found.setdefault(key, set()).add(pod.role_hash)
        return {key: min(hashes) for key, hashes in found.items()}

    def is_forming(self, slot: Slot, key: InstanceKey) -> bool:
        """Whether the instance has not been whole since it was asked for."""
        record = slot.revision.record if slot.revision else None
        return record is not None and record.forming.covers(key)

    @cached_property
    def _rolling(self) -> RollingUpdateConfiguration:
        strategy = self.spec.rollout_strategy
        configuration = strategy.rolling_update_configuration if strategy else None
        return configuration or RollingUpdateConfiguration()

    def _scaled(self, value: int | str, *, fallback: int, round_up: bool) -> int:
        try:
            return max(0, scale(value, self.desired_groups, round_up=round_up))
        except IntOrPercentError:
            return fallback

    def _slot(self, group: Group) -> Slot:
        revision = self.history.revision_of(group)
        if revision is not None:
            replicas: Mapping[str, int] = self.replicas_of(revision)
            leaving = self._leaving(group, replicas)
        else:
            replicas = {name: len(instances) for name, instances in group.roles.items()}
            leaving = {}
        return Slot(
            ordinal=group.ordinal,
            group=group,
            revision=revision,
            leaving=leaving,
            health=health_of(group, replicas, leaving, self.history.size_of),
            protected=self.is_protected(group.ordinal),
            outdated=revision is not None and self.history.is_outdated(group, revision),
        )

    def _leaving(self, group: Group, replicas: Mapping[str, int]) -> Mapping[str, Collection[int]]:
        leaving: dict[str, Collection[int]] = {}
        for role, instances in group.roles.items():
            wanted = replicas.get(role)
            if wanted is None and role not in self.history.update.roles:
                leaving[role] = instances.keys()
            elif wanted is not None and len(instances) > wanted:
                leaving[role] = departing_instances(
                    instances,
                    wanted,
                    self.history.size_of,
                    keeps_first=role == self.selector_role,
                )
        return leaving

    @cached_property
    def recorded(self) -> Mapping[int, Revision]:
        """The revision that each slot was recorded at.

        A slot that is recorded twice was to move when the controller ended. No pod of it was made
        yet, so it still is what it was; what it was to become is the live revision, or a newer one.
        """
        recorded: dict[int, Revision] = {}
        live = self.history.update.name
        for revision in sorted(
            self.history.known.values(), key=lambda known: (known.name != live, -known.number)
        ):
            if revision.record is not None:
                recorded.update(dict.fromkeys(revision.record.groups, revision))
        return recorded

    @cached_property
    def base_revision(self) -> Revision:
        """What a protected group is made from that never was: what the first protected one has."""
        known = {slot.ordinal: slot.revision for slot in self.slots.values() if slot.revision}
        for ordinal in sorted(known.keys() | self.recorded.keys()):
            if self.is_protected(ordinal):
                return known.get(ordinal) or self.recorded[ordinal]
        status = self.modelserving.get("status") or {}
        return self.history.known.get(status.get("currentRevision", ""), self.history.update)


def _sort(children: Iterable[Object], modelserving: Object) -> Mapping[Belonging, list[Object]]:
    found: dict[Belonging, list[Object]] = {whose: [] for whose in Belonging}
    for child in children:
        found[belonging(child, modelserving)].append(child)
    return found
