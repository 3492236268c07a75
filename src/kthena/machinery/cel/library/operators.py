"""Operators: arithmetic, logic, relations and containers, with the errors of cel-go."""

import math
from collections.abc import Callable
from typing import Any

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.functions import Library
from kthena.machinery.cel.library import numbers
from kthena.machinery.cel.library.times import checked_duration, checked_timestamp
from kthena.machinery.cel.typesystem import Type
from kthena.machinery.cel.values import (
    MIN_INT,
    CelError,
    Duration,
    ListValue,
    Timestamp,
    Uint,
    equal,
    find_in_map,
    is_list,
    is_map,
    no_such_overload,
    trait_missing,
)

LIBRARY = Library()

A = types.parameter("A")
B = types.parameter("B")

# --- arithmetic -----------------------------------------------------------------------------------


def _add_times(left: Any, right: Any) -> Any:
    if isinstance(left, Duration) and isinstance(right, Duration):
        return checked_duration(left.nanoseconds + right.nanoseconds)
    if isinstance(left, Timestamp) and isinstance(right, Duration):
        return checked_timestamp(left.nanoseconds + right.nanoseconds, left.offset_s)
    if isinstance(left, Duration) and isinstance(right, Timestamp):
        return checked_timestamp(left.nanoseconds + right.nanoseconds, right.offset_s)
    raise no_such_overload()


def add(left: Any, right: Any) -> Any:
    """The operator `+`."""
    kind = type(left)
    if kind in (int, Uint, float, str, bytes):
        if type(right) is not kind:
            raise no_such_overload()
        if kind is int:
            return numbers.checked_int(left + right)
        return numbers.checked_uint(left + right) if kind is Uint else left + right
    if isinstance(left, ListValue):
        return left.concatenate(right)
    if kind is list:
        if not is_list(right):
            raise no_such_overload()
        return [*left, *right]
    if kind in (Duration, Timestamp):
        return _add_times(left, right)
    raise trait_missing("_+_", left)


def subtract(left: Any, right: Any) -> Any:
    """The operator `-`."""
    kind = type(left)
    if kind is Timestamp:
        if isinstance(right, Timestamp):
            return checked_duration(left.nanoseconds - right.nanoseconds)
        if not isinstance(right, Duration):
            raise no_such_overload()
        return checked_timestamp(left.nanoseconds - right.nanoseconds, left.offset_s)
    if kind not in (int, Uint, float, Duration):
        raise trait_missing("_-_", left)
    if type(right) is not kind:
        raise no_such_overload()
    if kind is Duration:
        return checked_duration(left.nanoseconds - right.nanoseconds)
    if kind is int:
        return numbers.checked_int(left - right)
    return numbers.checked_uint(left - right) if kind is Uint else left - right


def _number_operator(
    name: str, on_int: Callable[[int, int], int], on_double: Callable[[float, float], float] | None
) -> Callable[[Any, Any], Any]:
    """An operator on two ints, two uints or two doubles."""

    def apply(left: Any, right: Any) -> Any:
        kind = type(left)
        if kind not in (int, Uint) and (kind is not float or on_double is None):
            raise trait_missing(name, left)
        if type(right) is not kind:
            raise no_such_overload()
        if kind is float and on_double is not None:
            return on_double(left, right)
        result = on_int(left, right)
        return numbers.checked_int(result) if kind is int else numbers.checked_uint(result)

    return apply


def _divide_ints(left: int, right: int) -> int:
    if right == 0:
        raise CelError("division by zero")
    return numbers.divide(left, right)


