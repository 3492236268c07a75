"""Data of custom resources as CEL values, by their schema.

Only what the schema declares can be seen. List-maps and sets compare without regard to order, a
`number` is a double, strings of some formats are times, durations and bytes, and an int-or-string is
what it is. Follows apiserver's `UnstructuredToVal`, whose errors appear where a value is used.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.escaping import escape, unescape
from kthena.machinery.cel.library.times import read_timestamp
from kthena.machinery.cel.typesystem import Type
from kthena.machinery.cel.values import (
    CelError,
    Duration,
    ListValue,
    MapValue,
    Timestamp,
    equal,
    find_in_map,
    is_list,
    is_map,
    no_such_overload,
    register_type,
)
from kthena.machinery.objects import equal_json
from kthena.machinery.schema.formats import parse_long_duration
from kthena.machinery.schema.structural import StructuralSchema

_STRING_SCHEMA = StructuralSchema()
_STRING_SCHEMA.type = "string"
_META_SCHEMA = StructuralSchema()
_META_SCHEMA.type = "object"
_META_SCHEMA.properties = {"name": _STRING_SCHEMA, "generateName": _STRING_SCHEMA}
_NO_BASE64 = re.compile(r"[^A-Za-z0-9_=\-\r\n]")
_FORMAT_TYPES = {
    "byte": types.BYTES,
    "duration": types.DURATION,
    "date": types.TIMESTAMP,
    "date-time": types.TIMESTAMP,
}
_SCALAR_TYPES = {"boolean": types.BOOL, "number": types.DOUBLE, "integer": types.INT}


class Shape:
    """A schema as rules see it: its static type, and how its values are wrapped.

    What is below is described when it is asked for, since rules look at little of a large schema.
    `name` is the name that its type has if it is an object.
    """

    __slots__ = (
        "_fields",
        "_name",
        "_properties",
        "_type",
        "below",
        "key_fields",
        "schema",
        "wrap",
    )

    def __init__(self, schema: StructuralSchema, name: str, *, is_resource: bool = False) -> None:
        self.schema = schema
        self._name = name
        self._properties = schema.properties
        if is_resource or schema.embedded_resource:
            self._properties = _with_meta(schema.properties)
        self._fields: dict[str, Shape] = {}
        self._type: Type | None = None
        self.below = self._describe_below()
        """The shape of items, or of the values of a map."""
        self.key_fields = tuple(escape(key) or key for key in schema.list_map_keys)
        self.wrap: Callable[[Any], Any] = self._choose_wrapper()

    @property
    def is_object(self) -> bool:
        """Whether it has named properties."""
        return bool(self._properties)

    @property
    def type(self) -> Type | None:
        """The static type; None where rules cannot see values of the schema."""
        if self._type is None and _is_visible(self.schema):
            self._type = self._describe()
        return self._type

    def field(self, name: str) -> "Shape | None":
        """The shape of a property, by its name in JSON."""
        shape = self._fields.get(name)
        if shape is None and name in self._properties:
            shape = Shape(self._properties[name], f"{self._name}.{escape(name)}")
            self._fields[name] = shape
        return shape

    def names(self) -> Iterator[str]:
        """The names of all properties."""
        return iter(self._properties)

    def value_of(self, data: Any) -> Any:
        """The CEL value of JSON data."""
        if data is None:
            if self.schema.nullable:
                return None
            raise CelError("invalid data, got null for schema with nullable=false")
        return self.wrap(data)

    def _describe_below(self) -> "Shape | None":
        schema = self.schema
        if schema.type == "array" and schema.items is not None:
            return Shape(schema.items, f"{self._name}.@idx")
        is_map = schema.type == "object" and not self._properties
        if is_map and schema.additional_schema is not None:
            return Shape(schema.additional_schema, f"{self._name}.@elem")
        return None

    def _choose_wrapper(self) -> Callable[[Any], Any]:
        schema = self.schema
        if schema.int_or_string:
            return _wrap_int_or_string
        if schema.type == "object":
            return self._wrap_object
        if schema.type == "array":
            return _refuse_array if self.below is None else self._wrap_array
        if schema.type == "string":
            return _STRING_WRAPPERS.get(schema.format, _wrap_string)
        untyped = _UnknownValue if schema.preserve_unknown else _refuse_untyped
        return _SCALAR_WRAPPERS.get(schema.type, untyped)

    def _describe(self) -> Type:
        schema = self.schema
        if schema.int_or_string:
            return types.DYN
        if schema.type == "string":
            return _FORMAT_TYPES.get(schema.format, types.STRING)
        if schema.type in _SCALAR_TYPES:
            return _SCALAR_TYPES[schema.type]
        element = None if self.below is None else self.below.type
        if element is None:
            return Type("object", self._name, (), _Fields(self))
        if schema.type == "array":
            return types.list_of(element)
        return types.map_of(types.STRING, element)

    def _wrap_object(self, data: Any) -> Any:
        if type(data) is not dict:
            raise CelError("invalid data, expected a map for the provided schema with type=object")
        return ObjectValue(data, self)

    def _wrap_array(self, data: Any) -> Any:
        if type(data) is not list:
            raise CelError(
                "invalid data, expected an array for the provided schema with type=array"
            )
        return _LIST_CLASSES.get(self.schema.list_type or "atomic", ArrayValue)(data, self)


class _Fields(Mapping[str, Type]):
    """The types of the properties that rules can see, by identifier."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def __getitem__(self, identifier: str) -> Type:
        name = unescape(identifier)
        if name is None or escape(name) not in (identifier, f"__{identifier}__"):
            # Reserved words need no escape after a dot.
            raise KeyError(identifier)
        shape = self._shape.field(name)
        if shape is None or shape.type is None:
            raise KeyError(identifier)
        return shape.type

    def __iter__(self) -> Iterator[str]:
        identifiers = map(escape, self._shape.names())
        return (identifier for identifier in identifiers if identifier is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _is_visible(schema: StructuralSchema) -> bool:
    """Preserved data without a type cannot be seen, nor lists and maps of it."""
    if schema.int_or_string:
        return True
    if schema.type == "array":
        return schema.items is not None and _is_visible(schema.items)
    if schema.type == "object":
        return schema.additional_schema is None or _is_visible(schema.additional_schema)
    return schema.type == "string" or schema.type in _SCALAR_TYPES


def _with_meta(properties: dict[str, StructuralSchema]) -> dict[str, StructuralSchema]:
    """The properties of a resource: its type and the names in its metadata are always there."""
    metadata = properties.get("metadata")
    if metadata is not None and metadata.type == "object":
        has_names = _are_strings(metadata.properties, ("name", "generateName"))
        if has_names and _are_strings(properties, ("kind", "apiVersion")):
            return properties
    return {
        **properties,
        "kind": _STRING_SCHEMA,
        "apiVersion": _STRING_SCHEMA,
        "metadata": _META_SCHEMA,
    }


def _are_strings(properties: dict[str, StructuralSchema], names: tuple[str, ...]) -> bool:
    return all(name in properties and properties[name].type == "string" for name in names)


class _UnknownValue:
    """Preserved data without a schema: rules can compare it as part of an object, no more."""

    __slots__ = ("_data",)

    def __init__(self, data: Any) -> None:
        self._data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _UnknownValue) and equal_json(self._data, other._data)

    __hash__ = None  # type: ignore[assignment] # values of rules are not hashed


