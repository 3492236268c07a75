"""A scheduling profile: which plugins run, with which weights."""

from collections.abc import Sequence
from dataclasses import dataclass

from kthena.router.endpoints import Endpoint
from kthena.router.scheduler.contract import Filter, Picker, SchedulingRequest, Scorer


@dataclass(frozen=True, slots=True)
class Profile:
    """Filters in order, scorers with their weights, and the picker."""

    filters: tuple[Filter, ...]
    scorers: tuple[tuple[Scorer, float], ...]
    picker: Picker

    def choose(self, request: SchedulingRequest, endpoints: Sequence[Endpoint]) -> Endpoint | None:
        """The endpoint for a request, or None when the filters leave none."""
        for plugin in self.filters:
            endpoints = plugin.keep(request, endpoints)
        if len(endpoints) < 2:
            return endpoints[0] if endpoints else None
        if len(self.scorers) == 1:
            return self.picker.pick(endpoints, self.scorers[0][0].score(request, endpoints))
        totals = [0.0] * len(endpoints)
        for scorer, weight in self.scorers:
            for index, score in enumerate(scorer.score(request, endpoints)):
                totals[index] += weight * score
        return self.picker.pick(endpoints, totals)
