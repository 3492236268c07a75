"""Reading and writing objects: what every verb, and every controller of the server, goes through.

The counterpart of kube-apiserver's generic registry. A write is: read the stored object, make the
new one from it, prepare and validate that (`admission`), and store it if the stored object is still
the one that was read. All of it runs without waiting, so a write is atomic.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

from kthena.api.kubernetes import NAMESPACES
from kthena.local.apiserver import admission, deletion, errors
from kthena.local.apiserver.catalog import Catalog
from kthena.local.apiserver.fieldmanagement import FieldManagement
from kthena.local.apiserver.kinds import Kind, Step, Strategy
from kthena.local.apiserver.options import (
    NO_DELETE_OPTIONS,
    NO_WRITE_OPTIONS,
    DeleteOptions,
    WriteOptions,
    parse_uint64,
)
from kthena.local.apiserver.store import (
    NO_FIELDS,
    Entry,
    Key,
    KeyExistsError,
    ObjectTooLargeError,
    RevisionConflictError,
    Store,
    encode,
)
from kthena.machinery.objects import Object, labels_of, name_of, namespace_of, uid_of
from kthena.machinery.resources import Resource

_NAME_ATTEMPTS = 8
_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")
_NAMESPACE_BUCKET = str(NAMESPACES)


class Transform(Protocol):
    """Makes the new object from the stored one, or from None where there is none."""

    def __call__(self, old: Object | None) -> Object:
        """The new object, decoded; the old one must not be changed."""
        ...


class Written(NamedTuple):
    """The outcome of a write that may create."""

    entry: Entry
    created: bool


class Deleted(NamedTuple):
    """The outcome of a deletion: the object's last state, and whether it is gone."""

    entry: Entry
    gone: bool


Review: TypeAlias = Callable[[Object | None, Object | None], None]
"""Judges a change of an object, from the old to the new one; raises ApiError to refuse it."""


