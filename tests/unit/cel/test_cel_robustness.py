"""Whatever the text and whatever the data: an expression compiles or is refused, and gives a value or fails."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.environment import (
    CelPlanError,
    CelResultError,
    compile_expression,
    functions,
)
from kthena.machinery.cel.library.addresses import CIDR, IP
from kthena.machinery.cel.library.kubernetes import QUANTITY, URL
from kthena.machinery.cel.library.operators import RELATIONS
from kthena.machinery.cel.parser import MAX_DEPTH
from kthena.machinery.cel.rules import compile_rules
from kthena.machinery.cel.syntax import CelCompileError
from kthena.machinery.cel.typesystem import Type
from kthena.machinery.cel.values import CelCancelledError, CelError, type_name
from kthena.machinery.schema.custom import SINGLE_VERSION_PATH
from kthena.machinery.schema.structural import decode

_PIECES = [
    "self", "oldSelf", "a", ".", ".?", "?.", "[", "]", "(", ")", "{", "}", ",", ":", "?", "||", "&&",
    "==", "!=", "<", "<=", "+", "-", "*", "/", "%", "!", "in", "1", "1u", "0x", "1.5", "1e9", "'a'",
    '"b"', "b'c'", "r'd'", "true", "null", "int", "string", ".all(", ".map(", "x", "has(", "dyn(",
    ".size()", ".matches(", "duration(", "`", "\\", "\n", "é",
]  # fmt: skip


@given(st.one_of(st.text(), st.lists(st.sampled_from(_PIECES)).map("".join)))
@example("\x00")
@example("'\\ud800'")
@example("[" * 5000)
@example("-" * 5000 + "1")
@example("!" * 5000 + "true")
@example("1" * 5000)
@example("1+" * 2000 + "1")
@example("a." * 2000 + "b")
@example("a" + "[0]" * 2000)
@example("a" + ".b()" * 2000)
def test_every_text_compiles_or_is_refused(text: str) -> None:
    variables = {
        "self": types.DYN,
        "oldSelf": types.map_of(types.STRING, types.INT),
        "a": types.DYN,
    }
    try:
        program = compile_expression(text, variables)
    except (CelCompileError, CelPlanError, CelResultError):
        return
    assert program.variables <= variables.keys()


def test_loops_without_end_are_cancelled() -> None:
    # A loop in which failures do not count must not go on, either.
    nested = "self.exists(a, self.exists(b, self.exists(c, c < 0)))"
    schema = {
        "type": "array",
        "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]},
        "x-kubernetes-validations": [
            {"rule": "size(self) > 0"},
            {"rule": nested},
            {"rule": "false"},
        ],
    }
    rules = compile_rules(decode(schema, SINGLE_VERSION_PATH))
    found = [error.detail for error in rules.validate([0, 1]).errors]
    assert found == [f"failed rule: {nested}", "failed rule: false", "failed rule: self > 0"]
    (cancelled,) = rules.validate(list(range(2000))).errors
    assert cancelled.detail == (
        "'operation cancelled: actual cost limit exceeded': no further validation rules will be "
        f"run due to call cost exceeds limit for rule: {nested}"
    )


def test_nesting_beyond_the_limit_is_refused() -> None:
    deep = "(" * (MAX_DEPTH - 1) + "1" + ")" * (MAX_DEPTH - 1)
    assert compile_expression(deep, {}).evaluate({}) == 1
    with pytest.raises(CelCompileError, match="expression recursion limit exceeded"):
        compile_expression(f"({deep})", {})


_SCALARS: dict[Type, st.SearchStrategy[str]] = {
    types.BOOL: st.sampled_from(["true", "false"]),
    types.INT: st.sampled_from(["0", "-1", "3", "9223372036854775807", "-9223372036854775808"]),
    types.UINT: st.sampled_from(["0u", "2u", "18446744073709551615u"]),
    types.DOUBLE: st.sampled_from(["0.0", "-1.5", "1e300", "(0.0 / 0.0)", "(1.0 / 0.0)"]),
    types.STRING: st.sampled_from(
        [
            "''",
            "'a'",
            "'é😀'",
            "'%s %d'",
            "'('",
            "'1'",
            "'1h'",
            "'2024-01-01T00:00:00Z'",
            "'http://h/'",
            "'1Gi'",
            "'10.0.0.0/8'",
            "'::1'",
            f"'{'9' * 5000}'",
            "'\\x00'",
        ]
    ),
    types.BYTES: st.sampled_from(["b''", "b'a'", "b'\\xff'"]),
    types.NULL: st.just("null"),
    types.DURATION: st.sampled_from(["duration('1h')", "duration('-9223372036854775808ns')"]),
    types.TIMESTAMP: st.sampled_from(
        ["timestamp('9999-12-31T23:59:59Z')", "timestamp('0001-01-01T00:00:00Z')"]
    ),
    URL: st.just("url('http://u@h:1/p?q=1#f')"),
    QUANTITY: st.sampled_from(["quantity('1')", "quantity('-1.5Gi')"]),
    IP: st.sampled_from(["ip('1.2.3.4')", "ip('::1')"]),
    CIDR: st.sampled_from(["cidr('1.2.3.4/8')", "cidr('::/0')"]),
}
_ANY = st.one_of(*_SCALARS.values())


def _values(wanted: Type) -> st.SearchStrategy[str]:
    """Texts of values of a type; now and then of another, which the checker takes for any."""
    return st.one_of(_exact(wanted), _exact(wanted), _ANY.map(lambda text: f"dyn({text})"))


def _exact(wanted: Type) -> st.SearchStrategy[str]:
    if wanted.kind == "list":
        elements = _exact(wanted.params[0])
        return st.lists(elements, max_size=3).map(lambda texts: f"[{', '.join(texts)}]")
    if wanted.kind == "map":
        values = _exact(wanted.params[1])
        return values.map(lambda text: f"{{'a': {text}}}")
    if wanted.name == "optional_type":
        values = _exact(wanted.params[0])
        return st.one_of(st.just("optional.none()"), values.map(lambda v: f"optional.of({v})"))
    if wanted.kind == "type":
        return st.sampled_from(["int", "type('a')"])
    return _SCALARS.get(wanted, _SCALARS[types.INT])


def _calls() -> Iterator[tuple[str, bool, tuple[Type, ...]]]:
    operators = ("_", "@", "-_", "!_", "cel.@")
    table = functions()
    for name in sorted(table.names()):
        for overload in table.overloads(name) or ():
            if not name.startswith(operators):
                yield name, overload.is_member, overload.params


@pytest.mark.parametrize(("name", "is_member", "params"), list(_calls()))
@settings(max_examples=8)
@given(data=st.data())
def test_every_function_gives_a_value_or_fails(
    name: str, is_member: bool, params: tuple[Type, ...], data: st.DataObject
) -> None:
    args = [data.draw(_values(param)) for param in params]
    receiver = f"{args.pop(0)}." if is_member else ""
    _evaluate(f"{receiver}{name}({', '.join(args)})")


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "%", "in", "==", "&&", *RELATIONS])
@settings(max_examples=30)
@given(left=_ANY, right=_ANY)
def test_every_operator_gives_a_value_or_fails(operator: str, left: str, right: str) -> None:
    symbol = operator.strip("_")
    _evaluate(f"dyn({left}) {symbol} dyn({right})")
    _evaluate(f"[{left}] {symbol} [{right}]")
    _evaluate(f"{{{left}: {right}}}[dyn({right})]")


def _evaluate(expression: str) -> None:
    try:
        value = compile_expression(expression, {}).evaluate({})
    except (CelCompileError, CelPlanError, CelError, CelCancelledError):
        return
    assert type_name(value)
    assert not isinstance(value, complex)
    assert not isinstance(value, float) or value == value or math.isnan(value)  # noqa: PLR0124 - NaN


_SCHEMA = decode(
    {
        "type": "object",
        "properties": {
            "s": {"type": "string"},
            "t": {"type": "string", "format": "date-time"},
            "d": {"type": "string", "format": "duration"},
            "b": {"type": "string", "format": "byte"},
            "n": {"type": "number"},
            "i": {"x-kubernetes-int-or-string": True},
            "u": {"x-kubernetes-preserve-unknown-fields": True},
            "m": {"type": "object", "additionalProperties": {"type": "integer"}},
            "l": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}},
            },
            "z": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        },
        "x-kubernetes-validations": [
            {"rule": rule, "optionalOldSelf": True}
            if "oldSelf" in rule
            else {
                "rule": rule,
                "messageExpression": "'%s %s'.format([dyn(self), dyn(self) == self])",
            }
            for rule in (
                "self.s.matches(self.s) && self.s.find(self.s) == self.s",
                "self.t > timestamp('2024-01-01T00:00:00Z') && string(self.t).size() > 1",
                "self.d > duration('1s') || self.b == b'a' || self.n > 1.5",
                "type(self.i) == int ? self.i > 1 : self.i.size() > 1",
                "self.m.all(k, v, v > 0 && k in self.m) && self.m == {'a': 1}",
                "self.l.all(e, e.k != '') && self.l == self.l && self.l + self.l == self.l",
                "self.z + self.z == self.z && 'a' in self.z && self.z.isSorted()",
                "oldSelf.orValue(self) == self && oldSelf.?m['a'].orValue(1) == 1",
            )
        ],
    },
    SINGLE_VERSION_PATH,
)
_RULES = compile_rules(_SCHEMA, is_resource=False)
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=4),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "k", "s", "m"]), below, max_size=3)
    ),
    max_leaves=6,
)
_ODD_OBJECTS = st.one_of(
    st.fixed_dictionaries({}, optional=dict.fromkeys("stdbniumlz", _JSON)), _JSON
)


@given(_ODD_OBJECTS, _ODD_OBJECTS)
def test_rules_bear_data_that_does_not_fit_its_schema(new: Any, old: Any) -> None:
    findings = _RULES.validate(new, old, path="spec")
    assert all(str(error) for error in findings.errors)
