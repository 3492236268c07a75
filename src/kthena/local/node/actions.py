"""What probes and lifecycle hooks do: a GET, a connection, a command, a pause.

Each action gives success and, for the event, a text in the kubelet's words. `localhost` and no host
mean the pod. Commands run beside the container, with its environment and mounts, and only where the
image map allows host commands; that is decided by whoever calls.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from kthena.local.node.httpget import HttpGetError, http_get
from kthena.local.node.probes import ProbeError, probe_host, probe_port

_USER_AGENT: Final = "kube-probe/1.35"
_MAX_OUTPUT: Final = 1024

ExecCommand = Callable[[Sequence[str], float], Awaitable["Outcome"]]
"""Run a command in the container's surroundings within so many seconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether an action succeeded, and what it said."""

    success: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """The container that an action is aimed at."""

    container: Mapping[str, Any]
    address: str
    exec_command: ExecCommand


async def run_action(
    action: str, handler: Mapping[str, Any], target: Target, timeout_s: float
) -> Outcome:
    """Run one action. Failures are outcomes; only cancellation is raised."""
    try:
        if action == "exec":
            return await target.exec_command(
                [str(word) for word in handler.get("command") or ()], timeout_s
            )
        host = probe_host(handler.get("host"), target.address)
        port = probe_port(handler.get("port"), target.container)
    except ProbeError as error:
        return Outcome(success=False, text=str(error))
    if action == "httpGet":
        return await _http(handler, host, port, timeout_s)
    return await connect(host, port, timeout_s)


async def connect(host: str, port: int, timeout_s: float) -> Outcome:
    """Whether the port accepts a connection."""
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        reason = str(error) or "timeout"
        return Outcome(success=False, text=f"dial tcp {host}:{port}: {reason}")
    with closing(writer):
        return Outcome(success=True)


async def _http(handler: Mapping[str, Any], host: str, port: int, timeout_s: float) -> Outcome:
    scheme = str(handler.get("scheme") or "HTTP").lower()
    path = str(handler.get("path") or "/")
    path = path if path.startswith("/") else f"/{path}"
    headers = {"User-Agent": _USER_AGENT}
    headers |= {
        str(header.get("name")): str(header.get("value"))
        for header in handler.get("httpHeaders") or ()
    }
    try:
        reply = await http_get(
            host, port, path, timeout_s=timeout_s, headers=headers, tls=scheme == "https"
        )
    except HttpGetError as error:
        return Outcome(success=False, text=f'Get "{scheme}://{host}:{port}{path}": {error}')
    if 200 <= reply.status < 400:
        return Outcome(success=True)
    return Outcome(success=False, text=f"HTTP probe failed with statuscode: {reply.status}")


def cut_output(raw: bytes) -> str:
    """The end of a command's output, for an event."""
    return raw[-_MAX_OUTPUT:].decode("utf-8", "replace").strip()
