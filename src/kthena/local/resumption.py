"""What a cluster says of the objects that an earlier run of it has left, before anything runs.

Their statuses are of that run: pods seem ready whose processes are gone, and what is made of them
seems ready too. Until a node and controllers of this run have looked at them, nobody may take that
for the truth: pods are not ready, as those of a node that is lost, and no controller has observed
anything.
"""

from datetime import datetime
from typing import Any, Final

from kthena.api.kubernetes import DEPLOYMENTS, PODS, REPLICA_SETS
from kthena.api.registry import KINDS
from kthena.kube.client import KubeClient, PatchType
from kthena.local.node.podstatus import not_running_status
from kthena.machinery.objects import Object, name_of, namespace_of
from kthena.machinery.resources import Resource

_OBSERVED: Final = (*KINDS, DEPLOYMENTS, REPLICA_SETS)
_OVER: Final = ("Succeeded", "Failed")


async def disown_statuses(client: KubeClient, node: str, now: datetime) -> None:
    """Withdraw what the statuses of all objects say, for the pods of one node.

    Raises:
        ApiError: the API server refuses.
    """
    for pod in (await client.list(PODS)).items:
        status = pod.get("status") or {}
        if (pod.get("spec") or {}).get("nodeName") == node and status.get("phase") not in _OVER:
            lost = not_running_status(pod, "NodeStopped", f"node {node} has stopped", now)
            await _write(client, PODS, pod, lost)
    for resource in _OBSERVED:
        for obj in (await client.list(resource)).items:
            if (obj.get("status") or {}).get("observedGeneration"):
                await _write(client, resource, obj, {"observedGeneration": 0})


async def _write(
    client: KubeClient, resource: Resource, obj: Object, status: dict[str, Any]
) -> None:
    await client.patch(
        resource,
        name_of(obj),
        namespace_of(obj),
        {"status": status},
        PatchType.MERGE,
        subresource="status",
    )
