import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.yaml import (
    Document,
    YamlError,
    dump,
    dump_documents,
    expand_lists,
    load_documents,
)
from kthena.machinery.yaml_scalars import through_json
from support.golden import golden_params, golden_rows

# Where this reader decides otherwise than kubectl's.
OURS: dict[str, Any] = {
    # libyaml, newer than the parser that kubectl has, knows the escape of JSON.
    'v: "\\/"\n': {"v": "/"},
    # A mapping's own keys win over merged ones, wherever the merge stands.
    "a: &x {c: 1}\nb:\n  <<: *x\n  c: 2\n": {"a": {"c": 1}, "b": {"c": 2}},
    "a: &x {c: 1}\nb:\n  c: 2\n  <<: *x\n": {"a": {"c": 1}, "b": {"c": 2}},
    "a: &x {c: 1}\nb: &y {c: 2}\ne:\n  <<: [*x, *y]\n": {
        "a": {"c": 1},
        "b": {"c": 2},
        "e": {"c": 1},
    },
    "a: &x {c: 1}\nb:\n  <<: *x\n  <<: *x\n": {"a": {"c": 1}, "b": {"c": 1}},
}


def load_one(text: str) -> Any:
    documents = load_documents(text, "file.yaml")
    assert len(documents) == 1
    return documents[0].object


@pytest.mark.parametrize("row", golden_params("yaml_scalars", "in"))
def test_scalars_mean_what_they_mean_to_kubectl(row: dict[str, Any]) -> None:
    if row["in"] in OURS:
        assert load_one(row["in"]) == OURS[row["in"]]
    elif "error" in row:
        with pytest.raises(YamlError):
            load_documents(row["in"], "file.yaml")
    else:
        value = load_one(row["in"])["v"]
        assert value == in_range(row["out"]["v"])
        assert type(value) is type(in_range(row["out"]["v"]))


def in_range(value: Any) -> Any:
    """A number of the table as the API server reads it: integers of 64 bits, else floats."""
    if type(value) is int and not -(2**63) <= value < 2**63:
        return float(value)
    return value


@pytest.mark.parametrize("row", golden_params("yaml_documents", "in"))
def test_documents_are_read_and_refused_as_by_kubectl(row: dict[str, Any]) -> None:
    text = row["in"]
    if text in OURS:
        assert load_one(text) == OURS[text]
    elif text == "1: a\n'1': b\n":
        with pytest.raises(YamlError, match="already set"):
            load_documents(text, "file.yaml")
    elif text.startswith('{"a": 1, "b"'):
        assert load_one(text) == {"a": 1, "b": [True, None, "x/y"]}
    elif "error" in row or not isinstance(row["out"], dict | None):
        with pytest.raises(YamlError):
            load_documents(text, "file.yaml")
    elif row["out"] is None:
        assert load_documents(text, "file.yaml") == []
    else:
        assert load_one(text) == row["out"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [2\n", "f.yaml:3:1: did not find expected ',' or ']', while parsing a flow"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", 'f.yaml:4:6: key "c" already set in map'),
        ("a: b: c\n", "f.yaml:1:5: mapping values are not allowed in this context"),
        ("a: 1\nb: *c\n", "f.yaml:2:4: unknown anchor 'c' referenced"),
        ("a: .inf\n", "f.yaml:1:4: number .inf is not finite"),
        ("- a\n", "f.yaml:1:1: the document is a list; an object is a mapping"),
        ("a: 1\n---\n\nb\n", "f.yaml:4:1: the document is a text; an object is a mapping"),
        ("? [a]\n: b\n", "f.yaml:1:3: a list is no key; keys are texts"),
        ("a:\n  ~: b\n", "f.yaml:2:3: empty is no key; keys are texts"),
        ("é: ééé\nb: \x01\n", "f.yaml:2:1: character U+0001 is not allowed"),
        ("a: x\nb: \ud800\n", "f.yaml:2:1: a lone surrogate is no character"),
        ('{"a": 1, "a": 2}', 'f.yaml:1:1: key "a" stands twice in one object'),
        ('{"a": 1}\n{"a": NaN}', "f.yaml:2:1: number nan is not finite"),
        ('{"a": 1e999}', "f.yaml:1:1: number inf is not finite"),
        (f'{{"a": {"9" * 5000}}}', "f.yaml:1:1: number is out of range"),
        ('{"a": }', "f.yaml:1:1:"),
    ],
)
def test_errors_name_file_line_column_and_cause_in_one_line(text: str, message: str) -> None:
    if text == '{"a": }':
        # Good YAML, though no JSON.
        assert load_one(text) == {"a": None}
        return
    with pytest.raises(YamlError) as caught:
        load_documents(text, "f.yaml")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert str(caught.value) == (
        f"{caught.value.source}:{caught.value.line}:{caught.value.column}: {caught.value.cause}"
    )


