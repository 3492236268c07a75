"""What both servers say of the same things: kubectl's output, discovery and OpenAPI documents."""

import json
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.apiserver import CORE, GROUP, Api, Definition, Server, eventually
from support.kubectl import Kubectl, runner

pytestmark = pytest.mark.cluster

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.fixture
def apis(embedded_apiserver: Server, real_server: Server, unique: str) -> Iterator[list[Api]]:
    """Clients of both servers, each of which has a namespace with the name of the test."""
    clients = [Api(embedded_apiserver), Api(real_server)]
    for client in clients:
        client.create(f"{CORE}/namespaces", {"metadata": {"name": unique}}).expect(201)
    yield clients
    for client in clients:
        client.delete(f"{CORE}/namespaces/{unique}")
        client.close()


@pytest.fixture
def kubectls(apis: list[Api], unique: str, tmp_path: Path) -> list[Kubectl]:
    """Kubectl in the namespace of the test on both servers."""
    found = []
    for number, client in enumerate(apis):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        assert client.server.kubeconfig is not None
        found.append(runner(client.server.kubeconfig, unique, scratch))
    return found


def _is_documented(api: Api, group: str) -> bool:
    """Whether there is an OpenAPI document of a group."""
    return f"apis/{group}/v1" in api.get("/openapi/v3").body["paths"]


@pytest.fixture(scope="module")
def widgets_on_both(embedded_apiserver: Server, real_server: Server) -> Iterator[Definition]:
    """One CRD with all sorts of fields, installed on both servers."""
    definition = Definition(f"p{uuid.uuid4().hex[:10]}.{GROUP}")
    clients = [Api(embedded_apiserver), Api(real_server)]
    spec = {
        "type": "object",
        "description": "What is wanted.",
        "required": ["size"],
        "x-kubernetes-validations": [{"rule": "self.size < 9", "message": "too large"}],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "description": "How large it is."},
            "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "amount": {"x-kubernetes-int-or-string": True},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "template": {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            },
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string", "maxLength": 9}},
                },
            },
        },
    }
    schema = {
        "type": "object",
        "description": "Widget is a thing.",
        "properties": {"spec": spec, "status": {"type": "object", "nullable": True}},
    }
    entry = {**definition.version_entry(), "schema": {"openAPIV3Schema": schema}}
    entry |= {"deprecated": True, "deprecationWarning": "widgets are old"}
    for client in clients:
        definition.install(client, definition.crd(entry))
        eventually(partial(_is_documented, client, definition.group))
    yield definition
    for client in clients:
        client.delete(definition.path)
        client.close()


# --- kubectl ----------------------------------------------------------------------------------------------

_EXPLAINED = (
    "pod",
    "pod.metadata",
    "pod.spec.containers",
    "pod.spec.containers.resources.limits",
    "pod.spec.nosuch",
    "deployment.spec.strategy",
    "hpa.spec.metrics",
    "validatingadmissionpolicy.spec",
    "crd.spec",
    "service.spec.ports.targetPort",
    "nosuch",
)


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the PATH")
def test_explain(kubectls: list[Kubectl], widgets_on_both: Definition) -> None:
    kind = f"widgets.{widgets_on_both.group}"
    for subject in (*_EXPLAINED, kind, f"{kind}.spec", f"{kind}.metadata.labels"):
        embedded, real = (kubectl("explain", subject) for kubectl in kubectls)
        assert embedded == real, subject
    for subject in ("pod", "role", kind):
        embedded, real = (kubectl("explain", subject, "--recursive") for kubectl in kubectls)
        assert embedded == real, subject
        assert embedded.code == 0


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the PATH")
def test_resources_and_versions(kubectls: list[Kubectl], widgets_on_both: Definition) -> None:
    shown = [
        set(kubectl("api-resources", "-o", "wide", "--no-headers").out.splitlines())
        for kubectl in kubectls
    ]
    squeezed = [{" ".join(line.split()) for line in lines} for lines in shown]
    assert squeezed[0] <= squeezed[1], squeezed[0] - squeezed[1]
    assert any(widgets_on_both.group in line for line in squeezed[0])
    versions = [set(kubectl("api-versions").out.split()) for kubectl in kubectls]
    assert versions[0] <= versions[1]


