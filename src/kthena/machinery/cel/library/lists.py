"""Functions on lists: those of Kubernetes, of cel-go's extension (version 3), and sets."""

import functools
import itertools
from typing import Any

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.functions import Library
from kthena.machinery.cel.library.operators import add, contains
from kthena.machinery.cel.typesystem import Type
from kthena.machinery.cel.values import (
    CelCancelledError,
    CelError,
    Duration,
    Uint,
    compare,
    element_at,
    equal,
    is_list,
    type_name,
)

LIBRARY = Library()

_A = types.parameter("A")
_LIST = types.list_of(_A)
_COMPARABLE = (
    types.INT,
    types.UINT,
    types.DOUBLE,
    types.BOOL,
    types.DURATION,
    types.TIMESTAMP,
    types.STRING,
    types.BYTES,
)
_ZEROS: list[tuple[Type, Any]] = [
    (types.INT, 0),
    (types.UINT, Uint(0)),
    (types.DOUBLE, 0.0),
    (types.DURATION, Duration(0)),
]


def _order(left: Any, right: Any) -> int | None:
    """The order of two elements, None where there is none: that is no error here."""
    try:
        return compare(left, right)
    except CelError:
        return None


def _is_sorted(values: Any) -> bool:
    return all(_order(left, right) != 1 for left, right in itertools.pairwise(values))


def _max(values: Any) -> Any:
    return _extreme("max", values, -1)


def _min(values: Any) -> Any:
    return _extreme("min", values, 1)


def _extreme(name: str, values: Any, replace_on: int) -> Any:
    elements = iter(values)
    best = next(elements, _NOTHING)
    if best is _NOTHING:
        raise CelError(f"{name} called on empty list")
    for element in elements:
        if _order(best, element) == replace_on:
            best = element
    return best


_NOTHING = object()
_MAX_RANGE = 1_000_000
"""The server's limit on the cost of a call; that of one element is one."""


@LIBRARY.member("indexOf", [_LIST, _A], types.INT)
def _index_of(values: Any, wanted: Any) -> int:
    return next((index for index, element in enumerate(values) if equal(element, wanted)), -1)


@LIBRARY.member("lastIndexOf", [_LIST, _A], types.INT)
def _last_index_of(values: Any, wanted: Any) -> int:
    elements = list(values)
    for index in range(len(elements) - 1, -1, -1):
        if equal(elements[index], wanted):
            return index
    return -1


def _sort(values: Any) -> list[Any]:
    return _sort_by_keys(values, values)


def _sort_by_keys(values: Any, keys: Any) -> list[Any]:
    elements, ordered = list(values), list(keys)
    if len(elements) != len(ordered):
        raise CelError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(elements)} and {len(ordered)} elements respectively"
        )
    if len({type_name(key) for key in ordered}) > 1:
        raise CelError("list elements must have the same type")
    # An equal pair keeps its order, so the elements themselves are never compared.
    by_key = functools.cmp_to_key(compare)
    pairs = sorted(zip(ordered, elements, strict=True), key=lambda pair: by_key(pair[0]))
    return [element for _, element in pairs]


for _type in _COMPARABLE:
    LIBRARY.member("isSorted", [types.list_of(_type)], types.BOOL)(_is_sorted)
    LIBRARY.member("max", [types.list_of(_type)], _type)(_max)
    LIBRARY.member("min", [types.list_of(_type)], _type)(_min)
    LIBRARY.member("sort", [types.list_of(_type)], types.list_of(_type))(_sort)
    LIBRARY.member("@sortByAssociatedKeys", [_LIST, types.list_of(_type)], _LIST)(_sort_by_keys)
for _type, _zero in _ZEROS:
    LIBRARY.member("sum", [types.list_of(_type)], _type)(
        functools.partial(lambda zero, values: functools.reduce(add, values, zero), _zero)
    )


@LIBRARY.member("slice", [_LIST, types.INT, types.INT], _LIST)
def _slice(values: Any, start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        text = "start index must be less than or equal to end index"
        raise CelError(f"cannot slice({start}, {end}), {text}")
    if len(values) < end:
        raise CelError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return [element_at(values, index) for index in range(start, end)]


@LIBRARY.member("flatten", [types.list_of(_LIST)], _LIST)
def _flatten_once(values: Any) -> list[Any]:
    return _flatten(values, 1)


@LIBRARY.member("flatten", [types.list_of(types.DYN), types.INT], types.list_of(types.DYN))
def _flatten(values: Any, depth: int) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    flat: list[Any] = []
    for element in values:
        if depth and is_list(element):
            flat += _flatten(element, depth - 1)
        else:
            flat.append(element)
    return flat


@LIBRARY.function("lists.range", [types.INT], types.list_of(types.INT))
def _range(count: int) -> list[int]:
    if count > _MAX_RANGE:
        raise CelCancelledError
    return list(range(count))


@LIBRARY.member("reverse", [_LIST], _LIST)
def _reverse(values: Any) -> list[Any]:
    return list(values)[::-1]


@LIBRARY.member("distinct", [_LIST], _LIST)
def _distinct(values: Any) -> list[Any]:
    unique: list[Any] = []
    for element in values:
        if not any(equal(element, other) for other in unique):
            unique.append(element)
    return unique


@LIBRARY.function("sets.contains", [_LIST, _LIST], types.BOOL)
def _sets_contain(values: Any, subset: Any) -> bool:
    return all(contains(element, values) for element in subset)


@LIBRARY.function("sets.equivalent", [_LIST, _LIST], types.BOOL)
def _sets_equivalent(left: Any, right: Any) -> bool:
    return _sets_contain(left, right) and _sets_contain(right, left)


@LIBRARY.function("sets.intersects", [_LIST, _LIST], types.BOOL)
def _sets_intersect(left: Any, right: Any) -> bool:
    return any(contains(element, right) for element in left)
