"""kubectl against the server, as users call it: no flag that tells it to be lenient."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kthena.local.apiserver.logs import LogOptions
from kthena.machinery.objects import Object
from support.apiserver import CORE, SCALE, Api, Definition, Server, embedded_api, pod
from support.kubectl import Kubectl, runner

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the PATH"),
]


MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: cfg, labels: {app: a}}
data: {a: "1"}
---
apiVersion: v1
kind: Secret
metadata: {name: sec}
stringData: {pw: hunter2}
---
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: a}}
spec:
  containers:
  - name: main
    image: busybox:1
    ports: [{containerPort: 80, name: web}]
    resources: {limits: {cpu: 100m}}
---
apiVersion: v1
kind: Service
metadata: {name: svc}
spec: {selector: {app: a}, ports: [{port: 80, targetPort: web}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 0
  selector: {matchLabels: {app: d}}
  template: {metadata: {labels: {app: d}}, spec: {containers: [{name: c, image: "x:1"}]}}
"""


def test_apply_creates_then_finds_nothing_to_do(kubectl: Kubectl) -> None:
    first = kubectl("apply", "-f", "-", stdin=MANIFEST)
    assert (first.code, first.err) == (0, "")
    assert first.out.splitlines() == [
        "configmap/cfg created",
        "secret/sec created",
        "pod/p created",
        "service/svc created",
        "deployment.apps/d created",
    ]
    again = kubectl("apply", "-f", "-", stdin=MANIFEST)
    assert again.code == 0
    assert again.out.splitlines() == [
        "configmap/cfg unchanged",
        "secret/sec configured",
        "pod/p unchanged",
        "service/svc unchanged",
        "deployment.apps/d unchanged",
    ]
    changed = MANIFEST.replace("busybox:1", "busybox:2").replace('a: "1"', 'b: "2"')
    third = kubectl("apply", "-f", "-", stdin=changed)
    assert third.out.splitlines()[0] == "configmap/cfg configured"
    assert "pod/p configured" in third.out
    shown = kubectl("get", "cm", "cfg", "-o", "jsonpath={.data}")
    assert json.loads(shown.out) == {"b": "2"}
    deleted = kubectl("delete", "-f", "-", stdin=changed)
    assert (deleted.code, deleted.out.count("deleted")) == (0, 5)


def test_get_in_every_form(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    *shown, age = kubectl("get", "pods").out.split()
    head = ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert shown == [*head, "p", "0/1", "Pending", "0"]
    assert age[-1] == "s"
    assert "NOMINATED NODE" in kubectl("get", "pods", "-o", "wide").out
    assert kubectl("get", "pods", "-o", "name").out == "pod/p\n"
    found = json.loads(kubectl("get", "pod", "p", "-o", "json").out)
    assert (found["kind"], found["spec"]["dnsPolicy"]) == ("Pod", "ClusterFirst")
    assert "kind: Pod" in kubectl("get", "pod", "p", "-o", "yaml").out
    columns = "custom-columns=N:.metadata.name,I:.spec.containers[0].image"
    assert kubectl("get", "pods", "-o", columns).out.split() == ["N", "I", "p", "busybox:1"]
    template = "go-template={{range .items}}{{.metadata.name}}{{end}}"
    assert kubectl("get", "pods", "-o", template).out == "p"
    assert kubectl("get", "pods", "-l", "app=b").err.startswith("No resources found in")
    assert "p" in kubectl("get", "pods", "--field-selector", "status.phase=Pending").out
    assert "app=a" in kubectl("get", "pods", "--show-labels").out
    listed = kubectl("get", "all").out
    assert [name in listed for name in ("pod/p", "service/svc", "deployment.apps/d")] == [True] * 3
    assert "p" in kubectl("get", "pods", "-A", "--no-headers").out
    missing = kubectl("get", "pods", "nosuch")
    assert (missing.code, missing.err) == (
        1,
        'Error from server (NotFound): pods "nosuch" not found\n',
    )
    assert 'the server doesn\'t have a resource type "nosuch"' in kubectl("get", "nosuch").err


def test_watch_shows_changes(
    kubectl: Kubectl, server: Server, namespace: str, tmp_path: Path
) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "HOME": str(tmp_path)}
    command = ["kubectl", "-n", namespace, "get", "cm", "cfg", "-w", "--no-headers"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        # The first line comes from a list; the watch goes on from its version.
        assert watch.stdout.readline().split()[:2] == ["cfg", "1"]
        kubectl("patch", "cm", "cfg", "--type", "merge", "-p", '{"data":{"b":"2"}}')
        assert watch.stdout.readline().split()[:2] == ["cfg", "2"]
        watch.terminate()


def test_describe(kubectl: Kubectl, namespace: str) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    shown = kubectl("describe", "pod", "p")
    assert shown.code == 0
    for text in ("Name:", "busybox:1", "QoS Class:", "Pending", "Events:"):
        assert text in shown.out
    for kind, name in (
        ("svc", "svc"),
        ("cm", "cfg"),
        ("secret", "sec"),
        ("deploy", "d"),
        ("ns", namespace),
    ):
        shown = kubectl("describe", kind, name)
        assert (shown.code, shown.err) == (0, ""), kind
        assert name in shown.out


def test_events_are_shown_with_their_object(kubectl: Kubectl, api: Api, namespace: str) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    uid = api.get(f"{CORE}/namespaces/{namespace}/pods/p").body["metadata"]["uid"]
    event = {
        "metadata": {"name": "p.1"},
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "p", "uid": uid},
        "reason": "Pulled",
        "message": "it is there",
        "type": "Normal",
        "source": {"component": "test"},
        "firstTimestamp": "2024-01-01T00:00:00Z",
        "lastTimestamp": "2024-01-01T00:00:00Z",
        "count": 2,
    }
    api.create(f"{CORE}/namespaces/{namespace}/events", event).expect(201)
    assert "pod/p" in kubectl("get", "events").out
    assert "it is there" in kubectl("events").out
    assert "Pulled" in kubectl("describe", "pod", "p").out


