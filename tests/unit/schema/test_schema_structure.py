"""The compiled tree: what other code reads from it, and what cannot be compiled."""

from typing import Any

import pytest

from kthena.machinery.schema.custom import SINGLE_VERSION_PATH, CustomResourceSchema
from kthena.machinery.schema.structural import UNSET, SchemaError, StructuralSchema, decode


def _node(schema: dict[str, Any]) -> StructuralSchema:
    return decode(schema, SINGLE_VERSION_PATH)


def test_every_part_of_a_node_is_readable() -> None:
    node = _node(
        {
            "type": "object",
            "description": "A thing.",
            "nullable": True,
            "x-kubernetes-map-type": "atomic",
            "x-kubernetes-validations": [{"rule": "true"}],
            "required": ["roles"],
            "properties": {
                "roles": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "properties": {"name": {"type": "string"}}},
                },
                "port": {"x-kubernetes-int-or-string": True},
                "mode": {"type": "string", "enum": ["a", "b"], "default": "a", "format": "uuid"},
                "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "pod": {"type": "object", "x-kubernetes-embedded-resource": True},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        }
    )
    assert (node.type, node.nullable, node.map_type) == ("object", True, "atomic")
    assert (node.description, node.required) == ("A thing.", ("roles",))
    assert list(node.validations) == [{"rule": "true"}]
    assert node.default is UNSET
    roles = node.properties["roles"]
    assert (roles.list_type, roles.list_map_keys) == ("map", ("name",))
    assert roles.items is not None
    assert roles.items.properties["name"].type == "string"
    assert node.properties["port"].int_or_string
    mode = node.properties["mode"]
    assert (mode.default, mode.enum, mode.format) == ("a", ("a", "b"), "uuid")
    assert node.properties["raw"].preserve_unknown
    assert node.properties["pod"].embedded_resource
    labels = node.properties["labels"].additional_schema
    assert labels is not None
    assert labels.type == "string"


def test_a_member_is_found_among_properties_and_additional_ones() -> None:
    node = _node({"type": "object", "additionalProperties": {"type": "integer"}})
    assert node.child("anything") is node.additional_schema
    assert _node({"type": "object", "properties": {"a": {"type": "string"}}}).child("b") is None


def test_what_is_below_a_node_is_known_at_the_node() -> None:
    plain = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}
    node = _node({"type": "object", "properties": {"p": plain}})
    assert [name for name, _ in node.properties["p"].defaulted] == ["a"]
    assert (node.has_keyed_lists, node.has_embedded) == (False, False)
    keyed = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}
    assert _node({"type": "array", "items": keyed}).has_keyed_lists
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True}
    assert _node({"type": "object", "additionalProperties": embedded}).has_embedded


def test_all_mistakes_are_told_at_once_with_their_place() -> None:
    with pytest.raises(SchemaError) as failure:
        CustomResourceSchema(
            {"type": "object", "properties": {"a": {}, "b": {"type": "array"}}},
            path="spec.versions[1].schema.openAPIV3Schema",
        )
    assert [str(error) for error in failure.value.errors] == [
        (
            "spec.versions[1].schema.openAPIV3Schema.properties[a].type: Required value: "
            "must not be empty for specified object fields"
        ),
        (
            "spec.versions[1].schema.openAPIV3Schema.properties[b].items: Required value: "
            "must be specified"
        ),
    ]
    assert "properties[a].type" in str(failure.value)


def test_a_part_of_a_schema_is_not_checked_as_a_root() -> None:
    assert _node({"type": "string"}).type == "string"
    with pytest.raises(SchemaError, match="must be object at the root"):
        CustomResourceSchema({"type": "string"})


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": 5}, "type: Invalid value: 5: must be a string"),
        ({"properties": []}, "properties: Invalid value: \\[\\]: must be an object"),
        ({"required": "a"}, 'required: Invalid value: "a": must be an array'),
        ({"maxLength": "x"}, 'maxLength: Invalid value: "x": must be an integer'),
        ({"items": {"type": True}}, "items.type: Invalid value: true: must be a string"),
    ],
)
def test_a_keyword_of_the_wrong_type_is_refused(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=f"^schema.{message}"):
        decode(schema, "schema")


def test_a_rule_that_does_not_compile_shows_when_the_schema_is_built() -> None:
    rule = {"rule": "self.replicaz > 0"}
    spec = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
    schema = {
        "type": "object",
        "properties": {"spec": {**spec, "x-kubernetes-validations": [rule]}},
    }
    with pytest.raises(
        SchemaError, match=r"\[spec\].x-kubernetes-validations\[0\].rule"
    ) as failure:
        CustomResourceSchema(schema)
    assert "undefined field 'replicaz'" in str(failure.value)
