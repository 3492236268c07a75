"""The Node object: what the node says of itself to the API server.

It is there so that pods can be bound and `kubectl get nodes` is right. Capacity is the machine's;
it is shown and not enforced.
"""

import contextlib
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kthena import __version__
from kthena.api.kubernetes import LEASES, NODES
from kthena.kube.client import KubeClient
from kthena.kube.errors import AlreadyExists, Conflict, NotFound
from kthena.machinery.conditions import (
    Condition,
    format_micro_time,
    format_time,
    parse_time,
    set_condition,
)
from kthena.machinery.objects import Object, name_of, uid_of

LEASE_NAMESPACE = "kube-node-lease"
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Machine:
    """What a node says of where its pods run; `limit` is what this host cannot give to them."""

    address: str
    limit: str = ""


def capacity() -> dict[str, str]:
    """Processors, memory and pods of this machine, as Kubernetes quantities."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": str(os.cpu_count() or 1), "memory": f"{memory // 1024}Ki", "pods": "1000"}


def node_status(name: str, machine: Machine, old: Object, now: datetime) -> dict[str, Any]:
    """The status of a node that is ready."""
    message = "the local node is ready" + (f"; {machine.limit}" if machine.limit else "")
    conditions = old.get("conditions") or []
    conditions = set_condition(conditions, Condition("Ready", "True", "NodeReady", message), now)
    conditions = [{**entry, "lastHeartbeatTime": format_time(now)} for entry in conditions]
    amounts = capacity()
    return {
        "addresses": [
            {"type": "InternalIP", "address": machine.address},
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


async def register(
    client: KubeClient,
    name: str,
    machine: Machine,
    now: datetime,
    labels: Mapping[str, str] | None = None,
) -> Object:
    """Create the Node object where it does not exist, and say that it is ready; the object.

    `labels` are further ones of a new object.

    Raises:
        ApiError: the API server refuses or cannot be reached.
    """
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": platform.machine(),
        **(labels or {}),
    }
    node: Object = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
    }
    with contextlib.suppress(AlreadyExists):
        await client.create(NODES, node)
    return await _update_status(client, name, lambda old: node_status(name, machine, old, now))


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


class LeaseHeldError(RuntimeError):
    """Another process renews the Lease of a node; the message names the holder."""


async def read_lease(client: KubeClient, name: str) -> Object:
    """The spec of a node's Lease; empty where there is none.

    Raises:
        ApiError: the API server refuses or cannot be reached.
    """
    try:
        return (await client.get(LEASES, name, LEASE_NAMESPACE)).get("spec") or {}
    except NotFound:
        return {}


def holder_of(spec: Object, now: datetime) -> str:
    """Who keeps a Lease renewed; empty when nobody does."""
    with contextlib.suppress(ValueError):
        duration = timedelta(seconds=int(spec.get("leaseDurationSeconds") or 0))
        if now < parse_time(spec.get("renewTime")) + duration:
            return str(spec.get("holderIdentity") or "")
    return ""


async def renew_lease(
    client: KubeClient, node: Object, holder: str, duration_s: float, now: datetime
) -> None:
    """Renew the Lease of a Node, by which a control plane knows that it lives.

    The Lease is the Node's, and goes with it.

    Raises:
        LeaseHeldError: another holder renews it.
        ApiError: the API server refuses or cannot be reached; also when another was faster.
    """
    name = name_of(node)
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid_of(node)}
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": max(int(duration_s * 4), 1),
        "renewTime": format_micro_time(now),
    }
    lease: Object = {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": spec,
    }
    try:
        stored = await client.get(LEASES, name, LEASE_NAMESPACE)
    except NotFound:
        await client.create(LEASES, lease)
        return
    old = stored.get("spec") or {}
    if (other := holder_of(old, now)) not in {"", holder}:
        raise LeaseHeldError(other)
    await client.update(LEASES, {**stored, "spec": {**old, **spec}})


async def release_lease(client: KubeClient, name: str, holder: str, now: datetime) -> None:
    """Let others have the Lease at once, if it is the holder's.

    Raises:
        ApiError: the API server refuses or cannot be reached.
    """
    with contextlib.suppress(NotFound):
        stored = await client.get(LEASES, name, LEASE_NAMESPACE)
        old = stored.get("spec") or {}
        if old.get("holderIdentity") == holder:
            free = {
                "holderIdentity": "",
                "leaseDurationSeconds": 1,
                "renewTime": format_micro_time(now),
            }
            await client.update(LEASES, {**stored, "spec": {**old, **free}})


async def _update_status(client: KubeClient, name: str, change: Any) -> Object:
    for attempt in range(1, _ATTEMPTS + 1):
        node = await client.get(NODES, name)
        status = change(node.get("status") or {})
        try:
            return await client.update(NODES, {**node, "status": status}, subresource="status")
        except Conflict:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")
