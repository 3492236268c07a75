"""Field report B022: what a watch did not tell is found, and the router's endpoints have no ghosts.

The networking plane runs against an API server through a proxy that misbehaves. Its clock runs 30
times as fast as the wall's, so that a watch counts as silent after three seconds.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kthena.api.crd.published import published_crds
from kthena.api.kubernetes import CUSTOM_RESOURCE_DEFINITIONS, PODS
from kthena.api.registry import MODEL_SERVERS
from kthena.kube.client import ClientConfig, KubeClient, PatchType
from kthena.kube.clock import SystemClock
from kthena.kube.errors import AlreadyExists, NotFound
from kthena.local.node.timekeeping import ScaledClock
from kthena.networking.program import NetworkingConfig, NetworkingProgram
from kthena.router.routes.spec import Backend
from kthena.router.routes.table import RouteTable
from support.kube_proxy import ApiProxy, proxy_of, through
from support.local_api import SERVERS, Api, open_api
from support.networking import model_server, pod

SPEED = 30.0
WITHIN_S = 10.0


@dataclass
class Endpoints:
    """What the router would serve: names of pods by server."""

    api: Api
    proxy: ApiProxy
    pods: dict[str, set[str]] = field(default_factory=dict)

    def swap(self, _table: RouteTable, backends: Iterable[Backend]) -> None:
        self.pods = {
            backend.server.key.name: {endpoint.pod.name for endpoint in backend.endpoints}
            for backend in backends
            if backend.server.key.namespace == self.api.namespace
        }

    async def until(self, *names: str, within_s: float = WITHIN_S) -> None:
        """Wait until the server has exactly these pods."""
        deadline = time.monotonic() + within_s
        while self.pods.get("s") != set(names):
            assert time.monotonic() < deadline, f"the endpoints are {self.pods}"
            await asyncio.sleep(0.01)

    async def run_pod(self, name: str) -> None:
        """A pod that is ready."""
        made = pod(name, {"app": "s"})
        await self.api.create(PODS, {"metadata": {"name": name, "labels": {"app": "s"}},
                                     "spec": made["spec"]})  # fmt: skip
        status = {"status": made["status"]}
        await self.api.client.patch(
            PODS, name, self.api.namespace, status, PatchType.MERGE, subresource="status"
        )

    async def replace_ghost(self) -> None:
        """What the router does not see: one pod goes, another comes."""
        await self.api.delete(PODS, "ghost", grace_s=0)
        await self.run_pod("newcomer")


async def install(api: Api) -> None:
    for crd in published_crds():
        with suppress(AlreadyExists):
            await api.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
    async with asyncio.timeout(20):
        while True:
            with suppress(NotFound):
                await api.client.list(MODEL_SERVERS, api.namespace)
                return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def network(api: Api) -> AsyncIterator[Endpoints]:
    clock = ScaledClock(SystemClock(), SPEED)
    async with proxy_of(api.kubeconfig) as proxy:
        transport = through(proxy, api.kubeconfig)
        async with KubeClient(transport, ClientConfig(request_timeout_s=2)) as client:
            found = Endpoints(api, proxy)
            program = NetworkingProgram(client, found.swap, NetworkingConfig(), clock)
            running = asyncio.create_task(program.run())
            try:
                yield found
            finally:
                program.stop()
                await running


@pytest.fixture(params=SERVERS)
async def endpoints(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Endpoints]:
    """A ModelServer with a pod `ghost` and a pod `kept`, both served."""
    async with open_api(request.param, request, tmp_path) as api:
        await install(api)
        spec = {key: value for key, value in model_server("s").items() if key != "metadata"}
        await api.create(MODEL_SERVERS, {**spec, "metadata": {"name": "s"}})
        async with network(api) as found:
            for name in ("ghost", "kept"):
                await found.run_pod(name)
            await found.until("ghost", "kept")
            yield found


def watches_pods(head: bytes) -> bool:
    target = head.split(b" ", 2)[1]
    return b"/pods?" in target and b"watch=true" in target


async def test_a_cut_hides_nothing_for_long(endpoints: Endpoints) -> None:
    endpoints.proxy.cut()
    await endpoints.replace_ghost()
    await asyncio.sleep(0.2)
    # What was known is served on: a failed read says nothing about pods.
    assert endpoints.pods["s"] == {"ghost", "kept"}
    endpoints.proxy.restore()
    await endpoints.until("newcomer", "kept")


async def test_watches_that_are_answered_with_errors(endpoints: Endpoints) -> None:
    statuses = (410, 504, 410)
    for status in statuses:
        endpoints.proxy.answer(status, watches_pods)
    endpoints.proxy.cut()
    await endpoints.replace_ghost()
    endpoints.proxy.restore()
    await endpoints.until("newcomer", "kept")
    async with asyncio.timeout(WITHIN_S):
        while endpoints.proxy.answered < len(statuses):  # noqa: ASYNC110 - another program's doing
            await asyncio.sleep(0.01)
    # And the watch that follows tells of what comes next.
    await endpoints.run_pod("another")
    await endpoints.until("newcomer", "kept", "another")


async def test_no_version_is_tried_twice(endpoints: Endpoints) -> None:
    """However long watches are answered with 410: each follows a list."""
    asked: list[str] = []
    pods = f"/namespaces/{endpoints.api.namespace}/pods?".encode()

    def expired(head: bytes) -> bool:
        if pods in head.split(b" ", 2)[1]:
            asked.append("watch" if watches_pods(head) else "list")
        return watches_pods(head)

    endpoints.proxy.fail(410, expired)
    await endpoints.replace_ghost()
    await endpoints.until("newcomer", "kept")
    async with asyncio.timeout(WITHIN_S):
        while asked.count("watch") < 4:  # noqa: ASYNC110 - another program's doing
            await asyncio.sleep(0.01)
    endpoints.proxy.mend()
    # The first watch may go on from where the one that was cut had come to.
    assert "watch watch" not in " ".join(asked[1:])
    await endpoints.run_pod("another")
    await endpoints.until("newcomer", "kept", "another")


async def test_a_watch_that_falls_silent_is_restarted(endpoints: Endpoints) -> None:
    """No error comes: the connection is open and brings nothing."""
    endpoints.proxy.silence()
    await endpoints.replace_ghost()
    await asyncio.sleep(0.2)
    assert endpoints.pods["s"] == {"ghost", "kept"}
    await endpoints.until("newcomer", "kept")
