"""A cluster on this machine: the API server, a node, the controllers and a router, in one process.

The same controllers run here as on Kubernetes, against the embedded API server, over a socket. What
a cluster has beside them is here too: a node that runs pods as processes, Deployments, and a
scheduler called `volcano`, which the node stands in for.

`async with LocalCluster(config) as cluster:` starts everything; leaving it stops everything, and no
process of a pod is left.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from kthena.api.crd.published import published_crds
from kthena.api.kubernetes import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
)
from kthena.kube.client import ClientConfig, KubeClient
from kthena.kube.clock import SystemClock
from kthena.kube.errors import AlreadyExists, ApiError
from kthena.kube.informer import Informer, InformerConfig, drop_managed_fields
from kthena.kube.program import Parts, Program
from kthena.kube.readiness import ComponentState
from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.server import ApiServer
from kthena.local.deployments import Informers as DeploymentInformers
from kthena.local.deployments import deployment_runners
from kthena.local.node.claims import claim_directory
from kthena.local.node.config import NodeConfig
from kthena.local.node.images import Entry
from kthena.local.node.node import Node
from kthena.local.podgroups import pod_group_crd
from kthena.local.resumption import disown_statuses, forget_interruptions
from kthena.machinery.objects import Object, metadata_of, name_of
from kthena.networking.program import NetworkingProgram
from kthena.router.app import Router
from kthena.router.config import AccessLogConfig, RouterConfig
from kthena.telemetry.logging import get_logger
from kthena.telemetry.metrics import Metrics
from kthena.workload.program import WorkloadConfig, WorkloadProgram

log = get_logger("local.cluster")

NODE_NAME: Final = "kthena-local"
_STOP_S: Final = 15.0
_LEASE_S: Final = 10.0
"""Nobody watches over the node, but no other process may run one of its name beside it."""


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """How a local cluster runs.

    Everything that it keeps lies in `data_dir`; objects of the API are in it as well when it
    `keeps_objects`, and the next cluster on the directory goes on with them. Port 0 means any free one. `image_map` are the
    user's entries; `time_scale` shortens the delays of manifests (10: ten times as short).
    """

    data_dir: Path
    router_host: str = "127.0.0.1"
    router_port: int = 8080
    api_port: int = 0
    keeps_objects: bool = False
    image_map: tuple[Entry, ...] = ()
    time_scale: float = 1.0
    access_log: bool = False


class ListenError(Exception):
    """The router's address cannot be bound; the message names it and says why."""


