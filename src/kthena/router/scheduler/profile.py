"""A scheduling profile: which plugins run, with which weights."""

from collections.abc import Iterable, Sequence

from kthena.router.endpoints import Endpoint
from kthena.router.scheduler.contract import Filter, Learns, Picker, SchedulingRequest, Scorer


class Profile:
    """Filters in order, scorers with their weights, and the picker; immutable itself.

    What becomes of a choice is told to every plugin that learns (`Learns`).
    """

    __slots__ = ("_filters", "_on_answered", "_on_chosen", "_on_refused", "_picker", "_scorers")

    def __init__(
        self, filters: Iterable[Filter], scorers: Iterable[tuple[Scorer, float]], picker: Picker
    ) -> None:
        self._filters = tuple(filters)
        self._scorers = tuple(scorers)
        self._picker = picker
        plugins = (*self._filters, *(scorer for scorer, _ in self._scorers))
        learners = [plugin for plugin in plugins if isinstance(plugin, Learns)]
        # Every request passes here: only plugins that override an event are called for it.
        self._on_chosen = tuple(
            each.chosen for each in learners if type(each).chosen is not Learns.chosen
        )
        self._on_answered = tuple(
            each.answered for each in learners if type(each).answered is not Learns.answered
        )
        self._on_refused = tuple(
            each.refused for each in learners if type(each).refused is not Learns.refused
        )

    def choose(self, request: SchedulingRequest, endpoints: Sequence[Endpoint]) -> Endpoint | None:
        """The endpoint for a request, or None when the filters leave none."""
        for plugin in self._filters:
            endpoints = plugin.keep(request, endpoints)
        if len(endpoints) < 2:
            return endpoints[0] if endpoints else None
        if len(self._scorers) == 1:
            return self._picker.pick(endpoints, self._scorers[0][0].score(request, endpoints))
        totals = [0.0] * len(endpoints)
        for scorer, weight in self._scorers:
            for index, score in enumerate(scorer.score(request, endpoints)):
                totals[index] += weight * score
        return self._picker.pick(endpoints, totals)

    def chosen(self, request: SchedulingRequest, endpoint: Endpoint) -> None:
        """See `Learns`."""
        for tell in self._on_chosen:
            tell(request, endpoint)

    def answered(self, endpoint: Endpoint, seconds: float) -> None:
        """See `Learns`."""
        for tell in self._on_answered:
            tell(endpoint, seconds)

    def refused(self, endpoint: Endpoint, now: float) -> None:
        """See `Learns`."""
        for tell in self._on_refused:
            tell(endpoint, now)
