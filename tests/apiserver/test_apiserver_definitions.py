"""CustomResourceDefinitions: their checks, names, versions, changes and end."""

import copy
import time
from typing import Any

import pytest

from support.apiserver import (
    CRDS,
    TABLE,
    WIDGET_SCHEMA,
    Api,
    Definition,
    eventually,
)

HOLD = "test.kthena.io/hold"


def condition(crd: Any, kind: str) -> tuple[str, str]:
    for found in crd["status"].get("conditions") or ():
        if found["type"] == kind:
            return found["status"], found["reason"]
    return "", ""


def test_definition_is_established_with_its_names(api: Api, definition: Definition) -> None:
    made = api.create(CRDS, definition.crd()).expect(201)
    assert made["spec"]["names"] == {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "listKind": "WidgetList",
    }
    assert made["spec"]["conversion"] == {"strategy": "None"}
    assert made["status"]["storedVersions"] == ["v1"]
    crd = definition.wait_established(api)
    assert condition(crd, "NamesAccepted") == ("True", "NoConflicts")
    assert condition(crd, "Established") == ("True", "InitialNamesAccepted")
    assert crd["status"]["acceptedNames"] == crd["spec"]["names"]


def test_definition_is_watched_until_it_is_established(api: Api, definition: Definition) -> None:
    selector = f"metadata.name={definition.name}"
    with api.watch(CRDS, fieldSelector=selector) as watch:
        api.create(CRDS, definition.crd()).expect(201)
        for event in watch:
            if condition(event.object, "Established")[0] == "True":
                break


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("metadata", "name"), "wrong.name.io", "metadata.name"),
        (("spec", "scope"), "Everywhere", "spec.scope"),
        (("spec", "group"), "nodots", "spec.group"),
        (("spec", "names", "plural"), "Widgets", "spec.names.plural"),
        (("spec", "names", "kind"), "", "spec.names.kind"),
        (("spec", "names", "shortNames"), ["Bad Name"], "spec.names.shortNames[0]"),
        (("spec", "versions", 0, "storage"), False, "spec.versions"),
        (("spec", "versions", 0, "name"), "V1", "spec.version"),
        (("spec", "versions", 0, "schema"), {}, "spec.versions[0].schema.openAPIV3Schema"),
        (("spec", "preserveUnknownFields"), True, "spec.preserveUnknownFields"),
        (
            ("spec", "versions", 0, "subresources", "scale", "specReplicasPath"),
            ".status.x",
            "spec.subresources.scale.specReplicasPath",
        ),
    ],
)
def test_mistakes_are_named(
    api: Api, definition: Definition, path: tuple[Any, ...], value: Any, field: str
) -> None:
    crd = copy.deepcopy(definition.crd())
    node: Any = crd
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    reply = api.create(CRDS, crd)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert field in [name for name, _ in reply.causes], reply.causes


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({"type": "array"}, ".type"),
        ({"type": "object", "properties": {"a": {}}}, ".properties[a].type"),
        ({"type": "object", "properties": {"a": {"type": "wrong"}}}, ".properties[a].type"),
        (
            {"type": "object", "properties": {"a": {"type": "array"}}},
            ".properties[a].items",
        ),
        (
            {"type": "object", "x-kubernetes-validations": [{"rule": "self.nosuch > 1"}]},
            ".x-kubernetes-validations[0].rule",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}},
            ".properties[a].default",
        ),
    ],
)
def test_schema_must_be_structural(
    api: Api, definition: Definition, schema: Any, field: str
) -> None:
    entry = definition.version_entry(schema={"openAPIV3Schema": schema})
    reply = api.create(CRDS, definition.crd(entry))
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert any(name.endswith(f"openAPIV3Schema{field}") for name, _ in reply.causes), reply.causes


