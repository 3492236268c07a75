import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from kthena.api.kubernetes import CONFIG_MAPS, PODS, REPLICA_SETS
from kthena.kube.clock import FakeClock, settle
from kthena.kube.controller import (
    ControllerRunner,
    ControllerState,
    Requeue,
    TerminalError,
    own_key,
    owner_keys,
)
from kthena.kube.errors import ApiError, Conflict, TooManyRequests
from kthena.kube.informer import Change, ChangeType, Informer
from kthena.kube.metrics import KubeMetrics
from kthena.machinery.objects import NamespacedName, Object
from kthena.telemetry.metrics import Metrics
from support.kube_server import MemoryApi, is_list, is_watch, status_reply

Step = Callable[[NamespacedName], Awaitable[Requeue | None]]
A, B, C = (NamespacedName("ns", name) for name in "abc")


class Recording:
    """A controller that does what the test says for each key, and notes its keys."""

    name = "recording"

    def __init__(self) -> None:
        self.steps: dict[NamespacedName, Step] = {}
        self.keys: list[NamespacedName] = []

    async def reconcile(self, key: NamespacedName) -> Requeue | None:
        self.keys.append(key)
        step = self.steps.get(key)
        return await step(key) if step is not None else None


def failing(*errors: BaseException) -> Step:
    """Raises each error once, then succeeds."""
    remaining = list(errors)

    async def step(_: NamespacedName) -> None:
        if remaining:
            raise remaining.pop(0)

    return step


class Bench:
    def __init__(self, workers: int = 2) -> None:
        self.clock = FakeClock()
        self.api = MemoryApi(PODS, CONFIG_MAPS)
        client = self.api.client(self.clock)
        self.pods = Informer(client, PODS, None, self.clock, draw=lambda: 0.5)
        self.metrics = Metrics("t_")
        self.controller = Recording()
        self.runner = ControllerRunner(
            self.controller,
            [self.pods],
            workers=workers,
            max_delay_s=1.0,
            clock=self.clock,
            metrics=KubeMetrics(self.metrics),
        )
        self.runner.enqueue_on(self.pods, own_key)
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self, *, informer: bool = True) -> None:
        loop = asyncio.get_running_loop()
        if informer:
            self.tasks.append(loop.create_task(self.pods.run()))
        self.tasks.append(loop.create_task(self.runner.run()))
        await settle()

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def taken(self) -> list[NamespacedName]:
        keys = list(self.controller.keys)
        self.controller.keys.clear()
        return keys

    def state(self) -> ControllerState:
        return self.runner.state


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await bench.stop()


def pod(name: str) -> Object:
    return {"metadata": {"name": name, "namespace": "ns"}}


async def test_objects_are_reconciled_as_they_appear_change_and_go(bench: Bench) -> None:
    bench.api.put(PODS, pod("a"))
    await bench.start()
    bench.api.put(PODS, pod("b"))
    await settle()
    bench.api.remove(PODS, A)
    await settle()

    assert bench.taken() == [A, B, A]


async def test_nothing_is_reconciled_before_the_informers_are_synced(bench: Bench) -> None:
    bench.runner.queue.add(A)
    await bench.start(informer=False)
    await bench.clock.advance(10)
    assert bench.taken() == []
    assert bench.state() is ControllerState.WAITING
    assert not bench.runner.readiness().ready
    assert bench.runner.readiness().detail == "waiting; not listed yet"

    bench.tasks.append(asyncio.create_task(bench.pods.run()))
    await settle()

    assert bench.taken() == [A]
    assert bench.state() is ControllerState.RUNNING
    assert bench.runner.readiness().detail == "running"


