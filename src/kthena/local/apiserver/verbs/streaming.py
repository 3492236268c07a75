"""Responses that go on until they have no more to say, or the client leaves."""

import asyncio
import contextlib
from collections.abc import Awaitable

from starlette.types import Receive


async def while_connected(receive: Receive, stream: Awaitable[None]) -> None:
    """Wait for `stream`; cancel it when the client leaves. What it raises is passed on."""
    running = asyncio.ensure_future(stream)
    left = asyncio.ensure_future(_client_left(receive))
    try:
        await asyncio.wait((running, left), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (left, running):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await left
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
