from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.conditions import (
    Condition,
    find_condition,
    format_micro_time,
    format_time,
    is_true,
    parse_time,
    remove_condition,
    set_condition,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)


def test_a_new_condition_goes_to_the_end_with_the_time_of_now() -> None:
    conditions = set_condition([], Condition("Ready", "False", "Waiting", "for pods", 3), NOW)
    conditions = set_condition(conditions, Condition("Stalled", "False", "Fine"), LATER)
    assert conditions == [
        {
            "type": "Ready",
            "status": "False",
            "reason": "Waiting",
            "message": "for pods",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "observedGeneration": 3,
        },
        {
            "type": "Stalled",
            "status": "False",
            "reason": "Fine",
            "message": "",
            "lastTransitionTime": "2026-01-02T03:09:05Z",
        },
    ]


def test_the_transition_time_moves_with_the_status_only() -> None:
    first = set_condition([], Condition("Ready", "False", "A", "a", 1), NOW)
    same = set_condition(first, Condition("Ready", "False", "B", "b", 2), LATER)
    assert same[0]["lastTransitionTime"] == first[0]["lastTransitionTime"]
    assert (same[0]["reason"], same[0]["message"], same[0]["observedGeneration"]) == ("B", "b", 2)
    changed = set_condition(same, Condition("Ready", "True", "B", "b", 2), LATER)
    assert changed[0]["lastTransitionTime"] == format_time(LATER)


def test_setting_what_is_there_gives_an_equal_list_in_the_same_order() -> None:
    ready = Condition("Ready", "True", "A", "a", 1)
    conditions = set_condition([], ready, NOW)
    conditions = set_condition(conditions, Condition("Stalled", "False", "B"), NOW)
    assert set_condition(conditions, ready, LATER) == conditions


def test_the_input_is_not_changed_and_unknown_fields_stay() -> None:
    old = [{"type": "Ready", "status": "True", "lastTransitionTime": "x", "extra": 1}]
    snapshot = [dict(old[0])]
    new = set_condition(old, Condition("Ready", "False", "A"), NOW)
    assert old == snapshot
    assert new[0]["extra"] == 1


def test_an_old_condition_without_a_time_gets_one() -> None:
    old = [{"type": "Ready", "status": "True"}]
    new = set_condition(old, Condition("Ready", "True", "A"), NOW)
    assert new[0]["lastTransitionTime"] == format_time(NOW)


def test_finding_asking_and_removing() -> None:
    conditions = set_condition([], Condition("Ready", "True", "A"), NOW)
    assert is_true(conditions, "Ready")
    assert not is_true(conditions, "Stalled")
    assert find_condition(conditions, "Stalled") is None
    assert remove_condition(conditions, "Ready") == []


def test_times_are_written_in_utc_without_fractions() -> None:
    assert format_time(NOW.astimezone(timezone(timedelta(hours=2)))) == "2026-01-02T03:04:05Z"
    assert format_micro_time(NOW) == "2026-01-02T03:04:05.678901Z"
    assert format_time(datetime(1, 1, 1, tzinfo=UTC)) == "0001-01-01T00:00:00Z"
    with pytest.raises(ValueError, match="no time zone"):
        format_time(NOW.replace(tzinfo=None))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-02T03:04:05Z", NOW.replace(microsecond=0)),
        ("2026-01-02T05:04:05+02:00", NOW.replace(microsecond=0)),
        ("2026-01-01T19:34:05-07:30", NOW.replace(microsecond=0)),
        ("2026-01-02T03:04:05.678901234Z", NOW),
        ("2026-01-02T03:04:05.5Z", NOW.replace(microsecond=500_000)),
    ],
)
def test_times_are_read_with_offsets_and_fractions(text: str, moment: datetime) -> None:
    assert parse_time(text) == moment


@pytest.mark.parametrize(
    "text",
    [
        *("", "2026-01-02", "2026-01-02 03:04:05Z", "2026-13-02T03:04:05Z", "2026-01-02T03:04:05"),
        *("2026-01-02T03:04:05+99:00", "0001-01-01T00:00:00+01:00", "2026-02-30T00:00:00Z", 5),
    ],
)
def test_other_texts_are_no_times(text: object) -> None:
    with pytest.raises(ValueError, match="no RFC 3339 time"):
        parse_time(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_written_time_reads_back(moment: datetime) -> None:
    assert parse_time(format_micro_time(moment)) == moment
    assert parse_time(format_time(moment)) == moment.replace(microsecond=0)
