"""The manifests of the corpus that ask for gangs or topology, in local mode."""

import json
from functools import partial
from typing import Any

import pytest
import yaml

from support.corpus import corpus_objects
from support.programs import Up, Workspace, until

GROUP_NAME = "scheduling.k8s.io/group-name"
POD_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
PODS = "/api/v1/namespaces/default/pods"


def gangs() -> list[dict[str, Any]]:
    """The ModelServings that need PodGroups, each under a name of its own."""
    found = []
    for file, obj in corpus_objects("modelserving"):
        template = obj["spec"].get("template") or {}
        if template.keys() & {"gangPolicy", "networkTopology"}:
            obj["metadata"]["name"] = file.removesuffix(".yaml").lower()
            found.append(obj)
    return found


def is_ready(up: Up, name: str) -> bool:
    status = up.get("modelserving", name).get("status") or {}
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    return conditions.get("Ready") == "True"


def started_at(pod: dict[str, Any]) -> str:
    """When the pod was bound to the node."""
    text: str = pod["status"]["startTime"]
    return text


@pytest.mark.corpus
def test_gangs_of_the_corpus_run_through_the_gate_of_the_node(space: Workspace) -> None:
    servings = gangs()
    manifests = space.folder / "gangs.yaml"
    manifests.write_text(yaml.safe_dump_all(servings))
    images = space.folder / "images.yaml"
    images.write_text(json.dumps({"nginx*": ["sleep", "3600"]}))

    up = space.up("-f", str(manifests), "--image-map", str(images), "--time-scale", "20")

    for serving in servings:
        name = serving["metadata"]["name"]
        until(f"{name} is ready", partial(is_ready, up, name), report=space.logs)
    pod_groups = {each["metadata"]["name"]: each for each in up.read(POD_GROUPS)["items"]}
    pods = up.read(PODS)["items"]
    assert set(pod_groups) == {f"{serving['metadata']['name']}-0" for serving in servings}
    for name, pod_group in pod_groups.items():
        members = [pod for pod in pods if pod["metadata"]["annotations"].get(GROUP_NAME) == name]
        assert len(members) >= pod_group["spec"]["minMember"] > 0
        last_created = sorted(pod["metadata"]["creationTimestamp"] for pod in members)
        needed = last_created[pod_group["spec"]["minMember"] - 1]
        assert min(map(started_at, members)) >= needed, f"{name} was started too early"
    print(f"corpus: {len(pods)} pods of {len(pod_groups)} gangs ready")
