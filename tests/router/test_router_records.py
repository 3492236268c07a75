"""Metrics and the access log."""

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kthena.router.access_log import AccessLog
from kthena.router.call import Call
from kthena.router.config import AccessLogConfig
from kthena.router.endpoints import Endpoint, EndpointSet, LiveBackend
from kthena.router.log_lines import json_line, text_line
from kthena.router.metrics import UNRESOLVED, Destination
from kthena.router.proxy.errors import RouterError
from kthena.router.proxy.reply import Reply
from kthena.router.proxy.request import Request
from kthena.router.reasons import Reason
from kthena.router.routes.spec import EndpointSpec, Server
from kthena.router.scheduler.dispatch import Leg
from support.router_client import Client, chat, get
from support.router_fleet import (
    backend,
    eventually,
    key,
    pd_backend,
    route,
    rule,
    serving,
    table_of,
)
from support.router_upstream import Upstream, replying, reset

LINE = b"x" * 300 + b"\n"
CHAT = {"model": "chat", "messages": [{"content": "MARKER-PROMPT"}]}
TABLE = table_of(route("chat", rule("s"), name="r", adapters=("lora",)))

ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Nobody:
    """A flow and a channel for calls that go nowhere."""

    ending = False

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def finished_call(model: str = "chat", path: str = "/v1/chat/completions", **changes: Any) -> Call:
    """A request that failed on its third attempt, 12 ms after it came in at 5 s."""
    nobody: Any = Nobody()
    request = Request("POST", "1.1", "127.0.0.1", {}, [])
    request.path = path
    call = Call(nobody, request, Reply(nobody, request, keep_alive=True), "id-1", 5.0)
    server = Server(key("s"), "base", 8000)
    live = LiveBackend(server, EndpointSet(()), "default/s", available=True)
    endpoint = Endpoint(EndpointSpec(key("p"), "uid", "10.0.0.1", 8000))
    call.model = model
    call.leg = Leg(live, "base", endpoint)
    call.answering = endpoint
    call.destination = Destination("default/r", "model_server", "default/s", "base")
    call.attempts = 3
    call.upstream_status = 502
    call.dispatched = 5.001
    call.failure = RouterError(502, Reason.PROXY, 'pod default/p: it said "no"')
    for name, value in changes.items():
        setattr(call, name, value)
    call.close(5.012)
    return call


def test_a_json_line_has_kthenas_keys_in_kthenas_order() -> None:
    line = json.loads(json_line(finished_call(), ORIGIN))
    assert line == {
        "timestamp": "2026-01-01T00:00:05.000000Z",
        "method": "POST",
        "path": "/v1/chat/completions",
        "protocol": "HTTP/1.1",
        "status_code": 502,
        "error": {"type": "proxy", "message": 'pod default/p: it said "no"'},
        "model_name": "chat",
        "model_route": "default/r",
        "model_server": "default/s",
        "selected_pod": "default/p",
        "request_id": "id-1",
        "backend_type": "model_server",
        "backend_name": "default/s",
        "upstream_model": "base",
        "upstream_status_code": 502,
        "upstream_attempts": 3,
        "error_origin": "router",
        "duration_total": 12,
        "duration_request_processing": 1,
        "duration_upstream_processing": 11,
        "duration_response_processing": 0,
    }
    assert list(line) == [
        "timestamp", "method", "path", "protocol", "status_code", "error", "model_name",
        "model_route", "model_server", "selected_pod", "request_id", "backend_type", "backend_name",
        "upstream_model", "upstream_status_code", "upstream_attempts", "error_origin",
        "duration_total", "duration_request_processing", "duration_upstream_processing",
        "duration_response_processing",
    ]  # fmt: skip


NOTHING_ASKED: dict[str, Any] = {
    "leg": None,
    "destination": UNRESOLVED,
    "attempts": 0,
    "upstream_status": 0,
    "dispatched": 0.0,
    "failure": None,
}


