"""An API server under test, real or embedded, and a client that sees all of a reply.

The client knows no kinds and hides nothing: the same requests go to both servers, and the same
assertions hold. Objects are raw JSON.
"""

import asyncio
import contextlib
import http.client
import itertools
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode, urlsplit

from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.server import ApiServer

JSON = "application/json"
YAML = "application/yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

CORE = "/api/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "test.kthena.io"

_TIMEOUT_S = 30.0
_POLL_S = 0.02


@dataclass(frozen=True)
class Server:
    """A running server. Tests ask `embedded` only where the two differ on purpose."""

    url: str
    token: str
    kubeconfig: Path | None
    embedded: bool


class Reply(NamedTuple):
    """A reply: status, headers by lower-case name, warnings, and the body as JSON or else as text."""

    status: int
    headers: dict[str, str]
    warnings: list[str]
    body: Any

    @property
    def reason(self) -> str:
        """The reason of a `Status`."""
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        """The message of a `Status`."""
        return str(self.body.get("message", ""))

    @property
    def causes(self) -> list[tuple[str, str]]:
        """Field and reason of each cause of a `Status`."""
        causes = (self.body.get("details") or {}).get("causes") or []
        return [(cause.get("field", ""), cause.get("reason", "")) for cause in causes]

    def expect(self, status: int) -> Any:
        """The body of a reply that must have a status."""
        assert self.status == status, f"expected {status}, got {self.status}: {self.body}"
        return self.body


class Event(NamedTuple):
    """An event of a watch."""

    type: str
    object: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the object."""
        return str(self.object["metadata"]["name"])


class Watch:
    """An open watch on a connection of its own."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._response = connection.getresponse()
        self.status = self._response.status

    def __iter__(self) -> Iterator[Event]:
        """The events until the stream ends."""
        for line in self._response:
            event = json.loads(line)
            yield Event(event["type"], event["object"])

    def take(self, count: int) -> list[Event]:
        """The next events."""
        return list(itertools.islice(self, count))

    def next(self) -> Event:
        """The next event."""
        (event,) = self.take(1)
        return event

    def rest(self) -> list[Event]:
        """All events until the stream ends."""
        return list(self)

    def close(self) -> None:
        """Leave."""
        self._response.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Api:
    """Requests to one server.

    Mutable state: the open connection, replaced when the server has closed it.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str, *, accept: str = JSON, **query: Any) -> Reply:
        """GET."""
        return self.request("GET", path, query=query, headers={"Accept": accept})

    def create(self, path: str, body: Any, **query: Any) -> Reply:
        """POST."""
        return self.request("POST", path, body, query=query)

    def put(self, path: str, body: Any, **query: Any) -> Reply:
        """PUT."""
        return self.request("PUT", path, body, query=query)

    def patch(self, path: str, body: Any, kind: str = MERGE, **query: Any) -> Reply:
        """PATCH."""
        return self.request("PATCH", path, body, query=query, headers={"Content-Type": kind})

    def delete(self, path: str, body: Any = None, **query: Any) -> Reply:
        """DELETE."""
        return self.request("DELETE", path, body, query=query)

    def watch(self, path: str, *, accept: str = JSON, **query: Any) -> Watch:
        """Open a watch."""
        connection = self.connect()
        target = _target(path, {"watch": "true", "timeoutSeconds": 20, **query})
        connection.request("GET", target, headers=self._headers({"Accept": accept}))
        return Watch(connection)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Any request; a body that is not bytes is sent as JSON."""
        payload = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = {"Accept": JSON, **({} if payload is None else {"Content-Type": JSON})}
        sent = self._headers({**given, **(headers or {})})
        target = _target(path, query or {})
        try:
            return self._send(method, target, payload, sent)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            # An idle connection that the server has closed; it never saw the request.
            self.close()
            return self._send(method, target, payload, sent)

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.server.token}", **headers}

    def _send(
        self, method: str, target: str, payload: bytes | None, headers: dict[str, str]
    ) -> Reply:
        if self._connection is None:
            self._connection = self.connect()
        self._connection.request(method, target, body=payload, headers=headers)
        response = self._connection.getresponse()
        content = response.read()
        warnings = [_warning(text) for text in response.msg.get_all("Warning") or ()]
        found = {name.lower(): value for name, value in response.getheaders()}
        try:
            return Reply(response.status, found, warnings, json.loads(content))
        except ValueError:
            return Reply(response.status, found, warnings, content.decode(errors="replace"))

    def connect(self) -> http.client.HTTPConnection:
        """A connection to the server."""
        address = urlsplit(self.server.url)
        host, port = address.hostname or "", address.port
        if address.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        # The certificate is the test server's own; the tests are about what it answers.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _warning(header: str) -> str:
    """The text of a warning: `299 - "text"`, quoted."""
    _, _, quoted = header.partition('"')
    return quoted[:-1].replace('\\"', '"').replace("\\\\", "\\")


