"""Logs of containers: the server asks the node that runs the pod.

A node registers a `LogSource` under its name; `pods/log` finds it by the pod's `spec.nodeName`.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from kthena.machinery.objects import Object


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which part of a container's log is wanted; None and False stand for no limit.

    `since_time` is an RFC 3339 text; `tail_lines` counts from the end.
    """

    container: str
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since_s: int | None = None
    since_time: str = ""
    tail_lines: int | None = None
    limit_bytes: int | None = None


class LogError(Exception):
    """The log cannot be given, for a reason that the client should read (a container that waits)."""


class LogSource(Protocol):
    """What a node offers to the server."""

    def stream(self, pod: Object, options: LogOptions) -> AsyncIterator[bytes]:
        """The log, in pieces of any size; with `follow` it ends when the container does.

        The iterator is closed when the client leaves. It may raise LogError before the first piece.
        """
        ...


class LogSources:
    """Mutable state: the sources by the names of their nodes."""

    def __init__(self) -> None:
        self._sources: dict[str, LogSource] = {}

    def register(self, node: str, source: LogSource) -> None:
        """Ask `source` for the logs of pods on `node` from here on."""
        self._sources[node] = source

    def find(self, node: str) -> LogSource | None:
        """The source of a node."""
        return self._sources.get(node)
