import asyncio
import re
from collections.abc import AsyncIterator

import msgspec
import pytest

from kthena.api.kubernetes import EVENTS
from kthena.kube.client import Request
from kthena.kube.clock import FakeClock, settle
from kthena.kube.errors import ConnectionFailed
from kthena.kube.events import QUEUE_CAPACITY, EventRecorder, _Cache
from kthena.kube.metrics import KubeMetrics
from kthena.machinery.objects import Object
from kthena.telemetry.metrics import Metrics
from support.kube_server import MemoryApi, status_reply

POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
}


def pod(name: str) -> Object:
    return {**POD, "metadata": {"name": name, "namespace": "ns", "uid": name}}


def is_create(request: Request) -> bool:
    return request.method == "POST"


def is_patch(request: Request) -> bool:
    return request.method == "PATCH"


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.api = MemoryApi(EVENTS)
        self.metrics = Metrics("t_")
        self.recorder = EventRecorder(
            self.api.client(self.clock),
            "test-controller",
            self.clock,
            draw=lambda: 0.5,
            metrics=KubeMetrics(self.metrics),
        )
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self.recorder.run())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    def events(self) -> list[Object]:
        return list(self.api.objects(EVENTS).values())

    def dropped(self) -> list[str]:
        lines = self.metrics.render().decode().splitlines()
        return [line for line in lines if line.startswith("t_events_dropped_total{")]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    bench.start()
    yield bench
    await bench.stop()


async def test_an_event_says_what_happened_to_what(bench: Bench) -> None:
    bench.recorder.record(POD, "Warning", "Failed", "it did not work")
    await settle()

    (event,) = bench.events()
    metadata = event.pop("metadata")
    assert metadata["namespace"] == "ns"
    assert metadata["name"] == f"p.{int(bench.clock.now().timestamp()) * 10**9:x}"
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "ns",
            "name": "p",
            "uid": "u",
            "resourceVersion": "7",
        },
        "type": "Warning",
        "reason": "Failed",
        "message": "it did not work",
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "test-controller"},
        "reportingComponent": "test-controller",
        "reportingInstance": "",
    }


async def test_a_cluster_scoped_object_has_its_events_in_default(bench: Bench) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u"}}
    bench.recorder.record(node, "Normal", "Seen", "m")
    await settle()

    (event,) = bench.events()
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]


async def test_identical_events_are_one_with_a_count(bench: Bench) -> None:
    for _ in range(3):
        bench.recorder.record(POD, "Normal", "Again", "m")
        await settle()
        await bench.clock.advance(10)

    (event,) = bench.events()
    assert event["count"] == 3
    assert event["firstTimestamp"] == "2026-01-01T00:00:00Z"
    assert event["lastTimestamp"] == "2026-01-01T00:00:20Z"
    assert bench.api.count(is_create) == 1


async def test_identical_events_that_wait_are_one_write(bench: Bench) -> None:
    for _ in range(20):
        bench.recorder.record(POD, "Normal", "Again", "m")
    await settle()

    (event,) = bench.events()
    assert event["count"] == 20
    assert len(bench.api.requests) == 1


@pytest.mark.parametrize(
    ("obj", "kind", "reason", "message"),
    [
        (pod("q"), "Normal", "R", "m"),
        (POD, "Warning", "R", "m"),
        (POD, "Normal", "S", "m"),
        (POD, "Normal", "R", "n"),
    ],
)
async def test_events_that_differ_are_separate(
    bench: Bench, obj: Object, kind: str, reason: str, message: str
) -> None:
    bench.recorder.record(POD, "Normal", "R", "m")
    bench.recorder.record(obj, "Warning" if kind == "Warning" else "Normal", reason, message)
    await settle()

    assert len(bench.events()) == 2


async def test_an_event_that_has_expired_begins_anew(bench: Bench) -> None:
    bench.recorder.record(POD, "Normal", "R", "m")
    await settle()
    for key in list(bench.api.objects(EVENTS)):
        bench.api.remove(EVENTS, key)
    await bench.clock.advance(3600)
    bench.recorder.record(POD, "Normal", "R", "m")
    await settle()

    (event,) = bench.events()
    assert event["count"] == 1
    assert event["firstTimestamp"] == "2026-01-01T01:00:00Z"


async def test_a_passing_failure_is_retried_under_the_same_name(bench: Bench) -> None:
    bench.api.script(
        is_create, ConnectionFailed("cut"), status_reply(429, headers={"retry-after": "5"})
    )
    bench.recorder.record(POD, "Normal", "R", "m")
    await settle()
    await bench.clock.advance(10)

    assert len(bench.events()) == 1
    names = {msgspec.json.decode(each.body)["metadata"]["name"] for each in bench.api.requests}
    assert len(names) == 1
    assert bench.api.count(is_create) == 3
    assert bench.dropped() == []


