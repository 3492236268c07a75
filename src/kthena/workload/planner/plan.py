"""What the planner answers: actions as data, in the stages in which they are carried out.

A later stage rests on the earlier ones: a pod's revision is written before the pod, and its service
exists before it does. Within a stage the order is free, except among revisions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, TypeAlias

from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource
from kthena.workload.identity import InstanceKey


class Stage(IntEnum):
    """The order of execution."""

    OWNERSHIP = 0
    """Whose the children are. When one of these fails, what follows is left for the next plan."""
    RECORDS = 1
    """What is written down. Carried out one by one; as with OWNERSHIP, a failure ends the plan."""
    POD_GROUPS = 2
    """As for services: one that cannot be written holds back the pods that name it."""
    DELETIONS = 3
    SERVICES = 4
    """A service that cannot be created only holds back the pods that need it."""
    PODS = 5
    HISTORY = 6

    @property
    def is_barrier(self) -> bool:
        """Whether the stages after it rest on all of it."""
        return self <= Stage.RECORDS


@dataclass(frozen=True, slots=True)
class Adopt:
    """Make the ModelServing the controller of an orphan, if it is still what was observed."""

    stage: ClassVar[Stage] = Stage.OWNERSHIP
    resource: Resource
    name: str
    uid: str
    resource_version: str
    owner_references: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class DeleteStale:
    """Delete a child that a former ModelServing of this name left behind."""

    stage: ClassVar[Stage] = Stage.OWNERSHIP
    resource: Resource
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CreateRevision:
    """Write a ControllerRevision."""

    stage: ClassVar[Stage] = Stage.RECORDS
    revision: Object


@dataclass(frozen=True, slots=True)
class AnnotateRevision:
    """Write what cannot be derived onto a ControllerRevision. Its data stays as it is."""

    stage: ClassVar[Stage] = Stage.RECORDS
    name: str
    uid: str
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AnnotateModelServing:
    """Write annotations of the controller onto the ModelServing; None removes one."""

    stage: ClassVar[Stage] = Stage.RECORDS
    annotations: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class CreatePodGroup:
    """Create a PodGroup."""

    stage: ClassVar[Stage] = Stage.POD_GROUPS
    pod_group: Object


@dataclass(frozen=True, slots=True)
class UpdatePodGroup:
    """Merge a patch into a PodGroup."""

    stage: ClassVar[Stage] = Stage.POD_GROUPS
    name: str
    uid: str
    patch: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeletePodGroup:
    """Delete the PodGroup with this UID."""

    stage: ClassVar[Stage] = Stage.DELETIONS
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class AnnotatePod:
    """Write annotations of the controller onto a pod."""

    stage: ClassVar[Stage] = Stage.DELETIONS
    name: str
    uid: str
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete the pod with this UID, with its own grace period."""

    stage: ClassVar[Stage] = Stage.DELETIONS
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeleteService:
    """Delete the service with this UID."""

    stage: ClassVar[Stage] = Stage.DELETIONS
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create a headless service."""

    stage: ClassVar[Stage] = Stage.SERVICES
    service: Object


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a pod, unless the service or PodGroup that it needs could not be in the same run."""

    stage: ClassVar[Stage] = Stage.PODS
    pod: Object
    service: str | None
    """The name of the service that gives its instance an address, if it has one."""
    pod_group: str | None = None
    """The name of the PodGroup with which it is placed, if it has one."""


@dataclass(frozen=True, slots=True)
class DeleteRevision:
    """Delete a ControllerRevision that nothing refers to."""

    stage: ClassVar[Stage] = Stage.HISTORY
    name: str
    uid: str


Action: TypeAlias = (
    Adopt
    | DeleteStale
    | CreateRevision
    | AnnotateRevision
    | AnnotateModelServing
    | CreatePodGroup
    | UpdatePodGroup
    | DeletePodGroup
    | AnnotatePod
    | DeletePod
    | DeleteService
    | CreateService
    | CreatePod
    | DeleteRevision
)


class InstanceState(IntEnum):
    """The state of a role instance, in the words of Kthena's events."""

    CREATING = 0
    RUNNING = 1
    DELETING = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, what to say, and when to look again without being asked."""

    actions: tuple[Action, ...] = ()
    status: Object | None = None
    """The whole status as it should read; None leaves it alone."""
    requeue_after_s: float | None = None
    before: Mapping[InstanceKey, InstanceState] = field(default_factory=dict)
    """States of the role instances as observed."""
    after: Mapping[InstanceKey, InstanceState] = field(default_factory=dict)
    """States once the actions are carried out."""

    def in_stage(self, stage: Stage) -> list[Action]:
        """The actions of one stage, in order."""
        return [action for action in self.actions if action.stage is stage]

    @property
    def confirms_owner(self) -> bool:
        """Whether the ModelServing must be read from the server before the plan is carried out.

        Ownership is only ever changed on the word of the server: a cache may still hold a
        ModelServing whose successor owns the children by now.
        """
        return any(action.stage is Stage.OWNERSHIP for action in self.actions)
