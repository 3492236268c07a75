"""Where the next attempt of a request goes: a target of its rule, then endpoints of that target."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from kthena.machinery.objects import NamespacedName
from kthena.router.endpoints import Endpoint, LiveBackend
from kthena.router.routes.table import Match
from kthena.router.scheduler.contract import SchedulingRequest
from kthena.router.scheduler.pairs import Pair, choose_pair
from kthena.router.scheduler.profile import Profile


@dataclass(slots=True)
class Leg:
    """Where an attempt goes: an endpoint of a server, which with a pair is the decode side.

    `model` is what the engine is told instead of the client's model name; None leaves that alone.
    """

    backend: LiveBackend
    model: str | None
    endpoint: Endpoint
    pair: Pair | None = None


class Dispatched(Protocol):
    """What decides where a request goes: its rule, and what became of its attempts so far."""

    @property
    def model(self) -> str:
        """The model name that the client asked for."""
        ...

    @property
    def match(self) -> Match:
        """The rule that takes it."""
        ...

    @property
    def leg(self) -> Leg | None:
        """Where the latest attempt went."""
        ...

    @property
    def failed(self) -> AbstractSet[Endpoint]:
        """The endpoints that an attempt has failed on."""
        ...


class Dispatcher:
    """Chooses legs.

    Mutable state: `backends`, all servers, and those that can be asked; each attempt sees the latest.
    What the plugins of `profile` have learned is theirs.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.replace({})

    def replace(self, backends: Mapping[NamespacedName, LiveBackend]) -> None:
        """Choose among these from the next attempt on."""
        self.backends = backends
        self._available = {key: one for key, one in backends.items() if one.available}

    def schedule(self, call: Dispatched, now: float) -> Leg | None:
        """Choose where the next attempt goes, or None when nothing is left that has not failed.

        The plugins are told of the choice: whoever asks for a leg sends the request there.
        The first attempt draws a target by weight among those with something to ask. Further ones
        stay with its other endpoints while there are any, then go to the rule's other targets.
        """
        rule = call.match.rule
        if len(rule.targets) == 1:
            backend = self._available.get(rule.targets[0].server)
            return None if backend is None else self._choose(call, backend, now)
        if call.leg is not None:
            backend = self._available.get(call.leg.backend.server.key)
            leg = None if backend is None else self._choose(call, backend, now)
            if leg is not None:
                return leg
        eligible = {
            index: found
            for index, target in enumerate(rule.targets)
            if (found := self._available.get(target.server)) is not None
        }
        while eligible:
            drawn = rule.draw.pick(list(eligible))
            if drawn is None:
                break
            leg = self._choose(call, eligible.pop(drawn), now)
            if leg is not None:
                return leg
        return None

    def _choose(self, call: Dispatched, backend: LiveBackend, now: float) -> Leg | None:
        # A LoRA adapter goes by its own name everywhere.
        model = None if call.match.adapter else backend.server.model
        request = SchedulingRequest(call.model, model or call.model, now)
        if backend.server.disaggregated:
            pair = choose_pair(self.profile, request, backend.endpoints, call.failed)
            if pair is None:
                return None
            self.profile.chosen(request, pair.prefill)
            self.profile.chosen(request, pair.decode)
            return Leg(backend, model, pair.decode, pair)
        endpoints = backend.endpoints.endpoints
        if call.failed:
            endpoints = tuple(one for one in endpoints if one not in call.failed)
        endpoint = self.profile.choose(request, endpoints)
        if endpoint is None:
            return None
        self.profile.chosen(request, endpoint)
        return Leg(backend, model, endpoint)
