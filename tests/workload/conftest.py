"""The servers that the workload plane is tried on: the embedded one, and the real one."""

import asyncio
import itertools
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from kthena.api.kubernetes import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from kthena.kube.client import ClientConfig, KubeClient
from kthena.kube.errors import AlreadyExists
from kthena.local.apiserver.server import ApiServer
from support.workload_bench import Bench, bench

_CRD = Path(__file__).parents[2] / "deploy/kustomize/crds/workload/modelservings.yaml"
_NUMBERS = itertools.count()


@pytest.fixture(
    scope="session", params=["embedded", pytest.param("real", marks=pytest.mark.cluster)]
)
def workload_kubeconfig(request: pytest.FixtureRequest) -> Path:
    """The kubeconfig of each server in turn; it serves ModelServings."""
    if request.param == "real":
        kubeconfig: Path = request.getfixturevalue("real_apiserver").kubeconfig
    else:
        kubeconfig = request.getfixturevalue("embedded_kubeconfig")
    asyncio.run(_install(kubeconfig))
    return kubeconfig


@pytest.fixture(scope="session")
def embedded_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The embedded API server on a loop of its own in a thread."""
    server = ApiServer()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="embedded-apiserver")
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(timeout=10)
        path = tmp_path_factory.mktemp("embedded") / "kubeconfig"
        path.write_text(json.dumps(server.kubeconfig()))
        yield path
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(timeout=10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        loop.close()


@pytest.fixture
async def workload_bench(workload_kubeconfig: Path) -> AsyncIterator[Bench]:
    """A bench in a new namespace, without a controller yet."""
    namespace = f"workload-{next(_NUMBERS)}"
    async with bench(workload_kubeconfig, namespace) as opened:
        await opened.admin.create(NAMESPACES, {"metadata": {"name": namespace}})
        yield opened


async def _install(kubeconfig: Path) -> None:
    async with KubeClient.connect(ClientConfig(kubeconfig=kubeconfig)) as client:
        crd = yaml.safe_load(_CRD.read_text())
        try:
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        except AlreadyExists:
            return
        name = crd["metadata"]["name"]
        for _ in range(100):
            stored = await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
            conditions = (stored.get("status") or {}).get("conditions") or ()
            if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{name} is not established")
