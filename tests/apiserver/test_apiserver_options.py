"""Options of writes: dry run, field validation, and what is refused."""

import json

import pytest

from support.apiserver import CORE, MERGE, Api, Definition, config_map, pod


@pytest.fixture
def maps(namespace: str) -> str:
    return f"{CORE}/namespaces/{namespace}/configmaps"


def test_dry_run_answers_as_the_write_would_and_stores_nothing(api: Api, maps: str) -> None:
    made = api.create(maps, config_map("a"), dryRun="All").expect(201)
    assert made["metadata"]["uid"]
    assert "resourceVersion" not in made["metadata"]
    assert api.get(f"{maps}/a").status == 404

    api.create(maps, config_map("a", {"k": "1"})).expect(201)
    changed = api.patch(f"{maps}/a", {"data": {"k": "2"}}, dryRun="All").expect(200)
    assert changed["data"] == {"k": "2"}
    api.put(f"{maps}/a", config_map("a"), dryRun="All").expect(200)
    api.delete(f"{maps}/a", dryRun="All").expect(200)
    assert api.get(f"{maps}/a").expect(200)["data"] == {"k": "1"}


def test_dry_run_still_validates(api: Api, maps: str) -> None:
    assert api.create(maps, config_map("A"), dryRun="All").status == 422
    api.create(maps, config_map("a")).expect(201)
    assert api.create(maps, config_map("a"), dryRun="All").reason == "AlreadyExists"


def test_unknown_dry_run_is_refused(api: Api, maps: str) -> None:
    reply = api.create(maps, config_map("a"), dryRun="Some")
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.causes == [("dryRun", "FieldValueNotSupported")]


def test_unknown_fields_of_built_in_kinds(api: Api, namespace: str) -> None:
    path = f"{CORE}/namespaces/{namespace}/pods"
    body = {**pod("p", {"nosuch": 1}), "other": {}}
    strict = api.create(path, body, fieldValidation="Strict")
    assert (strict.status, strict.reason) == (400, "BadRequest")
    assert strict.message == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field '
        '"other", unknown field "spec.nosuch"'
    ) or strict.message.endswith('unknown field "spec.nosuch", unknown field "other"')

    warned = api.create(path, body)
    assert set(warned.warnings) == {'unknown field "spec.nosuch"', 'unknown field "other"'}
    assert "nosuch" not in warned.expect(201)["spec"]

    body["metadata"]["name"] = "q"
    assert api.create(path, body, fieldValidation="Ignore").warnings == []


def test_unknown_fields_of_custom_resources(api: Api, widgets: Definition, namespace: str) -> None:
    path = widgets.collection(namespace)
    body = widgets.object("w", {"size": 1, "nosuch": 1, "free": {"any": 1}})
    strict = api.create(path, body, fieldValidation="Strict")
    assert strict.status == 400
    assert 'strict decoding error: unknown field "spec.nosuch"' in strict.message
    warned = api.create(path, body)
    assert warned.warnings == ['unknown field "spec.nosuch"']
    assert warned.expect(201)["spec"]["free"] == {"any": 1}
    assert "nosuch" not in warned.body["spec"]


def test_duplicate_fields(api: Api, maps: str) -> None:
    body = b'{"metadata":{"name":"a"},"data":{"k":"1","k":"2"}}'
    headers = {"Content-Type": "application/json"}
    strict = api.request("POST", maps, body, query={"fieldValidation": "Strict"}, headers=headers)
    assert strict.status == 400
    assert 'duplicate field "data.k"' in strict.message
    warned = api.request("POST", maps, body, headers=headers)
    assert warned.warnings == ['duplicate field "data.k"']
    assert warned.expect(201)["data"] == {"k": "2"}


def test_field_validation_holds_for_patches(api: Api, namespace: str) -> None:
    path = f"{CORE}/namespaces/{namespace}/pods"
    api.create(path, pod("p")).expect(201)
    patch = {"metadata": {"nosuch": "x"}}
    strict = api.patch(f"{path}/p", patch, fieldValidation="Strict")
    assert (strict.status, strict.reason) == (422, "Invalid")
    assert 'unknown field "metadata.nosuch"' in strict.message
    assert api.patch(f"{path}/p", patch).warnings == ['unknown field "metadata.nosuch"']


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"fieldValidation": "Sometimes"}, "fieldValidation"),
        ({"fieldManager": "x" * 129}, "fieldManager"),
        ({"fieldManager": "a\x01"}, "fieldManager"),
    ],
)
def test_wrong_options_are_refused(api: Api, maps: str, query: dict[str, str], field: str) -> None:
    reply = api.create(maps, config_map("a"), **query)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert [name for name, _ in reply.causes] == [field]


def test_force_is_for_apply_only(api: Api, maps: str) -> None:
    api.create(maps, config_map("a")).expect(201)
    reply = api.patch(f"{maps}/a", {}, MERGE, force=True)
    assert reply.status == 422
    assert reply.causes == [("force", "FieldValueForbidden")]


def test_unparsable_options_are_bad_requests(api: Api, maps: str) -> None:
    assert api.get(maps, limit="x").status == 400
    assert api.get(maps, timeoutSeconds="x").status == 400
    api.create(maps, config_map("a")).expect(201)
    assert api.delete(f"{maps}/a", gracePeriodSeconds="x").status == 400


def test_delete_options_of_the_body(api: Api, maps: str) -> None:
    api.create(maps, config_map("a")).expect(201)
    reply = api.delete(f"{maps}/a", {"propagationPolicy": "Sometimes"})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.causes == [("propagationPolicy", "FieldValueNotSupported")]
    both = {"propagationPolicy": "Orphan", "orphanDependents": True}
    assert api.delete(f"{maps}/a", both).status == 422
    assert api.delete(f"{maps}/a", {"kind": "Pod", "apiVersion": "v1"}).status == 400
    assert api.delete(f"{maps}/a", {"gracePeriodSeconds": "x"}).status == 400
    api.delete(f"{maps}/a", {"kind": "DeleteOptions", "dryRun": ["All"]}).expect(200)
    api.get(f"{maps}/a").expect(200)
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    body = json.dumps(options).encode()
    headers = {"Content-Type": "application/json"}
    assert api.request("DELETE", f"{maps}/a", body, headers=headers).status == 200
