"""Further attempts: when, where, how many, and under which name."""

import asyncio
import random

import pytest

from kthena.router.proxy.errors import (
    ConnectError,
    ConnectionLostError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
)
from kthena.router.proxy.reply_head import ReplyHead
from kthena.router.retries import Retry, RetryBudget, RetryPolicy, is_retried, next_attempt
from support.router_client import chat
from support.router_fleet import backend, eventually, route, rule, serving, table_of
from support.router_upstream import (
    Behaviour,
    Turn,
    Upstream,
    answer,
    close,
    hang,
    replying,
    reset,
)

CHAT = {"model": "chat", "messages": []}
TABLE = table_of(route("chat", rule("s")))

FAILURES = {
    "reset": reset,
    "closed": close,
    "502": replying({}, 502),
    "503": replying({}, 503),
    "504": replying({}, 504),
}


def head(status: int, *headers: tuple[bytes, bytes]) -> ReplyHead:
    return ReplyHead(status, list(headers), [], 0, chunked=False)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (ConnectError("x"), "connect"),
        (ConnectionLostError("x"), "connection_lost"),
        (UpstreamTimeoutError("x"), None),
        (UpstreamProtocolError("x"), None),
        (head(502), "502"),
        (head(503), "503"),
        (head(504), "504"),
        (head(503, (b"retry-after", b"1")), None),
        (head(200), None),
        (head(429), None),
        (head(500), None),
    ],
    ids=str,
)
def test_what_an_attempt_came_to_decides_whether_another_follows(
    outcome: ReplyHead | UpstreamError, reason: str | None
) -> None:
    found = next_attempt(outcome, 1, RetryPolicy())
    assert found == (None if reason is None else Retry(reason))


def test_attempts_are_bounded_by_the_policy() -> None:
    def follows(attempts: int, further: int) -> bool:
        return next_attempt(ConnectError("x"), attempts, RetryPolicy(further)) is not None

    assert [follows(attempts, 2) for attempts in (1, 2, 3)] == [True, True, False]
    assert not follows(1, 0)


def test_back_pressure_is_told_by_its_header() -> None:
    assert is_retried(503, [(b"content-type", b"text/plain")])
    assert not is_retried(503, [(b"retry-after", b"")])


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
async def test_another_endpoint_answers_when_one_fails_before_its_first_byte(
    failure: Behaviour,
) -> None:
    async with (
        Upstream(failure) as bad,
        Upstream() as good,
        serving(TABLE, [backend("s", bad, good)]) as fleet,
    ):
        for _ in range(8):
            assert (await fleet.ask(CHAT)).status == 200
        assert bad.requests
        assert await fleet.metric("upstream_retries_total") == len(bad.requests)
        assert await fleet.metric("active_upstream_requests") == 0


async def test_a_refused_connection_leads_to_another_endpoint_and_the_dead_one_is_avoided() -> None:
    async with Upstream() as good:
        async with Upstream() as dead:
            pass
        async with serving(TABLE, [backend("s", dead, good)]) as fleet:
            for _ in range(100):
                assert (await fleet.ask(CHAT)).status == 200
            # Without avoidance every second request would need a second attempt.
            assert await fleet.metric("upstream_retries_total") <= 3


async def test_an_avoided_endpoint_is_asked_when_there_is_no_other() -> None:
    async with Upstream() as engine:
        port = engine.port
    async with serving(TABLE, [backend("s", engine)]) as fleet:
        assert (await fleet.ask(CHAT)).status == 502
        revived = Upstream()
        revived.port = port
        async with revived:
            assert (await fleet.ask(CHAT)).status == 200


@pytest.mark.parametrize("status", [400, 404, 408, 413, 422, 429, 500, 501])
async def test_other_statuses_are_never_tried_again(status: int) -> None:
    async with Upstream(replying({}, status)) as one, Upstream(replying({}, status)) as two:
        async with serving(TABLE, [backend("s", one, two)]) as fleet:
            assert (await fleet.ask(CHAT)).status == status
        assert len(one.requests) + len(two.requests) == 1


@pytest.mark.parametrize("status", [429, 503])
async def test_back_pressure_is_passed_on(status: int) -> None:
    behaviour = replying({"error": "busy"}, status, retry_after="3")
    async with Upstream(behaviour) as one, Upstream(behaviour) as two:
        async with serving(TABLE, [backend("s", one, two)]) as fleet:
            reply = await fleet.ask(CHAT)
        assert (reply.status, reply.header("retry-after")) == (status, "3")
        assert len(one.requests) + len(two.requests) == 1


