"""The networking plane on the embedded API server, in front of a router."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from kthena.api.crd.published import published_crds
from kthena.api.kubernetes import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS
from kthena.api.registry import MODEL_ROUTES, MODEL_SERVERS
from kthena.kube.client import ClientConfig, DeleteParams, KubeClient, PatchType, Request
from kthena.kube.clock import SystemClock
from kthena.kube.faults import Fault, FaultTransport
from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.server import ApiServer
from kthena.machinery.objects import Object, metadata_of
from kthena.machinery.resources import Resource
from kthena.networking.program import NetworkingConfig, NetworkingProgram
from kthena.router.app import Router
from kthena.telemetry.metrics import Metrics
from support.networking import model_route, model_server, pod
from support.router_client import get
from support.router_fleet import QUIET, Fleet, eventually

RESOURCES = {"ModelRoute": MODEL_ROUTES, "ModelServer": MODEL_SERVERS, "Pod": PODS}
NO_GRACE = DeleteParams(grace_period_s=0)


class Ahead:
    """The time, and as much more as a test wants to have passed."""

    def __init__(self) -> None:
        self.by = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.by


class Cluster:
    """An API server with a client for the test itself."""

    def __init__(
        self, server: ApiServer, client: KubeClient, kubeconfig: Path, clock: "Ahead"
    ) -> None:
        self.server = server
        self.client = client
        self.kubeconfig = kubeconfig
        self.clock = clock

    async def install(self, *kinds: str) -> None:
        """The CRDs of these kinds, of all without any."""
        for crd in published_crds():
            if not kinds or crd["spec"]["names"]["kind"] in kinds:
                await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)

    async def uninstall(self, kind: str) -> None:
        for crd in published_crds():
            if crd["spec"]["names"]["kind"] == kind:
                await self.client.delete(CUSTOM_RESOURCE_DEFINITIONS, metadata_of(crd)["name"])

    async def namespace(self, name: str) -> None:
        await self.client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )

    async def create(self, obj: Object) -> Object:
        """Create an object as a user would: what the server sets is left out."""
        kept = {
            k: metadata_of(obj)[k] for k in ("name", "namespace", "labels") if k in obj["metadata"]
        }
        return await self.client.create(RESOURCES[obj["kind"]], {**obj, "metadata": kept})

    async def run_pod(self, obj: Object) -> Object:
        """Create a pod and give it its status, as a kubelet would."""
        created = await self.create({k: v for k, v in obj.items() if k != "status"})
        return await self.set_status(PODS, created, obj["status"])

    async def set_status(self, resource: Resource, obj: Object, status: Object) -> Object:
        meta = metadata_of(obj)
        return await self.client.patch(
            resource,
            meta["name"],
            meta["namespace"],
            {"status": status},
            PatchType.MERGE,
            subresource="status",
        )

    async def patch(self, resource: Resource, name: str, body: Object) -> Object:
        return await self.client.patch(resource, name, "default", body, PatchType.MERGE)

    async def delete(self, resource: Resource, name: str, namespace: str = "default") -> None:
        await self.client.delete(resource, name, namespace, NO_GRACE)

    async def conditions(self, resource: Resource, name: str) -> dict[str, Any]:
        obj = await self.client.get(resource, name, "default")
        found = (obj.get("status") or {}).get("conditions") or []
        return {one["type"]: one for one in found}

    async def until(
        self, resource: Resource, name: str, holds: Callable[[Object], Any], timeout_s: float = 5
    ) -> Object:
        """The object once the condition holds; its last status is in the failure."""
        obj: Object = {}
        try:
            async with asyncio.timeout(timeout_s):
                while not (obj and holds(obj)):
                    obj = await self.client.get(resource, name, "default")
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{resource} {name}: {obj.get('status')}") from None
        return obj

    async def status_of_another(self, name: str) -> None:
        """Wait until a ModelServer made now has its status: what came before has been looked at."""
        await self.create(model_server(name))
        await self.until_condition(MODEL_SERVERS, name, "Accepted", "True")

    async def until_condition(
        self, resource: Resource, name: str, kind: str, status: str, timeout_s: float = 5
    ) -> Object:
        """The condition of that type once it has that status for the current generation."""

        def found(obj: Object) -> Object | None:
            for one in (obj.get("status") or {}).get("conditions") or []:
                current = one.get("observedGeneration") == obj["metadata"]["generation"]
                if one["type"] == kind and one["status"] == status and current:
                    return dict(one)
            return None

        result = found(await self.until(resource, name, found, timeout_s))
        assert result is not None
        return result


class Wire:
    """Sees every request of one plane to the API server, and may give it a fault."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.fault: Callable[[Request], Fault | None] = lambda _: None

    def __call__(self, request: Request) -> Fault | None:
        self.requests.append(request)
        return self.fault(request)

    def status_writes(self) -> list[str]:
        """The `plural/name` of each status that was written, in order."""
        paths = [
            one.target.partition("?")[0]
            for one in self.requests
            if one.method == "PATCH" and "/status" in one.target
        ]
        return ["/".join(path.removesuffix("/status").rsplit("/", 2)[1:]) for path in paths]

    def paths(self, word: str) -> set[str]:
        """The paths that were read and hold a word."""
        return {
            path
            for one in self.requests
            if one.method == "GET" and word in (path := one.target.partition("?")[0])
        }


