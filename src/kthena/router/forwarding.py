"""The step in which a request meets its engine: attempts, one after another, until one answers.

An attempt goes to one endpoint, or through a connector over a prefill and a decode endpoint. A
failure before the first byte has reached the client leads to a further attempt, as `retries` decides;
whatever comes after that byte is final. Where an attempt goes is the dispatcher's to say, whose
plugins are told what became of it.
"""

import asyncio
from collections.abc import Mapping
from functools import partial

from kthena.router.accounting import Accounts
from kthena.router.body.piece import Piece
from kthena.router.body.scan import MalformedBodyError
from kthena.router.body.splice import rename_model
from kthena.router.call import Call
from kthena.router.clock import Clock
from kthena.router.connectors.contract import Answer, Connector, EndpointError
from kthena.router.endpoints import Endpoint
from kthena.router.proxy.awaiting import send_and_wait
from kthena.router.proxy.errors import ConnectError, RouterError, UpstreamError
from kthena.router.proxy.pool import ConnectionPool
from kthena.router.proxy.upstream import Exchange, OutboundRequest
from kthena.router.readiness import Readiness
from kthena.router.refusals import (
    client_left,
    internal_error,
    unreadable_body,
    upstream_failed,
)
from kthena.router.relay import begin_relay, break_off, refuse
from kthena.router.retries import Retry, RetryBudget, RetryPolicy, next_attempt
from kthena.router.scheduler.dispatch import Dispatcher, Leg
from kthena.router.scheduler.pairs import Pair
from kthena.telemetry.logging import get_logger

_log = get_logger("router")
_POLICY = RetryPolicy()


class Forwarder:
    """Runs the attempts of all requests (`Flow` of their calls).

    Mutable state: the tasks of disaggregated attempts, and the retry budget.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        pool: ConnectionPool,
        connectors: Mapping[str, Connector],
        readiness: Readiness,
        accounts: Accounts,
        clock: Clock,
    ) -> None:
        self._dispatcher = dispatcher
        self._pool = pool
        self._connectors = connectors
        self._readiness = readiness
        self._accounts = accounts
        self._clock = clock
        self._budget = RetryBudget()
        self._tasks: set[asyncio.Task[None]] = set()

    def forward(self, call: Call, leg: Leg) -> None:
        """Begin the first attempt of a request."""
        now = call.dispatched = self._clock.monotonic()
        self._budget.count_request(now)
        self._attempt(call, leg, now)

    async def drain(self) -> None:
        """Wait for the tasks of requests that have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Flow

    def answered(self, call: Call, exchange: Exchange) -> None:
        """Relay a reply that has begun, or try elsewhere if it says no more than "not now"."""
        now = self._clock.monotonic()
        if call.leg is not None and call.leg.pair is None:  # the legs of a pair were told of before
            self._dispatcher.profile.answered(call.answering, now - call.attempted)
        retry = next_attempt(exchange.reply, call.attempts, _POLICY)
        leg = None if retry is None else self._further(call, retry, now)
        if leg is None:
            begin_relay(call, exchange)
        else:
            exchange.discard()
            self._attempt(call, leg, now)

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
        call.failure = client_left(draining=self._readiness.draining)
        self._give_up(call)
        self._accounts.finished(call)

    def failed_unexpectedly(self, call: Call) -> None:
        """Answer a request that met an error of the router itself."""
        _log.exception("request failed unexpectedly", request_id=call.request_id)
        self._give_up(call)
        self._refuse(call, internal_error())

    # Attempts

    def _attempt(self, call: Call, leg: Leg, now: float) -> None:
        call.leg = leg
        call.attempts += 1
        call.attempted = now
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
            self._refuse(call, unreadable_body(error))
            return
        except Exception:  # noqa: BLE001 - nobody waits for this task: the client would wait for ever
            call.task = None
            self.failed_unexpectedly(call)
            return
        call.task = None
        call.answering = answer.endpoint
        call.exchange = answer.reply
        answer.reply.hand_over(call)

    async def _send_leg(
        self, call: Call, leg: Leg, endpoint: Endpoint, body: tuple[Piece, ...]
    ) -> Answer[Exchange]:
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
        self._dispatcher.profile.answered(endpoint, self._clock.monotonic() - started)
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
        now = self._clock.monotonic()
        if isinstance(error, ConnectError):
            self._dispatcher.profile.refused(call.answering, now)
        retry = next_attempt(error, call.attempts, _POLICY)
        leg = None if retry is None else self._further(call, retry, now)
        if leg is None:
            self._refuse(call, upstream_failed(call.answering.pod, error))
        else:
            self._attempt(call, leg, now)

    def _further(self, call: Call, retry: Retry, now: float) -> Leg | None:
        """Where a retry goes, if an endpoint is left that has not failed and the budget holds."""
        call.failed |= {call.answering}
        if not self._budget.allows(now):
            return None
        leg = self._dispatcher.schedule(call, now)
        if leg is not None:
            self._budget.take(now)
            self._accounts.retried(retry.reason)
        return leg

    # Ends

    def _refuse(self, call: Call, error: RouterError) -> None:
        refuse(call, error, self._clock.now())
        self._accounts.finished(call)

    def _give_up(self, call: Call) -> None:
        if call.task is not None:
            call.task.cancel()
        if call.exchange is not None:
            call.exchange.abandon()
