"""CPU time of the Kubernetes client side against an API server.

    python benchmarks/kube_client.py [KUBECONFIG] [--count 2000] [--concurrency 10]
    python benchmarks/kube_client.py --smoke           # a few objects, for CI

Without a KUBECONFIG the server is the embedded one, in a process of its own. Creates, reads, follows, lists and deletes ConfigMaps in a namespace of its own, and prints for each
the CPU time of this process per object and the objects per second. CPU per operation is the number
to compare; the rate is the server's as much as the client's.
"""

import argparse
import asyncio
import json
import multiprocessing
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from kthena.api.kubernetes import CONFIG_MAPS, NAMESPACES
from kthena.kube.client import ClientConfig, KubeClient, PatchType
from kthena.kube.informer import Informer, InformerConfig
from kthena.local.apiserver.server import ApiServer
from kthena.machinery.objects import Object, name_of


@asynccontextmanager
async def measured(label: str, count: int) -> AsyncIterator[None]:
    cpu, wall = time.process_time(), time.perf_counter()
    yield
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(f"{label:8} {1e6 * cpu / count:6.0f} us CPU each  {count / wall:7.0f} per second")


async def spread(
    work: Callable[[int], Coroutine[Any, Any, object]], count: int, concurrency: int
) -> None:
    numbers = iter(range(count))

    async def run() -> None:
        for number in numbers:
            await work(number)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(concurrency):
            tasks.create_task(run())


async def main(options: argparse.Namespace) -> None:
    count, concurrency = options.count, options.concurrency
    async with KubeClient.connect(ClientConfig(kubeconfig=options.kubeconfig)) as client:
        created = await client.create(NAMESPACES, {"metadata": {"generateName": "bench-"}})
        namespace = name_of(created)

        def config_map(number: int) -> Object:
            metadata = {"name": f"m{number}", "namespace": namespace}
            return {"metadata": metadata, "data": {"text": "x" * 500}}

        async with measured("create", count):
            await spread(
                lambda number: client.create(CONFIG_MAPS, config_map(number)), count, concurrency
            )
        async with measured("get", count):
            await spread(
                lambda number: client.get(CONFIG_MAPS, f"m{number}", namespace),
                count,
                concurrency,
            )
        await follow(client, namespace, count)
        async with measured("delete", count):
            await spread(
                lambda number: client.delete(CONFIG_MAPS, f"m{number}", namespace),
                count,
                concurrency,
            )
        await client.delete(NAMESPACES, namespace)


async def follow(client: KubeClient, namespace: str, count: int) -> None:
    """List, then patch every object and see its event; both ends are this process."""
    informer = Informer(client, CONFIG_MAPS, InformerConfig(namespace=namespace))
    async with measured("list", count):
        running = asyncio.create_task(informer.run())
        await informer.synced.wait()
    seen = 0
    done = asyncio.Event()

    def note(_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == 2 * count:
            done.set()

    informer.add_handler(note)  # is told of what is there already
    async with measured("patch+ev", count):
        await spread(
            lambda number: client.patch(
                CONFIG_MAPS, f"m{number}", namespace, {"data": {"a": "b"}}, PatchType.MERGE
            ),
            count,
            10,
        )
        await done.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def serve(folder: str, ready: Event) -> None:
    """The embedded API server, until the process is ended."""

    async def run() -> None:
        server = ApiServer()
        await server.start()
        (Path(folder) / "kubeconfig").write_text(json.dumps(server.kubeconfig()))
        ready.set()
        await asyncio.Event().wait()

    asyncio.run(run())


@contextmanager
def embedded() -> Iterator[Path]:
    """The kubeconfig of an embedded API server that runs as long as the block."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ready = context.Event()
        process = context.Process(target=serve, args=(folder, ready), daemon=True)
        process.start()
        try:
            if not ready.wait(60):
                raise TimeoutError("the embedded API server has not started")
            yield Path(folder) / "kubeconfig"
        finally:
            process.terminate()
            process.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("kubeconfig", type=Path, nargs="?")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=10)
    parser.add_argument("--smoke", action="store_true", help="a few objects")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.count = 50
    if arguments.kubeconfig:
        asyncio.run(main(arguments))
    else:
        with embedded() as arguments.kubeconfig:
            asyncio.run(main(arguments))
