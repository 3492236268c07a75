"""How bytes become requests: against h11, for every split, and for what smugglers send."""

import asyncio
from dataclasses import dataclass
from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.router.proxy.connection import ClientConnection, ServerState
from kthena.router.proxy.limits import Limits
from support.router_http import MemoryTransport, Recorder

HOST = b"host: a\r\n"


@dataclass
class Parsed:
    method: str
    target: str
    body: bytes


def read_with_router(pieces: list[bytes], limits: Limits | None = None) -> tuple[list[Parsed], int]:
    """The requests that the router reads from these pieces, and the status of its refusal or 0."""
    handler = Recorder()
    state = ServerState(limits or Limits(), handler)
    transport = MemoryTransport()
    with asyncio.Runner() as runner:
        connection = ClientConnection(state, runner.get_loop())
        connection.connection_made(transport)
        for piece in pieces:
            if not transport.closing:
                connection.data_received(piece)
        connection.connection_lost(None)
    assert state.buffered_bytes == 0
    parsed, refused = [], 0
    for request in handler.requests:
        if request.refusal is None:
            parsed.append(Parsed(request.method, request.target.decode(), request.body))
        else:
            refused = request.refusal.status
    return parsed, refused


def read_with_h11(data: bytes) -> tuple[list[Parsed], bool]:
    """The same by h11, whose limits are out of the way; True if it refuses something."""
    requests: list[Parsed] = []
    head, body = h11.Request(method="GET", target="/", headers=[("host", "-")]), bytearray()
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(data)
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return requests, True
        if isinstance(event, h11.Request):
            head, body = event, bytearray()
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            requests.append(Parsed(head.method.decode(), head.target.decode(), bytes(body)))
            if connection.their_state is h11.MUST_CLOSE:
                return requests, False
            connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return requests, False
            connection.start_next_cycle()
        else:
            return requests, False


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a != b]


token = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12)
value = st.text("abcXYZ0123456789 ,;=/\"'()<>@[]{}?~", max_size=20).map(str.strip)


