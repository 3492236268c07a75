"""Kinds that are only stored: claims, budgets, autoscalers, network policies and RBAC."""

from typing import Any

import pytest

from support.apiserver import CORE, STRATEGIC, TABLE, Api, Server, eventually, pod

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_NAMESPACED = {
    "persistentvolumeclaims": f"{CORE}/namespaces/{{}}/persistentvolumeclaims",
    "poddisruptionbudgets": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "horizontalpodautoscalers": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
    "networkpolicies": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "roles": f"{_RBAC}/namespaces/{{}}/roles",
    "rolebindings": f"{_RBAC}/namespaces/{{}}/rolebindings",
    "clusterroles": f"{_RBAC}/clusterroles",
    "clusterrolebindings": f"{_RBAC}/clusterrolebindings",
}


def path_of(plural: str, namespace: str) -> str:
    """Where objects of a kind are."""
    return _NAMESPACED[plural].format(namespace)


CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
SCALER = {"scaleTargetRef": TARGET, "maxReplicas": 3}
VIEW = {"kind": "ClusterRole", "name": "view"}
_SHARE = {"type": "Utilization", "averageUtilization": 80}
_CPU = {"type": "Resource", "resource": {"name": "cpu", "target": _SHARE}}


def spec(**fields: Any) -> dict[str, Any]:
    """A body with a spec."""
    return {"spec": fields}


def block(*cidrs: str, **more: Any) -> dict[str, Any]:
    """A network policy that lets traffic out to some ranges."""
    peers = [{"ipBlock": {"cidr": cidr, **more}} for cidr in cidrs]
    return spec(podSelector={}, egress=[{"to": peers}])


@pytest.mark.parametrize(
    ("plural", "body", "defaulted"),
    [
        ("persistentvolumeclaims", spec(**CLAIM), {
            "spec": {**CLAIM, "volumeMode": "Filesystem"}, "status": {"phase": "Pending"}}),
        ("persistentvolumeclaims",
         spec(**CLAIM, dataSourceRef={"apiGroup": "a.io", "kind": "A", "name": "a"}),
         {"spec": {**CLAIM, "volumeMode": "Filesystem",
                   "dataSource": {"apiGroup": "a.io", "kind": "A", "name": "a"},
                   "dataSourceRef": {"apiGroup": "a.io", "kind": "A", "name": "a"}}}),
        ("persistentvolumeclaims", spec(**CLAIM, dataSource={"kind": "Foreign", "name": "a"}),
         {"spec": {**CLAIM, "volumeMode": "Filesystem"}}),
        ("poddisruptionbudgets", {**spec(minAvailable=1), "status": {"currentHealthy": 3}}, {
            "status": {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0,
                       "expectedPods": 0}}),
        ("horizontalpodautoscalers", spec(**SCALER), {
            "spec": {**SCALER, "minReplicas": 1, "metrics": [_CPU]},
            "status": {"currentMetrics": None, "desiredReplicas": 0}}),
        ("horizontalpodautoscalers",
         spec(**SCALER, behavior={"scaleDown": {"stabilizationWindowSeconds": 3}}),
         {"spec": {**SCALER, "minReplicas": 1, "metrics": [_CPU], "behavior": {
             "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
                 {"type": "Pods", "value": 4, "periodSeconds": 15},
                 {"type": "Percent", "value": 100, "periodSeconds": 15}]},
             "scaleDown": {"stabilizationWindowSeconds": 3, "selectPolicy": "Max", "policies": [
                 {"type": "Percent", "value": 100, "periodSeconds": 15}]}}}}),
        ("networkpolicies", spec(podSelector={}, egress=[{"ports": [{"port": 1}]}]), {
            "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"],
                     "egress": [{"ports": [{"port": 1, "protocol": "TCP"}]}]}}),
        ("roles", {"rules": []}, {"rules": []}),
        ("rolebindings",
         {"roleRef": VIEW, "subjects": [{"kind": "User", "name": "u"},
                                        {"kind": "ServiceAccount", "name": "s"}]},
         {"roleRef": {**VIEW, "apiGroup": "rbac.authorization.k8s.io"},
          "subjects": [
              {"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"},
              {"kind": "ServiceAccount", "name": "s"}]}),
    ],
)  # fmt: skip
def test_defaults(api: Api, namespace: str, plural: str, body: Any, defaulted: Any) -> None:
    made = api.create(path_of(plural, namespace), {"metadata": {"name": "x"}, **body}, dryRun="All")
    found = made.expect(201)
    # A dry run shows empty lists that a stored object has not.
    assert {name: found[name] or [] for name in defaulted} == defaulted


