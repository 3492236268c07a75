"""Server-side apply and managed fields: who owns what, conflicts, what is removed."""

import json
from typing import Any

import pytest

from kthena.machinery.objects import Object
from support.apiserver import (
    APPLY,
    CORE,
    MERGE,
    METADATA,
    STRATEGIC,
    Api,
    Reply,
    pod,
)
from support.managedfields import Apply, entry_of, fields_of, managers_of

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def config_map(data: Object, name: str = "c", **metadata: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": data,
    }


@pytest.fixture
def config_maps(namespace: str) -> str:
    return f"{CORE}/namespaces/{namespace}/configmaps"


# --- Entries of ordinary writes -----------------------------------------------------------------


def test_a_write_makes_its_client_the_owner(api: Api, config_maps: str) -> None:
    body = config_map({"a": "1"}, labels={"l": "1"}, annotations={"n": "1"})
    created = api.create(config_maps, body, fieldManager="creator").expect(201)
    (entry,) = created["metadata"]["managedFields"]
    assert entry.pop("time") >= created["metadata"]["creationTimestamp"]
    assert entry == {
        "manager": "creator",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:data": {".": {}, "f:a": {}},
            "f:metadata": {
                "f:annotations": {".": {}, "f:n": {}},
                "f:labels": {".": {}, "f:l": {}},
            },
        },
    }
    changed = api.patch(
        f"{config_maps}/c", {"data": {"b": "2", "a": "0"}}, fieldManager="patcher"
    ).expect(200)
    # What changes hands is lost by its owner.
    assert fields_of(changed, "creator", "Update")["f:data"] == {}
    assert fields_of(changed, "patcher", "Update") == {"f:data": {"f:a": {}, "f:b": {}}}
    gone = api.patch(f"{config_maps}/c", {"data": {"b": None}}, fieldManager="third").expect(200)
    assert fields_of(gone, "patcher", "Update") == {"f:data": {"f:a": {}}}
    assert entry_of(gone, "third", "Update") is None


def test_the_manager_is_the_client_where_it_names_none(api: Api, config_maps: str) -> None:
    reply = api.request(
        "POST", config_maps, config_map({"a": "1"}), headers={"User-Agent": "tool/v1 (linux)"}
    )
    assert managers_of(reply.expect(201)) == {("tool", "Update")}


def test_a_write_that_changes_nothing_leaves_the_object_alone(api: Api, config_maps: str) -> None:
    created = api.create(config_maps, config_map({"a": "1"}), fieldManager="one").expect(201)
    same = api.patch(f"{config_maps}/c", {"data": {"a": "1"}}, fieldManager="two").expect(200)
    assert same == created
    applied = api.patch(f"{config_maps}/c", config_map({"a": "1"}), APPLY, fieldManager="ap")
    again = api.patch(f"{config_maps}/c", config_map({"a": "1"}), APPLY, fieldManager="ap")
    assert again.expect(200) == applied.expect(200)
    # A shared owner that changed nothing has no time.
    entry = entry_of(again.body, "ap", "Apply")
    assert entry is not None
    assert "time" not in entry


