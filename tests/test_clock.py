"""The clock of this machine, ticks, and times converted to text and back."""

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.clock import Clock, ManualClock, iso_ms, iso_us, ms_of_iso, next_tick, s_of_http_date
from steady import PATIENCE_S

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999


async def test_a_callback_comes_at_its_time_of_the_same_clock():
    clock, called = Clock(), asyncio.get_running_loop().create_future()
    due = clock.monotonic() + 0.02
    clock.call_at(due, lambda: called.set_result(clock.monotonic()))
    async with asyncio.timeout(PATIENCE_S):
        # uvloop cuts times to milliseconds, so a callback may be as much early.
        assert await called >= due - 0.001


async def test_a_callback_that_is_cancelled_does_not_come():
    clock, called = Clock(), []
    due = clock.monotonic()
    clock.call_at(due, lambda: called.append("cancelled")).cancel()
    last = asyncio.get_running_loop().create_future()
    clock.call_at(due + 0.01, lambda: last.set_result(None))
    async with asyncio.timeout(PATIENCE_S):
        await last
    assert called == []


async def test_wall_time_is_unix_time_in_both_units():
    clock = Clock()
    before = time.time_ns()
    us, ms = clock.wall_us(), clock.wall_ms()
    after = time.time_ns()
    assert before // 1_000 <= us <= after // 1_000
    assert before // 1_000_000 <= ms <= after // 1_000_000


def test_a_manual_clock_calls_in_order_of_time_and_each_at_its_own():
    clock, called = ManualClock(10.0, epoch_us=5_000_000), []
    for at in (12.0, 11.0, 9.0, 13.0):
        clock.call_at(at, lambda: called.append((clock.monotonic(), clock.wall_ms())))
    clock.call_at(11.5, lambda: called.append("cancelled")).cancel()
    clock.move_to(12.5)
    assert called == [(10.0, 15_000), (11.0, 16_000), (12.0, 17_000)]
    assert clock.monotonic() == 12.5


async def test_a_sleeper_of_a_manual_clock_wakes_when_it_is_moved_so_far():
    clock = ManualClock()
    sleeper = asyncio.ensure_future(clock.sleep(2.0))
    for at, done in ((1.9, False), (2.0, True)):
        await asyncio.sleep(0)
        clock.move_to(at)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sleeper.done() is done


@pytest.mark.parametrize("early_s", [-0.001, 0.0, 0.001, 0.02])
@pytest.mark.parametrize("interval_s", [0.05, 0.25, 1.0])
def test_timers_of_one_interval_are_due_together_and_one_that_was_early_skips_no_tick(
    early_s, interval_s
):
    ticks = [1_000 * interval_s - early_s]
    for _ in range(5):
        ticks.append(next_tick(ticks[-1], interval_s) - early_s)
    assert ticks == pytest.approx([(1_000 + n) * interval_s - early_s for n in range(6)])


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_763_632_800_123, "2025-11-20T10:00:00.123Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (FIRST_MS, "0001-01-01T00:00:00.000Z"),
        (LAST_MS, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_milliseconds_and_their_text(at_ms, text):
    assert iso_ms(at_ms) == text
    assert ms_of_iso(text) == at_ms


@given(st.integers(FIRST_MS, LAST_MS))
def test_a_time_is_the_one_that_was_printed(at_ms):
    assert ms_of_iso(iso_ms(at_ms)) == at_ms
    assert datetime.fromisoformat(iso_ms(at_ms)).utcoffset() == UTC.utcoffset(None)


@given(st.integers(FIRST_MS * 1_000, LAST_MS * 1_000))
def test_microseconds_continue_the_text_of_milliseconds(at_us):
    assert iso_us(at_us)[:23] == iso_ms(at_us // 1_000)[:23]
    assert iso_us(at_us)[23:] == f"{at_us % 1_000:03d}Z"


@pytest.mark.parametrize("at_ms", [FIRST_MS - 1, LAST_MS + 1, 10**20])
def test_a_time_outside_the_calendar_is_refused(at_ms):
    with pytest.raises(ValueError, match="years 1 to 9999"):
        iso_ms(at_ms)
    with pytest.raises(ValueError, match="years 1 to 9999"):
        iso_us(at_ms * 1_000)


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T01:00:00", 3_600_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.0019Z", 1),
    ],
)
def test_a_text_without_a_zone_is_utc_and_parts_of_a_millisecond_are_dropped(text, at_ms):
    assert ms_of_iso(text) == at_ms


@pytest.mark.parametrize("text", ["", "yesterday", "1970-13-01"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match=r"isoformat|month"):
        ms_of_iso(text)


@pytest.mark.parametrize(
    "text",
    [
        "Tue, 14 Nov 2023 22:13:20 GMT",
        "Tue, 14 Nov 2023 22:13:20 -0000",
        "14 Nov 2023 23:13:20 +0100",
        "Tuesday, 14-Nov-23 22:13:20 GMT",
        "Tue Nov 14 22:13:20 2023",
    ],
)
def test_every_form_of_an_http_date_is_read(text):
    assert s_of_http_date(text) == 1_700_000_000.0


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "now", "2023-11-14", "Tue, 14 Nov", "Tue, 14 Nov 2023 22:13:20 GMT" * 3),
        f"Tue, 14 Nov {10**20} 22:13:20 GMT",
        "Tue, 14 Nov 99999999999 22:13:20 GMT",
        "Tue, 14 Nov 2023 99:13:20 GMT",
        f"Tue, 14 Nov 2023 22:13:20 +{10**15}",
        "Tue, 14 Nov 2023 22:13:20 +9999",
        "Tue, 14 Nov 2023 22:13:²0 GMT",
    ],
)
def test_a_text_that_is_no_http_date_is_the_one_declared_error(text):
    words = r"^(The text is not an HTTP date|The date is too long)"
    with pytest.raises(ValueError, match=words):
        s_of_http_date(text)


@given(st.text(max_size=40) | st.from_regex(r"\w*,? \d+ \w{3} \d+ [\d:]+ [+-]?\w+"))
def test_no_text_raises_anything_else(text):
    with suppress(ValueError):
        s_of_http_date(text)
