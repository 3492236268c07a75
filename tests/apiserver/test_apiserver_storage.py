"""Objects that outlive the embedded server: its data file, crashes, and what it does at its start."""

import asyncio
import contextlib
import itertools
import random
import shutil
import threading
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.core import Core
from kthena.local.apiserver.options import DeleteOptions
from kthena.local.apiserver.storage.datafile import (
    FILE_NAME,
    DataFile,
    StorageError,
)
from kthena.local.apiserver.storage.journal import Journal
from kthena.local.apiserver.storage.restoring import stored_objects
from kthena.local.apiserver.store import Entry, Key, RevisionGoneError, Store
from support.apiserver import (
    CORE,
    CRDS,
    GROUP,
    MERGE,
    Api,
    Definition,
    Reply,
    config_map,
    embedded_api,
    eventually,
    owned_by,
    pod,
)
from support.durable import durable_server

MAPS = f"{CORE}/namespaces/default/configmaps"
PODS = f"{CORE}/namespaces/default/pods"


# --- the file -------------------------------------------------------------------------------------


def contents(store: Store) -> dict[str, list[Entry]]:
    return {bucket: list(store.list(bucket)) for bucket in sorted(store.buckets())}


def reopened(directory: Path) -> tuple[Store, Journal]:
    """A store with what a directory holds, and the journal that keeps it up."""
    store, journal = Store(), Journal(DataFile.open(directory))
    store.restore(journal.revision, stored_objects(journal, ()))
    store.observe(journal.observe)
    return store, journal


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "delete", "commit", "reopen"]),
        st.sampled_from(["things", "others.example.io"]),
        st.sampled_from(["", "a", "a-b", "b"]),
        st.sampled_from(["x", "y", "x0", "x-y"]),
        st.dictionaries(
            st.text(max_size=3), st.integers() | st.floats(allow_nan=False), max_size=2
        ),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(operations=OPERATIONS)
def test_a_store_reads_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, operations: list[Any]
) -> None:
    directory = tmp_path_factory.mktemp("data")
    store, journal = reopened(directory)
    for number, (action, bucket, namespace, name, value) in enumerate(operations):
        entry = store.get(bucket, Key(namespace, name))
        meta = {"name": name, "uid": f"u{number}", "labels": {"n": name}}
        if namespace:
            meta["namespace"] = namespace
        if action == "put":
            obj: Any = {"metadata": meta, "value": value}
            if entry is None:
                store.create(bucket, obj)
            else:
                store.update(bucket, {"metadata": meta, "value": value}, entry)
        elif action == "delete" and entry is not None:
            store.delete(bucket, entry)
        elif action == "commit":
            journal.write_now()
        elif action == "reopen":
            store, journal = check_reopened(directory, store, journal)
    _, journal = check_reopened(directory, store, journal)
    journal.abandon()
    shutil.rmtree(directory)


def check_reopened(directory: Path, store: Store, journal: Journal) -> tuple[Store, Journal]:
    journal.write_now()
    journal.abandon()
    again, journal = reopened(directory)
    assert contents(again) == contents(store)
    assert again.revision == store.revision
    return again, journal


def test_what_is_not_committed_is_lost_and_its_revision_given_again(tmp_path: Path) -> None:
    store, journal = reopened(tmp_path)
    store.create("things", {"metadata": {"name": "kept", "uid": "1"}})
    journal.write_now()
    store.create("things", {"metadata": {"name": "lost", "uid": "2"}})
    journal.abandon()
    again, journal = reopened(tmp_path)
    assert [entry.key.name for entry in again.list("things")] == ["kept"]
    assert again.revision == store.revision - 1
    journal.abandon()


def test_the_log_of_changes_starts_anew(tmp_path: Path) -> None:
    store, journal = reopened(tmp_path)
    for name in "ab":
        store.create("things", {"metadata": {"name": name, "uid": name}})
    journal.write_now()
    journal.abandon()
    again, journal = reopened(tmp_path)
    assert again.changes_since("things", again.revision) == []
    with pytest.raises(RevisionGoneError) as caught:
        again.changes_since("things", again.revision - 1)
    assert caught.value.oldest == again.revision
    journal.abandon()


