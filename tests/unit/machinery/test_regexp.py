import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.regexp import RegexpError, compile_regexp
from support.golden import golden_params


@pytest.mark.parametrize("row", golden_params("regexps", "in"))
def test_compiles_matches_and_refuses_as_go(row: dict[str, Any]) -> None:
    if "error" in row:
        with pytest.raises(RegexpError) as caught:
            compile_regexp(row["in"])
        assert str(caught.value) == row["error"]
        return
    regexp = compile_regexp(row["in"])
    assert regexp.find_all(row["text"]) == row["all"]
    assert regexp.search(row["text"]) == bool(row["all"])
    assert regexp.find(row["text"]) == (row["all"][0] if row["all"] else None)


def test_a_nul_does_not_cut_pattern_or_text() -> None:
    regexp = compile_regexp("a\0b")
    assert regexp.search("xxa\0b")
    assert not regexp.search("a")
    assert compile_regexp("b$").search("a\0b")


def test_classes_without_a_table_are_refused_and_named() -> None:
    for name in ("LC", "Cn", "ASCII", "assigned"):
        with pytest.raises(RegexpError, match="character class not supported"):
            compile_regexp(rf"\p{{{name}}}")


def test_a_pattern_whose_program_is_too_large_is_refused() -> None:
    with pytest.raises(RegexpError, match="pattern too large"):
        compile_regexp(r"[\pL\pM]{1000}" * 200)


def test_a_lone_surrogate_is_read_as_the_replacement_character() -> None:
    assert compile_regexp("^.$").search("\ud800")
    assert compile_regexp("\ud800").search("\ufffd")


@given(st.text(alphabet=r"ab01\(){}[]|*+?^$.,-:<>=!PpLxdQEimsU", max_size=12))
def test_every_pattern_compiles_or_is_refused(pattern: str) -> None:
    with contextlib.suppress(RegexpError):
        compile_regexp(pattern).search("ab")