def test_empty_fields_are_left_out_but_the_model_and_the_durations_are_not() -> None:
    call = finished_call("", "/v1/models", **NOTHING_ASKED)
    assert json.loads(json_line(call, ORIGIN)) == {
        "timestamp": "2026-01-01T00:00:05.000000Z", "method": "POST", "path": "/v1/models",
        "protocol": "HTTP/1.1", "status_code": 0, "model_name": "", "request_id": "id-1",
        "duration_total": 12, "duration_request_processing": 12, "duration_upstream_processing": 0,
        "duration_response_processing": 0,
    }  # fmt: skip
    assert text_line(call, ORIGIN) == (
        b'[2026-01-01T00:00:05.000000Z] "POST /v1/models HTTP/1.1" 0 model_name= request_id=id-1 '
        b"timings=12ms(12+0+0)\n"
    )


def test_a_text_line_has_kthenas_form_with_ambiguous_values_quoted() -> None:
    assert text_line(finished_call(), ORIGIN).decode() == (
        '[2026-01-01T00:00:05.000000Z] "POST /v1/chat/completions HTTP/1.1" 502 '
        'error="proxy:pod default/p: it said \\"no\\"" model_name=chat model_route=default/r '
        "model_server=default/s selected_pod=default/p request_id=id-1 backend_type=model_server "
        "backend_name=default/s upstream_model=base upstream_status_code=502 upstream_attempts=3 "
        "error_origin=router timings=12ms(1+11+0)\n"
    )


@pytest.mark.parametrize("model", ["a\nb", "a b", 'a"b', "a\x1b[31m", "\u2028", "\x85"])
def test_a_client_cannot_forge_lines_or_fields(model: str) -> None:
    call = finished_call(model, f"/v1/{model}")
    text = text_line(call, ORIGIN).decode()
    assert len(text.splitlines()) == 1
    assert "\x1b" not in text
    assert f"model_name={json.dumps(model)} " in text
    assert json_line(call, ORIGIN).count(b"\n") == 1
    assert json.loads(json_line(call, ORIGIN))["model_name"] == model


async def test_requests_are_logged_with_what_became_of_them(tmp_path: Path) -> None:
    table = table_of(route("chat", rule("s"), name="r"), route("pd", rule("pd")))
    async with Upstream() as engine, Upstream() as decode:
        backends = [
            backend("s", engine, model="base"),
            pd_backend("pd", {"g": ([engine], [decode])}),
        ]
        async with serving(table, backends, log=tmp_path / "log") as fleet:
            async with await fleet.connect() as client:
                for data in (
                    chat(CHAT, x_request_id="one"),
                    chat({"model": "pd"}),
                    chat({"model": "none"}),
                    get("/v1/models"),
                    get("/healthz"),
                    chat(b"{", path="/v1/completions?secret=1"),
                ):
                    client.send(data)
                    await client.read_reply()
            entries = await fleet.log_entries(5)
    first, pair, unknown, listing, bad = entries
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first["timestamp"])
    assert first["request_id"] == "one"
    assert (first["model_name"], first["upstream_model"]) == ("chat", "base")
    assert (first["model_route"], first["model_server"]) == ("default/r", "default/s")
    assert first["selected_pod"] == f"default/pod-{engine.port}"
    assert (first["upstream_status_code"], first["upstream_attempts"]) == (200, 1)
    assert "error" not in first
    assert pair["selected_pod"] == f"default/pod-{decode.port}"
    assert pair["prefill_pod"] == f"default/pod-{engine.port}"
    assert (unknown["status_code"], unknown["error"]["type"]) == (404, "route_not_found")
    assert "model_route" not in unknown
    assert (listing["path"], listing["status_code"]) == ("/v1/models", 200)
    assert (bad["path"], bad["error"]["type"]) == ("/v1/completions", "request_parsing")
    assert bad["error_origin"] == "router"


async def test_the_pod_that_answered_is_logged_after_retries(tmp_path: Path) -> None:
    async with (
        Upstream(reset) as bad,
        Upstream() as good,
        serving(TABLE, [backend("s", bad, good)], log=tmp_path / "log") as fleet,
    ):
        count = 0
        while not bad.requests:
            count += 1
            await fleet.ask(CHAT)
        entry = (await fleet.log_entries(count))[-1]
    assert entry["selected_pod"] == f"default/pod-{good.port}"
    assert entry["upstream_attempts"] == 2


