"""The embedded API server under load: how fast pods are created while watchers follow.

    python benchmarks/apiserver_load.py [--pods 10000] [--writers 10] [--watchers 20]
    python benchmarks/apiserver_load.py --durable      # with --data-dir: each reply waits for the disk
    python benchmarks/apiserver_load.py --smoke        # a few pods, for CI

The server, the writers and the watchers are a process each, so that the CPU time and the memory are
the server's alone. Each writer has a connection and sends its next request when the last is answered.
Pods are created, then given a status, with every watcher following from before the first. The exit
status is 1 when a request fails, or a watcher does not get every event exactly once and in order.
"""

import argparse
import asyncio
import json
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import msgspec

from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.server import ApiServer

PODS = "/api/v1/namespaces/default/pods"
LEAST_BYTES = 3072
_PROCESSES = multiprocessing.get_context("spawn")


def pod(number: int) -> dict[str, Any]:
    """A pod as a controller makes it, of more than 3 KiB as it is stored."""
    environment = [{"name": f"VARIABLE_{index}", "value": "x" * 50} for index in range(4)]
    container = {
        "name": "engine",
        "image": "vllm/vllm-openai:v0.10.0",
        "args": ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--port", "8000"],
        "env": environment,
        "ports": [{"name": "http", "containerPort": 8000}],
        "resources": {"limits": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 5},
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }
    labels = {f"kthena.io/label-{index}": f"value-{number % 100}" for index in range(8)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}", "labels": {"app": "load", **labels}},
        "spec": {"containers": [container], "volumes": [{"name": "models", "emptyDir": {}}]},
    }


def status(number: int) -> dict[str, Any]:
    """What a node says of such a pod."""
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    moment = "2026-01-01T00:00:00Z"
    return {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": moment, "lastProbeTime": None}
            for kind in kinds
        ],
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "hostIP": "10.0.0.2",
        "startTime": moment,
        "containerStatuses": [
            {
                "name": "engine",
                "image": "vllm/vllm-openai:v0.10.0",
                "imageID": "docker.io/vllm/vllm-openai@sha256:" + "0" * 64,
                "containerID": f"containerd://{number:064d}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": moment}},
            }
        ],
    }


# --- HTTP, as little of it as costs the clients least ---------------------------------------------


