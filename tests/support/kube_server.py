"""Servers for the tests of `kthena.kube`: an API in memory, and scripted HTTP over TCP.

`MemoryApi` is a transport that answers as an API server does for what informers, electors, recorders
and status writers ask, and that misbehaves on request. It keeps no rule beyond that.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import msgspec

from kthena.kube.client import BufferedReply, ClientConfig, KubeClient, Reply, Request
from kthena.kube.clock import Clock
from kthena.kube.errors import ConnectionFailed
from kthena.machinery.objects import NamespacedName, Object, key_of, metadata_of, uid_of
from kthena.machinery.resources import Resource

Matches = Callable[[Request], bool]


def status_reply(
    code: int, reason: str = "", message: str = "scripted", headers: dict[str, str] | None = None
) -> BufferedReply:
    """A failure as the API reports it."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return BufferedReply(code, msgspec.json.encode(body), headers or {})


def json_reply(body: Any, code: int = 200) -> BufferedReply:
    return BufferedReply(code, msgspec.json.encode(body))


def is_watch(request: Request) -> bool:
    return "watch=true" in request.target


def is_list(request: Request) -> bool:
    return request.method == "GET" and not is_watch(request)


class ScriptedTransport:
    """Answers each request with the next of `replies`, and keeps the requests."""

    def __init__(self, replies: Iterable[Reply | Exception]) -> None:
        self.replies = deque(replies)
        self.requests: list[Request] = []

    async def send(self, request: Request) -> Reply:
        self.requests.append(request)
        reply = self.replies.popleft()
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def aclose(self) -> None:
        pass


