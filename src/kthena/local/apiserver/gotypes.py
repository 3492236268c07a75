"""Decoding of built-in kinds as Go's types do it.

The API server decodes a built-in object into Go structs and encodes those, and the round trip is
visible: unknown fields go, `null` and empty lists go, required fields appear with zero values,
quantities and times take their canonical form, and a value of the wrong type is an error that names
a Go type. `data/gotypes.json` lists the structs of k8s.io/api 1.35.4 as reflection shows them:
struct -> field -> `type;flags;inlined`, where flag `o` is omitempty and `z` omitzero, a named type
is `name=underlying`, and `inlined` are the names of structs that the field was inlined from.

Types are compiled to closures on first use.
"""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from kthena.local.apiserver import gobase64
from kthena.local.apiserver.codec import Decoded, DecodeError
from kthena.local.apiserver.goerrors import Base64Error, MismatchError, TextError
from kthena.machinery.conditions import format_micro_time, format_time, parse_time
from kthena.machinery.metadata_types import time_problem
from kthena.machinery.objects import Object
from kthena.machinery.quantity import Quantity, QuantityError

Struct = Mapping[str, str]

_INTEGER_BITS: Final = {"int": 63, "int32": 31, "int64": 63, "uint16": 16, "uint32": 32}
_PLAIN: Final = 1e21
"""Smaller numbers are written without an exponent."""

_SIX_DECIMALS: Final = re.compile(r"\.\d{6}(?!\d)", re.ASCII)
_SECONDS_END: Final = len("2006-01-02T15:04:05")
_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
_MICRO_LAYOUT: Final = "2006-01-02T15:04:05.000000Z07:00"
_FIRST_TIME_PART: Final = re.compile(r"\d{4}-\d\d-\d\dT", re.ASCII)


class _Scan:
    """Mutable state of one decoding: whether a field was seen that its struct does not have.

    `converts` is whether it is Go's converter from maps that reads, and not its decoder of JSON.
    """

    __slots__ = ("converts", "unknown")

    def __init__(self, *, converts: bool = False) -> None:
        self.unknown = False
        self.converts = converts


_Decode = Callable[[Any, _Scan], Any]
_Zero = Callable[[], Any]


class _Type(NamedTuple):
    """A compiled Go type. `is_struct` types are written even where they are empty."""

    decode: _Decode
    zero: _Zero
    is_struct: bool = False
    struct: str = ""
    item: str = ""


@dataclass(frozen=True, slots=True)
class GoDecoder:
    """The codec of a built-in kind."""

    struct: str
    kind: str

    def decode(self, value: Any, *, converts: bool = False) -> Decoded:
        """The object in its normal form, and the fields that were dropped from it."""
        scan = _Scan(converts=converts)
        try:
            obj = _compile(self.struct).decode(value, scan)
        except (MismatchError, TextError) as exc:
            raise DecodeError(exc.converted if converts else str(exc)) from exc
        problems: list[str] = []
        if scan.unknown:
            _find_unknown(self.struct, value, "", problems)
        return Decoded(obj, problems)


@cache
def decoder_for(struct: str, kind: str) -> GoDecoder:
    """The decoder of a kind, for instance of `core.v1.Pod`."""
    return GoDecoder(struct, kind)


@cache
def field_types(struct: str) -> Mapping[str, str]:
    """The Go types of the fields of a struct, by their names in JSON."""
    return {name: text.partition(";")[0] for name, text in _structs()[struct].items()}


@cache
def _structs() -> Mapping[str, Struct]:
    source = Path(__file__).with_name("data") / "gotypes.json"
    return msgspec.json.decode(source.read_bytes(), type=dict[str, dict[str, str]])


@cache
def _compile(name: str) -> _Type:
    label, _, underlying = name.partition("=")
    if name.startswith("*"):
        return _pointer(_compile(name[1:]))
    if name.startswith("[]") and name != "[]uint8":
        return _slice(_print_name(name), name[2:])
    if name.startswith("map["):
        return _map(_print_name(name), name[name.index("]") + 1 :])
    if underlying:
        return _named(label, underlying)
    special = _SPECIAL.get(name)
    return special() if special is not None else _struct(name)


