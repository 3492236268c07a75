"""What a user is told when something is wrong: the object, the field, the cause, the fix, the code."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.programs import REPOSITORY, Up, Workspace, until, workspace

QUICKSTART = REPOSITORY / "examples" / "quickstart"
SERVING = (QUICKSTART / "modelserving.yaml").read_text()
SERVER = (QUICKSTART / "modelserver.yaml").read_text()
ROUTE = (QUICKSTART / "modelroute.yaml").read_text()
IDLE = SERVING.replace("replicas: 2", "replicas: 0")
"""Ready at once, and nothing has to be started for it."""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A running cluster with one ModelServer, `other`."""
    folder = tmp_path_factory.mktemp("other")
    text = SERVER.replace("name: qwen3", "name: other")
    given = manifests(folder / "manifests", server=text)
    (folder / "workspace").mkdir()
    with workspace(folder / "workspace") as space:
        yield space.up("-f", given)


def manifests(folder: Path, **texts: str) -> str:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return str(folder)


@pytest.fixture
def idle(tmp_path: Path) -> str:
    """A folder for clusters of which it does not matter what runs on them."""
    return manifests(tmp_path / "idle", serving=IDLE)


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("a: [1,\nb: 2", 2, ["serving.yaml:3:1: did not find expected"]),
        ("a: 1\na: 2", 2, ["serving.yaml:2:4:", 'key "a"']),
        ("kind: ModelServing\nmetadata: {name: x}", 2, ["serving.yaml:1:", "no apiVersion"]),
        (SERVING.replace("replicas: 2", "replicas: -2"), 6,
         ["serving.yaml:2: ModelServing default/qwen3: spec.replicas: Invalid value: -2"]),
        (SERVING.replace("replicas: 2", "replicas: five"), 6,
         ["serving.yaml:2: ModelServing default/qwen3: spec.replicas: Invalid value"]),
        (SERVING.replace("replicas: 2", "replica: 2"), 6, ['unknown field "spec.replica"']),
        (SERVING.replace("kind: ModelServing", "kind: ModelServings"), 4,
         ["serving.yaml:2: the server has no kind ModelServings", "hint: "]),
        (SERVING.replace("schedulerName: default-scheduler", "recoveryPolicy: Sometimes"), 6,
         ["spec.recoveryPolicy", '"Sometimes"', '"RoleRecreate"']),
    ],
    ids=["yaml", "duplicate", "no-version", "negative", "type", "unknown", "kind", "enum"],
)  # fmt: skip
def test_one_broken_file_applies_nothing(
    other: Up, tmp_path: Path, text: str, code: int, expected: list[str]
) -> None:
    folder = manifests(tmp_path / "m", route=ROUTE, server=SERVER, serving=text)
    done = other.workspace.run("apply", "-f", folder)
    assert done.returncode == code, done.stderr
    message = done.stderr.removeprefix(f"using the running kthena up (pid {other.process.pid})\n")
    assert message.startswith("error: ")
    for part in expected:
        assert part in message
    assert "Traceback" not in message
    kinds = "modelservings,modelservers,modelroutes"
    assert other.workspace.run("get", kinds, "-o", "name").stdout == "modelserver/other\n"


