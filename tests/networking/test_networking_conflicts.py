"""Who answers for a name."""

import itertools
import random

from kthena.networking.conflicts import resolve
from kthena.networking.translate import observe_route
from support.networking import Plane, model_route, targets

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
SOME = [{"modelMatch": {"uri": {"exact": "/v1/x"}}, "targetModels": [{"modelServerName": "s"}]}]


def owners(plane: Plane, name: str) -> list[str]:
    routes = plane.resolution.models.get(name) or plane.resolution.adapters.get(name) or ()
    return [str(route.key) for route in routes]


def test_the_older_route_wins_in_whatever_order_they_come_and_deleting_it_promotes_the_next() -> (
    None
):
    older = model_route("b", {"modelName": "m", "rules": targets("s")}, created=OLD)
    younger = model_route(
        "a", {"modelName": "m", "rules": targets("t")}, namespace="other", created=NEW
    )
    for order in ([older, younger], [younger, older]):
        plane = Plane(order, [], [])
        assert owners(plane, "m") == ["default/b"]
        assert plane.route_status("a")["Accepted"] == ("False", "Conflict")
        assert plane.route_status("a")["Stalled"] == ("True", "Conflict")
        assert plane.route_status("a")["Ready"] == ("False", "Conflict")
        assert plane.route_message("a", "Accepted") == (
            "the model 'm' belongs to ModelRoute default/b, which is older"
        )
        assert plane.route_status("b")["Accepted"] == ("True", "Accepted")
    assert owners(Plane([younger], [], []), "m") == ["other/a"]


def test_ties_are_settled_by_namespace_and_name() -> None:
    spec = {"modelName": "m", "rules": targets("s")}
    routes = [
        model_route("b", spec, namespace="a", created=OLD),
        model_route("a", spec, namespace="b", created=OLD),
        model_route("c", spec, namespace="a", created=OLD),
    ]
    for order in itertools.permutations(routes):
        assert owners(Plane(list(order), [], []), "m") == ["a/b"]


def test_within_a_namespace_a_younger_route_takes_what_the_older_lets_pass() -> None:
    older = model_route("older", {"modelName": "m", "rules": SOME}, created=OLD)
    younger = model_route("younger", {"modelName": "m", "rules": targets("t")}, created=NEW)
    last = model_route("last", {"modelName": "m", "rules": targets("u")}, created=NEW + "Z")
    plane = Plane([last, younger, older], [], [])
    assert owners(plane, "m") == ["default/older", "default/younger"]
    assert plane.route_status("younger")["Accepted"] == ("True", "Accepted")
    assert "ModelRoute default/older lets pass" in plane.route_message("younger", "Accepted")
    assert plane.route_status("last")["Accepted"] == ("False", "Conflict")


def test_another_namespace_never_gets_what_is_let_pass() -> None:
    older = model_route("older", {"modelName": "m", "rules": SOME}, created=OLD)
    other = model_route(
        "other", {"modelName": "m", "rules": targets("t")}, namespace="other", created=NEW
    )
    plane = Plane([older, other], [], [])
    assert owners(plane, "m") == ["default/older"]
    assert plane.route_status("other")["Accepted"] == ("False", "Conflict")


def test_adapters_conflict_with_each_other_and_yield_to_models() -> None:
    one = model_route("one", {"loraAdapters": ["a", "b"], "rules": targets("s")}, created=OLD)
    two = model_route("two", {"loraAdapters": ["b", "c"], "rules": targets("s")}, created=NEW)
    base = model_route("base", {"modelName": "c", "rules": targets("s")}, created=NEW + "Z")
    plane = Plane([one, two, base], [], [])
    assert owners(plane, "a") == owners(plane, "b") == ["default/one"]
    assert "c" not in plane.resolution.adapters
    assert owners(plane, "c") == ["default/base"]
    # Everything that `two` claims is lost to others.
    assert plane.route_status("two")["Accepted"] == ("False", "Conflict")
    assert "adapter 'b' belongs to ModelRoute default/one" in plane.route_message("two", "Accepted")
    assert "adapter 'c' belongs to ModelRoute default/base" in plane.route_message(
        "two", "Accepted"
    )


def test_a_route_that_loses_some_of_its_names_serves_the_others_and_says_so() -> None:
    one = model_route("one", {"loraAdapters": ["a"], "rules": targets("s")}, created=OLD)
    two = model_route(
        "two", {"modelName": "m", "loraAdapters": ["a"], "rules": targets("s")}, created=NEW
    )
    plane = Plane([one, two], [], [])
    status = plane.route_status("two")
    assert (status["Accepted"], status["Stalled"]) == (("True", "Conflict"), ("True", "Conflict"))
    assert status["Ready"] == ("False", "Conflict")
    assert plane.table.knows("m")


def test_a_name_that_is_both_model_and_adapter_of_one_route_is_no_conflict() -> None:
    both = model_route("r", {"modelName": "m", "loraAdapters": ["m", "m"], "rules": targets("s")})
    plane = Plane([both], [], [])
    assert not plane.resolution.losses
    assert plane.table.names == ("m",)


def test_a_route_that_is_not_supported_keeps_its_name() -> None:
    """It would get the name back with the next version: nobody may live on it until then."""
    limited = {"modelName": "m", "rules": SOME, "rateLimit": {"unit": "second"}}
    older = model_route("older", limited, created=OLD)
    younger = model_route("younger", {"modelName": "m", "rules": targets("t")}, created=NEW)
    plane = Plane([younger, older], [], [])
    assert owners(plane, "m") == ["default/older"]
    assert plane.route_status("older")["Accepted"] == ("False", "NotSupported")
    assert plane.route_status("younger")["Accepted"] == ("False", "Conflict")


def test_the_result_depends_on_the_set_of_routes_alone() -> None:
    draw = random.Random(3)
    objects = []
    for number in range(40):
        rules = SOME if draw.random() < 0.5 else targets("s")
        spec = {
            "modelName": f"m{draw.randrange(6)}",
            "loraAdapters": [f"a{draw.randrange(6)}", f"m{draw.randrange(9)}"],
            "rules": rules,
        }
        created = f"2026-01-0{draw.randrange(1, 5)}T00:00:00Z"
        objects.append(
            model_route(f"r{number}", spec, namespace=f"ns{draw.randrange(3)}", created=created)
        )
    routes = [observe_route(one) for one in objects]
    expected = resolve(routes)
    for _ in range(20):
        draw.shuffle(routes)
        found = resolve(routes)
        assert {name: [r.key for r in rs] for name, rs in found.models.items()} == {
            name: [r.key for r in rs] for name, rs in expected.models.items()
        }
        assert {k: set(v) for k, v in found.losses.items()} == {
            k: set(v) for k, v in expected.losses.items()
        }
    for name, kept in {**expected.models, **expected.adapters}.items():
        assert len({route.key.namespace for route in kept}) == 1, name
        assert not any(route.compiled.takes_everything for route in kept[:-1])