async def test_at_most_two_further_endpoints_are_asked_and_the_last_answer_is_passed_on() -> None:
    engines = [Upstream(replying({"from": n}, 503)) for n in range(5)]
    async with engines[0], engines[1], engines[2], engines[3], engines[4]:
        async with serving(TABLE, [backend("s", *engines)]) as fleet:
            reply = await fleet.ask(CHAT)
        asked = [len(engine.requests) for engine in engines]
    assert sum(asked) == 3
    assert max(asked) == 1
    assert reply.status == 503
    assert asked[reply.json["from"]] == 1
    assert reply.header("x-kthena-reason") == "upstream_response"


async def test_when_no_endpoint_answers_the_error_names_the_last_and_its_fault() -> None:
    async with (
        Upstream(reset) as one,
        Upstream(reset) as two,
        serving(TABLE, [backend("s", one, two)]) as fleet,
    ):
        reply = await fleet.ask(CHAT)
    assert reply.status == 502
    assert "pod default/pod-" in reply.error["message"]
    assert "closed the connection" in reply.error["message"]
    assert reply.error["type"] == "server_error"
    assert reply.header("x-kthena-reason") == "proxy"
    assert len(one.requests) == len(two.requests) == 1


async def test_each_attempt_carries_the_name_of_its_own_target() -> None:
    """A target that is down falls through to the next one, which knows the model by another name."""
    table = table_of(route("chat", rule("a", "b"), adapters=("lora",)))
    async with Upstream(reset) as one, Upstream() as two:
        backends = [backend("a", one, model="name-a"), backend("b", two, model="name-b")]
        async with serving(table, backends) as fleet:
            while not one.requests:
                reply = await fleet.ask(CHAT)
                assert (reply.status, reply.json["model"]) == (200, "name-b")
            assert one.requests[0].json["model"] == "name-a"

            one.requests.clear()
            while not one.requests:
                reply = await fleet.ask({"model": "lora"})
                assert (reply.status, reply.json["model"]) == (200, "lora")
            assert one.requests[0].json["model"] == "lora"


@pytest.mark.parametrize("reset_idle", [False, True], ids=["fin", "rst"])
async def test_an_engine_that_gives_up_idle_connections_costs_no_request(reset_idle: bool) -> None:
    """Its only endpoint closes idle connections just when the next request comes, again and again."""
    table = table_of(route("chat", rule("a")))
    async with Upstream(keep_alive_s=0.004, reset_idle=reset_idle) as engine:
        async with serving(table, [backend("a", engine)]) as fleet, await fleet.connect() as client:
            for number in range(100):
                assert (await client.ask(CHAT)).status == 200
                await asyncio.sleep(0.003 + (number % 5) * 0.0005)
            assert await fleet.metric("upstream_retries_total") == 0
        assert len(engine.requests) == 100
        assert engine.accepted > 1


async def test_other_endpoints_of_a_target_go_before_other_targets() -> None:
    table = table_of(route("chat", rule("a", "b")))
    async with Upstream(reset) as one, Upstream(reset) as two, Upstream() as three:
        backends = [backend("a", one, two), backend("b", three)]
        async with serving(table, backends) as fleet:
            while not one.requests:
                assert (await fleet.ask(CHAT)).status == 200
        assert len(two.requests) == len(one.requests)


async def test_a_further_attempt_sees_the_newest_endpoints() -> None:
    go = asyncio.Event()

    async def fail_later(turn: Turn) -> None:
        await go.wait()
        turn.reset()

    async with Upstream(fail_later) as old, Upstream() as new:
        async with serving(TABLE, [backend("s", old)]) as fleet:
            asking = asyncio.ensure_future(fleet.ask(CHAT))
            await eventually(lambda: old.requests)
            fleet.router.swap(TABLE, [backend("s", new)])
            go.set()
            assert (await asking).status == 200
        assert len(new.requests) == 1


async def test_a_target_of_weight_zero_is_not_a_way_out() -> None:
    table = table_of(route("chat", rule(("a", 1), ("b", 0))))
    async with Upstream(reset) as one, Upstream() as two:
        async with serving(table, [backend("a", one), backend("b", two)]) as fleet:
            assert (await fleet.ask(CHAT)).status == 502
        assert not two.requests


