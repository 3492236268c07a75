"""A transport that misbehaves by plan: for tests and simulations of everything above the client.

A plan looks at each request and names the fault that it suffers, or none. `random_plan` draws from
a seeded generator, so that a run can be repeated.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

import msgspec

from kthena.kube.client import BufferedReply, Reply, Request, Transport
from kthena.kube.clock import Clock, SystemClock
from kthena.kube.errors import ConnectionFailed


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request does not reach the server."""


@dataclass(frozen=True, slots=True)
class LoseReply:
    """The server acts on the request, and its reply is lost."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The request does not reach the server; a `Status` with this code comes back."""

    status: int
    reason: str = ""
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Delay:
    """The request reaches the server later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cut:
    """The reply breaks off after so many pieces of its body."""

    after_chunks: int = 0


@dataclass(frozen=True, slots=True)
class Silence:
    """Nothing comes any more after so many pieces of the body.

    Of a stream there is no error either; any other request runs into its time limit.
    """

    after_chunks: int = 0


Fault: TypeAlias = Refuse | LoseReply | Answer | Delay | Cut | Silence
Plan: TypeAlias = Callable[[Request], Fault | None]


def random_plan(random: Random, rates: Sequence[tuple[Fault, float]]) -> Plan:
    """Each fault with its rate; the rates sum to at most 1, and the rest goes well.

    Raises:
        ValueError: the sum is greater than 1.
    """
    if sum(rate for _, rate in rates) > 1:
        raise ValueError("the rates of the faults sum to more than 1")

    def plan(_: Request) -> Fault | None:
        drawn = random.random()
        for fault, rate in rates:
            if drawn < rate:
                return fault
            drawn -= rate
        return None

    return plan


class FaultTransport:
    """Passes requests to `inner`, each with the fault that `plan` names for it."""

    def __init__(self, inner: Transport, plan: Plan, clock: Clock | None = None) -> None:
        self._inner = inner
        self._plan = plan
        self._clock = clock or SystemClock()

    async def send(self, request: Request) -> Reply:
        """The reply of `inner`, unless the fault is another one."""
        fault = self._plan(request)
        match fault:
            case Refuse():
                raise ConnectionFailed("connection refused", request=str(request))
            case Answer():
                return _status_reply(fault)
            case Delay():
                await self._clock.sleep(fault.seconds)
        reply = await self._inner.send(request)
        match fault:
            case LoseReply():
                await reply.aclose()
                raise ConnectionFailed("connection reset", request=str(request))
            case Cut() | Silence():
                return _FaultyReply(reply, fault, request, self._clock)
        return reply

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()


def _status_reply(fault: Answer) -> Reply:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": fault.status,
        "reason": fault.reason,
        "message": "injected fault",
    }
    headers = {"content-type": "application/json"}
    if fault.retry_after_s is not None:
        headers["retry-after"] = str(fault.retry_after_s)
    return BufferedReply(fault.status, msgspec.json.encode(body), headers)


class _FaultyReply:
    """A reply whose body breaks off or falls silent."""

    def __init__(self, inner: Reply, fault: Cut | Silence, request: Request, clock: Clock) -> None:
        self._inner = inner
        self._fault = fault
        self._request = request
        self._clock = clock

    @property
    def status(self) -> int:
        return self._inner.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._inner.headers

    async def read(self) -> bytes:
        try:
            return b"".join([chunk async for chunk in self.chunks()])
        finally:
            await self.aclose()

    async def chunks(self) -> AsyncIterator[bytes]:
        passed = 0
        async for chunk in self._inner.chunks():
            if passed == self._fault.after_chunks:
                break
            passed += 1
            yield chunk
        if isinstance(self._fault, Silence):
            await self._clock.sleep(self._request.timeout_s)
            if self._request.streamed:
                await asyncio.get_running_loop().create_future()
        raise ConnectionFailed("connection reset", request=str(self._request))

    async def aclose(self) -> None:
        await self._inner.aclose()
