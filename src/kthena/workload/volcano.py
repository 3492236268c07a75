"""What can be seen of Volcano: whether its PodGroup CRD is there, and its PodGroups while it is.

The definition alone is watched, by its name. Where that is forbidden, Volcano counts as absent: a pod
that the default scheduler takes runs, one that nobody takes does not. PodGroups are watched from when
their CRD is established until it goes; it may come and go at any time.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from kthena.api.kubernetes import CUSTOM_RESOURCE_DEFINITIONS
from kthena.api.volcano import POD_GROUP_CRD
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock
from kthena.kube.informer import (
    Change,
    Informer,
    InformerConfig,
    InformerState,
    drop_managed_fields,
)
from kthena.kube.metrics import KubeMetrics
from kthena.machinery.conditions import is_true
from kthena.machinery.objects import Object, is_terminating, uid_of
from kthena.workload.children.podgroups import PodGroupForm
from kthena.workload.planner.observed import Capabilities

NAME: Final = "podgroups"


@dataclass(frozen=True, slots=True)
class _Installed:
    """A CRD that is established."""

    uid: str
    form: PodGroupForm | None


class VolcanoWatch:
    """Adds to the configured capabilities what can be seen of Volcano.

    The caller runs `informer`, and `run`, which runs `pod_groups` while their CRD is there.

    Mutable state: the CRD as last seen, and an event for the next change of it.
    """

    def __init__(
        self,
        client: KubeClient,
        configured: Callable[[], Capabilities],
        pod_groups: Informer,
        clock: Clock | None = None,
        *,
        metrics: KubeMetrics | None = None,
    ) -> None:
        config = InformerConfig(
            field_selector=f"metadata.name={POD_GROUP_CRD}", transform=drop_managed_fields
        )
        self.informer = Informer(
            client, CUSTOM_RESOURCE_DEFINITIONS, config, clock, metrics=metrics
        )
        self._configured = configured
        self._pod_groups = pod_groups
        self._installed: _Installed | None = None
        self._changed = asyncio.Event()
        self.informer.add_handler(self._see)

    def capabilities(self) -> Capabilities | None:
        """What the cluster offers; None as long as it cannot be known."""
        configured, informer = self._configured(), self.informer
        if informer.state in (InformerState.FORBIDDEN, InformerState.ABSENT):
            return configured
        if not informer.synced.is_set():
            return None
        installed = self._installed
        if installed is None:
            return configured
        if self._pod_groups.synced.is_set():
            return replace(configured, volcano=True, pod_groups=installed.form)
        if self._pod_groups.state is InformerState.STARTING and installed.form is not None:
            return None
        # Groups that need no gang may still be placed.
        return replace(configured, volcano=True)

    async def run(self) -> None:
        """Follow the PodGroups while their CRD is there, until cancelled."""
        while True:
            self._changed.clear()
            installed = self._installed
            if installed is None or installed.form is None:
                await self._changed.wait()
                continue
            following = asyncio.create_task(self._pod_groups.run(), name=self._pod_groups.name)
            try:
                while self._installed is not None and self._installed.uid == installed.uid:
                    await self._changed.wait()
                    self._changed.clear()
            finally:
                following.cancel()
                await asyncio.wait([following])
                self._pod_groups.reset()

    def _see(self, change: Change) -> None:
        self._installed = _read(change.new) if change.new is not None else None
        self._changed.set()


def _read(definition: Object) -> _Installed | None:
    """What a CRD offers; None where it is not served yet, or no more."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    if is_terminating(definition) or not is_true(conditions, "Established"):
        return None
    return _Installed(uid_of(definition), PodGroupForm.of(definition))
