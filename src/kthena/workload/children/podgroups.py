"""The PodGroup of a serving group: what the scheduler `volcano` places together, and how closely.

A group needs `minMember` pods before any of them is placed: for each role as many whole instances as
`gangPolicy.minRoleReplicas` says, or all of them. `minResources` is what these pods request; what is
only limited is requested by its limit, as Kubernetes defaults it. Each role is a sub-group, whose
instances are placed whole.

PodGroups are Volcano's, in whatever version is installed. What its CRD does not know is not asked
for, since the API server would drop it.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from kthena.api.volcano import ANNOTATION_GROUP_NAME, ANNOTATION_QUEUE_NAME, POD_GROUPS
from kthena.api.workload.names import LABEL_GROUP_NAME, LABEL_NAME, LABEL_ROLE, LABEL_ROLE_ID
from kthena.machinery.objects import Object, annotations_of, labels_of, name_of, namespace_of
from kthena.machinery.quantity import Quantity, QuantityError
from kthena.machinery.schema.defaulting import apply_defaults
from kthena.machinery.schema.pruning import prune_value
from kthena.machinery.schema.structural import SchemaError, StructuralSchema, decode
from kthena.workload.identity import group_name, owner_reference
from kthena.workload.revisions import RoleTemplate

_MAX_COUNT: Final = 2**31 - 1
_MANAGED: Final = ("minMember", "minResources", "queue", "networkTopology", "subGroupPolicy")
"""The fields of a PodGroup's spec that are this controller's; others are left alone."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one role brings into a group."""

    role: RoleTemplate
    minimum: int
    """Instances without which none of the group's pods is placed."""

    @property
    def pods(self) -> int:
        """The pods of these instances."""
        return self.role.size * self.minimum


class PodGroupForm:
    """What PodGroups of the installed Volcano can say. Immutable."""

    def __init__(self, spec: StructuralSchema) -> None:
        self._spec = spec

    @classmethod
    def of(cls, definition: Object) -> "PodGroupForm | None":
        """The form that a CRD gives; None where it serves no PodGroups that have `minMember`."""
        for version in (definition.get("spec") or {}).get("versions") or ():
            if version.get("name") != POD_GROUPS.version or not version.get("served"):
                continue
            try:
                schema = decode((version.get("schema") or {}).get("openAPIV3Schema") or {}, "")
            except SchemaError:
                return None
            spec = schema.child("spec")
            return cls(spec) if spec is not None and spec.child("minMember") is not None else None
        return None

    @property
    def has_sub_groups(self) -> bool:
        """Whether roles can be told apart."""
        return self._spec.child("subGroupPolicy") is not None

    def shape(self, spec: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """A spec as the API server will have it, and the paths that it would have dropped."""
        shaped = copy.deepcopy(dict(spec))
        dropped = prune_value(shaped, self._spec)
        apply_defaults(shaped, self._spec)
        return shaped, dropped


def pod_group_spec(modelserving: Object, shares: Sequence[Share]) -> dict[str, Any]:
    """The spec of the PodGroup of a group that these roles make up."""
    topology = modelserving["spec"]["template"].get("networkTopology") or {}
    spec: dict[str, Any] = {
        "minMember": min(sum(share.pods for share in shares), _MAX_COUNT),
        "minResources": _requests(shares),
        "subGroupPolicy": [
            _sub_group(modelserving, share, topology.get("rolePolicy")) for share in shares
        ],
    }
    queue = annotations_of(modelserving).get(ANNOTATION_QUEUE_NAME)
    if queue:
        spec["queue"] = queue
    if topology.get("groupPolicy"):
        spec["networkTopology"] = topology["groupPolicy"]
    return spec


def build_pod_group(modelserving: Object, group: int, spec: Mapping[str, Any]) -> Object:
    """The PodGroup of a group."""
    name = group_name(name_of(modelserving), group)
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": name,
            "namespace": namespace_of(modelserving),
            **_own_metadata(modelserving, name),
            "ownerReferences": [owner_reference(modelserving, blocks_deletion=False)],
        },
        "spec": dict(spec),
    }


def pod_group_patch(
    modelserving: Object, stored: Object, spec: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The merge patch that makes a stored PodGroup say what it should; None where it does.

    Quantities are compared by value, and what is empty as what is absent.
    """
    patch: dict[str, Any] = {}
    found = stored.get("spec") or {}
    changed = {
        field: _replacing(found.get(field), spec.get(field))
        for field in _MANAGED
        if found.get(field) != spec.get(field)
        and _normal(field, found.get(field)) != _normal(field, spec.get(field))
    }
    if changed:
        patch["spec"] = changed
    own = _own_metadata(modelserving, name_of(stored))
    present = {"labels": labels_of(stored), "annotations": annotations_of(stored)}
    lacking = {
        part: values for part, values in own.items() if not values.items() <= present[part].items()
    }
    if lacking:
        patch["metadata"] = lacking
    return patch or None


def _own_metadata(modelserving: Object, group: str) -> dict[str, dict[str, str]]:
    return {
        "labels": {LABEL_NAME: name_of(modelserving), LABEL_GROUP_NAME: group},
        "annotations": {ANNOTATION_GROUP_NAME: group},
    }


def _sub_group(
    modelserving: Object, share: Share, topology: Mapping[str, Any] | None
) -> dict[str, Any]:
    labels = {LABEL_NAME: name_of(modelserving), LABEL_ROLE: share.role.name}
    policy: dict[str, Any] = {
        "name": share.role.name,
        "labelSelector": {"matchLabels": labels},
        "matchLabelKeys": [LABEL_ROLE_ID],
        "subGroupSize": min(share.role.size, _MAX_COUNT),
        "minSubGroups": min(share.minimum, _MAX_COUNT),
    }
    if topology:
        policy["networkTopology"] = topology
    return policy


def _requests(shares: Iterable[Share]) -> dict[str, str]:
    """The sum over the pods without which none is placed."""
    total: dict[str, Quantity] = {}
    for share in shares:
        role = share.role
        counted = [(role.entry_template, share.minimum)]
        if role.worker_template is not None:
            counted.append((role.worker_template, share.minimum * role.worker_replicas))
        for template, pods in counted:
            for name, quantity in _requests_of_pod(template).items():
                times = Quantity(quantity.value * pods, quantity.format)
                total[name] = total[name] + times if name in total else times
    return {name: str(quantity) for name, quantity in sorted(total.items()) if quantity.value}


def _requests_of_pod(template: Mapping[str, Any]) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for container in (template.get("spec") or {}).get("containers") or ():
        resources = container.get("resources") or {}
        requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name, text in requests.items():
            # What is no quantity is refused with the pod.
            with suppress(QuantityError):
                quantity = Quantity.parse(text)
                total[name] = total[name] + quantity if name in total else quantity
    return total


def _replacing(old: Any, new: Any) -> Any:
    """The value that, merged into the old one, leaves only the new one."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**dict.fromkeys(old), **new}
    return new


def _normal(field: str, value: Any) -> Any:
    if field == "minResources":
        return {name: _amount(text) for name, text in (value or {}).items() if _amount(text)}
    return _without_empty(value)


def _amount(text: Any) -> Any:
    try:
        return Quantity.parse(text).value
    except (QuantityError, TypeError):
        return text


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without_empty(entry) for key, entry in value.items()}
        return {key: entry for key, entry in kept.items() if entry is not None} or None
    if isinstance(value, list):
        return [_without_empty(entry) for entry in value] or None
    return value or None
