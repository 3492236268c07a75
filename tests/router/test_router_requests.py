"""Requests through the router, over real sockets on both sides."""

import asyncio
import json
import random
from dataclasses import replace

import pytest

from kthena.kube.clock import SystemClock
from kthena.kube.readiness import ComponentState
from kthena.router.app import Router
from kthena.router.proxy.limits import Limits
from kthena.telemetry.metrics import Metrics
from support.router_client import Client, ClientReply, chat, get
from support.router_fleet import (
    QUIET,
    backend,
    eventually,
    key,
    route,
    rule,
    serving,
    spec_of,
    table_of,
)
from support.router_upstream import Turn, Upstream, hang, replying

CHAT = {"model": "chat", "messages": [{"role": "user", "content": "hello"}]}
TABLE = table_of(route("chat", rule("s")))


async def test_a_request_reaches_the_engine_under_its_model_name_and_the_reply_comes_back() -> None:
    async with Upstream() as engine, serving(TABLE, [backend("s", engine, model="base")]) as fleet:
        reply = await fleet.ask(CHAT)

    assert reply.status == 200
    assert reply.json["model"] == "base"
    (seen,) = engine.requests
    assert (seen.method, seen.target) == ("POST", "/v1/chat/completions")
    assert seen.json == {**CHAT, "model": "base"}
    assert seen.header("host") == f"127.0.0.1:{engine.port}"
    assert seen.header("x-forwarded-for") == "127.0.0.1"
    assert seen.header("x-forwarded-host") == "router.example"
    assert seen.header("x-forwarded-proto") == "http"
    assert seen.header("x-test") == "yes"
    assert seen.header("via") is None
    assert seen.header("content-length") == str(len(seen.body))


async def test_without_a_model_of_its_own_the_server_gets_the_body_as_it_is() -> None:
    body = b' {"model" : "chat","seed":1.0, "messages":[ ]}\n'
    async with Upstream() as engine, serving(TABLE, [backend("s", engine)]) as fleet:
        assert (await fleet.ask(body)).status == 200
    assert engine.requests[0].body == body


@pytest.mark.parametrize(
    "path",
    [
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/rerank",
        "/v1/anything/else?a=b%20",
    ],
)
async def test_any_path_below_v1_is_routed_by_the_model_in_its_body(path: str) -> None:
    async with (
        Upstream() as engine,
        serving(TABLE, [backend("s", engine)]) as fleet,
        await fleet.connect() as client,
    ):
        client.send(chat({"model": "chat", "input": ["a", "b"]}, path=path))
        assert (await client.read_reply()).status == 200
    assert engine.requests[0].target == path


async def test_hop_by_hop_fields_end_here_in_both_directions() -> None:
    async def behaviour(turn: Turn) -> None:
        turn.json(
            {},
            200,
            [
                ("connection", "x-secret"), ("x-secret", "1"), ("keep-alive", "timeout=5"),
                ("proxy-authenticate", "Basic"), ("upgrade", "h2c"), ("x-kept", "1"),
                ("x-request-id", "the-engines"), ("set-cookie", "a=1"), ("set-cookie", "b=2"),
            ],
        )  # fmt: skip

    async with Upstream(behaviour) as engine, serving(TABLE, [backend("s", engine)]) as fleet:
        reply = await fleet.ask(
            CHAT,
            connection="keep-alive, X-Hop",
            x_hop="1",
            te="trailers",
            proxy_authorization="Basic x",
            authorization="Bearer token",
            expect="100-continue",
            x_forwarded_for="203.0.113.7",
            x_forwarded_proto="https",
            x_forwarded_host="api.example",
            x_request_id="mine",
        )
    seen = engine.requests[0]
    for name in ("x-hop", "te", "proxy-authorization", "expect", "connection"):
        assert seen.header(name) is None
    assert seen.header("authorization") == "Bearer token"
    assert seen.all("x-forwarded-for") == ["203.0.113.7, 127.0.0.1"]
    assert seen.all("x-forwarded-proto") == ["https"]
    assert seen.all("x-forwarded-host") == ["api.example"]
    assert seen.all("x-request-id") == ["mine"]
    names = [name for name, _ in reply.headers]
    assert names.count("set-cookie") == 2
    assert reply.header("x-kept") == "1"
    assert reply.header("x-request-id") == "mine"
    assert not {"x-secret", "keep-alive", "proxy-authenticate", "upgrade", "connection"} & set(
        names
    )