@pytest.mark.parametrize(
    ("plural", "body", "causes"),
    [
        ("persistentvolumeclaims", {}, [
            ("spec.accessModes", "Required"), ("spec.resources[storage]", "Required")]),
        ("persistentvolumeclaims",
         spec(accessModes=["X", "ReadWriteOncePod", "ReadWriteOnce"],
              resources={"requests": {"storage": "0"}}, storageClassName="A_", volumeMode="x"),
         [("spec.accessModes", "NotSupported"), ("spec.accessModes", "Forbidden"),
          ("spec.resources[storage]", "Invalid"), ("spec.storageClassName", "Invalid"),
          ("spec.volumeMode", "NotSupported")]),
        ("persistentvolumeclaims", spec(**CLAIM, dataSourceRef={"kind": "A", "name": ""}), [
            ("spec.dataSource.name", "Required"), ("spec.dataSource", "Invalid"),
            ("spec.dataSourceRef.name", "Required"), ("spec.dataSourceRef", "Invalid")]),
        ("poddisruptionbudgets", spec(minAvailable="x", maxUnavailable="101%"), [
            ("spec", "Invalid"), ("spec.minAvailable", "Invalid"),
            ("spec.maxUnavailable", "Invalid")]),
        ("poddisruptionbudgets",
         spec(selector={"matchExpressions": [{"key": "a", "operator": "X"}]},
              unhealthyPodEvictionPolicy="x"),
         [("spec.selector.matchExpressions[0].operator", "Invalid"),
          ("spec.unhealthyPodEvictionPolicy", "NotSupported")]),
        ("horizontalpodautoscalers", {}, [
            ("spec.maxReplicas", "Invalid"), ("spec.maxReplicas", "Invalid"),
            ("spec.scaleTargetRef.kind", "Required"), ("spec.scaleTargetRef.name", "Required"),
            ("spec.scaleTargetRef.apiVersion", "Invalid")]),
        ("horizontalpodautoscalers", spec(**SCALER, minReplicas=0), [
            ("spec.minReplicas", "Invalid"), ("spec.metrics", "Forbidden")]),
        ("horizontalpodautoscalers", spec(**SCALER, metrics=[{"type": "X"}, {
            "type": "External", "pods": {"metric": {"name": "a/b"}, "target": {"type": "Z"}}}]),
         [*[("spec.metrics[0].type", "NotSupported")] * 2,
          ("spec.metrics[1].pods.metric.name", "Invalid"),
          ("spec.metrics[1].pods.target.type", "Invalid"),
          ("spec.metrics[1].pods.target.averageValue", "Required"),
          ("spec.metrics[1].external", "Required")]),
        ("horizontalpodautoscalers", spec(**SCALER, behavior={"scaleUp": {
            "stabilizationWindowSeconds": 3601, "selectPolicy": "x",
            "policies": [{"type": "a", "value": 0, "periodSeconds": 1801}]}}),
         [(f"spec.behavior.scaleUp.{name}", reason) for name, reason in (
             ("stabilizationWindowSeconds", "Invalid"), ("selectPolicy", "NotSupported"),
             ("policies[0].type", "NotSupported"), ("policies[0].value", "Invalid"),
             ("policies[0].periodSeconds", "Invalid"))]),
        ("networkpolicies", spec(podSelector={}, ingress=[{
            "ports": [{"port": "http", "endPort": 3}, {"endPort": 2}, {"port": 90, "endPort": 80},
                      {"port": 0}, {"protocol": "X"}],
            "from": [{}, {"podSelector": {}, "ipBlock": {"cidr": ""}}]}]),
         [(f"spec.ingress[0].{name}", reason) for name, reason in (
             ("ports[0].endPort", "Invalid"), ("ports[1].endPort", "Invalid"),
             ("ports[2].endPort", "Invalid"), ("ports[3].port", "Invalid"),
             ("ports[4].protocol", "NotSupported"), ("from[0]", "Required"),
             ("from[1].ipBlock.cidr", "Required"), ("from[1]", "Forbidden"))]),
        ("networkpolicies", block("10.0.0.0/8", **{"except": ["10.0.0.0/8", "11.0.0.0/16", "x"]}),
         [(f"spec.egress[0].to[0].ipBlock.except[{index}]", "Invalid") for index in range(3)]),
        ("networkpolicies", spec(podSelector={}, policyTypes=["Ingress", "X"]), [
            ("spec.policyTypes[1]", "NotSupported")]),
        ("roles", {"rules": [{}, {"verbs": ["get"], "nonResourceURLs": ["/x"]}]}, [
            ("rules[0].verbs", "Required"), ("rules[0].apiGroups", "Required"),
            ("rules[0].resources", "Required"), ("rules[1].nonResourceURLs", "Invalid")]),
        ("clusterroles", {"aggregationRule": {}}, [
            ("aggregationRule.clusterRoleSelectors", "Required")]),
        ("clusterroles", {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"],
                                     "resources": ["a"]}]},
         [("rules[0].nonResourceURLs", "Invalid")]),
        ("rolebindings", {"roleRef": {"kind": "Foo", "name": "a/b", "apiGroup": "x"}}, [
            ("roleRef.apiGroup", "NotSupported"), ("roleRef.kind", "NotSupported"),
            ("roleRef.name", "Invalid")]),
        ("clusterrolebindings",
         {"roleRef": VIEW, "subjects": [{"kind": "ServiceAccount", "name": "S_"},
                                        {"kind": "User", "name": "u", "apiGroup": "x"},
                                        {"kind": "Z", "name": "z"}]},
         [("subjects[0].name", "Invalid"), ("subjects[0].namespace", "Required"),
          ("subjects[1].apiGroup", "NotSupported"), ("subjects[2].kind", "NotSupported")]),
    ],
)  # fmt: skip
def test_rules(api: Api, namespace: str, plural: str, body: Any, causes: Any) -> None:
    made = api.create(path_of(plural, namespace), {"metadata": {"name": "x"}, **body}, dryRun="All")
    found = [(path, reason.removeprefix("FieldValue")) for path, reason in made.causes]
    assert (made.status, found) == (422, causes)


