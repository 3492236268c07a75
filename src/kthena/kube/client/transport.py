"""How bytes reach an API server: the interface between the client's verbs and the network.

`kthena.kube.client.http` implements it over TCP and TLS, `kthena.kube.faults` wraps it, and tests
implement it in memory. It knows HTTP, not Kubernetes.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `target` is the path with its query, percent-encoded.

    `timeout_s` bounds the whole exchange; for a `streamed` reply it bounds the time to its head,
    and the body may last for ever.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    timeout_s: float = 30.0
    streamed: bool = False

    def __str__(self) -> str:
        """Method and path, without the query: `GET /api/v1/pods`."""
        return f"{self.method} {self.target.partition('?')[0]}"


class Reply(Protocol):
    """The head of a reply, and its body as it arrives. Header names are in lower case."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; a repeated one has its last value."""
        ...

    async def read(self) -> bytes:
        """The rest of the body; the reply is closed afterwards, however this ends.

        Raises:
            ConnectionFailed: the body is incomplete.
        """
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body piece by piece, ending where it ends; the caller closes the reply.

        Raises:
            ConnectionFailed: the body was cut off.
        """
        ...

    async def aclose(self) -> None:
        """Let go of the connection; safe to call twice, and in cancellation."""
        ...


class Transport(Protocol):
    """Sends requests. Concurrent calls are independent; streams never starve other requests."""

    async def send(self, request: Request) -> Reply:
        """The reply, as soon as its head is there; whoever gets it reads or closes it.

        Any HTTP status is a reply. Cancellation gives the connection up.

        Raises:
            ConnectionFailed: no reply within the time, no connection, or no credentials.
        """
        ...

    async def aclose(self) -> None:
        """Close every connection; requests in flight fail."""
        ...


@dataclass(frozen=True, slots=True)
class BufferedReply:
    """A reply that is there as a whole."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    async def read(self) -> bytes:
        """The body."""
        return self.body

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in one piece."""
        if self.body:
            yield self.body

    async def aclose(self) -> None:
        """Nothing is held."""