async def test_nothing_is_tried_again_after_the_first_byte() -> None:
    async def breaks(turn: Turn) -> None:
        turn.stream_head()
        turn.event({"n": 1})
        await asyncio.sleep(0.01)
        turn.reset()

    async with (
        Upstream(breaks) as one,
        Upstream(breaks) as two,
        serving(TABLE, [backend("s", one, two)]) as fleet,
    ):
        async with await fleet.connect() as client:
            client.send(chat({**CHAT, "stream": True}))
            data = await client.read_to_end()
        assert len(one.requests) + len(two.requests) == 1
        assert data.count(b"HTTP/1.1") == 1
        assert await fleet.metric("requests_total", error_type="upstream_aborted") == 1


async def test_a_timeout_ends_the_request_with_504_and_stops_the_engine() -> None:
    async with Upstream(hang) as one, Upstream(hang) as two:
        async with serving(TABLE, [backend("s", one, two, timeout_s=0.1)]) as fleet:
            reply = await fleet.ask(CHAT)
            assert reply.status == 504
            assert "in time" in reply.error["message"]
            assert reply.header("x-kthena-reason") == "upstream_timeout"
        assert len(one.requests) + len(two.requests) == 1
        assert len(one.aborted) + len(two.aborted) == 1


async def test_the_timeout_bounds_all_attempts_together() -> None:
    async def slow_failure(turn: Turn) -> None:
        await asyncio.sleep(0.6)
        turn.reset()

    engines = [Upstream(slow_failure) for _ in range(3)]
    async with engines[0], engines[1], engines[2]:
        async with serving(TABLE, [backend("s", *engines, timeout_s=1.0)]) as fleet:
            assert (await fleet.ask(CHAT)).status == 504
        assert sum(len(engine.requests) for engine in engines) == 2


async def test_the_timeout_does_not_bound_the_body() -> None:
    async def slow_stream(turn: Turn) -> None:
        turn.stream_head()
        await asyncio.sleep(0.2)
        turn.event({"n": 1})
        turn.stream_end()

    async with (
        Upstream(slow_stream) as engine,
        serving(TABLE, [backend("s", engine, timeout_s=0.1)]) as fleet,
    ):
        assert b'{"n": 1}' in (await fleet.ask(CHAT)).body


async def test_the_budget_stops_a_storm() -> None:
    async with (
        Upstream(reset) as one,
        Upstream(reset) as two,
        serving(TABLE, [backend("s", one, two)]) as fleet,
    ):
        for _ in range(40):
            assert (await fleet.ask(CHAT)).status == 502
        assert await fleet.metric("upstream_retries_total") == 10


def test_the_budget_is_ten_retries_or_a_fifth_of_the_requests_of_ten_seconds() -> None:
    budget = RetryBudget()
    assert [budget.take(0.0) for _ in range(12)] == [True] * 10 + [False] * 2
    for _ in range(100):
        budget.count_request(1.0)
    assert [budget.take(1.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert not budget.take(9.9)
    # The first second leaves the window, with its ten retries.
    assert [budget.take(10.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert [budget.take(1000.0) for _ in range(12)] == [True] * 10 + [False] * 2


def test_the_budget_holds_in_every_window() -> None:
    budget, draw = RetryBudget(), random.Random(7)
    requests: list[float] = []
    retries: list[float] = []
    now = 0.0
    for _ in range(5000):
        now += draw.expovariate(20)
        budget.count_request(now)
        requests.append(now)
        if draw.random() < 0.5 and budget.take(now):
            retries.append(now)
            window = [moment for moment in retries if int(moment) > int(now) - 10]
            asked = [moment for moment in requests if int(moment) > int(now) - 10]
            assert len(window) - 1 < max(10, 0.2 * len(asked))
    assert retries


async def test_in_flight_counts_spread_requests_evenly() -> None:
    held = asyncio.Event()

    async def wait(turn: Turn) -> None:
        await held.wait()
        await answer(turn)

    engines = [Upstream(wait) for _ in range(4)]
    async with (
        engines[0],
        engines[1],
        engines[2],
        engines[3],
        serving(TABLE, [backend("s", *engines)]) as fleet,
    ):
        asked = [asyncio.ensure_future(fleet.ask(CHAT)) for _ in range(20)]
        await eventually(lambda: sum(len(engine.requests) for engine in engines) == 20)
        assert [len(engine.requests) for engine in engines] == [5, 5, 5, 5]
        assert await fleet.metric("active_upstream_requests") == 20
        assert await fleet.metric("active_requests") == 20
        assert await fleet.metric("active_downstream_requests", model="chat") == 20
        held.set()
        assert {reply.status for reply in await asyncio.gather(*asked)} == {200}
        assert await fleet.metric("active_upstream_requests") == 0
        assert await fleet.metric("active_downstream_requests", model="chat") == 0
