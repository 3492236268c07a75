"""A node as a cluster sees it: its lives, its limits and its neighbours."""

import asyncio
import contextlib

import pytest

from kthena.api.kubernetes import LEASES, NODES, PODS
from kthena.kube.client import PatchType
from kthena.kube.errors import NotFound
from kthena.local.node.claims import ClaimError
from kthena.local.node.config import NodeConfig
from kthena.local.node.images import parse_image_map
from kthena.local.node.node import Node
from kthena.machinery.objects import Object, uid_of
from support.local_api import is_ready
from support.node import alive, wait_until
from support.node_world import (
    IMAGES,
    POLITE,
    WAIT,
    World,
    condition,
    on_host,
    python,
    running,
    wait_for_log,
)


async def test_the_node_is_registered_and_says_when_it_stops(world: World) -> None:
    def ready(node: Object) -> str:
        (condition,) = [c for c in node["status"]["conditions"] if c["type"] == "Ready"]
        return str(condition["status"])

    node = await world.api.client.get(NODES, world.name)
    await world.run("p", python(POLITE))
    await world.api.until_ready("p")
    await world.stop()
    after = await world.api.client.get(NODES, world.name)
    pod = await world.api.get(PODS, "p")

    assert ready(node) == "True"
    assert node["status"]["capacity"]["cpu"]
    assert ready(after) == "False"
    assert not is_ready(pod)
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_gated_pods_and_those_of_others_are_not_bound(world: World) -> None:
    await world.run("gated", python(WAIT), schedulingGates=[{"name": "x"}])
    await world.run("other", python(WAIT), schedulerName="someone-else")
    await world.run("mine", python(WAIT))
    await world.api.until_ready("mine")
    for name in ("gated", "other"):
        assert "nodeName" not in (await world.api.get(PODS, name))["spec"]
    pod = await world.api.get(PODS, "gated")
    pod["spec"]["schedulingGates"] = []
    await world.api.client.update(PODS, pod)
    await world.api.until_ready("gated")


async def test_an_idle_pod_makes_no_writes(world: World) -> None:
    await world.run("p", python(WAIT))
    await world.api.until_ready("p")
    await world.api.until(PODS, "p", lambda pod: condition(pod, "PodReadyToStartContainers"))
    before = await world.api.get(PODS, "p")
    await world.api.client.patch(
        PODS, "p", world.api.namespace, {"metadata": {"labels": {"x": "y"}}}, PatchType.MERGE
    )
    labelled = await world.api.get(PODS, "p")
    await asyncio.sleep(0.5)
    after = await world.api.get(PODS, "p")

    assert after["metadata"]["resourceVersion"] == labelled["metadata"]["resourceVersion"]
    assert after["status"] == before["status"]


async def test_pods_of_an_earlier_life_are_taken_up_again(world: World) -> None:
    await world.run("p", python(POLITE))
    await world.run("done", python("pass"), restartPolicy="Never")
    first = await world.api.until_ready("p")
    await world.api.until(PODS, "done", lambda pod: pod["status"].get("phase") == "Succeeded")
    await world.start()
    second = await world.api.until_ready("p")

    assert second["status"]["podIP"] == first["status"]["podIP"]
    (entry,) = second["status"]["containerStatuses"]
    assert entry["restartCount"] == 1
    assert entry["lastState"]["terminated"]["reason"] == "Unknown"
    assert len(alive(f"{world.data}:")) == 2, "launcher and program"
    done = await world.api.get(PODS, "done")
    assert done["status"]["phase"] == "Succeeded"


async def test_pods_deleted_while_the_node_was_away_go_when_it_is_back(world: World) -> None:
    pod = await world.run("p", python(POLITE))
    await world.api.until_ready("p")
    await world.stop()
    await world.api.delete(PODS, "p")
    await world.start()

    await world.api.until_gone(PODS, "p")
    await wait_until(lambda: not (world.data / "pods" / uid_of(pod)).exists())


