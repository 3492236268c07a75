"""The contract of scheduling plugins. Plugins know nothing of each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from kthena.router.endpoints import Endpoint


@dataclass(slots=True)
class SchedulingRequest:
    """What plugins may know of a request.

    `model` is the name that the client asked for, `upstream_model` the one that the engine will
    see. `now` is monotonic time in seconds.
    """

    model: str
    upstream_model: str
    now: float


class Filter(Protocol):
    """Takes endpoints out of the choice."""

    @property
    def name(self) -> str:
        """The name in configuration, metrics and explanations."""
        ...

    def keep(self, request: SchedulingRequest, endpoints: Sequence[Endpoint]) -> Sequence[Endpoint]:
        """The endpoints that stay, in the order given; none means that nothing can be chosen."""
        ...


class Scorer(Protocol):
    """Says how good each endpoint is."""

    @property
    def name(self) -> str:
        """The name in configuration, metrics and explanations."""
        ...

    def score(self, request: SchedulingRequest, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        """A score in [0, 1] for each endpoint, in the order given; more is better.

        What is not known of an endpoint must not count for or against it.
        """
        ...


@runtime_checkable
class Learns(Protocol):
    """What a filter or scorer hears of the endpoints that were chosen.

    A plugin that wants to know derives from this and overrides what it needs; each default does
    nothing.
    """

    def chosen(self, request: SchedulingRequest, endpoint: Endpoint) -> None:
        """An attempt of the request goes to the endpoint; with a pair, each of the two is told."""
        del request, endpoint

    def answered(self, endpoint: Endpoint, seconds: float) -> None:
        """It sent the head of a reply, of any status, so long after the request left."""
        del endpoint, seconds

    def refused(self, endpoint: Endpoint, now: float) -> None:
        """It took no connection; `now` is monotonic."""
        del endpoint, now


class Picker(Protocol):
    """Chooses by the weighted sums of scores."""

    def pick(self, endpoints: Sequence[Endpoint], scores: Sequence[float]) -> Endpoint:
        """One of the endpoints, of which there is at least one."""
        ...
