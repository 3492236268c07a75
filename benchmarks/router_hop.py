"""What one hop through the router costs: CPU time per request, in the router's own process.

The router runs here, as `kthena.router.event_loop` sets a process up for it; the engines and the
clients are processes of their own, so that only the router's work is counted. A closed loop: each
client sends its next request when the last is answered. `added` is the median of one client with the
router less its median when it asks an engine directly, just before.

    python benchmarks/router_hop.py                    # JSON at 16 and at 1 client, streams at 16
    python benchmarks/router_hop.py --requests 50000 --clients 64
    python benchmarks/router_hop.py --smoke            # a few requests of each kind, for CI

The exit status is 1 when a request fails or is lost. README.md beside this file says how to compare.
"""

import argparse
import asyncio
import contextlib
import json
import math
import random
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, replace
from typing import Any, cast

from kthena.kube.clock import SystemClock
from kthena.machinery.objects import NamespacedName
from kthena.router.app import Router
from kthena.router.config import AccessLogConfig, RouterConfig
from kthena.router.event_loop import new_event_loop, settle_memory
from kthena.router.routes.compile import compile_route
from kthena.router.routes.spec import Backend, EndpointSpec, Route, Rule, Server, Target
from kthena.router.routes.table import RouteTable
from kthena.telemetry.metrics import Metrics

EVENTS = 100
PROMPT = "word " * 400
REPLY = json.dumps(
    {
        "id": "cmpl-1",
        "object": "chat.completion",
        "model": "base",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello there"}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }
).encode()
EVENT = (
    b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"delta":{"content":"tok"}}]}\n\n'
)


@dataclass(frozen=True)
class Case:
    """One measurement."""

    name: str
    stream: bool
    clients: int
    requests: int


