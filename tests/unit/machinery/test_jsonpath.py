from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.jsonpath import JsonPathError, compile_jsonpath
from support.golden import golden_params

UNSUPPORTED = {"..name", ".spec..name", "range"}


@pytest.mark.parametrize("row", golden_params("jsonpaths", "path"))
def test_selects_what_client_go_selects(row: dict[str, Any]) -> None:
    if row["path"] in UNSUPPORTED:
        with pytest.raises(JsonPathError):
            compile_jsonpath(row["path"])
        return
    try:
        found = compile_jsonpath(row["path"]).find(row["object"])
    except JsonPathError:
        assert "error" in row
        return
    if row["path"].endswith(".*"):
        found.sort(key=str)
    assert found == row.get("out", [])


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        (".a[", "a bracket is not closed"),
        (".a[b]", "invalid array index 'b'"),
        (".a[?(@.b==1)", "a filter is not closed"),
        (".a[?(@.b=~1)]", "unrecognized filter operator"),
        (".a[?(@.b<>1)]", "unrecognized filter operator <>"),
        ("a", "unrecognized identifier a"),
        (".a..b", "recursive descent"),
        ("'a", "not closed"),
        ("'\\z'", "invalid escape"),
        ("1.2.3", "cannot parse number"),
        (".a{", "unexpected '{'"),
    ],
)
def test_a_malformed_path_is_refused_with_its_cause(path: str, cause: str) -> None:
    with pytest.raises(JsonPathError) as caught:
        compile_jsonpath(path)
    assert cause in str(caught.value)


@given(st.text(alphabet=r".ab[]?(@=='\"):*,-01 <>\\", max_size=20))
def test_every_text_is_a_path_or_refused_and_finding_never_raises(text: str) -> None:
    try:
        path = compile_jsonpath(text)
    except JsonPathError:
        return
    assert isinstance(path.find({"a": [{"b": 1}, 2, "x"], "b": None}), list)
