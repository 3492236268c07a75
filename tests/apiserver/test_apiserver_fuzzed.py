"""What the fuzzer has found once: each was a difference between the two servers."""

import base64
import json
from typing import Any

import pytest

from support.apiserver import (
    CORE,
    JSON_PATCH,
    MERGE,
    METADATA_LIST,
    STRATEGIC,
    Api,
    Definition,
    config_map,
    eventually,
    pod,
)

APPS = "/apis/apps/v1"


@pytest.fixture
def maps(api: Api, namespace: str) -> str:
    """A collection with two ConfigMaps."""
    path = f"{CORE}/namespaces/{namespace}/configmaps"
    for name in ("a", "b"):
        api.create(path, config_map(name, {"k": "v"})).expect(201)
    return path


def _start(token: str) -> str:
    padded = token + "=" * (-len(token) % 4)
    return str(json.loads(base64.urlsafe_b64decode(padded))["start"])


def test_a_token_names_the_place_within_the_namespace(api: Api, maps: str, namespace: str) -> None:
    token = api.get(maps, limit=1).expect(200)["metadata"]["continue"]
    assert _start(token) == "/a\0"
    events = f"{CORE}/namespaces/{namespace}/events"
    for name in ("a", "b"):
        event = {"metadata": {"name": name}, "involvedObject": {"namespace": namespace}}
        api.create(events, event).expect(201)
    token = api.get(events, limit=1).expect(200)["metadata"]["continue"]
    assert _start(token) == "a\0"
    names = [
        item["metadata"]["name"] for item in api.get(events, **{"continue": token}).body["items"]
    ]
    assert names == ["b"]


def test_a_deleted_collection_is_shown_as_it_was_found(api: Api, maps: str) -> None:
    before = api.get(maps).expect(200)["items"]
    assert api.delete(maps).expect(200)["items"] == before
    assert api.get(maps).expect(200)["items"] == []


def test_an_empty_list_of_metadata_is_null(api: Api, widgets: Definition, namespace: str) -> None:
    reply = api.get(widgets.collection(namespace), accept=METADATA_LIST).expect(200)
    assert reply["items"] is None
    assert "continue" not in reply["metadata"]


