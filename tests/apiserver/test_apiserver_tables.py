"""Tables and metadata: what `kubectl get` asks for."""

from typing import Any

import pytest

from support.apiserver import CORE, METADATA, METADATA_LIST, TABLE, Api, config_map, pod


@pytest.fixture
def inside(namespace: str) -> str:
    return f"{CORE}/namespaces/{namespace}"


def columns(body: Any, *, wide: bool = False) -> list[str]:
    found = body["columnDefinitions"]
    return [column["name"] for column in found if wide or column["priority"] == 0]


def cells(body: Any) -> list[list[Any]]:
    return [row["cells"] for row in body["rows"]]


def table(api: Api, path: str, **query: Any) -> Any:
    reply = api.get(path, accept=f"{TABLE},application/json", **query)
    body = reply.expect(200)
    assert (body["kind"], body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    return body


def test_rows_carry_the_metadata(api: Api, inside: str) -> None:
    api.create(f"{inside}/configmaps", config_map("a", {"k": "v"}, labels={"x": "y"})).expect(201)
    body = table(api, f"{inside}/configmaps")
    (row,) = body["rows"]
    assert row["cells"][:2] == ["a", 1]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["labels"] == {"x": "y"}
    assert body["metadata"]["resourceVersion"]
    one = table(api, f"{inside}/configmaps/a")
    assert len(one["rows"]) == 1


def test_rows_carry_what_is_asked_for(api: Api, inside: str) -> None:
    api.create(f"{inside}/configmaps", config_map("a", {"k": "v"})).expect(201)
    body = table(api, f"{inside}/configmaps", includeObject="Object")
    assert body["rows"][0]["object"]["data"] == {"k": "v"}
    body = table(api, f"{inside}/configmaps", includeObject="None")
    assert body["rows"][0]["object"] is None
    reply = api.get(f"{inside}/configmaps", accept=TABLE, includeObject="Some")
    assert reply.status == 400


def test_metadata_of_a_list_and_of_an_object(api: Api, inside: str) -> None:
    api.create(f"{inside}/configmaps", config_map("a", {"k": "v"})).expect(201)
    body = api.get(f"{inside}/configmaps", accept=METADATA_LIST).expect(200)
    assert (body["kind"], body["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert set(body["items"][0]) <= {"metadata", "kind", "apiVersion"}
    one = api.get(f"{inside}/configmaps/a", accept=METADATA).expect(200)
    assert (one["kind"], one["metadata"]["name"]) == ("PartialObjectMetadata", "a")


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("*/*", 200),
        ("text/html,application/json;q=0.9", 200),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", 200),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", 200),
        ("application/json;as=Table;v=v9;g=meta.k8s.io", 406),
        ("text/html", 406),
    ],
)
def test_accept_is_heeded(api: Api, inside: str, accept: str, status: int) -> None:
    reply = api.get(f"{inside}/configmaps", accept=accept)
    assert reply.status == status
    if status == 406:
        assert reply.reason == "NotAcceptable"


