"""Reading a source one symbol at a time."""

import pytest

from onebook.transactions.adapter import Page, Window
from onebook.transactions.failures import SourceFailed
from onebook.transactions.fanout import SymbolFanOut, pages_along
from transactions.bybit_support import run
from transactions.test_record import record

WINDOW = Window(100, 200, 199)


class Exchange:
    """Two symbols: one traded in the window, one a little after it; two pages each."""

    def __init__(self) -> None:
        self.traded_asked: list[Window] = []
        self.asked: list[tuple[str, str]] = []

    async def traded(self, category: str, window: Window) -> set[str]:
        self.traded_asked.append(window)
        return {100: {"A"}, 200: {"B"}}.get(window.from_ms, set())

    async def page(self, symbol: str, cursor: str) -> Page:
        self.asked.append((symbol, cursor))
        rows = [record(transactionId=f"{symbol}{cursor}")]
        return Page(rows, 1, "" if cursor else "next", unreadable=1)


def test_a_window_is_every_symbol_traded_around_it_page_by_page() -> None:
    exchange = Exchange()
    fan = SymbolFanOut(exchange.traded, margin_ms=50)
    page = run(fan.page("linear", WINDOW, exchange.page))
    assert exchange.asked == [("A", ""), ("A", "next"), ("B", ""), ("B", "next")]
    assert [one.transactionId for one in page.records] == ["A", "Anext", "B", "Bnext"]
    assert (page.rows, page.cursor, page.unreadable) == (4, "", 4)
    assert {(w.from_ms, w.to_ms) for w in exchange.traded_asked} == {
        (50, 100), (100, 200), (200, 250),
    }  # fmt: skip


def test_symbols_of_a_window_are_asked_for_once() -> None:
    exchange = Exchange()
    fan = SymbolFanOut(exchange.traded, margin_ms=50)

    async def twice() -> None:
        await fan.page("linear", WINDOW, exchange.page)
        await fan.page("linear", WINDOW, exchange.page)

    run(twice())
    assert len(exchange.traded_asked) == 3


async def count(page: Page) -> int:
    """Of pages that are all the same."""

    async def ask(cursor: str) -> Page:
        return page

    return len([one async for one in pages_along(ask)])


def test_a_page_without_rows_is_the_last() -> None:
    assert run(count(Page([], 0, "more"))) == 1


def test_a_cursor_that_repeats_is_a_failure() -> None:
    with pytest.raises(SourceFailed, match="repeated a cursor"):
        run(count(Page([], 1, "same")))


def test_pages_without_end_are_a_failure() -> None:
    async def read() -> None:
        async def ask(cursor: str) -> Page:
            return Page([], 1, cursor + "x")

        async for _ in pages_along(ask, pages_max=5):
            pass

    with pytest.raises(SourceFailed, match="more pages"):
        run(read())
