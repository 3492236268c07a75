"""Names, labels and owner references of children, and the way back from a child to its place.

A child belongs to a ModelServing by the UID in its controller reference and to its place in a group
by its name. Labels only help to find it: users' templates may have overridden them.
"""

import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kthena.api.registry import MODEL_SERVINGS
from kthena.api.workload.names import (
    GROUP,
    LABEL_GROUP_NAME,
    LABEL_NAME,
    LABEL_ROLE,
    LABEL_ROLE_ID,
)
from kthena.machinery.objects import (
    NamespacedName,
    Object,
    controller_of,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)

ENTRY_POSITION: Final = 0


class InstanceKey(NamedTuple):
    """The place of a role instance: group ordinal, role, ordinal within the role."""

    group: int
    role: str
    ordinal: int

    @property
    def role_id(self) -> str:
        """`<role>-<ordinal>`, as the label has it."""
        return f"{self.role}-{self.ordinal}"


class PodPlace(NamedTuple):
    """The place of a pod: its instance, and its position there (0 is the entry pod)."""

    instance: InstanceKey
    position: int


def group_name(modelserving: str, group: int) -> str:
    """The name of a serving group."""
    return f"{modelserving}-{group}"


def parse_group(modelserving: str, name: str) -> int | None:
    """The ordinal of the group that has this name, or None for a name that no group gets."""
    ordinal = name.removeprefix(f"{modelserving}-")
    match = _ORDINAL.fullmatch(ordinal)
    return int(ordinal) if match and name != ordinal else None


def pod_name(modelserving: str, place: PodPlace) -> str:
    """The name of a pod; that of the entry pod is also the name of the headless service."""
    return f"{modelserving}-{place.instance.group}-{place.instance.role_id}-{place.position}"


def entry_name(modelserving: str, instance: InstanceKey) -> str:
    """The name of the instance's entry pod and of its headless service."""
    return pod_name(modelserving, PodPlace(instance, ENTRY_POSITION))


def revision_object_name(modelserving: str, revision: str) -> str:
    """The name of the ControllerRevision of a revision."""
    return f"{modelserving}-{revision}"


def parse_place(modelserving: str, name: str) -> PodPlace | None:
    """The place that a pod or service name says, or None for a name that this project never gives."""
    match = _place_pattern(modelserving).fullmatch(name)
    if match is None:
        return None
    group, role, ordinal, position = match.groups()
    return PodPlace(InstanceKey(int(group), role, int(ordinal)), int(position))


_ORDINAL: Final = re.compile("0|[1-9][0-9]{0,8}")
"""Ordinals are 32-bit and written without leading zeros."""


@lru_cache(maxsize=1024)
def _place_pattern(modelserving: str) -> re.Pattern[str]:
    # Role names start with a letter.
    ordinal = f"({_ORDINAL.pattern})"
    role = "([a-zA-Z](?:[-a-zA-Z0-9]*[a-zA-Z0-9])?)"
    return re.compile(f"{re.escape(modelserving)}-{ordinal}-{role}-{ordinal}-{ordinal}")


def child_labels(modelserving: str, instance: InstanceKey) -> dict[str, str]:
    """The labels that pods and services of an instance share."""
    return {
        LABEL_NAME: modelserving,
        LABEL_GROUP_NAME: group_name(modelserving, instance.group),
        LABEL_ROLE: instance.role,
        LABEL_ROLE_ID: instance.role_id,
    }


def owner_reference(modelserving: Object, *, blocks_deletion: bool = True) -> dict[str, Any]:
    """The controller reference of a child to its ModelServing."""
    reference: dict[str, Any] = {
        "apiVersion": MODEL_SERVINGS.api_version,
        "kind": MODEL_SERVINGS.kind,
        "name": name_of(modelserving),
        "uid": uid_of(modelserving),
        "controller": True,
    }
    if blocks_deletion:
        reference["blockOwnerDeletion"] = True
    return reference


def possible_owners(child: Object) -> list[NamespacedName]:
    """The ModelServings that a child concerns: its controller, and the one that its label names.

    The second may be another one, or none at all: the child is then an orphan, or in the way.
    """
    names = dict.fromkeys((_controller_name(child), labels_of(child).get(LABEL_NAME, "")))
    return [NamespacedName(namespace_of(child), name) for name in names if name]


def _controller_name(child: Object) -> str:
    controller = controller_of(child)
    if controller is None or not is_modelserving_reference(controller):
        return ""
    return str(controller.get("name") or "")


def is_modelserving_reference(reference: dict[str, Any]) -> bool:
    """Whether an owner reference names a ModelServing, of whatever version."""
    group = str(reference.get("apiVersion") or "").partition("/")[0]
    return group == GROUP and reference.get("kind") == MODEL_SERVINGS.kind
