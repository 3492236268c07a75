"""Pods put in their places: groups, role instances, pods, with what they are ready for right now.

The place of a pod is in its name, its revision in its label. Readiness is read from the pod's status
and from nothing else; a terminating pod counts as not ready.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
from kthena.workload.identity import InstanceKey, PodPlace, parse_place


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
    def has_terminating(self) -> bool:
        """Whether a pod of it is terminating."""
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
        """Whether all `size` pods exist and none of them is terminating."""
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
    def has_terminating(self) -> bool:
        """Whether a pod of it is terminating."""
        return any(instance.has_terminating for instance in self.instances)

    @property
    def deletion_cost(self) -> int:
        """The sum over its pods."""
        return sum(instance.deletion_cost for instance in self.instances)


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