async def test_a_write_whose_reply_was_lost_is_not_repeated(bench: Bench) -> None:
    bench.api.script(is_create, status_reply(504), status_reply(409, "AlreadyExists"))
    bench.recorder.record(POD, "Normal", "R", "m")
    await settle()
    await bench.clock.advance(1)
    bench.recorder.record(POD, "Normal", "R", "m")
    await settle()

    assert bench.api.count(is_create) == 3
    assert bench.api.count(is_patch) == 1
    assert bench.dropped() == []


@pytest.mark.parametrize(
    ("code", "reason"), [(403, "Forbidden"), (404, "NotFound"), (422, "Invalid")]
)
async def test_a_refused_event_is_dropped_and_the_next_one_written(
    bench: Bench, caplog: pytest.LogCaptureFixture, code: int, reason: str
) -> None:
    bench.api.script(is_create, *[status_reply(code, reason)] * 2)
    bench.recorder.record(POD, "Normal", "A", "m")
    bench.recorder.record(POD, "Normal", "B", "m")
    bench.recorder.record(POD, "Normal", "C", "m")
    await settle()

    assert [event["reason"] for event in bench.events()] == ["C"]
    assert bench.dropped() == [f't_events_dropped_total{{cause="{reason}"}} 2.0']
    assert [record.message for record in caplog.records] == ["event dropped"]


async def test_an_event_is_given_up_after_a_few_attempts(bench: Bench) -> None:
    bench.api.script(is_create, *[ConnectionFailed("down")] * 5)
    bench.recorder.record(POD, "Normal", "A", "m")
    bench.recorder.record(POD, "Normal", "B", "m")
    await settle()
    await bench.clock.advance(60)

    assert [event["reason"] for event in bench.events()] == ["B"]
    assert bench.dropped() == ['t_events_dropped_total{cause="ConnectionFailed"} 1.0']


async def test_one_object_cannot_flood_the_server(bench: Bench) -> None:
    for number in range(100):
        bench.recorder.record(POD, "Warning", "R", f"message {number}")
    bench.recorder.record(pod("other"), "Warning", "R", "m")
    await settle()
    await settle(200)
    assert len(bench.events()) == 26

    await bench.clock.advance(300)
    bench.recorder.record(POD, "Warning", "R", "later")
    bench.recorder.record(POD, "Warning", "R", "too much")
    await settle()

    assert len(bench.events()) == 27


async def test_the_queue_is_bounded_and_never_blocks() -> None:
    bench = Bench()
    for number in range(QUEUE_CAPACITY + 50):
        bench.recorder.record(pod(f"p{number}"), "Normal", "R", "m")

    assert len(bench.recorder._queue) == QUEUE_CAPACITY
    assert bench.dropped() == ['t_events_dropped_total{cause="queue_full"} 50.0']


@pytest.mark.parametrize("obj", [{}, {"metadata": None}, {"metadata": {"name": None}}])
async def test_recording_never_fails_the_caller(bench: Bench, obj: Object) -> None:
    bench.recorder.record(obj, "Normal", "R", "m" * 5000)
    await settle()

    (event,) = bench.events()
    assert len(event["message"]) == 1024


async def test_names_fit_the_server(bench: Bench) -> None:
    long = "a" * 235 + "-" + "b" * 17
    bench.recorder.record(pod(long), "Normal", "R", "m")
    bench.recorder.record(pod(long), "Normal", "S", "m")
    await settle()

    names = [event["metadata"]["name"] for event in bench.events()]
    assert len(set(names)) == 2
    assert all(re.fullmatch(r"a{235}\.[0-9a-f]{16}", name) for name in names)


async def test_flush_waits_for_what_is_recorded(bench: Bench) -> None:
    held = bench.api.hold(is_create)
    bench.recorder.record(POD, "Normal", "R", "m")
    await settle()
    flushing = asyncio.create_task(bench.recorder.flush(5))
    await settle()
    assert not flushing.done()

    held.set()
    await flushing

    assert len(bench.events()) == 1
    await bench.recorder.flush(5)


async def test_flush_ends_in_time(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.api.hold(is_create)
    bench.recorder.record(POD, "Normal", "R", "m")
    await settle()
    flushing = asyncio.create_task(bench.recorder.flush(2))
    await settle()

    await bench.clock.advance(2)

    await flushing
    assert "events were not written in time" in [record.message for record in caplog.records]


def test_the_cache_loses_the_least_recently_used() -> None:
    cache: _Cache[str, int] = _Cache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.get("a")
    cache.put("c", 3)

    assert [cache.get(key) for key in "abc"] == [1, None, 3]
