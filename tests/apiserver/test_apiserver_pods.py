"""Pods: defaults, validation, immutability, binding, status."""

import copy
from typing import Any

import pytest

from support.apiserver import CORE, Api, pod


@pytest.fixture
def pods(namespace: str) -> str:
    return f"{CORE}/namespaces/{namespace}/pods"


def test_defaults(api: Api, pods: str) -> None:
    spec = api.create(pods, pod("p")).expect(201)["spec"]
    # The real server's admission plugins add tolerations; the embedded one has no such plugins.
    spec.pop("tolerations", None)
    assert spec == {
        "containers": [
            {
                "name": "main",
                "image": "busybox:1",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def test_status_starts_pending(api: Api, pods: str) -> None:
    body = {**pod("p"), "status": {"phase": "Running"}}
    assert api.create(pods, body).expect(201)["status"] == {
        "phase": "Pending",
        "qosClass": "BestEffort",
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1", "IfNotPresent"),
        ("host:5000/busybox", "Always"),
        ("busybox@sha256:" + "0" * 64, "IfNotPresent"),
    ],
)
def test_pull_policy_follows_the_tag(api: Api, pods: str, image: str, policy: str) -> None:
    spec = {"containers": [{"name": "c", "image": image}]}
    made = api.create(pods, pod("p", spec)).expect(201)
    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_probes_ports_and_volumes_get_their_defaults(api: Api, pods: str) -> None:
    container = {
        "name": "c",
        "image": "x:1",
        "ports": [{"containerPort": 80}],
        "livenessProbe": {"httpGet": {"port": 80}},
        "readinessProbe": {"tcpSocket": {"port": 80}, "timeoutSeconds": 3},
        "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}},
    }
    volumes = [
        {"name": "c", "configMap": {"name": "x"}},
        {"name": "s", "secret": {"secretName": "x"}},
        {"name": "e"},
    ]
    made = api.create(pods, pod("p", {"containers": [container], "volumes": volumes})).expect(201)
    result = made["spec"]["containers"][0]
    assert result["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert result["livenessProbe"] == {
        "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert result["readinessProbe"]["timeoutSeconds"] == 3
    assert result["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    limits = {"cpu": "500m", "memory": "1Gi"}
    assert result["resources"] == {"limits": limits, "requests": limits}
    assert made["spec"]["volumes"] == [
        {"name": "c", "configMap": {"name": "x", "defaultMode": 420}},
        {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
        {"name": "e", "emptyDir": {}},
    ]
    assert made["status"]["qosClass"] == "Guaranteed"


def test_host_network_shows_its_ports(api: Api, pods: str) -> None:
    container = {"name": "c", "image": "x:1", "ports": [{"containerPort": 80}]}
    spec = {"hostNetwork": True, "containers": [container]}
    made = api.create(pods, pod("p", spec)).expect(201)
    assert made["spec"]["containers"][0]["ports"][0]["hostPort"] == 80


def container(**more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "x", **more}]}


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"containers": []}, "spec.containers", "FieldValueRequired"),
        (container(name=""), "spec.containers[0].name", "FieldValueRequired"),
        (container(name="A_"), "spec.containers[0].name", "FieldValueInvalid"),
        (container(image=""), "spec.containers[0].image", "FieldValueRequired"),
        (container(image=" x"), "spec.containers[0].image", "FieldValueInvalid"),
        (
            container(imagePullPolicy="Now"),
            "spec.containers[0].imagePullPolicy",
            "FieldValueNotSupported",
        ),
        (
            {"containers": [{"name": "c", "image": "x"}, {"name": "c", "image": "y"}]},
            "spec.containers[1].name",
            "FieldValueDuplicate",
        ),
        (
            container(ports=[{"containerPort": 0}]),
            "spec.containers[0].ports[0].containerPort",
            "FieldValueRequired",
        ),
        (
            container(ports=[{"containerPort": 70000}]),
            "spec.containers[0].ports[0].containerPort",
            "FieldValueInvalid",
        ),
        (container(env=[{"name": ""}]), "spec.containers[0].env[0].name", "FieldValueRequired"),
        (
            container(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
            "spec.containers[0].volumeMounts[0].name",
            "FieldValueNotFound",
        ),
        (
            container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
            "spec.containers[0].resources.requests",
            "FieldValueInvalid",
        ),
        (container(livenessProbe={}), "spec.containers[0].livenessProbe", "FieldValueRequired"),
        ({**container(), "restartPolicy": "Maybe"}, "spec.restartPolicy", "FieldValueNotSupported"),
        ({**container(), "dnsPolicy": "Maybe"}, "spec.dnsPolicy", "FieldValueNotSupported"),
        (
            {**container(), "activeDeadlineSeconds": 0},
            "spec.activeDeadlineSeconds",
            "FieldValueInvalid",
        ),
        (
            {**container(), "volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]},
            "spec.volumes[0].hostPath",
            "FieldValueForbidden",
        ),
    ],
)
def test_mistakes_are_named(
    api: Api, pods: str, spec: dict[str, Any], field: str, reason: str
) -> None:
    reply = api.create(pods, {**pod("p"), "spec": spec})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert (field, reason) in reply.causes


@pytest.mark.parametrize(
    "resources", [{"limits": {"cpu": "many"}}, {"limits": {"memory": "1GiB"}}, {"limits": []}]
)
def test_unreadable_values_are_bad_requests(api: Api, pods: str, resources: Any) -> None:
    reply = api.create(pods, pod("p", container(resources=resources)))
    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert 'Pod in version "v1" cannot be handled as a Pod' in reply.message


def test_image_may_change_and_nothing_else(api: Api, pods: str) -> None:
    made = api.create(pods, pod("p")).expect(201)
    body = copy.deepcopy(made)
    body["spec"]["containers"][0]["image"] = "busybox:2"
    new = api.put(f"{pods}/p", body).expect(200)
    assert new["spec"]["containers"][0]["image"] == "busybox:2"
    assert new["metadata"]["generation"] == 2
    new["spec"]["containers"][0]["command"] = ["x"]
    reply = api.put(f"{pods}/p", new)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.causes == [("spec", "FieldValueForbidden")]
    assert "pod updates may not change fields other than" in reply.message
    body["spec"]["containers"].append({"name": "d", "image": "y"})
    del body["metadata"]["resourceVersion"]
    reply = api.put(f"{pods}/p", body)
    assert ("spec.containers", "FieldValueForbidden") in reply.causes


def test_update_may_leave_out_what_admission_set(api: Api, pods: str) -> None:
    api.create(pods, pod("p")).expect(201)
    body = pod("p", labels={"x": "y"})
    assert api.put(f"{pods}/p", body).expect(200)["metadata"]["labels"] == {"x": "y"}


def test_labels_may_change(api: Api, pods: str) -> None:
    api.create(pods, pod("p")).expect(201)
    new = api.patch(f"{pods}/p", {"metadata": {"labels": {"x": "y"}}}).expect(200)
    assert new["metadata"]["labels"] == {"x": "y"}
    reply = api.patch(f"{pods}/p", {"metadata": {"labels": {"x": "not valid!"}}})
    assert reply.status == 422
    assert set(reply.causes) == {("metadata.labels", "FieldValueInvalid")}


def test_binding_assigns_a_node_once(api: Api, pods: str) -> None:
    api.create(pods, pod("p")).expect(201)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "annotations": {"a": "b"}},
        "target": {"kind": "Node", "name": "n1"},
    }
    body = api.create(f"{pods}/p/binding", binding).expect(201)
    assert (body["kind"], body["status"]) == ("Status", "Success")
    bound = api.get(f"{pods}/p").expect(200)
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"a": "b"}
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    reply = api.create(f"{pods}/p/binding", binding)
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert 'pod p is already assigned to node "n1"' in reply.message
    assert api.create(f"{pods}/nosuch/binding", binding).status in (400, 404)


