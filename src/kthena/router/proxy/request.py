"""A request of a client, complete and checked."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kthena.router.proxy.errors import RouterError


class Request:
    """One request with its whole body.

    `known` are the fields that the router may look at, by name in lower case; `lines` are those that
    are sent on, complete with their ends, some of them in both.

    `refusal` is set when the server has already decided that nothing but that error is to be
    answered; `target`, `path` and `body` may then be empty. Class attributes are the defaults.
    """

    target: bytes = b""
    """In origin form, as it is sent on."""
    path: str = ""
    """Decoded, without the query."""
    body: bytes = b""
    keep_alive: bool = False
    connection_tokens: frozenset[bytes] = frozenset()
    refusal: "RouterError | None" = None

    def __init__(
        self,
        method: str,
        version: str,
        client: str,
        known: Mapping[bytes, bytes],
        lines: list[bytes],
    ) -> None:
        self.method = method
        self.version = version
        self.client = client
        self.known = known
        self.lines = lines

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header field (name in lower case), or None."""
        found = self.known.get(name)
        if found is None:
            prefix = name + b": "
            for line in self.lines:
                if line.startswith(prefix):
                    return line[len(prefix) : -2]
        return found
