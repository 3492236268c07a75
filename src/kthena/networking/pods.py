"""Pods as the networking plane sees them: trimmed, indexed by label, matched by selector.

A pod's JSON is read once, when it arrives; what is kept is what decides whether and where requests go
to it. Pods are found through the label that the fewest of them share, so that a change costs what it
concerns and not what the namespace holds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kthena.machinery.conditions import is_true
from kthena.machinery.objects import (
    NamespacedName,
    Object,
    is_terminating,
    key_of,
    labels_of,
    uid_of,
)

_FINISHED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class PodView:
    """What there is to know of a pod. `ready` means that requests may be sent to `host` now."""

    key: NamespacedName
    uid: str
    labels: Mapping[str, str] = field(hash=False)
    host: str
    ready: bool


def view_pod(pod: Object) -> PodView | None:
    """The pod, or None where it is on its way out: terminating, or finished.

    It is ready when it runs, its condition `Ready` is True, and it has an address.
    """
    status: Mapping[str, Any] = pod.get("status") or {}
    phase = status.get("phase")
    if is_terminating(pod) or phase in _FINISHED:
        return None
    host = status.get("podIP") or ""
    ready = bool(host) and phase == "Running" and is_true(status.get("conditions") or (), "Ready")
    return PodView(key_of(pod), uid_of(pod), labels_of(pod), host, ready)


class PodIndex:
    """Pods by key, and by each of their labels.

    Mutable state: both maps, kept equal to what `put` and `remove` were told.
    """

    def __init__(self) -> None:
        self._pods: dict[NamespacedName, PodView] = {}
        self._by_label: dict[tuple[str, str, str], dict[NamespacedName, PodView]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, key: NamespacedName) -> PodView | None:
        """The pod of that key, if it is there."""
        return self._pods.get(key)

    def put(self, pod: PodView) -> bool:
        """Add or replace a pod; False if nothing changed."""
        old = self._pods.get(pod.key)
        if old == pod:
            return False
        if old is not None:
            self.remove(pod.key)
        self._pods[pod.key] = pod
        for label in pod.labels.items():
            self._by_label.setdefault((pod.key.namespace, *label), {})[pod.key] = pod
        return True

    def remove(self, key: NamespacedName) -> bool:
        """Forget a pod; False if it was not there."""
        pod = self._pods.pop(key, None)
        if pod is None:
            return False
        for label in pod.labels.items():
            place = (key.namespace, *label)
            sharing = self._by_label[place]
            del sharing[key]
            if not sharing:
                del self._by_label[place]
        return True

    def select(self, namespace: str, labels: Mapping[str, str]) -> Iterator[PodView]:
        """The pods of a namespace that have all these labels, of which there is at least one."""
        candidates: list[dict[NamespacedName, PodView]] = []
        for label in labels.items():
            sharing = self._by_label.get((namespace, *label))
            if sharing is None:
                return
            candidates.append(sharing)
        if not candidates:
            return
        wanted = labels.items()
        for pod in min(candidates, key=len).values():
            if wanted <= pod.labels.items():
                yield pod
