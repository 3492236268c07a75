"""Random lives of a ModelServing: every step keeps the invariants, and every life comes to rest."""

import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kthena.machinery.objects import Object, is_terminating
from kthena.workload.planner.planner import plan
from support import workload_gangs
from support.workload_api import FAULTS, KINDS, CrashedError
from support.workload_invariants import Invariants
from support.workload_view import place_of
from support.workload_world import API_VERSION, World, by_roles, role, rolling, serving

IMAGES = st.sampled_from(["engine:1", "engine:2", "engine:3"])
ROLE_NAMES = st.sampled_from(["prefill", "decode"])
EXAMPLES = int(os.environ.get("KTHENA_SIMULATOR_EXAMPLES", "150"))
OCCURRED: Counter[str] = Counter()
GANGS = st.sampled_from(
    [None, None, {}, {"minRoleReplicas": {"decode": 1}}, {"minRoleReplicas": {"prefill": 0}}]
)
TOPOLOGIES = st.sampled_from([None, {"mode": "hard"}, {"mode": "soft", "highestTierAllowed": 1}])


FOREIGN = (
    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "ms", "uid": "other"},
    {"apiVersion": API_VERSION, "kind": "ModelServing", "name": "other", "uid": "other"},
)


def _foreign(ordinal: int, owner: dict[str, Any]) -> Object:
    """A pod of somebody else that carries the label of `ms`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"ms-{ordinal}-decode-0-0",
            "labels": {"modelserving.volcano.sh/name": "ms"},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"containers": []},
    }


class Life(RuleBasedStateMachine):
    """One ModelServing named `ms`, its users, its kubelets, and a controller that may fail."""

    @initialize(
        replicas=st.integers(0, 4),
        workers=st.integers(0, 2),
        policy=st.sampled_from(["RoleRecreate", "ServingGroupRecreate", "None"]),
        partition=st.sampled_from([None, 0, 1, 2, "50%", 5]),
        volcano=st.booleans(),
        gang=GANGS,
        manner=st.sampled_from(["groups", "surge", "roles", "roles"]),
        grown=st.booleans(),
    )
    def create(  # noqa: PLR0917 - each is drawn
        self,
        replicas: int,
        workers: int,
        policy: str,
        partition: Any,
        volcano: bool,
        gang: Any,
        manner: str,
        grown: bool,
    ) -> None:
        self.world = World()
        self.checks = Invariants(self.world)
        protected = manner == "roles" and partition in (1, "50%")
        if manner == "roles":
            strategy = by_roles()
            policy = "RoleRecreate" if policy == "ServingGroupRecreate" else policy
        else:
            strategy = rolling(partition=partition)
        if manner == "surge":
            strategy["rollingUpdateConfiguration"].update(maxSurge=1, maxUnavailable=0)
        self.manifest = serving(
            role("prefill", workers=workers),
            role("decode", replicas=2, partition=1 if protected else None),
            replicas=replicas,
            recoveryPolicy=policy,
            rolloutStrategy=strategy,
        )
        self.orphaned = False
        if volcano:
            self.world.install_volcano()
        if gang is not None:
            self.manifest["spec"]["template"]["gangPolicy"] = gang
        self.world.apply(self.manifest)
        for ordinal, owner in enumerate(FOREIGN, start=90):
            self.world.put(_foreign(ordinal, owner))
        if grown:
            self.world.settle()

    # Users.

    @rule(image=IMAGES, name=ROLE_NAMES)
    def change_image(self, image: str, name: str) -> None:
        if self._exists():
            self.world.set_image(image, name)

    @rule(
        image=IMAGES,
        name=ROLE_NAMES,
        turns=st.integers(0, 4),
        running=st.booleans(),
        ending=st.booleans(),
    )
    def update_image(self, image: str, name: str, turns: int, running: bool, ending: bool) -> None:
        """An update that has got so far."""
        self.world.run_pods()
        self.change_image(image=image, name=name)
        self.sync_again_and_again(turns=turns + 1, running=running, ending=ending)

    @rule(replicas=st.integers(0, 4))
    def scale(self, replicas: int) -> None:
        if self._exists():
            self.world.scale(replicas)

    @rule(name=ROLE_NAMES, replicas=st.integers(0, 2))
    def scale_role(self, name: str, replicas: int) -> None:
        if self._exists():
            self.world.scale_role(name, replicas)

    @rule(workers=st.integers(0, 2))
    def change_workers(self, workers: int) -> None:
        def change(spec: dict[str, Any]) -> None:
            first = spec["template"]["roles"][0]
            first["workerReplicas"] = workers
            first["workerTemplate"] = {
                "spec": {"containers": [{"name": "main", "image": "worker"}]}
            }

        if self._exists():
            self.world.edit(change)

    @rule()
    def reorder_roles(self) -> None:
        if self._exists():
            self.world.edit(lambda spec: spec["template"]["roles"].reverse())

    @rule(added=st.booleans())
    def change_roles(self, added: bool) -> None:
        def change(spec: dict[str, Any]) -> None:
            roles = spec["template"]["roles"]
            if added and len(roles) < 3:
                roles.append(role("extra"))
            elif not added:
                spec["template"]["roles"] = [each for each in roles if each["name"] != "extra"]

        if self._exists():
            self.world.edit(change)

    @rule(
        partition=st.sampled_from([0, 1, 2, 3, "50%", "100%"]),
        unavailable=st.sampled_from([1, 2, "30%"]),
    )
    def change_rollout(self, partition: Any, unavailable: Any) -> None:
        strategy = rolling(partition=partition, maxUnavailable=unavailable)
        if self._exists():
            self.world.edit(lambda spec: spec.update(rolloutStrategy=strategy))

    @rule(
        surge=st.sampled_from([1, 2, "10%", "100%"]),
        unavailable=st.sampled_from([0, 1, "0%"]),
        partition=st.sampled_from([None, None, 1, "50%"]),
    )
    def add_groups_for_updates(self, surge: Any, unavailable: Any, partition: Any) -> None:
        strategy = rolling(maxSurge=surge, maxUnavailable=unavailable, partition=partition)
        if self._exists():
            self.world.edit(lambda spec: spec.update(rolloutStrategy=strategy))

    @rule()
    def roll_by_roles(self) -> None:
        def change(spec: dict[str, Any]) -> None:
            spec["rolloutStrategy"] = by_roles()
            if spec["recoveryPolicy"] == "ServingGroupRecreate":
                spec["recoveryPolicy"] = "RoleRecreate"

        if self._exists():
            self.world.edit(change)

    @rule(
        name=ROLE_NAMES,
        partition=st.sampled_from([None, 0, 1, "10%", "50%", "100%"]),
        unavailable=st.sampled_from([1, 2, "10%", "100%"]),
    )
    def change_role_rollout(self, name: str, partition: Any, unavailable: Any) -> None:
        def change(spec: dict[str, Any]) -> None:
            for each in spec["template"]["roles"]:
                if each["name"] == name:
                    each.update(partition=partition, maxUnavailable=unavailable)

        if self._exists():
            self.world.edit(change)

    @rule(policy=st.sampled_from(["RoleRecreate", "ServingGroupRecreate", "None"]))
    def change_policy(self, policy: str) -> None:
        def change(spec: dict[str, Any]) -> None:
            strategy = spec.get("rolloutStrategy") or {}
            if policy != "ServingGroupRecreate" or strategy.get("type") != "RoleRollingUpdate":
                spec["recoveryPolicy"] = policy

        if self._exists():
            self.world.edit(change)

    @rule(data=st.data())
    def delete_pod(self, data: st.DataObject) -> None:
        for name in self._pick(data):
            self.world.kill(name)

    @rule(data=st.data())
    def delete_group(self, data: st.DataObject) -> None:
        for name in self._pick(data):
            group = place_of(name).group
            for other in self.world.pods():
                if place_of(other).group == group:
                    self.world.kill(other)

    @rule(data=st.data())
    def delete_service(self, data: st.DataObject) -> None:
        services = sorted(self.world.objects["Service"])
        if services:
            self.world.remove("Service", data.draw(st.sampled_from(services)))

    @rule(data=st.data())
    def delete_pod_group(self, data: st.DataObject) -> None:
        pod_groups = sorted(self.world.objects["PodGroup"])
        if pod_groups:
            self.world.remove("PodGroup", data.draw(st.sampled_from(pod_groups)))

    @rule(group=TOPOLOGIES, each=TOPOLOGIES)
    def change_topology(self, group: Any, each: Any) -> None:
        def change(spec: dict[str, Any]) -> None:
            policies = {"groupPolicy": group, "rolePolicy": each}
            topology = {name: policy for name, policy in policies.items() if policy}
            spec["template"].pop("networkTopology", None)
            if topology:
                spec["template"]["networkTopology"] = topology

        if self._exists():
            self.world.edit(change)

    @rule(really=st.booleans(), returns=st.booleans(), data=st.data())
    def install_or_remove_volcano(self, really: bool, returns: bool, data: st.DataObject) -> None:
        """Groups that were begun before are healed after; in between, where it comes back."""
        if not really:
            return
        for name in self._pick(data) if returns else ():
            self.world.kill(name)
        if self.world.pod_groups is None:
            OCCURRED["PodGroup CRD appears"] += 1
            self.world.install_volcano()
        else:
            OCCURRED["PodGroup CRD goes"] += 1
            self.world.remove_volcano()
            if returns:
                self.sync_again_and_again(turns=3, running=True, ending=True)
                self.world.install_volcano()

    @rule(cost=st.integers(-5, 5), data=st.data())
    def set_deletion_cost(self, cost: int, data: st.DataObject) -> None:
        def change(pod: Object) -> None:
            key = "controller.kubernetes.io/pod-deletion-cost"
            pod["metadata"].setdefault("annotations", {})[key] = str(cost)

        for name in self._pick(data):
            self.world.patch("Pod", name, change)

    @precondition(lambda self: self._exists())
    @rule(
        manner=st.sampled_from(["background", "foreground", "orphan"]),
        collected=st.booleans(),
        really=st.integers(0, 4),
    )
    def delete_modelserving(self, manner: str, collected: bool, really: int) -> None:
        if really:
            return
        OCCURRED[f"deletion, {manner}"] += 1
        self.orphaned = manner == "orphan"
        if self.orphaned:
            self.world.orphan()
        else:
            self.world.delete_modelserving(foreground=manner == "foreground")
        if collected:
            self.world.collect_garbage()

    @precondition(lambda self: not self._exists())
    @rule()
    def create_again(self) -> None:
        owner = self.world.objects["ModelServing"].get("ms")
        if owner is not None and is_terminating(owner):
            self.world.delete_modelserving()
        if not self._exists():
            self.checks.observed_generation = 0
            if not self.orphaned:
                self.checks.slots.clear()
                self.checks.instances.clear()
            self.world.apply(self.manifest)

    # Kubelets.

    @rule()
    def run_pods(self) -> None:
        self.world.run_pods()

    @rule(data=st.data(), ready=st.booleans())
    def start_pod(self, data: st.DataObject, ready: bool) -> None:
        for name in self._pick(data, living=True):
            self.world.start(name, ready=ready)

    @rule(data=st.data())
    def crash_pod(self, data: st.DataObject) -> None:
        for name in self._pick(data, living=True):
            self.world.crash(name)

    @rule(data=st.data())
    def fail_pod(self, data: st.DataObject) -> None:
        for name in self._pick(data, living=True):
            self.world.fail(name)

    @rule()
    def end_terminations(self) -> None:
        self.world.end_terminations()

    @rule(data=st.data())
    def end_one_termination(self, data: st.DataObject) -> None:
        dying = sorted(n for n, pod in self.world.objects["Pod"].items() if is_terminating(pod))
        OCCURRED["slow termination"] += len(dying) > 1
        if dying:
            self.world.drop("Pod", data.draw(st.sampled_from(dying)))

    @rule(seconds=st.sampled_from([1, 30, 400]))
    def wait(self, seconds: int) -> None:
        """No cache lags for longer than the controller waits for it."""
        if seconds > 1:
            self.world.thaw()
        self.world.advance(seconds)

    # The controller.

    @rule()
    def sync(self) -> None:
        self._sync()

    @rule(
        after=st.integers(0, 8),
        kind=st.sampled_from(FAULTS),
        repeated=st.booleans(),
    )
    def sync_with_fault(self, after: int, kind: str, repeated: bool) -> None:
        counted = [0]

        def fault(_call: object) -> str | None:
            counted[0] += 1
            hit = counted[0] == after + 1 or (repeated and counted[0] > after)
            OCCURRED[kind] += hit
            return kind if hit else None

        self.world.fault = fault
        try:
            self._sync()
        except CrashedError:
            self.world.restart_controller()
        finally:
            self.world.fault = lambda _call: None

    @rule(turns=st.integers(1, 5), running=st.booleans(), ending=st.booleans())
    def sync_again_and_again(self, turns: int, running: bool, ending: bool) -> None:
        for _ in range(turns):
            self._sync()
            if running:
                self.world.run_pods()
            if ending:
                self.world.end_terminations()

    @rule(kinds=st.sets(st.sampled_from(KINDS), min_size=1), data=st.data())
    def sync_while_caches_lag(self, kinds: set[str], data: st.DataObject) -> None:
        """Something happens that the controller does not see yet."""
        self.world.freeze(*sorted(kinds))
        for name in self._pick(data):
            happening = data.draw(st.sampled_from(["kill", "crash", "unready", "ready"]))
            if happening == "kill":
                self.world.kill(name)
            elif name in self._living() and happening == "crash":
                self.world.crash(name)
            elif name in self._living():
                self.world.start(name, ready=happening == "ready")
        self._sync()
        self._sync()

    @rule()
    def let_caches_catch_up(self) -> None:
        self.world.thaw()

    @rule()
    def restart_controller(self) -> None:
        OCCURRED["restart"] += 1
        self.world.restart_controller()

    # What must hold.

    @invariant()
    def world_is_sound(self) -> None:
        if hasattr(self, "checks"):
            self.checks.check_world()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.fault = lambda _call: None
        self.world.restart_controller()
        if not self._exists():
            self.create_again()
        self.world.collect_garbage()
        template = self.world.objects["ModelServing"]["ms"]["spec"]["template"]
        if template.keys() & {"gangPolicy", "networkTopology"} and self.world.pod_groups is None:
            self.world.install_volcano()
        self.world.settle()
        self.checks.check_world()
        self.checks.check_rest()
        OCCURRED.update(self.checks.seen)
        workload_gangs.check_rest(self.world)
        self.world.take_calls()
        self.world.sync()
        assert self.world.take_calls() == [], "P12: nothing is written at rest"

    def _sync(self) -> None:
        world = self.world
        observed = None if world.is_waiting() else world.observe()
        OCCURRED["own writes awaited"] += world.is_waiting()
        if observed is not None:
            OCCURRED["stale cache"] += bool(world.frozen)
            decision = plan(observed, world.now)
            self.checks.check_plan(observed, decision)
            workload_gangs.check_plan(observed, decision)
        fresh, unseen = not world.frozen, set(world.unseen)
        world.clashes.clear()
        writes = len(world.calls)
        world.sync()
        assert not (unseen and world.calls[writes:]), f"own writes are not seen yet: {unseen}"
        assert not (fresh and world.clashes), f"P13: created what was there: {world.clashes}"

    def _exists(self) -> bool:
        owner = self.world.objects["ModelServing"].get("ms")
        return owner is not None and not is_terminating(owner)

    def _pick(self, data: st.DataObject, *, living: bool = False) -> list[str]:
        names = self._living() if living else list(self.world.pods())
        return [data.draw(st.sampled_from(names))] if names else []

    def _living(self) -> list[str]:
        return [
            name
            for name, pod in self.world.pods().items()
            if not is_terminating(pod) and (pod.get("status") or {}).get("phase") != "Failed"
        ]


@pytest.mark.slow
def test_every_life_keeps_the_invariants_and_comes_to_rest() -> None:
    OCCURRED.clear()
    chosen = settings(
        max_examples=EXAMPLES,
        stateful_step_count=50,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    machine: Any = Life.TestCase
    machine.settings = chosen
    machine().runTest()
    print(dict(OCCURRED))
