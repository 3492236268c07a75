"""The router: requests in, the right engine out.

A request goes accept -> parse -> match here, then schedule (`scheduler.dispatch`) -> forward
(`forwarding`) -> account (`accounting`). What they look things up in are two immutable values, the
route table and the backends, which `swap` replaces: a rule that took a request keeps it, each attempt
sees the latest endpoints.

All steps run in the callbacks of sockets; only a disaggregated request, whose legs wait for each
other, has a task.
"""

from collections.abc import Iterable
from random import Random
from typing import Final

from kthena.router.access_log import AccessLog
from kthena.router.accounting import Accounts
from kthena.router.body.scan import MalformedBodyError, scan
from kthena.router.call import Call
from kthena.router.clock import Clock
from kthena.router.config import RouterConfig
from kthena.router.connectors.http import HttpConnector
from kthena.router.endpoints import EndpointRegistry
from kthena.router.forwarding import Forwarder
from kthena.router.metrics import RouterMetrics
from kthena.router.proxy.errors import RouterError
from kthena.router.proxy.headers import upstream_fields, usable_request_id
from kthena.router.proxy.pool import ConnectionPool
from kthena.router.proxy.reply import Reply
from kthena.router.proxy.request import Request
from kthena.router.proxy.server import Server
from kthena.router.readiness import Readiness
from kthena.router.refusals import (
    check_content,
    malformed_body,
    no_endpoint,
    no_route,
    path_not_found,
    unreadable_body,
)
from kthena.router.relay import refuse
from kthena.router.replies import Pages, is_models_path, send_error
from kthena.router.routes.spec import Backend
from kthena.router.routes.table import NoMatch, RouteTable
from kthena.router.scheduler.dispatch import Dispatcher
from kthena.router.scheduler.plugins import build_profile
from kthena.telemetry.metrics import Metrics

TABLES: Final = "tables"
"""The part of readiness that `swap` makes ready."""

_API_PREFIX: Final = "/v1/"
_AUTHORIZATION: Final = frozenset({b"authorization"})
_MAX_MODEL_NAME: Final = 1024
_LOW_48_BITS: Final = (1 << 48) - 1