def test_what_the_server_sets_is_nobodys(api: Api, namespace: str) -> None:
    made = api.create(f"{CORE}/namespaces/{namespace}/pods", pod("p"), fieldManager="m").expect(201)
    owned = fields_of(made, "m", "Update")
    assert "f:metadata" not in owned
    assert "f:status" not in owned
    (container,) = owned["f:spec"]["f:containers"]
    assert json.loads(container.removeprefix("k:")) == {
        "name": made["spec"]["containers"][0]["name"]
    }
    # Defaults of the kind are the writer's, what admission adds is not.
    assert "f:restartPolicy" in owned["f:spec"]
    assert "f:tolerations" not in owned["f:spec"]
    assert [entry["key"] for entry in made["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]


def test_the_status_has_managers_of_its_own(api: Api, namespace: str) -> None:
    path = f"{CORE}/namespaces/{namespace}/pods"
    api.create(path, pod("p"), fieldManager="user").expect(201)
    status = {"podIP": "10.1.2.3", "conditions": [{"type": "Ready", "status": "True"}]}
    api.patch(f"{path}/p/status", {"status": status}, STRATEGIC, fieldManager="kubelet")
    target = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    api.create(f"{path}/p/binding", target, fieldManager="scheduler").expect(201)
    found = api.get(f"{path}/p").expect(200)
    owned = fields_of(found, "kubelet", "Update", "status")["f:status"]
    assert set(owned) == {"f:conditions", "f:podIP", "f:podIPs"}
    assert set(owned["f:podIPs"]) == {".", 'k:{"ip":"10.1.2.3"}'}
    # A binding is no write of the pod.
    assert managers_of(found) == {("user", "Update"), ("kubelet", "Update")}
    assert "f:nodeName" not in fields_of(found, "user", "Update")["f:spec"]


def test_managers_can_be_forgotten_and_set(api: Api, config_maps: str) -> None:
    path = f"{config_maps}/c"
    api.create(config_maps, config_map({"a": "1"}), fieldManager="one").expect(201)
    resets: list[list[Object]] = [[{}], []]
    for reset in resets:
        forgotten = api.patch(path, {"metadata": {"managedFields": reset}}, fieldManager="x")
        assert "managedFields" not in forgotten.expect(200)["metadata"]
        # Without managers nothing is tracked until somebody applies.
        api.patch(path, {"data": {"b": str(len(reset))}}, fieldManager="x").expect(200)
        assert "managedFields" not in api.get(path).body["metadata"]
        applied = api.patch(path, config_map({"a": "1"}), APPLY, fieldManager="ap").expect(200)
        assert managers_of(applied) == {("ap", "Apply"), ("before-first-apply", "Update")}
    entry = {
        "manager": "w",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}}},
    }
    given = api.patch(path, {"metadata": {"managedFields": [entry]}}, fieldManager="x").expect(200)
    assert given["metadata"]["managedFields"] == [entry]
    for wrong in ({"operation": "Other"}, {"fieldsType": "V9"}, {"apiVersion": ""}):
        kept = api.patch(path, {"metadata": {"managedFields": [{**entry, **wrong}]}})
        assert kept.expect(200)["metadata"]["managedFields"] == [entry]


def test_many_updaters_are_put_together(api: Api, config_maps: str) -> None:
    api.create(config_maps, config_map({"a": "1"}), fieldManager="first").expect(201)
    for number in range(12):
        body = {"data": {f"k{number}": "1"}}
        api.patch(f"{config_maps}/c", body, fieldManager=f"u{number:02}").expect(200)
    found = api.get(f"{config_maps}/c").body
    updaters = managers_of(found)
    assert len(updaters) == 10
    assert ("ancient-changes", "Update") in updaters
    owned = [entry["fieldsV1"]["f:data"] for entry in found["metadata"]["managedFields"]]
    assert {name for fields in owned for name in fields} >= {f"f:k{n}" for n in range(12)}


# --- Apply --------------------------------------------------------------------------------------


def test_apply_creates_and_takes_back(apply: Apply, api: Api, config_maps: str) -> None:
    path = f"{config_maps}/c"
    created = apply(path, config_map({"a": "1", "b": "2"})).expect(201)
    assert fields_of(created, "m1") == {"f:data": {"f:a": {}, "f:b": {}}}
    less = apply(path, config_map({"a": "1"})).expect(200)
    assert less["data"] == {"a": "1"}
    assert fields_of(less, "m1") == {"f:data": {"f:a": {}}}
    api.patch(path, {"data": {"x": "9"}}, fieldManager="other").expect(200)
    none = apply(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
    assert none.expect(200)["data"] == {"x": "9"}
    assert entry_of(none.body, "m1", "Apply") is None


def test_a_conflict_names_managers_and_fields(apply: Apply, api: Api, config_maps: str) -> None:
    path = f"{config_maps}/c"
    api.create(config_maps, config_map({"a": "1", "b": "1"}), fieldManager="creator").expect(201)
    refused = apply(path, config_map({"a": "2"}))
    assert (refused.status, refused.reason) == (409, "Conflict")
    assert refused.message == (
        'Apply failed with 1 conflict: conflict with "creator" using v1: .data.a'
    )
    assert refused.body["details"] == {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "creator" using v1',
                "field": ".data.a",
            }
        ]
    }
    both = apply(path, config_map({"a": "2", "b": "2"}))
    assert both.message == (
        'Apply failed with 2 conflicts: conflicts with "creator" using v1:\n- .data.a\n- .data.b'
    )
    assert api.get(path).body["data"] == {"a": "1", "b": "1"}
    forced = apply(path, config_map({"a": "2"}), force="true").expect(200)
    assert forced["data"] == {"a": "2", "b": "1"}
    assert fields_of(forced, "creator", "Update") == {"f:data": {".": {}, "f:b": {}}}


def test_owners_share_what_they_agree_on(apply: Apply, config_maps: str) -> None:
    path = f"{config_maps}/c"
    apply(path, config_map({"a": "1"})).expect(201)
    apply(path, config_map({"a": "1"}), "m2").expect(200)
    kept = apply(path, config_map({})).expect(200)
    assert kept["data"] == {"a": "1"}
    changed = apply(path, config_map({"a": "2"}), "m2").expect(200)
    assert changed["data"] == {"a": "2"}
    assert apply(path, config_map({}), "m2").expect(200).get("data") is None