def test_pods(api: Api, inside: str) -> None:
    api.create(f"{inside}/pods", pod("p", {"nodeName": "n1"})).expect(201)
    statuses = [
        {
            "name": "main",
            "ready": True,
            "restartCount": 3,
            "image": "",
            "imageID": "",
            "state": {"running": {"startedAt": "2024-01-01T00:00:00Z"}},
        }
    ]
    status = {
        "phase": "Running",
        "podIP": "10.1.1.1",
        "podIPs": [{"ip": "10.1.1.1"}],
        "containerStatuses": statuses,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    api.patch(f"{inside}/pods/p/status", {"status": status}).expect(200)
    body = table(api, f"{inside}/pods")
    assert columns(body) == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert columns(body, wide=True)[5:] == ["IP", "Node", "Nominated Node", "Readiness Gates"]
    assert cells(body)[0][:4] == ["p", "1/1", "Running", "3"]
    assert cells(body)[0][5:7] == ["10.1.1.1", "n1"]


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({"phase": "Succeeded", "containerStatuses": []}, "Succeeded"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        (
            {"phase": "Pending", "state": {"waiting": {"reason": "ImagePullBackOff"}}},
            "ImagePullBackOff",
        ),
        (
            {"phase": "Running", "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            "CrashLoopBackOff",
        ),
        (
            {"phase": "Failed", "state": {"terminated": {"reason": "Error", "exitCode": 1}}},
            "Error",
        ),
        ({"phase": "Failed", "state": {"terminated": {"exitCode": 3}}}, "ExitCode:3"),
        ({"phase": "Failed", "state": {"terminated": {"exitCode": 0, "signal": 9}}}, "Signal:9"),
    ],
)
def test_status_of_a_pod(api: Api, inside: str, status: dict[str, Any], shown: str) -> None:
    api.create(f"{inside}/pods", pod("p", {"nodeName": "n1"})).expect(201)
    state = status.pop("state", None)
    if state:
        base = {"name": "main", "ready": False, "restartCount": 0, "image": "", "imageID": ""}
        status["containerStatuses"] = [{**base, "state": state}]
    api.patch(f"{inside}/pods/p/status", {"status": status}).expect(200)
    assert cells(table(api, f"{inside}/pods"))[0][2] == shown


def test_terminating_pod(api: Api, inside: str) -> None:
    api.create(f"{inside}/pods", pod("p", {"nodeName": "n1"})).expect(201)
    api.delete(f"{inside}/pods/p").expect(200)
    assert cells(table(api, f"{inside}/pods"))[0][2] == "Terminating"


def test_init_containers_are_counted(api: Api, inside: str) -> None:
    spec = {"initContainers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]}
    api.create(f"{inside}/pods", pod("p", spec)).expect(201)
    base = {"ready": False, "restartCount": 0, "image": "", "imageID": ""}
    statuses = [
        {**base, "name": "a", "state": {"terminated": {"exitCode": 0}}},
        {**base, "name": "b", "state": {"running": {}}},
    ]
    api.patch(f"{inside}/pods/p/status", {"status": {"initContainerStatuses": statuses}})
    assert cells(table(api, f"{inside}/pods"))[0][2] == "Init:1/2"


def test_deployments(api: Api, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "x:1"}]},
    }
    spec = {
        "replicas": 0,
        "paused": True,
        "selector": {"matchLabels": {"a": "b"}},
        "template": template,
    }
    api.create(path, {"metadata": {"name": "d"}, "spec": spec}).expect(201)
    body = table(api, path)
    assert columns(body) == ["Name", "Ready", "Up-to-date", "Available", "Age"]
    assert cells(body)[0][:4] == ["d", "0/0", 0, 0]
    assert cells(body)[0][5:] == ["c", "x:1", "a=b"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("services", ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age"]),
        ("secrets", ["Name", "Type", "Data", "Age"]),
        ("events", ["Last Seen", "Type", "Reason", "Object", "Message"]),
    ],
)
def test_columns_of_core_kinds(api: Api, inside: str, path: str, expected: list[str]) -> None:
    assert columns(table(api, f"{inside}/{path}")) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"{CORE}/nodes", ["Name", "Status", "Roles", "Age", "Version"]),
        (f"{CORE}/namespaces", ["Name", "Status", "Age"]),
        ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"]),
        ("/apis/apps/v1/controllerrevisions", ["Name", "Controller", "Revision", "Age"]),
        ("/apis/apps/v1/replicasets", ["Name", "Desired", "Current", "Ready", "Age"]),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            ["Name", "Created At"],
        ),
    ],
)
def test_columns_of_other_kinds(api: Api, path: str, expected: list[str]) -> None:
    assert columns(table(api, path)) == expected


def test_node_roles_and_status(api: Api, unique: str) -> None:
    labels = {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "main"}
    body = {
        "metadata": {"name": unique, "labels": labels},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    path = f"{CORE}/nodes"
    api.create(path, body).expect(201)
    shown = cells(table(api, path, fieldSelector=f"metadata.name={unique}"))[0]
    assert shown[:3] == [unique, "Ready,SchedulingDisabled", "main,worker"]
    api.delete(f"{path}/{unique}").expect(200)


def test_pages_of_a_table(api: Api, inside: str) -> None:
    for name in "abc":
        api.create(f"{inside}/configmaps", config_map(name)).expect(201)
    first = table(api, f"{inside}/configmaps", limit=2)
    assert [row[0] for row in cells(first)] == ["a", "b"]
    rest = table(
        api, f"{inside}/configmaps", limit=2, **{"continue": first["metadata"]["continue"]}
    )
    assert [row[0] for row in cells(rest)] == ["c"]


def test_created_object_as_a_table(api: Api, inside: str) -> None:
    headers = {"Accept": TABLE}
    reply = api.request("POST", f"{inside}/configmaps", config_map("a"), headers=headers)
    assert reply.expect(201)["kind"] == "Table"
