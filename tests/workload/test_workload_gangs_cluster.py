"""Gangs on an API server whose PodGroup CRD comes and goes, with the whole program (B008)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kthena.api.kubernetes import CUSTOM_RESOURCE_DEFINITIONS, PODS
from kthena.api.registry import MODEL_SERVINGS
from kthena.api.volcano import ANNOTATION_GROUP_NAME, POD_GROUP_CRD, POD_GROUPS
from kthena.kube.client import ClientConfig, KubeClient
from kthena.kube.errors import ApiError, NotFound
from kthena.local.podgroups import pod_group_crd
from kthena.machinery.objects import Object, annotations_of, labels_of, name_of, uid_of
from kthena.workload.program import WorkloadConfig, WorkloadProgram
from support.workload_bench import Bench
from support.workload_world import role, serving

PREFIX = "modelserving.volcano.sh/"


@pytest.fixture
async def gang_bench(workload_bench: Bench) -> AsyncIterator[Bench]:
    """A bench with the whole program of the workload plane, on a server without Volcano."""
    await remove_volcano(workload_bench)
    config = ClientConfig(kubeconfig=workload_bench.kubeconfig, qps=0)
    async with KubeClient.connect(config) as client:
        program = WorkloadProgram(client, WorkloadConfig(namespace=workload_bench.namespace))
        running = asyncio.create_task(program.run())
        try:
            yield workload_bench
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await remove_volcano(workload_bench)


async def install_volcano(bench: Bench) -> None:
    await bench.admin.create(CUSTOM_RESOURCE_DEFINITIONS, pod_group_crd())


async def remove_volcano(bench: Bench) -> None:
    with contextlib.suppress(NotFound):
        await bench.admin.delete(CUSTOM_RESOURCE_DEFINITIONS, POD_GROUP_CRD)

    async def gone() -> bool:
        found = await bench.admin.list(CUSTOM_RESOURCE_DEFINITIONS)
        return POD_GROUP_CRD not in map(name_of, found.items)

    await bench.wait("the CRD is gone", gone)


async def accepted(bench: Bench, name: str) -> tuple[str, str]:
    """Reason of Accepted and of Stalled."""
    obj = await bench.admin.get(MODEL_SERVINGS, name, bench.namespace)
    reasons = {c["type"]: c["reason"] for c in (obj.get("status") or {}).get("conditions") or ()}
    return reasons.get("Accepted", ""), reasons.get("Stalled", "")


async def pods_of(bench: Bench, name: str) -> dict[str, Object]:
    pods = (await bench.objects(PODS)).items()
    return {key: pod for key, pod in pods if labels_of(pod)[f"{PREFIX}name"] == name}


async def test_without_the_crd_only_gangs_wait_and_with_it_they_go_on(gang_bench: Bench) -> None:
    await gang_bench.apply(serving(role(workers=1), name="plain"))
    gang = role("decode", replicas=2, workers=1)
    await gang_bench.apply(serving(gang, name="gang", gangPolicy={}))

    await gang_bench.wait_ready("plain")

    async def waits() -> bool:
        return await accepted(gang_bench, "gang") == ("PodGroupsMissing", "PodGroupsMissing")

    await gang_bench.wait("the gang waits", waits)
    assert await pods_of(gang_bench, "gang") == {}

    async def told() -> bool:
        return "PodGroupsMissing" in [reason for reason, _ in await gang_bench.events()]

    await gang_bench.wait("an event tells of it", told)
    plain = await pods_of(gang_bench, "plain")

    await install_volcano(gang_bench)
    await gang_bench.wait_ready("gang")

    pods = await pods_of(gang_bench, "gang")
    assert {annotations_of(pod)[ANNOTATION_GROUP_NAME] for pod in pods.values()} == {"gang-0"}
    assert {pod["spec"]["schedulerName"] for pod in pods.values()} == {"volcano"}
    (pod_group,) = (await gang_bench.objects(POD_GROUPS)).values()
    assert pod_group["spec"]["minMember"] == 4
    kept = await pods_of(gang_bench, "plain")
    assert {*map(uid_of, kept.values())} == {*map(uid_of, plain.values())}

    await remove_volcano(gang_bench)
    await gang_bench.delete_pods(["gang-0-decode-0-1"])

    async def healed() -> bool:
        found = await pods_of(gang_bench, "gang")
        kept = {*map(uid_of, found.values())} & {*map(uid_of, pods.values())}
        return len(found) == 4 and len(kept) == 2

    await gang_bench.wait("the instance is made anew", healed)
    await gang_bench.wait_ready("gang")

    await install_volcano(gang_bench)

    async def returned() -> bool:
        try:
            return list(await gang_bench.objects(POD_GROUPS)) == ["gang-0"]
        except ApiError:
            return False

    await gang_bench.wait("the PodGroup is back", returned)


async def test_a_pod_group_is_updated_in_place_and_rests(gang_bench: Bench) -> None:
    await install_volcano(gang_bench)
    entry: dict[str, Any] = {
        "spec": {
            "containers": [
                {"name": "main", "image": "i", "resources": {"limits": {"cpu": "1000m"}}}
            ]
        }
    }
    topology = {"groupPolicy": {"highestTierAllowed": 1}, "rolePolicy": {"mode": "soft"}}

    async def seen() -> bool:
        return (await accepted(gang_bench, "probe"))[0] == "Accepted"

    await gang_bench.apply(serving(name="probe", replicas=0))
    await gang_bench.wait("Volcano is seen", seen)
    await gang_bench.apply(
        serving(role(replicas=2, entryTemplate=entry), name="ms", networkTopology=topology)
    )
    await gang_bench.wait_ready("ms")
    before = (await gang_bench.objects(POD_GROUPS))["ms-0"]
    assert before["spec"] == {
        "minMember": 2,
        "minResources": {"cpu": "2"},
        "queue": "default",
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
        "subGroupPolicy": [
            {
                "name": "decode",
                "labelSelector": {
                    "matchLabels": {f"{PREFIX}name": "ms", f"{PREFIX}role": "decode"}
                },
                "matchLabelKeys": [f"{PREFIX}role-id"],
                "subGroupSize": 1,
                "minSubGroups": 2,
                "networkTopology": {"mode": "soft"},
            }
        ],
    }

    def change(spec: dict[str, Any]) -> None:
        spec["template"]["roles"][0]["replicas"] = 3
        spec["template"]["networkTopology"] = None

    await gang_bench.edit("ms", change)
    await gang_bench.wait_ready("ms")
    after = (await gang_bench.objects(POD_GROUPS))["ms-0"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["minMember"] == 3
    assert "networkTopology" not in after["spec"]

    await asyncio.sleep(0.5)
    again = (await gang_bench.objects(POD_GROUPS))["ms-0"]
    assert again["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]

    await gang_bench.scale("ms", 0)
    await gang_bench.wait_gone(POD_GROUPS)
