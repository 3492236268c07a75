"""A running ModelServing controller against an API server, real or embedded, and a stand-in kubelet.

The controller has a client of its own, whose requests are recorded and can be made to suffer, so
that a test sees exactly what the controller wrote.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kthena.api.kubernetes import CONTROLLER_REVISIONS, EVENTS, PODS, SERVICES
from kthena.api.registry import MODEL_SERVINGS
from kthena.api.workload.names import EVENT_SOURCE, LABEL_NAME
from kthena.kube.client import (
    ClientConfig,
    DeleteParams,
    KubeClient,
    PatchType,
    Reply,
    Request,
    Transport,
)
from kthena.kube.errors import Conflict, NotFound
from kthena.kube.events import EventRecorder
from kthena.machinery.objects import Object, is_terminating, name_of, uid_of
from kthena.machinery.resources import Resource
from kthena.workload.controller import ModelServingController
from kthena.workload.informers import WorkloadInformers
from kthena.workload.planner.observed import Capabilities
from support.workload_world import is_ready, running_status

_WAIT_S = 60.0
_WRITES = ("POST", "PUT", "PATCH", "DELETE")


class KilledError(BaseException):
    """The controller's process ends: nothing of it runs any further."""


@dataclass
class Recorder:
    """A transport that records what passes, and ends the controller before a chosen write."""

    inner: Transport
    requests: list[Request] = field(default_factory=list)
    writes_left: int | None = None
    killed: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, request: Request) -> Reply:
        if self.killed.is_set():
            await asyncio.Event().wait()
        if request.method in _WRITES and self.writes_left is not None:
            if self.writes_left == 0:
                self.killed.set()
                await asyncio.Event().wait()
            self.writes_left -= 1
        self.requests.append(request)
        return await self.inner.send(request)

    async def aclose(self) -> None:
        await self.inner.aclose()

    def writes(self) -> list[str]:
        """The writes so far but events, as `METHOD /path`."""
        return [
            str(request)
            for request in self.requests
            if request.method in _WRITES and "/events" not in request.target
        ]


