"""Binds pods to this node: those of the schedulers that it stands for.

There is one node, so placement is no question: selectors, affinity, taints and resource requests
are not looked at (an event of the pod names what is ignored). A pod with scheduling gates waits, and
so does a pod whose gang is not complete, unless it is left to the default scheduler. Where PodGroups
cannot be read there are no gangs.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import timedelta
from typing import Any

from kthena.api.kubernetes import PODS
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock
from kthena.kube.controller import ControllerRunner, Requeue
from kthena.kube.errors import AlreadyExists, Conflict, NotFound
from kthena.kube.events import EventRecorder
from kthena.kube.informer import Change, Informer, InformerState
from kthena.local.node.config import NodeConfig
from kthena.local.node.gangs import find_lack, gang_of
from kthena.machinery.conditions import parse_time
from kthena.machinery.objects import (
    NamespacedName,
    Object,
    is_terminating,
    key_of,
    metadata_of,
    uid_of,
)

_NAME = "node-scheduler"
_WORKERS = 4
_GANG_INDEX = "gang"
_GANGLESS = (None, "", "default-scheduler")
"""The scheduler that does not read PodGroups."""

_UNKNOWN_S = 0.2
_PATIENCE = timedelta(seconds=2)
"""How old a pod is before an event says that it waits."""


class Scheduler:
    """The controller that binds pods."""

    name = _NAME

    def __init__(
        self,
        client: KubeClient,
        pods: Informer,
        pod_groups: Informer,
        events: EventRecorder,
        config: NodeConfig,
        clock: Clock,
    ) -> None:
        self._client = client
        self._pods = pods
        self._pod_groups = pod_groups
        self._events = events
        self._node_name = config.name
        self._scheduler_names = frozenset(config.scheduler_names)
        self._clock = clock

    def runner(self) -> ControllerRunner:
        """The runner that feeds this controller from the informers. Call once, before they run."""
        self._pods.store.add_index(
            _GANG_INDEX, lambda pod: [gang] if (gang := gang_of(pod)) else []
        )
        runner = ControllerRunner(self, [self._pods], workers=_WORKERS, clock=self._clock)
        runner.enqueue_on(self._pods, self._keys_of_pod)
        runner.enqueue_on(self._pod_groups, lambda change: self._waiting_in(str(change.key)))

        def enqueue_gangs() -> None:
            for pod in self._pods.store:
                if gang_of(pod) and is_schedulable(pod, self._scheduler_names):
                    runner.queue.add(key_of(pod))

        self._pod_groups.add_state_handler(enqueue_gangs)
        return runner

    async def reconcile(self, key: NamespacedName) -> Requeue | None:
        """Bind the pod, if it waits for one of our schedulers."""
        pod = self._pods.store.get(key)
        if pod is None or not is_schedulable(pod, self._scheduler_names):
            return None
        if gang_of(pod) and self._pod_groups.state is InformerState.STARTING:
            return Requeue(_UNKNOWN_S)
        lack = self._find_lack(pod)
        if lack:
            return self._tell(pod, lack)
        try:
            await self._bind(pod, key)
        except (NotFound, Conflict, AlreadyExists):
            return None  # It is gone, or bound already; the informer will say so.
        message = f"Successfully assigned {key} to {self._node_name}"
        self._events.record(pod, "Normal", "Scheduled", message)
        return None

    def _tell(self, pod: Object, lack: str) -> Requeue | None:
        """Say what the pod waits for, unless its siblings may just be coming."""
        created = parse_time(metadata_of(pod)["creationTimestamp"])
        if self._clock.now() - created < _PATIENCE:
            return Requeue(_PATIENCE.total_seconds())
        self._events.record(pod, "Warning", "FailedScheduling", lack)
        return None

    def _find_lack(self, pod: Object) -> str:
        """What the gang of the pod lacks; empty where it is of none, or nothing is known of gangs."""
        gang = gang_of(pod)
        scheduler = (pod.get("spec") or {}).get("schedulerName")
        if not gang or scheduler in _GANGLESS or not self._pod_groups.synced.is_set():
            return ""
        namespace, _, name = gang.partition("/")
        pod_group = self._pod_groups.store.get(NamespacedName(namespace, name))
        if pod_group is None:
            return f"PodGroup {name} does not exist"
        return find_lack(pod_group, self._pods.store.by_index(_GANG_INDEX, gang))

    def _keys_of_pod(self, change: Change) -> Iterable[NamespacedName]:
        """The pod, and when it is new those that may have waited for it."""
        gang = gang_of(change.object)
        joins = change.old is None or gang_of(change.old) != gang
        return {change.key, *(self._waiting_in(gang) if joins else ())}

    def _waiting_in(self, gang: str) -> Iterator[NamespacedName]:
        for pod in self._pods.store.by_index(_GANG_INDEX, gang):
            if is_schedulable(pod, self._scheduler_names):
                yield key_of(pod)

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
