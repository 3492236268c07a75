"""Container processes from the node's side: start through the launcher, watch, signal, clean up.

A `ContainerProcess` belongs to one event loop. Dropping the node's end of the control pipe (close,
crash, kill -9) is what ends the container; see `launcher`.
"""

import asyncio
import contextlib
import marshal
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

from kthena.local.node.names import ENV_CONTAINER_ID
from kthena.telemetry.logging import get_logger

_log = get_logger("node.processes")

_LAUNCHER: Final = str(Path(__file__).with_name("launcher.py"))
_CLEAN_UP_ROUNDS: Final = 50

Namespace = Literal["", "user", "root"]


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory or file of the host that appears at `target` inside the container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One program to run. `container_id` marks its processes; `log` receives its output.

    `namespace` says how private mounts are had: as root, in a user namespace, or not at all.
    `staging` is a directory of the node where mount points are prepared.
    """

    container_id: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    log: str
    namespace: Namespace = ""
    hostname: str = ""
    staging: str = ""
    mounts: Sequence[Mount] = ()


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended: with a code, or by a signal (`code` is then 128 + signal)."""

    code: int
    signal: int = 0


class StartError(Exception):
    """The program could not be started; the message says why."""


class ContainerProcess:
    """One running program.

    Mutable state: the launcher's process, the two pipes to it, and the future of the program's end.
    The status pipe reaches its end exactly when the launcher is gone.
    """

    def __init__(self, spec: ProcessSpec, on_limit: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()
        self._spec = spec
        self._on_limit = on_limit
        self._started: asyncio.Future[int] = loop.create_future()
        self._end: asyncio.Future[Exit] = loop.create_future()
        self._gone = asyncio.Event()
        self._pending = b""
        self._exit: Exit | None = None
        self._clean_up: asyncio.Task[None] | None = None
        self._launcher, self._control, self._status = _start_launcher(spec.container_id)
        os.set_blocking(self._status, False)
        loop.add_reader(self._status, self._read_status)
        body = _encode(spec)
        self._write(b"%d\n" % len(body) + body)

    @classmethod
    async def start(
        cls, spec: ProcessSpec, on_limit: Callable[[str], None] = lambda _: None
    ) -> Self:
        """Start `spec` and return once its program runs.

        `on_limit` is called with each thing that this host cannot give (a mount, a host name).

        Raises:
            StartError: the program could not be started.
        """
        process = cls(spec, on_limit)
        try:
            await asyncio.shield(process._started)
        except (asyncio.CancelledError, StartError):
            await process.dispose()
            raise
        return process

    async def wait(self) -> Exit:
        """The end of the program; nothing of the container is left then. Cancellable."""
        return await asyncio.shield(self._end)

    @property
    def ended(self) -> bool:
        """Whether the program has ended."""
        return self._end.done()

    @property
    def pid(self) -> int:
        """The process id of the program itself."""
        return self._started.result()

    def signal(self, number: int) -> None:
        """Send a signal to the program; nothing happens when it has ended."""
        self._write(f"signal {number}\n".encode())

    def kill(self) -> None:
        """End the program and everything below it at once."""
        if self._control >= 0:
            os.close(self._control)
            self._control = -1

    async def dispose(self) -> None:
        """End the program at once and wait until nothing of it is left."""
        self.kill()
        await self._gone.wait()

    def _write(self, data: bytes) -> None:
        if self._control >= 0:
            with contextlib.suppress(BrokenPipeError):  # It ended; the status pipe says how.
                os.write(self._control, data)

    def _read_status(self) -> None:
        """Take lines from the launcher until its pipe ends."""
        try:
            data = os.read(self._status, 4096)
        except BlockingIOError:
            return
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            word, _, text = line.decode("utf-8", "replace").partition(" ")
            self._on_line(word, text)
        if not data:
            self._on_launcher_end()

    def _on_line(self, word: str, text: str) -> None:
        if word == "limit":
            self._on_limit(text)
        elif word == "started":
            self._started.set_result(int(text))
        elif word == "failed":
            self._started.set_exception(StartError(text))
        elif word == "exited":
            self._exit = Exit(int(text))
        elif word == "signaled":
            self._exit = Exit(128 + int(text), int(text))

    def _on_launcher_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._status)
        os.close(self._status)
        self.kill()
        # Its descriptors are closed, so it is at its end and this does not wait.
        self._launcher.wait()
        if not self._started.done():
            text = "the launcher ended before the program was started"
            self._started.set_exception(StartError(text))
        if self._started.exception() is not None:
            self._gone.set()
        elif self._exit is not None:
            self._finish(self._exit)
        else:
            self._clean_up = asyncio.ensure_future(self._end_without_report())

    async def _end_without_report(self) -> None:
        """The launcher was killed: the program goes with it, its children may not."""
        await kill_marked(self._spec.container_id)
        self._finish(Exit(128 + signal.SIGKILL, signal.SIGKILL))

    def _finish(self, end: Exit) -> None:
        self._end.set_result(end)
        self._gone.set()


