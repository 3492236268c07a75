"""ModelRoutes, ModelServers and pods as the API serves them, for tests."""

from typing import TYPE_CHECKING, Any

from kthena.machinery.objects import Object
from kthena.networking.assemble import build_backend, build_table, select_pods
from kthena.networking.conditions import (
    ServerState,
    route_conditions,
    server_conditions,
    server_state,
)
from kthena.networking.conflicts import Resolution, resolve
from kthena.networking.pods import PodIndex, view_pod
from kthena.networking.translate import (
    ObservedRoute,
    ObservedServer,
    observe_route,
    observe_server,
)

if TYPE_CHECKING:
    from kthena.router.routes.spec import Backend
    from kthena.router.routes.table import RouteTable

Row = tuple[str, str]


def meta(
    name: str, namespace: str = "default", *, created: str = "", generation: int = 1
) -> Object:
    found: Object = {"name": name, "namespace": namespace, "generation": generation}
    if created:
        found["creationTimestamp"] = created
    return found


def model_route(name: str, spec: dict[str, Any], **metadata: Any) -> Object:
    return {
        "apiVersion": "networking.serving.volcano.sh/v1alpha1",
        "kind": "ModelRoute",
        "metadata": meta(name, **metadata),
        "spec": spec,
    }


def targets(*servers: str) -> list[dict[str, Any]]:
    """Rules with one target each."""
    return [{"targetModels": [{"modelServerName": server}]} for server in servers]


def model_server(name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> Object:
    return {
        "apiVersion": "networking.serving.volcano.sh/v1alpha1",
        "kind": "ModelServer",
        "metadata": meta(name, **metadata),
        "spec": {
            "inferenceEngine": "vLLM",
            "workloadSelector": {"matchLabels": {"app": name}},
            "workloadPort": {"port": 8000},
            **(spec or {}),
        },
    }


PD_SELECTOR = {
    "matchLabels": {"app": "pd"},
    "pdGroup": {
        "groupKey": "group",
        "prefillLabels": {"role": "prefill"},
        "decodeLabels": {"role": "decode"},
    },
}


def pod(
    name: str,
    labels: dict[str, str],
    *,
    namespace: str = "default",
    ready: bool = True,
    ip: str = "10.0.0.1",
    phase: str = "Running",
    deleting: bool = False,
) -> Object:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "engine", "image": "engine"}]},
        "status": {
            "phase": phase,
            "podIP": ip,
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True" if ready else "False"},
            ],
        },
    }


class Plane:
    """What a controller would keep, computed anew from objects."""

    def __init__(self, routes: list[Object], servers: list[Object], pods: list[Object]) -> None:
        self.index = PodIndex()
        for one in pods:
            view = view_pod(one)
            if view is not None:
                self.index.put(view)
        self.routes: list[ObservedRoute] = [observe_route(one) for one in routes]
        self.servers: list[ObservedServer] = [observe_server(one) for one in servers]
        self.resolution: Resolution = resolve(self.routes)
        self.table: RouteTable = build_table(self.resolution)
        self.selected = {one.key: select_pods(one, self.index) for one in self.servers}
        self.backends: dict[Any, Backend] = {
            one.key: build_backend(one, self.selected[one.key]) for one in self.servers
        }
        self.states: dict[Any, ServerState] = {
            one.key: server_state(one, self.backends[one.key]) for one in self.servers
        }

    def route_status(self, name: str) -> dict[str, Row]:
        """Status and reason by condition type."""
        (route,) = (one for one in self.routes if one.key.name == name)
        found = route_conditions(route, self.resolution, self.states)
        assert {one.observed_generation for one in found} == {route.generation}
        return {one.type: (one.status, one.reason) for one in found}

    def route_message(self, name: str, kind: str) -> str:
        (route,) = (one for one in self.routes if one.key.name == name)
        found = route_conditions(route, self.resolution, self.states)
        return next(one.message for one in found if one.type == kind)

    def server_status(self, name: str) -> dict[str, Row]:
        (server,) = (one for one in self.servers if one.key.name == name)
        found = server_conditions(server, self.selected[server.key], self.backends[server.key])
        assert {one.observed_generation for one in found} == {server.generation}
        return {one.type: (one.status, one.reason) for one in found}

    def server_message(self, name: str, kind: str) -> str:
        (server,) = (one for one in self.servers if one.key.name == name)
        found = server_conditions(server, self.selected[server.key], self.backends[server.key])
        return next(one.message for one in found if one.type == kind)


def kstatus(generation: int, conditions: dict[str, Row], observed: int) -> str:
    """What cli-utils' kstatus makes of an object with these conditions."""
    if observed != generation:
        return "InProgress"
    if conditions.get("Reconciling", ("", ""))[0] == "True":
        return "InProgress"
    if conditions.get("Stalled", ("", ""))[0] == "True":
        return "Failed"
    if conditions.get("Ready", ("True", ""))[0] != "True":
        return "InProgress"
    return "Current"