def _named(label: str, underlying: str) -> _Type:
    """A named type: it decodes as what it is made of, and its errors have its own name."""
    if underlying.startswith("[]"):
        return _slice(label, underlying[2:])
    if underlying.startswith("map["):
        return _map(label, underlying[underlying.index("]") + 1 :])
    return _scalar(label, underlying)


def _print_name(name: str) -> str:
    """A type as Go prints it: the package without its group, and no underlying type."""
    head = ""
    rest = name
    while True:
        if rest.startswith("*"):
            head, rest = f"{head}*", rest[1:]
        elif rest.startswith("[]"):
            head, rest = f"{head}[]", rest[2:]
        elif rest.startswith("map["):
            end = rest.index("]") + 1
            head, rest = head + rest[:end], rest[end:]
        else:
            break
    rest = rest.partition("=")[0]
    return head + ".".join(rest.split(".")[-2:])


def _pointer(target: _Type) -> _Type:
    decode = target.decode

    def pointer(value: Any, scan: _Scan) -> Any:
        return None if value is None else decode(value, scan)

    return _Type(pointer, _none, struct=target.struct, item=target.item)


def _none() -> None:
    return None


def _slice(label: str, item: str) -> _Type:
    decode: _Decode | None = None

    def items(value: Any, scan: _Scan) -> Any:
        nonlocal decode
        if value is None:
            return None
        if not isinstance(value, list):
            raise MismatchError(value, label, "slice")
        if decode is None:
            decode = _compile(item).decode
        return [decode(element, scan) for element in value]

    return _Type(items, _none, item=item)


def _map(label: str, item: str) -> _Type:
    decode: _Decode | None = None

    def mapping(value: Any, scan: _Scan) -> Any:
        nonlocal decode
        if value is None:
            return None
        if not isinstance(value, dict):
            raise MismatchError(value, label, "map")
        if decode is None:
            decode = _compile(item).decode
        return {key: decode(element, scan) for key, element in value.items()}

    return _Type(mapping, _none, item=f"map:{item}")


def _scalar(label: str, underlying: str) -> _Type:
    if underlying == "string":
        return _Type(_string_decoder(label), str)
    if underlying == "bool":
        return _Type(_bool_decoder(label), bool)
    if underlying in _INTEGER_BITS:
        return _Type(_integer_decoder(label, underlying), int)
    if underlying == "float64":
        return _Type(_float_decoder(label), int)
    raise ValueError(f"data/gotypes.json names the type {underlying!r}, which no decoder is for")


def _string_decoder(label: str) -> _Decode:
    def string(value: Any, scan: _Scan) -> Any:
        del scan
        if isinstance(value, str):
            return value
        if value is None:
            return ""
        raise MismatchError(value, label, "string")

    return string


def _bool_decoder(label: str) -> _Decode:
    def boolean(value: Any, scan: _Scan) -> Any:
        del scan
        if isinstance(value, bool):
            return value
        if value is None:
            return False
        raise MismatchError(value, label, "bool")

    return boolean


def _integer_decoder(label: str, kind: str) -> _Decode:
    bits = _INTEGER_BITS[kind]
    low, high = -(1 << bits), (1 << bits) - 1

    def integer(value: Any, scan: _Scan) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            if low <= value <= high:
                return value
        elif value is None:
            return 0
        whole = _whole(value) if scan.converts else None
        if whole is not None:
            return _wrapped(whole, low, high)
        raise MismatchError(value, label, kind)

    return integer


def _float_decoder(label: str) -> _Decode:
    def number(value: Any, scan: _Scan) -> Any:
        del scan
        if isinstance(value, int | float) and not isinstance(value, bool):
            # A number that keeps its spelling is told apart no longer.
            return float(value) if isinstance(value, float) else value
        if value is None:
            return 0
        raise MismatchError(value, label, "float64")

    return number


