"""The planes as programs of their own on a cluster: together, and each without the other."""

import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from kthena.machinery.yaml import load_documents
from support.local_api import SERVERS
from support.planes import LEASE, NETWORKING, QUICKSTART, SERVING, Planes, Router, ask, planes
from support.programs import Workspace, until


@pytest.fixture(params=SERVERS)
def cluster(request: pytest.FixtureRequest, space: Workspace) -> Iterator[Planes]:
    with planes(request.param, request, space) as found:
        yield found


def quickstart(cluster: Planes, kind: str, **spec: Any) -> None:
    path = QUICKSTART / f"{kind}.yaml"
    obj = load_documents(path.read_text(), str(path))[0].object
    obj["spec"].update(spec)
    root = SERVING if kind == "modelserving" else NETWORKING
    cluster.create(root, f"{kind}s", obj)


def condition(cluster: Planes, kind: str, name: str = "Ready") -> dict[str, Any]:
    root = SERVING if kind == "modelserving" else NETWORKING
    obj = cluster.client.get(cluster.path(root, f"{kind}s", "qwen3")).body
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each["type"] == name and each["observedGeneration"] == obj["metadata"]["generation"]:
            return dict(each)
    return {"status": "", "message": ""}


def is_ready(cluster: Planes, kind: str) -> bool:
    return bool(condition(cluster, kind)["status"] == "True")


def test_three_resources_answer_and_each_plane_may_be_killed(cluster: Planes) -> None:
    cluster.node()
    manager = cluster.controller_manager()
    router = Router(cluster)
    for kind in ("modelserving", "modelserver", "modelroute"):
        quickstart(cluster, kind)
    for kind in ("modelserving", "modelserver", "modelroute"):
        until(f"{kind} is ready", partial(is_ready, cluster, kind),
              report=cluster.report)  # fmt: skip
    status, answer = ask(router.url)
    assert status == 200, answer
    assert answer["choices"][0]["message"]["content"]

    # The data plane needs no workload plane.
    cluster.kill_controller(manager)
    assert ask(router.url)[0] == 200

    # A router that comes later serves the same, and the statuses stay as they are.
    versions = [
        item["metadata"]["resourceVersion"] for item in cluster.items(NETWORKING, "modelroutes")
    ]
    second = Router(cluster)
    until("the second router serves", lambda: _answers(second), report=cluster.report)
    router.process.send_signal(signal.SIGTERM)
    assert router.process.wait(20) == 0
    assert ask(second.url)[0] == 200
    assert versions == [
        item["metadata"]["resourceVersion"] for item in cluster.items(NETWORKING, "modelroutes")
    ]


def _answers(router: Router) -> bool:
    try:
        return ask(router.url)[0] == 200
    except OSError:
        return False


def test_a_route_tells_the_truth_as_pods_come_and_go(cluster: Planes) -> None:
    cluster.node()
    cluster.controller_manager()
    router = Router(cluster)
    quickstart(cluster, "modelroute")
    missing = until(
        "a condition", lambda: condition(cluster, "modelroute", "ResolvedRefs")["message"]
    )
    assert f"{cluster.namespace}/qwen3" in missing
    quickstart(cluster, "modelserver")
    until("no pods", lambda: condition(cluster, "modelserver")["status"] == "False")
    status, answer = ask(router.url)
    assert status == 503
    assert answer["error"]["type"]
    quickstart(cluster, "modelserving", replicas=1)
    until("it answers", lambda: _answers(router), report=cluster.report)
    until("ready", lambda: condition(cluster, "modelroute")["status"] == "True")
    path = cluster.path(SERVING, "modelservings", "qwen3/scale")
    assert cluster.client.patch(path, {"spec": {"replicas": 0}}).status == 200
    until("not ready", lambda: condition(cluster, "modelroute")["status"] == "False",
          report=cluster.report)  # fmt: skip
    assert ask(router.url)[0] == 503


def test_a_controller_manager_that_loses_its_lease_ends_and_says_why(cluster: Planes) -> None:
    manager = cluster.controller_manager()
    path = cluster.path("/apis/coordination.k8s.io/v1", "leases", LEASE)
    until("it leads", lambda: cluster.client.get(path).status == 200, report=cluster.space.logs)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    stolen = {"spec": {"holderIdentity": "thief", "acquireTime": now, "renewTime": now}}

    def steal() -> bool:
        return cluster.client.patch(path, stolen).status == 200

    until("the lease is another's", steal)
    assert manager.wait(60) == 1
    log = cluster.space.log_of(manager)
    assert "error: the lease was lost" in log
    assert "Traceback" not in log
