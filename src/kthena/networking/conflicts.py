"""Which route answers for which name.

A name belongs to its oldest claimant (ties by namespace and name), whatever order events came in. A
`modelName` goes before a LoRA adapter of the same name. Within the owner's namespace, younger routes
get what the older ones' rules let pass, as with Kthena; once a route takes everything, or in another
namespace, a claim is lost, so that nobody gets traffic that is not theirs. Deleting the owner
promotes the next.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kthena.machinery.objects import NamespacedName
from kthena.networking.translate import ObservedRoute


@dataclass(frozen=True, slots=True)
class Loss:
    """A name that a route claims and does not get."""

    name: str
    adapter: bool
    owner: NamespacedName

    def __str__(self) -> str:
        what = "adapter" if self.adapter else "model"
        return f"the {what} {self.name!r} belongs to ModelRoute {self.owner}"


@dataclass(frozen=True, slots=True)
class Resolution:
    """Names to routes, in the order in which they are tried.

    `losses` are the claims that each route lost, `behind` the routes that go before it for a name.
    """

    models: Mapping[str, tuple[ObservedRoute, ...]]
    adapters: Mapping[str, tuple[ObservedRoute, ...]]
    losses: Mapping[NamespacedName, tuple[Loss, ...]]
    behind: Mapping[NamespacedName, tuple[NamespacedName, ...]]


def resolve(routes: Iterable[ObservedRoute]) -> Resolution:
    """Settle who answers for what. The result does not depend on the order of `routes`."""
    models: dict[str, list[ObservedRoute]] = {}
    adapters: dict[str, list[ObservedRoute]] = {}
    for route in sorted(routes, key=_age):
        if route.route.model_name:
            models.setdefault(route.route.model_name, []).append(route)
        for adapter in route.route.adapters:
            adapters.setdefault(adapter, []).append(route)
    losses: dict[NamespacedName, list[Loss]] = {}
    kept_models = {
        name: _settle(name, claims, losses, adapter=False) for name, claims in models.items()
    }
    kept_adapters = {}
    for name, claims in adapters.items():
        owners = kept_models.get(name)
        if owners is None:
            kept_adapters[name] = _settle(name, claims, losses, adapter=True)
            continue
        for route in claims:
            if route not in owners:
                losses.setdefault(route.key, []).append(
                    Loss(name, adapter=True, owner=owners[0].key)
                )
    behind: dict[NamespacedName, dict[NamespacedName, None]] = {}
    for order in (*kept_models.values(), *kept_adapters.values()):
        for place, route in enumerate(order[1:], 1):
            before = behind.setdefault(route.key, {})
            before.update(dict.fromkeys(earlier.key for earlier in order[:place]))
    return Resolution(
        kept_models,
        kept_adapters,
        {key: tuple(lost) for key, lost in losses.items()},
        {key: tuple(before) for key, before in behind.items()},
    )


def _age(route: ObservedRoute) -> tuple[bool, str, NamespacedName]:
    """Oldest first; a route without a timestamp counts as the youngest."""
    return (not route.created, route.created, route.key)


def _settle(
    name: str,
    claims: list[ObservedRoute],
    losses: dict[NamespacedName, list[Loss]],
    *,
    adapter: bool,
) -> tuple[ObservedRoute, ...]:
    """The routes that answer for the name; the others' losses are noted."""
    kept: list[ObservedRoute] = []
    for route in claims:
        if not kept or (
            route.key.namespace == kept[0].key.namespace and not kept[-1].compiled.takes_everything
        ):
            kept.append(route)
        else:
            losses.setdefault(route.key, []).append(Loss(name, adapter, kept[0].key))
    return tuple(kept)
