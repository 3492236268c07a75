"""Connections to engines: reuse, stale ones, framings of replies, failures."""

import asyncio
import contextlib
import socket

import pytest

from kthena.router.address import Address, address_of
from kthena.router.proxy.awaiting import send_and_wait
from kthena.router.proxy.errors import (
    ConnectError,
    ConnectionLostError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
)
from kthena.router.proxy.limits import PoolLimits
from kthena.router.proxy.pool import ConnectionPool
from kthena.router.proxy.upstream import Exchange, OutboundRequest
from support.router_exchange import read_body
from support.router_fleet import eventually
from support.router_upstream import Behaviour, Turn, Upstream, answer, close, hang, reset

MIB = 1 << 20


class Counter:
    """Counts how often an exchange ended, as the in-flight count does."""

    ended = 0

    def __call__(self) -> None:
        self.ended += 1


def request_of(
    body: bytes = b"{}", *, method: str = "POST", deadline: float | None = None
) -> OutboundRequest:
    return OutboundRequest(method, b"/v1/x", b"x-a: b\r\n", (body,) if body else (), deadline)


async def ask(
    pool: ConnectionPool, engine: Upstream, request: OutboundRequest | None = None
) -> Exchange:
    address = address_of(engine.host, engine.port)
    return await send_and_wait(pool, address, request or request_of(), Counter())


async def ask_all(pool: ConnectionPool, engine: Upstream) -> bytes:
    return await read_body(await ask(pool, engine), MIB)


@pytest.fixture
def pool() -> ConnectionPool:
    return ConnectionPool(PoolLimits())


async def test_connections_are_reused(pool: ConnectionPool) -> None:
    async with Upstream() as engine:
        for _ in range(5):
            assert await ask_all(pool, engine) == b'{"object": "chat.completion", "model": null}'
        assert engine.accepted == 1
        assert [request.index for request in engine.requests] == [0, 1, 2, 3, 4]
        await asyncio.gather(*(ask_all(pool, engine) for _ in range(10)))
        assert engine.accepted <= 10
        assert pool.idle_connections == pool.open_connections == engine.accepted
        pool.close()
        await eventually(lambda: pool.open_connections == 0)


async def test_the_connection_used_last_is_used_next(pool: ConnectionPool) -> None:
    async with Upstream() as engine:
        await asyncio.gather(*(ask_all(pool, engine) for _ in range(3)))
        last = engine.requests[-1].connection
        for _ in range(3):
            await ask_all(pool, engine)
        assert {request.connection for request in engine.requests[-3:]} == {
            engine.requests[-1].connection
        }
        assert last in {1, 2, 3}


@pytest.mark.parametrize("how", [close, reset], ids=["fin", "rst"])
async def test_a_reused_connection_that_dies_unanswered_is_replaced_once(
    pool: ConnectionPool, how: Behaviour
) -> None:
    async def stale(turn: Turn) -> None:
        await (how if turn.request.index > 0 else answer)(turn)

    async with Upstream(stale) as engine:
        for _ in range(50):
            assert await ask_all(pool, engine)
        assert pool.resent > 0
        assert pool.resent == engine.accepted - 1


@pytest.mark.parametrize("reset_idle", [False, True], ids=["fin", "rst"])
async def test_requests_at_the_edge_of_a_keep_alive_limit_never_fail(
    pool: ConnectionPool, reset_idle: bool
) -> None:
    """Requests come just when the engine gives its idle connections up."""
    async with Upstream(keep_alive_s=0.005, reset_idle=reset_idle) as engine:
        for number in range(200):
            assert await ask_all(pool, engine)
            await asyncio.sleep(0.004 + (number % 5) * 0.0005)
        assert len(engine.requests) >= 200
        assert engine.accepted > 1


@pytest.mark.parametrize("how", [close, reset], ids=["fin", "rst"])
async def test_a_new_connection_that_dies_unanswered_is_not_replaced(
    pool: ConnectionPool, how: Behaviour
) -> None:
    async with Upstream(how) as engine:
        with pytest.raises(ConnectionLostError):
            await ask(pool, engine)
        assert len(engine.requests) == 1