@dataclass(slots=True)
class Write:
    """A write under way. Mutable: warnings for the client are added to it."""

    options: WriteOptions = NO_WRITE_OPTIONS
    warnings: list[str] = field(default_factory=list)
    guards_uid: bool = False
    """Whether the new object came whole from the client, whose uid is then a precondition."""

    subresource: str = ""
    """The subresource that is written, where it is not the whole object."""

    may_create: bool = False
    """Whether an update creates what is not there, whatever the kind says."""

    tracks: bool = True
    """Whether the registry has to say who owns what, and not the new object itself."""

    review: Review | None = None
    """Judges the new object once it is valid."""

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be stored."""
        return self.options.dry_run

    def warn(self, warnings: Sequence[str]) -> None:
        """Add warnings that are not there yet."""
        self.warnings += [text for text in warnings if text not in self.warnings]


class Registry:
    """Objects of all kinds, with the rules of their kinds."""

    def __init__(
        self, store: Store, catalog: Catalog, now: Callable[[], datetime], random: Random
    ) -> None:
        self.store = store
        self.now = now
        self.management = FieldManagement(catalog, now)
        self._random = random

    def get(self, kind: Kind, key: Key) -> Entry:
        """The stored object.

        Raises:
            ApiError: 404, there is none.
        """
        entry = self.store.get(kind.bucket, key)
        if entry is None:
            raise errors.not_found(kind.resource, key.name)
        return entry

    def create(
        self,
        kind: Kind,
        obj: Object,
        namespace: str = "",
        write: Write | None = None,
    ) -> Entry:
        """Store a decoded object as a new one.

        Raises:
            ApiError: it is invalid, its namespace is missing or terminating, or its name taken.
        """
        return self._create_new(kind, obj, namespace, write or Write(), {})

    def _create_new(
        self, kind: Kind, obj: Object, namespace: str, write: Write, going: Object
    ) -> Entry:
        admission.wipe_system_fields(obj)
        admission.ensure_metadata(obj).update(going)
        admission.set_namespace(obj, namespace)
        if namespace:
            self._check_namespace(kind.resource, name_of(obj), namespace)
        if kind.closed:
            raise errors.forbidden(kind.resource, name_of(obj), kind.closed)
        write.warn(admission.drop_repeated_owners(obj))
        self._track(kind, kind.strategy, None, obj, write)
        prefix = admission.ensure_metadata(obj).get("generateName")
        generated = bool(prefix) and not name_of(obj)
        for _ in range(_NAME_ATTEMPTS if generated else 1):
            if generated:
                name = admission.generate_name(str(prefix), self._random.choice)
                admission.ensure_metadata(obj)["name"] = name
            try:
                return self._create(kind, obj, write)
            except KeyExistsError:
                continue
        raise self._exists(kind, obj, generated=bool(prefix))

    def _create(self, kind: Kind, obj: Object, write: Write) -> Entry:
        admission.prepare_create(kind, obj, self._uid(), self.now())
        write.warn(kind.strategy.warnings(obj, None))
        if write.review is not None:
            write.review(obj, None)
        stored = kind.stored(obj)
        if not write.dry_run:
            fields = kind.fields_of(stored)
            return _fitting(
                stored, lambda: self.store.create(kind.bucket, stored, fields), tracks=write.tracks
            )
        if self.store.get(kind.bucket, Key(namespace_of(obj), name_of(obj))):
            raise KeyExistsError
        return _unstored(stored)

    def _exists(self, kind: Kind, obj: Object, *, generated: bool) -> errors.ApiError:
        make = errors.generated_name_exists if generated else errors.already_exists
        error = make(kind.resource, name_of(obj))
        existing = self.store.get(kind.bucket, Key(namespace_of(obj), name_of(obj)))
        if existing and existing.decode()["metadata"].get("deletionTimestamp"):
            error.message = f"object is being deleted: {error.message}"
        return error

    def _check_namespace(self, resource: Resource, name: str, namespace: str) -> None:
        entry = self.store.get(_NAMESPACE_BUCKET, Key("", namespace))
        if entry is None:
            raise errors.not_found(NAMESPACES, namespace)
        if entry.fields.get("status.phase") == "Terminating":
            raise admission.namespace_terminating(resource, name, namespace)

    def update(
        self,
        kind: Kind,
        key: Key,
        transform: Transform,
        strategy: Strategy | None = None,
        write: Write | None = None,
    ) -> Written:
        """Replace a stored object by what `transform` makes of it.

        `strategy` is that of a subresource, or the kind's own.

        Raises:
            ApiError: it is missing, has another version or uid than the new object says, or the
                new object is invalid.
        """
        write = write or Write()
        strategy = strategy or kind.strategy
        entry = self.store.get(kind.bucket, key)
        if entry is None:
            if strategy.allow_create_on_update or write.may_create:
                return self._create_on_update(kind, key, transform(None), write)
            raise errors.not_found(kind.resource, key.name)
        old = kind.read(entry)
        new = transform(old)
        admission.set_namespace(new, key.namespace)
        write.warn(admission.drop_repeated_owners(new))
        self._track(kind, strategy, old, new, write)
        if write.guards_uid:
            _check_uid(kind, new, entry, dry_run=write.dry_run)
        self._check_version(kind, strategy, new, entry)
        admission.prepare_update(kind, strategy, new, old)
        admission.keep_times(new, old)
        write.warn(strategy.warnings(new, old))
        if write.review is not None:
            write.review(new, old)
        stored, holds = kind.stored(new), kind.deletion.holds
        if deletion.is_finished(new, old) and not (holds and holds(new)):
            if not write.dry_run:
                self._remove(kind, entry)
            return Written(_unstored(stored), created=False)
        replaced = self._replace(kind, stored, entry, tracks=write.tracks, dry_run=write.dry_run)
        return Written(replaced, created=False)

    def _track(
        self, kind: Kind, strategy: Strategy, old: Object | None, new: Object, write: Write
    ) -> None:
        """Write into the new object who owns its fields."""
        if not write.tracks:
            return
        tracker = self.management.of_kind(kind, strategy, write.subresource)
        entries = tracker.record(old, new, write.options.field_manager)
        admission.set_managed_fields(new, entries)

    def _create_on_update(self, kind: Kind, key: Key, obj: Object, write: Write) -> Written:
        meta = admission.ensure_metadata(obj)
        if meta.get("uid"):
            cause = _uid_mismatch(kind, key, str(meta["uid"]), "", dry_run=write.dry_run)
            raise errors.conflict(kind.resource, key.name, cause)
        if write.may_create or parse_version(str(meta.get("resourceVersion") or "0")):
            # Nobody asks what it was based on.
            meta.pop("resourceVersion", None)
        # Only a creation that calls itself one loses what says that the object is to go.
        going = {name: meta[name] for name in _DELETION if name in meta}
        return Written(self._create_new(kind, obj, key.namespace, write, going), created=True)

    def _check_version(self, kind: Kind, strategy: Strategy, new: Object, entry: Entry) -> None:
        meta = admission.ensure_metadata(new)
        version = parse_version(str(meta.get("resourceVersion") or "0"))
        if version and version != entry.revision:
            raise errors.conflict(kind.resource, entry.key.name)
        if not version and not strategy.allow_unconditional_update:
            raise errors.version_required(kind.resource, entry.key.name)
        meta["resourceVersion"] = str(entry.revision)

    def _replace(
        self, kind: Kind, obj: Object, entry: Entry, *, tracks: bool = True, dry_run: bool
    ) -> Entry:
        if dry_run:
            return _unstored(obj)
        fields = kind.fields_of(obj)
        try:
            return _fitting(
                obj, lambda: self.store.update(kind.bucket, obj, entry, fields), tracks=tracks
            )
        except RevisionConflictError:
            raise errors.conflict(kind.resource, entry.key.name) from None

    def delete(
        self,
        kind: Kind,
        key: Key,
        options: DeleteOptions = NO_DELETE_OPTIONS,
        review: Review | None = None,
    ) -> Deleted:
        """Delete an object, or begin to.

        Raises:
            ApiError: it is missing, may not be deleted, or is not the one of the preconditions.
        """
        entry = self.get(kind, key)
        obj = kind.read_stored(entry)
        deletion.check_preconditions(kind.errors_as or kind.resource, obj, options)
        plan = kind.deletion.plan or deletion.plan_ungraceful
        step = plan(obj, options, self.now())
        if step is Step.NOTHING:
            return Deleted(entry, gone=False)
        if review is not None:
            review(None, kind.read(entry))
        final = entry
        if step is not Step.REMOVE:
            final = self._replace(kind, obj, entry, dry_run=options.dry_run)
        if step is Step.STORE:
            return Deleted(final, gone=False)
        if options.dry_run:
            return Deleted(final, gone=True)
        return Deleted(self._remove(kind, final), gone=True)

    def _remove(self, kind: Kind, entry: Entry) -> Entry:
        """Remove an object; watchers see its final state as a read would have shown it."""
        return self.store.delete(kind.bucket, entry, kind.read_stored(entry))

    def _uid(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))


def _fitting(obj: Object, store: Callable[[], Entry], *, tracks: bool) -> Entry:
    """Store an object; one that is too large with its owners of fields is stored without them.

    Raises:
        ApiError: 500, it is too large even so, or they are what the write is about.
    """
    try:
        return store()
    except ObjectTooLargeError as exc:
        if not tracks or obj["metadata"].pop("managedFields", None) is None:
            raise errors.too_large_to_store(exc.size) from None
    return _fitting(obj, store, tracks=False)


def parse_version(text: str) -> int:
    """A `resourceVersion` as a number.

    Raises:
        ApiError: 500, it is none, as the API answers.
    """
    try:
        return parse_uint64(text)
    except ValueError as exc:
        raise errors.internal(str(exc)) from exc


def _check_uid(kind: Kind, new: Object, entry: Entry, *, dry_run: bool) -> None:
    uid = uid_of(new)
    if uid and uid != entry.uid:
        cause = _uid_mismatch(kind, entry.key, uid, entry.uid, dry_run=dry_run)
        raise errors.conflict(kind.resource, entry.key.name, cause)


def _unstored(obj: Object) -> Entry:
    """An entry for a reply only: of a dry run, or of an object that the write has removed."""
    revision = int(obj["metadata"].get("resourceVersion") or 0)
    key = Key(namespace_of(obj), name_of(obj))
    return Entry(key, uid_of(obj), revision, encode(obj), labels_of(obj), NO_FIELDS)


def _uid_mismatch(kind: Kind, key: Key, wanted: str, found: str, *, dry_run: bool) -> str:
    """The cause in etcd's words, which reach the client; a dry run does not come to etcd."""
    prefix = kind.dialect.key_prefix(kind.resource)
    root = "" if dry_run else "/registry"
    return (
        f"StorageError: invalid object, Code: 4, Key: {root}/{prefix}/{key.path}, "
        f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: "
        f"{wanted}, UID in object meta: {found}"
    )
