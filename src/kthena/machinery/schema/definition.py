"""Whether a schema may stand in a CustomResourceDefinition, beyond being structural.

The checks of apiextensions' `ValidateCustomResourceDefinitionOpenAPISchema`, apart from compiling
rules, which is only worth it where the schema has no other errors.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kthena.machinery.fields import OMITTED, ErrorList, ErrorType, FieldError, child, item
from kthena.machinery.schema.fieldpath import FieldPathError, resolve_field_path
from kthena.machinery.schema.structural import StructuralSchema

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_REASONS = (
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
)
_META_FIELDS = frozenset({"metadata", "kind", "apiVersion"})
_UNSUPPORTED = (
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
)
_COMMON = frozenset({"type", "properties", "items", "format", "description", "required", "enum"})
"""Keywords that no check of a single node looks at, apart from `type` itself."""

_AT_ROOT = (
    "Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum",
    "ExclusiveMinimum", "MaxLength", "MinLength", "Pattern", "MaxItems", "MinItems", "UniqueItems",
    "MultipleOf", "Required", "Items", "Properties", "ExternalDocs", "Example",
    "XPreserveUnknownFields", "XValidations",
)  # fmt: skip
_AT_ROOT_KEYWORDS = {name[0].lower() + name[1:] for name in _AT_ROOT} | {
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}


@dataclass(frozen=True, slots=True)
class _Context:
    """What holds for a node because of where it stands."""

    no_defaults: str | None = None
    inside_meta: bool = False


class DefinitionChecker:
    """Checks one schema.

    `faulty` are the identities (`id`) of nodes with errors here or below. `unsupported` says for
    which keyword the schema cannot even be converted to a structural one, and is empty if it can.
    """

    def __init__(self) -> None:
        self.errors: ErrorList = []
        self.faulty: set[int] = set()
        self.unsupported = ""

    def check_root(self, raw: Mapping[str, Any], schema: StructuralSchema, path: str) -> None:
        """Checks a whole schema: as it stands in the CRD, and decoded."""
        self._node(raw, schema, path, _Context(), is_root=True)

    def _add(self, path: str, kind: ErrorType, value: Any, detail: str) -> None:
        self.errors.append(FieldError(path, kind, value, detail))

    def _node(
        self,
        raw: Mapping[str, Any],
        schema: StructuralSchema,
        path: str,
        context: _Context,
        *,
        is_root: bool = False,
    ) -> None:
        before = len(self.errors)
        self._unsupported(raw, path, context)
        if raw.get("additionalProperties") is not None:
            self._additional_properties(raw, schema, path, context)
        for name, below in schema.properties.items():
            self._node(
                raw["properties"][name],
                below,
                f"{path}.properties[{name}]",
                _property_context(context, schema, name, is_root=is_root),
            )
        if schema.value is not None:
            self._junctors(raw, schema, path, context)
        if schema.items is not None:
            self._node(raw["items"], schema.items, child(path, "items"), context)
        if not raw.keys() <= _COMMON:
            self.errors += _check_extensions(raw, schema, path)
            self.errors += _check_rules(schema, path)
        if len(self.errors) > before:
            self.faulty.add(id(schema))

    def _unsupported(self, raw: Mapping[str, Any], path: str, context: _Context) -> None:
        """Keywords and types that no CRD may use, in the server's order."""
        kind = raw.get("type")
        if kind and kind not in _TYPES:
            self._add(child(path, "type"), ErrorType.NOT_SUPPORTED, kind, _supported(_TYPES))
        if raw.keys() <= _COMMON and kind in _TYPES and not isinstance(raw.get("items"), list):
            return
        if raw.get("default") is not None and context.no_defaults is not None:
            detail = f"must not be set {context.no_defaults}"
            self._add(child(path, "default"), ErrorType.FORBIDDEN, "", detail)
        if raw.get("$schema"):
            self.unsupported = "OpenAPIV3Schema 'schema' is not supported"
        for keyword in _UNSUPPORTED:
            if raw.get(keyword):
                detail = f"{keyword} is not supported"
                self._add(child(path, keyword), ErrorType.FORBIDDEN, "", detail)
                self.unsupported = f"OpenAPIV3Schema '{keyword}' is not supported"
        self._unsupported_values(raw, path, context)

    def _unsupported_values(self, raw: Mapping[str, Any], path: str, context: _Context) -> None:
        if raw.get("type") == "null":
            detail = "type cannot be set to null, use nullable as an alternative"
            self._add(child(path, "type"), ErrorType.FORBIDDEN, "", detail)
        if isinstance(raw.get("items"), list) and raw["items"]:
            detail = "items must be a schema object and not an array"
            self._add(child(path, "items"), ErrorType.FORBIDDEN, "", detail)
            self.unsupported = "OpenAPIV3Schema 'items' must be a schema, but is an array"
        if context.inside_meta and raw.get("x-kubernetes-embedded-resource"):
            detail = "must not be used inside of resource meta"
            self._add(
                child(path, "x-kubernetes-embedded-resource"), ErrorType.FORBIDDEN, "", detail
            )
        if raw.get("uniqueItems"):
            detail = (
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            )
            self._add(child(path, "uniqueItems"), ErrorType.FORBIDDEN, "", detail)

    def _additional_properties(
        self, raw: Mapping[str, Any], schema: StructuralSchema, path: str, context: _Context
    ) -> None:
        additional_path = child(path, "additionalProperties")
        if schema.properties and schema.additional_properties is not True:
            detail = "additionalProperties and properties are mutual exclusive"
            self._add(additional_path, ErrorType.FORBIDDEN, "", detail)
        if schema.additional_schema is not None:
            if context.inside_meta:
                reason = "inside additionalProperties applying to object metadata"
                context = replace(context, no_defaults=reason)
            self._node(
                raw["additionalProperties"], schema.additional_schema, additional_path, context
            )

    def _junctors(
        self, raw: Mapping[str, Any], schema: StructuralSchema, path: str, context: _Context
    ) -> None:
        value = schema.value
        if value is None:
            return
        if value.not_ is not None:
            self._node(raw["not"], value.not_, child(path, "not"), context)
        for keyword, nested in (
            ("allOf", value.all_of),
            ("oneOf", value.one_of),
            ("anyOf", value.any_of),
        ):
            for index, below in enumerate(nested):
                self._node(raw[keyword][index], below, item(child(path, keyword), index), context)