def test_names_of_roles_are_parts_of_a_path(api: Api, namespace: str) -> None:
    path = path_of("roles", namespace)
    api.create(path, {"metadata": {"name": "system:Some_Name"}}, dryRun="All").expect(201)
    reply = api.create(path, {"metadata": {"name": "a%b"}}, dryRun="All")
    assert reply.causes == [("metadata.name", "FieldValueInvalid")]


def test_odd_ranges_are_taken_with_a_warning(api: Api, namespace: str) -> None:
    body = block("10.0.0.1/8", "010.0.0.0/8", "2001:DB8::/64", "::ffff:1.2.3.0/120")
    path = path_of("networkpolicies", namespace)
    reply = api.create(path, {"metadata": {"name": "x"}, **body})
    assert reply.status == 201
    where = "spec.egress[0].to[{}].ipBlock.cidr: "
    odd = "non-standard CIDR value {} will be considered invalid in a future Kubernetes release: use {}"
    assert reply.warnings == [
        where.format(0)
        + 'CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or '
        '"10.0.0.1/32"?)',
        where.format(1) + odd.format('"010.0.0.0/8"', '"10.0.0.0/8"'),
        where.format(2) + 'IPv6 CIDR value "2001:DB8::/64" should be in RFC 5952 canonical format '
        '("2001:db8::/64")',
        where.format(3) + odd.format('"::ffff:1.2.3.0/120"', '"1.2.3.0/24"'),
    ]


def test_most_of_a_claim_is_fixed(api: Api, namespace: str) -> None:
    path = path_of("persistentvolumeclaims", namespace)
    made = api.create(path, {"metadata": {"name": "c"}, **spec(**CLAIM)}).expect(201)
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    grown = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    reply = api.patch(f"{path}/c", grown)
    assert (reply.status, reply.causes) == (422, [("spec", "FieldValueForbidden")])
    assert "spec is immutable after creation except resources.requests" in reply.message
    api.patch(f"{path}/c", {"spec": {"volumeName": "v"}}).expect(200)
    status = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    api.patch(f"{path}/c/status", {"status": status}).expect(200)
    reply = api.patch(f"{path}/c", grown)
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert "only dynamically provisioned pvc can be resized" in reply.message
    reply = api.patch(f"{path}/c", {"spec": {"resources": {"requests": {"storage": "1Mi"}}}})
    assert reply.causes == [("spec.resources.requests.storage", "FieldValueForbidden")]
    reply = api.patch(f"{path}/c/status", {"status": {"capacity": {"storage": "-1"}}})
    assert reply.causes == [("status.capacity[storage]", "FieldValueInvalid")]
    rows = api.get(path, accept=TABLE).expect(200)["rows"]
    assert rows[0]["cells"][:7] == ["c", "Bound", "v", "1Gi", "RWO", "", "<unset>"]
    api.patch(f"{path}/c", {"metadata": {"finalizers": None}}).expect(200)
    assert api.delete(f"{path}/c").expect(200)["kind"] == "PersistentVolumeClaim"


