"""Invariants of the workload plane, checked from outside: on plans, on writes, and at rest.

Written against the objects alone, not with the planner's own functions, so that both can be wrong
only separately.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kthena.machinery.objects import (
    Object,
    controller_of,
    is_terminating,
    labels_of,
    name_of,
    uid_of,
)
from kthena.workload.planner.observed import Observed
from kthena.workload.planner.plan import (
    CreatePod,
    CreateService,
    DeletePod,
    DeleteRevision,
    DeleteService,
    Plan,
)
from kthena.workload.records import parse_ordinals
from support.workload_world import World, is_ready

PREFIX = "modelserving.volcano.sh/"


@dataclass(frozen=True)
class Place:
    group: int
    role: str
    instance: int
    index: int


def place_of(pod_name: str, owner: str = "ms") -> Place:
    parts = pod_name.removeprefix(f"{owner}-").split("-")
    return Place(int(parts[0]), "-".join(parts[1:-2]), int(parts[-2]), int(parts[-1]))


def forms(roles: list[dict[str, Any]]) -> str:
    """What pods are made from, in a form that can be compared."""
    settings = ("replicas", "maxUnavailable", "partition")
    kept = [{key: value for key, value in role.items() if key not in settings} for role in roles]
    return json.dumps(sorted(kept, key=lambda role: str(role["name"])), sort_keys=True)


def revisions(world: World) -> dict[str, list[dict[str, Any]]]:
    """Roles by revision, from the ControllerRevisions."""
    return {
        labels_of(stored)[f"{PREFIX}revision"]: stored["data"]["data"]
        for stored in world.objects["ControllerRevision"].values()
    }


@dataclass
class Group:
    """Pods of a group as the invariants see them."""

    pods: list[Object] = field(default_factory=list)

    @property
    def living(self) -> list[Object]:
        return [pod for pod in self.pods if not is_terminating(pod)]

    def instances(self) -> dict[tuple[str, int], list[Object]]:
        found: dict[tuple[str, int], list[Object]] = {}
        for pod in self.pods:
            place = place_of(name_of(pod))
            found.setdefault((place.role, place.instance), []).append(pod)
        return found


def groups_of(pods: Iterator[Object]) -> dict[int, Group]:
    groups: dict[int, Group] = {}
    for pod in pods:
        groups.setdefault(place_of(name_of(pod)).group, Group()).pods.append(pod)
    return groups


def is_available(group: Group, roles: list[dict[str, Any]], live: list[dict[str, Any]]) -> bool:
    """Whether each role has as many ready instances as it should, by the group's own revision."""
    counts = {role["name"]: role["replicas"] for role in [*roles, *live]}
    ready: dict[str, int] = {}
    sizes = {role["name"]: 1 + role["workerReplicas"] for role in roles}
    for (name, _), pods in group.instances().items():
        size = sizes.get(name, 0)
        counted = [pod for pod in pods if place_of(name_of(pod)).index < size]
        ok = len(counted) == size and all(is_ready(p) and not is_terminating(p) for p in counted)
        ready[name] = ready.get(name, 0) + ok
    return all(ready.get(name, 0) >= counts[name] for name in sizes)