class Router:
    """The data plane of one process.

    `swap` may be called at any time; `serve` and `serve_operations` once each, in the loop that runs
    everything; `close` ends it.
    """

    def __init__(self, config: RouterConfig, clock: Clock, rng: Random, metrics: Metrics) -> None:
        self.readiness = Readiness(TABLES)
        self._config = config
        self._clock = clock
        router_metrics = RouterMetrics(metrics)
        self._access_log = AccessLog(config.access_log)
        self._accounts = Accounts(router_metrics, self._access_log, clock)
        self._pages = Pages(self.readiness, self._render_metrics, clock.now)
        self._render = metrics.render
        self._dispatcher = Dispatcher(build_profile(config.scheduler, rng.random))
        self._pool = ConnectionPool(config.pool, clock.monotonic)
        connectors = {"http": HttpConnector()}
        self._forwarder = Forwarder(
            self._dispatcher, self._pool, connectors, self.readiness, self._accounts, clock
        )
        self._server = Server(config.limits, self.handle)
        self._operations = Server(config.limits, self.handle_operations)
        router_metrics.watch("access_log_lost_lines", lambda: self._access_log.dropped)
        router_metrics.watch("buffered_request_bytes", lambda: self._server.buffered_bytes)
        router_metrics.watch("client_connections", lambda: self._server.connections)
        router_metrics.watch("upstream_connections", lambda: self._pool.open_connections)
        router_metrics.watch("upstream_resends", lambda: self._pool.resent)
        self._registry = EndpointRegistry()
        self._table = RouteTable()
        self._request_count = rng.getrandbits(48)
        self._id_prefix = _id_prefix(rng)
        self._dropped = frozenset[bytes]() if config.forward_authorization else _AUTHORIZATION

    # Life

    def swap(self, table: RouteTable, backends: Iterable[Backend]) -> None:
        """Route by these from the next request on."""
        self._table = table
        self._dispatcher.replace(self._registry.replace(backends))
        self._pool.retain(self._registry.addresses())
        self.readiness.report(TABLES, ready=True)

    async def serve(self, host: str, port: int) -> int:
        """Accept clients; returns the port. An empty host means all interfaces, IPv6 included.

        Raises:
            OSError: the address cannot be bound, or the access log cannot be opened.
        """
        self._accounts.open()
        return await self._server.listen(host, port)

    async def serve_operations(self, host: str, port: int) -> int:
        """Answer `/metrics`, `/healthz` and `/readyz` on a port of their own; returns it.

        Raises:
            OSError: the address cannot be bound.
        """
        return await self._operations.listen(host, port)

    async def close(self, drain_s: float | None = None) -> None:
        """Accept nothing more, let replies end, then cut what is left.

        `drain_s` is how long replies may take; unset, it is the configured time.
        """
        self.readiness.draining = True
        await self._server.close(self._config.drain_timeout_s if drain_s is None else drain_s)
        await self._forwarder.drain()
        self._pool.close()
        await self._operations.close(0)
        self._accounts.close()

    def _render_metrics(self) -> bytes:
        self._accounts.settle()
        return self._render()

    # accept

    def handle(self, request: Request, reply: Reply) -> None:
        """Take a request of a client."""
        if not request.path.startswith(_API_PREFIX) and request.refusal is None:
            if not self._pages.health(request, reply, metrics=self._config.expose_metrics):
                send_error(reply, path_not_found(request.path), self._clock.now())
            return
        call = Call(
            self._forwarder, request, reply, self._request_id(request), self._clock.monotonic()
        )
        self._accounts.begun()
        reply.on_gone = call.client_left
        if request.refusal is not None:
            self._refuse(call, request.refusal)
            return
        try:
            if is_models_path(request.path):
                self._pages.models(request, reply, self._table, call.request_id)
                self._accounts.finished(call)
                return
            self._parse(call)
            self._match(call)
            self._forward(call)
        except RouterError as error:
            self._refuse(call, error)
        except MalformedBodyError as error:
            self._refuse(call, unreadable_body(error))
        except Exception:  # noqa: BLE001 - one request must not end its connection's other ones
            self._forwarder.failed_unexpectedly(call)

    def handle_operations(self, request: Request, reply: Reply) -> None:
        """Take a request on the port for operations."""
        error = request.refusal
        if error is None and not self._pages.health(request, reply, metrics=True):
            error = path_not_found(request.path)
        if error is not None:
            send_error(reply, error, self._clock.now())

    # parse

    def _parse(self, call: Call) -> None:
        """Find the model that the client asks for. The last `model` counts, as engines read it."""
        check_content(call.request)
        call.body = scan(call.request.body)
        model = call.body.text("model")
        if model is None or not model.strip():
            raise malformed_body("the request body names no model", param="model")
        if len(model) > _MAX_MODEL_NAME:
            raise malformed_body(
                f"`model` is longer than {_MAX_MODEL_NAME} characters", param="model"
            )
        call.model = model

    # match

    def _match(self, call: Call) -> None:
        """Find the rule that takes the request."""
        found = self._table.match(call)
        if isinstance(found, NoMatch):
            self._accounts.model_known(call, known=self._table.knows(call.model))
            raise no_route(call.model, found)
        self._accounts.model_known(call, known=True)
        call.match = found

    # schedule, forward, account

    def _forward(self, call: Call) -> None:
        """Send the request to where it is scheduled."""
        leg = self._dispatcher.schedule(call, call.started)
        if leg is None:
            raise no_endpoint(call.match, self._dispatcher.backends)
        call.fields = upstream_fields(call.request, self._dropped, call.request_id)
        self._forwarder.forward(call, leg)

    def _refuse(self, call: Call, error: RouterError) -> None:
        refuse(call, error, self._clock.now())
        self._accounts.finished(call)

    def _request_id(self, request: Request) -> str:
        """The client's request id, or a new one in the form of a version 4 UUID."""
        given = request.known.get(b"x-request-id")
        usable = None if given is None else usable_request_id(given)
        if usable is not None:
            return usable
        self._request_count += 1
        return f"{self._id_prefix}{self._request_count & _LOW_48_BITS:012x}"


def _id_prefix(rng: Random) -> str:
    """What the request ids of one router begin with: all of a UUID but its last 48 bits."""
    text = f"{rng.getrandbits(80):020x}"
    return f"{text[:8]}-{text[8:12]}-4{text[12:15]}-a{text[15:18]}-"
