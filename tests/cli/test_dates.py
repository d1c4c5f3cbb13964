"""Dates, times, durations, years and time zones as arguments of commands."""

from collections.abc import Callable
from datetime import UTC, tzinfo

import pytest

from onebook.cli import dates
from onebook.clock import iso_ms
from onebook.errors import InvalidRequest

NOW_MS = 1_769_855_400_000  # 2026-01-31 10:30 UTC


@pytest.mark.parametrize(
    ("text", "past_ms", "past_end_ms", "until_ms"),
    [
        ("now", NOW_MS, NOW_MS, None),
        ("30s", NOW_MS - 30_000, NOW_MS - 30_000, NOW_MS + 30_000),
        ("24h", NOW_MS - 86_400_000, NOW_MS - 86_400_000, NOW_MS + 86_400_000),
        ("2026-02-01", 1_769_904_000_000, 1_769_990_399_999, 1_769_990_399_999),
        ("20260201", 1_769_904_000_000, 1_769_990_399_999, 1_769_990_399_999),
        ("2026-02-01T00:00", *[1_769_904_000_000] * 3),
        ("2026-02-01T01:00+01:00", *[1_769_904_000_000] * 3),
    ],
)
def test_a_date_is_its_whole_day_in_utc_and_a_time_is_itself(
    text: str, past_ms: int, past_end_ms: int, until_ms: int | None
) -> None:
    assert dates.past_ms(text, NOW_MS) == past_ms
    assert dates.past_end_ms(text, NOW_MS) == past_end_ms
    if until_ms is not None:
        assert dates.until_ms(text, NOW_MS) == until_ms


@pytest.mark.parametrize(
    "text", ["", "d", "1w", "-1d", "2026-13-01", "2026-W05", "20269901", "tomorrow", "9999999d"]
)
@pytest.mark.parametrize("read", [dates.past_ms, dates.past_end_ms, dates.until_ms])
def test_what_is_no_moment_is_refused(read: Callable[[str, int], int], text: str) -> None:
    with pytest.raises(InvalidRequest, match="not a time"):
        read(text, NOW_MS)


@pytest.mark.parametrize(
    ("zone", "first", "last"),
    [
        ("UTC", "2025-01-01T00:00:00.000Z", "2025-12-31T23:59:59.999Z"),
        ("Europe/Berlin", "2024-12-31T23:00:00.000Z", "2025-12-31T22:59:59.999Z"),
        ("europe/berlin", "2024-12-31T23:00:00.000Z", "2025-12-31T22:59:59.999Z"),
        ("Asia/Kathmandu", "2024-12-31T18:15:00.000Z", "2025-12-31T18:14:59.999Z"),
        ("-05:00", "2025-01-01T05:00:00.000Z", "2026-01-01T04:59:59.999Z"),
        ("+0530", "2024-12-31T18:30:00.000Z", "2025-12-31T18:29:59.999Z"),
    ],
)
def test_a_year_is_that_of_its_zone(zone: str, first: str, last: str) -> None:
    start_ms, end_ms = dates.year_ms(2025, dates.zone_of(zone))
    assert (iso_ms(start_ms), iso_ms(end_ms)) == (first, last)


@pytest.mark.parametrize(
    ("day", "zone", "hours"),
    [
        ("2025-03-30", "Europe/Berlin", 23),
        ("2025-10-26", "Europe/Berlin", 25),
        ("2025-10-26", "UTC", 24),
        ("2018-02-17", "America/Sao_Paulo", 25),  # clocks went back at midnight, to 23:00
        ("2018-11-04", "America/Sao_Paulo", 23),  # and forward at midnight, to 01:00
    ],
)
def test_days_of_a_zone_follow_each_other(day: str, zone: str, hours: int) -> None:
    there = dates.zone_of(zone)
    start_ms, end_ms = (read(day, NOW_MS, there) for read in (dates.past_ms, dates.past_end_ms))
    assert end_ms + 1 - start_ms == hours * 3_600_000
    next_day = f"{day[:8]}{int(day[8:]) + 1:02}"
    assert dates.past_ms(next_day, NOW_MS, there) == end_ms + 1


@pytest.mark.parametrize("zone", ["Europe/Berlin", "-05:00"])
def test_an_offset_in_a_time_wins_over_the_zone(zone: str) -> None:
    at_ms = dates.past_ms("2026-02-01T00:00+01:00", NOW_MS, dates.zone_of(zone))
    assert iso_ms(at_ms) == "2026-01-31T23:00:00.000Z"


def test_a_time_without_an_offset_is_of_the_zone() -> None:
    berlin = dates.zone_of("Europe/Berlin")
    assert iso_ms(dates.past_ms("2026-07-01T12:00", NOW_MS, berlin)) == "2026-07-01T10:00:00.000Z"
    assert dates.minute_in(berlin, NOW_MS) == "2026-01-31 11:30"


def test_the_last_day_there_is_has_an_end() -> None:
    assert iso_ms(dates.until_ms("9999-12-31", NOW_MS)) == "9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize(
    ("zone", "says"),
    [
        ("Europe/Berln", "Did you mean Europe/Berlin"),
        ("New York", "Did you mean America/New_York?"),
        ("MESZ", "not a time zone"),
        ("+24:00", "not a time zone"),
        ("../passwd", "not a time zone"),
        ("", "not a time zone"),
    ],
)
def test_an_unknown_zone_is_refused(zone: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        dates.zone_of(zone)
    assert says in refused.value.message


@pytest.mark.parametrize("year", [25, 0, -1, 9999, 20_250])
@pytest.mark.parametrize("zone", [UTC, dates.zone_of("Europe/Berlin")])
def test_a_year_that_nobody_means_is_refused(year: int, zone: tzinfo) -> None:
    with pytest.raises(InvalidRequest, match="not a year"):
        dates.year_ms(year, zone)
