"""kubectl's server-side apply, diff and edit: what users see of managed fields."""

import json
import shutil
from pathlib import Path

import pytest

from support.kubectl import Kubectl

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the PATH"),
]

CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: c, labels: {app: a}}
data: {a: "1", b: "1"}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 0
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      containers:
      - {name: c, image: "x:1", ports: [{containerPort: 80}], env: [{name: A, value: "1"}]}
"""


def test_server_side_apply(kubectl: Kubectl) -> None:
    first = kubectl("apply", "--server-side", "-f", "-", stdin=CONFIG_MAP + "---" + DEPLOYMENT)
    assert (first.out.splitlines(), first.err) == (
        ["configmap/c serverside-applied", "deployment.apps/d serverside-applied"],
        "",
    )
    again = kubectl("apply", "--server-side", "-f", "-", stdin=CONFIG_MAP)
    assert again.out == "configmap/c serverside-applied\n"
    fields = kubectl("get", "cm", "c", "--show-managed-fields", "-o", "json")
    (entry,) = json.loads(fields.out)["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("kubectl", "Apply")
    less = CONFIG_MAP.replace(', b: "1"', "")
    assert kubectl("apply", "--server-side", "-f", "-", stdin=less).code == 0
    assert json.loads(kubectl("get", "cm", "c", "-o", "jsonpath={.data}").out) == {"a": "1"}


def test_conflicts_are_explained_and_can_be_forced(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "--field-manager=ci", "-f", "-", stdin=CONFIG_MAP)
    changed = CONFIG_MAP.replace('b: "1"', 'b: "2"')
    refused = kubectl("apply", "--server-side", "-f", "-", stdin=changed)
    assert refused.code == 1
    assert refused.err.startswith(
        'error: Apply failed with 1 conflict: conflict with "ci": .data.b\n'
        "Please review the fields above--they currently have other managers."
    )
    forced = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=changed)
    assert forced.code == 0
    owners = kubectl("get", "cm", "c", "--show-managed-fields", "-o", "json").out
    entries = {
        entry["manager"]: entry["fieldsV1"]["f:data"]
        for entry in json.loads(owners)["metadata"]["managedFields"]
    }
    assert entries == {"ci": {"f:a": {}}, "kubectl": {"f:a": {}, "f:b": {}}}


def test_client_side_apply_moves_to_server_side_apply(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", stdin=CONFIG_MAP).out == "configmap/c created\n"
    changed = CONFIG_MAP.replace('b: "1"', 'b: "2"')
    moved = kubectl("apply", "--server-side", "-f", "-", stdin=changed)
    assert (moved.code, moved.err) == (0, "")
    shown = json.loads(kubectl("get", "cm", "c", "--show-managed-fields", "-o", "json").out)
    assert shown["data"] == {"a": "1", "b": "2"}
    managers = {entry["manager"] for entry in shown["metadata"]["managedFields"]}
    assert "kubectl" in managers
    # And back: the last applied configuration has been kept up to date.
    back = kubectl("apply", "-f", "-", stdin=CONFIG_MAP)
    assert (back.out, back.err) == ("configmap/c configured\n", "")


@pytest.mark.parametrize("flags", [(), ("--server-side",)], ids=["client", "server"])
def test_diff(kubectl: Kubectl, flags: tuple[str, ...]) -> None:
    kubectl("apply", *flags, "-f", "-", stdin=CONFIG_MAP + "---" + DEPLOYMENT)
    same = kubectl("diff", *flags, "-f", "-", stdin=CONFIG_MAP)
    assert (same.code, same.out, same.err) == (0, "", "")
    changed = (CONFIG_MAP + "---" + DEPLOYMENT).replace('a: "1"', 'a: "2"').replace("x:1", "x:2")
    found = kubectl("diff", *flags, "-f", "-", stdin=changed)
    assert (found.code, found.err) == (1, "")
    lines = [
        line[0] + line[1:].strip(" -")
        for line in found.out.splitlines()
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    assert sorted(lines) == [
        '+a: "2"',
        "+generation: 2",
        "+image: x:2",
        '-a: "1"',
        "-generation: 1",
        "-image: x:1",
    ]
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.data.a}").out == "1"


def editor(folder: Path, script: str) -> dict[str, str]:
    """The environment in which kubectl edits by a program."""
    program = folder / "editor.sh"
    program.write_text(f'#!/bin/sh\n{script} "$1"\n')
    program.chmod(0o755)
    return {"KUBE_EDITOR": str(program)}


def test_edit(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG_MAP)
    edited = kubectl("edit", "cm", "c", environment=editor(tmp_path, 'sed -i \'s/a: "1"/a: "7"/\''))
    assert (edited.out, edited.err) == ("configmap/c edited\n", "")
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.data.a}").out == "7"
    untouched = kubectl("edit", "cm", "c", environment=editor(tmp_path, "true"))
    assert "Edit cancelled, no changes made." in untouched.err + untouched.out
    managers = json.loads(kubectl("get", "cm", "c", "--show-managed-fields", "-o", "json").out)
    assert {entry["manager"] for entry in managers["metadata"]["managedFields"]} == {
        "kubectl-create",
        "kubectl-edit",
    }


def test_each_command_is_a_manager_of_its_own(kubectl: Kubectl) -> None:
    kubectl("create", "cm", "c", "--from-literal=a=1")
    kubectl("label", "cm", "c", "x=y")
    kubectl("annotate", "cm", "c", "n=1")
    kubectl("patch", "cm", "c", "-p", '{"data":{"b":"2"}}')
    shown = json.loads(kubectl("get", "cm", "c", "--show-managed-fields", "-o", "json").out)
    entries = {entry["manager"]: entry["fieldsV1"] for entry in shown["metadata"]["managedFields"]}
    assert entries == {
        "kubectl-create": {"f:data": {".": {}, "f:a": {}}},
        "kubectl-label": {"f:metadata": {"f:labels": {".": {}, "f:x": {}}}},
        "kubectl-annotate": {"f:metadata": {"f:annotations": {".": {}, "f:n": {}}}},
        "kubectl-patch": {"f:data": {"f:b": {}}},
    }
