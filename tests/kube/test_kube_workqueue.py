import asyncio
import math

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kthena.kube.clock import FakeClock, settle
from kthena.kube.metrics import KubeMetrics
from kthena.kube.workqueue import BASE_DELAY_S, QueueShutDown, WorkQueue
from kthena.telemetry.metrics import Metrics

KEYS = st.sampled_from(["a", "b", "c", "d"])


class QueueMachine(RuleBasedStateMachine):
    """The queue against a model that is a handful of sets and a list.

    Time stands still except in `advance`; a worker that waits is not modelled here, but below.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.queue: WorkQueue[str] = WorkQueue(self.clock, max_delay_s=1.0)
        self.waiting: list[str] = []
        self.processing: list[str] = []
        self.again: list[str] = []
        self.due: dict[str, float] = {}
        self.failures: dict[str, int] = {}

    def teardown(self) -> None:
        async def stop() -> None:
            self.queue.shut_down()
            await settle()

        self.loop.run_until_complete(stop())
        self.loop.close()

    def run(self, action: object, *arguments: object) -> object:
        async def call() -> object:
            assert callable(action)
            result = action(*arguments)
            await settle()
            return result

        return self.loop.run_until_complete(call())

    def model_add(self, key: str) -> None:
        self.due.pop(key, None)
        if key in self.waiting or key in self.again:
            return
        (self.again if key in self.processing else self.waiting).append(key)

    def model_add_after(self, key: str, delay: float) -> None:
        due = self.clock.monotonic() + delay
        if key not in self.waiting and key not in self.again:
            self.due[key] = min(due, self.due.get(key, math.inf))

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.run(self.queue.add, key)
        self.model_add(key)

    @rule(key=KEYS, delay=st.sampled_from([0.25, 0.5, 1.0, 3.0]))
    def add_after(self, key: str, delay: float) -> None:
        self.run(self.queue.add_after, key, delay)
        self.model_add_after(key, delay)

    @rule(key=KEYS, delay=st.sampled_from([0.0, -1.0]))
    def add_after_nothing(self, key: str, delay: float) -> None:
        self.run(self.queue.add_after, key, delay)
        self.model_add(key)

    @rule(key=KEYS, at_least=st.sampled_from([0.0, 0.4, 2.0]))
    def retry(self, key: str, at_least: float) -> None:
        failures = self.failures.get(key, 0)
        expected = max(at_least, min(1.0, BASE_DELAY_S * 2**failures))
        assert self.run(self.queue.retry, key, at_least) == expected
        self.failures[key] = failures + 1
        self.model_add_after(key, expected)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.run(self.queue.forget, key)
        self.failures.pop(key, None)

    @precondition(lambda self: self.waiting)
    @rule()
    def get(self) -> None:
        key = self.loop.run_until_complete(self.queue.get())
        assert key == self.waiting.pop(0)
        assert key not in self.processing
        self.processing.append(key)

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.processing))
        self.run(self.queue.done, key)
        self.processing.remove(key)
        if key in self.again:
            self.again.remove(key)
            self.waiting.append(key)

    @rule(seconds=st.sampled_from([0.1, 0.25, 1.0, 10.0]))
    def advance(self, seconds: float) -> None:
        self.loop.run_until_complete(self.clock.advance(seconds))
        now = self.clock.monotonic()
        for key, due in sorted(self.due.items(), key=lambda item: item[1]):
            if due <= now:
                self.model_add(key)

    @invariant()
    def agrees(self) -> None:
        # Keys that become due together may be added in any order.
        assert sorted(self.queue._waiting) == sorted(self.waiting)
        self.waiting = list(self.queue._waiting)
        assert len(self.queue) == len(self.waiting)
        assert self.queue._processing == set(self.processing)
        assert set(self.queue._again) == set(self.again)
        assert self.queue.delayed == len(self.due)
        for key in "abcd":
            assert self.queue.failures(key) == self.failures.get(key, 0)
        assert self.queue._idle.is_set() == (not self.waiting and not self.processing)
        assert len(self.queue._heap) <= 2 * len(self.due) + 65


TestQueueAgainstModel = QueueMachine.TestCase


async def test_keys_come_in_the_order_of_their_first_add() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("b", "a", "b", "c", "a"):
        queue.add(key)

    assert [await queue.get() for _ in range(3)] == ["b", "a", "c"]
    assert len(queue) == 0


async def test_a_key_is_never_with_two_workers() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    await queue.get()
    queue.add("a")
    second = asyncio.create_task(queue.get())
    await settle()
    assert not second.done()

    queue.done("a")

    assert await second == "a"


async def test_a_worker_that_waits_is_woken() -> None:
    queue: WorkQueue[str] = WorkQueue()
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()
    queue.add("a")
    await settle()

    assert [worker.done() for worker in workers] == [True, False, False]
    queue.add("b")
    queue.add("c")
    assert sorted(await asyncio.gather(*workers)) == ["a", "b", "c"]


async def test_a_worker_that_is_cancelled_passes_its_key_on() -> None:
    """Cancelled between being woken and running."""
    queue: WorkQueue[str] = WorkQueue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await settle()
    queue.add("a")
    first.cancel()

    assert await second == "a"
    assert first.cancelled()


async def test_a_worker_that_is_cancelled_while_it_waits_leaves_nothing() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiting = asyncio.create_task(queue.get())
    await settle()
    waiting.cancel()
    await settle()
    queue.add("a")

    assert await queue.get() == "a"
    assert not queue._workers


async def test_a_key_that_comes_as_workers_are_being_cancelled_stays() -> None:
    queue: WorkQueue[str] = WorkQueue()
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()
    for worker in workers:
        worker.cancel()
    queue.add("a")
    results = await asyncio.gather(*workers, return_exceptions=True)

    assert [type(result) for result in results] == [asyncio.CancelledError] * 3
    assert await queue.get() == "a"


async def test_retries_double_to_the_cap() -> None:
    queue: WorkQueue[str] = WorkQueue(FakeClock(), max_delay_s=0.1)

    assert [queue.retry("a") for _ in range(7)] == pytest.approx(
        [0.005, 0.01, 0.02, 0.04, 0.08, 0.1, 0.1]
    )
    queue.forget("a")
    assert queue.retry("a") == 0.005
    queue.shut_down()


async def test_ten_thousand_failures_do_not_overflow() -> None:
    queue: WorkQueue[str] = WorkQueue(FakeClock(), max_delay_s=60)

    delays = [queue.retry("a") for _ in range(10_000)]

    assert delays[-1] == 60
    queue.shut_down()


async def test_the_earliest_of_several_delays_counts() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add_after("a", 5)
    queue.add_after("a", 2)
    queue.add_after("a", 9)

    await clock.advance(1.9)
    assert len(queue) == 0
    await clock.advance(0.2)
    assert len(queue) == 1
    assert queue.delayed == 0
    await queue.get()
    queue.done("a")
    await clock.advance(100)
    assert len(queue) == 0


async def test_many_delayed_keys_come_in_order() -> None:
    clock = FakeClock()
    queue: WorkQueue[int] = WorkQueue(clock)
    for number in (5, 3, 9, 1, 7):
        queue.add_after(number, number)
    await clock.advance(10)

    assert [await queue.get() for _ in range(5)] == [1, 3, 5, 7, 9]


async def test_an_event_takes_the_place_of_a_delayed_add_and_leaves_no_heap_behind() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    for _ in range(1000):
        queue.add("a")
        await queue.get()
        queue.add_after("a", 3600)
        queue.done("a")

    assert queue.delayed == 1
    assert len(queue._heap) < 100
    queue.shut_down()


async def test_shutdown_ends_workers_and_drops_what_waits() -> None:
    queue: WorkQueue[str] = WorkQueue(FakeClock())
    workers = [asyncio.create_task(queue.get()) for _ in range(2)]
    await settle()
    queue.add_after("later", 1)
    queue.shut_down()
    queue.add("a")

    for worker in workers:
        with pytest.raises(QueueShutDown):
            await worker
    with pytest.raises(QueueShutDown):
        await queue.get()
    assert len(queue) == queue.delayed == 0


async def test_a_drained_queue_hands_out_what_waits_and_ends() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in "abc":
        queue.add(key)
    assert await queue.get() == "a"
    queue.add("a")
    queue.shut_down(drain=True)
    drained = asyncio.create_task(queue.join())

    queue.done("a")
    for expected in ("b", "c", "a"):
        assert await queue.get() == expected
        await settle()
        assert not drained.done()
        queue.done(expected)
    await drained
    with pytest.raises(QueueShutDown):
        await queue.get()


async def test_shutdown_waits_for_keys_in_work_only() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("b")
    await queue.get()
    queue.add("a")
    queue.shut_down()
    ended = asyncio.create_task(queue.join())
    await settle()
    assert not ended.done()

    queue.done("a")

    await ended
    assert len(queue) == 0


async def test_done_is_for_keys_in_work() -> None:
    queue: WorkQueue[str] = WorkQueue()

    with pytest.raises(ValueError, match="a is not being processed"):
        queue.done("a")


async def test_figures_are_kept() -> None:
    metrics = Metrics("t_")
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock, metrics=KubeMetrics(metrics).controller("c"))
    queue.add("a")
    queue.add("a")
    queue.add("b")
    await clock.advance(3)
    await queue.get()
    queue.retry("a")

    text = metrics.render().decode()
    assert 't_workqueue_depth{controller="c"} 1.0' in text
    assert 't_workqueue_adds_total{controller="c"} 2.0' in text
    assert 't_workqueue_retries_total{controller="c"} 1.0' in text
    assert 't_workqueue_queue_duration_seconds_sum{controller="c"} 3.0' in text
    queue.shut_down()
    assert 't_workqueue_depth{controller="c"} 0.0' in metrics.render().decode()


async def test_workers_share_keys_under_load() -> None:
    """Every key that is added is processed after its last add, one worker per key at a time."""
    queue: WorkQueue[int] = WorkQueue()
    version = dict.fromkeys(range(10), 0)
    seen = dict.fromkeys(range(10), 0)
    busy: set[int] = set()

    async def work() -> None:
        while True:
            try:
                key = await queue.get()
            except QueueShutDown:
                return
            assert key not in busy
            busy.add(key)
            current = version[key]
            await asyncio.sleep(0)
            seen[key] = current
            busy.remove(key)
            queue.done(key)

    async with asyncio.TaskGroup() as workers:
        for _ in range(4):
            workers.create_task(work())
        for step in range(1000):
            key = (step * 7) % 10
            version[key] = step
            queue.add(key)
            if step % 3 == 0:
                await asyncio.sleep(0)
        queue.shut_down(drain=True)

    assert seen == version
