"""Metadata of the wrong types: both servers refuse it while they decode, with the same text.

The texts of `machinery.metadata_types` are those of both.
"""

from typing import Any

import pytest

from kthena.machinery.metadata_types import decode_problem
from support.apiserver import CORE, Api, Definition, config_map

OWNER = {"apiVersion": "v1", "kind": "a", "name": "b", "uid": "c"}
WRONG: list[Any] = [
    5,
    "text",
    [],
    {"name": 5},
    {"generateName": []},
    {"namespace": True},
    {"labels": 5},
    {"labels": []},
    {"labels": {"a": 5}},
    {"annotations": {"a": [1]}},
    {"annotations": {"a": {}}},
    {"finalizers": 5},
    {"finalizers": [5]},
    {"ownerReferences": {}},
    {"ownerReferences": [5]},
    {"ownerReferences": [{**OWNER, "uid": 5}]},
    {"ownerReferences": [{**OWNER, "controller": "yes"}]},
    {"managedFields": 5},
    {"managedFields": [{"operation": 5}]},
    {"managedFields": [{"time": 5}]},
    {"generation": "1"},
    {"generation": 1.5},
    {"deletionGracePeriodSeconds": True},
    {"uid": 5},
    {"resourceVersion": 5},
    {"selfLink": {}},
    {"creationTimestamp": 5},
    *(
        {"creationTimestamp": text}
        for text in (
            "",
            "soon",
            'a"b',
            "2026-01-31",
            "2026-1-31T00:00:00Z",
            "2026-01-31t00:00:00Z",
            "2026-01-31T00:00",
            "2026-01-31T00:00:00",
            "2026-01-31T00:00:00Zx",
            "2026-13-31T00:00:00Z",
            "2026-02-30T00:00:00Z",
            "2026-01-31T25:00:00Z",
            "2026-01-31T00:60:00Z",
            "2026-01-31T00:00:60Z",
            "2026-01-31T00:00:00+99:00",
        )
    ),
]


@pytest.mark.parametrize("metadata", WRONG, ids=str)
def test_a_built_in_object(api: Api, namespace: str, metadata: Any) -> None:
    problem = decode_problem(metadata, "ConfigMap")
    body = {**config_map("m"), "metadata": metadata}
    reply = api.create(f"{CORE}/namespaces/{namespace}/configmaps", body)
    assert problem
    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert reply.message == (
        f'ConfigMap in version "v1" cannot be handled as a ConfigMap: {problem}'
    )


@pytest.fixture
def widget(api: Api, widgets: Definition, namespace: str) -> str:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("w")).expect(201)
    return f"{path}/w"


def test_a_custom_resource(api: Api, widgets: Definition, widget: str, namespace: str) -> None:
    stored = api.get(widget).body
    for metadata in WRONG:
        problem = decode_problem(metadata)
        reply = api.create(
            widgets.collection(namespace), {**widgets.object("x"), "metadata": metadata}
        )
        assert (reply.status, reply.reason) == (400, "BadRequest"), metadata
        text = f'Widget in version "v1" cannot be handled as a Widget: {problem}'
        assert reply.message == text
        if isinstance(metadata, dict):
            update = {**stored, "metadata": {**stored["metadata"], **metadata}}
            assert api.put(widget, update).message == text
            patched = api.patch(widget, {"metadata": metadata})
            assert (patched.status, patched.reason) == (422, "Invalid"), metadata
            assert patched.message.endswith(problem)
    assert api.get(widget).body == stored


def test_what_is_wrong_with_metadata_may_keep_rules_from_being_checked(
    api: Api, definition: Definition, namespace: str
) -> None:
    rule = {"rule": "self.size > 5", "message": "too small"}
    size = {"type": "object", "properties": {"size": {"type": "integer"}}}
    spec = {**size, "x-kubernetes-validations": [rule]}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    definition.install(api, definition.crd(definition.version_entry(schema=schema)))
    nameless = api.create(definition.collection(namespace), definition.object(""))
    assert nameless.message == (
        f'Widget.{definition.group} "" is invalid: [metadata.name: Required value: name or '
        "generateName is required, <nil>: Invalid value: null: some validation rules were not "
        "checked because the object was invalid; correct the existing errors to complete "
        "validation]"
    )
    labelled = definition.object("w", labels={"a b": "c"})
    both = api.create(definition.collection(namespace), labelled)
    assert [field for field, _ in both.causes] == ["metadata.labels", "spec"]