def check_root_with_status(raw: Mapping[str, Any], path: str) -> ErrorList:
    """What may not stand at the root if there is a status subresource.

    The schema of the status is cut out there, and what the root says about it would be lost.
    """
    if raw.get("type") not in ("object", None, ""):
        detail = (
            'only "object" is allowed as the type at the root of the schema if the status '
            "subresource is enabled"
        )
        return [FieldError(child(path, "type"), ErrorType.INVALID, raw["type"], detail)]
    for keyword, value in raw.items():
        if keyword not in _AT_ROOT_KEYWORDS and value not in (None, False, "", [], {}):
            detail = (
                f"only [{' '.join(_AT_ROOT)}] fields are allowed at the root of the schema if the "
                "status subresource is enabled"
            )
            return [FieldError(path, ErrorType.INVALID, OMITTED, detail)]
    return []


def _property_context(
    context: _Context, schema: StructuralSchema, name: str, *, is_root: bool
) -> _Context:
    if name in _META_FIELDS and (is_root or schema.embedded_resource):
        context = replace(context, inside_meta=True)
        if is_root:
            context = replace(context, no_defaults=f"in top-level {name}")
    return context


def _check_extensions(
    raw: Mapping[str, Any], schema: StructuralSchema, path: str
) -> Iterator[FieldError]:
    """Which `x-kubernetes-*` keywords may stand together, and with which types."""
    if raw.get("x-kubernetes-preserve-unknown-fields") is False:
        yield FieldError(
            child(path, "x-kubernetes-preserve-unknown-fields"),
            ErrorType.INVALID,
            value=False,
            detail="must be true or undefined",
        )
    if schema.map_type is not None:
        keyword = "x-kubernetes-map-type"
        yield from _check_holder(schema, path, "object", keyword)
        if schema.map_type not in ("atomic", "granular"):
            yield _not_supported(child(path, keyword), schema.map_type, ("atomic", "granular"))
    if schema.list_type is not None:
        keyword = "x-kubernetes-list-type"
        wrong_holder = list(_check_holder(schema, path, "array", keyword))
        yield from wrong_holder
        if not wrong_holder and schema.list_type == "set" and schema.items is not None:
            yield from _check_set_items(schema.items, child(path, "items"))
        if schema.list_type not in ("atomic", "set", "map"):
            yield _not_supported(child(path, keyword), schema.list_type, ("atomic", "set", "map"))
    if schema.list_map_keys and schema.list_type != "map":
        yield _required_or_invalid(
            child(path, "x-kubernetes-list-type"),
            schema.list_type,
            "must be map if x-kubernetes-list-map-keys is non-empty",
        )
    if schema.list_type == "map":
        yield from _check_list_map(raw, schema, path)
    if schema.list_type in ("map", "set") and schema.items is not None:
        yield from _check_list_items(schema, schema.items, child(path, "items"))


