"""A node on an API server, and what its tests ask of pods."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from kthena.api.kubernetes import PODS
from kthena.local.apiserver.logs import LogOptions
from kthena.local.node.config import NodeConfig
from kthena.local.node.images import parse_image_map
from kthena.local.node.node import Node
from kthena.machinery.objects import Object
from support.local_api import Api
from support.node import PYTHON

IMAGES = {"python": [PYTHON, "-I", "-S", "{args}"], "own": ["{command}", "{args}"]}
WAIT = "import time; print('up', flush=True); time.sleep(600)"
POLITE = (
    "import signal,sys,time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True)\n"
    "time.sleep(600)"
)
STUBBORN = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{WAIT}"


class World:
    """An API server, a node that can be started again, and the folder that they use."""

    def __init__(self, api: Api, folder: Path) -> None:
        self.api = api
        self.folder = folder
        self.data = folder / "data"
        self.name = self.scheduler = f"node-{uuid.uuid4().hex[:6]}"
        self.node: Node = None  # type: ignore[assignment] # set by `start`
        self._running = AsyncExitStack()

    async def start(self, **settings: Any) -> None:
        """Start the node, ending the one before."""
        await self.stop()
        config = NodeConfig(
            self.name,
            self.data,
            image_map=parse_image_map(IMAGES, "test"),
            scheduler_names=(self.scheduler,),
            stop_grace_s=1,
            **settings,
        )
        self.node = Node(self.api.client, config)
        await self._running.enter_async_context(running(self.node))

    async def stop(self) -> None:
        await self._running.aclose()

    async def run(self, name: str, *containers: Any, **fields: Any) -> Object:
        """Create a pod for this node."""
        labels = fields.pop("labels", {"app": name})
        spec = {
            "containers": list(containers),
            "schedulerName": self.scheduler,
            "terminationGracePeriodSeconds": 5,
            **fields,
        }
        pod = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        return await self.api.create(PODS, pod)

    async def logs(self, pod: Object, **options: Any) -> str:
        wanted = LogOptions(options.pop("container", "c"), **options)
        return b"".join([part async for part in self.node.stream(pod, wanted)]).decode()


def python(code: str, name: str = "c", /, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "python", "args": ["-c", code], **fields}


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[Node]:
    task = asyncio.create_task(node.run())
    ready = asyncio.create_task(node.ready.wait())
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if task.done():
        await task
    try:
        yield node
    finally:
        node.stop()
        await task


def on_host(path: str) -> bool:
    return Path(path).exists()


def waiting_reason(pod: Object) -> str:
    for entry in (pod.get("status") or {}).get("containerStatuses") or ():
        reason = entry["state"].get("waiting", {}).get("reason")
        if reason:
            return str(reason)
    return ""


def condition(pod: Object, kind: str) -> dict[str, Any]:
    for entry in (pod.get("status") or {}).get("conditions") or ():
        if entry["type"] == kind:
            return dict(entry)
    return {}


async def wait_for_log(world: World, pod: Object, text: str) -> None:
    async with asyncio.timeout(10):
        while text not in await world.logs(pod):  # noqa: ASYNC110 - another program writes it
            await asyncio.sleep(0.02)


async def wait_for_log_end(world: World, pod: Object, text: str) -> None:
    async with asyncio.timeout(10):
        while text not in await world.logs(pod, tail_lines=1):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
