"""Prefill, then decode, over plain http."""

import asyncio

import pytest

from support.router_client import chat
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
from support.router_upstream import Behaviour, Turn, Upstream, answer, close, hang, replying, reset

CHAT = {"model": "chat", "messages": [{"role": "user", "content": "hello"}]}
TABLE = table_of(route("chat", rule("s")))


async def test_prefill_computes_one_token_and_decode_gets_the_request() -> None:
    order = []

    def record(name: str) -> Behaviour:
        async def behaviour(turn: Turn) -> None:
            order.append(name)
            turn.json({"from": name, "model": turn.request.json["model"]})

        return behaviour

    body = {
        **CHAT, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 100,
        "max_completion_tokens": 90, "min_tokens": 5, "n": 3, "logprobs": True, "top_logprobs": 4,
        "seed": 1,
    }  # fmt: skip
    async with Upstream(record("prefill")) as prefill, Upstream(record("decode")) as decode:
        server = pd_backend("s", {"g": ([prefill], [decode])}, model="base")
        async with serving(TABLE, [server]) as fleet:
            async with await fleet.connect() as client:
                client.send(chat(body, path="/v1/chat/completions?x=y", authorization="Bearer t"))
                reply = await client.read_reply()
            assert reply.json == {"from": "decode", "model": "base"}
            assert await fleet.metric("request_prefill_duration_seconds_count", status_code="200")
            assert await fleet.metric("request_decode_duration_seconds_count", status_code="200")
    assert order == ["prefill", "decode"]
    (first,), (second,) = prefill.requests, decode.requests
    assert first.json == {
        "model": "base", "messages": CHAT["messages"], "max_tokens": 1, "max_completion_tokens": 1,
        "min_tokens": 1, "n": 1, "seed": 1,
    }  # fmt: skip
    assert second.json == {**body, "model": "base"}
    for seen in (first, second):
        assert seen.target == "/v1/chat/completions?x=y"
        assert seen.header("authorization") == "Bearer t"
    assert first.header("x-request-id") == second.header("x-request-id")


async def test_a_body_that_prefill_cannot_be_made_of_is_400() -> None:
    """Repeated members are only met when the body is edited, which happens in a task of its own."""
    body = b'{"model":"chat",' + b",".join([b'"a":1'] * 5000) + b"}"
    async with (
        Upstream() as prefill,
        Upstream() as decode,
        serving(TABLE, [pd_backend("s", {"g": ([prefill], [decode])})]) as fleet,
    ):
        async with asyncio.timeout(2):
            reply = await fleet.ask(body)
        assert (reply.status, reply.error["code"]) == (400, "request_parsing")
        assert await fleet.metric("active_upstream_requests") == 0
    assert not prefill.requests


async def test_a_fault_of_a_connector_is_500_and_keeps_nobody_waiting() -> None:
    async with (
        Upstream() as prefill,
        Upstream() as decode,
        serving(TABLE, [pd_backend("s", {"g": ([prefill], [decode])})]) as fleet,
    ):
        fleet.router._forwarder._connectors = {}
        async with asyncio.timeout(2):
            reply = await fleet.ask(CHAT)
        assert (reply.status, reply.error["code"]) == (500, "internal")
        assert await fleet.metric("active_upstream_requests") == 0


async def test_decode_begins_only_after_prefill_has_answered() -> None:
    go = asyncio.Event()

    async def slow(turn: Turn) -> None:
        await go.wait()
        await answer(turn)

    async with (
        Upstream(slow) as prefill,
        Upstream() as decode,
        serving(TABLE, [pd_backend("s", {"g": ([prefill], [decode])})]) as fleet,
    ):
        asking = asyncio.ensure_future(fleet.ask(CHAT))
        await eventually(lambda: prefill.requests)
        await asyncio.sleep(0.05)
        assert not decode.requests
        go.set()
        assert (await asking).status == 200


async def test_the_connections_of_both_legs_are_used_again() -> None:
    async with Upstream() as prefill, Upstream() as decode:
        async with serving(TABLE, [pd_backend("s", {"g": ([prefill], [decode])})]) as fleet:
            for _ in range(5):
                assert (await fleet.ask(CHAT)).status == 200
        assert (prefill.accepted, decode.accepted) == (1, 1)


async def test_pairs_stay_within_their_group() -> None:
    engines = [Upstream() for _ in range(4)]
    async with engines[0] as p1, engines[1] as d1, engines[2] as p2, engines[3] as d2:
        server = pd_backend("s", {"one": ([p1], [d1]), "two": ([p2], [d2])})
        async with serving(TABLE, [server]) as fleet:
            for number in range(12):
                assert (await fleet.ask(CHAT, x_request_id=f"r{number}")).status == 200

        def ids(engine: Upstream) -> list[str | None]:
            return [request.header("x-request-id") for request in engine.requests]

        assert ids(p1) == ids(d1)
        assert ids(p2) == ids(d2)
        assert len(ids(p1)) + len(ids(p2)) == 12


@pytest.mark.parametrize("status", [400, 429])
async def test_what_prefill_refuses_is_the_answer(status: int) -> None:
    async with Upstream(replying({"error": "no"}, status)) as prefill, Upstream() as decode:
        async with serving(TABLE, [pd_backend("s", {"g": ([prefill], [decode])})]) as fleet:
            reply = await fleet.ask(CHAT)
        assert (reply.status, reply.json) == (status, {"error": "no"})
        assert not decode.requests