def _check_holder(
    schema: StructuralSchema, path: str, kind: str, keyword: str
) -> Iterator[FieldError]:
    if schema.type != kind:
        detail = f"must be {kind} if {keyword} is specified"
        yield _required_or_invalid(child(path, "type"), schema.type or None, detail)


def _check_set_items(items: StructuralSchema, path: str) -> Iterator[FieldError]:
    """Items of a set must be scalar or atomic."""
    detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
    if items.type == "array" and items.list_type not in (None, "atomic"):
        keyword = "x-kubernetes-list-type"
        yield FieldError(child(path, keyword), ErrorType.INVALID, items.list_type, detail)
    if items.type == "object" and items.map_type != "atomic":
        keyword = "x-kubernetes-map-type"
        # The server prints the list type of the items here.
        yield FieldError(child(path, keyword), ErrorType.INVALID, items.list_type, detail)


def _check_list_map(
    raw: Mapping[str, Any], schema: StructuralSchema, path: str
) -> Iterator[FieldError]:
    keys_path = child(path, "x-kubernetes-list-map-keys")
    if not schema.list_map_keys:
        detail = "must not be empty if x-kubernetes-list-type is map"
        yield FieldError(keys_path, ErrorType.REQUIRED, "", detail)
    if raw.get("items") is None:
        detail = "must have a schema if x-kubernetes-list-type is map"
        yield FieldError(child(path, "items"), ErrorType.REQUIRED, "", detail)
    items = schema.items
    if items is None:
        return
    if items.type != "object":
        yield FieldError(
            f"{path}.items.type",
            ErrorType.INVALID,
            items.type,
            "must be object if parent array's x-kubernetes-list-type is map",
        )
        return
    keys = list(schema.list_map_keys)
    for index, key in enumerate(keys):
        below = items.properties.get(key)
        if below is None:
            detail = "entries must all be names of item properties"
            yield FieldError(keys_path, ErrorType.INVALID, keys, detail)
        elif below.type in ("array", "object"):
            yield FieldError(
                f"{path}.items.properties[{key}].type",
                ErrorType.INVALID,
                items.type,
                "must be a scalar type if parent array's x-kubernetes-list-type is map",
            )
        if key in keys[:index]:
            detail = "must not contain duplicate entries"
            yield FieldError(keys_path, ErrorType.INVALID, keys, detail)


