"""A node that plays other nodes: pods that are bound to them run here, and have not restarted."""

import asyncio
import time
import uuid
from datetime import UTC, datetime

import pytest

from kthena.api.kubernetes import LEASES, NODES, PODS
from kthena.kube.client import PatchType
from kthena.kube.errors import NotFound
from kthena.local.node.config import NodeConfig
from kthena.local.node.identities import AdoptionError, NameTakenError
from kthena.local.node.names import LABEL_PLAYED_BY
from kthena.local.node.node import Node
from kthena.machinery.conditions import format_micro_time
from kthena.machinery.objects import Object, labels_of, uid_of
from support.local_api import is_ready
from support.node_world import WAIT, World, condition, python, running, wait_for_log

SINCE = "2026-01-01T00:00:00Z"
ENV = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


def gone_node() -> str:
    return f"gone-{uuid.uuid4().hex[:6]}"


async def seed(world: World, name: str, node: str) -> Object:
    """A pod as it was recorded elsewhere: running on a node that this cluster lacks."""
    code = f"import os; print(os.environ['NODE'], flush=True); {WAIT}"
    container = python(code, env=[ENV])
    pod = await world.run(name, container, schedulerName="nobody", nodeName=node)
    status = {
        "phase": "Running",
        "hostIP": "192.168.7.1",
        "hostIPs": [{"ip": "192.168.7.1"}],
        "podIP": "10.0.0.9",
        "podIPs": [{"ip": "10.0.0.9"}],
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": SINCE}],
        "containerStatuses": [
            {
                "name": "c", "ready": True, "started": True, "image": "python", "imageID": "x",
                "restartCount": 2, "state": {"running": {"startedAt": SINCE}},
                "containerID": "containerd://elsewhere",
            }
        ],
    }  # fmt: skip
    return await world.api.client.update(PODS, {**pod, "status": status}, subresource="status")


async def until_readdressed(world: World, name: str) -> Object:
    return await world.api.until(
        PODS, name, lambda pod: is_ready(pod) and pod["status"]["podIP"].startswith("127.")
    )


async def test_pods_of_a_played_node_are_readdressed_and_have_not_restarted(world: World) -> None:
    first, second = gone_node(), gone_node()
    seeded = {"a": await seed(world, "a", first), "b": await seed(world, "b", second)}
    await world.start(adopted=(first, second), lease_s=10)
    for name, before in seeded.items():
        pod = await until_readdressed(world, name)
        assert uid_of(pod) == uid_of(before)
        assert pod["spec"] == before["spec"]
        assert pod["status"]["podIPs"] == [{"ip": pod["status"]["podIP"]}]
        assert pod["status"]["hostIP"].startswith("127.")
        (entry,) = pod["status"]["containerStatuses"]
        assert entry["restartCount"] == 2
        assert entry["containerID"].startswith("kthena://")
        await wait_for_log(world, pod, before["spec"]["nodeName"])
    for name in (first, second):
        node = await world.api.client.get(NODES, name)
        assert labels_of(node)[LABEL_PLAYED_BY] == world.name
        assert condition(node, "Ready")["status"] == "True"
        lease = await world.api.client.get(LEASES, name, "kube-node-lease")
        assert lease["spec"]["holderIdentity"].startswith(f"{world.name}_")
        assert lease["metadata"]["ownerReferences"][0]["uid"] == uid_of(node)

    await world.stop()
    for name in (first, second):
        node = await world.api.client.get(NODES, name)
        assert condition(node, "Ready")["status"] == "False"


async def test_pods_of_other_nodes_are_left_alone_unless_told(world: World) -> None:
    node = gone_node()
    before = await seed(world, "p", node)
    await world.run("mine", python(WAIT))
    await world.api.until_ready("mine")

    assert await world.api.get(PODS, "p") == before
    with pytest.raises(NotFound):
        await world.api.client.get(NODES, node)


async def test_nodes_that_do_not_exist_are_played_and_existing_ones_are_not(world: World) -> None:
    missing, later, real = gone_node(), gone_node(), gone_node()
    await world.api.client.create(
        NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": real}}
    )
    await seed(world, "a", missing)
    other = await seed(world, "other", real)
    await world.start(adopt_missing=True)
    first = await until_readdressed(world, "a")
    await seed(world, "b", later)
    await until_readdressed(world, "b")
    assert await world.api.get(PODS, "other") == other

    # A node that an earlier life has played is known by its label.
    await world.start(adopt_missing=True)
    again = await until_readdressed(world, "a")
    assert uid_of(again) == uid_of(first)
    assert again["status"]["podIP"] == first["status"]["podIP"]
    (entry,) = again["status"]["containerStatuses"]
    assert entry["restartCount"] == 3

    # Deletion is seen through by the node that plays.
    await world.api.delete(PODS, "a", grace_s=1)
    await world.api.until_gone(PODS, "a")
    await world.api.client.delete(NODES, real)


