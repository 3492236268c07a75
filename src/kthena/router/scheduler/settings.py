"""What a configuration says of scheduling: which plugins run, with which weights and arguments."""

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class FilterConfig:
    """A filter plugin, and its arguments as its own parser made them."""

    name: str
    arguments: Any = None


@dataclass(frozen=True, slots=True)
class ScorerConfig:
    """A score plugin, the weight of its scores, and its arguments as its own parser made them."""

    name: str
    weight: float
    arguments: Any = None


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """The plugins that run: filters in this order, then scorers."""

    filters: tuple[FilterConfig, ...] = ()
    scorers: tuple[ScorerConfig, ...] = ()


DEFAULT_SCHEDULER: Final = SchedulerConfig(scorers=(ScorerConfig("least-request", 1.0),))
"""What runs where a configuration does not speak of plugins."""


class ArgumentError(ValueError):
    """An argument of a plugin that cannot be followed: which one, and why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name
        self.why = why
