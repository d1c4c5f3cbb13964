"""Windows are read page by page, in either direction."""

import asyncio
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.transactions.adapter import Page, Source, Window
from onebook.transactions.failures import CursorGone, FailureReason, TooOld
from onebook.transactions.merge import merged
from onebook.transactions.ordering import Range
from onebook.transactions.reading import Bookmark, is_last
from onebook.transactions.record import Record, RecordKey, key_of
from onebook.transactions.walk import Walker
from transactions.bybit_support import run
from transactions.walking import Book, event, simple, source, walked


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("cursors", [("a", "a"), ("a", "b", "a")])
def test_a_cursor_that_repeats_is_a_failure(cursors: tuple[str, ...], oldest_first: bool) -> None:
    """What comes after that page cannot be read: the window is not complete."""
    book = simple(5)
    left = iter(cursors)
    book.answers = lambda window, cursor: Page([event(5)], 3, next(left))
    _, walker = walked(book, source(oldest_first=oldest_first), 0, 99)
    assert len(book.asked) == len(cursors)
    assert not walker.exhausted
    assert walker.failure is not None
    assert walker.failure.reason is FailureReason.UNREADABLE
    assert walker.failure.retryable


@pytest.mark.parametrize("oldest_first", [False, True])
def test_an_empty_page_ends_the_window_whatever_its_cursor(oldest_first: bool) -> None:
    book = simple(5)
    left = iter((Page([event(5)], 3, "a"), Page([], 0, "a")))
    book.answers = lambda window, cursor: next(left)
    found, walker = walked(book, source(oldest_first=oldest_first), 0, 99)
    assert len(found) == 1
    assert walker.exhausted


def test_a_window_without_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onebook.transactions.reading.PAGES_MAX", 5)
    book = simple()
    book.answers = lambda window, cursor: Page([], 3, cursor + "x")
    _, walker = walked(book, source(), 0, 99)
    assert walker.failure is not None
    assert walker.failure.reason is FailureReason.EXCHANGE_ERROR


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


