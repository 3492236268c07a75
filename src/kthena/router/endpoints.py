"""The engines that can be asked: immutable sets of endpoints, with counters that outlive them.

A set is replaced as a whole whenever a pod comes, goes or changes role. An `Endpoint` that is in the
old set and in the new one is the same object, so requests in flight stay counted and what is known
of its health is kept.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from weakref import WeakValueDictionary

from kthena.machinery.objects import NamespacedName
from kthena.router.address import Address, address_of
from kthena.router.routes.spec import Backend, EndpointSpec, Role, Server


class Endpoint:
    """One pod on one port.

    Mutable state: the requests in flight.
    """

    __slots__ = ("__weakref__", "address", "in_flight", "pod", "uid")

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


@dataclass(frozen=True, slots=True)
class _Entry:
    """A backend as it was given, and what was made of it."""

    backend: Backend
    live: LiveBackend
    addresses: frozenset[Address]


class EndpointRegistry:
    """Keeps one `Endpoint` for each pod and port, across all servers and sets.

    Mutable state: what was made of the latest backends, and the endpoints that they or requests in
    progress use.
    """

    def __init__(self) -> None:
        self._entries: dict[NamespacedName, _Entry] = {}
        self._known: WeakValueDictionary[EndpointSpec, Endpoint] = WeakValueDictionary()

    def replace(self, backends: Iterable[Backend]) -> dict[NamespacedName, LiveBackend]:
        """The backends with live endpoints; those that did not change are as they were.

        An endpoint that is in none of them is forgotten with the last request that uses it.
        """
        entries: dict[NamespacedName, _Entry] = {}
        for backend in backends:
            old = self._entries.get(backend.server.key)
            if old is None or old.backend != backend:
                old = self._enter(backend)
            entries[backend.server.key] = old
        self._entries = entries
        return {key: entry.live for key, entry in entries.items()}

    def addresses(self) -> frozenset[Address]:
        """Where the endpoints of the latest sets listen."""
        return frozenset().union(*(entry.addresses for entry in self._entries.values()))

    def _enter(self, backend: Backend) -> _Entry:
        endpoints = self._resolve(backend)
        addresses = frozenset(endpoint.address for endpoint in endpoints.endpoints)
        return _Entry(backend, _live(backend.server, endpoints), addresses)

    def _resolve(self, backend: Backend) -> EndpointSet:
        members = [(spec, self._endpoint(spec)) for spec in backend.endpoints]
        endpoints = tuple(endpoint for _, endpoint in members)
        if not backend.server.disaggregated:
            return EndpointSet(endpoints)
        groups: dict[str, dict[Role, list[Endpoint]]] = {}
        for spec, endpoint in members:
            if spec.role is not None:
                roles = groups.setdefault(spec.group, {Role.PREFILL: [], Role.DECODE: []})
                roles[spec.role].append(endpoint)
        return EndpointSet(endpoints, _freeze(groups))

    def _endpoint(self, spec: EndpointSpec) -> Endpoint:
        """The endpoint of a pod, whatever its role is in this set."""
        identity = spec
        if spec.role is not None:
            identity = EndpointSpec(spec.pod, spec.uid, spec.host, spec.port)
        endpoint = self._known.get(identity)
        if endpoint is None:
            endpoint = self._known[identity] = Endpoint(spec)
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