async def test_credentials_can_be_kept_from_the_engines() -> None:
    config = replace(QUIET, forward_authorization=False)
    async with Upstream() as engine, serving(TABLE, [backend("s", engine)], config) as fleet:
        await fleet.ask(CHAT, authorization="Bearer token")
    assert engine.requests[0].header("authorization") is None


@pytest.mark.parametrize("given", ["", "x" * 129, 'a"b', "a b", "ü"])
async def test_a_request_id_that_may_not_go_into_logs_is_replaced(given: str) -> None:
    async with (
        Upstream() as engine,
        serving(TABLE, [backend("s", engine)]) as fleet,
        await fleet.connect() as client,
    ):
        client.send(chat(CHAT, x_request_id=given))
        reply = await client.read_reply()
    made = reply.header("x-request-id")
    assert made is not None
    assert made != given
    assert [len(part) for part in made.split("-")] == [8, 4, 4, 4, 12]
    assert engine.requests[0].header("x-request-id") == made


async def test_request_ids_differ() -> None:
    async with Upstream() as engine, serving(TABLE, [backend("s", engine)]) as fleet:
        made = {(await fleet.ask(CHAT)).header("x-request-id") for _ in range(20)}
    assert len(made) == 20


async def test_a_stream_is_relayed_event_by_event() -> None:
    go = asyncio.Event()

    async def behaviour(turn: Turn) -> None:
        turn.stream_head()
        for number in range(3):
            turn.event({"n": number})
            await go.wait()
            go.clear()
        turn.chunk(b"data: [DONE]\n\n")
        turn.stream_end()

    async with (
        Upstream(behaviour) as engine,
        serving(TABLE, [backend("s", engine)]) as fleet,
        await fleet.connect() as client,
    ):
        client.send(chat({**CHAT, "stream": True}))
        head = await client.read_until(b"\r\n\r\n")
        assert b"content-type: text/event-stream\r\n" in head
        assert b"transfer-encoding: chunked\r\n" in head
        for number in range(3):
            assert b'{"n": %d}' % number in await client.read_until(b"\n\n\r\n")
            go.set()
        rest = await client.read_until(b"0\r\n\r\n")
        assert b"data: [DONE]\n\n" in rest


async def test_the_head_of_a_stream_arrives_before_its_first_event() -> None:
    async def behaviour(turn: Turn) -> None:
        turn.stream_head()
        await turn.left.wait()

    async with (
        Upstream(behaviour) as engine,
        serving(TABLE, [backend("s", engine)]) as fleet,
        await fleet.connect() as client,
    ):
        client.send(chat({**CHAT, "stream": True}))
        assert b" 200 " in await client.read_until(b"\r\n\r\n")


async def test_a_stream_for_an_http_1_0_client_ends_with_the_connection() -> None:
    async def behaviour(turn: Turn) -> None:
        turn.stream_head()
        turn.event({"n": 1})
        turn.stream_end()

    async with (
        Upstream(behaviour) as engine,
        serving(TABLE, [backend("s", engine)]) as fleet,
        await fleet.connect() as client,
    ):
        client.send(chat(CHAT, version="1.0"))
        data = await client.read_to_end()
    assert data.endswith(b'\r\n\r\ndata: {"n": 1}\n\n')
    assert b"chunked" not in data


async def test_requests_of_one_connection_follow_each_other() -> None:
    async with (
        Upstream() as engine,
        serving(TABLE, [backend("s", engine)]) as fleet,
        await fleet.connect() as client,
    ):
        client.send(chat(CHAT) + chat({**CHAT, "n": 2}) + get("/healthz") + chat({"model": "no"}))
        assert [(await client.read_reply()).status for _ in range(4)] == [200, 200, 200, 404]
        assert (await client.ask(CHAT)).status == 200
    assert [request.json.get("n") for request in engine.requests] == [None, 2, None]


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 501])
async def test_what_an_engine_answers_is_passed_on(status: int) -> None:
    body = {"error": {"message": "context too long"}}
    async with (
        Upstream(replying(body, status, retry_after="7")) as engine,
        serving(TABLE, [backend("s", engine)]) as fleet,
    ):
        reply = await fleet.ask(CHAT)
    assert (reply.status, reply.json) == (status, body)
    assert reply.header("retry-after") == "7"
    assert reply.header("x-kthena-reason") == "upstream_response"
    assert len(engine.requests) == 1


