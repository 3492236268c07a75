"""Runs a sequence on both servers and finds the first difference."""

import difflib
import http.client
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from fuzz.client import Answer, Client, Stream
from fuzz.journal import SENTINEL, Journal, by_object, read, version_of
from fuzz.kinds import CONFIG_MAPS, FuzzKind
from fuzz.normaliser import Normaliser
from fuzz.operations import Operation, fill, fill_text
from support.apiserver import Server

JSON: Final = "application/json"
AGENT: Final = "fuzz/1"
CONTROLLERS: Final = ("garbage-collector", "namespace")
"""Of the real server: those that the embedded server has too."""

_NOT_WHOLE: Final = ("Scale", "PartialObjectMetadata")

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
        self._journals: dict[str, Journal] = {}
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

    @property
    def start(self) -> Any:
        """The object with which the sequence has begun."""
        return self._lookup("first", _START)

    def journal(self, kind: FuzzKind) -> Journal:
        """All that happens to a kind in the namespace."""
        path = kind.collection(self.namespace)
        if path not in self._journals:
            self._journals[path] = Journal(lambda: self.open(_whole(kind)))
        return self._journals[path]

    def close(self) -> None:
        """Leave the server."""
        for journal in self._journals.values():
            journal.close()
        self.client.close()

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Answer:
        """A request of the runner itself."""
        self.ask(method, path, body, **query)
        return self.client.receive()

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> None:
        """Send a request of the runner itself."""
        data = None if body is None else json.dumps(body).encode()
        media = "application/merge-patch+json" if method == "PATCH" else JSON
        headers = {"Accept": JSON, "Content-Type": media, "User-Agent": AGENT}
        self.client.send(method, path, data, query, headers)

    def seen(self, path: str) -> Any:
        """The latest state of what is at a path."""
        return self._lookup("last", self.text(path).removesuffix("/status"))

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
            side.close()

    def _both(self, method: str, path: str, body: Any = None, **query: str) -> list[Answer]:
        """The answers to a request of the runner, on which both servers work at the same time."""
        for side in self._sides:
            side.ask(method, path, body, **query)
        return [side.client.receive() for side in self._sides]

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
        for side, answer in zip(self._sides, self._both("POST", path, start), strict=True):
            side.remember_as(_START, answer.body)
        settled = False
        watches: list[tuple[Operation, list[Stream]]] = []
        for index, operation in enumerate(operations):
            if operation.watch:
                streams = self._open(operation) if operation.live else []
                for stream in streams:
                    stream.head()
                watches.append((operation, streams))
                continue
            before = self.real.seen(operation.path)
            try:
                found, answer = self._step(index, operation)
            except _NoAnswerError:
                # The handler of the real server has crashed: nobody says what is right.
                self.counts.unanswered += 1
                return None
            if found is None and operation.settles and _moves(operation, before, answer):
                settled = True
                found = self._settle(index, kinds)
            if found is not None:
                return found
        if settled:
            time.sleep(_QUIET_S)
        found = self._settle(-1, kinds)
        if found is not None:
            return found
        return self._compare_watches(kinds, watches, ordered=not settled)

    def _step(self, index: int, operation: Operation) -> tuple[Difference | None, Answer]:
        for side in self._sides:
            side.send(operation)
        answers = [side.receive(operation) for side in self._sides]
        if not answers[1].status:
            raise _NoAnswerError
        self.counts.operations += 1
        self.counts.succeeded += answers[1].status < 300
        self.counts.statuses[answers[1].status] += 1
        shown = [side.shown(answer) for side, answer in zip(self._sides, answers, strict=True)]
        return _compare(index, f"the answers to {operation}", *shown), answers[1]

    # ---- what is there

    def _settle(self, index: int, kinds: Sequence[FuzzKind]) -> Difference | None:
        """Wait until both servers hold the same; the difference where they never do."""
        deadline = time.monotonic() + _SETTLE_S
        while True:
            lists = self._lists(kinds)
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

    def _lists(self, kinds: Sequence[FuzzKind]) -> list[Any]:
        found: list[Any] = [{} for _ in self._sides]
        for kind in kinds:
            query = {} if kind.namespaced else {"labelSelector": f"run={self.namespace}"}
            answers = self._both("GET", kind.collection(self.namespace), **query)
            for items, answer in zip(found, answers, strict=True):
                items[f"{kind.plural}.{kind.api}"] = answer.body.get("items")
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
        namespaced = [kind for kind in kinds if kind.namespaced]
        for kind in namespaced:
            for side in self._sides:
                side.journal(kind).prepare()
        opened = [(operation, live or self._open(operation)) for operation, live in watches]
        for _, streams in opened:
            # With its head a watch has taken stock: what is written from here on is an event.
            for stream in streams:
                stream.head()
        for kind in namespaced:
            self._both("POST", kind.collection(self.namespace), sentinel(kind, self.namespace))
        for kind in namespaced:
            told = [side.journal(kind).read(version_of(side.start)) for side in self._sides]
            found = self._compare_told(f"{_whole(kind)}", told, ordered=ordered)
            if found is not None:
                return found
        for operation, streams in opened:
            told = [read(stream) for stream in streams]
            found = self._compare_told(f"{operation}", told, ordered=ordered)
            if found is not None:
                return found
        return None

    def _compare_told(self, about: str, told: list[Any], *, ordered: bool) -> Difference | None:
        if not ordered:
            told = [by_object(entry) for entry in told]
        shown = [
            side.normaliser.normalise(entry) for side, entry in zip(self._sides, told, strict=True)
        ]
        return _compare(-1, f"the events of {about}", *shown)

    # ---- the end

    def _clean(self, kinds: Sequence[FuzzKind]) -> None:
        """Delete everything, whatever holds it."""
        for kind in [*kinds, *((CONFIG_MAPS,) if CONFIG_MAPS not in kinds else ())]:
            if not kind.namespaced:
                for side in self._sides:
                    _empty(side, kind)
                continue
            path = kind.collection(self.namespace)
            answers = self._both("DELETE", path, {"gracePeriodSeconds": 0})
            for side, answer in zip(self._sides, answers, strict=True):
                items = answer.body.get("items")
                if items is None or any(item["metadata"].get("finalizers") for item in items):
                    _empty(side, kind)


