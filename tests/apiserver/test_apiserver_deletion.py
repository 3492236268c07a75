"""Deletion: finalizers, grace periods, preconditions, collections."""

import pytest

from support.apiserver import CORE, Api, Definition, config_map, eventually, pod

HOLD = "test.kthena.io/hold"


@pytest.fixture
def maps(namespace: str) -> str:
    return f"{CORE}/namespaces/{namespace}/configmaps"


@pytest.fixture
def pods(namespace: str) -> str:
    return f"{CORE}/namespaces/{namespace}/pods"


def test_finalizer_holds_an_object_until_it_is_taken_off(api: Api, maps: str) -> None:
    api.create(maps, config_map("a", finalizers=[HOLD])).expect(201)
    reply = api.delete(f"{maps}/a").expect(200)
    assert reply["kind"] == "ConfigMap"
    held = api.get(f"{maps}/a").expect(200)["metadata"]
    assert held["deletionTimestamp"]
    assert held["deletionGracePeriodSeconds"] == 0
    # A second deletion changes nothing.
    api.delete(f"{maps}/a").expect(200)
    again = api.get(f"{maps}/a").expect(200)["metadata"]
    assert again["resourceVersion"] == held["resourceVersion"]
    last = api.patch(f"{maps}/a", {"metadata": {"finalizers": None}}).expect(200)
    assert last["metadata"]["deletionTimestamp"] == held["deletionTimestamp"]
    assert api.get(f"{maps}/a").status == 404


def test_watcher_sees_the_mark_and_then_the_end(api: Api, maps: str) -> None:
    api.create(maps, config_map("a", finalizers=[HOLD])).expect(201)
    version = api.get(maps).body["metadata"]["resourceVersion"]
    with api.watch(maps, resourceVersion=version) as watch:
        api.delete(f"{maps}/a").expect(200)
        api.patch(f"{maps}/a", {"metadata": {"finalizers": None}}).expect(200)
        marked, gone = watch.take(2)
    assert marked.type == "MODIFIED"
    assert marked.object["metadata"]["deletionTimestamp"]
    assert gone.type == "DELETED"
    # The last state that was stored; the update that let go was not.
    assert gone.object["metadata"]["finalizers"] == [HOLD]


def test_terminating_object_takes_no_new_finalizer(api: Api, maps: str) -> None:
    api.create(maps, config_map("a", finalizers=[HOLD])).expect(201)
    api.delete(f"{maps}/a").expect(200)
    reply = api.patch(f"{maps}/a", {"metadata": {"finalizers": [HOLD, "test.kthena.io/more"]}})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert set(reply.causes) == {("metadata.finalizers", "FieldValueForbidden")}
    # It may still change otherwise.
    api.patch(f"{maps}/a", {"data": {"k": "v"}}).expect(200)
    api.patch(f"{maps}/a", {"metadata": {"finalizers": None}}).expect(200)


def test_deletion_mark_cannot_be_taken_off(api: Api, maps: str) -> None:
    api.create(maps, config_map("a", finalizers=[HOLD])).expect(201)
    api.delete(f"{maps}/a").expect(200)
    patched = api.patch(f"{maps}/a", {"metadata": {"deletionTimestamp": None}}).expect(200)
    assert patched["metadata"]["deletionTimestamp"]
    api.patch(f"{maps}/a", {"metadata": {"finalizers": None}}).expect(200)


def test_finalizers_are_validated(api: Api, maps: str) -> None:
    reply = api.create(maps, config_map("a", finalizers=["no slash allowed!"]))
    assert (reply.status, reply.reason) == (422, "Invalid")


def test_preconditions(api: Api, maps: str) -> None:
    made = api.create(maps, config_map("a")).expect(201)
    wrong = {"preconditions": {"uid": "other"}}
    reply = api.delete(f"{maps}/a", wrong)
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert "the UID in the precondition (other) does not match the UID in record" in reply.message
    reply = api.delete(f"{maps}/a", {"preconditions": {"resourceVersion": "1"}})
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert "ResourceVersion in the precondition (1)" in reply.message
    meta = made["metadata"]
    right = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    api.delete(f"{maps}/a", {"preconditions": right}).expect(200)


def test_unbound_pod_goes_at_once(api: Api, pods: str) -> None:
    api.create(pods, pod("p")).expect(201)
    reply = api.delete(f"{pods}/p").expect(200)
    assert (reply["kind"], reply["metadata"]["name"]) == ("Pod", "p")
    assert api.get(f"{pods}/p").status == 404


def test_bound_pod_waits_for_its_node(api: Api, pods: str) -> None:
    api.create(pods, pod("p", {"nodeName": "n1"})).expect(201)
    reply = api.delete(f"{pods}/p").expect(200)
    assert reply["metadata"]["deletionGracePeriodSeconds"] == 30
    held = api.get(f"{pods}/p").expect(200)
    assert held["metadata"]["deletionTimestamp"]
    assert held["metadata"]["generation"] == 2
    # The node is done.
    api.delete(f"{pods}/p", gracePeriodSeconds=0).expect(200)
    assert api.get(f"{pods}/p").status == 404


