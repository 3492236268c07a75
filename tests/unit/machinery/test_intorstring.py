from typing import Any

import pytest

from kthena.machinery.intorstring import IntOrPercentError, parse_percent, scale
from support.golden import golden_params


@pytest.mark.parametrize("row", golden_params("int_or_percent", "value", "total"))
def test_scales_as_apimachinery(row: dict[str, Any]) -> None:
    if "error" in row:
        with pytest.raises(IntOrPercentError) as caught:
            scale(row["value"], row["total"], round_up=True)
        assert str(caught.value) == row["error"]
        return
    assert scale(row["value"], row["total"], round_up=True) == row["up"]
    assert scale(row["value"], row["total"], round_up=False) == row["down"]


def test_large_products_are_exact() -> None:
    assert scale("1%", 10**17 + 1, round_up=True) == 10**15 + 1


def test_a_percentage_is_the_number_before_its_sign() -> None:
    assert parse_percent("25%") == 25
    assert parse_percent("-5%") == -5
