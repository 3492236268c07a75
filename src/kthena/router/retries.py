"""When a failed attempt is followed by another one.

Only before the first byte has reached the client, only on another endpoint, and within a budget that
keeps retries from adding up to a storm. What an engine says on purpose is passed on: 4xx is the
client's, 429 and a 503 with `Retry-After` ask for less traffic, which a retry would not be.

`next_attempt` decides from what one attempt came to; whoever forwards then finds an endpoint that has
not failed, takes from the budget, and sends.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kthena.router.proxy.errors import UpstreamError, UpstreamProtocolError, UpstreamTimeoutError
from kthena.router.proxy.framing import Header
from kthena.router.proxy.headers import first_value
from kthena.router.proxy.reply_head import ReplyHead

Outcome = ReplyHead | UpstreamError
"""What an attempt came to: the head of a reply, or why there is none."""

_RETRIED_STATUSES: Final = frozenset({502, 503, 504})
_FINAL_ERRORS: Final = (UpstreamTimeoutError, UpstreamProtocolError)
"""No time is left for a further attempt, or the engine has answered, if only nonsense."""

_WINDOW_S: Final = 10
_MIN_BUDGET: Final = 10
_BUDGET_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What a request may cost: how many attempts may follow its first one."""

    further_attempts: int = 2


class Retry(NamedTuple):
    """A further attempt is due; `reason` is why, in a word for metrics."""

    reason: str


def next_attempt(outcome: Outcome, attempts: int, policy: RetryPolicy) -> Retry | None:
    """What follows after `attempts` attempts, the last of which came to `outcome`.

    None means that the outcome is the client's answer.
    """
    if isinstance(outcome, ReplyHead):
        if not is_retried(outcome.status, outcome.known):
            return None
        reason = str(outcome.status)
    elif isinstance(outcome, _FINAL_ERRORS):
        return None
    else:
        reason = outcome.word
    return Retry(reason) if attempts <= policy.further_attempts else None


def is_retried(status: int, headers: Iterable[Header]) -> bool:
    """Whether this answer says no more than that the endpoint cannot answer now."""
    return status in _RETRIED_STATUSES and first_value(headers, b"retry-after") is None


class RetryBudget:
    """At most max(10, 20 % of the requests) retries in any ten seconds.

    Mutable state: requests and retries of each second of the window, and their sums.
    """

    def __init__(self) -> None:
        self._latest = [-1, 0, 0]
        self._seconds: deque[list[int]] = deque()
        self._requests = 0
        self._retries = 0

    def count_request(self, now: float) -> None:
        """A request came in; `now` is monotonic."""
        self._requests += 1
        if int(now) == self._latest[0]:
            self._latest[1] += 1
        else:
            self._second(now)[1] += 1

    def allows(self, now: float) -> bool:
        """Whether a retry is left."""
        self._second(now)
        return self._retries < max(_MIN_BUDGET, _BUDGET_SHARE * self._requests)

    def take(self, now: float) -> bool:
        """Count a retry and allow it, or neither."""
        if not self.allows(now):
            return False
        self._second(now)[2] += 1
        self._retries += 1
        return True

    def _second(self, now: float) -> list[int]:
        moment = int(now)
        seconds = self._seconds
        if self._latest[0] != moment:
            self._latest = [moment, 0, 0]
            seconds.append(self._latest)
            while seconds[0][0] <= moment - _WINDOW_S:
                _, requests, retries = seconds.popleft()
                self._requests -= requests
                self._retries -= retries
        return self._latest