def test_grace_period_of_the_pod_and_of_the_client(api: Api, pods: str) -> None:
    spec = {"nodeName": "n1", "terminationGracePeriodSeconds": 7}
    api.create(pods, pod("p", spec)).expect(201)
    assert api.delete(f"{pods}/p").body["metadata"]["deletionGracePeriodSeconds"] == 7
    first = api.get(f"{pods}/p").body["metadata"]
    # It can be shortened and not be lengthened.
    api.delete(f"{pods}/p", {"gracePeriodSeconds": 100}).expect(200)
    assert api.get(f"{pods}/p").body["metadata"] == first
    shorter = api.delete(f"{pods}/p", {"gracePeriodSeconds": 2}).expect(200)["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 2
    assert shorter["deletionTimestamp"] < first["deletionTimestamp"]
    api.delete(f"{pods}/p", {"gracePeriodSeconds": 0}).expect(200)
    assert api.get(f"{pods}/p").status == 404


def test_finished_pod_goes_at_once(api: Api, pods: str) -> None:
    api.create(pods, pod("p", {"nodeName": "n1", "restartPolicy": "Never"})).expect(201)
    api.patch(f"{pods}/p/status", {"status": {"phase": "Succeeded"}}).expect(200)
    api.delete(f"{pods}/p").expect(200)
    assert api.get(f"{pods}/p").status == 404


def test_finalizer_outlives_the_grace_period(api: Api, pods: str) -> None:
    api.create(pods, pod("p", {"nodeName": "n1"}, finalizers=[HOLD])).expect(201)
    api.delete(f"{pods}/p").expect(200)
    api.delete(f"{pods}/p", gracePeriodSeconds=0).expect(200)
    held = api.get(f"{pods}/p").expect(200)["metadata"]
    assert held["deletionGracePeriodSeconds"] == 0
    api.patch(f"{pods}/p", {"metadata": {"finalizers": None}}).expect(200)
    assert api.get(f"{pods}/p").status == 404


def test_finalizer_taken_off_during_the_grace_period_does_not_end_it(api: Api, pods: str) -> None:
    api.create(pods, pod("p", {"nodeName": "n1"}, finalizers=[HOLD])).expect(201)
    api.delete(f"{pods}/p").expect(200)
    api.patch(f"{pods}/p", {"metadata": {"finalizers": None}}).expect(200)
    api.get(f"{pods}/p").expect(200)
    api.delete(f"{pods}/p", gracePeriodSeconds=0).expect(200)
    assert api.get(f"{pods}/p").status == 404


def test_collection_is_deleted_by_selector(api: Api, maps: str) -> None:
    for name, group in (("a", "1"), ("b", "1"), ("c", "2")):
        api.create(maps, config_map(name, labels={"g": group})).expect(201)
    api.create(maps, config_map("held", labels={"g": "1"}, finalizers=[HOLD])).expect(201)
    body = api.delete(maps, labelSelector="g=1").expect(200)
    assert body["kind"] == "ConfigMapList"
    left = {item["metadata"]["name"] for item in api.get(maps).body["items"]}
    assert left == {"c", "held"}
    api.patch(f"{maps}/held", {"metadata": {"finalizers": None}}).expect(200)
    api.delete(maps, fieldSelector="metadata.name=nosuch").expect(200)
    assert len(api.get(maps).body["items"]) == 1
    api.delete(maps).expect(200)
    assert api.get(maps).body["items"] == []


def test_collection_of_custom_resources(api: Api, widgets: Definition, namespace: str) -> None:
    path = widgets.collection(namespace)
    for name in "ab":
        api.create(path, widgets.object(name)).expect(201)
    api.delete(path, dryRun="All").expect(200)
    assert len(api.get(path).body["items"]) == 2
    api.delete(path).expect(200)
    eventually(lambda: api.get(path).body["items"] == [])


def test_deletion_of_the_same_name_twice_is_of_two_objects(api: Api, maps: str) -> None:
    first = api.create(maps, config_map("a")).expect(201)
    api.delete(f"{maps}/a").expect(200)
    second = api.create(maps, config_map("a")).expect(201)
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    stale = {"preconditions": {"uid": first["metadata"]["uid"]}}
    assert api.delete(f"{maps}/a", stale).status == 409


def test_negative_grace_period_is_one_second(api: Api, pods: str) -> None:
    api.create(pods, pod("p", {"nodeName": "n1"})).expect(201)
    body = api.delete(f"{pods}/p", {"gracePeriodSeconds": -5}).expect(200)
    assert body["metadata"]["deletionGracePeriodSeconds"] == 1
    api.delete(f"{pods}/p", gracePeriodSeconds=0).expect(200)
