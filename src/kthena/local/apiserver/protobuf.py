"""Reading of protobuf bodies: kubectl and other clients in Go send built-in kinds in this form.

A body is a message that names `apiVersion` and `kind` and carries the object as another message.
It is turned into the JSON value that says the same, so that all that follows is as for JSON.
`data/protobuf.json` has the field numbers of k8s.io/api 1.35.4 (struct -> number -> field; an inlined
struct is a message of its own), the types are those of `gotypes`. Nothing is written in this form.
"""

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from kthena.local.apiserver import gojson
from kthena.local.apiserver.gotypes import field_types
from kthena.machinery.conditions import format_micro_time, format_time
from kthena.machinery.objects import Object

PREFIX: Final = b"k8s\x00"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES: Final = 10
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EOF: Final = "unexpected EOF"

_Value: TypeAlias = int | bytes
_Numbers: TypeAlias = "Mapping[str, str | _Numbers]"


class ProtobufError(ValueError):
    """The body is no message of its kind; the text is that of Go's decoder where it has one."""


def decode(body: bytes) -> Object:
    """The JSON value of the object in a body, with its `apiVersion` and `kind`.

    An object of a kind that is not known is only named.

    Raises:
        ProtobufError: the body cannot be read.
    """
    if not body.startswith(PREFIX):
        raise ProtobufError(
            "provided data does not appear to be a protobuf message, expected prefix "
            f"[{' '.join(map(str, PREFIX))}]"
        )
    if len(body) == len(PREFIX):
        raise ProtobufError("empty body")
    names: Object = {}
    raw = b""
    for number, value in _fields(body[len(PREFIX) :]):
        if number == 1:
            for inner, text in _fields(_bytes(value)):
                if inner in (1, 2):
                    names["apiVersion" if inner == 1 else "kind"] = _text(text)
        elif number == 2:
            raw = _bytes(value)
    name = _struct_name(names.get("apiVersion", ""), names.get("kind", ""))
    obj = _message(raw, name, 0) if name in _messages() else {}
    return {**obj, **names}


def _struct_name(api_version: str, kind: str) -> str:
    """The name of the Go struct of a kind. Options of a deletion may come in any group."""
    if kind == "DeleteOptions":
        return f"meta.v1.{kind}"
    group, _, version = api_version.rpartition("/")
    return f"{group.partition('.')[0] or 'core'}.{version}.{kind}"


@cache
def _messages() -> Mapping[str, _Numbers]:
    source = Path(__file__).with_name("data") / "protobuf.json"
    messages: Mapping[str, _Numbers] = msgspec.json.decode(source.read_bytes())
    return messages


def _varint(data: bytes, start: int) -> tuple[int, int]:
    """An unsigned number and where it ends."""
    result = 0
    for count in range(_MAX_VARINT_BYTES):
        if start + count >= len(data):
            raise ProtobufError(_EOF)
        byte = data[start + count]
        result |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return result, start + count + 1
    raise ProtobufError("proto: integer overflow")


def _fields(data: bytes) -> Iterator[tuple[int, _Value]]:
    """The fields of a message in the order of their bytes."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if number <= 0:
            raise ProtobufError(f"proto: illegal tag {number} (wire type {wire})")
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == _BYTES:
            length, position = _varint(data, position)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise ProtobufError(f"proto: illegal wireType {wire}")
        end = position + length
        if end > len(data):
            raise ProtobufError(_EOF)
        yield number, data[position:end]
        position = end


def _bytes(value: _Value) -> bytes:
    if isinstance(value, int):
        raise ProtobufError("proto: wrong wireType = 0")
    return value


def _text(value: _Value) -> str:
    return _bytes(value).decode("utf-8", "replace")


def _signed(value: _Value) -> int:
    """A varint as the two's complement of 64 bits."""
    if not isinstance(value, int):
        raise ProtobufError("proto: wrong wireType = 2")
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


def _message(data: bytes, name: str, depth: int) -> Object:
    """A message as the JSON object of its struct."""
    return _read(data, _messages()[name], field_types(name), depth)


def _read(data: bytes, numbers: _Numbers, types: Mapping[str, str], depth: int) -> Object:
    if depth > gojson.MAX_DEPTH:
        raise ProtobufError("proto: nesting too deep")
    out: Object = {}
    for number, value in _fields(data):
        field = numbers.get(str(number))
        if field is None:
            continue
        if isinstance(field, str):
            _set(out, field, types[field], value, depth)
        else:
            out |= _read(_bytes(value), field, types, depth + 1)
    return out


def _set(out: Object, field: str, type_name: str, value: _Value, depth: int) -> None:
    """Put a value into its field; fields of lists and maps come once for each item."""
    kind = _plain(type_name)
    if kind.startswith("map["):
        item = kind[kind.index("]") + 1 :]
        key, element = "", _zero(item)
        for number, part in _fields(_bytes(value)):
            if number == 1:
                key = _text(part)
            elif number == 2:
                element = _value(item, part, depth)
        out.setdefault(field, {})[key] = element
    elif kind.startswith("[]") and kind != "[]uint8":
        out.setdefault(field, []).extend(_items(kind[2:], value, depth))
    else:
        out[field] = _value(kind, value, depth)


