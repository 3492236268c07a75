"""Deployments on the embedded server, with pods as processes."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from kthena.api.kubernetes import DEPLOYMENTS, PODS, REPLICA_SETS
from kthena.kube.client import KubeClient, PatchType
from kthena.kube.clock import SystemClock
from kthena.kube.informer import Informer
from kthena.local.deployments import Informers, deployment_runners
from kthena.local.node.config import NodeConfig
from kthena.local.node.httpget import http_get
from kthena.local.node.images import parse_image_map
from kthena.local.node.node import Node
from kthena.machinery.conditions import find_condition
from kthena.machinery.objects import Object, labels_of, name_of, uid_of
from support.corpus import require_corpus
from support.local_api import Api, is_ready, open_api
from support.node import PYTHON, alive

WAIT = "import signal,time,sys; signal.signal(15, lambda *_: sys.exit(0)); time.sleep(600)"


@asynccontextmanager
async def controllers(client: KubeClient) -> AsyncIterator[None]:
    """The controllers with their informers, as the local cluster runs them."""
    informers = Informers(*(Informer(client, kind) for kind in (DEPLOYMENTS, REPLICA_SETS, PODS)))
    runners = deployment_runners(client, informers, SystemClock())
    tasks = [
        asyncio.create_task(part.run())
        for part in (informers.deployments, informers.replica_sets, informers.pods, *runners)
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Api]:
    """An embedded server and a node; the controllers are the tests' own."""
    async with open_api("embedded", request, tmp_path) as opened:
        images = parse_image_map({"python": [PYTHON, "-I", "-S", "{args}"]}, "test")
        config = NodeConfig(
            f"node-{uuid.uuid4().hex[:6]}", tmp_path / "data", image_map=images, stop_grace_s=1
        )
        node = Node(opened.client, config)
        task = asyncio.create_task(node.run())
        try:
            await node.ready.wait()
            yield opened
        finally:
            node.stop()
            await task
    assert not alive(f"{tmp_path / 'data'}:")


def deployment(name: str, replicas: int, code: str = WAIT, **spec: Any) -> Object:
    labels = {"app": name}
    container = {"name": "c", "image": "python", "args": ["-c", code]}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
    }
    selector = {"matchLabels": labels}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": selector, "template": template, **spec},
    }


async def pods_of(api: Api, name: str) -> list[Object]:
    found = await api.client.list(PODS, api.namespace, label_selector=f"app={name}")
    return [pod for pod in found.items if not pod["metadata"].get("deletionTimestamp")]


def complete(replicas: int) -> Any:
    def check(obj: Object) -> bool:
        status = obj.get("status") or {}
        return (
            status.get("observedGeneration") == obj["metadata"]["generation"]
            and (status.get("availableReplicas") or 0) == replicas
            and (status.get("updatedReplicas") or 0) == replicas
            and (status.get("replicas") or 0) == replicas
        )

    return check


def rolled_out(obj: Object) -> bool:
    condition = find_condition(obj["status"].get("conditions") or [], "Progressing")
    return condition is not None and condition["reason"] == "NewReplicaSetAvailable"


async def test_a_deployment_gets_pods_scales_and_heals(api: Api) -> None:
    async with controllers(api.client):
        await api.create(DEPLOYMENTS, deployment("d", 2))
        await api.until(DEPLOYMENTS, "d", complete(2))
        first = await pods_of(api, "d")
        body = {"spec": {"replicas": 3}}
        await api.client.patch(
            DEPLOYMENTS, "d", api.namespace, body, PatchType.MERGE, subresource="scale"
        )
        await api.until(DEPLOYMENTS, "d", complete(3))
        await api.delete(PODS, name_of(first[0]))
        await api.until_gone(PODS, name_of(first[0]))
        await api.until(DEPLOYMENTS, "d", complete(3))
        healed = await pods_of(api, "d")
        await api.client.patch(
            DEPLOYMENTS, "d", api.namespace, {"spec": {"replicas": 0}}, PatchType.MERGE
        )
        await api.until(DEPLOYMENTS, "d", complete(0))

    assert len(first) == 2
    assert len(healed) == 3
    assert uid_of(first[0]) not in {uid_of(pod) for pod in healed}
    assert uid_of(first[1]) in {uid_of(pod) for pod in healed}