@pytest.mark.parametrize(
    "failure", [reset, close, replying({}, 503)], ids=["reset", "closed", "503"]
)
@pytest.mark.parametrize("side", ["prefill", "decode"])
async def test_another_pair_is_tried_when_a_leg_fails(failure: Behaviour, side: str) -> None:
    engines = [Upstream() for _ in range(4)]
    engines[0 if side == "prefill" else 1].behaviour = failure
    async with engines[0] as p1, engines[1] as d1, engines[2] as p2, engines[3] as d2:
        server = pd_backend("s", {"one": ([p1], [d1]), "two": ([p2], [d2])})
        async with serving(TABLE, [server]) as fleet:
            for _ in range(8):
                assert (await fleet.ask(CHAT)).status == 200
            endpoints = fleet.router._dispatcher.backends[key("s")].endpoints.endpoints
            assert [endpoint.in_flight for endpoint in endpoints] == [0, 0, 0, 0]
        failed = engines[0 if side == "prefill" else 1]
        assert failed.requests


async def test_a_failed_decode_keeps_its_prefill_engine_in_the_choice() -> None:
    async with (
        Upstream() as prefill,
        Upstream(reset) as bad,
        Upstream() as good,
        serving(TABLE, [pd_backend("s", {"g": ([prefill], [bad, good])})]) as fleet,
    ):
        while not bad.requests:
            assert (await fleet.ask(CHAT)).status == 200


async def test_the_timeout_covers_prefill_and_decode_together() -> None:
    async def slow(turn: Turn) -> None:
        await asyncio.sleep(0.4)
        await answer(turn)

    async with Upstream(slow) as prefill, Upstream(hang) as decode:
        server = pd_backend("s", {"g": ([prefill], [decode])}, timeout_s=0.8)
        async with serving(TABLE, [server]) as fleet:
            assert (await fleet.ask(CHAT)).status == 504
            await decode.abort_seen.wait()
        prefill.behaviour = hang
    async with Upstream(hang) as prefill, Upstream() as decode:
        server = pd_backend("s", {"g": ([prefill], [decode])}, timeout_s=0.05)
        async with serving(TABLE, [server]) as fleet:
            assert (await fleet.ask(CHAT)).status == 504
            await prefill.abort_seen.wait()
            assert not decode.requests


async def test_a_stream_of_decode_is_relayed_and_never_tried_again() -> None:
    async def breaks(turn: Turn) -> None:
        turn.stream_head()
        turn.event({"n": 1})
        await asyncio.sleep(0.01)
        turn.reset()

    async with Upstream() as prefill, Upstream(breaks) as one, Upstream(breaks) as two:
        async with (
            serving(TABLE, [pd_backend("s", {"g": ([prefill], [one, two])})]) as fleet,
            await fleet.connect() as client,
        ):
            client.send(chat({**CHAT, "stream": True}))
            data = await client.read_to_end()
        assert data.count(b"HTTP/1.1") == 1
        assert b"upstream_aborted" in data
        assert len(one.requests) + len(two.requests) == 1


@pytest.mark.parametrize(
    ("prefill", "decode", "words"),
    [
        (0, 2, "there is no ready prefill pod"),
        (2, 0, "there is no ready decode pod"),
        (0, 0, "there is neither a ready prefill nor a ready decode pod"),
    ],
)
async def test_a_missing_role_is_a_fast_503_that_names_it(
    prefill: int, decode: int, words: str
) -> None:
    engines = [Upstream() for _ in range(4)]
    server = pd_backend("s", {"g": (engines[:prefill], engines[2 : 2 + decode])})
    async with serving(TABLE, [server]) as fleet:
        reply = await fleet.ask(CHAT)
    assert reply.status == 503
    assert words in reply.error["message"]
    assert reply.header("x-kthena-reason") == "pd_role_missing"


async def test_roles_in_different_groups_do_not_make_a_pair() -> None:
    async with Upstream() as prefill, Upstream() as decode:
        server = pd_backend("s", {"one": ([prefill], []), "two": ([], [decode])})
        async with serving(TABLE, [server]) as fleet:
            reply = await fleet.ask(CHAT)
        assert reply.status == 503
        assert "no group has both" in reply.error["message"]
        assert not prefill.requests


async def test_a_disaggregated_server_and_a_plain_one_can_stand_in_for_each_other() -> None:
    table = table_of(route("chat", rule("pd", "plain")))
    async with Upstream(reset) as prefill, Upstream() as decode, Upstream() as plain:
        backends = [
            pd_backend("pd", {"g": ([prefill], [decode])}, model="pd-name"),
            backend("plain", plain, model="plain-name"),
        ]
        async with serving(table, backends) as fleet:
            while not prefill.requests:
                reply = await fleet.ask(CHAT)
                assert (reply.status, reply.json["model"]) == (200, "plain-name")


async def test_pods_of_no_group_get_nothing() -> None:
    async with Upstream() as prefill, Upstream() as decode, Upstream() as worker:
        server = pd_backend("s", {"g": ([prefill], [decode])})
        spare = backend("s", worker).endpoints
        server = type(server)(server.server, (*server.endpoints, *spare))
        async with serving(TABLE, [server]) as fleet:
            for _ in range(6):
                assert (await fleet.ask(CHAT)).status == 200
        assert not worker.requests
