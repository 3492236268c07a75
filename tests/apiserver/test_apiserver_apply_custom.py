"""Server-side apply to custom resources: schemas of all sorts, subresources, versions, changes."""

from typing import Any

import pytest

from kthena.machinery.objects import Object
from support.apiserver import (
    APPLY,
    JSON_PATCH,
    MERGE,
    SCALE,
    STRATEGIC,
    Api,
    Definition,
    Reply,
    eventually,
    pod,
)
from support.managedfields import Apply, entry_of, fields_of

_TEXT = {"type": "string"}
_SPEC: Object = {
    "replicas": {"type": "integer"},
    "name": {"type": "string", "default": "dflt"},
    "atomic": {
        "type": "array",
        "items": {"type": "object", "required": ["a"], "properties": {"a": _TEXT, "b": _TEXT}},
    },
    "keyed": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": _TEXT, "v": _TEXT}},
    },
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": _TEXT},
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": _TEXT},
    "either": {"x-kubernetes-int-or-string": True},
    "nested": {"type": "object", "properties": {"x": _TEXT, "y": _TEXT}},
}


def schema_of(**changes: Any) -> Object:
    return {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {**_SPEC, **changes}},
            "status": {
                "type": "object",
                "properties": {"replicas": {"type": "integer"}, "note": _TEXT},
            },
        },
    }


def definition_with(definition: Definition, *names: str, **changes: Any) -> Object:
    """The CRD with some versions, all of one schema; the first is stored."""
    every = {"status": {}, "scale": SCALE}
    return definition.crd(
        *(
            definition.version_entry(
                name,
                storage=index == 0,
                schema={"openAPIV3Schema": schema_of(**changes)},
                subresources=every,
            )
            for index, name in enumerate(names)
        )
    )


def change_definition(api: Api, definition: Definition, body: Object) -> None:
    """Give a CRD another spec, and wait until it is served."""

    def change() -> Reply:
        found = api.get(definition.path).expect(200)
        return api.put(definition.path, {**found, "spec": body["spec"]})

    changed = eventually(lambda: (reply := change()).status == 200 and reply)
    changed.expect(200)


@pytest.fixture
def resources(api: Api, definition: Definition, namespace: str) -> str:
    """The path of custom resources with lists and maps of all sorts."""
    definition.install(api, definition_with(definition, "v1", "v2"))
    return definition.collection(namespace)


def test_custom_resources_merge_as_their_schema_says(
    apply: Apply, definition: Definition, resources: str
) -> None:
    path, make = f"{resources}/w", definition.object
    spec = {
        "replicas": 1,
        "atomic": [{"a": "1", "b": "2"}],
        "keyed": [{"k": "x", "v": "1"}, {"k": "y"}],
        "set": ["b", "a&<"],
        "free": {"a": {"b": 1}, "l": [1, 2]},
        "whole": {"p": "q"},
        "either": 5,
        "nested": {"x": "1"},
    }
    made = apply(path, make("w", spec)).expect(201)
    assert fields_of(made, "m1") == {
        "f:spec": {
            "f:replicas": {},
            "f:atomic": {},
            "f:keyed": {
                'k:{"k":"x"}': {".": {}, "f:k": {}, "f:v": {}},
                'k:{"k":"y"}': {".": {}, "f:k": {}},
            },
            "f:set": {'v:"a\\u0026\\u003c"': {}, 'v:"b"': {}},
            "f:free": {"f:a": {".": {}, "f:b": {}}, "f:l": {}},
            "f:whole": {},
            "f:either": {},
            "f:nested": {"f:x": {}},
        }
    }
    # Order: what the configuration names comes as it says, with the others in between.
    other = apply(path, make("w", {"keyed": [{"k": "z"}, {"k": "y"}], "set": ["c", "b"]}), "m2")
    assert [entry["k"] for entry in other.expect(200)["spec"]["keyed"]] == ["x", "z", "y"]
    assert other.body["spec"]["set"] == ["c", "b", "a&<"]
    less = apply(path, make("w", {"keyed": [{"k": "z"}]}), "m2").expect(200)
    assert [entry["k"] for entry in less["spec"]["keyed"]] == ["x", "z", "y"]
    assert less["spec"]["set"] == ["b", "a&<"]
    refused = apply(
        path,
        make(
            "w",
            {
                "atomic": [],
                "keyed": [{"k": "x", "v": "2"}],
                "free": {"a": {"b": 2}},
                "whole": {"r": "s"},
                "either": "7",
                "nested": {"x": "2"},
            },
        ),
        "m3",
    )
    assert sorted(field for field, _ in refused.causes) == [
        ".spec.atomic",
        ".spec.either",
        ".spec.free.a.b",
        '.spec.keyed[k="x"].v',
        ".spec.nested.x",
        ".spec.whole",
    ]
    gone = apply(path, make("w", {})).expect(200)
    assert gone["spec"] == {"name": "dflt", "keyed": [{"k": "z"}]}


