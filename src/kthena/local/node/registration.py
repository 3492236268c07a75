"""The Node object: what the node says of itself to the API server.

It is there so that pods can be bound and `kubectl get nodes` is right. Capacity is the machine's;
it is shown and not enforced.
"""

import contextlib
import os
import platform
from datetime import datetime
from typing import Any

from kthena import __version__
from kthena.api.kubernetes import LEASES, NODES
from kthena.kube.client import KubeClient
from kthena.kube.errors import AlreadyExists, Conflict, NotFound
from kthena.machinery.conditions import Condition, format_micro_time, format_time, set_condition
from kthena.machinery.objects import Object

LEASE_NAMESPACE = "kube-node-lease"
_ATTEMPTS = 5


def capacity() -> dict[str, str]:
    """Processors, memory and pods of this machine, as Kubernetes quantities."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": str(os.cpu_count() or 1), "memory": f"{memory // 1024}Ki", "pods": "1000"}


def node_status(name: str, address: str, old: Object, now: datetime, limit: str) -> dict[str, Any]:
    """The status of a node that is ready; `limit` is what this host cannot give to pods."""
    message = "the local node is ready" + (f"; {limit}" if limit else "")
    conditions = old.get("conditions") or []
    conditions = set_condition(conditions, Condition("Ready", "True", "NodeReady", message), now)
    conditions = [{**entry, "lastHeartbeatTime": format_time(now)} for entry in conditions]
    amounts = capacity()
    return {
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": name},
        ],
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": conditions,
        "nodeInfo": {
            "architecture": platform.machine(),
            "bootID": "",
            "containerRuntimeVersion": f"kthena-process://{__version__}",
            "kernelVersion": platform.release(),
            "kubeProxyVersion": "",
            "kubeletVersion": f"v{__version__}",
            "machineID": "",
            "operatingSystem": "linux",
            "osImage": platform.platform(),
            "systemUUID": "",
        },
    }


async def register(client: KubeClient, name: str, address: str, now: datetime, limit: str) -> None:
    """Create the Node object where it does not exist, and say that it is ready.

    Raises:
        ApiError: the API server refuses or cannot be reached.
    """
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": platform.machine(),
    }
    node: Object = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
    }
    with contextlib.suppress(AlreadyExists):
        await client.create(NODES, node)
    await _update_status(client, name, lambda old: node_status(name, address, old, now, limit))


async def unregister(client: KubeClient, name: str, now: datetime) -> None:
    """Say that the node is not ready any more.

    Raises:
        ApiError: the API server refuses or cannot be reached.
    """
    gone = Condition("Ready", "False", "NodeStopped", "the local node was stopped")
    await _update_status(
        client,
        name,
        lambda old: {**old, "conditions": set_condition(old.get("conditions") or [], gone, now)},
    )


async def renew_lease(client: KubeClient, name: str, duration_s: float, now: datetime) -> None:
    """Renew the node's Lease, by which a control plane knows that it lives.

    Raises:
        ApiError: the API server refuses or cannot be reached.
    """
    spec = {
        "holderIdentity": name,
        "leaseDurationSeconds": max(int(duration_s * 4), 1),
        "renewTime": format_micro_time(now),
    }
    lease: Object = {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
        "spec": spec,
    }
    try:
        stored = await client.get(LEASES, name, LEASE_NAMESPACE)
    except NotFound:
        await client.create(LEASES, lease)
        return
    await client.update(LEASES, {**stored, "spec": {**(stored.get("spec") or {}), **spec}})


async def _update_status(client: KubeClient, name: str, change: Any) -> None:
    for attempt in range(_ATTEMPTS):
        node = await client.get(NODES, name)
        status = change(node.get("status") or {})
        try:
            await client.update(NODES, {**node, "status": status}, subresource="status")
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return
