"""Why a JSON value is none of a Go type, as Go tells it.

Go has two readers of JSON values, with texts of their own: the decoder of a text, and the converter
from maps, which the API server uses for strategic merge patches and server-side apply.
"""

from typing import Any, Final

_NUMBER_KINDS: Final = ("int", "int32", "int64", "uint8", "uint16", "uint32")


class MismatchError(Exception):
    """A value that its Go type cannot hold. Structs on the way up add where it stands.

    `kind` is the kind of the type in Go's reflection; empty for types that decode themselves.
    """

    def __init__(self, value: Any, expected: str, kind: str = "") -> None:
        super().__init__(value, expected)
        self.value = value
        self.expected = expected
        self.kind = kind
        self.struct = ""
        self.path: list[str] = []

    def __str__(self) -> str:
        """Go's text."""
        where = f"Go struct field {self.struct}.{'.'.join(reversed(self.path))}"
        return self._text(where if self.path else "Go value")

    def _text(self, where: str) -> str:
        actual = _describe(self.value)
        if actual == "number" and (self.kind or self.expected) in _NUMBER_KINDS:
            actual = f"number {self.value}"
        return f"json: cannot unmarshal {actual} into {where} of type {self.expected}"

    @property
    def converted(self) -> str:
        """The text of Go's converter from maps, which knows no places."""
        given = _go_kind(self.value)
        if not self.kind:
            return self._text("Go value")
        if self.kind in ("map", "slice"):
            return f"cannot restore {self.kind} from {given}"
        if self.kind == "struct":
            return f"cannot restore struct from: {given}"
        # Go converts an integer to a string, and numbers to each other, but not here.
        convertible = _NUMBER_KINDS if given == "float64" else (*_NUMBER_KINDS, "string")
        if given in ("int64", "float64") and self.kind in convertible:
            return f"cannot convert {given} to {self.expected}"
        return f"unrecognized type: {self.kind}"


class TextError(Exception):
    """A value that a type with its own syntax refuses; the text says no place, as in Go."""

    @property
    def converted(self) -> str:
        """The text of Go's converter from maps, which leaves such types to themselves."""
        return str(self)


class Base64Error(TextError):
    """A text that is no base64."""

    @property
    def converted(self) -> str:
        """The converter decodes JSON of its own here."""
        return f"error decoding from json: {self}"


def _describe(value: Any) -> str:
    """What Go calls a JSON value in an error."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _go_kind(value: Any) -> str:
    """The kind of the Go value that a JSON value is read as."""
    names = {bool: "bool", int: "int64", float: "float64", str: "string", list: "slice"}
    return names.get(type(value), "map")
