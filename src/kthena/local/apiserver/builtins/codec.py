"""The codec of a built-in kind: Go's decoding, then the defaults of the kind."""

from collections.abc import Callable
from typing import Any

from kthena.local.apiserver.codec import Decoded
from kthena.local.apiserver.gotypes import decoder_for
from kthena.machinery.objects import Object


class BuiltinCodec:
    """Decodes to the struct of a kind and sets what the object leaves open."""

    def __init__(self, struct: str, kind: str, default: Callable[[Object], None] | None) -> None:
        self._decoder = decoder_for(struct, kind)
        self._default = default

    def decode(self, value: Any) -> Decoded:
        """The object in its normal form, with defaults, and what was dropped from it."""
        decoded = self._decoder.decode(value)
        if self._default is not None:
            self._default(decoded.obj)
        return decoded
