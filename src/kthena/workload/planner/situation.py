"""What the observed objects amount to: slots of groups, each with its revision, health and rights.

A group is of one revision: that which its pods name, or, where they name several, the recorded one.
While roles are rolled one by one every group is of the live revision, and each instance is compared
with it.

What several steps of a plan need is computed here once. How many groups there should be is the
spec's; which instances are too many is asked of `scale`; all else is decided by the steps.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property

from kthena.api.kubernetes import CONTROLLER_REVISIONS, PODS, SERVICES
from kthena.api.volcano import POD_GROUPS
from kthena.machinery.objects import Object, annotations_of, name_of
from kthena.machinery.resources import Resource
from kthena.workload.identity import ENTRY_POSITION, InstanceKey, parse_place
from kthena.workload.planner.groups import Group, Instance, build_groups
from kthena.workload.planner.history import History, read_history
from kthena.workload.planner.observed import Belonging, Observed, belonging
from kthena.workload.planner.scale import surplus_instances
from kthena.workload.planner.scheduling import waits_for_pod_groups
from kthena.workload.planner.slots import Slot, health_of
from kthena.workload.planner.strategy import Strategy
from kthena.workload.records import (
    ANNOTATION_RECOVERIES,
    Forming,
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
        self.strategy = Strategy(observed.spec, accepted=self.accepted)
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
        """Whether new groups and updates are made: all that the spec asks for can be done here."""
        return not self.observed.refused and not waits_for_pod_groups(self.observed)

    @cached_property
    def slots(self) -> Mapping[int, Slot]:
        """The groups that have pods, by ordinal in ascending order."""
        return {ordinal: self._slot(self.groups[ordinal]) for ordinal in sorted(self.groups)}

    @cached_property
    def regular(self) -> Mapping[int, Slot]:
        """Those of `slots` that no update has added to the count."""
        return {ordinal: slot for ordinal, slot in self.slots.items() if not slot.surge}

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
        """Names of pods, services and PodGroups that others have, by whose they are."""
        return {
            (resource, name_of(child)): whose
            for resource in (PODS, SERVICES, POD_GROUPS)
            for whose in (Belonging.STALE, Belonging.FOREIGN)
            for child in self.belonging(resource, whose)
        }

    def is_protected(self, ordinal: int) -> bool:
        """Whether the partition keeps a group at its revision; never one that an update added."""
        return ordinal not in self.surge and self.strategy.protects(ordinal)

    def must_roll(self, instance: Instance) -> bool:
        """Whether an instance, rolled by itself, is to become what the live spec makes.

        One whose revision is unknown is left alone as long as it lacks no pod.
        """
        if self.strategy.protects_instance(instance.key):
            return False
        if self.history.template_of(instance) is None:
            return not self.is_whole(instance)
        return self.history.differs(instance)

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
        return slot.revision is not None and self.forming.covers(key)

    @cached_property
    def forming(self) -> Forming:
        """What is being formed, by all records: a group may have moved between two of them."""
        records = [one.record for one in self.history.known.values() if one.record is not None]
        return Forming(
            frozenset().union(*(record.forming.groups for record in records)),
            frozenset().union(*(record.forming.instances for record in records)),
        )

    def _revision_of(self, group: Group) -> Revision | None:
        if self.strategy.rolls_roles:
            return self.history.update
        recorded = self.recorded.get(group.ordinal) if group.ordinal in self.mixed else None
        return recorded or self.history.revision_of(group)

    def _slot(self, group: Group) -> Slot:
        revision = self._revision_of(group)
        replicas: Mapping[str, int]
        surplus: Mapping[str, Collection[int]]
        if revision is not None:
            replicas = self.replicas_of(revision)
            surplus = surplus_instances(
                group,
                replicas,
                self.history,
                selector_role=self.selector_role,
                is_protected=self.strategy.protects_instance,
            )
        else:
            replicas = {name: len(instances) for name, instances in group.roles.items()}
            surplus = {}
        if self.strategy.by_roles:
            outdated = any(map(self.must_roll, group.instances))
            old = self._is_old(group, surplus)
        else:
            outdated = revision is not None and self.history.is_outdated(group, revision)
            old = outdated or revision is None
        return Slot(
            ordinal=group.ordinal,
            group=group,
            revision=revision,
            replicas=replicas,
            surplus=surplus,
            health=health_of(group, replicas, surplus, self.history.is_available),
            protected=self.is_protected(group.ordinal),
            surge=group.ordinal in self.surge,
            outdated=outdated,
            old=old,
        )

    def _is_old(self, group: Group, surplus: Mapping[str, Collection[int]]) -> bool:
        """Whether an instance is not what the live spec would make, or has yet to be made."""
        for instance in group.instances:
            if self.history.template_of(instance) is None or self.history.differs(instance):
                return True
        for name, role in self.history.update.roles.items():
            too_many = surplus.get(name, ())
            present = group.roles.get(name, {}).items()
            there = sum(bool(each.living) and at not in too_many for at, each in present)
            if there < role.replicas:
                return True
        return False

    @cached_property
    def surge(self) -> frozenset[int]:
        """Ordinals that were given to groups which an update adds; those below the count are not."""
        records = [one.record for one in self.history.known.values() if one.record is not None]
        added = frozenset[int]().union(*(record.surge for record in records))
        return frozenset(ordinal for ordinal in added if ordinal >= self.desired_groups)

    @cached_property
    def mixed(self) -> frozenset[int]:
        """Groups of which each instance has its own revision recorded."""
        return frozenset(key.group for key in self.recorded_instances)

    @cached_property
    def recorded_instances(self) -> Mapping[InstanceKey, Revision]:
        """The revision that each instance of a mixed group was recorded at, also without pods."""
        recorded: dict[InstanceKey, Revision] = {}
        for revision in self._by_record:
            if revision.record is not None:
                recorded.update(dict.fromkeys(revision.record.instances, revision))
        return recorded

    @cached_property
    def recorded(self) -> Mapping[int, Revision]:
        """The revision that each slot was recorded at.

        A slot that is recorded twice was to move when the controller ended. No pod of it was made
        yet, so it still is what it was; what it was to become is the live revision, or a newer one.
        """
        recorded: dict[int, Revision] = {}
        for revision in self._by_record:
            if revision.record is not None:
                recorded.update(dict.fromkeys(revision.record.groups, revision))
        return recorded

    @cached_property
    def _by_record(self) -> list[Revision]:
        """The known revisions; of two that record the same, the later one here counts."""
        live = self.history.update.name
        return sorted(
            self.history.known.values(), key=lambda known: (known.name != live, -known.number)
        )


def _sort(children: Iterable[Object], modelserving: Object) -> Mapping[Belonging, list[Object]]:
    found: dict[Belonging, list[Object]] = {whose: [] for whose in Belonging}
    for child in children:
        found[belonging(child, modelserving)].append(child)
    return found