def _whole(value: Any) -> int | None:
    """The integer that Go makes of a number without a fraction; none of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not value.is_integer():
        return None
    whole = int(value)
    # Beyond 64 bits it was read as a floating-point number, of which the processor makes this.
    return whole if -(1 << 63) <= whole < 1 << 63 else -(1 << 63)


def _wrapped(value: int, low: int, high: int) -> int:
    """An integer of more bits in fewer: Go keeps the lower ones."""
    return (value - low) % (high - low + 1) + low


class _Field(NamedTuple):
    """A field of a compiled struct. `drops_empty` is omitempty, where the type heeds it."""

    decode: _Decode
    drops_empty: bool
    drops_none: bool
    path: str


_TELLING_EMPTIES: Final = frozenset({("autoscaling.v2.HPAScalingRules", "policies")})
"""Lists that are kept although they are empty: no default takes their place, and none may stay so."""


class _Struct:
    """Decodes one struct. Its fields are compiled at first use, since structs refer to each other."""

    __slots__ = ("_always", "_label", "_name", "_short", "_table")

    def __init__(self, name: str) -> None:
        self._name = name
        self._label = ".".join(name.split(".")[-2:])
        self._short = name.rpartition(".")[2]
        self._table: dict[str, _Field] | None = None
        self._always: list[tuple[str, _Zero]] = []

    def _prepare(self) -> dict[str, _Field]:
        table = {}
        for key, text in _structs()[self._name].items():
            type_name, _, rest = text.partition(";")
            flags, _, inlined = rest.partition(";")
            if inlined == "TypeMeta.":
                table[key] = _Field(_ignore, drops_empty=True, drops_none=True, path=key)
                continue
            compiled = _compile(type_name)
            drops_none = "z" in flags or (not compiled.is_struct and "o" in flags)
            drops_empty = "o" in flags and not compiled.is_struct and type_name[0] != "*"
            drops_empty = drops_empty and (self._name, key) not in _TELLING_EMPTIES
            table[key] = _Field(compiled.decode, drops_empty, drops_none, inlined + key)
            if not drops_none:
                self._always.append((key, compiled.zero))
        return table

    def zero(self) -> Object:
        """The empty struct as it is written."""
        return self.decode({}, _Scan())

    def decode(self, value: Any, scan: _Scan) -> Object:
        """The struct as it is written."""
        table = self._table
        if table is None:
            table = self._table = self._prepare()
        if value is None:
            value = {}
        elif not isinstance(value, dict):
            raise MismatchError(value, self._label, "struct")
        out: Object = {}
        path = ""
        try:
            for key, element in value.items():
                field = table.get(key)
                if field is None:
                    scan.unknown = True
                    continue
                path = field.path
                result = field.decode(element, scan)
                if (field.drops_empty and not result) or (field.drops_none and result is None):
                    continue
                out[key] = result
        except MismatchError as exc:
            exc.struct = exc.struct or self._short
            exc.path.append(path)
            raise
        for key, zero in self._always:
            if key not in out:
                out[key] = zero()
        return out


def _struct(name: str) -> _Type:
    struct = _Struct(name)
    return _Type(struct.decode, struct.zero, is_struct=True, struct=name)


def _ignore(value: Any, scan: _Scan) -> None:
    """`apiVersion` and `kind` are not stored."""
    del value, scan


def _raw(value: Any, scan: _Scan) -> Any:
    del scan
    return value


def _rewritten(value: Any, scan: _Scan) -> Any:
    """A value for a type that decodes itself: the converter writes JSON for it, and 1.0 as 1."""
    if scan.converts and isinstance(value, float) and value.is_integer() and abs(value) < _PLAIN:
        return int(value)
    return value


def _time(value: Any, scan: _Scan) -> Any:
    del scan
    return None if value is None else format_time(_parse_time(value))


def _micro_time(value: Any, scan: _Scan) -> Any:
    """A time with exactly six decimals."""
    del scan
    if value is None:
        return None
    if isinstance(value, str) and _FIRST_TIME_PART.match(value) and len(value) > _SECONDS_END:
        rest = value[_SECONDS_END:]
        if not _SIX_DECIMALS.match(rest):
            raise TextError(
                f'parsing time "{value}" as "{_MICRO_LAYOUT}": cannot parse "{rest}" as ".000000"'
            )
    return format_micro_time(_parse_time(value, _MICRO_LAYOUT))


def _parse_time(value: Any, layout: str = _LAYOUT) -> Any:
    if not isinstance(value, str):
        raise MismatchError(value, "string")
    try:
        return parse_time(value)
    except ValueError as exc:
        raise TextError(time_problem(value).replace(_LAYOUT, layout)) from exc


def _quantity(value: Any, scan: _Scan) -> Any:
    value = _rewritten(value, scan)
    if value is None:
        return "0"
    return _canonical_quantity(value if isinstance(value, str) else str(value))


@lru_cache(maxsize=4096)
def _canonical_quantity(text: str) -> str:
    try:
        return str(Quantity.parse(text))
    except QuantityError as exc:
        raise TextError(str(exc)) from exc


def _int_or_string(value: Any, scan: _Scan) -> Any:
    if isinstance(value, str):
        return value
    try:
        return _compile("int32").decode(_rewritten(value, scan), _Scan())
    except MismatchError as exc:
        exc.kind = ""
        raise


def _bytes(value: Any, scan: _Scan) -> Any:
    """Base64, kept as text; Go ignores line breaks in it, and takes a list of numbers as well."""
    del scan
    if value is None:
        return ""
    if isinstance(value, list):
        return base64.b64encode(bytes(map(_byte, value))).decode()
    if not isinstance(value, str):
        raise MismatchError(value, "[]uint8", "slice")
    try:
        gobase64.decode_standard(value)
    except ValueError as exc:
        raise Base64Error(str(exc)) from exc
    return value.replace("\r", "").replace("\n", "")


def _byte(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 255:
        return value
    raise MismatchError(value, "uint8", "uint8")


_SCHEMA: Final = "apiextensions.v1.JSONSchemaProps"


def _schema_or_bool(value: Any, scan: _Scan) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, dict):
        return _compile(_SCHEMA).decode(value, scan)
    raise TextError("boolean or JSON schema expected")


def _schema_or_array(value: Any, scan: _Scan) -> Any:
    if isinstance(value, list):
        return _compile(f"[]{_SCHEMA}").decode(value, scan)
    if value is None or isinstance(value, dict):
        return _compile(_SCHEMA).decode(value, scan)
    raise MismatchError(value, "v1.JSONSchemaProps")


def _schema_or_strings(value: Any, scan: _Scan) -> Any:
    if isinstance(value, list):
        return _compile("[]string").decode(value, scan)
    return _schema_or_array(value, scan)


_SPECIAL: Final[Mapping[str, Callable[[], _Type]]] = {
    "string": lambda: _scalar("string", "string"),
    "bool": lambda: _scalar("bool", "bool"),
    "int": lambda: _scalar("int", "int"),
    "int32": lambda: _scalar("int32", "int32"),
    "int64": lambda: _scalar("int64", "int64"),
    "float64": lambda: _scalar("float64", "float64"),
    "[]uint8": lambda: _Type(_bytes, _none),
    "v1.Time": lambda: _Type(_time, _none, is_struct=True),
    "v1.MicroTime": lambda: _Type(_micro_time, _none, is_struct=True),
    "resource.Quantity": lambda: _Type(_quantity, lambda: "0", is_struct=True),
    "intstr.IntOrString": lambda: _Type(_int_or_string, int, is_struct=True),
    "v1.FieldsV1": lambda: _Type(_raw, _none, is_struct=True),
    "runtime.RawExtension": lambda: _Type(_raw, _none, is_struct=True),
    "v1.JSON": lambda: _Type(_raw, _none, is_struct=True),
    "v1.JSONSchemaPropsOrBool": lambda: _Type(_schema_or_bool, _none, item=_SCHEMA),
    "v1.JSONSchemaPropsOrArray": lambda: _Type(_schema_or_array, _none, item=_SCHEMA),
    "v1.JSONSchemaPropsOrStringArray": lambda: _Type(_schema_or_strings, _none, item=_SCHEMA),
}


def _find_unknown(name: str, value: Any, path: str, problems: list[str]) -> None:
    """Name every field that its struct does not have, in the order of the text."""
    compiled = _compile(name)
    if isinstance(value, dict) and compiled.struct:
        fields = _structs()[compiled.struct]
        for key, element in value.items():
            below = f"{path}.{key}" if path else key
            if key not in fields:
                problems.append(f'unknown field "{below}"')
            else:
                _find_unknown(fields[key].partition(";")[0], element, below, problems)
    elif isinstance(value, list) and compiled.item:
        for index, element in enumerate(value):
            _find_unknown(compiled.item, element, f"{path}[{index}]", problems)
    elif isinstance(value, dict) and compiled.item:
        item = compiled.item.removeprefix("map:")
        if item == compiled.item:
            _find_unknown(item, value, path, problems)
        else:
            for key, element in value.items():
                _find_unknown(item, element, f"{path}.{key}", problems)
