"""The store: revisions, compare-and-set, the log, and lists of the past."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kthena.local.apiserver.store import (
    MAX_LOG_BYTES,
    MAX_OBJECT_BYTES,
    Change,
    ChangeType,
    Entry,
    Key,
    KeyExistsError,
    ObjectTooLargeError,
    RevisionConflictError,
    RevisionGoneError,
    Store,
    encode,
)


def thing(name: str, namespace: str = "ns", **more: Any) -> Any:
    return {"metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"}, **more}


def test_each_change_takes_the_next_revision() -> None:
    store = Store()
    first = store.create("things", thing("a"))
    second = store.update("things", thing("a", x=1), first)
    third = store.delete("things", second)
    assert [first.revision, second.revision, third.revision] == [2, 3, 4]
    assert store.revision == 4
    assert first.decode()["metadata"]["resourceVersion"] == "2"
    assert third.decode()["metadata"]["resourceVersion"] == "4"
    assert store.get("things", Key("ns", "a")) is None


def test_update_without_a_change_is_none() -> None:
    store = Store()
    entry = store.create("things", thing("a", x=1))
    assert store.update("things", thing("a", x=1), entry) is entry
    assert store.revision == entry.revision


def test_compare_and_set() -> None:
    store = Store()
    stale = store.create("things", thing("a"))
    fresh = store.update("things", thing("a", x=1), stale)
    with pytest.raises(RevisionConflictError):
        store.update("things", thing("a", x=2), stale)
    with pytest.raises(RevisionConflictError):
        store.delete("things", stale)
    with pytest.raises(KeyExistsError):
        store.create("things", thing("a"))
    store.delete("things", fresh)
    with pytest.raises(RevisionConflictError):
        store.update("things", thing("a", x=2), fresh)


def test_log_forgets_by_size_as_well() -> None:
    store = Store()
    entry = store.create("things", thing("a"))
    text = "y" * 1_000_000
    kept = MAX_LOG_BYTES // len(text)
    for index in range(2 * kept):
        entry = store.update("things", thing("a", x=text, index=index), entry)
    assert len(store.changes_since("things", store.revision - kept + 1)) == kept - 1
    with pytest.raises(RevisionGoneError):
        store.changes_since("things", store.revision - kept - 1)


def test_buckets_and_namespaces_are_apart() -> None:
    store = Store()
    store.create("things", thing("a", "x"))
    store.create("things", thing("a", "x-y"))
    store.create("things", thing("b", "x"))
    store.create("others", thing("a", "x"))
    assert [e.key for e in store.list("things", "x")] == [Key("x", "a"), Key("x", "b")]
    assert len(store.list("things")) == 3
    assert sorted(store.buckets()) == ["others", "things"]
    assert store.count("others") == 1


def test_large_objects_are_refused_but_can_always_be_deleted() -> None:
    store = Store()
    with pytest.raises(ObjectTooLargeError):
        store.create("things", thing("a", x="y" * MAX_OBJECT_BYTES))
    empty = len(encode({"metadata": {"resourceVersion": "2"}, "x": ""}))
    size = MAX_OBJECT_BYTES - len(encode(thing("a", x=""))) - len(',"resourceVersion":"9"')
    entry = store.create("things", thing("a", x="y" * size))
    assert empty < len(entry.data) == MAX_OBJECT_BYTES
    for index in range(20):
        store.create("others", thing(f"o{index}"))
    store.delete("things", entry)
    assert store.count("things") == 0


def test_observers_see_each_change_in_order() -> None:
    store = Store()
    seen: list[tuple[ChangeType, Any]] = []
    store.observe(lambda change, obj: seen.append((change.type, copy.deepcopy(obj))))
    entry = store.create("things", thing("a"))
    entry = store.update("things", thing("a", x=1), entry)
    store.delete("things", entry)
    assert [kind for kind, _ in seen] == [
        ChangeType.ADDED,
        ChangeType.MODIFIED,
        ChangeType.DELETED,
    ]
    assert [obj["metadata"]["resourceVersion"] for _, obj in seen] == ["2", "3", "4"]


def test_log_forgets_the_oldest() -> None:
    store = Store(log_length=3)
    entry = store.create("things", thing("a"))
    for index in range(5):
        entry = store.update("things", thing("a", x=index), entry)
    assert [c.revision for c in store.changes_since("things", 4)] == [5, 6, 7]
    with pytest.raises(RevisionGoneError) as caught:
        store.changes_since("things", 3)
    assert caught.value.oldest == 4
    # Another bucket has its own log.
    store.create("others", thing("a"))
    assert len(store.changes_since("things", 4)) == 3


def test_fields_and_labels_are_kept_with_the_entry() -> None:
    store = Store()
    obj = thing("a")
    obj["metadata"]["labels"] = {"x": "y"}
    entry = store.create("things", obj, {"spec.nodeName": "n"})
    assert entry.labels == {"x": "y"}
    names = ("metadata.name", "metadata.namespace", "spec.nodeName", "nosuch")
    assert [entry.field(name) for name in names] == ["a", "ns", "n", ""]


def test_numbers_are_written_as_go_does() -> None:
    assert encode({"a": 1.0, "b": [2.5, 3.0], "c": 1e30}) == b'{"a":1,"b":[2.5,3],"c":1e30}'


_STEPS = st.lists(
    st.tuples(st.sampled_from("cud"), st.sampled_from(["x", "y"]), st.sampled_from("abc")),
    max_size=40,
)


@settings(max_examples=200)
@given(steps=_STEPS, log_length=st.integers(1, 50))
def test_past_is_shown_as_it_was_or_not_at_all(
    steps: list[tuple[str, str, str]], log_length: int
) -> None:
    store = Store(log_length=log_length)
    history: dict[int, dict[Key, bytes]] = {store.revision: {}}
    changes: list[Change] = []
    store.observe(lambda change, _: changes.append(change))

    def snapshot(entries: Any) -> dict[Key, bytes]:
        return {entry.key: entry.data for entry in entries}

    for index, (step, namespace, name) in enumerate(steps):
        key = Key(namespace, name)
        entry = store.get("things", key)
        if step == "d" and entry:
            store.delete("things", entry)
        elif step == "u" and entry:
            store.update("things", thing(name, namespace, x=index), entry)
        elif step == "c" and not entry:
            store.create("things", thing(name, namespace, x=index))
        history[store.revision] = snapshot(store.list("things"))

    # The log holds the newest changes; what lies before the oldest of them is forgotten.
    forgotten = changes[:-log_length]
    oldest = forgotten[-1].revision if forgotten else 0
    for revision, expected in history.items():
        if revision < oldest:
            with pytest.raises(RevisionGoneError):
                store.list_at("things", revision)
            with pytest.raises(RevisionGoneError):
                store.changes_since("things", revision)
            continue
        past = store.list_at("things", revision)
        newer = store.changes_since("things", revision)
        assert snapshot(past) == expected
        assert [entry.key for entry in past] == sorted(entry.key for entry in past)
        assert list(newer) == [change for change in changes if change.revision > revision]
        for namespace in ("x", "y"):
            part = store.list_at("things", revision, namespace)
            assert snapshot(part) == {k: d for k, d in expected.items() if k.namespace == namespace}


def test_entries_decode_to_fresh_objects() -> None:
    store = Store()
    entry: Entry = store.create("things", thing("a", x=[1]))
    entry.decode()["x"].append(2)
    assert entry.decode()["x"] == [1]
    assert msgspec.json.decode(entry.data)["x"] == [1]
