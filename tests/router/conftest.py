"""Router tests run on the loop of asyncio and on uvloop."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

_LIMIT_S = 90


def _limited(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """The loop of one test, which ends a test that waits for ever and says where it waits.

    Loops swallow what pytest-timeout raises in one of their callbacks.
    """

    def give_up() -> None:
        for task in asyncio.all_tasks(loop):
            task.print_stack()
            task.cancel(f"the test has run for {_LIMIT_S} s")

    loop.call_later(_LIMIT_S, give_up)
    return loop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {
        "asyncio": lambda: _limited(asyncio.new_event_loop()),
        "uvloop": lambda: _limited(uvloop.new_event_loop()),
    }
