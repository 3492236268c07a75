r"""The JSONPath dialect of kubectl, as far as printer columns of CRDs use it.

Fields (`.a.b`, `['a']`, `.a\.b` for a dot in a name), wildcards, indices, slices, unions, and
filters (`[?(@.type=='Ready')]`). A path is compiled once; recursive descent (`..`) and ranges are
refused. Follows k8s.io/client-go/util/jsonpath.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kthena.machinery.gotext import parse_int

_SLICE = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?")
_NAME_IN_QUOTES = re.compile(r"'([^']*)'")
_COMPARISON = re.compile(r"([^!<>=]+)([!<>=]+)(.+)", re.DOTALL)
_NUMBER = re.compile(r"[-+]?[0-9.]+")
_WORD = re.compile(r"\w+")
_TERMINATORS = frozenset(" \t\r\n.,[]$@{}")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}

Step = Callable[[list[Any]], list[Any]]


class JsonPathError(ValueError):
    """A path that is malformed, or uses what printer columns do not need."""


class _EvaluationError(Exception):
    """A path that does not fit the object: an index out of bounds, a filter on no list."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A compiled path."""

    text: str
    _steps: tuple[Step, ...]

    def find(self, obj: Any) -> list[Any]:
        """The values that the path selects, in document order.

        None are selected where a field is absent or the path does not fit the object, as the API
        server leaves the cell of a table empty then.
        """
        try:
            return _run(self._steps, [obj])
        except _EvaluationError:
            return []


def compile_jsonpath(text: str) -> JsonPath:
    """The path that a text such as `.status.conditions[?(@.type=="Ready")].status` names.

    Raises:
        JsonPathError: the text is no path of the supported dialect.
    """
    return JsonPath(text, _Compiler(text).compile())


def _run(steps: tuple[Step, ...], values: list[Any]) -> list[Any]:
    for step in steps:
        values = step(values)
    return values


