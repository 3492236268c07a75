"""Clients that leave, engines that break off, readers that are slow."""

import asyncio
import json
from pathlib import Path

import pytest

from support.router_client import Client, chat
from support.router_fleet import (
    Fleet,
    backend,
    eventually,
    key,
    pd_backend,
    route,
    rule,
    serving,
    table_of,
)
from support.router_upstream import Turn, Upstream, answer, hang

CHAT = {"model": "chat", "messages": []}
TABLE = table_of(route("chat", rule("s")))


async def endless(turn: Turn) -> None:
    turn.stream_head()
    number = 0
    while not turn.left.is_set():
        turn.event({"n": number})
        number += 1
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_client_that_leaves_a_stream_stops_the_engine(how: str, tmp_path: Path) -> None:
    """200 times: the engine sees each abort within a second, and nothing is left behind."""
    async with (
        Upstream(endless) as engine,
        serving(TABLE, [backend("s", engine)], log=tmp_path / "log") as fleet,
    ):
        for number in range(200):
            client = await fleet.connect()
            client.send(chat({**CHAT, "stream": True}))
            await client.read_until(b'{"n": 2}')
            engine.abort_seen.clear()
            client.close() if how == "fin" else client.reset()
            async with asyncio.timeout(1):
                await engine.abort_seen.wait()
            assert len(engine.aborted) == number + 1
        await eventually(lambda: fleet.router._pool.open_connections == 0)
        assert fleet.router._server.connections == 0
        entries = await fleet.log_entries(200)
        assert {entry["status_code"] for entry in entries} == {499}
        assert {entry["error"]["type"] for entry in entries} == {"client_closed"}
        assert fleet.router._dispatcher.backends[key("s")].endpoints.endpoints[0].in_flight == 0


async def test_a_client_that_leaves_without_a_stream_stops_the_engine(tmp_path: Path) -> None:
    """The engine would take half a minute for a reply that nobody waits for."""
    async with (
        Upstream(hang) as engine,
        serving(TABLE, [backend("s", engine)], log=tmp_path / "log") as fleet,
    ):
        client = await fleet.connect()
        client.send(chat({**CHAT, "stream": False}))
        await eventually(lambda: engine.requests)
        client.close()
        async with asyncio.timeout(1):
            await engine.abort_seen.wait()
        (entry,) = await fleet.log_entries(1)
        assert entry["status_code"] == 499
        assert entry["model_server"] == "default/s"
        assert await _metric(fleet, "requests_total", status_code="499") == 1
        assert await _metric(fleet, "active_requests") == 0
        assert await _metric(fleet, "active_upstream_requests") == 0


async def _metric(fleet: Fleet, name: str, **labels: str) -> float:
    """Metrics are read from the operations port, since this fleet keeps them off the other."""
    port = await fleet.router.serve_operations("127.0.0.1", 0)
    async with await Client.connect(port) as client:
        client.send(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
        text = (await client.read_reply("GET")).body.decode()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith((f"kthena_router_{name}{{", f"kthena_router_{name} "))
        and all(f'{label}="{value}"' in line for label, value in labels.items())
    )


async def test_a_client_that_leaves_during_prefill_stops_the_prefill(tmp_path: Path) -> None:
    """Decode, which would come next, is never asked."""
    async with Upstream(hang) as prefill, Upstream() as decode:
        server = pd_backend("s", {"g": ([prefill], [decode])})
        async with serving(TABLE, [server], log=tmp_path / "log") as fleet:
            client = await fleet.connect()
            client.send(chat(CHAT))
            await eventually(lambda: prefill.requests)
            client.close()
            async with asyncio.timeout(1):
                await prefill.abort_seen.wait()
            (entry,) = await fleet.log_entries(1)
            assert (entry["status_code"], entry["error"]["type"]) == (499, "client_closed")
            endpoints = fleet.router._dispatcher.backends[key("s")].endpoints.endpoints
            assert [endpoint.in_flight for endpoint in endpoints] == [0, 0]
        assert not decode.requests


async def test_a_client_that_leaves_during_decode_stops_the_decode() -> None:
    async with (
        Upstream() as prefill,
        Upstream(hang) as decode,
        serving(TABLE, [pd_backend("s", {"g": ([prefill], [decode])})]) as fleet,
    ):
        client = await fleet.connect()
        client.send(chat(CHAT))
        await eventually(lambda: decode.requests)
        client.reset()
        async with asyncio.timeout(1):
            await decode.abort_seen.wait()
        assert await fleet.metric("requests_total", status_code="499") == 1


