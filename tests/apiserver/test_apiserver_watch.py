"""Watches: what a client sees, from where, and how a stream ends."""

import asyncio
import itertools
import threading
import time
from typing import Any

import pytest

from kthena.local.apiserver.app import create_app
from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.core import Core
from kthena.local.apiserver.store import Store
from kthena.local.apiserver.watch import MAX_QUEUE_BYTES, Selection, WatchHub
from kthena.machinery.selectors import parse_field_selector, parse_label_selector
from support.apiserver import (
    CORE,
    JSON_PATCH,
    METADATA,
    TABLE,
    Api,
    Definition,
    Server,
    config_map,
    embedded_api,
    eventually,
    pod,
)


@pytest.fixture
def maps(namespace: str) -> str:
    return f"{CORE}/namespaces/{namespace}/configmaps"


def version_of(api: Api, path: str) -> str:
    return str(api.get(path).expect(200)["metadata"]["resourceVersion"])


def test_watch_shows_changes_in_order(api: Api, maps: str) -> None:
    with api.watch(maps, resourceVersion=version_of(api, maps)) as watch:
        made = api.create(maps, config_map("a")).expect(201)
        changed = api.patch(f"{maps}/a", {"data": {"k": "v"}}).expect(200)
        api.delete(f"{maps}/a").expect(200)
        added, modified, deleted = watch.take(3)
    assert (added.type, added.object) == ("ADDED", made)
    assert (modified.type, modified.object) == ("MODIFIED", changed)
    assert deleted.type == "DELETED"
    assert deleted.object["data"] == {"k": "v"}
    assert int(deleted.object["metadata"]["resourceVersion"]) > int(
        changed["metadata"]["resourceVersion"]
    )


def test_watch_from_a_version_repeats_what_came_after(api: Api, maps: str) -> None:
    api.create(maps, config_map("old")).expect(201)
    version = version_of(api, maps)
    api.create(maps, config_map("a")).expect(201)
    api.patch(f"{maps}/a", {"data": {"k": "v"}}).expect(200)
    api.delete(f"{maps}/old").expect(200)
    with api.watch(maps, resourceVersion=version) as watch:
        events = [(event.type, event.name) for event in watch.take(3)]
        assert events == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "old")]
        api.create(maps, config_map("b")).expect(201)
        assert watch.next().name == "b"


@pytest.mark.parametrize("version", [None, "0"])
def test_watch_without_a_version_starts_with_what_is_there(
    api: Api, maps: str, version: str | None
) -> None:
    api.create(maps, config_map("a")).expect(201)
    api.create(maps, config_map("b")).expect(201)
    # A real server answers version 0 from a cache that may be a moment behind.
    version_of(api, maps)
    query = {} if version is None else {"resourceVersion": version}
    with api.watch(maps, **query) as watch:
        assert [(event.type, event.name) for event in watch.take(2)] == [
            ("ADDED", "a"),
            ("ADDED", "b"),
        ]
        api.delete(f"{maps}/a").expect(200)
        assert (watch.next().type) == "DELETED"


def test_watch_list_marks_the_end_of_the_initial_events(api: Api, maps: str) -> None:
    api.create(maps, config_map("a")).expect(201)
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    with api.watch(maps, **query) as watch:
        added, mark = watch.take(2)
        assert (added.type, added.name) == ("ADDED", "a")
        assert (mark.type, mark.object["kind"]) == ("BOOKMARK", "ConfigMap")
        meta = mark.object["metadata"]
        assert meta["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(meta["resourceVersion"]) >= int(added.object["metadata"]["resourceVersion"])
        api.create(maps, config_map("b")).expect(201)
        assert watch.next().name == "b"


def test_watch_without_initial_events_starts_now(api: Api, maps: str) -> None:
    api.create(maps, config_map("a")).expect(201)
    query = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}
    with api.watch(maps, **query) as watch:
        api.create(maps, config_map("b")).expect(201)
        assert watch.next().name == "b"