_MISTAKES: dict[str, dict[str, Any]] = {
    "unknown field": {"spec": {"nosuch": 1, "containers": [{"name": "c", "image": "x"}]}},
    "wrong type": {"spec": {"containers": {"name": "c"}}},
    "missing": {"spec": {"containers": [{"image": "x"}]}},
    "invalid": {"spec": {"containers": [{"name": "C_", "image": "x"}]}},
    "unknown version": {"apiVersion": "v9"},
    "no kind": {"kind": ""},
    "name": {"metadata": {"name": "A_"}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
}


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the PATH")
def test_create_says_what_is_wrong(kubectls: list[Kubectl], widgets_on_both: Definition) -> None:
    base: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    documents = {name: base | change for name, change in _MISTAKES.items()}
    for name, fields in {
        "custom type": {"size": "x"},
        "custom bound": {"size": 0},
        "custom rule": {"size": 9},
        "custom enum": {"size": 1, "color": "green"},
        "custom unknown": {"size": 1, "nosuch": 1},
        "custom missing": {},
        "custom keys": {"size": 1, "parts": [{"name": "a"}, {"name": "a"}]},
    }.items():
        documents[name] = {**widgets_on_both.object("w"), "spec": fields}
    for name, document in documents.items():
        for flags in ((), ("--validate=warn",)):
            text = json.dumps(document)
            embedded, real = (
                kubectl("create", *flags, "-f", "-", stdin=text) for kubectl in kubectls
            )
            logged = [re.sub(r"(?m)^W\d{4} .*?\] ", "", run.err) for run in (embedded, real)]
            assert (embedded[:2], logged[0]) == (real[:2], logged[1]), (name, flags)
            if embedded.code == 0:
                for kubectl in kubectls:
                    kubectl("delete", "--now", "-f", "-", stdin=text)


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the PATH")
def test_warnings_of_a_deprecated_version(
    kubectls: list[Kubectl], widgets_on_both: Definition
) -> None:
    body = json.dumps(widgets_on_both.object("w", {"size": 1}))
    kind = f"widgets.{widgets_on_both.group}"
    for arguments in (
        ("create", "-f", "-"),
        ("get", kind, "-o", "name"),
        ("delete", kind, "w"),
    ):
        embedded, real = (kubectl(*arguments, stdin=body) for kubectl in kubectls)
        assert embedded == real
        assert "Warning: widgets are old" in embedded.err


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the PATH")
def test_a_watch_shows_the_same(
    apis: list[Api], kubectls: list[Kubectl], unique: str, tmp_path: Path
) -> None:
    seen = []
    for number, (client, kubectl) in enumerate(zip(apis, kubectls, strict=True)):
        command = [
            *("kubectl", "--kubeconfig", str(client.server.kubeconfig), "-n", unique),
            *("--cache-dir", str(tmp_path / f"cache{number}")),
            *("get", "cm", "-w", "--output-watch-events", "-l", "app=a", "--no-headers"),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            kubectl("create", "cm", "first", "--from-literal=a=1")
            kubectl("label", "cm", "first", "app=a")
            lines = [watch.stdout.readline()]
            kubectl("patch", "cm", "first", "-p", '{"data":{"a":"2"}}')
            lines.append(watch.stdout.readline())
            kubectl("label", "cm", "first", "app-")
            lines.append(watch.stdout.readline())
            watch.terminate()
        # The last column is the age.
        seen.append([line.split()[:-1] for line in lines])
    assert seen[0] == seen[1]
    assert seen[0] == [[event, "first", "1"] for event in ("ADDED", "MODIFIED", "DELETED")]


_OWNER = """
apiVersion: v1
kind: ConfigMap
metadata: {name: owner}
"""


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the PATH")
@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_deletion_with_each_cascade(
    apis: list[Api], kubectls: list[Kubectl], unique: str, cascade: str
) -> None:
    path = f"{CORE}/namespaces/{unique}/configmaps"
    outcomes = []
    for client, kubectl in zip(apis, kubectls, strict=True):
        kubectl("create", "-f", "-", stdin=_OWNER)
        uid = client.get(f"{path}/owner").body["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
        child = {"metadata": {"name": "child", "ownerReferences": [owner]}}
        client.create(path, child).expect(201)
        # The real garbage collector has to learn of the child first.
        time.sleep(0.5)
        ended = kubectl("delete", "cm", "owner", f"--cascade={cascade}")
        kept = cascade == "orphan"

        def settled(client: Api = client, *, kept: bool = kept) -> bool:
            reply = client.get(f"{path}/child")
            if not kept:
                return reply.status == 404
            return reply.status == 200 and "ownerReferences" not in reply.body["metadata"]

        eventually(settled)
        outcomes.append((ended, kubectl("delete", "cm", "child", "--ignore-not-found")))
    assert outcomes[0] == outcomes[1]


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the PATH")
def test_what_an_install_applies(kubectls: list[Kubectl], unique: str) -> None:
    outputs = []
    for kubectl in kubectls:
        text = _INSTALL.replace("NAME", unique)
        runs = [kubectl("apply", "-f", "-", stdin=text), kubectl("apply", "-f", "-", stdin=text)]
        kinds = "sa,role,rolebinding,pdb,hpa,netpol,pvc"
        runs.append(kubectl("get", kinds, "--no-headers", "-o", "wide"))
        runs += [kubectl("get", f"{kind}/{unique}", "--no-headers") for kind in _CLUSTER_WIDE]
        runs.append(kubectl("describe", "hpa,pdb,netpol,role,rolebinding,pvc"))
        # Nothing removes the finalizer of a claim in the control plane of the tests.
        no_finalizers = '{"metadata":{"finalizers":null}}'
        kubectl("patch", "pvc", "cache", "--type=merge", "-p", no_finalizers)
        runs.append(kubectl("delete", "-f", "-", stdin=text))
        outputs.append([(run.code, _without_times(run.out), run.err) for run in runs])
    for embedded, real in zip(*outputs, strict=True):
        assert embedded == real
        assert embedded[0] == 0


_CLUSTER_WIDE = (
    "clusterrole",
    "clusterrolebinding",
    "validatingadmissionpolicy",
    "validatingadmissionpolicybinding",
)


def _without_times(text: str) -> str:
    """Output without ages and times, and without the padding that depends on them."""
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(Z| \+0000 UTC)", "TIME", text)
    text = re.sub(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} [+-]\d{4}", "TIME", text)
    text = re.sub(r"\b\d+s\b", "AGE", text)
    return re.sub(r"[ \t]+", " ", text)


_INSTALL = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: controller}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAME}
rules:
- {apiGroups: [""], resources: [pods, services], verbs: [get, list, watch, create, delete]}
- {nonResourceURLs: [/metrics], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAME}
subjects: [{kind: ServiceAccount, name: controller, namespace: NAME}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: leases}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: leases}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: leases}
subjects: [{kind: ServiceAccount, name: controller, namespace: NAME}, {kind: User, name: u}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: controller}
spec: {minAvailable: 50%, selector: {matchLabels: {app: controller}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: controller}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: controller}
  maxReplicas: 3
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 5}}}]
  behavior: {scaleDown: {stabilizationWindowSeconds: 60}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: controller}
