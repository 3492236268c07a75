"""Every pod template of the corpus runs on the node and becomes ready."""

import asyncio
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kthena.api.kubernetes import PODS, SERVICES
from kthena.local.node.config import NodeConfig
from kthena.local.node.images import parse_image_map
from kthena.local.node.node import Node
from support.corpus import corpus_objects
from support.local_api import Api, open_api
from support.node import alive

AT_ONCE = 4
IMAGES = {
    "nginx*": ["python3", "-m", "http.server", "8080", "--bind", "{address}"],
    "*podinfo*": ["python3", "-m", "http.server", "{port}", "--bind", "{address}"],
}


def pods(obj: dict[str, Any], namespace: str, number: int) -> Iterator[dict[str, Any]]:
    """One pod for each template of a ModelServing or Deployment, with the variables of a group."""
    if obj["kind"] == "Deployment":
        templates = [("", obj["spec"]["template"])]
    else:
        templates = [
            (f"{role['name']}-{kind[:5]}", role[kind])
            for role in obj["spec"]["template"]["roles"]
            for kind in ("entryTemplate", "workerTemplate")
            if (role.get(kind) or {}).get("spec", {}).get("containers")
        ]
    entry = f"e{number}"
    for index, (name, template) in enumerate(templates):
        spec = copy.deepcopy(template["spec"])
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            container["env"] = [
                *container.get("env", ()),
                {"name": "GROUP_SIZE", "value": "2"},
                {"name": "ENTRY_ADDRESS", "value": f"{entry}.{namespace}"},
                {"name": "WORKER_INDEX", "value": str(index)},
            ]
        metadata = {
            **template.get("metadata", {}),
            "name": f"p{number}-{index}-{name}".rstrip("-").lower(),
            "labels": {"workload": f"e{number}"},
        }
        yield {"metadata": metadata, "spec": {**spec, "terminationGracePeriodSeconds": 5}}


async def run_pods(api: Api, turns: asyncio.Semaphore, number: int, obj: dict[str, Any]) -> int:
    """Run the pods of one workload until each is ready; how many those were."""
    service = {
        "clusterIP": "None", "publishNotReadyAddresses": True,
        "selector": {"workload": f"e{number}"},
    }  # fmt: skip
    async with turns:
        await api.create(SERVICES, {"metadata": {"name": f"e{number}"}, "spec": service})
        made = [await api.create(PODS, pod) for pod in pods(obj, api.namespace, number)]
        for pod in made:
            await api.until_ready(pod["metadata"]["name"])
        for pod in made:
            await api.delete(PODS, pod["metadata"]["name"], grace_s=0)
    return len(made)


@pytest.mark.corpus
@pytest.mark.slow
@pytest.mark.parametrize("folder", ["modelserving", "networking", "autoscaling"])
async def test_every_pod_becomes_ready(
    request: pytest.FixtureRequest, tmp_path: Path, folder: str
) -> None:
    objects = [
        obj for _, obj in corpus_objects(folder) if obj["kind"] in {"ModelServing", "Deployment"}
    ]
    async with open_api("embedded", request, tmp_path) as api:
        config = NodeConfig(
            "corpus", tmp_path / "data", image_map=parse_image_map(IMAGES, "test"), time_scale=100,
            stop_grace_s=1,
        )  # fmt: skip
        node = Node(api.client, config)
        task = asyncio.create_task(node.run())
        try:
            await node.ready.wait()
            turns = asyncio.Semaphore(AT_ONCE)
            counts = [run_pods(api, turns, number, obj) for number, obj in enumerate(objects)]
            started = sum(await asyncio.gather(*counts))
        finally:
            node.stop()
            await task
    assert not alive(f"{tmp_path / 'data'}:")
    print(f"corpus {folder}: {started} pods of {len(objects)} workloads ready")
    assert started