def test_a_claim_goes_when_no_pod_uses_it(embedded_apiserver: Server, unique: str) -> None:
    # The control plane of the tests does not run the controller that does this in a cluster.
    api = Api(embedded_apiserver)
    api.create(f"{CORE}/namespaces", {"metadata": {"name": unique}}).expect(201)
    path = path_of("persistentvolumeclaims", unique)
    pods = f"{CORE}/namespaces/{unique}/pods"
    for name in ("used", "free"):
        api.create(path, {"metadata": {"name": name}, **spec(**CLAIM)}).expect(201)
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "used"}}
    api.create(pods, pod("p", {"volumes": [volume]})).expect(201)
    for name in ("used", "free"):
        assert api.delete(f"{path}/{name}").expect(200)["metadata"]["deletionTimestamp"]
    eventually(lambda: api.get(f"{path}/free").status == 404)
    assert api.get(f"{path}/used").status == 200
    api.delete(f"{pods}/p").expect(200)
    eventually(lambda: api.get(f"{path}/used").status == 404)
    api.delete(f"{CORE}/namespaces/{unique}").expect(200)
    api.close()


def test_budgets_count_generations_and_are_written_against_a_version(
    api: Api, namespace: str
) -> None:
    path = path_of("poddisruptionbudgets", namespace)
    api.create(path, {"metadata": {"name": "b"}, **spec(minAvailable=1)}).expect(201)
    selector = {"spec": {"selector": {"matchLabels": {"a": "b"}}}}
    new = api.patch(f"{path}/b", selector, STRATEGIC).expect(200)
    assert new["metadata"]["generation"] == 2
    reply = api.put(f"{path}/b", {"metadata": {"name": "b"}, **spec(minAvailable=2)})
    assert reply.causes == [("metadata.resourceVersion", "FieldValueInvalid")]
    reply = api.patch(f"{path}/b/status", {"status": {"currentHealthy": -1}})
    assert reply.causes == [("status.currentHealthy", "FieldValueInvalid")]
    wrong = {"status": {"conditions": [{"type": "A", "status": "X"}]}}
    assert [field for field, _ in api.patch(f"{path}/b/status", wrong).causes] == [
        f"status.conditions[0].{name}" for name in ("status", "lastTransitionTime", "reason")
    ]
    counts = {"currentHealthy": 2, "desiredHealthy": 1, "disruptionsAllowed": 1, "expectedPods": 2}
    api.patch(f"{path}/b/status", {"status": counts}).expect(200)
    rows = api.get(path, accept=TABLE).expect(200)["rows"]
    assert rows[0]["cells"][:4] == ["b", "1", "N/A", 1]


def test_autoscalers_show_their_metrics(api: Api, namespace: str) -> None:
    path = path_of("horizontalpodautoscalers", namespace)
    memory = {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}
    pods = {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    metrics = [_CPU, {"type": "Resource", "resource": memory}, {"type": "Pods", "pods": pods}]
    made = api.create(path, {"metadata": {"name": "h"}, **spec(**SCALER, metrics=metrics)})
    assert "generation" not in made.expect(201)["metadata"]
    current = {"name": "cpu", "current": {"averageUtilization": 20}}
    status = {"currentReplicas": 2, "currentMetrics": [{"type": "Resource", "resource": current}]}
    api.patch(f"{path}/h/status", {"status": status}).expect(200)
    row = api.get(path, accept=TABLE).expect(200)["rows"][0]["cells"]
    shown = "cpu: 20%/80%, memory: <unknown>/1Gi + 1 more..."
    assert row[:6] == ["h", "Deployment/d", shown, "1", 3, 2]


def test_the_role_of_a_binding_is_fixed(api: Api, namespace: str) -> None:
    path = path_of("rolebindings", namespace)
    subjects = [
        {"kind": "User", "name": "u"},
        {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
    ]
    api.create(path, {"metadata": {"name": "b"}, "roleRef": VIEW, "subjects": subjects}).expect(201)
    reply = api.patch(f"{path}/b", {"roleRef": {"name": "edit"}})
    assert reply.causes == [("roleRef", "FieldValueInvalid")]
    assert 'Invalid value: {"APIGroup":"rbac.authorization.k8s.io"' in reply.message
    row = api.get(path, accept=TABLE).expect(200)["rows"][0]["cells"]
    assert (row[:2], row[3:]) == (["b", "ClusterRole/view"], ["u", "", "n/s"])
    api.patch(f"{path}/b", {"subjects": None}).expect(200)
    # RBAC objects may be created by an update.
    role = {"metadata": {"name": "r"}, "rules": []}
    made = api.put(f"{path_of('roles', namespace)}/r", role)
    assert (made.status, made.body["rules"]) == (201, None)
