"""Markets and their cache."""

import logging
from collections.abc import AsyncGenerator, Callable
from random import Random
from typing import Any

import pytest

from onebook.transactions.budget import Retries
from onebook.transactions.failures import FailureReason, SourceFailed
from onebook.transactions.markets import (
    GUESSES_MAX,
    MARKETS_MAX_AGE_MS,
    InstrumentRow,
    MarketCache,
    Markets,
)
from onebook.transactions.record import TradedMarket
from transactions.bybit_support import CLOCK, run

RETRIES = Retries(Random(1))


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


def cache(pages: Pages) -> MarketCache:
    return MarketCache(new(), pages, clock=CLOCK, display="Some Exchange")


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
        await CLOCK.sleep(MARKETS_MAX_AGE_MS / 1_000 + 1)
        await found.load("spot", RETRIES)
        return found

    assert run(story()).markets.find("spot", "CD").base == "C"
    assert asked == ["spot", "linear", "spot"]


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
