"""What differs between two values, as sets of fields."""

from typing import Any, NamedTuple

import msgspec

from kthena.machinery.managedfields.atoms import ABSENT, Atom, ListAtom, MapAtom
from kthena.machinery.managedfields.elements import grouped
from kthena.machinery.managedfields.fieldsets import (
    EMPTY,
    MEMBER,
    FieldSet,
    Node,
    difference,
    field,
    recursive_difference,
    union,
)
from kthena.machinery.objects import equal_json

_ENCODER = msgspec.json.Encoder(order="deterministic")

_NUMBERS = (int, float)


class MismatchError(ValueError):
    """A value that its schema does not allow."""


class Comparison(NamedTuple):
    """The fields that only the first value has, that differ, and that only the second has."""

    removed: FieldSet
    modified: FieldSet
    added: FieldSet

    def without(self, ignored: FieldSet) -> "Comparison":
        """The comparison, some fields and what is below them left out."""
        if not ignored:
            return self
        return Comparison(*(recursive_difference(part, ignored) for part in self))

    def unchanged(self, fields: FieldSet) -> FieldSet:
        """The fields of a set that are the same in both values."""
        for part in (self.modified, self.added, self.removed):
            fields = difference(fields, part)
        return fields


class _Nodes(NamedTuple):
    """The same at one place: the nodes of its element."""

    removed: Node | None = None
    modified: Node | None = None
    added: Node | None = None


_SAME = _Nodes()
_REMOVED = _Nodes(removed=MEMBER)
_MODIFIED = _Nodes(modified=MEMBER)
_ADDED = _Nodes(added=MEMBER)


def compare(old: Any, new: Any, atom: Atom) -> Comparison:
    """What `new` changes in `old`; both are objects of the schema.

    Raises:
        MismatchError: neither fits the schema where they differ.
        ElementError: an entry of an associative list has no keys.
    """
    before, after = _without_equal(old, new)
    nodes = _compare(before, after, atom)
    return Comparison(*(EMPTY if part is None else part for part in nodes))


def _without_equal(old: Any, new: Any) -> tuple[Any, Any]:
    """Both objects without the members that are the same, which are most of it in most writes.

    Told by their text, since for Python true and 1 are equal.
    """
    if not isinstance(old, dict) or not isinstance(new, dict):
        return old, new
    same = {
        name
        for name in old.keys() & new.keys()
        if _ENCODER.encode(old[name]) == _ENCODER.encode(new[name])
    }
    if len(same) == len(old) == len(new):
        return {}, {}
    before = {name: value for name, value in old.items() if name not in same}
    return before, {name: value for name, value in new.items() if name not in same}


def _compare(old: Any, new: Any, atom: Atom) -> _Nodes:
    if old is ABSENT:
        return _Nodes(added=_whole(new, atom))
    if new is ABSENT:
        return _Nodes(removed=_whole(old, atom))
    if atom.is_one:
        return _as(atom, old, new)
    before, after = atom.deduced(old), atom.deduced(new)
    if before.same_as(after):
        return _as(after, old, new)
    return _joined(_as(before, old, new), _as(after, old, new))


def _whole(value: Any, atom: Atom) -> Node:
    """The node of a value that is in one object only: it, and all that is in it."""
    one = atom.deduced(value)
    if one.map is not None:
        if one.map.atomic or not value or not isinstance(value, dict):
            return MEMBER
        return _with_members(value, one.map)
    if one.scalar is None and one.list is not None:
        if one.list.atomic or not value or not isinstance(value, list):
            return MEMBER
        found: dict[str, Node] = {".": {}}
        for element, items in grouped(one.list, value).items():
            # Entries that repeat are taken as one value.
            found[element] = MEMBER if len(items) > 1 else _whole(items[0], one.list.element)
        return found
    return MEMBER


