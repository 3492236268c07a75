"""The parts that schemas and rules stand on: field paths, correlation of old and new, formats, URLs."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.objects import equal_json
from kthena.machinery.schema.correlation import Correlated, ListMap
from kthena.machinery.schema.custom import SINGLE_VERSION_PATH
from kthena.machinery.schema.fieldpath import FieldPathError, resolve_field_path
from kthena.machinery.schema.formats import find_format, parse_long_duration
from kthena.machinery.schema.structural import StructuralSchema, decode
from kthena.machinery.schema.urls import UrlError, is_request_uri, parse_url

_INTEGER = {"type": "integer"}


def _node(schema: dict[str, Any]) -> StructuralSchema:
    return decode(schema, SINGLE_VERSION_PATH)


_TREE = _node(
    {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"a.b": _INTEGER, "it's": _INTEGER}},
            "map": {"type": "object", "additionalProperties": {"type": "object"}},
            "list": {"type": "array", "items": {"type": "object"}},
        },
    }
)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (".spec", "spec"),
        ("['spec']", "spec"),
        (".spec['a.b']", "spec.a.b"),
        (r".spec['it\'s']", "spec.it's"),
        (".map['any key']", "map[any key]"),
        (".map.key", "map[key]"),
        (".list", "list"),
    ],
)
def test_a_field_path_leads_to_a_field(text: str, path: str) -> None:
    assert resolve_field_path(text, _TREE) == path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".nope", "does not refer to a valid field"),
        (".spec.a.b", "does not refer to a valid field"),
        (".list[0]", "expected single quoted string but got 0"),
        ("spec", "expected \\[ or . but got: spec"),
        (".", "unexpected end of JSON path"),
        (".spec['a.b'", "unexpected end of JSON path"),
        (".spec['a.b'.c", "expected \\] but got ."),
        (r".spec['\q']", r"invalid escape char \\q"),
    ],
)
def test_a_field_path_that_leads_nowhere_is_refused(text: str, message: str) -> None:
    with pytest.raises(FieldPathError, match=f"^{message}$"):
        resolve_field_path(text, _TREE)


_ITEM = {"type": "object", "properties": {"k": {"type": "string"}, "v": _INTEGER}}
_LIST_MAP = {
    "type": "array",
    "items": _ITEM,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["k"],
}


def test_items_of_a_list_map_correlate_by_their_keys() -> None:
    old = [{"k": "a", "v": 1}, {"k": "b", "v": 2}]
    new = [{"k": "b", "v": 2}, {"k": "a", "v": 9}, {"k": "c"}]
    correlated = Correlated(new, old, _node(_LIST_MAP))
    first, second = correlated.index(0), correlated.index(1)
    assert first is not None
    assert second is not None
    assert (first.old, first.unchanged()) == (old[1], True)
    assert (second.old, second.unchanged()) == (old[0], False)
    assert correlated.index(2) is None
    assert not correlated.unchanged()


def test_the_order_of_a_list_map_is_no_change() -> None:
    old = [{"k": "a"}, {"k": "b"}]
    assert Correlated(old[::-1], old, _node(_LIST_MAP)).unchanged()
    assert not Correlated(old[::-1], old, _node({"type": "array", "items": _ITEM})).unchanged()


def test_items_of_other_lists_do_not_correlate() -> None:
    schema = _node({"type": "array", "items": _INTEGER})
    assert Correlated([1], [1], schema).index(0) is None
    assert Correlated([1], [1], schema).unchanged()


def test_a_member_without_a_schema_counts_as_changed() -> None:
    schema = _node({"type": "object", "properties": {"a": _INTEGER}})
    assert Correlated({"a": 1}, {"a": 1}, schema).unchanged()
    assert not Correlated({"x": 1}, {"x": 1}, schema).unchanged()
    assert Correlated({"x": 1}, {"x": 1}, schema).key("x") is None


def test_keys_of_list_maps_differ_by_type() -> None:
    schema = _node(_LIST_MAP)
    found = ListMap(schema, [{"k": 1, "v": 1}, {"k": True, "v": 2}, {"k": 1, "v": 3}, {"v": 4}])
    assert found.find({"k": 1}) == {"k": 1, "v": 1}
    assert found.find({"k": True}) == {"k": True, "v": 2}
    assert found.find({"k": 1.0}) is None
    assert found.find({}) is None
    assert found.find("k") is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("ab", max_size=2),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("ab"), below),
    max_leaves=6,
)


@given(_JSON, _JSON)
def test_json_values_are_equal_if_their_texts_would_be(left: Any, right: Any) -> None:
    assert equal_json(left, copy.deepcopy(left))
    assert equal_json(left, right) == (repr(_sorted(left)) == repr(_sorted(right)))


def _sorted(value: Any) -> Any:
    """Members in order, and one zero, as -0.0 equals 0.0."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(entry) for entry in value]
    return 0.0 if isinstance(value, float) and value == 0 else value


def test_unknown_formats_are_ignored_and_spelling_is_loose() -> None:
    assert find_format("no-such-format") is None
    assert find_format("date-time") is find_format("datetime")


@pytest.mark.parametrize("name", ["ipv4", "cidr", "duration", "date-time", "uri", "email", "mac"])
@given(st.text() | st.text("0123456789.:/-+TZ @[]%", max_size=5000))
def test_a_format_has_a_verdict_on_every_text(name: str, text: str) -> None:
    matches = find_format(name)
    assert matches is not None
    assert matches(text) in (True, False)


@pytest.mark.parametrize("name", ["ipv4", "cidr", "duration"])
def test_numbers_of_thousands_of_digits_are_too_large(name: str) -> None:
    matches = find_format(name)
    assert matches is not None
    assert not matches(
        {"ipv4": "1.1.1.{}", "cidr": "::/{}", "duration": "{} days"}[name].format("9" * 5000)
    )


def test_durations_in_words_wrap_around_as_on_the_server() -> None:
    assert parse_long_duration("2 days 1 hr") == 49 * 3600 * 10**9
    assert parse_long_duration("1h30m") == 5400 * 10**9
    assert parse_long_duration("292471 weeks") == 292471 * 7 * 86400 * 10**9 - 10 * 2**64
    assert parse_long_duration("soon") is None


@given(st.text() | st.text("htp:/[]@%2F?#&=.a1", max_size=40))
def test_urls_are_parsed_or_refused_and_nothing_else(text: str) -> None:
    try:
        url = parse_url(text)
    except UrlError:
        assert not is_request_uri(text) or text.count("#")
    else:
        assert isinstance(url.hostname + url.port + url.escaped_path, str)
        assert isinstance(url.query, dict)
