"""How values merge: the part of a schema that field ownership and apply need.

An `Atom` says what a value may be: a scalar, a list, a map, or several of these. It is made of a
`Topology` as kube-openapi's `schemaconv` does it, as far as it is looked at, so that recursive schemas
are no matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from kthena.machinery.schema.structural import UNSET
from kthena.machinery.schema.topology import Topology

Scalar: TypeAlias = Literal["numeric", "string", "boolean", "untyped"]


class Absent(Enum):
    """A value that is not there, where None is a JSON null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT

_SCALARS: Final[Mapping[str, Scalar]] = {
    "integer": "numeric",
    "number": "numeric",
    "boolean": "boolean",
}
_MERGING: Final = ("merge", "merge,retainKeys")


class Atom:
    """What a value may be; `scalar`, `list` and `map` are None where it may not be that.

    `is_scalar` and `is_one` say whether it can only be a scalar, or only be of one of the sorts.
    """

    __slots__ = ("is_one", "is_scalar", "list", "map", "scalar")

    def __init__(
        self,
        scalar: Scalar | None = None,
        list_: "ListAtom | None" = None,
        map_: "MapAtom | None" = None,
    ) -> None:
        self.scalar = scalar
        self.list = list_
        self.map = map_
        self.is_one = sum(part is not None for part in (scalar, list_, map_)) == 1
        self.is_scalar = self.is_one and scalar is not None

    def deduced(self, value: Any) -> "Atom":
        """The atom for this very value: one sort, where the value has one that is allowed."""
        if self.is_one or value is ABSENT or value is None:
            return self
        if isinstance(value, dict):
            return self if self.map is None else Atom(map_=self.map)
        if isinstance(value, list):
            return self if self.list is None else Atom(list_=self.list)
        return self if self.scalar is None else Atom(scalar=self.scalar)

    def same_as(self, other: "Atom") -> bool:
        """Whether both mean the same part of one schema."""
        return self.scalar == other.scalar and self.list is other.list and self.map is other.map


class ListAtom:
    """A list: `atomic`, or associative by `keys`, or a set where there are no keys."""

    def __init__(self, source: "_Source", *, atomic: bool, keys: tuple[str, ...]) -> None:
        self._source = source
        self.atomic = atomic
        self.keys = keys

    @cached_property
    def element(self) -> Atom:
        """The entries."""
        items = self._source.node.items
        return UNTYPED if items is None else self._source.atom(items)

    @cached_property
    def key_defaults(self) -> Mapping[str, Any]:
        """The values of keys that an entry leaves out."""
        fields = self.element.map
        return {} if fields is None else fields.defaults(self.keys)


class MapAtom:
    """A map: named fields, and what other members are; `atomic` where it is one value."""

    def __init__(self, source: "_Source | None", *, atomic: bool, deduced: bool = False) -> None:
        self._source = source
        self.atomic = atomic
        self.free = deduced
        """Whether it names no fields and takes members of any sort."""
        self._members: dict[str, Atom] = {}

    @cached_property
    def _topologies(self) -> Mapping[str, Topology]:
        return {} if self._source is None else self._source.properties

    def has_field(self, name: str) -> bool:
        """Whether the member is named by the schema."""
        return name in self._topologies

    @cached_property
    def element(self) -> Atom | None:
        """Members that are not named; None where there may be none."""
        if self._source is None:
            return DEDUCED if self.free else UNTYPED
        return self._source.other_members()

    def member(self, name: str) -> Atom | None:
        """The atom of a member, named or not; None where there may be none of the name."""
        found = self._members.get(name)
        if found is None:
            node = self._topologies.get(name)
            if node is None or self._source is None:
                return self.element
            found = self._members[name] = self._source.atom(node)
        return found

    def defaults(self, names: tuple[str, ...]) -> Mapping[str, Any]:
        """The defaults of some members, of those that have one."""
        found = {name: self._topologies[name].default for name in names if name in self._topologies}
        return {name: value for name, value in found.items() if value not in (UNSET, None)}


UNTYPED: Final = Atom("untyped")
"""Anything, as one value."""
UNTYPED.map = MapAtom(None, atomic=True)
UNTYPED.is_one = UNTYPED.is_scalar = False


class _UntypedList(ListAtom):
    """A list of anything, as one value."""

    def __init__(self) -> None:
        self.atomic = True
        self.keys = ()

    @cached_property
    def element(self) -> Atom:
        """Anything."""
        return UNTYPED


UNTYPED.list = _UntypedList()
DEDUCED: Final = Atom("untyped", UNTYPED.list, MapAtom(None, atomic=False, deduced=True))
"""Anything: maps merge, lists are one value."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A node of a schema, and what holds for all below it."""

    node: Topology
    object_meta: Topology | None
    preserves: bool
    is_resource: bool = False

    def atom(self, node: Topology) -> Atom:
        return _atom(node, self.object_meta, preserves=self.preserves)

    @property
    def properties(self) -> Mapping[str, Topology]:
        if not self.is_resource or self.object_meta is None:
            return self.node.properties
        text = _Text()
        return {
            **self.node.properties,
            "apiVersion": text,
            "kind": text,
            "metadata": self.object_meta,
        }

    def other_members(self) -> Atom | None:
        additional = self.node.additional_properties
        if additional is None:
            return DEDUCED if self.preserves or not self.properties else None
        if isinstance(additional, bool):
            return DEDUCED if additional else None
        return self.atom(additional)


class _Text:
    """The schema of a text."""

    type = "string"
    format = ""
    properties: Mapping[str, Topology] = {}
    items = None
    additional_properties = None
    list_type = None
    list_map_keys: tuple[str, ...] = ()
    map_type = None
    patch_strategy = ""
    patch_merge_key = ""
    preserve_unknown = False
    embedded_resource = False
    whole = False
    default: Any = UNSET

    def child(self, name: str) -> None:
        """None."""
        del name


def atom_of(schema: Topology) -> Atom:
    """The atom of a kind that publishes its whole schema."""
    return _atom(schema, None, preserves=False)


def resource_atom(schema: Topology, object_meta: Topology) -> Atom:
    """The atom of a custom resource, whose schema leaves its type and its metadata to the API."""
    return _atom(schema, object_meta, preserves=False, is_root=True)


def _atom(
    node: Topology, object_meta: Topology | None, *, preserves: bool, is_root: bool = False
) -> Atom:
    if node.whole:
        return UNTYPED
    preserves = preserves or node.preserve_unknown
    source = _Source(node, object_meta, preserves, is_root or node.embedded_resource)
    type_ = node.type
    if type_ == "object":
        return Atom(map_=_map(source))
    if type_ == "array":
        return Atom(list_=_list(source))
    if type_ == "string":
        return Atom("string" if node.format in ("", "byte") else "untyped")
    scalar = _SCALARS.get(type_)
    return Atom(scalar) if scalar else Atom("untyped", _list(source), _map(source))


def _map(source: _Source) -> MapAtom:
    is_free = not source.properties and source.node.additional_properties in (None, True)
    return MapAtom(source, atomic=source.node.map_type == "atomic", deduced=is_free)


def _list(source: _Source) -> ListAtom:
    node = source.node
    if node.list_type is not None:
        keys = node.list_map_keys if node.list_type == "map" else ()
        return ListAtom(source, atomic=node.list_type == "atomic", keys=keys)
    if node.patch_strategy in _MERGING:
        keys = (node.patch_merge_key,) if node.patch_merge_key else ()
        return ListAtom(source, atomic=False, keys=keys)
    return ListAtom(source, atomic=True, keys=())
