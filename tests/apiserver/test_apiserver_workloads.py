"""Deployments, ReplicaSets and ControllerRevisions: defaults, validation, generations."""

import copy
from typing import Any

import pytest

from support.apiserver import Api


@pytest.fixture
def apps(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}"


def workload(name: str, **spec: Any) -> Any:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "x:1"}]},
    }
    base = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"metadata": {"name": name}, "spec": {**base, **spec}}


def test_defaults_of_a_deployment(api: Api, apps: str) -> None:
    body = workload("d")
    del body["spec"]["replicas"]
    body["spec"]["paused"] = True
    made = api.create(f"{apps}/deployments", body, dryRun="All").expect(201)
    spec = made["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert (spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (10, 600)
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert spec["template"]["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert made["metadata"]["generation"] == 1
    assert made["status"] == {}


def test_defaults_of_a_replica_set(api: Api, apps: str) -> None:
    body = workload("r")
    del body["spec"]["selector"]
    reply = api.create(f"{apps}/replicasets", body)
    assert reply.status == 422
    made = api.create(f"{apps}/replicasets", workload("r")).expect(201)
    assert made["status"] == {"replicas": 0}
    assert "strategy" not in made["spec"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"replicas": -1}, "spec.replicas"),
        ({"selector": {}}, "spec.selector"),
        ({"selector": {"matchLabels": {"a": "other"}}}, "spec.template.metadata.labels"),
        ({"strategy": {"type": "Sometimes"}}, "spec.strategy"),
        (
            {"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}},
            "spec.strategy.rollingUpdate",
        ),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}},
            "spec.strategy.rollingUpdate.maxUnavailable",
        ),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": "150"}}},
            "spec.strategy.rollingUpdate.maxSurge",
        ),
        ({"minReadySeconds": -1}, "spec.minReadySeconds"),
        ({"revisionHistoryLimit": -1}, "spec.revisionHistoryLimit"),
        ({"progressDeadlineSeconds": 5, "minReadySeconds": 10}, "spec.progressDeadlineSeconds"),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
            "spec.selector.matchExpressions[0].operator",
        ),
    ],
)
def test_mistakes_are_named(api: Api, apps: str, spec: Any, field: str) -> None:
    reply = api.create(f"{apps}/deployments", workload("d", **spec))
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert field in [name for name, _ in reply.causes], reply.causes


def test_template_is_a_pod_template(api: Api, apps: str) -> None:
    body = workload("d")
    body["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    reply = api.create(f"{apps}/deployments", body)
    assert ("spec.template.spec.restartPolicy", "FieldValueNotSupported") in reply.causes
    body = workload("d")
    body["spec"]["template"]["spec"]["containers"] = []
    reply = api.create(f"{apps}/deployments", body)
    assert ("spec.template.spec.containers", "FieldValueRequired") in reply.causes
    body = workload("d")
    body["spec"]["template"]["spec"]["activeDeadlineSeconds"] = 5
    reply = api.create(f"{apps}/deployments", body)
    assert ("spec.template.spec.activeDeadlineSeconds", "FieldValueForbidden") in reply.causes


def test_selector_is_fixed(api: Api, apps: str) -> None:
    for plural in ("deployments", "replicasets"):
        made = api.create(f"{apps}/{plural}", workload("w")).expect(201)
        body = copy.deepcopy(made)
        body["metadata"].pop("resourceVersion")
        body["spec"]["selector"] = {"matchLabels": {"c": "d"}}
        body["spec"]["template"]["metadata"]["labels"]["c"] = "d"
        reply = api.put(f"{apps}/{plural}/w", body)
        assert (reply.status, reply.causes) == (422, [("spec.selector", "FieldValueInvalid")])
        assert "field is immutable" in reply.message


def test_generation_counts_the_spec(api: Api, apps: str) -> None:
    api.create(f"{apps}/replicasets", workload("r")).expect(201)
    path = f"{apps}/replicasets/r"
    assert api.patch(path, {"spec": {"minReadySeconds": 1}}).body["metadata"]["generation"] == 2
    labels = {"metadata": {"labels": {"x": "y"}}}
    assert api.patch(path, labels).body["metadata"]["generation"] == 2


def test_revisions_are_data_that_stays(api: Api, apps: str) -> None:
    path = f"{apps}/controllerrevisions"
    body = {"metadata": {"name": "r"}, "data": {"any": [1, {"b": None}]}, "revision": 3}
    made = api.create(path, body).expect(201)
    assert made["data"] == {"any": [1, {"b": None}]}
    made["data"] = {"other": 1}
    reply = api.put(f"{path}/r", made)
    assert (reply.status, reply.causes) == (422, [("data", "FieldValueInvalid")])
    made["data"] = {"any": [1, {"b": None}]}
    made["revision"] = 4
    assert api.put(f"{path}/r", made).expect(200)["revision"] == 4
    reply = api.create(path, {"metadata": {"name": "s"}, "revision": -1, "data": {}})
    assert ("revision", "FieldValueInvalid") in reply.causes
