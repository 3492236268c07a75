"""The view kept step by step equals the one computed anew, and names what changed, no more."""

import random
from typing import Any

import pytest

from kthena.machinery.objects import NamespacedName, Object, key_of
from kthena.networking.conditions import count_endpoints, route_conditions, server_conditions
from kthena.networking.view import NetworkView
from support.networking import PD_SELECTOR, Plane, model_route, model_server, pod, targets


def key(name: str) -> NamespacedName:
    return NamespacedName("default", name)


ROUTE = model_route("r", {"modelName": "m", "rules": targets("s")})
SERVER = model_server("s")


def seen(*objects: Object) -> NetworkView:
    """A view of these, published."""
    view = NetworkView()
    for obj in objects:
        put(view, obj)
    view.publish()
    return view


def put(view: NetworkView, obj: Object) -> None:
    {"ModelRoute": view.put_route, "ModelServer": view.put_server, "Pod": view.put_pod}[
        obj["kind"]
    ](obj)


def remove(view: NetworkView, kind: str, name: NamespacedName) -> None:
    {
        "ModelRoute": view.remove_route,
        "ModelServer": view.remove_server,
        "Pod": view.remove_pod,
    }[kind](name)


def test_a_publication_names_what_changed_and_an_idle_one_nothing() -> None:
    view = NetworkView()
    put(view, ROUTE)
    put(view, SERVER)
    first = view.publish()
    assert first.changed
    assert first.stale_routes == {key("r")}
    assert first.stale_servers == {key("s")}
    assert first.table.names == ("m",)
    assert [one.server.key for one in first.backends] == [key("s")]

    idle = view.publish()
    assert (idle.changed, idle.stale_routes, idle.stale_servers) == (
        False,
        frozenset(),
        frozenset(),
    )
    assert idle.table is first.table

    put(view, pod("p", {"app": "s"}))
    ready = view.publish()
    assert ready.changed
    assert ready.table is first.table
    assert ready.stale_routes == {key("r")}
    assert ready.stale_servers == {key("s")}

    put(view, pod("q", {"app": "s"}))
    more = view.publish()
    assert more.changed
    assert more.stale_routes == frozenset()  # the route was ready before
    assert more.stale_servers == {key("s")}


def test_what_does_not_matter_changes_nothing() -> None:
    view = seen(ROUTE, SERVER, pod("p", {"app": "s"}))
    for obj in (
        pod("p", {"app": "s"}),
        pod("other", {"app": "other"}),
        pod("p", {"app": "s"}, namespace="elsewhere"),
    ):
        put(view, obj)
    for kind in ("ModelRoute", "ModelServer", "Pod"):
        remove(view, kind, key("never"))
    publication = view.publish()
    assert not publication.changed
    assert not publication.stale_routes | publication.stale_servers


def test_an_unready_pod_changes_the_status_of_its_server_and_nothing_that_is_routed() -> None:
    view = seen(ROUTE, SERVER, pod("p", {"app": "s"}))
    put(view, pod("q", {"app": "s"}, ready=False))
    publication = view.publish()
    assert not publication.changed
    assert publication.stale_servers == {key("s")}
    found = view.conditions_of_server(key("s"))
    assert found is not None
    assert (found[1].selected, found[1].ready) == (2, 1)


def test_an_object_that_comes_again_unchanged_has_its_status_looked_at() -> None:
    """Somebody may have edited the status: the object arrives anew, its spec the same."""
    view = seen(ROUTE, SERVER)
    put(view, ROUTE)
    put(view, SERVER)
    publication = view.publish()
    assert not publication.changed
    assert publication.stale_routes == {key("r")}
    assert publication.stale_servers == {key("s")}


def test_a_new_generation_is_reported_although_nothing_else_changed() -> None:
    view = seen(ROUTE, SERVER)
    put(view, model_route("r", ROUTE["spec"], generation=2))
    put(view, model_server("s", generation=2))
    publication = view.publish()
    assert publication.stale_routes == {key("r")}
    assert publication.stale_servers == {key("s")}
    assert {one.observed_generation for one in view.conditions_of_route(key("r")) or ()} == {2}
    found = view.conditions_of_server(key("s"))
    assert found is not None
    assert {one.observed_generation for one in found[0]} == {2}


