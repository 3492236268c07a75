"""Create, get, update and delete: what every kind has in common."""

import re

import pytest

from support.apiserver import CORE, Api, Definition, config_map

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.fixture
def maps(namespace: str) -> str:
    return f"{CORE}/namespaces/{namespace}/configmaps"


def test_created_object_carries_what_the_server_sets(api: Api, maps: str, namespace: str) -> None:
    reply = api.create(maps, config_map("a", {"k": "v"}))
    made = reply.expect(201)
    meta = made["metadata"]
    assert (made["apiVersion"], made["kind"], made["data"]) == ("v1", "ConfigMap", {"k": "v"})
    assert (meta["name"], meta["namespace"]) == ("a", namespace)
    assert _UID.fullmatch(meta["uid"])
    assert _TIME.fullmatch(meta["creationTimestamp"])
    assert int(meta["resourceVersion"]) > 0
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["cache-control"] == "no-cache, private"
    assert api.get(f"{maps}/a").expect(200) == made


def test_metadata_of_the_client_does_not_override_the_server(api: Api, maps: str) -> None:
    body = config_map("a", uid="mine", creationTimestamp="2001-01-01T00:00:00Z", generation=7)
    body["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z"
    meta = api.create(maps, body).expect(201)["metadata"]
    assert meta["uid"] != "mine"
    assert not meta["creationTimestamp"].startswith("2001")
    assert "deletionTimestamp" not in meta


def test_missing_object_is_a_status(api: Api, maps: str) -> None:
    body = api.get(f"{maps}/nosuch").expect(404)
    assert body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "nosuch" not found',
        "reason": "NotFound",
        "details": {"name": "nosuch", "kind": "configmaps"},
        "code": 404,
    }


def test_existing_name_is_a_conflict_of_its_own(api: Api, maps: str) -> None:
    api.create(maps, config_map("a")).expect(201)
    body = api.create(maps, config_map("a")).expect(409)
    assert body["reason"] == "AlreadyExists"
    assert body["message"] == 'configmaps "a" already exists'
    assert body["details"] == {"name": "a", "kind": "configmaps"}


def test_missing_namespace_refuses_creation(api: Api, unique: str) -> None:
    reply = api.create(f"{CORE}/namespaces/{unique}/configmaps", config_map("a"))
    assert (reply.status, reply.reason) == (404, "NotFound")
    assert reply.message == f'namespaces "{unique}" not found'


def test_namespace_of_the_body_must_be_that_of_the_path(api: Api, maps: str) -> None:
    reply = api.create(maps, config_map("a", namespace="other"))
    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert reply.message == (
        "the namespace of the provided object does not match the namespace sent on the request"
    )


def test_names_are_validated(api: Api, maps: str) -> None:
    reply = api.create(maps, config_map("A_b"))
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.message.startswith(
        'ConfigMap "A_b" is invalid: metadata.name: Invalid value: "A_b": a lowercase RFC 1123 '
        "subdomain must consist of"
    )
    assert reply.causes == [("metadata.name", "FieldValueInvalid")]
    assert reply.body["details"]["kind"] == "ConfigMap"


