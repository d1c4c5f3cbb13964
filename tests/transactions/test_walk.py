"""Walking one source to its end."""

import asyncio
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.transactions.adapter import Page
from onebook.transactions.failures import FailureReason, SourceFailed
from onebook.transactions.merge import merged
from onebook.transactions.ordering import Range
from onebook.transactions.record import RecordKey
from onebook.transactions.walk import Walker
from transactions.bybit_support import run
from transactions.walking import Book, event, simple, source, walked


@given(
    st.lists(st.integers(0, 1_000), unique=True),
    st.integers(0, 1_000),
    st.integers(0, 1_000),
    st.sampled_from([1, 10]),
    st.sampled_from([0, 5, 150]),
    st.sampled_from([0, 1, 3]),
)
def test_every_record_of_the_range_once_and_in_order(
    times: list[int], one: int, other: int, grain_ms: int, lag_ms: int, least: int
) -> None:
    from_ms, to_ms = min(one, other), max(one, other)
    random = Random(sum(times))
    events = [(max(0, at - random.randrange(lag_ms + 1)), event(at)) for at in times]
    found, walker = walked(
        Book(*events),
        source(grain_ms=grain_ms, lag_ms=lag_ms + grain_ms - 1, page_rows_least=least),
        from_ms,
        to_ms,
    )
    assert [r.timestamp for r in found] == sorted(
        (at for at in times if from_ms <= at <= to_ms), reverse=True
    )
    assert walker.exhausted
    assert walker.disordered == 0


@given(st.lists(st.integers(0, 600), min_size=1, unique=True), st.integers(0, 40))
def test_resumed_at_any_record_the_rest_is_the_same(times: list[int], at: int) -> None:
    whole, _ = walked(simple(*times), source(), 0, 600)
    stop = whole[at % len(whole)]
    rest, _ = walked(
        simple(*times), source(), 0, 600, after=RecordKey(-stop.timestamp, stop.transactionId)
    )
    assert whole[at % len(whole) + 1 :] == rest


def test_a_failure_keeps_what_came_before_and_says_how_far() -> None:
    book = simple(*range(0, 300, 10))
    failure = SourceFailed(FailureReason.RATE_LIMITED, "no", retryable=True)
    book.answers = lambda window, cursor: failure if window.to_ms <= 200 else None
    found, walker = walked(book, source(), 0, 299)
    assert [r.timestamp for r in found] == list(range(290, 190, -10))
    assert walker.failure is failure
    assert walker.delivered == RecordKey(-200, event(200).transactionId)
    rest, _ = walked(simple(*range(0, 300, 10)), source(), 0, 299, after=walker.delivered)
    assert [r.timestamp for r in rest] == list(range(190, -10, -10))


def test_a_defect_of_ours_is_not_passed_over() -> None:
    book = simple(1)
    book.answers = lambda window, cursor: ZeroDivisionError("a defect")
    with pytest.raises(ZeroDivisionError):
        walked(book, source(), 0, 99)


def test_a_defect_in_the_walk_itself_is_raised_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("onebook.transactions.ordering.Sorter.push", broken)
    with pytest.raises(ZeroDivisionError):
        walked(simple(1), source(), 0, 99)


def test_a_range_before_the_source_began_or_after_it_ended_asks_nothing() -> None:
    book = simple(5)
    assert walked(book, source(begins_ms=500), 0, 400)[1].exhausted
    assert walked(book, source(ends_ms=50), 60, 400)[1].exhausted
    assert book.asked == []


def test_rows_without_a_time_count_at_the_end_of_their_window() -> None:
    book = simple()
    book.answers = lambda window, cursor: Page(
        [event(window.to_ms - 1, f"0x{window.from_ms:040x}"), event(window.from_ms)], 2, ""
    )
    found, walker = walked(book, source(untimed=True, lag_ms=10), 0, 250)
    assert walker.disordered == 0
    assert [r.timestamp for r in found] == sorted((r.timestamp for r in found), reverse=True)


def test_a_snapshot_stands_before_everything() -> None:
    async def story() -> list[str]:
        progress = asyncio.Event()
        books = [Book((5, event(5, "0xevent"))), Book((100, event(100, "0xheld")))]
        books[1].answers = lambda window, cursor: Page([event(100, "0xheld")], 1, "")
        sources = [source(), source(name="snapshot", window_ms=0)]
        walkers = [
            Walker(s, b, Range(0, 99), now_ms=lambda: 99, progress=progress)
            for s, b in zip(sources, books, strict=True)
        ]
        found = [key.record_id async for b in merged(walkers, progress, limit=None) for key, _ in b]
        for walker in walkers:
            await walker.close()
        return found

    assert run(story()) == ["0xheld", "0xevent"]


def test_without_a_consumer_nothing_is_read_ahead_without_bounds() -> None:
    async def story() -> int:
        progress = asyncio.Event()
        book = simple(*range(20_000))
        walker = Walker(
            source(window_ms=20_000, page_rows=100, page_rows_least=50),
            book,
            Range(0, 20_000),
            now_ms=lambda: 20_000,
            progress=progress,
        )
        await asyncio.sleep(3_600)
        asked = len(book.asked)
        await walker.close()
        return asked

    assert run(story()) < 20
