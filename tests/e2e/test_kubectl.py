"""kubectl on the cluster of `kthena up`, with the kubeconfig that it prints."""

import json
from collections.abc import Iterator

import pytest

from support.programs import REPOSITORY, Up, Workspace, until, workspace
from support.tools import require_tool

pytestmark = pytest.mark.kubectl

QUICKSTART = REPOSITORY / "examples" / "quickstart"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    require_tool("kubectl")
    folder = tmp_path_factory.mktemp("kubectl") / "workspace"
    folder.mkdir()
    with workspace(folder) as space:
        yield space.up("-k", str(QUICKSTART))
    space.until_nothing_left()


def kubectl(up: Up, *arguments: str, stdin: str = "") -> str:
    done = up.kubectl(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_wait_and_tables(up: Up) -> None:
    for kind in ("modelserving", "modelserver", "modelroute"):
        out = kubectl(up, "wait", "--for=condition=Ready", f"{kind}/qwen3", "--timeout=60s")
        assert "condition met" in out
    for name in ("mss", "msv", "mr"):
        header, row = (line.split() for line in kubectl(up, "get", name).splitlines())
        assert row[0] == "qwen3"
        assert row[header.index("READY")] == "True"
    listed = kubectl(up, "get", "kthena")
    assert all(kind in listed for kind in ("modelserving", "modelserver", "modelroute"))
    pods = kubectl(up, "get", "pods", "-o", "wide").splitlines()
    assert [line.split()[1:3] for line in pods[1:]] == [["1/1", "Running"]] * 2


def test_apply_again_changes_nothing_and_bad_objects_are_refused(up: Up) -> None:
    versions = "--output=jsonpath={.items[*].metadata.resourceVersion}"
    kubectl(up, "apply", "-k", str(QUICKSTART))
    kubectl(up, "wait", "--for=condition=Ready", "mss/qwen3", "mr/qwen3", "--timeout=60s")
    stored = kubectl(up, "get", "mss,msv,mr", versions)
    # kubectl says "configured" where the server has defaulted an item of a list, and changes nothing.
    kubectl(up, "apply", "-k", str(QUICKSTART))
    assert kubectl(up, "get", "mss,msv,mr", versions) == stored
    assert up.workspace.run("apply", "-k", str(QUICKSTART)).stdout.count("unchanged") == 3
    before = kubectl(up, "get", "mss", "qwen3", "-o", "json")
    bad = json.loads(before)
    bad["spec"]["replicas"] = -1
    done = up.kubectl("apply", "-f", "-", stdin=json.dumps(bad))
    assert done.returncode != 0
    assert "spec.replicas" in done.stderr
    unknown = json.loads(before)
    unknown["spec"]["replica"] = 1
    done = up.kubectl("apply", "-f", "-", stdin=json.dumps(unknown))
    assert done.returncode != 0
    assert 'unknown field "spec.replica"' in done.stderr
    assert json.loads(kubectl(up, "get", "mss", "qwen3", "-o", "json")) == json.loads(before)


def test_scale_events_logs_and_delete(up: Up) -> None:
    kubectl(up, "scale", "mss/qwen3", "--replicas=3")
    out = "--output=jsonpath={.status.availableReplicas}"
    until("three groups", lambda: kubectl(up, "get", "mss", "qwen3", out) == "3")
    kubectl(up, "wait", "--for=condition=Ready", "mss/qwen3", "--timeout=60s")
    events = kubectl(up, "get", "events")
    assert "pod/qwen3-2-server-0-0" in events
    assert "Started" in events
    assert "mock engine serves" in kubectl(up, "logs", "qwen3-2-server-0-0", "--tail=1")
    described = kubectl(up, "describe", "mss", "qwen3")
    assert "Available" in described
    kubectl(up, "delete", "mss", "qwen3")
    until("no pod", lambda: "No resources found" in kubectl(up, "get", "pods"))
    out = kubectl(up, "get", "msv,mr")
    assert "False" in out, out
    kubectl(up, "delete", "-k", str(QUICKSTART), "--ignore-not-found")
    assert "No resources found" in kubectl(up, "get", "msv,mr,mss")


def test_other_commands_find_the_running_cluster(up: Up) -> None:
    space: Workspace = up.workspace
    done = space.run("apply", "-k", str(QUICKSTART))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
    kubectl(up, "wait", "--for=condition=Ready", "mss/qwen3", "mr/qwen3", "--timeout=60s")
    answer = space.run("chat", "qwen3", "Say hello")
    assert answer.returncode == 0, answer.stderr
    streamed = space.run("chat", "qwen3", "Say hello", "--stream")
    assert streamed.stdout == answer.stdout
    described = space.run("describe", "mr", "qwen3")
    assert "Ready" in described.stdout
    logged = space.run("logs", "qwen3-0-server-0-0", "--tail", "5")
    assert logged.returncode == 0
    assert logged.stdout
    assert space.run("get", "mss", "nobody").returncode == 4
    deleted = space.run("delete", "-k", str(QUICKSTART))
    assert deleted.returncode == 0
    assert space.run("delete", "mss", "qwen3").returncode == 4
