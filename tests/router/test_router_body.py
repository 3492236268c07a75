"""Reading and splicing JSON bodies: what is read is what an engine reads, the rest is untouched."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kthena.router.body import scan as scan_module
from kthena.router.body.scan import JsonBody, MalformedBodyError, scan
from kthena.router.body.splice import edit, prefill_body, rename_model


def joined(pieces: tuple[bytes | memoryview, ...]) -> bytes:
    return b"".join(pieces)


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(['"model"', '{"model":1}', "]", "}", "\\", '\\"', "\u2028", "\ud800"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.just("model"), inner, max_size=3)
    ),
    max_leaves=8,
)
names = st.text(max_size=5) | st.sampled_from(["model", "stream", "max_tokens", "n"])
blanks = st.text(" \t\r\n", max_size=2)


def escape(draw: st.DrawFn, text: str) -> str:
    """The text as JSON, with some characters escaped that need not be."""
    out = ""
    for character in text:
        if ord(character) < 0x10000 and draw(st.booleans()):
            out += f"\\u{ord(character):04x}" if draw(st.booleans()) else f"\\u{ord(character):04X}"
        else:
            out += json.dumps(character, ensure_ascii="\ud800" <= character <= "\udfff")[1:-1]
    return f'"{out}"'


@st.composite
def json_objects(draw: st.DrawFn) -> bytes:
    """A JSON object in some spelling: blanks, escapes, repeated names."""
    members = draw(st.lists(st.tuples(names, values), max_size=6))
    parts = [
        draw(blanks)
        + escape(draw, name)
        + draw(blanks)
        + ":"
        + draw(blanks)
        # A lone surrogate can only be written as an escape.
        + json.dumps(value, ensure_ascii="\\ud800" in repr(value) or draw(st.booleans()))
        + draw(blanks)
        for name, value in members
    ]
    text = draw(blanks) + "{" + (",".join(parts) or draw(blanks)) + "}" + draw(blanks)
    return text.encode()


def pairs(raw: bytes) -> list[tuple[str, Any]]:
    """The top-level members as Python reads them, repeated ones included."""
    found: list[tuple[str, Any]] = []

    def hook(members: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        found = members
        return dict(members)

    json.loads(raw, object_pairs_hook=hook)
    return found


@given(json_objects())
@example(b'{"model":"a","x":1,"model":"b"}')
@example(b'{"a":1,"b":1,"a":1,"c":1}')
@example(b'{"a":1,"a":12}')
@example(b'{"a":12,"a":1}')
@example(b'{"a":[1,2],"a":[1]}')
@example(b'{"mod\\u0065l":"a"}')
@example(b'{"x":"\\ud800","model":"a","model":"b"}')
@example(b"{}")
@example(b" { } ")
def test_members_are_found_where_they_are(raw: bytes) -> None:
    body = scan(raw)
    expected = pairs(raw)
    assert [name for name, *_ in body.members] == [name for name, _ in expected]
    for (_, start, end), (_, value) in zip(body.members, expected, strict=True):
        assert json.loads(raw[start:end]) == value
    for name, value in dict(expected).items():
        assert json.loads(body.value(name) or b"") == value
    assert body.value("no such name") is None


@given(json_objects())
def test_the_quick_and_the_slow_way_agree(raw: bytes) -> None:
    quick = scan(raw)
    assert scan_module._find_members(raw) == quick.members


@given(json_objects(), st.text(max_size=6).filter(lambda text: text.isprintable()))
def test_renaming_changes_the_models_and_no_other_byte(raw: bytes, model: str) -> None:
    body = scan(raw)
    renamed = joined(rename_model(body, model))
    encoded = json.dumps(model, ensure_ascii=False).encode()
    expected, position = b"", 0
    for name, start, end in body.members:
        if name == "model":
            expected += raw[position:start] + encoded
            position = end
    assert renamed == expected + raw[position:]
    assert all(value == model for name, value in pairs(renamed) if name == "model")


@given(st.dictionaries(names, values, min_size=1, max_size=6), st.data())
def test_a_compact_object_tells_its_positions_by_its_length(
    members: dict[str, Any], data: st.DataObject
) -> None:
    encoded = [
        f"{json.dumps(name, ensure_ascii=False)}:{json.dumps(value, separators=(',', ':'))}"
        for name, value in members.items()
    ]
    name = data.draw(st.sampled_from(sorted(members)))
    for parts in (encoded, [*encoded, data.draw(st.sampled_from(encoded))]):
        raw = ("{" + ",".join(parts) + "}").encode()
        body = scan(raw)
        expected = [span for other, *span in scan(raw).members if other == name]
        assert [list(span) for span in body.spans(name)] == expected
    assert scan(b'{"a":1}').spans("b") == []


def test_what_is_not_the_model_keeps_its_bytes() -> None:
    """Large integers, other spellings of numbers, lone surrogates and repeated keys are left alone.

    Every spelling of the top-level key is renamed, nothing deeper is.
    """
    raw = (
        b'{ "seed": 9007199254740993,"big":123456789012345678901234567890, "f":1.0, "e":1e2,\n'
        b'  "s":"\\ud83d lone","model" : "chat","messages":[{"model":"chat","content":"\\"model\\""}],'
        b'"mod\\u0065l":"chat","model":"last" }  '
    )
    body = scan(raw)
    assert body.text("model") == "last"
    renamed = joined(rename_model(body, 'new "name" ü'))
    encoded = '"new \\"name\\" ü"'.encode()
    assert renamed == (
        b'{ "seed": 9007199254740993,"big":123456789012345678901234567890, "f":1.0, "e":1e2,\n'
        b'  "s":"\\ud83d lone","model" : '
        + encoded
        + b',"messages":[{"model":"chat","content":"\\"model\\""}],'
        b'"mod\\u0065l":' + encoded + b',"model":' + encoded + b" }  "
    )


def test_a_name_that_is_already_right_or_unset_leaves_the_body_as_it_is() -> None:
    raw = b'{"model":"m","x":1}'
    assert joined(rename_model(scan(raw), "m")) == raw
    assert rename_model(scan(raw), None) == (raw,)


INVALID = [
    b"", b" ", b"{", b"}", b"[]", b"null", b'"x"', b"1", b"{} {}", b"{}x", b'{"a"}', b'{"a":}',
    b'{"a":1,}', b'{,"a":1}', b'{"a":1 "b":2}', b"{a:1}", b"{'a':1}", b'{"a":01}', b'{"a":1.}',
    b'{"a":.5}', b'{"a":+1}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":tru}', b'{"a":"\x01"}',
    b'{"a":"\t"}', b'{"a":"\\q"}', b'{"a":"\\u12"}', b'{"a":[1,]}', b'{"a":{"b":1,}}', b'{"a":"x}',
    b'\xef\xbb\xbf{"a":1}', b'{"a":1}\x00', b'{"a"\x0b:1}', b'{"a":/**/1}', b'{"\xff":1}',
    '{"a":1}'.encode("utf-16"),
]  # fmt: skip


@pytest.mark.parametrize("raw", INVALID)
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedBodyError):
        scan(raw)


@pytest.mark.parametrize("raw", INVALID)
def test_a_lone_surrogate_opens_no_back_door(raw: bytes) -> None:
    """Bodies with one are read by the slow way, which must be as strict."""
    with pytest.raises(MalformedBodyError):
        scan(raw + b'"\\ud800"')
    if raw.startswith(b'{"a":') and raw.endswith(b"}"):
        with pytest.raises(MalformedBodyError):
            scan(b'{"s":"\\ud800",' + raw[1:])


def test_deep_nesting_is_refused_both_ways() -> None:
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    with pytest.raises(MalformedBodyError, match=r"nested|recursion"):
        scan(deep)
    with pytest.raises(MalformedBodyError, match=r"nested|recursion"):
        scan(b'{"s":"\\ud800","a":' + deep + b"}")


@pytest.mark.parametrize(
    ("raw", "model"),
    [
        (b'{"model":"a"}', "a"),
        (b'{"model":"a","model":"b"}', "b"),
        (b'{"model":"a","mod\\u0065l":"b"}', "b"),
        (b'{"model":"\\u00fc\\n"}', "ü\n"),
        (b'{"model":"a","model":null}', None),
        (b'{"x":{"model":"a"}}', None),
        (b'{"Model":"a"}', None),
        (b"{}", None),
    ],
)
def test_the_last_model_counts(raw: bytes, model: str | None) -> None:
    assert scan(raw).text("model") == model


@pytest.mark.parametrize(
    "raw", [b'{"model":1}', b'{"model":["a"]}', b'{"model":{}}', b'{"model":true}']
)
def test_a_model_that_is_no_text_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedBodyError, match="`model` is not a string"):
        scan(raw).text("model")


@given(
    json_objects(),
    st.sets(names, max_size=3),
    st.dictionaries(names, st.integers(0, 9), max_size=3),
)
def test_edits_do_what_they_say(raw: bytes, dropped: set[str], replaced: dict[str, int]) -> None:
    replaced = {name: n for name, n in replaced.items() if name not in dropped}
    values = {name: b"%d" % n for name, n in replaced.items()}
    edited = joined(edit(scan(raw), dropped=dropped, values=values))
    kept = {name: value for name, value in pairs(raw) if name not in dropped}
    assert dict(pairs(edited)) == {**kept, **replaced}


def prefill(body: dict[str, Any], model: str | None = None) -> dict[str, Any]:
    edited: dict[str, Any] = json.loads(
        joined(prefill_body(scan(json.dumps(body).encode()), model))
    )
    return edited


def test_prefill_asks_for_one_token_without_streaming() -> None:
    assert prefill({"model": "a", "prompt": "x"}) == {"model": "a", "prompt": "x", "max_tokens": 1}
    assert prefill({"model": "a", "stream": True, "stream_options": {}, "max_tokens": 9}, "b") == {
        "model": "b",
        "max_tokens": 1,
    }
    assert prefill({}) == {"max_tokens": 1}


def test_prefill_leaves_out_what_contradicts_one_token() -> None:
    body = {
        "max_completion_tokens": 7, "max_output_tokens": 7, "n": 3, "best_of": 3, "min_tokens": 4,
        "logprobs": True, "top_logprobs": 2, "temperature": 0.5,
    }  # fmt: skip
    assert prefill(body) == {
        "max_completion_tokens": 1, "max_output_tokens": 1, "n": 1, "best_of": 1, "min_tokens": 1,
        "temperature": 0.5, "max_tokens": 1,
    }  # fmt: skip


def test_a_prefill_body_may_have_names_that_are_no_text() -> None:
    raw = b'{"\\ud800":1,"model":"a"}'
    assert joined(prefill_body(scan(raw), "b")) == b'{"\\ud800":1,"model":"b","max_tokens":1}'


def test_prefill_leaves_null_and_small_values_alone() -> None:
    body = {"max_completion_tokens": None, "n": None, "min_tokens": 0}
    assert prefill(body) == {**body, "max_tokens": 1}


def test_numbers_and_texts_of_a_prefill_body_keep_their_spelling() -> None:
    raw = b'{"seed":9007199254740993,"f":1.0,"s":"\\u00fc","max_tokens":5,"max_tokens":6}'
    assert joined(prefill_body(scan(raw), None)) == (
        b'{"seed":9007199254740993,"f":1.0,"s":"\\u00fc","max_tokens":1,"max_tokens":1}'
    )


def test_large_values_are_not_copied() -> None:
    raw = b'{"model":"a","image":"' + b"A" * (1 << 20) + b'"}'
    pieces = rename_model(scan(raw), "b")
    assert any(isinstance(piece, memoryview) and len(piece) > 1 << 20 for piece in pieces)


def test_a_body_knows_its_values_without_looking_for_positions() -> None:
    body = JsonBody(b'{"a":1}', {"a": b"1"})
    assert body.value("a") == b"1"
    assert body._members is None