class Invariants:
    """Checks every step of one world. Its memory is what each slot was made from."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.slots: dict[int, str] = {}
        self.data: dict[str, str] = {}
        self.observed_generation = 0

    # Before a plan is carried out.

    def check_plan(self, observed: Observed, plan: Plan) -> None:
        spec = observed.modelserving["spec"]
        if is_terminating(observed.modelserving):
            assert not plan.actions, "P18: a terminating ModelServing is left alone"
            assert plan.status is None, "P18"
            return
        self._check_ownership(observed, plan)
        deleted = {action.uid for action in plan.actions if isinstance(action, DeletePod)}
        groups = groups_of(pod for pod in observed.pods if self._is_ours(pod, observed))
        self._check_budget(spec, groups, deleted, plan)
        self._check_radius(spec, groups, deleted)
        self._check_victims(spec, groups, deleted)
        self._check_names(spec, groups, plan)
        self._check_protected(spec, plan)
        self._check_history(plan)
        self._check_ready(groups, plan)
        self._forget_departing(spec, groups, deleted)

    def _check_ready(self, groups: dict[int, Group], plan: Plan) -> None:
        """Ready is said only when nothing is to be added or removed, and nothing is going."""
        conditions = (plan.status or {}).get("conditions") or ()
        if all(c["status"] != "True" for c in conditions if c["type"] == "Ready"):
            return
        moves = [a for a in plan.actions if isinstance(a, CreatePod | DeletePod | CreateService)]
        assert not moves, f"Ready too early: {moves}"
        going = [pod for group in groups.values() for pod in group.pods if is_terminating(pod)]
        assert not going, f"Ready too early: {[name_of(pod) for pod in going]} are going"

    def _is_ours(self, child: Object, observed: Observed) -> bool:
        owner = controller_of(child)
        mine = owner is not None and owner["uid"] == uid_of(observed.modelserving)
        return mine or owner is None

    def _check_ownership(self, observed: Observed, plan: Plan) -> None:
        pods = {name_of(obj): obj for obj in observed.pods}
        services = {name_of(obj): obj for obj in observed.services}
        for action in plan.actions:
            known = services if isinstance(action, DeleteService) else pods
            obj = known.get(getattr(action, "name", ""))
            owner = controller_of(obj) if obj else None
            if owner is not None:
                assert owner["name"] == "ms", f"P19: {action} touches a foreign object"
                assert owner["kind"] == "ModelServing", "P19"
            if isinstance(action, DeletePod):
                assert obj is not None, "a deletion of something that was not observed"
                assert uid_of(obj) == action.uid, "P16: deletions carry the UID"

    def _roles(self, group: Group, live: list[dict[str, Any]]) -> list[dict[str, Any]]:
        known = revisions(self.world)
        for pod in group.living or group.pods:
            label = labels_of(pod).get(f"{PREFIX}revision", "")
            if label in known:
                return known[label]
        return live

    def _check_budget(
        self, spec: dict[str, Any], groups: dict[int, Group], deleted: set[str], plan: Plan
    ) -> None:
        live = spec["template"]["roles"]
        before = after = standing = occupied = 0
        for group in groups.values():
            available = is_available(group, self._roles(group, live), live)
            left = Group([pod for pod in group.pods if uid_of(pod) not in deleted])
            # A group that its recovery policy takes for a failed pod goes by no choice of the plan,
            # though an instance that is about to be scaled away still serves beside the failed one.
            failed = any(not is_ready(pod) for pod in group.living)
            recreated = spec["recoveryPolicy"] == "ServingGroupRecreate" and not left.living
            before += available and not (recreated and failed)
            stays = available and is_available(left, self._roles(group, live), live)
            after += stays
            standing += stays and bool(left.living)
            occupied += bool(left.living)
        bound = min(before, spec["replicas"] - max_unavailable(spec))
        assert after >= bound, f"P1: {before} available groups become {after}, the bound is {bound}"
        told = (plan.status or {})["availableReplicas"]
        # Groups whose roles are all scaled to zero are available without a pod; those whose last
        # pods are going may count already, or when they are gone.
        empty = max(0, spec["replicas"] - occupied) if self._may_be_podless(spec) else 0
        assert standing <= told <= standing + empty, f"P3: {standing} are available, not {told}"

    def _may_be_podless(self, spec: dict[str, Any]) -> bool:
        counts = {role["name"]: role["replicas"] for role in spec["template"]["roles"]}
        known = [spec["template"]["roles"], *revisions(self.world).values()]
        return any(not any(counts.get(role["name"], 0) for role in roles) for roles in known)

    def _check_radius(
        self, spec: dict[str, Any], groups: dict[int, Group], deleted: set[str]
    ) -> None:
        """A deletion that leaves its group standing has a cause in its own instance."""
        wanted = {role["name"]: role["replicas"] for role in spec["template"]["roles"]}
        policy = spec["recoveryPolicy"]
        for ordinal, group in groups.items():
            doomed = {uid_of(pod) for pod in group.living} & deleted
            if not doomed:
                continue
            if len(doomed) == len(group.living) and self._may_go(spec, groups, ordinal):
                continue
            assert policy != "ServingGroupRecreate" or self._is_scaled(group, wanted), "P15"
            for (role, _), pods in group.instances().items():
                hit = [pod for pod in pods if uid_of(pod) in doomed]
                if not hit or self._is_scaled(group, wanted, role):
                    continue
                assert not all(is_ready(p) and not is_terminating(p) for p in pods) or (
                    self._is_short(pods)
                ), f"P15: {[name_of(p) for p in hit]} deleted without cause"
                if policy == "None":
                    phases = [(pod.get("status") or {}).get("phase") for pod in hit]
                    assert set(phases) == {"Failed"}, "P15: None replaces failed pods only"

    def _may_go(self, spec: dict[str, Any], groups: dict[int, Group], ordinal: int) -> bool:
        """Whether a whole group may be deleted though none of its instances has failed."""
        live = spec["template"]["roles"]
        outdated = forms(self._roles(groups[ordinal], live)) != forms(live)
        if len(groups) > spec["replicas"] or (outdated and not is_protected(spec, ordinal)):
            return True
        ready = all(is_ready(p) and not is_terminating(p) for p in groups[ordinal].pods)
        lost = not is_available(groups[ordinal], self._roles(groups[ordinal], live), live)
        return spec["recoveryPolicy"] == "ServingGroupRecreate" and (lost or not ready)

    def _is_scaled(self, group: Group, wanted: dict[str, int], role: str = "") -> bool:
        counts: dict[str, int] = {}
        for name, _ in group.instances():
            counts[name] = counts.get(name, 0) + 1
        return any(
            count > wanted.get(name, 0) for name, count in counts.items() if role in ("", name)
        )

    def _is_short(self, pods: list[Object]) -> bool:
        sizes = [
            int(entry["value"])
            for pod in pods
            for container in pod["spec"]["containers"]
            for entry in container.get("env") or ()
            if entry["name"] == "GROUP_SIZE"
        ]
        return len(pods) != max(sizes)

    def _check_victims(
        self, spec: dict[str, Any], groups: dict[int, Group], deleted: set[str]
    ) -> None:
        """No available group is scaled away while one that is not available stays."""
        live = spec["template"]["roles"]
        open_groups = {o: g for o, g in groups.items() if not is_protected(spec, o)}

        def is_outdated(group: Group) -> bool:
            return forms(self._roles(group, live)) != forms(live)

        def is_doomed(group: Group) -> bool:
            return all(uid_of(pod) in deleted for pod in group.living)

        taken = [
            ordinal
            for ordinal, group in open_groups.items()
            if is_doomed(group)
            and not is_outdated(group)
            and is_available(group, self._roles(group, live), live)
        ]
        spared = [
            ordinal
            for ordinal, group in open_groups.items()
            if not is_doomed(group) and not is_available(group, self._roles(group, live), live)
        ]
        # Instances that are scaled away change what is available: those are left to other checks.
        scaled = any(
            self._is_scaled(g, {r["name"]: r["replicas"] for r in live}) for g in groups.values()
        )
        assert scaled or not (taken and spared), f"P14: {taken} went before {spared}"

    def _check_names(self, spec: dict[str, Any], groups: dict[int, Group], plan: Plan) -> None:
        """A name is not used again while a sibling of its last bearer exists."""
        if spec["recoveryPolicy"] == "None":
            return
        for action in plan.actions:
            if not isinstance(action, CreatePod):
                continue
            place = place_of(name_of(action.pod))
            group = groups.get(place.group)
            siblings = group.instances().get((place.role, place.instance)) if group else None
            assert not siblings or self._is_forming(place), (
                f"P8: {name_of(action.pod)} is too early"
            )

    def _is_forming(self, place: Place) -> bool:
        for stored in self.world.cache("ControllerRevision").values():
            text = (stored["metadata"].get("annotations") or {}).get(f"{PREFIX}slots", "{}")
            forming = json.loads(text).get("forming", {})
            for key in ("*", f"{place.role}/{place.instance}"):
                if place.group in parse_ordinals(forming.get(key, "")):
                    return True
        return False

    def _check_protected(self, spec: dict[str, Any], plan: Plan) -> None:
        for action in plan.actions:
            if not isinstance(action, CreatePod):
                continue
            ordinal = place_of(name_of(action.pod)).group
            if not is_protected(spec, ordinal):
                # From here on it may count as moved, whether its pods come to be or not.
                self.slots.pop(ordinal, None)
            before = self.slots.get(ordinal)
            if before is not None:
                now = self._forms_of(action.pod, plan)
                assert now == before, f"P4: the protected group {ordinal} changes its revision"

    def _forms_of(self, pod: Object, plan: Plan) -> str:
        label = labels_of(pod)[f"{PREFIX}revision"]
        known = revisions(self.world)
        for action in plan.actions:
            stored = getattr(action, "revision", None)
            if stored is not None:
                known[labels_of(stored)[f"{PREFIX}revision"]] = stored["data"]["data"]
        assert label in known, f"P6: no ControllerRevision for {label}"
        return forms(known[label])

    def _check_history(self, plan: Plan) -> None:
        used = {
            labels_of(pod).get(f"{PREFIX}revision") for pod in self.world.objects["Pod"].values()
        }
        status = self.world.objects["ModelServing"].get("ms", {}).get("status") or {}
        used |= {status.get("currentRevision"), status.get("updateRevision")}
        for action in plan.actions:
            if isinstance(action, DeleteRevision):
                assert action.name.removeprefix("ms-") not in used, f"P5: {action.name} is in use"

    def _forget_departing(
        self, spec: dict[str, Any], groups: dict[int, Group], deleted: set[str]
    ) -> None:
        """A slot that is scaled away has no revision to keep.

        That may be a slot without pods, whose place a group beyond the count has taken.
        """
        free = (ordinal for ordinal in range(spec["replicas"]) if ordinal not in groups)
        coming = set(itertools.islice(free, max(0, spec["replicas"] - len(groups))))
        for ordinal in self.slots.keys() - groups.keys() - coming:
            del self.slots[ordinal]
        if len(groups) <= spec["replicas"]:
            return
        for ordinal, group in groups.items():
            if all(uid_of(pod) in deleted for pod in group.living):
                self.slots.pop(ordinal, None)

    # After any step.

    def check_world(self) -> None:
        world = self.world
        for name, stored in world.objects["ControllerRevision"].items():
            data = json.dumps(stored["data"], sort_keys=True)
            assert self.data.setdefault(f"{name}/{uid_of(stored)}", data) == data, (
                "P5: data changed"
            )
        known = revisions(world)
        owner = world.objects["ModelServing"].get("ms")
        if owner is None:
            return
        groups = groups_of(iter(world.pods().values()))
        for ordinal, group in groups.items():
            for pods in group.instances().values():
                labels = {labels_of(p)[f"{PREFIX}revision"] for p in pods if not is_terminating(p)}
                assert len(labels) <= 1, f"P7: one instance of {labels}"
            for pod in group.living:
                label = labels_of(pod)[f"{PREFIX}revision"]
                assert label in known, f"P6: {name_of(pod)} is of revision {label}, which is gone"
                self.slots[ordinal] = forms(known[label])
        for ordinal in list(self.slots):
            if ordinal >= owner["spec"]["replicas"] and ordinal not in groups:
                del self.slots[ordinal]
        self._check_status(owner)

    def _check_status(self, owner: Object) -> None:
        status = owner.get("status")
        if not status:
            return
        generation = status["observedGeneration"]
        assert self.observed_generation <= generation <= owner["metadata"]["generation"], "P20"
        self.observed_generation = generation
        assert 0 <= status["availableReplicas"] <= status["replicas"], "P22"
        true = [c["type"] for c in status["conditions"] if c["status"] == "True"]
        exclusive = {"Available", "Progressing", "UpdateInProgress"} & set(true)
        assert len(exclusive) <= 1, f"one of the three at most: {exclusive}"
        assert not {"Ready", "Reconciling"} <= set(true), true
        if generation == owner["metadata"]["generation"] and "Available" in true:
            assert status["availableReplicas"] == owner["spec"]["replicas"], "P22"

    # At rest.

    def check_rest(self) -> None:
        world = self.world
        owner = world.objects["ModelServing"].get("ms")
        if owner is None:
            return
        spec = owner["spec"]
        live = spec["template"]["roles"]
        known = revisions(world)
        groups = groups_of(iter(world.pods().values()))
        podless = spec["replicas"] - len(groups)
        assert podless >= 0, "P10: groups"
        if podless:
            self._check_podless(owner, podless, groups)
        services = set()
        for ordinal, group in groups.items():
            labels = {labels_of(pod)[f"{PREFIX}revision"] for pod in group.pods}
            assert len(labels) == 1, f"P7: group {ordinal} is of {labels}"
            roles = known[labels.pop()]
            if not is_protected(spec, ordinal):
                assert forms(roles) == forms(live), f"P10: group {ordinal} is outdated"
            services |= self._check_group_at_rest(ordinal, group, roles, live)
        owned = {
            name
            for name, service in world.objects["Service"].items()
            if (controller_of(service) or {}).get("uid") == uid_of(owner)
        }
        assert owned == services, f"P10: services {owned ^ services}"
        self._check_revisions_at_rest(owner)
        self._check_status_at_rest(owner, groups, known)

    def _check_revisions_at_rest(self, owner: Object) -> None:
        """Nothing is being formed, and every revision is there for something."""
        status = owner["status"]
        used = {labels_of(p)[f"{PREFIX}revision"] for p in self.world.pods().values()}
        used |= {status["currentRevision"], status["updateRevision"]}
        for stored in self.world.objects["ControllerRevision"].values():
            text = (stored["metadata"].get("annotations") or {}).get(f"{PREFIX}slots")
            record = json.loads(text) if text else {}
            assert not record.get("forming"), f"P10: still forming {record['forming']}"
            name = labels_of(stored)[f"{PREFIX}revision"]
            assert name in used or record.get("groups"), f"P10: revision {name} is left over"

    def _check_podless(self, owner: Object, count: int, groups: dict[int, Group]) -> None:
        """Groups may be without pods where their roles are all scaled to zero."""
        spec = owner["spec"]
        live = {role["name"]: role["replicas"] for role in spec["template"]["roles"]}
        empty = 0
        for ordinal in range(spec["replicas"]):
            candidates = [list(live)]
            if is_protected(spec, ordinal):
                kept = [
                    [role["name"] for role in roles] for roles in revisions(self.world).values()
                ]
                known = self.slots.get(ordinal)
                candidates = [[role["name"] for role in json.loads(known)]] if known else kept
            empty += ordinal not in groups and any(
                not any(live.get(name, 0) for name in names) for names in candidates
            )
        assert empty >= count, "P10: groups"

    def _check_group_at_rest(
        self, ordinal: int, group: Group, roles: list[dict[str, Any]], live: list[dict[str, Any]]
    ) -> set[str]:
        counts = {role["name"]: role["replicas"] for role in [*roles, *live]}
        instances = group.instances()
        services = set()
        for each in roles:
            name, size = each["name"], 1 + each["workerReplicas"]
            found = {key: pods for key, pods in instances.items() if key[0] == name}
            assert len(found) == counts[name], f"P10: {len(found)} instances of {name}"
            for (_, instance), pods in found.items():
                assert len(pods) == size, f"P10: {len(pods)} pods of {ordinal}/{name}-{instance}"
                if each.get("workerTemplate") is not None:
                    services.add(f"ms-{ordinal}-{name}-{instance}-0")
                for pod in pods:
                    template = "workerTemplate" if place_of(name_of(pod)).index else "entryTemplate"
                    image = each[template]["spec"]["containers"][0]["image"]
                    assert pod["spec"]["containers"][0]["image"] == image, "P10: template"
        assert {key[0] for key in instances} <= {role["name"] for role in roles}
        return services

    def _check_status_at_rest(
        self, owner: Object, groups: dict[int, Group], known: dict[str, list[dict[str, Any]]]
    ) -> None:
        status, spec = owner["status"], owner["spec"]
        live = spec["template"]["roles"]
        updated = sum(forms(self._roles(group, live)) == forms(live) for group in groups.values())
        assert status["observedGeneration"] == owner["metadata"]["generation"]
        assert status["replicas"] == spec["replicas"]
        assert status["availableReplicas"] == spec["replicas"]
        podless = spec["replicas"] - len(groups)
        assert updated <= status["updatedReplicas"] <= updated + podless, "P21"
        assert forms(known[status["updateRevision"]]) == forms(live)
        conditions = {c["type"]: c["status"] for c in status["conditions"]}
        assert conditions["Ready"] == "True", conditions
        assert conditions["Reconciling"] == "False", conditions


def max_unavailable(spec: dict[str, Any]) -> int:
    configuration = (spec.get("rolloutStrategy") or {}).get("rollingUpdateConfiguration") or {}
    value = configuration.get("maxUnavailable", 1)
    if isinstance(value, str):
        value = int(value[:-1]) * spec["replicas"] // 100
    return max(1, int(value))


def is_protected(spec: dict[str, Any], ordinal: int) -> bool:
    configuration = (spec.get("rolloutStrategy") or {}).get("rollingUpdateConfiguration") or {}
    value = configuration.get("partition") or 0
    if isinstance(value, str):
        value = -(-int(value[:-1]) * spec["replicas"] // 100)
    return ordinal < value or 0 < spec["replicas"] <= value
