"""A model of the API server around the ModelServing controller: a transport, faults, and caches.

It keeps one namespace, hands out UIDs and resource versions, checks preconditions, and terminates
running pods slowly. Each request may suffer a fault. What changes is shown to the informers of the
controller at once, or later where their caches lag.
"""

import asyncio
import copy
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from kthena.api.kubernetes import CONTROLLER_REVISIONS, PODS, SERVICES
from kthena.api.registry import MODEL_SERVINGS
from kthena.api.volcano import POD_GROUPS
from kthena.api.workload.names import LABEL_NAME
from kthena.kube.client import BufferedReply, Reply, Request, WatchEvent
from kthena.kube.clock import FakeClock
from kthena.kube.errors import ConnectionFailed
from kthena.kube.informer import Informer
from kthena.machinery.conditions import format_time
from kthena.machinery.objects import (
    Object,
    is_terminating,
    labels_of,
    metadata_of,
    name_of,
    uid_of,
)
from kthena.machinery.patches.merge_patch import apply_merge_patch
from kthena.workload.children.podgroups import PodGroupForm

NAMESPACE = "default"
START = datetime(2026, 1, 1, tzinfo=UTC)
RESOURCES = {
    resource.kind: resource
    for resource in (MODEL_SERVINGS, PODS, SERVICES, CONTROLLER_REVISIONS, POD_GROUPS)
}
KINDS = tuple(RESOURCES)
_KINDS_BY_PLURAL = {resource.plural: kind for kind, resource in RESOURCES.items()}


class CrashedError(Exception):
    """The controller ended in the middle of a request."""


@dataclass(frozen=True)
class Call:
    """One request of the controller, in words."""

    verb: Literal["get", "create", "adopt", "annotate", "update", "status", "delete"]
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.verb} {self.kind} {self.name}"


FAULTS = ("refuse", "no-connection", "lose-reply", "crash-before", "crash-after")
Fault = Callable[[Call], str | None]
"""For each call: None, or one of `FAULTS`."""