def _moves(operation: Operation, before: Any, answer: Answer) -> bool:
    """Whether controllers have to do with what an operation has done."""
    if answer.status >= 300 or operation.query.get("dryRun") == "All":
        return False
    if operation.method == "DELETE":
        return True
    for state in (before, answer.body):
        meta = state.get("metadata") if isinstance(state, dict) else None
        if isinstance(meta, dict) and (
            meta.get("ownerReferences") or meta.get("finalizers") or meta.get("deletionTimestamp")
        ):
            return True
    return False


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
        "timeoutSeconds": "7200",
        "resourceVersion": "${last|start|metadata.resourceVersion}",
    }
    return Operation("GET", kind.collection("{ns}"), query=query, watch=True)


def _nothing(which: str, path: str) -> None:
    """Nothing was seen."""
    del which, path


def sentinel(kind: FuzzKind, namespace: str) -> Any:
    """The object of the name `SENTINEL`."""
    body = deepcopy({"apiVersion": kind.version, "kind": kind.kind, **kind.base})
    body["metadata"] = {"name": SENTINEL, "labels": {"app": "a"}}
    return fill(body, namespace, _nothing)


def _compare(index: int, about: str, embedded: Any, real: Any) -> Difference | None:
    # As texts: 1, 1.0 and true are not the same to a client.
    if json.dumps(embedded, sort_keys=True) == json.dumps(real, sort_keys=True):
        return None
    return Difference(index, about, embedded, real)


def _text(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True)


def _empty(side: Side, kind: FuzzKind) -> None:
    """Delete what a kind has, one by one."""
    deadline = time.monotonic() + 60
    collection = kind.collection(side.namespace)
    query = {} if kind.namespaced else {"labelSelector": f"run={side.namespace}"}
    while time.monotonic() < deadline:
        items = side.call("GET", collection, **query).body.get("items")
        if not items:
            return
        for item in items:
            _end(side, kind, item)
        time.sleep(_POLL_S)
    server = "embedded" if side.embedded else "real"
    raise RuntimeError(f"{collection} of the {server} server does not become empty")


def _end(side: Side, kind: FuzzKind, item: Any) -> None:
    path = f"{kind.collection(side.namespace)}/{item['metadata']['name']}"
    if item["metadata"].get("finalizers"):
        side.call("PATCH", path, {"metadata": {"finalizers": None}})
    if kind.namespaced or not item["metadata"].get("deletionTimestamp"):
        side.call("DELETE", path, {"gracePeriodSeconds": 0})
