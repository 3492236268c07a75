"""The workload plane as one program: the ModelServing controller, refusals, election."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kthena.api.registry import AUTOSCALING_POLICIES
from kthena.api.workload.names import EVENT_SOURCE, LEASE_NAME
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock, SystemClock
from kthena.kube.controller import ControllerRunner, own_key
from kthena.kube.election import ElectionConfig, LeaderElector, default_identity
from kthena.kube.events import EventRecorder
from kthena.kube.informer import Informer, InformerConfig, drop_managed_fields
from kthena.kube.metrics import KubeMetrics
from kthena.kube.program import Parts, Program
from kthena.kube.readiness import ComponentState
from kthena.kube.refusal import RefusedKindController
from kthena.machinery.objects import Object, key_of
from kthena.workload.controller import ModelServingController
from kthena.workload.informers import WorkloadInformers
from kthena.workload.planner.observed import Capabilities
from kthena.workload.volcano import NAME as POD_GROUPS
from kthena.workload.volcano import VolcanoWatch


@dataclass(frozen=True, slots=True)
class WorkloadConfig:
    """How the workload plane runs.

    Without a lease namespace there is no election. `capabilities` says what is known beforehand of
    the cluster's scheduler; Volcano counts as there when it is seen. The controller knows pods as
    `see_pod` returns them, which may leave out of a status what is no news to it.
    """

    lease_namespace: str = ""
    namespace: str = ""
    workers: int = 5
    capabilities: Callable[[], Capabilities] = Capabilities
    see_pod: Callable[[Object], Object] | None = None


class WorkloadProgram:
    """Makes pods, services, PodGroups and revisions of ModelServings, while it holds the lease.

    `run` until `stop`.
    """

    def __init__(
        self,
        client: KubeClient,
        config: WorkloadConfig | None = None,
        clock: Clock | None = None,
        metrics: KubeMetrics | None = None,
    ) -> None:
        config = config or WorkloadConfig()
        clock = clock or SystemClock()
        informers = WorkloadInformers.create(
            client,
            namespace=config.namespace,
            clock=clock,
            metrics=metrics,
            see_pod=config.see_pod,
        )
        recorder = EventRecorder(client, EVENT_SOURCE, clock, metrics=metrics)
        volcano = VolcanoWatch(
            client, config.capabilities, informers.pod_groups, clock, metrics=metrics
        )
        controller = ModelServingController(
            client, informers, recorder, capabilities=volcano.capabilities, clock=clock
        )
        modelservings = controller.build_runner(workers=config.workers, metrics=metrics)
        stored = informers.modelservings.store
        modelservings.enqueue_on(volcano.informer, lambda _change: map(key_of, stored))

        def enqueue_all() -> None:
            for modelserving in stored:
                modelservings.queue.add(key_of(modelserving))

        informers.pod_groups.add_state_handler(enqueue_all)
        policies = Informer(
            client,
            AUTOSCALING_POLICIES,
            InformerConfig(namespace=config.namespace, transform=drop_managed_fields),
            clock,
            metrics=metrics,
        )
        refusals = ControllerRunner(
            RefusedKindController(client, policies, clock), [policies], clock=clock, metrics=metrics
        )
        refusals.enqueue_on(policies, own_key)
        elector = None
        if config.lease_namespace:
            election = ElectionConfig(LEASE_NAME, config.lease_namespace, default_identity())
            elector = LeaderElector(client, election, clock, metrics=metrics)
        self._program = Program(
            Parts(
                informers=(*informers.required, volcano.informer, policies),
                elected=(modelservings, refusals),
                elector=elector,
                on_lost="exit",
                recorders=(recorder,),
                others={POD_GROUPS: volcano.run},
            ),
            clock,
        )

    async def run(self) -> None:
        """Run until `stop` or cancellation.

        Raises:
            LeadershipLost: the lease was lost; another process may write.
        """
        await self._program.run()

    def stop(self) -> None:
        """Begin the ordered end."""
        self._program.stop()

    def readiness(self) -> Sequence[ComponentState]:
        """What is ready and what is not, and why."""
        return self._program.readiness()
