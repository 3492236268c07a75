"""What the networking plane knows, and what follows from it.

Objects go in one by one as they change; `publish` settles the rest: the table and backends for the
router, and the keys of objects whose conditions may differ from before. Pure: it waits for nothing
and calls nobody.

Invariant: what `publish` returns depends on the objects alone, never on the order of events.
"""

from dataclasses import dataclass

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
    observe_route,
    observe_server,
)
from kthena.router.routes.spec import Backend
from kthena.router.routes.table import RouteTable


@dataclass(frozen=True, slots=True)
class Publication:
    """What the router serves from here on, and whose status has to be looked at.

    Without `changed`, table and backends are equal to the ones before. A table that did not change is
    the same object.
    """

    changed: bool
    table: RouteTable
    backends: tuple[Backend, ...]
    stale_routes: frozenset[NamespacedName]
    stale_servers: frozenset[NamespacedName]


@dataclass(frozen=True, slots=True)
class _ServerView:
    """A server with what follows from its pods."""

    server: ObservedServer
    selected: tuple[PodView, ...]
    backend: Backend


class NetworkView:
    """Routes, servers and pods, and what follows.

    Mutable state: the observed objects; per server what follows from its pods, recomputed when one
    of them changes; the latest resolution and its table; what changed since the last `publish`, and
    which objects were merely seen again (their status may have been edited).
    """

    def __init__(self) -> None:
        self._routes: dict[NamespacedName, ObservedRoute] = {}
        self._servers: dict[NamespacedName, ObservedServer] = {}
        self._servers_by_namespace: dict[str, set[NamespacedName]] = {}
        self._pods = PodIndex()
        self._views: dict[NamespacedName, _ServerView] = {}
        self._states: dict[NamespacedName, ServerState] = {}
        self._resolution: Resolution = resolve(())
        self._table = RouteTable()
        self._changed_routes: set[NamespacedName] = set()
        self._changed_servers: set[NamespacedName] = set()
        self._seen_routes: set[NamespacedName] = set()
        self._seen_servers: set[NamespacedName] = set()

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces that have a server: pods of others are of no interest."""
        return frozenset(self._servers_by_namespace)

    # Objects in

    def put_route(self, obj: Object) -> None:
        """Add or replace a ModelRoute."""
        key = key_of(obj)
        old = self._routes.get(key)
        new = self._routes[key] = observe_route(obj, previous=old)
        (self._seen_routes if new == old else self._changed_routes).add(key)

    def remove_route(self, key: NamespacedName) -> None:
        """Forget a ModelRoute."""
        if self._routes.pop(key, None) is not None:
            self._changed_routes.add(key)

    def put_server(self, obj: Object) -> None:
        """Add or replace a ModelServer."""
        key = key_of(obj)
        old = self._servers.get(key)
        new = self._servers[key] = observe_server(obj)
        self._servers_by_namespace.setdefault(key.namespace, set()).add(key)
        (self._seen_servers if new == old else self._changed_servers).add(key)

    def remove_server(self, key: NamespacedName) -> None:
        """Forget a ModelServer."""
        if self._servers.pop(key, None) is None:
            return
        self._changed_servers.add(key)
        siblings = self._servers_by_namespace[key.namespace]
        siblings.discard(key)
        if not siblings:
            del self._servers_by_namespace[key.namespace]

    def put_pod(self, obj: Object) -> None:
        """Add or replace a pod; one on its way out is forgotten."""
        view = view_pod(obj)
        if view is None:
            self.remove_pod(key_of(obj))
            return
        old = self._pods.get(view.key)
        if self._pods.put(view):
            self._touch_servers(view.key.namespace, old, view)

    def remove_pod(self, key: NamespacedName) -> None:
        """Forget a pod."""
        old = self._pods.get(key)
        if self._pods.remove(key):
            self._touch_servers(key.namespace, old)

    def _touch_servers(self, namespace: str, *pods: PodView | None) -> None:
        for key in self._servers_by_namespace.get(namespace, ()):
            if any(concerns(self._servers[key], pod) for pod in pods):
                self._changed_servers.add(key)

    # What follows

    def publish(self) -> Publication:
        """What follows from the changes since the last time."""
        backends_changed, changed_states = self._settle_servers()
        table_changed = bool(self._changed_routes)
        stale_routes = self._changed_routes | self._seen_routes
        if table_changed:
            stale_routes |= self._settle_routes()
            self._table = build_table(self._resolution)
        if changed_states:
            stale_routes |= {
                key for key, route in self._routes.items() if changed_states & _targets(route)
            }
        publication = Publication(
            table_changed or backends_changed,
            self._table,
            tuple(view.backend for view in self._views.values()),
            frozenset(stale_routes),
            frozenset(self._changed_servers | self._seen_servers),
        )
        self._changed_routes, self._changed_servers = set(), set()
        self._seen_routes, self._seen_servers = set(), set()
        return publication

    def _settle_servers(self) -> tuple[bool, set[NamespacedName]]:
        """Recompute servers; whether any backend differs, and whose meaning for routes does."""
        backends_changed, changed_states = False, set()
        for key in self._changed_servers:
            before, server = self._views.get(key), self._servers.get(key)
            if server is None:
                backends_changed = self._views.pop(key, None) is not None or backends_changed
                self._states.pop(key, None)
                changed_states.add(key)
                continue
            selected = select_pods(server, self._pods)
            backend = build_backend(server, selected)
            self._views[key] = _ServerView(server, tuple(selected), backend)
            if before is None or before.backend != backend:
                backends_changed = True
            state = server_state(server, backend)
            if self._states.get(key) != state:
                self._states[key] = state
                changed_states.add(key)
        return backends_changed, changed_states

    def _settle_routes(self) -> set[NamespacedName]:
        """Resolve conflicts anew; returns the routes that won, lost or moved by it."""
        old, new = self._resolution, resolve(self._routes.values())
        self._resolution = new
        return {
            key
            for key in self._routes
            if old.losses.get(key) != new.losses.get(key)
            or old.behind.get(key) != new.behind.get(key)
        }

    # Conditions

    def conditions_of_route(self, key: NamespacedName) -> tuple[Condition, ...] | None:
        """The conditions of a ModelRoute; None where it is not known, or not published yet."""
        route = self._routes.get(key)
        if route is None or key in self._changed_routes:
            return None
        return route_conditions(route, self._resolution, self._states)

    def conditions_of_server(
        self, key: NamespacedName
    ) -> tuple[tuple[Condition, ...], EndpointCounts] | None:
        """The conditions and counts of a ModelServer; None where it is not known or published."""
        view = self._views.get(key)
        if view is None or key in self._changed_servers:
            return None
        selected = view.selected
        return (
            server_conditions(view.server, selected, view.backend),
            count_endpoints(selected, view.backend),
        )


def _targets(route: ObservedRoute) -> set[NamespacedName]:
    return {target.server for rule in route.route.rules for target in rule.targets}