async def test_a_new_template_rolls_without_losing_availability(api: Api) -> None:
    async with controllers(api.client):
        await api.create(DEPLOYMENTS, deployment("d", 3))
        before = await api.until(DEPLOYMENTS, "d", complete(3))
        old = {uid_of(pod) for pod in await pods_of(api, "d")}
        template = {"template": {"metadata": {"annotations": {"rolled": "1"}}}}
        await api.client.patch(DEPLOYMENTS, "d", api.namespace, {"spec": template}, PatchType.MERGE)
        lowest, highest = 3, 0
        while True:
            found = await api.get(DEPLOYMENTS, "d")
            ready = sum(is_ready(pod) for pod in await pods_of(api, "d"))
            lowest = min(lowest, ready)
            highest = max(highest, len(await pods_of(api, "d")))
            if complete(3)(found):
                break
            await asyncio.sleep(0.01)
        after = await api.get(DEPLOYMENTS, "d")
        new = {uid_of(pod) for pod in await pods_of(api, "d")}

    assert not old & new
    assert lowest >= 3, "25 % of 3, rounded down, may be unavailable: none"
    assert highest <= 4
    revision = "deployment.kubernetes.io/revision"
    assert before["metadata"]["annotations"][revision] == "1"
    assert after["metadata"]["annotations"][revision] == "2"


async def test_the_controllers_go_on_where_they_were(api: Api) -> None:
    await api.create(DEPLOYMENTS, deployment("d", 2))
    for _ in range(3):
        async with controllers(api.client):
            await asyncio.sleep(0.05)
    async with controllers(api.client):
        await api.until(DEPLOYMENTS, "d", complete(2))
        assert len(await pods_of(api, "d")) == 2
        await asyncio.sleep(0.3)
        assert len((await api.client.list(REPLICA_SETS, api.namespace)).items) == 1


async def test_an_idle_deployment_is_not_written(api: Api) -> None:
    async with controllers(api.client):
        await api.create(DEPLOYMENTS, deployment("d", 1))
        before = await api.until(DEPLOYMENTS, "d", lambda obj: complete(1)(obj) and rolled_out(obj))
    async with controllers(api.client):
        await asyncio.sleep(0.5)
        after = await api.get(DEPLOYMENTS, "d")

    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_deleted_deployment_takes_its_pods_along(api: Api) -> None:
    async with controllers(api.client):
        await api.create(DEPLOYMENTS, deployment("d", 2))
        await api.until(DEPLOYMENTS, "d", complete(2))
        await api.delete(DEPLOYMENTS, "d")
        async with asyncio.timeout(20):
            while (await api.client.list(PODS, api.namespace)).items:  # noqa: ASYNC110 - remote
                await asyncio.sleep(0.05)
        assert (await api.client.list(REPLICA_SETS, api.namespace)).items == []


@pytest.mark.corpus
async def test_the_mock_deployments_of_the_corpus_serve(api: Api) -> None:
    files = ("LLM-Mock.yaml", "LLM-Mock-sglang.yaml")
    served = 0
    async with controllers(api.client):
        for file in files:
            text = (require_corpus() / "networking" / file).read_text()
            for document in yaml.safe_load_all(text):
                if document["kind"] != "Deployment":
                    continue
                name, replicas = name_of(document), document["spec"]["replicas"]
                (container,) = document["spec"]["template"]["spec"]["containers"]
                model = container["env"][0]["value"]
                port = 30000 if "sglang" in name else 8000
                await api.create(DEPLOYMENTS, document)
                await api.until(DEPLOYMENTS, name, complete(replicas))
                for pod in await pods_of(api, name):
                    address = pod["status"]["podIP"]
                    reply = await http_get(address, port, "/v1/models", timeout_s=5)
                    assert f'"id":"{model}"'.encode() in reply.body
                    assert labels_of(pod)["app"] == name
                    served += 1
    print(f"corpus: {served} mock engines served")
    assert served == 5
