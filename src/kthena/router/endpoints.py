"""The engines that can be asked: immutable sets of endpoints, with counters that outlive them.

A set is replaced as a whole whenever a pod comes, goes or changes role. An `Endpoint` that is in the
old set and in the new one is the same object, so requests in flight stay counted and what is known
of its health is kept.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kthena.machinery.objects import NamespacedName
from kthena.router.proxy.upstream import Address, address_of
from kthena.router.routes.spec import Backend, EndpointSpec, Role, Server


class Endpoint:
    """One pod on one port.

    Mutable state: the requests in flight.
    """

    __slots__ = ("address", "in_flight", "pod", "uid")

    def __init__(self, spec: EndpointSpec) -> None:
        self.address = address_of(spec.host, spec.port)
        self.pod = spec.pod
        self.uid = spec.uid
        self.in_flight = 0

    def begin(self) -> None:
        """A request is about to be sent."""
        self.in_flight += 1

    def end(self) -> None:
        """A request is over, however it ended."""
        self.in_flight -= 1

    def __repr__(self) -> str:
        """`namespace/name@host:port`."""
        return f"{self.pod}@{self.address}"


@dataclass(frozen=True, slots=True)
class PDGroup:
    """Prefill and decode endpoints that may be paired; either may be missing."""

    name: str
    prefill: tuple[Endpoint, ...]
    decode: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class EndpointSet:
    """The ready endpoints of one server; `groups` only where prefill and decode are separate."""

    endpoints: tuple[Endpoint, ...]
    groups: tuple[PDGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveBackend:
    """A server with its endpoints, as requests see it."""

    server: Server
    endpoints: EndpointSet
    label: str
    """The server's key, as metrics and logs name it."""
    available: bool
    """Whether there is anything to send a request to."""


class EndpointRegistry:
    """Keeps one `Endpoint` for each pod and port, across all servers and sets.

    Mutable state: the endpoints of the latest sets.
    """

    def __init__(self) -> None:
        self._known: dict[EndpointSpec, Endpoint] = {}

    def replace(self, backends: Iterable[Backend]) -> dict[NamespacedName, LiveBackend]:
        """The backends with live endpoints. What is in none of them is forgotten."""
        known: dict[EndpointSpec, Endpoint] = {}
        live = {
            backend.server.key: _live(backend.server, self._resolve(backend, known))
            for backend in backends
        }
        self._known = known
        return live

    def addresses(self) -> frozenset[Address]:
        """Where the endpoints of the latest sets listen."""
        return frozenset(endpoint.address for endpoint in self._known.values())

    def _resolve(self, backend: Backend, known: dict[EndpointSpec, Endpoint]) -> EndpointSet:
        members = [(spec, self._endpoint(spec, known)) for spec in backend.endpoints]
        endpoints = tuple(endpoint for _, endpoint in members)
        if not backend.server.disaggregated:
            return EndpointSet(endpoints)
        groups: dict[str, dict[Role, list[Endpoint]]] = {}
        for spec, endpoint in members:
            if spec.role is not None:
                roles = groups.setdefault(spec.group, {Role.PREFILL: [], Role.DECODE: []})
                roles[spec.role].append(endpoint)
        return EndpointSet(endpoints, _freeze(groups))

    def _endpoint(self, spec: EndpointSpec, known: dict[EndpointSpec, Endpoint]) -> Endpoint:
        """The endpoint of a pod, whatever its role is in this set."""
        identity = EndpointSpec(spec.pod, spec.uid, spec.host, spec.port)
        endpoint = known.get(identity) or self._known.get(identity) or Endpoint(spec)
        known[identity] = endpoint
        return endpoint


def _live(server: Server, endpoints: EndpointSet) -> LiveBackend:
    if server.disaggregated:
        available = any(group.prefill and group.decode for group in endpoints.groups)
    else:
        available = bool(endpoints.endpoints)
    available = available and server.refusal is None
    return LiveBackend(server, endpoints, str(server.key), available)


def _freeze(groups: Mapping[str, Mapping[Role, list[Endpoint]]]) -> tuple[PDGroup, ...]:
    return tuple(
        PDGroup(name, tuple(roles[Role.PREFILL]), tuple(roles[Role.DECODE]))
        for name, roles in sorted(groups.items())
    )
