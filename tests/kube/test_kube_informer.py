import asyncio
from collections.abc import AsyncIterator

import pytest

from kthena.api.kubernetes import CONFIG_MAPS, PODS
from kthena.kube.backoff import BackoffConfig
from kthena.kube.clock import FakeClock, settle
from kthena.kube.errors import ConnectionFailed
from kthena.kube.informer import (
    Change,
    Informer,
    InformerConfig,
    InformerState,
    drop_managed_fields,
)
from kthena.kube.metrics import KubeMetrics
from kthena.machinery.objects import NamespacedName, Object, name_of
from kthena.telemetry.metrics import Metrics
from support.kube_server import MemoryApi, is_list, is_watch, status_reply


def pod(name: str, **fields: object) -> Object:
    return {"metadata": {"name": name, "namespace": "ns"}, **fields}


def key(name: str) -> NamespacedName:
    return NamespacedName("ns", name)


class Bench:
    """An informer of pods against an API in memory, and what its handlers saw."""

    def __init__(self, config: InformerConfig | None = None) -> None:
        self.clock = FakeClock()
        self.api = MemoryApi(PODS)
        self.metrics = Metrics("t_")
        self.informer = Informer(
            self.api.client(self.clock),
            PODS,
            config or InformerConfig(silence_timeout_s=90),
            self.clock,
            draw=lambda: 0.5,
            metrics=KubeMetrics(self.metrics),
        )
        self.seen: list[str] = []
        self.changes: list[Change] = []
        self.informer.add_handler(self._note)
        self._task: asyncio.Task[None] | None = None

    def _note(self, change: Change) -> None:
        self.changes.append(change)
        self.seen.append(f"{change.type} {change.key.name}")

    async def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self.informer.run())
        await settle()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def taken(self) -> list[str]:
        """What was seen since the last call."""
        seen, self.seen = self.seen, []
        return seen

    def state(self) -> InformerState:
        return self.informer.state

    def names(self) -> set[str]:
        return {name_of(obj) for obj in self.informer.store}


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await bench.stop()


async def test_it_lists_then_follows(bench: Bench) -> None:
    bench.api.put(PODS, pod("a"))
    assert bench.state() is InformerState.STARTING

    await bench.start()
    assert bench.informer.synced.is_set()
    assert bench.state() is InformerState.SYNCED
    assert bench.informer.reason == ""

    bench.api.put(PODS, pod("b"))
    bench.api.put(PODS, pod("a", spec={"x": 1}))
    bench.api.remove(PODS, key("b"))
    await settle()

    assert bench.taken() == ["ADDED a", "ADDED b", "MODIFIED a", "DELETED b"]
    assert bench.names() == {"a"}
    found = bench.informer.store.get(key("a"))
    assert found is not None
    assert found["spec"] == {"x": 1}
    assert found["kind"] == "Pod"
    old, new = bench.changes[2].old, bench.changes[2].new
    assert old is not None
    assert "spec" not in old
    assert new is found


async def test_the_list_is_read_in_pages() -> None:
    bench = Bench(InformerConfig(page_size=3))
    for index in range(8):
        bench.api.put(PODS, pod(f"p{index}"))

    await bench.start()

    assert len(bench.informer.store) == 8
    assert bench.api.count(is_list) == 3
    await bench.stop()


async def test_selectors_and_namespace_reach_the_server() -> None:
    bench = Bench(InformerConfig(namespace="ns", label_selector="a=b", field_selector="c=d"))

    await bench.start()

    for request in bench.api.requests:
        assert request.target.startswith("/api/v1/namespaces/ns/pods?")
        assert "labelSelector=a%3Db&fieldSelector=c%3Dd" in request.target
    await bench.stop()


async def test_the_watch_asks_for_bookmarks_and_a_time_limit(bench: Bench) -> None:
    await bench.start()

    watch = bench.api.requests[-1].target
    assert "allowWatchBookmarks=true" in watch
    assert "timeoutSeconds=450" in watch


