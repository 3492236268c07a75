"""The core of the language against another engine, CEL C++: same values, and errors at the same places.

Only where both follow one definition: what is particular to cel-go or Kubernetes (texts of errors,
conversions of odd strings, durations, regular expressions) is held to the golden vectors.
"""

from typing import Any

from cel_expr_python import cel
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.environment import compile_expression
from kthena.machinery.cel.values import CelError

_VARIABLES = {
    "i": types.INT,
    "j": types.INT,
    "s": types.STRING,
    "t": types.STRING,
    "d": types.DOUBLE,
    "xs": types.list_of(types.INT),
    "m": types.map_of(types.STRING, types.INT),
}
_ENVIRONMENT = cel.NewEnv(
    variables={
        "i": cel.Type.INT,
        "j": cel.Type.INT,
        "s": cel.Type.STRING,
        "t": cel.Type.STRING,
        "d": cel.Type.DOUBLE,
        "xs": cel.Type.List(cel.Type.INT),
        "m": cel.Type.Map(cel.Type.STRING, cel.Type.INT),
    }
)
_FAILED = "failed"

_INTS = st.one_of(st.integers(-9, 9), st.sampled_from([2**63 - 1, -(2**63), 2**62]))
_TEXTS = st.text("abBé\U0001f600", max_size=4)
_DATA = st.fixed_dictionaries(
    {
        "i": _INTS,
        "j": _INTS,
        "s": _TEXTS,
        "t": _TEXTS,
        "d": st.sampled_from([0.0, 1.5, -2.0, 1e300]),
        "xs": st.lists(_INTS, max_size=4),
        "m": st.dictionaries(st.sampled_from(["a", "b", "ab"]), _INTS, max_size=3),
    }
)

Text = st.SearchStrategy[str]


def _infix(left: Text, operators: list[str], right: Text) -> Text:
    parts = st.tuples(left, st.sampled_from(operators), right)
    return parts.map(lambda found: f"({found[0]} {found[1]} {found[2]})")


def _fill(template: str, *parts: Text) -> Text:
    return st.tuples(*parts).map(lambda found: template.format(*found))


def _ints(depth: int) -> Text:
    leaves = st.sampled_from(["i", "j", "0", "1", "-1", "7", "9223372036854775807"])
    if depth == 0:
        return leaves
    below = _ints(depth - 1)
    return st.one_of(
        leaves,
        _infix(below, ["+", "-", "*", "/", "%"], below),
        _fill("-({})", below),
        _fill("size({})", _strings(depth - 1)),
        _fill("size({})", _lists(depth - 1)),
        _fill("{}[{}]", _lists(depth - 1), below),
        _fill("m[{}]", _strings(depth - 1)),
        st.sampled_from(["m.a", "m.b"]),
        _fill("({} ? {} : {})", _bools(depth - 1), below, below),
    )


def _strings(depth: int) -> Text:
    leaves = st.sampled_from(["s", "t", "''", "'a'", "'ab'", "'é'"])
    if depth == 0:
        return leaves
    below = _strings(depth - 1)
    return st.one_of(
        leaves,
        _infix(below, ["+"], below),
        _fill("string({})", _ints(depth - 1)),
        _fill("({} ? {} : {})", _bools(depth - 1), below, below),
    )


def _lists(depth: int) -> Text:
    leaves = st.sampled_from(["xs", "[1, 2]", "[i]"])
    if depth == 0:
        return leaves
    below = _lists(depth - 1)
    return st.one_of(
        leaves,
        _infix(below, ["+"], below),
        _fill("[{}, {}]", _ints(depth - 1), _ints(depth - 1)),
        _fill("{}.map(x, x + {})", below, _ints(depth - 1)),
        _fill("{}.filter(x, x > {})", below, _ints(depth - 1)),
    )


def _bools(depth: int) -> Text:
    leaves = st.sampled_from(["true", "false", "(i < j)", "(s == t)", "has(m.a)", "(d > 1.0)"])
    if depth == 0:
        return leaves
    below, ints, strings = _bools(depth - 1), _ints(depth - 1), _strings(depth - 1)
    relations = ["<", "<=", ">", ">=", "==", "!="]
    return st.one_of(
        leaves,
        _infix(below, ["&&", "||", "=="], below),
        _fill("!({})", below),
        _infix(ints, relations, ints),
        _infix(strings, relations, strings),
        _infix(ints, ["in"], _lists(depth - 1)),
        _fill("({} in m)", strings),
        _fill("{}.startsWith({})", strings, strings),
        _fill("{}.contains({})", strings, strings),
        _infix(_lists(depth - 1), ["==", "!="], _lists(depth - 1)),
        _fill("{}.all(x, x > {})", _lists(depth - 1), ints),
        _fill("{}.exists(x, {} / x == 1)", _lists(depth - 1), ints),
        _fill("{}.exists_one(x, x == {})", _lists(depth - 1), ints),
        _fill("m.all(k, m[k] > {} || k == {})", ints, strings),
        _fill("({} ? {} : {})", below, below, below),
    )


@given(st.one_of(_bools(3), _ints(3), _strings(3), _lists(2)), _DATA)
def test_both_engines_find_the_same(expression: str, data: dict[str, Any]) -> None:
    assert _ours(expression, data) == _theirs(expression, data)


def _ours(expression: str, data: dict[str, Any]) -> Any:
    try:
        return compile_expression(expression, _VARIABLES).evaluate(dict(data))
    except CelError:
        return _FAILED


def _theirs(expression: str, data: dict[str, Any]) -> Any:
    value = _ENVIRONMENT.compile(expression).eval(data=data)
    return _FAILED if value.type() == cel.Type.ERROR else value.plain_value()
