import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from kthena.api.kubernetes import CONFIG_MAPS, EVENTS, LEASES, PODS
from kthena.kube.client import Request
from kthena.kube.clock import FakeClock, settle
from kthena.kube.controller import ControllerRunner, own_key
from kthena.kube.election import ElectionConfig, LeaderElector
from kthena.kube.errors import ConnectionFailed
from kthena.kube.events import EventRecorder
from kthena.kube.informer import Informer
from kthena.kube.program import LeadershipLost, OnLost, Parts, Program, Run
from kthena.kube.readiness import ComponentState
from kthena.machinery.objects import NamespacedName, Object
from kthena.machinery.resources import Resource
from support.kube_server import MemoryApi

A = NamespacedName("ns", "a")


def make(name: str) -> Object:
    return {"metadata": {"name": name, "namespace": "ns"}}


def lease_writes(request: Request) -> bool:
    return "leases" in request.target and request.method in ("PUT", "POST")


class Noting:
    """Notes its keys; `gate` holds reconciliations back."""

    def __init__(self, name: str, journal: list[str]) -> None:
        self.name = name
        self.journal = journal
        self.gate = asyncio.Event()
        self.gate.set()

    async def reconcile(self, key: NamespacedName) -> None:
        self.journal.append(f"{self.name} begins {key.name}")
        await self.gate.wait()
        self.journal.append(f"{self.name} ends {key.name}")


class Bench:
    def __init__(self, on_lost: OnLost = "exit", *, election: bool = False) -> None:
        self.others: dict[str, Run] = {}
        self.clock = FakeClock()
        self.api = MemoryApi(PODS, CONFIG_MAPS, LEASES, EVENTS)
        self.client = self.api.client(self.clock)
        self.journal: list[str] = []
        self.pods, self.maps = self.informer(PODS), self.informer(CONFIG_MAPS)
        self.always, self.always_runner = self.controller("always", self.pods)
        self.elected, self.elected_runner = self.controller("elected", self.maps)
        config = ElectionConfig("lease", "ns", "me")
        self.elector = LeaderElector(self.client, config, self.clock, draw=lambda: 0.5)
        self.recorder = EventRecorder(self.client, "test", self.clock, draw=lambda: 0.5)
        parts = Parts(
            informers=[self.pods, self.maps],
            controllers=[self.always_runner],
            elected=[self.elected_runner],
            elector=self.elector if election else None,
            on_lost=on_lost,
            recorders=[self.recorder],
            others=self.others,
        )
        self.program = Program(parts, self.clock, draw=lambda: 0.5)
        self.task: asyncio.Task[None] | None = None

    def informer(self, resource: Resource) -> Informer:
        return Informer(self.client, resource, None, self.clock, draw=lambda: 0.5)

    def controller(self, name: str, informer: Informer) -> tuple[Noting, ControllerRunner]:
        controller = Noting(name, self.journal)
        runner = ControllerRunner(controller, [informer], clock=self.clock)
        runner.enqueue_on(informer, own_key)
        return controller, runner

    async def start(self) -> asyncio.Task[None]:
        self.task = asyncio.get_running_loop().create_task(self.program.run())
        await settle(30)
        return self.task

    async def close(self) -> None:
        if self.task is not None and not self.task.done():
            self.always.gate.set()
            self.elected.gate.set()
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    def taken(self) -> list[str]:
        journal = list(self.journal)
        self.journal.clear()
        return journal

    def readiness(self) -> dict[str, str]:
        return {state.name: state.detail for state in self.program.readiness()}


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await bench.close()


@pytest.fixture
async def exiting() -> AsyncIterator[Bench]:
    bench = Bench("exit", election=True)
    yield bench
    await bench.close()


@pytest.fixture
async def campaigning() -> AsyncIterator[Bench]:
    bench = Bench("campaign", election=True)
    yield bench
    await bench.close()


async def test_everything_runs_without_an_election(bench: Bench) -> None:
    bench.api.put(PODS, make("p"))
    bench.api.put(CONFIG_MAPS, make("m"))
    await bench.start()

    assert bench.taken() == [
        "always begins p",
        "always ends p",
        "elected begins m",
        "elected ends m",
    ]
    assert bench.readiness() == {"always": "running", "elected": "running"}


async def test_a_controller_that_sleeps_stops_no_other(bench: Bench) -> None:
    bench.api.forbidden.add("configmaps")
    bench.api.put(PODS, make("p"))
    await bench.start()

    assert bench.taken() == ["always begins p", "always ends p"]
    assert bench.readiness() == {
        "always": "running",
        "elected": "sleeping; configmaps is forbidden",
    }
    assert all(state.ready for state in bench.program.readiness())

    bench.api.forbidden.clear()
    bench.api.put(CONFIG_MAPS, make("m"))
    await bench.clock.advance(3)
    assert bench.taken() == ["elected begins m", "elected ends m"]


async def test_stop_is_ordered(exiting: Bench) -> None:
    """Keys in work, events, the lease, informers: in this order."""
    bench = exiting
    await bench.start()
    bench.elected.gate.clear()
    bench.api.put(CONFIG_MAPS, make("m"))
    await settle()
    bench.recorder.record(make("x"), "Normal", "Stopping", "m")
    held = bench.api.hold(lambda request: "/events" in request.target)
    bench.program.stop()
    await settle()
    assert bench.taken() == ["elected begins m"]
    assert bench.elector.is_leader

    bench.elected.gate.set()
    await settle(30)
    assert bench.taken() == ["elected ends m"]
    assert bench.elector.is_leader
    assert bench.api.open_watches == 2

    held.set()
    assert bench.task is not None
    await bench.task
    assert len(bench.api.objects(EVENTS)) == 1
    lease = bench.api.objects(LEASES)[NamespacedName("ns", "lease")]
    assert "holderIdentity" not in lease["spec"]
    assert bench.api.open_watches == 0


