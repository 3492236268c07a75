"""Names that a pod's program resolves, whatever the program: a plain Python here."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.programs import Workspace, until

SERVING = """
apiVersion: workload.serving.volcano.sh/v1alpha1
kind: ModelServing
metadata: {name: names, namespace: team}
spec:
  replicas: 1
  template:
    roles:
    - name: worker
      replicas: 1
      entryTemplate: {spec: {containers: [{name: main, image: "plain:1"}]}}
      workerReplicas: 1
      workerTemplate: {spec: {containers: [{name: main, image: "plain:1"}]}}
---
apiVersion: v1
kind: Service
metadata: {name: front, namespace: team}
spec:
  selector: {modelserving.volcano.sh/entry: "true"}
  ports: [{port: 80}]
"""

PROGRAM = """
import os, socket, time
names = [os.environ["ENTRY_ADDRESS"], os.environ["ENTRY_ADDRESS"] + ".svc.cluster.local",
         "front", "front.team", "front.team.svc"]
for name in names:
    while True:
        try:
            found = {item[4][0] for item in socket.getaddrinfo(name, 80)}
        except OSError:
            time.sleep(0.05)
            continue
        print(name, *sorted(found), flush=True)
        break
time.sleep(3600)
"""


def test_entry_address_and_services_resolve_in_a_worker(space: Workspace, tmp_path: Path) -> None:
    images, manifest = tmp_path / "images.yaml", tmp_path / "serving.yaml"
    images.write_text(
        json.dumps({"plain*": ["python3", "-c", PROGRAM.replace("{", "{{").replace("}", "}}")]})
    )
    manifest.write_text(SERVING)
    up = space.up("-f", str(manifest), "--image-map", str(images))
    entry = "names-0-worker-0-0"

    def lines() -> list[str]:
        printed = up.log("names-0-worker-0-1", "team").splitlines()
        return printed if len(printed) == 5 else []

    printed = until("five names", lines, report=space.logs)
    address = up.get("pod", entry, "team")["status"]["podIP"]
    assert printed == [
        f"{name} {address}"
        for name in (
            f"{entry}.team",
            f"{entry}.team.svc.cluster.local",
            "front",
            "front.team",
            "front.team.svc",
        )
    ]
    (node,) = up.read("/api/v1/nodes")["items"]
    ready = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
    if "no private mounts" in ready.get("message", ""):
        pytest.skip(ready["message"])
    assert up.process.poll() is None


FIRST_START = """
import os, socket, time
print(socket.getaddrinfo(os.environ["ENTRY_ADDRESS"], 80)[0][4][0], flush=True)
time.sleep(3600)
"""


def test_entry_address_resolves_at_the_first_start_of_every_pod(
    space: Workspace, tmp_path: Path
) -> None:
    images, manifest = tmp_path / "images.yaml", tmp_path / "serving.yaml"
    images.write_text(json.dumps({"plain*": ["python3", "-c", FIRST_START]}))
    manifest.write_text(SERVING.replace("replicas: 1\n  template", "replicas: 3\n  template"))
    up = space.up("-f", str(manifest), "--image-map", str(images))
    names = [f"names-{group}-worker-0-{index}" for group in range(3) for index in range(2)]

    def pods() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = up.read("/api/v1/namespaces/team/pods")["items"]
        return found if len(found) == len(names) else []

    def logs() -> list[str]:
        return [up.log(name, "team").strip() for name in names]

    until("every pod has looked", lambda: all(logs()), report=space.logs)
    addresses = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in pods()}
    assert logs() == [addresses[f"{name[:-1]}0"] for name in names]
    assert all(pod["status"]["containerStatuses"][0]["restartCount"] == 0 for pod in pods())
    assert "RoleDeleting" not in up.kubectl("get", "events", "-n", "team").stdout
