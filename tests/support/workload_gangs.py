"""What must hold of gangs (P24), checked from outside as the other invariants are."""

from collections.abc import Iterable
from typing import Any

from kthena.machinery.objects import (
    Object,
    annotations_of,
    controller_of,
    is_terminating,
    labels_of,
    name_of,
    uid_of,
)
from kthena.workload.planner.observed import Observed
from kthena.workload.planner.plan import (
    CreatePod,
    CreatePodGroup,
    DeletePod,
    DeletePodGroup,
    Plan,
    UpdatePodGroup,
)
from support.workload_world import World

GROUP_NAME = "scheduling.k8s.io/group-name"
PREFIX = "modelserving.volcano.sh/"


def gang_of(pod: Object) -> str:
    return annotations_of(pod).get(GROUP_NAME, "")


def group_of(pod: Object) -> str:
    return name_of(pod).rsplit("-", 3)[0]


def by_group(pods: Iterable[Object]) -> dict[str, list[Object]]:
    groups: dict[str, list[Object]] = {}
    for pod in pods:
        groups.setdefault(group_of(pod), []).append(pod)
    return groups


def check_plan(observed: Observed, plan: Plan) -> None:
    """A pod joins a gang only with its PodGroup, and only beside members; PodGroups stay beside pods."""
    uid = uid_of(observed.modelserving)
    owned = [p for p in observed.pods if (controller_of(p) or {}).get("uid") in (uid, None)]
    groups = by_group(owned)
    there = {name_of(each): each for each in observed.pod_groups}
    made = {name_of(a.pod_group) for a in plan.actions if isinstance(a, CreatePodGroup)}
    deleted = {a.uid for a in plan.actions if isinstance(a, DeletePod)}
    for action in plan.actions:
        if isinstance(action, CreatePod):
            gang, group = gang_of(action.pod), group_of(action.pod)
            if not gang:
                continue
            assert gang == group, f"P24: {name_of(action.pod)} joins {gang}"
            living = [pod for pod in groups.get(group, ()) if not is_terminating(pod)]
            assert all(map(gang_of, living)), f"P24: {name_of(action.pod)} joins no gang"
            if observed.capabilities.pod_groups is not None:
                assert gang in made | there.keys(), f"P24: {gang} is not there before its pods"
        elif isinstance(action, CreatePodGroup):
            assert name_of(action.pod_group) not in there, "P13: a PodGroup that is there"
        elif isinstance(action, UpdatePodGroup | DeletePodGroup):
            owner = controller_of(there[action.name]) or {}
            assert owner.get("uid", uid) == uid, f"P19: {action} touches a foreign object"
            assert uid_of(there[action.name]) == action.uid, "P16: writes carry the UID"
            if isinstance(action, DeletePodGroup):
                left = [
                    pod
                    for pod in groups.get(action.name, ())
                    if uid_of(pod) not in deleted and not is_terminating(pod)
                ]
                assert not left, f"P24: {action.name} goes before its pods"


def check_rest(world: World) -> None:
    """Each gang has its PodGroup, with minima that its pods fulfil; no PodGroup is left over."""
    owner = world.objects["ModelServing"].get("ms")
    if owner is None or world.pod_groups is None:
        return
    groups = by_group(world.pods().values())
    for name in world.objects["PodGroup"]:
        assert name in groups, f"P24: {name} outlives its group"
    for name, pods in groups.items():
        members = [pod for pod in pods if gang_of(pod)]
        if members:
            stored = world.objects["PodGroup"].get(name)
            assert stored is not None, f"P24: {name} has no PodGroup"
            _check_minima(owner["spec"], stored["spec"], pods, complete=len(members) == len(pods))


def _check_minima(
    spec: dict[str, Any], found: dict[str, Any], pods: list[Object], *, complete: bool
) -> None:
    policies = found.get("subGroupPolicy") or ()
    total = sum(policy["subGroupSize"] * policy["minSubGroups"] for policy in policies)
    assert found["minMember"] == total, "P24: minMember is the sum of the sub-groups"
    if not complete:
        assert total == 0, "P24: pods would wait for members that never come"
        return
    minima = (spec["template"].get("gangPolicy") or {}).get("minRoleReplicas") or {}
    sizes: dict[str, dict[str, int]] = {}
    for pod in pods:
        labels = labels_of(pod)
        of_role = sizes.setdefault(labels[f"{PREFIX}role"], {})
        role_id = labels[f"{PREFIX}role-id"]
        of_role[role_id] = of_role.get(role_id, 0) + 1
    expected = sum(
        min(minima.get(role, len(of_role)), len(of_role)) * min(of_role.values())
        for role, of_role in sizes.items()
    )
    assert total == expected, f"P24: {total} pods are needed, not {expected}"
