"""The statuses that an earlier run of a cluster has left are withdrawn before anything runs."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from kthena.api.crd.published import published_crds
from kthena.api.kubernetes import CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, PODS
from kthena.api.registry import MODEL_SERVINGS
from kthena.kube.client import ClientConfig, KubeClient
from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.server import ApiServer
from kthena.local.resumption import disown_statuses
from kthena.machinery.kstatus import status_of
from kthena.machinery.objects import Object

NOW = datetime(2026, 1, 2, tzinfo=UTC)
CONTAINERS = {"containers": [{"name": "main", "image": "i"}]}
READY = [
    {"type": name, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for name in ("Ready", "ContainersReady")
]


def pod(name: str, node: str, phase: str) -> tuple[Object, dict[str, Any]]:
    running = {"name": "main", "image": "i", "imageID": "", "ready": True, "restartCount": 3}
    spec = {**CONTAINERS, "nodeName": node}
    status = {"phase": phase, "conditions": READY, "containerStatuses": [running]}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}, status


async def test_nothing_is_ready_until_it_is_looked_at(tmp_path: Path) -> None:
    server = ApiServer(ApiServerConfig())
    await server.start()
    config = ClientConfig(kubeconfig=tmp_path / "kubeconfig")
    (tmp_path / "kubeconfig").write_bytes(msgspec.json.encode(server.kubeconfig()))
    try:
        async with KubeClient.connect(config) as client:
            await check(client)
    finally:
        await server.stop()


async def check(client: KubeClient) -> None:
    for crd in published_crds():
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
    for name, node, phase in (
        ("mine", "here", "Running"),
        ("over", "here", "Succeeded"),
        ("other", "elsewhere", "Running"),
    ):
        obj, status = pod(name, node, phase)
        made = await client.create(PODS, obj)
        await client.update(PODS, {**made, "status": status}, subresource="status")
    labels = {"app": "d"}
    template = {"metadata": {"labels": labels}, "spec": CONTAINERS}
    deployment = await client.create(
        DEPLOYMENTS,
        {
            "metadata": {"name": "d", "namespace": "default"},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
    )
    counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), 1)
    status = {"observedGeneration": 1, **counts}
    deployment = await client.update(
        DEPLOYMENTS, {**deployment, "status": status}, subresource="status"
    )
    role = {"name": "r", "workerReplicas": 0, "entryTemplate": {"spec": CONTAINERS}}
    serving = await client.create(
        MODEL_SERVINGS,
        {
            "apiVersion": MODEL_SERVINGS.api_version,
            "kind": MODEL_SERVINGS.kind,
            "metadata": {"name": "m", "namespace": "default"},
            "spec": {"replicas": 1, "template": {"roles": [role]}},
        },
    )
    status = {"observedGeneration": 1, "conditions": [{**READY[0], "reason": "R", "message": ""}]}
    serving = await client.update(
        MODEL_SERVINGS, {**serving, "status": status}, subresource="status"
    )
    before = await client.list(PODS)
    assert {status_of(obj).state for obj in (*before.items, deployment, serving)} == {"Current"}

    await disown_statuses(client, "here", NOW)

    pods = {obj["metadata"]["name"]: obj for obj in (await client.list(PODS)).items}
    assert status_of(pods["mine"]).state == "InProgress"
    assert pods["mine"]["status"]["containerStatuses"][0]["restartCount"] == 3
    unchanged = {obj["metadata"]["name"]: obj for obj in before.items}
    assert pods["over"] == unchanged["over"]
    assert pods["other"] == unchanged["other"]
    for resource, name in ((DEPLOYMENTS, "d"), (MODEL_SERVINGS, "m")):
        found = await client.get(resource, name, "default")
        assert status_of(found).state == "InProgress"