async def test_a_watch_that_ends_in_time_goes_on_without_a_list(bench: Bench) -> None:
    """From the version of the last event or bookmark, so that old versions are not asked for."""
    await bench.start()
    bench.api.put(PODS, pod("a"))
    bench.api.bookmark()
    await bench.clock.advance(10)
    bench.api.compact()
    bench.api.end_watches()
    await settle()
    bench.api.put(PODS, pod("b"))
    await settle()

    assert bench.taken() == ["ADDED a", "ADDED b"]
    assert bench.api.count(is_list) == 1
    assert bench.api.count(is_watch) == 2


async def test_what_a_broken_watch_missed_comes_with_the_next_list(bench: Bench) -> None:
    """Field report B022: the ghost is gone and the newcomer is in."""
    for name in ("ghost", "kept", "changed"):
        bench.api.put(PODS, pod(name))
    await bench.start()
    bench.taken()

    bench.api.cut_watches()
    bench.api.remove(PODS, key("ghost"))
    bench.api.put(PODS, pod("newcomer"))
    bench.api.put(PODS, pod("changed", spec={"x": 1}))
    await settle()
    assert bench.taken() == []
    assert bench.state() is InformerState.FAILING
    assert "cut" in bench.informer.reason
    assert bench.informer.synced.is_set()

    await bench.clock.advance(1.0)

    assert bench.taken() == ["DELETED ghost", "MODIFIED changed", "ADDED newcomer"]
    assert bench.names() == {"kept", "changed", "newcomer"}
    assert bench.informer.store.get(key("ghost")) is None


async def test_an_expired_version_leads_to_a_list_and_is_not_asked_for_again(
    bench: Bench,
) -> None:
    bench.api.put(PODS, pod("ghost"))
    await bench.start()
    bench.api.cut_watches()
    bench.api.remove(PODS, key("ghost"))
    bench.api.compact()
    bench.api.script(is_watch, status_reply(410, "Expired"))
    await settle()

    await bench.clock.advance(3.0)

    assert bench.taken() == ["ADDED ghost", "DELETED ghost"]
    assert bench.state() is InformerState.SYNCED
    versions = [request.target for request in bench.api.requests if is_watch(request)]
    assert "resourceVersion=1&" in versions[0]
    assert all("resourceVersion=1&" not in version for version in versions[1:])


async def test_an_error_event_with_410_leads_to_a_list(bench: Bench) -> None:
    await bench.start()
    bench.api.expire_watches()
    bench.api.put(PODS, pod("newcomer"))
    await settle()

    await bench.clock.advance(1.0)

    assert bench.taken() == ["ADDED newcomer"]
    assert bench.state() is InformerState.SYNCED
    assert bench.api.count(is_list) == 2


async def test_a_gateway_timeout_of_the_watch_is_survived(bench: Bench) -> None:
    bench.api.put(PODS, pod("ghost"))
    await bench.start()
    bench.api.script(is_watch, *[status_reply(504, "Timeout")] * 3)
    bench.api.cut_watches()
    bench.api.remove(PODS, key("ghost"))
    await settle()

    await bench.clock.advance(1.0)
    assert bench.state() is InformerState.FAILING
    assert "504" in bench.informer.reason
    await bench.clock.advance(10.0)

    assert bench.taken() == ["ADDED ghost", "DELETED ghost"]
    assert bench.state() is InformerState.SYNCED
    assert bench.api.open_watches == 1


async def test_a_silent_watch_is_given_up(bench: Bench) -> None:
    """Half-open connections bring neither events nor errors."""
    bench.api.put(PODS, pod("ghost"))
    await bench.start()
    bench.api.silence_watches()
    bench.api.remove(PODS, key("ghost"))
    await bench.clock.advance(89)
    assert bench.names() == {"ghost"}

    await bench.clock.advance(2)

    assert bench.taken() == ["ADDED ghost", "DELETED ghost"]
    assert bench.api.open_watches == 1


