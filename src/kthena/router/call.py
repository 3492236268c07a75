"""One request on its way through the router: what is known of it so far."""

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Protocol

from kthena.router.body.scan import JsonBody
from kthena.router.endpoints import Endpoint
from kthena.router.metrics import UNKNOWN_MODEL, UNRESOLVED, Destination, Level
from kthena.router.proxy.errors import CLIENT_CLOSED_REQUEST, RouterError
from kthena.router.proxy.reply import Reply
from kthena.router.proxy.request import Request
from kthena.router.proxy.upstream import Exchange
from kthena.router.reasons import Reason
from kthena.router.routes.table import Match
from kthena.router.scheduler.dispatch import Leg

if TYPE_CHECKING:
    import asyncio

_EMPTY_BODY = JsonBody(b"{}", {})


class Flow(Protocol):
    """Whom a call tells how its attempt goes."""

    def answered(self, call: "Call", exchange: Exchange) -> None:
        """An engine's reply has begun."""
        ...

    def ended(self, call: "Call", exchange: Exchange) -> None:
        """The attempt's exchange is over."""
        ...

    def left(self, call: "Call") -> None:
        """The client has left before its reply was complete."""
        ...

    def failed_unexpectedly(self, call: "Call") -> None:
        """A step raised what it should not: a fault of the router itself."""
        ...


class Call:
    """A request, and what each step of its way has found. Times are monotonic seconds.

    It is what rules may look at (`RequestView`), what a dispatcher decides by (`Dispatched`), and the
    listener of the exchange that answers it. `body` and `match` are set by the steps of those names,
    `answering` is the endpoint that an attempt has to do with; nothing before them reads them. The
    forwarder keeps `leg`, `failed` and `attempts`; what accounting keeps here steers nothing. Class
    attributes are the defaults.
    """

    body: JsonBody
    match: Match
    answering: Endpoint

    model: str = ""
    model_label: str = UNKNOWN_MODEL
    leg: Leg | None = None
    destination: Destination = UNRESOLVED
    failed: AbstractSet[Endpoint] = frozenset()
    """Endpoints that an attempt of this request has failed on."""
    fields: bytes = b""
    """The header lines for engines."""
    attempts: int = 0
    dispatched: float = 0.0
    attempted: float = 0.0
    """When the first and the latest attempt began."""
    decode_started: float = 0.0
    exchange: Exchange | None = None
    task: "asyncio.Task[None] | None" = None
    downstream: Level = Level()
    upstream: Level = Level()
    """The gauges that this request is counted in; by default ones that nobody reads."""
    upstream_status: int = 0
    failure: RouterError | None = None
    ended_at: float = 0.0
    status: int = 0

    def __init__(
        self, flow: Flow, request: Request, reply: Reply, request_id: str, started: float
    ) -> None:
        self.flow = flow
        self.request = request
        self.reply = reply
        self.request_id = request_id
        self.started = started

    @property
    def path(self) -> str:
        """The decoded path, without the query."""
        return self.request.path

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header field, named in lower case."""
        return self.request.header(name)

    def on_head(self, exchange: Exchange) -> None:
        """See `Listener`."""
        try:
            self.flow.answered(self, exchange)
        except Exception:  # noqa: BLE001 - one request must not end its connection's other ones
            self.flow.failed_unexpectedly(self)

    def on_end(self, exchange: Exchange) -> None:
        """See `Listener`."""
        try:
            self.flow.ended(self, exchange)
        except Exception:  # noqa: BLE001 - one request must not end its connection's other ones
            self.flow.failed_unexpectedly(self)

    def client_left(self) -> None:
        """See `Reply.on_gone`."""
        self.flow.left(self)

    def close(self, now: float) -> None:
        """The request is over: settle its status and let go of everything large.

        The status is what was sent, or what would have been.
        """
        self.ended_at = now
        failure = self.failure
        if failure is not None and failure.reason is Reason.CLIENT_CLOSED:
            self.status = CLIENT_CLOSED_REQUEST
        elif self.reply.started:
            self.status = self.reply.status
        elif failure is not None:
            self.status = failure.status
        self.exchange = self.task = None
        self.fields = self.request.body = b""
        self.request.lines = []
        self.body = _EMPTY_BODY