def test_changes_gather_while_others_are_written(tmp_path: Path) -> None:
    """Many writers share a transaction: there are far fewer of them than writes."""
    written: list[int] = []

    class Counting(DataFile):
        def write(self, changes: Any, revision: int) -> None:
            written.append(len(changes))
            super().write(changes, revision)

    async def run() -> None:
        store, journal = Store(), Journal(Counting.open(tmp_path))
        store.observe(journal.observe)

        async def write(writer: int) -> None:
            for number in range(20):
                name = f"w{writer}-{number}"
                store.create("things", {"metadata": {"name": name, "uid": name}})
                await journal.settled()

        await asyncio.gather(*(write(writer) for writer in range(20)))
        await journal.close()

    asyncio.run(run())
    assert sum(written) == 400
    assert len(written) <= 60
    store, journal = reopened(tmp_path)
    assert store.count("things") == 400
    journal.abandon()


def test_a_full_disk_is_told_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    acknowledged: list[Any] = []
    with embedded_api(ApiServerConfig(data_dir=tmp_path)) as (server, api):
        limit_file(tmp_path, server.core.journal)

        def create() -> Reply:
            number = len(acknowledged)
            return api.create(MAPS, config_map(f"m{number}", {"k": "x" * 20_000}))

        while (reply := create()).status == 201:
            acknowledged.append(reply.body)
        assert (reply.status, reply.reason) == (500, "InternalError")
        path = tmp_path / FILE_NAME
        assert f"{path} cannot be written: database or disk is full" in reply.message
        # What is in memory only must not be shown.
        assert api.get(f"{MAPS}/m{len(acknowledged)}").status == 500
        # Nor may a CRD of which nobody will know after a restart.
        ghost = Definition(f"ghost.{GROUP}")
        assert api.create(CRDS, ghost.crd()).status == 500
        for page in (f"/apis/ghost.{GROUP}/v1", "/apis", f"/openapi/v3/apis/ghost.{GROUP}/v1"):
            assert api.get(page).status == 500
        assert api.get("/readyz").status == 500
        with pytest.raises(StorageError):
            asyncio.run(asyncio.wait_for(server.wait_failed(), 1))
    assert acknowledged
    with embedded_api(ApiServerConfig(data_dir=tmp_path)) as (_, api):
        assert api.get("/readyz").status == 200
        found = {item["metadata"]["name"]: item for item in api.get(MAPS).body["items"]}
        for obj in acknowledged:
            item = found[obj["metadata"]["name"]]
            assert (item["metadata"], item["data"]) == (obj["metadata"], obj["data"])
        assert f"m{len(acknowledged)}" not in found


def limit_file(directory: Path, journal: Journal | None) -> None:
    """Let the file grow a little more only, as a disk that is nearly full does."""
    assert journal is not None
    connection = journal._file._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 40}")


# --- restarts -------------------------------------------------------------------------------------


def test_a_restart_serves_the_same_objects(tmp_path: Path) -> None:
    widgets = Definition(f"restart.{GROUP}")
    paths = [MAPS, PODS, f"{CORE}/namespaces", CRDS, widgets.collection("default")]
    config = ApiServerConfig(data_dir=tmp_path)
    with embedded_api(config) as (_, api):
        widgets.install(api)
        api.create(widgets.collection("default"), widgets.object("w")).expect(201)
        api.create(MAPS, config_map("a", {"k": "v"})).expect(201)
        api.create(MAPS, config_map("gone")).expect(201)
        api.create(PODS, pod("p")).expect(201)
        status = {
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}
        }
        api.patch(f"{PODS}/p/status", status, MERGE).expect(200)
        api.delete(f"{MAPS}/gone").expect(200)
        before = {path: api.get(path).expect(200) for path in paths}
        (shown,) = before[PODS]["items"]
        assert shown["status"]["phase"] == "Running"
    with embedded_api(config) as (_, api):
        # The CRD is served with the first request, and nothing was written by the restart.
        for path in reversed(paths):
            assert api.get(path).expect(200) == before[path]
        made = api.create(MAPS, config_map("b")).expect(201)
        version = before[CRDS]["metadata"]["resourceVersion"]
        assert int(made["metadata"]["resourceVersion"]) == int(version) + 1
        by_field = api.get(PODS, fieldSelector="status.phase=Running").expect(200)
        assert [item["metadata"]["name"] for item in by_field["items"]] == ["p"]


