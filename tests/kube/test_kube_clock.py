import asyncio

import pytest

from kthena.kube.clock import FakeClock, SystemClock, before, settle, wait_for


async def test_sleepers_wake_in_order_and_at_their_time() -> None:
    clock = FakeClock()
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))
        if name == "first":
            await clock.sleep(1)
            woken.append(("again", clock.monotonic()))

    tasks = [asyncio.create_task(sleep("second", 2)), asyncio.create_task(sleep("first", 1))]
    await settle()
    await clock.advance(5)
    await asyncio.gather(*tasks)

    assert woken == [("first", 1), ("second", 2), ("again", 2)]
    assert clock.monotonic() == 5


async def test_the_shortest_sleep_lets_time_pass() -> None:
    """Lost in rounding, it would let a loop that waits for a deadline spin for ever."""
    clock = FakeClock()
    await clock.advance(1e6)
    sleeping = asyncio.create_task(clock.sleep(1e-15))
    await settle()
    await clock.advance(1)

    assert sleeping.done()
    assert clock.monotonic() == 1e6 + 1


async def test_a_result_that_comes_in_time_is_returned() -> None:
    clock = FakeClock()

    async def work() -> int:
        await clock.sleep(1)
        return 7

    waiting = asyncio.create_task(wait_for(clock, work(), 2))
    await settle()
    await clock.advance(1)

    assert await waiting == 7


async def test_an_error_that_comes_in_time_is_raised() -> None:
    async def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await wait_for(FakeClock(), work(), 2)


async def test_work_that_takes_too_long_is_cancelled_and_has_ended() -> None:
    clock = FakeClock()
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("ended")

    waiting = asyncio.create_task(wait_for(clock, work(), 2))
    await settle()
    await clock.advance(2)

    with pytest.raises(TimeoutError):
        await waiting
    assert ended == ["ended"]


async def test_a_cancelled_wait_cancels_both() -> None:
    ended: list[str] = []

    async def forever(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    waiting = asyncio.create_task(before(forever("work"), forever("limit")))
    await settle()
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert sorted(ended) == ["limit", "work"]


async def test_the_clock_of_the_machine_moves() -> None:
    clock = SystemClock()
    before_sleep = clock.monotonic()
    await clock.sleep(0.001)
    await clock.sleep(-1)

    assert clock.monotonic() > before_sleep
    assert clock.now().tzinfo is not None
