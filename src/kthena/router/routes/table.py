"""The route table: model name in, rule out.

Immutable and complete: a change of any route makes a new table, which the router puts in place with
one assignment. A request costs one dictionary look-up and the conditions of the routes found there.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from kthena.router.reasons import Reason
from kthena.router.routes.compile import CompiledRoute, CompiledRule, RequestView


@dataclass(frozen=True, slots=True)
class Match:
    """The rule that takes a request; `adapter` when the name asked for is that of a LoRA adapter."""

    route: CompiledRoute
    rule: CompiledRule
    adapter: bool


@dataclass(frozen=True, slots=True)
class NoMatch:
    """Nothing takes the request, and what the client is told."""

    reason: Reason
    message: str


class RouteTable:
    """Routes by the names that they answer to.

    `models` and `adapters` map a name to its routes in the order in which they are tried. A name
    that is a model is never looked up as an adapter.
    """

    def __init__(
        self,
        models: Mapping[str, tuple[CompiledRoute, ...]] | None = None,
        adapters: Mapping[str, tuple[CompiledRoute, ...]] | None = None,
    ) -> None:
        routes_of = {**(adapters or {}), **(models or {})}
        self._entries = {
            name: tuple(_entry(route, adapter=name not in (models or {})) for route in routes)
            for name, routes in routes_of.items()
        }
        self.names: tuple[str, ...] = tuple(
            sorted(
                name
                for name, entries in self._entries.items()
                if any(entry.refusal is None for entry in entries)
            )
        )
        """The names that are served, sorted."""
        self.models_page = msgspec.json.encode(
            {"object": "list", "data": [_model_object(name) for name in self.names]}
        )
        """The body of `GET /v1/models`."""

    def knows(self, name: str) -> bool:
        """Whether any route claims the name."""
        return name in self._entries

    def model_page(self, name: str) -> bytes | None:
        """The body of `GET /v1/models/{name}`, or None for a name that is not served."""
        if name not in self.names:
            return None
        return msgspec.json.encode(_model_object(name))

    def match(self, view: RequestView) -> Match | NoMatch:
        """The first rule, of the first route, whose conditions hold."""
        entries = self._entries.get(view.model)
        if entries is None:
            return NoMatch(Reason.ROUTE_NOT_FOUND, f"the model `{view.model}` does not exist")
        for entry in entries:
            if entry.refusal is not None:
                return NoMatch(Reason.NOT_SUPPORTED, entry.refusal)
            for match in entry.matches:
                if match.rule.matches(view):
                    return match
        keys = ", ".join(entry.label for entry in entries)
        return NoMatch(
            Reason.ROUTE_NOT_FOUND,
            f"no rule of ModelRoute {keys} for the model `{view.model}` takes this request",
        )


@dataclass(frozen=True, slots=True)
class _Entry:
    """A route under one of its names, with the match of each rule made beforehand."""

    label: str
    refusal: str | None
    matches: tuple[Match, ...]


def _entry(route: CompiledRoute, *, adapter: bool) -> _Entry:
    matches = tuple(Match(route, rule, adapter) for rule in route.rules)
    return _Entry(route.label, route.route.refusal, matches)


def _model_object(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "kthena"}
