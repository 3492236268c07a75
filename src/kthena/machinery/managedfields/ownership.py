"""Which fields a value has, and which fields of a set a schema knows."""

from typing import Any

from kthena.machinery.managedfields.atoms import Atom, ListAtom, MapAtom
from kthena.machinery.managedfields.elements import element_of
from kthena.machinery.managedfields.fieldsets import (
    EMPTY,
    MEMBER,
    FieldSet,
    Node,
    below,
    field,
    is_member,
    node_of,
    with_self,
)


def fields_of(value: Any, atom: Atom) -> FieldSet:
    """Every field that a value says something of, as an applier owns it.

    Raises:
        ElementError: an entry of an associative list has no keys.
    """
    return _fields(value, atom) or EMPTY


def _fields(value: Any, atom: Atom) -> Node | None:
    one = atom.deduced(value)
    if one.map is not None:
        if one.map.atomic:
            return MEMBER
        return _members(value, one.map) if isinstance(value, dict) else None
    if one.scalar is not None:
        return MEMBER
    if one.list is None or one.list.atomic:
        return MEMBER
    return _items(value, one.list) if isinstance(value, list) else None


def _members(value: dict[str, Any], atom: MapAtom) -> Node | None:
    found = {}
    for name, entry in value.items():
        member = atom.member(name)
        node = None if member is None else _fields(entry, member)
        if entry is None or entry == {} or not atom.has_field(name):
            node = with_self(node)
        if node is not None:
            found[field(name)] = node
    return found or None


def _items(value: list[Any], atom: ListAtom) -> Node | None:
    found: dict[str, Node] = {}
    repeated = set()
    for item in value:
        element = element_of(atom, item)
        if element in found:
            repeated.add(element)
        found[element] = with_self(_fields(item, atom.element))
    if not found:
        return None
    return {element: MEMBER if element in repeated else node for element, node in found.items()}


def _below(atom: Atom, element: str) -> Atom | None:
    """What is at an element of the values of an atom."""
    if element.startswith("f:"):
        return None if atom.map is None else atom.map.member(element[2:])
    return None if atom.list is None else atom.list.element


def with_named_fields(fields: FieldSet, atom: Atom | None) -> FieldSet:
    """The set, and each field that the schema names on the way to what is in it."""
    found = {}
    for element, node in fields.items():
        children = below(node)
        named = (
            bool(children)
            and atom is not None
            and atom.map is not None
            and element.startswith("f:")
            and atom.map.has_field(element[2:])
        )
        nested = None if atom is None else _below(atom, element)
        inner = with_named_fields(children, nested) if children else EMPTY
        found[element] = node_of(inner, member=is_member(node) or named) or MEMBER
    return found


def reconciled(fields: FieldSet, atom: Atom) -> FieldSet:
    """The set after a change of the schema: what became one value is owned as one."""
    found = {}
    for element, node in fields.items():
        nested = _below(atom, element)
        found[element] = node if nested is None else _reconciled_node(node, nested)
    return found


def _reconciled_node(node: Node, atom: Atom) -> Node:
    children = below(node)
    if not children:
        return node
    if atom.map is not None:
        if atom.map.free:
            return node
        if atom.map.atomic:
            return MEMBER
    elif atom.scalar is not None or atom.list is None:
        return node
    elif atom.list.atomic:
        return MEMBER
    return node_of(reconciled(children, atom), member=is_member(node)) or MEMBER
