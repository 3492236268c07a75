"""Real processes for tests of the node: specifications, logs, and who is still alive."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kthena.local.node.processes import ContainerProcess, Exit, ProcessSpec

PYTHON = sys.executable


def process_spec(tmp_path: Path, *argv: str, **fields: Any) -> ProcessSpec:
    """A program with a log and a marker of its own."""
    fields.setdefault("container_id", f"{tmp_path}:test")
    fields.setdefault("environment", {"PATH": os.environ["PATH"]})
    fields.setdefault("directory", str(tmp_path))
    fields.setdefault("log", str(tmp_path / "log"))
    fields.setdefault("staging", str(tmp_path / "staging"))
    return ProcessSpec(argv=argv, **fields)


def python_spec(tmp_path: Path, code: str, **fields: Any) -> ProcessSpec:
    """A Python program, without site packages."""
    return process_spec(tmp_path, PYTHON, "-I", "-S", "-c", code, **fields)


async def run(spec: ProcessSpec, limits: list[str] | None = None) -> tuple[Exit, str]:
    """Run to the end; how it ended and what it wrote."""
    process = await ContainerProcess.start(spec, (limits if limits is not None else []).append)
    end = await process.wait()
    return end, output_of(spec)


def output_of(spec: ProcessSpec) -> str:
    """What the program has written so far."""
    return Path(spec.log).read_text()


def alive(marker: str) -> set[int]:
    """Processes whose environment or command line has the marker."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if marker.encode() in text and not zombie:
            found.add(int(entry.name))
    return found


async def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is awaited is another program's state
            await asyncio.sleep(0.01)


async def wait_for_text(path: Path, text: str, timeout_s: float = 10.0) -> None:
    """Wait until the file has the text."""
    await wait_until(lambda: path.exists() and text in path.read_text(), timeout_s)


def free_port(host: str) -> int:
    """A port of the address that nobody uses at the moment."""
    with socket.socket() as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])
