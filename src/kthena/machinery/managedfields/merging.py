"""Putting values together along a schema, and taking fields out of them."""

from typing import Any

from kthena.machinery.managedfields.atoms import ABSENT, Atom, ListAtom, MapAtom
from kthena.machinery.managedfields.elements import element_of
from kthena.machinery.managedfields.fieldsets import FieldSet, below, field, is_member


def merge(live: Any, config: Any, atom: Atom) -> Any:
    """The live value with all that the configuration says; nothing is removed.

    Lists that merge keep the order of the live value where the configuration says nothing else, and
    take that of the configuration for what it names.
    """
    one = atom.deduced(live if config is ABSENT else config)
    if one.map is not None:
        return _merge_maps(one.map, live, config)
    if one.scalar is None and one.list is not None:
        return _merge_lists(one.list, live, config)
    return live if config is ABSENT else config


def _merge_maps(atom: MapAtom, live: Any, config: Any) -> Any:
    left = live if isinstance(live, dict) else None
    right = config if isinstance(config, dict) else None
    if atom.atomic or not (left or right):
        return live if config is ABSENT else config
    left, right = left or {}, right or {}
    merged = {}
    for name in {**left, **right}:
        member = atom.member(name)
        if member is None:
            continue
        merged[name] = merge(left.get(name, ABSENT), right.get(name, ABSENT), member)
    return merged


def _merge_lists(atom: ListAtom, live: Any, config: Any) -> Any:
    left = live if isinstance(live, list) else None
    right = config if isinstance(config, list) else None
    if atom.atomic or not (left or right):
        return live if config is ABSENT else config
    return _Weave(atom, left or [], right or []).merged()


class _Weave:
    """Two lists merged into one. Mutable while it runs: where it stands in either."""

    def __init__(self, atom: ListAtom, live: list[Any], config: list[Any]) -> None:
        self._element = atom.element
        self._live = live
        self._left = [element_of(atom, item) for item in live]
        self._right = [element_of(atom, item) for item in config]
        self._right_items: dict[str, Any] = dict(zip(self._right, config, strict=True))
        self._left_items: dict[str, Any] = {}
        for element, item in zip(self._left, live, strict=True):
            # Entries that repeat are not merged with what comes.
            self._left_items[element] = None if element in self._left_items else item
        self._shared = [element for element in self._right if element in self._left_items]
        self._out: list[Any] = []

    def merged(self) -> list[Any]:
        """The entries in their new order."""
        left, right = self._left, self._right
        shared = iter(self._shared)
        next_shared = next(shared, None)
        taken: set[str] = set()
        i = j = 0
        while i < len(left) or j < len(right):
            if i < len(left) and j < len(right):
                if left[i] == right[j]:
                    taken.add(left[i])
                    self._take(left[i])
                    i, j = i + 1, j + 1
                    next_shared = next(shared, None)
                    continue
                if left[i] in self._right_items and next_shared not in (None, left[i]):
                    # It comes later, where the configuration has it.
                    i += 1
                    continue
            if i < len(left):
                if left[i] not in self._right_items:
                    self._out.append(merge(self._live[i], ABSENT, self._element))
                    i += 1
                    continue
                if left[i] in taken:
                    i += 1
            if j < len(right):
                taken.add(right[j])
                self._take(right[j])
                if next_shared == right[j]:
                    next_shared = next(shared, None)
                j += 1
        return self._out

    def _take(self, element: str) -> None:
        live = self._left_items.get(element, ABSENT)
        self._out.append(merge(live, self._right_items[element], self._element))


def remove(value: Any, fields: FieldSet, atom: Atom) -> Any:
    """The value without the fields of a set; a value that merges as a whole goes as a whole."""
    one = atom.deduced(value)
    if one.map is not None:
        return _remove_members(value, fields, one.map)
    if one.scalar is not None or one.list is None:
        return value
    return _remove_items(value, fields, one.list)


def _remove_members(value: Any, fields: FieldSet, atom: MapAtom) -> Any:
    if not isinstance(value, dict) or not value or atom.atomic:
        return None
    kept = {}
    for name, entry in value.items():
        node = fields.get(field(name))
        if node is None:
            kept[name] = entry
        elif not is_member(node):
            member = atom.member(name)
            kept[name] = entry if member is None else remove(entry, below(node), member)
    return kept or None


def _remove_items(value: Any, fields: FieldSet, atom: ListAtom) -> Any:
    if not isinstance(value, list) or not value or atom.atomic:
        return None
    kept = []
    for item in value:
        node = fields.get(element_of(atom, item))
        if node is None:
            kept.append(item)
        elif not is_member(node):
            kept.append(remove(item, below(node), atom.element))
    return kept or None