def test_object_that_enters_a_selector_is_added_and_one_that_leaves_is_deleted(
    api: Api, maps: str
) -> None:
    api.create(maps, config_map("a", labels={"on": "no"})).expect(201)
    version = version_of(api, maps)
    with api.watch(maps, resourceVersion=version, labelSelector="on=yes") as watch:
        entered = api.patch(f"{maps}/a", {"metadata": {"labels": {"on": "yes"}}}).expect(200)
        within = api.patch(f"{maps}/a", {"data": {"k": "1"}}).expect(200)
        left = api.patch(f"{maps}/a", {"metadata": {"labels": {"on": "no"}}}).expect(200)
        api.patch(f"{maps}/a", {"data": {"k": "2"}}).expect(200)
        back = api.patch(f"{maps}/a", {"metadata": {"labels": {"on": "yes"}}}).expect(200)
        events = watch.take(4)
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
    assert (events[0].object, events[1].object, events[3].object) == (entered, within, back)
    # The last state that matched, at the version at which it stopped to match.
    gone = events[2].object
    assert gone["metadata"]["labels"] == {"on": "yes"}
    assert gone["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


def test_deletion_outside_a_selector_is_not_seen(api: Api, maps: str) -> None:
    api.create(maps, config_map("a", labels={"on": "no"})).expect(201)
    version = version_of(api, maps)
    with api.watch(maps, resourceVersion=version, labelSelector="on=yes") as watch:
        api.delete(f"{maps}/a").expect(200)
        api.create(maps, config_map("b", labels={"on": "yes"})).expect(201)
        assert watch.next().name == "b"


def test_watch_by_field(api: Api, namespace: str) -> None:
    pods = f"{CORE}/namespaces/{namespace}/pods"
    api.create(pods, pod("p")).expect(201)
    version = version_of(api, pods)
    with api.watch(pods, resourceVersion=version, fieldSelector="spec.nodeName=n1") as watch:
        binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
        api.create(f"{pods}/p/binding", binding).expect(201)
        event = watch.next()
    assert (event.type, event.name) == ("ADDED", "p")


def test_watch_of_one_object(api: Api, maps: str) -> None:
    api.create(maps, config_map("a")).expect(201)
    api.create(maps, config_map("b")).expect(201)
    version = version_of(api, maps)
    with api.watch(maps, resourceVersion=version, fieldSelector="metadata.name=b") as watch:
        api.patch(f"{maps}/a", {"data": {"k": "1"}}).expect(200)
        api.patch(f"{maps}/b", {"data": {"k": "1"}}).expect(200)
        assert watch.next().name == "b"


def test_watch_of_all_namespaces(api: Api, maps: str, namespace: str) -> None:
    everywhere = f"{CORE}/configmaps"
    version = version_of(api, everywhere)
    with api.watch(everywhere, resourceVersion=version, labelSelector="w=yes") as watch:
        api.create(maps, config_map("a", labels={"w": "yes"})).expect(201)
        event = watch.next()
    assert event.object["metadata"]["namespace"] == namespace


def test_watch_of_a_namespace_is_blind_to_others(api: Api, maps: str) -> None:
    with api.watch(maps, resourceVersion=version_of(api, maps)) as watch:
        other = f"{CORE}/namespaces/default/configmaps"
        name = maps.split("/")[4]
        api.create(other, config_map(name)).expect(201)
        api.delete(f"{other}/{name}").expect(200)
        api.create(maps, config_map("mine")).expect(201)
        assert watch.next().name == "mine"


def test_no_change_is_no_event(api: Api, maps: str) -> None:
    api.create(maps, config_map("a", {"k": "v"})).expect(201)
    with api.watch(maps, resourceVersion=version_of(api, maps)) as watch:
        api.patch(f"{maps}/a", {"data": {"k": "v"}}).expect(200)
        api.patch(f"{maps}/a", {"data": {"k": "w"}}).expect(200)
        assert watch.next().object["data"] == {"k": "w"}


def test_watch_ends_at_its_time(api: Api, maps: str) -> None:
    started = time.monotonic()
    with api.watch(maps, timeoutSeconds=1, resourceVersion=version_of(api, maps)) as watch:
        assert watch.rest() == []
    assert 0.5 < time.monotonic() - started < 15


def test_bookmark_comes_at_the_end_when_wanted(api: Api, maps: str) -> None:
    api.create(maps, config_map("a")).expect(201)
    version = version_of(api, maps)
    # kube-apiserver sends it two seconds before the end, and on a busy machine not before that.
    query = {"allowWatchBookmarks": "true", "timeoutSeconds": "7", "resourceVersion": version}
    with api.watch(maps, **query) as watch:
        events = watch.rest()
    # A busy server may send one in between, too.
    assert {event.type for event in events} == {"BOOKMARK"}
    assert int(events[0].object["metadata"]["resourceVersion"]) >= int(version)


def test_future_version_waits_or_fails_but_shows_nothing_old(
    api: Api, maps: str, server: Server
) -> None:
    api.create(maps, config_map("a")).expect(201)
    future = str(int(version_of(api, maps)) + 1_000_000)
    with api.watch(maps, resourceVersion=future, timeoutSeconds=1) as watch:
        assert [event.type for event in watch.rest() if event.type != "ERROR"] == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"resourceVersion": "x"}, 500),
        ({"labelSelector": "a in"}, 400),
        ({"sendInitialEvents": "true"}, 422),
        ({"resourceVersionMatch": "NotOlderThan"}, 422),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "1"}, 422),
        ({"sendInitialEvents": "true", "resourceVersionMatch": "Exact"}, 422),
        ({"continue": "abc"}, 422),
        ({"timeoutSeconds": "x"}, 400),
        ({"fieldSelector": "spec.x=y"}, 400),
    ],
)
def test_wrong_options_are_refused_before_the_stream(
    api: Api, maps: str, query: dict[str, str], status: int
) -> None:
    assert api.get(maps, watch="true", **{"timeoutSeconds": "2", **query}).status == status