class StreamReply:
    """A reply whose body the test writes: bytes, None for its end, or an error."""

    status = 200

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.closed = False
        self._queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()

    def feed(self, data: bytes) -> None:
        self._queue.put_nowait(data)

    def end(self) -> None:
        self._queue.put_nowait(None)

    def fail(self, error: Exception) -> None:
        self._queue.put_nowait(error)

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        while (item := await self._queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    async def aclose(self) -> None:
        self.closed = True


@dataclass(eq=False)
class _Watcher:
    resource: str
    namespace: str
    stream: StreamReply = field(default_factory=StreamReply)
    silent: bool = False


@dataclass(frozen=True)
class _Logged:
    version: int
    resource: str
    type: str
    object: Object


class MemoryApi:
    """Objects in memory behind the paths of `resources`, with a log of changes to watch."""

    def __init__(self, *resources: Resource) -> None:
        self.resources = {str(resource): resource for resource in resources}
        self.forbidden: set[str] = set()
        self.requests: list[Request] = []
        self._objects: dict[str, dict[NamespacedName, Object]] = {}
        self._log: list[_Logged] = []
        self._compacted = 0
        self._version = 0
        self._uids = itertools.count(1)
        self._watchers: list[_Watcher] = []
        self._scripts: list[tuple[Matches, Reply | Exception]] = []
        self._held: list[tuple[Matches, asyncio.Event]] = []

    def client(self, clock: Clock | None = None, config: ClientConfig | None = None) -> KubeClient:
        return KubeClient(self, config or ClientConfig(), clock=clock)

    # What a test does behind the client's back.

    def put(self, resource: Resource, obj: Object) -> Object:
        """Create or replace the object, as another client would."""
        known = self._objects.setdefault(str(resource), {})
        old = known.get(key_of(obj))
        metadata = {"uid": f"uid-{next(self._uids)}", **metadata_of(obj)}
        if old is not None:
            metadata["uid"] = uid_of(old)
        stored = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        stored["metadata"] = {**metadata, "resourceVersion": self._next_version()}
        known[key_of(obj)] = stored
        self._note(str(resource), "ADDED" if old is None else "MODIFIED", stored)
        return stored

    def remove(self, resource: Resource, key: NamespacedName) -> None:
        gone = self._objects[str(resource)].pop(key)
        metadata = {**metadata_of(gone), "resourceVersion": self._next_version()}
        self._note(str(resource), "DELETED", {**gone, "metadata": metadata})

    def objects(self, resource: Resource) -> dict[NamespacedName, Object]:
        return self._objects.get(str(resource), {})

    def compact(self) -> None:
        """Forget the log: a watch from an older version is answered with 410."""
        self._compacted = self._version
        self._log.clear()

    def script(self, matches: Matches, *replies: Reply | Exception) -> None:
        """Answer the next matching requests with these replies, one each."""
        self._scripts += [(matches, reply) for reply in replies]

    def hold(self, matches: Matches) -> asyncio.Event:
        """Matching requests wait until the event is set."""
        event = asyncio.Event()
        self._held.append((matches, event))
        return event

    def bookmark(self) -> None:
        metadata = {"resourceVersion": self._next_version()}
        for watcher in self._watchers:
            self._send(watcher, "BOOKMARK", {"kind": "x", "metadata": metadata})

    def end_watches(self) -> None:
        """As when their time is over."""
        self._close(lambda watcher: watcher.stream.end())

    def cut_watches(self) -> None:
        """As when the connections break."""
        self._close(lambda watcher: watcher.stream.fail(ConnectionFailed("cut")))

    def expire_watches(self) -> None:
        """As when a watcher was too slow: an ERROR event with 410, then the end."""
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}

        def expire(watcher: _Watcher) -> None:
            self._send(watcher, "ERROR", status)
            watcher.stream.end()

        self._close(expire)

    def silence_watches(self) -> None:
        """Nothing arrives any more, and nothing is closed either."""
        for watcher in self._watchers:
            watcher.silent = True

    @property
    def open_watches(self) -> int:
        return sum(not watcher.stream.closed for watcher in self._watchers)

    def count(self, matches: Matches) -> int:
        return sum(matches(request) for request in self.requests)

    # The transport.

    async def send(self, request: Request) -> Reply:
        self.requests.append(request)
        for matches, event in self._held:
            if matches(request):
                await event.wait()
        for index, (matches, reply) in enumerate(self._scripts):
            if matches(request):
                del self._scripts[index]
                if isinstance(reply, Exception):
                    raise reply
                return reply
        return self._answer(request)

    async def aclose(self) -> None:
        self.cut_watches()

    def _answer(self, request: Request) -> Reply:
        resource, key, subresource, query = _parse(request)
        if resource not in self.resources:
            return BufferedReply(404, b"404 page not found\n")
        if resource in self.forbidden:
            return status_reply(403, "Forbidden", f"{resource} is forbidden")
        if key.name:
            return self._object(request, resource, key, subresource)
        if request.method == "POST":
            return self._create(resource, msgspec.json.decode(request.body))
        read = self._watch if "watch" in query else self._list
        return read(resource, key.namespace, query)

    def _create(self, resource: str, obj: Object) -> Reply:
        if key_of(obj) in self._objects.get(resource, {}):
            return status_reply(409, "AlreadyExists")
        return json_reply(self.put(self.resources[resource], obj), 201)

    def _object(
        self, request: Request, resource: str, key: NamespacedName, subresource: str
    ) -> Reply:
        stored = self._objects.get(resource, {}).get(key)
        if stored is None:
            return status_reply(404, "NotFound", f"{resource} {key.name} not found")
        if request.method == "GET":
            return json_reply(stored)
        if request.method == "DELETE":
            self.remove(self.resources[resource], key)
            return json_reply({"kind": "Status", "status": "Success"})
        body = msgspec.json.decode(request.body)
        expected = metadata_of(body)
        for name in ("resourceVersion", "uid"):
            if name in expected and expected[name] != metadata_of(stored)[name]:
                return status_reply(409, "Conflict", f"{name} has changed")
        if request.method == "PUT":
            return json_reply(self.put(self.resources[resource], body))
        merged = _merge(stored, {"status": body["status"]} if subresource else body)
        return json_reply(self.put(self.resources[resource], merged))

    def _list(self, resource: str, namespace: str, query: dict[str, str]) -> Reply:
        items = [
            {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
            for key, obj in sorted(self._objects.get(resource, {}).items())
            if namespace in ("", key.namespace)
        ]
        start = int(query.get("continue", "0"))
        limit = int(query.get("limit", "0")) or len(items) or 1
        metadata: dict[str, Any] = {"resourceVersion": str(self._version)}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        return json_reply({"metadata": metadata, "items": items[start : start + limit]})

    def _watch(self, resource: str, namespace: str, query: dict[str, str]) -> Reply:
        version = int(query["resourceVersion"])
        if version < self._compacted:
            return status_reply(410, "Expired", "too old resource version")
        watcher = _Watcher(resource, namespace)
        self._watchers.append(watcher)
        for entry in self._log:
            if entry.version > version and entry.resource == resource:
                self._send(watcher, entry.type, entry.object)
        return watcher.stream

    def _note(self, resource: str, kind: str, obj: Object) -> None:
        self._log.append(_Logged(self._version, resource, kind, obj))
        for watcher in self._watchers:
            if watcher.resource == resource:
                self._send(watcher, kind, obj)

    def _send(self, watcher: _Watcher, kind: str, obj: Object) -> None:
        if watcher.silent or watcher.namespace not in ("", metadata_of(obj).get("namespace")):
            return
        watcher.stream.feed(msgspec.json.encode({"type": kind, "object": obj}) + b"\n")

    def _close(self, how: Callable[[_Watcher], None]) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            how(watcher)

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)


def _parse(request: Request) -> tuple[str, NamespacedName, str, dict[str, str]]:
    """Resource, key, subresource and query of a request."""
    url = urlsplit(request.target)
    parts = url.path.strip("/").split("/")
    group = "" if parts[0] == "api" else parts[1]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource = [*parts, "", ""][:3]
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    resource = f"{plural}.{group}" if group else plural
    return resource, NamespacedName(namespace, name), subresource, query


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class TcpServer:
    """A server on loopback that holds `conversation` with each connection.

    `connections` counts them; leaving the context ends every one.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._conversation(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of one request."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return head, await reader.readexactly(length)


def http_reply(body: bytes = b"{}", status: int = 200, headers: str = "") -> bytes:
    """A reply with a length."""
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body
