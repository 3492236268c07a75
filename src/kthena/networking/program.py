"""The networking plane as one program: publisher, status controllers, election."""

from collections.abc import Sequence
from dataclasses import dataclass

from kthena.api.networking.names import LEASE_NAME
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock, SystemClock
from kthena.kube.controller import Controller, ControllerRunner, own_key
from kthena.kube.election import ElectionConfig, LeaderElector, default_identity
from kthena.kube.informer import Informer
from kthena.kube.metrics import KubeMetrics
from kthena.kube.program import Parts, Program
from kthena.kube.readiness import ComponentState
from kthena.kube.refusal import RefusedKindController
from kthena.networking.publisher import NAME as PUBLISHER
from kthena.networking.publisher import NetworkInformers, Publisher, Swap
from kthena.networking.statuses import StatusController, routes_of, servers_of


@dataclass(frozen=True, slots=True)
class NetworkingConfig:
    """How the networking plane runs. Without a lease namespace there is no election."""

    lease_namespace: str = ""


class NetworkingProgram:
    """Feeds one router, and writes statuses while it holds the lease.

    `run` until `stop`. Losing the lease only pauses the status controllers: routing goes on.
    """

    def __init__(
        self,
        client: KubeClient,
        swap: Swap,
        config: NetworkingConfig | None = None,
        clock: Clock | None = None,
        metrics: KubeMetrics | None = None,
    ) -> None:
        config = config or NetworkingConfig()
        clock = clock or SystemClock()
        informers = NetworkInformers.create(client, clock, metrics)
        self._publisher = Publisher(client, informers, swap, clock, metrics)
        elected = _status_runners(client, informers, self._publisher, clock, metrics)
        elector = None
        if config.lease_namespace:
            election = ElectionConfig(LEASE_NAME, config.lease_namespace, default_identity())
            elector = LeaderElector(client, election, clock, metrics=metrics)
        self._program = Program(
            Parts(
                informers=informers.all,
                elected=elected,
                elector=elector,
                on_lost="campaign",
                others={PUBLISHER: self._publisher.run},
            ),
            clock,
        )

    async def run(self) -> None:
        """Run until `stop` or cancellation."""
        await self._program.run()

    def stop(self) -> None:
        """Begin the ordered end."""
        self._program.stop()

    def readiness(self) -> Sequence[ComponentState]:
        """What is ready and what is not, and why."""
        return [self._publisher.readiness(), *self._program.readiness()]


def _status_runners(
    client: KubeClient,
    informers: NetworkInformers,
    publisher: Publisher,
    clock: Clock,
    metrics: KubeMetrics | None,
) -> list[ControllerRunner]:
    def runner(controller: Controller, informer: Informer) -> ControllerRunner:
        return ControllerRunner(controller, [informer], clock=clock, metrics=metrics)

    view = publisher.view
    routes = runner(
        StatusController("modelroute-status", client, informers.routes, routes_of(view), clock),
        informers.routes,
    )
    servers = runner(
        StatusController("modelserver-status", client, informers.servers, servers_of(view), clock),
        informers.servers,
    )
    providers = runner(
        RefusedKindController(client, informers.providers, clock), informers.providers
    )
    providers.enqueue_on(informers.providers, own_key)
    publisher.on_stale_route, publisher.on_stale_server = routes.queue.add, servers.queue.add
    return [routes, servers, providers]
