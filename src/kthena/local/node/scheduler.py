"""Binds pods to this node: those of the schedulers that it stands for.

There is one node, so placement is no question: selectors, affinity, taints and resource requests
are not looked at (an event of the pod names what is ignored). A pod with scheduling gates waits.
Gang scheduling is not done.
"""

from collections.abc import Collection
from typing import Any

from kthena.api.kubernetes import PODS
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock
from kthena.kube.controller import ControllerRunner, Requeue, own_key
from kthena.kube.errors import AlreadyExists, Conflict, NotFound
from kthena.kube.events import EventRecorder
from kthena.kube.informer import Informer
from kthena.machinery.objects import NamespacedName, Object, is_terminating, uid_of

_NAME = "node-scheduler"
_WORKERS = 4


class Scheduler:
    """The controller that binds pods."""

    name = _NAME

    def __init__(
        self,
        client: KubeClient,
        pods: Informer,
        events: EventRecorder,
        node_name: str,
        scheduler_names: Collection[str],
    ) -> None:
        self._client = client
        self._pods = pods
        self._events = events
        self._node_name = node_name
        self._scheduler_names = frozenset(scheduler_names)

    def runner(self, clock: Clock) -> ControllerRunner:
        """The runner that feeds this controller from the pod informer."""
        runner = ControllerRunner(self, [self._pods], workers=_WORKERS, clock=clock)
        runner.enqueue_on(self._pods, own_key)
        return runner

    async def reconcile(self, key: NamespacedName) -> Requeue | None:
        """Bind the pod, if it waits for one of our schedulers."""
        pod = self._pods.store.get(key)
        if pod is None or not is_schedulable(pod, self._scheduler_names):
            return None
        try:
            await self._bind(pod, key)
        except (NotFound, Conflict, AlreadyExists):
            return None  # It is gone, or bound already; the informer will say so.
        message = f"Successfully assigned {key} to {self._node_name}"
        self._events.record(pod, "Normal", "Scheduled", message)
        return None

    async def _bind(self, pod: Object, key: NamespacedName) -> None:
        binding: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid_of(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self._node_name},
        }
        path = PODS.path(key.namespace, key.name, "binding")
        await self._client.raw("POST", path, body=binding)


def is_schedulable(pod: Object, scheduler_names: Collection[str]) -> bool:
    """Whether the pod waits to be bound by one of these schedulers."""
    spec = pod.get("spec") or {}
    return (
        not spec.get("nodeName")
        and not spec.get("schedulingGates")
        and not is_terminating(pod)
        and (spec.get("schedulerName") or "default-scheduler") in scheduler_names
    )
