"""The guards of rules: what is written into the expression, and what cannot be built."""

import msgspec
import pytest

from kthena.api.crd.definition import root_schema
from kthena.api.crd.guards import validation
from kthena.api.crd.schema import SchemaError, struct_schema
from kthena.api.kinds import DEFINITIONS
from kthena.api.markers import schema
from kthena.api.rules import (
    FORBIDDEN,
    AlreadyBroken,
    Guard,
    Rule,
    SelfGuarded,
    Transition,
    Unchanged,
)


def _rule(expression: str, guard: Guard) -> Rule:
    return Rule(at="spec", expression=expression, message="no", guard=guard)


def test_an_unchanged_node_passes_before_the_rule_is_evaluated() -> None:
    entry = validation(_rule("self.a < 1", Unchanged()))
    assert entry["rule"] == "(oldSelf.hasValue() && oldSelf.value() == self) || (self.a < 1)"
    assert entry["optionalOldSelf"] is True


def test_named_fields_are_compared_with_their_presence() -> None:
    entry = validation(_rule("self.a < 1", Unchanged(("a", "b.c"))))
    assert entry["rule"] == (
        "(oldSelf.hasValue() && [oldSelf.orValue(self)].all(p,"
        " has(p.a) == has(self.a) && (!has(self.a) || (p.a == self.a))"
        " && has(p.b) == has(self.b) && (!has(self.b)"
        " || (has(p.b.c) == has(self.b.c) && (!has(self.b.c) || (p.b.c == self.b.c))))))"
        " || (self.a < 1)"
    )


def test_what_was_broken_already_passes_and_names_are_not_cut() -> None:
    entry = validation(_rule("self.a < myself", AlreadyBroken()))
    assert entry["rule"] == (
        "(oldSelf.hasValue() && (oldSelf.value() == self"
        " || ![oldSelf.orValue(self)].all(p, p.a < myself))) || (self.a < myself)"
    )


def test_a_transition_takes_the_old_value_as_it_is() -> None:
    entry = validation(_rule("self == oldSelf", Transition()))
    assert entry["rule"] == "self == oldSelf"
    assert "optionalOldSelf" not in entry


@pytest.mark.parametrize("guard", [Transition(), SelfGuarded()])
def test_a_rule_that_forgets_the_old_object_is_refused(guard: Guard) -> None:
    with pytest.raises(ValueError, match="does not look at oldSelf"):
        validation(_rule("self.a < 1", guard))


def test_reason_and_path_are_written() -> None:
    entry = validation(
        Rule(at="", expression="true", message="no", reason=FORBIDDEN, field_path=".spec")
    )
    assert (entry["reason"], entry["fieldPath"]) == ("FieldValueForbidden", ".spec")


def test_a_rule_for_a_node_that_is_not_there_is_refused() -> None:
    kind = DEFINITIONS[0]
    stray = Rule(at="spec.template.rolls[]", expression="true", message="stray")
    broken = type(kind)(kind.info, kind.struct, kind.spec, kind.status, (stray,))
    with pytest.raises(ValueError, match=r"no node 'spec\.template\.rolls\[\]'"):
        root_schema(broken)


def test_a_type_that_a_crd_cannot_express_is_refused() -> None:
    class Odd(msgspec.Struct):
        ratio: float

    with pytest.raises(SchemaError, match="no structural schema"):
        struct_schema(Odd)


def test_a_union_of_other_types_is_refused() -> None:
    class Odd(msgspec.Struct):
        either: int | bool

    with pytest.raises(SchemaError, match="a union in a schema"):
        struct_schema(Odd)


def test_an_unknown_keyword_is_refused() -> None:
    with pytest.raises(ValueError, match="maximal"):
        schema(maximal=3)
