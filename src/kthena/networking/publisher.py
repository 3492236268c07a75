"""Keeps the router equal to the cluster: informers feed the view, the view feeds the router.

Pods are watched only in namespaces that have a ModelServer; their informers come and go with it, and
keep only what decides whether requests may be sent to a pod. Changes that come together are
published together, a moment later.

Nothing is published before everything that exists has been listed once: a router that starts knows
all of its routes with the first table. A kind whose CRD is absent, or which may not be listed, counts
as known to be empty.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kthena.api.kubernetes import PODS
from kthena.api.registry import EXTERNAL_MODEL_PROVIDERS, MODEL_ROUTES, MODEL_SERVERS
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock
from kthena.kube.informer import (
    Change,
    Informer,
    InformerConfig,
    InformerState,
    drop_managed_fields,
)
from kthena.kube.metrics import KubeMetrics
from kthena.kube.readiness import ComponentState
from kthena.machinery.objects import NamespacedName, Object, key_of, metadata_of
from kthena.machinery.resources import Resource
from kthena.networking.view import NetworkView
from kthena.router.routes.spec import Backend
from kthena.router.routes.table import RouteTable
from kthena.telemetry.logging import get_logger

log = get_logger("networking.publisher")

Swap = Callable[[RouteTable, Iterable[Backend]], None]
Stale = Callable[[NamespacedName], None]

_GATHER_S: Final = 0.01
"""How long changes are gathered before they are published."""

_POD_PAGE: Final = 200
"""Pods per page of a list: decoding a larger one would hold up requests."""

NAME: Final = "route-table"
"""The publisher's name in logs and readiness."""


@dataclass(frozen=True, slots=True)
class NetworkInformers:
    """One informer for each networking kind; the caller runs them."""

    routes: Informer
    servers: Informer
    providers: Informer

    @classmethod
    def create(
        cls, client: KubeClient, clock: Clock, metrics: KubeMetrics | None = None
    ) -> "NetworkInformers":
        """The informers for all namespaces."""

        def informer(resource: Resource) -> Informer:
            config = InformerConfig(transform=drop_managed_fields)
            return Informer(client, resource, config, clock, metrics=metrics)

        return cls(
            informer(MODEL_ROUTES), informer(MODEL_SERVERS), informer(EXTERNAL_MODEL_PROVIDERS)
        )

    @property
    def all(self) -> tuple[Informer, ...]:
        """All of them."""
        return self.routes, self.servers, self.providers


@dataclass(slots=True)
class _PodWatch:
    informer: Informer
    task: "asyncio.Task[None]"


class Publisher:
    """Runs the view.

    Mutable state: the pod informers by namespace; whether something is to be looked at, whether the
    router is still due what was found there, and whether it has had its first table.
    """

    def __init__(
        self,
        client: KubeClient,
        informers: NetworkInformers,
        swap: Swap,
        clock: Clock,
        metrics: KubeMetrics | None = None,
    ) -> None:
        self.view = NetworkView()
        self.on_stale_route: Stale = _ignore
        self.on_stale_server: Stale = _ignore
        self._client = client
        self._informers = informers
        self._swap = swap
        self._clock = clock
        self._metrics = metrics
        self._watches: dict[str, _PodWatch] = {}
        self._dirty = asyncio.Event()
        self._due = True
        self._published = False
        informers.routes.add_handler(self._route_changed)
        informers.servers.add_handler(self._server_changed)
        for informer in informers.all:
            informer.add_state_handler(self._dirty.set)

    async def run(self) -> None:
        """Publish what changes, until cancelled. It may be run again after it has failed."""
        self._dirty.set()
        async with asyncio.TaskGroup() as group:
            for watch in self._watches.values():
                watch.task = group.create_task(watch.informer.run(), name=watch.informer.name)
            try:
                while True:
                    await self._dirty.wait()
                    await self._clock.sleep(_GATHER_S)
                    self._dirty.clear()
                    self._follow_namespaces(group)
                    if self._settled():
                        self._publish()
            finally:
                for watch in self._watches.values():
                    watch.task.cancel()

    def readiness(self) -> ComponentState:
        """Ready once a table has been published. The detail says what it does without, and why."""
        informers = self._all_informers()
        waiting = [informer.name for informer in informers if not _known(informer)]
        detail = "published" if self._published else f"waits for {', '.join(waiting)}"
        troubles = [each.reason for each in informers if each.reason and _known(each)]
        return ComponentState(NAME, self._published, "; ".join([detail, *troubles]))

    def _publish(self) -> None:
        publication = self.view.publish()
        for key in publication.stale_routes:
            self.on_stale_route(key)
        for key in publication.stale_servers:
            self.on_stale_server(key)
        self._due |= publication.changed
        if self._due:
            self._swap(publication.table, publication.backends)
            self._due = False
        if not self._published:
            self._published = True
            log.info("route table published", backends=len(publication.backends))

    def _settled(self) -> bool:
        """Whether everything that exists is known; for good once it was."""
        return self._published or all(map(_known, self._all_informers()))

    def _all_informers(self) -> list[Informer]:
        pods = [watch.informer for watch in self._watches.values()]
        return [self._informers.routes, self._informers.servers, *pods]

    # Objects in

    def _route_changed(self, change: Change) -> None:
        if change.new is None:
            self.view.remove_route(change.key)
        else:
            self.view.put_route(change.new)
        self._dirty.set()

    def _server_changed(self, change: Change) -> None:
        if change.new is None:
            self.view.remove_server(change.key)
        else:
            self.view.put_server(change.new)
        self._dirty.set()

    def _pod_changed(self, change: Change) -> None:
        if change.new is None:
            self.view.remove_pod(change.key)
        else:
            self.view.put_pod(change.new)
        self._dirty.set()

    # Namespaces

    def _follow_namespaces(self, group: asyncio.TaskGroup) -> None:
        """Start and end pod informers so that there is one for each namespace with a server."""
        wanted = self.view.namespaces
        for namespace in wanted - self._watches.keys():
            informer = self._pod_informer(namespace)
            task = group.create_task(informer.run(), name=informer.name)
            self._watches[namespace] = _PodWatch(informer, task)
        for namespace in self._watches.keys() - wanted:
            watch = self._watches.pop(namespace)
            watch.task.cancel()
            for pod in watch.informer.store:
                self.view.remove_pod(key_of(pod))

    def _pod_informer(self, namespace: str) -> Informer:
        config = InformerConfig(namespace=namespace, page_size=_POD_PAGE, transform=trim_pod)
        informer = Informer(self._client, PODS, config, self._clock, metrics=self._metrics)
        informer.add_handler(self._pod_changed)
        informer.add_state_handler(self._dirty.set)
        return informer


def _known(informer: Informer) -> bool:
    return informer.synced.is_set() or informer.state in (
        InformerState.ABSENT,
        InformerState.FORBIDDEN,
    )


def _ignore(key: NamespacedName) -> None:
    del key


_POD_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "deletionTimestamp",
    "labels",
)


def trim_pod(pod: Object) -> Object:
    """The pod without everything that routing does not ask about."""
    metadata, status = metadata_of(pod), pod.get("status") or {}
    ready = [c for c in status.get("conditions") or () if c.get("type") == "Ready"]
    return {
        "metadata": {name: metadata[name] for name in _POD_METADATA if name in metadata},
        "status": {
            "phase": status.get("phase"),
            "podIP": status.get("podIP"),
            "conditions": [{"type": "Ready", "status": c.get("status")} for c in ready],
        },
    }