class _Compiler:
    """One pass over the text. Mutable state: the position and the steps so far."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._steps: list[Step] = []

    def compile(self) -> tuple[Step, ...]:
        while self._position < len(self._text):
            self._read_step()
        return tuple(self._steps)

    def _read_step(self) -> None:
        character = self._text[self._position]
        if character in " @$":
            self._position += 1
        elif character == ".":
            self._read_field()
        elif self._text.startswith("[?(", self._position):
            self._read_filter()
        elif character == "[":
            self._read_brackets()
        elif character in "'\"":
            self._read_quoted(character)
        elif match := _NUMBER.match(self._text, self._position):
            self._read_number(match)
        elif match := _WORD.match(self._text, self._position):
            self._read_word(match)
        else:
            raise self._error(f"unexpected {character!r}")

    def _read_field(self) -> None:
        if self._text.startswith("..", self._position):
            raise self._error("recursive descent (..) is not supported")
        self._position += 1
        start = self._position
        while self._position < len(self._text) and self._text[self._position] not in _TERMINATORS:
            self._position += 1 + (self._text[self._position] == "\\")
        self._position = min(self._position, len(self._text))
        name = self._text[start : self._position]
        self._steps.append(_select_all if name == "*" else _select_field(name.replace("\\", "")))

    def _read_brackets(self) -> None:
        end = self._text.find("]", self._position)
        if end < 0:
            raise self._error("a bracket is not closed")
        content = self._text[self._position + 1 : end]
        self._position = end + 1
        if "," in content:
            parts = [_Compiler(f"[{part.strip(' ')}]").compile() for part in content.split(",")]
            self._steps.append(_select_union(parts))
        elif match := _NAME_IN_QUOTES.fullmatch(content):
            self._steps += _Compiler(f".{match[1]}").compile()
        else:
            self._steps.append(self._slice(":" if content == "*" else content))

    def _slice(self, content: str) -> Step:
        match = _SLICE.fullmatch(content)
        if match is None:
            raise self._error(f"invalid array index {content!r}")
        start, stop, step = match.groups()
        try:
            first = parse_int(start) if start else None
            if stop is None:
                return _select_index(first or 0)
            last = parse_int(stop[1:]) if stop[1:] else None
            stride = parse_int(step[1:]) if step and step[1:] else 1
        except ValueError:
            raise self._error(f"invalid array index {content!r}") from None
        return _select_slice(first or 0, last, stride)

    def _read_filter(self) -> None:
        start = self._position + 3
        end = start
        quote = ""
        while end < len(self._text) and (quote or self._text[end] != ")"):
            character = self._text[end]
            if quote:
                quote = "" if character == quote and self._text[end - 1] != "\\" else quote
            elif character in "'\"":
                quote = character
            end += 1
        if not self._text.startswith(")]", end):
            raise self._error("a filter is not closed by ')]'")
        content = self._text[start:end]
        self._position = end + 2
        match = _COMPARISON.fullmatch(content)
        if match is None:
            self._steps.append(_filter_existing(_Compiler(content).compile()))
            return
        left, operator, right = match.groups()
        if operator not in _COMPARISONS:
            raise self._error(f"unrecognized filter operator {operator}")
        self._steps.append(
            _filter_compared(_Compiler(left).compile(), operator, _Compiler(right).compile())
        )

    def _read_quoted(self, quote: str) -> None:
        self._position += 1
        characters = []
        while (character := self._text[self._position : self._position + 1]) != quote:
            if not character:
                raise self._error("a quoted text is not closed")
            if character == "\\":
                self._position += 1
                escaped = self._text[self._position : self._position + 1]
                if escaped not in _ESCAPES:
                    raise self._error(f"invalid escape '\\{escaped}'")
                character = _ESCAPES[escaped]
            characters.append(character)
            self._position += 1
        self._position += 1
        self._steps.append(_constant("".join(characters)))

    def _read_number(self, match: re.Match[str]) -> None:
        self._position = match.end()
        try:
            value = float(match[0]) if "." in match[0] else parse_int(match[0])
        except ValueError:
            raise self._error(f"cannot parse number {match[0]}") from None
        self._steps.append(_repeated(value))

    def _read_word(self, match: re.Match[str]) -> None:
        self._position = match.end()
        if match[0] not in ("true", "false"):
            raise self._error(f"unrecognized identifier {match[0]}")
        self._steps.append(_repeated(match[0] == "true"))

    def _error(self, cause: str) -> JsonPathError:
        return JsonPathError(f"JSONPath {self._text!r}: {cause}")


def _select_field(name: str) -> Step:
    def step(values: list[Any]) -> list[Any]:
        return [value[name] for value in values if isinstance(value, dict) and name in value]

    return step


def _select_all(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, dict):
            found += value.values()
        elif isinstance(value, list):
            found += value
    return found


def _select_index(index: int) -> Step:
    def step(values: list[Any]) -> list[Any]:
        found = []
        for value in _lists(values):
            if not -len(value) <= index < len(value):
                raise _EvaluationError
            found.append(value[index])
        return found

    return step


def _select_slice(start: int, stop: int | None, stride: int) -> Step:
    def step(values: list[Any]) -> list[Any]:
        found: list[Any] = []
        for value in _lists(values):
            size = len(value)
            first = start + size if start < 0 else start
            last = size if stop is None else stop + size if stop < 0 else stop
            if first == last:
                return found
            if not (0 <= first < size and first < last <= size) or stride <= 0:
                raise _EvaluationError
            found += value[first:last:stride]
        return found

    return step


def _lists(values: list[Any]) -> list[list[Any]]:
    """The lists among the values; null counts as absent, anything else does not fit."""
    present = [value for value in values if value is not None]
    if not all(isinstance(value, list) for value in present):
        raise _EvaluationError
    return present


def _select_union(paths: list[tuple[Step, ...]]) -> Step:
    def step(values: list[Any]) -> list[Any]:
        return [found for path in paths for found in _run(path, values)]

    return step


def _filter_existing(path: tuple[Step, ...]) -> Step:
    def exists(entry: Any) -> bool:
        try:
            return bool(_run(path, [entry]))
        except _EvaluationError:
            return False

    def step(values: list[Any]) -> list[Any]:
        return [entry for entry in _elements(values) if exists(entry)]

    return step


def _filter_compared(left: tuple[Step, ...], operator: str, right: tuple[Step, ...]) -> Step:
    def passes(entry: Any) -> bool:
        sides = _run(left, [entry]), _run(right, [entry])
        if not all(sides):
            return False
        if any(len(side) > 1 for side in sides):
            raise _EvaluationError
        return _compare(sides[0][0], operator, sides[1][0])

    def step(values: list[Any]) -> list[Any]:
        return [entry for entry in _elements(values) if passes(entry)]

    return step


def _elements(values: list[Any]) -> list[Any]:
    """The elements of all lists; a filter on anything else does not fit."""
    if not all(isinstance(value, list) for value in values):
        raise _EvaluationError
    return [entry for value in values for entry in value]


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}
_COMPARABLE = (bool, int, float, str)


def _compare(left: Any, operator: str, right: Any) -> bool:
    """Go templates compare values of one basic type only, and do not order booleans."""
    if type(left) is not type(right) or type(left) not in _COMPARABLE:
        raise _EvaluationError
    if isinstance(left, bool) and operator not in ("==", "!="):
        raise _EvaluationError
    return _COMPARISONS[operator](left, right)


def _constant(value: str) -> Step:
    return lambda _: [value]


def _repeated(value: float) -> Step:
    return lambda values: [value] * len(values)
