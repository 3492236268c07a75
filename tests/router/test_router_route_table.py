"""Which rule takes a request, and which target gets it."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.objects import NamespacedName
from kthena.router.reasons import Reason
from kthena.router.routes.compile import compile_route
from kthena.router.routes.draw import SmoothDraw
from kthena.router.routes.spec import Route, Rule, RuleMatch, StringMatch, Target
from kthena.router.routes.table import Match, NoMatch, RouteTable
from support.router_fleet import key, route, rule, table_of


@dataclass
class View:
    """A request as rules see it."""

    model: str = "chat"
    path: str = "/v1/chat/completions"
    headers: dict[bytes, bytes] = field(default_factory=dict)

    def header(self, name: bytes) -> bytes | None:
        return self.headers.get(name)


def matched(table: RouteTable, view: View) -> str:
    """The target that takes the request; every rule here has one."""
    found = table.match(view)
    assert isinstance(found, Match), found
    return found.rule.targets[0].server.name


def when(**conditions: object) -> RuleMatch:
    return RuleMatch(**conditions)  # type: ignore[arg-type] # names are checked by the struct


def test_the_first_rule_that_matches_decides() -> None:
    premium = when(headers=(("User-Type", StringMatch(exact="premium")),))
    table = table_of(route("chat", rule("big", match=premium), rule("small")))
    assert matched(table, View(headers={b"user-type": b"premium"})) == "big"
    assert matched(table, View(headers={b"user-type": b"Premium"})) == "small"
    assert matched(table, View()) == "small"


CONDITIONS = [
    (StringMatch(exact="a"), "a", True),
    (StringMatch(exact="a"), "ab", False),
    (StringMatch(exact=""), "", True),
    (StringMatch(exact=""), "a", False),
    (StringMatch(prefix="ab"), "abc", True),
    (StringMatch(prefix="ab"), "cab", False),
    (StringMatch(prefix=""), "anything", True),
    (StringMatch(regex="b+"), "abbc", True),
    (StringMatch(regex="^b"), "ab", False),
    (StringMatch(regex=r"(?i)^AB$"), "ab", True),
    (StringMatch(regex=r"\pL\z"), "é", True),
    (StringMatch(), "anything", True),
    (StringMatch(exact="a", prefix="b", regex="c"), "a", True),
    (StringMatch(exact="a", prefix="b", regex="c"), "b", False),
    (StringMatch(prefix="b", regex="c"), "b", True),
    (StringMatch(prefix="b", regex="c"), "c", False),
]


@pytest.mark.parametrize(("condition", "value", "holds"), CONDITIONS)
def test_conditions_on_strings(condition: StringMatch, value: str, holds: bool) -> None:
    by_uri = table_of(route("chat", rule("yes", match=when(uri=condition)), rule("no")))
    by_header = table_of(
        route("chat", rule("yes", match=when(headers=(("X", condition),))), rule("no"))
    )
    expected = "yes" if holds else "no"
    assert matched(by_uri, View(path=value)) == expected
    assert matched(by_header, View(headers={b"x": value.encode()})) == expected


def test_a_missing_header_is_an_empty_one_and_host_is_always_missing() -> None:
    table = table_of(
        route(
            "chat", rule("yes", match=when(headers=(("X", StringMatch(regex=".*")),))), rule("no")
        )
    )
    assert matched(table, View()) == "yes"
    host = table_of(
        route(
            "chat", rule("yes", match=when(headers=(("Host", StringMatch(exact="a")),))), rule("no")
        )
    )
    assert matched(host, View(headers={b"host": b"a"})) == "no"


def test_header_bytes_that_are_no_text_match_as_replacement_characters() -> None:
    table = table_of(
        route(
            "chat", rule("yes", match=when(headers=(("X", StringMatch(regex="^.$")),))), rule("no")
        )
    )
    assert matched(table, View(headers={b"x": b"\xff"})) == "yes"


def test_all_conditions_of_a_rule_hold_together() -> None:
    match = when(
        headers=(("A", StringMatch(exact="1")), ("B", StringMatch(exact="2"))),
        uri=StringMatch(prefix="/v1/chat"),
        body_model="lora-a",
    )
    table = table_of(
        route("", rule("all", match=match), rule("rest"), adapters=("lora-a", "lora-b"))
    )
    good = {b"a": b"1", b"b": b"2"}
    assert matched(table, View("lora-a", headers=good)) == "all"
    assert matched(table, View("lora-b", headers=good)) == "rest"
    assert matched(table, View("lora-a", headers={b"a": b"1"})) == "rest"
    assert matched(table, View("lora-a", path="/v1/completions", headers=good)) == "rest"


def test_adapters_are_found_after_models_and_marked() -> None:
    table = table_of(
        route("both", rule("base")), route("other", rule("lora"), adapters=("both", "x"))
    )
    base, adapter = table.match(View("both")), table.match(View("x"))
    assert isinstance(base, Match)
    assert isinstance(adapter, Match)
    assert (base.rule.targets[0].server.name, base.adapter) == ("base", False)
    assert (adapter.rule.targets[0].server.name, adapter.adapter) == ("lora", True)


def test_a_request_that_no_rule_takes_falls_through_to_the_next_route_of_the_name() -> None:
    premium = when(headers=(("tier", StringMatch(exact="gold")),))
    table = table_of(
        route("chat", rule("first", match=premium), name="older"),
        route("chat", rule("second"), name="younger"),
    )
    assert matched(table, View(headers={b"tier": b"gold"})) == "first"
    assert matched(table, View()) == "second"


def test_without_a_match_the_answer_names_the_routes() -> None:
    never = when(uri=StringMatch(exact="/never"))
    table = table_of(route("chat", rule("s", match=never), name="r"), route("empty", name="e"))
    for model, words in (("chat", "ModelRoute default/r"), ("empty", "ModelRoute default/e")):
        found = table.match(View(model))
        assert isinstance(found, NoMatch)
        assert found.reason is Reason.ROUTE_NOT_FOUND
        assert words in found.message
    unknown = table.match(View("none"))
    assert unknown == NoMatch(Reason.ROUTE_NOT_FOUND, "the model `none` does not exist")
    assert (table.knows("chat"), table.knows("none")) == (True, False)


def test_a_rule_that_does_not_compile_is_dead_alone_and_reported() -> None:
    bad = when(headers=(("x-tier", StringMatch(exact="a", regex="[")),))
    compiled = compile_route(
        route("chat", rule("dead", match=bad), rule("x", match=when(uri=StringMatch(regex="(?=x)"))),
              rule(("zero", 0)), rule("good"))
    )  # fmt: skip
    assert [one.targets[0].server.name for one in compiled.rules] == ["good"]
    assert [problem.rule for problem in compiled.problems] == [0, 1, 2]
    assert str(compiled.problems[0].error) == (
        'spec.rules[0].modelMatch.headers[x-tier].regex: Invalid value: "[": '
        "error parsing regexp: missing closing ]: `[`"
    )
    assert compiled.problems[1].error.path == "spec.rules[1].modelMatch.uri.regex"
    assert compiled.problems[2].error.path == "spec.rules[2].targetModels"
    table = RouteTable({"chat": (compiled,)})
    assert matched(table, View(headers={b"x-tier": b"a"})) == "good"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ((rule("s"),), True),
        ((rule("s", match=RuleMatch()),), True),
        ((rule("s", match=when(uri=StringMatch(exact="/"))), rule("t")), True),
        ((rule("s", match=when(uri=StringMatch(exact="/"))),), False),
        ((rule(("s", 0)),), False),
        ((), False),
    ],
)
def test_a_route_that_takes_everything_is_known(rules: tuple[Rule, ...], expected: bool) -> None:
    assert compile_route(route("chat", *rules)).takes_everything is expected


def test_a_refused_route_takes_everything_and_answers_its_refusal() -> None:
    refused = Route(key("r"), "chat", (), (rule("s"),), refusal="not supported: spec.rateLimit")
    compiled = compile_route(refused)
    assert compiled.takes_everything
    table = RouteTable({"chat": (compiled,)})
    assert table.match(View()) == NoMatch(Reason.NOT_SUPPORTED, "not supported: spec.rateLimit")
    assert table.names == ()
    assert table.model_page("chat") is None


def test_a_thousand_routes_cost_as_much_as_one() -> None:
    premium = when(uri=StringMatch(regex="^/v[0-9]+/(chat|text)"))
    table = table_of(*(route(f"m{n}", rule(f"s{n}", match=premium)) for n in range(1000)))
    assert matched(table, View("m999", path="/v1/chat")) == "s999"
    assert len(table.names) == 1000


# Draws


def shares(weights: list[int], draws: int) -> Counter[int]:
    draw = SmoothDraw(weights)
    everything = list(range(len(weights)))
    picked = [draw.pick(everything) for _ in range(draws)]
    return Counter(index for index in picked if index is not None)


def test_shares_are_exact() -> None:
    assert shares([70, 30], 100) == {0: 70, 1: 30}
    assert shares([1, 1, 2], 400) == {0: 100, 1: 100, 2: 200}
    assert shares([90, 10, 0], 1000) == {0: 900, 1: 100}


@given(st.lists(st.integers(0, 100), min_size=1, max_size=16), st.integers(1, 400))
def test_any_run_of_draws_is_within_one_request_of_its_share(
    weights: list[int], draws: int
) -> None:
    total = sum(weights)
    counted = shares(weights, draws)
    if not total:
        assert not counted
        return
    for index, weight in enumerate(weights):
        assert abs(counted[index] - draws * weight / total) < len(weights)
        assert weight or not counted[index]


def test_a_small_share_is_spread_over_time() -> None:
    draw = SmoothDraw([9, 1])
    picks = [draw.pick([0, 1]) for _ in range(100)]
    places = [place for place, index in enumerate(picks) if index == 1]
    assert [b - a for a, b in pairwise(places)] == [10] * 9


def test_targets_that_are_not_eligible_leave_the_draw() -> None:
    draw = SmoothDraw([1, 1, 2])
    assert Counter(draw.pick([0, 2]) for _ in range(300)) == {0: 100, 2: 200}
    assert Counter(draw.pick([0, 1, 2]) for _ in range(400)) == {0: 100, 1: 100, 2: 200}
    assert draw.pick([]) is None


def test_a_rule_that_did_not_change_goes_on_with_its_draw() -> None:
    """Wherever it stands in a route of which everything else is different."""
    split = rule(("a", 1), ("b", 1))
    other = rule(("a", 1), ("b", 1), match=when(uri=StringMatch(prefix="/v1/chat")))
    first = compile_route(route("chat", split))
    assert first.rules[0].draw.pick([0, 1]) == 0
    second = compile_route(route("renamed", other, split, adapters=("lora",)), first)
    fresh, kept = second.rules
    assert kept.draw is first.rules[0].draw
    assert (kept.index, kept.draw.pick([0, 1])) == (1, 1)
    assert fresh.draw.pick([0, 1]) == 0


def test_a_rule_that_changed_begins_a_new_draw() -> None:
    first = compile_route(route("chat", rule(("a", 1), ("b", 1))))
    assert first.rules[0].draw.pick([0, 1]) == 0
    (changed,) = compile_route(route("chat", rule(("a", 2), ("b", 1))), first).rules
    assert changed.draw is not first.rules[0].draw
    assert changed.draw.weights == (2, 1)


def test_equal_rules_keep_a_draw_each() -> None:
    dead, split = rule(("a", 0)), rule(("a", 1), ("b", 1))
    first = compile_route(route("chat", dead, split, split))
    second = compile_route(route("chat", split, split, split), first)
    assert [one.draw for one in second.rules[:2]] == [one.draw for one in first.rules]
    assert len({id(one.draw) for one in second.rules}) == 3


def test_targets_may_repeat_a_server() -> None:
    target = Target(NamespacedName("default", "s"), 1)
    compiled = compile_route(Route(key("r"), "chat", (), (Rule("", None, (target, target)),)))
    assert compiled.rules[0].draw.weights == (1, 1)