class Engine(asyncio.Protocol):
    """Answers at once: JSON, or a stream whose events leave one by one."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.pending = b""

    def data_received(self, data: bytes) -> None:
        self.pending += data
        head, found, body = self.pending.partition(b"\r\n\r\n")
        if not found or len(body) < int(
            head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
        ):
            return
        self.pending = b""
        if b'"stream":true' in body:
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
            self.send_event(EVENTS)
        else:
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (len(REPLY), REPLY)
            )

    def send_event(self, left: int) -> None:
        if left:
            self.transport.write(b"%x\r\n%b\r\n" % (len(EVENT), EVENT))
            asyncio.get_running_loop().call_soon(self.send_event, left - 1)
        else:
            self.transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


class Client(asyncio.Protocol):
    """Sends the next request when the last is answered, until the load is done."""

    def __init__(self, load: "Load") -> None:
        self.load = load
        self.received = b""
        self.started = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.next_request()

    def next_request(self) -> None:
        if self.load.left == 0:
            self.transport.close()
            return
        self.load.left -= 1
        self.started = time.perf_counter()
        self.transport.write(self.load.request)

    def data_received(self, data: bytes) -> None:
        self.received = (self.received + data) if not self.load.stream else data[-5:]
        if not self.received.endswith(self.load.end):
            return
        self.load.took.append(time.perf_counter() - self.started)
        self.load.errors += not self.load.stream and not self.received.startswith(b"HTTP/1.1 200")
        self.received = b""
        self.next_request()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.load.open -= 1
        if not self.load.open:
            self.load.done.set_result(None)


class Load:
    """What the clients of one run share."""

    def __init__(self, case: Case) -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 100}
        if case.stream:
            body["stream"] = True
        encoded = json.dumps(body, separators=(",", ":")).encode()
        self.request = (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\n"
            b"Content-Type: application/json\r\nAccept: */*\r\nContent-Length: %d\r\n\r\n%b"
            % (len(encoded), encoded)
        )
        self.stream = case.stream
        self.end = b"0\r\n\r\n" if case.stream else REPLY
        self.left = case.requests
        self.open = case.clients
        self.took: list[float] = []
        self.errors = 0
        self.done = asyncio.get_running_loop().create_future()


async def run_engine() -> None:
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def run_clients(port: int, case: Case) -> None:
    load = Load(case)
    started = time.perf_counter()
    for _ in range(case.clients):
        await asyncio.get_running_loop().create_connection(lambda: Client(load), "127.0.0.1", port)
    await load.done
    seconds = time.perf_counter() - started
    took = sorted(load.took) or [math.nan]
    print(
        json.dumps(
            {
                "requests": len(load.took),
                "errors": load.errors,
                "per_second": len(load.took) / seconds,
                "p50_ms": took[len(took) // 2] * 1000,
                "p99_ms": took[int(len(took) * 0.99)] * 1000,
            }
        )
    )


@contextlib.asynccontextmanager
async def engine_ports(count: int) -> AsyncIterator[list[int]]:
    """The ports of engines, each a process that ends when its standard input is closed."""
    command = [sys.executable, __file__, "--role", "engine"]
    pipe = subprocess.PIPE
    engines = [
        await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        for _ in range(count)
    ]
    try:
        outputs = [cast("asyncio.StreamReader", engine.stdout) for engine in engines]
        yield [int(await output.readline()) for output in outputs]
    finally:
        for engine in engines:
            cast("asyncio.StreamWriter", engine.stdin).close()
            await engine.wait()


def cpu_seconds() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime


def check(case: Case, found: dict[str, Any]) -> None:
    if found["errors"] or found["requests"] != case.requests:
        raise SystemExit(f"{case.name}: {found}")


async def measure(port: int, case: Case) -> dict[str, Any]:
    """Run the clients of one case against the router in this process."""
    command = [
        *(sys.executable, __file__, "--role", "client", "--port", str(port)),
        *("--clients", str(case.clients), "--requests", str(case.requests)),
        *(["--stream"] if case.stream else []),
    ]
    before = cpu_seconds()
    client = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await client.communicate()
    after = cpu_seconds()
    result: dict[str, Any] = json.loads(output)
    check(case, result)
    result["user_us"] = (after[0] - before[0]) / result["requests"] * 1e6
    result["system_us"] = (after[1] - before[1]) / result["requests"] * 1e6
    return result


COLUMNS = (
    f"{'case':<22}{'requests':>9}{'errors':>7}{'req/s':>8}{'p50 ms':>9}{'p99 ms':>9}{'added':>8}"
)
COLUMNS += f"{'user us':>9}{'system us':>10}{'CPU us':>8}"


@contextlib.asynccontextmanager
async def router_port(engines: list[int], log: str) -> AsyncIterator[int]:
    """The port of a router that serves one model from these engines."""
    rng = random.Random()  # noqa: S311 - it draws among endpoints
    config = RouterConfig(access_log=AccessLogConfig(output=log))
    router = Router(config, SystemClock(), rng, Metrics("kthena_router_"))
    key = NamespacedName("default", "s")
    endpoints = tuple(
        EndpointSpec(NamespacedName("default", f"p{port}"), str(port), "127.0.0.1", port)
        for port in engines
    )
    route = Route(NamespacedName("default", "r"), "m", (), (Rule("", None, (Target(key),)),))
    table = RouteTable({"m": (compile_route(route),)})
    router.swap(table, [Backend(Server(key, "base", 8000, timeout_s=10), endpoints)])
    try:
        yield await router.serve("127.0.0.1", 0)
    finally:
        await router.close(0)


async def run(cases: list[Case], engines: int, log: str) -> None:
    async with engine_ports(engines) as ports, router_port(ports, log) as port:
        settle_memory()
        print(COLUMNS)
        for case in cases:
            short = replace(case, requests=max(case.clients, case.requests // 20))
            await measure(port, short)
            # With more clients the two engines, not the router, decide how long a request waits.
            direct = await measure(ports[0], case) if case.clients == 1 else None
            found = await measure(port, case)
            added = "" if direct is None else f"{found['p50_ms'] - direct['p50_ms']:.3f}"
            cpu = found["user_us"] + found["system_us"]
            print(
                f"{case.name:<22}{found['requests']:>9}{found['errors']:>7}"
                f"{found['per_second']:>8.0f}{found['p50_ms']:>9.3f}{found['p99_ms']:>9.3f}"
                f"{added:>8}"
                f"{found['user_us']:>9.1f}{found['system_us']:>10.1f}{cpu:>8.1f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--role", choices=["router", "engine", "client"], default="router")
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--log", default="/dev/null", help="where the access log goes")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="a few requests of each kind")
    options = parser.parse_args()
    requests = 200 if options.smoke else options.requests
    task: Coroutine[Any, Any, None]
    if options.role == "engine":
        task = run_engine()
    elif options.role == "client":
        case = Case("", options.stream, options.clients, options.requests)
        task = run_clients(options.port, case)
    else:
        cases = [
            Case(
                f"json, {options.clients} clients",
                stream=False,
                clients=options.clients,
                requests=requests,
            ),
            Case("json, 1 client", stream=False, clients=1, requests=max(requests // 10, 20)),
            Case(
                f"stream, {options.clients} clients",
                stream=True,
                clients=options.clients,
                requests=max(requests // 5, 20),
            ),
        ]
        task = run(cases, options.engines, options.log)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(task)


if __name__ == "__main__":
    main()
