"""A plugin is a module and a row: what a row gives the configuration and the scheduler."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from kthena.router.config import ConfigurationError, RouterConfig, load_configuration
from kthena.router.endpoints import Endpoint
from kthena.router.routes.spec import EndpointSpec
from kthena.router.scheduler.best_score import BestScore
from kthena.router.scheduler.contract import Learns, SchedulingRequest
from kthena.router.scheduler.plugins import PLUGINS, Plugin, build_profile
from kthena.router.scheduler.profile import Profile
from kthena.router.scheduler.settings import (
    ArgumentError,
    FilterConfig,
    SchedulerConfig,
    ScorerConfig,
)
from support.router_fleet import backend, key, pd_backend, route, rule, serving, table_of
from support.router_upstream import Upstream, replying

REQUEST = SchedulingRequest("chat", "base", 100.0)
TABLE = table_of(route("chat", rule("s")))


@dataclass(frozen=True)
class Quota:
    """Arguments of a plugin."""

    most: int = 3


def parse_quota(given: Mapping[str, Any]) -> Quota:
    for name in given:
        if name != "most":
            raise ArgumentError(name, "it is unknown")
    most = given.get("most", Quota.most)
    if not isinstance(most, int):
        raise ArgumentError("most", f"{most!r} is no number")
    return Quota(most)


class BelowQuota:
    """A filter with arguments."""

    name = "quota"

    def __init__(self, quota: Quota) -> None:
        self.quota = quota

    def keep(self, request: SchedulingRequest, endpoints: Sequence[Endpoint]) -> list[Endpoint]:
        del request
        return [one for one in endpoints if one.in_flight < self.quota.most]


class Recorder(Learns):
    """A scorer that learns all there is."""

    name = "recorder"

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def score(self, request: SchedulingRequest, endpoints: Sequence[Endpoint]) -> list[float]:
        del request
        return [1.0] * len(endpoints)

    def chosen(self, request: SchedulingRequest, endpoint: Endpoint) -> None:
        self.heard.append(("chosen", request, endpoint))

    def answered(self, endpoint: Endpoint, seconds: float) -> None:
        self.heard.append(("answered", endpoint, seconds))

    def refused(self, endpoint: Endpoint, now: float) -> None:
        self.heard.append(("refused", endpoint, now))


MORE = {
    **PLUGINS,
    "quota": Plugin(filter=lambda quota, _draw: BelowQuota(quota), parse=parse_quota),
}


def endpoint(name: str, in_flight: int = 0) -> Endpoint:
    made = Endpoint(EndpointSpec(key(name), f"uid-{name}", "10.0.0.1", 8000))
    made.in_flight = in_flight
    return made


def configured(scheduler: str) -> SchedulerConfig:
    return load_configuration(f"scheduler: {scheduler}", "file.yaml", MORE).scheduler


def test_a_row_is_all_that_a_filter_with_arguments_needs() -> None:
    config = configured(
        "{plugins: {Filter: {enabled: [quota]}}, pluginConfig: [{name: quota, args: {most: 2}}]}"
    )
    assert config == SchedulerConfig(
        (FilterConfig("quota", Quota(2)),), (ScorerConfig("least-request", 1.0),)
    )
    profile = build_profile(config, random.Random(1).random, MORE)
    busy, idle = endpoint("busy", 2), endpoint("idle", 1)
    assert profile.choose(REQUEST, [busy, idle]) is idle
    assert profile.choose(REQUEST, [busy]) is None


def test_arguments_that_are_left_out_are_the_parsers_defaults() -> None:
    config = configured("{plugins: {Filter: {enabled: [quota]}}}")
    assert config.filters == (FilterConfig("quota", Quota()),)


def test_arguments_of_a_plugin_that_is_not_enabled_are_checked_and_mean_nothing() -> None:
    text = "scheduler: {pluginConfig: [{name: quota, args: {most: 2}}]}"
    assert load_configuration(text, "file.yaml", MORE) == RouterConfig()


@pytest.mark.parametrize(
    ("scheduler", "where", "why"),
    [
        (
            "{pluginConfig: [{name: quota, args: {most: x}}]}",
            "scheduler.pluginConfig[0].args.most",
            "'x' is no number",
        ),
        (
            "{pluginConfig: [{name: quota, args: {least: 1}}]}",
            "scheduler.pluginConfig[0].args.least",
            "it is unknown",
        ),
        (
            "{pluginConfig: [{name: quota, args: 5}]}",
            "scheduler.pluginConfig[0].args",
            "it must be a mapping",
        ),
        (
            "{pluginConfig: [{name: quota}, {name: quota}]}",
            "scheduler.pluginConfig[1].name",
            "the plugin 'quota' is here twice",
        ),
        (
            "{pluginConfig: [{name: other, args: {a: 1}}]}",
            "scheduler.pluginConfig[0].args.a",
            "arguments of the plugin 'other' are not implemented",
        ),
        (
            "{plugins: {Filter: {enabled: [least-request]}}}",
            "scheduler.plugins.Filter.enabled[0]",
            "the filter plugin 'least-request' is not implemented; known is quota",
        ),
        (
            "{plugins: {Filter: {enabled: [quota, quota]}}}",
            "scheduler.plugins.Filter.enabled[1]",
            "the plugin 'quota' is enabled twice",
        ),
        (
            "{plugins: {Score: {enabled: [{name: quota, weight: 1}]}}}",
            "scheduler.plugins.Score.enabled[0].name",
            "the score plugin 'quota' is not implemented; known is least-request",
        ),
    ],
)
def test_what_a_row_does_not_know_is_refused_by_name(scheduler: str, where: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        configured(scheduler)
    assert (caught.value.key, caught.value.why) == (where, why)


def test_every_plugin_that_learns_hears_what_becomes_of_a_choice() -> None:
    first, second, one = Recorder(), Recorder(), endpoint("a")
    profile = Profile((), [(first, 1.0), (second, 1.0)], BestScore(random.Random(1).random))
    profile.chosen(REQUEST, one)
    profile.answered(one, 0.5)
    profile.refused(one, 7.0)
    heard = [("chosen", REQUEST, one), ("answered", one, 0.5), ("refused", one, 7.0)]
    assert first.heard == second.heard == heard


def test_an_endpoint_that_refused_is_avoided_whatever_is_configured() -> None:
    profile = build_profile(SchedulerConfig(), random.Random(1).random)
    dead, alive = endpoint("dead"), endpoint("alive")
    profile.refused(dead, 100.0)
    assert {profile.choose(REQUEST, [dead, alive]) for _ in range(20)} == {alive}
    profile.answered(dead, 0.1)
    assert {profile.choose(REQUEST, [dead, alive]) for _ in range(20)} == {dead, alive}


async def test_plugins_are_told_of_each_attempt_of_a_request() -> None:
    """A connection that is refused, then one that answers 503, then a reply."""
    learner = Recorder()
    profile = Profile((), [(learner, 1.0)], BestScore(random.Random(1).random))
    async with Upstream() as dead:
        pass
    async with (
        Upstream(replying({}, 503)) as busy,
        Upstream() as good,
        serving(TABLE, [backend("s", dead, busy, good)]) as fleet,
    ):
        fleet.router._dispatcher.profile = profile
        asked = set[str]()
        while len(asked) < 3:
            learner.heard.clear()
            assert (await fleet.ask({"model": "chat"})).status == 200
            asked = {str(what[2].pod.name) for what in learner.heard if what[0] == "chosen"}
    told = [(what[0], what[1 + (what[0] == "chosen")].address.port) for what in learner.heard]
    assert sorted(told) == sorted(
        [
            *(("chosen", engine.port) for engine in (dead, busy, good)),
            ("refused", dead.port),
            ("answered", busy.port),
            ("answered", good.port),
        ]
    )
    assert all(what[2] > 0 for what in learner.heard if what[0] == "answered")


async def test_plugins_are_told_of_both_endpoints_of_a_pair_once() -> None:
    learner = Recorder()
    async with Upstream() as prefill, Upstream() as decode:
        server = pd_backend("s", {"g": ([prefill], [decode])})
        async with serving(TABLE, [server]) as fleet:
            picker = BestScore(random.Random(1).random)
            fleet.router._dispatcher.profile = Profile((), [(learner, 1.0)], picker)
            assert (await fleet.ask({"model": "chat"})).status == 200
    chosen = [what[2].address.port for what in learner.heard if what[0] == "chosen"]
    answered = [what[1].address.port for what in learner.heard if what[0] == "answered"]
    assert sorted(chosen) == sorted([prefill.port, decode.port])
    assert answered == [prefill.port, decode.port]
