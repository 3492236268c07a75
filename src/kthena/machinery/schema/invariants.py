"""Whether a schema is structural: the invariants of apiextensions' `ValidateStructural`.

A structural schema says the type of everything outside `allOf`, `anyOf`, `oneOf` and `not`, and
inside of those only restricts what is typed outside. Errors come sorted by their text, as there.
"""

from enum import Enum

from kthena.machinery.fields import ErrorList, ErrorType, FieldError, child, item
from kthena.machinery.regexp import RegexpError, compile_regexp
from kthena.machinery.schema.structural import UNSET, StructuralSchema, ValueValidation


class _Level(Enum):
    """Where a node stands; the value completes the error for a missing type."""

    ROOT = "at the root"
    ITEM = "for specified array items"
    FIELD = "for specified object fields"


def check_invariants(schema: StructuralSchema, path: str) -> ErrorList:
    """Every reason why the schema is not structural, sorted by text."""
    checker = _Checker()
    checker.node(schema, _Level.ROOT, path)
    checker.completeness(schema, path)
    return sorted(checker.errors, key=str)


def is_int_or_string_any_of(alternatives: tuple[StructuralSchema, ...]) -> bool:
    """Whether `anyOf` is the customary pair: type integer, type string, and nothing else."""
    return len(alternatives) == 2 and all(
        _is_only_type(alternative, name)
        for alternative, name in zip(alternatives, ("integer", "string"), strict=True)
    )