BAD_SPECS: dict[str, tuple[Any, str]] = {
    "keys twice": (
        {"keyed": [{"k": "x"}, {"k": "x"}]},
        '.spec.keyed: duplicate entries for key [k="x"]',
    ),
    "no key": (
        {"keyed": [{"v": "x"}]},
        (
            ".spec.keyed: element 0: associative list with keys has an element that omits all key "
            'fields ["k"] (and doesn\'t have default values for any key fields)'
        ),
    ),
    "null entry": (
        {"keyed": [None]},
        ".spec.keyed: element 0: associative list with keys may not have a null element",
    ),
    "set twice": ({"set": ["x", "x"]}, '.spec.set: duplicate entries for key [="x"]'),
    "set of maps": (
        {"set": [{"a": 1}]},
        ".spec.set: element 0: associative list without keys has an element that's a map type",
    ),
    "unknown": ({"bogus": 1}, ".spec.bogus: field not declared in schema"),
    "no list": ({"keyed": "x"}, ".spec.keyed: expected list, got &{x}"),
    "no map": ({"nested": [1]}, ".spec.nested: expected map, got &{[1]}"),
    "no text": (
        {"name": {"a": [1, "b", None, True]}},
        (
            ".spec.name: expected string, got &value.valueUnstructured{Value:map[string]interface "
            '{}{"a":[]interface {}{1, "b", interface {}(nil), true}}}'
        ),
    ),
    "no number": ({"replicas": "1"}, ".spec.replicas: expected numeric (int or float), got string"),
}


def test_a_spec_that_does_not_fit(apply: Apply, definition: Definition, resources: str) -> None:
    for name, (spec, cause) in BAD_SPECS.items():
        refused = apply(f"{resources}/w", definition.object("w", spec))
        assert (refused.status, refused.reason) == (500, ""), name
        assert refused.message.endswith(f"Kind=Widget): {cause}"), name


def test_nulls_and_numbers(apply: Apply, api: Api, definition: Definition, resources: str) -> None:
    path, make = f"{resources}/w", definition.object
    made = apply(path, make("w", {"free": {"i": 9007199254740993, "f": 2.0, "t": True}}))
    assert made.expect(201)["spec"]["free"] == {"i": 9007199254740993, "f": 2, "t": True}
    # True and 1 are different values.
    changed = api.patch(path, {"spec": {"free": {"t": 1}}}, fieldManager="t").expect(200)
    assert fields_of(changed, "t", "Update") == {"f:spec": {"f:free": {"f:t": {}}}}
    # A null says nothing of what is there, and owns that there is something.
    nothing = apply(path, {**make("w"), "spec": None}).expect(200)
    assert nothing["spec"] == {"free": {"t": 1}, "name": "dflt"}
    assert fields_of(nothing, "m1") == {"f:spec": {}}