def test_names_of_another_are_not_accepted_until_it_is_gone(
    api: Api, definition: Definition, namespace: str
) -> None:
    definition.install(api)
    rival = Definition(definition.group, plural="gadgets")
    api.create(CRDS, rival.crd()).expect(201)
    crd = eventually(
        lambda: (
            (found := api.get(rival.path).body)
            and condition(found, "NamesAccepted")[0] == "False"
            and found
        )
    )
    assert condition(crd, "NamesAccepted") == ("False", "ListKindConflict")
    assert condition(crd, "Established") == ("False", "NotAccepted")
    assert api.get(rival.collection(namespace)).status == 404
    api.delete(definition.path).expect(200)
    rival.wait_established(api)
    api.create(rival.collection(namespace), rival.object("g")).expect(201)
    api.delete(rival.path).expect(200)


def test_definition_takes_its_objects_along(api: Api, widgets: Definition, namespace: str) -> None:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("a")).expect(201)
    api.create(path, widgets.object("held", finalizers=[HOLD])).expect(201)
    api.delete(widgets.path).expect(200)
    eventually(lambda: "deletionTimestamp" in api.get(f"{path}/held").body["metadata"])
    eventually(lambda: api.get(f"{path}/a").status == 404)
    crd = api.get(widgets.path).expect(200)
    assert condition(crd, "Terminating")[0] == "True"
    assert crd["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    reply = api.create(path, widgets.object("new"))
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert "create not allowed while custom resource definition is terminating" in reply.message
    api.patch(f"{path}/held", {"metadata": {"finalizers": None}}).expect(200)
    eventually(lambda: api.get(widgets.path).status == 404, timeout_s=60)
    eventually(lambda: api.get(path).status == 404)


def test_definition_that_comes_back_is_empty(api: Api, widgets: Definition, namespace: str) -> None:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("a")).expect(201)
    api.delete(widgets.path).expect(200)
    eventually(lambda: api.get(widgets.path).status == 404, timeout_s=60)
    widgets.install(api)
    assert api.get(path).body["items"] == []


def test_watch_of_a_definition_that_goes_ends(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("a")).expect(201)
    version = api.get(path).body["metadata"]["resourceVersion"]
    started = time.monotonic()
    with api.watch(path, resourceVersion=version, timeoutSeconds="60") as watch:
        api.delete(widgets.path).expect(200)
        assert "DELETED" in [event.type for event in watch.rest()]
    assert time.monotonic() - started < 25


def change(api: Api, definition: Definition, schema: Any) -> None:
    """Give the definition another schema, marked so that its being served shows."""
    crd = api.get(definition.path).body
    generation = crd["metadata"]["generation"]
    entry = crd["spec"]["versions"][0]
    entry["schema"] = {"openAPIV3Schema": schema}
    entry["additionalPrinterColumns"] = [
        {"name": f"G{generation}", "type": "string", "jsonPath": ".spec.x"}
    ]
    api.put(definition.path, crd).expect(200)

    def served() -> bool:
        body = api.get(definition.collection(), accept=TABLE).body
        columns = body.get("columnDefinitions") or ()
        return any(column["name"] == f"G{generation}" for column in columns)

    eventually(served)


def test_new_schema_holds_for_old_objects(api: Api, widgets: Definition, namespace: str) -> None:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("w", {"size": 1, "parts": [{"name": "a"}]})).expect(201)
    schema = copy.deepcopy(WIDGET_SCHEMA)
    spec = schema["properties"]["spec"]["properties"]
    del spec["parts"]
    spec["weight"] = {"type": "integer", "default": 5}
    spec["size"]["minimum"] = 3
    change(api, widgets, schema)

    read = api.get(f"{path}/w").expect(200)
    # A field that the schema has lost is not shown; a default that it has gained is.
    assert read["spec"] == {"size": 1, "color": "red", "replicas": 1, "weight": 5}
    assert api.get(path).body["items"][0]["spec"]["weight"] == 5
    # What did not change need not be valid under the new schema.
    api.patch(f"{path}/w", {"metadata": {"labels": {"x": "y"}}}).expect(200)
    reply = api.patch(f"{path}/w", {"spec": {"size": 2}})
    assert (reply.status, reply.causes) == (422, [("spec.size", "FieldValueInvalid")])
    assert api.create(path, widgets.object("v", {"size": 2})).status == 422