def test_up_starts_nothing_on_a_folder_with_one_broken_file(
    space: Workspace, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    text = SERVING.replace("replicas: 2", "replicas: -2")
    folder = manifests(tmp_path / "m", route=ROUTE, server=SERVER, serving=text)
    done = space.run("up", "-f", folder, "--port", "0", "--", "touch", str(marker))
    assert done.returncode == 6, done.stderr
    assert "serving.yaml:2: ModelServing" in done.stderr
    assert not marker.exists()


def test_an_object_that_fails_validation_leaves_the_stored_one(
    space: Workspace, tmp_path: Path
) -> None:
    folder = manifests(tmp_path / "m", server=SERVER, route=ROUTE)
    up = space.up("-f", folder)
    until("the route", lambda: up.get("modelroute", "qwen3"))
    stored = up.get("modelroute", "qwen3")["spec"]
    manifests(tmp_path / "m", route=ROUTE.replace("modelName: qwen3", 'modelName: ""'))
    until("a message", lambda: "not applied" in space.log_of(up.process), report=space.logs)
    assert "spec.modelName" in space.log_of(up.process)
    assert up.get("modelroute", "qwen3")["spec"] == stored


def test_an_unknown_field_of_a_stored_object_is_named(other: Up, tmp_path: Path) -> None:
    text = SERVER.replace("name: qwen3", "name: other").replace(
        "  model:", "  modle: x\n  model:", 1
    )
    done = other.workspace.run("apply", "-f", manifests(tmp_path / "m", server=text))
    assert done.returncode == 6
    assert 'ModelServer default/other: unknown field "spec.modle"\n' in done.stderr


def test_a_missing_target_is_named(space: Workspace, tmp_path: Path) -> None:
    folder = manifests(tmp_path / "m", route=ROUTE)
    done = space.run("up", "-f", folder, "--port", "0", "--wait", "3", "--", "true")
    assert done.returncode == 3
    assert "modelroute" in done.stderr.lower()
    assert "ModelServer default/qwen3" in done.stderr


def test_two_routes_for_one_model(space: Workspace, tmp_path: Path) -> None:
    younger = ROUTE.replace("name: qwen3\n  namespace", "name: younger\n  namespace")
    assert younger != ROUTE
    folder = manifests(tmp_path / "m", serving=SERVING, server=SERVER, route=ROUTE)
    up = space.up("-f", folder)
    until("the route", lambda: up.get("modelroute", "qwen3").get("status"))
    manifests(tmp_path / "m", younger=younger)

    def refusal() -> str:
        conditions = up.get("modelroute", "younger").get("status", {}).get("conditions", ())
        return "".join(c["message"] for c in conditions if c["status"] == "False")

    message = until("a condition", refusal, report=space.logs)
    assert "default/qwen3" in message
    assert "qwen3" in message
    answer = space.run("chat", "qwen3", "hello")
    assert answer.returncode == 0, answer.stderr


def test_a_port_in_use(space: Workspace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = space.run("up", "-k", str(QUICKSTART), "--port", port)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert port in done.stderr.splitlines()[0]
    assert "--port" in done.stderr.splitlines()[1]
    assert len(done.stderr.splitlines()) == 2


def test_a_kustomization_without_kustomize(space: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "k"
    manifests(folder, serving=SERVING)
    (folder / "kustomization.yaml").write_text("resources: [serving.yaml]\nnamePrefix: a-\n")
    done = space.run("up", "-k", str(folder), env={"PATH": "/nonexistent"})
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {folder}: this kustomization uses namePrefix")
    assert "hint: install kubectl or kustomize" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("up",), 2, "no input"),
        (("up", "-f", "/nonexistent.yaml"), 2, "/nonexistent.yaml: No such file or directory"),
        (("up", "-k", "/nonexistent"), 2, "no kustomization.yaml"),
        (("chat", "m", "hello"), 2, "no router is known"),
        (("chat", "m", "hello", "--router", "http://127.0.0.1:1"), 7, "does not answer"),
        (("get", "pods"), 2, "no cluster"),
        (("get", "pods", "--kubeconfig", "/nonexistent"), 2, "/nonexistent: no such file"),
        (("router", "--config", "/nonexistent"), 2, "/nonexistent: No such file"),
        (("frobnicate",), 2, "No such command 'frobnicate'"),
    ],
)
def test_wrong_usage(
    space: Workspace, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    done = space.run(*arguments)
    assert done.returncode == code, done.stderr
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_is_gone(space: Workspace, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps({
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": "http://me:secret@127.0.0.1:1"}}],
    }))  # fmt: skip
    done = space.run("get", "pods", "--kubeconfig", str(kubeconfig))
    assert done.returncode == 7
    assert "http://127.0.0.1:1 cannot be reached" in done.stderr
    assert "secret" not in done.stderr


def test_a_setting_that_is_not_implemented_is_refused(space: Workspace, tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    text = "scheduler:\n  plugins:\n    Filter:\n      enabled: [lora-affinity]\n"
    config.write_text(text)
    done = space.run("router", "--config", str(config))
    assert done.returncode == 2
    assert f"{config}: scheduler.plugins.Filter.enabled[0]: " in done.stderr
    done = space.run("router", env={"DRAIN_TIMEOUT": "soon"})
    assert done.returncode == 2
    assert "environment variable DRAIN_TIMEOUT: " in done.stderr


def test_an_unknown_image_says_how_to_map_it(space: Workspace, tmp_path: Path) -> None:
    text = SERVING.replace("vllm/vllm-openai:v0.11.0", "example.com/odd:1")
    up = space.up("-f", manifests(tmp_path / "m", serving=text))

    def message() -> str:
        pod = up.get("pod", "qwen3-0-server-0-0")
        statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
        waiting = statuses[0].get("state", {}).get("waiting", {})
        return str(waiting.get("message") or "") if waiting.get("reason") == "ErrImagePull" else ""

    text = until("the reason", message, report=space.logs)
    assert "example.com/odd:1" in text
    assert "--image-map" in text
    # Whoever waits is told too.
    until("the table", lambda: "ErrImagePull" in space.log_of(up.process), report=space.logs)


CRASHING = """
apiVersion: workload.serving.volcano.sh/v1alpha1
kind: ModelServing
metadata: {name: bad}
spec:
  recoveryPolicy: "POLICY"
  template:
    roles:
    - name: bad
      workerReplicas: 0
      entryTemplate: {spec: {containers: [{name: main, image: "odd:1"}]}}
"""


@pytest.mark.parametrize("policy", ["RoleRecreate", "None"])
def test_a_container_that_keeps_ending_is_never_ready(
    space: Workspace, tmp_path: Path, policy: str
) -> None:
    images = tmp_path / "images.yaml"
    images.write_text('"odd*": ["sh", "-c", "exit 3"]')
    folder = manifests(tmp_path / "m", serving=CRASHING.replace("POLICY", policy))
    done = space.run("up", "-f", folder, "--image-map", str(images), "--port", "0", "--", "true")
    assert done.returncode == 3, done.stderr
    assert "CrashLoopBackOff" in done.stderr


def test_data_directories_that_cannot_be_used(space: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    done = space.run("up", "-k", str(QUICKSTART), "--data-dir", str(file / "below"))
    hint = "hint: --data-dir takes another directory"
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: --data-dir {file / 'below'}: Not a directory", hint
    ]  # fmt: skip
    for program in (("up", "-k", str(QUICKSTART)), ("node", "--kubeconfig", "none")):
        done = space.run(*program, "--data-dir", str(file))
        assert done.returncode == 2
        assert done.stderr.splitlines() == [
            f"error: --data-dir {file}: it is not a directory", hint
        ]  # fmt: skip

    odd = tmp_path / "odd"
    (odd / "kubeconfig").mkdir(parents=True)
    done = space.run("up", "-k", str(QUICKSTART), "--port", "0", "--data-dir", str(odd))
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 2)
    assert f"{odd / 'kubeconfig'}: " in done.stderr
    assert "--data-dir" in done.stderr.splitlines()[1]


def test_a_data_directory_that_another_uses(space: Workspace, tmp_path: Path, idle: str) -> None:
    up = space.up("-f", idle, "--data-dir", str(tmp_path / "data"))
    done = space.run("node", "--kubeconfig", up.kubeconfig, "--data-dir",
                     str(tmp_path / "data" / "node"))  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "data" / "node") in done.stderr


