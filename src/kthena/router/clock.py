"""The time that the router needs; `kthena.kube.clock` has clocks that fit."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for stamps, monotonic time for intervals."""

    def now(self) -> datetime:
        """The wall time, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; the origin means nothing."""
        ...
