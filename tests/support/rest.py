"""A small client of the Kubernetes API for tests: plain HTTP, one kept connection, no retries.

It knows no kinds and hides nothing, so that the same requests go to a real server and to the
embedded one and the raw answers can be compared.
"""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

_PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Answer(NamedTuple):
    """A reply: the HTTP status, and the body as JSON, or as text where it is none."""

    status: int
    body: Any

    @property
    def causes(self) -> list[dict[str, Any]]:
        """The causes of a `Status`: what is wrong, field by field."""
        if not isinstance(self.body, dict):
            return []
        return list((self.body.get("details") or {}).get("causes") or [])

    @property
    def text(self) -> str:
        """The message of a `Status`, or the body."""
        return str(self.body.get("message")) if isinstance(self.body, dict) else str(self.body)


class RestClient:
    """Requests to one server.

    Mutable state: the open connection, replaced when the server has closed it.
    """

    def __init__(self, url: str, token: str, ca_file: Path | None = None) -> None:
        self.url = url
        self._address = urlsplit(url)
        self.token = token
        self._tls = self._context(ca_file)
        self._connection: http.client.HTTPConnection | None = None

    def _context(self, ca_file: Path | None) -> ssl.SSLContext | None:
        if self._address.scheme != "https":
            return None
        context = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
        if ca_file is None:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def get(self, path: str, *, accept: str = "application/json", **query: str) -> Answer:
        """GET."""
        return self.request("GET", path, query=query, accept=accept)

    def create(self, path: str, body: Any, **query: str) -> Answer:
        """POST."""
        return self.request("POST", path, body, query=query)

    def put(self, path: str, body: Any, **query: str) -> Answer:
        """PUT."""
        return self.request("PUT", path, body, query=query)

    def patch(self, path: str, body: Any, kind: str = "merge", **query: str) -> Answer:
        """PATCH; the kind is `merge`, `json`, `strategic` or `apply`."""
        return self.request("PATCH", path, body, query=query, content_type=_PATCHES[kind])

    def delete(self, path: str, body: Any = None, **query: str) -> Answer:
        """DELETE."""
        return self.request("DELETE", path, body, query=query)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        """Any request; a body that is not bytes is sent as JSON."""
        target = f"{path}?{urlencode(query)}" if query else path
        payload = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept}
        if payload is not None:
            headers["Content-Type"] = content_type
        try:
            return self._send(method, target, payload, headers)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            # An idle connection that the server has closed; it never saw the request.
            return self._send(method, target, payload, headers)

    def _send(
        self, method: str, target: str, payload: bytes | None, headers: dict[str, str]
    ) -> Answer:
        if self._connection is None:
            self._connection = self._connect()
        try:
            self._connection.request(method, target, body=payload, headers=headers)
            response = self._connection.getresponse()
            content = response.read()
        except BaseException:
            # A connection with half an exchange on it is of no more use.
            self.close()
            raise
        try:
            return Answer(response.status, json.loads(content))
        except ValueError:
            return Answer(response.status, content.decode(errors="replace"))

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=30)
        return http.client.HTTPSConnection(host, port, timeout=30, context=self._tls)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
