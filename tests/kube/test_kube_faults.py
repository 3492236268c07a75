import asyncio
import random
from collections import Counter

import pytest

from kthena.api.kubernetes import PODS
from kthena.kube.client import ClientConfig, KubeClient, Request, WatchParams
from kthena.kube.clock import FakeClock, settle
from kthena.kube.errors import ConnectionFailed, NotFound, TooManyRequests
from kthena.kube.faults import (
    Answer,
    Cut,
    Delay,
    Fault,
    FaultTransport,
    LoseReply,
    Refuse,
    Silence,
    random_plan,
)
from kthena.kube.informer import Change, ChangeType, Informer
from kthena.machinery.objects import NamespacedName, Object, key_of
from support.kube_server import MemoryApi

POD: Object = {"metadata": {"name": "p", "namespace": "ns"}}
KEY = NamespacedName("ns", "p")


class Bench:
    """A client whose next request suffers `fault`."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.api = MemoryApi(PODS)
        self.fault: Fault | None = None
        transport = FaultTransport(self.api, self.plan, self.clock)
        self.client = KubeClient(transport, ClientConfig(), clock=self.clock)

    def plan(self, _: Request) -> Fault | None:
        fault, self.fault = self.fault, None
        return fault


async def test_without_a_fault_nothing_changes() -> None:
    bench = Bench()

    await bench.client.create(PODS, POD)

    assert KEY in bench.api.objects(PODS)


async def test_a_refused_request_does_not_reach_the_server() -> None:
    bench = Bench()
    bench.fault = Refuse()

    with pytest.raises(ConnectionFailed):
        await bench.client.create(PODS, POD)

    assert bench.api.requests == []


async def test_a_lost_reply_leaves_the_write_done() -> None:
    bench = Bench()
    bench.fault = LoseReply()

    with pytest.raises(ConnectionFailed):
        await bench.client.create(PODS, POD)

    assert KEY in bench.api.objects(PODS)


async def test_an_answer_of_the_plan_looks_like_the_server() -> None:
    bench = Bench()
    bench.fault = Answer(429, "TooManyRequests", retry_after_s=3)

    with pytest.raises(TooManyRequests) as caught:
        await bench.client.create(PODS, POD)

    assert caught.value.retry_after_s == 3
    assert bench.api.requests == []


async def test_a_delay_passes_on_the_clock() -> None:
    bench = Bench()
    bench.fault = Delay(5)
    creating = asyncio.create_task(bench.client.create(PODS, POD))
    await settle()
    assert bench.api.requests == []

    await bench.clock.advance(5)

    assert (await creating)["metadata"]["name"] == "p"


async def test_a_reply_can_break_off() -> None:
    bench = Bench()
    bench.api.put(PODS, POD)
    bench.fault = Cut()

    with pytest.raises(ConnectionFailed):
        await bench.client.get(PODS, "p", "ns")


async def test_a_watch_can_break_off_after_an_event() -> None:
    bench = Bench()
    bench.fault = Cut(after_chunks=1)
    watch = await bench.client.open_watch(PODS, "", WatchParams("0"))
    bench.api.put(PODS, POD)
    bench.api.put(PODS, {**POD, "spec": {}})

    assert (await anext(watch)).type == "ADDED"
    with pytest.raises(ConnectionFailed):
        await anext(watch)
    await watch.aclose()


async def test_a_watch_can_fall_silent() -> None:
    bench = Bench()
    bench.fault = Silence(after_chunks=1)
    watch = await bench.client.open_watch(PODS, "", WatchParams("0"))
    bench.api.put(PODS, POD)
    bench.api.put(PODS, {**POD, "spec": {}})
    assert (await anext(watch)).type == "ADDED"

    waiting = asyncio.ensure_future(anext(watch))
    await settle()
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await watch.aclose()


def test_a_random_plan_keeps_its_rates_and_can_be_repeated() -> None:
    rates: list[tuple[Fault, float]] = [(Refuse(), 0.2), (Delay(1), 0.3)]
    request = Request("GET", "/x")

    def draw(seed: int) -> list[Fault | None]:
        plan = random_plan(random.Random(seed), rates)
        return [plan(request) for _ in range(5000)]

    drawn = Counter(draw(1))
    assert drawn[Refuse()] == pytest.approx(1000, rel=0.15)
    assert drawn[Delay(1)] == pytest.approx(1500, rel=0.15)
    assert draw(1) == draw(1) != draw(2)


def test_rates_above_one_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 1"):
        random_plan(random.Random(0), [(Refuse(), 0.6), (LoseReply(), 0.6)])


@pytest.mark.parametrize("seed", range(10))
async def test_an_informer_survives_any_faults(seed: int) -> None:
    """Whatever happens to its requests, its store equals the server's in the end."""
    rng = random.Random(seed)
    clock, api = FakeClock(), MemoryApi(PODS)
    faults: list[tuple[Fault, float]] = [
        (Refuse(), 0.1),
        (LoseReply(), 0.1),
        (Answer(410, "Expired"), 0.1),
        (Answer(500), 0.05),
        (Answer(429, retry_after_s=1), 0.05),
        (Delay(2), 0.1),
        (Cut(0), 0.1),
        (Cut(2), 0.1),
        (Silence(1), 0.1),
    ]
    transport = FaultTransport(api, random_plan(rng, faults), clock)
    client = KubeClient(transport, ClientConfig(), clock=clock)
    informer = Informer(client, PODS, None, clock, draw=rng.random)
    mirror: dict[NamespacedName, Object] = {}

    def follow(change: Change) -> None:
        if change.new is None:
            del mirror[change.key]
        else:
            assert (change.key in mirror) == (change.type is ChangeType.MODIFIED)
            mirror[change.key] = change.new

    informer.add_handler(follow)
    running = asyncio.create_task(informer.run())
    for _ in range(150):
        name = f"p{rng.randrange(12)}"
        key = NamespacedName("ns", name)
        if key in api.objects(PODS) and rng.random() < 0.4:
            api.remove(PODS, key)
        else:
            metadata = {"name": name, "namespace": "ns"}
            api.put(PODS, {"metadata": metadata, "spec": {"n": rng.random()}})
        trouble = [
            api.cut_watches,
            api.expire_watches,
            api.compact,
            api.silence_watches,
            api.end_watches,
        ]
        if rng.random() < 0.4:
            rng.choice(trouble)()
        await clock.advance(rng.random() * 4)
    faults.clear()
    await clock.advance(300)

    assert {key_of(obj): obj for obj in informer.store} == api.objects(PODS)
    assert mirror == api.objects(PODS)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_closing_reaches_the_inner_transport() -> None:
    bench = Bench()
    watch = await bench.client.open_watch(PODS, "", WatchParams("0"))
    await bench.client.close()

    with pytest.raises(ConnectionFailed):
        await anext(watch)
    await watch.aclose()
    with pytest.raises(NotFound):
        await bench.client.get(PODS, "p", "ns")