def _with_members(value: dict[str, Any], atom: MapAtom) -> Node:
    found: dict[str, Node] = {".": {}}
    for name, entry in value.items():
        below = atom.member(name)
        if below is None:
            raise MismatchError(f".{name}: field not declared in schema")
        found[field(name)] = MEMBER if below.is_scalar else _whole(entry, below)
    return found


def _joined(one: _Nodes, other: _Nodes) -> _Nodes:
    if one is _SAME:
        return other
    parts = []
    for mine, theirs in zip(one, other, strict=True):
        if mine is None or theirs is None:
            parts.append(theirs if mine is None else mine)
        else:
            parts.append(union({"": mine}, {"": theirs})[""])
    return _Nodes(*parts)


def _as(atom: Atom, old: Any, new: Any) -> _Nodes:
    """The difference by one sort of the atom."""
    if atom.map is not None:
        return _maps(atom.map, old, new)
    if atom.scalar is not None:
        return _leaf(old, new)
    if atom.list is not None:
        return _lists(atom.list, old, new)
    raise MismatchError("no value is allowed here")


def _leaf(old: Any, new: Any) -> _Nodes:
    return _SAME if _equal(old, new) else _MODIFIED


def _equal(old: Any, new: Any) -> bool:
    """Equality in which 1 and 1.0 are the same number, and true is none."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_equal(old[name], new[name]) for name in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_equal, old, new))
    if type(old) in _NUMBERS and type(new) in _NUMBERS:
        return bool(old == new)
    return equal_json(old, new)


def _maps(atom: MapAtom, old: Any, new: Any) -> _Nodes:
    left = old if isinstance(old, dict) else None
    right = new if isinstance(new, dict) else None
    # Empty and null are told apart: a pair of them is compared as one value.
    if atom.atomic or not (left or right):
        return _leaf(old, new)
    left, right = left or {}, right or {}
    parts: tuple[dict[str, Node], dict[str, Node], dict[str, Node]] = ({}, {}, {})
    for name in left if left.keys() == right.keys() else {**left, **right}:
        below = atom.member(name)
        if below is None:
            raise MismatchError(f".{name}: field not declared in schema")
        nodes = _compare(left.get(name, ABSENT), right.get(name, ABSENT), below)
        _add(parts, field(name), nodes)
    return _nodes(parts)


def _lists(atom: ListAtom, old: Any, new: Any) -> _Nodes:
    left = old if isinstance(old, list) else None
    right = new if isinstance(new, list) else None
    if atom.atomic or not (left or right):
        return _leaf(old, new)
    before, after = grouped(atom, left or ()), grouped(atom, right or ())
    parts: tuple[dict[str, Node], dict[str, Node], dict[str, Node]] = ({}, {}, {})
    for element in {**before, **after}:
        nodes = _entries(atom, before.get(element, []), after.get(element, []))
        _add(parts, element, nodes)
    return _nodes(parts)


def _entries(atom: ListAtom, before: list[Any], after: list[Any]) -> _Nodes:
    """The difference between entries of the same element; repeated ones are taken as one value."""
    if len(before) <= 1 and len(after) <= 1:
        one = before[0] if before else ABSENT
        other = after[0] if after else ABSENT
        return _compare(one, other, atom.element)
    if len(before) > 1 and len(after) > 1:
        return _SAME if _equal(before, after) else _MODIFIED
    if len(before) > 1:
        nodes = _compare(ABSENT, after[0], atom.element) if after else _SAME
        return _joined(nodes, _REMOVED)
    nodes = _compare(before[0], ABSENT, atom.element) if before else _SAME
    return _joined(nodes, _ADDED)


def _add(parts: tuple[dict[str, Node], ...], element: str, nodes: _Nodes) -> None:
    if nodes is _SAME:
        return
    for part, node in zip(parts, nodes, strict=True):
        if node is not None:
            part[element] = node


def _nodes(parts: tuple[dict[str, Node], ...]) -> _Nodes:
    removed, modified, added = parts
    if not (removed or modified or added):
        return _SAME
    return _Nodes(removed or None, modified or None, added or None)
