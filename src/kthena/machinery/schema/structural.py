"""Structural schemas: the tree that an OpenAPI v3 schema of a CRD is compiled into.

Every part of the API server that needs the shape of a kind (pruning, defaults, validation, rules,
apply, tables, documentation) reads this one tree. A tree is never changed once it is compiled. The
decoder ignores what the API server's typed decoding ignores, and refuses values of a wrong type;
whether a schema is structural, and fit for a CRD, is checked by `invariants` and `definition`.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Literal

from kthena.machinery.fields import ErrorList, ErrorType, FieldError, child, item


class _Unset(Enum):
    UNSET = "unset"


UNSET: Final = _Unset.UNSET
"""Stands for an absent value where None is a value of its own: a JSON null."""

UnsetType = Literal[_Unset.UNSET]


class SchemaError(ValueError):
    """A schema that the API server refuses; `errors` has every reason, with its path in the CRD."""

    def __init__(self, errors: ErrorList) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


class ValueValidation:
    """The keywords that restrict values without adding structure.

    `has_junctors` says whether there is any of `all_of`, `any_of`, `one_of` and `not_`.
    """

    __slots__ = (
        "all_of",
        "any_of",
        "enum",
        "exclusive_maximum",
        "exclusive_minimum",
        "format",
        "has_junctors",
        "max_items",
        "max_length",
        "max_properties",
        "maximum",
        "min_items",
        "min_length",
        "min_properties",
        "minimum",
        "multiple_of",
        "not_",
        "one_of",
        "pattern",
        "required",
    )

    def __init__(self) -> None:
        self.format = ""
        self.pattern = ""
        self.maximum: float | None = None
        self.minimum: float | None = None
        self.exclusive_maximum = False
        self.exclusive_minimum = False
        self.multiple_of: float | None = None
        self.max_length: int | None = None
        self.min_length: int | None = None
        self.max_items: int | None = None
        self.min_items: int | None = None
        self.max_properties: int | None = None
        self.min_properties: int | None = None
        self.enum: tuple[Any, ...] | None = None
        self.required: tuple[str, ...] = ()
        self.all_of: tuple[StructuralSchema, ...] = ()
        self.any_of: tuple[StructuralSchema, ...] = ()
        self.one_of: tuple[StructuralSchema, ...] = ()
        self.not_: StructuralSchema | None = None
        self.has_junctors = False


class StructuralSchema:
    """One node of a compiled schema.

    `type` is empty where the schema names none. `additional_properties` is a bool where the schema
    says only whether other keys are allowed; `additional_schema` is the schema of their values, where
    there is one. `default` is `UNSET` without one. `value` holds the
    keywords that only restrict values, and is None where there are none; nodes inside its `allOf`,
    `anyOf`, `oneOf` and `not` are of this class too. `validations` are the CEL rules as they stand in
    the CRD. `defaulted` are the properties that have a default, with their schemas;
    `has_keyed_lists` says whether a list-map or a set is here or below, `has_embedded` whether an
    embedded resource is.
    """

    __slots__ = (
        "additional_properties",
        "additional_schema",
        "default",
        "defaulted",
        "description",
        "embedded_resource",
        "has_embedded",
        "has_keyed_lists",
        "int_or_string",
        "items",
        "list_map_keys",
        "list_type",
        "map_type",
        "nullable",
        "preserve_unknown",
        "properties",
        "title",
        "type",
        "validations",
        "value",
    )

    whole = False
    """What custom resources are made of is all in their schema."""

    patch_strategy = ""
    """Custom resources take no strategic merge patch."""

    patch_merge_key = ""

    def __init__(self) -> None:
        self.type = ""
        self.title = ""
        self.description = ""
        self.properties: dict[str, StructuralSchema] = {}
        self.items: StructuralSchema | None = None
        self.additional_properties: StructuralSchema | bool | None = None
        self.additional_schema: StructuralSchema | None = None
        self.nullable = False
        self.default: Any | UnsetType = UNSET
        self.preserve_unknown = False
        self.embedded_resource = False
        self.int_or_string = False
        self.list_type: str | None = None
        self.list_map_keys: tuple[str, ...] = ()
        self.map_type: str | None = None
        self.validations: tuple[Mapping[str, Any], ...] = ()
        self.defaulted: tuple[tuple[str, StructuralSchema], ...] = ()
        self.has_keyed_lists = False
        self.has_embedded = False
        self.value: ValueValidation | None = None

    def child(self, name: str) -> "StructuralSchema | None":
        """The schema of the member `name`: a property, else the one for additional properties."""
        return self.properties.get(name) or self.additional_schema

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the properties that must be present."""
        return self.value.required if self.value else ()

    @property
    def enum(self) -> tuple[Any, ...] | None:
        """The values allowed, or None where any is."""
        return self.value.enum if self.value else None

    @property
    def format(self) -> str:
        """The format named by the schema, or the empty string."""
        return self.value.format if self.value else ""