async def test_neither_prompts_nor_credentials_reach_log_metrics_or_errors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "Bearer MARKER-TOKEN"
    outcomes = [replying({}, 400), replying({}, 503), reset, replying({})]
    caplog.set_level("DEBUG")
    async with (
        Upstream() as engine,
        serving(TABLE, [backend("s", engine)], log=tmp_path / "log") as fleet,
    ):
        operations = await fleet.router.serve_operations("127.0.0.1", 0)
        bodies = []
        for behaviour in outcomes:
            engine.behaviour = behaviour
            bodies.append((await fleet.ask(CHAT, authorization=secret)).body)
        broken = json.dumps({**CHAT, "model": "none"}).encode()
        bodies.append((await fleet.ask(broken, authorization=secret)).body)
        bodies.append((await fleet.ask(broken[:-1], authorization=secret)).body)
        await fleet.log_entries(6)
        async with await Client.connect(operations) as client:
            client.send(get("/metrics"))
            bodies.append((await client.read_reply("GET")).body)
    text = (tmp_path / "log").read_text() + caplog.text + b"".join(bodies).decode()
    assert "MARKER" not in text


async def test_requests_are_counted_with_kthenas_labels() -> None:
    async with Upstream() as engine, serving(TABLE, [backend("s", engine, model="base")]) as fleet:
        await fleet.ask(CHAT)
        await fleet.ask({"model": "lora"})
        text = await fleet.metrics()
    assert (
        'kthena_router_requests_total{backend_name="default/s",backend_type="model_server",'
        'error_type="successful_request",model="chat",model_route="default/r",'
        'path="/v1/chat/completions",status_code="200",upstream_model="base"} 1.0'
    ) in text
    assert 'model="lora",model_route="default/r"' in text
    assert 'upstream_model="lora"' in text
    assert "kthena_router_request_duration_seconds_bucket{" in text
    assert 'le="60.0"' in text
    assert "kthena_router_active_requests 0.0" in text
    assert 'kthena_router_active_downstream_requests{model="chat"} 0.0' in text


async def test_open_connections_and_held_bodies_can_be_watched() -> None:
    async with Upstream() as engine, serving(TABLE, [backend("s", engine)]) as fleet:
        await fleet.ask(CHAT)
        async with await fleet.connect() as client:
            client.send(b"POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n12345")
            await eventually(lambda: fleet.router._server.buffered_bytes == 5)
            text = await fleet.metrics()
    assert "kthena_router_buffered_request_bytes 5.0" in text
    assert "kthena_router_client_connections 2.0" in text
    assert "kthena_router_upstream_connections 1.0" in text
    assert "kthena_router_upstream_resends 0.0" in text
    assert "kthena_router_access_log_lost_lines 0.0" in text


async def test_labels_are_bounded_whatever_clients_send() -> None:
    async with Upstream() as engine, serving(TABLE, [backend("s", engine)]) as fleet:
        for number in range(20):
            async with await fleet.connect() as client:
                client.send(chat({"model": f"made-up-{number}"}, path=f"/v1/made-up/{number}"))
                await client.read_reply()
                client.send(chat(CHAT, path=f"/v1/made-up/{number}"))
                await client.read_reply()
        text = await fleet.metrics()
        assert "made-up" not in text
        assert (
            await fleet.metric(
                "requests_total", model="unknown", path="other", backend_type="unresolved"
            )
            == 20
        )
        assert await fleet.metric("requests_total", model="chat", path="other") == 20


def test_a_stuck_output_stops_nobody_and_loses_lines_that_are_counted(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    log = AccessLog(AccessLogConfig(output=str(fifo)))
    log.open()
    for _ in range(200):
        log.write([LINE] * 300)
    assert log.pending
    assert 0 < log.dropped < 200 * 300
    received = b""
    while log.pending:
        received += os.read(reader, 1 << 20)
        log.flush()
    received += os.read(reader, 1 << 20)
    assert received == LINE * (200 * 300 - log.dropped)
    os.close(reader)
    log.write([LINE])
    assert not log.enabled
    log.close()


async def test_an_output_that_cannot_be_opened_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="absent"):
        async with serving(TABLE, [], log=tmp_path / "absent" / "log"):
            pass


async def test_a_log_that_is_off_writes_nothing(tmp_path: Path) -> None:
    log = AccessLog(AccessLogConfig(enabled=False, output=str(tmp_path / "log")))
    log.open()
    log.close()
    assert not (tmp_path / "log").exists()
