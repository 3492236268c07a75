"""Pods put in their places: groups, role instances, pods, with what they are ready for right now.

The place of a pod is in its name, its revision in its label. Readiness is read from the pod's status
and from nothing else; a terminating pod counts as not ready.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from kthena.api.workload.names import (
    ANNOTATION_POD_DELETION_COST,
    ENV_GROUP_SIZE,
    LABEL_REVISION,
    LABEL_ROLE_TEMPLATE_HASH,
)
from kthena.machinery.conditions import is_true
from kthena.machinery.objects import (
    Object,
    annotations_of,
    is_terminating,
    labels_of,
    name_of,
    uid_of,
)
from kthena.workload.children.identity import InstanceKey, PodPlace, parse_place


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod in its place."""

    place: PodPlace
    name: str
    uid: str
    revision: str
    role_hash: str
    terminating: bool
    ready: bool
    obj: Object

    @classmethod
    def of(cls, obj: Object, place: PodPlace) -> "Pod":
        """The view of a pod object."""
        labels, status = labels_of(obj), obj.get("status") or {}
        terminating = is_terminating(obj)
        ready = (
            not terminating
            and status.get("phase") == "Running"
            and is_true(status.get("conditions") or (), "Ready")
        )
        return cls(
            place=place,
            name=name_of(obj),
            uid=uid_of(obj),
            revision=labels.get(LABEL_REVISION, ""),
            role_hash=labels.get(LABEL_ROLE_TEMPLATE_HASH, ""),
            terminating=terminating,
            ready=ready,
            obj=obj,
        )

    @property
    def failed(self) -> bool:
        """Whether the pod has ended in failure."""
        return (self.obj.get("status") or {}).get("phase") == "Failed"

    @property
    def deletion_cost(self) -> int:
        """What the user's annotation says; 0 where it is absent or no integer."""
        text = annotations_of(self.obj).get(ANNOTATION_POD_DELETION_COST, "")
        try:
            return int(text) if text.isascii() else 0
        except ValueError:
            return 0


@dataclass(frozen=True, slots=True)
class Instance:
    """The pods of a role instance by position. At least one exists."""

    key: InstanceKey
    pods: Mapping[int, Pod]
    living: tuple[Pod, ...]
    """Its pods that are not terminating, by position."""
    revision: str
    """The revision of its first pod that is not terminating, else of its first pod."""
    ready: int
    """How many of its pods are ready."""

    @classmethod
    def of(cls, key: InstanceKey, pods: Mapping[int, Pod]) -> "Instance":
        """The instance of these pods."""
        living = tuple(
            pods[position] for position in sorted(pods) if not pods[position].terminating
        )
        first = living[0] if living else pods[min(pods)]
        return cls(key, pods, living, first.revision, sum(pod.ready for pod in living))

    @property
    def terminating(self) -> bool:
        """Whether a pod of it is on its way out."""
        return len(self.living) < len(self.pods)

    @property
    def deletion_cost(self) -> int:
        """The sum over its pods."""
        return sum(pod.deletion_cost for pod in self.pods.values())

    @property
    def declared_size(self) -> int:
        """The number of pods that its own pods were told of, else the number that it has."""
        for _, pod in sorted(self.pods.items()):
            for container in (pod.obj.get("spec") or {}).get("containers") or ():
                for entry in container.get("env") or ():
                    text = str(entry.get("value") or "")
                    if entry.get("name") == ENV_GROUP_SIZE and text.isdecimal():
                        return int(text)
        return len(self.pods)

    def is_complete(self, size: int) -> bool:
        """Whether all `size` pods exist and none of them is on its way out."""
        return self._count(size, self.living) == size

    def is_available(self, size: int) -> bool:
        """Whether all `size` pods are ready."""
        if self.ready < size:
            return False
        return self._count(size, [pod for pod in self.living if pod.ready]) == size

    @staticmethod
    def _count(size: int, pods: Sequence[Pod]) -> int:
        if len(pods) < size:
            return len(pods)
        return sum(pod.place.position < size for pod in pods)


