"""Invariants of the workload plane, checked from outside: on plans, on writes, and at rest.

Written against the objects alone, not with the planner's own functions, so that both can be wrong
only separately.
"""

import itertools
import json
from collections import Counter
from typing import Any

from kthena.machinery.objects import Object, controller_of, is_terminating, name_of, uid_of
from kthena.workload.planner.observed import Observed
from kthena.workload.planner.plan import (
    AnnotateRevision,
    CreatePod,
    CreateRevision,
    CreateService,
    DeletePod,
    DeleteRevision,
    DeleteService,
    Plan,
)
from kthena.workload.records import parse_ordinals
from support.workload_view import (
    PREFIX,
    Asked,
    Group,
    Place,
    Records,
    View,
    find,
    form,
    forms,
    groups_of,
    place_of,
    revision_of,
    revisions,
)
from support.workload_world import World, is_ready


class Invariants:
    """Checks every step of one world. Its memory is what each place was made from."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.slots: dict[int, list[str]] = {}
        """What the roles of a group are made from that is of one revision."""
        self.instances: dict[tuple[int, str, int], str] = {}
        """What an instance is made from."""
        self.data: dict[str, str] = {}
        self.observed_generation = 0
        self.seen: Counter[str] = Counter()
        """What the checks have met."""

    # Before a plan is carried out.

    def check_plan(self, observed: Observed, plan: Plan) -> None:
        if is_terminating(observed.modelserving):
            assert not plan.actions, "P18: a terminating ModelServing is left alone"
            assert plan.status is None, "P18"
            return
        self._check_ownership(observed, plan)
        deleted = {action.uid for action in plan.actions if isinstance(action, DeletePod)}
        groups = groups_of(pod for pod in observed.pods if self._is_ours(pod, observed))
        records = Records(observed.revisions)
        records.revisions |= revisions(self.world.objects["ControllerRevision"].values())
        spec = observed.modelserving["spec"]
        gangs = spec["template"].keys() & {"gangPolicy", "networkTopology"}
        held = bool(gangs) and observed.capabilities.pod_groups is None
        view = View(Asked(spec), records, held=held)
        self._check_budget(view, groups, deleted, plan)
        self._check_roles(view, groups, deleted)
        self._check_radius(view, groups, deleted)
        self._check_victims(view, groups, deleted)
        self._check_names(view, groups, plan)
        self._check_protected(view, plan)
        self._check_surge(view, groups, plan)
        self._check_history(plan)
        self._check_ready(groups, plan)
        self._forget_departing(view, groups, deleted)

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

    def _check_budget(
        self, view: View, groups: dict[int, Group], deleted: set[str], plan: Plan
    ) -> None:
        asked = view.asked
        before = after = standing = rolling = occupied = lost = 0
        for ordinal, group in groups.items():
            available = view.is_available(ordinal, group)
            left = group.without(deleted)
            # A group that its recovery policy takes for a failed pod goes by no choice of the plan,
            # though an instance that is about to be scaled away still serves beside the failed one.
            failed = any(not is_ready(pod) for pod in group.living)
            recreated = asked.policy == "ServingGroupRecreate" and not left.living
            before += available and not (recreated and failed)
            stays = available and view.is_available(ordinal, left, like=group)
            after += stays
            counts = stays and bool(left.living)
            standing += counts
            rolling += counts and self._is_rolling(view, group, deleted)
            occupied += bool(left.living)
            # Protected groups are kept when others are scaled away, also where they are down.
            lost += view.is_protected(ordinal) and not available
        bound = min(before, asked.replicas - asked.max_unavailable)
        bound -= lost if len(groups) > asked.replicas else 0
        assert asked.by_roles or after >= bound, (
            f"P1: {before} available groups become {after}, the bound is {bound}"
        )
        told = (plan.status or {})["availableReplicas"]
        # Groups whose roles are all scaled to zero are available without a pod; those whose last
        # pods are going may count already, or when they are gone.
        podless = asked.may_be_podless(view.records.revisions.values())
        empty = max(0, asked.replicas - occupied) if podless else 0
        assert standing - rolling <= told <= standing + empty, (
            f"P3: {standing} are available, {rolling} of them roll, not {told}"
        )
        updated = sum(
            not view.is_outdated(ordinal, group)
            and bool(group.living)
            and not (asked.by_roles and view.lacks(group))
            for ordinal, group in groups.items()
        )
        told = (plan.status or {})["updatedReplicas"]
        assert told <= updated + empty, f"W15: {updated} groups are updated, not {told}"

    def _is_rolling(self, view: View, group: Group, deleted: set[str]) -> bool:
        """Whether instances of a group are on their way out that may have been rolled."""
        return any(
            view.must_roll(pods) and any(is_terminating(p) or uid_of(p) in deleted for p in pods)
            for pods in group.instances().values()
        )

    def _check_roles(self, view: View, groups: dict[int, Group], deleted: set[str]) -> None:
        """Each role of each group keeps its own budget."""
        if not view.asked.by_roles:
            return
        for ordinal, group in groups.items():
            left = group.without(deleted)
            if not left.living and len(groups) > view.asked.replicas:
                continue
            before, after = view.ready_by_role(group), view.ready_by_role(left)
            for role in view.asked.roles:
                name, wanted = role["name"], role["replicas"]
                floor = wanted - view.asked.max_unavailable_of(role)
                bound = min(before.get(name, 0), floor)
                bound -= (
                    self._kept_though_down(view, group, name) if view.is_scaled(group, name) else 0
                )
                assert after.get(name, 0) >= bound, (
                    f"P2: {before.get(name, 0)} ready instances of {ordinal}/{name} become "
                    f"{after.get(name, 0)}, the bound is {bound}"
                )

    def _kept_though_down(self, view: View, group: Group, name: str) -> int:
        """Instances that a scale-down takes last, though they are not ready."""
        return sum(
            not view.ready(pods) and (view.asked.protects_instance(role, ordinal) or ordinal == 0)
            for (role, ordinal), pods in group.instances().items()
            if role == name
        )

    def _check_radius(self, view: View, groups: dict[int, Group], deleted: set[str]) -> None:
        """A deletion that leaves its group standing has a cause in its own instance."""
        policy = view.asked.policy
        for ordinal, group in groups.items():
            doomed = {uid_of(pod) for pod in group.living} & deleted
            if not doomed:
                continue
            if len(doomed) == len(group.living) and self._may_go(view, groups, ordinal):
                continue
            assert policy != "ServingGroupRecreate" or view.is_scaled(group), "P15"
            for (role, _), pods in group.instances().items():
                hit = [pod for pod in pods if uid_of(pod) in doomed]
                self.seen["rolled instance"] += bool(hit) and view.must_roll(pods)
                if not hit or view.is_scaled(group, role) or view.must_roll(pods):
                    continue
                assert not all(is_ready(p) and not is_terminating(p) for p in pods) or (
                    self._is_short(pods)
                ), f"P15, P17: {[name_of(p) for p in hit]} deleted without cause"
                if policy == "None":
                    phases = [(pod.get("status") or {}).get("phase") for pod in hit]
                    assert set(phases) == {"Failed"}, "P15: None replaces failed pods only"

    def _may_go(self, view: View, groups: dict[int, Group], ordinal: int) -> bool:
        """Whether a whole group may be deleted though none of its instances has failed."""
        group = groups[ordinal]
        rolls = not view.asked.by_roles and not view.is_protected(ordinal)
        if len(groups) > view.asked.replicas or (rolls and view.is_outdated(ordinal, group)):
            return True
        ready = all(is_ready(p) and not is_terminating(p) for p in group.pods)
        lost = not view.is_available(ordinal, group)
        return view.asked.policy == "ServingGroupRecreate" and (lost or not ready)

    def _is_short(self, pods: list[Object]) -> bool:
        sizes = [
            int(entry["value"])
            for pod in pods
            for container in pod["spec"]["containers"]
            for entry in container.get("env") or ()
            if entry["name"] == "GROUP_SIZE"
        ]
        return len(pods) != max(sizes)

    def _check_victims(self, view: View, groups: dict[int, Group], deleted: set[str]) -> None:
        """No available group is scaled away while one that is not available stays.

        Groups that an update has added go when their time is over.
        """
        open_groups = {
            ordinal: group
            for ordinal, group in groups.items()
            if not view.is_protected(ordinal) and not view.is_surge(ordinal)
        }

        def is_doomed(group: Group) -> bool:
            return all(uid_of(pod) in deleted for pod in group.living)

        taken = [
            ordinal
            for ordinal, group in open_groups.items()
            if is_doomed(group)
            and not view.is_outdated(ordinal, group)
            and view.is_available(ordinal, group)
        ]
        spared = [
            ordinal
            for ordinal, group in open_groups.items()
            if not is_doomed(group) and not view.is_available(ordinal, group)
        ]
        # Instances that are scaled away change what is available: those are left to other checks.
        scaled = any(map(view.is_scaled, groups.values()))
        assert scaled or not (taken and spared), f"P14: {taken} went before {spared}"

    def _check_names(self, view: View, groups: dict[int, Group], plan: Plan) -> None:
        """A name is not used again while a sibling of its last bearer exists."""
        if view.asked.policy == "None":
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
        return Records(self.world.cache("ControllerRevision").values()).is_forming(place)

    def _check_protected(self, view: View, plan: Plan) -> None:
        """What is protected comes back as it was; what is not counts as moved from here on."""
        if view.asked.by_roles:
            self.slots.clear()
        for action in plan.actions:
            if not isinstance(action, CreatePod):
                continue
            place = place_of(name_of(action.pod))
            key, roles = (place.group, place.role, place.instance), self._roles_of(action.pod, plan)
            whole = not view.asked.by_roles and view.is_protected(place.group)
            if not whole:
                self.slots.pop(place.group, None)
            if not whole and not view.asked.protects_instance(place.role, place.instance):
                # It may count as moved, whether its pods come to be or not.
                self.instances.pop(key, None)
            before = self.slots.get(place.group)
            assert before in (None, forms(roles)), f"P4: the protected group {place.group} changes"
            one = self.instances.get(key)
            assert one in (None, form(find(roles, place.role))), f"P4: the protected {key} changes"

    def _roles_of(self, pod: Object, plan: Plan) -> list[dict[str, Any]]:
        known = revisions(self.world.objects["ControllerRevision"].values())
        for action in plan.actions:
            if isinstance(action, CreateRevision):
                known |= revisions([action.revision])
        label = revision_of(pod)
        assert label in known, f"P6: no ControllerRevision for {label}"
        return known[label]

    def _check_surge(self, view: View, groups: dict[int, Group], plan: Plan) -> None:
        """An update adds no more than it may, with high ordinals, and only while it goes on."""
        created = {
            place_of(name_of(action.pod)).group
            for action in plan.actions
            if isinstance(action, CreatePod)
        }
        beyond = {one for one in created - groups.keys() if one >= view.asked.replicas}
        if not beyond:
            return
        self.seen["group added by an update"] += 1
        noted = [a.annotations for a in plan.actions if isinstance(a, AnnotateRevision)]
        noted += [
            action.revision["metadata"]["annotations"]
            for action in plan.actions
            if isinstance(action, CreateRevision)
        ]
        written = [json.loads(each[f"{PREFIX}slots"]).get("surge", "") for each in noted]
        told = view.records.surge | {o for text in written for o in parse_ordinals(text)}
        assert beyond <= told, f"surge: {beyond} are not noted"
        added = {one for one in groups if view.is_surge(one)} | beyond
        assert not view.asked.by_roles, "surge: roles are rolled one by one"
        assert len(added) <= view.asked.max_surge, f"surge: {added} are too many"
        outdated = [o for o, g in groups.items() if view.is_outdated(o, g)]
        assert any(not view.is_protected(one) for one in outdated), "surge: there is no update"

    def _check_history(self, plan: Plan) -> None:
        used = {revision_of(pod) for pod in self.world.objects["Pod"].values()}
        status = self.world.objects["ModelServing"].get("ms", {}).get("status") or {}
        used |= {status.get("currentRevision", ""), status.get("updateRevision", "")}
        for action in plan.actions:
            if isinstance(action, DeleteRevision):
                assert action.name.removeprefix("ms-") not in used, f"P5: {action.name} is in use"

    def _forget_departing(self, view: View, groups: dict[int, Group], deleted: set[str]) -> None:
        """A place that is scaled away has no revision to keep.

        That may be one without pods, whose place another one beyond the count has taken.
        """
        replicas = view.asked.replicas
        regular = {
            ordinal: group for ordinal, group in groups.items() if not view.is_surge(ordinal)
        }
        free = (ordinal for ordinal in range(replicas) if ordinal not in regular)
        coming = set(itertools.islice(free, max(0, replicas - len(regular))))
        gone = (self.slots.keys() | {key[0] for key in self.instances}) - groups.keys() - coming
        if len(groups) > replicas:
            gone |= {o for o, g in groups.items() if all(uid_of(p) in deleted for p in g.living)}
        for ordinal in gone:
            self._forget(ordinal)
        for key in list(self.instances):
            counts = view.asked.counts
            present = groups[key[0]].instances() if key[0] in groups else {}
            others = Counter(name for name, _ in present)
            full = others[key[1]] >= counts.get(key[1], 0)
            going = all(uid_of(pod) in deleted for pod in present.get(key[1:], []))
            excess = others[key[1]] > counts.get(key[1], 0)
            if (going and excess) or (full and key[1:] not in present):
                del self.instances[key]

    def _forget(self, ordinal: int) -> None:
        self.slots.pop(ordinal, None)
        for key in [key for key in self.instances if key[0] == ordinal]:
            del self.instances[key]

    # After any step.

    def check_world(self) -> None:
        world = self.world
        for name, stored in world.objects["ControllerRevision"].items():
            data = json.dumps(stored["data"], sort_keys=True)
            assert self.data.setdefault(f"{name}/{uid_of(stored)}", data) == data, (
                "P5: data changed"
            )
        records = Records.stored(world)
        owner = world.objects["ModelServing"].get("ms")
        if owner is None:
            return
        groups = groups_of(iter(world.pods().values()))
        for ordinal, group in groups.items():
            for pods in group.instances().values():
                labels = {revision_of(p) for p in pods if not is_terminating(p)}
                assert len(labels) <= 1, f"P7: one instance of {labels}"
            self._remember(ordinal, group, records)
        for ordinal in [*self.slots, *(key[0] for key in self.instances)]:
            if ordinal >= owner["spec"]["replicas"] and ordinal not in groups:
                self._forget(ordinal)
        self._check_status(owner)

    def _remember(self, ordinal: int, group: Group, records: Records) -> None:
        known = records.revisions
        labels = {revision_of(pod) for pod in group.living}
        assert labels <= known.keys(), f"P6: group {ordinal} is of {labels}, of which some are gone"
        if labels:
            self.slots.pop(ordinal, None)
        if len(labels) == 1 and ordinal not in records.mixed:
            self.slots[ordinal] = forms(known[labels.pop()])
        for (role, number), pods in group.instances().items():
            if any(not is_terminating(pod) for pod in pods):
                self.instances[ordinal, role, number] = form(records.role_of(pods))

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
        view = View(Asked(owner["spec"]), Records.stored(world))
        groups = groups_of(iter(world.pods().values()))
        podless = view.asked.replicas - len(groups)
        assert podless >= 0, "P10: groups"
        if podless:
            self._check_podless(view, podless, groups)
        services = set()
        for ordinal, group in groups.items():
            assert not view.is_surge(ordinal), f"P9: group {ordinal} is left of an update"
            if not view.is_protected(ordinal) and not view.asked.by_roles:
                assert not view.is_outdated(ordinal, group), f"P10: group {ordinal} is outdated"
            services |= self._check_group_at_rest(view, ordinal, group)
        owned = {
            name
            for name, service in world.objects["Service"].items()
            if (controller_of(service) or {}).get("uid") == uid_of(owner)
        }
        assert owned == services, f"P10: services {owned ^ services}"
        self._check_revisions_at_rest(owner)
        self._check_status_at_rest(owner, view, groups)

    def _check_revisions_at_rest(self, owner: Object) -> None:
        """Nothing is being formed, and every revision is there for something."""
        status = owner["status"]
        used = {revision_of(p) for p in self.world.pods().values()}
        used |= {status["currentRevision"], status["updateRevision"]}
        for stored in self.world.objects["ControllerRevision"].values():
            text = (stored["metadata"].get("annotations") or {}).get(f"{PREFIX}slots")
            record = json.loads(text) if text else {}
            assert not record.get("forming"), f"P10: still forming {record['forming']}"
            name = revision_of(stored)
            kept = record.get("groups") or record.get("instances")
            assert name in used or kept, f"P10: revision {name} is left over"

    def _check_podless(self, view: View, count: int, groups: dict[int, Group]) -> None:
        """Groups may be without pods where their roles are all scaled to zero."""
        live = view.asked.counts
        empty = 0
        for ordinal in range(view.asked.replicas):
            candidates = [list(live)]
            if view.is_protected(ordinal) and not view.asked.by_roles:
                kept = [
                    [role["name"] for role in roles] for roles in view.records.revisions.values()
                ]
                known = self.slots.get(ordinal)
                names = [json.loads(each)["name"] for each in known or ()]
                candidates = [names] if known else kept
            empty += ordinal not in groups and any(
                not any(live.get(name, 0) for name in names) for names in candidates
            )
        assert empty >= count, "P10: groups"

    def _check_group_at_rest(self, view: View, ordinal: int, group: Group) -> set[str]:
        roles = view.roles(ordinal, group)
        instances = group.instances()
        services = set()
        for each in roles:
            name = each["name"]
            wanted = view.asked.counts.get(name, each["replicas"])
            found = {key: pods for key, pods in instances.items() if key[0] == name}
            assert len(found) == wanted, f"P10: {len(found)} instances of {name}"
            for (_, instance), pods in found.items():
                own = view.records.role_of(pods) or {}
                assert not view.must_roll(pods), f"P10: {ordinal}/{name}-{instance} is outdated"
                size = 1 + own["workerReplicas"]
                assert len(pods) == size, f"P10: {len(pods)} pods of {ordinal}/{name}-{instance}"
                if own.get("workerTemplate") is not None:
                    services.add(f"ms-{ordinal}-{name}-{instance}-0")
                for pod in pods:
                    template = "workerTemplate" if place_of(name_of(pod)).index else "entryTemplate"
                    image = own[template]["spec"]["containers"][0]["image"]
                    assert pod["spec"]["containers"][0]["image"] == image, "P10: template"
        assert {key[0] for key in instances} <= {role["name"] for role in roles}
        return services

    def _check_status_at_rest(self, owner: Object, view: View, groups: dict[int, Group]) -> None:
        status, spec = owner["status"], owner["spec"]
        updated = sum(not view.is_outdated(*each) for each in groups.items())
        assert status["observedGeneration"] == owner["metadata"]["generation"]
        assert status["replicas"] == spec["replicas"]
        assert status["availableReplicas"] == spec["replicas"]
        podless = spec["replicas"] - len(groups)
        assert updated <= status["updatedReplicas"] <= updated + podless, "P21"
        known = view.records.revisions[status["updateRevision"]]
        assert forms(known) == forms(view.asked.roles)
        conditions = {c["type"]: c["status"] for c in status["conditions"]}
        assert conditions["Ready"] == "True", conditions
        assert conditions["Reconciling"] == "False", conditions
