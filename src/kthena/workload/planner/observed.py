"""What the planner sees: one ModelServing with its children, frozen at one moment.

Children come in by label or by owner name, so there may be some that belong to somebody else.
`belonging` tells them apart: by the UID in the controller reference, never by a label alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from kthena.api.kubernetes import CONTROLLER_REVISIONS, PODS, SERVICES
from kthena.api.meta import DecodeError
from kthena.api.unsupported import Unsupported, unsupported_fields
from kthena.api.volcano import POD_GROUPS
from kthena.api.workload.modelserving import ModelServingSpec, decode
from kthena.api.workload.names import LABEL_NAME, LABEL_REVISION
from kthena.machinery.objects import (
    Object,
    controller_of,
    is_terminating,
    key_of,
    labels_of,
    name_of,
    uid_of,
)
from kthena.machinery.resources import Resource
from kthena.workload.children.podgroups import PodGroupForm
from kthena.workload.identity import (
    is_modelserving_reference,
    parse_group,
    parse_place,
    revision_object_name,
)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the cluster offers, and what the operator of this controller allows."""

    volcano: bool = False
    """A scheduler called `volcano` places pods here."""
    pod_groups: PodGroupForm | None = None
    """What its PodGroups can say; None where there are none: groups that need one wait."""
    scheduler_fallback: bool = True
    """Without it, pods may go to the cluster's default scheduler."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that a plan follows from, beside the time.

    Objects are as the API has them and are not changed. Children are those that refer to the
    ModelServing by controller reference or by label.
    """

    modelserving: Object
    spec: ModelServingSpec
    pods: tuple[Object, ...] = ()
    services: tuple[Object, ...] = ()
    revisions: tuple[Object, ...] = ()
    pod_groups: tuple[Object, ...] = ()
    capabilities: Capabilities = field(default_factory=Capabilities)
    refused: tuple[Unsupported, ...] = ()
    """What the spec asks for and this version does not do."""

    @classmethod
    def of(
        cls,
        modelserving: Object,
        *,
        pods: Iterable[Object] = (),
        services: Iterable[Object] = (),
        revisions: Iterable[Object] = (),
        pod_groups: Iterable[Object] = (),
        capabilities: Capabilities | None = None,
    ) -> "Observed":
        """The frozen input for a ModelServing and its children.

        Raises:
            DecodeError: the stored ModelServing has not the shape of one.
        """
        spec = decode(modelserving).spec
        if not spec.template.roles:
            raise DecodeError(
                f"ModelServing {key_of(modelserving)} has no roles in spec.template.roles; add one"
            )
        return cls(
            modelserving=modelserving,
            spec=spec,
            pods=tuple(pods),
            services=tuple(services),
            revisions=tuple(revisions),
            pod_groups=tuple(pod_groups),
            capabilities=capabilities or Capabilities(),
            refused=tuple(unsupported_fields(modelserving)),
        )

    @property
    def name(self) -> str:
        """The name of the ModelServing."""
        return name_of(self.modelserving)

    @property
    def children(self) -> Mapping[Resource, tuple[Object, ...]]:
        """All children by resource."""
        return {
            PODS: self.pods,
            SERVICES: self.services,
            CONTROLLER_REVISIONS: self.revisions,
            POD_GROUPS: self.pod_groups,
        }


class Belonging(Enum):
    """Whose a child is."""

    OURS = "ours"
    ORPHAN = "orphan"
    """Nobody's, with our label and a name that we would give: to be adopted."""
    STALE = "stale"
    """A former ModelServing's of the same name: to be deleted."""
    FOREIGN = "foreign"
    """Somebody else's: never touched."""


def belonging(child: Object, modelserving: Object) -> Belonging:
    """Whose the child is, seen from the ModelServing."""
    controller = controller_of(child)
    if controller is None:
        return Belonging.ORPHAN if _is_orphan(child, modelserving) else Belonging.FOREIGN
    if not is_modelserving_reference(controller):
        return Belonging.FOREIGN
    if controller.get("uid") == uid_of(modelserving):
        return Belonging.OURS
    return Belonging.STALE if controller.get("name") == name_of(modelserving) else Belonging.FOREIGN


def _is_orphan(child: Object, modelserving: Object) -> bool:
    owner, labels = name_of(modelserving), labels_of(child)
    if labels.get(LABEL_NAME) != owner or is_terminating(child):
        return False
    if child.get("kind") == CONTROLLER_REVISIONS.kind:
        return name_of(child) == revision_object_name(owner, labels.get(LABEL_REVISION, ""))
    if child.get("kind") == POD_GROUPS.kind:
        return parse_group(owner, name_of(child)) is not None
    if parse_place(owner, name_of(child)) is None:
        return False
    return child.get("kind") != "Pod" or LABEL_REVISION in labels
