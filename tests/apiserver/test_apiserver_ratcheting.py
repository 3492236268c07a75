"""Custom resources that became invalid, and the lists that hold no value twice."""

from typing import Any

import pytest

from support.apiserver import MERGE, Api, Definition, eventually


def _definition(widgets: Definition, properties: dict[str, Any]) -> dict[str, Any]:
    spec = {"type": "object", "properties": properties}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return widgets.crd(widgets.version_entry(schema=schema))


@pytest.fixture
def strict(api: Api, definition: Definition, namespace: str) -> str:
    """A widget whose colour is no longer allowed, and whose list has a value twice."""
    texts = {"type": "array", "items": {"type": "string"}}
    loose = {"color": {"type": "string"}, "note": {"type": "string"}, "tags": texts}
    definition.install(api, _definition(definition, loose))
    spec = {"color": "blue", "tags": ["a", "a"]}
    collection = definition.collection(namespace)
    api.create(collection, definition.object("old", spec)).expect(201)
    tight = {
        "color": {"type": "string", "enum": ["red"]},
        "note": {"type": "string"},
        "tags": {**texts, "x-kubernetes-list-type": "set"},
    }
    changed = _definition(definition, tight)
    versions = {"spec": {"versions": changed["spec"]["versions"]}}
    api.patch(definition.path, versions, MERGE).expect(200)
    new = definition.object("new", {"color": "blue"})
    # A real server takes a moment to put the new schema to use.
    eventually(lambda: api.create(collection, new, dryRun="All").status == 422)
    return f"{collection}/old"


def test_what_was_invalid_may_stay(api: Api, strict: str) -> None:
    changed = api.patch(strict, {"spec": {"note": "hello"}}).expect(200)
    assert changed["spec"] == {"color": "blue", "note": "hello", "tags": ["a", "a"]}
    reply = api.patch(strict, {"spec": {"color": "green"}})
    assert (reply.status, reply.causes) == (422, [("spec.color", "FieldValueNotSupported")])
    api.patch(strict, {"spec": {"color": "red"}}).expect(200)
    assert api.patch(strict, {"spec": {"color": "blue"}}).status == 422


def test_sets_and_list_maps_are_unique(api: Api, strict: str) -> None:
    # While the stored list has duplicates, others may come; once it has none, none may.
    api.patch(strict, {"spec": {"tags": ["b", "b", "a"]}}).expect(200)
    api.patch(strict, {"spec": {"tags": ["a", "b"]}}).expect(200)
    reply = api.patch(strict, {"spec": {"tags": ["a", "b", "a"]}})
    assert (reply.status, reply.causes) == (422, [("spec.tags[2]", "FieldValueDuplicate")])
