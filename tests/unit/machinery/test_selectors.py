from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.selectors import (
    LabelSelector,
    Operator,
    SelectorError,
    label_selector_from_object,
    parse_field_selector,
    parse_label_selector,
)
from support.golden import golden_params


@pytest.mark.parametrize("row", golden_params("label_selectors", "in"))
def test_label_selectors_parse_print_and_match_as_apimachinery(row: dict[str, Any]) -> None:
    if "error" in row:
        with pytest.raises(SelectorError) as caught:
            parse_label_selector(row["in"])
        assert str(caught.value) == row["error"]
        return
    selector = parse_label_selector(row["in"])
    assert str(selector) == row["out"]
    assert [selector.matches(labels) for labels in row["labels"]] == row["matches"]
    assert parse_label_selector(str(selector)) == selector


@pytest.mark.parametrize("row", golden_params("label_selector_objects", "object"))
def test_selector_objects_print_and_match_as_apimachinery(row: dict[str, Any]) -> None:
    if "error" in row:
        with pytest.raises(SelectorError) as caught:
            label_selector_from_object(row["object"])
        assert str(caught.value) == row["error"]
        return
    selector = label_selector_from_object(row["object"])
    assert str(selector) == row["out"]
    assert [selector.matches(labels) for labels in row["labels"]] == row["matches"]


@pytest.mark.parametrize("row", golden_params("field_selectors", "in"))
def test_field_selectors_parse_print_and_match_as_apimachinery(row: dict[str, Any]) -> None:
    if "error" in row:
        with pytest.raises(SelectorError) as caught:
            parse_field_selector(row["in"])
        assert str(caught.value) == row["error"]
        return
    selector = parse_field_selector(row["in"])
    assert str(selector) == row["out"]
    assert [[r.field, r.operator.value, r.value] for r in selector.requirements] == row[
        "requirements"
    ]
    fields = {"metadata.name": "a", "metadata.namespace": "b", "status.phase": ""}
    assert selector.matches(lambda field: fields.get(field, "")) == row["matches"]


def test_everything_and_nothing_differ() -> None:
    assert parse_label_selector("").empty
    assert label_selector_from_object({}).empty
    assert label_selector_from_object({}).matches({"a": "b"})
    assert not label_selector_from_object(None).empty
    assert not label_selector_from_object(None).matches({})
    assert parse_field_selector("").empty


def test_a_selector_is_hashable_and_comparable() -> None:
    assert len({parse_label_selector("a=b,c"), parse_label_selector("c,a=b")}) == 1


@given(st.text(alphabet="ab/.=!<>(), in\tnot\0-_1é", max_size=30))
def test_every_text_parses_to_a_fixed_point_or_raises(text: str) -> None:
    try:
        selector = parse_label_selector(text)
    except SelectorError:
        return
    assert parse_label_selector(str(selector)) == selector


@given(st.dictionaries(st.from_regex(r"[a-z]{1,3}", fullmatch=True), st.sampled_from("xyz")))
def test_a_selector_made_of_labels_selects_them(labels: dict[str, str]) -> None:
    selector = label_selector_from_object({"matchLabels": labels})
    assert selector.matches(labels)
    assert all(requirement.operator is Operator.EQUALS for requirement in selector.requirements)
    assert not labels or not selector.matches({})
    assert isinstance(selector, LabelSelector)


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_field_value_survives_escaping(value: str, other: str) -> None:
    printed = f"metadata.name={_escape(value)},status.phase!={_escape(other)}"
    selector = parse_field_selector(printed)
    assert {requirement.value for requirement in selector.requirements} == {value, other}
    assert parse_field_selector(str(selector)) == selector


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
