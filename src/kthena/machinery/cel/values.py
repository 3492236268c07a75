"""Values at run time, and what holds for all of them: types, equality, order.

null, bool, double, string and bytes are None, bool, float, str and bytes; an int is an int, and a
uint a `Uint`. Lists and maps are Python lists and dicts, which may hold raw JSON, or the objects of
`objects` for data that has a schema. An error is raised as `CelError`; logical operators and some
macros catch it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from kthena.machinery.gotext import format_float

MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**63 - 1
MAX_UINT: Final = 2**64 - 1


class CelError(Exception):
    """An evaluation that failed; the text is cel-go's."""


class CelCancelledError(Exception):
    """An evaluation that has taken too long. It is no `CelError`, which other operands may outweigh."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


def no_such_overload(function: str = "") -> CelError:
    """The error for values that a function does not take."""
    return CelError(f"no such overload: {function}" if function else "no such overload")


def trait_missing(function: str, operand: Any) -> CelError:
    """The error for a first operand of a type that an operator does not know at all."""
    # cel-go asks values of these types themselves, as if the operator were a member of theirs.
    return no_such_overload("" if isinstance(operand, (str, Duration, Timestamp)) else function)


class Uint(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time in nanoseconds, within 64 bits."""

    nanoseconds: int


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A point in time: nanoseconds since 1970; the offset of its zone matters to its text only."""

    nanoseconds: int
    offset_s: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value: what `type(x)` gives, and what the name of a type stands for."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Optional:
    """A value or none. `NONE` is the one without a value."""

    _value: Any = None
    has_value: bool = True

    @property
    def value(self) -> Any:
        """The value; raises `CelError` where there is none."""
        if not self.has_value:
            raise CelError("optional.none() dereference")
        return self._value


NONE: Final = Optional(None, has_value=False)


class ListValue:
    """A list that is no Python list: the base of lists that have a schema."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def at(self, index: int) -> Any:
        """The element at an index in range."""
        raise NotImplementedError

    def equals(self, other: Any) -> bool:
        """Equality as the left operand."""
        raise NotImplementedError

    def contains(self, value: Any) -> bool:
        """The operator `in`."""
        raise NotImplementedError

    def concatenate(self, other: Any) -> Any:
        """The operator `+` as the left operand."""
        raise NotImplementedError


class MapValue:
    """A map that is no dict: the base of objects and maps that have a schema."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def find(self, key: Any) -> tuple[bool, Any]:
        """Whether the key is there, and its value."""
        raise NotImplementedError

    def equals(self, other: Any) -> bool:
        """Equality as the left operand."""
        raise NotImplementedError

    def raw(self) -> dict[str, Any]:
        """The JSON behind it."""
        raise NotImplementedError


def is_key(value: Any) -> bool:
    """Whether a value can be the key of a map or the index of a list."""
    return isinstance(value, (str, bool, int, float))


def is_list(value: Any) -> bool:
    """Whether a value is a list."""
    return isinstance(value, (list, ListValue))


def is_map(value: Any) -> bool:
    """Whether a value is a map."""
    return isinstance(value, (dict, MapValue))


def find_in_map(container: Any, key: Any) -> tuple[bool, Any]:
    """Whether a map has a key, and its value; numbers of all types are one key if equal."""
    if isinstance(container, MapValue):
        return container.find(key)
    if isinstance(key, float) and not key.is_integer():
        return False, None
    if not isinstance(key, (str, int, float)):
        return False, None
    if key not in container:
        return False, None
    # Python's True and 1 are one key; the keys of a map are of one type.
    if isinstance(key, bool) != isinstance(next(iter(container)), bool):
        return False, None
    return True, container[key]


def element_at(container: Any, index: int) -> Any:
    """The element of a list at an index in range."""
    return container.at(index) if isinstance(container, ListValue) else container[index]


def is_number(value: Any) -> bool:
    """Whether a value is an int, a uint or a double."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def equal(left: Any, right: Any) -> bool:
    """The operator `==`: values of different types are different, numbers compare by value."""
    if left is None or right is None or isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, (int, float)):
        return isinstance(right, (int, float)) and compare_numbers(left, right) == 0
    if isinstance(left, (list, dict, ListValue, MapValue, Optional)):
        return _equal_containers(left, right)
    return type(left) is type(right) and bool(left == right)


