"""Structs to structural schemas.

`msgspec.inspect` gives the types, the markers of `kthena.api.markers` the keywords, the attribute
docstrings the descriptions. A field's Python default is the schema's default, except for None and
empty collections, which stand for absence, and inside a status, where nothing is ever filled in.
"""

from typing import Any

import msgspec
from msgspec import inspect as types

from kthena.api import openapi
from kthena.api.crd.docs import attribute_docs
from kthena.api.crd.podtemplate import pod_template_schema
from kthena.api.markers import COMPONENT, MARKERS, QUANTITY, REQUIRED

_SCALARS: tuple[tuple[type[types.Type], dict[str, str]], ...] = (
    (types.StrType, {"type": "string"}),
    (types.IntType, {"type": "integer"}),
    (types.BoolType, {"type": "boolean"}),
    (types.AnyType, {}),
)


class SchemaError(TypeError):
    """A struct uses a type that has no structural schema."""


def struct_schema(cls: type[msgspec.Struct], *, defaults: bool = True) -> dict[str, Any]:
    """The schema of an object with the fields of the struct.

    Raises:
        SchemaError: a field has a type that a CRD cannot express.
    """
    info = types.type_info(cls)
    if not isinstance(info, types.StructType):
        raise SchemaError(f"{cls.__name__} is no struct")
    return _struct(info, defaults=defaults)


def _struct(info: types.StructType, *, defaults: bool) -> dict[str, Any]:
    docs = attribute_docs(info.cls)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for field in info.fields:
        marked = _markers(field.type)
        schema = _schema(field.type, defaults=defaults)
        if field.required or marked.get(REQUIRED):
            required.append(field.encode_name)
        default = _default(field) if defaults else None
        if default is not None:
            schema["default"] = default
        if field.name in docs:
            schema["description"] = docs[field.name]
        properties[field.encode_name] = schema
    result: dict[str, Any] = {"type": "object"}
    if properties:
        result["properties"] = properties
    if required:
        result["required"] = sorted(required)
    return result


def _default(field: types.Field) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    if field.default_factory is msgspec.NODEFAULT:
        return None
    # An empty object is defaulted in turn, so it stands for all defaults of the struct.
    return {} if isinstance(field.default_factory(), msgspec.Struct) else None


def _markers(node: types.Type) -> dict[str, Any]:
    """The annotations of a type, whether they stand outside or inside its `| None`."""
    marked: dict[str, Any] = {}
    if isinstance(node, types.UnionType):
        for member in node.types:
            if not isinstance(member, types.NoneType):
                marked.update(_markers(member))
    elif isinstance(node, types.Metadata):
        marked = {**_markers(node.type), **(node.extra_json_schema or {})}
    return marked


def _schema(node: types.Type, *, defaults: bool) -> dict[str, Any]:
    marked = _markers(node)
    if COMPONENT in marked:
        schema = _component(marked[COMPONENT])
    else:
        schema = _plain(_bare(node), defaults=defaults)
    if marked.get(QUANTITY):
        schema["pattern"] = openapi.QUANTITY_PATTERN
    schema.update({key: value for key, value in marked.items() if key not in MARKERS})
    return schema


def _component(name: str) -> dict[str, Any]:
    return pod_template_schema() if name == "PodTemplate" else openapi.structural(name)


def _bare(node: types.Type) -> types.Type:
    """The type without its annotations and without None."""
    if isinstance(node, types.Metadata):
        return _bare(node.type)
    if isinstance(node, types.UnionType):
        members = [member for member in node.types if not isinstance(member, types.NoneType)]
        if len(members) == 1:
            return _bare(members[0])
    return node


def _plain(node: types.Type, *, defaults: bool) -> dict[str, Any]:
    for scalar, schema in _SCALARS:
        if isinstance(node, scalar):
            return dict(schema)
    match node:
        case types.LiteralType(values=values):
            return {"type": "string", "enum": [str(value) for value in values]}
        case types.UnionType():
            return _int_or_string(node)
        case types.ListType(item_type=item):
            return {"type": "array", "items": _schema(item, defaults=defaults)}
        case types.DictType(value_type=value):
            return {"type": "object", "additionalProperties": _schema(value, defaults=defaults)}
        case types.StructType():
            return _struct(node, defaults=defaults)
        case _:
            raise SchemaError(f"no structural schema for {node}")


def _int_or_string(node: types.UnionType) -> dict[str, Any]:
    members = {
        type(_bare(member)) for member in node.types if not isinstance(member, types.NoneType)
    }
    if members != {types.IntType, types.StrType}:
        raise SchemaError(f"a union in a schema is `int | str` or `X | None`, not {node}")
    return openapi.int_or_string()
