import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from kthena.api.kubernetes import LEASES
from kthena.kube.client import Request
from kthena.kube.clock import FakeClock, settle
from kthena.kube.election import ElectionConfig, LeaderElector, default_identity
from kthena.kube.errors import ConnectionFailed
from kthena.kube.metrics import KubeMetrics
from kthena.machinery.objects import NamespacedName
from kthena.telemetry.metrics import Metrics
from support.kube_server import MemoryApi, status_reply

KEY = NamespacedName("ns", "lease")
Fails = Callable[[Request], bool]


def writes(request: Request) -> bool:
    return request.method in ("PUT", "POST")


def anything(_: Request) -> bool:
    return True


class Candidate:
    """An elector with its own client and clock, and the times at which it led."""

    def __init__(self, api: MemoryApi, identity: str, clock: FakeClock) -> None:
        self.clock = clock
        self.metrics = Metrics("t_")
        config = ElectionConfig(KEY.name, KEY.namespace, identity)
        self.elector = LeaderElector(
            api.client(clock), config, clock, draw=lambda: 0.5, metrics=KubeMetrics(self.metrics)
        )
        self.history: list[str] = []
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.get_running_loop().create_task(
            self.elector.run(
                lambda: self.history.append("started"), lambda: self.history.append("lost")
            )
        )

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    def leads(self) -> bool:
        return self.elector.is_leader


class Pair:
    """Two candidates for one lease. The wall clock of the second is hours ahead."""

    def __init__(self) -> None:
        self.api = MemoryApi(LEASES)
        self.first = Candidate(self.api, "first", FakeClock())
        ahead = FakeClock(datetime(2026, 1, 1, 9, tzinfo=UTC))
        self.second = Candidate(self.api, "second", ahead)

    async def advance(self, seconds: float) -> None:
        """Move both clocks in small steps; never may both lead."""
        for _ in range(round(seconds * 10)):
            await self.first.clock.advance(0.1)
            await self.second.clock.advance(0.1)
            assert not (self.first.leads() and self.second.leads())

    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.api.objects(LEASES)[KEY]["spec"]
        return spec


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    pair = Pair()
    yield pair
    await pair.first.stop()
    await pair.second.stop()


async def test_the_first_candidate_makes_the_lease(pair: Pair) -> None:
    pair.first.start()
    await settle()

    assert pair.first.leads()
    assert pair.first.history == ["started"]
    assert pair.spec() == {
        "holderIdentity": "first",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }
    assert 't_leader{lease="lease"} 1.0' in pair.first.metrics.render().decode()


async def test_the_holder_renews_with_one_write_each(pair: Pair) -> None:
    pair.first.start()
    await settle()
    pair.api.requests.clear()
    await pair.advance(11)

    assert [request.method for request in pair.api.requests] == ["PUT"] * 5
    assert pair.spec()["renewTime"] == "2026-01-01T00:00:10.000000Z"
    assert pair.spec()["acquireTime"] == "2026-01-01T00:00:00.000000Z"
    assert pair.spec()["leaseTransitions"] == 0


async def test_a_standby_waits_while_the_holder_renews(pair: Pair) -> None:
    """Also with clocks that differ by hours, as the times in the record do not count."""
    pair.first.start()
    await settle()
    pair.second.start()
    await pair.advance(120)

    assert pair.first.leads()
    assert pair.second.history == []
    readiness = pair.second.elector.readiness()
    assert readiness.ready
    assert readiness.detail == "standby; held by first"
    assert pair.first.elector.readiness().detail == "leader"


async def test_a_standby_takes_over_when_the_holder_has_died(pair: Pair) -> None:
    pair.first.start()
    pair.second.start()
    await pair.advance(5)
    await pair.first.stop()
    pair.first.elector.is_leader = False  # the process is gone

    await pair.advance(14)
    assert not pair.second.leads()
    await pair.advance(6)

    assert pair.second.leads()
    assert pair.spec()["holderIdentity"] == "second"
    assert pair.spec()["leaseTransitions"] == 1
    assert pair.spec()["acquireTime"].startswith("2026-01-01T09:00")


async def test_a_holder_that_cannot_renew_gives_up_before_another_starts(pair: Pair) -> None:
    pair.first.start()
    pair.second.start()
    await pair.advance(5)
    assert pair.first.leads()
    pair.api.script(
        lambda request: b'"first"' in request.body, *[ConnectionFailed("partition")] * 100
    )
    pair.api.script(anything)

    await pair.advance(11)
    assert not pair.first.leads()
    assert not pair.second.leads()
    await pair.advance(9)

    assert pair.first.history == ["started", "lost"]
    assert pair.second.history == ["started"]


async def test_a_holder_whose_renewals_hang_gives_up_in_time(pair: Pair) -> None:
    """A partition without errors: requests are never answered."""
    pair.first.start()
    pair.second.start()
    await pair.advance(5)
    pair.api.hold(lambda request: b'"first"' in request.body)

    await pair.advance(10)
    assert not pair.first.leads()
    await pair.advance(10)

    assert pair.second.leads()
    assert pair.first.history == ["started", "lost"]


async def test_the_loser_campaigns_again(pair: Pair) -> None:
    pair.first.start()
    await settle()
    pair.api.script(writes, *[ConnectionFailed("down")] * 6)
    await pair.advance(12)
    assert not pair.first.leads()

    await pair.advance(10)

    assert pair.first.history == ["started", "lost", "started"]


