"""Which pods may be bound: those of a gang only once enough of its members exist. Pure.

What a PodGroup of Volcano asks for: `minMember` pods, and of each kind of sub-group `minSubGroups`
whole ones. One node takes all pods, so that distance and resources decide nothing.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final

from kthena.api.volcano import ANNOTATION_GROUP_NAME
from kthena.machinery.objects import (
    Object,
    annotations_of,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
)
from kthena.machinery.selectors import SelectorError, label_selector_from_object

_ENDED: Final = ("Succeeded", "Failed")


def gang_of(pod: Object) -> str:
    """Namespace and name of the PodGroup that a pod is a member of; empty if of none."""
    name = annotations_of(pod).get(ANNOTATION_GROUP_NAME, "")
    return f"{namespace_of(pod)}/{name}" if name else ""


def find_lack(pod_group: Object, members: Collection[Object]) -> str:
    """What a gang lacks before its pods may be bound, for an event; empty if nothing.

    Pods that end or have ended do not count.
    """
    living = [
        pod
        for pod in members
        if not is_terminating(pod) and (pod.get("status") or {}).get("phase") not in _ENDED
    ]
    spec = pod_group.get("spec") or {}
    name, minimum = name_of(pod_group), int(spec.get("minMember") or 0)
    if len(living) < minimum:
        return f"PodGroup {name} has {len(living)} pods and needs {minimum}"
    for policy in spec.get("subGroupPolicy") or ():
        wanted = int(policy.get("minSubGroups") or 0)
        found = _whole_sub_groups(policy, living)
        if found < wanted:
            return (
                f"PodGroup {name} has {found} whole sub-groups of {policy.get('name')} "
                f"and needs {wanted}"
            )
    return ""


def _whole_sub_groups(policy: Mapping[str, Any], pods: Collection[Object]) -> int:
    try:
        selector = label_selector_from_object(policy.get("labelSelector") or {})
    except SelectorError:
        return 0
    keys = policy.get("matchLabelKeys") or ()
    sizes: Counter[tuple[str | None, ...]] = Counter()
    for pod in pods:
        labels = labels_of(pod)
        if selector.matches(labels):
            sizes[tuple(labels.get(key) for key in keys)] += 1
    size = int(policy.get("subGroupSize") or 1)
    return sum(count >= size for count in sizes.values())
