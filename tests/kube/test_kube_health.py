import asyncio
import json
import signal
from collections.abc import AsyncIterator

import pytest

from kthena.kube.client import ClientConfig, KubeClient
from kthena.kube.client.http import Anonymous, Endpoint, HttpTransport
from kthena.kube.errors import ServiceUnavailable
from kthena.kube.health import HealthServer, build_health_app
from kthena.kube.readiness import ComponentState
from kthena.telemetry.metrics import CONTENT_TYPE, Metrics


class Bench:
    def __init__(self) -> None:
        self.states: list[ComponentState] = []
        self.metrics = Metrics("t_")
        app = build_health_app(lambda: self.states, self.metrics)
        self.server = HealthServer(app, "127.0.0.1", 0)
        self.client = KubeClient(
            HttpTransport(Endpoint(f"http://127.0.0.1:{self.server.port}", Anonymous())),
            ClientConfig(),
        )


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    before = signal.getsignal(signal.SIGTERM)
    task = asyncio.create_task(bench.server.run())
    yield bench
    await bench.client.raw("GET", "/healthz")
    assert signal.getsignal(signal.SIGTERM) is before
    await bench.client.close()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_health_answers_whatever_the_components_say(bench: Bench) -> None:
    bench.states = [ComponentState("c", ready=False, detail="waiting")]

    assert (await bench.client.raw("GET", "/healthz")).body == b"ok"


async def test_ready_lists_all_components(bench: Bench) -> None:
    bench.states = [
        ComponentState("a", ready=True, detail="running"),
        ComponentState("b", ready=True, detail="sleeping; no CRD"),
    ]

    reply = await bench.client.raw("GET", "/readyz")

    assert reply.status == 200
    assert json.loads(reply.body) == {
        "ready": True,
        "components": [
            {"name": "a", "ready": True, "detail": "running"},
            {"name": "b", "ready": True, "detail": "sleeping; no CRD"},
        ],
    }


async def test_one_component_that_is_not_ready_is_503(bench: Bench) -> None:
    bench.states = [
        ComponentState("a", ready=True, detail="running"),
        ComponentState("b", ready=False, detail="waiting; not listed yet"),
    ]

    with pytest.raises(ServiceUnavailable):
        await bench.client.raw("GET", "/readyz")


async def test_metrics_are_rendered(bench: Bench) -> None:
    bench.metrics.counter("x", "help").inc()

    reply = await bench.client.raw("GET", "/metrics")

    assert reply.headers["content-type"] == CONTENT_TYPE
    assert b"t_x_total 1.0" in reply.body


async def test_a_port_in_use_is_an_error_before_anything_starts(bench: Bench) -> None:
    app = build_health_app(list, Metrics("u_"))

    with pytest.raises(OSError, match="in use"):
        HealthServer(app, "127.0.0.1", bench.server.port)
