"""Every field of a ModelServer and of a ModelRoute that acts: changing it alone changes what happens.

`tests/fields.yaml` names these tests. Each sends the same request through two planes that are equal
but for one field, and tells which engines were asked, under which model name, and what came back.
"""

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from kthena.machinery.objects import Object
from support.networking import PD_SELECTOR, Plane, model_route, model_server, pod, targets
from support.router_client import chat
from support.router_fleet import serving
from support.router_upstream import Turn, Upstream, answer

Outcome = tuple[int, list[str]]
"""The status, and `engine as model` for each request that reached an engine."""

ROUTE = {"modelName": "chat", "rules": targets("s")}


class Engines:
    """Engines `a` and `b` on one port of two addresses, and `c` on another port of the first."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.delay_s = 0.0
        self.a = Upstream(self._named("a"), "127.0.0.2")
        self.b = Upstream(self._named("b"), "127.0.0.3")
        self.c = Upstream(self._named("c"), "127.0.0.2")

    def _named(self, name: str) -> Any:
        async def behaviour(turn: Turn) -> None:
            self.asked.append(f"{name} as {turn.request.json['model']}")
            await asyncio.sleep(self.delay_s)
            await answer(turn)

        return behaviour

    async def outcome(
        self,
        route: dict[str, Any],
        server: dict[str, Any] | None = None,
        *,
        pods: list[Object] | None = None,
        body: dict[str, Any] | None = None,
        times: int = 1,
        **request: Any,
    ) -> Outcome:
        """What becomes of a request, of the last one with several.

        `server` is the spec of `s`, whose pods are labelled `app: s` and are on engine `a`; those of
        a second server `t` are on engine `b`.
        """
        self.asked.clear()
        port = {"workloadPort": {"port": self.a.port}}
        plane = Plane(
            [model_route("r", route)],
            [model_server("s", {**port, **(server or {})}), model_server("t", port)],
            pods or [self.pod("p", app="s"), self.pod("q", "b", app="t")],
        )
        async with (
            serving(plane.table, plane.backends.values()) as fleet,
            await fleet.connect() as client,
        ):
            statuses = []
            for _ in range(times):
                client.send(chat({"model": "chat", **(body or {})}, **request))
                statuses.append((await client.read_reply()).status)
        return statuses[-1], list(self.asked)

    def pod(self, name: str, engine: str = "a", **labels: str) -> Object:
        return pod(name, labels, ip={"a": "127.0.0.2", "b": "127.0.0.3"}[engine])


@pytest.fixture
async def engines() -> AsyncIterator[Engines]:
    found = Engines()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(found.a)
        found.b.port = found.a.port
        await stack.enter_async_context(found.b)
        await stack.enter_async_context(found.c)
        yield found


# ModelServer


async def test_inference_engine_decides_which_transfer_an_unset_connector_means(
    engines: Engines,
) -> None:
    """Between prefill and decode SGLang has one of its own, which is refused in this version."""
    pods = pd_pods(engines)
    server = {"workloadSelector": PD_SELECTOR}
    vllm = await engines.outcome(ROUTE, {**server, "inferenceEngine": "vLLM"}, pods=pods)
    sglang = await engines.outcome(ROUTE, {**server, "inferenceEngine": "SGLang"}, pods=pods)
    assert vllm == (200, ["a as chat", "b as chat"])
    assert sglang == (503, [])


async def test_model_is_the_name_that_engines_are_asked_for(engines: Engines) -> None:
    assert await engines.outcome(ROUTE, {"model": "base"}) == (200, ["a as base"])
    assert await engines.outcome(ROUTE, {"model": "other"}) == (200, ["a as other"])
    assert await engines.outcome(ROUTE) == (200, ["a as chat"])


async def test_timeout_bounds_the_wait_for_a_reply(engines: Engines) -> None:
    engines.delay_s = 0.15
    short, long = {"timeout": "50ms"}, {"timeout": "10s"}
    assert (await engines.outcome(ROUTE, {"trafficPolicy": short}))[0] == 504
    assert (await engines.outcome(ROUTE, {"trafficPolicy": long}))[0] == 200
    assert (await engines.outcome(ROUTE, {"trafficPolicy": {}}))[0] == 200


async def test_port_is_where_engines_are_asked(engines: Engines) -> None:
    for engine, name in ((engines.a, "a"), (engines.c, "c")):
        port = {"workloadPort": {"port": engine.port}}
        assert await engines.outcome(ROUTE, port) == (200, [f"{name} as chat"])


async def test_match_labels_say_whose_pods_are_asked(engines: Engines) -> None:
    for label, engine in (("s", "a"), ("t", "b")):
        selector = {"workloadSelector": {"matchLabels": {"app": label}}}
        assert await engines.outcome(ROUTE, selector) == (200, [f"{engine} as chat"])
    more = {"workloadSelector": {"matchLabels": {"app": "s", "tier": "gold"}}}
    assert await engines.outcome(ROUTE, more) == (503, [])


def pd_pods(engines: Engines) -> list[Object]:
    """One pod that has `role: prefill` and `stage: second`, and one with the reverse."""
    return [
        engines.pod("p", "a", app="pd", group="g", pair="1", role="prefill", stage="second"),
        engines.pod("d", "b", app="pd", group="g", pair="2", role="decode", stage="first"),
    ]


def pd_selector(**changed: Any) -> dict[str, Any]:
    selector = copy.deepcopy(PD_SELECTOR)
    selector["pdGroup"] = {**PD_SELECTOR["pdGroup"], **changed}  # type: ignore[dict-item]
    return {"workloadSelector": selector}


async def test_decode_labels_say_who_decodes(engines: Engines) -> None:
    pods = pd_pods(engines)
    assert await engines.outcome(ROUTE, pd_selector(), pods=pods) == (
        200,
        ["a as chat", "b as chat"],
    )
    nobody = pd_selector(decodeLabels={"role": "nobody"})
    assert await engines.outcome(ROUTE, nobody, pods=pods) == (503, [])


async def test_prefill_labels_say_who_computes_the_prompt(engines: Engines) -> None:
    pods = [*pd_pods(engines), engines.pod("x", "b", app="pd", group="g", role="spare")]
    assert (await engines.outcome(ROUTE, pd_selector(), pods=pods))[1][0] == "a as chat"
    spare = pd_selector(prefillLabels={"role": "spare"})
    assert (await engines.outcome(ROUTE, spare, pods=pods))[1][0] == "b as chat"


async def test_group_key_says_which_pods_are_paired(engines: Engines) -> None:
    pods = pd_pods(engines)
    assert (await engines.outcome(ROUTE, pd_selector(groupKey="group"), pods=pods))[0] == 200
    assert (await engines.outcome(ROUTE, pd_selector(groupKey="pair"), pods=pods))[0] == 503


# ModelRoute


async def test_model_name_is_what_clients_ask_for(engines: Engines) -> None:
    assert await engines.outcome(ROUTE) == (200, ["a as chat"])
    assert await engines.outcome({**ROUTE, "modelName": "other"}) == (404, [])


async def test_lora_adapters_are_served_under_their_own_names(engines: Engines) -> None:
    server, body = {"model": "base"}, {"model": "french"}
    with_adapter = {**ROUTE, "loraAdapters": ["french"]}
    assert await engines.outcome(ROUTE, server, body=body) == (404, [])
    assert await engines.outcome(with_adapter, server, body=body) == (200, ["a as french"])


async def taken(engines: Engines, condition: dict[str, Any], **request: Any) -> bool:
    """Whether a rule with this condition takes the request; `t` is behind it, `s` behind the next."""
    rules = [{"modelMatch": condition, **targets("t")[0]}, *targets("s")]
    status, asked = await engines.outcome({**ROUTE, "rules": rules}, **request)
    assert status == 200
    return asked == ["b as chat"]


async def test_the_model_of_a_rule_is_compared_with_that_of_the_body(engines: Engines) -> None:
    assert await taken(engines, {"body": {"model": "chat"}})
    assert not await taken(engines, {"body": {"model": "other"}})


async def test_the_exact_value_of_a_header_is_compared(engines: Engines) -> None:
    for wanted, expected in (("gold", True), ("gol", False), ("GOLD", False)):
        condition = {"headers": {"X-Tier": {"exact": wanted}}}
        assert await taken(engines, condition, x_tier="gold") is expected


async def test_the_prefix_of_a_header_is_compared(engines: Engines) -> None:
    for wanted, expected in (("go", True), ("old", False)):
        condition = {"headers": {"X-Tier": {"prefix": wanted}}}
        assert await taken(engines, condition, x_tier="gold") is expected


async def test_the_regex_of_a_header_is_searched(engines: Engines) -> None:
    for wanted, expected in (("o.d", True), ("^o", False)):
        condition = {"headers": {"X-Tier": {"regex": wanted}}}
        assert await taken(engines, condition, x_tier="gold") is expected


async def test_the_exact_path_is_compared(engines: Engines) -> None:
    for wanted, expected in (("/v1/completions", True), ("/v1/", False)):
        assert await taken(engines, {"uri": {"exact": wanted}}, path="/v1/completions") is expected


async def test_the_prefix_of_the_path_is_compared(engines: Engines) -> None:
    for wanted, expected in (("/v1/comp", True), ("/v1/chat", False)):
        assert await taken(engines, {"uri": {"prefix": wanted}}, path="/v1/completions") is expected


async def test_the_regex_of_the_path_is_searched(engines: Engines) -> None:
    for wanted, expected in (("completions$", True), ("^completions", False)):
        assert await taken(engines, {"uri": {"regex": wanted}}, path="/v1/completions") is expected


async def test_model_server_name_says_who_is_asked(engines: Engines) -> None:
    assert await engines.outcome({**ROUTE, "rules": targets("s")}) == (200, ["a as chat"])
    assert await engines.outcome({**ROUTE, "rules": targets("t")}) == (200, ["b as chat"])


async def test_weight_is_the_share_of_requests(engines: Engines) -> None:
    """Exactly, over any run of requests; a target of weight 0 gets none."""
    for weight, share in ((100, 6), (50, 4), (0, 0)):
        pair = [{"modelServerName": "s", "weight": 100}, {"modelServerName": "t", "weight": weight}]
        route = {**ROUTE, "rules": [{"targetModels": pair}]}
        _, asked = await engines.outcome(route, times=12)
        assert (len(asked), asked.count("b as chat")) == (12, share)