@pytest.mark.parametrize(
    ("operation", "validation", "message"),
    [
        (5, "Warn", "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
        (5, "Ignore", "json: cannot unmarshal number into Go value of type jsonpatch.Operation"),
        ({"op": 5}, "Strict", "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"),
    ],
)  # fmt: skip
def test_operations_that_are_none(api: Api, maps: str, operation: Any, validation: str, message: str) -> None:  # fmt: skip
    reply = api.patch(f"{maps}/a", [operation], JSON_PATCH, fieldValidation=validation)
    assert (reply.status, reply.message) == (400, message)


def test_unknown_fields_of_operations_are_told(api: Api, maps: str) -> None:
    operation = {"op": "add", "path": "/data/x", "value": "y", "bogus": 1}
    reply = api.patch(f"{maps}/a", [operation], JSON_PATCH)
    assert (reply.status, reply.warnings) == (200, ['json patch unknown field "[0].bogus"'])
    assert api.patch(f"{maps}/a", [operation], JSON_PATCH, fieldValidation="Strict").status == 422


def test_a_patch_of_nothing_is_not_read(api: Api, maps: str) -> None:
    for kind in (MERGE, JSON_PATCH, STRATEGIC):
        assert api.patch(f"{maps}/none", 5, kind).status == 404
        assert api.patch(f"{maps}/a", 5, kind).status == 400


def test_a_strategic_patch_may_say_any_kind(api: Api, maps: str) -> None:
    api.patch(f"{maps}/a", {"kind": "Bogus", "apiVersion": "v9"}, STRATEGIC).expect(200)
    reply = api.patch(f"{maps}/a", {"kind": 5}, STRATEGIC)
    assert reply.causes == [("patch", "FieldValueInvalid")]
    assert reply.message.endswith("cannot convert int64 to string")
    reply = api.patch(f"{maps}/a", {"$patch": "replace"}, STRATEGIC)
    assert (reply.status, "name must be provided" in reply.message) == (400, True)
    reply = api.patch(f"{maps}/a", {"apiVersion": "a/b/c"}, MERGE)
    assert (reply.status, "unexpected GroupVersion string: a/b/c" in reply.message) == (422, True)


def test_version_zero_is_none(api: Api, maps: str, widgets: Definition, namespace: str) -> None:
    api.create(maps, config_map("c", resourceVersion="0")).expect(201)
    api.create(maps, config_map("d", resourceVersion="x")).expect(201)
    api.patch(f"{maps}/c", {"metadata": {"resourceVersion": "0", "labels": {"a": "b"}}}).expect(200)
    path = widgets.collection(namespace)
    api.create(path, widgets.object("w")).expect(201)
    reply = api.patch(f"{path}/w", {"metadata": {"resourceVersion": "0"}})
    assert (reply.status, reply.causes) == (
        422,
        [("metadata.resourceVersion", "FieldValueInvalid")],
    )


def test_a_self_link_is_not_kept(api: Api, widgets: Definition, namespace: str) -> None:
    path = widgets.collection(namespace)
    before = api.create(path, widgets.object("w")).expect(201)
    after = api.patch(f"{path}/w", {"metadata": {"selfLink": "/x"}}).expect(200)
    assert "selfLink" not in after["metadata"]
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_the_path_of_a_created_custom_resource_may_have_any_name(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = widgets.collection(namespace)
    assert api.create(f"{path}/other", widgets.object("w")).expect(201)["metadata"]["name"] == "w"
    headers = {"Content-Type": "text/plain"}
    assert api.request("POST", f"{path}/other", b"{}", headers=headers).status == 415
    assert api.request("PATCH", path, b"{}", headers=headers).status == 415
    assert api.request("PUT", path, b"{}", headers=headers).status == 400
    # Of an update the options come first.
    query = {"fieldManager": "x" * 130}
    assert api.request("PUT", f"{path}/w", b"{}", query=query, headers=headers).status == 422
    assert api.request("POST", path, b"{}", query=query, headers=headers).status == 415


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"kind": "Bogus"}, 'no kind "Bogus" is registered for version "meta.k8s.io/v1" in scheme "pkg/runtime/scheme.go:111"'),
        ({"kind": 5}, "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string"),
        ({"apiVersion": "a/b/c"}, "unexpected GroupVersion string: a/b/c"),
        ([], ("couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion "
             'string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }')),
    ],
)  # fmt: skip
def test_options_of_a_deletion_that_cannot_be_read(api: Api, maps: str, body: Any, message: str) -> None:  # fmt: skip
    reply = api.delete(f"{maps}/a", body)
    assert (reply.status, reply.message) == (400, message)


def test_a_mistake_in_metadata_is_told_as_often_as_it_is_found(api: Api, maps: str) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "", "uid": "x"}
    change = {"metadata": {"ownerReferences": [owner]}}
    reply = api.patch(f"{maps}/a", change)
    assert reply.causes == [("metadata.ownerReferences.name", "FieldValueInvalid")] * 4


def test_references_with_one_uid_and_an_unknown_kind_decide_nothing(api: Api, maps: str) -> None:
    known = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1-2-3"}
    unknown = {**known, "apiVersion": "nobody.example.com/v1", "kind": "Nothing"}
    api.create(maps, config_map("held", ownerReferences=[unknown, known])).expect(201)
    api.create(maps, config_map("free", ownerReferences=[known])).expect(201)
    eventually(lambda: api.get(f"{maps}/free").status == 404)
    api.get(f"{maps}/held").expect(200)


def test_events_have_no_owners_and_no_dependents(api: Api, maps: str, namespace: str) -> None:
    path = f"{CORE}/namespaces/{namespace}/events"
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1-2-3"}
    event = {
        "metadata": {"name": "e", "ownerReferences": [gone]},
        "involvedObject": {"namespace": namespace},
    }
    api.create(path, event).expect(201)
    api.create(maps, config_map("free", ownerReferences=[gone])).expect(201)
    eventually(lambda: api.get(f"{maps}/free").status == 404)
    api.get(f"{path}/e").expect(200)
    assert (
        api.delete(f"{path}/e", {"propagationPolicy": "Foreground"}).expect(200)["status"]
        == "Success"
    )


