"""Pods of role instances: the user's template, plus what this module lists.

The pod's spec is the template's, verbatim, but for `schedulerName` (always the ModelServing's) and
three environment variables in every container and init container. Its labels and annotations are
the template's plus the controller's own. A name that the controller reads back is the controller's
alone, also where it sets none: the template cannot say what a pod is or how often it failed.
"""

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kthena.api.kubernetes import PODS
from kthena.api.workload.names import (
    ENV_ENTRY_ADDRESS,
    ENV_GROUP_SIZE,
    ENV_WORKER_INDEX,
    LABEL_ENTRY,
    LABEL_REVISION,
    LABEL_ROLE_TEMPLATE_HASH,
    RESERVED_LABELS,
)
from kthena.machinery.objects import Object, name_of, namespace_of
from kthena.workload.identity import (
    ENTRY_POSITION,
    PodPlace,
    child_labels,
    entry_name,
    owner_reference,
    pod_name,
)
from kthena.workload.records import RESERVED_ANNOTATIONS
from kthena.workload.revisions import RoleTemplate


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """What a pod says of itself beside its place."""

    revision: str
    role_hash: str
    scheduler: str | None
    """The scheduler's name; None leaves the pod to the cluster's default."""
    annotations: Mapping[str, str]


def build_pod(
    modelserving: Object, role: RoleTemplate, place: PodPlace, identity: PodIdentity
) -> Object:
    """The pod for a place. It shares nothing with the template.

    Raises:
        ValueError: the place is a worker's and the role has no worker template.
    """
    template = role.entry_template if place.position == ENTRY_POSITION else role.worker_template
    if template is None:
        raise ValueError(f"role {role.name} has no workerTemplate for pod {place.position}")
    owner = name_of(modelserving)
    spec = copy.deepcopy(dict(template.get("spec") or {}))
    spec.pop("schedulerName", None)
    if identity.scheduler is not None:
        spec["schedulerName"] = identity.scheduler
    _add_env(spec, _environment(modelserving, role, place))
    metadata: dict[str, Any] = {
        "name": pod_name(owner, place),
        "namespace": namespace_of(modelserving),
        "labels": _labels(owner, template, place, identity),
        "ownerReferences": [owner_reference(modelserving)],
    }
    users = _metadata(template, "annotations", without=RESERVED_ANNOTATIONS)
    annotations = {**users, **identity.annotations}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": metadata,
        "spec": spec,
    }


def _labels(
    owner: str, template: Mapping[str, Any], place: PodPlace, identity: PodIdentity
) -> dict[str, str]:
    own = {
        **child_labels(owner, place.instance),
        LABEL_REVISION: identity.revision,
        LABEL_ROLE_TEMPLATE_HASH: identity.role_hash,
    }
    if place.position == ENTRY_POSITION:
        own[LABEL_ENTRY] = "true"
    return {**_metadata(template, "labels", without=RESERVED_LABELS), **own}


def _metadata(template: Mapping[str, Any], key: str, *, without: Collection[str]) -> dict[str, str]:
    users = (template.get("metadata") or {}).get(key) or {}
    return {name: value for name, value in users.items() if name not in without}


def _environment(modelserving: Object, role: RoleTemplate, place: PodPlace) -> dict[str, str]:
    """Kthena's variables in Kthena's order."""
    entry = entry_name(name_of(modelserving), place.instance)
    return {
        ENV_GROUP_SIZE: str(role.size),
        ENV_ENTRY_ADDRESS: f"{entry}.{namespace_of(modelserving)}",
        ENV_WORKER_INDEX: str(place.position),
    }


def _add_env(spec: dict[str, Any], variables: Mapping[str, str]) -> None:
    """Append the variables to every container and init container, replacing users' of that name."""
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            kept = [
                entry for entry in container.get("env") or () if entry.get("name") not in variables
            ]
            added = [{"name": name, "value": value} for name, value in variables.items()]
            container["env"] = [*kept, *added]
