"""Values and names: equality and order across types, and properties as identifiers."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.cel.escaping import escape, unescape
from kthena.machinery.cel.values import (
    CelError,
    Duration,
    Optional,
    Timestamp,
    Uint,
    compare,
    equal,
    find_in_map,
    is_number,
    type_name,
)

_NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1).map(Uint),
    st.floats(),
    st.sampled_from([0, Uint(0), 0.0, -0.0, 1, Uint(1), 1.0, 2**53, float(2**53)]),
)
_SCALARS = st.one_of(
    _NUMBERS,
    st.none(),
    st.booleans(),
    st.text("ab", max_size=2),
    st.binary(max_size=2),
    st.integers(-2, 2).map(Duration),
    st.integers(-2, 2).map(Timestamp),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda below: st.one_of(
        st.lists(below, max_size=2),
        st.dictionaries(st.sampled_from(["a", "b"]), below, max_size=2),
        below.map(Optional),
    ),
    max_leaves=4,
)


@given(_VALUES, _VALUES)
def test_equality_is_symmetric(left: Any, right: Any) -> None:
    assert equal(left, right) == equal(right, left)


@given(_VALUES)
def test_a_value_equals_itself_unless_it_holds_nan(value: Any) -> None:
    assert equal(value, value) or "nan" in repr(value)


@given(_NUMBERS, _NUMBERS)
def test_numbers_are_equal_if_neither_is_larger(left: float, right: float) -> None:
    if math.isnan(left) or math.isnan(right):
        assert not equal(left, right)
        with pytest.raises(CelError, match="NaN values cannot be ordered"):
            compare(left, right)
        return
    assert compare(left, right) == -compare(right, left)
    assert equal(left, right) == (compare(left, right) == 0)


@given(_SCALARS, _SCALARS)
def test_values_of_different_types_have_no_order(left: Any, right: Any) -> None:
    if type_name(left) != type_name(right) and not (is_number(left) and is_number(right)):
        assert not equal(left, right)
        with pytest.raises(CelError, match="no such overload"):
            compare(left, right)


@pytest.mark.parametrize(
    ("key", "found"), [(1, True), (Uint(1), True), (1.0, True), (1.5, False), (True, False)]
)
def test_numbers_of_all_types_are_one_key(key: Any, found: bool) -> None:
    assert find_in_map({1: "a"}, key)[0] is found


def test_true_is_no_number_among_keys() -> None:
    assert find_in_map({True: "a"}, 1) == (False, None)
    assert find_in_map({True: "a"}, True) == (True, "a")


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("replicas", "replicas"),
        ("namespace", "__namespace__"),
        ("a.b-c/d", "a__dot__b__dash__c__slash__d"),
        ("a__b", "a__underscores__b"),
        ("a_b", "a_b"),
        ("1a", None),
        ("a b", None),
        ("é", None),
        ("", None),
    ],
)
def test_a_property_has_one_identifier_or_none(name: str, identifier: str | None) -> None:
    assert escape(name) == identifier


@given(st.text("ab_.-/1", max_size=8) | st.sampled_from(["in", "namespace", "__in__", "size"]))
def test_an_identifier_leads_back_to_its_property(name: str) -> None:
    identifier = escape(name)
    assert identifier is None or unescape(identifier) == name


@given(st.text("ab_dotnamespi", max_size=16))
def test_every_identifier_has_an_answer(identifier: str) -> None:
    name = unescape(identifier)
    assert name is None or isinstance(name, str)


def test_an_escape_of_nothing_names_no_property() -> None:
    assert unescape("__nothing__") is None
    assert unescape("a__namespace__b") is None