def test_new_default_reaches_open_watches_and_pages(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = widgets.collection(namespace)
    for name in "ab":
        api.create(path, widgets.object(name)).expect(201)
    schema = copy.deepcopy(WIDGET_SCHEMA)
    schema["properties"]["spec"]["properties"]["weight"] = {"type": "integer", "default": 5}
    change(api, widgets, schema)
    page = api.get(path, limit=1).body
    rest = api.get(path, **{"continue": page["metadata"]["continue"]}).body
    found = [item["spec"]["weight"] for item in (*page["items"], *rest["items"])]
    assert found == [5, 5]


def gain_default(api: Api, widgets: Definition, path: str) -> None:
    """Give the CRD a default that the widget `w` has not, and wait until it is served."""
    schema = copy.deepcopy(WIDGET_SCHEMA)
    schema["properties"]["spec"]["properties"]["weight"] = {"type": "integer", "default": 5}
    change(api, widgets, schema)
    eventually(lambda: api.get(f"{path}/w").expect(200)["spec"].get("weight") == 5)


def test_new_default_survives_a_deletion_that_waits(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("w", finalizers=[HOLD])).expect(201)
    gain_default(api, widgets, path)
    version = api.get(path).body["metadata"]["resourceVersion"]
    with api.watch(path, resourceVersion=version) as watch:
        assert api.delete(f"{path}/w").expect(200)["spec"]["weight"] == 5
        held = api.get(f"{path}/w").expect(200)
        assert held["metadata"]["deletionTimestamp"]
        assert held["spec"]["weight"] == 5
        api.patch(f"{path}/w", {"metadata": {"finalizers": None}}).expect(200)
        events = watch.take(2)
    assert [event.type for event in events] == ["MODIFIED", "DELETED"]
    assert [event.object["spec"]["weight"] for event in events] == [5, 5]


@pytest.mark.parametrize("collection", [False, True])
def test_new_default_is_in_the_last_state_of_an_object(
    api: Api, widgets: Definition, namespace: str, *, collection: bool
) -> None:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("w")).expect(201)
    gain_default(api, widgets, path)
    version = api.get(path).body["metadata"]["resourceVersion"]
    with api.watch(path, resourceVersion=version) as watch:
        api.delete(path if collection else f"{path}/w").expect(200)
        event = watch.next()
    assert (event.type, event.object["spec"]["weight"]) == ("DELETED", 5)


def test_new_default_is_in_the_state_that_a_selector_loses(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("w", labels={"in": "yes"})).expect(201)
    gain_default(api, widgets, path)
    version = api.get(path).body["metadata"]["resourceVersion"]
    with api.watch(path, resourceVersion=version, labelSelector="in=yes") as watch:
        patched = api.patch(f"{path}/w", {"metadata": {"labels": None}}).expect(200)
        event = watch.next()
    assert (event.type, event.object["spec"]["weight"]) == ("DELETED", 5)
    assert event.object["metadata"]["labels"] == {"in": "yes"}
    assert event.object["metadata"]["resourceVersion"] == patched["metadata"]["resourceVersion"]


def test_new_default_is_in_the_reply_to_a_scale(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("w")).expect(201)
    gain_default(api, widgets, path)
    api.patch(f"{path}/w/scale", {"spec": {"replicas": 3}}).expect(200)
    assert api.get(f"{path}/w").expect(200)["spec"]["weight"] == 5


