"""Find the top-level members of a JSON body without decoding or re-encoding it.

What is read here is what an engine reads: the text must be strict JSON (RFC 8259, UTF-8), member
names are compared after their escapes are resolved, and the last of several members of one name
counts. msgspec checks the syntax and finds where each value ends; the positions follow from the
lengths. Two kinds of body take a slower way with the same result: repeated members, of which msgspec
keeps only the last, and escapes of lone surrogates, which are JSON but no text for msgspec.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

Encoded = bytes | msgspec.Raw

MAX_MEMBERS: Final = 4096
"""Top-level members that a body may have; no API comes near."""

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_optional_text = msgspec.json.Decoder(str | None).decode

_BLANK = rb"[ \t\n\r]*+"
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_KEY = re.compile(
    _BLANK + rb"[{,]" + _BLANK + rb"(" + _TEXT + rb")" + _BLANK + rb":" + _BLANK, re.DOTALL
)
_END = re.compile(_BLANK + rb"}")
_STRING = re.compile(_TEXT, re.DOTALL)
_SCALAR = re.compile(rb"[^,}\] \t\n\r]++")
_UP_TO_BRACKET = re.compile(rb'[^"\[\]{}]*+(?:' + _TEXT + rb'[^"\[\]{}]*+)*+', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class MalformedBodyError(ValueError):
    """The body is no JSON object; the text says where it fails."""


Member = tuple[str, int, int]
"""One top-level member: its name, and where its value starts and ends."""


Span = tuple[int, int]


class JsonBody:
    """A JSON object as bytes, and the encoded values of its top-level members by name."""

    __slots__ = ("_members", "_values", "raw")

    def __init__(
        self, raw: bytes, values: Mapping[str, Encoded], members: list[Member] | None = None
    ) -> None:
        self.raw = raw
        self._values = values
        self._members = members

    @property
    def members(self) -> list[Member]:
        """The positions of all members in order, repeated ones included."""
        if self._members is None:
            members = _place(self.raw, self._values)
            self._members = _find_members(self.raw) if members is None else members
        return self._members

    def spans(self, name: str) -> Sequence[Span]:
        """Where the values of all members of that name start and end."""
        if self._members is None:
            span = _span_if_compact(self.raw, self._values, name)
            if span is not None:
                return (span,)
        return [(start, end) for other, start, end in self.members if other == name]

    def value(self, name: str) -> bytes | None:
        """The encoded value of the last member of that name, or None."""
        encoded = self._values.get(name)
        return None if encoded is None else bytes(encoded)

    def text(self, name: str) -> str | None:
        """The value of a member that is a string; None where it is absent or null.

        Raises:
            MalformedBodyError: it is something else, or no text (a lone surrogate).
        """
        value = self._values.get(name)
        if value is None:
            return None
        try:
            return _decode_optional_text(value)
        except msgspec.DecodeError as exc:
            raise MalformedBodyError(f"`{name}` is not a string") from exc


def scan(raw: bytes) -> JsonBody:
    """The JSON object that `raw` holds.

    Raises:
        MalformedBodyError: it is no JSON object, is nested too deeply, or has too many members.
    """
    try:
        values = _decode_members(raw)
    except msgspec.ValidationError as exc:
        raise MalformedBodyError("it is not a JSON object") from exc
    except RecursionError as exc:
        raise MalformedBodyError("it is nested too deeply") from exc
    except msgspec.DecodeError as exc:
        if _SURROGATE.search(raw) is None:
            raise MalformedBodyError(str(exc).removeprefix("JSON is malformed: ")) from exc
        _check_syntax(raw)
        members = _find_members(raw)
        return JsonBody(raw, {name: raw[start:end] for name, start, end in members}, members)
    if len(values) > MAX_MEMBERS:
        raise _too_many_members()
    return JsonBody(raw, values)


def _span_if_compact(raw: bytes, values: Mapping[str, Encoded], name: str) -> Span | None:
    """The one place of a member, provided that the object is spelled as shortly as it can be.

    No spelling of these members is shorter than the sum of their parts without blanks, escapes and
    repetitions. So if the object is just that long it has none of them, and every position follows.
    """
    position, span = 1, None
    for other, value in values.items():
        position += len(other) + 3
        end = position + len(value)
        if other == name:
            span = (position, end)
        position = end + 1
    return span if position == len(raw) else None


def _place(raw: bytes, values: Mapping[str, Encoded]) -> list[Member] | None:
    """The positions of the members of valid JSON, or None where a name is repeated.

    Every step checks that the value expected stands at its position, and at the end that the object
    does end there: with a repeated name one of the two fails, since `values` is short of a member.
    """
    members = []
    end = 0
    match_key = _KEY.match
    for name, encoded in values.items():
        key = match_key(raw, end)
        if key is None:
            return None
        start = key.end()
        value = bytes(encoded)
        if not raw.startswith(value, start):
            return None
        end = start + len(value)
        members.append((name, start, end))
    return members if _END.match(raw, end) or not members else None


def _check_syntax(raw: bytes) -> None:
    try:
        decoded = json.loads(raw.decode(), parse_constant=_refuse, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as exc:
        raise MalformedBodyError(str(exc)) from exc
    if not isinstance(decoded, dict):
        raise MalformedBodyError("it is not a JSON object")


def _find_members(raw: bytes) -> list[Member]:
    """The members of a valid JSON object, found by walking over all of it."""
    members: list[Member] = []
    end = 0
    while (key := _KEY.match(raw, end)) is not None:
        if len(members) == MAX_MEMBERS:
            raise _too_many_members()
        start = key.end()
        end = _end_of_value(raw, start)
        members.append((json.loads(key[1]), start, end))
    return members


def _too_many_members() -> MalformedBodyError:
    return MalformedBodyError(f"it has more than {MAX_MEMBERS} members")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON value")


def _end_of_value(raw: bytes, start: int) -> int:
    """Where the value of valid JSON that starts there ends."""
    first = raw[start : start + 1]
    if first == b'"':
        match = _STRING.match(raw, start)
    elif first not in {b"{", b"["}:
        match = _SCALAR.match(raw, start)
    else:
        return _end_of_container(raw, start)
    if match is None:
        raise MalformedBodyError(f"no value at byte {start}")
    return match.end()


def _end_of_container(raw: bytes, start: int) -> int:
    depth, position = 0, start
    while True:
        depth += 1 if raw[position] in b"[{" else -1
        position += 1
        if not depth:
            return position
        gap = _UP_TO_BRACKET.match(raw, position)
        if gap is None or gap.end() == len(raw):
            raise MalformedBodyError(f"the value at byte {start} does not end")
        position = gap.end()
