"""The step in which a request meets its engine: attempts, one after another, until one answers.

An attempt goes to one endpoint, or through a connector over a prefill and a decode endpoint. A
failure before the first byte has reached the client leads to a further attempt, as `retries` allows;
whatever comes after that byte is final.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from kthena.router.accounting import Accounts
from kthena.router.body.scan import MalformedBodyError
from kthena.router.body.splice import rename_model
from kthena.router.call import Call, Leg
from kthena.router.clock import Clock
from kthena.router.connectors.contract import Answer, Connector, EndpointError
from kthena.router.endpoints import Endpoint
from kthena.router.proxy.awaiting import send_and_wait
from kthena.router.proxy.errors import (
    ConnectError,
    RouterError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
)
from kthena.router.proxy.pool import ConnectionPool
from kthena.router.proxy.upstream import Exchange, OutboundRequest, Piece
from kthena.router.refusals import (
    client_left,
    internal_error,
    unreadable_body,
    upstream_failed,
)
from kthena.router.relay import begin_relay, break_off
from kthena.router.retries import MAX_FURTHER_ENDPOINTS, RetryBudget, is_retried
from kthena.router.scheduler.pairs import Pair
from kthena.router.scheduler.reachable import Reachable
from kthena.telemetry.logging import get_logger

_log = get_logger("router")


class Desk(Protocol):
    """Who decides where attempts go, and takes finished requests back."""

    @property
    def draining(self) -> bool:
        """Whether the router is ending."""
        ...

    def schedule(self, call: Call) -> Leg | None:
        """Where the next attempt goes, or None when nothing is left that has not failed."""
        ...

    def refuse(self, call: Call, error: RouterError) -> None:
        """Answer with an error and account for the request."""
        ...


class Forwarder:
    """Runs the attempts of all requests (`Flow` of their calls).

    Mutable state: the tasks of disaggregated attempts, and the retry budget.
    """

    def __init__(
        self,
        desk: Desk,
        pool: ConnectionPool,
        connectors: Mapping[str, Connector],
        reachable: Reachable,
        accounts: Accounts,
        clock: Clock,
    ) -> None:
        self._desk = desk
        self._pool = pool
        self._connectors = connectors
        self._reachable = reachable
        self._accounts = accounts
        self._clock = clock
        self._budget = RetryBudget()
        self._tasks: set[asyncio.Task[None]] = set()

    def forward(self, call: Call, leg: Leg) -> None:
        """Begin the first attempt of a request."""
        call.dispatched = self._clock.monotonic()
        self._budget.count_request(call.dispatched)
        self._attempt(call, leg)

    async def drain(self) -> None:
        """Wait for the tasks of requests that have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Flow

    def answered(self, call: Call, exchange: Exchange) -> None:
        """Relay a reply that has begun, or try elsewhere if it says no more than "not now"."""
        self._reachable.answered(call.answering)
        if is_retried(exchange):
            further = self._further(call, str(exchange.status))
            if further is not None:
                exchange.discard()
                self._attempt(call, further)
                return
        begin_relay(call, exchange)

    def ended(self, call: Call, exchange: Exchange) -> None:
        """Account for a request whose exchange is over, unless a further attempt follows."""
        failure = exchange.failure
        if failure is not None:
            if not exchange.status:
                self._failed(call, failure)
                return
            break_off(call, exchange, failure)
        self._accounts.finished(call)

    def left(self, call: Call) -> None:
        """Stop the engines at once, since the client has left."""
        call.failure = client_left(draining=self._desk.draining)
        self._give_up(call)
        self._accounts.finished(call)

    def failed_unexpectedly(self, call: Call) -> None:
        """Answer a request that met an error of the router itself."""
        _log.exception("request failed unexpectedly", request_id=call.request_id)
        self._give_up(call)
        self._desk.refuse(call, internal_error())

    # Attempts

    def _attempt(self, call: Call, leg: Leg) -> None:
        self._accounts.attempted(call, leg)
        if leg.pair is not None:
            task = asyncio.get_running_loop().create_task(self._run_pair(call, leg, leg.pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            call.task = task
            call.answering = leg.pair.prefill
            return
        endpoint = call.answering = leg.endpoint
        body = rename_model(call.body, leg.model)
        endpoint.begin()
        call.exchange = self._pool.send(
            endpoint.address, self._outbound(call, leg, body), call, endpoint.end
        )

    async def _run_pair(self, call: Call, leg: Leg, pair: Pair) -> None:
        """Run an attempt over a prefill and a decode endpoint."""
        server = leg.backend.server
        try:
            answer = await self._connectors[server.connector].run(
                pair,
                call.body,
                leg.model,
                partial(self._send_leg, call, leg),
            )
        except EndpointError as failed:
            call.task = None
            call.answering = failed.endpoint
            self._failed(call, failed.error)
            return
        except MalformedBodyError as error:
            # Only an edit looks for repeated members, of which a body may have too many.
            call.task = None
            self._desk.refuse(call, unreadable_body(error))
            return
        except Exception:  # noqa: BLE001 - nobody waits for this task: the client would wait for ever
            call.task = None
            self.failed_unexpectedly(call)
            return
        call.task = None
        call.answering = answer.endpoint
        call.exchange = answer.exchange
        answer.exchange.hand_over(call)

    async def _send_leg(
        self, call: Call, leg: Leg, endpoint: Endpoint, body: tuple[Piece, ...]
    ) -> Answer:
        """Send one leg of a pair (`Send`). The prefill phase ends with the head of its reply."""
        started = self._clock.monotonic()
        status = 500
        endpoint.begin()
        try:
            exchange = await send_and_wait(
                self._pool, endpoint.address, self._outbound(call, leg, body), endpoint.end
            )
            status = exchange.status
        except UpstreamError as error:
            raise EndpointError(endpoint, error) from error
        finally:
            if endpoint is leg.endpoint:
                call.decode_started = started
            else:
                self._accounts.prefill_ended(call, status, started)
        self._reachable.answered(endpoint)
        return Answer(endpoint, exchange)

    def _outbound(self, call: Call, leg: Leg, body: tuple[Piece, ...]) -> OutboundRequest:
        """The request of an attempt.

        The timeout counts from the first dispatch, so that further attempts do not add to it.
        """
        deadline = None
        timeout_s = leg.backend.server.timeout_s
        if timeout_s is not None:
            passed = 0.0
            if call.attempts > 1 or leg.pair is not None:
                passed = self._clock.monotonic() - call.dispatched
            deadline = asyncio.get_running_loop().time() + timeout_s - passed
        request = call.request
        return OutboundRequest(request.method, request.target, call.fields, body, deadline)

    def _failed(self, call: Call, error: UpstreamError) -> None:
        """Try elsewhere after an attempt that brought no reply, or say why not."""
        if isinstance(error, ConnectError):
            self._reachable.refused(call.answering, self._clock.monotonic())
        further = None
        if not isinstance(error, UpstreamTimeoutError | UpstreamProtocolError):
            further = self._further(call, error.word)
        if further is None:
            self._desk.refuse(call, upstream_failed(call.answering.pod, error))
        else:
            self._attempt(call, further)

    def _further(self, call: Call, reason: str) -> Leg | None:
        """Where to try once more, if anywhere: within the limit, the budget and what is left."""
        call.failed |= {call.answering}
        if call.attempts > MAX_FURTHER_ENDPOINTS:
            return None
        leg = self._desk.schedule(call)
        if leg is None or not self._budget.take(self._clock.monotonic()):
            return None
        self._accounts.retried(reason)
        return leg

    def _give_up(self, call: Call) -> None:
        if call.task is not None:
            call.task.cancel()
        if call.exchange is not None:
            call.exchange.abandon()