def test_versions_show_the_same_objects(api: Api, definition: Definition, namespace: str) -> None:
    crd = definition.crd(
        definition.version_entry("v1alpha1", storage=False, deprecated=True),
        definition.version_entry("v1"),
        definition.version_entry("v1beta1", storage=False, served=False),
    )
    definition.install(api, crd)
    old, new = definition.collection(namespace, "v1alpha1"), definition.collection(namespace)
    made = api.create(old, definition.object("w", version="v1alpha1"))
    group = definition.group
    assert made.warnings == [f"{group}/v1alpha1 Widget is deprecated; use {group}/v1 Widget"]
    assert made.expect(201)["apiVersion"] == f"{definition.group}/v1alpha1"
    read = api.get(f"{new}/w").expect(200)
    assert read["apiVersion"] == f"{definition.group}/v1"
    assert read["metadata"]["uid"] == made.body["metadata"]["uid"]
    assert api.get(definition.collection(namespace, "v1beta1")).status == 404
    version = api.get(new).body["metadata"]["resourceVersion"]
    with api.watch(old, resourceVersion=version) as watch:
        api.patch(f"{new}/w", {"spec": {"size": 4}}).expect(200)
        event = watch.next()
    assert event.object["apiVersion"] == f"{definition.group}/v1alpha1"
    assert event.object["spec"]["size"] == 4


def test_storage_version_is_remembered(api: Api, definition: Definition) -> None:
    first = definition.version_entry("v1alpha1")
    definition_alpha = Definition(definition.group, version="v1alpha1")
    definition_alpha.install(api, definition.crd(first))
    crd = api.get(definition.path).body
    crd["spec"]["versions"] = [
        definition.version_entry("v1"),
        definition.version_entry("v1alpha1", storage=False),
    ]
    new = api.put(definition.path, crd).expect(200)
    assert new["status"]["storedVersions"] == ["v1alpha1", "v1"]
    new["spec"]["versions"] = [definition.version_entry("v1")]
    reply = api.put(definition.path, new)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.causes == [("status.storedVersions[0]", "FieldValueInvalid")]


def test_group_scope_and_names_are_fixed(api: Api, widgets: Definition) -> None:
    crd = api.get(widgets.path).body
    crd["spec"]["scope"] = "Cluster"
    reply = api.put(widgets.path, crd)
    assert (reply.status, reply.causes) == (422, [("spec.scope", "FieldValueInvalid")])
    crd = api.get(widgets.path).body
    crd["spec"]["names"]["shortNames"] = ["wd"]
    api.put(widgets.path, crd).expect(200)
    eventually(lambda: api.get(widgets.path).body["status"]["acceptedNames"].get("shortNames"))


def test_status_of_a_definition_is_apart(api: Api, widgets: Definition) -> None:
    crd = api.get(widgets.path).body
    crd["status"]["conditions"] = []
    new = api.put(widgets.path, crd).expect(200)
    assert condition(new, "Established")[0] == "True"