def _divide_doubles(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _remainder_ints(left: int, right: int) -> int:
    if right == 0:
        raise CelError("modulus by zero")
    if (left, right) == (MIN_INT, -1):
        raise CelError("integer overflow")
    return numbers.remainder(left, right)


multiply = _number_operator("_*_", lambda x, y: x * y, lambda x, y: x * y)
divide = _number_operator("_/_", _divide_ints, _divide_doubles)
modulo = _number_operator("_%_", _remainder_ints, None)


def negate(value: Any) -> Any:
    """The unary operator `-`."""
    if type(value) is int:
        return numbers.checked_int(-value)
    if type(value) is float:
        return -value
    if type(value) is Duration:
        return checked_duration(-value.nanoseconds)
    raise no_such_overload() if isinstance(value, bool) else trait_missing("-_", value)


def logical_not(value: Any) -> bool:
    """The operator `!`."""
    if type(value) is not bool:
        raise no_such_overload()
    return not value


_ARITHMETIC: list[tuple[str, Callable[[Any, Any], Any], list[tuple[Type, Type, Type]]]] = [
    (
        "_+_",
        add,
        [
            (types.BYTES, types.BYTES, types.BYTES),
            (types.DOUBLE, types.DOUBLE, types.DOUBLE),
            (types.DURATION, types.DURATION, types.DURATION),
            (types.DURATION, types.TIMESTAMP, types.TIMESTAMP),
            (types.TIMESTAMP, types.DURATION, types.TIMESTAMP),
            (types.INT, types.INT, types.INT),
            (types.list_of(A), types.list_of(A), types.list_of(A)),
            (types.STRING, types.STRING, types.STRING),
            (types.UINT, types.UINT, types.UINT),
        ],
    ),
    (
        "_-_",
        subtract,
        [
            (types.DOUBLE, types.DOUBLE, types.DOUBLE),
            (types.DURATION, types.DURATION, types.DURATION),
            (types.INT, types.INT, types.INT),
            (types.TIMESTAMP, types.DURATION, types.TIMESTAMP),
            (types.TIMESTAMP, types.TIMESTAMP, types.DURATION),
            (types.UINT, types.UINT, types.UINT),
        ],
    ),
    ("_*_", multiply, [(t, t, t) for t in (types.DOUBLE, types.INT, types.UINT)]),
    ("_/_", divide, [(t, t, t) for t in (types.DOUBLE, types.INT, types.UINT)]),
    ("_%_", modulo, [(t, t, t) for t in (types.INT, types.UINT)]),
]
for _name, _implementation, _signatures in _ARITHMETIC:
    for _left, _right, _result in _signatures:
        LIBRARY.function(_name, [_left, _right], _result)(_implementation)
LIBRARY.function("-_", [types.DOUBLE], types.DOUBLE)(negate)
LIBRARY.function("-_", [types.INT], types.INT)(negate)
LIBRARY.function("!_", [types.BOOL], types.BOOL)(logical_not)

# --- logic and relations --------------------------------------------------------------------------


def _never(*_args: Any) -> Any:
    """Stands for operators that the evaluator treats by itself."""
    raise no_such_overload()


LIBRARY.function("_?_:_", [types.BOOL, A, A], A)(_never)
LIBRARY.function("_&&_", [types.BOOL, types.BOOL], types.BOOL)(_never)
LIBRARY.function("_||_", [types.BOOL, types.BOOL], types.BOOL)(_never)
LIBRARY.function("@not_strictly_false", [types.BOOL], types.BOOL)(_never)
LIBRARY.function("_==_", [A, A], types.BOOL)(equal)
LIBRARY.function("_!=_", [A, A], types.BOOL)(lambda left, right: not equal(left, right))

RELATIONS: dict[str, Callable[[int], bool]] = {
    "_<_": lambda order: order < 0,
    "_<=_": lambda order: order <= 0,
    "_>_": lambda order: order > 0,
    "_>=_": lambda order: order >= 0,
}
_ORDERED_PAIRS = [
    (types.BOOL, types.BOOL),
    (types.INT, types.INT),
    (types.INT, types.DOUBLE),
    (types.INT, types.UINT),
    (types.UINT, types.UINT),
    (types.UINT, types.DOUBLE),
    (types.UINT, types.INT),
    (types.DOUBLE, types.DOUBLE),
    (types.DOUBLE, types.INT),
    (types.DOUBLE, types.UINT),
    (types.STRING, types.STRING),
    (types.BYTES, types.BYTES),
    (types.TIMESTAMP, types.TIMESTAMP),
    (types.DURATION, types.DURATION),
]
for _name in RELATIONS:
    for _left, _right in _ORDERED_PAIRS:
        LIBRARY.function(_name, [_left, _right], types.BOOL)(_never)

# --- containers -----------------------------------------------------------------------------------

LIBRARY.function("_[_]", [types.list_of(A), types.INT], A)(_never)
LIBRARY.function("_[_]", [types.map_of(A, B), A], B)(_never)


def contains(value: Any, container: Any) -> bool:
    """The operator `in`."""
    if isinstance(container, ListValue):
        return container.contains(value)
    if type(container) is list:
        return any(equal(value, element) for element in container)
    if is_map(container):
        return find_in_map(container, value)[0]
    raise no_such_overload()


LIBRARY.function("@in", [A, types.list_of(A)], types.BOOL)(contains)
LIBRARY.function("@in", [A, types.map_of(A, B)], types.BOOL)(contains)

for _sized in (types.BYTES, types.list_of(A), types.map_of(A, B), types.STRING):
    LIBRARY.function("size", [_sized], types.INT)(len)
    LIBRARY.member("size", [_sized], types.INT)(len)