spec:
  podSelector: {matchLabels: {app: controller}}
  ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 8080}]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: cache}
spec: {accessModes: [ReadWriteMany], storageClassName: fast, resources: {requests: {storage: 1Gi}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [none.kthena.io], apiVersions: [v1], operations: [CREATE], resources: [nothings]}
  validations: [{expression: "object.spec.replicas < 5"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Warn, Audit]}
"""


# --- discovery and OpenAPI --------------------------------------------------------------------------


def _plain(api: Api, path: str) -> dict[str, Any]:
    """The resources of a group and version by name."""
    body = api.get(path).expect(200)
    entries = {entry.pop("name"): entry for entry in body["resources"]}
    for entry in entries.values():
        entry.pop("storageVersionHash", None)
    return entries


def test_discovery_is_the_same_for_what_is_served(
    apis: list[Api], widgets_on_both: Definition
) -> None:
    embedded, real = apis
    groups = [group["name"] for group in embedded.get("/apis").expect(200)["groups"]]
    known = [group["name"] for group in real.get("/apis").expect(200)["groups"]]
    own = [name for name in known if name in groups and not name.endswith("test.kthena.io")]
    assert [name for name in groups if name in own] == own
    assert widgets_on_both.group in groups
    versions = embedded.get("/openapi/v3").expect(200)["paths"]
    for place in versions:
        mine, theirs = _plain(embedded, f"/{place}"), _plain(real, f"/{place}")
        for name, entry in mine.items():
            assert entry == theirs[name], (place, name)


@pytest.mark.usefixtures("widgets_on_both")
def test_aggregated_discovery_is_the_same(apis: list[Api]) -> None:
    def entries(api: Api) -> dict[tuple[str, str, str], Any]:
        found = {}
        for path in ("/api", "/apis"):
            for group in api.get(path, accept=_AGGREGATED).expect(200)["items"]:
                for version in group["versions"]:
                    for entry in version["resources"]:
                        key = (group["metadata"].get("name", ""), version["version"])
                        found[*key, entry["resource"]] = entry
        return found

    mine, theirs = map(entries, apis)
    for key, entry in mine.items():
        other = theirs[key]
        offered = {sub["subresource"] for sub in entry.get("subresources", ())}
        subresources = [
            sub for sub in other.pop("subresources", ()) if sub["subresource"] in offered
        ]
        assert entry.pop("subresources", []) == subresources, key
        assert entry == other, key


def test_schemas_are_the_same(apis: list[Api], widgets_on_both: Definition) -> None:
    places = apis[0].get("/openapi/v3").expect(200)["paths"]
    assert f"apis/{widgets_on_both.group}/v1" in places
    for place in places:
        if place.endswith("test.kthena.io/v1") and widgets_on_both.group not in place:
            continue
        mine, theirs = (
            api.get(f"/openapi/v3/{place}").expect(200)["components"]["schemas"] for api in apis
        )
        for name, schema in mine.items():
            assert schema == theirs[name], name