async def test_a_request_is_not_sent_again_once_a_byte_has_come_back(pool: ConnectionPool) -> None:
    async def half(turn: Turn) -> None:
        if turn.request.index == 0:
            await answer(turn)
        else:
            turn.send(b"H")
            await asyncio.sleep(0.02)
            turn.close()

    async with Upstream(half) as engine:
        await ask_all(pool, engine)
        with pytest.raises(ConnectionLostError):
            await ask(pool, engine)
        assert len(engine.requests) == 2


async def test_a_connection_that_the_engine_closes_while_idle_is_not_used(
    pool: ConnectionPool,
) -> None:
    async with Upstream() as engine:
        await ask_all(pool, engine)
        engine.close_idle()
        await eventually(lambda: pool.open_connections == 0)
        assert pool.idle_connections == 0
        await ask_all(pool, engine)
        assert pool.resent == 0


@pytest.mark.parametrize(
    "extra",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
        b"HTTP/1.1 200 OK\r\nx: evil",
        b"H",
        b"e",
    ],
    ids=["a whole reply", "half a head", "one byte of a reply", "noise"],
)
async def test_bytes_that_answer_nothing_close_the_connection(
    pool: ConnectionPool, extra: bytes
) -> None:
    async def talkative(turn: Turn) -> None:
        await answer(turn)
        turn.send(extra)

    async with Upstream(talkative) as engine:
        for _ in range(3):
            assert b"evil" not in await ask_all(pool, engine)
            await eventually(lambda: pool.open_connections == 0)
        assert engine.accepted == 3


async def test_bytes_that_come_while_idle_close_the_connection(pool: ConnectionPool) -> None:
    async with Upstream() as engine:
        await ask_all(pool, engine)
        (connection,) = engine.open
        connection.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await eventually(lambda: pool.open_connections == 0)


FRAMINGS = {
    "length": (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", b"abc", True),
    "empty": (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"", True),
    "chunked": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n2;x\r\nbc\r\n0\r\n\r\n",
        b"abc",
        True,
    ),
    "trailers": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n",
        b"abc",
        True,
    ),
    "until close": (b"HTTP/1.1 200 OK\r\n\r\nabc", b"abc", False),
    "connection close": (
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\nabc",
        b"abc",
        False,
    ),
    "1.0": (b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nabc", b"abc", False),
    "1.0 keep-alive": (
        b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 3\r\n\r\nabc",
        b"abc",
        True,
    ),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "after 100": (
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"
        ),
        b"abc",
        True,
    ),
    "blanks after values": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked  \r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"abc",
        True,
    ),
    "no reason": (b"HTTP/1.1 200\r\ncontent-length: 3\r\n\r\nabc", b"abc", True),
}


@pytest.mark.parametrize(("reply", "body", "reusable"), FRAMINGS.values(), ids=FRAMINGS.keys())
@pytest.mark.parametrize("piecewise", [False, True], ids=["at once", "byte by byte"])
async def test_every_framing_of_a_reply_is_read(
    pool: ConnectionPool, reply: bytes, body: bytes, reusable: bool, piecewise: bool
) -> None:
    async def behaviour(turn: Turn) -> None:
        for start in range(len(reply)) if piecewise else [0]:
            turn.send(reply[start : start + 1] if piecewise else reply)
            if piecewise:
                await asyncio.sleep(0)
        if not reusable:
            turn.close()

    async with Upstream(behaviour) as engine:
        exchange = await ask(pool, engine)
        assert exchange.reply.header(b"link") is None
        assert await read_body(exchange, MIB) == body
        assert exchange.complete
        assert pool.idle_connections == int(reusable)


async def test_a_head_reply_has_no_body(pool: ConnectionPool) -> None:
    async def behaviour(turn: Turn) -> None:
        turn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n")

    async with Upstream(behaviour) as engine:
        exchange = await ask(pool, engine, request_of(b"", method="HEAD"))
        assert await read_body(exchange, MIB) == b""
        assert exchange.reply.header(b"content-length") == b"3"
        assert engine.requests[0].header("content-length") is None


BROKEN = {
    "no http": b"SSH-2.0-OpenSSH\r\n",
    "two framings": b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabc",
    "unknown coding": b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nabc",
    "tab after coding": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\t\r\n\r\n0\r\n\r\n",
    "coding twice": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "no coding": b"HTTP/1.1 200 OK\r\ntransfer-encoding:\r\n\r\nabc",
    "switching": b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
    "folded": b"HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 0\r\n\r\n",
    "head too large": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 600_000,
}


