"""A client that sends first and reads later, so that two servers work at the same time."""

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from support.apiserver import Server

_TIMEOUT_S = 60.0
_SAFE = "/:=&,.-_~%"


class Answer(NamedTuple):
    """A reply: the body as JSON, or as text where it is none."""

    status: int
    media: str
    warnings: list[str]
    body: Any


class Client:
    """One connection to one server. Mutable state: the connection, and the request under way."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._context = ssl.create_default_context()
        # The certificate is the test server's own.
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE
        self._connection: http.client.HTTPConnection | None = None
        self._sent: tuple[str, str, bytes | None, dict[str, str]] | None = None

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a request; `receive` has to follow."""
        target = target_of(path, query or {})
        sent = {"Authorization": f"Bearer {self._server.token}", **(headers or {})}
        self._sent = (method, target, body, sent)
        try:
            self._request()
        except (http.client.HTTPException, OSError):
            self.close()
            self._request()

    def _request(self) -> None:
        if self._sent is None:
            raise RuntimeError("nothing to send")
        if self._connection is None:
            self._connection = self.connect()
        method, target, body, headers = self._sent
        self._connection.request(method, target, body=body, headers=headers)

    def receive(self) -> Answer:
        """The reply to what was sent."""
        try:
            response = self._response()
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            # An idle connection that the server has closed; it never saw the request.
            self.close()
            self._request()
            response = self._response()
        content = response.read()
        warnings = [_text(header) for header in response.msg.get_all("Warning") or ()]
        media = response.headers.get("Content-Type") or ""
        try:
            body = json.loads(content)
        except ValueError:
            body = content.decode(errors="replace")
        return Answer(response.status, media, warnings, body)

    def _response(self) -> http.client.HTTPResponse:
        if self._connection is None:
            raise RuntimeError("nothing was sent")
        return self._connection.getresponse()

    def connect(self) -> http.client.HTTPConnection:
        """A new connection."""
        address = urlsplit(self._server.url)
        host, port = address.hostname or "", address.port
        if address.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=self._context)

    def open(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> "Stream":
        """A watch on a connection of its own; its reply is read later."""
        connection = self.connect()
        sent = {"Authorization": f"Bearer {self._server.token}", **headers}
        connection.request("GET", target_of(path, query), headers=sent)
        return Stream(connection)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Stream:
    """An open watch. Mutable state: the reply, once its head has been read."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._response: http.client.HTTPResponse | None = None

    def head(self) -> http.client.HTTPResponse:
        """The reply, of which nothing but the head has come."""
        if self._response is None:
            self._response = self._connection.getresponse()
        return self._response

    def close(self) -> None:
        """Leave."""
        if self._response is not None:
            self._response.close()
        self._connection.close()


def target_of(path: str, query: Mapping[str, str]) -> str:
    """The target of a request line."""
    quoted = quote(path, safe=_SAFE)
    return f"{quoted}?{urlencode(query)}" if query else quoted


def _text(header: str) -> str:
    _, _, quoted = header.partition('"')
    return quoted[:-1].replace('\\"', '"').replace("\\\\", "\\")
