"""The contract of connectors: what they get, and what they give back.

A connector is a policy: it decides which leg is sent when, with which body, and whose answer counts.
What a reply is to those who send and relay it does not concern it (`ReplyT`).
"""

from typing import Generic, NamedTuple, Protocol, TypeVar

from kthena.router.body.piece import Piece
from kthena.router.body.scan import JsonBody
from kthena.router.endpoints import Endpoint
from kthena.router.proxy.errors import UpstreamError
from kthena.router.scheduler.pairs import Pair


class LegReply(Protocol):
    """What a connector may ask of a reply whose head is here."""

    @property
    def status(self) -> int:
        """The status."""
        ...

    def discard(self) -> None:
        """Nobody wants its body."""
        ...


ReplyT = TypeVar("ReplyT", bound=LegReply)


class Answer(NamedTuple, Generic[ReplyT]):
    """A reply whose head is here, and who gave it."""

    endpoint: Endpoint
    reply: ReplyT


class EndpointError(Exception):
    """An endpoint brought no reply."""

    def __init__(self, endpoint: Endpoint, error: UpstreamError) -> None:
        super().__init__(f"{endpoint}: {error}")
        self.endpoint = endpoint
        self.error = error


class Send(Protocol[ReplyT]):
    """Sends one leg of the request: same method, target and header fields, its own body."""

    async def __call__(self, endpoint: Endpoint, body: tuple[Piece, ...]) -> Answer[ReplyT]:
        """The reply, once its head is here.

        Raises:
            EndpointError: there is none.
        """
        ...


class Connector(Protocol):
    """Runs one request over a pair of endpoints."""

    async def run(
        self, pair: Pair, body: JsonBody, model: str | None, send: Send[ReplyT]
    ) -> Answer[ReplyT]:
        """The answer for the client: decode's, or that of a leg which refused.

        `model` replaces the client's model name unless it is None. A prefill answer that is not
        2xx is the answer, so that a client error reaches the client and a failure can be tried
        elsewhere. Cancellation ends all legs.

        Raises:
            EndpointError: a leg brought no reply; the error names its endpoint.
        """
        ...
