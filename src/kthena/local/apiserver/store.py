"""Storage: encoded objects, one revision counter, and a bounded log of changes per resource.

Objects are kept as the bytes that go to clients, without `apiVersion` and `kind`, which depend on
the version that a client asks for. Every change takes the next revision, is written into the object
as its `resourceVersion`, and is appended to the log of its bucket; the log serves watches and
answers lists at an earlier revision by undoing what came later. A bucket holds the objects of one
resource (`deployments.apps`), whatever their version.

All methods are synchronous and are called from one event loop, so reading an entry and replacing it
is atomic; `expected` makes the caller say what it has read all the same. Objects and revisions change
in `_commit` only; `reindex` replaces no more than the selectable fields beside them, which follow from
the objects. What is to outlive the process is kept by an observer (`storage`) and comes back with
`restore`; the log of changes starts anew then, so that versions of before are told 410, as they are by
a kube-apiserver that has started again.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from sys import intern
from typing import Any, Final, NamedTuple

import msgspec

from kthena.machinery.objects import Object, labels_of, name_of, namespace_of, uid_of

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")

_MAX_PLAIN_FLOAT: Final = 1e21

_WHOLE_FLOAT_ENDS: Final = (b".0,", b".0}", b".0]")
"""How a float without a fraction ends; a text that ends so has quotes behind it mostly."""

DEFAULT_LOG_LENGTH: Final = 4096
"""Changes that a bucket remembers; a watch or a continue token older than that is told 410."""

MAX_LOG_BYTES: Final = 32 * 1024 * 1024
"""How much of objects a bucket remembers beyond those that are there, however few changes it is."""

MAX_OBJECT_BYTES: Final = 1_572_864
"""The largest object, as etcd's limit on a request is."""


class Key(NamedTuple):
    """Where an object lives in its bucket; sorts as etcd sorts the paths."""

    namespace: str
    name: str

    @property
    def path(self) -> str:
        """The part of etcd's key that differs within a bucket."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored object at one revision. `fields` are the values that field selectors may ask for."""

    key: Key
    uid: str
    revision: int
    data: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]

    def field(self, name: str) -> str:
        """The value of a selectable field; empty where the object has none."""
        if name == "metadata.name":
            return self.key.name
        if name == "metadata.namespace":
            return self.key.namespace
        return self.fields.get(name, "")

    def decode(self) -> Object:
        """The object, to be changed at will; it has no `apiVersion` and no `kind`."""
        obj: Object = msgspec.json.decode(self.data)
        return obj


class ChangeType(Enum):
    """What a change did to an object; the value is the type of the watch event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change:
    """A step of a bucket. `entry` is the object after it; of a deleted one, its final state."""

    type: ChangeType
    bucket: str
    entry: Entry
    previous: Entry | None

    @property
    def revision(self) -> int:
        """The revision that the change made."""
        return self.entry.revision


class KeyExistsError(Exception):
    """An object is there that was to be created."""


class RevisionConflictError(Exception):
    """The object is not the one that the caller has read."""


class RevisionGoneError(Exception):
    """The log does not reach back to the revision. `oldest` is the first one that it can serve."""

    def __init__(self, oldest: int) -> None:
        super().__init__(oldest)
        self.oldest = oldest


class ObjectTooLargeError(Exception):
    """The encoded object is longer than `MAX_OBJECT_BYTES`: `size`."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


Observer = Callable[[Change, Object], None]
"""Told of every change, in order, with the decoded object, which it must not change."""

NO_FIELDS: Final[Mapping[str, str]] = {}


class Stored(NamedTuple):
    """An object that was stored before: decoded, encoded, and its selectable fields."""

    bucket: str
    obj: Object
    data: bytes
    fields: Mapping[str, str]


