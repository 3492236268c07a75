"""What the fuzzer has found once: each was a difference between the two servers."""

import base64
import json
from typing import Any

import pytest

from support.apiserver import (
    APPLY,
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


def _deployment(name: str, replicas: str, cpu: str = '"1"') -> bytes:
    """A Deployment as a text, in which numbers are written as they are given."""
    container = f'{{"name":"m","image":"b","resources":{{"limits":{{"cpu":{cpu}}}}}}}'
    template = f'{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{container}]}}}}'
    spec = f'"replicas":{replicas},"selector":{{"matchLabels":{{"a":"b"}}}},"template":{template}'
    names = '"apiVersion":"apps/v1","kind":"Deployment"'
    return f'{{{names},"metadata":{{"name":"{name}"}},"spec":{{{spec}}}}}'.encode()


def test_numbers_are_known_as_they_were_written(api: Api, namespace: str) -> None:
    path = f"{APPS}/namespaces/{namespace}/deployments"
    reply = api.create(path, _deployment("a", "1e0"))
    assert (reply.status, "cannot unmarshal number 1e0 into" in reply.message) == (400, True)
    made = api.create(path, _deployment("b", "0", cpu="1e3")).expect(201)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["cpu"] == "1e3"
    reply = api.patch(f"{path}/b", b'{"spec":{"replicas":10e-1}}')
    assert (reply.status, "cannot unmarshal number 10e-1 into" in reply.message) == (422, True)


@pytest.mark.parametrize(
    ("given", "stored"),
    [("1.0", 1), ("2e0", 2), ("-3000000000", 1294967296), ("99999999999999999999", 0)],
)
def test_converted_numbers_fit(api: Api, namespace: str, given: str, stored: int) -> None:
    path = f"{APPS}/namespaces/{namespace}/deployments"
    applied = api.patch(f"{path}/a", _deployment("a", given), APPLY, fieldManager="m", dryRun="All")
    assert applied.expect(201)["spec"]["replicas"] == stored
    api.create(path, _deployment("b", "0")).expect(201)
    change = f'{{"spec":{{"replicas":{given}}}}}'.encode()
    patched = api.patch(f"{path}/b", change, STRATEGIC, dryRun="All").expect(200)
    assert patched["spec"]["replicas"] == stored


def test_numbers_of_custom_resources_are_shown_as_go_shows_them(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("w")).expect(201)
    reply = api.patch(f"{path}/w", b'{"spec":{"replicas":1e6}}')
    assert (reply.status, "1e+06 is of the type float64" in reply.message) == (422, True)


def test_a_rule_of_scaling_has_policies_or_defaults(api: Api, namespace: str) -> None:
    path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
    for policies, status in (([], 422), (None, 201)):
        behavior: dict[str, Any] = {"scaleUp": {"policies": policies}}
        spec = {"maxReplicas": 3, "scaleTargetRef": target, "behavior": behavior}
        reply = api.create(path, {"metadata": {"name": "a"}, "spec": spec})
        assert reply.status == status


def test_a_patched_object_needs_no_kind_but_a_version(api: Api, maps: str) -> None:
    api.patch(f"{maps}/a", {"kind": None}).expect(200)
    reply = api.patch(f"{maps}/a", {"apiVersion": None})
    assert (reply.status, reply.warnings) == (
        400,
        ['unknown field "data"', 'unknown field "metadata"'],
    )
    assert reply.message.endswith("was undeterminable: name must be provided")
    for kind in ("Pod", "Status"):
        reply = api.patch(f"{maps}/a", {"kind": kind})
        message = f"converting (v1.{kind}) to (core.ConfigMap): unknown conversion"
        assert (reply.status, reply.message.endswith(message)) == (422, True)
    reply = api.patch(f"{maps}/a", {"kind": "Secret"})
    assert (reply.status, "illegal base64 data at input byte 0" in reply.message) == (422, True)


def test_a_patched_custom_resource_needs_kind_and_version(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = f"{widgets.collection(namespace)}/w"
    api.create(widgets.collection(namespace), widgets.object("w")).expect(201)
    reply = api.patch(path, {"kind": None})
    assert (reply.status, "Object 'Kind' is missing in '{" in reply.message) == (422, True)
    reply = api.patch(path, {"apiVersion": None})
    assert (reply.status, reply.body["reason"]) == (500, "InternalError")
    assert "Object 'apiVersion' is missing in" in reply.message


def test_an_array_as_merge_patch_takes_the_place_of_the_object(api: Api, maps: str) -> None:
    reply = api.patch(f"{maps}/a", [1, None, {"a": None}], fieldValidation="Ignore")
    assert (reply.status, '"[1,null,{}]": couldn\'t get' in reply.message) == (422, True)


def test_a_refused_strategic_patch_is_shown_without_what_was_obeyed(api: Api, maps: str) -> None:
    change = {"immutable": "yes", "metadata": {}, "$patch": "replace"}
    reply = api.patch(f"{maps}/a", change, STRATEGIC)
    assert (reply.status, '"map[immutable:yes metadata:map[]]"' in reply.message) == (422, True)
    change = {"immutable": "yes", "metadata": {"labels": {"a": None}}}
    reply = api.patch(f"{maps}/a", change, STRATEGIC)
    shown = '"map[immutable:yes metadata:map[labels:map[]]]"'
    assert (reply.status, shown in reply.message) == (422, True)


def test_of_several_mistakes_in_a_merge_patch_the_first_by_name_is_told(
    api: Api, maps: str
) -> None:
    reply = api.patch(f"{maps}/a", {"immutable": 5, "data": {"k": 5}})
    assert (reply.status, "ConfigMap.data of type string" in reply.message) == (422, True)
    reply = api.patch(f"{maps}/a", {"z": 1, "b": 1}, fieldValidation="Warn")
    assert reply.warnings == ['unknown field "b"', 'unknown field "z"']


def test_repeated_owners_are_told_of_whatever_becomes_of_the_write(api: Api, maps: str) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1-2-3"}
    owners = {"ownerReferences": [owner, owner]}
    gone = maps.rpartition("/namespaces/")[0] + "/namespaces/none-such/configmaps"
    for reply, status, when in (
        (api.create(maps, {"metadata": {"name": "a", **owners}}), 409, ""),
        (api.create(gone, {"metadata": {"name": "none", **owners}}), 404, ""),
        (api.patch(f"{maps}/a", {"metadata": owners}), 200, " after mutating admission happens"),
    ):
        (warning,) = reply.warnings
        assert reply.status == status
        assert f"contains duplicate entries{when}; API server" in warning
        assert warning.endswith("duplicate UID(s) observed: 1-2-3")


def test_nulls_of_an_applied_custom_resource_stay(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = f"{widgets.collection(namespace)}/w"
    body = widgets.object("w", {"replicas": None, "parts": None})
    reply = api.patch(path, body, APPLY, fieldManager="m")
    assert (reply.status, "spec.parts in body must be of type array" in reply.message) == (
        422,
        True,
    )
    api.create(widgets.collection(namespace), body).expect(201)


def test_a_reference_that_names_another_kind_holds_when_the_object_goes(
    api: Api, maps: str
) -> None:
    uid = api.get(f"{maps}/a").expect(200)["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": uid}
    for name, kind in (("held", "Unknown"), ("freed", "ConfigMap")):
        meta = {"name": name, "ownerReferences": [{**owner, "kind": kind}]}
        api.create(maps, {"metadata": meta}).expect(201)
    api.delete(f"{maps}/a").expect(200)
    eventually(lambda: api.get(f"{maps}/freed").status == 404)
    api.get(f"{maps}/held").expect(200)


def test_a_dry_run_tells_of_another_uid_without_the_root_of_etcd(api: Api, maps: str) -> None:
    body = {"metadata": {"name": "a", "uid": "1-2-3"}}
    for query, root in (({}, "/registry/configmaps/"), ({"dryRun": "All"}, "/configmaps/")):
        reply = api.put(f"{maps}/a", body, **query)
        assert (reply.status, f"Key: {root}" in reply.message) == (409, True)


def test_what_calls_itself_of_another_kind_is_refused_as_invalid(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("w")).expect(201)

    def bogus(name: str, **metadata: Any) -> Any:
        return {**widgets.object(name, **metadata), "kind": "Bogus"}

    elsewhere = widgets.collection("none-such")
    assert api.create(elsewhere, bogus("x")).status == 404
    assert api.put(f"{path}/none", bogus("none")).status == 404
    assert api.patch(f"{path}/w", {"kind": "Bogus", "metadata": {"name": "x"}}).status == 400
    assert api.patch(f"{path}/w/status", {"kind": "Bogus"}).status == 200
    reply = api.create(path, {**bogus(""), "metadata": {"generateName": "made-"}})
    assert (reply.status, reply.body["details"]["kind"]) == (422, "Bogus")
    assert reply.body["details"]["name"].startswith("made-")
    assert f'kind: Invalid value: "Bogus": must be {widgets.kind}' in reply.message


def test_a_page_of_one_name_is_the_last(api: Api, maps: str) -> None:
    meta = api.get(maps, fieldSelector="metadata.name=a", limit=1).expect(200)["metadata"]
    assert "continue" not in meta


def test_an_update_that_creates_has_no_version_to_be_based_on(api: Api, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    for version in ("0", "1"):
        body = {"metadata": {"name": f"v{version}", "resourceVersion": version}}
        api.put(f"{path}/v{version}", body, dryRun="All").expect(201)
        made = api.put(f"{path}/v{version}", body).expect(201)
        assert made["metadata"]["resourceVersion"] != version


def test_a_number_written_in_another_way_keeps_its_owner(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = f"{widgets.collection(namespace)}/w"
    spec = {"free": {"ratio": 2}}
    api.patch(path, widgets.object("w", spec), APPLY, fieldManager="one").expect(201)
    changed = api.patch(path, b'{"spec":{"free":{"ratio":2.0}}}', fieldManager="two").expect(200)
    managers = [entry["manager"] for entry in changed["metadata"]["managedFields"]]
    assert managers == ["one"]


@pytest.mark.parametrize(
    ("media", "told"), [(MERGE, "Invalid JSON Patch"), (JSON_PATCH, "unexpected end of JSON input")]
)
def test_a_patch_that_is_no_json_is_told_of_where_it_is_read(
    api: Api, maps: str, media: str, told: str
) -> None:
    reply = api.patch(f"{maps}/a", b"{", media, fieldValidation="Ignore")
    assert (reply.status, reply.message) == (400, told)
    reply = api.patch(f"{maps}/a", b"{", media)
    assert reply.message == "error decoding patch: unexpected end of JSON input"