def test_binding_may_name_the_pod_that_it_means(api: Api, pods: str) -> None:
    uid = api.create(pods, pod("p")).expect(201)["metadata"]["uid"]
    binding = {"metadata": {"name": "p", "uid": "other"}, "target": {"kind": "Node", "name": "n1"}}
    reply = api.create(f"{pods}/p/binding", binding)
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert "nodeName" not in api.get(f"{pods}/p").body["spec"]
    binding["metadata"]["uid"] = uid
    api.create(f"{pods}/p/binding", binding).expect(201)


def test_binding_is_checked(api: Api, pods: str) -> None:
    api.create(pods, pod("p")).expect(201)
    for target in ({"kind": "Node", "name": ""}, {"kind": "Pod", "name": "x"}):
        binding = {"metadata": {"name": "p"}, "target": target}
        assert api.create(f"{pods}/p/binding", binding).status >= 400
    assert "nodeName" not in api.get(f"{pods}/p").body["spec"]


def test_status_is_written_apart(api: Api, pods: str) -> None:
    api.create(pods, pod("p")).expect(201)
    statuses = [{"name": "main", "ready": True, "restartCount": 0, "image": "", "imageID": ""}]
    status = {"phase": "Running", "podIP": "10.1.1.1", "containerStatuses": statuses}
    new = api.patch(f"{pods}/p/status", {"status": status}).expect(200)
    assert new["status"]["phase"] == "Running"
    assert new["status"]["qosClass"] == "BestEffort"
    assert new["metadata"]["generation"] == 1
    body = api.get(f"{pods}/p").body
    body["status"]["phase"] = "Failed"
    assert api.put(f"{pods}/p", body).expect(200)["status"]["phase"] == "Running"