async def test_a_key_that_takes_too_long_is_cancelled(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    task = await bench.start()
    bench.always.gate.clear()
    bench.api.put(PODS, make("p"))
    await settle()
    bench.program.stop()
    await settle()
    assert not task.done()

    await bench.clock.advance(10)
    await task

    assert bench.taken() == ["always begins p"]
    (record,) = [each for each in caplog.records if "did not finish" in each.message]
    assert record.__dict__["fields"] == {"controllers": "always"}


async def test_cancelling_ends_in_the_same_order(exiting: Bench) -> None:
    bench = exiting
    task = await bench.start()
    assert bench.elector.is_leader

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    lease = bench.api.objects(LEASES)[NamespacedName("ns", "lease")]
    assert "holderIdentity" not in lease["spec"]
    assert bench.api.open_watches == 0


async def test_elected_controllers_wait_for_the_lease(exiting: Bench) -> None:
    bench = exiting
    held = bench.api.hold(lease_writes)
    bench.api.put(PODS, make("p"))
    bench.api.put(CONFIG_MAPS, make("m"))
    await bench.start()
    assert bench.taken() == ["always begins p", "always ends p"]
    assert bench.readiness() == {
        "always": "running",
        "elected": "standby",
        "lease lease": "standby; held by nobody",
    }
    assert all(state.ready for state in bench.program.readiness())

    held.set()
    await settle()

    assert bench.taken() == ["elected begins m", "elected ends m"]
    assert bench.readiness()["lease lease"] == "leader"


async def test_losing_the_lease_can_end_the_program_at_once(exiting: Bench) -> None:
    bench = exiting
    task = await bench.start()
    bench.elected.gate.clear()
    bench.api.put(CONFIG_MAPS, make("m"))
    await settle()
    bench.api.script(lease_writes, *[ConnectionFailed("down")] * 10)

    await bench.clock.advance(11)
    await settle(30)

    assert task.done()
    with pytest.raises(LeadershipLost):
        await task
    assert bench.taken() == ["elected begins m"]


async def test_losing_the_lease_can_pause_what_is_elected_only(campaigning: Bench) -> None:
    bench = campaigning
    await bench.start()
    bench.elected.gate.clear()
    bench.api.put(CONFIG_MAPS, make("m"))
    await settle()
    bench.api.script(lease_writes, *[ConnectionFailed("down")] * 7)
    await bench.clock.advance(11)
    assert bench.taken() == ["elected begins m"]
    assert bench.readiness()["elected"] == "standby"
    bench.elected.gate.set()
    bench.api.put(CONFIG_MAPS, make("n"))
    bench.api.put(PODS, make("p"))
    await settle()
    assert bench.taken() == ["always begins p", "always ends p"]

    await bench.clock.advance(10)

    assert bench.readiness()["elected"] == "running"
    assert sorted(bench.taken()) == [
        "elected begins m",
        "elected begins n",
        "elected ends m",
        "elected ends n",
    ]


async def test_a_part_that_fails_by_mistake_is_started_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """A transform that cannot cope with an object ends its informer, and only that."""
    attempts: list[str] = []

    def transform(obj: Object) -> Object:
        attempts.append(obj["metadata"]["name"])
        if len(attempts) == 1:
            raise KeyError("spec")
        return obj

    bench.maps._config = replace(bench.maps._config, transform=transform)
    bench.api.put(CONFIG_MAPS, make("m"))
    bench.api.put(PODS, make("p"))
    await bench.start()
    assert bench.taken() == ["always begins p", "always ends p"]
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.message == "part failed, starting it again"

    await bench.clock.advance(1)

    assert bench.taken() == ["elected begins m", "elected ends m"]


async def test_readiness_waits_for_the_first_list(bench: Bench) -> None:
    assert bench.program.readiness() == [
        ComponentState("always", ready=False, detail="waiting; not listed yet"),
        ComponentState("elected", ready=False, detail="waiting; not listed yet"),
    ]


async def test_other_parts_run_beside_and_are_started_again(bench: Bench) -> None:
    journal: list[str] = []

    async def serve() -> None:
        journal.append("begins")
        if len(journal) == 1:
            raise OSError("no address")
        try:
            await asyncio.Event().wait()
        finally:
            journal.append("ends")

    bench.others["server"] = serve
    task = await bench.start()
    await bench.clock.advance(1)
    assert journal == ["begins", "begins"]

    bench.program.stop()
    await task

    assert journal == ["begins", "begins", "ends"]


async def test_a_lease_that_is_lost_while_stopping_is_no_failure(exiting: Bench) -> None:
    bench = exiting
    task = await bench.start()
    bench.elected.gate.clear()
    bench.api.put(CONFIG_MAPS, make("m"))
    await settle()
    bench.api.script(lease_writes, *[ConnectionFailed("down")] * 10)
    await bench.clock.advance(4)
    bench.program.stop()
    await settle()

    await bench.clock.advance(8)

    await task
    assert bench.taken() == ["elected begins m"]
    assert not bench.elector.is_leader
