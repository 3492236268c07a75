"""The plugins that a configuration may name, and the profile that a configuration makes.

A plugin is a module and a row of `PLUGINS`. What the row says is all that the reader of
configurations and the scheduler know of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from kthena.router.scheduler.best_score import BestScore
from kthena.router.scheduler.contract import Filter, Scorer
from kthena.router.scheduler.least_requests import LeastRequests
from kthena.router.scheduler.profile import Profile
from kthena.router.scheduler.reachable import Reachable
from kthena.router.scheduler.settings import SchedulerConfig

Arguments = TypeVar("Arguments")
Draw = Callable[[], float]
"""Uniform in [0, 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin(Generic[Arguments]):
    """What a plugin is: a filter, a scorer, or one of each under one name and with one set of arguments.

    `filter` and `score` make it from its arguments; the kind that is None does not exist. `parse`
    reads the arguments, which may be empty, and raises `ArgumentError`; without it there are none,
    and what is made gets None.
    """

    filter: Callable[[Arguments, Draw], Filter] | None = None
    score: Callable[[Arguments, Draw], Scorer] | None = None
    parse: Callable[[Mapping[str, Any]], Arguments] | None = None


Plugins = Mapping[str, Plugin[Any]]

PLUGINS: Final[Plugins] = {
    LeastRequests.name: Plugin(score=lambda _arguments, _draw: LeastRequests()),
}


def build_profile(config: SchedulerConfig, draw: Draw, plugins: Plugins = PLUGINS) -> Profile:
    """The profile of a configuration, whose names are already checked against `plugins`.

    Endpoints that have just refused a connection are avoided whatever it names. A scorer of weight 0
    does not run.
    """
    filters: list[Filter] = [Reachable()]
    for filtering in config.filters:
        make_filter = plugins[filtering.name].filter
        if make_filter is None:
            raise ValueError(f"{filtering.name!r} is no filter plugin")
        filters.append(make_filter(filtering.arguments, draw))
    scorers: list[tuple[Scorer, float]] = []
    for scoring in config.scorers:
        make_scorer = plugins[scoring.name].score
        if make_scorer is None:
            raise ValueError(f"{scoring.name!r} is no score plugin")
        if scoring.weight:
            scorers.append((make_scorer(scoring.arguments, draw), scoring.weight))
    return Profile(filters, scorers, BestScore(draw))
