"""Which endpoint gets a request."""

import random
from collections.abc import Sequence

from kthena.router.endpoints import Endpoint, EndpointRegistry, EndpointSet, PDGroup
from kthena.router.routes.spec import Backend, EndpointSpec, Role, Server
from kthena.router.scheduler.best_score import BestScore
from kthena.router.scheduler.contract import SchedulingRequest
from kthena.router.scheduler.least_requests import LeastRequests
from kthena.router.scheduler.pairs import choose_pair, missing_role
from kthena.router.scheduler.plugins import build_profile
from kthena.router.scheduler.profile import Profile
from kthena.router.scheduler.reachable import Reachable
from kthena.router.scheduler.settings import SchedulerConfig, ScorerConfig
from support.router_fleet import key

REQUEST = SchedulingRequest("chat", "base", 100.0)


def spec(name: str, **extra: object) -> EndpointSpec:
    return EndpointSpec(key(name), f"uid-{name}", "10.0.0.1", 8000, **extra)  # type: ignore[arg-type] # group and role


def endpoint(name: str, in_flight: int = 0) -> Endpoint:
    made = Endpoint(spec(name))
    made.in_flight = in_flight
    return made


def profile(seed: int = 1) -> Profile:
    config = SchedulerConfig(scorers=(ScorerConfig("least-request", 1.0),))
    return build_profile(config, random.Random(seed).random)


def test_the_least_busy_endpoint_is_chosen() -> None:
    endpoints = [endpoint("a", 3), endpoint("b", 1), endpoint("c", 2)]
    assert profile().choose(REQUEST, endpoints) is endpoints[1]


def test_equal_endpoints_are_drawn() -> None:
    endpoints = [endpoint(name) for name in "abcd"]
    chosen = {profile(seed).choose(REQUEST, endpoints) for seed in range(50)}
    assert chosen == set(endpoints)


def test_no_endpoint_and_a_single_one() -> None:
    assert profile().choose(REQUEST, []) is None
    only = endpoint("a", 99)
    assert profile().choose(REQUEST, [only]) is only


def test_scores_depend_on_the_endpoint_alone_and_lie_between_0_and_1() -> None:
    endpoints = [endpoint("a", 0), endpoint("b", 1), endpoint("c", 10_000)]
    scores = LeastRequests().score(REQUEST, endpoints)
    assert list(scores) == [1.0, 0.5, 1 / 10_001]
    assert list(LeastRequests().score(REQUEST, endpoints[1:])) == list(scores[1:])


def test_weights_add_scores_up() -> None:
    class Fixed:
        name = "fixed"

        def score(self, request: SchedulingRequest, endpoints: Sequence[Endpoint]) -> list[float]:
            del request
            return [1.0 if one.pod.name == "b" else 0.0 for one in endpoints]

    endpoints = [endpoint("a", 0), endpoint("b", 4)]
    picker = BestScore(random.Random(1).random)

    def chosen(weight: float) -> Endpoint | None:
        scorers = ((LeastRequests(), 1.0), (Fixed(), weight))
        return Profile((), scorers, picker).choose(REQUEST, endpoints)

    assert chosen(0.7) is endpoints[0]
    assert chosen(0.9) is endpoints[1]


def test_without_scorers_every_endpoint_is_as_good() -> None:
    endpoints = [endpoint(name, n) for n, name in enumerate("abc")]
    bare = [build_profile(SchedulerConfig(), random.Random(seed).random) for seed in range(50)]
    assert {one.choose(REQUEST, endpoints) for one in bare} == set(endpoints)


def kept_at(filter_: Reachable, now: float, endpoints: list[Endpoint]) -> list[Endpoint]:
    return list(filter_.keep(SchedulingRequest("m", "m", now), endpoints))


def pause_after_refusing(filter_: Reachable, bad: Endpoint, now: float) -> float:
    """For how long the endpoint is avoided, to the second."""
    good = endpoint("good", 50)
    filter_.refused(bad, now)
    seconds = 0
    while kept_at(filter_, now + seconds, [good, bad]) == [good]:
        seconds += 1
    return seconds


def test_an_endpoint_that_refused_is_avoided_for_a_while_twice_as_long_each_time() -> None:
    reachable = Reachable()
    good, bad = endpoint("good", 50), endpoint("bad")
    pauses = []
    now = 100.0
    for _ in range(8):
        pauses.append(pause_after_refusing(reachable, bad, now))
        now += pauses[-1]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    assert kept_at(reachable, now - 0.1, [good, bad]) == [good]
    assert kept_at(reachable, now, [good, bad]) == [good, bad]
    reachable.refused(bad, now)
    reachable.answered(bad, 0.1)
    assert kept_at(reachable, now, [good, bad]) == [good, bad]
    assert pause_after_refusing(reachable, bad, now) == 1


