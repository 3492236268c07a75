import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kthena.kube.client import Request
from kthena.kube.client.http import Anonymous, Endpoint, HttpTransport
from kthena.kube.errors import ClientConfigError, ConnectionFailed
from support.kube_server import Conversation, TcpServer, http_reply, read_request

GET = Request("GET", "/x", timeout_s=5)
POST = Request("POST", "/x", body=b"{}", timeout_s=5)
WATCH = Request("GET", "/w", timeout_s=5, streamed=True)


@asynccontextmanager
async def talking_to(
    conversation: Conversation, max_connections: int = 4
) -> AsyncIterator[tuple[HttpTransport, TcpServer]]:
    async with TcpServer(conversation) as server:
        transport = HttpTransport(
            Endpoint(server.url, Anonymous()), max_connections=max_connections
        )
        try:
            yield transport, server
        finally:
            await transport.aclose()


async def body_of(transport: HttpTransport, request: Request) -> bytes:
    reply = await transport.send(request)
    return await reply.read()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        head, body = await read_request(reader)
        writer.write(http_reply(head + body))


async def test_a_request_is_sent_as_http_1_1() -> None:
    async with talking_to(echo) as (transport, server):
        request = Request("POST", "/a?b=c", {"X-Y": "z"}, b"data", 5)

        sent = await body_of(transport, request)

    assert sent == (
        b"POST /a?b=c HTTP/1.1\r\n"
        b"Host: 127.0.0.1:" + str(server.port).encode() + b"\r\n"
        b"X-Y: z\r\n"
        b"Content-Length: 4\r\n\r\ndata"
    )


async def test_the_path_of_the_server_url_goes_first() -> None:
    async with TcpServer(echo) as server:
        transport = HttpTransport(Endpoint(f"{server.url}/clusters/c1/", Anonymous()))

        assert (await body_of(transport, GET)).startswith(b"GET /clusters/c1/x HTTP/1.1\r\n")

        await transport.aclose()


async def test_a_connection_is_kept_and_used_again() -> None:
    async with talking_to(echo) as (transport, server):
        for _ in range(5):
            await body_of(transport, POST)

        assert server.connections == 1


async def test_concurrent_requests_have_a_bounded_number_of_connections() -> None:
    async with talking_to(echo, max_connections=3) as (transport, server):
        await asyncio.gather(*(body_of(transport, POST) for _ in range(30)))

        assert server.connections == 3


async def test_streams_never_starve_requests() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _ = await read_request(reader)
            if head.startswith(b"GET /w"):
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                await asyncio.Event().wait()
            writer.write(http_reply(b"here"))

    async with talking_to(converse, max_connections=1) as (transport, _):
        streams = [await transport.send(WATCH) for _ in range(10)]

        assert await body_of(transport, GET) == b"here"

        for stream in streams:
            await stream.aclose()


async def test_chunks_arrive_as_they_are_sent() -> None:
    proceed = asyncio.Event()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await proceed.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
        await read_request(reader)
        writer.write(http_reply(b"again"))

    async with talking_to(converse) as (transport, server):
        reply = await transport.send(WATCH)
        chunks = reply.chunks()
        assert await anext(chunks) == b"one"
        proceed.set()
        assert await anext(chunks) == b"two"
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)

        assert await body_of(transport, GET) == b"again"
        assert server.connections == 1


async def test_a_stream_that_is_left_early_takes_its_connection_along() -> None:
    ended = asyncio.Event()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        assert await reader.read() == b""
        ended.set()

    async with talking_to(converse) as (transport, _):
        reply = await transport.send(WATCH)
        await reply.aclose()
        await asyncio.wait_for(ended.wait(), 5)


async def test_a_reader_that_is_slow_holds_the_server_back() -> None:
    sent = 0
    piece = b"x" * 65536

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(400):
            writer.write(piece)
            await writer.drain()
            sent += len(piece)

    async with talking_to(converse) as (transport, _):
        reply = await transport.send(WATCH)
        before = -1
        while sent != before:  # until the server is stuck
            before = sent
            await asyncio.sleep(0.05)
        stuck_at = sent
        received = len(await reply.read())

    assert stuck_at < 16 << 20
    assert received == 400 * 65536


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")

    async with talking_to(converse) as (transport, _):
        assert await body_of(transport, GET) == b"all of it"


async def test_an_interim_reply_is_passed_over() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 103 Early Hints\r\nContent-Length: 9\r\n\r\n" + http_reply(b"real"))

    async with talking_to(converse) as (transport, _):
        reply = await transport.send(GET)
        assert reply.status == 200
        assert await reply.read() == b"real"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the server closed the connection before the reply"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "in the middle of the reply"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf", "in the middle"),
        (b"SSH-2.0-OpenSSH\r\n", "no valid HTTP reply"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "no valid HTTP reply"),
    ],
)
async def test_a_broken_reply_is_a_failed_connection(data: bytes, message: str) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(data)

    async with talking_to(converse) as (transport, _):
        with pytest.raises(ConnectionFailed, match=message) as caught:
            await body_of(transport, POST)

    assert str(caught.value).startswith("POST /x: ")


