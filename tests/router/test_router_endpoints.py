"""Endpoints outlive the sets that they are in."""

import gc

from kthena.router.endpoints import EndpointRegistry
from kthena.router.routes.spec import Backend, EndpointSpec, Role, Server
from support.router_fleet import key


def spec(pod: str, host: str = "10.0.0.1", **extra: object) -> EndpointSpec:
    return EndpointSpec(key(pod), f"uid-{pod}", host, 8000, **extra)  # type: ignore[arg-type] # as given


def server(name: str, *pods: EndpointSpec, disaggregated: bool = False) -> Backend:
    return Backend(Server(key(name), None, 8000, disaggregated=disaggregated), pods)


def test_a_server_that_did_not_change_is_left_as_it_is() -> None:
    """A change of one of many servers costs what that server has."""
    registry = EndpointRegistry()
    first = registry.replace([server("a", spec("p")), server("b", spec("q"))])
    second = registry.replace([server("a", spec("p")), server("b", spec("q"), spec("r"))])
    assert second[key("a")] is first[key("a")]
    assert second[key("b")] is not first[key("b")]
    (kept,) = first[key("b")].endpoints.endpoints
    assert second[key("b")].endpoints.endpoints[0] is kept


def test_a_pod_keeps_its_endpoint_when_its_role_changes() -> None:
    registry = EndpointRegistry()

    def endpoint(role: Role) -> object:
        backend = server("a", spec("p", group="g", role=role), disaggregated=True)
        return registry.replace([backend])[key("a")].endpoints.endpoints[0]

    assert endpoint(Role.PREFILL) is endpoint(Role.DECODE)


def test_a_pod_that_comes_back_has_the_requests_that_it_still_answers() -> None:
    """It was not ready for a moment: its streams went on, and count."""
    registry = EndpointRegistry()
    (endpoint,) = registry.replace([server("a", spec("p"))])[key("a")].endpoints.endpoints
    endpoint.begin()
    assert registry.replace([server("a")])[key("a")].available is False
    assert registry.addresses() == frozenset()
    (again,) = registry.replace([server("a", spec("p"))])[key("a")].endpoints.endpoints
    assert again is endpoint
    assert registry.addresses() == {endpoint.address}


def test_a_pod_that_is_gone_is_forgotten_and_its_successor_is_another() -> None:
    registry = EndpointRegistry()
    registry.replace([server("a", spec("p"))])
    registry.replace([server("a")])
    gc.collect()
    assert len(registry._known) == 0
    successor = EndpointSpec(key("p"), "uid-of-another", "10.0.0.1", 8000)
    old = registry.replace([server("a", spec("p"))])[key("a")].endpoints.endpoints
    new = registry.replace([server("a", successor)])[key("a")].endpoints.endpoints
    assert old[0] is not new[0]
