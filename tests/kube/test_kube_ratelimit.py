import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kthena.kube.ratelimit import TokenBucket


def test_a_burst_is_free_and_then_callers_queue() -> None:
    bucket = TokenBucket(rate=10, burst=3)

    waits = [bucket.reserve(now=0.0) for _ in range(6)]

    assert waits == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])


def test_saved_tokens_are_bounded_by_the_burst() -> None:
    bucket = TokenBucket(rate=10, burst=2)
    bucket.reserve(0.0)

    assert [bucket.reserve(1000.0) for _ in range(3)] == pytest.approx([0, 0, 0.1])


def test_rate_zero_is_no_limit() -> None:
    bucket = TokenBucket(rate=0, burst=1)

    assert all(bucket.reserve(0.0) == 0 for _ in range(100))
    assert all(bucket.try_take(0.0) for _ in range(100))


def test_try_take_takes_nothing_when_there_is_none() -> None:
    bucket = TokenBucket(rate=1, burst=1)

    assert bucket.try_take(0.0)
    assert not bucket.try_take(0.5)
    assert bucket.try_take(1.0)


@pytest.mark.parametrize(("rate", "burst"), [(-1.0, 1), (1.0, 0)])
def test_senseless_limits_are_refused(rate: float, burst: int) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        TokenBucket(rate, burst)


@settings(deadline=None)
@given(
    rate=st.floats(0.5, 100),
    burst=st.integers(1, 20),
    gaps=st.lists(st.floats(0, 2), max_size=60),
)
def test_no_window_has_more_than_its_share(rate: float, burst: int, gaps: list[float]) -> None:
    bucket = TokenBucket(rate, burst)
    now, used = 0.0, []
    for gap in gaps:
        now += gap
        used.append(now + bucket.reserve(now))

    assert used == sorted(used)
    for first, start in enumerate(used):
        for last in range(first, len(used)):
            allowed = burst + rate * (used[last] - start) + 1e-6
            assert last - first + 1 <= allowed
