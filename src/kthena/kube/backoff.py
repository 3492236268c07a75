"""Exponential back-off with jitter. Pure: randomness is passed in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Draw: TypeAlias = Callable[[], float]
"""A random number of [0, 1), as `random.random`."""


@dataclass(frozen=True, slots=True)
class BackoffConfig:
    """The first delay, the largest one, and the factor between two of them."""

    initial_s: float = 0.5
    cap_s: float = 8.0
    factor: float = 2.0


class Backoff:
    """Delays that grow until `reset`. Each is between half of the nominal delay and all of it.

    Mutable state: how many delays there were since the reset.
    """

    def __init__(self, config: BackoffConfig, draw: Draw) -> None:
        self._config = config
        self._draw = draw
        self._count = 0

    def next(self) -> float:
        """The seconds to wait."""
        config = self._config
        # The exponent is bounded: a large one overflows long after the cap is reached.
        nominal = config.initial_s * config.factor ** min(self._count, 64)
        self._count += 1
        return min(config.cap_s, nominal) * (0.5 + self._draw() / 2)

    def reset(self) -> None:
        """Start over with the first delay."""
        self._count = 0
