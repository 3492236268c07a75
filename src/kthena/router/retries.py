"""When a failed attempt is followed by another one.

Only before the first byte has reached the client, only on another endpoint, and within a budget that
keeps retries from adding up to a storm. What an engine says on purpose is passed on: 4xx is the
client's, 429 and a 503 with `Retry-After` ask for less traffic, which a retry would not be.
"""

from collections import deque
from typing import Final

from kthena.router.proxy.upstream import Exchange

MAX_FURTHER_ENDPOINTS: Final = 2
_RETRIED_STATUSES: Final = frozenset({502, 503, 504})
_WINDOW_S: Final = 10
_MIN_BUDGET: Final = 10
_BUDGET_SHARE: Final = 0.2


def is_retried(exchange: Exchange) -> bool:
    """Whether this answer says no more than that the endpoint cannot answer now."""
    return exchange.status in _RETRIED_STATUSES and exchange.header(b"retry-after") is None


class RetryBudget:
    """At most max(10, 20 % of the requests) retries in any ten seconds.

    Mutable state: requests and retries of each second of the window, and their sums.
    """

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque()
        self._requests = 0
        self._retries = 0

    def count_request(self, now: float) -> None:
        """A request came in; `now` is monotonic."""
        self._requests += 1
        if self._seconds and self._seconds[-1][0] == int(now):
            self._seconds[-1][1] += 1
        else:
            self._second(now)[1] += 1

    def take(self, now: float) -> bool:
        """Count a retry and allow it, or neither."""
        second = self._second(now)
        if self._retries >= max(_MIN_BUDGET, _BUDGET_SHARE * self._requests):
            return False
        second[2] += 1
        self._retries += 1
        return True

    def _second(self, now: float) -> list[int]:
        moment = int(now)
        seconds = self._seconds
        if not seconds or seconds[-1][0] != moment:
            seconds.append([moment, 0, 0])
            while seconds[0][0] <= moment - _WINDOW_S:
                _, requests, retries = seconds.popleft()
                self._requests -= requests
                self._retries -= retries
        return seconds[-1]
