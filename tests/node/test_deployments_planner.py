"""Rollouts of Deployments, simulated to their end with the promises checked at every step."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.local.deployments.planner import (
    HASH_LABEL,
    REVISION,
    new_pod,
    plan_deployment,
    plan_replica_set,
    template_hash,
)
from kthena.machinery.conditions import find_condition
from kthena.machinery.objects import Object, name_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def deployment(replicas: int = 3, image: str = "v1", **spec: Any) -> Object:
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }
    return {
        "metadata": {"name": "d", "namespace": "ns", "uid": "du", "annotations": {}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "x"}},
            "template": template,
            **spec,
        },
        "status": {},
    }


class World:
    """ReplicaSets that follow their plans; their pods become ready one at a time, when told."""

    def __init__(self, subject: Object) -> None:
        self.subject = subject
        self.sets: list[Object] = []
        self.now = NOW

    def step(self) -> bool:
        """Carry out one plan; whether anything changed."""
        before = copy.deepcopy((self.sets, self.subject["status"]))
        plan = plan_deployment(self.subject, self.sets, self.now)
        self.subject["status"] = plan.status
        self.subject["metadata"]["annotations"][REVISION] = plan.revision
        for owned, size in plan.resize:
            owned["spec"]["replicas"] = size
        if plan.create is not None:
            created = plan.create
            created["metadata"]["uid"] = f"u{len(self.sets)}-{plan.revision}"
            created["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{len(self.sets):02}Z"
            self.sets.append(created)
        self.sets = [owned for owned in self.sets if owned not in plan.delete]
        for owned in self.sets:
            self.follow(owned)
        return (self.sets, self.subject["status"]) != before

    def follow(self, owned: Object) -> None:
        """The ReplicaSet controller: pods as many as asked; the ready ones go last."""
        status = owned.setdefault("status", {})
        size = owned["spec"]["replicas"]
        available = min(status.get("availableReplicas", 0), size)
        status.update(replicas=size, readyReplicas=available, availableReplicas=available)

    def make_ready(self, count: int) -> None:
        for owned in self.sets:
            status = owned["status"]
            more = min(count, status["replicas"] - status["availableReplicas"])
            status["availableReplicas"] += more
            status["readyReplicas"] += more
            count -= more

    def total(self, field: str = "replicas") -> int:
        return sum(int(owned.get("status", {}).get(field, 0)) for owned in self.sets)

    def settle(self) -> None:
        for _ in range(100):
            changed = self.step()
            self.make_ready(1000)
            if not changed:
                return
        pytest.fail("it does not come to rest")


BOUNDS = st.one_of(
    st.integers(min_value=0, max_value=6),
    st.integers(min_value=0, max_value=100).map(lambda n: f"{n}%"),
)


@given(
    st.integers(min_value=0, max_value=8), BOUNDS, BOUNDS,
    st.lists(st.integers(min_value=0, max_value=3), max_size=40),
    st.integers(min_value=0, max_value=8),
)  # fmt: skip
def test_a_rolling_update_keeps_its_bounds_and_comes_to_its_end(
    replicas: int, surge: Any, unavailable: Any, ready: list[int], later: int
) -> None:
    rolling = {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
    }
    world = World(deployment(replicas, strategy=rolling))
    world.settle()
    assert world.total("availableReplicas") == replicas
    up = -(-int(surge[:-1]) * replicas // 100) if isinstance(surge, str) else surge
    down = int(unavailable[:-1]) * replicas // 100 if isinstance(unavailable, str) else unavailable
    if not up and not down:
        down = 1
    world.subject["spec"]["template"]["spec"]["containers"][0]["image"] = "v2"
    for count in ready:
        world.step()
        world.make_ready(count)
        assert world.total() <= replicas + up
        assert world.total("availableReplicas") >= replicas - down
    world.subject["spec"]["replicas"] = later
    world.settle()

    sizes = {
        owned["spec"]["template"]["spec"]["containers"][0]["image"]: owned["spec"]["replicas"]
        for owned in world.sets
    }
    assert sizes["v2"] == later
    assert sizes.get("v1", 0) == 0
    assert world.subject["status"]["availableReplicas"] == later


def test_recreate_never_runs_both() -> None:
    world = World(deployment(3, strategy={"type": "Recreate"}))
    world.settle()
    world.subject["spec"]["template"]["spec"]["containers"][0]["image"] = "v2"
    world.step()
    assert [owned["spec"]["replicas"] for owned in world.sets] == [0]
    world.settle()

    assert [owned["spec"]["replicas"] for owned in world.sets] == [0, 3]


def test_a_bad_rollout_can_be_taken_back() -> None:
    world = World(deployment(4))
    world.settle()
    world.subject["spec"]["template"]["spec"]["containers"][0]["image"] = "broken"
    for _ in range(5):
        world.step()
    assert world.total("availableReplicas") >= 3
    world.subject["spec"]["template"]["spec"]["containers"][0]["image"] = "v1"
    world.settle()

    assert [owned["spec"]["replicas"] for owned in world.sets] == [4, 0]
    assert world.subject["metadata"]["annotations"][REVISION] == "3"


def test_a_paused_deployment_is_scaled_and_not_rolled() -> None:
    world = World(deployment(2))
    world.settle()
    world.subject["spec"]["paused"] = True
    world.subject["spec"]["replicas"] = 5
    world.settle()
    assert [owned["spec"]["replicas"] for owned in world.sets] == [5]
    world.subject["spec"]["template"]["spec"]["containers"][0]["image"] = "v2"
    world.settle()
    assert len(world.sets) == 1


def test_the_history_is_limited() -> None:
    world = World(deployment(1, revisionHistoryLimit=2))
    for version in range(6):
        world.subject["spec"]["template"]["spec"]["containers"][0]["image"] = f"v{version}"
        world.settle()
    world.settle()

    images = [owned["spec"]["template"]["spec"]["containers"][0]["image"] for owned in world.sets]
    assert images == ["v3", "v4", "v5"]


def test_a_replica_set_carries_the_hash_and_its_owner() -> None:
    subject = deployment()
    created = plan_deployment(subject, [], NOW).create
    assert created is not None
    hashed = template_hash(subject["spec"]["template"])

    assert name_of(created) == f"d-{hashed}"
    assert created["spec"]["selector"]["matchLabels"] == {"app": "x", HASH_LABEL: hashed}
    assert created["spec"]["template"]["metadata"]["labels"] == {"app": "x", HASH_LABEL: hashed}
    (owner,) = created["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Deployment", "du", True)
    assert HASH_LABEL not in subject["spec"]["template"]["metadata"]["labels"]


def status_of(world: World, kind: str) -> dict[str, Any]:
    found = find_condition(world.subject["status"]["conditions"], kind)
    assert found is not None
    return found


def test_conditions_tell_of_availability_and_progress() -> None:
    world = World(deployment(2, progressDeadlineSeconds=60))
    world.step()
    assert status_of(world, "Available")["status"] == "False"
    assert status_of(world, "Progressing")["status"] == "True"
    world.settle()
    assert status_of(world, "Available")["reason"] == "MinimumReplicasAvailable"
    assert status_of(world, "Progressing")["reason"] == "NewReplicaSetAvailable"


def test_a_rollout_without_progress_times_out_and_recovers() -> None:
    world = World(deployment(2, progressDeadlineSeconds=60))
    world.step()
    world.step()
    plan = plan_deployment(world.subject, world.sets, world.now)
    assert plan.requeue_s is not None
    assert plan.requeue_s <= 60
    world.now += timedelta(seconds=61)
    world.step()
    assert status_of(world, "Progressing")["reason"] == "ProgressDeadlineExceeded"
    world.make_ready(2)
    world.settle()
    assert status_of(world, "Progressing")["reason"] == "NewReplicaSetAvailable"


def test_a_status_at_rest_does_not_change_with_time() -> None:
    world = World(deployment(2))
    world.settle()
    before = copy.deepcopy(world.subject["status"])
    world.now += timedelta(days=1)
    world.step()

    assert world.subject["status"] == before


# --- ReplicaSets ---------------------------------------------------------------------------------


def replica_set(replicas: int, **spec: Any) -> Object:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}}
    return {
        "metadata": {"name": "rs", "namespace": "ns", "uid": "ru"},
        "spec": {"replicas": replicas, "template": template, **spec},
    }


def pod(name: str, *, ready: bool = True, phase: str = "Running", **metadata: Any) -> Object:
    return {
        "metadata": {
            "name": name,
            "labels": {"app": "x"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
            **metadata,
        },
        "spec": {"nodeName": "n"},
        "status": {
            "phase": phase,
            "conditions": [
                {
                    "type": "Ready",
                    "status": str(ready),
                    "lastTransitionTime": "2025-12-31T23:59:00Z",
                }
            ],
        },
    }


@pytest.mark.parametrize(
    ("replicas", "existing", "created", "deleted"),
    [(3, 0, 3, 0), (3, 3, 0, 0), (1, 3, 0, 2), (0, 2, 0, 2)],
)
def test_pods_are_made_and_removed(
    replicas: int, existing: int, created: int, deleted: int
) -> None:
    pods = [pod(f"p{number}") for number in range(existing)]
    plan = plan_replica_set(replica_set(replicas), pods, NOW)

    assert (plan.create, len(plan.delete)) == (created, deleted)


def test_finished_and_terminating_pods_do_not_count() -> None:
    pods = [
        pod("a"),
        pod("b", phase="Failed"),
        pod("c", phase="Succeeded"),
        pod("d", deletionTimestamp="2026-01-01T00:00:00Z"),
    ]
    plan = plan_replica_set(replica_set(2), pods, NOW)

    assert plan.create == 1
    assert plan.status["replicas"] == 1


def test_who_goes_first() -> None:
    unbound = pod("unbound")
    del unbound["spec"]["nodeName"]
    costly = pod("costly", annotations={"controller.kubernetes.io/pod-deletion-cost": "5"})
    young = pod("young", creationTimestamp="2026-01-02T00:00:00Z")
    order = [
        unbound, pod("pending", ready=False, phase="Pending"), pod("unready", ready=False), young,
        pod("old"), costly,
    ]  # fmt: skip
    for size in range(len(order)):
        plan = plan_replica_set(replica_set(size), list(reversed(order)), NOW)
        assert [name_of(p) for p in plan.delete] == [name_of(p) for p in order[: len(order) - size]]


def test_min_ready_seconds_hold_availability_back() -> None:
    pods = [pod("a")]
    plan = plan_replica_set(replica_set(1, minReadySeconds=100), pods, NOW)

    assert (plan.status["readyReplicas"], plan.status["availableReplicas"]) == (1, 0)
    assert plan.requeue_s == 40
    later = plan_replica_set(replica_set(1, minReadySeconds=100), pods, NOW + timedelta(seconds=40))
    assert later.status["availableReplicas"] == 1


def test_a_pod_of_a_replica_set() -> None:
    made = new_pod(replica_set(1), "abcde")

    assert name_of(made) == "rs-abcde"
    assert made["metadata"]["labels"] == {"app": "x"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "ru"
