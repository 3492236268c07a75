"""A token bucket: how often something may happen. Pure; the caller has the clock."""


class TokenBucket:
    """`rate` tokens per second, at most `burst` of them saved up; a rate of 0 is no limit.

    Tokens are handed out in advance: `reserve` takes one and says how long to wait for it, so
    callers that wait are served in the order in which they came.

    Mutable state: the tokens (negative while callers wait) at the time of the last call.
    """

    def __init__(self, rate: float, burst: int) -> None:
        if rate < 0 or burst < 1:
            raise ValueError(f"rate {rate:g} must not be negative, and burst {burst} at least 1")
        self._rate = rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at: float | None = None

    def reserve(self, now: float) -> float:
        """Take a token and return the seconds until it may be used; 0 when at once."""
        if self._rate == 0:
            return 0.0
        self._refill(now)
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    def try_take(self, now: float) -> bool:
        """Take a token if there is one."""
        if self._rate == 0:
            return True
        self._refill(now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _refill(self, now: float) -> None:
        if self._at is not None:
            gained = max(0.0, now - self._at) * self._rate
            self._tokens = min(self._burst, self._tokens + gained)
        self._at = now
