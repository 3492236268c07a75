"""What ModelServers and ModelRoutes say of themselves.

`Accepted`, `ResolvedRefs` and `Ready` are always there. `Reconciling` and `Stalled` are there when
they are True, so that kstatus reads: Stalled is failed, Reconciling is in progress, Ready is current.
All carry the generation that they speak of; transition times are for whoever writes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kthena.api.conditions import ACCEPTED, READY, RECONCILING, RESOLVED_REFS, STALLED
from kthena.machinery.conditions import FALSE, TRUE, Condition, ConditionStatus
from kthena.machinery.objects import NamespacedName
from kthena.networking.conflicts import Loss, Resolution
from kthena.networking.pods import PodView
from kthena.networking.translate import Fault, ObservedRoute, ObservedServer, endpoint_of
from kthena.router.routes.compile import CompiledRule
from kthena.router.routes.spec import Backend, Role

OWNED_TYPES: Final = (ACCEPTED, RESOLVED_REFS, READY, RECONCILING, STALLED)
"""The conditions that this plane writes: one that is not reported is to be removed."""

_MAX_MESSAGE: Final = 4096


@dataclass(frozen=True, slots=True)
class EndpointCounts:
    """How many pods a server selects, and how many are ready, by role where there are roles."""

    selected: int
    ready: int
    ready_prefill: int = 0
    ready_decode: int = 0

    def as_status(self) -> dict[str, Any]:
        """The fields of `ModelServer.status`."""
        return {
            "endpoints": self.selected,
            "readyEndpoints": self.ready,
            "readyPrefillEndpoints": self.ready_prefill,
            "readyDecodeEndpoints": self.ready_decode,
        }


@dataclass(frozen=True, slots=True)
class ServerState:
    """A ModelServer's part in the readiness of routes: whether requests can go to it, or why not."""

    available: bool
    message: str


def count_endpoints(selected: Sequence[PodView], backend: Backend) -> EndpointCounts:
    """The counts of a server's status."""
    roles = [endpoint.role for endpoint in backend.endpoints]
    return EndpointCounts(
        len(selected), len(roles), roles.count(Role.PREFILL), roles.count(Role.DECODE)
    )


def server_state(server: ObservedServer, backend: Backend) -> ServerState:
    """Whether requests can go to the server now."""
    if server.fault is not None:
        return ServerState(available=False, message=f"it is not accepted: {server.fault.message}")
    missing = _missing(server, backend)
    return ServerState(available=not missing, message=missing)


def server_conditions(
    server: ObservedServer, selected: Sequence[PodView], backend: Backend
) -> tuple[Condition, ...]:
    """The conditions of a ModelServer."""
    report = _Report(server.generation)
    if server.fault is not None:
        report.add(ACCEPTED, FALSE, server.fault.reason, server.fault.message)
        report.add(STALLED, TRUE, server.fault.reason, server.fault.message)
    else:
        report.add(ACCEPTED, TRUE, "Accepted", "the server is served as it is written")
    unresolved = _unresolved(server, selected)
    if unresolved is not None:
        report.add(RESOLVED_REFS, FALSE, unresolved.reason, unresolved.message)
    else:
        report.add(RESOLVED_REFS, TRUE, "PodsFound", f"the selector finds {len(selected)} pods")
    missing = _missing(server, backend)
    if server.fault is not None:
        report.add(READY, FALSE, "NotAccepted", "no request is sent: the server is not accepted")
    elif missing:
        reason = "RoleMissing" if server.pairs is not None else "NoReadyEndpoints"
        report.add(READY, FALSE, reason, missing)
        report.add(RECONCILING, TRUE, reason, missing)
    else:
        ready = f"{len(backend.endpoints)} of {len(selected)} pods are ready"
        report.add(READY, TRUE, "EndpointsReady", ready)
    return report.conditions()