register_type(_UnknownValue, "unknown")


class ObjectValue(MapValue):
    """An object or a map with a schema."""

    __slots__ = ("data", "shape")

    def __init__(self, data: dict[str, Any], shape: Shape) -> None:
        self.data = data
        self.shape = shape

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[str]:
        shape = self.shape
        if not shape.is_object:
            return iter(self.data if shape.below is not None else ())
        return iter([escape(key) or key for key in self.data if shape.field(key) is not None])

    def raw(self) -> dict[str, Any]:
        """The JSON behind it, names as they are there."""
        return self.data

    def find(self, key: Any) -> tuple[bool, Any]:
        """Whether the key is there, and its value; keys of objects are escaped."""
        if type(key) is not str:
            raise no_such_overload()
        shape = self.shape
        if not shape.is_object:
            if shape.below is None or key not in self.data:
                return False, None
            return True, shape.below.value_of(self.data[key])
        name = unescape(key)
        if name is None:
            return False, None
        data = self.data.get(name)
        # A null in a field of an object is as good as an absent field.
        field = None if data is None else shape.field(name)
        return (False, None) if field is None else (True, field.wrap(data))

    def _is_same(self, other: "ObjectValue") -> bool:
        """A quick answer for the unchanged: equal data of one schema, down to the order of lists."""
        if self.shape is not other.shape or self.data != other.data:
            return False
        return equal_json(self.data, other.data)

    def equals(self, other: Any) -> bool:
        """Equality of what the schema knows and of what it preserves."""
        if not is_map(other):
            raise no_such_overload()
        if isinstance(other, ObjectValue) and self._is_same(other):
            return True
        if len(self.data) != len(other):
            return False
        shape = self.shape
        for key, data in self.data.items():
            known = shape.field(key) if shape.is_object else shape.below
            if known is not None:
                found, value = self.find(key)
                other_found, other_value = find_in_map(other, key)
                if found != other_found or (found and not equal(value, other_value)):
                    return False
            elif not isinstance(other, ObjectValue):
                raise no_such_overload()
            elif key in other.data and not equal_json(data, other.data[key]):
                return False
        return True