class LocalCluster:
    """The parts of one cluster, from `__aenter__` to `__aexit__`.

    Mutable state: the stack of what has been started, and the tasks that run it by name.
    """

    def __init__(self, config: LocalConfig) -> None:
        self.config = config
        self.kubeconfig = config.data_dir / "kubeconfig"
        self.router_url = ""
        self._clock = SystemClock()
        self._stack = AsyncExitStack()
        self._api: ApiServer | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._networking: NetworkingProgram | None = None
        self._workload: WorkloadProgram | None = None

    @property
    def api_url(self) -> str:
        """The API server's address; empty before the start."""
        return self._api.url if self._api is not None else ""

    async def __aenter__(self) -> Self:
        """Start every part; requests are answered from here on.

        Raises:
            ListenError: the router's port is taken.
            ClaimError: another cluster uses the data directory.
            StorageError: the objects in the data directory cannot be read or kept.
            OSError: the data directory cannot be used.
        """
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop every part, last first."""
        await self._stack.aclose()

    def readiness(self) -> Sequence[ComponentState]:
        """What is ready and what is not, and why."""
        states: list[ComponentState] = []
        if self._workload is not None:
            states += self._workload.readiness()
        if self._networking is not None:
            states += self._networking.readiness()
        return states

    async def wait_failed(self) -> None:
        """Wait until a part ends by itself, which none does in good order, and raise its error."""
        await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        name, task = next(each for each in self._tasks.items() if each[1].done())
        await task
        raise RuntimeError(f"{name} has ended by itself")

    async def _start(self, stack: AsyncExitStack) -> None:
        # Before anything is written: what is there may be what another cluster runs on.
        stack.enter_context(claim_directory(self.config.data_dir))
        api = await stack.enter_async_context(self._running_api())
        self.kubeconfig.unlink(missing_ok=True)
        draft = self.kubeconfig.with_name(f"{self.kubeconfig.name}.new")
        _write_secret(draft, api.kubeconfig())
        await self._prepare_objects(draft)
        # From here on others can call: what the last run has left must not be true any more.
        draft.replace(self.kubeconfig)
        await stack.enter_async_context(self._running_node(api))
        await stack.enter_async_context(self._running_controllers())
        await stack.enter_async_context(self._running_router())

    @asynccontextmanager
    async def _running_api(self) -> AsyncIterator[ApiServer]:
        objects = self.config.data_dir / "apiserver" if self.config.keeps_objects else None
        api = self._api = ApiServer(ApiServerConfig(port=self.config.api_port, data_dir=objects))
        try:
            await api.start()
            self._tasks["API server"] = asyncio.create_task(api.wait_failed())
            yield api
        except ApiError as exc:
            # Its clients learn of a failure first, and know less of it.
            raise (api.failure or exc) from exc
        finally:
            if (watched := self._tasks.pop("API server", None)) is not None:
                watched.cancel()
                await asyncio.wait([watched])
            await api.stop()

    @asynccontextmanager
    async def _client(
        self, manager: str, kubeconfig: Path | None = None
    ) -> AsyncIterator[KubeClient]:
        config = ClientConfig(
            kubeconfig=kubeconfig or self.kubeconfig, field_manager=manager, user_agent=manager
        )
        async with KubeClient.connect(config) as client:
            yield client

    async def _prepare_objects(self, kubeconfig: Path) -> None:
        """Install the CRDs of this release, also over those that an earlier one has left.

        Statuses of an earlier run are no longer true.
        """
        async with self._client("kthena-local", kubeconfig) as client:
            for crd in (*published_crds(), pod_group_crd()):
                try:
                    await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
                except AlreadyExists:
                    found = await client.get(CUSTOM_RESOURCE_DEFINITIONS, name_of(crd))
                    await client.update(CUSTOM_RESOURCE_DEFINITIONS, _replaced(found, crd))
            if self.config.keeps_objects:
                await disown_statuses(client, NODE_NAME, self._clock.now())

    @asynccontextmanager
    async def _running_node(self, api: ApiServer) -> AsyncIterator[None]:
        async with self._client("kthena-node") as client:
            node = Node(
                client,
                NodeConfig(
                    name=NODE_NAME,
                    data_dir=self.config.data_dir / "node",
                    image_map=self.config.image_map,
                    time_scale=self.config.time_scale,
                    lease_s=_LEASE_S,
                ),
                self._clock,
            )
            api.register_log_source(NODE_NAME, node)
            async with self._running("node", node.run, node.stop) as task:
                await _wait_or_fail(node.ready, task)
                yield

    @asynccontextmanager
    async def _running(
        self, name: str, run: Callable[[], Coroutine[Any, Any, None]], stop: Callable[[], None]
    ) -> AsyncIterator["asyncio.Task[None]"]:
        """Run a part in a task until the end of the block, and stop it there in order."""
        task = self._tasks[name] = asyncio.create_task(run(), name=name)
        try:
            yield task
        finally:
            stop()
            done, _ = await asyncio.wait([task], timeout=_STOP_S)
            if not done:
                log.warning("part did not stop in time", part=name)
                task.cancel()
                await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("part has failed", part=name, error=error)

    @asynccontextmanager
    async def _running_controllers(self) -> AsyncIterator[None]:
        async with (
            self._client("kthena-controller-manager") as client,
            self._client("kthena-deployments") as other,
        ):
            config = WorkloadConfig(see_pod=forget_interruptions)
            self._workload = WorkloadProgram(client, config, self._clock)
            deployments = _deployments(other, self._clock)
            async with (
                self._running("workload", self._workload.run, self._workload.stop),
                self._running("deployments", deployments.run, deployments.stop),
            ):
                yield

    @asynccontextmanager
    async def _running_router(self) -> AsyncIterator[None]:
        metrics = Metrics("kthena_router_")
        access_log = AccessLogConfig(enabled=self.config.access_log, output="stderr")
        config = RouterConfig(access_log=access_log, expose_metrics=True)
        router = Router(config, self._clock, Random(), metrics)  # noqa: S311 - no secret
        async with self._client("kthena-router") as client:
            self._networking = NetworkingProgram(client, router.swap, clock=self._clock)
            router.readiness.show(self._networking.readiness)
            host = self.config.router_host
            try:
                port = await router.serve(host, self.config.router_port)
            except OSError as exc:
                where = f"{host}:{self.config.router_port}"
                reason = os.strerror(exc.errno) if exc.errno else str(exc)
                raise ListenError(f"the router cannot listen on {where}: {reason}") from exc
            self.router_url = f"http://{host}:{port}"
            try:
                async with self._running("networking", self._networking.run, self._networking.stop):
                    yield
            finally:
                await router.close(0)


def _write_secret(path: Path, content: Object) -> None:
    """Write a file that nobody else may read, not even for a moment."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file, indent=2)


def _replaced(found: Object, crd: Object) -> Object:
    """What is there, with the spec and the annotations of this release."""
    meta = metadata_of(found)
    annotations = {**(meta.get("annotations") or {}), **(metadata_of(crd).get("annotations") or {})}
    return {**found, "metadata": {**meta, "annotations": annotations}, "spec": crd["spec"]}


def _deployments(client: KubeClient, clock: SystemClock) -> Program:
    config = InformerConfig(transform=drop_managed_fields)
    informers = DeploymentInformers(
        *(Informer(client, each, config, clock) for each in (DEPLOYMENTS, REPLICA_SETS, PODS))
    )
    runners = deployment_runners(client, informers, clock)
    every = (informers.deployments, informers.replica_sets, informers.pods)
    return Program(Parts(informers=every, controllers=runners), clock)


async def _wait_or_fail(event: asyncio.Event, task: "asyncio.Task[None]") -> None:
    """Wait for the event, or raise what ended the task that should set it."""
    waiter = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([waiter, task], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
    finally:
        waiter.cancel()