async def test_a_watch_that_is_never_answered_is_given_up(bench: Bench) -> None:
    held = bench.api.hold(is_watch)
    await bench.start()
    await bench.clock.advance(91)
    assert bench.state() is InformerState.FAILING
    held.set()

    await bench.clock.advance(3)

    assert bench.state() is InformerState.SYNCED


async def test_bookmarks_keep_a_quiet_watch_alive(bench: Bench) -> None:
    await bench.start()
    for _ in range(10):
        await bench.clock.advance(60)
        bench.api.bookmark()
        await settle()

    assert bench.api.count(is_list) == 1
    assert bench.api.count(is_watch) == 1
    assert bench.taken() == []


async def test_a_watch_that_ends_at_once_again_and_again_is_no_hot_loop(bench: Bench) -> None:
    await bench.start()
    for _ in range(200):
        bench.api.end_watches()
        await bench.clock.advance(0.1)

    assert bench.api.count(is_watch) < 15


async def test_failures_back_off_and_a_long_success_starts_over() -> None:
    config = InformerConfig(backoff=BackoffConfig(initial_s=1, cap_s=8))
    bench = Bench(config)
    bench.api.script(is_list, *[ConnectionFailed("down")] * 8)
    await bench.start()
    for seconds in (0.75, 1.5, 3, 6, 6, 6, 6):
        before = bench.api.count(is_list)
        await bench.clock.advance(seconds - 0.01)
        assert bench.api.count(is_list) == before
        await bench.clock.advance(0.01)
        assert bench.api.count(is_list) == before + 1
    await bench.clock.advance(6)
    assert bench.state() is InformerState.SYNCED

    await bench.clock.advance(60)
    bench.api.cut_watches()
    await settle()
    lists = bench.api.count(is_list)
    await bench.clock.advance(0.75)

    assert bench.api.count(is_list) == lists + 1
    await bench.stop()


async def test_retry_after_is_obeyed_within_reason(bench: Bench) -> None:
    bench.api.script(is_list, status_reply(429, headers={"retry-after": "20"}))
    bench.api.script(is_list, status_reply(503, headers={"retry-after": "3600"}))
    await bench.start()
    await bench.clock.advance(19.9)
    assert bench.api.count(is_list) == 1
    await bench.clock.advance(0.2)
    assert bench.api.count(is_list) == 2

    await bench.clock.advance(30)

    assert bench.state() is InformerState.SYNCED


async def test_a_resource_that_is_absent_is_found_soon_after_it_appears(bench: Bench) -> None:
    bench.api.resources.clear()
    await bench.start()
    assert bench.state() is InformerState.ABSENT
    assert bench.informer.reason == ("pods is not known to the server: its CRD is not installed")
    await bench.clock.advance(600)
    assert not bench.informer.synced.is_set()
    assert bench.api.count(is_list) <= 600 / 2

    bench.api.resources["pods"] = PODS
    bench.api.put(PODS, pod("a"))
    await bench.clock.advance(3)

    assert bench.state() is InformerState.SYNCED
    assert bench.names() == {"a"}


async def test_a_list_that_is_forbidden_is_allowed_later(bench: Bench) -> None:
    bench.api.forbidden.add("pods")
    await bench.start()
    assert bench.state() is InformerState.FORBIDDEN
    assert bench.informer.reason == "pods is forbidden"

    bench.api.forbidden.clear()
    await bench.clock.advance(3)

    assert bench.state() is InformerState.SYNCED


async def test_a_watch_that_is_forbidden_does_not_flap(bench: Bench) -> None:
    states: list[InformerState] = []
    bench.informer.add_state_handler(lambda: states.append(bench.informer.state))
    bench.api.script(is_watch, *[status_reply(403, "Forbidden", "no watch")] * 20)
    await bench.start()
    await bench.clock.advance(30)
    assert bench.state() is InformerState.FORBIDDEN
    assert not bench.informer.synced.is_set()

    await bench.clock.advance(60)

    assert states == [InformerState.SYNCED, InformerState.FORBIDDEN, InformerState.SYNCED]
    assert bench.informer.synced.is_set()