def test_a_watch_of_before_is_gone_and_one_from_the_last_version_goes_on(tmp_path: Path) -> None:
    config = ApiServerConfig(data_dir=tmp_path)
    with embedded_api(config) as (_, api):
        early = api.get(MAPS).body["metadata"]["resourceVersion"]
        for name in "abc":
            api.create(MAPS, config_map(name)).expect(201)
        page = api.get(MAPS, limit=1).expect(200)
        api.create(MAPS, config_map("d")).expect(201)
        last = api.get(MAPS, limit=1).expect(200)
    with embedded_api(config) as (_, api):
        with api.watch(MAPS, resourceVersion=early) as watch:
            (event,) = watch.rest()
            assert (event.type, event.object["code"]) == ("ERROR", 410)
        with api.watch(MAPS, resourceVersion=last["metadata"]["resourceVersion"]) as watch:
            api.create(MAPS, config_map("e")).expect(201)
            assert watch.next().name == "e"
        gone = api.get(MAPS, limit=1, **{"continue": page["metadata"]["continue"]})
        assert (gone.status, gone.reason) == (410, "Expired")
        rest = api.get(MAPS, **{"continue": last["metadata"]["continue"]}).expect(200)
        assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c", "d"]


def crash(core: Core) -> None:
    """End a server whose controllers had no turn since the last write."""
    assert core.journal is not None
    core.journal.write_now()
    core.journal.abandon()


def test_the_garbage_collector_carries_on(tmp_path: Path) -> None:
    config = ApiServerConfig(data_dir=tmp_path)
    core = Core(config)
    maps = core.catalog.find("", "v1", "configmaps")
    assert maps is not None

    def make(name: str, **meta: Any) -> Any:
        obj = {"metadata": {"name": name, **meta}}
        return maps.named(core.registry.create(maps, obj, "default").decode())

    for policy in ("Background", "Foreground", "Orphan"):
        owner = make(f"owner-{policy.lower()}")
        make(f"of-{policy.lower()}", ownerReferences=owned_by(owner, blockOwnerDeletion=True))
        key = Key("default", f"owner-{policy.lower()}")
        core.registry.delete(maps, key, DeleteOptions(propagation=policy))
    make("alone")
    names = {entry.key.name for entry in core.store.list("configmaps")}
    assert {"of-background", "of-foreground", "of-orphan", "owner-foreground"} <= names
    crash(core)
    core = Core(config)
    found = {entry.key.name: entry.decode() for entry in core.store.list("configmaps")}
    assert set(found) - {"kube-root-ca.crt"} == {"alone", "of-orphan"}
    assert "ownerReferences" not in found["of-orphan"]["metadata"]
    crash(core)


def test_ends_that_were_begun_are_carried_on(tmp_path: Path) -> None:
    """Of a namespace and of a CRD, whose objects are held by a finalizer."""
    config = ApiServerConfig(data_dir=tmp_path)
    widgets = Definition(f"ends.{GROUP}")
    held = widgets.object("held")
    held["metadata"]["finalizers"] = ["test.kthena.io/hold"]
    with embedded_api(config) as (_, api):
        widgets.install(api)
        api.create(f"{CORE}/namespaces", {"metadata": {"name": "ending"}}).expect(201)
        maps = f"{CORE}/namespaces/ending/configmaps"
        api.create(maps, config_map("held", finalizers=["test.kthena.io/hold"])).expect(201)
        api.create(widgets.collection("default"), held).expect(201)
        api.delete(f"{CORE}/namespaces/ending").expect(200)
        api.delete(widgets.path).expect(200)
        eventually(lambda: "deletionTimestamp" in api.get(f"{maps}/held").body["metadata"])
    with embedded_api(config) as (_, api):
        free = {"metadata": {"finalizers": None}}
        assert api.create(widgets.collection("default"), widgets.object("late")).status == 403
        for path in (f"{maps}/held", f"{widgets.collection('default')}/held"):
            api.patch(path, free, MERGE).expect(200)
        eventually(lambda: api.get(f"{CORE}/namespaces/ending").status == 404)
        eventually(lambda: api.get(widgets.path).status == 404)