@dataclass(frozen=True, slots=True)
class Group:
    """The role instances of a serving group that have pods. At least one exists."""

    ordinal: int
    roles: Mapping[str, Mapping[int, Instance]]

    @property
    def instances(self) -> Iterator[Instance]:
        """All instances, by role as first seen."""
        for instances in self.roles.values():
            yield from instances.values()

    @property
    def living(self) -> list[Pod]:
        """Its pods that are not terminating."""
        return [pod for instance in self.instances for pod in instance.living]

    @property
    def terminating(self) -> bool:
        """Whether a pod of it is on its way out."""
        return any(instance.terminating for instance in self.instances)

    @property
    def deletion_cost(self) -> int:
        """The sum over its pods."""
        return sum(instance.deletion_cost for instance in self.instances)


class Health(IntEnum):
    """What a group can do now."""

    DOWN = 0
    """Some role has no instance ready: the group cannot serve."""
    DEGRADED = 1
    """It serves, but not all its instances are ready."""
    AVAILABLE = 2
    """Every instance that it should have is ready."""


def build_groups(modelserving: str, pods: Iterable[Object]) -> dict[int, Group]:
    """The groups that pods make up, by ordinal. Pods whose names say no place are left out."""
    instances: dict[InstanceKey, dict[int, Pod]] = {}
    for obj in pods:
        place = parse_place(modelserving, name_of(obj))
        if place is not None:
            instances.setdefault(place.instance, {})[place.position] = Pod.of(obj, place)
    groups: dict[int, dict[str, dict[int, Instance]]] = {}
    for key, members in instances.items():
        roles = groups.setdefault(key.group, {})
        roles.setdefault(key.role, {})[key.ordinal] = Instance.of(key, members)
    return {ordinal: Group(ordinal, roles) for ordinal, roles in groups.items()}


def health_of(
    group: Group,
    replicas: Mapping[str, int],
    leaving: Mapping[str, Collection[int]],
    size_of: Callable[[Instance], int],
) -> Health:
    """The health of a group that should have so many instances of each role.

    Instances in `leaving`, by role, do not count: they are about to be deleted.
    """
    health = Health.AVAILABLE
    for role, wanted in replicas.items():
        gone = leaving.get(role, ())
        ready = sum(
            instance.is_available(size_of(instance))
            for ordinal, instance in group.roles.get(role, {}).items()
            if ordinal not in gone
        )
        if ready < wanted:
            if ready == 0:
                return Health.DOWN
            health = Health.DEGRADED
    return health


def departing_instances(
    instances: Mapping[int, Instance],
    wanted: int,
    size_of: Callable[[Instance], int],
    *,
    keeps_first: bool,
) -> frozenset[int]:
    """Ordinals of the instances of a role that have to go, those already going included.

    The order is that of Kthena: what is incomplete, then what is not available, then what is cheap
    to delete, then the highest ordinal. With `keeps_first`, instance 0 goes last of all; while it is
    not ready, one that is stays in its place.
    """
    departing = {
        ordinal
        for ordinal, instance in instances.items()
        if not instance.living and ordinal >= wanted
    }
    staying = [instance for ordinal, instance in instances.items() if ordinal not in departing]
    excess = len(staying) - wanted

    def rank(instance: Instance) -> tuple[bool, bool, bool, int, int]:
        size = size_of(instance)
        return (
            keeps_first and instance.key.ordinal == 0,
            instance.is_complete(size),
            instance.is_available(size),
            instance.deletion_cost,
            -instance.key.ordinal,
        )

    if excess > 0:
        ranked = sorted(staying, key=rank)
        victims, kept = ranked[:excess], ranked[excess:]
        ready = [one for one in victims if one.is_available(size_of(one))]
        lacking = wanted - sum(one.is_available(size_of(one)) for one in kept)
        # Instance 0 may be kept while it is not ready: what serves in its place goes later.
        spared = ready[-lacking:] if lacking > 0 else []
        departing.update(one.key.ordinal for one in victims if one not in spared)
    return frozenset(departing)