@pytest.mark.parametrize(
    ("status", "address", "addresses"),
    [
        ({"podIP": "10.1.1.1"}, "10.1.1.1", ["10.1.1.1"]),
        ({"podIPs": [{"ip": "10.1.1.1"}]}, "10.1.1.1", ["10.1.1.1"]),
        ({"podIPs": [{"ip": "10.1.1.1"}, {"ip": "fe80::1"}]}, "10.1.1.1", ["10.1.1.1", "fe80::1"]),
        ({"podIP": "10.1.1.2", "podIPs": [{"ip": "10.1.1.1"}]}, "10.1.1.2", ["10.1.1.2"]),
    ],
    ids=str,
)
def test_both_forms_of_the_address_agree(
    api: Api, pods: str, status: dict[str, Any], address: str, addresses: list[str]
) -> None:
    api.create(pods, pod("p")).expect(201)
    new = api.patch(f"{pods}/p/status", {"status": status}).expect(200)["status"]
    assert new["podIP"] == address
    assert [entry["ip"] for entry in new["podIPs"]] == addresses


def test_addresses_are_checked(api: Api, pods: str) -> None:
    api.create(pods, pod("p")).expect(201)
    wrong = api.patch(f"{pods}/p/status", {"status": {"podIP": "x"}})
    assert wrong.causes == [("status.podIPs[0]", "FieldValueInvalid")]
    assert "must be a valid IP address" in wrong.message
    two = [{"ip": "10.1.1.1"}, {"ip": "10.1.1.2"}]
    many = api.patch(f"{pods}/p/status", {"status": {"podIPs": two}})
    assert many.causes == [("status.podIPs", "FieldValueInvalid")]
    assert many.message.endswith(
        'Invalid value: [{"IP":"10.1.1.1"},{"IP":"10.1.1.2"}]: may specify no more than one IP '
        "for each IP family"
    )


def test_conditions_merge_by_type(api: Api, pods: str) -> None:
    api.create(pods, pod("p")).expect(201)
    strategic = "application/strategic-merge-patch+json"
    for kind, status in (("Ready", "False"), ("Initialized", "True"), ("Ready", "True")):
        patch = {"status": {"conditions": [{"type": kind, "status": status}]}}
        api.patch(f"{pods}/p/status", patch, strategic).expect(200)
    conditions = api.get(f"{pods}/p").body["status"]["conditions"]
    assert {c["type"]: c["status"] for c in conditions} == {"Ready": "True", "Initialized": "True"}


def test_subresources_that_are_not_offered_are_no_crash(api: Api, pods: str) -> None:
    api.create(pods, pod("p")).expect(201)
    for name in ("exec", "attach", "portforward"):
        assert 400 <= api.get(f"{pods}/p/{name}").status < 500


def test_log_of_a_pod_that_runs_nowhere(api: Api, pods: str) -> None:
    api.create(pods, pod("p")).expect(201)
    # There is no log yet, which is no mistake of the client.
    assert api.get(f"{pods}/p/log").status == 204
    assert api.get(f"{pods}/nosuch/log").status == 404
    assert api.get(f"{pods}/p/log", container="nosuch").status == 400
    assert api.get(f"{pods}/p/log", tailLines="-1").status == 422
