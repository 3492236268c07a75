"""Who may call the embedded server."""

import base64
import http.client
import json
from typing import Any

import pytest

from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.server import ApiServer
from support.apiserver import Api, Server, embedded_api


def ask(server: Server, path: str, **headers: str) -> tuple[int, Any]:
    """GET with exactly these headers."""
    connection = Api(server).connect()
    try:
        connection.putrequest("GET", path, skip_host="host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/api/v1/pods", "/apis", "/openapi/v3", "/version", "/nosuch"])
def test_everything_needs_the_token(server: Server, path: str) -> None:
    status, content = ask(server, path)
    body = json.loads(content)
    # A real server lets anonymous clients read the version and forbids them the rest by its roles.
    if server.embedded:
        assert (status, body["reason"], body["message"]) == (401, "Unauthorized", "Unauthorized")
    else:
        assert status in (200, 401, 403)


def test_wrong_token_is_unauthorized(server: Server) -> None:
    status, content = ask(server, "/api/v1/pods", authorization="Bearer wrong")
    assert (status, json.loads(content)) == (
        401,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Unauthorized",
            "reason": "Unauthorized",
            "code": 401,
        },
    )


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
def test_health_is_open(server: Server, path: str) -> None:
    assert ask(server, path) == (200, b"ok")


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "bearer  x", "Basic", "Basic !!!", "Digest x", "Bearer tok\xe9n"],
)
def test_garbage_is_unauthorized(embedded_apiserver: Server, authorization: str) -> None:
    assert ask(embedded_apiserver, "/api/v1/pods", authorization=authorization)[0] == 401


def test_token_as_the_password_of_the_url(embedded_apiserver: Server) -> None:
    credentials = base64.b64encode(f"kthena:{embedded_apiserver.token}".encode()).decode()
    assert ask(embedded_apiserver, "/api/v1/pods", authorization=f"Basic {credentials}")[0] == 200
    wrong = base64.b64encode(b"kthena:wrong").decode()
    assert ask(embedded_apiserver, "/api/v1/pods", authorization=f"Basic {wrong}")[0] == 401


@pytest.mark.parametrize(
    "host", ["evil.example.com", "evil.example.com:80", "127.0.0.1.evil.com", "", "[::2]"]
)
def test_foreign_host_is_forbidden(embedded_apiserver: Server, host: str) -> None:
    token = f"Bearer {embedded_apiserver.token}"
    status, content = ask(embedded_apiserver, "/api/v1/pods", host=host, authorization=token)
    assert (status, json.loads(content)["reason"]) == (403, "Forbidden")
    assert ask(embedded_apiserver, "/healthz", host=host)[0] == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:80"])
def test_loopback_hosts_are_known(embedded_apiserver: Server, host: str) -> None:
    token = f"Bearer {embedded_apiserver.token}"
    assert ask(embedded_apiserver, "/api/v1/pods", host=host, authorization=token)[0] == 200


def test_web_page_is_forbidden(embedded_apiserver: Server) -> None:
    token = f"Bearer {embedded_apiserver.token}"
    for origin in ("http://evil.example.com", "http://localhost", "null"):
        status, _ = ask(embedded_apiserver, "/api/v1/pods", authorization=token, origin=origin)
        assert status == 403


def test_one_of_two_hosts_is_no_host(embedded_apiserver: Server) -> None:
    connection = Api(embedded_apiserver).connect()
    connection.putrequest("GET", "/api/v1/pods", skip_host=True)
    for name, value in (("Host", "localhost"), ("Host", "evil.example.com")):
        connection.putheader(name, value)
    connection.putheader("Authorization", f"Bearer {embedded_apiserver.token}")
    connection.endheaders()
    assert connection.getresponse().status == 403
    connection.close()


def test_further_hosts_can_be_allowed() -> None:
    with embedded_api(ApiServerConfig(hosts=("api.internal",))) as (server, _):
        found = Server(server.url, server.config.token, None, embedded=True)
        token = f"Bearer {found.token}"
        assert ask(found, "/apis", host="api.internal:80", authorization=token)[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "::"])
def test_only_loopback_is_served(host: str) -> None:
    with pytest.raises(ValueError, match="no loopback address"):
        ApiServer(ApiServerConfig(host=host))


def test_tokens_are_long_and_never_the_same() -> None:
    tokens = {ApiServerConfig().token for _ in range(5)}
    assert len(tokens) == 5
    assert all(len(token) >= 32 for token in tokens)


def test_port_that_is_taken_is_named() -> None:
    with embedded_api() as (server, _):
        taken = embedded_api(ApiServerConfig(port=server.port))
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{server.port}"), taken:
            pass


def test_kubeconfig_names_the_server_and_holds_the_token() -> None:
    with embedded_api() as (server, _):
        config = server.kubeconfig()
        token = server.config.token
        address = config["clusters"][0]["cluster"]["server"]
        assert address == f"http://kthena:{token}@127.0.0.1:{server.port}"
        assert config["users"][0]["user"] == {"token": token}
        assert config["current-context"] == config["contexts"][0]["name"]
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", "/readyz")
        assert connection.getresponse().status == 200
        connection.close()
