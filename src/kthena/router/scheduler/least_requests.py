"""least-request: prefer the endpoint that answers the fewest requests of this router.

The score depends on the endpoint's own count alone, so it means the same whatever else is in the
choice, and a count rises when a request is assigned: a burst spreads instead of piling up.
"""

from collections.abc import Sequence
from typing import Final

from kthena.router.endpoints import Endpoint
from kthena.router.scheduler.contract import SchedulingRequest


class LeastRequests:
    """Scores 1 for an endpoint without requests, 1/2 with one, 1/3 with two, and so on."""

    name: Final = "least-request"

    def score(self, request: SchedulingRequest, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        """See the class."""
        del request
        return [1.0 / (1 + endpoint.in_flight) for endpoint in endpoints]
