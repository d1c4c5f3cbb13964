"""The request of a page of transactions, without a service."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onebook.client.pages import request_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def requested(types=(), start=None, end=None):
    return request_of("bybit", types, start=start, end=end, page_records=10, options={})


@example(137_021_758_855, 0)
@given(st.integers(0, 4_102_444_800_000), st.integers(-14, 14))
def test_a_time_is_its_own_millisecond(ms, hours):
    """By way of a float the last millisecond of a range was lost."""
    time = (EPOCH + timedelta(milliseconds=ms)).astimezone(timezone(timedelta(hours=hours)))
    assert requested(start=time, end=ms) == {
        "exchange": "bybit",
        "limit": 10,
        "start_time": ms,
        "end_time": ms,
    }


def test_one_type_may_be_text():
    assert requested("deposits") == requested(["deposits"])


def test_what_is_no_time_is_refused():
    with pytest.raises(ValueError, match="has no time zone"):
        requested(start=datetime(2026, 1, 1))
    with pytest.raises(TypeError, match="datetime or Unix ms as a whole number, not '2026'"):
        requested(end="2026")