def _equal_containers(left: Any, right: Any) -> bool:
    if isinstance(left, list):
        return is_list(right) and len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict):
        return _equal_maps(left, right)
    if not isinstance(left, Optional):
        return bool(left.equals(right))
    if not isinstance(right, Optional) or left.has_value != right.has_value:
        return False
    return not left.has_value or equal(left.value, right.value)


def _equal_maps(left: dict[Any, Any], right: Any) -> bool:
    if not is_map(right) or len(left) != len(right):
        return False
    for key, value in left.items():
        found, other = find_in_map(right, key)
        if not found or not equal(value, other):
            return False
    return True


def compare_numbers(left: float, right: float) -> int | None:
    """-1, 0 or 1; None where one is NaN. A double compares to an int as a double, as in cel-go."""
    if math.isnan(left) or math.isnan(right):
        return None
    if (type(left) is float) != (type(right) is float):
        left, right = _as_doubles(left, right)
    return (left > right) - (left < right)


def _as_doubles(left: float, right: float) -> tuple[float, float]:
    """Doubles beyond the range of the integer keep their order; within it the integer is rounded."""
    double, integer = (left, right) if type(left) is float else (right, left)
    highest = float(MAX_UINT if isinstance(integer, Uint) else MAX_INT)
    lowest = 0.0 if isinstance(integer, Uint) else float(MIN_INT)
    if lowest <= double <= highest:
        return float(left), float(right)
    return left, right


_ORDERED = (bool, int, float, str, bytes, Duration, Timestamp)


def is_ordered(value: Any) -> bool:
    """Whether there is an order between values of this type."""
    return isinstance(value, _ORDERED)


def compare(left: Any, right: Any) -> int:
    """The order of two values: -1, 0 or 1.

    Raises:
        CelError: there is none between them.
    """
    if is_number(left) and is_number(right):
        order = compare_numbers(left, right)
        if order is None:
            raise CelError("NaN values cannot be ordered")
        return order
    same_type = type(left) is type(right) and is_ordered(left)
    if not same_type:
        raise no_such_overload()
    return int(left > right) - int(left < right)


_TYPE_NAMES: list[tuple[type, str]] = [
    (bool, "bool"),
    (Uint, "uint"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (list, "list"),
    (ListValue, "list"),
    (dict, "map"),
    (MapValue, "map"),
    (Duration, "google.protobuf.Duration"),
    (Timestamp, "google.protobuf.Timestamp"),
    (TypeValue, "type"),
    (Optional, "optional_type"),
]


def register_type(python_type: type, name: str) -> None:
    """Gives values of a library's own class their type name."""
    _TYPE_NAMES.append((python_type, name))


def type_name(value: Any) -> str:
    """The name of a value's type, as `type(x)` compares it."""
    if value is None:
        return "null_type"
    for python_type, name in _TYPE_NAMES:
        if isinstance(value, python_type):
            return name
    raise TypeError(f"{type(value).__name__} is no CEL value")


_GO_TYPE_NAMES = {
    "null_type": "types.Null",
    "bool": "types.Bool",
    "int": "types.Int",
    "uint": "types.Uint",
    "double": "types.Double",
    "string": "types.String",
    "bytes": "types.Bytes",
    "google.protobuf.Duration": "types.Duration",
    "google.protobuf.Timestamp": "types.Timestamp",
    "type": "*types.Type",
    "optional_type": "*types.Optional",
    "list": "*types.baseList",
    "map": "*types.baseMap",
}


def go_type_name(value: Any) -> str:
    """The name of the type inside the server, which a few of its texts have."""
    name = type_name(value)
    return _GO_TYPE_NAMES.get(name, name)


def conversion_error(value: Any, target: str) -> CelError:
    """The error for a value that cannot be converted to a type."""
    return CelError(f"type conversion error from '{type_name(value)}' to '{target}'")


def describe_key(key: Any) -> str:
    """A key as error texts show it."""
    if isinstance(key, bool):
        return "true" if key else "false"
    return format_float(key) if isinstance(key, float) else str(key)
