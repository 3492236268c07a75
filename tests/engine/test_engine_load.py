"""Load, time, failures and clients that leave."""

import asyncio
import json
from typing import Any

import pytest

from kthena.kube.clock import FakeClock, settle
from kthena.local.engine.config import EngineConfig, Faults, Timing
from kthena.local.engine.exchange import Exchange, Runtime
from kthena.local.engine.load import Load
from kthena.local.engine.requests import parse_chat
from kthena.local.engine.service import MockEngine, fault_of
from support.engine import CHAT, MODEL, call, chat, engine, metrics_of, post, send, until

SLOW = Timing(time_to_first_token_s=0, tokens_per_s=20)


async def test_gauges_move_with_the_requests() -> None:
    async with engine(timing=SLOW, max_num_seqs=1) as server:
        load = server.engine.load
        first = await send(server, "POST", CHAT, chat(stream=True))
        await first.next_event()
        second = asyncio.create_task(post(server, CHAT, chat("another")))
        await until(lambda: load.waiting == 1)
        samples = await metrics_of(server)
        first.leave()
        await until(lambda: load.running == 1 and load.waiting == 0)
        second.cancel()
        await until(lambda: load.running == 0)

    labels = f'{{engine="0",model_name="{MODEL}"}}'
    assert samples[f"vllm:num_requests_running{labels}"] == 1
    assert samples[f"vllm:num_requests_waiting{labels}"] == 1
    assert samples[f"vllm:kv_cache_usage_perc{labels}"] > 0
    assert load.kv_tokens == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_the_generation(stream: bool) -> None:
    async with engine(timing=SLOW) as server:
        load = server.engine.load
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        raw = json.dumps(chat(stream=stream, max_tokens=1000, ignore_eos=True)).encode()
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
            b"Content-Length: %d\r\n\r\n" % len(raw) + raw
        )
        await until(lambda: load.running == 1)
        if stream:
            await reader.readuntil(b"data: ")
        writer.transport.abort()
        await until(lambda: load.running == 0, timeout_s=1)

    assert load.finished["abort"] == 1
    assert load.generation_tokens < 1000


async def test_a_client_that_leaves_while_waiting_never_runs() -> None:
    async with engine(timing=SLOW, max_num_seqs=1) as server:
        load = server.engine.load
        first = await send(server, "POST", CHAT, chat(stream=True))
        waiting = asyncio.create_task(post(server, CHAT, chat()))
        await until(lambda: load.waiting == 1)
        waiting.cancel()
        await until(lambda: load.waiting == 0)
        first.leave()
        await until(lambda: load.running == 0)
        again = await send(server, "POST", CHAT, chat(stream=True))
        again.leave()
        await until(lambda: load.running == 0)

    assert load.finished["abort"] == 3


async def test_waiting_requests_run_in_order_of_arrival() -> None:
    load = Load(1)
    order: list[str] = []

    async def use(name: str) -> None:
        async with load.slot(name, 1):
            order.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(use(name) for name in "abc"))

    assert order == ["a", "b", "c"]


