"""The HTTP server over sockets: keep-alive, pipelining, framing of replies, deadlines, ends."""

import asyncio
import contextlib
import socket
from functools import partial

import pytest
import uvloop

from kthena.router.proxy.limits import Limits
from support.router_client import Client, chat, get
from support.router_fleet import eventually
from support.router_http import JSON, listening


async def test_a_connection_serves_request_after_request() -> None:
    async with listening() as fleet, await fleet.connect() as client:
        for number in range(3):
            client.send(chat({"n": number}))
            reply = await client.read_reply()
            assert reply.status == 200
            assert reply.header("connection") is None
            assert reply.version == "1.1"
        assert fleet.server.connections == 1


async def test_pipelined_requests_are_answered_in_order_one_at_a_time() -> None:
    async with listening(answering=False) as fleet, await fleet.connect() as client:
        client.send(b"".join(get(f"/{name}") for name in "abc"))
        await eventually(lambda: len(fleet.handler.requests) == 1)
        client.send(get("/d"))
        for name in "abcd":
            await eventually(
                partial(lambda path: fleet.handler.requests[-1].path == path, f"/{name}")
            )
            fleet.handler.replies[-1].send(200, JSON, name.encode())
            assert (await client.read_reply("GET")).body == name.encode()


async def test_a_client_that_pipelines_without_end_is_not_read_any_further() -> None:
    async with (
        listening(Limits(max_pipelined_bytes=1000), answering=False) as fleet,
        await fleet.connect() as client,
    ):
        client.send(get("/first"))
        await eventually(lambda: len(fleet.handler.requests) == 1)
        client.send(get("/next") * 400_000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.writer.drain()
        (connection,) = fleet.server._state.connections
        assert len(connection._held) < 1_000_000
        fleet.handler.replies[0].send(200, JSON, b"{}")
        assert (await client.read_reply("GET")).status == 200
        await eventually(lambda: len(fleet.handler.requests) == 2)


async def test_a_head_request_gets_the_head_alone() -> None:
    async with listening() as fleet, await fleet.connect() as client:
        client.send(get("/x", method="HEAD") + get("/y"))
        head = await client.read_reply("HEAD")
        assert (head.status, head.body) == (200, b"")
        assert int(head.header("content-length") or 0) > 0
        assert (await client.read_reply("GET")).json["path"] == "/y"


async def test_http_1_0_clients_get_plain_bodies_and_keep_alive_on_request() -> None:
    async with listening() as fleet, await fleet.connect() as client:
        client.send(get("/x", version="1.0", connection="keep-alive"))
        reply = await client.read_reply("GET")
        assert reply.header("connection") == "keep-alive"
        client.send(get("/y", version="1.0"))
        last = await client.read_to_end()
        assert b"connection: close" in last
        assert b'"path": "/y"' in last


async def test_a_body_of_unknown_length_is_chunked_for_1_1_and_ends_the_connection_for_1_0() -> (
    None
):
    async with listening(answering=False) as fleet:
        for version in ("1.1", "1.0"):
            async with await fleet.connect() as client:
                client.send(get("/x", version=version, connection="keep-alive"))
                await eventually(lambda: len(fleet.handler.replies) > 0)
                reply = fleet.handler.replies.pop()
                reply.start(200, JSON, length=None)
                reply.flush()
                reply.write(b"ab")
                reply.write(b"c")
                reply.finish()
                if version == "1.1":
                    got = await client.read_reply("GET")
                    assert (got.body, got.header("transfer-encoding")) == (b"abc", "chunked")
                else:
                    data = await client.read_to_end()
                    assert data.endswith(b"connection: close\r\n\r\nabc")


@pytest.mark.parametrize("status", [204, 304])
async def test_replies_without_a_body_have_no_framing_that_a_client_would_wait_for(
    status: int,
) -> None:
    async with listening(answering=False) as fleet, await fleet.connect() as client:
        for _ in range(2):
            client.send(get("/x"))
            await eventually(lambda: len(fleet.handler.replies) > 0)
            fleet.handler.replies.pop().send(status, b"", b"")
            reply = await client.read_reply("GET")
            assert (reply.status, reply.body) == (status, b"")
            assert reply.header("transfer-encoding") is None


async def test_expect_100_continue_is_answered_before_the_body_is_sent() -> None:
    async with listening() as fleet, await fleet.connect() as client:
        head, _, body = chat({"a": 1}, expect="100-continue").partition(b"\r\n\r\n")
        client.send(head + b"\r\n\r\n")
        assert await client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(body)
        assert (await client.read_reply()).json["body"] == '{"a": 1}'


async def test_no_100_is_sent_when_the_body_is_already_there_or_the_request_is_1_0() -> None:
    async with listening() as fleet, await fleet.connect() as client:
        client.send(chat({"a": 1}, expect="100-continue"))
        assert (await client.read_until(b" 200 ")).startswith(b"HTTP/1.1 200 ")
    async with listening() as fleet, await fleet.connect() as client:
        head, _, body = chat({"a": 1}, version="1.0", expect="100-continue").partition(b"\r\n\r\n")
        client.send(head + b"\r\n\r\n")
        await asyncio.sleep(0.05)
        client.send(body)
        assert (await client.read_until(b" 200 ")).startswith(b"HTTP/1.1 200 ")


async def test_the_100_of_a_pipelined_request_waits_for_the_reply_before_it() -> None:
    async with listening(answering=False) as fleet, await fleet.connect() as client:
        head, _, body = chat({"a": 1}, expect="100-continue").partition(b"\r\n\r\n")
        client.send(get("/first") + head + b"\r\n\r\n")
        await eventually(lambda: len(fleet.handler.replies) == 1)
        fleet.handler.replies[0].send(200, JSON, b"{}")
        assert (await client.read_reply("GET")).status == 200
        assert await client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(body)
        await eventually(lambda: len(fleet.handler.replies) == 2)


@pytest.mark.parametrize("expect", [True, False])
async def test_a_body_above_the_limit_is_refused_before_it_is_sent(expect: bool) -> None:
    async with listening(Limits(max_body_bytes=1000)) as fleet, await fleet.connect() as client:
        extra = b"expect: 100-continue\r\n" if expect else b""
        client.send(b"POST / HTTP/1.1\r\nhost: a\r\n%bcontent-length: 1001\r\n\r\n" % extra)
        reply = await client.read_reply()
        assert reply.status == 413
        assert "1000 bytes" in reply.error["message"]
        assert reply.header("connection") == "close"


async def test_a_refusal_arrives_although_the_client_goes_on_sending() -> None:
    """Closing with unread bytes would reset the connection and take the reply with it."""
    async with listening(Limits(max_body_bytes=1000)) as fleet, await fleet.connect() as client:
        client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 8000000\r\n\r\n")
        for _ in range(80):
            client.send(b"x" * 100_000)
            await client.writer.drain()
        reply = await client.read_reply()
        assert reply.status == 413
        assert await client.read_to_end() == b""


async def test_lingering_has_an_end() -> None:
    limits = Limits(max_body_bytes=1000, linger_s=0.1)
    async with listening(limits) as fleet, await fleet.connect() as client:
        client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 8000000\r\n\r\n")
        assert (await client.read_reply()).status == 413
        await eventually(lambda: fleet.server.connections == 0)


async def test_a_refusal_follows_the_replies_before_it() -> None:
    async with listening(answering=False) as fleet, await fleet.connect() as client:
        client.send(get("/first") + b"NONSENSE\r\n\r\n")
        await eventually(lambda: len(fleet.handler.requests) == 1)
        fleet.handler.replies[0].send(200, JSON, b"{}")
        assert (await client.read_reply("GET")).status == 200
        await eventually(lambda: len(fleet.handler.requests) == 2)
        refused = fleet.handler.requests[1]
        assert refused.refusal is not None
        fleet.handler.answer(refused, fleet.handler.replies[1])
        reply = await client.read_reply("GET")
        assert (reply.status, reply.header("connection")) == (400, "close")
        assert await client.read_to_end() == b""


DEADLINES = Limits(
    head_timeout_s=0.1, body_idle_timeout_s=0.1, idle_timeout_s=0.1, write_stall_timeout_s=0.1
)


async def test_a_connection_that_never_speaks_is_closed_silently() -> None:
    async with listening(DEADLINES) as fleet, await fleet.connect() as client:
        assert await client.read_to_end() == b""


@pytest.mark.parametrize(
    ("sent", "part"),
    [
        (b"GET /x HTTP/1.1\r\nhost: a\r\nx: ", "head"),
        (b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nabc", "body"),
    ],
)
async def test_a_request_that_does_not_go_on_gets_408(sent: bytes, part: str) -> None:
    async with listening(DEADLINES) as fleet, await fleet.connect() as client:
        client.send(sent)
        reply = await client.read_reply()
        assert (reply.status, reply.header("connection")) == (408, "close")
        assert part in reply.error["message"]


async def test_a_head_that_trickles_in_is_bounded_as_a_whole() -> None:
    async with listening(DEADLINES) as fleet, await fleet.connect() as client:
        for byte in b"GET /x HTTP/1.1\r\nhost: a\r\nx: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa":
            client.send(bytes([byte]))
            await asyncio.sleep(0.01)
            if fleet.handler.requests:
                break
        assert (await client.read_reply()).status == 408


async def test_a_body_that_goes_on_is_not_cut() -> None:
    limits = Limits(body_idle_timeout_s=0.4)
    async with listening(limits) as fleet, await fleet.connect() as client:
        client.send(b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n")
        for _ in range(5):
            await asyncio.sleep(0.1)
            client.send(b"a")
        assert (await client.read_reply()).status == 200


async def test_an_idle_connection_is_closed_and_a_request_in_progress_is_not() -> None:
    async with listening(DEADLINES, answering=False) as fleet, await fleet.connect() as client:
        client.send(get("/x"))
        await asyncio.sleep(0.3)
        fleet.handler.replies[0].send(200, JSON, b"{}")
        assert (await client.read_reply("GET")).status == 200
        assert await client.read_to_end() == b""


async def test_a_client_that_never_reads_its_reply_is_cut() -> None:
    async with listening(DEADLINES, answering=False) as fleet, await fleet.connect() as client:
        client.pause()
        client.send(get("/x"))
        await eventually(lambda: len(fleet.handler.replies) == 1)
        reply = fleet.handler.replies[0]
        reply.start(200, JSON, length=None)
        reply.write(b"x" * 50_000_000)
        await eventually(lambda: fleet.server.connections == 0)
        assert reply.gone


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_client_that_leaves_is_noticed_while_its_request_is_answered(how: str) -> None:
    async with listening(answering=False) as fleet:
        client = await fleet.connect()
        client.send(chat({}))
        await eventually(lambda: len(fleet.handler.replies) == 1)
        reply = fleet.handler.replies[0]
        told: list[bool] = []
        reply.on_gone = lambda: told.append(True)
        client.close() if how == "fin" else client.reset()
        await eventually(lambda: told == [True])
        assert reply.gone
        reply.send(200, JSON, b"{}")  # nobody is there: nothing happens
        assert fleet.server.connections == 0


async def test_close_answers_what_is_in_progress_and_refuses_new_connections() -> None:
    async with listening(answering=False) as fleet:
        idle, busy = await fleet.connect(), await fleet.connect()
        busy.send(get("/x"))
        await eventually(lambda: len(fleet.handler.replies) == 1)
        closing = asyncio.ensure_future(fleet.server.close(5))
        assert await idle.read_to_end() == b""
        with pytest.raises(OSError, match=r"refused|failed"):
            await Client.connect(fleet.port)
        assert not closing.done()
        fleet.handler.replies[0].send(200, JSON, b"{}")
        assert (await busy.read_reply("GET")).status == 200
        await closing
        idle.close()
        busy.close()


async def test_close_announces_the_end_to_clients_whose_reply_had_not_begun() -> None:
    async with listening(answering=False) as fleet, await fleet.connect() as client:
        client.send(b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n")
        await eventually(lambda: not next(iter(fleet.server._state.connections)).idle)
        closing = asyncio.ensure_future(fleet.server.close(5))
        await asyncio.sleep(0)
        client.send(b"abc")
        await eventually(lambda: len(fleet.handler.replies) == 1)
        fleet.handler.replies[0].send(200, JSON, b"{}")
        assert (await client.read_reply()).header("connection") == "close"
        await closing


async def test_close_cuts_what_does_not_end_in_time() -> None:
    async with listening(answering=False) as fleet, await fleet.connect() as client:
        client.send(get("/x"))
        await eventually(lambda: len(fleet.handler.replies) == 1)
        await fleet.server.close(0.05)
        assert fleet.handler.replies[0].gone
        assert await client.read_to_end() == b""


async def test_close_does_not_wait_for_a_client_that_was_just_being_accepted() -> None:
    if not isinstance(asyncio.get_running_loop(), uvloop.Loop):
        pytest.skip("asyncio of Python 3.11 forgets such a client without closing it")
    for turns in range(6):
        async with listening(answering=False) as fleet, await fleet.connect() as client:
            client.send(get("/v1/models"))  # never answered, so that the end waits
            await eventually(lambda: fleet.handler.requests)
            with socket.create_connection(("127.0.0.1", fleet.port)) as late:
                late.send(get("/v1/models"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                late.setblocking(False)
                async with asyncio.timeout(2):
                    await fleet.server.close(0)
                    with contextlib.suppress(ConnectionResetError):
                        assert not await asyncio.get_running_loop().sock_recv(late, 1)


async def test_it_listens_on_ipv6() -> None:
    async with listening() as fleet:
        port = await fleet.server.listen("::1", 0)
        async with await Client.connect(port, "::1") as client:
            client.send(get("/x"))
            assert (await client.read_reply("GET")).status == 200
        assert fleet.handler.requests[0].client == "::1"


async def test_an_incomplete_reply_is_never_mistaken_for_a_complete_one() -> None:
    async with listening(answering=False) as fleet:
        for version in ("1.1", "1.0"):
            async with await fleet.connect() as client:
                client.send(get("/x", version=version))
                await eventually(lambda: len(fleet.handler.replies) > 0)
                reply = fleet.handler.replies.pop()
                reply.start(200, JSON, length=None)
                reply.write(b"half")
                await client.read_until(b"half")
                reply.cut()
                rest = client.reader.read()
                if version == "1.1":
                    assert b"0\r\n" not in await rest
                else:
                    with pytest.raises(ConnectionResetError):
                        await rest