def test_subresources_are_applied_on_their_own(
    apply: Apply, api: Api, definition: Definition, resources: str
) -> None:
    path, make = f"{resources}/w", definition.object
    apply(path, {**make("w", {"replicas": 1}), "status": {"replicas": 7}}).expect(201)
    body = {**make("w", {"replicas": 9}, labels={"l": "1"}), "status": {"replicas": 2}}
    found = apply(f"{path}/status", body, "st").expect(200)
    assert (found["spec"]["replicas"], found["status"]) == (1, {"replicas": 2})
    assert fields_of(found, "m1") == {"f:spec": {"f:replicas": {}}}
    assert fields_of(found, "st", "Apply", "status")["f:status"] == {"f:replicas": {}}
    assert "f:spec" not in fields_of(found, "st", "Apply", "status")
    merged = api.patch(
        f"{path}/status", {"status": {"note": "n"}, "spec": {"replicas": 5}}, fieldManager="sm"
    ).expect(200)
    assert fields_of(merged, "sm", "Update", "status") == {"f:status": {"f:note": {}}}
    for subresource in ("status", "scale"):
        missing = make("none") if subresource == "status" else scale_of("none", 1)
        assert apply(f"{resources}/none/{subresource}", missing).status == 404


def scale_of(name: str, replicas: int) -> Object:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": name},
        "spec": {"replicas": replicas},
    }


def test_a_scale_takes_the_replicas(
    apply: Apply, api: Api, definition: Definition, resources: str
) -> None:
    path = f"{resources}/w"
    apply(path, definition.object("w", {"replicas": 1})).expect(201)
    api.patch(f"{path}/scale", {"spec": {"replicas": 3}}, fieldManager="hpa").expect(200)
    found = api.get(path).body
    assert fields_of(found, "m1") is None
    assert fields_of(found, "hpa", "Update", "scale") == {"f:spec": {"f:replicas": {}}}
    refused = apply(path, definition.object("w", {"replicas": 1}))
    assert refused.message == (
        'Apply failed with 1 conflict: conflict with "hpa" with subresource "scale" using '
        f"{definition.group}/v1: .spec.replicas"
    )
    conflict = apply(f"{path}/scale", scale_of("w", 4), "other")
    assert conflict.causes == [(".spec.replicas", "FieldManagerConflict")]
    # Applying the scale of a custom resource is what Kubernetes itself cannot do.
    failed = apply(f"{path}/scale", scale_of("w", 4), "other", force="true")
    assert (failed.status, failed.message) == (
        500,
        (
            "failed to convert new object (/w; autoscaling/v1, Kind=Scale) to proper version: request "
            "to convert CR to an invalid group/version: autoscaling/v1"
        ),
    )


