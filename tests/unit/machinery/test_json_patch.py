import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.patches.json_patch import MAX_OPERATIONS, JsonPatchError, apply_json_patch
from support.golden import golden_params


@pytest.mark.parametrize("row", golden_params("json_patches", "patch"))
def test_applies_and_refuses_as_the_api_server(row: dict[str, Any]) -> None:
    document, patch = copy.deepcopy(row["document"]), copy.deepcopy(row["patch"])
    if row.get("error") == "panic":
        # The library crashes where it compares nulls in lists; both rows are true tests.
        assert apply_json_patch(document, patch) == document
    elif "error" in row:
        with pytest.raises(JsonPatchError) as caught:
            apply_json_patch(document, patch)
        assert str(caught.value) == row["error"]
        assert caught.value.status == (400 if row["error"].startswith("json: ") else 422)
    else:
        assert typed(apply_json_patch(document, patch)) == typed(row["out"])
    assert (document, patch) == (row["document"], row["patch"])


def typed(value: Any) -> Any:
    """The value with the types of its scalars, since True == 1 == 1.0."""
    if isinstance(value, dict):
        return {key: typed(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [typed(entry) for entry in value]
    return (type(value), value)


def test_a_patch_of_too_many_operations_is_refused() -> None:
    operations = [{"op": "test", "path": "/a", "value": 1}] * (MAX_OPERATIONS + 1)
    with pytest.raises(
        JsonPatchError, match="maximum operations in a JSON patch is 10000, got 1000"
    ):
        apply_json_patch({"a": 1}, operations)


def test_testing_the_whole_document_without_a_value_fails() -> None:
    with pytest.raises(JsonPatchError, match="test failed"):
        apply_json_patch({"a": 1}, [{"op": "test", "path": ""}])


def test_the_result_shares_nothing_with_document_and_patch() -> None:
    document = {"a": {"b": []}, "c": [{}]}
    patch: list[dict[str, Any]] = [
        {"op": "add", "path": "/d", "value": {"e": []}},
        {"op": "copy", "from": "/a", "path": "/f"},
    ]
    result = apply_json_patch(document, patch)
    for path in ("a", "f"):
        result[path]["b"].append(1)
    result["c"][0]["x"] = 1
    result["d"]["e"].append(1)
    assert document == {"a": {"b": []}, "c": [{}]}
    assert patch[0]["value"] == {"e": []}
    assert result["a"]["b"] == [1]


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text("ab~/", max_size=2)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("ab~/", max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)
objects = st.dictionaries(st.text("ab~/", max_size=2), values, max_size=4)


@given(objects, st.text("ab~/", max_size=3), values)
def test_adding_a_member_and_removing_it_gives_the_document_back(
    document: dict[str, Any], key: str, value: Any
) -> None:
    if key in document:
        return
    path = "/" + key.replace("~", "~0").replace("/", "~1")
    added = apply_json_patch(document, [{"op": "add", "path": path, "value": value}])
    assert added == {**document, key: value}
    operations = [{"op": "test", "path": path, "value": value}, {"op": "remove", "path": path}]
    assert apply_json_patch(added, operations) == document


@given(objects, objects)
def test_an_operation_that_fails_leaves_nothing_behind(
    document: dict[str, Any], other: dict[str, Any]
) -> None:
    snapshot = copy.deepcopy(document)
    operations = [
        {"op": "replace", "path": "", "value": other},
        {"op": "remove", "path": "/absent member"},
    ]
    with pytest.raises(JsonPatchError):
        apply_json_patch(document, operations)
    assert document == snapshot
