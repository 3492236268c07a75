"""When a container that ended is started again: the kubelet's crash-loop back-off. Pure.

The first restart comes at once; then the container waits 10 s after its end, doubled by each
further end up to 5 minutes. A container that ran for 10 minutes starts over.
"""

from dataclasses import dataclass
from typing import Final

INITIAL_S: Final = 10.0
LIMIT_S: Final = 300.0
RESET_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class BackOff:
    """The delay that the next restart waits for; 0 before the first."""

    delay_s: float = 0.0

    def after_end(self, ran_s: float) -> "BackOff":
        """The back-off once the container has ended again, having run for `ran_s`."""
        if ran_s >= RESET_S:
            return BackOff()
        return self

    def after_restart(self) -> "BackOff":
        """The back-off of the restart that follows the one being made."""
        if not self.delay_s:
            return BackOff(INITIAL_S)
        return BackOff(min(self.delay_s * 2, LIMIT_S))


def format_delay(seconds: float) -> str:
    """The delay as Go prints it: `10s`, `2m40s`, `5m0s`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
