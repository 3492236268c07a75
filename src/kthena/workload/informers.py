"""The informers that the workload plane reads from, and how a child finds its ModelServing.

Children are listed by the label that all of them carry, so that other pods of the cluster cost
nothing, and indexed by the ModelServings that they may belong to.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Self

from kthena.api.kubernetes import CONTROLLER_REVISIONS, PODS, SERVICES
from kthena.api.registry import MODEL_SERVINGS
from kthena.api.volcano import POD_GROUPS
from kthena.api.workload.names import LABEL_NAME
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock
from kthena.kube.informer import Change, Informer, InformerConfig, drop_managed_fields
from kthena.kube.metrics import KubeMetrics
from kthena.kube.store import Objects
from kthena.machinery.objects import NamespacedName, Object
from kthena.machinery.resources import Resource
from kthena.workload.identity import possible_owners

OWNER_INDEX: Final = "modelserving"


@dataclass(frozen=True, slots=True)
class WorkloadInformers:
    """One informer for each kind that the ModelServing controller reads.

    PodGroups may not be there, so that their informer is run by whoever knows.
    """

    modelservings: Informer
    pods: Informer
    services: Informer
    revisions: Informer
    pod_groups: Informer

    @classmethod
    def create(
        cls,
        client: KubeClient,
        *,
        namespace: str = "",
        clock: Clock | None = None,
        metrics: KubeMetrics | None = None,
        see_pod: Callable[[Object], Object] | None = None,
    ) -> Self:
        """The informers for one namespace, or for all; the caller runs them.

        Pods are stored as `see_pod` returns them.
        """

        def transform_pod(pod: Object) -> Object:
            pod = drop_managed_fields(pod)
            return pod if see_pod is None else see_pod(pod)

        def informer(resource: Resource, selector: str = "") -> Informer:
            config = InformerConfig(
                namespace=namespace,
                label_selector=selector,
                transform=transform_pod if resource is PODS else drop_managed_fields,
            )
            return Informer(client, resource, config, clock, metrics=metrics)

        return cls(
            modelservings=informer(MODEL_SERVINGS),
            pods=informer(PODS, LABEL_NAME),
            services=informer(SERVICES, LABEL_NAME),
            revisions=informer(CONTROLLER_REVISIONS, LABEL_NAME),
            pod_groups=informer(POD_GROUPS, LABEL_NAME),
        )

    def __post_init__(self) -> None:
        for informer in self.of_children:
            informer.store.add_index(OWNER_INDEX, index_by_owner)

    @property
    def of_children(self) -> tuple[Informer, ...]:
        """Those of all children."""
        return self.pods, self.services, self.revisions, self.pod_groups

    @property
    def required(self) -> tuple[Informer, ...]:
        """Those without which nothing is done."""
        return self.modelservings, self.pods, self.services, self.revisions

    @property
    def all(self) -> tuple[Informer, ...]:
        """All of them."""
        return self.modelservings, *self.of_children

    def children(self, informer: Informer, key: NamespacedName) -> Objects:
        """The children of one kind that may belong to a ModelServing."""
        return informer.store.by_index(OWNER_INDEX, str(key))


def index_by_owner(child: Object) -> Iterable[str]:
    """The index values of a child."""
    return [str(owner) for owner in possible_owners(child)]


def owners_of(change: Change) -> Iterable[NamespacedName]:
    """The ModelServings that a change to a child concerns, the former ones included."""
    found: dict[NamespacedName, None] = {}
    for child in (change.old, change.new):
        if child is not None:
            found.update(dict.fromkeys(possible_owners(child)))
    return found
