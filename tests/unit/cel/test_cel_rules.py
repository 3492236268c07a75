"""Rules of a schema as a set: compiling, paths, and what they say of a value by itself."""

from typing import Any

import pytest

from kthena.machinery.cel.rules import RuleSet, compile_rules
from kthena.machinery.fields import ErrorType
from kthena.machinery.schema.correlation import Correlated
from kthena.machinery.schema.custom import SINGLE_VERSION_PATH
from kthena.machinery.schema.structural import SchemaError, StructuralSchema, decode


def _schema(*rules: dict[str, Any], **more: Any) -> StructuralSchema:
    properties = {"n": {"type": "integer"}, "s": {"type": "string"}, **more.pop("properties", {})}
    schema = {"type": "object", "properties": properties, "x-kubernetes-validations": list(rules)}
    return decode({**schema, **more}, SINGLE_VERSION_PATH)


def _rules(*rules: dict[str, Any], **more: Any) -> RuleSet:
    return compile_rules(_schema(*rules, **more), path="schema", is_resource=False)


def _texts(rules: RuleSet, new: Any, old: Any = None) -> list[str]:
    return [str(error) for error in rules.validate(new, old, path="spec").errors]


def test_a_schema_without_rules_has_none() -> None:
    rules = _rules()
    assert not rules
    assert rules.validate({"n": 1}).errors == []
    assert _rules({"rule": "true"})


def test_a_broken_rule_says_its_message_or_its_text() -> None:
    rules = _rules({"rule": " self.n > 1 "}, {"rule": "self.n > 2", "message": " too small "})
    assert _texts(rules, {"n": 1}) == [
        "spec: Invalid value: failed rule: self.n > 1",
        "spec: Invalid value: too small",
    ]
    assert _texts(rules, {"n": 3}) == []


def test_at_the_root_errors_name_no_field() -> None:
    (error,) = compile_rules(_schema({"rule": "self.n > 1"})).validate({"n": 1}).errors
    assert error.path == "<nil>"


def test_a_rule_that_cannot_be_evaluated_names_the_cause_and_the_rule() -> None:
    rules = _rules(
        {"rule": "int(self.s) > 1", "message": "small"},
        {"rule": "dyn(self.s) > 1"},
        {"rule": "duration(self.s) > duration('1s')"},
        {"rule": "self.s.matches(self.s)"},
    )
    assert _texts(rules, {"s": "("}) == [
        (
            "spec: Invalid value: \"object\": type conversion error from 'string' to 'int' evaluating "
            "rule: small"
        ),
        (
            "spec: Invalid value: \"object\": 'no such overload': call arguments did not match a "
            "supported operator, function or macro signature for rule: dyn(self.s) > 1"
        ),
        (
            "spec: Invalid value: \"object\": type conversion error from 'string' to "
            "'google.protobuf.Duration' evaluating rule: duration(self.s) > duration('1s')"
        ),
        (
            'spec: Invalid value: "object": error parsing regexp: missing closing ): `(` evaluating '
            "rule: self.s.matches(self.s)"
        ),
    ]


def test_transition_rules_wait_for_an_old_value() -> None:
    rules = _rules({"rule": "self.n >= oldSelf.n", "message": "shrinks"})
    assert _texts(rules, {"n": 1}) == []
    assert _texts(rules, {"n": 1}, {"n": 2}) == ["spec: Invalid value: shrinks"]


def test_an_optional_old_value_is_none_on_creation() -> None:
    rules = _rules({"rule": "oldSelf.hasValue() || self.n == 0", "optionalOldSelf": True})
    assert _texts(rules, {"n": 1}) == [
        "spec: Invalid value: failed rule: oldSelf.hasValue() || self.n == 0"
    ]
    assert _texts(rules, {"n": 1}, {"n": 1}) == []


def test_what_is_unchanged_is_a_warning_if_it_is_tolerated() -> None:
    rule = {"rule": "self.n > 1", "message": "small"}
    schema = _schema(rule)
    rules = compile_rules(schema, is_resource=False)
    value = {"n": 1}
    strict = rules.validate(value, value, path="spec")
    assert (len(strict.errors), strict.warnings) == (1, [])
    findings = rules.validate(
        value, value, path="spec", ratchet=Correlated(value, {"n": 1}, schema)
    )
    assert (findings.errors, findings.warnings) == ([], ["spec: Invalid value: small"])


def test_reasons_become_error_types() -> None:
    rules = _rules(
        {"rule": "false", "reason": "FieldValueForbidden", "message": "no", "fieldPath": ".n"},
        {"rule": "false", "reason": "FieldValueRequired", "message": "missing", "fieldPath": ".s"},
        {"rule": "false", "reason": "FieldValueDuplicate", "message": "twice"},
    )
    errors = rules.validate({}, path="spec").errors
    assert [(error.path, error.type) for error in errors] == [
        ("spec.n", ErrorType.FORBIDDEN),
        ("spec.s", ErrorType.REQUIRED),
        ("spec", ErrorType.DUPLICATE),
    ]


def test_all_rules_that_do_not_compile_are_told_with_their_place() -> None:
    inner = {"type": "string", "x-kubernetes-validations": [{"rule": "self > 1"}]}
    with pytest.raises(SchemaError) as failure:
        _rules(
            {"rule": "true"},
            {"rule": "self.nn > 1"},
            {"rule": "self.n"},
            {"rule": "true", "messageExpression": "self.n"},
            properties={"inner": inner},
        )
    assert [error.path for error in failure.value.errors] == [
        "schema.properties[inner].x-kubernetes-validations[0].rule",
        "schema.x-kubernetes-validations[1].rule",
        "schema.x-kubernetes-validations[2].rule",
        "schema.x-kubernetes-validations[3].messageExpression",
    ]
    assert "undefined field 'nn'" in str(failure.value)


@pytest.mark.parametrize(
    "expression",
    [
        "authorizer.group('x').check('get').allowed()",
        "math.greatest(1, 2) == 2",
        "google.protobuf.Duration{seconds: 1} == duration('1s')",
    ],
)
def test_what_the_engine_cannot_do_does_not_compile(expression: str) -> None:
    with pytest.raises(SchemaError, match="compilation failed"):
        _rules({"rule": expression})


def test_items_and_values_are_checked_at_their_own_place() -> None:
    positive = {
        "type": "integer",
        "x-kubernetes-validations": [{"rule": "self > 0", "message": "-"}],
    }
    rules = _rules(
        properties={
            "list": {"type": "array", "items": positive},
            "map": {"type": "object", "additionalProperties": positive},
        }
    )
    found = rules.validate({"list": [1, 0], "map": {"a b": 0}}, path="spec").errors
    assert [error.path for error in found] == ["spec.list[1]", "spec.map[a b]"]


def test_data_of_the_wrong_shape_is_an_error_of_the_rule() -> None:
    rules = _rules({"rule": "self.n > 1"})
    assert _texts(rules, {"n": "x"}) == [
        (
            'spec: Invalid value: "object": invalid data, expected int, got string evaluating rule: '
            "self.n > 1"
        )
    ]
    assert _texts(rules, []) == [
        (
            'spec: Invalid value: "object": invalid data, expected a map for the provided schema with '
            "type=object evaluating rule: self.n > 1"
        )
    ]
