"""Runs a sequence on both servers and finds the first difference."""

import difflib
import http.client
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from fuzz.client import Answer, Client, Stream
from fuzz.kinds import CONFIG_MAPS, FuzzKind
from fuzz.normaliser import Normaliser
from fuzz.operations import Operation, fill, fill_text
from support.apiserver import Server

JSON: Final = "application/json"
AGENT: Final = "fuzz/1"
CONTROLLERS: Final = ("garbage-collector", "namespace")
"""Of the real server: those that the embedded server has too."""

_NOT_WHOLE: Final = ("Scale", "PartialObjectMetadata")

SENTINEL: Final = "zz-end"
_SETTLE_S: Final = 12.0
_POLL_S: Final = 0.015
_QUIET_S: Final = 0.4
_START: Final = "start"


@dataclass(frozen=True)
class Difference:
    """What the two servers do not agree on; `index` is that of the operation, or -1 for the end."""

    index: int
    about: str
    embedded: Any
    real: Any

    @property
    def signature(self) -> tuple[Any, ...]:
        """What a shorter sequence must show too."""
        statuses = [
            value.get("status") if isinstance(value, dict) else None
            for value in (self.embedded, self.real)
        ]
        return (self.index < 0, *statuses, _places(self.embedded), _places(self.real))

    def __str__(self) -> str:
        embedded, real = (_text(value).splitlines() for value in (self.embedded, self.real))
        lines = difflib.unified_diff(embedded, real, "embedded", "real", lineterm="", n=4)
        return f"{self.about}\n" + "\n".join(lines)


@dataclass
class Counts:
    """How much was done."""

    operations: int = 0
    succeeded: int = 0
    unanswered: int = 0
    statuses: dict[int, int] = field(default_factory=lambda: defaultdict(int))


class _NoAnswerError(Exception):
    """The real server has closed the connection instead of answering."""