def test_nothing_is_said_of_what_is_not_published_yet() -> None:
    """A status computed between an event and its publication would speak of two different worlds."""
    view = NetworkView()
    assert view.conditions_of_route(key("r")) is None
    assert view.conditions_of_server(key("s")) is None
    put(view, ROUTE)
    put(view, SERVER)
    assert view.conditions_of_route(key("r")) is None
    assert view.conditions_of_server(key("s")) is None
    view.publish()
    assert view.conditions_of_route(key("r"))
    assert view.conditions_of_server(key("s"))


def test_deleting_the_owner_of_a_name_concerns_the_route_that_gets_it() -> None:
    older = model_route("old", {"modelName": "m", "rules": targets("s")}, created="2026-01-01")
    younger = model_route("new", {"modelName": "m", "rules": targets("s")}, created="2026-01-02")
    view = seen(older, younger)
    remove(view, "ModelRoute", key("old"))
    assert key("new") in view.publish().stale_routes
    accepted = {one.type: one.status for one in view.conditions_of_route(key("new")) or ()}
    assert accepted["Accepted"] == "True"


def test_pods_are_watched_where_there_is_a_server() -> None:
    view = NetworkView()
    assert view.namespaces == frozenset()
    put(view, model_server("s", namespace="a"))
    put(view, model_server("t", namespace="b"))
    assert view.namespaces == {"a", "b"}
    remove(view, "ModelServer", NamespacedName("a", "s"))
    assert view.namespaces == {"b"}


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


def conditions_of_routes(view: NetworkView, names: Any) -> dict[NamespacedName, Any]:
    return {name: view.conditions_of_route(name) for name in names}


def conditions_of_servers(view: NetworkView, names: Any) -> dict[NamespacedName, Any]:
    return {name: view.conditions_of_server(name) for name in names}


@pytest.mark.parametrize("seed", range(6))
def test_step_by_step_equals_computed_anew(seed: int) -> None:
    """Also: whatever is not named stale has the conditions that it had before."""
    draw = random.Random(seed)
    view = NetworkView()
    held: dict[str, dict[NamespacedName, Object]] = {"ModelRoute": {}, "ModelServer": {}, "Pod": {}}
    routes: dict[NamespacedName, Any] = {}
    servers: dict[NamespacedName, Any] = {}
    table = view.publish().table
    backends: dict[NamespacedName, Any] = {}
    for _ in range(150):
        for _ in range(draw.randrange(1, 4)):
            obj = draw.choice(some_objects(draw))
            kind, name = obj["kind"], key_of(obj)
            if draw.random() < 0.3:
                held[kind].pop(name, None)
                remove(view, kind, name)
            else:
                held[kind][name] = obj
                put(view, obj)
        publication = view.publish()
        plane = Plane(*(list(objects.values()) for objects in held.values()))
        after = {one.server.key: one for one in publication.backends}
        assert after == plane.backends
        assert publication.table.names == plane.table.names
        assert publication.table.models_page == plane.table.models_page
        if not publication.changed:
            assert publication.table is table
            assert after == backends
        table, backends = publication.table, after

        new_routes = conditions_of_routes(view, held["ModelRoute"])
        assert new_routes == {
            one.key: route_conditions(one, plane.resolution, plane.states) for one in plane.routes
        }
        new_servers = conditions_of_servers(view, held["ModelServer"])
        for server in plane.servers:
            selected, backend = plane.selected[server.key], plane.backends[server.key]
            assert new_servers[server.key] == (
                server_conditions(server, selected, backend),
                count_endpoints(selected, backend),
            )
        assert {n for n, v in new_routes.items() if v != routes.get(n)} <= publication.stale_routes
        changed = {n for n, v in new_servers.items() if v != servers.get(n)}
        assert changed <= publication.stale_servers
        routes, servers = new_routes, new_servers
