"""reachable: avoid endpoints that have just refused a connection.

A pod that dies is ready in the API for seconds more, and an endpoint that fails fast has the fewest
requests in flight: without this filter it would attract everything. When all are avoided all are
kept, since trying is then better than refusing.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kthena.router.endpoints import Endpoint
from kthena.router.scheduler.contract import Learns, SchedulingRequest

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0


class Pause(NamedTuple):
    """Until when an endpoint is avoided (monotonic seconds), and how long that is."""

    until: float
    seconds: float


class Reachable(Learns):
    """Keeps endpoints whose pause after a refused connection is over.

    Mutable state: the pauses of endpoints that have not answered since they refused.
    """

    name: Final = "reachable"

    def __init__(self) -> None:
        self._pauses: dict[Endpoint, Pause] = {}

    def keep(self, request: SchedulingRequest, endpoints: Sequence[Endpoint]) -> Sequence[Endpoint]:
        """See the class."""
        if not self._pauses:
            return endpoints
        kept = [one for one in endpoints if not self._is_avoided(one, request.now)]
        return kept or endpoints

    def refused(self, endpoint: Endpoint, now: float) -> None:
        """Avoid it for a second, then twice as long each time, up to half a minute."""
        before = self._pauses.get(endpoint)
        seconds = _FIRST_PAUSE_S
        if before is not None:
            seconds = min(before.seconds * 2, _LONGEST_PAUSE_S)
        # An endpoint that was removed is never asked again and would stay for ever.
        for other, pause in list(self._pauses.items()):
            if now > pause.until + _LONGEST_PAUSE_S:
                del self._pauses[other]
        self._pauses[endpoint] = Pause(now + seconds, seconds)

    def answered(self, endpoint: Endpoint, seconds: float) -> None:
        """Whatever was wrong is over."""
        del seconds
        if self._pauses:
            self._pauses.pop(endpoint, None)

    def _is_avoided(self, endpoint: Endpoint, now: float) -> bool:
        pause = self._pauses.get(endpoint)
        return pause is not None and now < pause.until
