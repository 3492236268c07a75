"""What the server must know of a kind to serve it.

A `Kind` is one resource in one version. What is particular to it is in a `Codec` (which JSON is an
object of the kind), a `Strategy` (what a write may do) and a `TablePrinter`; everything else in this
package treats all kinds alike. Built-in kinds are made in `builtins`, those of CRDs in
`customresources`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from kthena.local.apiserver.codec import Codec
from kthena.local.apiserver.mediatypes import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from kthena.local.apiserver.options import DeleteOptions
from kthena.local.apiserver.store import NO_FIELDS, Entry, encode
from kthena.machinery.fields import ErrorList
from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource

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


class ScalePaths(NamedTuple):
    """Where the scale subresource finds its values; the selector is text or a LabelSelector."""

    replicas: str = "spec.replicas"
    status_replicas: str = "status.replicas"
    selector: str = ""


class Step(Enum):
    """What the caller has to do with the object."""

    REMOVE = "remove it"
    STORE = "store it, it stays until a finalizer or its node lets go"
    STORE_AND_REMOVE = "store it, then remove it"
    NOTHING = "leave it, the deletion is under way"


DeletionPlanner: TypeAlias = Callable[[Object, DeleteOptions, datetime], Step]
"""Decides what a deletion does, and marks the object."""


class Conversion(NamedTuple):
    """Between the stored form and that of a version which names fields differently."""

    to_stored: Callable[[Object], Object]
    from_stored: Callable[[Object], Object]


@dataclass(frozen=True, slots=True)
class Kind:
    """One served resource in one version.

    `bucket` is where its objects are stored; versions of a resource share it. `status` and `scale`
    are given where those subresources are served.
    """

    resource: Resource
    codec: Codec
    strategy: Strategy
    printer: TablePrinter
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    status: Strategy | None = None
    scale: ScalePaths | None = None
    other_subresources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Subresources with a handler of their own, and their verbs."""

    selectable: Mapping[str, Callable[[Object], str]] = field(default_factory=dict)
    """Fields that are kept for field selectors, apart from name and namespace. Versions share them."""

    field_labels: Mapping[str, str] | None = None
    """What a selector calls the fields that it may name; None: each of them by its own name."""

    bucket: str = ""
    conversion: Conversion | None = None
    builtin: bool = True
    list_kind: str = ""
    """The kind of lists, where that is not the usual one."""

    open_api_schema: Object | None = None
    """The schema of a custom resource as its CRD has it."""

    returns_deleted: bool = False
    """Whether the reply to a deletion is the object, where other kinds answer with a Status."""

    errors_as: Resource | None = None
    """The resource that errors name, where it is another one."""

    deletion: "DeletionPlanner | None" = None
    """How the kind is deleted, where that is special."""

    holds: Callable[[Object], bool] | None = None
    """Whether a terminating object without finalizers still has to stay."""

    merge_schema: str = ""
    """The OpenAPI component that tells a strategic merge patch how lists merge; empty: no such patch."""

    closed: str = ""
    """Why no new objects are taken; empty where they are."""

    deprecation: str = ""
    """Sent as a warning with each reply of a deprecated version."""

    refresh: Callable[[Object], Object] | None = None
    """Brings an object that was stored under another schema into the form of this version."""

    fresh_after: int = 0
    """Objects of later revisions need no refreshing."""

    _prefix: bytes = field(init=False, repr=False, default=b"")

    def __post_init__(self) -> None:
        """Work out what is constant."""
        if not self.bucket:
            object.__setattr__(self, "bucket", str(self.resource))
        names = (
            f'"kind":"{self.resource.kind}","apiVersion":"{self.resource.api_version}",'
            if self.builtin
            else f'"apiVersion":"{self.resource.api_version}","kind":"{self.resource.kind}",'
        )
        object.__setattr__(self, "_prefix", b"{" + names.encode())

    @property
    def list_kind_name(self) -> str:
        """The `kind` of a list of its objects."""
        return self.list_kind or self.resource.list_kind

    @property
    def patch_types(self) -> tuple[str, ...]:
        """The content types of patches that the kind takes."""
        plain = (JSON_PATCH, MERGE_PATCH)
        return (*plain, STRATEGIC_PATCH) if self.merge_schema else plain

    def encoded(self, entry: Entry) -> bytes:
        """The object as a client of this version gets it."""
        return self._prefix + self._data(entry)[1:]

    def encoded_item(self, entry: Entry) -> bytes:
        """The object as an item of a list: built-in kinds leave the names to the list."""
        return self._data(entry) if self.builtin else self.encoded(entry)

    def _data(self, entry: Entry) -> bytes:
        if self.conversion is None and not self._is_stale(entry):
            return entry.data
        return encode(self.read(entry))

    def _is_stale(self, entry: Entry) -> bool:
        return self.refresh is not None and entry.revision <= self.fresh_after

    def read(self, entry: Entry) -> Object:
        """The stored object in the form of this version, to be changed at will."""
        obj = entry.decode()
        if self.refresh is not None and self._is_stale(entry):
            return self.refresh(obj)
        return obj if self.conversion is None else self.conversion.from_stored(obj)

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