@st.composite
def request_bytes(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS"]))
    path = "/" + draw(st.text("abc/-_~%20?&=", max_size=20)).replace("%20", "").replace("%", "")
    body = draw(st.binary(max_size=200))
    lines = [f"{method} {path} HTTP/1.1", "Host: example"]
    lines += [
        f"x-{name}: {text}" for name, text in draw(st.lists(st.tuples(token, value), max_size=5))
    ]
    if draw(st.booleans()):
        lines.append(f"Content-Length: {len(body)}")
        encoded = body
    elif draw(st.booleans()):
        lines.append("Transfer-Encoding: chunked")
        encoded = b""
        while body:
            size = draw(st.integers(1, len(body)))
            encoded += b"%x\r\n%b\r\n" % (size, body[:size])
            body = body[size:]
        encoded += b"0\r\n\r\n"
    else:
        encoded = b""
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + encoded


@given(
    st.lists(request_bytes(), min_size=1, max_size=4), st.lists(st.integers(0, 5000), max_size=8)
)
def test_any_split_of_any_requests_is_read_as_h11_reads_it(
    requests: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(requests)
    expected, refused = read_with_h11(data)
    assert (expected, refused) == (expected, False)

    assert read_with_router(split(data, cuts)) == (expected, 0)


def test_every_single_split_gives_the_same_requests() -> None:
    data = (
        b"POST /v1/a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
        b"POST /v1/b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\nGET /c HTTP/1.1\r\nHost: a\r\n\r\n"
    )
    expected = [
        Parsed("POST", "/v1/a", b"abc"),
        Parsed("POST", "/v1/b", b"abcde"),
        Parsed("GET", "/c", b""),
    ]
    for cut in range(len(data) + 1):
        assert read_with_router(split(data, [cut])) == (expected, 0)
    assert read_with_router([data[i : i + 1] for i in range(len(data))]) == (expected, 0)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
def test_no_bytes_break_the_connection(noise: bytes, cuts: list[int]) -> None:
    read_with_router(split(b"POST / HTTP/1.1\r\n" + HOST + noise, cuts))
    read_with_router(split(noise, cuts))


SMUGGLING = {
    "length and chunked": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "two different lengths": b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "a list of lengths": b"Content-Length: 3, 3\r\n\r\nabc",
    "a signed length": b"Content-Length: +3\r\n\r\nabc",
    "a negative length": b"Content-Length: -3\r\n\r\nabc",
    "a hex length": b"Content-Length: 0x3\r\n\r\nabc",
    "a huge length": b"Content-Length: 99999999999999999999999\r\n\r\n",
    "an empty length": b"Content-Length: \r\n\r\n",
    "folded header": b"X: a\r\n b\r\n\r\n",
    "folded length": b"Content-Length:\r\n 3\r\n\r\nabc",
    "blank before colon": b"Content-Length : 3\r\n\r\nabc",
    "blank before chunked": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "NUL in a value": b"X: a\x00b\r\n\r\n",
    "CR in a value": b"X: a\rContent-Length: 3\r\n\r\nabc",
    "line feeds only": b"X: a\n\n",
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked list": b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked not last": b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "unknown coding": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding with a tab": b"Transfer-Encoding: chunked\x0b\r\n\r\n0\r\n\r\n",
    "gzip coding": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "identity coding": b"Transfer-Encoding: identity\r\n\r\n",
    "chunk size with blank": b"Transfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n",
    "chunk size with prefix": b"Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size with sign": b"Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n",
    "chunk size overflow": b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "chunk too long": b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    "chunk too short": b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc\r\n0\r\n\r\n",
    "chunk with line feed": b"Transfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n",
    "empty chunk size": b"Transfer-Encoding: chunked\r\n\r\n\r\nabc\r\n0\r\n\r\n",
    "two hosts": b"Host: b\r\n\r\n",
}


@pytest.mark.parametrize("rest", SMUGGLING.values(), ids=SMUGGLING.keys())
def test_ambiguous_requests_are_refused_and_nothing_after_them_is_read(rest: bytes) -> None:
    hidden = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
    data = b"POST /seen HTTP/1.1\r\n" + HOST + rest + hidden
    for pieces in ([data], [data[i : i + 1] for i in range(len(data))]):
        requests, refused = read_with_router(pieces)
        assert requests == []
        assert refused in {400, 501}


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"GET /\r\n\r\n", 505),
        (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 400),
        (b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /a/../b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /a/%2e%2e/b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /a/./b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /%0d%0aX:y HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nExpect: magic\r\nContent-Length: 1\r\n\r\n", 417),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", 400),
    ],
)
def test_requests_that_are_not_http_as_it_should_be_get_their_status(
    head: bytes, status: int
) -> None:
    assert read_with_router([head]) == ([], status)


@pytest.mark.parametrize(
    ("target", "sent_on"),
    [
        (b"/v1/chat?a=b%20c", "/v1/chat?a=b%20c"),
        (b"http://other:80/v1/chat?x", "/v1/chat?x"),
        (b"HTTP://other", "/"),
        (b"/v1/deepseek-ai%2FDeepSeek", "/v1/deepseek-ai%2FDeepSeek"),
        (b"/v1/.well-known/x..y", "/v1/.well-known/x..y"),
    ],
)
def test_targets_are_sent_on_in_origin_form(target: bytes, sent_on: str) -> None:
    requests, refused = read_with_router([b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target])
    assert (requests, refused) == ([Parsed("GET", sent_on, b"")], 0)