class Wire:
    """An ASGI client: keeps what is sent, and disconnects when told."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.messages.append(message)


def exchange(clock: FakeClock, body: dict[str, Any], timing: Timing) -> tuple[Exchange, MockEngine]:
    config = EngineConfig(models=(MODEL,), timing=timing)
    mock = MockEngine(config, clock)
    return mock.exchange(parse_chat(body, config), "id"), mock


async def test_tokens_come_at_the_configured_times() -> None:
    clock, wire = FakeClock(), Wire()
    body = chat(stream=True, max_tokens=3)
    served, mock = exchange(clock, body, Timing(time_to_first_token_s=2, tokens_per_s=4))
    task = asyncio.create_task(served.run({}, wire.receive, wire.send))
    await settle()
    counts = []
    for _ in range(12):
        await clock.advance(0.25)
        bodies = [m["body"] for m in wire.messages if m["type"] == "http.response.body"]
        counts.append(b"".join(bodies).count(b'"delta":{"content":'))
    await task

    assert counts == [0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 3, 3]
    assert mock.load.time_to_first_token._sum == 2
    assert mock.load.inter_token._sum == pytest.approx(0.5)
    assert mock.load.finished["length"] == 1


async def test_a_whole_answer_takes_as_long_as_its_stream() -> None:
    clock, wire = FakeClock(), Wire()
    served, _ = exchange(clock, chat(max_tokens=5), Timing(1, 2))
    task = asyncio.create_task(served.run({}, wire.receive, wire.send))
    await settle()
    await clock.advance(2.9)
    assert wire.messages == []
    await clock.advance(0.2)

    assert await task == "length"
    assert wire.messages[0]["status"] == 200


async def test_cancellation_passes_and_leaves_no_load() -> None:
    clock, wire = FakeClock(), Wire()
    served, mock = exchange(clock, chat(), Timing(100, 1))
    task = asyncio.create_task(served.run({}, wire.receive, wire.send))
    await settle()
    assert mock.load.running == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settle()

    assert mock.load.running == 0
    assert mock.load.finished["abort"] == 1


async def test_a_connection_that_breaks_while_writing_is_an_abort() -> None:
    clock, wire = FakeClock(), Wire()
    served, mock = exchange(clock, chat(stream=True), Timing(0, 0))

    async def broken(message: Any) -> None:
        raise ConnectionResetError

    assert await served.run({}, wire.receive, broken) == "abort"
    assert mock.load.finished["abort"] == 1


def test_faults_hit_by_a_deterministic_count() -> None:
    quarter = Faults(error_rate=0.25)
    tenth = Faults(error_rate=0.1, reset_rate=0.5)

    assert [n for n in range(1, 13) if fault_of(n, quarter)] == [4, 8, 12]
    assert sum(fault_of(n, tenth) == "error" for n in range(1, 1001)) == 100
    assert sum(fault_of(n, tenth) == "reset" for n in range(1, 1001)) == 400
    assert not any(fault_of(n, Faults()) for n in range(1, 100))
    assert all(fault_of(n, Faults(hang_rate=1)) == "hang" for n in range(1, 100))


async def test_errors_are_injected_with_their_status() -> None:
    async with engine(faults=Faults(error_rate=0.5, error_status=503)) as server:
        statuses = [(await post(server, CHAT, chat())).status for _ in range(4)]
        healthy = await call(server, "GET", "/health")

    assert statuses == [200, 503, 200, 503]
    assert healthy.status == 200
    assert server.engine.load.finished["error"] == 2


async def test_a_reset_closes_the_connection_without_a_reply() -> None:
    async with engine(faults=Faults(reset_rate=1)) as server:
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await post(server, CHAT, chat())

    assert server.engine.load.running == 0


async def test_a_reset_in_mid_stream_comes_after_the_given_tokens() -> None:
    async with engine(faults=Faults(reset_after_tokens=3), timing=SLOW) as server:
        stream = await send(server, "POST", CHAT, chat(stream=True))
        with pytest.raises(ConnectionResetError):
            await stream.rest()
        stream.writer.close()

    assert len(stream.events) == 4
    assert server.engine.load.running == 0


async def test_a_hanging_request_ends_when_the_client_leaves() -> None:
    async with engine(faults=Faults(hang_rate=1)) as server:
        task = asyncio.create_task(post(server, CHAT, chat()))
        await until(lambda: server.engine.load.running == 1)
        task.cancel()
        await until(lambda: server.engine.load.running == 0)

    assert server.engine.load.finished["abort"] == 1


async def test_an_address_in_use_is_named() -> None:
    from kthena.local.engine.server import EngineServer

    async with engine() as server:
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{server.port}"):
            EngineServer(EngineConfig(port=server.port))


def test_runtime_is_plain_data() -> None:
    runtime = Runtime(Load(1), FakeClock(), SLOW, Faults())
    assert runtime.timing == SLOW
