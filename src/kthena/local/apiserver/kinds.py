"""What the server must know of a kind to serve it.

A `Kind` is one resource in one version. What is particular to it is in a `Representation` (which
JSON is an object of the kind), a `Strategy` (what a write may do), a `TablePrinter` and its
subresources; everything else in this package treats all kinds alike. Built-in kinds are made in
`builtins`, those of CRDs in `customresources`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from kthena.local.apiserver.codec import Codec
from kthena.local.apiserver.dialect import Dialect
from kthena.local.apiserver.options import DeleteOptions
from kthena.local.apiserver.store import NO_FIELDS, Entry, encode
from kthena.machinery.fields import ErrorList
from kthena.machinery.managedfields.atoms import Atom
from kthena.machinery.managedfields.fieldsets import FieldSet
from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource
from kthena.machinery.schema.scale import ScalePaths
from kthena.machinery.schema.topology import Topology

ALL_VERBS: Final = (
    *("create", "delete", "deletecollection"),
    *("get", "list", "patch", "update", "watch"),
)
STATUS_VERBS: Final = ("get", "patch", "update")


class Strategy(Protocol):
    """What a write to a resource, or to a subresource, may do. Objects are changed in place."""

    allow_create_on_update: bool
    allow_unconditional_update: bool
    checks_metadata: bool
    """Whether validation covers the metadata, on which what else is checked may depend."""

    repeats_changes: bool
    """Whether a change of the metadata is checked for the kind too, after the check for all kinds."""

    repeats_metadata: bool
    """Whether an update is checked like a new object too, so that clients hear of a mistake twice."""

    reset_fields: FieldSet
    """What a write cannot change, and nobody comes to own by it."""

    def prepare_create(self, obj: Object) -> None:
        """Drop what clients may not set, and set what the server does."""
        ...

    def validate_create(self, obj: Object) -> ErrorList:
        """What is wrong with the new object, apart from its metadata unless it `checks_metadata`."""
        ...

    def prepare_update(self, new: Object, old: Object) -> None:
        """Keep what this write may not change, and count the generation."""
        ...

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """What is wrong with the new object or the change; of the metadata as on creation."""
        ...

    def warnings(self, new: Object, old: Object | None) -> Sequence[str]:
        """What the user should know although the write is accepted."""
        ...


class Column(NamedTuple):
    """A column of a table; `priority` above 0 is for wide output."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


class TablePrinter(Protocol):
    """How objects of the kind are shown in a table."""

    columns: Sequence[Column]

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        """One cell for each column."""
        ...


class Representation(NamedTuple):
    """What is sent and answered at a path: objects of a kind, or what a subresource takes."""

    resource: Resource
    codec: Codec
    schema: Topology
    """How its values merge."""

    dialect: Dialect
    component: str
    """The name of the schema in OpenAPI documents."""

    atom: Atom
    """How its fields are owned, and how server-side apply puts values together."""


@dataclass(frozen=True, slots=True)
class Subresource:
    """A part of the objects of a kind that has a path of its own.

    One with a `strategy` is read and written as the object itself, and the strategy says what a
    write may change; any other has handlers of its own.
    """

    verbs: tuple[str, ...] = STATUS_VERBS
    strategy: Strategy | None = None
    representation: Representation | None = None
    """What is sent and answered, where that is no object of the kind."""

    check: Callable[[Object], ErrorList] | None = None
    """What is wrong with what is sent, where that is more than the object will say."""

    scale: ScalePaths | None = None
    """Where the object keeps what a Scale shows; the selector is text or a LabelSelector."""


class Names(NamedTuple):
    """What a kind is called, apart from its resource. An empty `list_kind` is the usual one."""

    singular: str
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    list_kind: str = ""


class Step(Enum):
    """What the caller has to do with the object."""

    REMOVE = "remove it"
    STORE = "store it, it stays until a finalizer or its node lets go"
    STORE_AND_REMOVE = "store it, then remove it"
    NOTHING = "leave it, the deletion is under way"


DeletionPlanner: TypeAlias = Callable[[Object, DeleteOptions, datetime], Step]
"""Decides what a deletion does, and marks the object; raises ApiError where it is not allowed."""


class DeletionRules(NamedTuple):
    """How the objects of a kind end."""

    plan: DeletionPlanner | None = None
    """What a deletion does, where that is special."""

    holds: Callable[[Object], bool] | None = None
    """Whether a terminating object without finalizers still has to stay."""

    returns_object: bool = False
    """Whether the reply to a deletion is the object, where other kinds answer with a Status."""


USUAL_DELETION: Final = DeletionRules()


class Asker(NamedTuple):
    """Whose question a review is: the UserInfo of the client, and the namespace of the path."""

    user: Object
    namespace: str


class Conversion(NamedTuple):
    """Between the stored form and that of a version which names fields differently."""

    to_stored: Callable[[Object], Object]
    from_stored: Callable[[Object], Object]


