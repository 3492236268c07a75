"""The state kept step by step equals the one computed anew, and says what changed, no more."""

import random
from typing import TYPE_CHECKING, Any

import pytest

from kthena.machinery.objects import NamespacedName, Object, key_of
from kthena.networking.conditions import count_endpoints, route_conditions, server_conditions
from kthena.networking.state import NetworkState, ServerReport
from support.networking import PD_SELECTOR, Plane, model_route, model_server, pod, targets

if TYPE_CHECKING:
    from kthena.machinery.conditions import Condition


def key(name: str) -> NamespacedName:
    return NamespacedName("default", name)


ROUTE = model_route("r", {"modelName": "m", "rules": targets("s")})
SERVER = model_server("s")


def test_a_commit_names_what_changed_and_an_idle_one_nothing() -> None:
    state = NetworkState()
    state.put_route(ROUTE)
    state.put_server(SERVER)
    first = state.commit()
    assert first.serves_anew
    assert set(first.routes) == {key("r")}
    assert set(first.servers) == {key("s")}
    assert first.table.names == ("m",)
    assert [one.server.key for one in first.backends] == [key("s")]

    idle = state.commit()
    assert (idle.serves_anew, idle.routes, idle.servers) == (False, {}, {})
    assert idle.table is first.table

    state.put_pod(pod("p", {"app": "s"}))
    ready = state.commit()
    assert ready.serves_anew
    assert ready.table is first.table
    assert set(ready.routes) == {key("r")}
    assert ready.servers[key("s")].counts.ready == 1

    state.put_pod(pod("q", {"app": "s"}))
    more = state.commit()
    assert more.serves_anew
    assert more.routes == {}
    assert more.servers[key("s")].counts.ready == 2


def test_what_does_not_matter_changes_nothing() -> None:
    state = NetworkState()
    state.put_route(ROUTE)
    state.put_server(SERVER)
    state.put_pod(pod("p", {"app": "s"}))
    state.commit()
    state.put_route(ROUTE)
    state.put_server(SERVER)
    state.put_pod(pod("p", {"app": "s"}))
    state.put_pod(pod("other", {"app": "other"}))
    state.put_pod(pod("p", {"app": "s"}, namespace="elsewhere"))
    state.remove_pod(key("never"))
    state.remove_route(key("never"))
    state.remove_server(key("never"))
    commit = state.commit()
    assert (commit.serves_anew, commit.routes, commit.servers) == (False, {}, {})


def test_a_new_generation_is_reported_although_nothing_else_changed() -> None:
    state = NetworkState()
    state.put_route(ROUTE)
    state.put_server(SERVER)
    state.commit()
    state.put_route(model_route("r", ROUTE["spec"], generation=2))
    state.put_server(model_server("s", generation=2))
    commit = state.commit()
    assert {one.observed_generation for one in commit.routes[key("r")]} == {2}
    assert {one.observed_generation for one in commit.servers[key("s")].conditions} == {2}


def test_pods_are_watched_where_there_is_a_server() -> None:
    state = NetworkState()
    assert state.namespaces == frozenset()
    state.put_server(model_server("s", namespace="a"))
    state.put_server(model_server("t", namespace="b"))
    assert state.namespaces == {"a", "b"}
    state.remove_server(NamespacedName("a", "s"))
    assert state.namespaces == {"b"}


def some_objects(draw: random.Random) -> list[Object]:
    """Objects of few names, so that they replace and concern each other."""
    namespace = draw.choice(["a", "b"])
    created = f"2026-01-0{draw.randrange(1, 4)}T00:00:00Z"
    rules = targets(*draw.sample(["s", "t", "u"], draw.randrange(3)))
    if draw.random() < 0.3:
        rules.insert(
            0, {"modelMatch": {"uri": {"regex": draw.choice(["x", "["])}}, **targets("s")[0]}
        )
    spec: dict[str, Any] = {"modelName": draw.choice(["m", "n"]), "rules": rules}
    if draw.random() < 0.2:
        spec["rateLimit"] = {"unit": "second"}
    selector = draw.choice([{"matchLabels": {"app": draw.choice("xy")}}, PD_SELECTOR])
    labels = {"app": draw.choice(["x", "y", "pd"])}
    if draw.random() < 0.7:
        labels |= {"group": draw.choice("gh"), "role": draw.choice(["prefill", "decode"])}
    return [
        model_route(draw.choice("pqr"), spec, namespace=namespace, created=created),
        model_server(draw.choice("stu"), {"workloadSelector": selector}, namespace=namespace),
        pod(
            f"pod{draw.randrange(8)}",
            labels,
            namespace=namespace,
            ready=draw.random() < 0.7,
            deleting=draw.random() < 0.1,
        ),
    ]


@pytest.mark.parametrize("seed", range(6))
def test_step_by_step_equals_computed_anew(seed: int) -> None:
    draw = random.Random(seed)
    state = NetworkState()
    held: dict[str, dict[NamespacedName, Object]] = {"ModelRoute": {}, "ModelServer": {}, "Pod": {}}
    put = {"ModelRoute": state.put_route, "ModelServer": state.put_server, "Pod": state.put_pod}
    remove = {
        "ModelRoute": state.remove_route,
        "ModelServer": state.remove_server,
        "Pod": state.remove_pod,
    }
    routes: dict[NamespacedName, tuple[Condition, ...]] = {}
    servers: dict[NamespacedName, ServerReport] = {}
    for _ in range(150):
        for _ in range(draw.randrange(1, 4)):
            obj = draw.choice(some_objects(draw))
            kind, name = obj["kind"], key_of(obj)
            if draw.random() < 0.3:
                held[kind].pop(name, None)
                remove[kind](name)
            else:
                held[kind][name] = obj
                put[kind](obj)
        commit = state.commit()
        routes = {k: v for k, v in {**routes, **commit.routes}.items() if k in held["ModelRoute"]}
        servers = {
            k: v for k, v in {**servers, **commit.servers}.items() if k in held["ModelServer"]
        }
        plane = Plane(*(list(objects.values()) for objects in held.values()))
        assert {one.server.key: one for one in commit.backends} == plane.backends
        assert commit.table.names == plane.table.names
        assert commit.table.models_page == plane.table.models_page
        assert routes == {
            one.key: route_conditions(one, plane.resolution, plane.states) for one in plane.routes
        }
        for server in plane.servers:
            selected, backend = plane.selected[server.key], plane.backends[server.key]
            report = servers[server.key]
            assert report.conditions == server_conditions(server, selected, backend)
            assert report.counts == count_endpoints(selected, backend)
