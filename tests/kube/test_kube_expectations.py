import pytest

from kthena.api.kubernetes import PODS, SERVICES
from kthena.kube.clock import FakeClock
from kthena.kube.expectations import Expectations
from kthena.kube.informer import Change, ChangeType
from kthena.machinery.objects import NamespacedName, Object

POD = NamespacedName("ns", "p")


def make(name: str = "p", uid: str = "u1", **metadata: object) -> Object:
    return {"metadata": {"name": name, "namespace": "ns", "uid": uid, **metadata}}


def added(obj: Object) -> Change:
    return Change(ChangeType.ADDED, None, obj)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def expectations(clock: FakeClock) -> Expectations[str]:
    return Expectations(clock, timeout_s=60)


def test_nothing_expected_is_no_wait(expectations: Expectations[str]) -> None:
    assert expectations.wait_s("key") == 0


def test_a_creation_is_awaited_until_it_is_seen(expectations: Expectations[str]) -> None:
    expectations.expect_creation("key", PODS, POD)
    assert expectations.wait_s("key") == 60
    assert expectations.wait_s("other") == 0

    expectations.observe("key", SERVICES, added(make()))
    expectations.observe("key", PODS, added(make("q")))
    expectations.observe("other", PODS, added(make()))
    expectations.observe("key", PODS, Change(ChangeType.MODIFIED, make(), make()))
    assert expectations.wait_s("key") == 60

    expectations.observe("key", PODS, added(make()))
    assert expectations.wait_s("key") == 0


def test_a_creation_that_was_refused_is_not_awaited(expectations: Expectations[str]) -> None:
    expectations.expect_creation("key", PODS, POD)
    expectations.creation_failed("key", PODS, POD)

    assert expectations.wait_s("key") == 0


def test_a_deletion_is_seen_when_it_begins(expectations: Expectations[str]) -> None:
    expectations.expect_deletion("key", "u1")
    terminating = make(deletionTimestamp="2026-01-01T00:00:00Z")
    expectations.observe("key", PODS, Change(ChangeType.MODIFIED, make(), make(uid="u2")))
    assert expectations.wait_s("key") == 60

    expectations.observe("key", PODS, Change(ChangeType.MODIFIED, make(), terminating))

    assert expectations.wait_s("key") == 0


def test_a_deletion_is_seen_when_the_object_is_gone(expectations: Expectations[str]) -> None:
    expectations.expect_deletion("key", "u1")
    expectations.observe("key", PODS, Change(ChangeType.DELETED, make(uid="u2"), None))
    assert expectations.wait_s("key") == 60

    expectations.observe("key", PODS, Change(ChangeType.DELETED, make(), None))

    assert expectations.wait_s("key") == 0


def test_a_deletion_that_was_refused_is_not_awaited(expectations: Expectations[str]) -> None:
    expectations.expect_deletion("key", "u1")
    expectations.deletion_failed("key", "u1")

    assert expectations.wait_s("key") == 0


def test_all_writes_must_be_seen(expectations: Expectations[str]) -> None:
    expectations.expect_creation("key", PODS, POD)
    expectations.expect_creation("key", SERVICES, POD)
    expectations.expect_deletion("key", "u9")
    expectations.observe("key", PODS, added(make()))
    expectations.observe("key", SERVICES, added(make(uid="u2")))
    assert expectations.wait_s("key") == 60

    expectations.observe("key", PODS, Change(ChangeType.DELETED, make(uid="u9"), None))

    assert expectations.wait_s("key") == 0


async def test_waiting_ends_after_the_time_limit(
    clock: FakeClock, expectations: Expectations[str], caplog: pytest.LogCaptureFixture
) -> None:
    expectations.expect_creation("key", PODS, POD)
    await clock.advance(50)
    assert expectations.wait_s("key") == 10
    expectations.expect_deletion("key", "u1")
    assert expectations.wait_s("key") == 60

    await clock.advance(60)

    assert expectations.wait_s("key") == 0
    assert [record.message for record in caplog.records] == ["own writes were not seen in time"]
    assert expectations.wait_s("key") == 0
    assert len(caplog.records) == 1


def test_a_key_that_is_gone_expects_nothing(expectations: Expectations[str]) -> None:
    expectations.expect_creation("key", PODS, POD)
    expectations.forget("key")
    expectations.forget("key")

    assert expectations.wait_s("key") == 0
    assert not expectations._pending
