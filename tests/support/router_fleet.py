"""A router in front of scripted engines, for tests."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kthena.kube.clock import SystemClock
from kthena.machinery.objects import NamespacedName
from kthena.router.app import Router
from kthena.router.config import AccessLogConfig, RouterConfig
from kthena.router.routes.compile import compile_route
from kthena.router.routes.spec import (
    Backend,
    EndpointSpec,
    Role,
    Route,
    Rule,
    RuleMatch,
    Server,
    Target,
)
from kthena.router.routes.table import RouteTable
from kthena.telemetry.metrics import Metrics
from support.router_client import Client, ClientReply
from support.router_upstream import Upstream

QUIET = RouterConfig(access_log=AccessLogConfig(enabled=False), expose_metrics=True)


def key(name: str, namespace: str = "default") -> NamespacedName:
    return NamespacedName(namespace, name)


def spec_of(upstream: Upstream, pod: str = "", **extra: Any) -> EndpointSpec:
    name = pod or f"pod-{upstream.port}"
    return EndpointSpec(key(name), f"uid-{name}", upstream.host, upstream.port, **extra)


def backend(
    name: str, *upstreams: Upstream, model: str | None = None, timeout_s: float | None = None
) -> Backend:
    """An aggregated server."""
    port = upstreams[0].port if upstreams else 8000
    server = Server(key(name), model, port, timeout_s=timeout_s)
    return Backend(server, tuple(spec_of(upstream) for upstream in upstreams))


def pd_backend(
    name: str,
    groups: dict[str, tuple[Iterable[Upstream], Iterable[Upstream]]],
    *,
    model: str | None = None,
    timeout_s: float | None = None,
) -> Backend:
    """A disaggregated server: group name to prefill and decode engines."""
    endpoints = [
        spec_of(upstream, group=group, role=role)
        for group, (prefill, decode) in groups.items()
        for role, upstreams in ((Role.PREFILL, prefill), (Role.DECODE, decode))
        for upstream in upstreams
    ]
    server = Server(key(name), model, 8000, timeout_s=timeout_s, disaggregated=True)
    return Backend(server, tuple(endpoints))


def rule(*targets: tuple[str, int] | str, match: RuleMatch | None = None) -> Rule:
    pairs = [target if isinstance(target, tuple) else (target, 100) for target in targets]
    return Rule("", match, tuple(Target(key(name), weight) for name, weight in pairs))


def route(model: str, *rules: Rule, adapters: tuple[str, ...] = (), name: str = "") -> Route:
    return Route(key(name or f"route-{model or adapters[0]}"), model, adapters, rules)


def table_of(*routes: Route) -> RouteTable:
    """A table in which every route holds all its names."""
    models: dict[str, Any] = {}
    adapters: dict[str, Any] = {}
    for one in routes:
        compiled = compile_route(one)
        if one.model_name:
            models[one.model_name] = (*models.get(one.model_name, ()), compiled)
        for adapter in one.adapters:
            adapters[adapter] = (*adapters.get(adapter, ()), compiled)
    return RouteTable(models, adapters)


@dataclass
class Fleet:
    """A serving router."""

    router: Router
    port: int
    log: Path | None

    async def connect(self) -> Client:
        return await Client.connect(self.port)

    async def ask(self, body: Any, **headers: str) -> ClientReply:
        """One request on a connection of its own."""
        async with await self.connect() as client:
            return await client.ask(body, **headers)

    async def metrics(self) -> str:
        async with await self.connect() as client:
            client.send(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
            return (await client.read_reply("GET")).body.decode()

    async def metric(self, name: str, **labels: str) -> float:
        """The value of one sample, 0 when it is not there; labels not given may be anything."""
        total = 0.0
        for line in (await self.metrics()).splitlines():
            if not line.startswith((f"kthena_router_{name}{{", f"kthena_router_{name} ")):
                continue
            if all(f'{label}="{value}"' in line for label, value in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total

    async def log_entries(self, count: int) -> list[dict[str, Any]]:
        """The entries of the JSON access log, once there are `count`."""
        assert self.log is not None
        while True:
            text = self.log.read_text() if self.log.exists() else ""
            if text.count("\n") >= count:
                return [json.loads(line) for line in text.splitlines()]
            await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(
    table: RouteTable,
    backends: Iterable[Backend],
    config: RouterConfig = QUIET,
    *,
    log: Path | None = None,
) -> AsyncIterator[Fleet]:
    """A router on a free port that serves these."""
    if log is not None:
        config = replace(config, access_log=AccessLogConfig(format="json", output=str(log)))
    router = Router(config, SystemClock(), random.Random(1), Metrics("kthena_router_"))
    router.swap(table, backends)
    port = await router.serve("127.0.0.1", 0)
    try:
        yield Fleet(router, port, log)
    finally:
        await router.close(0)


async def eventually(condition: Callable[[], object], timeout_s: float = 5.0) -> None:
    """Wait until a condition of another task or socket holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - sockets of the kernel have no event to wait for
            await asyncio.sleep(0.005)
