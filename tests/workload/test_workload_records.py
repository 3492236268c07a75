from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.workload.identity import InstanceKey
from kthena.workload.records import (
    Forming,
    Recoveries,
    SlotRecord,
    format_ordinals,
    format_recoveries,
    parse_ordinals,
    parse_recoveries,
)

ORDINALS = st.frozensets(st.integers(0, 60))
KEYS = st.builds(
    InstanceKey, st.integers(0, 9), st.sampled_from(["decode", "pre-1"]), st.integers(0, 9)
)
TIMES = st.datetimes(
    datetime(2000, 1, 1),  # noqa: DTZ001 - hypothesis wants bounds without a zone
    datetime(2100, 1, 1),  # noqa: DTZ001 - as above
    timezones=st.just(UTC),
).map(lambda moment: moment.replace(microsecond=0))


@pytest.mark.parametrize(
    ("ordinals", "text"),
    [([], ""), ([0], "0"), ([2, 0, 1], "0-2"), ([0, 1, 3, 7, 8, 9], "0-1,3,7-9")],
)
def test_ordinals_are_written_as_sorted_ranges(ordinals: list[int], text: str) -> None:
    assert format_ordinals(ordinals) == text


@given(ORDINALS)
def test_ordinals_are_read_back(ordinals: frozenset[int]) -> None:
    assert parse_ordinals(format_ordinals(ordinals)) == ordinals


@pytest.mark.parametrize("text", ["x", "3-1", "-1", "0-99999999", "1,,2", "1-"])
def test_a_text_that_is_no_ordinals_is_refused_or_harmless(text: str) -> None:
    if text == "1-":
        assert parse_ordinals(text) == {1}
        return
    with pytest.raises(ValueError):  # noqa: PT011 - int() has its own texts
        parse_ordinals(text)


@given(
    ORDINALS, ORDINALS, st.frozensets(KEYS), st.dictionaries(st.text(max_size=5), st.integers(0, 9))
)
def test_a_record_is_read_back(
    groups: frozenset[int],
    forming: frozenset[int],
    instances: frozenset[InstanceKey],
    replicas: dict[str, int],
) -> None:
    record = SlotRecord(groups, Forming(forming, instances), replicas)

    assert SlotRecord.parse(record.format()) == record


@pytest.mark.parametrize(
    "text",
    [None, "", "[]", "{}", '{"groups":"x","forming":{},"replicas":{}}', '{"groups":7}', "null",
     '{"groups":"","forming":{"a/b":"0"},"replicas":{}}', '{"groups":"","forming":{},"replicas":3}'],
)  # fmt: skip
def test_a_record_that_cannot_be_read_counts_as_absent(text: str | None) -> None:
    assert SlotRecord.parse(text) is None


@given(st.dictionaries(KEYS, st.builds(Recoveries, st.integers(0, 9999), TIMES)))
def test_counters_are_read_back(counters: dict[InstanceKey, Recoveries]) -> None:
    assert parse_recoveries(format_recoveries(counters)) == counters


@pytest.mark.parametrize("text", ["", "x", "[]", '{"0/a/0":"x"}', '{"a":"1@2026-01-01T00:00:00Z"}'])
def test_counters_that_cannot_be_read_are_left_out(text: str) -> None:
    assert parse_recoveries(text) == {}