def test_events_are_checked_by_rules_of_their_own(api: Api, namespace: str) -> None:
    reply = api.create(f"{CORE}/namespaces/{namespace}/events", {"metadata": {}})
    assert reply.causes == [("involvedObject.namespace", "FieldValueInvalid")]
    reply = api.create(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", {"metadata": {}})
    assert [field for field, _ in reply.causes][:2] == ["involvedObject.namespace", "metadata.name"]


def test_what_admission_and_conversion_make_of_a_pod(api: Api, namespace: str) -> None:
    path = f"{CORE}/namespaces/{namespace}/pods"
    spec = {"schedulingGates": [{"name": "a/b"}], "terminationGracePeriodSeconds": -1}
    made = api.create(path, pod("p", spec)).expect(201)
    assert made["spec"]["terminationGracePeriodSeconds"] == 1
    tolerated = [
        (entry["key"], entry["tolerationSeconds"]) for entry in made["spec"]["tolerations"]
    ]
    assert tolerated == [
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    ]
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")
    # A gated pod may ask for more of its node, and lose gates, but get none.
    api.patch(f"{path}/p", {"spec": {"nodeSelector": {"disk": "ssd"}}}).expect(200)
    reply = api.patch(f"{path}/p", {"spec": {"nodeSelector": {"disk": "hdd"}}})
    assert reply.causes == [("spec.nodeSelector", "FieldValueInvalid")]
    reply = api.patch(f"{path}/p", {"spec": {"schedulingGates": [{"name": "c/d"}]}})
    assert reply.causes == [("spec.schedulingGates[0].name", "FieldValueForbidden")]
    reply = api.create(path, pod("q", {"schedulingGates": [{"name": "a b"}]}))
    assert reply.causes == [("spec.schedulingGates[0]", "FieldValueInvalid")]


def test_pods_with_odd_containers_come_with_warnings(api: Api, namespace: str) -> None:
    container = {
        "name": "main",
        "image": "x",
        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        "ports": [{"containerPort": 80, "name": "p"}, {"containerPort": 80, "hostPort": 90}],
        "resources": {"limits": {"memory": "100m"}},
    }
    spec = {"containers": [container], "imagePullSecrets": [{"name": "s"}, {"name": "s"}]}
    reply = api.create(f"{CORE}/namespaces/{namespace}/pods", pod("p", spec))
    assert reply.warnings == [
        'spec.imagePullSecrets[1].name: duplicate name "s"',
        'spec.containers[0].resources.limits[memory]: fractional byte value "100m" is invalid, must be an integer',
        'spec.containers[0].resources.requests[memory]: fractional byte value "100m" is invalid, must be an integer',
        'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply',
        "spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]",
    ]  # fmt: skip


@pytest.mark.parametrize("plural", ["deployments", "replicasets"])
def test_workloads_are_warned_of_and_their_counts_checked(api: Api, namespace: str, plural: str) -> None:  # fmt: skip
    path = f"{APPS}/namespaces/{namespace}/{plural}"
    spec = {**pod("p")["spec"], "terminationGracePeriodSeconds": -1}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": spec}
    kind = {"deployments": "Deployment", "replicasets": "ReplicaSet"}[plural]
    workload = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "w"},
        # No replicas: a real controller has nothing to do.
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": template},
    }
    reply = api.create(path, workload)
    assert (reply.status, reply.warnings) == (201, [
        "spec.template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
    ])  # fmt: skip
    reply = api.patch(f"{path}/w/status", {"status": {"replicas": 1, "readyReplicas": 2}})
    assert reply.causes == [("status.readyReplicas", "FieldValueInvalid")]
    reply = api.patch(f"{path}/w/status", {"status": {"replicas": -1}})
    assert ("status.replicas", "FieldValueInvalid") in reply.causes


def test_only_services_without_selector_and_address_have_two_families(api: Api, namespace: str) -> None:  # fmt: skip
    path = f"{CORE}/namespaces/{namespace}/services"
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    made = api.create(path, {**service, "spec": {"clusterIP": "None"}}).expect(201)
    assert made["spec"]["ipFamilyPolicy"] == "RequireDualStack"
    reply = api.patch(f"{path}/s", {"spec": {"selector": {"a": "b"}}})
    assert [field for field, _ in reply.causes] == ["spec.ipFamilyPolicy", "spec.ipFamilies[1]"]
    reply = api.put(f"{path}/s", {**service, "spec": {"selector": {"a": "b"}}})
    assert [field for field, _ in reply.causes] == ["spec.ipFamilyPolicy"]
    reply = api.create(path, {**service, "spec": {"clusterIP": "none"}})
    assert reply.causes == [("spec.clusterIPs[0]", "FieldValueInvalid")]


