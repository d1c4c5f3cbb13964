"""Markets, their cache, and sources that are read by symbol."""

import logging
from collections.abc import AsyncGenerator, Callable
from random import Random
from typing import Any

import pytest

from onebook.clock import Clock, ManualClock
from onebook.transactions.adapter import FailureReason, Page, SourceFailed, Window
from onebook.transactions.limits import Retries
from onebook.transactions.markets import (
    GUESSES_MAX,
    MARKETS_MAX_AGE_S,
    InstrumentRow,
    MarketCache,
    Markets,
    SymbolFanOut,
    pages_along,
)
from onebook.transactions.record import TradedMarket
from transactions.bybit_support import CLOCK, run
from transactions.test_record import record

RETRIES = Retries(Random(1))
WINDOW = Window(100, 200, 199)


def market(category: str, symbol: str, base: str | None = None) -> TradedMarket:
    return TradedMarket(symbol, category, None, base, None, None, None)


def new() -> Markets:
    return Markets(lambda category, row: market(category, row["symbol"], row["base"]), market)


def test_the_list_wins_over_the_name() -> None:
    markets = new()
    assert markets.find("spot", "AB").base is None
    markets.load("spot", [{"symbol": "AB", "base": "A"}])
    assert markets.find("spot", "AB").base == "A"
    assert markets.find("linear", "AB").base is None


def test_guesses_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert GUESSES_MAX > 3_000
    monkeypatch.setattr("onebook.transactions.markets.GUESSES_MAX", 1)
    markets = new()
    assert markets.find("spot", "A") is markets.find("spot", "A")
    assert markets.find("spot", "B") is not markets.find("spot", "B")


Pages = Callable[[str, Retries], AsyncGenerator[list[InstrumentRow]]]


def cache(pages: Pages, clock: Clock = CLOCK) -> MarketCache:
    return MarketCache(new(), pages, clock=clock, display="Some Exchange")


def test_a_list_is_asked_for_once_an_hour() -> None:
    asked: list[str] = []

    async def pages(category: str, retries: Retries) -> AsyncGenerator[list[InstrumentRow]]:
        asked.append(category)
        yield [{"symbol": "AB", "base": "A"}]
        yield [{"symbol": "CD", "base": "C"}]

    async def story() -> MarketCache:
        found = cache(pages)
        for category in ("spot", "spot", "linear"):
            await found.load(category, RETRIES)
        await CLOCK.sleep(MARKETS_MAX_AGE_S + 1)
        await found.load("spot", RETRIES)
        return found

    assert run(story()).markets.find("spot", "CD").base == "C"
    assert asked == ["spot", "linear", "spot"]


async def test_a_step_of_the_wall_clock_does_not_change_how_old_a_list_is() -> None:
    asked: list[str] = []

    async def pages(category: str, retries: Retries) -> AsyncGenerator[list[InstrumentRow]]:
        asked.append(category)
        yield []

    clock = ManualClock(epoch_us=1_763_000_000_000_000)
    found = cache(pages, clock)
    await found.load("spot", RETRIES)
    clock.epoch_us += 86_400_000_000
    await found.load("spot", RETRIES)
    assert len(asked) == 1
    clock.epoch_us -= 2 * 86_400_000_000
    clock.move_to(MARKETS_MAX_AGE_S + 1)
    await found.load("spot", RETRIES)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SourceFailed(FailureReason.RATE_LIMITED, "Too many."), "rate_limited: Too many."),
        (KeyError("what the exchange said"), "unreadable_answer"),
    ],
)
def test_a_list_that_cannot_be_had_costs_only_what_names_do_not_state(
    error: Exception, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def pages(category: str, retries: Retries) -> AsyncGenerator[list[InstrumentRow]]:
        yield [{"symbol": "AB", "base": "A"}]
        raise error

    async def story() -> Any:
        found = cache(pages)
        await found.load("spot", RETRIES)
        return found.markets.find("spot", "AB").base

    caplog.set_level(logging.WARNING)
    assert run(story()) == "A"
    assert said in caplog.text
    assert "what the exchange said" not in caplog.text


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
