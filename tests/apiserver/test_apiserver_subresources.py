"""The status and scale subresources, and the generation that they leave alone."""

from typing import Any

import pytest

from support.apiserver import MERGE, METADATA, TABLE, Api, Definition


@pytest.fixture
def widget(api: Api, widgets: Definition, namespace: str) -> str:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("w", {"size": 1, "replicas": 2})).expect(201)
    return f"{path}/w"


@pytest.fixture
def deployment(api: Api, namespace: str) -> str:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    spec = {
        "replicas": 0,
        "paused": True,
        "selector": {"matchLabels": {"a": "b"}},
        "template": template,
    }
    api.create(path, {"metadata": {"name": "d"}, "spec": spec}).expect(201)
    return f"{path}/d"


def test_status_is_dropped_from_a_new_object(api: Api, widgets: Definition, namespace: str) -> None:
    body = {**widgets.object("w"), "status": {"phase": "Up"}}
    made = api.create(widgets.collection(namespace), body).expect(201)
    assert "status" not in made


def test_spec_and_status_are_written_apart(api: Api, widget: str) -> None:
    before = api.get(widget).body
    both = {"spec": {"size": 5}, "status": {"phase": "Up"}}
    main = api.patch(widget, both).expect(200)
    assert "status" not in main
    assert (main["spec"]["size"], main["metadata"]["generation"]) == (5, 2)
    status = api.patch(f"{widget}/status", {"spec": {"size": 9}, "status": {"phase": "Up"}})
    assert status.expect(200)["spec"]["size"] == 5
    assert status.body["status"] == {"phase": "Up"}
    assert status.body["metadata"]["generation"] == 2
    assert status.body["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    assert api.get(f"{widget}/status").expect(200) == status.body


def test_update_without_a_status_keeps_it(api: Api, widget: str) -> None:
    api.patch(f"{widget}/status", {"status": {"phase": "Up"}}).expect(200)
    body = api.get(widget).body
    del body["status"]
    body["spec"]["size"] = 7
    assert api.put(widget, body).expect(200)["status"] == {"phase": "Up"}


def test_status_may_not_change_metadata(api: Api, widget: str) -> None:
    body = api.get(widget).body
    body["metadata"]["labels"] = {"x": "y"}
    body["status"] = {"phase": "Up"}
    new = api.put(f"{widget}/status", body).expect(200)
    assert "labels" not in new["metadata"]


def test_status_is_validated_and_conflicts(api: Api, widget: str) -> None:
    reply = api.patch(f"{widget}/status", {"status": {"phase": 5}})
    assert (reply.status, reply.causes) == (422, [("status.phase", "FieldValueTypeInvalid")])
    body = api.get(widget).body
    api.patch(f"{widget}/status", {"status": {"phase": "A"}}).expect(200)
    reply = api.put(f"{widget}/status", {**body, "status": {"phase": "B"}})
    assert (reply.status, reply.reason) == (409, "Conflict")


def test_status_that_does_not_change_keeps_the_version(api: Api, widget: str) -> None:
    first = api.patch(f"{widget}/status", {"status": {"phase": "Up"}}).expect(200)
    again = api.patch(f"{widget}/status", {"status": {"phase": "Up"}}).expect(200)
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_metadata_does_not_count_as_a_generation(api: Api, widget: str) -> None:
    new = api.patch(widget, {"metadata": {"labels": {"x": "y"}}}).expect(200)
    assert new["metadata"]["generation"] == 1


def test_kind_without_subresources_counts_every_change(
    api: Api, definition: Definition, namespace: str
) -> None:
    definition.install(api, definition.crd(definition.version_entry()))
    path = definition.collection(namespace)
    body = {**definition.object("w"), "status": {"phase": "Up"}}
    made = api.create(path, body).expect(201)
    assert made["status"] == {"phase": "Up"}
    new = api.patch(f"{path}/w", {"status": {"phase": "Down"}}).expect(200)
    assert (new["status"], new["metadata"]["generation"]) == ({"phase": "Down"}, 2)
    assert api.get(f"{path}/w/status").status == 404
    assert api.get(f"{path}/w/scale").status == 404


def scale_of(body: Any) -> tuple[Any, Any]:
    return body["spec"].get("replicas"), body["status"].get("replicas")


def test_scale_of_a_custom_resource(api: Api, widget: str) -> None:
    api.patch(f"{widget}/status", {"status": {"replicas": 1, "selector": "a=b"}}).expect(200)
    scale = api.get(f"{widget}/scale").expect(200)
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    assert scale_of(scale) == (2, 1)
    assert scale["status"]["selector"] == "a=b"
    assert scale["metadata"]["uid"] == api.get(widget).body["metadata"]["uid"]
    new = api.patch(f"{widget}/scale", {"spec": {"replicas": 4}}).expect(200)
    assert scale_of(new) == (4, 1)
    assert api.get(widget).body["spec"] == {"size": 1, "color": "red", "replicas": 4}
    assert api.get(widget).body["metadata"]["generation"] == 2
    new["spec"]["replicas"] = 0
    assert scale_of(api.put(f"{widget}/scale", new).expect(200))[0] in (0, None)


def test_scale_in_other_forms(api: Api, widget: str, deployment: str) -> None:
    for path, replicas in ((widget, 2), (deployment, 0)):
        before = api.get(path).body["metadata"]["resourceVersion"]
        table = api.get(f"{path}/scale", accept=TABLE).expect(200)
        columns = [(column["name"], column["type"]) for column in table["columnDefinitions"]]
        assert columns[:3] == [("Name", "string"), ("Desired", "integer"), ("Available", "integer")]
        (row,) = table["rows"]
        name = path.rpartition("/")[2]
        assert row["cells"][:3] == [name, replicas, 0]
        assert row["object"]["kind"] == "PartialObjectMetadata"
        stored = api.get(path).body["metadata"]
        # A real control plane's controllers may write the Deployment meanwhile.
        assert table["metadata"]["resourceVersion"] in {before, stored["resourceVersion"]}
        only = api.get(f"{path}/scale", accept=METADATA).expect(200)
        assert only["kind"] == "PartialObjectMetadata"
        assert only["metadata"]["uid"] == stored["uid"]


def test_scale_is_checked(api: Api, widget: str) -> None:
    scale = api.get(f"{widget}/scale").body
    scale["spec"]["replicas"] = -1
    reply = api.put(f"{widget}/scale", scale)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.causes == [(".spec.replicas", "FieldValueInvalid")]
    api.patch(widget, {"spec": {"size": 3}}).expect(200)
    scale["spec"]["replicas"] = 3
    reply = api.put(f"{widget}/scale", scale)
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert api.put(f"{widget}/scale", {"kind": "Pod", "apiVersion": "v1"}).status == 400


def test_scale_of_what_does_not_exist(api: Api, widget: str) -> None:
    assert api.get(f"{widget}x/scale").status == 404
    assert api.patch(f"{widget}x/scale", {"spec": {"replicas": 1}}).status == 404


def test_scale_of_a_deployment(api: Api, deployment: str) -> None:
    scale = api.get(f"{deployment}/scale").expect(200)
    assert scale["spec"] == {}
    assert scale["status"]["selector"] == "a=b"
    api.patch(f"{deployment}/scale", {"spec": {"replicas": 3}}, MERGE).expect(200)
    assert api.get(deployment).body["spec"]["replicas"] == 3
    api.patch(f"{deployment}/scale", {"spec": {"replicas": 0}}, MERGE).expect(200)


def test_status_of_a_deployment(api: Api, deployment: str) -> None:
    body = api.get(deployment).body
    body["spec"]["replicas"] = 5
    body["status"]["observedGeneration"] = 1
    new = api.patch(f"{deployment}/status", {"status": {"observedGeneration": 1}}).expect(200)
    assert new["status"]["observedGeneration"] == 1
    assert new["spec"]["replicas"] == 0


def test_unknown_subresources(api: Api, widget: str, deployment: str) -> None:
    assert api.get(f"{widget}/nosuch").status == 404
    assert api.get(f"{deployment}/nosuch").status == 404
    assert api.delete(f"{deployment}/status").status == 405
    assert api.create(f"{widget}/status", {}).status == 405
