"""Loads a recorded live state into an API server, real or embedded, as if it had come about there.

Objects are created owners first. What a server gives itself is mapped: wherever the recording names a
UID (in owner references, labels, selectors, templates, revisions), the object that was created gets
the UID of the new one. The status is written through the status subresource. Generations are kept
too, since controllers compare them with `observedGeneration`: where the recording has a higher one
than a new object, `spec.replicas` is changed to and fro until it is reached.

Kept as recorded: labels, annotations, finalizers, spec, status with its times. Not kept:
`resourceVersion`, `creationTimestamp`, `managedFields`, which are the server's, and a
`deletionTimestamp`, which only a deletion sets; objects that had one are named in `terminating`.
"""

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kthena.api.crd.published import published_crds
from kthena.api.registry import Plane
from support.corpus import require_corpus, require_reference_crd
from support.rest import Answer, RestClient

Object = dict[str, Any]
Schemas = Literal["ours", "kthena"]

RECORDINGS = ("steady", "partitioned-rollout", "two-modelboosters")
_SERVER_OWNED = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink")
_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")


class SeedingError(AssertionError):
    """The state cannot be loaded; the message names the object and what the server says."""


def recorded(name: str) -> list[Object]:
    """The objects of a recording of the corpus; skips or fails as `require_corpus`."""
    path = require_corpus() / "live" / f"{name}.json"
    items: list[Object] = json.loads(path.read_text(encoding="utf-8"))["items"]
    return items


def crds_of(objects: Iterable[Object], schemas: Schemas) -> list[Object]:
    """The CRDs that the objects need, with this project's schemas or with Kthena's own."""
    ours = {crd["spec"]["names"]["kind"]: crd for crd in published_crds(tuple(Plane))}
    kinds = dict.fromkeys(obj["kind"] for obj in objects if obj["kind"] in ours)
    found = [ours[kind] for kind in kinds]
    if schemas == "ours":
        return found
    return [require_reference_crd(crd["metadata"]["name"]) for crd in found]


def in_order(objects: Sequence[Object]) -> list[Object]:
    """The objects, each after those whose UIDs it names; otherwise as they were.

    Raises:
        SeedingError: objects name each other in a circle.
    """
    texts = {uid_of(obj): json.dumps(obj) for obj in objects}
    ordered: dict[str, Object] = {}
    waiting = {uid_of(obj): obj for obj in objects}
    while waiting:
        ready = [
            uid
            for uid in waiting
            if not any(other in texts[uid] for other in waiting if other != uid)
        ]
        if not ready:
            raise SeedingError(f"objects name each other: {[_label(o) for o in waiting.values()]}")
        for uid in ready:
            ordered[uid] = waiting.pop(uid)
    return list(ordered.values())


@dataclass
class Seeded:
    """What was loaded.

    `namespaces` says where objects of a recorded namespace are; one without an entry is kept.
    """

    client: RestClient
    namespaces: Mapping[str, str]
    uids: dict[str, str] = field(default_factory=dict)
    """The UID of each loaded object by the recorded one."""
    paths: dict[str, str] = field(default_factory=dict)
    """The request path of each loaded object by the recorded UID."""
    terminating: list[str] = field(default_factory=list)
    """The objects that were being deleted when they were recorded, and now are not."""

    def to_server(self, obj: Object) -> Object:
        """The recorded object as it is to be on this server, as far as UIDs are known."""
        wanted: Object = _renamed(_moved(obj, self.namespaces), self.uids)
        return wanted

    def to_recording(self, obj: Object) -> Object:
        """An object of this server in the words of the recording."""
        back = {new: old for old, new in self.namespaces.items()}
        found: Object = _renamed(_moved(obj, back), {new: old for old, new in self.uids.items()})
        return found

    def read_back(self) -> dict[str, Object]:
        """Every loaded object as it is now, comparable with `comparable(recorded)`, by UID.

        One that is gone is missing.
        """
        answers = {uid: self.client.get(path) for uid, path in self.paths.items()}
        return {
            uid: comparable(self.to_recording(answer.body))
            for uid, answer in answers.items()
            if answer.status == 200 and answer.body["metadata"]["uid"] == self.uids[uid]
        }

    def clear(self) -> None:
        """Delete what was loaded, owners last."""
        for path in reversed(self.paths.values()):
            self.client.patch(path, {"metadata": {"finalizers": None}})
            self.client.delete(path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})


def comparable(obj: Object) -> Object:
    """The object without what is the server's."""
    left_out = (*_SERVER_OWNED, *_DELETION)
    metadata = {key: value for key, value in obj["metadata"].items() if key not in left_out}
    return {**obj, "metadata": metadata}


