import pytest

from kthena.kube.backoff import Backoff, BackoffConfig


def test_delays_double_to_the_cap_and_start_over() -> None:
    backoff = Backoff(BackoffConfig(initial_s=1, cap_s=5), draw=lambda: 0.999999)

    assert [backoff.next() for _ in range(5)] == pytest.approx([1, 2, 4, 5, 5], rel=1e-3)
    backoff.reset()
    assert backoff.next() == pytest.approx(1, rel=1e-3)


def test_jitter_takes_away_at_most_half() -> None:
    backoff = Backoff(BackoffConfig(initial_s=1, cap_s=5), draw=lambda: 0.0)

    assert [backoff.next() for _ in range(4)] == [0.5, 1, 2, 2.5]


def test_a_thousand_failures_do_not_overflow() -> None:
    backoff = Backoff(BackoffConfig(), draw=lambda: 0.5)

    delays = [backoff.next() for _ in range(2000)]

    assert delays[-1] == 6.0