async def test_a_seeded_pod_is_readdressed_and_has_not_restarted(world: World) -> None:
    pod = await world.run("p", python(WAIT), schedulerName="nobody")
    seeded = {
        "phase": "Running",
        "podIP": "10.0.0.9",
        "podIPs": [{"ip": "10.0.0.9"}],
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ],
        "containerStatuses": [
            {
                "name": "c", "ready": True, "started": True, "image": "python", "imageID": "x",
                "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }
        ],
    }  # fmt: skip
    await world.api.client.update(PODS, {**pod, "status": seeded}, subresource="status")
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": world.api.namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": world.name},
    }
    path = PODS.path(world.api.namespace, "p", "binding")
    await world.api.client.raw("POST", path, body=binding)
    pod = await world.api.until(
        PODS, "p", lambda pod: is_ready(pod) and pod["status"]["podIP"].startswith("127.")
    )

    (entry,) = pod["status"]["containerStatuses"]
    assert entry["restartCount"] == 0
    assert pod["status"]["podIPs"] == [{"ip": pod["status"]["podIP"]}]


async def test_two_nodes_do_not_share_a_directory_or_addresses(world: World) -> None:
    other = NodeConfig("other", world.data, scheduler_names=())
    with pytest.raises(ClaimError, match="in use by another process"):
        await Node(world.api.client, other).run()
    apart = Node(world.api.client, NodeConfig("other", world.folder / "b", scheduler_names=()))
    async with running(apart):
        first = await world.api.client.get(NODES, world.name)
        second = await world.api.client.get(NODES, "other")
    assert first["status"]["addresses"][0] != second["status"]["addresses"][0]


async def test_a_cancelled_node_leaves_no_process(world: World) -> None:
    other = NodeConfig(
        f"{world.name}-b",
        world.folder / "b",
        image_map=parse_image_map(IMAGES, "test"),
        scheduler_names=("b",),
    )
    node = Node(world.api.client, other)
    task = asyncio.create_task(node.run())
    await node.ready.wait()
    await world.run("p", python(WAIT), schedulerName="b")
    await world.api.until_ready("p")
    assert alive(f"{world.folder / 'b'}:")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not alive(f"{world.folder / 'b'}:")


async def test_a_lease_tells_that_the_node_lives(world: World) -> None:
    await world.start(lease_s=0.1)

    async def renewed() -> str:
        lease = await world.api.client.get(LEASES, world.name, "kube-node-lease")
        return str(lease["spec"]["renewTime"])

    seen: set[str] = set()
    async with asyncio.timeout(10):
        while len(seen) < 2:
            with contextlib.suppress(NotFound):
                seen.add(await renewed())
            await asyncio.sleep(0.05)


async def test_without_private_mounts_volumes_are_found_through_a_variable(world: World) -> None:
    await world.start(private_mounts=False)
    code = (
        "import os,time; place = dict(m.split('=') for m in os.environ['KTHENA_MOUNTS'].split(':'))\n"
        "print(os.listdir(place['/models/m']), os.path.exists('/models'), flush=True); time.sleep(600)"
    )
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/models/m"}]}
    downloader = {
        "name": "i",
        "image": "ghcr.io/volcano-sh/downloader:latest",
        "args": ["--source", "x/y", "--output-dir", "/models/m/deep"],
        **mount,
    }
    await world.run(
        "p", python(code, **mount, workingDir="/kthena-gone"),
        initContainers=[downloader], volumes=[{"name": "v", "emptyDir": {}}],
    )  # fmt: skip
    pod = await world.api.until_ready("p")
    await wait_for_log(world, pod, "deep")
    node = await world.api.client.get(NODES, world.name)

    assert await world.logs(pod) == f"['deep'] {on_host('/models')}\n"
    assert "switched off" in await world.api.until_event("p", "LimitedByHost")
    assert "no private mounts" in node["status"]["conditions"][0]["message"]
