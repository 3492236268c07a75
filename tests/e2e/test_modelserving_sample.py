"""A ModelServing of the corpus as pods that run, with programs of their own on either API server.

nginx is mapped to an idle Python program: what counts here is which pods, names, labels, variables
and Services there are, and how they heal, with the controller killed in the middle.
"""

import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kthena.machinery.yaml import load_documents
from support.corpus import require_corpus
from support.local_api import SERVERS, is_ready
from support.planes import SERVING, Planes, planes
from support.programs import Workspace, until

pytestmark = pytest.mark.corpus

GROUP = "sample-0"
ROLES = ("prefill", "decode")
EXPECTED = sorted(f"{GROUP}-{role}-0-{index}" for role in ROLES for index in range(4))
_PREFIX = "modelserving.volcano.sh/"


@pytest.fixture(params=SERVERS)
def cluster(request: pytest.FixtureRequest, space: Workspace) -> Iterator[Planes]:
    with planes(request.param, request, space) as found:
        program = "import time\nprint('idle', flush=True)\nwhile True: time.sleep(3600)"
        found.image_map.write_text(json.dumps({"nginx*": ["{python}", "-c", program]}))
        yield found


def sample(name: str = "sample", **spec: Any) -> dict[str, Any]:
    path = require_corpus() / "modelserving" / "sample.yaml"
    obj = load_documents(path.read_text(), str(path))[0].object
    obj["metadata"]["name"] = name
    obj["spec"].update(spec)
    obj["spec"]["template"]["restartGracePeriodSeconds"] = 0
    return obj


def uids(cluster: Planes) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.pods()}


def all_ready(cluster: Planes, names: list[str]) -> bool:
    pods = cluster.pods()
    return sorted(pod["metadata"]["name"] for pod in pods) == names and all(
        is_ready(pod) and not pod["metadata"].get("deletionTimestamp") for pod in pods
    )


def status_of(cluster: Planes, name: str = "sample") -> dict[str, Any]:
    serving = cluster.client.get(cluster.path(SERVING, "modelservings", name)).body
    status: dict[str, Any] = serving.get("status") or {}
    current = status.get("observedGeneration") == serving["metadata"]["generation"]
    return status if current else {}


def is_available(cluster: Planes, name: str = "sample", groups: int = 1) -> bool:
    status = status_of(cluster, name)
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    return (
        status.get("availableReplicas") == groups == status.get("replicas")
        and conditions["Ready"] == "True" == conditions["Available"]
    )


def wait_ready(cluster: Planes, names: list[str] = EXPECTED) -> None:
    groups = Counter(group.rsplit("-", 1)[0] for group in {n.rsplit("-", 3)[0] for n in names})
    until(
        "every pod is ready",
        lambda: (
            all_ready(cluster, names)
            and all(is_available(cluster, name, count) for name, count in groups.items())
        ),
        report=cluster.report,
    )


def process_of(cluster: Planes, pod: str) -> int:
    """The process that an idle container of the pod runs, not those that watch over it."""
    name = f"KTHENA_POD_NAME={pod}".encode()
    found = [
        each.pid
        for each in cluster.space.processes()
        if name in each.environment.split(b"\0") and b"print('idle'" in each.command
    ]
    return found[-1] if found else 0


def test_pods_names_labels_variables_and_services(cluster: Planes) -> None:
    cluster.node()
    cluster.controller_manager()
    cluster.create(SERVING, "modelservings", sample())
    wait_ready(cluster)
    for pod in cluster.pods():
        name = pod["metadata"]["name"]
        role, index = name.split("-")[2], int(name.rsplit("-", 1)[1])
        labels = {
            key.removeprefix(_PREFIX): value
            for key, value in pod["metadata"]["labels"].items()
            if key.startswith(_PREFIX)
        }
        revision, template_hash = labels.pop("revision"), labels.pop("role-template-hash")
        assert revision
        assert template_hash
        entry = {"entry": "true"} if index == 0 else {}
        assert labels == {
            "name": "sample", "group-name": GROUP, "role": role, "role-id": f"{role}-0", **entry
        }  # fmt: skip
        assert pod["spec"]["schedulerName"] in {"volcano", "default-scheduler"}
        for container in pod["spec"]["containers"]:
            variables = [(each["name"], each["value"]) for each in container["env"]]
            assert variables == [
                ("GROUP_SIZE", "4"),
                ("ENTRY_ADDRESS", f"{GROUP}-{role}-0-0.{cluster.namespace}"),
                ("WORKER_INDEX", str(index)),
            ]
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"], owner["blockOwnerDeletion"]) == (
            "ModelServing", "sample", True, True
        )  # fmt: skip
    services = {each["metadata"]["name"]: each for each in cluster.items("/api/v1", "services")}
    assert sorted(services) == [f"{GROUP}-decode-0-0", f"{GROUP}-prefill-0-0"]
    for name, service in services.items():
        role = name.split("-")[2]
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"] is True
        assert not service["spec"].get("ports")
        assert service["spec"]["selector"] == {
            f"{_PREFIX}group-name": GROUP,
            f"{_PREFIX}role": role,
            f"{_PREFIX}role-id": f"{role}-0",
            f"{_PREFIX}entry": "true",
        }


