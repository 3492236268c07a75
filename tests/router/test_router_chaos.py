"""Everything at once: whatever clients and engines do, nothing is left behind and nothing breaks."""

import asyncio
import random

import pytest

from support.router_client import Client, chat
from support.router_fleet import backend, eventually, pd_backend, route, rule, serving, table_of
from support.router_upstream import Turn, Upstream

TABLE = table_of(route("plain", rule(("a", 3), ("b", 1))), route("pd", rule("pd")))


class Engine:
    """Behaves badly at random."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    async def __call__(self, turn: Turn) -> None:
        kind = self.draw.randrange(10)
        await asyncio.sleep(self.draw.random() * 0.003)
        if kind == 0:
            turn.reset()
        elif kind == 1:
            turn.close()
        elif kind == 2:
            turn.json({}, self.draw.choice([400, 429, 500, 502, 503]))
        elif kind == 3:
            await turn.left.wait()
        elif kind == 4:
            turn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")
            turn.reset()
        elif kind == 5:
            turn.send(b"nonsense\r\n\r\n")
            await turn.left.wait()
        elif kind < 8:
            turn.stream_head()
            for number in range(self.draw.randrange(20)):
                turn.event({"n": number})
                await asyncio.sleep(0)
            turn.stream_end()
        else:
            turn.json({"ok": True})


async def one_client(port: int, seed: int) -> None:
    """A few requests on one connection; leaves when it likes."""
    draw = random.Random(seed)
    client = await Client.connect(port)
    for _ in range(draw.randrange(1, 6)):
        body = {"model": draw.choice(["plain", "pd", "none"]), "stream": True}
        client.send(chat(body))
        try:
            async with asyncio.timeout(draw.choice([0.001, 0.02, 1.0])):
                await client.read_reply()
        except (TimeoutError, OSError, Exception):  # noqa: BLE001 - whatever happens, it goes on
            break
    if draw.random() < 0.5:
        client.reset()
    else:
        client.close()


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_left_behind(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    engines = [Upstream(Engine(seed * 10 + number)) for number in range(6)]
    async with engines[0], engines[1], engines[2], engines[3], engines[4], engines[5]:
        backends = [
            backend("a", *engines[:2], timeout_s=0.05),
            backend("b", engines[2], timeout_s=0.05),
            pd_backend("pd", {"g": ([engines[3]], [engines[4], engines[5]])}, timeout_s=0.05),
        ]
        async with serving(TABLE, backends) as fleet:
            router = fleet.router
            for wave in range(6):
                seeds = range(wave * 1000 + seed, wave * 1000 + seed + 20)
                await asyncio.gather(*(one_client(fleet.port, number) for number in seeds))
                router.swap(TABLE, backends)
            await eventually(lambda: router._server.connections == 0)
            endpoints = [
                endpoint
                for live in router._dispatcher.backends.values()
                for endpoint in live.endpoints.endpoints
            ]
            await eventually(lambda: all(one.in_flight == 0 for one in endpoints))
            pool = router._pool
            await eventually(lambda: pool.open_connections == pool.idle_connections)
            assert router._server.buffered_bytes == 0
            assert not router._forwarder._tasks
            assert await fleet.metric("active_requests") == 0
            assert await fleet.metric("active_upstream_requests") == 0
            assert await fleet.metric("active_downstream_requests") == 0
            assert await fleet.metric("requests_total", error_type="internal") == 0
            assert await fleet.metric("requests_total") > 50
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
