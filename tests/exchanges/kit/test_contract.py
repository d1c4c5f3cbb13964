"""Timestamps of exchanges as Unix milliseconds."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.exchanges.kit.contract import Moment, microseconds, milliseconds

AT = 1_672_515_782_136


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (AT, AT),
        (f"{AT}", AT),
        (AT * 1_000 + 999, AT),
        (f"{AT * 1_000_000 + 999_999}", AT),
        ("2022-12-31T19:43:02.136Z", AT),
        ("2022-12-31T19:43:02.136999Z", AT),
        ("2022-12-31T19:43:02.136999999Z", AT),
        ("2022-12-31T20:43:02.136+01:00", AT),
        ("2022-12-31T19:43:02.136", AT),
        ("2022-12-31T19:43:02Z", AT - 136),
        (0, 0),
        ("", 0),
        (-5, 0),
        ("1969-12-31T23:59:59Z", 0),
        (10**20, 0),
        ("9" * 5_000, 0),
        ("yesterday", 0),
        ("0001-01-01T00:00:00+23:59", 0),
    ],
)
def test_a_time_of_any_unit_becomes_whole_milliseconds(at: Moment, expected: int) -> None:
    assert milliseconds(at) == expected


@given(st.datetimes(datetime(1970, 1, 1), datetime(5138, 1, 1), timezones=st.just(UTC)))
def test_a_text_is_exact_to_the_millisecond_below(moment: datetime) -> None:
    at_ms = milliseconds(moment.isoformat())
    assert microseconds(moment.isoformat()) // 1_000 == at_ms
    assert microseconds(moment.isoformat()) % 1_000 == moment.microsecond % 1_000
    seconds = int(moment.replace(microsecond=0).timestamp())
    assert at_ms == seconds * 1_000 + moment.microsecond // 1_000


@given(st.text(max_size=60) | st.integers())
def test_no_text_and_no_number_raises(at: Moment) -> None:
    assert milliseconds(at) >= 0
    assert milliseconds(at) == microseconds(at) // 1_000
