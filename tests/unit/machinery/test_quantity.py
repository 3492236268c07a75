from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.quantity import Format, Quantity, QuantityError, is_quantity
from support.golden import golden_params, golden_rows

MAX_INT64 = 2**63 - 1


@pytest.mark.parametrize("row", golden_params("quantities", "in"))
def test_parses_and_prints_as_apimachinery(row: dict[str, Any]) -> None:
    if "error" in row:
        with pytest.raises(QuantityError) as caught:
            Quantity.parse(row["in"])
        assert str(caught.value) == row["error"]
        assert not is_quantity(row["in"])
        return
    quantity = Quantity.parse(row["in"])
    assert quantity.value == Fraction(row["value"])
    assert str(quantity) == row["out"]
    assert quantity.exact_int() == row.get("int64")
    assert quantity.as_float() == pytest.approx(float(row["float"]), rel=1e-15)
    if 0 <= quantity.value <= MAX_INT64:
        assert quantity.as_int() == row["int"]


def test_compares_adds_and_subtracts_as_apimachinery() -> None:
    for row in golden_rows("quantity_arithmetic"):
        a, b = Quantity.parse(row["a"]), Quantity.parse(row["b"])
        found = {"cmp": (a > b) - (a < b), "sum": str(a + b), "difference": str(a - b)}
        assert found | {"a": row["a"], "b": row["b"]} == row
        assert (a == b) == (row["cmp"] == 0)


def test_json_integers_are_quantities_and_other_json_values_are_not() -> None:
    assert Quantity.parse(2000) == Quantity.parse("2k")
    assert is_quantity(5)
    others: list[Any] = [True, 1.5, None, [], {}]
    assert not any(is_quantity(value) for value in others)


def test_an_integer_below_zero_rounds_away_from_zero() -> None:
    assert Quantity.parse("-1500m").as_int() == -2
    assert Quantity.parse("-1n").as_int() == -1


def test_equal_numbers_have_one_hash_whatever_their_suffix() -> None:
    assert len({Quantity.parse("1Ki"), Quantity.parse("1024"), Quantity.parse("1.024k")}) == 1


def test_a_sum_that_leaves_64_bits_has_no_exact_integer() -> None:
    limit = Quantity.parse("9E")
    assert limit.exact_int() == 9 * 10**18
    assert (limit + limit).exact_int() is None
    assert (limit + limit).as_int() == 18 * 10**18


def test_huge_exponents_and_digits_are_refused_or_rounded_without_being_computed() -> None:
    assert str(Quantity.parse("1e-2000000000")) == "1e-9"
    assert Quantity.parse("0e-2000000000").value == 0
    with pytest.raises(QuantityError, match="exponents end at 1000"):
        Quantity.parse("1e2000000000")
    with pytest.raises(QuantityError, match="unable to parse numeric part"):
        Quantity.parse("1" * 100_000)
    with pytest.raises(QuantityError, match="must match the regular expression"):
        Quantity.parse("0" * 100_000 + "!")


def test_a_float_beyond_the_range_is_infinite() -> None:
    assert Quantity.parse("1e999").as_float() == float("inf")
    assert Quantity.parse("-1e999").as_float() == float("-inf")


quantities = st.builds(
    lambda digits, suffix: f"{digits}{suffix}",
    st.decimals(-(10**20), 10**20, allow_nan=False, places=6).map(lambda d: f"{d:f}"),
    st.sampled_from(["", "m", "k", "Ki", "Mi", "Gi", "G", "e3", "e-2", "E"]),
)


@given(quantities)
def test_the_canonical_text_is_a_fixed_point(text: str) -> None:
    quantity = Quantity.parse(text)
    again = Quantity.parse(str(quantity + Quantity.parse("0")))
    if quantity.format is not Format.DECIMAL_SI or abs(quantity.value) < 10**21:
        assert again == quantity
    assert str(Quantity.parse(str(quantity))) == str(quantity)


@given(quantities, quantities)
def test_addition_is_exact_and_undone_by_subtraction(left: str, right: str) -> None:
    a, b = Quantity.parse(left), Quantity.parse(right)
    assert (a + b).value == a.value + b.value
    assert (a + b) - b == a
