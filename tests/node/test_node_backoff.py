import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.local.node.backoff import BackOff, format_delay


def test_the_first_restart_comes_at_once_then_ten_seconds_doubled_to_five_minutes() -> None:
    back_off = BackOff()
    delays = []
    for _ in range(8):
        back_off = back_off.after_end(1)
        delays.append(back_off.delay_s)
        back_off = back_off.after_restart()

    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_long_run_starts_over() -> None:
    back_off = BackOff(160)
    assert back_off.after_end(599.9).delay_s == 160
    assert back_off.after_end(600).delay_s == 0


@given(st.lists(st.floats(min_value=0, max_value=599), max_size=30))
def test_delays_never_shrink_while_runs_are_short(runs: list[float]) -> None:
    back_off = BackOff()
    seen = []
    for ran in runs:
        back_off = back_off.after_end(ran).after_restart()
        seen.append(back_off.delay_s)
    assert seen == sorted(seen)
    assert all(delay <= 300 for delay in seen)


@pytest.mark.parametrize(
    ("seconds", "text"), [(10, "10s"), (80, "1m20s"), (160, "2m40s"), (300, "5m0s")]
)
def test_delays_are_printed_as_go_prints_them(seconds: float, text: str) -> None:
    assert format_delay(seconds) == text