class ArrayValue(ListValue):
    """A list with a schema; this class compares with regard to order."""

    __slots__ = ("_items", "data", "shape")

    def __init__(self, data: list[Any], shape: Shape) -> None:
        self.data = data
        self.shape = shape
        self._items = shape.below or shape

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        return map(self._items.value_of, self.data)

    def at(self, index: int) -> Any:
        """The element at an index in range."""
        return self._items.value_of(self.data[index])

    def equals(self, other: Any) -> bool:
        """Equality with regard to order."""
        if not is_list(other):
            raise no_such_overload()
        return len(self.data) == len(other) and all(map(equal, self, other))

    def contains(self, value: Any) -> bool:
        """Whether an element equals the value; failures to compare count if none does."""
        failure: CelError | None = None
        for element in self:
            try:
                if equal(element, value):
                    return True
            except CelError as exc:
                failure = failure or exc
        if failure is not None:
            raise failure
        return False

    def concatenate(self, other: Any) -> Any:
        """All elements of both."""
        if not is_list(other):
            raise no_such_overload()
        return [*self, *other]


class MapListValue(ArrayValue):
    """A list-map: items with equal keys are one, whatever their place."""

    __slots__ = ()

    def _key(self, data: Any) -> Any:
        if type(data) is not dict:
            return None
        return tuple((type(data.get(key)), data.get(key)) for key in self.shape.key_fields)

    def equals(self, other: Any) -> bool:
        """Equality of the items with equal keys."""
        if not is_list(other):
            raise no_such_overload()
        if len(self.data) != len(other):
            return False
        by_key = {self._key(item): item for item in self.data}
        for item in other:
            data = item.raw() if isinstance(item, MapValue) else item
            key = self._key(data)
            if key not in by_key or not equal(self._items.value_of(by_key[key]), item):
                return False
        return True

    def concatenate(self, other: Any) -> Any:
        """The items of both; one of `other` replaces one with its keys."""
        if not is_list(other):
            raise no_such_overload()
        merged = {self._key(item): item for item in self.data}
        for item in other:
            data = item.raw() if isinstance(item, MapValue) else item
            merged[self._key(data)] = data
        return MapListValue(list(merged.values()), self.shape)