def test_documents_keep_their_order_lines_and_source() -> None:
    text = "# head\na: 1\n---\n---\n# note\nb: 2\n---\n{c: 3}\n"
    assert load_documents(text, "f.yaml") == [
        Document({"a": 1}, 2, "f.yaml"),
        Document({"b": 2}, 6, "f.yaml"),
        Document({"c": 3}, 8, "f.yaml"),
    ]


def test_a_stream_of_json_objects_is_several_documents() -> None:
    text = '{"a": 1.0, "b": "\\ud83d\\ude00"}\n\n{\n\t"c": [1.5, 12345678901234567890]}\n'
    assert load_documents(text, "f.json") == [
        Document({"a": 1, "b": "😀"}, 1, "f.json"),
        Document({"c": [1.5, 1.2345678901234567e19]}, 3, "f.json"),
    ]
    assert load_documents('\ufeff{"a": 1}', "f.json")[0].object == {"a": 1}


def test_numbers_as_keys() -> None:
    text = "0x1E: a\n010: b\n1e10: c\n1.50: d\ntrue: &k 7\n*k : e\n"
    assert load_one(text) == {"30": "a", "8": "b", "1e+10": "c", "1.5": "d", "true": 7, "7": "e"}


def test_growth_through_aliases_is_bounded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(YamlError, match="excessive aliasing"):
        load_documents("\n".join(lines), "f.yaml")


def test_aliased_values_are_not_shared() -> None:
    obj = load_one("a: &x {b: [1]}\nc: *x\n")
    obj["a"]["b"].append(2)
    assert obj["c"] == {"b": [1]}


@pytest.mark.parametrize("text", ["a: " + "[" * 100_000, "{" * 100_000, '{"a":' * 100_000])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(YamlError):
        load_documents(text, "f.yaml")


def test_lists_are_expanded_and_typed_lists_give_their_kind_to_items() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    bare = {"metadata": {"name": "b"}}
    text = dump_documents(
        [
            {"apiVersion": "v1", "kind": "List", "items": [pod, {"kind": "List", "items": [pod]}]},
            {"apiVersion": "v1", "kind": "PodList", "items": [bare]},
            {"apiVersion": "v1", "kind": "List", "items": []},
            pod,
        ]
    )
    objects = [document.object for document in expand_lists(load_documents(text, "f.yaml"))]
    assert objects == [pod, pod, {"apiVersion": "v1", "kind": "Pod"} | bare, pod]


def test_an_item_that_is_no_object_is_named() -> None:
    documents = load_documents("kind: List\nitems: [5]\n", "f.yaml")
    with pytest.raises(YamlError, match=r"f.yaml:1:1: items\[0\] of List is a number"):
        expand_lists(documents)


# --- writing ------------------------------------------------------------------------------------


def test_written_text_is_the_recorded_one_and_kubectl_reads_it_equal() -> None:
    for row in golden_rows("yaml_written"):
        assert dump(row["value"]) == row["text"]
        assert "error" not in row
        assert row["read"] == row["value"]


def test_keys_keep_their_order_and_several_documents_are_separated() -> None:
    assert dump_documents([{"b": 1, "a": [2, {"c": []}]}, {"d": {}}]) == (
        "b: 1\na:\n- 2\n- c: []\n---\nd: {}\n"
    )


def test_shared_values_are_written_twice() -> None:
    shared = {"x": 1}
    assert dump({"a": shared, "b": shared}) == "a:\n  x: 1\nb:\n  x: 1\n"


def test_lines_are_blocks() -> None:
    assert dump({"a": "x\ny\n"}) == "a: |\n  x\n  y\n"
    assert dump({"a": "x\ny"}) == "a: |-\n  x\n  y\n"


@pytest.mark.parametrize("value", [float("inf"), float("nan"), object(), b"x", {"a": {1, 2}}])
def test_what_is_no_json_value_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON"):
        dump({"a": value})


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        dump({"a": "\ud800"})


tricky = st.sampled_from([row["in"][3:].strip("\n") for row in golden_rows("yaml_scalars")])
texts = st.one_of(
    st.text(),
    tricky,
    st.text(alphabet=" \t\n\r#:-'\"|>\\yx1\u0085\u2028\ufeff\x7f\x00😀", max_size=12),
    st.lists(tricky, max_size=3).map("\n".join),
)
numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False).map(through_json),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda children: st.one_of(
        st.lists(children, max_size=4), st.dictionaries(texts, children, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(texts, values, max_size=4))
def test_any_json_object_survives_writing_and_reading(value: dict[str, Any]) -> None:
    if value:
        assert load_one(dump(value)) == value
    again = json.loads(json.dumps(value))
    assert load_one(json.dumps(again, indent="\t")) == again
