"""Sequences of operations, most of which succeed.

A sequence works on six to nine kinds and few names, so that operations meet. What the generator
believes to exist only steers it: whatever the servers say is compared.
"""

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, Final

from fuzz import metadata
from fuzz.kinds import (
    CONFIG_MAPS,
    EVENTS,
    KINDS,
    NAMESPACES,
    NEW_EVENTS,
    SERVICES,
    Field,
    FuzzKind,
)
from fuzz.operations import Operation
from fuzz.parameters import Parameters

APPLIES = True
"""Whether server-side apply is tried."""

MIN_LENGTH: Final = 10
_LENGTHS: Final = (20, 50)
_NAMES: Final = ("a", "b", "c")
_MERGE: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_APPLY: Final = "application/apply-patch+yaml"
_METADATA: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_BAD: Final = 0.12


class Generator:
    """Makes one sequence. Mutable state: the operations, and which objects should exist."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._parameters = Parameters(random)
        self._operations: list[Operation] = []
        self._living: list[tuple[FuzzKind, str]] = []
        self._generated = 0
        self._owners = random.random() < 0.2
        # Whether an object may have two owners. Which dependent of an owner in foreground deletion comes
        # first is random on a real server, and with two owners what becomes of one depends on it.
        self._pairs = random.random() < 0.7
        self.kinds = self._choose_kinds()

    def _choose_kinds(self) -> list[FuzzKind]:
        random = self._random
        pool = [kind for kind in KINDS if kind is not NAMESPACES]
        count = random.randint(6, 8)
        chosen: list[FuzzKind] = []
        while len(chosen) < count:
            (kind,) = random.choices(pool, [kind.weight for kind in pool])
            if kind not in chosen:
                chosen.append(kind)
        return [*chosen, NAMESPACES] if random.random() < 0.12 else chosen

    def sequence(self) -> list[Operation]:
        """The operations."""
        length = self._random.randint(*_LENGTHS)
        makers, weights = zip(*self._makers(), strict=True)
        while len(self._operations) < length:
            (make,) = self._random.choices(makers, weights)
            operation = make() if len(self._living) > 2 else self._create()
            if operation is not None:
                self._operations.append(operation)
        return self._operations

    def _makers(self) -> list[tuple[Callable[[], Operation | None], int]]:
        return [
            (self._create, 24),
            (self._create_generated, 3),
            (self._update, 12),
            (self._merge_patch, 10),
            (self._json_patch, 8),
            (self._strategic_patch, 7),
            (self._apply, 14 if APPLIES else 0),
            (self._status, 7),
            (self._scale, 4),
            (self._delete, 8),
            (self._delete_collection, 1),
            (self._get, 4),
            (self._list, 8),
            (self._continue, 2),
            (self._watch, 3),
            (self._garbage, 3),
        ]

    # ---- what there is

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _kind(self) -> FuzzKind:
        weights = [kind.weight for kind in self.kinds]
        return self._random.choices(self.kinds, weights)[0]

    def _name(self, kind: FuzzKind) -> str:
        name = self._random.choice(_NAMES)
        return f"{{ns}}-{name}" if kind is NAMESPACES else name

    def _target(self) -> tuple[FuzzKind, str]:
        """An object that should exist, most times."""
        if self._living and self._chance(0.96):
            return self._random.choice(self._living)
        kind = self._kind()
        return kind, self._name(kind)

    def _born(self, kind: FuzzKind, name: str) -> None:
        if (kind, name) not in self._living:
            self._living.append((kind, name))

    def _died(self, kind: FuzzKind, name: str) -> None:
        if (kind, name) in self._living:
            self._living.remove((kind, name))

    # ---- bodies

    def _fields(self, kind: FuzzKind) -> list[Field]:
        random = self._random
        own = list(kind.fields)
        chosen = random.sample(own, min(len(own), random.choice((1, 1, 2, 2, 3, 4))))
        if self._chance(0.5):
            chosen.append(random.choice(metadata.USUAL))
        if self._chance(0.12):
            chosen.append(random.choice(metadata.RARE))
        return chosen

    def _values(self, kind: FuzzKind, *, bad: bool) -> list[tuple[Field, Any]]:
        """Fields with values; at most one of them is wrong, if `bad`."""
        found: list[tuple[Field, Any]] = []
        spoiled = False
        for field in self._fields(kind):
            wrong = field.invalid and not spoiled and (bad or not field.valid)
            if wrong and (bad or self._chance(0.2)):
                found.append((field, deepcopy(self._random.choice(field.invalid))))
                spoiled = True
            elif field.valid:
                found.append((field, deepcopy(self._random.choice(field.valid))))
        return found

    def _bad(self) -> bool:
        return self._chance(_BAD)

    def _body(self, kind: FuzzKind, name: str) -> dict[str, Any]:
        meta: dict[str, Any] = {"name": name} if name else {}
        if kind is NAMESPACES:
            meta["labels"] = {"run": "{ns}"}
        body = {"apiVersion": kind.version, "kind": kind.kind, "metadata": meta}
        body |= deepcopy(dict(kind.base))
        for field, value in self._values(kind, bad=self._bad()):
            _set(body, field.names, value)
        self._add_owners(kind, body)
        return body

    def _add_owners(self, kind: FuzzKind, body: dict[str, Any]) -> None:
        if not self._owners or kind is NAMESPACES or not self._chance(0.5):
            return
        owners = []
        for _ in range(self._random.choice((1, 1, 2)) if self._pairs else 1):
            owner, name = self._target()
            if owner in (EVENTS, NEW_EVENTS):
                # As an owner an event becomes known to the garbage collector, which ignores others.
                continue
            path = f"{owner.collection('{ns}')}/{name}"
            owners.append(metadata.owner_of(owner, path, name, self._random))
        if owners:
            _set(body, ["metadata", "ownerReferences"], owners)

    def _changes(self, kind: FuzzKind, *, removing: bool = True) -> dict[str, Any]:
        """Some changes of an object, as a merge patch."""
        change: dict[str, Any] = {}
        for field, value in self._values(kind, bad=self._bad()):
            removed = removing and self._chance(0.15)
            names = field.names
            if removed and names[0] == "binaryData":
                # Of an immutable ConfigMap a real server tells an empty map from none.
                names = names[:1]
            _set(change, names, None if removed else value)
        if self._pairs:
            self._add_owners(kind, change)
        return change

    def _operation(self, method: str, path: str, body: Any = None, **more: Any) -> Operation:
        settles = more.pop("settles", False) or self._owners
        return Operation(method, path, body, settles=settles, **more)

    # ---- writes

    def _create(self) -> Operation:
        kind = self._kind()
        name = self._name(kind)
        query = self._parameters.of_write()
        if "dryRun" not in query:
            self._born(kind, name)
        collection = kind.collection("{ns}")
        return self._operation(
            "POST",
            collection,
            self._body(kind, name),
            query=query,
            accept=self._parameters.accept(_METADATA),
        )

    def _create_generated(self) -> Operation:
        kind = self._kind()
        if kind is NAMESPACES:
            kind = self.kinds[0]
        prefix = f"gen{self._generated}-"
        self._generated += 1
        collection = kind.collection("{ns}")
        self._born(kind, f"${{last|{collection}/{prefix}|metadata.name}}")
        body = self._body(kind, "")
        body["metadata"] |= {"generateName": prefix}
        return self._operation("POST", collection, body, query=self._parameters.of_write())

    def _path(self, kind: FuzzKind, name: str) -> str:
        return f"{kind.collection('{ns}')}/{name}"

    def _seen(self, kind: FuzzKind, name: str, change: dict[str, Any]) -> dict[str, Any]:
        path = self._seen_path(kind, name)
        random = self._random.random()
        version: Any = f"${{last|{path}|metadata.resourceVersion}}"
        if random < 0.07:
            version = f"${{first|{path}|metadata.resourceVersion}}"
        elif random < 0.14:
            version = None
        _set(change, ["metadata", "resourceVersion"], version)
        return {"$seen": path, "$merge": change}

    @staticmethod
    def _seen_path(kind: FuzzKind, name: str) -> str:
        """The path under which the client knows an object; of a generated name, its prefix."""
        if name.startswith("${last|"):
            return name.split("|")[1]
        return f"{kind.collection('{ns}')}/{name}"

    def _update(self) -> Operation:
        kind, name = self._target()
        body: Any
        if self._chance(0.75):
            body = self._seen(kind, name, self._changes(kind))
        else:
            body = self._body(kind, name)
        accept = self._parameters.accept(_METADATA)
        return self._operation(
            "PUT", self._path(kind, name), body, query=self._parameters.of_write(), accept=accept
        )

    def _patch(
        self, kind: FuzzKind, name: str, media: str, body: Any, below: str = ""
    ) -> Operation:
        return self._operation(
            "PATCH",
            self._path(kind, name) + below,
            body,
            media=media,
            query=self._parameters.of_write(patch=True),
        )

    def _merge_patch(self) -> Operation:
        kind, name = self._target()
        body = self._changes(kind)
        if self._chance(0.05):
            path = self._seen_path(kind, name)
            _set(
                body, ["metadata", "resourceVersion"], f"${{first|{path}|metadata.resourceVersion}}"
            )
        return self._patch(kind, name, _MERGE, body)

    def _strategic_patch(self) -> Operation:
        kind, name = self._target()
        body = self._changes(kind)
        if kind.lists and self._chance(0.7):
            body = deepcopy(dict(self._random.choice(kind.lists)))
        if self._chance(0.05):
            body["$patch"] = self._random.choice(["replace", "delete", "merge", "bogus"])
        return self._patch(kind, name, _STRATEGIC, body)

    def _json_patch(self) -> Operation:
        kind, name = self._target()
        steps: list[Any] = []
        for field, value in self._values(kind, bad=self._bad()):
            pointer = "/" + field.path
            action = self._random.choice(("add", "add", "add", "replace", "remove", "test", "copy"))
            if action in ("add", "replace", "test"):
                steps.append({"op": action, "path": pointer, "value": value})
            elif action == "remove":
                steps.append({"op": "remove", "path": pointer})
            else:
                step = {"op": self._random.choice(("copy", "move")), "from": "/metadata/labels"}
                steps.append({**step, "path": "/metadata/annotations"})
        if self._chance(0.08):
            odd = [
                {"op": "bogus", "path": "/x"},
                {"op": "add", "path": "no-slash", "value": 1},
                {"op": "add", "path": "/spec/containers/9/image", "value": "x"},
                {"op": "replace", "path": "/spec/containers/0/image", "value": "busybox:9"},
                {"op": "add", "path": "/spec/ports/-", "value": {"name": "z", "port": 99}},
                {"op": "remove", "path": "/metadata/name"},
                {"op": "test", "path": "/metadata/name", "value": "a"},
                {"op": "add", "path": "/metadata/labels/a~1b", "value": "c"},
                {"op": "add", "path": "", "value": {}},
                {"op": "add"},
                5,
            ]
            steps.append(self._random.choice(odd))
        return self._patch(kind, name, _JSON_PATCH, steps)

    def _apply(self) -> Operation:
        kind, name = self._target() if self._chance(0.7) else (self._kind(), "")
        name = name or self._name(kind)
        body = self._body(kind, name)
        if name.startswith("${"):
            body["metadata"]["name"] = name
        body |= {"apiVersion": kind.version, "kind": kind.kind}
        self._trim(body["metadata"])
        query = self._parameters.of_write()
        query["fieldManager"] = self._random.choice(["one", "two", "three"])
        if self._chance(0.3):
            query["force"] = "true"
        if self._chance(0.03):
            del query["fieldManager"]
        if "dryRun" not in query:
            self._born(kind, name)
        below = ""
        if kind.status and self._chance(0.1):
            below = "/status"
            body.pop("spec", None)
            for field in kind.status:
                if field.valid and self._chance(0.5):
                    _set(body, field.names, deepcopy(self._random.choice(field.valid)))
        return self._operation(
            "PATCH", self._path(kind, name) + below, body, media=_APPLY, query=query
        )

    def _trim(self, meta: dict[str, Any]) -> None:
        """Leave out of an apply what only a server says, most times."""
        for key in ("resourceVersion", "generation", "creationTimestamp", "uid", "selfLink"):
            if self._chance(0.9):
                meta.pop(key, None)
        if not self._pairs:
            meta.pop("ownerReferences", None)
        # Two owners could be the same, and of several mistakes the order is that of a Go map.
        del meta.get("ownerReferences", [])[1:]

    def _status(self) -> Operation | None:
        kind, name = self._target()
        if not kind.status and not (kind.custom and self._chance(0.2)):
            return None
        change: dict[str, Any] = {}
        bad = self._bad()
        for field in kind.status:
            # No more than one is wrong: which of several is told depends on the order of Go's structs.
            values = field.invalid if field.invalid and bad else field.valid
            bad = bad and not field.invalid
            if values and self._chance(0.6):
                _set(change, field.names, deepcopy(self._random.choice(values)))
        if self._chance(0.15):
            for field, value in self._values(kind, bad=False):
                _set(change, field.names, value)
        if self._chance(0.4):
            body = self._seen(kind, name, change)
            path = f"{self._path(kind, name)}/status"
            return self._operation("PUT", path, body, query=self._parameters.of_write())
        media = _MERGE if kind.custom or self._chance(0.5) else _STRATEGIC
        if self._chance(0.03):
            return Operation("GET", f"{self._path(kind, name)}/status")
        return self._patch(kind, name, media, change, "/status")

    def _scale(self) -> Operation | None:
        scaled = [(kind, name) for kind, name in self._living if kind.scale]
        if not scaled:
            return None
        kind, name = self._random.choice(scaled)
        path = f"{self._path(kind, name)}/scale"
        replicas = (
            self._random.choice([0, 1, 2, 5])
            if self._chance(0.9)
            else self._random.choice([-1, "x", 200, None])
        )
        if self._chance(0.3):
            return Operation("GET", path)
        if kind.custom and replicas == "x":
            # Of a Scale that it cannot read, the real server tells for custom resources that it lost its way.
            replicas = 3
        if self._chance(0.5):
            return self._patch(kind, name, _MERGE, {"spec": {"replicas": replicas}}, "/scale")
        meta: dict[str, Any] = {"name": name}
        if self._chance(0.8):
            meta["namespace"] = "{ns}"
        if self._chance(0.3):
            seen = self._seen_path(kind, name)
            which = "last" if self._chance(0.7) else "first"
            meta["resourceVersion"] = f"${{{which}|{seen}|metadata.resourceVersion}}"
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": meta,
            "spec": {"replicas": replicas},
        }
        return self._operation("PUT", path, body, query=self._parameters.of_write())

    # ---- deletions

    def _delete(self) -> Operation:
        kind, name = self._target()
        foreground = not (self._pairs and self._owners)
        path = self._seen_path(kind, name)
        body, query, settles = self._parameters.of_delete(path, foreground=foreground)
        self._died(kind, name)
        settles = settles or kind is NAMESPACES
        return self._operation("DELETE", self._path(kind, name), body, query=query, settles=settles)

    def _delete_collection(self) -> Operation | None:
        kind = self._kind()
        if kind is NAMESPACES:
            return None
        query = {}
        if self._chance(0.7):
            query["labelSelector"] = self._parameters.label_selector()
        if self._chance(0.1):
            query["fieldSelector"] = self._parameters.field_selector(kind)
        return self._operation("DELETE", kind.collection("{ns}"), query=query)

    # ---- reads

    def _list(self) -> Operation:
        kind = self._kind()
        collection = kind.collection("{ns}")
        query = self._parameters.of_list(kind, collection)
        return Operation(
            "GET", collection, query=query, accept=self._parameters.accept(_METADATA_LIST)
        )

    def _continue(self) -> Operation:
        kind = self._kind()
        collection = kind.collection("{ns}")
        token = f"${{last|list:{collection}|metadata.continue}}"
        query = {"continue": token, "limit": self._random.choice(("1", "2"))}
        if self._chance(0.05):
            query["continue"] = self._random.choice(
                ["bogus", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"]
            )
        return Operation("GET", collection, query=query)

    def _get(self) -> Operation:
        kind, name = self._target()
        return Operation("GET", self._path(kind, name), accept=self._parameters.accept(_METADATA))

    def _watch(self) -> Operation | None:
        kind = self._kind()
        if kind is NAMESPACES:
            return None
        query, live = self._parameters.of_watch(kind)
        accept = self._random.choice(["", "", "", "", _METADATA])
        collection = kind.collection("{ns}")
        return Operation("GET", collection, query=query, accept=accept, watch=True, live=live)

    # ---- garbage

    def _garbage(self) -> Operation:
        random = self._random
        kind, name = self._target()
        if kind is SERVICES:
            # What is left of a body would ask for an address, and each server has others.
            kind = CONFIG_MAPS
        collection, path = kind.collection("{ns}"), self._path(kind, name)
        raw = random.choice(
            ["{", "[]", "null", "5", '"x"', "", "{}", '{"metadata":5}', '{"kind":5}', "{} {}", "a: [", '{"metadata":{"name":"a","name":"b"}}',
             '{"kind":"List","apiVersion":"v1","items":[]}', '{"apiVersion":"a/b/c","kind":"X"}', "apiVersion: v1\nkind: ConfigMap\n"]
        )  # fmt: skip
        media = random.choice(
            ["", "", "text/plain", "application/json", "application/cbor", "x/y; z="]
        )
        method, target = random.choice(
            [("POST", collection), ("PUT", path), ("PATCH", path), ("DELETE", path), ("POST", path), ("PUT", collection),
             ("PATCH", collection), ("GET", f"{path}/bogus"), ("GET", collection.replace(kind.plural, "nothings")),
             ("GET", collection.replace("/v1", "/v9")), ("POST", f"{path}/status"), ("DELETE", f"{path}/status")]
        )  # fmt: skip
        if method == "GET":
            return Operation("GET", target)
        if method == "PATCH":
            media = random.choice(
                [_MERGE, _JSON_PATCH, _STRATEGIC, "application/json", "text/plain"]
            )
        if method == "DELETE" and raw in ("", "{}"):
            self._died(kind, name)
        return self._operation(
            method, target, raw=raw, media=media, query=self._parameters.of_write()
        )


def _set(target: Any, names: list[str], value: Any) -> None:
    """Set a value deep in an object, unless something else is on the way."""
    *parents, last = names
    for name in parents:
        if not isinstance(target, dict):
            return
        target = target.setdefault(name, {})
    if isinstance(target, dict):
        target[last] = value


def make_sequence(seed: int) -> tuple[list[FuzzKind], list[Operation]]:
    """The kinds and the operations of a seed."""
    generator = Generator(Random(seed))
    return generator.kinds, generator.sequence()