async def test_bytes_that_nobody_asked_for_close_the_connection() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(http_reply(b"first") + http_reply(b"unasked"))
        await reader.read()

    async with talking_to(converse) as (transport, server):
        assert await body_of(transport, GET) == b"first"
        assert await asyncio.wait_for(body_of(transport, GET), 2) == b"first"
        assert server.connections == 2


async def test_a_server_that_says_close_is_believed() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(http_reply(b"bye", headers="Connection: close\r\n"))

    async with talking_to(converse) as (transport, server):
        assert await body_of(transport, POST) == b"bye"
        assert await body_of(transport, POST) == b"bye"
        assert server.connections == 2


async def test_a_get_survives_a_connection_that_was_closed_while_idle() -> None:
    """The server closes as the second request is on its way."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(http_reply(b"once"))
        await reader.readuntil(b"\r\n\r\n")

    async with talking_to(converse) as (transport, server):
        await body_of(transport, GET)

        assert await body_of(transport, GET) == b"once"
        assert server.connections == 2


async def test_a_write_is_never_sent_twice() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(http_reply(b"once"))
        await reader.readuntil(b"\r\n\r\n")

    async with talking_to(converse) as (transport, server):
        await body_of(transport, POST)

        with pytest.raises(ConnectionFailed, match="before the reply"):
            await body_of(transport, POST)
        assert server.connections == 1


async def test_no_reply_in_time_is_a_failed_connection() -> None:
    async def converse(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with talking_to(converse) as (transport, _):
        with pytest.raises(ConnectionFailed, match=r"no reply within 0\.3 s"):
            await transport.send(Request("GET", "/x", timeout_s=0.3))
        with pytest.raises(ConnectionFailed, match=r"no reply within 0\.3 s"):
            await transport.send(Request("GET", "/w", timeout_s=0.3, streamed=True))


async def test_the_time_limit_covers_the_body_but_not_of_a_stream() -> None:
    proceed = asyncio.Event()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha")
        await proceed.wait()
        writer.write(b"lf")
        await reader.read()

    async with talking_to(converse) as (transport, _):
        stream = await transport.send(Request("GET", "/w", timeout_s=0.3, streamed=True))
        with pytest.raises(ConnectionFailed, match=r"no complete reply within 0\.3 s"):
            await body_of(transport, Request("GET", "/x", timeout_s=0.3))
        proceed.set()

        assert await stream.read() == b"half"


async def test_a_request_that_is_cancelled_frees_its_place() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await read_request(reader)
        if head.startswith(b"POST"):
            await reader.read()
        writer.write(http_reply(b"free"))

    async with talking_to(converse, max_connections=1) as (transport, _):
        stuck = asyncio.create_task(body_of(transport, POST))
        waiting = asyncio.create_task(body_of(transport, GET))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        stuck.cancel()

        assert await asyncio.wait_for(waiting, 2) == b"free"
        with pytest.raises(asyncio.CancelledError):
            await stuck


async def test_a_reader_that_is_cancelled_frees_its_place() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await read_request(reader)
        if head.startswith(b"POST"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha")
            await reader.read()
        writer.write(http_reply(b"free"))

    async with talking_to(converse, max_connections=1) as (transport, _):
        stuck = asyncio.create_task(body_of(transport, POST))
        await asyncio.sleep(0.05)
        stuck.cancel()

        assert await asyncio.wait_for(body_of(transport, GET), 2) == b"free"


async def test_cancelling_while_connecting_frees_the_place() -> None:
    async with talking_to(echo, max_connections=1) as (transport, _):
        for _ in range(3):
            task = asyncio.create_task(body_of(transport, POST))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        assert await body_of(transport, POST)


async def test_closing_fails_what_is_in_flight_and_what_follows() -> None:
    async def converse(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with talking_to(converse) as (transport, _):
        waiting = asyncio.create_task(body_of(transport, POST))
        await asyncio.sleep(0.05)
        await transport.aclose()

        with pytest.raises(ConnectionFailed):
            await waiting
        with pytest.raises(ConnectionFailed, match="the client is closed"):
            await body_of(transport, GET)


async def test_an_unreachable_server_is_named() -> None:
    async with TcpServer(echo) as server:
        url = server.url
    transport = HttpTransport(Endpoint(url, Anonymous()))

    with pytest.raises(ConnectionFailed, match=f"cannot connect to {url}: .*refused"):
        await transport.send(GET)


async def test_a_plain_server_is_no_tls_server() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(http_reply(b"", 400))

    async with TcpServer(converse) as server:
        url = server.url.replace("http:", "https:")
        transport = HttpTransport(Endpoint(url, Anonymous(), ssl.create_default_context()))

        with pytest.raises(ConnectionFailed, match=f"cannot connect to {url}: "):
            await transport.send(GET)

        await transport.aclose()


@pytest.mark.parametrize("server", ["127.0.0.1:8080", "ftp://x", "https://", ""])
async def test_a_server_must_be_a_url(server: str) -> None:
    with pytest.raises(ClientConfigError, match="is no http or https URL"):
        HttpTransport(Endpoint(server, Anonymous()))


async def test_a_header_cannot_carry_a_line_break() -> None:
    async with talking_to(echo) as (transport, server):
        with pytest.raises(ValueError, match="a line break"):
            await transport.send(Request("GET", "/x", {"A": "b\r\nC: d"}))
        assert server.connections == 0


class RotatingCredentials:
    """A token that the server stops taking."""

    def __init__(self) -> None:
        self.tokens = ["old", "new", "new"]
        self.renewals = 0

    async def authorization(self) -> str:
        return f"Bearer {self.tokens[self.renewals]}"

    async def renewed(self, rejected: str | None) -> str:
        assert rejected == await self.authorization()
        self.renewals += 1
        return await self.authorization()


async def test_a_rejected_token_is_renewed_once_and_the_request_repeated() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, body = await read_request(reader)
            accepted = b"Authorization: Bearer new\r\n" in head
            writer.write(http_reply(body, 200 if accepted else 401))

    async with TcpServer(converse) as server:
        credentials = RotatingCredentials()
        transport = HttpTransport(Endpoint(server.url, credentials), max_connections=1)

        reply = await transport.send(POST)
        assert (reply.status, await reply.read()) == (200, b"{}")
        assert credentials.renewals == 1
        assert server.connections == 1
        await transport.aclose()


async def test_a_token_that_stays_rejected_is_a_401() -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(http_reply(b"no", 401))

    async with TcpServer(converse) as server:
        credentials = RotatingCredentials()
        transport = HttpTransport(Endpoint(server.url, credentials), max_connections=1)

        for renewals in (1, 2):
            reply = await transport.send(GET)
            assert (reply.status, await reply.read()) == (401, b"no")
            assert credentials.renewals == renewals
        await transport.aclose()


async def test_an_idle_connection_is_not_used_for_ever() -> None:
    async with TcpServer(echo) as server:
        transport = HttpTransport(Endpoint(server.url, Anonymous()), keep_alive_s=0.0)
        await body_of(transport, GET)
        await body_of(transport, GET)

        assert server.connections == 2
        await transport.aclose()


class NoCredentials(Anonymous):
    """A plugin that fails."""

    async def authorization(self) -> str | None:
        raise ClientConfigError("plugin x failed: denied")


async def test_without_credentials_nothing_is_sent() -> None:
    """It is a failed call, which callers retry, and no other kind of error."""
    async with TcpServer(echo) as server:
        transport = HttpTransport(Endpoint(server.url, NoCredentials()))

        with pytest.raises(ConnectionFailed, match=r"GET /x: .*plugin x failed: denied"):
            await transport.send(GET)
        assert server.connections == 0


async def test_a_time_limit_is_not_doubled_by_a_second_attempt() -> None:
    """A kept-alive connection that has fallen silent is no closed one."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(http_reply(b"once"))
        await reader.read()

    async with talking_to(converse) as (transport, server):
        await body_of(transport, GET)
        with pytest.raises(ConnectionFailed, match="no reply within"):
            await body_of(transport, Request("GET", "/x", timeout_s=0.05))
        assert server.connections == 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key in the same file."""
    folder = tmp_path_factory.mktemp("tls")
    command = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
        *("-subj", "/CN=kthena", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
    ]
    subprocess.run(command, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_bytes((folder / "key.pem").read_bytes() + (folder / "cert.pem").read_bytes())
    return both


@pytest.fixture
async def tls_server(certificate: Path) -> AsyncIterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await server.wait_closed()


async def test_tls_verifies_the_server(tls_server: str, certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=certificate)
    transport = HttpTransport(Endpoint(tls_server, Anonymous(), trusting))
    assert (await body_of(transport, GET)).startswith(b"GET /x HTTP/1.1")
    await transport.aclose()

    stranger = HttpTransport(Endpoint(tls_server, Anonymous(), ssl.create_default_context()))
    with pytest.raises(ConnectionFailed, match="certificate verify failed"):
        await stranger.send(GET)
    await stranger.aclose()