async def test_a_resource_that_disappears_keeps_what_was_known(bench: Bench) -> None:
    """A 404 says nothing about the objects: API servers answer it while they start."""
    bench.api.put(PODS, pod("a"))
    await bench.start()
    bench.taken()
    bench.api.resources.clear()
    bench.api.cut_watches()
    await bench.clock.advance(5)

    assert bench.state() is InformerState.ABSENT
    assert not bench.informer.synced.is_set()
    assert bench.names() == {"a"}
    assert bench.taken() == []

    bench.api.resources["pods"] = PODS
    await bench.clock.advance(5)
    assert bench.informer.synced.is_set()
    assert bench.taken() == []


async def test_a_token_that_expires_between_pages_leads_to_one_page() -> None:
    bench = Bench(InformerConfig(page_size=2))
    for index in range(5):
        bench.api.put(PODS, pod(f"p{index}"))
    bench.api.script(lambda request: "continue=2" in request.target, status_reply(410, "Expired"))

    await bench.start()

    assert len(bench.informer.store) == 5
    assert "limit" not in bench.api.requests[2].target
    await bench.stop()


async def test_a_page_that_fails_changes_nothing() -> None:
    bench = Bench(InformerConfig(page_size=2))
    for index in range(5):
        bench.api.put(PODS, pod(f"p{index}"))
    bench.api.script(lambda request: "continue=4" in request.target, status_reply(500))

    await bench.start()
    assert len(bench.informer.store) == 0
    assert bench.taken() == []
    assert not bench.informer.synced.is_set()

    await bench.clock.advance(1)
    assert len(bench.informer.store) == 5
    await bench.stop()


async def test_a_replaced_object_is_a_deletion_and_an_addition(bench: Bench) -> None:
    first = bench.api.put(PODS, pod("a"))
    await bench.start()
    bench.api.cut_watches()
    bench.api.remove(PODS, key("a"))
    second = bench.api.put(PODS, pod("a"))
    await settle()

    await bench.clock.advance(1)

    assert bench.taken() == ["ADDED a", "DELETED a", "ADDED a"]
    assert bench.changes[1].old is not None
    assert bench.changes[1].old["metadata"]["uid"] == first["metadata"]["uid"]
    assert bench.changes[2].new is not None
    assert bench.changes[2].new["metadata"]["uid"] == second["metadata"]["uid"]


async def test_unchanged_objects_are_the_same_after_a_list(bench: Bench) -> None:
    bench.api.put(PODS, pod("a"))
    await bench.start()
    before = bench.informer.store.get(key("a"))
    bench.api.cut_watches()
    await settle()

    await bench.clock.advance(1)

    assert bench.api.count(is_list) == 2
    assert bench.informer.store.get(key("a")) is before
    assert bench.taken() == ["ADDED a"]


async def test_a_handler_that_fails_does_not_blind_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    later: list[str] = []

    def fail(change: Change) -> None:
        raise RuntimeError(change.key.name)

    bench.informer.add_handler(fail)
    bench.informer.add_handler(lambda change: later.append(change.key.name))
    bench.api.put(PODS, pod("a"))
    await bench.start()
    bench.api.put(PODS, pod("b"))
    await settle()

    assert bench.taken() == ["ADDED a", "ADDED b"]
    assert later == ["a", "b"]
    assert [record.message for record in caplog.records].count("handler of a change failed") == 2
    await bench.stop()


async def test_a_late_handler_is_told_of_everything(bench: Bench) -> None:
    bench.api.put(PODS, pod("a"))
    await bench.start()
    late: list[str] = []

    bench.informer.add_handler(lambda change: late.append(f"{change.type} {change.key.name}"))
    bench.api.put(PODS, pod("b"))
    await settle()

    assert late == ["ADDED a", "ADDED b"]