@pytest.mark.parametrize("reply", BROKEN.values(), ids=BROKEN.keys())
async def test_replies_that_are_not_http_are_errors(pool: ConnectionPool, reply: bytes) -> None:
    async def behaviour(turn: Turn) -> None:
        turn.send(reply)
        await turn.left.wait()

    async with Upstream(behaviour) as engine:
        with pytest.raises(UpstreamProtocolError):
            await ask(pool, engine)
        await eventually(lambda: pool.open_connections == 0)


async def test_a_bad_chunk_breaks_the_reply_after_its_good_bytes(pool: ConnectionPool) -> None:
    async def behaviour(turn: Turn) -> None:
        turn.stream_head()
        turn.send(b"3\r\nabc\r\nnonsense\r\n")
        await turn.left.wait()

    async with Upstream(behaviour) as engine:
        exchange = await ask(pool, engine)
        with pytest.raises(UpstreamProtocolError):
            await read_body(exchange, MIB)


@pytest.mark.parametrize(
    "head", [b"content-length: 10\r\n\r\nabc", b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"]
)
async def test_a_reply_that_breaks_off_is_an_error(pool: ConnectionPool, head: bytes) -> None:
    async def behaviour(turn: Turn) -> None:
        turn.send(b"HTTP/1.1 200 OK\r\n" + head)
        turn.close()

    async with Upstream(behaviour) as engine:
        exchange = await ask(pool, engine)
        with pytest.raises(ConnectionLostError):
            await read_body(exchange, MIB)


async def test_a_reply_above_the_limit_is_an_error(pool: ConnectionPool) -> None:
    async def behaviour(turn: Turn) -> None:
        turn.json("x" * 2000)

    async with Upstream(behaviour) as engine:
        exchange = await ask(pool, engine)
        with pytest.raises(UpstreamProtocolError, match="larger than 1000 bytes"):
            await read_body(exchange, 1000)


async def test_a_refused_connection_is_an_error_that_names_the_address(
    pool: ConnectionPool,
) -> None:
    async with Upstream() as engine:
        port = engine.port
    with pytest.raises(ConnectError, match=f"127.0.0.1:{port}"):
        await send_and_wait(pool, address_of("127.0.0.1", port), request_of(), Counter())


async def test_an_address_that_does_not_answer_is_given_up() -> None:
    """A listener whose queue is full lets a connection attempt wait for ever."""
    pool = ConnectionPool(PoolLimits(connect_timeout_s=0.05))
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        with pytest.raises(ConnectError, match="within 0"):
            await send_and_wait(pool, address_of(*full.getsockname()), request_of(), Counter())


@pytest.mark.parametrize("host", ["a..b", "x" * 300], ids=["empty label", "long label"])
async def test_a_host_that_cannot_be_one_is_an_error_like_any_other(
    pool: ConnectionPool, host: str
) -> None:
    with pytest.raises(ConnectError, match="no connection to"):
        await send_and_wait(pool, address_of(host, 80), request_of(), Counter())


async def test_an_engine_that_answers_before_it_has_read_gets_the_next_request_elsewhere(
    pool: ConnectionPool,
) -> None:
    """It may never read the rest of the body, behind which the next request would wait."""
    opened: list[asyncio.StreamWriter] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}")

    async with await asyncio.start_server(converse, "127.0.0.1", 0) as server:
        address = address_of(*server.sockets[0].getsockname())
        for number in (1, 2):
            request = request_of(b"x" * (20 * MIB))
            exchange = await send_and_wait(pool, address, request, Counter())
            assert exchange.status == 413
            assert await read_body(exchange, MIB) == b"{}"
            assert len(opened) == number
        for writer in opened:
            writer.transport.abort()