class Plane:
    """One replica: a networking program and the router that it feeds."""

    def __init__(self, program: NetworkingProgram, fleet: Fleet, wire: Wire) -> None:
        self.program = program
        self.fleet = fleet
        self.router = fleet.router
        self.wire = wire
        self.swaps = 0

    def detail(self, name: str) -> str:
        """What a component says of itself."""
        return next(one.detail for one in self.program.readiness() if one.name == name)

    async def readyz(self) -> tuple[int, dict[str, str]]:
        """Status and details of the router's own readiness."""
        async with await self.fleet.connect() as client:
            client.send(get("/readyz"))
            reply = await client.read_reply("GET")
        return reply.status, reply.json.get("details", {})

    async def until_status(self, model: str, status: int, timeout_s: float = 5) -> Any:
        """The first reply of that status to a request for the model."""
        async with asyncio.timeout(timeout_s):
            while True:
                reply = await self.fleet.ask({"model": model})
                if reply.status == status:
                    return reply
                await asyncio.sleep(0.01)


@asynccontextmanager
async def api_server(folder: Path, *, install: bool = True) -> AsyncIterator[Cluster]:
    """An embedded API server with the kinds installed."""
    clock = Ahead()
    server = ApiServer(ApiServerConfig(now=clock))
    await server.start()
    try:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_bytes(msgspec.json.encode(server.kubeconfig()))
        async with KubeClient.connect(ClientConfig(kubeconfig=kubeconfig)) as client:
            cluster = Cluster(server, client, kubeconfig, clock)
            if install:
                await cluster.install()
            yield cluster
    finally:
        await server.stop()


@asynccontextmanager
async def plane(
    cluster: Cluster, *, lease_namespace: str = "", wait: bool = True, drain_s: float = 0
) -> AsyncIterator[Plane]:
    """A replica of the networking plane; with `wait`, once it has published its first table."""
    wire, clock = Wire(), SystemClock()
    config = ClientConfig(kubeconfig=cluster.kubeconfig)
    router = Router(replace(QUIET), clock, random.Random(1), Metrics("kthena_router_"))
    port = await router.serve("127.0.0.1", 0)
    async with KubeClient.connect(config, wrap=lambda inner: FaultTransport(inner, wire)) as client:

        def swap(*tables: Any) -> None:
            replica.swaps += 1
            router.swap(*tables)

        program = NetworkingProgram(client, swap, NetworkingConfig(lease_namespace), clock)
        router.readiness.show(program.readiness)
        replica = Plane(program, Fleet(router, port, None), wire)
        running = asyncio.create_task(program.run())
        try:
            if wait:
                await eventually(lambda: router.readiness.ready)
            yield replica
        finally:
            program.stop()
            await running
            await router.close(drain_s)


def engine_objects(
    port: int, *, model: str = "chat", server: str = "s", pods: Sequence[str] = ("p",)
) -> list[Object]:
    """A route, a server and pods of one engine on this machine."""
    return [
        model_route(
            "r", {"modelName": model, "rules": [{"targetModels": [{"modelServerName": server}]}]}
        ),
        model_server(server, {"workloadPort": {"port": port}}),
        *(pod(name, {"app": server}, ip="127.0.0.1") for name in pods),
    ]


async def apply(cluster: Cluster, objects: Sequence[Object]) -> None:
    """Create objects; pods get their status."""
    for obj in objects:
        await (cluster.run_pod(obj) if obj["kind"] == "Pod" else cluster.create(obj))