RENEWED = {"ServingGroupRecreate": "", "RoleRecreate": "prefill", "None": "prefill-0-2"}
"""What the names of pods have that return with `prefill-0-2`, by policy."""


def test_healing_follows_the_policy_with_the_controller_killed(cluster: Planes) -> None:
    """Three ModelServings, one for each policy."""
    cluster.node()
    manager = cluster.controller_manager()
    names, renewed = [], set()
    for number, (policy, part) in enumerate(RENEWED.items()):
        cluster.create(SERVING, "modelservings", sample(f"s{number}", recoveryPolicy=policy))
        own = [name.replace("sample", f"s{number}") for name in EXPECTED]
        names += own
        renewed |= {name for name in own if part in name}
    lost = [name for name in names if name.endswith("prefill-0-2")]
    wait_ready(cluster, names)
    before = uids(cluster)

    # A pod is deleted while no controller is there; the next one heals what it finds.
    cluster.kill_controller(manager)
    for pod in lost:
        cluster.client.delete(cluster.path("/api/v1", "pods", pod))
    until("the pods are gone", lambda: not set(lost) & uids(cluster).keys(), report=cluster.report)
    manager = cluster.controller_manager()
    until("the pods are back", lambda: set(lost) <= uids(cluster).keys(), report=cluster.report)
    wait_ready(cluster, names)
    after = uids(cluster)
    assert {name for name in names if before[name] != after[name]} == renewed

    # The pods of the whole group are deleted.
    for name in names:
        cluster.client.delete(cluster.path("/api/v1", "pods", name))
    until("all are renewed", lambda: not set(after.values()) & set(uids(cluster).values()),
          report=cluster.report)  # fmt: skip
    wait_ready(cluster, names)


def test_a_killed_process_heals(cluster: Planes) -> None:
    cluster.node()
    cluster.controller_manager()
    cluster.create(SERVING, "modelservings", sample(recoveryPolicy="RoleRecreate"))
    wait_ready(cluster)
    before = uids(cluster)
    pod = f"{GROUP}-decode-0-1"
    decode = [name for name in EXPECTED if "decode" in name]

    def healed() -> bool:
        now = uids(cluster)
        if now.get(pod) == before[pod] and (process := process_of(cluster, pod)):
            # A container that is ready again at once has healed by itself; one that ends again is
            # held back, and that is a failure of its pod.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return all(before[name] != now.get(name, before[name]) for name in decode)

    until("the role is renewed", healed, report=cluster.report)
    wait_ready(cluster)
    after = uids(cluster)
    assert [name for name in EXPECTED if before[name] == after[name]] == [
        name for name in EXPECTED if "prefill" in name
    ]


def test_scaling_through_the_subresource_with_the_controller_killed(cluster: Planes) -> None:
    cluster.node()
    manager = cluster.controller_manager()
    cluster.create(SERVING, "modelservings", sample())
    path = cluster.path(SERVING, "modelservings", "sample/scale")
    wait_ready(cluster)
    before = uids(cluster)
    assert cluster.client.patch(path, {"spec": {"replicas": 3}}).status == 200
    until("pods of new groups", lambda: len(cluster.pods()) > len(EXPECTED), report=cluster.report)
    cluster.kill_controller(manager)
    manager = cluster.controller_manager()
    more = sorted(name.replace("sample-0", f"sample-{g}") for g in range(3) for name in EXPECTED)
    wait_ready(cluster, more)
    scale = cluster.client.get(path).body
    assert scale["status"]["replicas"] == 3
    assert {name: uid for name, uid in uids(cluster).items() if name in before} == before

    assert cluster.client.patch(path, {"spec": {"replicas": 1}}).status == 200
    cluster.kill_controller(manager)
    cluster.controller_manager()
    wait_ready(cluster)
    assert uids(cluster) == before

    assert cluster.client.patch(path, {"spec": {"replicas": 0}}).status == 200
    until("nothing is left", lambda: not cluster.pods(), report=cluster.report)
    until("the status says so", lambda: status_of(cluster).get("replicas") == 0,
          report=cluster.report)  # fmt: skip


def test_deletion_takes_everything_along(cluster: Planes) -> None:
    cluster.node()
    cluster.controller_manager()
    cluster.create(SERVING, "modelservings", sample())
    wait_ready(cluster)
    cluster.client.delete(cluster.path(SERVING, "modelservings", "sample"))
    until("no pod", lambda: not cluster.pods(), report=cluster.report)
    until("no Service", lambda: not cluster.items("/api/v1", "services"), report=cluster.report)
    until(
        "no revision",
        lambda: not cluster.items("/apis/apps/v1", "controllerrevisions"),
        report=cluster.report,
    )