def test_revisions_hold_objects(api: Api, namespace: str) -> None:
    path = f"{APPS}/namespaces/{namespace}/controllerrevisions"
    reply = api.create(path, {"metadata": {"name": "r"}, "data": 5, "revision": 1})
    assert reply.causes == [("data", "FieldValueRequired")]


def test_leases_do_not_take_part_in_coordination(api: Api, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    lease = {"metadata": {"name": "l"}, "spec": {"strategy": "OldestEmulationVersion"}}
    assert api.create(path, lease).expect(201)["spec"] == {}
    reply = api.create(path, {"metadata": {"name": "m"}, "spec": {"renewTime": "now"}})
    assert '"2006-01-02T15:04:05.000000Z07:00"' in reply.message


def test_a_fraction_that_is_none_is_a_change(api: Api, widgets: Definition, namespace: str) -> None:
    path = widgets.collection(namespace)
    spec = {"size": 1, "free": {"x": 2.0}}
    made = api.create(path, widgets.object("w", spec)).expect(201)
    assert made["metadata"]["generation"] == 1
    assert (
        api.patch(f"{path}/w", {"spec": {"free": {"x": 2.0}}}).expect(200)["metadata"]["generation"]
        == 2
    )
    assert api.patch(f"{path}/w", {"spec": {"size": 1}}).expect(200)["metadata"]["generation"] == 2


def test_an_update_that_creates_keeps_the_mark_of_deletion(api: Api, namespace: str) -> None:
    path = f"{CORE}/namespaces/{namespace}/events/e"
    time = "2020-01-01T00:00:00Z"
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "deletionTimestamp": time},
        "involvedObject": {"namespace": namespace},
    }
    assert api.put(path, event).expect(201)["metadata"]["deletionTimestamp"] == time


def test_bookmarks_are_empty_objects(api: Api, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    query: dict[str, Any] = {
        "sendInitialEvents": True,
        "allowWatchBookmarks": True,
        "resourceVersionMatch": "NotOlderThan",
    }
    with api.watch(path, **query) as watch:
        event = watch.next()
    assert (event.type, event.object["spec"]) == ("BOOKMARK", {})


def test_preconditions_of_namespaces_are_told_in_words_of_their_own(
    api: Api, namespace: str
) -> None:
    reply = api.delete(f"{CORE}/namespaces/{namespace}", {"preconditions": {"uid": "1-2-3"}})
    assert (reply.status, reply.body["details"]["kind"]) == (409, "namespaces")
    assert "Precondition failed: UID in precondition: 1-2-3, UID in object meta: " in reply.message


def test_a_list_is_no_object(api: Api, maps: str) -> None:
    body = {"apiVersion": "v1", "kind": "List", "items": []}
    message = "converting (v1.List) to (core.ConfigMap): unknown conversion"
    reply = api.put(f"{maps}/a", body)
    assert (reply.status, reply.message.endswith(message)) == (400, True)
    reply = api.patch(f"{maps}/a", body)
    assert (reply.status, reply.message.endswith(message)) == (422, True)


def test_what_is_dropped_is_shown_where_it_is_refused(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("w")).expect(201)
    change = {"spec": {"parts": [{"bogus": 5}]}}
    reply = api.patch(f"{path}/w", change, fieldValidation="Strict")
    assert (reply.status, '\\"parts\\":[{\\"bogus\\":5}]' in reply.message) == (422, True)


def test_a_full_page_of_a_selector_goes_on_where_anything_follows(api: Api, maps: str) -> None:
    for name in ("a", "b"):
        api.patch(f"{maps}/{name}", {"metadata": {"labels": {"app": name}}}).expect(200)
    first = api.get(maps, labelSelector="app=a", limit=1).expect(200)["metadata"]
    assert "remainingItemCount" not in first
    rest = api.get(maps, labelSelector="app=a", limit=1, **{"continue": first["continue"]})
    assert (rest.expect(200)["items"], "continue" in rest.body["metadata"]) == ([], False)
    last = api.get(maps, labelSelector="app=b", limit=1).expect(200)["metadata"]
    assert "continue" not in last
