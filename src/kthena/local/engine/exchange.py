"""One generation request and its reply, streamed or whole, paced like an engine's.

An `Exchange` is an ASGI application: it watches for the client's leaving while it works, and a
client that leaves ends the generation at once: the request leaves the running ones and counts as
aborted. Nothing is sent before the first token is due, so errors of the KV transfer have a status.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

from kthena.kube.clock import Clock
from kthena.local.engine import payloads
from kthena.local.engine.config import Faults, Timing
from kthena.local.engine.errors import RequestError
from kthena.local.engine.load import Load, Slot
from kthena.local.engine.payloads import Reply

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]

TRANSPORT_EXTENSION = "kthena.transport"
"""The ASGI extension under which the server hands out the connection's transport."""


class Handshake(Protocol):
    """The KV transfer of one request. Both calls may raise `RequestError`; nothing was sent yet."""

    async def before_prompt(self) -> None:
        """Fetch what a decode leg needs."""

    async def after_prompt(self) -> None:
        """Wait until a prefill leg's cache was taken."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What all exchanges of one engine share."""

    load: Load
    clock: Clock
    timing: Timing
    faults: Faults


class Exchange:
    """Sends one reply, or one error, and accounts for it in the engine's load."""

    def __init__(
        self,
        reply: Reply,
        runtime: Runtime,
        *,
        fault: str = "",
        handshake: Handshake | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self._reply = reply
        self._load = runtime.load
        self._clock = runtime.clock
        self._timing = runtime.timing
        self._faults = runtime.faults
        self._fault = fault
        self._handshake = handshake
        self._headers = headers or {}

    async def run(self, scope: Scope, receive: Receive, send: Send) -> str:
        """Serve the request and return why it ended: a finish reason, or `abort`.

        Raises:
            RequestError: it failed before the first byte.
        """
        work = asyncio.ensure_future(self._serve(scope, send))
        gone = asyncio.ensure_future(_wait_disconnect(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
            return "abort" if work.cancelled() else work.result()
        finally:
            for task in (work, gone):
                task.cancel()

    async def _serve(self, scope: Scope, send: Send) -> str:
        started = self._clock.monotonic()
        request = self._reply.request
        outcome = "error"
        try:
            async with self._load.slot(self._reply.model, request.total_prompt_tokens) as slot:
                outcome = await self._generate(scope, send, slot, started)
        except asyncio.CancelledError:
            outcome = "abort"
            raise
        except OSError:
            outcome = "abort"  # The connection broke while a chunk was written.
        finally:
            self._load.finished[outcome] += 1
            self._load.end_to_end.observe(self._clock.monotonic() - started)
        return outcome

    async def _generate(self, scope: Scope, send: Send, slot: Slot, started: float) -> str:
        if self._fault == "error":
            raise RequestError(
                self._faults.error_status, "injected failure", kind="InternalServerError"
            )
        if self._fault == "hang":
            await asyncio.Event().wait()
        if self._fault == "reset":
            _reset(scope)
            return "error"
        if self._handshake is not None:
            await self._handshake.before_prompt()
        await self._clock.sleep(self._timing.time_to_first_token_s)
        if self._handshake is not None:
            await self._handshake.after_prompt()
        self._load.time_to_first_token.observe(self._clock.monotonic() - started)
        if self._reply.request.stream:
            return await self._stream(scope, send, slot)
        return await self._whole(send, slot)

    async def _whole(self, send: Send, slot: Slot) -> str:
        async for step in self._paced_steps():
            slot.add_tokens(len(step))
        await send_json(send, 200, payloads.body_of(self._reply), self._headers)
        return self._reply.choices[0].finish_reason

    async def _stream(self, scope: Scope, send: Send, slot: Slot) -> str:
        await self._start_stream(send)
        responses = self._reply.request.endpoint == "responses"
        events = _ResponseEvents(self._reply) if responses else _ChunkEvents(self._reply)
        await _send_part(send, b"".join(events.opening()))
        sent = 0
        async for step in self._paced_steps():
            slot.add_tokens(len(step))
            sent += len(step)
            await _send_part(send, b"".join(events.token(*token) for token in step))
            if self._faults.reset_after_tokens and sent >= self._faults.reset_after_tokens:
                _reset(scope)
                return "error"
        await _send_part(send, b"".join(events.closing()), last=True)
        return self._reply.choices[0].finish_reason

    async def _start_stream(self, send: Send) -> None:
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            **self._headers,
        }
        await send(
            {"type": "http.response.start", "status": 200, "headers": encode_headers(headers)}
        )

    async def _paced_steps(self) -> Any:
        """Steps of the engine: each yields one token of every choice that is not finished.

        The first step is due at once (its time is the time to first token), the next ones at the
        configured rate, measured from the first, so that late wake-ups do not add up.
        """
        rate = self._timing.tokens_per_s
        origin = previous = self._clock.monotonic()
        for number, step in enumerate(_steps(self._reply)):
            if number and rate:
                await self._clock.sleep(origin + number / rate - self._clock.monotonic())
                now = self._clock.monotonic()
                for _ in step:
                    self._load.inter_token.observe(now - previous)
                previous = now
            yield step


def _steps(reply: Reply) -> Iterator[list[tuple[int, str, bool]]]:
    """Per step: choice index, text and whether it is the choice's last token."""
    longest = max(choice.token_count for choice in reply.choices)
    for position in range(longest):
        yield [
            (index, choice.pieces[position], position == choice.token_count - 1)
            for index, choice in enumerate(reply.choices)
            if position < choice.token_count
        ]


class _ChunkEvents:
    """Events of a chat or completions stream."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._generated = 0

    def opening(self) -> Iterator[bytes]:
        request = self._reply.request
        for index, choice in enumerate(self._reply.choices):
            if request.endpoint == "chat":
                yield payloads.data_event(payloads.role_chunk(self._reply, index))
            elif request.echo:
                text = self._reply.prompt_of(index)
                yield payloads.data_event(payloads.chunk(self._reply, index, text, None, 0))
            if not choice.token_count:
                yield payloads.data_event(payloads.chunk(self._reply, index, "", choice, 0))

    def token(self, index: int, text: str, last: bool) -> bytes:  # noqa: FBT001 - a row of `_steps`
        self._generated += 1
        choice = self._reply.choices[index] if last else None
        body = payloads.chunk(self._reply, index, text, choice, self._generated)
        return payloads.data_event(body)

    def closing(self) -> Iterator[bytes]:
        if self._reply.request.include_usage:
            yield payloads.data_event(payloads.usage_chunk(self._reply))
        yield payloads.DONE


class _ResponseEvents:
    """Events of a responses stream, numbered from 0."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._sequence = 0

    def opening(self) -> Iterator[bytes]:
        return (self._named(body) for body in payloads.response_opening(self._reply))

    def token(self, index: int, text: str, last: bool) -> bytes:  # noqa: ARG002, FBT001 - as above
        return self._named(payloads.response_delta(self._reply, text))

    def closing(self) -> Iterator[bytes]:
        return (self._named(body) for body in payloads.response_closing(self._reply))

    def _named(self, body: dict[str, Any]) -> bytes:
        event = payloads.named_event(body, self._sequence)
        self._sequence += 1
        return event


async def send_json(
    send: Send, status: int, body: dict[str, Any], headers: dict[str, str] | None = None
) -> None:
    """A whole JSON reply."""
    raw = json.dumps(body, separators=(",", ":")).encode()
    fields = {
        "content-type": "application/json",
        "content-length": str(len(raw)),
        **(headers or {}),
    }
    await send({"type": "http.response.start", "status": status, "headers": encode_headers(fields)})
    await _send_part(send, raw, last=True)


def encode_headers(fields: dict[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI wants them."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]


async def _send_part(send: Send, raw: bytes, *, last: bool = False) -> None:
    await send({"type": "http.response.body", "body": raw, "more_body": not last})


async def _wait_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _reset(scope: Scope) -> None:
    """Close the client's connection with a TCP reset."""
    transport = scope["extensions"][TRANSPORT_EXTENSION]["transport"]
    sock = transport.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            # Linger with timeout 0 makes the kernel send RST instead of FIN.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    transport.abort()