class SetValue(ArrayValue):
    """A set of scalars: order and repetition do not count."""

    __slots__ = ()

    def equals(self, other: Any) -> bool:
        """Equality without regard to order."""
        if not is_list(other):
            raise no_such_overload()
        return len(self.data) == len(other) and all(
            any(equal(element, known) for known in self) for element in other
        )

    def concatenate(self, other: Any) -> Any:
        """The elements of both, each once."""
        if not is_list(other):
            raise no_such_overload()
        joined = list(self.data)
        for element in other.data if isinstance(other, ArrayValue) else other:
            if not any(equal_json(element, known) for known in joined):
                joined.append(element)
        return SetValue(joined, self.shape)


_LIST_CLASSES: dict[str, type[ArrayValue]] = {"map": MapListValue, "set": SetValue}


def _wrap_int_or_string(data: Any) -> Any:
    if type(data) in (str, int):
        return data
    raise CelError("invalid data, expected XIntOrString value to be either a string or integer")


def _refuse_array(_data: Any) -> Any:
    raise CelError("invalid array type, expected Items with a non-empty Schema")


def _go_type(data: Any) -> str:
    """The name that Go has for the type of JSON data."""
    if isinstance(data, bool):
        return "bool"
    if isinstance(data, int):
        return "int64"
    if isinstance(data, float):
        return "float64"
    if isinstance(data, str):
        return "string"
    return "[]interface {}" if isinstance(data, list) else "map[string]interface {}"


def _expect(kind: type, name: str) -> Callable[[Any], Any]:
    def wrap(data: Any) -> Any:
        if type(data) is kind:
            return data
        raise CelError(f"invalid data, expected {name}, got {_go_type(data)}")

    return wrap


_wrap_string = _expect(str, "string")


def _wrap_number(data: Any) -> float:
    if type(data) in (int, float):
        return float(data)
    raise CelError(f"invalid data, expected float, got {_go_type(data)}")


def _wrap_duration(data: Any) -> Duration:
    text = _wrap_string(data)
    nanoseconds = parse_long_duration(text)
    if nanoseconds is None:
        raise CelError(f"Invalid duration {text}: unable to parse {text} as duration")
    return Duration(nanoseconds)


def _wrap_date(data: Any) -> Timestamp:
    text = _wrap_string(data)
    parsed = read_timestamp(f"{text}T00:00:00Z")
    if parsed is None:
        raise CelError(f"Invalid date formatted string {text}: not a date")
    return parsed


def _wrap_date_time(data: Any) -> Timestamp:
    """RFC 3339, or local time without a zone."""
    text = _wrap_string(data)
    parsed = read_timestamp(text) or read_timestamp(f"{text}Z")
    if parsed is None:
        raise CelError(f"Invalid date-time formatted string {text}: not a date-time")
    return parsed


def _wrap_bytes(data: Any) -> bytes:
    """The server decodes the alphabet for URLs, though the format is checked for the other one."""
    text = _wrap_string(data)
    place = _NO_BASE64.search(text)
    try:
        if place is None:
            return base64.urlsafe_b64decode(text)
    except binascii.Error:
        pass
    offset = len(text) if place is None else place.start()
    mistake = f"illegal base64 data at input byte {offset}"
    raise CelError(f"Invalid byte formatted string {text}: {mistake}")


def _refuse_untyped(_data: Any) -> Any:
    raise CelError(
        "invalid type, expected object, array, number, integer, boolean or string, or no type with "
        "x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got "
    )


_STRING_WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "byte": _wrap_bytes,
    "duration": _wrap_duration,
    "date": _wrap_date,
    "date-time": _wrap_date_time,
}
_SCALAR_WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "boolean": _expect(bool, "bool"),
    "number": _wrap_number,
    "integer": _expect(int, "int"),
}
