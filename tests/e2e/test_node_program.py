"""kthena's programs on a control plane: with no more rights than the manifests give, on a seeded state.

The real API server enforces RBAC and OwnerReferencesPermissionEnforcement.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kthena.api.volcano import ANNOTATION_GROUP_NAME, POD_GROUP_CRD
from kthena.local.podgroups import pod_group_crd
from support.local_api import SERVERS, is_ready
from support.planes import QUICKSTART, SERVING, Planes, Router, ask, planes
from support.programs import REPOSITORY, Workspace, until
from support.seeding import Seeded, recorded, seed
from support.tools import require_tool

KUSTOMIZE = REPOSITORY / "deploy" / "kustomize"
SHARES = (KUSTOMIZE / "base" / "workload", KUSTOMIZE / "node")
MANAGER = ("kthena-system", "kthena-controller-manager")
NODE = ("kthena-node", "kthena-node")


@pytest.fixture
def restricted(request: pytest.FixtureRequest, space: Workspace) -> Iterator[Planes]:
    require_tool("kubectl")
    with planes("real", request, space) as found:
        for share in SHARES:
            must(found, "apply", "-k", str(share))
        yield found


def must(cluster: Planes, *arguments: str, stdin: str = "") -> str:
    done = cluster.kubectl(*arguments, stdin=stdin)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def account(cluster: Planes, namespace: str, name: str) -> Path:
    """A kubeconfig with a token of a service account, as the guide makes it."""
    token = must(cluster, "create", "token", name, "-n", namespace).strip()
    config: dict[str, Any] = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = cluster.space.folder / f"{name}.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def apply(cluster: Planes, kind: str, name: str = "qwen3", **spec: Any) -> None:
    """`kubectl apply` a file of the quickstart, with its name and namespace changed."""
    obj = yaml.safe_load((QUICKSTART / f"{kind}.yaml").read_text())
    obj["metadata"] = {"name": name, "namespace": cluster.namespace}
    obj["spec"] |= spec
    must(cluster, "apply", "-f", "-", stdin=json.dumps(obj))


def get(cluster: Planes, kind: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(must(cluster, "get", kind, "-o", "json"))["items"]
    return items


@pytest.mark.cluster
@pytest.mark.kubectl
def test_programs_need_no_more_than_their_manifests_give(restricted: Planes) -> None:
    cluster = restricted
    node = cluster.node("--adopt-node=elsewhere", kubeconfig=account(cluster, *NODE))
    manager = cluster.controller_manager(
        kubeconfig=account(cluster, *MANAGER), lease_namespace=MANAGER[0]
    )
    router = Router(cluster)
    bound = {
        "metadata": {"name": "bound"},
        "spec": {
            "nodeName": "elsewhere", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "engine", "image": "vllm/vllm-openai"}],
        },
    }  # fmt: skip
    cluster.create("/api/v1", "pods", bound)
    for kind in ("modelserving", "modelserver", "modelroute"):
        apply(cluster, kind)
    apply(cluster, "modelserving", "third", schedulerName="someone-else")
    must(cluster, "wait", "--for=condition=Ready", "mss/qwen3", "mr/qwen3", "pod/bound",
         "--timeout=60s")  # fmt: skip
    status, answer = ask(router.url)
    assert status == 200, answer

    pods = {pod["metadata"]["name"]: pod for pod in get(cluster, "pods")}
    assert {name: pod["spec"].get("nodeName") for name, pod in pods.items()} == {
        "bound": "elsewhere",
        "qwen3-0-server-0-0": cluster.namespace,
        "qwen3-1-server-0-0": cluster.namespace,
        "third-0-server-0-0": None,
        "third-1-server-0-0": None,
    }
    assert pods["third-0-server-0-0"]["status"]["phase"] == "Pending"
    lines = must(cluster, "get", "nodes", cluster.namespace, "elsewhere").splitlines()[1:]
    assert [line.split()[1] for line in lines] == ["Ready", "Ready"]
    # The API server asks the node's kubelet port, and nothing listens there.
    logs = cluster.kubectl("logs", "qwen3-0-server-0-0")
    assert logs.returncode != 0
    assert ":10250/containerLogs/" in logs.stderr
    # The log is where the guide says.
    uid = pods["qwen3-0-server-0-0"]["metadata"]["uid"]
    log = cluster.space.folder / "node" / "pods" / uid / "logs" / "engine" / "0.log"
    assert "mock engine serves" in log.read_text()

    # Children go with their owner, through the garbage collector and the node's grace period.
    must(cluster, "delete", "mss", "qwen3", "third", "--wait=false")
    must(cluster, "delete", "pod", "bound", "--wait=false")
    kinds = "pods,services,controllerrevisions"
    until("the children are gone", lambda: not get(cluster, kinds), report=cluster.report)
    for program in (node, manager):
        assert "forbidden" not in cluster.space.log_of(program).lower()


@pytest.mark.cluster
@pytest.mark.kubectl
def test_children_that_block_their_owner_need_the_right_to_its_finalizers(
    restricted: Planes,
) -> None:
    """Field report B074: with the shipped rule children are created, without it they are refused."""
    cluster = restricted
    role = json.loads(must(cluster, "get", "clusterrole", MANAGER[1], "-o", "json"))
    kept = [rule for rule in role["rules"] if "modelservings/finalizers" not in rule["resources"]]
    assert len(kept) == len(role["rules"]) - 1
    patch = json.dumps({"rules": kept})
    must(cluster, "patch", "clusterrole", MANAGER[1], "--type=merge", "-p", patch)
    cluster.controller_manager(kubeconfig=account(cluster, *MANAGER), lease_namespace=MANAGER[0])
    apply(cluster, "modelserving")

    def failure() -> str:
        conditions = (get(cluster, "mss")[0].get("status") or {}).get("conditions") or ()
        messages = [c["message"] for c in conditions if c["type"] == "ReplicaFailure"]
        return str(messages[0]) if messages else ""

    until("the failure is told", lambda: "blockOwnerDeletion" in failure(), report=cluster.report)
    assert get(cluster, "pods") == []

    must(cluster, "apply", "-k", str(SHARES[0]))
    until("the pods are there", lambda: len(get(cluster, "pods")) == 2, report=cluster.report)
    for child in get(cluster, "pods,services,controllerrevisions"):
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["blockOwnerDeletion"]) == ("ModelServing", True)
    until("no failure is told", lambda: not failure(), report=cluster.report)

    # Foreground: the owner waits for the children that block it.
    must(cluster, "delete", "mss", "qwen3", "--cascade=foreground", "--timeout=30s")
    assert get(cluster, "mss,pods,services,controllerrevisions") == []


@pytest.fixture(params=SERVERS)
def cluster(request: pytest.FixtureRequest, space: Workspace) -> Iterator[Planes]:
    with planes(request.param, request, space) as found:
        yield found


@pytest.mark.cluster
@pytest.mark.kubectl
def test_gangs_need_no_more_than_the_manifests_give(restricted: Planes) -> None:
    cluster = restricted
    must(cluster, "apply", "-f", "-", stdin=json.dumps(pod_group_crd()))
    try:
        until("they are served", lambda: cluster.kubectl("get", "podgroups").returncode == 0)
        cluster.node(kubeconfig=account(cluster, *NODE))
        cluster.controller_manager(
            kubeconfig=account(cluster, *MANAGER), lease_namespace=MANAGER[0]
        )
        apply(cluster, "modelserving", schedulerName="volcano")
        must(cluster, "wait", "--for=condition=Ready", "mss/qwen3", "--timeout=60s")
        gangs = {
            pod["metadata"]["annotations"][ANNOTATION_GROUP_NAME] for pod in get(cluster, "pods")
        }
        assert gangs == {pod_group["metadata"]["name"] for pod_group in get(cluster, "podgroups")}
        assert gangs == {"qwen3-0", "qwen3-1"}

        must(cluster, "annotate", "mss/qwen3", "scheduling.volcano.sh/queue-name=gpu")
        until("the queue is followed", lambda: {
            pod_group["spec"]["queue"] for pod_group in get(cluster, "podgroups")
        } == {"gpu"})  # fmt: skip
        must(cluster, "scale", "mss/qwen3", "--replicas=1")
        until("a PodGroup goes with its group", lambda: len(get(cluster, "podgroups")) == 1)
    finally:
        must(cluster, "delete", "crd", POD_GROUP_CRD)


@pytest.mark.corpus
def test_a_recorded_state_runs_on_and_no_pod_is_replaced(cluster: Planes) -> None:
    """The pods of the recording get processes and addresses of this machine, nothing else changes."""
    nginx = {"nginx*": ["python3", "-m", "http.server", "8080", "--bind", "{address}"]}
    cluster.image_map.write_text(yaml.safe_dump(nginx))
    seeded = seed(cluster.client, recorded("steady"), {"default": cluster.namespace})
    before = {pod["metadata"]["name"]: pod for pod in cluster.pods()}
    assert {pod["status"]["podIP"] for pod in before.values()} == {"10.0.0.9"}
    cluster.node("--time-scale=100")
    cluster.controller_manager()

    def runs() -> bool:
        pods = cluster.pods()
        local = [pod["status"]["podIP"].startswith("127.") and is_ready(pod) for pod in pods]
        return len(pods) == len(before) and all(local)

    until("every pod runs here", runs, report=cluster.report)
    until("the ModelServings are ready", lambda: _ready(cluster), report=cluster.report)
    after = {pod["metadata"]["name"]: pod for pod in cluster.pods()}
    assert after.keys() == before.keys()
    for name, pod in after.items():
        assert pod["metadata"]["uid"] == before[name]["metadata"]["uid"]
        assert pod["metadata"].get("labels") == before[name]["metadata"].get("labels")
        counts = [entry["restartCount"] for entry in pod["status"]["containerStatuses"]]
        assert set(counts) == {0}, (name, counts)
        assert {**pod["spec"], "nodeName": ""} == {**before[name]["spec"], "nodeName": ""}
    assert len({pod["status"]["podIP"] for pod in after.values()}) == len(after)
    _children_stay(seeded)


def _ready(cluster: Planes) -> bool:
    found = []
    for obj in cluster.items(SERVING, "modelservings"):
        conditions = (obj.get("status") or {}).get("conditions") or ()
        found += [
            c["status"] == "True" and c["observedGeneration"] == obj["metadata"]["generation"]
            for c in conditions
            if c["type"] == "Ready"
        ]
    return len(found) == 2 and all(found)


def _children_stay(seeded: Seeded) -> None:
    """Services, revisions and the specs of ModelServings are as they were recorded."""
    now = seeded.read_back()
    for obj in recorded("steady"):
        found = now[obj["metadata"]["uid"]]
        for part in ("spec", "data", "revision"):
            if obj["kind"] != "Pod":
                assert found.get(part) == obj.get(part), found["metadata"]["name"]
