"""What the observed objects amount to: slots of groups, each with its revision, health and rights.

What several steps of a plan need is computed here once. How many groups there should be is the
spec's; which instances are too many is asked of `scale`; all else is decided by the steps.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property

from kthena.api.kubernetes import CONTROLLER_REVISIONS, PODS, SERVICES
from kthena.api.workload.modelserving import RollingUpdateConfiguration
from kthena.machinery.intorstring import IntOrPercentError, scale
from kthena.machinery.objects import Object, annotations_of, name_of
from kthena.machinery.resources import Resource
from kthena.workload.identity import ENTRY_POSITION, InstanceKey, parse_place
from kthena.workload.planner.groups import Group, Instance, build_groups
from kthena.workload.planner.history import History, read_history
from kthena.workload.planner.observed import Belonging, Observed, belonging
from kthena.workload.planner.scale import surplus_instances
from kthena.workload.planner.slots import Slot, health_of
from kthena.workload.records import (
    ANNOTATION_RECOVERIES,
    Recoveries,
    parse_recoveries,
)
from kthena.workload.revisions import Revision, RoleTemplate


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

    def is_whole(self, instance: Instance) -> bool:
        """Whether all pods that make the instance exist and none of them is terminating."""
        return self.history.is_whole(instance)

    def is_whole_group(self, slot: Slot) -> bool:
        """Whether as many instances of each role are whole as the group should have."""
        return all(
            sum(map(self.is_whole, slot.group.roles.get(role, {}).values())) >= wanted
            for role, wanted in slot.replicas.items()
        )

    def find_instance(self, key: InstanceKey) -> Instance | None:
        """The instance in a place; None where it has no pods."""
        group = self.groups.get(key.group)
        return group.roles.get(key.role, {}).get(key.ordinal) if group else None

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
        replicas: Mapping[str, int]
        surplus: Mapping[str, Collection[int]]
        if revision is not None:
            replicas = self.replicas_of(revision)
            surplus = surplus_instances(
                group, replicas, self.history, selector_role=self.selector_role
            )
        else:
            replicas = {name: len(instances) for name, instances in group.roles.items()}
            surplus = {}
        return Slot(
            ordinal=group.ordinal,
            group=group,
            revision=revision,
            replicas=replicas,
            surplus=surplus,
            health=health_of(group, replicas, surplus, self.history.is_available),
            protected=self.is_protected(group.ordinal),
            outdated=revision is not None and self.history.is_outdated(group, revision),
        )

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


def _sort(children: Iterable[Object], modelserving: Object) -> Mapping[Belonging, list[Object]]:
    found: dict[Belonging, list[Object]] = {whose: [] for whose in Belonging}
    for child in children:
        found[belonging(child, modelserving)].append(child)
    return found