def _items(item: str, value: _Value, depth: int) -> list[Any]:
    """What one field of a list holds: one item, or several packed numbers."""
    if isinstance(value, bytes) and _plain(item) in _NUMBERS:
        found, position = [], 0
        while position < len(value):
            number, position = _varint(value, position)
            found.append(_signed(number))
        return found
    return [_value(item, value, depth)]


def _plain(type_name: str) -> str:
    """A type without its pointer and its name, if it is made of a basic type."""
    _, named, underlying = type_name.removeprefix("*").partition("=")
    bare = type_name.removeprefix("*")
    return underlying if named and not bare.startswith(("[]", "map[")) else bare


def _value(type_name: str, value: _Value, depth: int) -> Any:
    kind = _plain(type_name)
    special = _SPECIAL.get(kind)
    if special is not None:
        return special(value)
    nested = _NESTED.get(kind)
    if nested is not None:
        return nested(_bytes(value), depth + 1)
    return _message(_bytes(value), kind, depth + 1)


def _zero(type_name: str) -> Any:
    """The value of an item of a map that its message leaves out."""
    kind = _plain(type_name)
    return "" if kind == "string" else _value(kind, b"", 0)


def _bool(value: _Value) -> bool:
    return _signed(value) != 0


def _float(value: _Value) -> float:
    data = _bytes(value)
    if len(data) != 8:
        raise ProtobufError(_EOF)
    (number,) = struct.unpack("<d", data)
    return float(number)


def _base64(value: _Value) -> str:
    return base64.b64encode(_bytes(value)).decode()


def _moment(value: _Value) -> datetime | None:
    """A time as seconds and nanoseconds since the epoch; None for the zero time."""
    data = _bytes(value)
    if not data:
        return None
    parts = {number: _signed(part) for number, part in _fields(data)}
    try:
        return _EPOCH + timedelta(seconds=parts.get(1, 0), microseconds=parts.get(2, 0) // 1000)
    except OverflowError as exc:
        raise ProtobufError(f"a time is out of range: {parts.get(1, 0)} s") from exc


def _time(value: _Value) -> str | None:
    moment = _moment(value)
    return None if moment is None else format_time(moment)


def _micro_time(value: _Value) -> str | None:
    moment = _moment(value)
    return None if moment is None else format_micro_time(moment)


def _quantity(value: _Value) -> str:
    return next((_text(part) for number, part in _fields(_bytes(value)) if number == 1), "0")


def _int_or_string(value: _Value) -> int | str:
    parts = dict(_fields(_bytes(value)))
    if _signed(parts.get(1, 0)):
        return _text(parts.get(3, b""))
    return _signed(parts.get(2, 0))


def _raw_json(value: _Value) -> Any:
    """JSON within a message."""
    raw = next((_bytes(part) for number, part in _fields(_bytes(value)) if number == 1), b"")
    if not raw:
        return None
    try:
        return gojson.decode(raw)
    except gojson.JSONError as exc:
        raise ProtobufError(f"a raw field is no JSON: {exc}") from exc


_SCHEMA: Final = "apiextensions.v1.JSONSchemaProps"


def _schema_or_bool(data: bytes, depth: int) -> Any:
    allows = False
    for number, part in _fields(data):
        if number == 2:
            return _message(_bytes(part), _SCHEMA, depth)
        allows = _bool(part)
    return allows


def _schema_or_array(data: bytes, depth: int) -> Any:
    schemas = [(number, _message(_bytes(part), _SCHEMA, depth)) for number, part in _fields(data)]
    single = next((schema for number, schema in schemas if number == 1), None)
    return [schema for _, schema in schemas] if single is None else single


def _schema_or_strings(data: bytes, depth: int) -> Any:
    parts = list(_fields(data))
    single = next((part for number, part in parts if number == 1), None)
    if single is None:
        return [_text(part) for _, part in parts]
    return _message(_bytes(single), _SCHEMA, depth)


_NUMBERS: Final = ("int", "int32", "int64", "uint16", "uint32")
_SPECIAL: Final[Mapping[str, Callable[[_Value], Any]]] = {
    "string": _text,
    "bool": _bool,
    **dict.fromkeys(_NUMBERS, _signed),
    "float64": _float,
    "[]uint8": _base64,
    "v1.Time": _time,
    "v1.MicroTime": _micro_time,
    "resource.Quantity": _quantity,
    "intstr.IntOrString": _int_or_string,
    "v1.FieldsV1": _raw_json,
    "runtime.RawExtension": _raw_json,
    "v1.JSON": _raw_json,
}
_NESTED: Final[Mapping[str, Callable[[bytes, int], Any]]] = {
    "v1.JSONSchemaPropsOrBool": _schema_or_bool,
    "v1.JSONSchemaPropsOrArray": _schema_or_array,
    "v1.JSONSchemaPropsOrStringArray": _schema_or_strings,
}
