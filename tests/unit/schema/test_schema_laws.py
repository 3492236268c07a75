"""Laws of schemas, on made-up schemas and values; plain verdicts have jsonschema-rs as their judge."""

import copy
from typing import Any

import jsonschema_rs
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.schema.custom import SINGLE_VERSION_PATH, CustomResourceSchema
from kthena.machinery.schema.defaulting import apply_defaults
from kthena.machinery.schema.pruning import prune, prune_value
from kthena.machinery.schema.structural import decode
from kthena.machinery.schema.validation import validate

Schema = dict[str, Any]

_NAMES = st.sampled_from(["a", "b", "c", "d"])
_TEXTS = st.text("aBé1-\U0001f600", max_size=5)
_INTEGERS = st.integers(-12, 12)
# Multiples of a quarter: exact in binary.
_NUMBERS = st.integers(-40, 40).map(lambda n: n / 4)
_PATTERNS = st.sampled_from(["^a", "1$", "B.", "^[a-z]*$", "é"])


def _maybe(keyword: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    return st.one_of(st.just({}), values.map(lambda value: {keyword: value}))


def _join(parts: tuple[Schema, ...]) -> Schema:
    return {key: value for part in parts for key, value in part.items()}


def _limits(kind: str) -> st.SearchStrategy[Schema]:
    """Keywords that restrict values of a type."""
    sizes = st.integers(0, 4)
    keywords: dict[str, list[st.SearchStrategy[Schema]]] = {
        "string": [
            _maybe("minLength", sizes),
            _maybe("maxLength", sizes),
            _maybe("pattern", _PATTERNS),
            _maybe("enum", st.lists(_TEXTS, min_size=1, max_size=3, unique=True)),
        ],
        "integer": [
            _maybe("enum", st.lists(_INTEGERS, min_size=1, max_size=3, unique=True)),
            _maybe("multipleOf", st.integers(1, 5)),
        ],
        "boolean": [],
        "array": [_maybe("minItems", sizes), _maybe("maxItems", sizes)],
        "object": [
            _maybe("minProperties", sizes),
            _maybe("maxProperties", sizes),
            _maybe("required", st.lists(_NAMES, min_size=1, max_size=2, unique=True)),
        ],
    }
    # Whole numbers only: the server compares an integer to a bound without its fraction.
    bounds: st.SearchStrategy[Schema] = st.one_of(
        st.just({}),
        _INTEGERS.map(lambda n: {"minimum": n}),
        _INTEGERS.map(lambda n: {"maximum": n}),
        _INTEGERS.map(lambda n: {"minimum": n, "exclusiveMinimum": True}),
        _INTEGERS.map(lambda n: {"maximum": n, "exclusiveMaximum": True}),
    )
    if kind in ("integer", "number"):
        return st.tuples(bounds, bounds, *keywords.get(kind, [])).map(_join)
    return st.tuples(st.just({}), *keywords[kind]).map(_join)


def _junctions(kind: str) -> st.SearchStrategy[Schema]:
    limits = _limits(kind)
    several = st.lists(limits, min_size=1, max_size=3)
    return st.one_of(
        st.just({}),
        several.map(lambda nested: {"anyOf": nested}),
        several.map(lambda nested: {"oneOf": nested}),
        several.map(lambda nested: {"allOf": nested}),
        limits.map(lambda nested: {"not": nested}),
    )


def _scalar(kind: str) -> st.SearchStrategy[Schema]:
    return st.tuples(st.just({"type": kind}), _limits(kind), _junctions(kind)).map(_join)


def _containers(below: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    properties = st.dictionaries(_NAMES, below, max_size=3).map(lambda found: {"properties": found})
    members = st.one_of(properties, below.map(lambda schema: {"additionalProperties": schema}))
    objects = st.tuples(
        st.just({"type": "object"}), members, _limits("object"), _junctions("object")
    )
    arrays = st.tuples(st.just({"type": "array"}), below, _limits("array")).map(
        lambda parts: {**parts[0], "items": parts[1], **parts[2]}
    )
    return st.one_of(objects.map(_join), arrays)


SCHEMAS = st.recursive(
    st.sampled_from(["string", "integer", "number", "boolean"]).flatmap(_scalar),
    _containers,
    max_leaves=6,
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(_TEXTS, _INTEGERS, _NUMBERS, st.booleans(), st.none()),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(_NAMES, below, max_size=4),
    max_leaves=8,
)


def _fitting(schema: Schema) -> st.SearchStrategy[Any]:
    """Values of the right shape, which a schema may still refuse."""
    scalars: dict[str, st.SearchStrategy[Any]] = {
        "string": st.one_of(_TEXTS, st.sampled_from(schema.get("enum", ["aB"]))),
        "integer": _INTEGERS,
        "number": st.one_of(_NUMBERS, _INTEGERS),
        "boolean": st.booleans(),
    }
    kind = schema["type"]
    if kind in scalars:
        return scalars[kind]
    if kind == "array":
        return st.lists(_fitting(schema["items"]), max_size=4)
    if "additionalProperties" in schema:
        return st.dictionaries(_NAMES, _fitting(schema["additionalProperties"]), max_size=4)
    properties = schema.get("properties", {})
    return st.fixed_dictionaries(
        {}, optional={name: _fitting(below) for name, below in properties.items()}
    )


CASES = SCHEMAS.flatmap(
    lambda schema: st.tuples(st.just(schema), st.one_of(_fitting(schema), VALUES))
)


@given(CASES)
def test_the_verdict_is_that_of_json_schema(case: tuple[Schema, Any]) -> None:
    schema, value = case
    errors = validate(value, decode(schema, SINGLE_VERSION_PATH))
    assert (errors == []) == jsonschema_rs.Draft4Validator(schema).is_valid(value), errors


@given(CASES)
def test_what_is_unchanged_is_never_wrong_on_update(case: tuple[Schema, Any]) -> None:
    schema, value = case
    node = decode(schema, SINGLE_VERSION_PATH)
    prune_value(value, node)
    assert validate(value, node, old=copy.deepcopy(value)) == []


@given(CASES, VALUES)
def test_an_update_has_no_errors_that_creation_has_not(case: tuple[Schema, Any], old: Any) -> None:
    schema, value = case
    node = decode(schema, SINGLE_VERSION_PATH)
    created = validate(value, node)
    assert all(error in created for error in validate(value, node, old=old))


@given(CASES)
def test_pruning_once_is_enough_and_leaves_what_fits(case: tuple[Schema, Any]) -> None:
    schema, value = case
    node = decode(schema, SINGLE_VERSION_PATH)
    prune_value(value, node)
    once = copy.deepcopy(value)
    assert prune_value(value, node) == []
    assert value == once


@given(SCHEMAS.flatmap(lambda schema: st.tuples(st.just(schema), _fitting(schema))))
def test_a_value_of_the_shape_of_its_schema_loses_nothing(case: tuple[Schema, Any]) -> None:
    schema, value = case
    before = copy.deepcopy(value)
    assert prune_value(value, decode(schema, SINGLE_VERSION_PATH)) == []
    assert value == before


_DEFAULTED = st.recursive(
    st.sampled_from(
        [{"type": "integer", "default": 3}, {"type": "string"}, {"type": "string", "default": ""}]
    ),
    lambda below: st.one_of(
        st.dictionaries(_NAMES, below, max_size=3).map(
            lambda properties: {"type": "object", "properties": properties}
        ),
        st.dictionaries(_NAMES, below, max_size=3).map(
            lambda properties: {"type": "object", "properties": properties, "default": {}}
        ),
        below.map(lambda items: {"type": "array", "items": items}),
    ),
    max_leaves=6,
)


@given(_DEFAULTED, VALUES)
def test_defaults_come_once_and_change_nothing_that_is_there(schema: Schema, value: Any) -> None:
    node = decode(schema, SINGLE_VERSION_PATH)
    before = copy.deepcopy(value)
    apply_defaults(value, node)
    assert _contains(value, before)
    once = copy.deepcopy(value)
    apply_defaults(value, node)
    assert value == once


def _contains(value: Any, part: Any) -> bool:
    """Whether all of `part` is in `value`; a null may have been replaced."""
    if part is None:
        return True
    if isinstance(part, dict):
        return all(key in value and _contains(value[key], entry) for key, entry in part.items())
    if isinstance(part, list):
        return len(value) == len(part) and all(map(_contains, value, part))
    return bool(value == part)


@given(SCHEMAS, VALUES)
def test_admission_is_stable_and_leaves_its_input_alone(schema: Schema, value: Any) -> None:
    compiled = CustomResourceSchema({"type": "object", "properties": {"spec": schema}})
    obj = {"apiVersion": "e/v1", "kind": "K", "metadata": {"name": "n"}, "spec": value}
    before = copy.deepcopy(obj)
    first = compiled.admit_create(obj)
    assert obj == before
    second = compiled.admit_create(first.object)
    assert (second.object, second.pruned) == (first.object, [])
    assert second.errors == first.errors
    stored = compiled.default(first.object)
    assert compiled.admit_update(first.object, stored).errors == []
    assert prune(copy.deepcopy(first.object), compiled.schema) == []