def test_blanks_after_a_value_belong_to_no_value() -> None:
    data = (
        b"POST /a HTTP/1.1\r\nHost: a \r\nTransfer-Encoding: chunked  \r\nExpect: 100-continue \r\n"
        b"X-Tier: gold \r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    )
    assert read_with_router([data]) == ([Parsed("POST", "/a", b"abc")], 0)
    handler = Recorder()
    connection = ClientConnection(ServerState(Limits(), handler), asyncio.new_event_loop())
    connection.connection_made(MemoryTransport())
    connection.data_received(data)
    connection._loop.close()
    assert handler.requests[0].header(b"x-tier") == b"gold"
    assert handler.requests[0].header(b"host") == b"a"


def test_http_1_0_needs_no_host_and_ends_the_connection() -> None:
    data = b"GET /a HTTP/1.0\r\n\r\nGET /b HTTP/1.0\r\n\r\n"
    assert read_with_router([data]) == ([Parsed("GET", "/a", b"")], 0)


def test_what_follows_connection_close_is_not_read() -> None:
    data = (
        b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n"
    )
    assert read_with_router([data]) == ([Parsed("GET", "/a", b"")], 0)


UPGRADE = (
    b"Host: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
)


@pytest.mark.parametrize(
    "body",
    [b"Content-Length: 3\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"],
    ids=["length", "chunked"],
)
def test_a_wish_to_upgrade_is_ignored_and_the_body_is_read(body: bytes) -> None:
    data = b"POST /a HTTP/1.1\r\n" + UPGRADE + body
    data += b"GET /b HTTP/1.1\r\n" + UPGRADE + b"\r\nGET /c HTTP/1.1\r\nHost: a\r\n\r\n"
    expected = [Parsed("POST", "/a", b"abc"), Parsed("GET", "/b", b""), Parsed("GET", "/c", b"")]
    for cut in range(len(data)):
        assert read_with_router(split(data, [cut])) == (expected, 0)


def test_many_pipelined_upgrades_do_not_recurse() -> None:
    data = (b"GET /a HTTP/1.1\r\n" + UPGRADE + b"\r\n") * 2000
    requests, refused = read_with_router([data])
    assert (len(requests), refused) == (2000, 0)


SMALL = Limits(max_headers=5, max_head_bytes=1000, max_target_bytes=50, max_body_bytes=100)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 5 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 1000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 2000, 431),
        (b"GET /" + b"a" * 2000, 431),
        (b"GET /" + b"a" * 50 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n", 413),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + b"a" * 101,
            413,
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;"
            + b"e" * 3000
            + b"\r\na",
            400,
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
            + b"Trailer: x\r\n" * 200,
            400,
        ),
    ],
    ids=[
        "too many headers", "a header too long", "a header without end", "a target without end",
        "a target too long", "a length too long", "chunks too long", "an extension without end",
        "trailers without end",
    ],
)  # fmt: skip
def test_limits_are_refused_whatever_the_split(data: bytes, status: int) -> None:
    for size in (len(data), 100, 7):
        pieces = [data[i : i + size] for i in range(0, len(data), size)]
        assert read_with_router(pieces, SMALL) == ([], status)


def test_what_is_at_the_limits_passes() -> None:
    data = b"POST /a HTTP/1.1\r\nHost: a\r\nX: y\r\nX: y\r\nX: y\r\nContent-Length: 100\r\n\r\n"
    assert read_with_router([data + b"a" * 100], SMALL) == ([Parsed("POST", "/a", b"a" * 100)], 0)


def test_bodies_of_all_connections_share_one_bound() -> None:
    handler = Recorder()
    handler.answering = False
    state = ServerState(Limits(max_buffered_bytes=250), handler)
    head = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n"
    with asyncio.Runner() as runner:
        connections = []
        for _ in range(3):
            connection = ClientConnection(state, runner.get_loop())
            connection.connection_made(MemoryTransport())
            connection.data_received(head + b"a" * 100)
            connections.append(connection)
        assert [request.refusal and request.refusal.status for request in handler.requests] == [
            None, None, 503,
        ]  # fmt: skip
        assert state.buffered_bytes == 200
        handler.replies[0].send(200, b"", b"")
        assert state.buffered_bytes == 100
        for connection in connections:
            connection.connection_lost(None)
        assert state.buffered_bytes == 0


def test_a_length_that_is_only_announced_keeps_nobody_out() -> None:
    """Clients that announce large bodies and send nothing must not use up the memory for bodies."""
    handler = Recorder()
    state = ServerState(Limits(max_buffered_bytes=250), handler)
    with asyncio.Runner() as runner:
        connections = [ClientConnection(state, runner.get_loop()) for _ in range(5)]
        for connection in connections:
            connection.connection_made(MemoryTransport())
        for connection in connections[:4]:
            connection.data_received(
                b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 200\r\n\r\nbegun"
            )
        assert state.buffered_bytes == 20
        connections[4].data_received(
            b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 200\r\n\r\n" + b"a" * 200
        )
        assert [request.refusal for request in handler.requests] == [None]
        # One that could not fit beside what is held is told before it sends its body.
        connections[4].data_received(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 240\r\n\r\n")
        refusal = handler.requests[-1].refusal
        assert refusal is not None
        assert (refusal.status, refusal.retry_after_s) == (503, 1)
        for connection in connections:
            connection.connection_lost(None)
        assert state.buffered_bytes == 0