class Client:
    """One connection."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._head = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n"

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, limit=1 << 26
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._writer.close()

    async def send(self, method: str, path: str, body: bytes, media: str) -> int:
        """A request; the result is the length of the reply's body, -1 for one that comes in chunks."""
        head = (
            f"{method} {path} HTTP/1.1\r\n{self._head}Accept: application/json\r\n"
            f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        reply = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if not reply.startswith((b"http/1.1 200", b"http/1.1 201")):
            raise RuntimeError(
                f"{method} {path}: {reply[:300]!r} {await self._reader.read(1000)!r}"
            )
        _, found, rest = reply.partition(b"content-length:")
        return int(rest.split(b"\r\n")[0]) if found else -1

    async def call(
        self, method: str, path: str, body: bytes = b"", media: str = "application/json"
    ) -> bytes:
        """A request and the body of its reply."""
        length = await self.send(method, path, body, media)
        if length < 0:
            return b"".join([chunk async for chunk in self._chunks()])
        return await self._reader.readexactly(length)

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            size = int(await self._reader.readline(), 16)
            chunk = await self._reader.readexactly(size + 2)
            if not size:
                return
            yield chunk[:-2]

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """The lines of a stream, of which a chunk may hold any part."""
        await self.send("GET", path, b"", "application/json")
        rest = b""
        async for chunk in self._chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line


# --- writers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """How much to do, and where."""

    port: int
    token: str
    pods: int
    writers: int
    watchers: int


@dataclass(frozen=True)
class Rate:
    """What one kind of request took."""

    seconds: float
    latencies: list[float]


async def write(load: Load, method: str, suffix: str, bodies: list[bytes], media: str) -> Rate:
    """Send one request for each pod, over all connections at once."""
    numbers = iter(range(load.pods))
    latencies: list[float] = []

    async def run() -> None:
        async with Client(load.port, load.token) as client:
            for number in numbers:
                started = time.perf_counter()
                path = PODS + suffix.format(number)
                await client.call(method, path, bodies[number], media)
                latencies.append(time.perf_counter() - started)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(load.writers):
            tasks.create_task(run())
    return Rate(time.perf_counter() - started, latencies)


def run_writers(load: Load, pipe: Connection) -> None:
    """The process of the writers: a round for each word that it is sent."""
    creates = [json.dumps(pod(number)).encode() for number in range(load.pods)]
    statuses = [json.dumps({"status": status(number)}).encode() for number in range(load.pods)]
    merge = "application/merge-patch+json"
    pipe.send("ready")
    pipe.recv()
    pipe.send(asyncio.run(write(load, "POST", "", creates, "application/json")))
    pipe.recv()
    pipe.send(asyncio.run(write(load, "PATCH", "/pod-{}/status", statuses, merge)))


# --- watchers -------------------------------------------------------------------------------------


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str


class _Object(msgspec.Struct):
    metadata: _Meta


class _Event(msgspec.Struct):
    type: str
    object: _Object


async def follow(load: Load, version: str) -> str:
    """Read the events of one watcher; the result says what is wrong with them."""
    decode = msgspec.json.Decoder(_Event).decode
    seen: dict[str, list[str]] = {}
    last, count = int(version), 0
    async with Client(load.port, load.token) as client:
        async for line in client.lines(f"{PODS}?watch=true&resourceVersion={version}"):
            event = decode(line)
            meta = event.object.metadata
            if int(meta.resource_version) <= last:
                return f"{meta.name} at {meta.resource_version} after {last}"
            last = int(meta.resource_version)
            seen.setdefault(meta.name, []).append(event.type)
            count += 1
            if count == 2 * load.pods:
                break
    wrong = [name for name, types in seen.items() if types != ["ADDED", "MODIFIED"]]
    if wrong or len(seen) != load.pods:
        return f"{len(seen)} pods of {load.pods}, {count} events, wrong: {wrong[:3]}"
    return ""


def run_watchers(load: Load, version: str, pipe: Connection) -> None:
    """The process of the watchers; tells what each found, and when the last had all."""

    async def run() -> list[str]:
        return await asyncio.gather(*(follow(load, version) for _ in range(load.watchers)))

    pipe.send("ready")
    found = asyncio.run(run())
    pipe.send([text for text in found if text])


# --- the server -----------------------------------------------------------------------------------


def run_server(data_dir: Path | None, pipe: Connection) -> None:
    """The process of the server; answers each word with the CPU seconds that it has used."""

    async def run() -> None:
        server = ApiServer(ApiServerConfig(data_dir=data_dir))
        await server.start()
        pipe.send((server.port, server.config.token))
        loop = asyncio.get_running_loop()
        words: asyncio.Queue[None] = asyncio.Queue()

        def answer() -> None:
            pipe.recv()
            words.put_nowait(None)

        loop.add_reader(pipe.fileno(), answer)
        while True:
            await words.get()
            used = resource.getrusage(resource.RUSAGE_SELF)
            pipe.send((used.ru_utime + used.ru_stime, used.ru_maxrss / 1024))

    asyncio.run(run())


@contextmanager
def process(target: Any, *arguments: Any) -> Iterator[Connection]:
    """A process that runs as long as the block, and the pipe to it."""
    ours, theirs = _PROCESSES.Pipe()
    running = _PROCESSES.Process(target=target, args=(*arguments, theirs), daemon=True)
    running.start()
    theirs.close()
    try:
        yield ours
    finally:
        running.terminate()
        running.join()


def ask(pipe: Connection, word: str = "go") -> Any:
    """Send a word and wait for the answer."""
    pipe.send(word)
    return pipe.recv()


async def list_pods(load: Load) -> tuple[float, list[Any]]:
    """How long a list of everything takes, and the items."""
    async with Client(load.port, load.token) as client:
        started = time.perf_counter()
        body = await client.call("GET", PODS)
        return time.perf_counter() - started, json.loads(body)["items"]


def main(options: argparse.Namespace, data_dir: Path | None) -> None:
    """Run it, and print what it took."""
    with process(run_server, data_dir) as server:
        port, token = server.recv()
        load = Load(port, token, options.pods, options.writers, options.watchers)
        with process(run_watchers, load, "1") as watchers, process(run_writers, load) as writers:
            writers.recv()
            watchers.recv()
            time.sleep(0.5)  # The watchers connect.
            _, start_mb = ask(server)
            print(f"{'':8} {'per s':>8} {'p50 ms':>8} {'p99 ms':>8} {'CPU us':>8}")
            for label in ("create", "status"):
                before, _ = ask(server)
                rate: Rate = ask(writers)
                after, _ = ask(server)
                ordered = sorted(rate.latencies)
                middle, late = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
                print(
                    f"{label:8} {load.pods / rate.seconds:8.0f} {1e3 * middle:8.1f} "
                    f"{1e3 * late:8.1f} {1e6 * (after - before) / load.pods:8.0f}"
                )
            started = time.perf_counter()
            failures = watchers.recv()
            print(f"watchers had the last event {time.perf_counter() - started:.2f} s later")
        seconds, items = asyncio.run(list_pods(load))
        _, peak_mb = ask(server)
    least = min(len(json.dumps(item, separators=(",", ":"))) for item in items)
    print(f"list     {seconds:.2f} s for {len(items)} pods of {least} bytes and more")
    print(f"memory   {peak_mb:.0f} MiB at most, {start_mb:.0f} MiB at the start")
    if failures or len(items) != load.pods or least < LEAST_BYTES:
        sys.exit(f"failed: {failures or 'the list is not right'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--writers", type=int, default=10)
    parser.add_argument("--watchers", type=int, default=20)
    parser.add_argument("--durable", action="store_true", help="keep the objects in a directory")
    parser.add_argument("--smoke", action="store_true", help="a few pods")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.pods = 100
    # Beside this file, since a temporary directory may be one in memory.
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        main(arguments, Path(folder) if arguments.durable else None)