async def test_it_sleeps_while_a_resource_is_absent_and_says_so(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kthena.kube.controller")
    bench.api.resources.pop("pods")
    await bench.start()
    bench.runner.queue.add(A)
    await bench.clock.advance(60)

    assert bench.taken() == []
    assert bench.state() is ControllerState.SLEEPING
    readiness = bench.runner.readiness()
    assert readiness.ready
    assert readiness.detail == (
        "sleeping; pods is not known to the server: its CRD is not installed"
    )
    text = bench.metrics.render().decode()
    assert 't_controller_state{controller="recording",state="Sleeping"} 1.0' in text
    assert [record.message for record in caplog.records].count("controller sleeps") == 1

    bench.api.resources["pods"] = PODS
    await bench.clock.advance(3)
    assert bench.taken() == [A]
    text = bench.metrics.render().decode()
    assert 't_controller_state{controller="recording",state="Running"} 1.0' in text


async def test_it_falls_asleep_when_a_right_is_taken_away(bench: Bench) -> None:
    await bench.start()
    bench.api.forbidden.add("pods")
    bench.api.cut_watches()
    await settle()
    await bench.clock.advance(5)
    bench.runner.queue.add(A)
    await settle()
    assert bench.taken() == []
    assert bench.state() is ControllerState.SLEEPING

    bench.api.forbidden.clear()
    await bench.clock.advance(5)

    assert bench.taken() == [A]


async def test_it_goes_on_while_lists_fail_for_a_time(bench: Bench) -> None:
    await bench.start()
    bench.api.cut_watches()
    await settle()
    bench.runner.queue.add(A)
    await settle()

    assert bench.taken() == [A]
    assert bench.runner.readiness().ready
    assert bench.runner.readiness().detail == "running; cut"


async def test_a_careful_one_waits_until_it_has_been_listed_again() -> None:
    """Field report B007: also where watches go on to fail, and only lists succeed."""
    bench = Bench()
    bench.runner.careful = True
    await bench.start()
    bench.api.script(is_watch, *[status_reply(504, "Timeout")] * 3)
    bench.api.script(is_list, *[status_reply(500, "InternalError")] * 3)
    bench.api.cut_watches()
    await settle()
    bench.runner.queue.add(A)
    await bench.clock.advance(3.0)
    assert bench.api.count(is_list) == 4
    assert bench.taken() == []
    assert "500 InternalError" in bench.runner.readiness().detail

    await bench.clock.advance(10.0)
    assert bench.taken() == [A]
    await bench.stop()


async def test_a_failing_key_is_retried_with_back_off_and_stops_no_other(bench: Bench) -> None:
    error = ApiError(500, "InternalError", "boom", request="GET /x")
    bench.controller.steps[A] = failing(error, error, error)
    await bench.start()
    bench.runner.queue.add(A)
    bench.runner.queue.add(B)
    await settle()
    assert bench.taken() == [A, B]

    await bench.clock.advance(0.005)
    assert bench.taken() == [A]
    await bench.clock.advance(0.010)
    assert bench.taken() == [A]
    await bench.clock.advance(0.020)
    assert bench.taken() == [A]
    await bench.clock.advance(100)
    assert bench.taken() == []
    assert bench.runner.queue.failures(A) == 0
    assert 't_reconcile_total{controller="recording",result="error"} 3.0' in (
        bench.metrics.render().decode()
    )


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("bug"),
        KeyError("x"),
        RecursionError(),
        ExceptionGroup("siblings", [ValueError("v"), ApiError(500, "", "e")]),
        asyncio.CancelledError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_no_error_ends_a_worker(bench: Bench, error: BaseException) -> None:
    bench.controller.steps[A] = failing(error)
    await bench.start()
    for key in (A, B, C):
        bench.runner.queue.add(key)
    await settle()
    assert bench.taken() == [A, B, C]

    await bench.clock.advance(0.005)

    assert bench.taken() == [A]
    assert bench.state() is ControllerState.RUNNING


async def test_a_terminal_error_is_not_retried_until_something_happens(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.controller.steps[A] = failing(TerminalError("no such plugin"))
    await bench.start()
    bench.runner.queue.add(A)
    await settle()
    await bench.clock.advance(1000)
    assert bench.taken() == [A]
    (record,) = [each for each in caplog.records if each.name == "kthena.kube.controller"]
    assert record.message == "reconcile failed, not retried"
    assert record.__dict__["fields"] == {
        "controller": "recording",
        "key": "ns/a",
        "error": "no such plugin",
    }

    bench.runner.queue.add(A)
    await settle()
    assert bench.taken() == [A]


async def test_siblings_are_retried_unless_all_of_them_are_terminal(bench: Bench) -> None:
    bench.controller.steps[A] = failing(
        ExceptionGroup("mixed", [TerminalError("t"), ApiError(500, "", "e")])
    )
    bench.controller.steps[B] = failing(
        ExceptionGroup("all", [TerminalError("t"), ExceptionGroup("x", [TerminalError("u")])])
    )
    await bench.start()
    bench.runner.queue.add(A)
    bench.runner.queue.add(B)
    await settle()
    bench.taken()

    await bench.clock.advance(10)

    assert bench.taken() == [A]


async def test_errors_of_siblings_are_logged_together(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.controller.steps[A] = failing(
        ExceptionGroup("two", [ApiError(500, "", "first"), ApiError(503, "", "second")])
    )
    await bench.start()
    bench.runner.queue.add(A)
    await settle()

    (record,) = [each for each in caplog.records if each.message == "reconcile failed"]
    assert record.__dict__["fields"]["error"] == "first; second"
    assert not record.exc_info


async def test_a_mistake_is_logged_with_its_traceback(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.controller.steps[A] = failing(RuntimeError("bug"))
    await bench.start()
    bench.runner.queue.add(A)
    await settle()

    (record,) = [each for each in caplog.records if each.message == "reconcile failed"]
    assert record.exc_info is not None
    assert record.exc_info[0] is RuntimeError


async def test_a_conflict_is_routine(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.controller.steps[A] = failing(Conflict(409, "Conflict", "changed"))
    await bench.start()
    bench.runner.queue.add(A)
    await settle()
    await bench.clock.advance(0.005)

    assert bench.taken() == [A, A]
    assert [each for each in caplog.records if each.levelname != "DEBUG"] == []


async def test_retry_after_of_the_server_is_obeyed(bench: Bench) -> None:
    busy = TooManyRequests(429, "TooManyRequests", "busy", retry_after_s=5.0)
    bench.controller.steps[A] = failing(ExceptionGroup("x", [busy]))
    await bench.start()
    bench.runner.queue.add(A)
    await settle()
    bench.taken()
    await bench.clock.advance(4.9)
    assert bench.taken() == []

    await bench.clock.advance(0.2)

    assert bench.taken() == [A]


async def test_requeue_comes_back_after_its_time(bench: Bench) -> None:
    async def later(_: NamespacedName) -> Requeue:
        return Requeue(30)

    bench.controller.steps[A] = later
    await bench.start()
    bench.runner.queue.add(A)
    await settle()
    await bench.clock.advance(90)

    assert bench.taken() == [A] * 4


async def test_one_key_has_one_worker_while_others_go_on() -> None:
    bench = Bench(workers=3)
    release = asyncio.Event()

    async def wait(_: NamespacedName) -> None:
        await release.wait()

    bench.controller.steps[A] = wait
    await bench.start()
    bench.runner.queue.add(A)
    await settle()
    bench.runner.queue.add(A)
    bench.runner.queue.add(B)
    await settle()
    assert bench.taken() == [A, B]

    release.set()
    await settle()

    assert bench.taken() == [A]
    await bench.stop()


async def test_stop_finishes_the_keys_in_work(bench: Bench) -> None:
    release = asyncio.Event()

    async def wait(_: NamespacedName) -> None:
        await release.wait()

    bench.controller.steps[A] = wait
    await bench.start()
    bench.runner.queue.add(A)
    await settle()
    bench.runner.queue.add(B)
    await settle()
    bench.runner.queue.add(C)
    bench.runner.stop()
    await settle()
    running = bench.tasks[-1]
    assert not running.done()

    release.set()
    await settle()

    assert running.done()
    assert not running.cancelled()
    assert bench.taken() == [A, B]


async def test_stop_does_not_wait_for_a_sleeper(bench: Bench) -> None:
    bench.api.resources.clear()
    await bench.start()
    bench.runner.queue.add(A)
    await settle()

    bench.runner.stop()
    await settle()

    assert bench.tasks[-1].done()
    assert bench.taken() == []


async def test_a_key_whose_work_was_cancelled_is_not_lost(bench: Bench) -> None:
    async def wait(_: NamespacedName) -> None:
        await asyncio.Event().wait()

    bench.controller.steps[A] = wait
    await bench.start()
    bench.runner.queue.add(A)
    await settle()
    bench.tasks[-1].cancel()
    await settle()
    assert bench.state() is ControllerState.STANDBY
    assert bench.runner.readiness().ready
    del bench.controller.steps[A]

    bench.tasks.append(asyncio.create_task(bench.runner.run()))
    await settle()

    assert bench.taken() == [A, A]


def change(old: dict[str, Any] | None, new: dict[str, Any] | None) -> Change:
    kind = ChangeType.ADDED if old is None else ChangeType.MODIFIED
    return Change(ChangeType.DELETED if new is None else kind, old, new)


def owned(api_version: str, kind: str, name: str, *, controller: bool = True) -> Object:
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "controller": controller}
    return {"metadata": {"name": "x", "namespace": "ns", "ownerReferences": [reference]}}


@pytest.mark.parametrize(
    ("seen", "keys"),
    [
        (change(None, owned("apps/v1", "ReplicaSet", "a")), [A]),
        (change(owned("apps/v1", "ReplicaSet", "a"), None), [A]),
        (
            change(owned("apps/v1", "ReplicaSet", "a"), owned("apps/v1", "ReplicaSet", "b")),
            [A, B],
        ),
        (change(owned("apps/v1", "ReplicaSet", "a"), pod("x")), [A]),
        (change(None, owned("apps/v2beta1", "ReplicaSet", "a")), [A]),
        (change(None, owned("other/v1", "ReplicaSet", "a")), []),
        (change(None, owned("apps/v1", "Deployment", "a")), []),
        (change(None, owned("apps/v1", "ReplicaSet", "a", controller=False)), []),
        (change(None, pod("x")), []),
    ],
)
def test_owners_are_found_by_group_and_kind(seen: Change, keys: list[NamespacedName]) -> None:
    assert list(owner_keys(REPLICA_SETS)(seen)) == keys
