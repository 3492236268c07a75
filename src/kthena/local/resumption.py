"""What a cluster makes of the objects that an earlier run of it has left.

Their statuses are of that run: pods seem ready whose processes are gone, and what is made of them
seems ready too. Until a node and controllers of this run have looked at them, nobody may take that
for the truth: neither node nor pods are ready, as those that are lost, and no controller has
observed anything.

The end of a run ends all containers together, and the next one starts them together. That is no
failure of a pod, and nothing is to be recovered: `forget_interruptions` is how the controllers of
such a cluster see pods.
"""

import contextlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from kthena.api.kubernetes import DEPLOYMENTS, PODS, REPLICA_SETS
from kthena.api.registry import KINDS
from kthena.kube.client import KubeClient, PatchType
from kthena.kube.errors import NotFound
from kthena.local.node.podstatus import is_unseen_end, not_running_status
from kthena.local.node.registration import unregister
from kthena.machinery.objects import Object, name_of, namespace_of
from kthena.machinery.resources import Resource

_OBSERVED: Final = (*KINDS, DEPLOYMENTS, REPLICA_SETS)
_OVER: Final = ("Succeeded", "Failed")
_FRESH: Final[Mapping[str, Any]] = {"restartCount": 0, "lastState": {}}
_CONTAINERS: Final = ("initContainerStatuses", "containerStatuses")


async def disown_statuses(client: KubeClient, node: str, now: datetime) -> None:
    """Withdraw what the statuses of all objects say, for one node and its pods.

    Raises:
        ApiError: the API server refuses.
    """
    with contextlib.suppress(NotFound):
        await unregister(client, node, now)
    for pod in (await client.list(PODS)).items:
        status = pod.get("status") or {}
        if (pod.get("spec") or {}).get("nodeName") == node and status.get("phase") not in _OVER:
            lost = not_running_status(pod, "NodeStopped", f"node {node} has stopped", now)
            await _write(client, PODS, pod, lost)
    for resource in _OBSERVED:
        for obj in (await client.list(resource)).items:
            if (obj.get("status") or {}).get("observedGeneration"):
                await _write(client, resource, obj, {"observedGeneration": 0})


def forget_interruptions(pod: Object) -> Object:
    """The pod without restarts that followed only on the end of a run of its node. Pure.

    A container counts as not restarted while nothing is known of how its last run ended. One that
    ends by itself leaves an end that is known, and all of its restarts count.
    """
    status = pod.get("status") or {}
    seen = {
        name: [{**entry, **_FRESH} if _was_interrupted(entry) else entry for entry in entries]
        for name in _CONTAINERS
        if (entries := status.get(name)) and any(map(_was_interrupted, entries))
    }
    return {**pod, "status": {**status, **seen}} if seen else pod


def _was_interrupted(container: Mapping[str, Any]) -> bool:
    ended = "terminated" in (container.get("state") or {})
    last = (container.get("lastState") or {}).get("terminated")
    return bool(container.get("restartCount")) and not ended and (not last or is_unseen_end(last))


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