async def test_a_client_that_leaves_while_the_router_connects_leaves_nothing_behind() -> None:
    async with Upstream() as engine, serving(TABLE, [backend("s", engine)]) as fleet:
        for _ in range(20):
            client = await fleet.connect()
            client.send(chat(CHAT))
            client.reset()
        await eventually(lambda: fleet.router._server.connections == 0)
        pool = fleet.router._pool
        await eventually(lambda: pool.open_connections == pool.idle_connections)
        assert await fleet.metric("active_requests") == 0


@pytest.mark.parametrize("where", ["inside an event", "after an event", "before the terminator"])
async def test_a_stream_that_breaks_off_ends_with_one_error_event_and_no_terminator(
    where: str,
) -> None:
    async def breaks(turn: Turn) -> None:
        turn.stream_head()
        turn.event({"n": 1})
        if where == "inside an event":
            turn.chunk(b'data: {"half": ')
        if where == "before the terminator":
            turn.event({"choices": [{"finish_reason": "stop"}]})
        await asyncio.sleep(0.01)
        turn.close()

    async with Upstream(breaks) as engine, serving(TABLE, [backend("s", engine)]) as fleet:
        async with await fleet.connect() as client:
            client.send(chat({**CHAT, "stream": True}))
            await client.read_until(b"\r\n\r\n")
            data = await client.read_to_end()
        assert not data.endswith(b"0\r\n\r\n")
        assert b"[DONE]" not in data
        text = _dechunk(data).decode()
        events = []
        for line in text.splitlines():
            try:
                events.append(json.loads(line.removeprefix("data: ")))
            except ValueError:
                assert where == "inside an event" or not line
        assert events[0] == {"n": 1}
        errors = [event for event in events if "error" in event]
        assert len(errors) == 1
        assert events[-1] is errors[0]
        assert errors[0]["error"]["code"] == "upstream_aborted"
        assert await fleet.metric("requests_total", error_type="upstream_aborted") == 1


def _dechunk(data: bytes) -> bytes:
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        body += data[:length]
        data = data[length + 2 :]
    return body


async def test_a_plain_reply_that_breaks_off_is_cut() -> None:
    async def breaks(turn: Turn) -> None:
        turn.head(200, [("content-type", "application/json")], length=100)
        turn.send(b'{"half":')
        await asyncio.sleep(0.01)
        turn.reset()

    async with (
        Upstream(breaks) as engine,
        serving(TABLE, [backend("s", engine)]) as fleet,
        await fleet.connect() as client,
    ):
        client.send(chat(CHAT))
        head = await client.read_until(b"\r\n\r\n")
        assert b"content-length: 100" in head
        assert await client.read_to_end() == b'{"half":'


async def test_a_slow_reader_slows_the_engine_down_and_memory_stays_flat() -> None:
    sent = 0

    async def flood(turn: Turn) -> None:
        nonlocal sent
        turn.stream_head()
        piece = b"x" * 65536
        while not turn.left.is_set() and sent < 400 << 20:
            turn.chunk(piece)
            sent += len(piece)
            await turn.drain()
            await asyncio.sleep(0)

    async with (
        Upstream(flood) as engine,
        serving(TABLE, [backend("s", engine)]) as fleet,
        await fleet.connect() as client,
    ):
        client.send(chat(CHAT))
        await client.read_until(b"\r\n\r\n")
        client.pause()
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.1)
        assert 0 < sent < 40 << 20
        (connection,) = fleet.router._server._state.connections
        assert connection._transport.get_write_buffer_size() < 2 << 20
        # Reading on wakes everything up again.
        client.resume()
        received = 0
        while received < 20 << 20:
            received += len(await client.reader.read(1 << 20))
        assert sent > before


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_slow_reader_that_leaves_frees_the_engine(how: str) -> None:
    async def flood(turn: Turn) -> None:
        turn.stream_head()
        while not turn.left.is_set():
            turn.chunk(b"x" * 65536)
            await turn.drain()

    async with Upstream(flood) as engine, serving(TABLE, [backend("s", engine)]) as fleet:
        client = await fleet.connect()
        client.send(chat(CHAT))
        await client.read_until(b"\r\n\r\n")
        client.pause()
        await asyncio.sleep(0.1)
        if how == "rst":
            client.reset()
        else:  # the router's buffers stay full: nothing it writes would tell it
            client.writer.write_eof()
        async with asyncio.timeout(1):
            await engine.abort_seen.wait()
        client.writer.transport.abort()


