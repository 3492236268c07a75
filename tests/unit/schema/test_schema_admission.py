"""Objects on their way in: what is removed, filled in and checked, and that the caller's stay whole."""

import copy
from typing import Any

import pytest

from kthena.machinery.schema.custom import SINGLE_VERSION_PATH, CustomResourceSchema
from kthena.machinery.schema.defaulting import apply_defaults, copy_json, drop_nulls
from kthena.machinery.schema.pruning import prune, prune_value
from kthena.machinery.schema.structural import decode

_INTEGER = {"type": "integer"}


def _of_spec(spec: dict[str, Any], **root: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": spec}, **root}


def _object(**content: Any) -> dict[str, Any]:
    meta = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one"}}
    return {**meta, **content}


@pytest.fixture
def schema() -> CustomResourceSchema:
    rules = [
        {"rule": "self.size <= 10", "message": "too large"},
        {"rule": "self.size >= oldSelf.size", "message": "shrinks"},
    ]
    spec = {
        "type": "object",
        "default": {"size": 3},
        "properties": {
            "size": {**_INTEGER, "default": 2},
            "mode": {"type": "string", "enum": ["fast", "slow"]},
            "tags": {"type": "array", "items": {"type": "object", "properties": {"a": _INTEGER}}},
        },
        "x-kubernetes-validations": rules,
    }
    status = {
        "type": "object",
        "properties": {"ready": {**_INTEGER, "minimum": 0}},
        "x-kubernetes-validations": [{"rule": "self.ready < 5", "message": "too ready"}],
    }
    whole = _of_spec(spec)
    whole["properties"]["status"] = status
    return CustomResourceSchema(whole, status_subresource=True)


def test_what_is_given_is_never_changed(schema: CustomResourceSchema) -> None:
    new = _object(spec={"size": None, "x": 1, "tags": [{"a": 1, "b": 2}]}, status={"ready": 1})
    old = _object(spec={"size": 1}, status={"ready": 2})
    before = copy.deepcopy((new, old))
    admitted = [
        schema.admit_create(new).object,
        schema.admit_update(new, old).object,
        schema.admit_status_update(new, old).object,
        schema.default(new),
    ]
    for obj in admitted:
        obj["metadata"]["name"] = "changed"
        obj.get("spec", {}).clear()
        obj.get("status", {}).clear()
    assert (new, old) == before


def test_unknown_fields_go_and_defaults_come(schema: CustomResourceSchema) -> None:
    obj = _object(spec={"x": 1, "tags": [{"a": 1, "b": 2}]}, more=[])
    admitted = schema.admit_create(obj)
    assert admitted.errors == []
    assert admitted.pruned == ["more", "spec.tags[0].b", "spec.x"]
    assert admitted.object == _object(spec={"size": 2, "tags": [{"a": 1}]})


def test_the_default_of_an_absent_object_is_defaulted_in_turn(schema: CustomResourceSchema) -> None:
    assert schema.admit_create(_object()).object["spec"] == {"size": 3}
    assert schema.admit_create(_object(spec=None)).object["spec"] == {"size": 3}
    assert schema.admit_create(_object(spec={"size": None})).object["spec"] == {"size": 2}


def test_a_stored_object_is_read_with_the_defaults_of_today(schema: CustomResourceSchema) -> None:
    assert schema.default(_object(spec={"gone": 1})) == _object(spec={"size": 2})


def test_an_object_may_come_in_again_as_it_went_out(schema: CustomResourceSchema) -> None:
    first = schema.admit_create(_object(spec={"x": 1}))
    second = schema.admit_create(first.object)
    assert (second.object, second.pruned, second.errors) == (first.object, [], [])


def test_rules_wait_until_types_are_right(schema: CustomResourceSchema) -> None:
    admitted = schema.admit_create(_object(spec={"size": 20, "mode": "odd"}))
    assert [str(error) for error in admitted.errors] == [
        'spec.mode: Unsupported value: "odd": supported values: "fast", "slow"',
        (
            "<nil>: Invalid value: null: some validation rules were not checked because the object was "
            "invalid; correct the existing errors to complete validation"
        ),
    ]


def test_transition_rules_see_the_old_object(schema: CustomResourceSchema) -> None:
    old = schema.admit_create(_object(spec={"size": 5})).object
    texts = [str(e) for e in schema.admit_update(_object(spec={"size": 4}), old).errors]
    assert texts == ["spec: Invalid value: shrinks"]
    assert schema.admit_update(_object(spec={"size": 6}), old).errors == []


def test_the_status_is_written_by_its_own_road_only(schema: CustomResourceSchema) -> None:
    created = schema.admit_create(_object(spec={"size": 1}, status={"ready": 1})).object
    assert "status" not in created
    old = {**created, "status": {"ready": 1}}
    updated = schema.admit_update(_object(spec={"size": 2}, status={"ready": 4}), old)
    assert updated.object["status"] == {"ready": 1}
    written = schema.admit_status_update(_object(spec={"size": 9}, status={"ready": 4}), old)
    assert written.object == {**created, "status": {"ready": 4}}
    assert written.errors == []


def test_a_status_write_looks_at_the_schema_of_the_status_and_at_all_rules(
    schema: CustomResourceSchema,
) -> None:
    old = _object(spec={"size": 20, "mode": "odd"}, status={"ready": 1})
    fine = schema.admit_status_update(_object(status={"ready": 2}), old)
    assert fine.errors == []
    assert fine.warnings == ["spec: Invalid value: too large"]
    wrong = schema.admit_status_update(_object(status={"ready": -1}), old)
    assert [str(error) for error in wrong.errors] == [
        "status.ready: Invalid value: -1: ready in body should be greater than or equal to 0"
    ]
    refused = schema.admit_status_update(_object(status={"ready": 7}), old)
    assert [str(error) for error in refused.errors] == ["status: Invalid value: too ready"]


def test_without_a_status_subresource_the_status_is_a_field_like_others() -> None:
    schema = CustomResourceSchema(
        {"type": "object", "properties": {"status": {"type": "object", "properties": {}}}}
    )
    obj = _object(status={})
    assert schema.admit_create(obj).object == obj
    assert schema.admit_update(obj, _object()).object == obj


def test_integers_that_go_cannot_hold_become_floats() -> None:
    assert copy_json([2**63, -(2**63), 2**63 - 1]) == [2.0**63, -(2**63), 2**63 - 1]
    assert isinstance(copy_json(2**63), float)
    schema = CustomResourceSchema(_of_spec(_INTEGER))
    (error,) = schema.admit_create(_object(spec=2**70)).errors
    assert str(error) == (
        'spec: Invalid value: "number": spec in body must be of type integer: "number"'
    )


def test_pruning_names_what_it_removes() -> None:
    map_of = {"type": "object", "additionalProperties": {"type": "object"}}
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = CustomResourceSchema(
        _of_spec({"type": "object", "properties": {"m": map_of, "f": free}})
    ).schema
    obj = _object(spec={"m": {"k": {"z": 1}}, "f": {"free": {"as": "air"}}, "q": {}}, top=1)
    assert prune(obj, schema) == ["spec.m.k.z", "spec.q", "top"]
    assert obj == _object(spec={"m": {"k": {}}, "f": {"free": {"as": "air"}}})


def test_pruning_below_the_root_takes_type_and_metadata_as_well() -> None:
    schema = decode({"type": "object", "properties": {"a": _INTEGER}}, SINGLE_VERSION_PATH)
    value = {"a": 1, "kind": "K", "metadata": {}}
    assert prune_value(value, schema) == ["kind", "metadata"]
    assert value == {"a": 1}


def test_nulls_stay_where_they_are_allowed_or_in_lists() -> None:
    nullable = {"type": "string", "nullable": True}
    schema = decode(
        {
            "type": "object",
            "properties": {
                "n": nullable,
                "s": {"type": "string"},
                "l": {"type": "array", "items": {"type": "string"}},
                "m": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
        SINGLE_VERSION_PATH,
    )
    value = {"n": None, "s": None, "l": [None], "m": {"a": None}, "unknown": None}
    drop_nulls(value, schema)
    assert value == {"n": None, "l": [None], "m": {}, "unknown": None}


def test_defaults_reach_items_and_values_but_not_what_is_absent() -> None:
    inner = {"type": "object", "properties": {"a": {**_INTEGER, "default": 7}}}
    schema = decode(
        {
            "type": "object",
            "properties": {
                "one": inner,
                "list": {"type": "array", "items": inner},
                "map": {"type": "object", "additionalProperties": inner},
            },
        },
        SINGLE_VERSION_PATH,
    )
    value: dict[str, Any] = {"list": [{}, {"a": 1}], "map": {"k": {}}}
    apply_defaults(value, schema)
    assert value == {"list": [{"a": 7}, {"a": 1}], "map": {"k": {"a": 7}}}


def test_a_default_is_not_shared_between_objects() -> None:
    schema = CustomResourceSchema(
        _of_spec({"type": "array", "items": {"type": "string"}, "default": ["a"]})
    )
    schema.admit_create(_object()).object["spec"].append("b")
    assert schema.admit_create(_object()).object["spec"] == ["a"]
