"""`kthena up` on real manifests: a chat answer and three ready resources, and nothing left behind."""

import os
import signal
from pathlib import Path

import pytest

from support.corpus import require_corpus
from support.programs import REPOSITORY, Up, Workspace, until

QUICKSTART = str(REPOSITORY / "examples" / "quickstart")
ASK = str(REPOSITORY / "examples" / "quickstart" / "ask.sh")


def test_the_quickstart_prints_an_answer_and_three_ready_resources(space: Workspace) -> None:
    done = space.run("up", "-k", QUICKSTART, "--port", "0", "--", "sh", ASK)
    assert done.returncode == 0, done.stdout + done.stderr
    answer, _, tables = done.stdout.partition("\n\n")
    assert len(answer.split()) > 3
    rows = [line.split() for line in tables.splitlines() if line]
    for kind in ("ModelServing", "ModelServer", "ModelRoute"):
        start = rows.index([kind])
        header, row = rows[start + 1], rows[start + 2]
        assert row[header.index("READY")] == "True", tables


def test_the_command_gets_its_place_in_the_world_and_its_status_is_ours(
    space: Workspace, tmp_path: Path
) -> None:
    serving = tmp_path / "modelserving.yaml"
    text = (Path(QUICKSTART) / "modelserving.yaml").read_text()
    serving.write_text(text.replace("replicas: 2", "replicas: 0"))
    script = 'test -s "$KUBECONFIG" && echo "$KTHENA_ROUTER_URL" && exit 7'
    done = space.run("up", "-f", str(serving), "--port", "0", "--", "sh", "-c", script)
    assert done.returncode == 7
    assert done.stdout.startswith("http://127.0.0.1:")


@pytest.mark.corpus
def test_mock_deployments_of_the_corpus_answer(space: Workspace) -> None:
    manifest = require_corpus() / "networking" / "LLM-Mock.yaml"
    ask = "kthena chat Llama-3.1 hello"
    script = f"{ask} && echo --- && {ask} --stream"
    done = space.run("up", "-f", str(manifest), "--port", "0", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    whole, streamed = done.stdout.split("---\n")
    assert len(whole.split()) > 3
    assert streamed == whole


@pytest.mark.corpus
def test_disaggregated_serving_of_the_corpus_answers(space: Workspace) -> None:
    networking = require_corpus() / "networking"
    files = [
        f"-f{networking / name}-ds1.5b-pd-disaggregation.yaml"
        for name in ("ModelServing", "ModelServer", "ModelRoute")
    ]
    model = "deepseek-r1-1-5b-pd-disaggregation"
    done = space.run("up", *files, "--port", "0", "--", "kthena", "chat", model, "hello")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.split()) > 3


def test_ctrl_c_ends_every_process(space: Workspace) -> None:
    up = space.up("-k", QUICKSTART)
    until("engines run", lambda: len(space.left_over()) > 2)
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(20) == 0
    space.until_nothing_left()
    assert not list((space.folder / "tmp").iterdir())


def test_ctrl_c_during_the_command_ends_it_too(space: Workspace) -> None:
    marker = space.folder / "began"
    script = f"echo > {marker}; exec sleep 300"
    process = space.start("up", "--port", "0", "-k", QUICKSTART, "--", "sh", "-c", script)
    until("the command runs", marker.exists, report=space.logs)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    space.until_nothing_left()


def test_kill_of_the_parent_ends_every_process(space: Workspace) -> None:
    up = space.up("-k", QUICKSTART)
    until("engines run", lambda: len(space.left_over()) > 2)
    os.kill(up.process.pid, signal.SIGKILL)
    up.process.wait()
    space.until_nothing_left()


def test_edits_of_the_files_are_followed(space: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    for name in ("modelserving", "modelserver", "modelroute"):
        text = (Path(QUICKSTART) / f"{name}.yaml").read_text()
        (folder / f"{name}.yaml").write_text(text)
    up = space.up("-f", str(folder))
    serving = folder / "modelserving.yaml"

    def ready(count: int) -> bool:
        status = up.get("modelserving", "qwen3").get("status") or {}
        return bool(status.get("availableReplicas") == count == status.get("replicas"))

    until("two groups", lambda: ready(2), report=space.logs)
    serving.write_text(serving.read_text().replace("replicas: 2", "replicas: 1"))
    until("one group", lambda: ready(1), report=space.logs)

    serving.write_text("broken: [")
    until("a message", lambda: "not applied" in space.log_of(up.process), report=space.logs)
    assert str(serving) in space.log_of(up.process)
    assert ready(1)

    (folder / "modelroute.yaml").unlink()
    serving.write_text((Path(QUICKSTART) / "modelserving.yaml").read_text())
    until("two groups again", lambda: ready(2), report=space.logs)
    until("the route is gone", lambda: not up.get("modelroute", "qwen3"), report=space.logs)


def test_what_came_from_standard_input_stays_when_a_file_is_edited(
    space: Workspace, tmp_path: Path
) -> None:
    route = tmp_path / "modelroute.yaml"
    text = (Path(QUICKSTART) / "modelroute.yaml").read_text()
    route.write_text(text)
    stdin = tmp_path / "stdin"
    stdin.write_text((Path(QUICKSTART) / "modelserver.yaml").read_text())
    up = space.up("-f", "-", "-f", str(route), stdin=stdin)
    until("the server", lambda: up.get("modelserver", "qwen3"), report=space.logs)
    route.write_text(text.replace("name: default\n", "name: other\n"))
    until("the edit", lambda: _rule_of(up) == "other", report=space.logs)
    assert up.get("modelserver", "qwen3")


def _rule_of(up: Up) -> str:
    spec = up.get("modelroute", "qwen3").get("spec") or {"rules": [{}]}
    return str(spec["rules"][0].get("name"))
