"""Connections to the embedded server: clients that are slow, silent, or too talkative."""

import contextlib
import http.client
import socket
from collections.abc import Iterator

import pytest

from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.connection import MAX_HEAD_BYTES
from kthena.local.apiserver.server import ApiServer
from support.apiserver import CORE, Api, Server, config_map, embedded_api

MAPS = f"{CORE}/namespaces/default/configmaps"


@pytest.fixture
def hurried() -> Iterator[tuple[ApiServer, Api]]:
    """A server with little patience."""
    with embedded_api(ApiServerConfig(head_timeout_s=0.2)) as found:
        yield found


def open_socket(server: ApiServer, data: bytes = b"") -> socket.socket:
    """A connection on which `data` was sent."""
    found = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    found.sendall(data)
    return found


def wait_until_closed(connection: socket.socket) -> None:
    """The server ends the connection without a word."""
    with contextlib.suppress(ConnectionResetError):
        assert connection.recv(100) == b""


@pytest.mark.parametrize(
    "head",
    [b"", b"\r\n", b"GET /healthz HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX"],
)
def test_head_that_does_not_end_in_time_ends_the_connection(
    hurried: tuple[ApiServer, Api], head: bytes
) -> None:
    server, _ = hurried
    with open_socket(server, head) as connection:
        wait_until_closed(connection)


def test_slow_clients_stall_nobody() -> None:
    with embedded_api() as (server, api), contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(open_socket(server, b"GET /api HTTP/1.1\r\nHost: "))
            body = f"POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
            authorization = f"Authorization: Bearer {server.config.token}\r\n\r\n{{"
            stack.enter_context(open_socket(server, (body + authorization).encode()))
        for index in range(20):
            api.create(MAPS, config_map(f"m{index}")).expect(201)


def test_patience_ends_no_reply_and_no_idle_connection(hurried: tuple[ApiServer, Api]) -> None:
    server, api = hurried
    first = api.create(MAPS, config_map("first")).expect(201)
    with api.watch(MAPS, resourceVersion=first["metadata"]["resourceVersion"]) as watch:
        idle = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        idle.request("GET", "/readyz")
        assert idle.getresponse().read() == b"ok"
        kept = idle.sock
        with open_socket(server) as silent:
            wait_until_closed(silent)
        idle.request("GET", "/readyz")
        assert idle.getresponse().read() == b"ok"
        assert idle.sock is kept
        idle.close()
        api.create(MAPS, config_map("second")).expect(201)
        assert watch.next().name == "second"


@pytest.mark.parametrize("piece", [b"X: y\r\n", b"X: " + b"y" * 1000 + b"\r\n"])
def test_head_that_is_too_long_is_refused_before_it_is_kept(
    embedded_apiserver: Server, piece: bytes
) -> None:
    port = int(embedded_apiserver.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        # The server may have closed before all of it is sent.
        with contextlib.suppress(ConnectionError):
            for _ in range(2 * MAX_HEAD_BYTES // len(piece)):
                connection.sendall(piece)
        with contextlib.suppress(ConnectionError):
            assert connection.recv(100).startswith(b"HTTP/1.1 431 Request Header Fields Too Large")


def test_long_bodies_after_a_reply_are_no_heads(embedded_apiserver: Server) -> None:
    body = b"x" * (2 * MAX_HEAD_BYTES)
    api = Api(embedded_apiserver)
    reply = api.request("POST", MAPS, body, headers={"Authorization": "Bearer wrong"})
    assert reply.status == 401
    assert api.get("/readyz").status == 200
    api.close()