def test_events_as_metadata(api: Api, maps: str) -> None:
    with api.watch(maps, accept=METADATA, resourceVersion=version_of(api, maps)) as watch:
        api.create(maps, config_map("a", {"k": "v"})).expect(201)
        event = watch.next()
    assert event.object["kind"] == "PartialObjectMetadata"
    assert event.object["apiVersion"] == "meta.k8s.io/v1"
    assert "data" not in event.object


def test_events_as_tables_name_the_columns_once(api: Api, maps: str) -> None:
    with api.watch(maps, accept=TABLE, resourceVersion=version_of(api, maps)) as watch:
        api.create(maps, config_map("a", {"k": "v"})).expect(201)
        api.create(maps, config_map("b")).expect(201)
        first, second = watch.take(2)
    assert [column["name"] for column in first.object["columnDefinitions"]] == [
        "Name",
        "Data",
        "Age",
    ]
    assert first.object["rows"][0]["cells"][:2] == ["a", 1]
    assert second.object["columnDefinitions"] is None
    assert second.object["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


def test_custom_resources_are_watched(api: Api, widgets: Definition, namespace: str) -> None:
    path = widgets.collection(namespace)
    with api.watch(path, resourceVersion=version_of(api, path)) as watch:
        made = api.create(path, widgets.object("w")).expect(201)
        assert watch.next().object == made


@pytest.mark.parametrize(
    ("patch", "ends"),
    [
        ([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}], False),
        ([{"op": "add", "path": "/spec/names/categories", "value": ["all"]}], True),
        ([{"op": "add", "path": "/spec/versions/0/additionalPrinterColumns",
           "value": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]}], True),
    ],
)  # fmt: skip
def test_watches_end_soon_after_a_change_of_their_definition(
    api: Api, widgets: Definition, namespace: str, patch: Any, ends: bool
) -> None:
    path = widgets.collection(namespace)
    # A real server takes a moment for the first object of a definition.
    made = api.create(path, widgets.object("w")).expect(201)
    with api.watch(path, timeoutSeconds="2") as watch:
        assert watch.next().object == made
        api.patch(widgets.path, patch, JSON_PATCH).expect(200)
        started = time.monotonic()
        # The end comes without a word.
        assert watch.rest() == []
        took = time.monotonic() - started
    assert (0.5 < took < 1.7) == ends