# --- crashes --------------------------------------------------------------------------------------


class Writer(threading.Thread):
    """Creates, replaces and deletes its own objects as fast as it can, until the server is gone.

    Mutable state: what each object is by the last reply (None: gone), what an unanswered request may
    have made of it, and the latest version that was seen.
    """

    def __init__(self, api: Api, prefix: str, seed: float) -> None:
        super().__init__()
        self.api = api
        self.prefix = prefix
        self.random = random.Random(seed)
        self.acknowledged: dict[str, int | None] = {}
        self.possible: dict[str, int | None] = {}
        self.latest = 0
        self.replies = 0

    def run(self) -> None:
        with contextlib.closing(self.api), contextlib.suppress(OSError, HTTPException):
            self._write()

    def _write(self) -> None:
        for number in itertools.count():
            name = f"{self.prefix}-{self.random.randrange(20)}"
            there = self.acknowledged.get(name) is not None
            action = self.random.choice(["put", "put", "delete"]) if there else "create"
            wanted = None if action == "delete" else number
            self.possible[name] = wanted
            reply = self._send(action, name, number)
            assert reply.status in (200, 201), reply
            del self.possible[name]
            self.acknowledged[name] = wanted
            self.replies += 1
            version = reply.body.get("metadata", {}).get("resourceVersion")
            self.latest = max(self.latest, int(version or 0))

    def _send(self, action: str, name: str, number: int) -> Any:
        body = config_map(name, {"number": str(number), "fill": "x" * self.random.randrange(3000)})
        if action == "delete":
            return self.api.delete(f"{MAPS}/{name}")
        return (
            self.api.create(MAPS, body)
            if action == "create"
            else self.api.put(f"{MAPS}/{name}", body)
        )


class Follower(threading.Thread):
    """A watcher. Mutable state: the versions of the events, in order."""

    def __init__(self, api: Api, version: str) -> None:
        super().__init__()
        self.watch = api.watch(MAPS, resourceVersion=version)
        self.versions: list[int] = []

    def run(self) -> None:
        # The last line may be cut off.
        with self.watch, contextlib.suppress(OSError, HTTPException, ValueError):
            for event in self.watch:
                self.versions.append(int(event.object["metadata"]["resourceVersion"]))


def _wait_for_replies(writers: list[Writer], wanted: int) -> None:
    eventually(lambda: sum(writer.replies for writer in writers) >= wanted)


def test_a_killed_server_loses_nothing_that_it_has_acknowledged(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    choose = random.Random(seed)
    known: dict[str, set[int | None]] = {}
    latest = 0
    for _ in range(11):
        with durable_server(tmp_path) as running:
            api = Api(running.server)
            listed = api.get(MAPS).expect(200)
            version = int(listed["metadata"]["resourceVersion"])
            assert version >= latest
            found = {
                item["metadata"]["name"]: int(item["data"]["number"])
                for item in listed["items"]
                if "number" in item.get("data", {})
            }
            for name, allowed in known.items():
                assert found.get(name) in allowed, name
            assert set(found) <= set(known)
            writers = [Writer(Api(running.server), f"w{n}", choose.random()) for n in range(4)]
            for writer in writers:
                writer.acknowledged = {
                    name: number
                    for name, number in found.items()
                    if name.startswith(f"{writer.prefix}-")
                }
            follower = Follower(api, str(version))
            threads = [*writers, follower]
            for thread in threads:
                thread.start()
            wanted = choose.randrange(1, 120)
            _wait_for_replies(writers, wanted)
            running.kill()
            api.close()
            for thread in threads:
                thread.join(timeout=20)
        for writer in writers:
            for name, number in writer.acknowledged.items():
                known[name] = {number}
            for name, number in writer.possible.items():
                known[name] = {writer.acknowledged.get(name), number}
            latest = max(latest, writer.latest)
        assert follower.versions == sorted(set(follower.versions))
        latest = max([latest, *follower.versions])
