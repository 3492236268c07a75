from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.durations import DurationError, format_duration, parse_duration
from support.golden import golden_params


@pytest.mark.parametrize("row", golden_params("durations", "in"))
def test_parses_and_prints_as_go(row: dict[str, Any]) -> None:
    if "error" in row:
        with pytest.raises(DurationError) as caught:
            parse_duration(row["in"])
        assert str(caught.value) == row["error"]
        return
    assert parse_duration(row["in"]) == row["ns"]
    assert format_duration(row["ns"]) == row["out"]


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_printed_duration_reads_back_when_floats_can_hold_its_fraction(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)) == pytest.approx(nanoseconds, abs=1)


@given(st.text(alphabet="0123456789.hmsnuµμ+- ", max_size=20))
def test_every_text_is_a_duration_or_a_duration_error(text: str) -> None:
    try:
        nanoseconds = parse_duration(text)
    except DurationError:
        return
    assert -(2**63) <= nanoseconds < 2**63