def test_watch_begun_after_a_change_of_its_definition_goes_on(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = widgets.collection(namespace)
    change = [{"op": "add", "path": "/spec/names/categories", "value": ["all"]}]
    api.patch(widgets.path, change, JSON_PATCH).expect(200)
    eventually(lambda: api.get(widgets.path).body["status"]["acceptedNames"].get("categories"))
    # A real server reads its objects anew, and asks for patience meanwhile.
    eventually(lambda: api.get(path).status == 200)
    with api.watch(path, resourceVersion=version_of(api, path)) as watch:
        time.sleep(1.5)
        api.create(path, widgets.object("w")).expect(201)
        assert watch.next().name == "w"


def test_watch_of_everything_at_once_and_in_order(api: Api, maps: str) -> None:
    """Selectors see what moves between them; a watch without one sees each step once."""
    version = version_of(api, maps)
    selectors = ["", "on=yes", "on!=yes", "on", "!on", "on in (yes,no)"]
    watches = [api.watch(maps, resourceVersion=version, labelSelector=each) for each in selectors]
    api.create(maps, config_map("a")).expect(201)
    for labels in ({"on": "yes"}, {"on": "no"}, {"on": None}):
        api.patch(f"{maps}/a", {"metadata": {"labels": labels}}).expect(200)
    api.delete(f"{maps}/a").expect(200)
    api.create(maps, config_map("last", labels={"on": "yes"})).expect(201)
    api.create(maps, config_map("final")).expect(201)
    seen = []
    for watch in watches:
        with watch:
            # Each selector lets one of the two last ones through.
            events = itertools.takewhile(lambda e: e.name == "a", watch)
            seen.append([event.type for event in events])
    assert seen == [
        ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"],
        ["ADDED", "DELETED"],
        ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"],
        ["ADDED", "MODIFIED", "DELETED"],
        ["ADDED", "DELETED", "ADDED", "DELETED"],
        ["ADDED", "MODIFIED", "DELETED"],
    ]


def test_initial_events_of_a_selector_end_with_a_mark_too(api: Api, maps: str) -> None:
    api.create(maps, config_map("a", labels={"on": "yes"})).expect(201)
    api.create(maps, config_map("b", labels={"on": "no"})).expect(201)
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "labelSelector": "on=yes",
    }
    with api.watch(maps, accept=METADATA, **query) as watch:
        added, mark = watch.take(2)
        assert (added.type, added.name) == ("ADDED", "a")
        assert mark.type == "BOOKMARK"
        assert set(mark.object) == {"kind", "apiVersion", "metadata"}
        assert mark.object["kind"] == "PartialObjectMetadata"
        api.patch(f"{maps}/b", {"metadata": {"labels": {"on": "yes"}}}).expect(200)
        entered = watch.next()
        assert (entered.type, entered.name) == ("ADDED", "b")


def test_many_watchers_see_the_same(api: Api, maps: str) -> None:
    version = version_of(api, maps)
    watches = [api.watch(maps, resourceVersion=version) for _ in range(20)]
    for index in range(10):
        api.create(maps, config_map(f"m{index}")).expect(201)
    for watch in watches:
        with watch:
            assert [event.name for event in watch.take(10)] == [f"m{i}" for i in range(10)]


def test_watch_of_a_namespace_that_does_not_exist(api: Api, unique: str) -> None:
    path = f"{CORE}/namespaces/{unique}x/configmaps"
    with api.watch(path, timeoutSeconds=1) as watch:
        assert watch.rest() == []


# --- what only a server with small limits shows ---------------------------------------------------


def test_version_that_is_forgotten_is_gone() -> None:
    with embedded_api(ApiServerConfig(log_length=5)) as (_, api):
        maps = f"{CORE}/namespaces/default/configmaps"
        api.create(maps, config_map("a")).expect(201)
        version = version_of(api, maps)
        for index in range(10):
            api.patch(f"{maps}/a", {"data": {"k": str(index)}}).expect(200)
        with api.watch(maps, resourceVersion=version) as watch:
            (event,) = watch.rest()
        assert event.type == "ERROR"
        assert (event.object["code"], event.object["reason"]) == (410, "Expired")
        assert event.object["message"].startswith(f"too old resource version: {version} (")
        exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
        reply = api.get(maps, **exact)
        assert (reply.status, reply.reason) == (410, "Expired")


def test_page_that_is_forgotten_is_gone_and_says_how_to_go_on() -> None:
    with embedded_api(ApiServerConfig(log_length=5)) as (_, api):
        maps = f"{CORE}/namespaces/default/configmaps"
        for name in "abc":
            api.create(maps, config_map(name)).expect(201)
        token = api.get(maps, limit=1).body["metadata"]["continue"]
        for index in range(10):
            api.patch(f"{maps}/a", {"data": {"k": str(index)}}).expect(200)
        reply = api.get(maps, limit=1, **{"continue": token})
        assert (reply.status, reply.reason) == (410, "Expired")
        assert "The provided continue parameter is too old" in reply.message
        again = reply.body["metadata"]["continue"]
        body = api.get(maps, **{"continue": again}).expect(200)
        assert [item["metadata"]["name"] for item in body["items"]] == ["b", "c"]


