"""`kthena up` twice on one data directory: the second run goes on with the objects of the first."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kthena.local.apiserver.storage.datafile import DataFile
from support.programs import REPOSITORY, Up, Workspace, until

QUICKSTART = str(REPOSITORY / "examples" / "quickstart")
SERVERS = ("qwen3-0-server-0-0", "qwen3-1-server-0-0")
LONELY = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "lonely", "namespace": "default"},
    "spec": {
        "containers": [
            {
                "name": "engine",
                "image": "vllm/vllm-openai:v0.11.0",
                "args": ["--model", "m"],
                "readinessProbe": {
                    "httpGet": {"path": "/health", "port": 8000},
                    "periodSeconds": 1,
                },
            }
        ]
    },
}


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def kept(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The objects that a run has left, by resource and name."""
    file = DataFile.open(folder / "apiserver")
    found = [(place.bucket, json.loads(data)) for place, data in file.objects()]
    file.close()
    return {(bucket, obj["metadata"]["name"]): obj for bucket, obj in found}


def test_objects_of_earlier_runs_are_there_and_serve_again(
    space: Workspace, tmp_path: Path
) -> None:
    folder, manifest = tmp_path / "data", tmp_path / "lonely.json"
    manifest.write_text(json.dumps(LONELY))
    here = ("--port", "0", "--data-dir", str(folder))

    # A run that ends in good order.
    done = space.run("up", "-k", QUICKSTART, "-f", str(manifest), *here, "--", "true")
    assert done.returncode == 0, done.stdout + done.stderr
    first = kept(folder)
    space.until_nothing_left()

    # One without manifests, which is killed.
    up = space.up(*here)
    for kind, name in (("pod", "lonely"), ("modelserving", "qwen3"), ("modelroute", "qwen3")):
        until(f"{kind} {name}", partial(is_ready_now, up, kind, name), report=space.logs)
    for name in SERVERS:
        until(f"pod {name}", partial(is_ready_now, up, "pod", name), report=space.logs)
    done = space.run("chat", "qwen3", "hello")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 3
    up.process.kill()
    up.process.wait()
    space.until_nothing_left()

    # What it has left says that all is ready; the command must not run before that is so again.
    chat = ("kthena", "chat", "qwen3", "hello")
    done = space.run("up", "-k", QUICKSTART, "-f", str(manifest), *here, "--", *chat)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.split()) > 3

    last = kept(folder)
    assert {name for bucket, name in last if bucket == "pods"} == {"lonely", *SERVERS}
    for key, old in first.items():
        if key[1] in ("qwen3", "lonely", *SERVERS):
            assert last[key]["metadata"]["uid"] == old["metadata"]["uid"]
            assert last[key]["spec"] == old["spec"]
    for name in ("lonely", *SERVERS):
        # The same pod, whose container has ended twice with its node.
        (container,) = last["pods", name]["status"]["containerStatuses"]
        assert container["restartCount"] == 2
        assert container["lastState"]["terminated"]["reason"] == "Unknown"
    # No end of a node was taken for a failure.
    reasons = {obj["reason"] for (bucket, _), obj in last.items() if bucket == "events"}
    assert "Scheduled" in reasons
    assert "RoleDeleting" not in reasons
    lonely = last["pods", "lonely"]
    old = first["pods", "lonely"]
    assert int(lonely["metadata"]["resourceVersion"]) > int(old["metadata"]["resourceVersion"])


def is_ready_now(up: Up, kind: str, name: str) -> bool:
    return is_ready(up.get(kind, name))


def test_a_data_directory_with_something_else_in_it(space: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "data" / "apiserver" / "objects.db"
    path.parent.mkdir(parents=True)
    path.write_text("my notes")
    done = space.run("up", "--port", "0", "--data-dir", str(tmp_path / "data"), "--", "true")
    assert done.returncode == 1
    error, hint = done.stderr.splitlines()
    assert error == (f"error: {path} does not hold objects of kthena: it is no SQLite database")
    assert hint == "hint: move it away, or choose another directory"
    assert path.read_text() == "my notes"


@pytest.mark.parametrize("limit", [2**20 // 4, 3 * 2**20], ids=["at the start", "later"])
def test_a_disk_that_is_full_ends_the_run(space: Workspace, tmp_path: Path, limit: int) -> None:
    """Here a limit on the size of files, which does to a process what a full disk does."""
    large = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"large-{number}", "namespace": "default"},
            "data": {"text": "x" * 200_000},
        }
        for number in range(12)
    ]
    manifest = tmp_path / "large.json"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": large}))
    script = (
        "import os, resource, sys; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
        "os.execv(sys.executable, [sys.executable, '-m', 'kthena', *sys.argv[1:]])"
    )
    up = ("up", "-f", str(manifest), "--port", "0", "--data-dir", str(tmp_path / "data"))
    done = space.run(*up, "--", "sleep", "60", program=(sys.executable, "-c", script))
    assert done.returncode == 1
    path = tmp_path / "data" / "apiserver" / "objects.db"
    error, hint = done.stderr.splitlines()[-2:]
    assert error.startswith(f"error: {path} cannot be written: ")
    assert hint == "hint: what was written before is kept: see to the disk, then start again"


def test_without_a_data_directory_manifests_are_needed(space: Workspace) -> None:
    done = space.run("up", "--port", "0", "--", "true")
    assert done.returncode == 2
    assert "no input" in done.stderr