def test_a_node_leaves_no_directory_behind(space: Workspace, idle: str) -> None:
    up = space.up("-f", idle)
    before = {path.name for path in (space.folder / "tmp").iterdir()}
    node = space.start("node", "--kubeconfig", up.kubeconfig, "--name", "second")
    until("the node is ready", lambda: "node is ready" in space.log_of(node), report=space.logs)
    node.send_signal(signal.SIGTERM)
    assert node.wait(20) == 0
    assert {path.name for path in (space.folder / "tmp").iterdir()} == before


def test_a_second_cluster_on_a_data_directory_leaves_the_first_alone(
    space: Workspace, tmp_path: Path, idle: str
) -> None:
    folder = str(tmp_path / "data")
    up = space.up("-f", idle, "--data-dir", folder)
    done = space.run("up", "-f", idle, "--port", "0", "--data-dir", folder, "--", "true")
    assert done.returncode == 1
    assert folder in done.stderr.splitlines()[0]
    assert up.get("modelserving", "qwen3")


def test_commands_find_the_cluster_that_stays(space: Workspace, idle: str) -> None:
    up = space.up("-f", idle)
    other = ["up", "-f", idle, "--port", "0", "--", "sh", "-c"]
    script = "env -u KUBECONFIG kthena get mss -o name"
    done = space.run(*other, script)
    assert done.returncode == 0, done.stderr
    assert (
        f"using the running kthena up (pid {up.process.pid}); not using those of pid" in done.stderr
    )
    assert up.get("modelserving", "qwen3")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_every_signal_ends_in_order(space: Workspace, idle: str, number: signal.Signals) -> None:
    up = space.up("-f", idle)
    up.process.send_signal(number)
    assert up.process.wait(20) == 0
    space.until_nothing_left()
    assert not list((space.folder / "tmp").iterdir())


def test_what_a_killed_cluster_left_is_swept(space: Workspace, idle: str) -> None:
    up = space.up("-f", idle)
    up.process.kill()
    up.process.wait()
    assert list((space.folder / "tmp").iterdir())
    done = space.run("up", "-f", idle, "--port", "0", "--", "true")
    assert done.returncode == 0, done.stderr
    assert not list((space.folder / "tmp").iterdir())