def route_conditions(
    route: ObservedRoute,
    resolution: Resolution,
    servers: Mapping[NamespacedName, ServerState],
) -> tuple[Condition, ...]:
    """The conditions of a ModelRoute, from who answers for what and the state of all servers."""
    report = _Report(route.generation)
    losses = resolution.losses.get(route.key, ())
    fault = _route_fault(route, losses)
    if fault is None:
        reason = "AcceptedWithWarnings" if route.warnings else "Accepted"
        notes = [*route.warnings, *_places(resolution.behind.get(route.key, ()))]
        message = "; ".join(notes) or "every rule is served as it is written"
        report.add(ACCEPTED, TRUE, reason, message)
    else:
        serves_some = _serves_some(route, losses)
        report.add(ACCEPTED, TRUE if serves_some else FALSE, fault.reason, fault.message)
        report.add(STALLED, TRUE, fault.reason, fault.message)
    absent = sorted(
        {
            str(target.server)
            for rule in route.route.rules
            for target in rule.targets
            if target.server.name and target.server not in servers
        }
    )
    if absent:
        message = f"ModelServer {', '.join(absent)} does not exist"
        report.add(RESOLVED_REFS, FALSE, "ModelServerNotFound", message)
    else:
        report.add(RESOLVED_REFS, TRUE, "ResolvedRefs", "every target exists")
    waiting = [text for rule in route.compiled.rules for text in _unavailable(rule, servers)]
    if fault is not None:
        report.add(READY, FALSE, fault.reason, fault.message)
    elif waiting:
        report.add(READY, FALSE, "TargetsNotReady", "; ".join(waiting))
        report.add(RECONCILING, TRUE, "TargetsNotReady", "; ".join(waiting))
    else:
        report.add(READY, TRUE, "TargetsReady", "every rule has a target with ready endpoints")
    return report.conditions()


class _Report:
    """Conditions of one generation, in the order of `OWNED_TYPES`."""

    def __init__(self, generation: int) -> None:
        self._generation = generation
        self._found: dict[str, Condition] = {}

    def add(self, kind: str, status: ConditionStatus, reason: str, message: str) -> None:
        if len(message) > _MAX_MESSAGE:
            message = message[: _MAX_MESSAGE - 1] + "…"
        self._found[kind] = Condition(kind, status, reason, message, self._generation)

    def conditions(self) -> tuple[Condition, ...]:
        return tuple(self._found[kind] for kind in OWNED_TYPES if kind in self._found)


def _unresolved(server: ObservedServer, selected: Sequence[PodView]) -> Fault | None:
    """What the selector does not find, ready or not."""
    if not selected:
        return Fault("NoPods", f"no pod in {server.key.namespace} has the labels of the selector")
    if server.pairs is None:
        return None
    found = {endpoint.role for endpoint in (endpoint_of(server, pod) for pod in selected)}
    missing = [role.value for role in Role if role not in found]
    if missing:
        return Fault("RoleMissing", f"no pod of the role {' and '.join(missing)} is in a group")
    return None


def _missing(server: ObservedServer, backend: Backend) -> str:
    """What keeps requests from the server's pods; empty when nothing does."""
    if server.pairs is None:
        return "" if backend.endpoints else "no pod is ready"
    roles: dict[str, set[Role]] = {}
    for endpoint in backend.endpoints:
        if endpoint.role is not None:
            roles.setdefault(endpoint.group, set()).add(endpoint.role)
    if any(len(found) == len(Role) for found in roles.values()):
        return ""
    ready = set().union(*roles.values())
    absent = [role.value for role in Role if role not in ready]
    if absent:
        return f"no {' and no '.join(absent)} pod is ready"
    return "no group has both a ready prefill and a ready decode pod"


def _route_fault(route: ObservedRoute, losses: Sequence[Loss]) -> Fault | None:
    """What is wrong with the object itself; nothing but an edit, of it or of another, mends it."""
    if route.fault is not None:
        return route.fault
    if losses:
        lost = "; ".join(map(str, losses))
        return Fault("Conflict", f"{lost}, which is older")
    problems = route.compiled.problems
    if problems:
        dead = "; ".join(str(problem.error) for problem in problems)
        reason = "PartiallyInvalid" if route.compiled.rules else "InvalidRules"
        return Fault(reason, f"these rules serve nothing: {dead}")
    if not route.route.rules:
        return Fault("NoRules", "spec.rules is empty, so no request is taken")
    return None


def _places(before: Sequence[NamespacedName]) -> list[str]:
    if not before:
        return []
    return [f"requests that ModelRoute {', '.join(map(str, before))} lets pass are taken"]


def _serves_some(route: ObservedRoute, losses: Sequence[Loss]) -> bool:
    """Whether some requests still go where the route says."""
    if route.fault is not None or not route.compiled.rules:
        return False
    names = ([route.route.model_name] if route.route.model_name else []) + list(
        route.route.adapters
    )
    return len(losses) < len(names)


def _unavailable(rule: CompiledRule, servers: Mapping[NamespacedName, ServerState]) -> list[str]:
    """Why no target of the rule can be asked; empty when one can."""
    causes = []
    for target in rule.targets:
        if not target.weight:
            continue
        state = servers.get(target.server)
        if state is not None and state.available:
            return []
        why = "it does not exist" if state is None else state.message
        causes.append(f"spec.rules[{rule.index}]: ModelServer {target.server}: {why}")
    return causes