def _start_launcher(container_id: str) -> tuple["subprocess.Popen[bytes]", int, int]:
    """The launcher with the node's ends of its two pipes: control to write, status to read.

    Raises:
        StartError: this process may not have more descriptors or children.
    """
    ends: list[int] = []
    try:
        ends += os.pipe()
        ends += os.pipe()
        launcher = subprocess.Popen(  # noqa: S603 - this package's own program
            [sys.executable, "-I", "-S", _LAUNCHER],
            stdin=ends[0],
            stdout=ends[3],
            env={ENV_CONTAINER_ID: container_id, "LC_ALL": "C.UTF-8"},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        for descriptor in ends:
            os.close(descriptor)
        raise StartError(f"the launcher cannot be started: {error}") from error
    os.close(ends[0])
    os.close(ends[3])
    return launcher, ends[1], ends[2]


def _encode(spec: ProcessSpec) -> bytes:
    return marshal.dumps(
        {
            "argv": list(spec.argv),
            "environment": {**spec.environment, ENV_CONTAINER_ID: spec.container_id},
            "directory": spec.directory,
            "log": spec.log,
            "namespace": spec.namespace,
            "hostname": spec.hostname,
            "staging": spec.staging,
            "mounts": [(mount.source, mount.target, mount.read_only) for mount in spec.mounts],
        }
    )


async def find_namespace(scratch: Path) -> tuple[Namespace, str]:
    """What this host allows: the way to private mounts, and the reason where there is none.

    Tried for real with one bind mount, since a user namespace may be allowed and yet give no
    rights to mount (AppArmor), and root may lack them (containers).
    """
    problem = ""
    ways: tuple[Namespace, ...] = ("root", "user") if os.geteuid() == 0 else ("user",)
    for way in ways:
        limits: list[str] = []
        spec = ProcessSpec(
            container_id=f"{scratch}/probe",
            argv=["true"],
            environment={"PATH": os.defpath},
            directory="/",
            log=os.devnull,
            namespace=way,
            hostname="probe",
            staging=str(scratch),
            mounts=[Mount(str(scratch), "/kthena-namespace-probe")],
        )
        try:
            process = await ContainerProcess.start(spec, limits.append)
            await process.wait()
        except StartError as error:
            limits.append(str(error))
        if not limits:
            return way, ""
        problem = limits[0]
    return "", problem


async def kill_marked(prefix: str) -> int:
    """Kill every process whose container id begins with `prefix`; how many were found.

    This is the last resort: what a killed launcher or an earlier life of the node left behind.
    """
    seen: set[int] = set()
    for _ in range(_CLEAN_UP_ROUNDS):
        found = _marked(prefix)
        if not found:
            break
        seen.update(found)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.01)
    if seen:
        _log.warning("killed processes that were left behind", count=len(seen))
    return len(seen)


def _marked(prefix: str) -> list[int]:
    marker = f"{ENV_CONTAINER_ID}={prefix}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # It ended, or belongs to another user.
        if any(variable.startswith(marker) for variable in variables):
            found.append(int(entry.name))
    return found