def test_columns_of_a_definition(api: Api, definition: Definition, namespace: str) -> None:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How big"},
        {"name": "Wide", "type": "string", "jsonPath": ".spec.color", "priority": 1},
        {"name": "Parts", "type": "string", "jsonPath": ".spec.parts[*].name"},
        {"name": "Missing", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    definition.install(
        api, definition.crd(definition.version_entry(additionalPrinterColumns=columns))
    )
    path = definition.collection(namespace)
    spec = {"size": 3, "parts": [{"name": "a"}, {"name": "b"}]}
    api.create(path, definition.object("w", spec)).expect(201)
    body = api.get(path, accept=TABLE).expect(200)
    assert [column["name"] for column in body["columnDefinitions"]] == [
        *("Name", "Size", "Wide", "Parts", "Missing", "Since"),
    ]
    assert [column["priority"] for column in body["columnDefinitions"]] == [0, 0, 1, 0, 0, 0]
    cells = body["rows"][0]["cells"]
    assert cells[:3] == ["w", 3, "red"]
    assert cells[4] is None
    # A real server shows the first of several values; both of them are what users may see.
    assert cells[3] in ("a", "a,b", "a b")


def test_webhook_conversion_is_refused_where_it_cannot_work(
    api: Api, definition: Definition
) -> None:
    crd = definition.crd()
    crd["spec"]["conversion"] = {"strategy": "Webhook"}
    assert api.create(CRDS, crd).status == 422


def test_selectable_fields(api: Api, definition: Definition, namespace: str) -> None:
    entry = definition.version_entry(selectableFields=[{"jsonPath": ".spec.color"}])
    definition.install(api, definition.crd(entry))
    path = definition.collection(namespace)
    api.create(path, definition.object("r", {"color": "red"})).expect(201)
    api.create(path, definition.object("g", {"color": "green"})).expect(201)
    body = api.get(path, fieldSelector="spec.color=green").expect(200)
    assert [item["metadata"]["name"] for item in body["items"]] == ["g"]
    assert api.get(path, fieldSelector="spec.size=1").status == 400


def test_selectable_fields_that_come_later_find_old_objects(
    api: Api, definition: Definition, namespace: str
) -> None:
    # Versions with the same schema share it, and then must share the selectable fields.
    other_schema = {"openAPIV3Schema": {**WIDGET_SCHEMA, "description": "other"}}
    second = definition.version_entry("v2", storage=False, schema=other_schema)
    definition.install(api, definition.crd(definition.version_entry(), second))
    path = definition.collection(namespace)
    api.create(path, definition.object("g", {"color": "green"})).expect(201)
    assert api.get(path, fieldSelector="spec.color=green").status == 400
    crd = api.get(definition.path).body
    crd["spec"]["versions"][0]["selectableFields"] = [{"jsonPath": ".spec.color"}]
    api.put(definition.path, crd).expect(200)
    body = eventually(
        lambda: (
            (reply := api.get(path, fieldSelector="spec.color=green")).status == 200 and reply.body
        )
    )
    assert [item["metadata"]["name"] for item in body["items"]] == ["g"]
    assert api.get(path, fieldSelector="spec.color=red").body["items"] == []
    # A field is selectable in the versions that say so.
    other = definition.collection(namespace, "v2")
    assert api.get(other, fieldSelector="spec.color=green").status == 400


def test_selectable_fields_stand_beside_their_schema(api: Api, definition: Definition) -> None:
    fields = [{"jsonPath": ".spec.color"}]
    first = definition.version_entry(selectableFields=fields)
    second = definition.version_entry("v2", storage=False)
    reply = api.create(CRDS, definition.crd(first, second))
    causes = [("spec.versions[0].selectableFields", "FieldValueInvalid")]
    assert (reply.status, reply.causes) == (422, causes)
    schema = {"openAPIV3Schema": {**WIDGET_SCHEMA, "description": "other"}}
    second = definition.version_entry("v2", storage=False, selectableFields=fields, schema=schema)
    reply = api.create(CRDS, definition.crd(first, second))
    assert (reply.status, reply.causes) == (422, [("spec.selectableFields", "FieldValueInvalid")])


def test_rules_see_the_old_object(api: Api, definition: Definition, namespace: str) -> None:
    schema = copy.deepcopy(WIDGET_SCHEMA)
    schema["properties"]["spec"]["x-kubernetes-validations"] = [
        {"rule": "self.size >= oldSelf.size", "message": "size may not shrink"}
    ]
    entry = definition.version_entry(schema={"openAPIV3Schema": schema})
    definition.install(api, definition.crd(entry))
    path = definition.collection(namespace)
    api.create(path, definition.object("w", {"size": 5})).expect(201)
    api.patch(f"{path}/w", {"spec": {"size": 6}}).expect(200)
    reply = api.patch(f"{path}/w", {"spec": {"size": 2}})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert "size may not shrink" in reply.message


def test_rule_that_loops_too_long_is_cancelled(
    api: Api, definition: Definition, namespace: str
) -> None:
    loop = "self.l.all(x, self.l.all(y, y >= 0))"
    numbers = {"type": "array", "maxItems": 1400, "items": {"type": "integer"}}
    spec = {
        "type": "object",
        "properties": {"l": numbers},
        "x-kubernetes-validations": [{"rule": loop}, {"rule": "size(self.l) > 2000"}],
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    definition.install(api, definition.crd(definition.version_entry(schema=schema)))
    widget = definition.object("w", {"l": list(range(1400))})
    reply = api.create(definition.collection(namespace), widget)
    assert reply.message == (
        f'Widget.{definition.group} "w" is invalid: spec: Invalid value: "object": '
        "'operation cancelled: actual cost limit exceeded': no further validation rules will be "
        f"run due to call cost exceeds limit for rule: {loop}"
    )
