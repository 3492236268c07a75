"""Sets of fields, in the form of FieldsV1.

A set is the JSON object that `fieldsV1` holds: its keys are path elements (`f:` a member, `k:` an entry
of a list-map, `v:` a value of a set, `i:` an index), its values the sets below. An element with an empty
value is in the set itself; so is one whose value has the key `.`, beside what is below it. Sets are
values: no function changes one, and results share parts with their arguments.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

FieldSet: TypeAlias = Mapping[str, Any]
"""The elements below a place, without that place itself."""

Node: TypeAlias = Mapping[str, Any]
"""A value of a set: what is below an element, and whether the element is in the set."""

EMPTY: Final[FieldSet] = {}
MEMBER: Final[Node] = {}
"""The node of an element that is in the set, with nothing below it."""

_SELF: Final = "."
_RANKS: Final = {"f": 0, "k": 1, "v": 2, "i": 3}
_HTML: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026",
                "\u2028": "\\u2028", "\u2029": "\\u2029"}  # fmt: skip


_PLAIN: Final = re.compile(r"[\w ./:@=,+*()-]*", re.ASCII)


class FieldSetError(ValueError):
    """A `fieldsV1` that is none."""


def field(name: str) -> str:
    """The element of a member."""
    return f"f:{name}"


def value_text(value: Any) -> str:
    """A scalar as it stands in an element: JSON as Go writes it."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return f'"{value}"'
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = msgspec.json.encode(value).decode()
    if any(character in text for character in _HTML):
        for character, escaped in _HTML.items():
            text = text.replace(character, escaped)
    return text


def key_element(keys: Mapping[str, Any]) -> str:
    """The element of the entry of a list-map that has these keys."""
    pairs = (f'"{name}":{value_text(keys[name])}' for name in sorted(keys))
    return f"k:{{{','.join(pairs)}}}"


def value_element(value: Any) -> str:
    """The element of a value of a set."""
    return f"v:{value_text(value)}"


def is_member(node: Node) -> bool:
    """Whether the element of the node is in the set."""
    return not node or _SELF in node


def below(node: Node) -> FieldSet:
    """The set below an element."""
    return {name: entry for name, entry in node.items() if name != _SELF} if _SELF in node else node


def node_of(children: FieldSet, *, member: bool) -> Node | None:
    """The node of an element; None where neither it nor anything below it is in the set."""
    if not member:
        return children or None
    return {_SELF: {}, **children} if children else MEMBER


def with_self(node: Node | None) -> Node:
    """The node, its element in the set."""
    return MEMBER if not node else node if _SELF in node else {_SELF: {}, **node}


def of_path(path: Sequence[str]) -> FieldSet:
    """The set of one path."""
    found: Node = MEMBER
    for element in reversed(path):
        found = {element: found}
    return found


def has(fields: FieldSet, path: Sequence[str]) -> bool:
    """Whether a path is in the set."""
    node: Node | None = fields
    for element in path:
        node = None if node is None or element == _SELF else node.get(element)
    return node is not None and bool(path) and is_member(node)


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """What is in either."""
    if not one or not other:
        return one or other
    found = dict(one)
    for element, node in other.items():
        mine = found.get(element)
        if mine is None:
            found[element] = node
        elif mine is not node:
            joined = node_of(
                union(below(mine), below(node)), member=is_member(mine) or is_member(node)
            )
            found[element] = joined
    return found


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """What is in both."""
    found = {}
    for element, node in one.items():
        theirs = other.get(element)
        if theirs is None:
            continue
        both = node_of(
            intersection(below(node), below(theirs)), member=is_member(node) and is_member(theirs)
        )
        if both is not None:
            found[element] = both
    return found


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """What is in one and not in the other; what is below an element that goes may stay."""
    if not other:
        return one
    found = {}
    for element, node in one.items():
        theirs = other.get(element)
        if theirs is None:
            found[element] = node
            continue
        rest = node_of(
            difference(below(node), below(theirs)),
            member=is_member(node) and not is_member(theirs),
        )
        if rest is not None:
            found[element] = rest
    return found


def recursive_difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """What is in one, without the elements of the other and all that is below those."""
    if not other:
        return one
    found = {}
    for element, node in one.items():
        theirs = other.get(element)
        if theirs is None:
            found[element] = node
        elif not is_member(theirs):
            rest = node_of(recursive_difference(below(node), below(theirs)), member=is_member(node))
            if rest is not None:
                found[element] = rest
    return found


def paths(fields: FieldSet, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of a set in the order of the API: what is at a place before what is below it."""
    ordered = sorted(fields, key=_order)
    for element in ordered:
        if is_member(fields[element]):
            yield (*prefix, element)
    for element in ordered:
        if fields[element]:
            yield from paths(below(fields[element]), (*prefix, element))


def path_text(path: Sequence[str]) -> str:
    """A path as errors show it, for instance `.spec.containers[name="a"].image`."""
    return "".join(map(_element_text, path))


def read(raw: Any) -> FieldSet:
    """The set of a `fieldsV1` from outside, its elements in their one spelling.

    Elements of an unknown sort are dropped, as the API does.

    Raises:
        FieldSetError: it is none.
    """
    if raw is None:
        return EMPTY
    if not isinstance(raw, Mapping):
        raise FieldSetError("fieldsV1 must be an object")
    found: dict[str, Any] = {}
    for element, node in raw.items():
        if element == _SELF:
            continue
        spelled = canonical(element)
        if spelled is None:
            continue
        if not isinstance(node, Mapping):
            raise FieldSetError(f"{element!r} must be an object")
        children = read(node)
        # What holds nothing but unknown elements counts as itself.
        found[spelled] = node_of(children, member=_SELF in node or not children)
    return found


@lru_cache(maxsize=4096)
def canonical(element: str) -> str | None:
    """The element in its one spelling; None for a sort that is not known.

    Raises:
        FieldSetError: it is malformed.
    """
    sort, colon, rest = element[:1], element[1:2], element[2:]
    if colon != ":":
        raise FieldSetError(f"missing colon: {element}")
    if sort == "f":
        return element
    try:
        if sort == "i":
            return f"i:{int(rest)}"
        if sort == "v":
            return value_element(msgspec.json.decode(rest))
        if sort == "k":
            return key_element(msgspec.json.decode(rest, type=dict[str, Any]))
    except (ValueError, TypeError) as exc:
        raise FieldSetError(f"{element}: {exc}") from exc
    return None


def keys_of(element: str) -> Mapping[str, Any]:
    """The keys of an element of a list-map."""
    found: Mapping[str, Any] = msgspec.json.decode(element[2:])
    return found


@lru_cache(maxsize=4096)
def _order(element: str) -> tuple[Any, ...]:
    sort, rest = element[:1], element[2:]
    rank = _RANKS.get(sort, 9)
    if sort == "k":
        return (rank, *((name, *_value_order(entry)) for name, entry in keys_of(element).items()))
    if sort == "v":
        return (rank, *_value_order(msgspec.json.decode(rest)))
    return (rank, int(rest) if sort == "i" else rest)


def _value_order(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, int | float):
        return (0, value)
    return (1, value) if isinstance(value, str) else (3, str(value))


def _element_text(element: str) -> str:
    sort, rest = element[:1], element[2:]
    if sort == "f":
        return f".{rest}"
    if sort == "k":
        pairs = (f"{name}={value_text(entry)}" for name, entry in keys_of(element).items())
        return f"[{','.join(pairs)}]"
    return f"[={rest}]" if sort == "v" else f"[{rest}]"