def test_the_scale_of_a_workload_is_applied(apply: Apply, api: Api, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/replicasets/r"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    body: Object = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "r"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    apply(path, body).expect(201)
    # A scale of the same number shares it.
    apply(f"{path}/scale", scale_of("r", 1), "hpa").expect(200)
    found = api.get(path).body
    assert fields_of(found, "hpa", "Apply", "scale") == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" in fields_of(found, "m1")["f:spec"]


def test_versions_of_a_definition(
    apply: Apply, api: Api, definition: Definition, namespace: str, resources: str
) -> None:
    first = f"{resources}/w"
    second = f"{definition.collection(namespace, 'v2')}/w"
    apply(first, definition.object("w", {"name": "one"})).expect(201)
    other = definition.object("w", {"name": "two"}, version="v2")
    assert apply(second, other, "m2").status == 409
    taken = apply(second, other, "m2", force="true").expect(200)
    entry = entry_of(taken, "m2", "Apply")
    assert entry is not None
    assert entry["apiVersion"] == f"{definition.group}/v2"
    # An applier is the same in all versions.
    back = apply(first, definition.object("w", {"replicas": 2}), "m2").expect(200)
    assert back["spec"] == {"name": "dflt", "replicas": 2}
    entry = entry_of(back, "m2", "Apply")
    assert entry is not None
    assert entry["apiVersion"] == f"{definition.group}/v1"
    wrong = apply(first, other, "m2")
    assert wrong.message == f"invalid object type: {definition.group}/v2, Kind=Widget"


def test_a_list_becomes_a_list_map_and_a_map_one_value(
    apply: Apply, api: Api, definition: Definition, resources: str
) -> None:
    """`roles` of a ModelServing were atomic with Kthena and are a list-map here."""
    path, make = f"{resources}/w", definition.object
    spec = {"atomic": [{"a": "1", "b": "2"}, {"a": "2"}], "nested": {"x": "1"}}
    apply(path, make("w", spec)).expect(201)
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}
    changed = definition_with(
        definition,
        "v1",
        "v2",
        atomic={**_SPEC["atomic"], **keyed},
        nested={**_SPEC["nested"], "x-kubernetes-map-type": "atomic"},
    )
    change_definition(api, definition, changed)

    def conflict() -> Any:
        """The fields that another one's apply conflicts over."""
        body = make("w", {"atomic": [{"a": "1", "b": "9"}], "nested": {"y": "1"}})
        return sorted(field for field, _ in apply(path, body, "late", dryRun="All").causes)

    # The owner of the list owns none of its entries; the owner of a member owns the whole map.
    eventually(lambda: conflict() == [".spec.nested"])
    late = apply(path, make("w", {"atomic": [{"a": "1", "b": "9"}]}), "late").expect(200)
    assert late["spec"]["atomic"] == [{"a": "1", "b": "9"}, {"a": "2"}]
    assert fields_of(late, "late") == {
        "f:spec": {"f:atomic": {'k:{"a":"1"}': {".": {}, "f:a": {}, "f:b": {}}}}
    }
    # Its first owner comes to own the entries when it applies again.
    again = apply(path, make("w", spec), force="true").expect(200)
    assert fields_of(again, "m1")["f:spec"] == {
        "f:atomic": {
            'k:{"a":"1"}': {".": {}, "f:a": {}, "f:b": {}},
            'k:{"a":"2"}': {".": {}, "f:a": {}},
        },
        "f:nested": {},
    }


def test_a_version_that_is_gone(
    apply: Apply, api: Api, definition: Definition, namespace: str, resources: str
) -> None:
    first = f"{resources}/w"
    second = f"{definition.collection(namespace, 'v2')}/w"
    apply(first, definition.object("w", {"name": "one"})).expect(201)
    api.patch(second, {"spec": {"replicas": 1}}, fieldManager="up").expect(200)
    change_definition(api, definition, definition_with(definition, "v1"))
    eventually(lambda: api.get(second).status == 404)

    def refused() -> Any:
        reply = apply(first, definition.object("w", {"name": "one"}), dryRun="All")
        return reply.status == 500 and reply

    reply = eventually(refused)
    assert reply.message == (
        f"request to convert CR to an invalid group/version: {definition.group}/v2"
    )
    # An update cannot tell who owns what, and forgets it.
    changed = api.patch(first, {"spec": {"replicas": 2}}, fieldManager="up").expect(200)
    assert "managedFields" not in changed["metadata"]


def test_a_definition_is_established_by_the_server(
    api: Api, definition: Definition, resources: str
) -> None:
    del resources
    found = api.get(definition.path).expect(200)
    owned = fields_of(found, "kube-apiserver", "Update", "status")
    assert set(owned["f:status"]) >= {"f:conditions", "f:acceptedNames"}


def test_the_patch_types_of_custom_resources(api: Api, resources: str) -> None:
    refused = api.patch(f"{resources}/w", {}, STRATEGIC)
    assert refused.status == 415
    assert refused.message == (
        "the body of the request was in an unknown format - accepted media types include: "
        f"{JSON_PATCH}, {MERGE}, {APPLY}"
    )