async def test_a_node_that_is_alive_cannot_be_adopted(world: World) -> None:
    alive = gone_node()
    spec = {
        "holderIdentity": alive,
        "leaseDurationSeconds": 40,
        "renewTime": format_micro_time(world.node._clock.now()),
    }
    metadata = {"name": alive, "namespace": "kube-node-lease"}
    await world.api.client.create(
        LEASES,
        {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata, "spec": spec},
    )
    config = NodeConfig("other", world.folder / "b", scheduler_names=(), adopted=(alive,))
    with pytest.raises(AdoptionError, match=f"renewed by {alive}"):
        async with running(Node(world.api.client, config)):
            pass
    # Nothing is registered, the node that was told to adopt it neither.
    for name in (alive, "other"):
        with pytest.raises(NotFound):
            await world.api.client.get(NODES, name)


async def renew(world: World, name: str, holder: str, duration_s: int) -> None:
    """Renew a node's Lease as another process does, whatever is in it."""
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": duration_s,
        "renewTime": format_micro_time(datetime.now(UTC)),
    }
    await world.api.client.patch(LEASES, name, "kube-node-lease", {"spec": spec}, PatchType.MERGE)


async def test_a_name_that_another_process_runs_is_refused(world: World) -> None:
    await world.start(lease_s=0.3)
    pod = await world.run("p", python(WAIT))
    await world.api.until_ready("p")
    config = NodeConfig(world.name, world.folder / "b", scheduler_names=(), lease_s=0.3)
    with pytest.raises(NameTakenError, match=f"its Lease is renewed by {world.name}_"):
        async with running(Node(world.api.client, config)):
            pass
    node = await world.api.client.get(NODES, world.name)
    assert condition(node, "Ready")["status"] == "True"
    after = await world.api.get(PODS, "p")
    assert is_ready(after)
    assert uid_of(after) == uid_of(pod)
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0

    # It is free when the process has ended in order.
    await world.stop()
    async with asyncio.timeout(5):
        async with running(Node(world.api.client, config)):
            pass


async def test_a_name_is_had_again_after_a_crash(world: World) -> None:
    await world.start(lease_s=20)
    lease = await world.api.client.get(LEASES, world.name, "kube-node-lease")
    left = lease["spec"]["holderIdentity"]
    await world.stop()

    # On its directory at once, since no other process can have the identity.
    await renew(world, world.name, left, 40)
    async with asyncio.timeout(5):
        await world.start(lease_s=20)
    await world.stop()

    # Elsewhere when the Lease has run out.
    await renew(world, world.name, f"{world.name}_gone", 2)
    began = time.monotonic()
    config = NodeConfig(world.name, world.folder / "b", scheduler_names=(), lease_s=20)
    async with asyncio.timeout(10), running(Node(world.api.client, config)):
        assert time.monotonic() - began > 1
        again = await world.api.client.get(LEASES, world.name, "kube-node-lease")
    assert again["spec"]["holderIdentity"] not in {left, f"{world.name}_gone"}


async def test_a_node_whose_name_is_taken_ends(world: World) -> None:
    config = NodeConfig(gone_node(), world.folder / "b", scheduler_names=(), lease_s=0.1)
    other = Node(world.api.client, config)
    running_there = asyncio.create_task(other.run())
    await other.ready.wait()
    # As when this process was suspended, and its Lease has run out.
    await renew(world, config.name, "other_id", 40)
    async with asyncio.timeout(10):
        with pytest.raises(NameTakenError, match="renewed by other_id"):
            await running_there
    node = await world.api.client.get(NODES, config.name)
    assert condition(node, "Ready")["status"] == "True", "as the other has it"


async def test_events_name_the_node(world: World) -> None:
    await world.run("p", python(WAIT))
    await world.api.until_ready("p")
    await world.api.until_event("p", "Started")
    events = [e for e in await world.api.raw_events() if e["involvedObject"]["name"] == "p"]
    assert {e["reason"] for e in events} >= {"Scheduled", "Started"}
    for event in events:
        assert event["source"] == {"component": "kthena-node", "host": world.name}
        assert event["reportingInstance"] == world.name
