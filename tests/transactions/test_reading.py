"""Windows are read page by page, in either direction."""

import asyncio

import pytest

from onebook.transactions.adapter import Page, Window
from onebook.transactions.failures import FailureReason, TooOld
from onebook.transactions.merge import merged
from onebook.transactions.ordering import Range
from onebook.transactions.reading import is_last
from onebook.transactions.walk import Walker
from transactions.bybit_support import run
from transactions.walking import event, simple, source, walked


def test_a_cursor_that_repeats_ends_the_window() -> None:
    book = simple(5)
    book.answers = lambda window, cursor: Page([event(5)], 3, "again")
    found, _ = walked(book, source(), 0, 99)
    assert len(found) == 1
    assert len(book.asked) == 2


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
