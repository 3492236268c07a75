"""kthena's programs as processes of their own, as a user starts them.

Everything that a program of a workspace leaves behind names the workspace's folder: in its command
line, its environment or its working directory. So what is left can be told from everything else on
the machine.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from support.rest import RestClient

T = TypeVar("T")

REPOSITORY = Path(__file__).resolve().parent.parent.parent
_WORKLOAD = "/apis/workload.serving.volcano.sh/v1alpha1"
_NETWORKING = "/apis/networking.serving.volcano.sh/v1alpha1"
_ROOTS = {
    "pod": "/api/v1",
    "modelserving": _WORKLOAD,
    "modelserver": _NETWORKING,
    "modelroute": _NETWORKING,
}
_PATIENCE_S = 60.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Process:
    """A process of this machine: its command line, its environment, and its working directory."""

    pid: int
    command: bytes
    environment: bytes
    directory: bytes

    @property
    def text(self) -> bytes:
        """Everything that may name a folder."""
        return b"\0".join((self.command, self.environment, self.directory))

    def __str__(self) -> str:
        """For people."""
        words = self.command.decode(errors="replace").replace("\0", " ")
        return f"{self.pid} {words}"


@dataclass
class Workspace:
    """A home of its own for kthena's programs: no configuration of the user's reaches them."""

    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("home", "state", "tmp"):
            (self.folder / name).mkdir()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every program."""
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "TMPDIR": str(self.folder / "tmp"),
            "LANG": "C.UTF-8",
        }

    def run(
        self,
        *arguments: str,
        env: dict[str, str] | None = None,
        stdin: str = "",
        timeout_s: float = _PATIENCE_S,
        program: Sequence[str] = (sys.executable, "-m", "kthena"),
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end; `program` is kthena unless another is given."""
        return subprocess.run(
            [*program, *arguments],
            env={**self.environment, **(env or {})},
            cwd=REPOSITORY,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def start(
        self, *arguments: str, env: dict[str, str] | None = None, stdin: Path = Path(os.devnull)
    ) -> subprocess.Popen[str]:
        """Start kthena with these arguments; what it prints goes to `<number>.log`."""
        log = self.folder / f"{len(self.started)}.log"
        with log.open("w") as output, stdin.open() as input_file:
            process = subprocess.Popen(
                [sys.executable, "-m", "kthena", *arguments],
                env={**self.environment, **(env or {})},
                cwd=REPOSITORY,
                stdin=input_file,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.started.append(process)
        return process

    def log_of(self, process: subprocess.Popen[str]) -> str:
        """What a started program has printed so far."""
        return (self.folder / f"{self.started.index(process)}.log").read_text()

    def logs(self) -> str:
        """What every started program has printed, for a failure's report."""
        return "\n".join(f"--- {p.args!r}\n{self.log_of(p)}" for p in self.started)

    def up(self, *arguments: str, stdin: Path = Path(os.devnull)) -> "Up":
        """Start `kthena up` and wait until other commands find it."""
        process = self.start("up", "--port", "0", *arguments, stdin=stdin)
        note = self.folder / "state" / "kthena" / "local" / f"{process.pid}.json"

        def found() -> dict[str, Any]:
            if process.poll() is not None:
                pytest.fail(f"kthena up has ended:\n{self.log_of(process)}")
            with contextlib.suppress(OSError, ValueError):
                content: dict[str, Any] = json.loads(note.read_text())
                if content["pid"] == process.pid:
                    return content
            return {}

        content = until("kthena up runs", found)
        return Up(self, process, content["kubeconfig"], content["router_url"])

    def processes(self) -> list["Process"]:
        """The running processes that name this workspace's folder."""
        needle, own = str(self.folder).encode(), os.getpid()
        found = [_process(path) for path in Path("/proc").iterdir() if path.name.isdigit()]
        return [each for each in found if each.pid != own and needle in each.text]

    def left_over(self) -> list[str]:
        """The command lines of those processes."""
        return [str(each) for each in self.processes()]

    def until_nothing_left(self) -> None:
        """Wait until no process of this workspace runs."""
        until("no process is left", lambda: not self.left_over(), report=self.left_over)

    def close(self) -> None:
        """End everything, in order where it can be."""
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        stubborn = []
        for process in self.started:
            try:
                process.wait(_PATIENCE_S / 3)
            except subprocess.TimeoutExpired:
                stubborn.append(str(process.args))
                process.kill()
                process.wait()
        assert not stubborn, f"not ended by SIGINT: {stubborn}\n{self.logs()}"


@dataclass(frozen=True)
class Up:
    """A running `kthena up`."""

    workspace: Workspace
    process: subprocess.Popen[str]
    kubeconfig: str
    router_url: str

    def kubectl(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl on this cluster."""
        return self.workspace.run(
            *arguments,
            program=("kubectl",),
            env={"KUBECONFIG": self.kubeconfig},
            stdin=stdin,
        )

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """One object; empty when it is absent."""
        found = self.read(f"{_ROOTS[kind]}/namespaces/{namespace}/{kind}s/{name}")
        return found if isinstance(found, dict) else {}

    def log(self, pod: str, namespace: str = "default") -> str:
        """What a pod's only container has written; empty before it has started."""
        return str(self.read(f"/api/v1/namespaces/{namespace}/pods/{pod}/log") or "")

    def read(self, path: str) -> Any:
        """What the API server has at a path; None where it has nothing.

        Asked directly, since a test that polls would start a program each time.
        """
        config = json.loads(Path(self.kubeconfig).read_text())
        token = config["users"][0]["user"]["token"]
        client = RestClient(config["clusters"][0]["cluster"]["server"], token)
        try:
            answer = client.get(path)
        finally:
            client.close()
        return answer.body if answer.status == 200 else None


def _process(path: Path) -> Process:
    """What is readable of a process; one that has gone has nothing."""
    texts = {"cmdline": b"", "environ": b""}
    directory = b""
    with contextlib.suppress(OSError):
        for name in texts:
            texts[name] = (path / name).read_bytes()
        directory = str((path / "cwd").readlink()).encode()
    return Process(int(path.name), texts["cmdline"], texts["environ"], directory)


def until(
    what: str,
    check: Callable[[], T],
    timeout_s: float = _PATIENCE_S,
    report: Callable[[], object] = lambda: "",
) -> T:
    """The first true result of `check`; fails with `report()` when it does not come in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = check()
        if result:
            return result
        if time.monotonic() > deadline:
            pytest.fail(f"not in {timeout_s:g} s: {what}\n{report()}")
        time.sleep(_POLL_S)


@contextlib.contextmanager
def workspace(folder: Path) -> Iterator[Workspace]:
    """A workspace in an empty folder, whose programs are ended at the end."""
    space = Workspace(folder)
    try:
        yield space
    finally:
        space.close()
