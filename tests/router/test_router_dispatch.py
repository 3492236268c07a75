"""Where the next attempt of a request goes, without a socket."""

import random
from dataclasses import dataclass, field

from kthena.router.endpoints import Endpoint, EndpointRegistry
from kthena.router.routes.compile import compile_route
from kthena.router.routes.spec import Backend, EndpointSpec, Role, Rule, Server
from kthena.router.routes.table import Match
from kthena.router.scheduler.dispatch import Dispatcher, Leg
from kthena.router.scheduler.plugins import build_profile
from kthena.router.scheduler.settings import DEFAULT_SCHEDULER
from support.router_fleet import key, route, rule


@dataclass
class Request:
    """What a dispatcher decides by."""

    match: Match
    model: str = "chat"
    leg: Leg | None = None
    failed: set[Endpoint] = field(default_factory=set)

    def fail(self, leg: Leg) -> None:
        self.leg = leg
        self.failed.add(leg.endpoint)


def request_for(one: Rule, *, adapter: bool = False) -> Request:
    compiled = compile_route(route("chat", one))
    return Request(Match(compiled, compiled.rules[0], adapter))


def backend_of(name: str, *pods: str, model: str | None = None) -> Backend:
    endpoints = tuple(EndpointSpec(key(pod), f"uid-{pod}", "10.0.0.1", 8000) for pod in pods)
    return Backend(Server(key(name), model, 8000), endpoints)


def dispatcher(*backends: Backend) -> Dispatcher:
    made = Dispatcher(build_profile(DEFAULT_SCHEDULER, random.Random(1).random))
    made.replace(EndpointRegistry().replace(backends))
    return made


def walk(made: Dispatcher, request: Request) -> list[str]:
    """The pods that are asked, one after another, while each fails."""
    pods = []
    while (leg := made.schedule(request, 100.0)) is not None:
        pods.append(leg.endpoint.pod.name)
        request.fail(leg)
    return pods


def test_other_endpoints_of_the_target_then_other_targets_and_nothing_twice() -> None:
    made = dispatcher(backend_of("a", "a1", "a2"), backend_of("b", "b1"), backend_of("none"))
    pods = walk(made, request_for(rule("a", "b", "none", "absent")))
    assert sorted(pods) == ["a1", "a2", "b1"]
    assert pods.index("b1") in (0, 2)


def test_a_target_of_weight_zero_is_never_asked() -> None:
    made = dispatcher(backend_of("a", "a1"), backend_of("b", "b1"))
    assert walk(made, request_for(rule(("a", 1), ("b", 0)))) == ["a1"]


def test_nothing_is_left_where_no_server_can_be_asked() -> None:
    assert walk(dispatcher(), request_for(rule("a"))) == []
    assert walk(dispatcher(backend_of("a")), request_for(rule("a", "b"))) == []


def test_the_engine_is_told_the_servers_model_but_for_an_adapter() -> None:
    made = dispatcher(backend_of("a", "a1", model="base"))
    leg = made.schedule(request_for(rule("a")), 100.0)
    assert leg is not None
    assert leg.model == "base"
    adapter = made.schedule(request_for(rule("a"), adapter=True), 100.0)
    assert adapter is not None
    assert adapter.model is None


def test_an_attempt_sees_the_latest_backends() -> None:
    made, request = dispatcher(backend_of("a", "old")), request_for(rule("a"))
    leg = made.schedule(request, 100.0)
    assert leg is not None
    request.fail(leg)
    made.replace(EndpointRegistry().replace([backend_of("a", "new")]))
    assert walk(made, request) == ["new"]


def test_a_disaggregated_server_gives_pairs() -> None:
    specs = [
        EndpointSpec(key(f"{role.value}{n}"), f"{role}{n}", "10.0.0.1", n, "g", role)
        for role in Role
        for n in (1, 2)
    ]
    made = dispatcher(Backend(Server(key("a"), None, 8000, disaggregated=True), tuple(specs)))
    request = request_for(rule("a"))
    leg = made.schedule(request, 100.0)
    assert leg is not None
    assert leg.pair is not None
    assert leg.endpoint is leg.pair.decode
    request.failed |= {leg.pair.prefill}
    again = made.schedule(request, 100.0)
    assert again is not None
    assert again.pair is not None
    assert again.pair.prefill is not leg.pair.prefill