@pytest.mark.parametrize(
    ("body", "words", "param"),
    [
        (b"", "truncated", None),
        (b"{", "truncated", None),
        (b"[]", "not a JSON object", None),
        (b"null", "not a JSON object", None),
        (b'{"model":"chat"} x', "trailing characters", None),
        (b'{"model":"chat",}', "trailing comma", None),
        (b"{'model':'chat'}", "keys must be strings", None),
        (b"{}", "names no model", "model"),
        (b'{"model":null}', "names no model", "model"),
        (b'{"model":" "}', "names no model", "model"),
        (b'{"model":7}', "`model` is not a string", None),
        (b'{"model":"' + b"x" * 1025 + b'"}', "longer than 1024 characters", "model"),
        (b'{"model":"\\ud800"}', "`model` is not a string", None),
        (b"[" * 100_000, "not a JSON object", None),
        (b'{"a":' + b"[" * 100_000, "nested too deeply", None),
        (b'{"model":' * 100_000, "nested too deeply", None),
    ],
)
async def test_bodies_that_cannot_be_routed_are_400(
    body: bytes, words: str, param: str | None
) -> None:
    async with serving(TABLE, []) as fleet:
        reply = await fleet.ask(body)
    assert reply.status == 400
    assert words in reply.error["message"]
    assert reply.error["type"] == "invalid_request_error"
    assert reply.error["param"] == param
    assert reply.header("x-kthena-reason") == "request_parsing"
    assert reply.header("x-request-id")


async def test_bodies_with_too_many_members_are_400_however_they_are_written() -> None:
    many = b"{" + b",".join(b'"k%d":1' % n for n in range(5000)) + b',"model":"chat"}'
    repeated = b"{" + b'"k":1,' * 5000 + b'"model":"chat"}'
    async with Upstream() as engine, serving(TABLE, [backend("s", engine, model="m")]) as fleet:
        for body in (many, repeated):
            reply = await fleet.ask(body)
            assert reply.status == 400
            assert "more than 4096 members" in reply.error["message"]
    assert not engine.requests


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"content_type": "multipart/form-data; boundary=x"}, "multipart"),
        ({"content_encoding": "gzip"}, "compressed"),
    ],
)
async def test_bodies_in_another_form_are_415(headers: dict[str, str], words: str) -> None:
    async with serving(TABLE, []) as fleet:
        reply = await fleet.ask(CHAT, **headers)
    assert reply.status == 415
    assert words in reply.error["message"]


