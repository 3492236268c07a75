"""From JSON to the objects of a kind: what every codec promises."""

from typing import Any, NamedTuple, Protocol

from kthena.machinery.objects import Object


class DecodeError(ValueError):
    """The JSON is no object of the kind; the message is that of the reader in Go."""


class Decoded(NamedTuple):
    """An object of the kind, and what was dropped or ambiguous in the text that it came from."""

    obj: Object
    problems: list[str]


class Codec(Protocol):
    """Which JSON is an object of the kind, and its normal form."""

    def decode(self, value: Any, *, converts: bool = False) -> Decoded:
        """The object without fields that the kind does not have, with its defaults.

        `apiVersion` and `kind` have been checked and are left out of the result. The value may be
        changed. With `converts` no JSON was read but an object was made, by an apply or a strategic
        merge: Go's converter from maps makes numbers fit where its decoder of JSON refuses them.

        Raises:
            DecodeError: a value has a type that its field cannot hold.
        """
        ...

    def empty(self) -> Object:
        """An object of the kind of which nothing is set, without defaults; a new one each time."""
        ...
