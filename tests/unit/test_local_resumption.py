"""The statuses that an earlier run of a cluster has left are withdrawn before anything runs."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kthena.api.crd.published import published_crds
from kthena.api.kubernetes import CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, NODES, PODS
from kthena.api.registry import MODEL_SERVINGS
from kthena.kube.client import ClientConfig, KubeClient
from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.server import ApiServer
from kthena.local.cluster import NODE_NAME, LocalCluster, LocalConfig
from kthena.local.resumption import disown_statuses, forget_interruptions
from kthena.machinery.kstatus import status_of
from kthena.machinery.objects import Object, name_of
from kthena.workload.planner.recovery import failure_of

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

    for name in ("here", "elsewhere"):
        machine = await client.create(NODES, {"metadata": {"name": name}})
        status = {"conditions": READY[:1]}
        await client.update(NODES, {**machine, "status": status}, subresource="status")

    await disown_statuses(client, "here", NOW)

    nodes = {name_of(obj): obj["status"] for obj in (await client.list(NODES)).items}
    ready = {name: status["conditions"][0]["status"] for name, status in nodes.items()}
    assert ready == {"here": "False", "elsewhere": "True"}

    pods = {obj["metadata"]["name"]: obj for obj in (await client.list(PODS)).items}
    assert status_of(pods["mine"]).state == "InProgress"
    assert pods["mine"]["status"]["containerStatuses"][0]["restartCount"] == 3
    unchanged = {obj["metadata"]["name"]: obj for obj in before.items}
    assert pods["over"] == unchanged["over"]
    assert pods["other"] == unchanged["other"]
    for resource, name in ((DEPLOYMENTS, "d"), (MODEL_SERVINGS, "m")):
        found = await client.get(resource, name, "default")
        assert status_of(found).state == "InProgress"


UNSEEN = {
    "terminated": {"exitCode": 255, "reason": "Unknown", "finishedAt": "2026-01-01T00:00:00Z"}
}
FAILED = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
WAITING = {"waiting": {"reason": "ContainerCreating"}}


@pytest.mark.parametrize(
    ("restarts", "state", "last", "seen"),
    [
        (2, RUNNING, UNSEEN, 0),
        (2, WAITING, UNSEEN, 0),
        # An init container that is run again after it was done, or a container that is never
        # restarted for its own sake: nothing is said of the run before.
        (1, RUNNING, {}, 0),
        # It has failed by itself, be it after an interruption.
        (2, RUNNING, FAILED, 2),
        (2, WAITING, FAILED, 2),
        (1, FAILED, UNSEEN, 1),
        (0, RUNNING, {}, 0),
    ],
)
def test_only_what_ended_by_itself_has_restarted(
    restarts: int, state: Object, last: Object, seen: int
) -> None:
    entry = {"name": "c", "restartCount": restarts, "state": state, "lastState": last}
    other = {"name": "d", "restartCount": 1, "state": RUNNING, "lastState": FAILED}
    for name in ("containerStatuses", "initContainerStatuses"):
        subject: Object = {"metadata": {"name": "p"}, "status": {"phase": "Running"}}
        subject["status"][name] = [entry, other]
        before = copy.deepcopy(subject)
        (first, second) = forget_interruptions(subject)["status"][name]
        assert subject == before
        assert second == other
        assert first["restartCount"] == seen
        if seen or not restarts:
            assert forget_interruptions(subject) is subject
        else:
            assert failure_of(subject)[0]
            assert not failure_of({"status": {name: [first]}})[0]


async def test_what_an_earlier_run_has_left_is_withdrawn_before_anyone_can_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash: the data say that a pod is ready, and that its node is."""
    await keep_ready_pod(tmp_path / "apiserver")
    cluster = LocalCluster(LocalConfig(tmp_path, router_port=0, keeps_objects=True))

    @contextlib.asynccontextmanager
    async def no_node(*_: Any) -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr(LocalCluster, "_running_node", no_node)
    starting = asyncio.create_task(cluster.__aenter__())
    try:
        while not cluster.kubeconfig.exists():
            assert not starting.done()
            await asyncio.sleep(0)
        assert cluster.kubeconfig.stat().st_mode & 0o777 == 0o600
        config = ClientConfig(kubeconfig=cluster.kubeconfig)
        async with KubeClient.connect(config) as client:
            node, pod = await client.get(NODES, NODE_NAME), await client.get(PODS, "p", "default")
        for obj in (node, pod):
            (ready,) = [each for each in obj["status"]["conditions"] if each["type"] == "Ready"]
            assert ready["status"] == "False"
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    assert not cluster.kubeconfig.with_name("kubeconfig.new").exists()


async def keep_ready_pod(directory: Path) -> None:
    server = ApiServer(ApiServerConfig(data_dir=directory))
    await server.start()
    file = directory.parent / "kubeconfig"
    file.write_bytes(msgspec.json.encode(server.kubeconfig()))
    try:
        async with KubeClient.connect(ClientConfig(kubeconfig=file)) as client:
            node = await client.create(NODES, {"metadata": {"name": NODE_NAME}})
            ready = {"status": {"conditions": READY[:1]}}
            await client.update(NODES, {**node, **ready}, subresource="status")
            obj, status = pod("p", NODE_NAME, "Running")
            made = await client.create(PODS, obj)
            await client.update(PODS, {**made, "status": status}, subresource="status")
    finally:
        await server.stop()
        file.unlink()
