"""The router: requests in, the right engine out.

A request goes accept -> parse -> match -> schedule -> forward -> account, one step each, in this
order below. What they look things up in are two immutable values, the route table and the backends,
which `swap` replaces: a rule that took a request keeps it, each attempt sees the latest endpoints.

All steps run in the callbacks of sockets; only a disaggregated request, whose legs wait for each
other, has a task.
"""

from collections.abc import Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from kthena.router.access_log import AccessLog
from kthena.router.accounting import Accounts
from kthena.router.body.scan import MalformedBodyError, scan
from kthena.router.call import Call, Leg
from kthena.router.clock import Clock
from kthena.router.config import RouterConfig
from kthena.router.connectors.http import HttpConnector
from kthena.router.endpoints import EndpointRegistry, LiveBackend
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
from kthena.router.replies import Pages, is_models_path, send_error
from kthena.router.routes.spec import Backend
from kthena.router.routes.table import Match, NoMatch, RouteTable
from kthena.router.scheduler.contract import SchedulingRequest
from kthena.router.scheduler.pairs import choose_pair
from kthena.router.scheduler.plugins import build_profile
from kthena.router.scheduler.reachable import Reachable
from kthena.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from kthena.machinery.objects import NamespacedName

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
        reachable = Reachable()
        self._profile = build_profile(config.scorers, reachable, rng.random)
        self._pool = ConnectionPool(config.pool, clock.monotonic)
        connectors = {"http": HttpConnector()}
        self._forwarder = Forwarder(self, self._pool, connectors, reachable, self._accounts, clock)
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
        self._backends: Mapping[NamespacedName, LiveBackend] = {}
        self._dropped = frozenset[bytes]() if config.forward_authorization else _AUTHORIZATION

    # Life

    def swap(self, table: RouteTable, backends: Iterable[Backend]) -> None:
        """Route by these from the next request on."""
        self._table = table
        self._backends = self._registry.replace(backends)
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

    @property
    def draining(self) -> bool:
        """Whether the router is ending."""
        return self.readiness.draining

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
            self.refuse(call, request.refusal)
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
            self.refuse(call, error)
        except MalformedBodyError as error:
            self.refuse(call, unreadable_body(error))
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
        known = isinstance(found, Match) or self._table.knows(call.model)
        self._accounts.model_known(call, known=known)
        if isinstance(found, NoMatch):
            raise no_route(call.model, found)
        call.match = found

    # schedule

    def schedule(self, call: Call) -> Leg | None:
        """Choose where the next attempt goes, or None when nothing is left that has not failed.

        The first attempt draws a target by weight among those with something to ask. Further ones
        stay with its other endpoints while there are any, then go to the rule's other targets.
        """
        rule = call.match.rule
        if len(rule.targets) == 1:
            backend = self._available(rule.targets[0].server)
            return None if backend is None else self._choose(call, backend)
        if call.leg is not None:
            backend = self._available(call.leg.backend.server.key)
            leg = None if backend is None else self._choose(call, backend)
            if leg is not None:
                return leg
        eligible = {
            index: found
            for index, target in enumerate(rule.targets)
            if (found := self._available(target.server)) is not None
        }
        while eligible:
            drawn = rule.draw.pick(list(eligible))
            if drawn is None:
                break
            leg = self._choose(call, eligible.pop(drawn))
            if leg is not None:
                return leg
        return None

    def _available(self, server: "NamespacedName") -> LiveBackend | None:
        backend = self._backends.get(server)
        return backend if backend is not None and backend.available else None

    def _choose(self, call: Call, backend: LiveBackend) -> Leg | None:
        # A LoRA adapter goes by its own name everywhere.
        model = None if call.match.adapter else backend.server.model
        wanted = SchedulingRequest(call.model, model or call.model, call.started)
        if call.failed:
            wanted.now = self._clock.monotonic()
        if backend.server.disaggregated:
            pair = choose_pair(self._profile, wanted, backend.endpoints, call.failed)
            return None if pair is None else Leg(backend, model, pair.decode, pair)
        endpoints = backend.endpoints.endpoints
        if call.failed:
            endpoints = tuple(one for one in endpoints if one not in call.failed)
        endpoint = self._profile.choose(wanted, endpoints)
        return None if endpoint is None else Leg(backend, model, endpoint)

    # forward

    def _forward(self, call: Call) -> None:
        """Send the request to where it is scheduled."""
        leg = self.schedule(call)
        if leg is None:
            raise no_endpoint(call.match, self._backends)
        call.fields = upstream_fields(call.request, self._dropped, call.request_id)
        self._forwarder.forward(call, leg)

    # account

    def refuse(self, call: Call, error: RouterError) -> None:
        """Answer with an error of the router; a reply that has begun is cut."""
        call.failure = error
        if call.reply.started:
            call.reply.cut()
        else:
            send_error(call.reply, error, self._clock.now(), call.request_id)
        self._accounts.finished(call)

    def _request_id(self, request: Request) -> str:
        """The client's request id, or a new one in the form of a version 4 UUID."""
        given = usable_request_id(request.known.get(b"x-request-id"))
        if given is not None:
            return given
        self._request_count += 1
        return f"{self._id_prefix}{self._request_count & _LOW_48_BITS:012x}"


def _id_prefix(rng: Random) -> str:
    """What the request ids of one router begin with: all of a UUID but its last 48 bits."""
    text = f"{rng.getrandbits(80):020x}"
    return f"{text[:8]}-{text[8:12]}-4{text[12:15]}-a{text[15:18]}-"