def _check_list_items(
    schema: StructuralSchema, items: StructuralSchema, path: str
) -> Iterator[FieldError]:
    """Items of sets and list-maps are never null, and the keys of a list-map always there."""
    if items.nullable:
        detail = f"cannot be nullable when x-kubernetes-list-type is {schema.list_type}"
        yield FieldError(child(path, "nullable"), ErrorType.FORBIDDEN, "", detail)
    if schema.list_type != "map":
        return
    with_default = {name for name, _ in items.defaulted}
    for key in schema.list_map_keys:
        below = items.properties.get(key)
        if below is None:
            continue
        subject = "this property is in x-kubernetes-list-map-keys"
        property_path = f"{path}.properties[{key}]"
        if key not in items.required and key not in with_default:
            detail = f"{subject}, so it must have a default or be a required property"
            yield FieldError(child(property_path, "default"), ErrorType.REQUIRED, "", detail)
        if below.nullable:
            detail = f"{subject}, so it cannot be nullable"
            yield FieldError(child(property_path, "nullable"), ErrorType.FORBIDDEN, "", detail)


def _check_rules(schema: StructuralSchema, path: str) -> Iterator[FieldError]:
    """The fields of rules apart from the expressions themselves."""
    for index, rule in enumerate(schema.validations):
        rule_path = item(child(path, "x-kubernetes-validations"), index)
        text, message = rule.get("rule") or "", rule.get("message") or ""
        if not text.strip():
            yield FieldError(
                child(rule_path, "rule"), ErrorType.REQUIRED, "", "rule is not specified"
            )
        elif message and not message.strip():
            detail = "must be non-empty if specified"
            yield FieldError(child(rule_path, "message"), ErrorType.INVALID, message, detail)
        elif _has_line_break(message.strip()):
            detail = "must not contain line breaks"
            yield FieldError(child(rule_path, "message"), ErrorType.INVALID, message, detail)
        elif _has_line_break(text.strip()) and not message.strip():
            detail = "message must be specified if rule contains line breaks"
            yield FieldError(child(rule_path, "message"), ErrorType.REQUIRED, "", detail)
        message_expression = rule.get("messageExpression") or ""
        if message_expression and not message_expression.strip():
            detail = "messageExpression must be non-empty if specified"
            yield FieldError(child(rule_path, "messageExpression"), ErrorType.REQUIRED, "", detail)
        reason = rule.get("reason")
        if reason is not None and reason not in _REASONS:
            yield _not_supported(child(rule_path, "reason"), reason, _REASONS)
        yield from _check_field_path(schema, rule.get("fieldPath") or "", rule_path)


def _check_field_path(
    schema: StructuralSchema, field_path: str, rule_path: str
) -> Iterator[FieldError]:
    path = child(rule_path, "fieldPath")
    if not field_path:
        return
    if not field_path.strip():
        detail = "must be non-empty if specified"
        yield FieldError(path, ErrorType.INVALID, field_path, detail)
    if _has_line_break(field_path):
        detail = "must not contain line breaks"
        yield FieldError(path, ErrorType.INVALID, field_path, detail)
    try:
        resolve_field_path(field_path, schema)
    except FieldPathError:
        yield FieldError(path, ErrorType.INVALID, field_path, "must be a valid path")


def _has_line_break(text: str) -> bool:
    return "\n" in text or "\r" in text


def _required_or_invalid(path: str, value: str | None, detail: str) -> FieldError:
    if value is None:
        return FieldError(path, ErrorType.REQUIRED, "", detail)
    return FieldError(path, ErrorType.INVALID, value, detail)


def _not_supported(path: str, value: str, supported: tuple[str, ...]) -> FieldError:
    return FieldError(path, ErrorType.NOT_SUPPORTED, value, _supported(supported))


def _supported(values: tuple[str, ...]) -> str:
    return "supported values: " + ", ".join(f'"{value}"' for value in values)