def test_a_dry_run_applies_nothing(apply: Apply, api: Api, config_maps: str) -> None:
    dry = apply(f"{config_maps}/c", config_map({"a": "1"}), dryRun="All").expect(201)
    assert fields_of(dry, "m1") == {"f:data": {"f:a": {}}}
    assert api.get(f"{config_maps}/c").status == 404


def test_apply_takes_over_from_client_side_apply(apply: Apply, api: Api, config_maps: str) -> None:
    path = f"{config_maps}/c"
    last = json.dumps(config_map({"a": "1", "b": "1"}))
    body = config_map({"a": "1", "b": "1"}, annotations={LAST_APPLIED: last})
    api.create(config_maps, body, fieldManager="kubectl-client-side-apply").expect(201)
    api.patch(path, {"data": {"b": "9"}}, fieldManager="editor").expect(200)
    # What somebody else has changed since is no longer kubectl's.
    refused = apply(path, config_map({"a": "2", "b": "2"}), "kubectl")
    assert refused.causes == [(".data.b", "FieldManagerConflict")]
    taken = apply(path, config_map({"a": "2"}), "kubectl").expect(200)
    assert taken["data"] == {"a": "2", "b": "9"}
    renewed = json.loads(taken["metadata"]["annotations"][LAST_APPLIED])
    assert renewed["data"] == {"a": "2"}
    # Any other manager conflicts.
    assert apply(path, config_map({"a": "3"}), "other").status == 409


def test_lists_of_pods_and_services_merge_by_their_keys(
    apply: Apply, api: Api, namespace: str
) -> None:
    path = f"{CORE}/namespaces/{namespace}/services/s"
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"clusterIP": "None", "ports": [{"port": 80, "name": "a"}]},
    }
    made = apply(path, service).expect(201)
    # The protocol is part of the key, and has a default.
    assert set(fields_of(made, "m1")["f:spec"]["f:ports"]) == {'k:{"port":80,"protocol":"TCP"}'}
    udp = {**service, "spec": {"ports": [{"port": 80, "protocol": "UDP", "name": "b"}]}}
    more = apply(path, udp, "m2").expect(200)
    assert [port["name"] for port in more["spec"]["ports"]] == ["a", "b"]
    less = apply(path, {**service, "spec": {"clusterIP": "None"}}).expect(200)
    assert [port["name"] for port in less["spec"]["ports"]] == ["b"]
    twice = apply(path, {**udp, "spec": {"ports": udp["spec"]["ports"] * 2}}, "m2")
    assert twice.message.endswith(
        'errors:\n  .spec.ports: duplicate entries for key [port=80,protocol="UDP"]'
    ) or twice.message.endswith('.spec.ports: duplicate entries for key [port=80,protocol="UDP"]')


BAD_CONFIGURATIONS: dict[str, tuple[Any, int, str]] = {
    "unknown field": (
        {**config_map({}), "bogus": 1},
        500,
        (
            "failed to create typed patch object (/c; /v1, Kind=ConfigMap): .bogus: field not declared "
            "in schema"
        ),
    ),
    "wrong type": (
        config_map({"a": 1}),
        500,
        (
            "failed to create typed patch object (/c; /v1, Kind=ConfigMap): .data.a: expected string, "
            "got &value.valueUnstructured{Value:1}"
        ),
    ),
    "no map": (
        {**config_map({}), "data": "x"},
        500,
        (
            "failed to create typed patch object (/c; /v1, Kind=ConfigMap): .data: expected map, got "
            "&{x}"
        ),
    ),
    "other kind": ({**config_map({}), "kind": "Foo"}, 400, "invalid object type: /v1, Kind=Foo"),
    "no kind": ({"metadata": {"name": "c"}}, 400, "invalid object type: /, Kind="),
    "managers": (
        config_map({}, managedFields=[]),
        400,
        "metadata.managedFields must be nil",
    ),
    "other name": (
        config_map({}, name="other"),
        400,
        "the name of the object (other) does not match the name on the URL (c)",
    ),
    "a uid": (
        config_map({}, uid="abc"),
        409,
        (
            'Operation cannot be fulfilled on configmaps "c": uid mismatch: the provided object '
            "specified uid abc, and no existing object was found"
        ),
    ),
}


@pytest.mark.parametrize("name", BAD_CONFIGURATIONS)
def test_a_configuration_that_does_not_fit(apply: Apply, config_maps: str, name: str) -> None:
    body, status, message = BAD_CONFIGURATIONS[name]
    refused = apply(f"{config_maps}/c", body)
    assert (refused.status, refused.message) == (status, message)


