"""Rules of custom resources: what they say where they are broken, and what they let be."""

from typing import Any

import pytest

from support.apiserver import Api, Definition

_RULES: list[dict[str, Any]] = [
    {"rule": "self.size < 100", "message": " too large ", "fieldPath": ".size"},
    {"rule": "self.size > 0", "messageExpression": "self.color + ' has no size'"},
    {"rule": "self.color != 'gray'", "reason": "FieldValueForbidden", "fieldPath": ".color"},
    {"rule": "self.color != ''", "reason": "FieldValueRequired", "fieldPath": ".color"},
    {
        "rule": "!oldSelf.hasValue() || self.size >= oldSelf.value().size",
        "optionalOldSelf": True,
        "message": "it may not shrink",
    },
    {"rule": "self.color == oldSelf.color || self.color == 'red'", "message": "only to red"},
]


@pytest.fixture
def ruled(api: Api, definition: Definition) -> Definition:
    """A CRD with rules, at first with one that says less."""
    definition.install(api, definition.crd(entry_of(definition, _RULES)))
    return definition


def entry_of(definition: Definition, rules: list[dict[str, Any]], **limits: Any) -> dict[str, Any]:
    """A version whose spec has some rules."""
    text = {"type": "string", "maxLength": 9}
    properties = {
        "size": {"type": "integer", **limits},
        "color": {"type": "string", "default": "red", "maxLength": 9},
        "names": {
            "type": "array",
            "maxItems": 9,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": text, "value": text},
                "x-kubernetes-validations": [
                    {"rule": "self.value.startsWith('v')", "message": "no v", "fieldPath": ".value"}
                ],
            },
        },
    }
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": rules}
    schema = {"type": "object", "properties": {"spec": spec}}
    return {**definition.version_entry(), "schema": {"openAPIV3Schema": schema}}


@pytest.mark.parametrize(
    ("spec", "path", "said"),
    [
        ({"size": 100}, "spec.size", "Invalid value: too large"),
        ({"size": 0}, "spec", "Invalid value: red has no size"),
        ({"size": 1, "color": "gray"}, "spec.color",
         "Forbidden: failed rule: self.color != 'gray'"),
        ({"size": 1, "color": ""}, "spec.color",
         "Required value: failed rule: self.color != ''"),
        ({"size": 1, "names": [{"name": "a", "value": "x"}]}, "spec.names[0].value",
         "Invalid value: no v"),
        ({"size": 1, "names": [{"name": "a"}]}, "spec.names[0]",
         'Invalid value: "object": no such key: value evaluating rule: no v'),
    ],
)  # fmt: skip
def test_a_broken_rule_says_what_and_where(
    api: Api,
    ruled: Definition,
    namespace: str,
    spec: Any,
    path: str,
    said: str,
) -> None:
    reply = api.create(ruled.collection(namespace), ruled.object("w", spec))
    assert reply.status == 422, reply.body
    reason = said.partition(" ")[0].rstrip(":")
    assert reply.body["details"]["causes"] == [
        {"field": path, "message": said, "reason": f"FieldValue{reason}"}
    ]


def test_rules_compare_with_the_old_object(api: Api, ruled: Definition, namespace: str) -> None:
    path = ruled.collection(namespace)
    api.create(path, ruled.object("w", {"size": 5, "color": "blue"})).expect(201)
    shrunk = api.patch(f"{path}/w", {"spec": {"size": 4}})
    assert (shrunk.status, "it may not shrink" in shrunk.message) == (422, True)
    painted = api.patch(f"{path}/w", {"spec": {"color": "green"}})
    assert (painted.status, "only to red" in painted.message) == (422, True)
    new = api.patch(f"{path}/w", {"spec": {"size": 6, "color": "red"}}).expect(200)
    assert new["spec"] == {"size": 6, "color": "red"}


def test_what_was_wrong_before_may_stay(api: Api, ruled: Definition, namespace: str) -> None:
    path = ruled.collection(namespace)
    entries = [{"name": "a", "value": "v"}, {"name": "b", "value": "v"}]
    api.create(path, ruled.object("w", {"size": 5, "names": entries})).expect(201)
    tighter = ruled.crd(entry_of(ruled, [{"rule": "self.size < 3"}], maximum=4))
    names = tighter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rules = names["properties"]["names"]["items"]["x-kubernetes-validations"]
    rules[0] |= {"rule": "self.value.startsWith('w')", "message": "no w"}
    definition = api.get(ruled.path).body
    tighter["metadata"]["resourceVersion"] = definition["metadata"]["resourceVersion"]
    api.put(ruled.path, tighter).expect(200)
    probe = ruled.object("probe", {"size": 5})

    # The new schema counts as soon as a new object breaks it.
    for _ in range(200):
        if api.create(path, probe, dryRun="All").status == 422:
            break
    else:
        pytest.fail("the new schema does not count")

    labelled = api.patch(f"{path}/w", {"metadata": {"labels": {"a": "b"}}}).expect(200)
    assert labelled["metadata"]["labels"] == {"a": "b"}
    # The spec changes: its rule counts again, and so does that of the item that is new.
    reply = api.patch(f"{path}/w", {"spec": {"color": "blue"}})
    assert (reply.status, reply.causes) == (422, [("spec", "FieldValueInvalid")])
    reply = api.patch(f"{path}/w", {"spec": {"size": 6}})
    assert ("spec.size", "FieldValueInvalid") in reply.causes
    added = [*entries, {"name": "c", "value": "v"}]
    reply = api.patch(f"{path}/w", {"spec": {"size": 2, "names": added}})
    assert reply.causes == [("spec.names[2].value", "FieldValueInvalid")]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"rule": "self.nosuch > 1"}, "undefined field 'nosuch'"),
        ({"rule": "self.size"}, "must evaluate to a bool"),
        (
            {"rule": "self.size > 1", "optionalOldSelf": True},
            "may not be set if oldSelf is not used",
        ),
        ({"rule": "true", "messageExpression": "1"}, "must evaluate to a string"),
        ({"rule": "true", "reason": "Nope"}, "Unsupported value"),
        ({"rule": "true", "fieldPath": ".nosuch"}, "must be a valid path"),
        ({"rule": "true", "message": "a\nb"}, "must not contain line breaks"),
        ({"rule": ""}, "rule is not specified"),
    ],
)
def test_rules_are_checked(
    api: Api, definition: Definition, rule: dict[str, Any], problem: str
) -> None:
    reply = api.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        definition.crd(entry_of(definition, [rule])),
    )
    assert (reply.status, problem in reply.message) == (422, True), reply.message


def test_a_deprecated_version_warns(api: Api, definition: Definition, namespace: str) -> None:
    old = {**definition.version_entry("v1alpha1", storage=False), "deprecated": True}
    new = {**definition.version_entry("v1beta1", storage=False), "deprecated": True}
    new["deprecationWarning"] = "v1beta1 goes"
    definition.install(api, definition.crd(definition.version_entry(), old, new))
    said = f"{definition.group}/v1alpha1 Widget is deprecated; use {definition.group}/v1 Widget"
    for version, warnings in (("v1", []), ("v1alpha1", [said]), ("v1beta1", ["v1beta1 goes"])):
        path = definition.collection(namespace, version)
        body = definition.object(f"w{version}", {"size": 1}, version)
        assert api.create(path, body).warnings == warnings
        assert api.get(path).warnings == warnings
        assert api.delete(f"{path}/w{version}").warnings == warnings
