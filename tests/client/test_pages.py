"""The request for a page of transactions, without a service."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onebook.client import KeyUsage, Unavailable
from onebook.client.pages import TransactionPages, TransactionRecords, request_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def requested(types=(), start=None, end=None):
    return request_of("bybit", types, start=start, end=end, page_records=10, options={})


@example(137_021_758_855, 0)
@given(st.integers(0, 4_102_444_800_000), st.integers(-14, 14))
def test_a_time_is_its_own_millisecond(ms, hours):
    """A conversion through float lost the last millisecond of a range."""
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
    with pytest.raises(TypeError, match="datetime or Unix ms as an int, not '2026'"):
        requested(end="2026")


def answer(ids, cursor):
    return {
        "transactions": [{"transactionId": each} for each in ids],
        "coverage": [], "errors": [], "partial": False, "next_cursor": cursor, "summary": {},
    }  # fmt: skip


async def test_a_cursor_that_comes_again_is_not_followed():
    """Its records would be delivered again and again."""
    answers = {None: answer([1], "a"), "a": answer([2], "b"), "b": answer([3], "b")}

    async def post(body):
        return answers[body.get("cursor")]

    records = TransactionRecords(TransactionPages(post, {}), partial_allowed=True)
    assert [(await anext(records))["transactionId"] for _ in range(3)] == [1, 2, 3]
    with pytest.raises(Unavailable, match="cursor") as failed:
        await anext(records)
    assert failed.value.code == "no_progress"


async def test_a_page_that_could_not_be_had_is_asked_for_again():
    answers = [answer([1], "a"), Unavailable("http_503", "Not now."), answer([2], None)]
    asked = []

    async def post(body):
        asked.append(body.get("cursor"))
        given = answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    records = TransactionRecords(TransactionPages(post, {}), partial_allowed=False)
    assert (await anext(records))["transactionId"] == 1
    with pytest.raises(Unavailable, match="Not now"):
        await anext(records)
    assert [record["transactionId"] async for record in records] == [2]
    assert asked == [None, "a", "a"]


def test_a_key_without_an_allowance_has_used_all_of_it():
    usage = KeyUsage("alice", "basic", True, 0, 0, datetime.now(UTC))
    assert (usage.share, usage.remaining_bytes) == (1.0, 0)


async def test_a_page_has_the_transfers_and_the_verification_of_its_answer():
    said = {
        "own_transfers": {"count": 0, "pairs": [], "open": 2, "unmatched": []},
        "verification": {"holds": None},
    }

    async def post(body):
        return answer([], None) | (said if body["exchange"] == "all" else {})

    page = await anext(TransactionPages(post, {"exchange": "all"}))
    assert (page.own_transfers, page.verification) == tuple(said.values())
    page = await anext(TransactionPages(post, {"exchange": "bybit"}))
    assert (page.own_transfers, page.verification) == (None, None)