def test_values_that_a_builtin_kind_cannot_hold(apply: Apply, namespace: str) -> None:
    body: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    container = {"name": "c", "image": "x", "resources": {"limits": {"cpu": "much"}}}
    refused = apply(
        f"{CORE}/namespaces/{namespace}/pods/p", {**body, "spec": {"containers": [container]}}
    )
    assert (refused.status, refused.reason) == (500, "")
    assert refused.message.startswith(
        "failed to convert new object (/p; /v1, Kind=Pod) to proper version: unable to convert "
        "unstructured object to /v1, Kind=Pod: quantities must match the regular expression"
    )


YAML_BODIES = {
    b"a: b: c\n": "yaml: mapping values are not allowed in this context",
    b"a:\n\t- b\n": "yaml: line 2: found character that cannot start any token",
    b"{a: [\n": "yaml: line 1: did not find expected node content",
    b"\x00": "yaml: control characters are not allowed",
}


@pytest.mark.parametrize("body", YAML_BODIES)
def test_a_body_that_is_no_yaml(api: Api, config_maps: str, body: bytes) -> None:
    refused = api.request(
        "PATCH",
        f"{config_maps}/c",
        body,
        query={"fieldManager": "m"},
        headers={"Content-Type": APPLY},
    )
    cause = YAML_BODIES[body]
    assert (refused.status, refused.message) == (
        400,
        f"error decoding YAML: error converting YAML to JSON: {cause}",
    )


def test_a_body_that_is_no_mapping(api: Api, config_maps: str) -> None:
    for body, sort in ((b"- 1", "array"), (b"'x'", "string"), (b"5", "number")):
        refused = api.request(
            "PATCH",
            f"{config_maps}/c",
            body,
            query={"fieldManager": "m"},
            headers={"Content-Type": APPLY},
        )
        assert refused.message == (
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot "
            f"unmarshal {sort} into Go value of type map[string]interface {{}}"
        )


def test_keys_that_repeat(api: Api, config_maps: str) -> None:
    body = b'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  a: "1"\n  a: "2"\n'
    cause = 'line 6: key "a" already set in map'

    def send(validation: str) -> Reply:
        query = {"fieldManager": "m", "fieldValidation": validation}
        headers = {"Content-Type": APPLY}
        return api.request("PATCH", f"{config_maps}/c", body, query=query, headers=headers)

    strict = send("Strict")
    assert (strict.status, strict.message) == (
        400,
        (
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  "
            f"{cause}"
        ),
    )
    warned = send("Warn")
    assert (warned.status, warned.warnings) == (201, [cause])
    assert warned.body["data"] == {"a": "2"}
    assert send("Ignore").warnings == []


def test_the_options_of_an_apply(apply: Apply, api: Api, config_maps: str) -> None:
    nobody = api.patch(f"{config_maps}/c", config_map({}), APPLY)
    assert (nobody.status, nobody.causes) == (422, [("fieldManager", "FieldValueRequired")])
    long = apply(f"{config_maps}/c", config_map({}), "m" * 129)
    assert (long.status, long.causes) == (422, [("fieldManager", "FieldValueTooLong")])
    api.create(config_maps, config_map({})).expect(201)
    forced = api.patch(f"{config_maps}/c", {}, MERGE, force="true")
    assert (forced.status, forced.causes) == (422, [("force", "FieldValueForbidden")])
    shown = api.request(
        "PATCH",
        f"{config_maps}/c",
        config_map({"t": "1"}),
        query={"fieldManager": "m"},
        headers={"Content-Type": APPLY, "Accept": METADATA},
    )
    assert shown.expect(200)["kind"] == "PartialObjectMetadata"


def test_a_group_knows_managers_of_its_own_versions(apply: Apply, api: Api, namespace: str) -> None:
    core = f"{CORE}/namespaces/{namespace}/events"
    new = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    reference = {"kind": "Pod", "namespace": namespace, "name": "p"}
    event = {
        "metadata": {"name": "e"},
        "involvedObject": reference,
        "reason": "R",
        "type": "Normal",
    }
    created = api.create(core, event, fieldManager="ev").expect(201)
    assert fields_of(created, "ev", "Update")["f:involvedObject"] == {}
    names = {"name": "e", "labels": {"a": "b"}}
    body = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": names, "reason": "R"}
    applied = apply(f"{new}/e", body).expect(200)
    # The same object in another group: its managers there are lost.
    assert managers_of(applied) == {("m1", "Apply")}
    assert fields_of(applied, "m1") == {"f:metadata": {"f:labels": {"f:a": {}}}, "f:reason": {}}
