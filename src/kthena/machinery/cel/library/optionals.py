"""Functions of optional values; `or`, `orValue` and selections are the evaluator's own."""

from typing import Any

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.functions import Library
from kthena.machinery.cel.values import (
    NONE,
    CelError,
    Duration,
    Optional,
    describe_key,
    element_at,
    is_list,
    is_map,
    no_such_overload,
)

LIBRARY = Library()

_K = types.parameter("K")
_V = types.parameter("V")
_OPTIONAL = types.optional_of(_V)
_LIST = types.list_of(_V)
_MAP = types.map_of(_K, _V)


def _never(*_args: Any) -> Any:
    """Stands for what the evaluator treats by itself."""
    raise no_such_overload()


LIBRARY.function("optional.of", [_V], _OPTIONAL)(Optional)
LIBRARY.function("optional.none", [], _OPTIONAL)(lambda: NONE)
LIBRARY.member("value", [_OPTIONAL], _V)(lambda optional: optional.value)
LIBRARY.member("hasValue", [_OPTIONAL], types.BOOL)(lambda optional: optional.has_value)
LIBRARY.member("or", [_OPTIONAL, _OPTIONAL], _OPTIONAL)(_never)
LIBRARY.member("orValue", [_OPTIONAL, _V], _V)(_never)
LIBRARY.function("_?._", [types.DYN, types.STRING], _OPTIONAL)(_never)
LIBRARY.function("_[?_]", [_LIST, types.INT], _OPTIONAL)(_never)
LIBRARY.function("_[?_]", [types.optional_of(_LIST), types.INT], _OPTIONAL)(_never)
LIBRARY.function("_[?_]", [_MAP, _K], _OPTIONAL)(_never)
LIBRARY.function("_[?_]", [types.optional_of(_MAP), _K], _OPTIONAL)(_never)
LIBRARY.function("_[_]", [types.optional_of(_LIST), types.INT], _OPTIONAL)(_never)
LIBRARY.function("_[_]", [types.optional_of(_MAP), _K], _OPTIONAL)(_never)


@LIBRARY.function("optional.ofNonZeroValue", [_V], _OPTIONAL)
def _of_non_zero(value: Any) -> Optional:
    sized = isinstance(value, (str, bytes)) or is_list(value) or is_map(value)
    is_zero = (
        value is None
        or (sized and not len(value))
        or (isinstance(value, (bool, int, float)) and not value)
        or value == Duration(0)
    )
    return NONE if is_zero else Optional(value)


@LIBRARY.member("first", [_LIST], _OPTIONAL)
def _first(values: Any) -> Optional:
    return Optional(element_at(values, 0)) if len(values) else NONE


@LIBRARY.member("last", [_LIST], _OPTIONAL)
def _last(values: Any) -> Optional:
    return Optional(element_at(values, len(values) - 1)) if len(values) else NONE


@LIBRARY.function("optional.unwrap", [types.list_of(_OPTIONAL)], _LIST)
@LIBRARY.member("unwrapOpt", [types.list_of(_OPTIONAL)], _LIST)
def _unwrap(optionals: Any) -> list[Any]:
    elements = list(optionals)
    for element in elements:
        if not isinstance(element, Optional):
            raise CelError(f"value {element} is not optional")
    return [element.value for element in elements if element.has_value]


@LIBRARY.function("cel.@mapInsert", [_MAP, _K, _V], _MAP)
def _insert(target: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    """Adds an entry to a map that nothing else refers to: the accumulator of a macro."""
    if key in target:
        raise CelError(f"insert failed: key {describe_key(key)} already exists")
    target[key] = value
    return target


@LIBRARY.function("cel.@mapInsert", [_MAP, _MAP], _MAP)
def _insert_all(target: dict[Any, Any], entries: Any) -> dict[Any, Any]:
    for key in entries:
        found = entries.find(key)[1] if not isinstance(entries, dict) else entries[key]
        target = _insert(target, key, found)
    return target