def _target(path: str, query: Mapping[str, Any]) -> str:
    if not query:
        return path
    texts = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in query.items()
    }
    return f"{path}?{urlencode(texts, doseq=True)}"


def eventually(check: Callable[[], Any], timeout_s: float = 15.0) -> Any:
    """The first true value of `check`: what the server's controllers do takes a moment."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {timeout_s} s; last value {value!r}")
        time.sleep(_POLL_S)


@contextlib.contextmanager
def embedded_server(config: ApiServerConfig | None = None) -> Iterator[ApiServer]:
    """An embedded server on a loop of its own, in a thread."""
    server = ApiServer(config)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="embedded-apiserver")
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(timeout=10)
        yield server
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(timeout=10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        loop.close()


@contextlib.contextmanager
def embedded_api(config: ApiServerConfig | None = None) -> Iterator[tuple[ApiServer, Api]]:
    """An embedded server of a test's own, with a client."""
    with embedded_server(config) as server:
        api = Api(Server(server.url, server.config.token, None, embedded=True))
        try:
            yield server, api
        finally:
            api.close()


def config_map(name: str, data: Mapping[str, str] | None = None, **metadata: Any) -> Any:
    """A ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": dict(data or {}),
    }


def pod(name: str, spec: Mapping[str, Any] | None = None, **metadata: Any) -> Any:
    """A pod of one container."""
    container = {"name": "main", "image": "busybox:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [container], **(spec or {})},
    }


def owned_by(owner: Mapping[str, Any], **more: Any) -> list[dict[str, Any]]:
    """The owner references of a dependent."""
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            **more,
        }
    ]


WIDGET_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
                "replicas": {"type": "integer", "default": 1},
                "parts": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"name": {"type": "string"}}},
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "phase": {"type": "string"},
                "replicas": {"type": "integer"},
                "selector": {"type": "string"},
            },
        },
    },
}
SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}


@dataclass(frozen=True)
class Definition:
    """A CRD of widgets in a group that no other test uses, and where its objects are."""

    group: str
    plural: str = "widgets"
    kind: str = "Widget"
    scope: str = "Namespaced"
    version: str = "v1"
    extra_names: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the CRD."""
        return f"{self.plural}.{self.group}"

    @property
    def path(self) -> str:
        """The path of the CRD."""
        return f"{CRDS}/{self.name}"

    def collection(self, namespace: str = "", version: str = "") -> str:
        """The path of the objects."""
        base = f"/apis/{self.group}/{version or self.version}"
        return (
            f"{base}/namespaces/{namespace}/{self.plural}" if namespace else f"{base}/{self.plural}"
        )

    def version_entry(self, name: str = "v1", **more: Any) -> dict[str, Any]:
        """One entry of `spec.versions`."""
        schema = {"openAPIV3Schema": WIDGET_SCHEMA}
        return {"name": name, "served": True, "storage": True, "schema": schema, **more}

    def crd(self, *versions: dict[str, Any]) -> dict[str, Any]:
        """The CRD, by default with one version that has all subresources."""
        every = {"status": {}, "scale": SCALE}
        names = {"plural": self.plural, "kind": self.kind, **self.extra_names}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {
                "group": self.group,
                "scope": self.scope,
                "names": names,
                "versions": list(versions) or [self.version_entry(subresources=every)],
            },
        }

    def object(self, name: str, spec: Any = None, version: str = "", **metadata: Any) -> Any:
        """A widget."""
        return {
            "apiVersion": f"{self.group}/{version or self.version}",
            "kind": self.kind,
            "metadata": {"name": name, **metadata},
            "spec": {"size": 1} if spec is None else spec,
        }

    def install(self, api: Api, crd: dict[str, Any] | None = None) -> Any:
        """Create the CRD, and wait until it is served."""
        api.create(CRDS, crd or self.crd()).expect(201)
        return self.wait_established(api)

    def wait_established(self, api: Api) -> Any:
        """The CRD, once it is served."""

        def established() -> Any:
            obj = api.get(self.path).body
            conditions = obj.get("status", {}).get("conditions") or ()
            # A real server answers by the new handler a moment after the condition says so.
            ready = any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
            return ready and api.get(self.collection()).status == 200 and obj

        return eventually(established)