async def test_a_client_that_leaves_its_upload_leaves_nothing_behind() -> None:
    async with Upstream() as engine, serving(TABLE, [backend("s", engine)]) as fleet:
        server = fleet.router._server
        for framing in (b"content-length: 9000000", b"transfer-encoding: chunked"):
            client = await fleet.connect()
            client.send(b"POST /v1/x HTTP/1.1\r\nhost: x\r\n" + framing + b"\r\n\r\n")
            client.send(b"%x\r\n" % (1 << 20) + b"x" * (1 << 20))
            await eventually(lambda: server.buffered_bytes >= 1 << 20)
            client.close()
            await eventually(lambda: server.connections == 0)
            assert server.buffered_bytes == 0
        assert not engine.accepted


async def test_an_endpoint_that_leaves_while_it_streams_finishes_its_streams() -> None:
    """Its pod is on its way out: nothing new goes there, and what runs there ends well."""
    go = asyncio.Event()

    async def stream(turn: Turn) -> None:
        turn.stream_head()
        turn.event({"n": 0})
        await go.wait()
        turn.event({"n": 1})
        turn.stream_end()

    async with (
        Upstream(stream) as leaving,
        Upstream() as staying,
        serving(TABLE, [backend("s", leaving)]) as fleet,
    ):
        clients = [await fleet.connect() for _ in range(5)]
        for client in clients:
            client.send(chat({**CHAT, "stream": True}))
            await client.read_until(b'{"n": 0}')
        fleet.router.swap(TABLE, [backend("s", staying)])
        for _ in range(5):
            assert (await fleet.ask(CHAT)).status == 200
        assert (len(leaving.requests), len(staying.requests)) == (5, 5)
        go.set()
        for client in clients:
            rest = await client.read_until(b"0\r\n\r\n")
            assert b'{"n": 1}' in rest
            client.reset()
        assert not leaving.aborted
        await eventually(lambda: not leaving.open)  # its connections are not kept


async def test_tables_that_change_all_the_time_drop_no_request() -> None:
    """Two servers take turns in table and endpoints while requests, half of them streams, run."""

    async def some(turn: Turn) -> None:
        if not turn.request.json.get("stream"):
            await asyncio.sleep(0.002)
            await answer(turn)
            return
        turn.stream_head()
        for number in range(5):
            turn.event({"n": number})
            await asyncio.sleep(0.001)
        turn.stream_end()

    async def ask(fleet: Fleet, number: int) -> None:
        async with await fleet.connect() as client:
            for _ in range(10):
                reply = await client.ask({**CHAT, "stream": bool(number % 2)})
                assert reply.status == 200
                if number % 2:
                    assert reply.body.count(b"data:") == 5

    async with Upstream(some) as one, Upstream(some) as two:
        settings = [
            (table_of(route("chat", rule("s"))), [backend("s", one)]),
            (table_of(route("chat", rule("t"))), [backend("t", two)]),
            (
                table_of(route("chat", rule(("s", 1), ("t", 2)))),
                [backend("s", two), backend("t", one)],
            ),
        ]
        async with serving(*settings[0]) as fleet:
            asking = asyncio.gather(*(ask(fleet, number) for number in range(20)))
            turn = 0
            while not asking.done():
                turn += 1
                fleet.router.swap(*settings[turn % 3])
                await asyncio.sleep(0.001)
            await asking
            assert turn > 10
    assert not one.aborted
    assert not two.aborted


async def test_closing_the_router_lets_replies_end_and_then_cuts_them(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def wait(turn: Turn) -> None:
        await go.wait()
        await answer(turn)

    async with (
        Upstream(wait) as engine,
        serving(TABLE, [backend("s", engine)], log=tmp_path / "log") as fleet,
        await fleet.connect() as client,
    ):
        client.send(chat(CHAT))
        await eventually(lambda: engine.requests)
        closing = asyncio.ensure_future(fleet.router.close(5))
        await asyncio.sleep(0.02)
        assert not fleet.router.readiness.ready
        go.set()
        reply = await client.read_reply()
        assert (reply.status, reply.header("connection")) == (200, "close")
        await closing


async def test_a_router_that_ends_in_mid_stream_says_so_in_its_log(tmp_path: Path) -> None:
    async with (
        Upstream(endless) as engine,
        serving(TABLE, [backend("s", engine)], log=tmp_path / "log") as fleet,
    ):
        async with await fleet.connect() as client:
            client.send(chat(CHAT))
            await client.read_until(b'{"n": 2}')
            await fleet.router.close(0.05)
            assert not (await client.read_to_end()).endswith(b"0\r\n\r\n")
        (entry,) = await fleet.log_entries(1)
        assert entry["error"]["type"] == "draining"