class Refresh(NamedTuple):
    """Brings objects that were stored under another schema into the form in which they are stored now.

    It is for those of the revision `until` and before; later ones need it no more.
    """

    apply: Callable[[Object], Object]
    until: int


@dataclass(frozen=True, slots=True)
class Kind:
    """One served resource in one version.

    `bucket` is where its objects are stored; versions of a resource share it.
    """

    representation: Representation
    strategy: Strategy
    printer: TablePrinter
    names: Names
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    """By name, in the order in which discovery tells them."""

    not_offered: frozenset[str] = frozenset()
    """Subresources that the API has and this server has not, and says so."""

    selectable: Mapping[str, Callable[[Object], str]] = field(default_factory=dict)
    """Fields that are kept for field selectors, apart from name and namespace. Versions share them."""

    field_labels: Mapping[str, str] | None = None
    """What a selector calls the fields that it may name; None: each of them by its own name."""

    bucket: str = ""
    conversion: Conversion | None = None
    refresh: Refresh | None = None
    open_api_schema: Object | None = None
    """The schema of a custom resource as its CRD has it."""

    errors_as: Resource | None = None
    """The resource that errors name, where it is another one."""

    deletion: DeletionRules = USUAL_DELETION
    create: Callable[[Object, Asker], Object] | None = None
    """Answers a creation, for a kind whose objects are not stored."""

    closed: str = ""
    """Why no new objects are taken; empty where they are."""

    deprecation: str = ""
    """Sent as a warning with each reply of a deprecated version."""

    _prefix: bytes = field(init=False, repr=False, default=b"")

    def __post_init__(self) -> None:
        """Work out what is constant."""
        if not self.bucket:
            object.__setattr__(self, "bucket", str(self.resource))
        values = {"kind": self.resource.kind, "apiVersion": self.resource.api_version}
        names = "".join(f'"{name}":"{values[name]}",' for name in self.dialect.type_meta)
        object.__setattr__(self, "_prefix", b"{" + names.encode())

    @property
    def resource(self) -> Resource:
        """The resource that is served."""
        return self.representation.resource

    @property
    def codec(self) -> Codec:
        """Which JSON is an object of the kind."""
        return self.representation.codec

    @property
    def schema(self) -> Topology:
        """How the values of an object merge."""
        return self.representation.schema

    @property
    def dialect(self) -> Dialect:
        """How requests are read and replies written."""
        return self.representation.dialect

    @property
    def list_kind_name(self) -> str:
        """The `kind` of a list of its objects."""
        return self.names.list_kind or self.resource.list_kind

    def encoded(self, entry: Entry) -> bytes:
        """The object as a client of this version gets it."""
        return self._prefix + self._data(entry)[1:]

    def encoded_item(self, entry: Entry) -> bytes:
        """The object as an item of a list, which may have the names for all of them."""
        return self.encoded(entry) if self.dialect.named_items else self._data(entry)

    def _data(self, entry: Entry) -> bytes:
        if self.conversion is None and not self._is_stale(entry):
            return entry.data
        return encode(self.read(entry))

    def _is_stale(self, entry: Entry) -> bool:
        return self.refresh is not None and entry.revision <= self.refresh.until

    def read_stored(self, entry: Entry) -> Object:
        """The object in the form in which it is stored now, to be changed at will.

        Whoever stores an object anew, under a revision that is no longer refreshed, reads it so.
        """
        obj = entry.decode()
        return self.refresh.apply(obj) if self.refresh and self._is_stale(entry) else obj

    def read(self, entry: Entry) -> Object:
        """The object in the form of this version, to be changed at will."""
        obj = self.read_stored(entry)
        return obj if self.conversion is None else self.conversion.from_stored(obj)

    def at_revision(self, entry: Entry, revision: int) -> Entry:
        """The entry with another `resourceVersion`: the one at which a watcher lost sight of it."""
        obj = self.read_stored(entry)
        obj["metadata"]["resourceVersion"] = str(revision)
        return replace(entry, revision=revision, data=encode(obj))

    def field_label(self, name: str) -> str | None:
        """The stored name of a field that a selector names; None where the kind does not offer it."""
        if name == "metadata.name" or (name == "metadata.namespace" and self._knows_namespace):
            return name
        if self.field_labels is not None:
            return self.field_labels.get(name)
        return name if name in self.selectable else None

    @property
    def _knows_namespace(self) -> bool:
        return self.resource.namespaced or not self.selectable

    def named(self, obj: Object) -> Object:
        """The object with its `apiVersion` and `kind`."""
        return {"kind": self.resource.kind, "apiVersion": self.resource.api_version, **obj}

    def stored(self, obj: Object) -> Object:
        """An object of this version in the form in which it is stored."""
        return obj if self.conversion is None else self.conversion.to_stored(obj)

    def fields_of(self, obj: Object) -> Mapping[str, str]:
        """The values of the selectable fields of a stored object, without empty ones."""
        if not self.selectable:
            return NO_FIELDS
        values = ((name, read(obj)) for name, read in self.selectable.items())
        return {name: value for name, value in values if value}
