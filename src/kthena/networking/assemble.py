"""From observed objects to what the router is given: a route table, and backends."""

from kthena.networking.conflicts import Resolution
from kthena.networking.pods import PodIndex, PodView
from kthena.networking.translate import ObservedServer, endpoint_of
from kthena.router.routes.spec import Backend
from kthena.router.routes.table import RouteTable


def build_table(resolution: Resolution) -> RouteTable:
    """The table of a settled set of routes."""
    return RouteTable(
        {
            name: tuple(route.compiled for route in routes)
            for name, routes in resolution.models.items()
        },
        {
            name: tuple(route.compiled for route in routes)
            for name, routes in resolution.adapters.items()
        },
    )


def select_pods(server: ObservedServer, pods: PodIndex) -> list[PodView]:
    """The pods that a server selects, ready or not, by name."""
    selected = pods.select(server.key.namespace, server.labels)
    return sorted(selected, key=lambda pod: pod.key)


def build_backend(server: ObservedServer, selected: list[PodView]) -> Backend:
    """A server with its ready pods as endpoints."""
    return Backend(server.server, tuple(endpoint_of(server, pod) for pod in selected if pod.ready))


def concerns(server: ObservedServer, pod: PodView | None) -> bool:
    """Whether a pod, before or after a change, is one that the server selects."""
    return (
        pod is not None
        and pod.key.namespace == server.key.namespace
        and bool(server.labels)
        and server.labels.items() <= pod.labels.items()
    )