async def test_an_unknown_model_is_404_as_openai_says_it() -> None:
    async with serving(TABLE, []) as fleet:
        reply = await fleet.ask({"model": "none"})
    assert reply.status == 404
    assert reply.error == {
        "message": "the model `none` does not exist",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    assert reply.header("x-kthena-reason") == "route_not_found"


async def test_a_server_without_endpoints_is_503_with_the_cause_and_a_hint_when_to_retry() -> None:
    table = table_of(route("chat", rule(("absent", 1), ("empty", 1), ("idle", 0))))
    async with serving(table, [backend("empty")]) as fleet:
        reply = await fleet.ask(CHAT)
    assert reply.status == 503
    assert reply.error["message"] == (
        "ModelServer default/absent does not exist; ModelServer default/empty has no ready pod"
    )
    assert reply.error["type"] == "server_error"
    assert reply.header("retry-after") == "5"
    assert reply.header("x-kthena-reason") == "pod_discovery"


async def test_a_refused_server_takes_no_traffic_and_says_why() -> None:
    async with Upstream() as engine:
        one = backend("s", engine)
        refused = replace(one, server=replace(one.server, refusal="spec.x is not supported"))
        async with serving(TABLE, [refused]) as fleet:
            reply = await fleet.ask(CHAT)
    assert reply.status == 503
    assert "is refused: spec.x is not supported" in reply.error["message"]
    assert not engine.requests


async def test_a_refused_route_is_404_with_the_reason() -> None:
    refused = replace(route("chat", rule("s")), refusal="ModelRoute default/r: spec.rateLimit")
    async with serving(table_of(refused), []) as fleet:
        reply = await fleet.ask(CHAT)
        models = await _get(fleet.port, "/v1/models")
    assert reply.status == 404
    assert "spec.rateLimit" in reply.error["message"]
    assert reply.header("x-kthena-reason") == "not_supported"
    assert models.json["data"] == []


async def _get(port: int, path: str, method: str = "GET") -> ClientReply:
    async with await Client.connect(port) as client:
        client.send(get(path, method=method))
        return await client.read_reply(method)


async def test_the_models_are_listed_sorted_and_once() -> None:
    table = table_of(route("b/model", rule("s"), adapters=("lora-1", "a")), route("a", rule("s")))
    async with serving(table, []) as fleet:
        listed = (await _get(fleet.port, "/v1/models")).json
        one = await _get(fleet.port, "/v1/models/b%2Fmodel")
        plain = await _get(fleet.port, "/v1/models/b/model")
        missing = await _get(fleet.port, "/v1/models/none")
        posted = await _get(fleet.port, "/v1/models", "POST")
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["a", "b/model", "lora-1"]
    expected = {"id": "b/model", "object": "model", "created": 0, "owned_by": "kthena"}
    assert one.json == plain.json == listed["data"][1] == expected
    assert (missing.status, missing.error["code"]) == (404, "model_not_found")
    assert (posted.status, posted.header("allow")) == (405, "GET, HEAD")


async def test_health_readiness_and_metrics() -> None:
    async with serving(TABLE, []) as fleet:
        healthy = await _get(fleet.port, "/healthz")
        ready = await _get(fleet.port, "/readyz")
        head = await _get(fleet.port, "/readyz", "HEAD")
        metrics = await _get(fleet.port, "/metrics")
        nothing = await _get(fleet.port, "/other")
        posted = await _get(fleet.port, "/healthz", "POST")
        fleet.router.readiness.report("crds", ready=True, detail="modelroutes are absent")
        told = await _get(fleet.port, "/readyz")
        standby = ComponentState("lease", ready=False, detail="standby")
        fleet.router.readiness.show(lambda: [standby])
        shown = await _get(fleet.port, "/readyz")
        fleet.router.readiness.report("pods", ready=False)
        waiting = await _get(fleet.port, "/readyz")
    assert (healthy.status, healthy.json) == (200, {"message": "ok"})
    assert (ready.status, ready.json) == (200, {"message": "router is ready"})
    assert (head.status, head.body) == (200, b"")
    assert metrics.status == 200
    assert metrics.header("content-type") == "text/plain; version=0.0.4; charset=utf-8"
    assert (nothing.status, nothing.header("x-kthena-reason")) == (404, "path_not_found")
    assert posted.status == 405
    assert (told.status, told.json["details"]) == (200, {"crds": "modelroutes are absent"})
    assert (shown.status, shown.json["details"]["lease"]) == (200, "standby")
    assert (waiting.status, waiting.json["message"]) == (503, "router is not ready")
    assert waiting.json["details"]["pods"] == "not ready"


async def test_a_router_is_ready_only_after_its_first_table() -> None:
    router = Router(QUIET, SystemClock(), random.Random(1), Metrics("kthena_router_"))
    port = await router.serve("127.0.0.1", 0)
    assert (await _get(port, "/readyz")).status == 503
    router.swap(TABLE, [])
    assert (await _get(port, "/readyz")).status == 200
    await router.close(0)


async def test_metrics_are_on_the_port_for_inference_only_when_asked_for() -> None:
    config = replace(QUIET, expose_metrics=False)
    async with serving(TABLE, [], config) as fleet:
        assert (await _get(fleet.port, "/metrics")).status == 404
        operations = await fleet.router.serve_operations("127.0.0.1", 0)
        assert (await _get(operations, "/metrics")).status == 200
        assert (await _get(operations, "/healthz")).status == 200
        assert (await _get(operations, "/readyz")).status == 200
        assert (await _get(operations, "/v1/models")).status == 404


async def test_a_body_above_the_limit_is_413_and_names_it() -> None:
    config = replace(QUIET, limits=Limits(max_body_bytes=10_000))
    async with Upstream() as engine, serving(TABLE, [backend("s", engine)], config) as fleet:
        fits = json.dumps(CHAT).encode().ljust(10_000)
        assert (await fleet.ask(fits)).status == 200
        reply = await fleet.ask(fits + b" ")
        assert reply.status == 413
        assert "10000 bytes" in reply.error["message"]
        assert reply.header("x-kthena-reason") == "body_too_large"
        assert await fleet.metric("requests_total", status_code="413", error_type="body_too_large")


async def test_large_bodies_and_replies_pass_whole() -> None:
    big = {"model": "chat", "image": "A" * (20 << 20)}

    async def behaviour(turn: Turn) -> None:
        turn.json({"embedding": "B" * (10 << 20), "got": len(turn.request.body)})

    async with (
        Upstream(behaviour) as engine,
        serving(TABLE, [backend("s", engine, model="renamed")]) as fleet,
    ):
        reply = await fleet.ask(big)
    assert engine.requests[0].json == {**big, "model": "renamed"}
    assert len(reply.json["embedding"]) == 10 << 20


async def test_a_chunked_request_body_reaches_the_engine_with_a_length() -> None:
    encoded = json.dumps(CHAT).encode()
    data = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    for byte in encoded:
        data += b"1\r\n%c\r\n" % byte
    async with (
        Upstream() as engine,
        serving(TABLE, [backend("s", engine)]) as fleet,
        await fleet.connect() as client,
    ):
        client.send(data + b"0\r\n\r\n")
        assert (await client.read_reply()).status == 200
    assert engine.requests[0].body == encoded
    assert engine.requests[0].header("transfer-encoding") is None


async def test_the_newest_table_is_used_and_requests_in_progress_go_on() -> None:
    async with (
        Upstream(hang) as old,
        Upstream() as new,
        serving(TABLE, [backend("s", old)]) as fleet,
        await fleet.connect() as client,
    ):
        client.send(chat(CHAT))
        await eventually(lambda: old.requests)
        fleet.router.swap(TABLE, [backend("s", new)])
        assert (await fleet.ask(CHAT)).status == 200
        assert len(new.requests) == 1
        assert not old.aborted


async def test_an_engine_on_ipv6_is_reached() -> None:
    async with Upstream(host="::1") as engine, serving(TABLE, [backend("s", engine)]) as fleet:
        assert (await fleet.ask(CHAT)).status == 200
    assert engine.requests[0].header("host") == f"[::1]:{engine.port}"


async def test_an_error_of_the_router_itself_is_500_and_the_connection_lives() -> None:
    class Broken:
        def knows(self, _: str) -> bool:
            raise ZeroDivisionError

    async with serving(TABLE, []) as fleet, await fleet.connect() as client:
        fleet.router._table = Broken()  # type: ignore[assignment] # a fault that must not spread
        reply = await client.ask(CHAT)
        assert (reply.status, reply.error["code"]) == (500, "internal")
        fleet.router._table = TABLE
        assert (await client.ask(CHAT)).status == 503
        assert await fleet.metric("requests_total", error_type="internal") == 1
        assert await fleet.metric("active_requests") == 0


async def test_two_servers_of_one_pod_share_its_count() -> None:
    async with Upstream(hang) as engine:
        shared = spec_of(engine)
        table = table_of(route("a", rule("s")), route("b", rule("t")))
        backends = [backend("s", engine), backend("t", engine)]
        assert backends[0].endpoints == backends[1].endpoints == (shared,)
        async with serving(table, backends) as fleet:
            one = fleet.router._dispatcher.backends[key("s")].endpoints.endpoints[0]
            assert one is fleet.router._dispatcher.backends[key("t")].endpoints.endpoints[0]
            async with await fleet.connect() as client:
                client.send(chat({"model": "a"}))
                await eventually(lambda: one.in_flight == 1)
                fleet.router.swap(table, backends)
                assert fleet.router._dispatcher.backends[key("s")].endpoints.endpoints[0] is one
            await eventually(lambda: one.in_flight == 0)