def decode(schema: Mapping[str, Any], path: str) -> StructuralSchema:
    """The tree of an OpenAPI v3 schema as it stands in a CRD.

    Raises:
        SchemaError: a keyword has a value of a wrong type.
    """
    return _Decoder().node(schema, path)


class _Decoder:
    """Turns keywords into attributes. A null keyword is an absent one, as in the API's types."""

    def node(self, schema: Any, path: str) -> StructuralSchema:
        if not isinstance(schema, Mapping):
            raise _wrong_type(path, schema, "an object")
        node = StructuralSchema()
        value: ValueValidation | None = None
        for keyword, raw in schema.items():
            if raw is None:
                continue
            if keyword in _NODE_KEYWORDS:
                attribute, read = _NODE_KEYWORDS[keyword]
                setattr(node, attribute, read(self, raw, f"{path}.{keyword}"))
            elif keyword in _VALUE_KEYWORDS:
                attribute, read = _VALUE_KEYWORDS[keyword]
                value = value or ValueValidation()
                setattr(value, attribute, read(self, raw, f"{path}.{keyword}"))
        if value is not None:
            nested_schemas = (value.all_of, value.any_of, value.one_of, value.not_)
            value.has_junctors = any(nested_schemas)
        node.value = value
        if isinstance(node.additional_properties, StructuralSchema):
            node.additional_schema = node.additional_properties
        node.defaulted = tuple(
            (name, schema)
            for name, schema in node.properties.items()
            if schema.default is not UNSET
        )
        below = [*node.properties.values()]
        below += [nested for nested in (node.items, node.additional_schema) if nested is not None]
        node.has_keyed_lists = node.list_type in ("map", "set") or any(
            nested.has_keyed_lists for nested in below
        )
        node.has_embedded = node.embedded_resource or any(nested.has_embedded for nested in below)
        return node

    def nodes(self, raw: Any, path: str) -> tuple[StructuralSchema, ...]:
        if not isinstance(raw, list):
            raise _wrong_type(path, raw, "an array")
        return tuple(self.node(schema, item(path, index)) for index, schema in enumerate(raw))

    def node_map(self, raw: Any, path: str) -> dict[str, StructuralSchema]:
        if not isinstance(raw, Mapping):
            raise _wrong_type(path, raw, "an object")
        return {name: self.node(schema, item(path, name)) for name, schema in raw.items()}

    def items(self, raw: Any, path: str) -> StructuralSchema | None:
        """An array of schemas is decoded to none: `definition` refuses it."""
        return None if isinstance(raw, list) else self.node(raw, path)

    def node_or_bool(self, raw: Any, path: str) -> StructuralSchema | bool:
        return raw if isinstance(raw, bool) else self.node(raw, path)

    def text(self, raw: Any, path: str) -> str:
        if not isinstance(raw, str):
            raise _wrong_type(path, raw, "a string")
        return raw

    def texts(self, raw: Any, path: str) -> tuple[str, ...]:
        if not isinstance(raw, list):
            raise _wrong_type(path, raw, "an array")
        return tuple(self.text(entry, item(path, index)) for index, entry in enumerate(raw))

    def flag(self, raw: Any, path: str) -> bool:
        if not isinstance(raw, bool):
            raise _wrong_type(path, raw, "a boolean")
        return raw

    def number(self, raw: Any, path: str) -> float:
        if isinstance(raw, bool) or not isinstance(raw, (int, float)):
            raise _wrong_type(path, raw, "a number")
        return float(raw)

    def integer(self, raw: Any, path: str) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int):
            raise _wrong_type(path, raw, "an integer")
        return raw

    def values(self, raw: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(raw, list):
            raise _wrong_type(path, raw, "an array")
        return tuple(raw)

    def rules(self, raw: Any, path: str) -> tuple[Mapping[str, Any], ...]:
        rules = self.values(raw, path)
        for index, rule in enumerate(rules):
            if not isinstance(rule, Mapping):
                raise _wrong_type(item(path, index), rule, "an object")
            for name, expected in _RULE_FIELDS.items():
                if rule.get(name) is not None and not isinstance(rule[name], expected):
                    raise _wrong_type(
                        child(item(path, index), name), rule[name], _TYPE_NAMES[expected]
                    )
        return rules

    def anything(self, raw: Any, _path: str) -> Any:
        return raw


def _wrong_type(path: str, value: Any, expected: str) -> SchemaError:
    return SchemaError([FieldError(path, ErrorType.TYPE_INVALID, value, f"must be {expected}")])


_RULE_FIELDS: dict[str, type] = {
    "rule": str,
    "message": str,
    "messageExpression": str,
    "reason": str,
    "fieldPath": str,
    "optionalOldSelf": bool,
}
_TYPE_NAMES: dict[type, str] = {str: "a string", bool: "a boolean"}

_Read = Callable[[_Decoder, Any, str], Any]

_NODE_KEYWORDS: dict[str, tuple[str, _Read]] = {
    "type": ("type", _Decoder.text),
    "title": ("title", _Decoder.text),
    "description": ("description", _Decoder.text),
    "properties": ("properties", _Decoder.node_map),
    "items": ("items", _Decoder.items),
    "additionalProperties": ("additional_properties", _Decoder.node_or_bool),
    "nullable": ("nullable", _Decoder.flag),
    "default": ("default", _Decoder.anything),
    "x-kubernetes-preserve-unknown-fields": ("preserve_unknown", _Decoder.flag),
    "x-kubernetes-embedded-resource": ("embedded_resource", _Decoder.flag),
    "x-kubernetes-int-or-string": ("int_or_string", _Decoder.flag),
    "x-kubernetes-list-type": ("list_type", _Decoder.text),
    "x-kubernetes-list-map-keys": ("list_map_keys", _Decoder.texts),
    "x-kubernetes-map-type": ("map_type", _Decoder.text),
    "x-kubernetes-validations": ("validations", _Decoder.rules),
}

_VALUE_KEYWORDS: dict[str, tuple[str, _Read]] = {
    "format": ("format", _Decoder.text),
    "pattern": ("pattern", _Decoder.text),
    "maximum": ("maximum", _Decoder.number),
    "minimum": ("minimum", _Decoder.number),
    "exclusiveMaximum": ("exclusive_maximum", _Decoder.flag),
    "exclusiveMinimum": ("exclusive_minimum", _Decoder.flag),
    "multipleOf": ("multiple_of", _Decoder.number),
    "maxLength": ("max_length", _Decoder.integer),
    "minLength": ("min_length", _Decoder.integer),
    "maxItems": ("max_items", _Decoder.integer),
    "minItems": ("min_items", _Decoder.integer),
    "maxProperties": ("max_properties", _Decoder.integer),
    "minProperties": ("min_properties", _Decoder.integer),
    "enum": ("enum", _Decoder.values),
    "required": ("required", _Decoder.texts),
    "allOf": ("all_of", _Decoder.nodes),
    "anyOf": ("any_of", _Decoder.nodes),
    "oneOf": ("one_of", _Decoder.nodes),
    "not": ("not_", _Decoder.node),
}