def seed(
    client: RestClient, objects: Sequence[Object], namespaces: Mapping[str, str] | None = None
) -> Seeded:
    """Load the objects; their CRDs must be served. Missing namespaces are made.

    Raises:
        SeedingError: the server refuses an object, or would keep it otherwise than it is recorded.
    """
    seeded = Seeded(client, namespaces or {})
    resources = _Resources(client)
    for obj in in_order(objects):
        metadata = obj["metadata"]
        if metadata.get("deletionTimestamp"):
            seeded.terminating.append(_label(obj))
        wanted = seeded.to_server(obj)
        for key in (*_SERVER_OWNED, *_DELETION, "generation"):
            wanted["metadata"].pop(key, None)
        namespace = wanted["metadata"].get("namespace", "")
        _need_namespace(client, namespace)
        collection, has_status = resources.find(obj, namespace)
        path = f"{collection}/{metadata['name']}"
        stored = _create(client, collection, wanted, int(metadata.get("generation") or 1))
        if has_status and "status" in wanted and stored.get("status") != wanted["status"]:
            body = {**stored, "status": wanted["status"]}
            stored = _expect(client.put(f"{path}/status", body), obj)
        seeded.uids[uid_of(obj)] = uid_of(stored)
        seeded.paths[uid_of(obj)] = path
    return seeded


def _create(client: RestClient, collection: str, wanted: Object, generation: int) -> Object:
    """Create the object, with so many generations behind it."""
    spec = wanted.get("spec") or {}
    if generation > 1 and not isinstance(spec.get("replicas"), int):
        raise SeedingError(f"{_label(wanted)} has generation {generation} and no spec.replicas")
    stored: Object = {}
    for number in range(1, generation + 1):
        body = copy.deepcopy(wanted)
        if (generation - number) % 2:
            body["spec"]["replicas"] += 1
        if not stored:
            stored = _expect(client.create(collection, body), wanted)
            continue
        body["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        stored = _expect(client.put(f"{collection}/{wanted['metadata']['name']}", body), wanted)
    return stored


class _Resources:
    """Which resource a kind has, by discovery.

    Mutable state: what each group version was found to serve.
    """

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._found: dict[str, dict[str, Any]] = {}

    def find(self, obj: Object, namespace: str) -> tuple[str, bool]:
        """The path of the collection, and whether it has a status subresource."""
        version = obj["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if root not in self._found:
            answer = self._client.get(root)
            if answer.status != 200:
                raise SeedingError(f"{root} is not served: {answer.text}")
            self._found[root] = {each["name"]: each for each in answer.body["resources"]}
        resources = self._found[root]
        for name, each in resources.items():
            if each["kind"] == obj["kind"] and "/" not in name:
                scope = f"/namespaces/{namespace}" if each["namespaced"] else ""
                return f"{root}{scope}/{name}", f"{name}/status" in resources
        raise SeedingError(f"{obj['kind']} is not served in {root}")


def _need_namespace(client: RestClient, name: str) -> None:
    if name:
        answer = client.create("/api/v1/namespaces", {"metadata": {"name": name}})
        if answer.status not in {201, 409}:
            raise SeedingError(f"namespace {name}: {answer.text}")


def _expect(answer: Answer, obj: Object) -> Object:
    if answer.status not in {200, 201}:
        raise SeedingError(f"{_label(obj)}: {answer.status} {answer.text}")
    body: Object = answer.body
    return body


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """The value with each of the names replaced, wherever it stands in a text."""
    text = json.dumps(value)
    for old, new in names.items():
        text = text.replace(old, new)
    return json.loads(text)


def _moved(obj: Object, namespaces: Mapping[str, str]) -> Object:
    """The object in its new namespace, with what else names its namespace.

    That is the host name of a group's entry pod, and the manifest that `kubectl apply` keeps.
    """
    old = obj["metadata"].get("namespace", "")
    new = namespaces.get(old, old)
    moved = copy.deepcopy(obj)
    if not old or new == old:
        return moved
    moved["metadata"]["namespace"] = new
    for name, text in (moved["metadata"].get("annotations") or {}).items():
        if name == "kubectl.kubernetes.io/last-applied-configuration":
            changed = text.replace(f'"namespace":"{old}"', f'"namespace":"{new}"')
            moved["metadata"]["annotations"][name] = changed
    spec = moved.get("spec") or {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        for entry in container.get("env") or ():
            if entry["name"] == "ENTRY_ADDRESS" and entry.get("value", "").endswith(f".{old}"):
                entry["value"] = f"{entry['value'].removesuffix(f'.{old}')}.{new}"
    return moved


def uid_of(obj: Object) -> str:
    """The UID of an object that has one."""
    return str(obj["metadata"]["uid"])


def _label(obj: Object) -> str:
    return f"{obj['kind']} {obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