async def test_connections_are_probed_so_that_a_vanished_peer_is_found(
    pool: ConnectionPool,
) -> None:
    async with Upstream() as engine:
        await ask_all(pool, engine)
        (connection,) = pool._open
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, probes = (
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + interval * probes <= 30


async def test_the_deadline_counts_until_the_head_only(pool: ConnectionPool) -> None:
    async def behaviour(turn: Turn) -> None:
        turn.stream_head()
        await asyncio.sleep(0.15)
        turn.chunk(b"late")
        turn.stream_end()

    loop = asyncio.get_running_loop()
    async with Upstream(behaviour) as engine:
        exchange = await ask(pool, engine, request_of(deadline=loop.time() + 0.1))
        assert await read_body(exchange, MIB) == b"late"
        engine.behaviour = hang
        with pytest.raises(UpstreamTimeoutError):
            await ask(pool, engine, request_of(deadline=loop.time() + 0.05))
        await engine.abort_seen.wait()


async def test_cancellation_closes_the_connection(pool: ConnectionPool) -> None:
    async with Upstream(hang) as engine:
        waiting = asyncio.ensure_future(ask(pool, engine))
        await eventually(lambda: engine.requests)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await engine.abort_seen.wait()
        assert pool.open_connections == 0


async def test_cancellation_while_connecting_leaves_nothing_behind(pool: ConnectionPool) -> None:
    async with Upstream() as engine:
        for turns in range(12):
            waiting = asyncio.ensure_future(ask(pool, engine))
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await eventually(lambda: pool.open_connections == pool.idle_connections)
        pool.close()
        await eventually(lambda: not engine.open)


async def test_every_end_is_counted_once(pool: ConnectionPool) -> None:
    counter = Counter()

    async def one(engine: Upstream, deadline: float | None = None) -> None:
        address = address_of(engine.host, engine.port)
        exchange = await send_and_wait(pool, address, request_of(deadline=deadline), counter)
        await read_body(exchange, MIB)

    async with Upstream() as engine:
        await one(engine)
        assert counter.ended == 1
        for behaviour in (reset, close):
            engine.behaviour = behaviour
            with pytest.raises(ConnectionLostError):
                await one(engine)
        assert counter.ended == 3
        engine.behaviour = hang
        with pytest.raises(UpstreamTimeoutError):
            await one(engine, asyncio.get_running_loop().time() + 0.02)
        assert counter.ended == 4
    with pytest.raises(ConnectError):
        await one(engine)
    assert counter.ended == 5


async def test_a_discarded_reply_frees_its_connection_if_it_is_small(pool: ConnectionPool) -> None:
    async def behaviour(turn: Turn) -> None:
        turn.head(200, length=len(turn.request.body) * 1000)
        await asyncio.sleep(0.01)
        turn.send(b"x" * len(turn.request.body) * 1000)

    async with Upstream(behaviour) as engine:
        (await ask(pool, engine, request_of(b"x" * 10))).discard()
        await eventually(lambda: pool.idle_connections == 1)
        (await ask(pool, engine, request_of(b"x" * 1000))).discard()
        await eventually(lambda: pool.open_connections == 0)


async def test_endpoints_that_are_gone_keep_no_connection(pool: ConnectionPool) -> None:
    async with Upstream() as one, Upstream() as two:
        await ask_all(pool, one)
        await ask_all(pool, two)
        kept: list[Address] = [address_of(two.host, two.port)]
        pool.retain(kept)
        await eventually(lambda: pool.open_connections == 1)
        await ask_all(pool, one)
        await eventually(lambda: pool.open_connections == 1)
        await eventually(lambda: not one.open)


async def test_surplus_and_aged_connections_are_closed() -> None:
    pool = ConnectionPool(PoolLimits(max_idle_per_endpoint=2, idle_timeout_s=0.05))
    async with Upstream() as engine:
        await asyncio.gather(*(ask_all(pool, engine) for _ in range(6)))
        assert pool.idle_connections <= 2
        await asyncio.sleep(0.1)
        for _ in range(70):
            await ask_all(pool, engine)
        assert pool.idle_connections == 1


async def test_large_bodies_arrive_whole(pool: ConnectionPool) -> None:
    body = b"x" * (5 * MIB)
    async with Upstream() as engine:
        engine.behaviour = hang
        waiting = asyncio.ensure_future(
            ask(
                pool,
                engine,
                OutboundRequest("POST", b"/", b"", (body[:100], memoryview(body)[100:])),
            )
        )
        await eventually(lambda: engine.requests)
        assert engine.requests[0].body == body
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


def test_addresses_read_as_in_urls() -> None:
    assert str(address_of("10.0.0.1", 80)) == "10.0.0.1:80"
    assert str(address_of("fd00::12", 8000)) == "[fd00::12]:8000"
    assert address_of("fd00::12", 8000).authority == b"[fd00::12]:8000"