class Bench:
    """One namespace of a server with, or without, a running controller.

    Mutable state: the admin's client, and the controller's tasks with its recorder.
    """

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self.admin = KubeClient.connect(ClientConfig(kubeconfig=kubeconfig))
        self.recorder: Recorder | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._client: KubeClient | None = None

    # The controller.

    async def start(
        self,
        *,
        writes: int | None = None,
        capabilities: Capabilities | None = None,
        transport: Transport | None = None,
    ) -> Recorder:
        """Start a controller; with `writes`, it is killed before the write after so many.

        It speaks to the server directly, or through a transport of the test's that is impatient.
        """
        if transport is None:
            client = KubeClient.connect(ClientConfig(kubeconfig=self.kubeconfig, qps=0))
        else:
            client = KubeClient(transport, ClientConfig(qps=0, request_timeout_s=1.0))
        self.recorder = Recorder(client._transport, writes_left=writes)
        client._transport = self.recorder
        self._client = client
        informers = WorkloadInformers.create(client, namespace=self.namespace)
        events = EventRecorder(client, EVENT_SOURCE)
        offered = capabilities or Capabilities(volcano=True)
        controller = ModelServingController(client, informers, events, capabilities=lambda: offered)
        runner = controller.build_runner()
        runs = [*(informer.run for informer in informers.required), events.run, runner.run]
        self._tasks = [asyncio.create_task(run()) for run in runs]
        return self.recorder

    async def kill(self) -> None:
        """End the controller at once, wherever it is."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._client is not None:
            await self._client.close()
            self._client = None

    # Users.

    async def apply(self, modelserving: Object) -> Object:
        return await self.admin.create(
            MODEL_SERVINGS,
            {**modelserving, "metadata": {**modelserving["metadata"], "namespace": self.namespace}},
        )

    async def edit(self, name: str, change: Callable[[dict[str, Any]], None]) -> Object:
        """Change the spec, trying again when somebody else was faster."""
        obj = await self.admin.get(MODEL_SERVINGS, name, self.namespace)
        change(obj["spec"])
        patch = {"spec": obj["spec"]}
        return await self.admin.patch(MODEL_SERVINGS, name, self.namespace, patch, PatchType.MERGE)

    async def scale(self, name: str, replicas: int) -> None:
        """Through the scale subresource."""
        body = {"spec": {"replicas": replicas}}
        await self.admin.patch(
            MODEL_SERVINGS, name, self.namespace, body, PatchType.MERGE, subresource="scale"
        )

    async def delete(self, resource: Resource, name: str, **params: Any) -> None:
        await self.admin.delete(resource, name, self.namespace, DeleteParams(**params))

    async def delete_pods(self, names: Iterable[str]) -> None:
        for name in names:
            await self.delete(PODS, name)

    # Kubelets.

    async def pods(self) -> dict[str, Object]:
        return await self.objects(PODS)

    async def objects(self, resource: Resource) -> dict[str, Object]:
        listed = await self.admin.list(resource, self.namespace, label_selector=LABEL_NAME)
        return {name_of(obj): obj for obj in sorted(listed.items, key=name_of)}

    async def run_pods(self) -> int:
        """Make every pod ready that is not, and is not on its way out; how many those were."""
        started = 0
        for name, pod in (await self.pods()).items():
            if is_terminating(pod):
                # An API server whose client went away in the middle of a deletion may leave a pod
                # like this; the pod garbage collector of a cluster ends it.
                with contextlib.suppress(NotFound, Conflict):
                    await self.delete(PODS, name, uid=uid_of(pod), grace_period_s=0)
                continue
            if is_ready(pod):
                continue
            status = running_status(datetime.now(UTC), ready=True)
            for container in status["containerStatuses"]:
                container |= {"image": "i", "imageID": "i"}
            with contextlib.suppress(NotFound):
                await self.admin.patch(
                    PODS, name, self.namespace, {"status": status}, PatchType.MERGE,
                    subresource="status",
                )  # fmt: skip
                started += 1
        return started

    async def wait(self, what: str, holds: Callable[[], Any]) -> None:
        """Wait until `holds` (a coroutine function) is true, running pods meanwhile."""
        deadline = asyncio.get_running_loop().time() + _WAIT_S
        pause = 0.02
        while not await holds():
            if asyncio.get_running_loop().time() > deadline:
                status = await self.describe()
                raise AssertionError(f"waited in vain until {what}: {status}")
            await self.run_pods()
            await asyncio.sleep(pause)
            # Short waits are looked at closely; garbage collection takes its time.
            pause = min(pause * 1.1, 0.5)

    async def wait_ready(self, name: str) -> Object:
        """Wait until the status speaks of the present generation and says Ready."""

        async def ready() -> bool:
            obj = await self.admin.get(MODEL_SERVINGS, name, self.namespace)
            status = obj.get("status") or {}
            conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
            current = status.get("observedGeneration") == obj["metadata"]["generation"]
            return current and conditions.get("Ready") == "True"

        await self.wait(f"{name} is ready", ready)
        return await self.admin.get(MODEL_SERVINGS, name, self.namespace)

    async def wait_gone(self, resource: Resource) -> None:
        async def gone() -> bool:
            return not await self.objects(resource)

        await self.wait(f"{resource} are gone", gone)

    async def events(self) -> list[tuple[str, str]]:
        """Reason and message of the events of the namespace."""
        listed = await self.admin.list(EVENTS, self.namespace)
        return [(event["reason"], event["message"]) for event in listed.items]

    async def describe(self) -> dict[str, Any]:
        """What is there, for the text of a failure."""
        listed = await self.admin.list(MODEL_SERVINGS, self.namespace)
        return {
            "pods": {
                name: (is_ready(pod), is_terminating(pod), uid_of(pod))
                for name, pod in (await self.pods()).items()
            },
            "status": [obj.get("status") for obj in listed.items],
            "revisions": list(await self.objects(CONTROLLER_REVISIONS)),
            "services": list(await self.objects(SERVICES)),
            "writes": self.recorder.writes()[-10:] if self.recorder else [],
        }

    async def close(self) -> None:
        await self.kill()
        await self.admin.close()


@contextlib.asynccontextmanager
async def bench(kubeconfig: Path, namespace: str) -> AsyncIterator[Bench]:
    """A bench in a namespace of its own."""
    opened = Bench(kubeconfig, namespace)
    try:
        yield opened
    finally:
        await opened.close()
