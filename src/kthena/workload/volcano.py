"""Whether Volcano is installed: its PodGroup CRD is there.

The definition alone is watched, by its name. Where that is forbidden, Volcano counts as absent: a pod
that the default scheduler takes runs, one that nobody takes does not.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kthena.api.kubernetes import CUSTOM_RESOURCE_DEFINITIONS
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock
from kthena.kube.informer import Informer, InformerConfig, InformerState
from kthena.kube.metrics import KubeMetrics
from kthena.machinery.objects import NamespacedName, Object, is_terminating
from kthena.workload.planner.observed import Capabilities

POD_GROUP_CRD: Final = "podgroups.scheduling.volcano.sh"


class VolcanoWatch:
    """Adds to the configured capabilities what can be seen of Volcano; the caller runs `informer`."""

    def __init__(
        self,
        client: KubeClient,
        configured: Callable[[], Capabilities],
        clock: Clock | None = None,
        *,
        metrics: KubeMetrics | None = None,
    ) -> None:
        config = InformerConfig(
            field_selector=f"metadata.name={POD_GROUP_CRD}", transform=_only_metadata
        )
        self.informer = Informer(
            client, CUSTOM_RESOURCE_DEFINITIONS, config, clock, metrics=metrics
        )
        self._configured = configured

    def capabilities(self) -> Capabilities | None:
        """What the cluster offers; None as long as nothing has been seen of it."""
        configured = self._configured()
        if configured.volcano:
            return configured
        informer = self.informer
        if informer.state in (InformerState.FORBIDDEN, InformerState.ABSENT):
            return configured
        if not informer.synced.is_set():
            return None
        definition = informer.store.get(NamespacedName("", POD_GROUP_CRD))
        installed = definition is not None and not is_terminating(definition)
        return replace(configured, volcano=installed)


def _only_metadata(definition: Object) -> Object:
    """A transform: the schemas of a CRD are large, and nothing of them is read."""
    return {"metadata": definition["metadata"]}
