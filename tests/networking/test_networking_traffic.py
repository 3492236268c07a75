"""From objects to answers: what the API holds decides where requests go."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kthena.machinery.objects import Object
from support.networking import PD_SELECTOR, Plane, model_route, model_server, pod, targets
from support.router_fleet import Fleet, serving
from support.router_upstream import Upstream

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def served_by(name: str, engine: Upstream, **spec: Any) -> Object:
    """A ModelServer on an engine's port; its pods are on the engine's address."""
    return model_server(name, {"workloadPort": {"port": engine.port}, "model": name, **spec})


@asynccontextmanager
async def plane(
    routes: list[Object], servers: list[Object], pods: list[Object]
) -> AsyncIterator[tuple[Plane, Fleet]]:
    found = Plane(routes, servers, pods)
    async with serving(found.table, found.backends.values()) as fleet:
        yield found, fleet


def engine_pod(name: str, **labels: str) -> Object:
    return pod(name, labels, ip="127.0.0.1")


async def test_three_objects_and_a_pod_give_an_answer() -> None:
    async with Upstream() as engine:
        route = model_route("r", {"modelName": "chat", "rules": targets("s")})
        async with plane([route], [served_by("s", engine)], [engine_pod("p", app="s")]) as (
            _,
            fleet,
        ):
            reply = await fleet.ask({"model": "chat"})
    assert (reply.status, reply.json["model"]) == (200, "s")


@pytest.mark.parametrize("order", [1, -1], ids=["older first", "younger first"])
async def test_the_older_of_two_routes_for_a_model_wins_in_any_order_and_after_restarts(
    order: int,
) -> None:
    """The loser names the winner, and gets the model when the winner is deleted."""
    older = model_route("b", {"modelName": "chat", "rules": targets("one")}, created=OLD)
    younger = model_route("a", {"modelName": "chat", "rules": targets("two")}, created=NEW)
    pods = [engine_pod("p", app="one"), engine_pod("q", app="two")]
    async with Upstream() as engine:
        servers = [served_by("one", engine), served_by("two", engine)]
        for _ in range(2):  # the second time is a restart
            async with plane([older, younger][::order], servers, pods) as (found, fleet):
                assert (await fleet.ask({"model": "chat"})).json["model"] == "one"
                assert found.route_status("a")["Accepted"] == ("False", "Conflict")
                promoted = Plane([younger], servers, pods)
                fleet.router.swap(promoted.table, promoted.backends.values())
                assert (await fleet.ask({"model": "chat"})).json["model"] == "two"
                assert promoted.route_status("a")["Accepted"] == ("True", "Accepted")


async def test_a_rule_that_does_not_compile_is_dead_alone_when_no_schema_refused_it() -> None:
    bad = {
        "modelMatch": {"headers": {"x-tier": {"exact": "a", "regex": "["}}},
        "targetModels": [{"modelServerName": "bad"}],
    }
    route = model_route("r", {"modelName": "chat", "rules": [bad, *targets("good")]})
    pods = [engine_pod("p", app="bad"), engine_pod("q", app="good")]
    async with Upstream() as engine:
        servers = [served_by("bad", engine), served_by("good", engine)]
        async with plane([route], servers, pods) as (found, fleet):
            reply = await fleet.ask({"model": "chat"}, x_tier="a")
    assert (reply.status, reply.json["model"]) == (200, "good")
    assert "spec.rules[0].modelMatch.headers[x-tier].regex" in found.route_message("r", "Accepted")


async def test_a_route_that_is_not_supported_answers_404_with_the_field() -> None:
    limited = {"modelName": "chat", "rules": targets("s"), "rateLimit": {"unit": "second"}}
    async with Upstream() as engine:
        servers, pods = [served_by("s", engine)], [engine_pod("p", app="s")]
        async with plane([model_route("r", limited)], servers, pods) as (_, fleet):
            reply = await fleet.ask({"model": "chat"})
    assert reply.status == 404
    assert "ModelRoute default/r is not served: spec.rateLimit" in reply.error["message"]
    assert reply.header("x-kthena-reason") == "not_supported"
    assert not engine.requests


async def test_a_server_that_is_not_supported_answers_503_with_the_field() -> None:
    async with Upstream() as engine:
        route = model_route("r", {"modelName": "chat", "rules": targets("s")})
        server = served_by("s", engine, kvConnector={"type": "nixl"})
        async with plane([route], [server], [engine_pod("p", app="s")]) as (_, fleet):
            reply = await fleet.ask({"model": "chat"})
    assert reply.status == 503
    assert "spec.kvConnector.type" in reply.error["message"]
    assert not engine.requests


async def test_readiness_and_labels_decide_from_one_swap_to_the_next() -> None:
    route = model_route("r", {"modelName": "chat", "rules": targets("s")})
    async with Upstream() as engine:
        server = served_by("s", engine)
        states = [
            (pod("p", {"app": "s"}, ip="127.0.0.1", ready=False), 503),
            (pod("p", {"app": "s"}, ip="127.0.0.1"), 200),
            (pod("p", {"app": "other"}, ip="127.0.0.1"), 503),
            (pod("p", {"app": "s"}, ip="127.0.0.1"), 200),
            (pod("p", {"app": "s"}, ip="127.0.0.1", deleting=True), 503),
        ]
        async with plane([route], [server], []) as (_, fleet):
            for one, status in states:
                changed = Plane([route], [server], [one])
                fleet.router.swap(changed.table, changed.backends.values())
                assert (await fleet.ask({"model": "chat"})).status == status


async def test_prefill_and_decode_pods_work_together() -> None:
    route = model_route("r", {"modelName": "chat", "rules": targets("s")})
    pods = [
        engine_pod("p", app="pd", group="g", role="prefill"),
        engine_pod("d", app="pd", group="g", role="decode"),
    ]
    async with Upstream() as engine:
        server = served_by("s", engine, workloadSelector=PD_SELECTOR)
        async with plane([route], [server], pods) as (_, fleet):
            assert (await fleet.ask({"model": "chat", "max_tokens": 9})).status == 200
    assert [request.json["max_tokens"] for request in engine.requests] == [1, 9]
