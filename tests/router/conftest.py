"""Router tests run on the loop of asyncio and on uvloop."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def _uvloop() -> asyncio.AbstractEventLoop:
    """A loop that runs Python twice a second, so that a test's time limit can interrupt it."""
    loop = uvloop.new_event_loop()

    def beat() -> None:
        loop.call_later(0.5, beat)

    beat()
    return loop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": _uvloop}