@dataclass(slots=True)
class _Bucket:
    """Mutable state: the entries by path, their paths in order, and the log of changes.

    `forgotten` is the last revision that the log does not reach.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    log: deque[Change] = field(default_factory=deque)
    log_bytes: int = 0
    forgotten: int = 0

    def record(self, change: Change, length: int) -> None:
        """Append to the log, and forget what it has no room for."""
        self.log.append(change)
        self.log_bytes += len(change.entry.data)
        while len(self.log) > length or (self.log_bytes > MAX_LOG_BYTES and len(self.log) > 1):
            oldest = self.log.popleft()
            self.log_bytes -= len(oldest.entry.data)
            self.forgotten = oldest.revision


def encode(obj: Object) -> bytes:
    """The object as it is stored: compact JSON with sorted keys, and numbers as Go writes them."""
    data = _ENCODER.encode(obj)
    if not any(end in data for end in _WHOLE_FLOAT_ENDS):
        return data
    # Perhaps a float without a fraction, which Go writes, and reads back, as an integer.
    return _ENCODER.encode(_with_plain_integers(obj))


def _with_plain_integers(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _MAX_PLAIN_FLOAT else value
    if isinstance(value, dict):
        return {key: _with_plain_integers(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_with_plain_integers(entry) for entry in value]
    return value


class Store:
    """Objects in memory."""

    def __init__(self, *, revision: int = 1, log_length: int = DEFAULT_LOG_LENGTH) -> None:
        self.revision = revision
        self._log_length = log_length
        self._first_revision = revision
        self._buckets: dict[str, _Bucket] = defaultdict(self._new_bucket)
        self._observers: list[Observer] = []

    def _new_bucket(self) -> _Bucket:
        return _Bucket(forgotten=self._first_revision - 1)

    def restore(self, revision: int, stored: Iterable[Stored]) -> None:
        """Take over what an earlier store held at `revision`; observers see the objects as new ones.

        Nothing may have been stored before.
        """
        self.revision = revision
        self._first_revision = revision + 1
        for bucket, obj, data, fields in stored:
            key = _key_of(obj)
            made = int(obj["metadata"]["resourceVersion"])
            entry = Entry(key, uid_of(obj), made, data, _labels(obj), fields)
            state = self._buckets[bucket]
            state.entries[key.path] = entry
            insort(state.paths, key.path)
            for observer in self._observers:
                observer(Change(ChangeType.ADDED, bucket, entry, None), obj)

    def observe(self, observer: Observer, *, first: bool = False) -> None:
        """Tell `observer` of every change from here on, `first` before the others."""
        self._observers.insert(0 if first else len(self._observers), observer)

    def get(self, bucket: str, key: Key) -> Entry | None:
        """The entry under a key."""
        return self._buckets[bucket].entries.get(key.path)

    def count(self, bucket: str) -> int:
        """How many objects a bucket holds."""
        return len(self._buckets[bucket].entries)

    def buckets(self) -> list[str]:
        """The buckets that hold objects."""
        return [name for name, bucket in self._buckets.items() if bucket.entries]

    def create(self, bucket: str, obj: Object, fields: Mapping[str, str] = NO_FIELDS) -> Entry:
        """Store a new object; its `resourceVersion` is set.

        Raises:
            KeyExistsError: there is one of that namespace and name.
            ObjectTooLargeError: it is too large.
        """
        key = _key_of(obj)
        if key.path in self._buckets[bucket].entries:
            raise KeyExistsError
        entry = _fitting(self._encode(key, obj, fields))
        self._commit(Change(ChangeType.ADDED, bucket, entry, None), obj)
        return entry

    def update(
        self, bucket: str, obj: Object, expected: Entry, fields: Mapping[str, str] = NO_FIELDS
    ) -> Entry:
        """Replace the object that `expected` is; its `resourceVersion` is set.

        An object that differs in nothing but its `resourceVersion` is left as it is, and `expected`
        returned.

        Raises:
            RevisionConflictError: the object has changed since, or is gone.
            ObjectTooLargeError: it is too large.
        """
        self._check(bucket, expected)
        obj["metadata"]["resourceVersion"] = str(expected.revision)
        if encode(obj) == expected.data:
            return expected
        entry = _fitting(self._encode(expected.key, obj, fields))
        self._commit(Change(ChangeType.MODIFIED, bucket, entry, expected), obj)
        return entry

    def delete(self, bucket: str, expected: Entry, final: Object | None = None) -> Entry:
        """Remove the object that `expected` is; the result is its final state, at a new revision.

        That state is `final`, or else what is stored, unchanged.

        Raises:
            RevisionConflictError: the object has changed since, or is gone.
        """
        self._check(bucket, expected)
        obj = expected.decode() if final is None else final
        entry = self._encode(expected.key, obj, expected.fields)
        self._commit(Change(ChangeType.DELETED, bucket, entry, expected), obj)
        return entry

    def reindex(self, bucket: str, fields: Callable[[Entry], Mapping[str, str]]) -> None:
        """Give all entries of a bucket their selectable fields anew."""
        entries = self._buckets[bucket].entries
        for path, entry in entries.items():
            entries[path] = replace(entry, fields=fields(entry))

    def list(self, bucket: str, namespace: str = "") -> Sequence[Entry]:
        """The entries of a bucket, or of one namespace of it, in the order of their keys."""
        state = self._buckets[bucket]
        return [state.entries[path] for path in _slice(state.paths, namespace)]

    def list_at(self, bucket: str, revision: int, namespace: str = "") -> Sequence[Entry]:
        """The entries as they were at a revision.

        Raises:
            RevisionGoneError: the log does not reach back that far.
        """
        undone: dict[str, Entry | None] = {}
        for change in reversed(self.changes_since(bucket, revision)):
            undone[change.entry.key.path] = change.previous
        if not undone:
            return self.list(bucket, namespace)
        entries = self._buckets[bucket].entries | undone
        paths = sorted(path for path, entry in entries.items() if entry is not None)
        return [entry for path in _slice(paths, namespace) if (entry := entries[path]) is not None]

    def changes_since(self, bucket: str, revision: int) -> Sequence[Change]:
        """The changes after a revision, oldest first.

        Raises:
            RevisionGoneError: the log has lost some of them.
        """
        state = self._buckets[bucket]
        if revision < state.forgotten:
            raise RevisionGoneError(state.forgotten)
        newer = list(_newer(state.log, revision))
        newer.reverse()
        return newer

    def _check(self, bucket: str, expected: Entry) -> None:
        if self._buckets[bucket].entries.get(expected.key.path) is not expected:
            raise RevisionConflictError

    def _encode(self, key: Key, obj: Object, fields: Mapping[str, str]) -> Entry:
        revision = self.revision + 1
        obj["metadata"]["resourceVersion"] = str(revision)
        data = encode(obj)
        return Entry(key, uid_of(obj), revision, data, _labels(obj), fields)

    def _commit(self, change: Change, obj: Object) -> None:
        state = self._buckets[change.bucket]
        path = change.entry.key.path
        if change.type is ChangeType.DELETED:
            del state.entries[path]
            del state.paths[bisect_left(state.paths, path)]
        else:
            if change.type is ChangeType.ADDED:
                state.paths.insert(bisect_right(state.paths, path), path)
            state.entries[path] = change.entry
        self.revision = change.revision
        state.record(change, self._log_length)
        for observer in self._observers:
            observer(change, obj)


def _key_of(obj: Object) -> Key:
    return Key(namespace_of(obj), name_of(obj))


def _labels(obj: Object) -> Mapping[str, str]:
    """The labels for selectors; many objects have the same, so their texts are shared."""
    return {intern(key): intern(value) for key, value in labels_of(obj).items()}


def _fitting(entry: Entry) -> Entry:
    if len(entry.data) > MAX_OBJECT_BYTES:
        raise ObjectTooLargeError(len(entry.data))
    return entry


def _newer(log: deque[Change], revision: int) -> Iterator[Change]:
    for change in reversed(log):
        if change.revision <= revision:
            return
        yield change


def _slice(paths: Sequence[str], namespace: str) -> Sequence[str]:
    """The paths of one namespace, or all. `0` is the character after the slash."""
    if not namespace:
        return paths
    return paths[bisect_left(paths, f"{namespace}/") : bisect_left(paths, f"{namespace}0")]