def test_label_annotate_patch_and_set(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    assert kubectl("label", "pod", "p", "x=y").out == "pod/p labeled\n"
    assert "already has a value" in kubectl("label", "pod", "p", "x=z").err
    assert kubectl("label", "pod", "p", "x=z", "--overwrite").code == 0
    assert kubectl("label", "pod", "p", "x-").out == "pod/p unlabeled\n"
    assert kubectl("annotate", "pod", "p", "n=1").out == "pod/p annotated\n"
    assert (
        kubectl("patch", "cm", "cfg", "-p", '{"data":{"c":"3"}}').out == "configmap/cfg patched\n"
    )
    operations = '[{"op":"replace","path":"/data/c","value":"4"}]'
    assert kubectl("patch", "cm", "cfg", "--type", "json", "-p", operations).code == 0
    assert kubectl("set", "image", "pod/p", "main=busybox:3").out == "pod/p image updated\n"
    patch = '{"spec":{"containers":[{"name":"main","command":["x"]}]}}'
    refused = kubectl("patch", "pod", "p", "-p", patch)
    assert refused.code == 1
    assert 'The Pod "p" is invalid: spec: Forbidden: pod updates may not change' in refused.err


def test_create_makes_objects_of_its_own(kubectl: Kubectl, unique: str) -> None:
    # These commands send protobuf.
    for arguments, out in (
        (("cm", "c", "--from-literal=a=b"), "configmap/c created"),
        (("secret", "generic", "s", "--from-literal=a=b"), "secret/s created"),
        (("deployment", "d", "--image=x", "--replicas=0"), "deployment.apps/d created"),
        (("service", "clusterip", "v", "--tcp=80:80"), "service/v created"),
        (("sa", "bot"), "serviceaccount/bot created"),
    ):
        made = kubectl("create", *arguments)
        assert (made.out, made.err) == (f"{out}\n", "")
    assert kubectl("run", "r", "--image=x").out == "pod/r created\n"
    again = kubectl("create", "cm", "c")
    assert again.err == 'error: failed to create configmap: configmaps "c" already exists\n'
    assert kubectl("create", "ns", f"{unique}x").out == f"namespace/{unique}x created\n"
    assert kubectl("delete", "ns", f"{unique}x").code == 0


BAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  nosuch: 1
  selector: {matchLabels: {app: d}}
  template: {metadata: {labels: {app: e}}, spec: {containers: [{name: c, image: x}]}}
"""


def test_validation_is_the_servers(kubectl: Kubectl) -> None:
    strict = kubectl("apply", "-f", "-", stdin=BAD)
    assert strict.code == 1
    assert 'strict decoding error: unknown field "spec.nosuch"' in strict.err
    warned = kubectl("apply", "--validate=warn", "-f", "-", stdin=BAD)
    assert 'Warning: unknown field "spec.nosuch"' in warned.err
    assert "`selector` does not match template `labels`" in warned.err
    ignored = kubectl("apply", "--validate=ignore", "-f", "-", stdin=BAD)
    assert "nosuch" not in ignored.err
    document = {"apiVersion": "v1", "kind": "List", "items": [pod("l")]}
    assert kubectl("create", "-f", "-", stdin=json.dumps(document)).out == "pod/l created\n"
    unknown = kubectl("apply", "-f", "-", stdin='{"apiVersion":"a.io/v1","kind":"A","metadata":{}}')
    assert 'no matches for kind "A" in version "a.io/v1"' in unknown.err


def test_dry_run_and_diff(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    changed = MANIFEST.replace('a: "1"', 'a: "2"')
    dry = kubectl("apply", "--dry-run=server", "-f", "-", stdin=changed)
    assert "configmap/cfg configured (server dry run)" in dry.out
    shown = kubectl("diff", "-f", "-", stdin=changed)
    assert shown.code == 1
    assert '-  a: "1"' in shown.out
    assert kubectl("get", "cm", "cfg", "-o", "jsonpath={.data.a}").out == "1"


def test_scale_and_wait(kubectl: Kubectl, api: Api, namespace: str) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    assert kubectl("scale", "deploy", "d", "--replicas=0").out == "deployment.apps/d scaled\n"
    wrong = kubectl("scale", "deploy", "d", "--current-replicas=5", "--replicas=0")
    assert "Expected replicas to be 5, was 0" in wrong.err
    path = f"{CORE}/namespaces/{namespace}/pods/p"
    late = kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=1s")
    assert "timed out waiting for the condition" in late.err
    status = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}

    def become_ready() -> None:
        client = Api(api.server)
        client.patch(f"{path}/status", {"status": status})
        client.close()

    timer = threading.Timer(1, become_ready)
    timer.start()
    met = kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=20s")
    timer.join()
    assert met.out == "pod/p condition met\n"
    phase = kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/p", "--timeout=5s")
    assert phase.code == 0


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_delete_with_each_cascade(kubectl: Kubectl, cascade: str) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    gone = kubectl("delete", "deploy", "d", f"--cascade={cascade}", "--timeout=30s")
    assert gone.code == 0
    assert 'deployment.apps "d" deleted' in gone.out
    assert kubectl("delete", "pod", "p", "--now").code == 0
    assert kubectl("delete", "cm", "--all").code == 0
    assert kubectl("delete", "pod", "nosuch", "--ignore-not-found").code == 0
    assert "NotFound" in kubectl("delete", "pod", "nosuch").err


def test_custom_resources(kubectl: Kubectl, definition: Definition) -> None:
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    entry = definition.version_entry(
        subresources={"status": {}, "scale": SCALE}, additionalPrinterColumns=columns
    )
    crd = definition.crd(entry)
    crd["spec"]["names"] |= {"shortNames": ["wdg"]}
    made = kubectl("apply", "-f", "-", stdin=json.dumps(crd))
    assert (made.code, made.err) == (0, "")
    name = f"crd/{definition.name}"
    assert kubectl("wait", "--for=condition=Established", name, "--timeout=20s").code == 0
    body = json.dumps(definition.object("w", {"size": 3}))
    applied = kubectl("apply", "-f", "-", stdin=body)
    assert applied.out == f"widget.{definition.group}/w created\n"
    assert kubectl("apply", "-f", "-", stdin=body).out.endswith("unchanged\n")
    kind = f"widgets.{definition.group}"
    assert kubectl("get", kind, "--no-headers").out.split()[:2] == ["w", "3"]
    assert "Size" in kubectl("describe", kind, "w").out
    assert kubectl("scale", f"{kind}/w", "--replicas=4").code == 0
    assert kubectl("get", kind, "w", "-o", "jsonpath={.spec.replicas}").out == "4"
    bad = kubectl("patch", kind, "w", "--type=merge", "-p", '{"spec":{"size":0}}')
    assert "spec.size: Invalid value: 0" in bad.err
    status = '{"status":{"phase":"Up"}}'
    patched = kubectl("patch", kind, "w", "--type=merge", "--subresource=status", "-p", status)
    assert patched.code == 0
    assert "FIELDS:" in kubectl("explain", f"{kind}.spec").out
    assert kubectl("delete", kind, "w").code == 0


def test_explain_knows_built_in_fields(kubectl: Kubectl) -> None:
    shown = kubectl("explain", "pod.spec.containers")
    assert shown.code == 0
    assert "imagePullPolicy" in shown.out


def test_questions_about_the_server(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods").out == "yes\n"
    assert "system:masters" in kubectl("auth", "whoami").out
    assert "deployments" in kubectl("api-resources", "-o", "name").out
    assert "apps/v1" in kubectl("api-versions").out
    assert "Server Version" in kubectl("version").out
    assert kubectl("get", "--raw", "/readyz").out == "ok"


class Node:
    """A node with one log."""

    async def stream(self, pod: Object, options: LogOptions) -> AsyncIterator[bytes]:
        del pod
        yield f"hello from {options.container}\n".encode()


def test_logs(tmp_path: Path) -> None:
    with embedded_api() as (server, api):
        server.register_log_source("n1", Node())
        api.create(f"{CORE}/namespaces/default/pods", pod("p", {"nodeName": "n1"})).expect(201)
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(server.kubeconfig()))
        kubectl = runner(kubeconfig, "default", tmp_path)
        assert kubectl("logs", "p").out == "hello from main\n"
        assert kubectl("logs", "-f", "p", "-c", "main").out == "hello from main\n"
        refused = kubectl("logs", "p", "-c", "nosuch")
        assert "container nosuch is not valid for pod p" in refused.err
