"""Walking and merging, against a reader whose pages are written out."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.transactions.adapter import Page, Source, Window
from onebook.transactions.failures import Reason, SourceFailed, TooOld
from onebook.transactions.merge import merged
from onebook.transactions.ordering import Range
from onebook.transactions.reading import is_last
from onebook.transactions.record import FIRST, Key, Record
from onebook.transactions.walk import Walker
from transactions.bybit_support import run
from transactions.test_record import record

SECOND = 1_000


def event(at_ms: int, name: str = "") -> Record:
    return record(timestamp=at_ms, transactionId=name or f"0x{at_ms:040x}")


def source(**fields: Any) -> Source:
    base = {"name": "s", "type": "t", "window_ms": 100, "page_rows": 3, "page_rows_least": 1}
    return Source(**(base | fields))


class Book:
    """A reader over a list of (filter time, record), newest first, paged by offset."""

    def __init__(self, *events: tuple[int, Record]) -> None:
        self.events = sorted(events, key=lambda one: (-one[0], one[1].transactionId))
        self.asked: list[tuple[Window, str]] = []
        self.answers: Callable[[Window, str], Page | Exception | None] = lambda w, c: None
        self.latency_s = 0.0

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        self.asked.append((window, cursor))
        await asyncio.sleep(self.latency_s)
        given = self.answers(window, cursor)
        if isinstance(given, Exception):
            raise given
        if given is not None:
            return given
        inside = [r for at, r in self.events if window.from_ms <= at < window.to_ms]
        start = int(cursor or 0)
        rows = inside[start : start + source.page_rows]
        following = str(start + len(rows)) if rows else ""
        return Page(rows, len(rows), following)

    async def account(self) -> Any:
        raise NotImplementedError


def walked(
    book: Book,
    walked_source: Source,
    from_ms: int,
    to_ms: int,
    *,
    after: Key = FIRST,
    now_ms: int = 10**6,
) -> tuple[list[Record], Walker]:
    async def story() -> tuple[list[Record], Walker]:
        progress = asyncio.Event()
        walker = Walker(
            walked_source,
            book,
            Range(from_ms, to_ms, after=after),
            now_ms=lambda: now_ms,
            progress=progress,
        )
        found = [r async for batch in merged([walker], progress, limit=None) for _, r in batch]
        await walker.close()
        return found, walker

    return run(story())


def simple(*times: int) -> Book:
    return Book(*[(at, event(at)) for at in times])


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
        simple(*times), source(), 0, 600, after=Key(-stop.timestamp, stop.transactionId)
    )
    assert whole[at % len(whole) + 1 :] == rest


def test_records_of_one_millisecond_stand_by_id_over_pages() -> None:
    book = Book(*[(50, event(50, f"0x{index:040x}")) for index in range(10)])
    found, _ = walked(book, source(), 0, 99)
    assert [r.transactionId for r in found] == [f"0x{index:040x}" for index in range(10)]


def test_rows_that_repeat_pass_once() -> None:
    """A row that came in between two pages pushes the last of the first onto the second."""
    book = simple(90, 80, 70, 60)
    pages = {
        "": Page([event(90), event(80), event(70)], 3, "3"),
        "3": Page([event(70), event(60)], 2, "5"),
    }
    book.answers = lambda window, cursor: pages.get(cursor, Page([], 0, ""))
    found, walker = walked(book, source(), 0, 99)
    assert [r.timestamp for r in found] == [90, 80, 70, 60]
    assert walker.disordered == 0


def test_a_cursor_that_repeats_ends_the_window() -> None:
    book = simple(5)
    book.answers = lambda window, cursor: Page([event(5)], 3, "again")
    found, _ = walked(book, source(), 0, 99)
    assert len(found) == 1
    assert len(book.asked) == 2


def test_an_exchange_out_of_order_loses_nothing_and_is_told_of() -> None:
    book = simple()
    pages = {"": Page([event(40), event(30)], 2, "2"), "2": Page([event(60), event(10)], 2, "")}
    book.answers = lambda window, cursor: pages[cursor]
    found, walker = walked(book, source(page_rows_least=0), 0, 99)
    assert sorted(r.timestamp for r in found) == [10, 30, 40, 60]
    assert walker.disordered == 1


def test_a_window_without_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onebook.transactions.reading.PAGES_MAX", 5)
    book = simple()
    book.answers = lambda window, cursor: Page([], 3, cursor + "x")
    _, walker = walked(book, source(), 0, 99)
    assert walker.failure is not None
    assert walker.failure.reason is Reason.EXCHANGE_ERROR


def test_a_failure_keeps_what_came_before_and_says_how_far() -> None:
    book = simple(*range(0, 300, 10))
    failure = SourceFailed(Reason.RATE_LIMITED, "no", retryable=True)
    book.answers = lambda window, cursor: failure if window.to_ms <= 200 else None
    found, walker = walked(book, source(), 0, 299)
    assert [r.timestamp for r in found] == list(range(290, 190, -10))
    assert walker.failure is failure
    assert walker.delivered == Key(-200, event(200).transactionId)
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


class TestFloor:
    """The exchange forgets, and its memory moves while we walk."""

    KEPT = source(keeps_ms=1_000_000, window_ms=1_000_000)

    def test_a_floor_that_moved_over_a_window_cuts_it(self) -> None:
        """10001 "2 years": the floor is taken anew, the rest of the window asked for again."""
        now = 2_000_000
        book = simple(1_350_000, 1_450_000)

        def answers(window: Window, cursor: str) -> Page | Exception | None:
            return TooOld() if window.from_ms < 1_400_000 else None

        book.answers = answers
        clock = iter([now, now + 100_000, now + 100_000])

        async def story() -> Walker:
            progress = asyncio.Event()
            walker = Walker(
                self.KEPT,
                book,
                Range(0, 1_500_000),
                now_ms=lambda: next(clock),
                progress=progress,
            )
            found = [r async for batch in merged([walker], progress, limit=None) for _, r in batch]
            await walker.close()
            assert [r.timestamp for r in found] == [1_450_000]
            return walker

        walker = run(story())
        assert walker.exhausted
        assert walker.cut_short_ms == walker.floor_ms == 1_400_000

    def test_a_window_wholly_below_the_moved_floor_is_empty(self) -> None:
        book = simple()
        book.answers = lambda window, cursor: TooOld()
        clock = iter([2_000_000, 5_000_000])

        async def story() -> Walker:
            progress = asyncio.Event()
            walker = Walker(
                self.KEPT, book, Range(0, 1_500_000), now_ms=lambda: next(clock), progress=progress
            )
            assert [b async for b in merged([walker], progress, limit=None)] == []
            await walker.close()
            return walker

        assert run(story()).exhausted

    def test_an_exchange_that_keeps_less_than_it_says(self) -> None:
        book = simple()
        book.answers = lambda window, cursor: TooOld()
        _, walker = walked(book, source(keeps_ms=1_000_000), 700_000, 800_000)
        assert walker.failure is not None
        assert "less than it documents" in walker.failure.message


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


@given(
    st.lists(st.lists(st.integers(0, 500), unique=True, max_size=25), min_size=1, max_size=4),
    st.integers(1, 30),
)
def test_many_sources_become_one_sequence_cut_at_the_limit(
    lists: list[list[int]], limit: int
) -> None:
    """The first `limit` of the whole, whatever the pace of each source; equal ids once."""

    async def story() -> list[Key]:
        progress, random = asyncio.Event(), Random(limit)
        walkers = []
        for index, times in enumerate(lists):
            book = simple(*times)
            book.latency_s = random.random()
            walkers.append(
                Walker(
                    source(name=f"s{index}"),
                    book,
                    Range(0, 500),
                    now_ms=lambda: 500,
                    progress=progress,
                    long=bool(index % 2),
                )
            )
        found = [key async for batch in merged(walkers, progress, limit=limit) for key, _ in batch]
        for walker in walkers:
            await walker.close()
        return found

    everything = sorted({at for times in lists for at in times}, reverse=True)
    assert [-key.negative_ms for key in run(story())] == everything[:limit]


def test_a_sparse_source_does_not_hold_back_a_full_one() -> None:
    """Its frontier says that nothing newer can come: the limit is reached before its end."""

    async def story() -> tuple[int, int]:
        progress = asyncio.Event()
        full, sparse = simple(*range(400, 500)), simple(3)
        sparse.latency_s = 1.0
        walkers = [
            Walker(
                source(name=name), b, Range(0, 500), now_ms=lambda: 500, progress=progress,
                long=False,
            )
            for name, b in (("full", full), ("sparse", sparse))
        ]  # fmt: skip
        found = [key async for batch in merged(walkers, progress, limit=50) for key, _ in batch]
        for walker in walkers:
            await walker.close()
        return len(found), len(sparse.asked)

    found, asked = run(story())
    assert found == 50
    assert asked <= 3  # of five windows


def test_nobody_takes_nothing_is_read_ahead_without_bounds() -> None:
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


@pytest.mark.parametrize(
    ("rows", "full_page", "least", "last"),
    [
        (0, False, 0, True),
        (2, True, 0, False),  # filtered: only an empty page is the end
        (1, False, 20, True),
        (30, False, 20, False),  # it could be a page size that shrank without a word
        (30, True, 20, True),
        (50, True, 20, False),
    ],
)
def test_when_a_page_is_surely_the_last(rows: int, full_page: bool, least: int, last: bool) -> None:
    s = source(page_rows=50, page_rows_least=least)
    assert is_last(s, rows, full_page=full_page) is last