@dataclass
class ApiModel:
    """Objects by kind and name, the time, what the controller has asked for, and what it can see."""

    clock: FakeClock = field(default_factory=lambda: FakeClock(START))
    objects: dict[str, dict[str, Object]] = field(
        default_factory=lambda: {kind: {} for kind in KINDS}
    )
    calls: list[Call] = field(default_factory=list)
    """The writes of the controller."""
    clashes: list[Call] = field(default_factory=list)
    """Creations of what was there."""
    fault: Fault = lambda _call: None
    frozen: dict[str, list[WatchEvent]] = field(default_factory=dict)
    """The kinds whose caches lag, and what they do not show yet."""
    unseen: set[str] = field(default_factory=set)
    """The kinds of which the controller got replies to writes that its cache does not show yet."""
    informers: Mapping[str, Informer] = field(default_factory=dict)
    """By kind; nobody runs them, what they see comes from here."""
    pod_groups: PodGroupForm | None = None
    """What PodGroups can say, while their CRD is installed."""
    version: int = 0
    _uids: Any = field(default_factory=itertools.count)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    # What others do.

    def put(self, obj: Object) -> Object:
        """Create an object as somebody else."""
        return self._store(copy.deepcopy(obj))

    def seed(self, objects: Iterable[Object]) -> None:
        """Put objects with their own UIDs and status, as recorded elsewhere."""
        for each in objects:
            obj = copy.deepcopy(each)
            self.objects[obj["kind"]][name_of(obj)] = obj
            self.version = max(self.version, int(obj["metadata"].get("resourceVersion") or 0))
            self._show("MODIFIED", obj)

    def patch(self, kind: str, name: str, change: Callable[[Object], None]) -> None:
        """Change an object as somebody else."""
        new = copy.deepcopy(self.objects[kind][name])
        change(new)
        self._touch(new)

    def remove(self, kind: str, name: str) -> None:
        """Ask for deletion: a pod that runs terminates slowly."""
        obj = self.objects[kind][name]
        if kind == "Pod" and (obj.get("status") or {}).get("phase") == "Running":
            if not is_terminating(obj):
                new = copy.deepcopy(obj)
                new["metadata"]["deletionTimestamp"] = format_time(self.now)
                self._touch(new)
        else:
            self.drop(kind, name)

    def drop(self, kind: str, *names: str) -> None:
        """The objects are gone at once; without names, all of their kind."""
        for name in names or list(self.objects[kind]):
            self.version += 1
            self._show("DELETED", self.objects[kind].pop(name))

    # What the controller sees.

    def freeze(self, *kinds: str) -> None:
        """From now on the controller's caches of these kinds lag."""
        for kind in kinds or KINDS:
            self.frozen.setdefault(kind, [])

    def thaw(self, *kinds: str) -> None:
        """The caches catch up."""
        for kind in kinds or KINDS:
            self.unseen.discard(kind)
            for event in self.frozen.pop(kind, []):
                self._deliver(kind, event)

    def pretend(self, kind: str, objects: Mapping[str, Object]) -> None:
        """From now on the cache lags, and holds this: its server is behind the others."""
        self.freeze(kind)
        for name, obj in self.cache(kind).items():
            if name not in objects:
                self._deliver(kind, WatchEvent("DELETED", obj))
        for obj in objects.values():
            self._deliver(kind, WatchEvent("MODIFIED", obj))

    def cache(self, kind: str) -> dict[str, Object]:
        return {name_of(obj): obj for obj in self.informers[kind].store}

    def _relist(self, informers: Mapping[str, Informer]) -> None:
        """These informers are told of everything that is there."""
        self.informers = informers
        self.frozen.clear()
        self.unseen.clear()
        for objects in self.objects.values():
            for obj in objects.values():
                self._show("ADDED", obj)

    def _show(self, kind_of_change: Literal["ADDED", "MODIFIED", "DELETED"], obj: Object) -> None:
        """Children are listed by a label: without it, they are as good as gone."""
        kind = obj["kind"]
        visible = kind == "ModelServing" or LABEL_NAME in labels_of(obj)
        event = WatchEvent(kind_of_change if visible else "DELETED", obj)
        if kind in self.frozen:
            self.frozen[kind].append(event)
        elif kind in self.informers:
            self._deliver(kind, event)

    def _deliver(self, kind: str, event: WatchEvent) -> None:
        informer = self.informers[kind]
        informer._dispatch(informer._changes_of(event))

    # The transport.

    async def send(self, request: Request) -> Reply:
        await asyncio.sleep(0)
        call = _read(request)
        if call.verb != "get":
            self.calls.append(call)
        fault = self.fault(call)
        if fault == "crash-before":
            raise CrashedError(str(call))
        if fault == "no-connection":
            raise ConnectionFailed("connection refused", request=str(request))
        if fault == "refuse":
            return _failure(403, "Forbidden", f"{call}: refused")
        before = self.version
        reply = self._answer(call, msgspec.json.decode(request.body or b"null"))
        if fault == "crash-after":
            raise CrashedError(str(call))
        if fault == "lose-reply":
            raise ConnectionFailed("connection reset", request=str(request))
        if self.version > before and call.kind in self.frozen:
            self.unseen.add(call.kind)
        await asyncio.sleep(0)
        return reply

    async def aclose(self) -> None:
        pass

    def _answer(self, call: Call, body: Any) -> Reply:
        stored = self.objects[call.kind].get(call.name)
        if call.kind == "PodGroup" and self.pod_groups is None:
            return _failure(404, "NotFound", "the server could not find the requested resource")
        if stored is not None and call.verb != "create":
            return self._answer_on(call, stored, body)
        if call.verb == "create":
            if stored is not None:
                self.clashes.append(call)
                return _failure(409, "AlreadyExists", f"{call.kind} {call.name} already exists")
            return _success(self._store(body), 201)
        return _failure(404, "NotFound", f"{call.kind} {call.name} not found")

    def _answer_on(self, call: Call, stored: Object, body: Any) -> Reply:
        if call.verb == "get":
            return _success(stored)
        if call.verb == "delete":
            return self._delete(call, stored, body)
        return self._patch(call, stored, body)

    def _delete(self, call: Call, stored: Object, options: Object) -> Reply:
        if options["preconditions"]["uid"] != uid_of(stored):
            return _failure(409, "Conflict", "the UID in the precondition is another one")
        self.remove(call.kind, call.name)
        return _success(self.objects[call.kind].get(call.name) or {"kind": "Status"})

    def _patch(self, call: Call, stored: Object, body: Object) -> Reply:
        expected = dict(metadata_of(body))
        if call.verb == "status":
            # API servers pass over a UID here.
            expected.pop("uid", None)
            body = {"status": body["status"]}
        for name in ("uid", "resourceVersion"):
            if name in expected and expected[name] != metadata_of(stored)[name]:
                return _failure(409, "Conflict", f"the {name} has changed")
        merged = apply_merge_patch(copy.deepcopy(stored), body)
        return _success(stored if merged == stored else self._touch(merged))

    def _store(self, obj: Object, **metadata: Any) -> Object:
        obj["metadata"] = {
            **obj["metadata"],
            "uid": f"uid-{next(self._uids)}",
            "namespace": NAMESPACE,
            "creationTimestamp": format_time(self.now),
            **metadata,
        }
        return self._touch(obj)

    def _touch(self, obj: Object) -> Object:
        if obj["kind"] == "PodGroup" and self.pod_groups is not None:
            obj["spec"] = self.pod_groups.shape(obj.get("spec") or {})[0]
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.objects[obj["kind"]][name_of(obj)] = obj
        self._show("MODIFIED", obj)
        return obj


def _read(request: Request) -> Call:
    """What a request asks for."""
    parts = urlsplit(request.target).path.split("/")
    _namespace, plural, name, subresource = [*parts[parts.index("namespaces") + 1 :], "", ""][:4]
    kind = _KINDS_BY_PLURAL[plural]
    match request.method:
        case "GET":
            return Call("get", kind, name)
        case "POST":
            return Call("create", kind, name_of(msgspec.json.decode(request.body)))
        case "DELETE":
            return Call("delete", kind, name)
    if subresource == "status":
        return Call("status", kind, name)
    body = msgspec.json.decode(request.body)
    if "spec" in body:
        return Call("update", kind, name)
    return Call("adopt" if "ownerReferences" in metadata_of(body) else "annotate", kind, name)


def _success(body: Object, status: int = 200) -> Reply:
    return BufferedReply(status, msgspec.json.encode(body))


def _failure(code: int, reason: str, message: str) -> Reply:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return BufferedReply(code, msgspec.json.encode(body))
