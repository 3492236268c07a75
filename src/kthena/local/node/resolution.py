"""Keeps the hosts files of the node's pods equal to the Services and pods of the cluster.

Files are rewritten in place, since a bind mount follows the file and not its name: first the new
content, padded to the old length, in one write, then the cut. A reader that comes between sees a
valid file. Changes are gathered for a moment, longer where rewriting takes long.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kthena.kube.clock import Clock
from kthena.local.node.hosts import (
    Answer,
    Endpoint,
    answer_for,
    endpoint_of,
    render_own,
    render_services,
    selects,
)
from kthena.machinery.objects import NamespacedName, Object, key_of, labels_of, namespace_of, uid_of

_GATHER_S: Final = 0.02
_DUTY: Final = 10
"""Rewriting may take at most one part in this many of the time."""


@dataclass(slots=True)
class _File:
    """One pod's file, and what was written last."""

    path: Path
    namespace: str
    own: str
    written: str = ""


class HostsTable:
    """Hosts files by pod UID.

    Mutable state: Services, pods (as endpoints with their labels), addresses that the node has given
    and no status may tell yet (by UID), the answers as of the last rewriting, and the files.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._services: dict[NamespacedName, Object] = {}
        self._pods: dict[NamespacedName, tuple[Object, Endpoint]] = {}
        self._files: dict[str, _File] = {}
        self._addresses: dict[str, str] = {}
        self._answers: list[Answer] = []
        self._changed = asyncio.Event()
        self._flushed = asyncio.Event()

    def set_service(self, key: NamespacedName, service: Object | None) -> None:
        """A Service was added or changed, or is gone."""
        if service is None:
            self._services.pop(key, None)
        else:
            self._services[key] = service
        self._changed.set()

    def set_pod(self, key: NamespacedName, pod: Object | None) -> None:
        """A pod was added or changed, or is gone."""
        before = self._pods.get(key)
        if pod is None:
            self._pods.pop(key, None)
            changed = before is not None
        else:
            endpoint = endpoint_of(pod, self._addresses.get(uid_of(pod), ""))
            self._pods[key] = (pod, endpoint)
            changed = (
                before is None or before[1] != endpoint or labels_of(before[0]) != labels_of(pod)
            )
        if changed:
            self._changed.set()

    def add_file(
        self, uid: str, path: Path, pod: Object, address: str, names: Sequence[str]
    ) -> None:
        """Write a pod's file and keep it up to date until `remove_file`.

        From now on the pod's Services stand for its address.
        """
        self._addresses[uid] = address
        self.set_pod(key_of(pod), pod)
        aliases: list[dict[str, Any]] = (pod.get("spec") or {}).get("hostAliases") or []
        entry = _File(path, namespace_of(pod), render_own(address, names, aliases))
        self._files[uid] = entry
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write(entry, render_services(self._answers, entry.namespace))
        self._changed.set()

    def remove_file(self, uid: str) -> None:
        """Forget a pod's file and address."""
        self._files.pop(uid, None)
        self._addresses.pop(uid, None)

    async def resolved(self, service: NamespacedName) -> None:
        """Wait until the files have an answer for a Service."""
        while not any(answer.service == service for answer in self._answers):
            await self._flushed.wait()

    async def run(self) -> None:
        """Rewrite files as things change, until cancelled."""
        while True:
            await self._changed.wait()
            await self._clock.sleep(_GATHER_S)
            self._changed.clear()
            started = self._clock.monotonic()
            self.flush()
            await self._clock.sleep((self._clock.monotonic() - started) * _DUTY)

    def flush(self) -> None:
        """Rewrite what has changed, now."""
        self._answers = list(self._compute())
        texts: dict[str, str] = {}
        for entry in self._files.values():
            if entry.namespace not in texts:
                texts[entry.namespace] = render_services(self._answers, entry.namespace)
            self._write(entry, texts[entry.namespace])
        self._flushed.set()
        self._flushed = asyncio.Event()

    def _compute(self) -> Iterable[Answer]:
        by_label: dict[tuple[str, str, str], list[NamespacedName]] = defaultdict(list)
        for key, (pod, _) in self._pods.items():
            for name, value in labels_of(pod).items():
                by_label[key.namespace, name, value].append(key)
        for service in self._services.values():
            namespace = namespace_of(service)
            selector = (service.get("spec") or {}).get("selector") or {}
            candidates = [by_label[namespace, name, value] for name, value in selector.items()]
            fewest = min(candidates, key=len, default=[])
            endpoints = [
                self._pods[key][1] for key in fewest if selects(service, self._pods[key][0])
            ]
            answer = answer_for(service, endpoints)
            if answer is not None:
                yield answer

    def _write(self, entry: _File, services: str) -> None:
        text = entry.own + services
        if text == entry.written:
            return
        entry.written = text
        rewrite(entry.path, text.encode())


def rewrite(path: Path, content: bytes) -> None:
    """Replace the content of a file and keep the file itself (its inode)."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        length = os.fstat(descriptor).st_size
        os.pwrite(descriptor, content.ljust(length, b"\n"), 0)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)