def test_bookmarks_come_regularly() -> None:
    with embedded_api(ApiServerConfig(bookmark_interval_s=0.05)) as (_, api):
        maps = f"{CORE}/namespaces/default/configmaps"
        with api.watch(maps, allowWatchBookmarks="true", resourceVersion="1") as watch:
            first = watch.next()
            assert first.type == "BOOKMARK"
            api.create(f"{CORE}/namespaces/default/secrets", {"metadata": {"name": "s"}}).expect(
                201
            )

            # Changes of other kinds move the bookmark too, so that a quiet watch never gets old.
            def moved() -> bool:
                event = watch.next()
                before = int(first.object["metadata"]["resourceVersion"])
                return int(event.object["metadata"]["resourceVersion"]) > before

            eventually(moved)


def test_watcher_that_does_not_read_is_dropped_and_harms_nobody() -> None:
    with embedded_api(ApiServerConfig(watch_queue_length=50)) as (server, api):
        maps = f"{CORE}/namespaces/default/configmaps"
        version = version_of(api, maps)
        # Both ends buffer some megabytes; a watcher falls behind only when they are full.
        slow = api.connect()
        target = f"{maps}?watch=true&resourceVersion={version}"
        slow.putrequest("GET", target)
        slow.putheader("Authorization", f"Bearer {server.config.token}")
        slow.endheaders()
        seen: list[str] = []
        good = api.watch(maps, resourceVersion=version)
        reader = threading.Thread(target=lambda: seen.extend(e.name for e in good.take(300)))
        reader.start()
        payload = {"k": "x" * 100_000}
        for index in range(300):
            api.create(maps, config_map(f"m{index}", payload)).expect(201)
        reader.join(timeout=30)
        assert seen == [f"m{index}" for index in range(300)]
        good.close()
        eventually(lambda: len(server.core.hub) == 0)
        slow.close()


async def test_queue_of_a_watcher_is_bounded_by_size_as_well() -> None:
    store, hub = Store(), WatchHub()
    store.observe(hub.publish)
    selection = Selection("", parse_label_selector(""), parse_field_selector(""))
    watcher = hub.add("things", selection, 0)
    text = "y" * 1_000_000
    for index in range(MAX_QUEUE_BYTES // len(text) + 2):
        assert not watcher.closed
        meta = {"name": f"a{index}", "uid": f"u{index}"}
        store.create("things", {"metadata": meta, "x": text})
    assert watcher.closed
    assert (len(hub), await watcher.wait(0)) == (0, [])


def test_client_that_leaves_is_forgotten() -> None:
    with embedded_api() as (server, api):
        watches = [api.watch(f"{CORE}/configmaps", resourceVersion="1") for _ in range(5)]
        eventually(lambda: len(server.core.hub) == 5)
        for watch in watches:
            watch.close()
        eventually(lambda: len(server.core.hub) == 0)


async def test_what_is_pending_is_sent_before_the_end() -> None:
    core = Core(ApiServerConfig(token="secret"))
    sent: list[bytes] = []
    opened, sending, read = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def send(message: Any) -> None:
        """A client that takes its time to read the first event."""
        sent.append(message.get("body", b""))
        opened.set()
        if b'"name":"first"' in sent[-1]:
            sending.set()
            await read.wait()

    async def receive() -> Any:
        await asyncio.Event().wait()

    path = f"{CORE}/configmaps"
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"watch=true&resourceVersion=1",
        "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer secret")],
    }
    running = asyncio.create_task(create_app(core)(scope, receive, send))
    await opened.wait()
    kind = core.catalog.find("", "v1", "configmaps")
    assert kind is not None
    core.registry.create(kind, {"metadata": {"name": "first"}}, "default")
    await sending.wait()
    core.registry.create(kind, {"metadata": {"name": "last"}}, "default")
    core.hub.close_bucket(kind.bucket)
    read.set()
    await running
    assert b'"name":"last"' in b"".join(sent)


def test_stop_of_the_server_ends_watches_in_good_order() -> None:
    with embedded_api() as (server, api):
        watch = api.watch(f"{CORE}/configmaps", resourceVersion="1")
        eventually(lambda: len(server.core.hub) == 1)
        started = time.monotonic()
    with watch:
        assert watch.rest() == []
    assert time.monotonic() - started < 5
    with pytest.raises(ConnectionRefusedError):
        api.get("/readyz")
