"""Volcano seen by its PodGroup CRD, through the whole program of the workload plane."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kthena.api.kubernetes import (
    CONTROLLER_REVISIONS,
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    PODS,
    SERVICES,
)
from kthena.api.registry import MODEL_SERVINGS
from kthena.api.volcano import POD_GROUP_CRD, POD_GROUPS
from kthena.kube.clock import FakeClock, settle
from kthena.local.podgroups import pod_group_crd
from kthena.machinery.objects import NamespacedName, Object
from kthena.workload.planner.observed import Capabilities
from kthena.workload.program import WorkloadConfig, WorkloadProgram
from support.kube_server import MemoryApi, is_list
from support.workload_world import serving

KEY = NamespacedName("default", "ms")
CRDS = str(CUSTOM_RESOURCE_DEFINITIONS)


class Cluster:
    """An API in memory and the workload plane that runs on it."""

    def __init__(self, capabilities: Capabilities) -> None:
        self.clock = FakeClock()
        self.api = MemoryApi(
            MODEL_SERVINGS, PODS, SERVICES, CONTROLLER_REVISIONS, EVENTS,
            CUSTOM_RESOURCE_DEFINITIONS, POD_GROUPS,
        )  # fmt: skip
        self.remove_volcano()
        config = WorkloadConfig(capabilities=lambda: capabilities)
        self.program = WorkloadProgram(self.api.client(self.clock), config, self.clock)

    def apply(self, generation: int = 1, **spec: Any) -> None:
        manifest = serving(**spec)
        kept = {"status": self.stored["status"]} if "status" in self.stored else {}
        metadata = {**manifest["metadata"], "generation": generation}
        self.api.put(MODEL_SERVINGS, {**manifest, **kept, "metadata": metadata})

    def install_volcano(self) -> None:
        self.api.resources[str(POD_GROUPS)] = POD_GROUPS
        established = {"type": "Established", "status": "True"}
        status = {"conditions": [established]}
        self.api.put(CUSTOM_RESOURCE_DEFINITIONS, {**pod_group_crd(), "status": status})

    def remove_volcano(self) -> None:
        """The CRD goes, and what was stored of its kind."""
        for pod_group in list(self.api.objects(POD_GROUPS)):
            self.api.remove(POD_GROUPS, pod_group)
        self.api.resources.pop(str(POD_GROUPS), None)
        key = NamespacedName("", POD_GROUP_CRD)
        if key in self.api.objects(CUSTOM_RESOURCE_DEFINITIONS):
            self.api.remove(CUSTOM_RESOURCE_DEFINITIONS, key)

    async def turn(self) -> None:
        for _ in range(3):
            await settle(100)
            await self.clock.advance(1)

    @property
    def stored(self) -> Object:
        return self.api.objects(MODEL_SERVINGS).get(KEY, {})

    @property
    def accepted(self) -> str:
        conditions = (self.stored.get("status") or {}).get("conditions") or ()
        return next((c["reason"] for c in conditions if c["type"] == "Accepted"), "")

    @property
    def schedulers(self) -> list[str | None]:
        pods = sorted(self.api.objects(PODS).items())
        return [pod["spec"].get("schedulerName") for _, pod in pods]


@asynccontextmanager
async def running(
    capabilities: Capabilities | None = None, *, prepare: Callable[[Cluster], None] | None = None
) -> AsyncIterator[Cluster]:
    cluster = Cluster(capabilities or Capabilities())
    if prepare is not None:
        prepare(cluster)
    task = asyncio.create_task(cluster.program.run())
    try:
        await cluster.turn()
        yield cluster
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_volcano_gets_the_pods_where_it_is_installed() -> None:
    async with running(prepare=Cluster.install_volcano) as cluster:
        cluster.apply()
        await cluster.turn()

        assert cluster.schedulers == ["volcano"]
        assert cluster.accepted == "Accepted"


async def test_volcano_that_appears_or_goes_is_seen_at_once_and_restarts_nothing() -> None:
    async with running() as cluster:
        cluster.apply()
        await cluster.turn()
        assert cluster.schedulers == [None]
        assert cluster.accepted == "SchedulerFallback"
        pods = dict(cluster.api.objects(PODS))

        cluster.install_volcano()
        await cluster.turn()
        assert cluster.accepted == "Accepted"
        assert cluster.api.objects(PODS) == pods

        cluster.remove_volcano()
        await cluster.turn()
        assert cluster.accepted == "SchedulerFallback"
        assert cluster.api.objects(PODS) == pods


async def test_without_the_right_to_look_volcano_counts_as_absent() -> None:
    def forbid(cluster: Cluster) -> None:
        cluster.api.forbidden.add(CRDS)

    async with running(prepare=forbid) as cluster:
        cluster.apply()
        await cluster.turn()

        assert cluster.schedulers == [None]


async def test_no_pod_is_made_before_anything_is_known() -> None:
    gates: list[asyncio.Event] = []

    def hold(cluster: Cluster) -> None:
        cluster.install_volcano()
        gates.append(cluster.api.hold(lambda r: is_list(r) and "customresource" in r.target))

    async with running(prepare=hold) as cluster:
        cluster.apply()
        await cluster.turn()
        assert cluster.schedulers == []

        gates[0].set()
        await cluster.turn()
        assert cluster.schedulers == ["volcano"]


@pytest.mark.parametrize("fallback", [True, False])
async def test_what_is_known_beforehand_counts(fallback: bool) -> None:
    known = Capabilities(volcano=fallback, scheduler_fallback=fallback)
    async with running(known) as cluster:
        cluster.apply()
        await cluster.turn()

        assert cluster.schedulers == ["volcano"]


def asks_for_pod_groups(cluster: Cluster) -> int:
    return cluster.api.count(lambda request: "podgroups" in request.target.split("?")[0])


async def test_pod_groups_are_asked_for_only_while_their_crd_is_there() -> None:
    async with running() as cluster:
        cluster.apply()
        await cluster.turn()
        assert asks_for_pod_groups(cluster) == 0

        cluster.install_volcano()
        await cluster.turn()
        asked = asks_for_pod_groups(cluster)
        assert asked > 0

        cluster.remove_volcano()
        await cluster.turn()
        asked = asks_for_pod_groups(cluster)
        for _ in range(10):
            await cluster.turn()
        assert asks_for_pod_groups(cluster) == asked


async def test_a_gang_goes_on_when_the_crd_appears_and_again_when_it_returns() -> None:
    async with running() as cluster:
        cluster.apply(gangPolicy={})
        await cluster.turn()
        assert cluster.schedulers == []
        assert cluster.accepted == "PodGroupsMissing"

        cluster.install_volcano()
        await cluster.turn()
        assert cluster.schedulers == ["volcano"]
        assert list(cluster.api.objects(POD_GROUPS)) == [NamespacedName("default", "ms-0")]
        assert cluster.accepted == "Accepted"

        cluster.remove_volcano()
        await cluster.turn()
        assert cluster.accepted == "PodGroupsMissing"

        cluster.install_volcano()
        await cluster.turn()
        assert list(cluster.api.objects(POD_GROUPS)) == [NamespacedName("default", "ms-0")]
        assert cluster.accepted == "Accepted"


async def test_without_the_right_to_read_pod_groups_gangs_wait_and_others_run() -> None:
    def forbid(cluster: Cluster) -> None:
        cluster.install_volcano()
        cluster.api.forbidden.add(str(POD_GROUPS))

    async with running(prepare=forbid) as cluster:
        cluster.apply()
        await cluster.turn()
        assert cluster.schedulers == ["volcano"]

        cluster.apply(generation=2, replicas=2, gangPolicy={})
        await cluster.turn()
        assert cluster.schedulers == ["volcano"]
        assert cluster.accepted == "PodGroupsMissing"