class Side:
    """One server and what the client has seen of it. Mutable state: that, and open watches."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.client = Client(server)
        self.embedded = server.embedded
        self.namespace = namespace
        self.begin()

    def begin(self) -> None:
        """Forget what was seen."""
        self.normaliser = Normaliser()
        self._seen: dict[tuple[str, str], Any] = {}
        self.streams: list[Stream] = []

    def _lookup(self, which: str, path: str) -> Any:
        return self._seen.get((which, path.replace("{ns}", self.namespace)))

    def _headers(self, operation: Operation, *, has_body: bool) -> dict[str, str]:
        headers = {"Accept": operation.accept or JSON, "User-Agent": AGENT}
        if has_body:
            headers["Content-Type"] = operation.media or JSON
        return headers

    def text(self, text: str) -> str:
        """A text with its references filled in."""
        return fill_text(text, self.namespace, self._lookup)

    def send(self, operation: Operation) -> None:
        """Send an operation."""
        body: bytes | None = None
        if operation.raw is not None:
            body = operation.raw.encode()
        elif operation.body is not None:
            body = _compact(fill(operation.body, self.namespace, self._lookup))
        query = {name: self.text(value) for name, value in operation.query.items()}
        headers = self._headers(operation, has_body=body is not None)
        self.client.send(operation.method, self.text(operation.path), body, query, headers)

    def receive(self, operation: Operation) -> Answer:
        """The answer to what was sent; its objects are remembered."""
        try:
            answer = self.client.receive()
        except (http.client.HTTPException, OSError) as exc:
            # A server that drops the connection says something too.
            self.client.close()
            return Answer(0, "", [], f"no answer: {type(exc).__name__}")
        is_kept = answer.status < 300 and operation.query.get("dryRun") != "All"
        if is_kept and isinstance(answer.body, dict):
            self._remember(self.text(operation.path), operation.method, answer.body)
        return answer

    def _remember(self, path: str, method: str, body: dict[str, Any]) -> None:
        if "items" in body:
            self.remember_as(f"list:{path}", body)
            return
        meta = body.get("metadata") or {}
        if not isinstance(meta, dict) or not meta.get("uid") or body.get("kind") in _NOT_WHOLE:
            return
        path = path.removesuffix("/status")
        if method == "POST":
            if meta.get("generateName"):
                self.remember_as(f"{path}/{meta['generateName']}", body)
            path = f"{path}/{meta['name']}"
        self.remember_as(path, body)

    def remember_as(self, path: str, body: Any) -> None:
        """Keep a state of what is at a path."""
        self._seen.setdefault(("first", path), body)
        self._seen["last", path] = body

    def open(self, operation: Operation) -> Stream:
        """Open a watch."""
        query = {name: self.text(value) for name, value in operation.query.items()}
        headers = self._headers(operation, has_body=False)
        return self.client.open(self.text(operation.path), query, headers)

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Answer:
        """A request of the runner itself."""
        data = None if body is None else json.dumps(body).encode()
        media = "application/merge-patch+json" if method == "PATCH" else JSON
        headers = {"Accept": JSON, "Content-Type": media, "User-Agent": AGENT}
        self.client.send(method, path, data, query, headers)
        return self.client.receive()

    def shown(self, answer: Answer) -> Any:
        """What is compared of an answer."""
        return {
            "status": answer.status,
            "media": answer.media,
            "warnings": [self.normaliser.normalise(text) for text in answer.warnings],
            "body": self.normaliser.normalise(answer.body),
        }


class Pair:
    """Both servers, with a namespace of their own on each."""

    def __init__(self, embedded: Server, real: Server, namespace: str) -> None:
        self.namespace = namespace
        self.counts = Counts()
        self.embedded, self.real = (Side(server, namespace) for server in (embedded, real))
        self._sides = (self.embedded, self.real)
        for side in self._sides:
            body = {"metadata": {"name": namespace}}
            answer = side.call("POST", "/api/v1/namespaces", body)
            if answer.status not in (201, 409):
                raise RuntimeError(f"no namespace: {answer}")

    def close(self) -> None:
        """Delete the namespaces."""
        for side in self._sides:
            side.call("DELETE", f"/api/v1/namespaces/{self.namespace}")
            side.client.close()

    def run(self, kinds: Sequence[FuzzKind], operations: Sequence[Operation]) -> Difference | None:
        """The first difference of a sequence; the namespaces are empty again afterwards."""
        for side in self._sides:
            side.begin()
        try:
            return self._run(kinds, operations)
        finally:
            for side in self._sides:
                for stream in side.streams:
                    stream.close()
            self._clean(kinds)

    def _run(self, kinds: Sequence[FuzzKind], operations: Sequence[Operation]) -> Difference | None:
        start = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "zz-start"}}
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        for side in self._sides:
            side.remember_as(_START, side.call("POST", path, start).body)
        watches: list[tuple[Operation, list[Stream]]] = []
        for index, operation in enumerate(operations):
            if operation.watch:
                streams = self._open(operation) if operation.live else []
                for stream in streams:
                    stream.head()
                watches.append((operation, streams))
                continue
            try:
                found = self._step(index, operation)
            except _NoAnswerError:
                # The handler of the real server has crashed: nobody says what is right.
                self.counts.unanswered += 1
                return None
            if found is None and operation.settles:
                found = self._settle(index, kinds)
            if found is not None:
                return found
        settled = any(operation.settles for operation in operations)
        if settled:
            time.sleep(_QUIET_S)
        found = self._settle(-1, kinds)
        if found is not None:
            return found
        everything = [(_whole(kind), list[Stream]()) for kind in kinds if kind.namespaced]
        return self._compare_watches(kinds, [*everything, *watches], ordered=not settled)

    def _step(self, index: int, operation: Operation) -> Difference | None:
        for side in self._sides:
            side.send(operation)
        answers = [side.receive(operation) for side in self._sides]
        if not answers[1].status:
            raise _NoAnswerError
        self.counts.operations += 1
        self.counts.succeeded += answers[1].status < 300
        self.counts.statuses[answers[1].status] += 1
        shown = [side.shown(answer) for side, answer in zip(self._sides, answers, strict=True)]
        return _compare(index, f"the answers to {operation}", *shown)

    # ---- what is there

    def _settle(self, index: int, kinds: Sequence[FuzzKind]) -> Difference | None:
        """Wait until both servers hold the same; the difference where they never do."""
        deadline = time.monotonic() + _SETTLE_S
        while True:
            lists = [self._lists(side, kinds) for side in self._sides]
            normalisers = [side.normaliser.copy() for side in self._sides]
            shown = [
                normaliser.normalise(found)
                for normaliser, found in zip(normalisers, lists, strict=True)
            ]
            difference = _compare(index, "what is there", *shown)
            if difference is None:
                for side, normaliser, found in zip(self._sides, normalisers, lists, strict=True):
                    side.normaliser = normaliser
                    _remember_items(side, kinds, found)
                return None
            if time.monotonic() > deadline:
                return difference
            time.sleep(_POLL_S)

    @staticmethod
    def _lists(side: Side, kinds: Sequence[FuzzKind]) -> Any:
        found = {}
        for kind in kinds:
            query = {} if kind.namespaced else {"labelSelector": f"run={side.namespace}"}
            answer = side.call("GET", kind.collection(side.namespace), **query)
            found[f"{kind.plural}.{kind.api}"] = answer.body.get("items")
        return found

    # ---- what was told

    def _open(self, operation: Operation) -> list[Stream]:
        streams = []
        for side in self._sides:
            streams.append(side.open(operation))
            side.streams.append(streams[-1])
        return streams

    def _compare_watches(
        self,
        kinds: Sequence[FuzzKind],
        watches: Sequence[tuple[Operation, list[Stream]]],
        *,
        ordered: bool,
    ) -> Difference | None:
        opened: list[tuple[Operation, list[Stream]]] = []
        for operation, live in watches:
            opened.append((operation, live or self._open(operation)))
        for _, streams in opened:
            # With its head a watch has taken stock: what is written from here on is an event.
            for stream in streams:
                stream.head()
        for kind in kinds:
            if kind.namespaced:
                for side in self._sides:
                    side.call(
                        "POST", kind.collection(self.namespace), sentinel(kind, self.namespace)
                    )
        for operation, streams in opened:
            told = [_read(stream) for stream in streams]
            if not ordered:
                told = [_by_object(entry) for entry in told]
            shown = [
                side.normaliser.normalise(entry)
                for side, entry in zip(self._sides, told, strict=True)
            ]
            found = _compare(-1, f"the events of {operation}", *shown)
            if found is not None:
                return found
        return None

    # ---- the end

    def _clean(self, kinds: Sequence[FuzzKind]) -> None:
        for side in self._sides:
            _clean(side, kinds)


def _compact(value: Any) -> bytes:
    # As clients in Go write it: of raw extensions a server compares the bytes.
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _remember_items(side: Side, kinds: Sequence[FuzzKind], found: Any) -> None:
    for kind in kinds:
        for item in found[f"{kind.plural}.{kind.api}"] or ():
            path = f"{kind.collection(side.namespace)}/{item['metadata']['name']}"
            side.remember_as(path, {"apiVersion": kind.version, "kind": kind.kind, **item})


def _places(shown: Any) -> tuple[str, ...]:
    """The fields that an answer complains of."""
    body = shown.get("body") if isinstance(shown, dict) else None
    details = body.get("details") if isinstance(body, dict) else None
    causes = details.get("causes") if isinstance(details, dict) else None
    return tuple(cause.get("field", "") for cause in causes or ())


def _whole(kind: FuzzKind) -> Operation:
    query = {
        "watch": "true",
        "timeoutSeconds": "60",
        "resourceVersion": "${last|start|metadata.resourceVersion}",
    }
    return Operation("GET", kind.collection("{ns}"), query=query, watch=True)


def _nothing(which: str, path: str) -> None:
    """Nothing was seen."""
    del which, path


def sentinel(kind: FuzzKind, namespace: str) -> Any:
    """The object whose event ends the reading of a watch."""
    body = deepcopy({"apiVersion": kind.version, "kind": kind.kind, **kind.base})
    body["metadata"] = {"name": SENTINEL, "labels": {"app": "a"}}
    return fill(body, namespace, _nothing)


def _read(stream: Stream) -> Any:
    """The events of a watch up to the sentinel, or what was answered instead."""
    response = stream.head()
    if response.status != 200:
        return {"status": response.status, "body": _decoded(response.read())}
    events: list[Any] = []
    for line in _lines(response):
        event = _decoded(line)
        if not _is_periodic(event):
            events.append(event)
        if f'"{SENTINEL}"'.encode() in line:
            break
    return {"status": 200, "events": events}


def _is_periodic(event: Any) -> bool:
    """Whether it is a bookmark that comes when it is time, and not when something happens."""
    if not isinstance(event, dict) or event.get("type") != "BOOKMARK":
        return False
    return "annotations" not in event["object"]["metadata"]


def _lines(response: Iterable[bytes]) -> Iterable[bytes]:
    try:
        yield from response
    except TimeoutError:
        yield b'"no more events, and no end"'


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")


def _by_object(told: Any) -> Any:
    """Events grouped by object: what controllers do to several has no order."""
    grouped: dict[str, list[Any]] = defaultdict(list)
    for event in told.get("events", ()):
        obj = event.get("object", {}) if isinstance(event, dict) else {}
        name = (obj.get("metadata") or {}).get("name", "")
        grouped[name or json.dumps(obj.get("rows"), sort_keys=True)[:120]].append(event)
    return {**told, "events": {name: grouped[name] for name in sorted(grouped)}}


def _compare(index: int, about: str, embedded: Any, real: Any) -> Difference | None:
    # As texts: 1, 1.0 and true are not the same to a client.
    if json.dumps(embedded, sort_keys=True) == json.dumps(real, sort_keys=True):
        return None
    return Difference(index, about, embedded, real)


def _text(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True)


def _clean(side: Side, kinds: Sequence[FuzzKind]) -> None:
    """Delete everything, whatever holds it."""
    deadline = time.monotonic() + 60
    for kind in [*kinds, *((CONFIG_MAPS,) if CONFIG_MAPS not in kinds else ())]:
        collection = kind.collection(side.namespace)
        query = {} if kind.namespaced else {"labelSelector": f"run={side.namespace}"}
        first, items = True, None
        while time.monotonic() < deadline:
            if first and kind.namespaced:
                side.call("DELETE", collection, {"gracePeriodSeconds": 0})
                first = False
            items = side.call("GET", collection, **query).body.get("items")
            if not items:
                break
            for item in items:
                _end(side, kind, item)
            time.sleep(_POLL_S)
        else:
            server = "embedded" if side.embedded else "real"
            raise RuntimeError(
                f"{collection} of the {server} server does not become empty: {items}"
            )


def _end(side: Side, kind: FuzzKind, item: Any) -> None:
    path = f"{kind.collection(side.namespace)}/{item['metadata']['name']}"
    if item["metadata"].get("finalizers"):
        side.call("PATCH", path, {"metadata": {"finalizers": None}})
    if kind.namespaced or not item["metadata"].get("deletionTimestamp"):
        side.call("DELETE", path, {"gracePeriodSeconds": 0})