class TestOldestFirst:
    """The newest rows of a window come last, and nothing is emitted before them."""

    @given(
        st.lists(st.integers(0, 1_000), unique=True),
        st.integers(0, 1_000),
        st.integers(0, 1_000),
        st.sampled_from([1, 10]),
        st.sampled_from([0, 5, 150]),
        st.sampled_from([0, 1, 3]),
        st.sampled_from([1, 2, 50]),
    )
    def test_every_record_of_the_range_once_and_in_order(
        self,
        times: list[int],
        one: int,
        other: int,
        grain_ms: int,
        lag_ms: int,
        least: int,
        held: int,
    ) -> None:
        from_ms, to_ms = min(one, other), max(one, other)
        random = Random(sum(times))
        events = [(max(0, at - random.randrange(lag_ms + 1)), event(at)) for at in times]
        lag_ms += grain_ms - 1
        asked = source(grain_ms=grain_ms, lag_ms=lag_ms, page_rows_least=least, oldest_first=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("onebook.transactions.reading.PAGES_HELD_MAX", held)
            found, walker = walked(Book(*events), asked, from_ms, to_ms)
        assert [r.timestamp for r in found] == sorted(
            (at for at in times if from_ms <= at <= to_ms), reverse=True
        )
        assert walker.exhausted
        assert walker.disordered == 0

    def test_a_window_of_one_grain_may_have_more_pages_than_are_held(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("onebook.transactions.reading.PAGES_HELD_MAX", 2)
        book = Book(*[(50, event(50, f"0x{n:040x}")) for n in range(20)])
        found, _ = walked(book, source(oldest_first=True), 0, 99)
        assert len({one.transactionId for one in found}) == 20

    def test_one_without_end_is_a_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("onebook.transactions.reading.PAGES_MAX", 5)
        monkeypatch.setattr("onebook.transactions.reading.PAGES_HELD_MAX", 2)
        book = simple()
        book.answers = lambda window, cursor: Page([], 3, cursor + "x")
        _, walker = walked(book, source(oldest_first=True), 0, 9)
        assert walker.failure is not None
        assert walker.failure.reason is FailureReason.EXCHANGE_ERROR

    def test_a_floor_that_moved_over_it_cuts_it(self) -> None:
        asked = source(keeps_ms=1_000_000, window_ms=1_000_000, oldest_first=True)
        book = simple(10, 900_000)
        book.answers = lambda window, cursor: TooOld() if window.from_ms < 400_000 else None
        clock = iter((1_000_000, *[1_100_000] * 50))
        found, walker = stepped(book, asked, 0, 999_999, clock)
        assert [r.timestamp for r in found] == [900_000]
        assert walker.kept_from_ms is not None


class TestBookmarks:
    """A walk goes on at the page that it stopped in, by the exchange's own cursor."""

    LASTING = source(window_ms=10_000, ranged=False, cursor_lasts=True, page_rows_least=3)

    @given(st.lists(st.integers(0, 600), min_size=1, unique=True), st.integers(0, 40))
    def test_resumed_at_any_record_the_rest_is_the_same_and_asked_once(
        self, times: list[int], at: int
    ) -> None:
        whole, _ = walked(simple(*times), self.LASTING, 0, 600)
        index = at % len(whole)
        stop = key_of(whole[index])
        # The walk that ended there: only pages up to that record have been accepted.
        first = simple(*times)
        mark = bookmark_at(first, self.LASTING, stop, count=index + 1)
        second = simple(*times)
        rest, _ = walked(second, self.LASTING, 0, 600, after=stop, begin=mark)
        assert rest == whole[index + 1 :]
        assert mark is not None
        assert second.asked[0][1] == mark.cursor
        assert int(mark.cursor or 0) <= index + 1
        assert int(mark.cursor or 0) > index - 2 * self.LASTING.page_rows

    def test_one_that_is_gone_begins_the_window_again(self) -> None:
        book = simple(10, 20, 30, 40, 50)
        book.answers = lambda window, cursor: CursorGone() if cursor == "old" else None
        begin = Bookmark(0, 100, 99, "old")
        found, _ = walked(book, self.LASTING, 0, 99, after=RecordKey(-30, ""), begin=begin)
        assert [r.timestamp for r in found] == [30, 20, 10]

    def test_one_of_this_walk_that_is_refused_is_a_failure(self) -> None:
        book = simple(10, 20, 30, 40, 50)
        book.answers = lambda window, cursor: CursorGone() if cursor else None
        _, walker = walked(book, self.LASTING, 0, 99)
        assert walker.failure is not None
        assert "its own cursor" in walker.failure.message

    def test_pages_below_the_range_are_not_asked_for(self) -> None:
        book = simple(*range(0, 600, 10))
        found, _ = walked(book, self.LASTING, 500, 600)
        assert len(found) == 10
        assert len(book.asked) <= 5


def stepped(
    book: Book, asked: Source, from_ms: int, to_ms: int, clock: Iterator[int]
) -> tuple[list[Record], Walker]:
    """A walk while time passes."""

    async def story() -> tuple[list[Record], Walker]:
        progress = asyncio.Event()
        walker = Walker(
            asked, book, Range(from_ms, to_ms), now_ms=lambda: next(clock), progress=progress
        )
        found = [r async for batch in merged([walker], progress, limit=None) for _, r in batch]
        await walker.close()
        return found, walker

    return run(story())


def bookmark_at(book: Book, asked: Source, stop: RecordKey, *, count: int) -> Bookmark | None:
    """Where a walk that is left after so many records goes on."""

    async def story() -> Bookmark | None:
        progress = asyncio.Event()
        walker = Walker(asked, book, Range(0, 600), now_ms=lambda: 10**6, progress=progress)
        async for _ in merged([walker], progress, limit=count):
            pass
        mark = walker.bookmark(stop)
        await walker.close()
        return mark

    return run(story())
