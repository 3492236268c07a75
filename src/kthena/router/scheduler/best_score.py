"""best-score: the endpoint with the highest sum of scores, drawn among equals."""

from collections.abc import Callable, Sequence

from kthena.router.endpoints import Endpoint


class BestScore:
    """Picks the maximum.

    `draw` (uniform in [0, 1)) decides between equal ones, so that routers and idle endpoints do not
    all start with the first.
    """

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw

    def pick(self, endpoints: Sequence[Endpoint], scores: Sequence[float]) -> Endpoint:
        """See the class."""
        best = max(scores)
        equals = scores.count(best)
        drawn = int(self._draw() * equals)
        if equals == len(scores):
            return endpoints[drawn]
        place = -1
        for _ in range(drawn + 1):
            place = scores.index(best, place + 1)
        return endpoints[place]