def test_object_without_a_name_is_invalid(api: Api, maps: str) -> None:
    reply = api.create(maps, {"apiVersion": "v1", "kind": "ConfigMap"})
    assert reply.status == 422
    assert reply.message == (
        'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    )


def test_generated_names_are_unique_and_kept(api: Api, maps: str) -> None:
    body = {"metadata": {"generateName": "gen-"}}
    names = {api.create(maps, body).expect(201)["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(re.fullmatch(r"gen-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


def test_long_generate_name_is_cut(api: Api, maps: str) -> None:
    made = api.create(maps, {"metadata": {"generateName": "x" * 200}}).expect(201)
    assert len(made["metadata"]["name"]) == 63


def test_resource_version_may_not_be_set_at_creation(api: Api, maps: str) -> None:
    reply = api.create(maps, config_map("a", resourceVersion="5"))
    # Not a good status for a mistake of the client, but it is the one that the API has.
    assert (reply.status, reply.message) == (
        500,
        "resourceVersion should not be set on objects to be created",
    )


def test_update_replaces_and_bumps_the_version(api: Api, maps: str) -> None:
    made = api.create(maps, config_map("a", {"k": "1"}, labels={"x": "y"})).expect(201)
    body = config_map("a", {"j": "2"}, resourceVersion=made["metadata"]["resourceVersion"])
    new = api.put(f"{maps}/a", body).expect(200)
    assert new["data"] == {"j": "2"}
    assert "labels" not in new["metadata"]
    assert new["metadata"]["uid"] == made["metadata"]["uid"]
    assert new["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert int(new["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


def test_stale_update_is_a_conflict(api: Api, maps: str) -> None:
    made = api.create(maps, config_map("a")).expect(201)
    api.put(f"{maps}/a", config_map("a", {"k": "1"})).expect(200)
    stale = config_map("a", {"k": "2"}, resourceVersion=made["metadata"]["resourceVersion"])
    reply = api.put(f"{maps}/a", stale)
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert reply.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please '
        "apply your changes to the latest version and try again"
    )
    assert api.get(f"{maps}/a").body["data"] == {"k": "1"}


def test_update_of_another_object_with_the_same_name_is_a_conflict(api: Api, maps: str) -> None:
    api.create(maps, config_map("a")).expect(201)
    reply = api.put(f"{maps}/a", config_map("a", uid="00000000-0000-0000-0000-000000000000"))
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: 0000" in reply.message


def test_update_without_a_change_keeps_the_version(api: Api, maps: str) -> None:
    made = api.create(maps, config_map("a", {"k": "v"})).expect(201)
    again = api.put(f"{maps}/a", config_map("a", {"k": "v"})).expect(200)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    patched = api.patch(f"{maps}/a", {"data": {"k": "v"}}).expect(200)
    assert patched["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_update_of_what_does_not_exist(api: Api, maps: str, namespace: str) -> None:
    assert api.put(f"{maps}/a", config_map("a")).status == 404
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/l"
    body = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    made = api.put(lease, body).expect(201)
    api.put(lease, made).expect(200)
    assert api.put(lease, body).causes == [("metadata.resourceVersion", "FieldValueInvalid")]


def test_name_of_the_body_must_be_that_of_the_path(api: Api, maps: str) -> None:
    api.create(maps, config_map("a")).expect(201)
    reply = api.put(f"{maps}/a", config_map("b"))
    assert (reply.status, reply.message) == (
        400,
        "the name of the object (b) does not match the name on the URL (a)",
    )


def test_delete_answers_with_the_uid_and_removes(api: Api, maps: str) -> None:
    made = api.create(maps, config_map("a")).expect(201)
    body = api.delete(f"{maps}/a").expect(200)
    assert body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]},
    }
    assert api.get(f"{maps}/a").status == 404
    assert api.delete(f"{maps}/a").status == 404


def test_versions_grow_with_each_write(api: Api, maps: str) -> None:
    versions = [
        int(api.create(maps, config_map(name)).expect(201)["metadata"]["resourceVersion"])
        for name in "abc"
    ]
    assert versions == sorted(set(versions))
    before = int(api.get(maps).body["metadata"]["resourceVersion"])
    api.delete(f"{maps}/a").expect(200)
    assert int(api.get(maps).body["metadata"]["resourceVersion"]) > before


def test_kind_and_version_of_a_built_in_body_may_be_left_out_but_not_be_wrong(
    api: Api, maps: str
) -> None:
    api.create(maps, {"metadata": {"name": "a"}}).expect(201)
    reply = api.create(maps, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}})
    assert reply.status == 400
    assert reply.message.startswith(
        'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to '
        "(core.ConfigMap)"
    )
    reply = api.create(maps, {"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "b"}})
    assert reply.message == (
        "the API version in the data (v2) does not match the expected API version (v1)"
    ) or reply.message.startswith('ConfigMap in version "v2" cannot be handled as a ConfigMap')


def test_custom_resource_lives_as_built_in_ones_do(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = widgets.collection(namespace)
    made = api.create(path, widgets.object("w", {"size": 2})).expect(201)
    assert made["spec"] == {"size": 2, "color": "red", "replicas": 1}
    assert made["metadata"]["generation"] == 1
    new = api.put(f"{path}/w", {**made, "spec": {"size": 3}}).expect(200)
    assert (new["metadata"]["generation"], new["spec"]["size"]) == (2, 3)
    missing = api.get(f"{path}/nosuch").expect(404)
    assert missing["message"] == f'widgets.{widgets.group} "nosuch" not found'
    assert missing["details"] == {"name": "nosuch", "group": widgets.group, "kind": "widgets"}
    gone = api.delete(f"{path}/w").expect(200)
    assert gone["details"]["uid"] == made["metadata"]["uid"]


def test_custom_resource_is_validated_by_its_schema(
    api: Api, widgets: Definition, namespace: str
) -> None:
    body = widgets.object("w", {"size": 0, "color": "blue"})
    reply = api.create(widgets.collection(namespace), body)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert sorted(reply.causes) == [
        ("spec.color", "FieldValueNotSupported"),
        ("spec.size", "FieldValueInvalid"),
    ]
    assert (
        'spec.color: Unsupported value: "blue": supported values: "red", "green"' in reply.message
    )


def test_custom_resource_needs_its_version_for_an_unconditional_update(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("w")).expect(201)
    reply = api.put(f"{path}/w", widgets.object("w", {"size": 4}))
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.causes == [("metadata.resourceVersion", "FieldValueInvalid")]
    assert "must be specified for an update" in reply.message


def test_custom_resource_body_must_name_its_kind(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = widgets.collection(namespace)
    reply = api.create(path, {"metadata": {"name": "w"}})
    assert reply.status == 400
    assert "Object 'Kind' is missing in" in reply.message
    body = {**widgets.object("w"), "apiVersion": "other.io/v1"}
    reply = api.create(path, body)
    assert reply.status == 400
    assert reply.message == (
        f"the API version in the data (other.io/v1) does not match the expected API version "
        f"({widgets.group}/v1)"
    )


def test_cluster_scoped_custom_resource(api: Api, definition: Definition) -> None:
    found = Definition(definition.group, scope="Cluster")
    found.install(api)
    made = api.create(found.collection(), found.object("w")).expect(201)
    assert "namespace" not in made["metadata"]
    assert api.get(f"{found.collection()}/w").expect(200) == made
    assert api.get(f"{found.collection('default')}").status == 404


def test_yaml_bodies_are_read(api: Api, maps: str) -> None:
    body = b"kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: why\ndata:\n  k: v\n"
    reply = api.request("POST", maps, body, headers={"Content-Type": "application/yaml"})
    assert reply.expect(201)["data"] == {"k": "v"}
