"""Writes that are noted before they are sent, and taken back where nothing came of them."""

import pytest

from kthena.api.kubernetes import PODS
from kthena.kube.clock import FakeClock
from kthena.kube.errors import AlreadyExists, ApiError, ConnectionFailed, Forbidden, ServerTimeout
from kthena.kube.expecting import ExpectingClient
from kthena.kube.informer import Change, ChangeType
from kthena.kube.store import Store
from kthena.machinery.objects import NamespacedName, Object, uid_of
from support.kube_server import MemoryApi, status_reply

KEY = NamespacedName("ns", "owner")
POD = NamespacedName("ns", "p")
UNCERTAIN = [
    (ConnectionFailed("no reply"), ConnectionFailed),
    (status_reply(504, "Timeout"), ServerTimeout),
]


def make(**more: object) -> Object:
    return {"metadata": {"name": "p", "namespace": "ns"}, **more}


class Writer:
    def __init__(self) -> None:
        self.api = MemoryApi(PODS)
        self.clock = FakeClock()
        self.store = Store()
        self.writes = ExpectingClient(self.api.client(self.clock), {PODS: self.store}, self.clock)

    @property
    def waits(self) -> bool:
        return self.writes.wait_s(KEY) > 0

    def live(self) -> Object:
        return self.api.objects(PODS)[POD]

    def show(self, kind: ChangeType, obj: Object) -> bool:
        """The change comes through the watch."""
        old = self.store.put(obj) if kind is not ChangeType.DELETED else self.store.remove(POD)
        new = None if kind is ChangeType.DELETED else obj
        return self.writes.observe(KEY, PODS, Change(kind, old, new))


@pytest.fixture
def writer() -> Writer:
    return Writer()


async def test_a_creation_is_awaited_until_it_is_seen(writer: Writer) -> None:
    created = await writer.writes.create(KEY, PODS, make())
    assert writer.waits

    assert writer.show(ChangeType.ADDED, created), "the key was waiting"

    assert not writer.waits
    assert not writer.show(ChangeType.MODIFIED, created)


@pytest.mark.parametrize("code", [403, 409])
async def test_a_refused_creation_is_not_awaited(writer: Writer, code: int) -> None:
    reason = "Forbidden" if code == 403 else "AlreadyExists"
    writer.api.script(lambda _: True, status_reply(code, reason))

    with pytest.raises((Forbidden, AlreadyExists)):
        await writer.writes.create(KEY, PODS, make())

    assert not writer.waits


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize(("reply", "error"), UNCERTAIN)
async def test_a_creation_of_unknown_outcome_is_awaited_unless_it_is_repeated(
    writer: Writer, reply: ApiError, error: type[ApiError], repeated: bool
) -> None:
    writer.api.script(lambda _: True, reply)

    with pytest.raises(error):
        await writer.writes.create(KEY, PODS, make(), repeated=repeated)

    assert writer.waits is not repeated
    await writer.clock.advance(60)
    assert not writer.waits


async def test_a_deletion_carries_the_uid_and_is_awaited(writer: Writer) -> None:
    stored = writer.api.put(PODS, make())
    writer.show(ChangeType.ADDED, stored)
    await writer.writes.delete(KEY, PODS, POD, uid_of(stored), "Background")

    assert writer.waits
    body = writer.api.requests[-1].body
    assert uid_of(stored).encode() in body
    assert b"Background" in body

    writer.show(ChangeType.DELETED, stored)
    assert not writer.waits


async def test_what_is_gone_already_was_to_be_deleted(writer: Writer) -> None:
    await writer.writes.delete(KEY, PODS, POD, "uid-9")

    assert not writer.waits


async def test_a_refused_deletion_is_not_awaited(writer: Writer) -> None:
    writer.api.script(lambda _: True, status_reply(409, "Conflict"))

    with pytest.raises(ApiError):
        await writer.writes.delete(KEY, PODS, POD, "uid-9")

    assert not writer.waits


@pytest.mark.parametrize(("reply", "error"), UNCERTAIN)
async def test_a_deletion_of_unknown_outcome_is_awaited(
    writer: Writer, reply: ApiError, error: type[ApiError]
) -> None:
    writer.api.script(lambda _: True, reply)

    with pytest.raises(error):
        await writer.writes.delete(KEY, PODS, POD, "uid-9")

    assert writer.waits


async def test_a_patch_is_awaited_by_its_version(writer: Writer) -> None:
    before = writer.api.put(PODS, make())
    writer.show(ChangeType.ADDED, before)
    await writer.writes.patch(KEY, PODS, POD, {"metadata": {"annotations": {"a": "1"}}})
    assert writer.waits

    writer.show(ChangeType.MODIFIED, before)
    assert writer.waits, "that is the state before the patch"

    assert writer.show(ChangeType.MODIFIED, writer.live())
    assert not writer.waits


async def test_a_later_version_and_the_end_of_the_object_count_too(writer: Writer) -> None:
    writer.show(ChangeType.ADDED, writer.api.put(PODS, make()))
    for kind in (ChangeType.MODIFIED, ChangeType.DELETED):
        await writer.writes.patch(KEY, PODS, POD, {"spec": {"nodeName": str(kind)}})
        assert writer.waits
        writer.show(kind, writer.api.put(PODS, make(later=str(kind))))
        assert not writer.waits


async def test_a_change_that_was_faster_than_the_reply_is_found_in_the_store(
    writer: Writer,
) -> None:
    writer.show(ChangeType.ADDED, writer.api.put(PODS, make()))
    patched = await writer.writes.patch(KEY, PODS, POD, {"spec": {"nodeName": "n"}})
    writer.store.put(patched)

    assert not writer.waits


async def test_a_status_is_awaited_when_it_was_written(writer: Writer) -> None:
    stored = writer.api.put(PODS, make(status={"phase": "Running", "observedGeneration": 0}))
    assert await writer.writes.patch_status(KEY, PODS, stored, {"phase": "Running"}) is stored
    assert not writer.waits

    await writer.writes.patch_status(KEY, PODS, stored, {"phase": "Failed"})

    assert writer.waits
    writer.writes.forget(KEY)
    assert not writer.waits


async def test_an_object_that_was_read_can_be_awaited(writer: Writer) -> None:
    stored = writer.api.put(PODS, make())
    writer.writes.expect(KEY, PODS, stored)
    assert writer.waits

    writer.show(ChangeType.ADDED, stored)

    assert not writer.waits