async def test_a_short_trouble_is_survived(pair: Pair) -> None:
    pair.first.start()
    await settle()
    pair.api.script(writes, ConnectionFailed("blip"), status_reply(500), status_reply(429))

    await pair.advance(8)
    assert "429" in pair.first.elector.readiness().detail or pair.first.leads()
    await pair.advance(2)

    assert pair.first.history == ["started"]
    assert pair.first.elector.readiness().detail == "leader"


async def test_a_lease_that_another_took_is_lost_at_once(pair: Pair) -> None:
    """Someone edits the record by hand, or a suspended process wakes up."""
    pair.first.start()
    await settle()
    lease = pair.api.objects(LEASES)[KEY]
    pair.api.put(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "other"}})

    await pair.advance(2.5)

    assert pair.first.history == ["started", "lost"]
    assert pair.first.elector.readiness().detail == "standby; held by other"


async def test_a_lease_that_was_deleted_is_made_again(pair: Pair) -> None:
    pair.first.start()
    await settle()
    pair.api.remove(LEASES, KEY)

    await pair.advance(3)

    assert pair.first.history == ["started"]
    assert pair.spec()["holderIdentity"] == "first"


async def test_a_lease_touched_by_others_is_renewed_all_the_same(pair: Pair) -> None:
    """An annotation by someone else makes the next write conflict."""
    pair.first.start()
    await settle()
    lease = pair.api.objects(LEASES)[KEY]
    metadata = {**lease["metadata"], "annotations": {"a": "b"}}
    pair.api.put(LEASES, {**lease, "metadata": metadata})

    await pair.advance(3)

    assert pair.first.history == ["started"]
    assert pair.api.objects(LEASES)[KEY]["metadata"]["annotations"] == {"a": "b"}
    assert pair.spec()["renewTime"] == "2026-01-01T00:00:02.000000Z"


async def test_the_stopped_clock_of_a_holder_ends_its_term(pair: Pair) -> None:
    """A process that slept for a minute must not act on a lease that has expired."""
    pair.first.start()
    await settle()
    pair.first.clock._elapsed += 60

    await pair.first.clock.advance(0)

    assert pair.first.history[:2] == ["started", "lost"]


async def test_a_mistake_that_ends_a_term_is_a_loss(pair: Pair) -> None:
    """Nothing may go on as leader when nobody renews the lease."""
    pair.first.start()
    await settle()
    pair.api.script(writes, RuntimeError("bug"))

    await pair.advance(3)

    assert pair.first.history == ["started", "lost"]
    assert not pair.first.leads()
    assert pair.first.task is not None
    with pytest.raises(RuntimeError, match="bug"):
        await pair.first.task


async def test_releasing_lets_another_start_at_once(pair: Pair) -> None:
    pair.first.start()
    pair.second.start()
    await pair.advance(5)
    await pair.first.stop()
    assert pair.first.leads()

    await pair.first.elector.release()

    assert not pair.first.leads()
    assert pair.spec() == {
        "leaseDurationSeconds": 1,
        "acquireTime": "2026-01-01T00:00:05.000000Z",
        "renewTime": "2026-01-01T00:00:05.000000Z",
        "leaseTransitions": 0,
    }
    await pair.advance(3.5)
    assert pair.second.leads()
    assert pair.spec()["leaseTransitions"] == 1


async def test_a_standby_has_nothing_to_release(pair: Pair) -> None:
    pair.first.start()
    pair.second.start()
    await pair.advance(1)
    await pair.second.stop()
    pair.api.requests.clear()

    await pair.second.elector.release()

    assert pair.api.requests == []


async def test_a_release_that_fails_is_no_error(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.first.start()
    await settle()
    await pair.first.stop()
    pair.api.script(writes, ConnectionFailed("down"))

    await pair.first.elector.release()

    assert "lease not released" in [record.message for record in caplog.records]


async def test_a_release_that_hangs_ends(pair: Pair) -> None:
    pair.first.start()
    await settle()
    await pair.first.stop()
    pair.api.hold(writes)
    releasing = asyncio.create_task(pair.first.elector.release())
    await settle()

    await pair.first.clock.advance(2)

    assert releasing.done()
    await releasing


async def test_two_that_start_together_have_one_winner(pair: Pair) -> None:
    held = pair.api.hold(writes)
    pair.first.start()
    pair.second.start()
    await settle()
    held.set()
    await pair.advance(10)

    assert pair.first.leads() != pair.second.leads()
    assert pair.first.history + pair.second.history == ["started"]


async def test_a_lost_race_is_no_trouble(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.api.script(writes, status_reply(409, "AlreadyExists"), status_reply(409, "Conflict"))
    pair.first.start()
    await pair.advance(10)

    assert pair.first.leads()
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


async def test_trouble_is_logged_when_it_changes(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.api.forbidden.add(str(LEASES))
    pair.first.start()
    await settle()
    await pair.advance(60)
    assert [record.message for record in caplog.records] == ["lease cannot be reached"]
    assert pair.first.elector.readiness().detail.startswith("standby; held by nobody; GET")

    pair.api.forbidden.clear()
    await pair.advance(5)

    assert pair.first.leads()


@pytest.mark.parametrize("times", [(10, 10, 2), (15, 2, 2), (15, 10, 0), (5, 10, 2)])
def test_times_that_allow_two_leaders_are_refused(times: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="lease ns/l: the lease duration"):
        ElectionConfig("l", "ns", "me", *times)


def test_a_candidate_needs_an_identity() -> None:
    with pytest.raises(ValueError, match="needs an identity"):
        ElectionConfig("l", "ns", "")


def test_identities_are_unique() -> None:
    assert default_identity() != default_identity()
