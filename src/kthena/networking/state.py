"""The networking plane's knowledge, one object at a time.

Objects are put in and taken out as they change; `commit` then says what the router is to serve and
whose status is no longer true. Work follows the change: a pod concerns the servers that select it, a
server the routes that target it, and only a route makes a new table.

The state holds nothing that the objects do not say, so a restart rebuilds it from a list.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kthena.api.unsupported import unsupported_fields
from kthena.machinery.conditions import Condition
from kthena.machinery.objects import NamespacedName, Object, key_of
from kthena.networking.assemble import build_backend, build_table, concerns, select_pods
from kthena.networking.conditions import (
    EndpointCounts,
    ServerState,
    count_endpoints,
    route_conditions,
    server_conditions,
    server_state,
)
from kthena.networking.conflicts import Resolution, resolve
from kthena.networking.pods import PodIndex, PodView, view_pod
from kthena.networking.translate import (
    ObservedRoute,
    ObservedServer,
    Refusals,
    observe_route,
    observe_server,
)
from kthena.router.routes.spec import Backend
from kthena.router.routes.table import RouteTable


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What a ModelServer's status is to say."""

    conditions: tuple[Condition, ...]
    counts: EndpointCounts


@dataclass(frozen=True, slots=True)
class Commit:
    """What has changed since the last commit.

    `table` and `backends` are what the router is to serve, `serves_anew` whether they differ from
    before. `routes` and `servers` are the statuses that do; a deleted object has none.
    """

    table: RouteTable
    backends: tuple[Backend, ...]
    serves_anew: bool
    routes: Mapping[NamespacedName, tuple[Condition, ...]]
    servers: Mapping[NamespacedName, ServerReport]


@dataclass(frozen=True, slots=True)
class _LiveServer:
    """A server with what its pods make of it."""

    backend: Backend
    state: ServerState
    report: ServerReport


_NO_ROUTES = Resolution({}, {}, {}, {})


class NetworkState:
    """Routes, servers and pods, and what follows from them.

    Mutable state: the observed objects; what was made of them at the last commit; and since then
    whether a route has changed, and which servers may have.
    """

    def __init__(self, refusals: Refusals = unsupported_fields) -> None:
        self._refusals = refusals
        self._routes: dict[NamespacedName, ObservedRoute] = {}
        self._servers: dict[NamespacedName, ObservedServer] = {}
        self._pods = PodIndex()
        self._resolution = _NO_ROUTES
        self._table = RouteTable()
        self._live: dict[NamespacedName, _LiveServer] = {}
        self._reported: dict[NamespacedName, tuple[Condition, ...]] = {}
        self._routes_changed = False
        self._stale: set[NamespacedName] = set()

    def put_route(self, obj: Object) -> None:
        """A ModelRoute was added or changed."""
        previous = self._routes.get(key_of(obj))
        route = observe_route(obj, refusals=self._refusals, previous=previous)
        if route != previous:
            self._routes[route.key] = route
            self._routes_changed = True

    def remove_route(self, key: NamespacedName) -> None:
        """A ModelRoute is gone."""
        if self._routes.pop(key, None) is not None:
            self._routes_changed = True

    def put_server(self, obj: Object) -> None:
        """A ModelServer was added or changed."""
        server = observe_server(obj, refusals=self._refusals)
        if server != self._servers.get(server.key):
            self._servers[server.key] = server
            self._stale.add(server.key)

    def remove_server(self, key: NamespacedName) -> None:
        """A ModelServer is gone."""
        if self._servers.pop(key, None) is not None:
            self._stale.add(key)

    def put_pod(self, obj: Object) -> None:
        """A pod was added or changed."""
        pod = view_pod(obj)
        if pod is None:
            self.remove_pod(key_of(obj))
            return
        before = self._pods.get(pod.key)
        if self._pods.put(pod):
            self._pod_changed(before, pod)

    def remove_pod(self, key: NamespacedName) -> None:
        """A pod is gone."""
        before = self._pods.get(key)
        if self._pods.remove(key):
            self._pod_changed(before, None)

    @property
    def namespaces(self) -> frozenset[str]:
        """Where pods have to be watched: the namespaces that have a ModelServer."""
        return frozenset(key.namespace for key in self._servers)

    def commit(self) -> Commit:
        """Bring everything up to date and say what has changed."""
        changed_states, servers, serves_anew = self._refresh_servers()
        if self._routes_changed:
            self._resolution = resolve(self._routes.values())
            self._table = build_table(self._resolution)
            serves_anew = True
        routes = self._refresh_routes(changed_states)
        self._routes_changed = False
        backends = tuple(live.backend for live in self._live.values())
        return Commit(self._table, backends, serves_anew, routes, servers)

    def _pod_changed(self, before: PodView | None, after: PodView | None) -> None:
        for server in self._servers.values():
            if concerns(server, before) or concerns(server, after):
                self._stale.add(server.key)

    def _refresh_servers(
        self,
    ) -> tuple[set[NamespacedName], dict[NamespacedName, ServerReport], bool]:
        """Servers whose part in routes has changed, new reports, and whether backends differ."""
        changed_states = set()
        reports = {}
        serves_anew = False
        for key in self._stale:
            before = self._live.pop(key, None)
            server = self._servers.get(key)
            after = None
            if server is not None:
                after = self._live[key] = self._look_at(server)
                if before is None or before.report != after.report:
                    reports[key] = after.report
            if before is None or after is None or before.state != after.state:
                changed_states.add(key)
            if (before and before.backend) != (after and after.backend):
                serves_anew = True
        self._stale.clear()
        return changed_states, reports, serves_anew

    def _look_at(self, server: ObservedServer) -> _LiveServer:
        selected = select_pods(server, self._pods)
        backend = build_backend(server, selected)
        report = ServerReport(
            server_conditions(server, selected, backend), count_endpoints(selected, backend)
        )
        return _LiveServer(backend, server_state(server, backend), report)

    def _refresh_routes(
        self, changed_states: set[NamespacedName]
    ) -> dict[NamespacedName, tuple[Condition, ...]]:
        """New reports of the routes that something has changed for."""
        for key in self._reported.keys() - self._routes.keys():
            del self._reported[key]
        states = {key: live.state for key, live in self._live.items()}
        reports = {}
        for key, route in self._routes.items():
            if not self._routes_changed and not _targets(route, changed_states):
                continue
            report = route_conditions(route, self._resolution, states)
            if report != self._reported.get(key):
                self._reported[key] = reports[key] = report
        return reports


def _targets(route: ObservedRoute, servers: set[NamespacedName]) -> bool:
    """Whether one of these servers is a target of the route."""
    return bool(servers) and any(
        target.server in servers for rule in route.route.rules for target in rule.targets
    )
