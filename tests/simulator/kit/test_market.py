"""The market: exact, seeded, never crossed within an exchange, sometimes across exchanges."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onebook.simulator import DIALECTS
from onebook.simulator.kit.market import (
    ListedSymbol,
    MarketBooks,
    Side,
    SimulatedBook,
    decimal_text,
    step_text,
    units,
)

NAMES = list(DIALECTS)
STEPS_A_SECOND = 10  # of `onebook demo`
STEPS = 600


def made(names: list[str], seed: int) -> MarketBooks:
    return MarketBooks({name: DIALECTS[name].offer() for name in names}, seed=seed)


def levels(book: SimulatedBook) -> tuple[dict[int, int], dict[int, int]]:
    return dict(book.bids.amounts), dict(book.asks.amounts)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**9), name=st.sampled_from(NAMES))
def test_a_book_is_never_crossed_and_keeps_its_depth(seed: int, name: str) -> None:
    market = made([name], seed)
    for _ in range(20):
        market.move()
        for symbol, _ in market.step(name):
            book = market.books(name)[symbol]
            assert book.bids.price(0) < book.asks.price(0)
            for side in (book.bids, book.asks):
                assert len(side) == DIALECTS[name].profile.depth
                assert side.price(0) > 0
                assert side.price(-1) > 0
                assert all(amount > 0 for amount in side.amounts.values())
                prices = [price for price, _ in side.top(len(side))]
                assert sorted(prices, reverse=side is book.bids) == prices
                assert set(prices) == set(side.amounts)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**9), name=st.sampled_from(NAMES))
def test_the_changes_of_a_step_lead_from_the_book_before_to_the_book_after(
    seed: int, name: str
) -> None:
    market = made([name], seed)
    books = market.books(name)
    copies = {symbol: levels(book) for symbol, book in books.items()}
    for _ in range(10):
        market.move()
        for symbol, changes in market.step(name):
            for copy, side in zip(copies[symbol], changes, strict=True):
                for price, amount in side:
                    assert copy.get(price, 0) != amount
                    copy[price] = amount
                    if not amount:
                        del copy[price]
            assert copies[symbol] == levels(books[symbol])


def test_the_same_seed_gives_the_same_market_whatever_else_runs() -> None:
    def walk(names: list[str], seed: int) -> list[object]:
        market = made(names, seed)
        out: list[object] = []
        for _ in range(5):
            market.move()
            out += list(market.step("okx"))
        return out

    assert walk(["okx"], 5) == walk(NAMES, 5)
    assert walk(["okx"], 5) != walk(["okx"], 6)


def test_a_step_of_some_symbols_leaves_the_others() -> None:
    market = made(["okx"], 1)
    before = levels(market.books("okx")["ETH/USDT"])
    assert [symbol for symbol, _ in market.step("okx", ["BTC/USDT"])] == ["BTC/USDT"]
    assert levels(market.books("okx")["ETH/USDT"]) == before


def test_a_book_that_slept_catches_up_without_crossing() -> None:
    market = made(["okx"], 1)
    for _ in range(500):
        market.move()
    book = market.books("okx")["BTC/USDT"]
    list(market.step("okx"))
    assert book.bids.price(0) < book.asks.price(0)
    assert len(book.bids) == DIALECTS["okx"].profile.depth


def test_books_of_different_exchanges_meet_at_equal_prices() -> None:
    market = made(["binance", "bybit"], 2)
    for _ in range(100):
        market.move()
        for name in ("binance", "bybit"):
            list(market.step(name, ["BTC/USDT"]))
        one, other = (market.books(name)["BTC/USDT"] for name in ("binance", "bybit"))
        assert len(set(one.asks.amounts) & set(other.asks.amounts)) > 20


@pytest.mark.parametrize(
    ("names", "seed"), [(NAMES, 1), (NAMES[:4], 7), (NAMES[:4], 2026)], ids=["all", "four", "more"]
)
def test_the_merged_market_is_seldom_crossed_and_arbitrage_closes_it_within_a_second(
    names: list[str], seed: int
) -> None:
    """Checked after each step of each exchange, also between simultaneous ones."""
    market = made(names, seed)
    books = {
        name: market.books(name)["BTC/USDT"] for name in names if "BTC/USDT" in market.books(name)
    }
    best: dict[str, tuple[Decimal, Decimal]] = {}
    looks, crossed, lasted, longest, events = 0, 0, 0, 0, 0
    for _ in range(STEPS):
        market.move()
        for name, book in books.items():
            list(market.step(name, ["BTC/USDT"]))
            unit = Decimal(book.listing.tick)
            best[name] = book.bids.price(0) * unit, book.asks.price(0) * unit
            looks += 1
            if max(bid for bid, _ in best.values()) >= min(ask for _, ask in best.values()):
                crossed += 1
                lasted += 1
                events += lasted == 1
                longest = max(longest, lasted)
            else:
                lasted = 0
    assert crossed / looks < 0.05
    assert events > 0, "a crossing is seen now and then"
    assert longest / len(books) < STEPS_A_SECOND


@pytest.mark.parametrize("rate_hz", [1, 3, 10, 100])
def test_a_crossing_lasts_about_a_second_however_slow_or_fast_the_steps_are(rate_hz: int) -> None:
    """A loaded machine takes fewer steps a second, and `onebook demo --rate` up to a thousand."""
    names, seconds = NAMES[:5], 120 if rate_hz <= STEPS_A_SECOND else 20
    now_ms = 0
    market = MarketBooks(
        {name: DIALECTS[name].offer() for name in names}, seed=1, clock=lambda: now_ms / 1000
    )
    symbols = ("BTC/USDT", "ETH/USDT", "SOL/USDT", "DOGE/USDT")
    best: dict[str, dict[str, tuple[int, int]]] = {symbol: {} for symbol in symbols}
    since_ms = dict.fromkeys(symbols, -1)
    crossed_ms, longest_ms, events = dict.fromkeys(symbols, 0), 0, 0
    for at_ms in range(0, seconds * 1000, 1000 // rate_hz):
        now_ms = at_ms
        market.move()
        for turn, name in enumerate(names):
            now_ms = at_ms + turn * (1000 // rate_hz // len(names))
            listed = [symbol for symbol in symbols if symbol in market.books(name)]
            for symbol, _ in market.step(name, listed):
                book = market.books(name)[symbol]
                unit = 10 ** (12 - book.listing.price_decimals)
                best[symbol][name] = book.bids.price(0) * unit, book.asks.price(0) * unit
                quotes = best[symbol].values()
                if max(bid for bid, _ in quotes) < min(ask for _, ask in quotes):
                    since_ms[symbol] = -1
                    continue
                if since_ms[symbol] < 0:
                    since_ms[symbol], events = now_ms, events + 1
                longest_ms = max(longest_ms, now_ms - since_ms[symbol])
        for symbol in symbols:
            crossed_ms[symbol] += 1000 // rate_hz if since_ms[symbol] >= 0 else 0
    assert events > 0, "a crossing is seen now and then"
    assert longest_ms <= 1000 + 1000 // rate_hz
    assert max(crossed_ms.values()) / seconds / 1000 < 0.05


def test_bitcoin_is_everywhere_and_first_and_every_listing_is_distinct() -> None:
    listed = [dialect.listings for dialect in DIALECTS.values()]
    for rows in listed:
        assert rows[0].symbol in ("BTC/USDT", "BTC/USD")
        assert len({row.symbol for row in rows}) == len({row.native for row in rows}) == len(rows)
    everywhere = {row.symbol for rows in listed for row in rows}
    assert everywhere >= {"BTC/USDT", "ETH/USDT", "SOL/USDT", "BTC/USD", "ETH/USD", "ETH/BTC"}


@given(value=st.integers(0, 10**20), decimals=st.integers(0, 12), least=st.integers(0, 12))
def test_decimal_text_is_exact(value: int, decimals: int, least: int) -> None:
    text = decimal_text(value, decimals, places=min(least, decimals))
    assert Decimal(text) == Decimal(value).scaleb(-decimals, None)
    assert units(text, decimals) == value
    shortest = decimal_text(value, decimals)
    assert "." not in shortest or shortest[-1] not in "0."


def test_a_listing_states_its_steps() -> None:
    listing = ListedSymbol("ETH/BTC", "ETHBTC", 5, 0)
    assert (listing.base, listing.quote) == ("ETH", "BTC")
    assert (listing.tick, listing.lot) == ("0.00001", "1")
    assert step_text(1) == "0.1"


def test_a_side_forgets_changes_that_came_to_nothing() -> None:
    side = Side(1)
    side.set(5, 1)
    side.set(5, 0)
    side.set(7, 0)
    assert side.drain() == []
    side.set(9, 1)
    side.set(4, 2)
    assert side.drain() == [(4, 2), (9, 1)]
    assert [side.price(0), side.price(-1)] == [4, 9]


@pytest.mark.parametrize(("sign", "price", "expected"), [(1, 7, 10), (-1, 7, 5), (1, 10, 10)])
def test_the_grid_never_moves_a_level_nearer_to_the_middle(
    sign: int, price: int, expected: int
) -> None:
    assert Side(sign).on_grid(price, 5) == expected
