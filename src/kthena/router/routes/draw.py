"""Weighted choice with exact shares.

Smooth weighted round robin, as nginx does it: each draw adds every eligible target's weight to its
credit and takes the target with most credit, which pays the sum. Over any run of draws with the same
eligible targets each share is exact to within one request, without randomness.
"""

from collections.abc import Sequence


class SmoothDraw:
    """Draws among targets of given weights; a weight of 0 is never drawn.

    Mutable state: the credit of each target. It survives as long as its rule does not change.
    """

    __slots__ = ("_credits", "weights")

    def __init__(self, weights: Sequence[int]) -> None:
        self.weights = tuple(weights)
        self._credits = [0] * len(self.weights)

    def pick(self, eligible: Sequence[int]) -> int | None:
        """One of the eligible targets (by index), or None if none of them has a weight."""
        chosen: int | None = None
        total = 0
        for index in eligible:
            weight = self.weights[index]
            if weight <= 0:
                continue
            total += weight
            self._credits[index] += weight
            if chosen is None or self._credits[index] > self._credits[chosen]:
                chosen = index
        if chosen is not None:
            self._credits[chosen] -= total
        return chosen