class _Checker:
    """Collects the errors of one schema."""

    def __init__(self) -> None:
        self.errors: ErrorList = []

    def required(self, path: str, detail: str) -> None:
        self.errors.append(FieldError(path, ErrorType.REQUIRED, "", detail))

    def invalid(self, path: str, value: object, detail: str) -> None:
        self.errors.append(FieldError(path, ErrorType.INVALID, value, detail))

    def forbidden(self, path: str, detail: str) -> None:
        self.errors.append(FieldError(path, ErrorType.FORBIDDEN, "", detail))

    def node(self, node: StructuralSchema, level: _Level, path: str) -> None:
        """The invariants of a node that gives structure, and of all below it."""
        self._children(node, level, path)
        if node.value is not None:
            any_of, all_of = node.value.any_of, node.value.all_of
            self._value_validation(
                node.value,
                path,
                skip_any_of=is_int_or_string_any_of(any_of),
                skip_first_all_of=bool(all_of and _any_of_is_int_or_string(all_of[0])),
            )
        self._type(node, level, path)
        if node.int_or_string and node.preserve_unknown:
            self.invalid(
                child(path, "x-kubernetes-preserve-unknown-fields"),
                value=True,
                detail="must be false if x-kubernetes-int-or-string is true",
            )
        if node.int_or_string and node.embedded_resource:
            self.invalid(
                child(path, "x-kubernetes-embedded-resource"),
                value=True,
                detail="must be false if x-kubernetes-int-or-string is true",
            )
        if node.properties:
            self._metadata(node, level, path)
        elif node.embedded_resource and not node.preserve_unknown:
            self.required(
                child(path, "properties"),
                "must not be empty if x-kubernetes-embedded-resource is true without "
                "x-kubernetes-preserve-unknown-fields",
            )

    def _children(self, node: StructuralSchema, level: _Level, path: str) -> None:
        if node.type == "array" and node.items is None:
            self.required(child(path, "items"), "must be specified")
        if node.items is not None:
            self.node(node.items, _Level.ITEM, child(path, "items"))
        for name, schema in node.properties.items():
            self.node(schema, _Level.FIELD, f"{path}.properties[{name}]")
        if node.additional_properties is None:
            return
        additional_path = child(path, "additionalProperties")
        if level is _Level.ROOT:
            self.forbidden(additional_path, "must not be used at the root")
        if node.embedded_resource:
            self.forbidden(
                additional_path, "must not be used if x-kubernetes-embedded-resource is set"
            )
        if node.additional_schema is not None:
            self.node(node.additional_schema, _Level.FIELD, additional_path)

    def _type(self, node: StructuralSchema, level: _Level, path: str) -> None:
        type_path = child(path, "type")
        if node.embedded_resource and node.type != "object":
            detail = "must be object if x-kubernetes-embedded-resource is true"
            if node.type:
                self.invalid(type_path, node.type, detail)
            else:
                self.required(type_path, detail)
        elif not node.type and not node.int_or_string and not node.preserve_unknown:
            self.required(type_path, f"must not be empty {level.value}")
        if level is _Level.ROOT and node.type not in ("", "object"):
            self.invalid(type_path, node.type, "must be object at the root")

    def _metadata(self, node: StructuralSchema, level: _Level, path: str) -> None:
        """The members that the API server itself defines, at roots of resources."""
        is_resource = level is _Level.ROOT or node.embedded_resource
        for name in ("kind", "apiVersion"):
            schema = node.properties.get(name)
            if is_resource and schema is not None and schema.type != "string":
                self.invalid(f"{path}.properties[{name}].type", schema.type, "must be string")
        metadata = node.properties.get("metadata")
        if metadata is None:
            return
        metadata_path = f"{path}.properties[metadata]"
        if is_resource and metadata.type != "object":
            self.invalid(child(metadata_path, "type"), metadata.type, "must be object")
        if level is _Level.ROOT and not _restricts_only_names(metadata):
            self.forbidden(
                metadata_path,
                "must not specify anything other than name and generateName, but metadata is "
                "implicitly specified",
            )

    def _value_validation(
        self,
        value: ValueValidation,
        path: str,
        *,
        skip_any_of: bool = False,
        skip_first_all_of: bool = False,
    ) -> None:
        if not skip_any_of:
            for index, nested in enumerate(value.any_of):
                self.nested(nested, item(child(path, "anyOf"), index))
        for index, nested in enumerate(value.all_of):
            self.nested(
                nested,
                item(child(path, "allOf"), index),
                skip_any_of=skip_first_all_of and index == 0,
            )
        for index, nested in enumerate(value.one_of):
            self.nested(nested, item(child(path, "oneOf"), index))
        if value.not_ is not None:
            self.nested(value.not_, child(path, "not"))
        if value.pattern:
            try:
                compile_regexp(value.pattern)
            except RegexpError as exc:
                self.invalid(
                    child(path, "pattern"),
                    value.pattern,
                    f"must be a valid regular expression, but isn't: {exc}",
                )

    def nested(self, node: StructuralSchema, path: str, *, skip_any_of: bool = False) -> None:
        """A node inside `allOf`, `anyOf`, `oneOf` or `not`: it may restrict values only."""
        if node.value is not None:
            self._value_validation(node.value, path, skip_any_of=skip_any_of)
        if node.items is not None:
            self.nested(node.items, child(path, "items"))
        for name, schema in node.properties.items():
            self.nested(schema, f"{path}.properties[{name}]")
        for keyword, present, detail in (
            ("type", node.type, "must be empty to be structural"),
            (
                "additionalProperties",
                _allows_additional(node),
                "must be undefined to be structural",
            ),
            ("default", node.default is not UNSET, "must be undefined to be structural"),
            ("title", node.title, "must be empty to be structural"),
            ("description", node.description, "must be empty to be structural"),
            ("nullable", node.nullable, "must be false to be structural"),
            (
                "x-kubernetes-preserve-unknown-fields",
                node.preserve_unknown,
                "must be false to be structural",
            ),
            (
                "x-kubernetes-embedded-resource",
                node.embedded_resource,
                "must be false to be structural",
            ),
            ("x-kubernetes-int-or-string", node.int_or_string, "must be false to be structural"),
            ("x-kubernetes-list-map-keys", node.list_map_keys, "must be empty to be structural"),
            (
                "x-kubernetes-list-type",
                node.list_type is not None,
                "must be undefined to be structural",
            ),
            (
                "x-kubernetes-map-type",
                node.map_type is not None,
                "must be undefined to be structural",
            ),
            ("x-kubernetes-validations", node.validations, "must be empty to be structural"),
        ):
            if present:
                self.forbidden(child(path, keyword), detail)
        if "metadata" in node.properties:
            self.forbidden(
                f"{path}.properties[metadata]", "must not be specified in a nested context"
            )

    def completeness(self, node: StructuralSchema, path: str) -> None:
        """What the junctors restrict must be specified outside of them.

        As the API server, this looks at the root alone and at what its junctors reach.
        """
        if node.value is not None:
            self._junctors_complete(node.value, node, path, path)

    def _junctors_complete(
        self, value: ValueValidation, node: StructuralSchema, path: str, nested_path: str
    ) -> None:
        junctors = [("allOf", value.all_of), ("anyOf", value.any_of), ("oneOf", value.one_of)]
        if value.not_ is not None:
            self._complete(value.not_, node, path, child(nested_path, "not"))
        for keyword, alternatives in junctors:
            for index, nested in enumerate(alternatives):
                self._complete(nested, node, path, item(child(nested_path, keyword), index))

    def _complete(
        self, nested: StructuralSchema, node: StructuralSchema | None, path: str, nested_path: str
    ) -> None:
        if node is None:
            self.required(path, f"because it is defined in {nested_path}")
            return
        if nested.value is not None:
            self._junctors_complete(nested.value, node, path, nested_path)
        if nested.items is not None:
            self._complete(
                nested.items, node.items, child(path, "items"), child(nested_path, "items")
            )
        for name, schema in nested.properties.items():
            suffix = f".properties[{name}]"
            self._complete(schema, node.properties.get(name), path + suffix, nested_path + suffix)


def _allows_additional(node: StructuralSchema) -> bool:
    """Nested decoding keeps `additionalProperties` unless it is false."""
    return node.additional_properties is not None and node.additional_properties is not False


def _any_of_is_int_or_string(node: StructuralSchema) -> bool:
    return node.value is not None and is_int_or_string_any_of(node.value.any_of)


def _is_only_type(node: StructuralSchema, name: str) -> bool:
    return node.type == name and _says_only(node, {"type"})


def _restricts_only_names(metadata: StructuralSchema) -> bool:
    """Whether metadata at the root says no more than the type, the default and the two names."""
    return metadata.properties.keys() <= {"name", "generateName"} and _says_only(
        metadata, {"type", "default", "properties"}
    )


_EMPTY_NODE = StructuralSchema()
_EMPTY_VALUE = ValueValidation()


def _says_only(node: StructuralSchema, attributes: set[str]) -> bool:
    """Whether a node has nothing but the named attributes."""
    rest = set(StructuralSchema.__slots__) - {"value", "defaulted", "has_keyed_lists"} - attributes
    return all(
        getattr(node, attribute) == getattr(_EMPTY_NODE, attribute) for attribute in rest
    ) and (
        node.value is None
        or all(
            getattr(node.value, attribute) == getattr(_EMPTY_VALUE, attribute)
            for attribute in ValueValidation.__slots__
        )
    )
