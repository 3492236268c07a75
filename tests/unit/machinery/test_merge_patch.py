import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.patches.merge_patch import MergePatchError, apply_merge_patch
from support.golden import golden_params


@pytest.mark.parametrize("row", golden_params("merge_patches", "patch"))
def test_merges_as_the_api_server(row: dict[str, Any]) -> None:
    document, patch = copy.deepcopy(row["document"]), copy.deepcopy(row["patch"])
    if "error" in row:
        with pytest.raises(MergePatchError, match="Invalid JSON Patch"):
            apply_merge_patch(document, patch)
    else:
        assert apply_merge_patch(document, patch) == row["out"]
    assert (document, patch) == (row["document"], row["patch"])


values = st.recursive(
    st.one_of(st.booleans(), st.integers(-3, 3), st.text("ab", max_size=2)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)
objects = st.dictionaries(st.text("ab", max_size=2), values, max_size=4)


@given(objects, objects)
def test_a_patch_applied_twice_changes_nothing_more(
    document: dict[str, Any], patch: dict[str, Any]
) -> None:
    once = apply_merge_patch(document, patch)
    assert apply_merge_patch(once, patch) == once


@given(objects)
def test_a_document_merged_into_nothing_is_itself_and_nulls_empty_it(
    document: dict[str, Any],
) -> None:
    assert apply_merge_patch({}, document) == document
    assert apply_merge_patch(document, dict.fromkeys(document)) == {}


def test_the_result_shares_nothing_with_document_and_patch() -> None:
    document: dict[str, Any] = {"a": {"b": [1]}}
    patch: dict[str, Any] = {"c": {"d": [2]}}
    result = apply_merge_patch(document, patch)
    result["a"]["b"].append(0)
    result["c"]["d"].append(0)
    assert (document, patch) == ({"a": {"b": [1]}}, {"c": {"d": [2]}})
