"""Which plugins a configuration names, and the profile that they make."""

from collections.abc import Callable, Sequence
from typing import Final

from kthena.router.config import ScorerConfig
from kthena.router.scheduler.best_score import BestScore
from kthena.router.scheduler.contract import Scorer
from kthena.router.scheduler.least_requests import LeastRequests
from kthena.router.scheduler.profile import Profile
from kthena.router.scheduler.reachable import Reachable

_SCORERS: Final[dict[str, Callable[[], Scorer]]] = {LeastRequests.name: LeastRequests}


def build_profile(
    scorers: Sequence[ScorerConfig], reachable: Reachable, draw: Callable[[], float]
) -> Profile:
    """The profile of a configuration, whose names are already checked."""
    return Profile(
        (reachable,),
        tuple((_SCORERS[config.name](), config.weight) for config in scorers if config.weight),
        BestScore(draw),
    )