def test_when_all_are_avoided_all_are_kept() -> None:
    reachable = Reachable()
    endpoints = [endpoint("a"), endpoint("b")]
    for one in endpoints:
        reachable.refused(one, 100.0)
    assert kept_at(reachable, 100.0, endpoints) == endpoints


def test_endpoints_that_are_gone_are_forgotten() -> None:
    reachable = Reachable()
    for number in range(100):
        reachable.refused(endpoint(f"e{number}"), number * 60.0)
    assert len(reachable._pauses) == 1


# Pairs


def group(name: str, prefill: list[Endpoint], decode: list[Endpoint]) -> PDGroup:
    return PDGroup(name, tuple(prefill), tuple(decode))


def test_a_pair_comes_from_one_group_with_the_least_busy_decode_and_prefill() -> None:
    p1, p2, d1, d2, d3 = (endpoint(n, f) for n, f in zip("pqdef", (5, 0, 2, 1, 0), strict=True))
    endpoints = EndpointSet((), (group("a", [p1, p2], [d1, d2]), group("b", [], [d3])))
    assert choose_pair(profile(), REQUEST, endpoints, ()) == (p2, d2)
    assert choose_pair(profile(), REQUEST, endpoints, {d2}) == (p2, d1)
    assert choose_pair(profile(), REQUEST, endpoints, {p2}) == (p1, d2)
    assert choose_pair(profile(), REQUEST, endpoints, {p1, p2}) is None
    assert choose_pair(profile(), REQUEST, endpoints, {d1, d2}) is None


def test_the_missing_role_is_named() -> None:
    one = endpoint("x")
    assert "no ready prefill pod" in missing_role(EndpointSet((), (group("a", [], [one]),)))
    assert "no ready decode pod" in missing_role(EndpointSet((), (group("a", [one], []),)))
    assert "neither" in missing_role(EndpointSet(()))
    both = (group("a", [one], []), group("b", [], [one]))
    assert "no group has both" in missing_role(EndpointSet((), both))


# The registry


def server(name: str, *, disaggregated: bool = False, refusal: str | None = None) -> Server:
    return Server(key(name), None, 8000, disaggregated=disaggregated, refusal=refusal)


def test_an_endpoint_that_stays_keeps_its_counter() -> None:
    registry = EndpointRegistry()
    before = registry.replace([Backend(server("s"), (spec("a"), spec("b")))])
    a, b = before[key("s")].endpoints.endpoints
    a.begin()
    after = registry.replace([Backend(server("s"), (spec("c"), spec("a")))])
    c, again = after[key("s")].endpoints.endpoints
    assert again is a
    assert again.in_flight == 1
    assert c is not b


def test_a_pod_that_was_replaced_under_its_name_is_new() -> None:
    registry = EndpointRegistry()
    old = registry.replace([Backend(server("s"), (spec("a"),))])[key("s")].endpoints.endpoints[0]
    reborn = EndpointSpec(key("a"), "another uid", "10.0.0.1", 8000)
    new = registry.replace([Backend(server("s"), (reborn,))])[key("s")].endpoints.endpoints[0]
    assert new is not old
    assert new.address == old.address


def test_a_pod_that_changes_its_role_keeps_its_counter_and_is_in_one_list() -> None:
    registry = EndpointRegistry()

    def place(role: Role) -> PDGroup:
        one = spec("a", group="g", role=role)
        live = registry.replace([Backend(server("s", disaggregated=True), (one,))])
        (found,) = live[key("s")].endpoints.groups
        return found

    before = place(Role.PREFILL)
    before.prefill[0].begin()
    after = place(Role.DECODE)
    assert after.prefill == ()
    assert after.decode == before.prefill
    assert after.decode[0].in_flight == 1


def test_availability() -> None:
    registry = EndpointRegistry()
    prefill, decode = (
        spec("p", group="g", role=Role.PREFILL),
        spec("d", group="g", role=Role.DECODE),
    )
    other = spec("e", group="h", role=Role.DECODE)
    cases = {
        "empty": (server("empty"), (), False),
        "plain": (server("plain"), (spec("a"),), True),
        "refused": (server("refused", refusal="x"), (spec("a"),), False),
        "pair": (server("pair", disaggregated=True), (prefill, decode), True),
        "half": (server("half", disaggregated=True), (prefill, other), False),
    }
    live = registry.replace([Backend(one, specs) for one, specs, _ in cases.values()])
    for name, (_, _, available) in cases.items():
        assert live[key(name)].available is available, name
        assert live[key(name)].label == f"default/{name}"
    assert len(registry.addresses()) == 1