async def test_the_store_has_changed_when_handlers_are_called() -> None:
    """All of a list is in the store before the first handler hears of it."""
    bench = Bench()
    sizes: list[int] = []
    bench.informer.add_handler(lambda _: sizes.append(len(bench.informer.store)))
    for name in "abc":
        bench.api.put(PODS, pod(name))
    await bench.start()
    bench.api.remove(PODS, key("a"))
    await settle()

    assert sizes == [3, 3, 3, 2]
    await bench.stop()


async def test_objects_are_transformed_before_they_are_stored() -> None:
    bench = Bench(InformerConfig(transform=drop_managed_fields))
    stored = pod("a")
    stored["metadata"]["managedFields"] = [{"manager": "m"}]
    bench.api.put(PODS, stored)
    await bench.start()
    bench.api.put(PODS, {**stored, "spec": {}})
    await settle()

    for obj in bench.informer.store:
        assert "managedFields" not in obj["metadata"]
        assert obj["metadata"]["name"] == "a"
    await bench.stop()


async def test_a_deletion_of_something_unknown_is_passed_over(bench: Bench) -> None:
    await bench.start()
    stored = bench.api.put(PODS, pod("a"))
    await settle()
    bench.informer.store.remove(key("a"))
    bench.taken()
    bench.api.remove(PODS, key("a"))
    await settle()

    assert bench.taken() == []
    assert stored


async def test_states_are_logged_once_and_measured(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "kthena")
    bench = Bench()
    bench.api.resources.clear()
    await bench.start()
    await bench.clock.advance(60)
    bench.api.resources["pods"] = PODS
    await bench.clock.advance(3)

    assert [record.message for record in caplog.records] == [
        "informer not synced",
        "informer synced",
    ]
    fields = caplog.records[0].__dict__["fields"]
    assert fields["state"] == "Absent"
    text = bench.metrics.render().decode()
    assert 't_informer_state{informer="pods",state="Synced"} 1.0' in text
    assert 't_informer_state{informer="pods",state="Absent"} 0.0' in text
    assert 't_informer_lists_total{informer="pods"} 1.0' in text
    await bench.stop()


async def test_cancelling_closes_the_watch(bench: Bench) -> None:
    await bench.start()
    assert bench.api.open_watches == 1

    await bench.stop()

    assert bench.api.open_watches == 0


async def test_it_can_run_again_after_a_cancellation(bench: Bench) -> None:
    bench.api.put(PODS, pod("a"))
    await bench.start()
    await bench.stop()
    bench.api.remove(PODS, key("a"))
    bench.api.put(PODS, pod("b"))

    await bench.start()

    assert bench.names() == {"b"}
    assert bench.taken() == ["ADDED a", "DELETED a", "ADDED b"]


async def test_a_cancellation_while_changes_are_handed_out_loses_none(bench: Bench) -> None:
    for number in range(1000):
        bench.api.put(PODS, pod(f"p{number}"))
    begun = asyncio.Event()
    bench.informer.add_handler(lambda _: begun.set())
    task = asyncio.create_task(bench.informer.run())
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert 0 < len(bench.seen) < 1000

    await bench.start()

    assert sorted(bench.taken()) == sorted(f"ADDED p{number}" for number in range(1000))


async def test_one_informer_per_resource_shares_nothing() -> None:
    clock = FakeClock()
    api = MemoryApi(PODS, CONFIG_MAPS)
    api.forbidden.add("pods")
    client = api.client(clock)
    pods, maps = Informer(client, PODS, None, clock), Informer(client, CONFIG_MAPS, None, clock)
    tasks = [asyncio.create_task(each.run()) for each in (pods, maps)]
    await settle()

    assert pods.state is InformerState.FORBIDDEN
    assert maps.state is InformerState.SYNCED
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
