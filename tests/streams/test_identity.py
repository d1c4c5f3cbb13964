"""Books of a symbol that belong to another coin, found by tables and by properties."""

from decimal import Decimal
from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from onebook.books import Books
from onebook.exchanges.kit import Delta, Snapshot
from onebook.model import Health, Instrument, Reason
from onebook.streams.identity import (
    CONFLICT,
    MOVES,
    SHARED,
    TWIN_LEVELS,
    TWIN_LEVELS_MIN,
    TWINS_FOR_S,
    UNCONFIRMED,
    IdentityLimits,
    PriceVerdict,
    Top,
    judge,
    pooled,
    review,
    review_twins,
)
from onebook.streams.members import StreamMembers

LIMIT = Decimal("0.1")
ALONE, AGREES, NEAR = PriceVerdict.ALONE, PriceVerdict.AGREES, PriceVerdict.NEAR
DISPUTED, OUTVOTED = PriceVerdict.DISPUTED, PriceVerdict.OUTVOTED


def at(mid, half_spread="0"):
    mid, half_spread = Decimal(mid), Decimal(half_spread)
    return Top.of(mid - half_spread, mid + half_spread)


def verdicts(*mids):
    return [each.verdict for each in judge([at(mid) for mid in mids], LIMIT)]


@pytest.mark.parametrize(
    ("mids", "expected"),
    [
        (["100"], [ALONE]),
        (["100", "104"], [AGREES, AGREES]),
        (["100", "108"], [NEAR, NEAR]),
        (["100", "110.5"], [NEAR, NEAR]),  # 9.5 % from one, 10.5 % from the other
        (["100", "112"], [DISPUTED, DISPUTED]),
        (["100", "101", "300"], [AGREES, AGREES, DISPUTED]),  # two others: no quarantine
        (["100", "200", "300"], [DISPUTED] * 3),
        (["100", "101", "102", "112.2"], [AGREES, AGREES, AGREES, OUTVOTED]),
        (["100", "100", "100", "110"], [AGREES, AGREES, AGREES, NEAR]),  # not more than 10 %
        (["100", "100", "100", "110.01"], [AGREES, AGREES, AGREES, OUTVOTED]),
        (["100", "100", "100", "89.99"], [AGREES, AGREES, AGREES, OUTVOTED]),
        (["100", "100", "7", "7"], [DISPUTED] * 4),  # two against two
        (["100", "100", "100", "7", "7"], [AGREES] * 3 + [OUTVOTED] * 2),
        (["100", "100", "100", "7", "7", "7"], [DISPUTED] * 6),
        (["100"] * 4 + ["7"] * 3, [AGREES] * 4 + [OUTVOTED] * 3),
        (["1", "2", "4", "8", "16"], [DISPUTED] * 5),  # no two agree
    ],
)
def test_a_book_is_compared_with_the_median_of_the_others(mids, expected):
    assert verdicts(*mids) == expected
    assert verdicts(*reversed(mids)) == expected[::-1]


def test_a_wide_spread_contradicts_no_price_inside_it():
    wide = at("150", "60")
    others = [at("100", "0.1"), at("101", "0.1"), at("100.5", "0.1")]
    assert judge([wide, *others], LIMIT)[0].verdict is AGREES
    assert judge([at("150", "40"), *others], LIMIT)[0].verdict is OUTVOTED


@st.composite
def one_other_coin(draw):
    """Tops near one price, and one far away, at a random position."""
    price = draw(st.decimals("0.00000001", "1000000", places=8))
    near = st.integers(970, 1030).map(lambda permille: at(price * permille / 1000))
    far = st.integers(1, 800) | st.integers(1200, 1_000_000)
    tops = draw(st.lists(near, min_size=3, max_size=12))
    place = draw(st.integers(0, len(tops)))
    tops.insert(place, at(price * draw(far) / 1000))
    return tops, place


@given(one_other_coin())
def test_exactly_the_one_that_deviates_is_outvoted(drawn):
    tops, place = drawn
    found = [each.verdict for each in judge(tops, LIMIT)]
    assert found[place] is OUTVOTED
    assert OUTVOTED not in found[:place] + found[place + 1 :]
    assert DISPUTED not in found


@given(
    st.lists(st.integers(950, 1050), min_size=1, max_size=12),
    st.decimals("0.00000001", "1000000", places=8),
)
def test_none_deviates_while_all_move_together(permilles, factor):
    found = judge([at(factor * each / 1000) for each in permilles], Decimal("0.11"))
    assert {each.verdict for each in found} <= {ALONE, AGREES, NEAR}


@given(st.lists(st.decimals("0.0001", "1000", places=4), min_size=4, max_size=9))
def test_a_majority_is_never_quarantined(mids):
    assert 2 * verdicts(*mids).count(OUTVOTED) < len(mids)


def test_the_table_of_marks_is_whole():
    assert set(MOVES) == set(product((None, UNCONFIRMED, CONFLICT, SHARED), PriceVerdict))
    assert {MOVES[each, PriceVerdict.AGREED] for each in (None, UNCONFIRMED, CONFLICT)} == {None}


class Symbol:
    """The books of one symbol on some exchanges, with prices set by hand."""

    def __init__(self, recovery_s=10.0):
        self.books = Books()
        self.limits = IdentityLimits(LIMIT, recovery_s)
        self.instruments = {}

    def price(self, **mids):
        for exchange, mid in mids.items():
            if exchange not in self.instruments:
                each = self.instruments[exchange] = Instrument(exchange, "MEME/USDT", exchange)
                self.books.open(each)
            each = self.instruments[exchange]
            bids, asks = (Raw(b'[["%s","1"]]' % str(mid + side).encode()) for side in (-1, 1))
            assert self.books.fill(Snapshot(each, bids, asks), 0.0) is None

    def review(self, now):
        changed = review(self.books.of("MEME/USDT"), self.limits, now)
        return {book.instrument.exchange for book in changed}

    def mark(self, exchange):
        mark = self.books.get(self.instruments[exchange]).mark
        return mark and mark.reason


def test_a_quarantine_ends_after_the_book_has_agreed_for_a_while_and_without_a_break():
    symbol = Symbol()
    symbol.price(a=1_000, b=1_001, c=1_002, d=1_500)
    assert symbol.review(0.0) == {"d"}
    assert symbol.mark("d") is Reason.IDENTITY_CONFLICT
    detail = symbol.books.get(symbol.instruments["d"]).mark.detail
    assert detail == "mid 1500, median of the other 3 1001"
    symbol.price(d=1_090)  # within the limit, but not within half of it
    assert symbol.review(1.0) == set()
    assert symbol.review(100.0) == set()
    symbol.price(d=1_040)
    assert symbol.review(101.0) == set()
    symbol.price(d=1_090)
    assert symbol.review(105.0) == set()  # from here it begins anew
    symbol.price(d=1_040)
    assert symbol.review(110.0) == set()
    assert symbol.review(119.9) == set()
    assert symbol.review(120.0) == {"d"}
    assert symbol.mark("d") is None


def test_a_quarantined_book_stays_so_while_nothing_shows_that_it_is_the_same_coin():
    symbol = Symbol()
    symbol.price(a=1_000, b=1_000, c=1_000, d=1_500)
    assert symbol.review(0.0) == {"d"}
    for exchange in "abc":
        symbol.books.set_health(symbol.instruments[exchange], Health.STALE, Reason.GAP, 1.0)
    assert symbol.review(1_000.0) == set()
    assert symbol.mark("d") is CONFLICT
    symbol.price(a=1_500)
    assert symbol.review(1_001.0) == set()
    assert symbol.review(1_011.0) == {"d"}


def test_what_is_not_live_or_has_one_side_is_not_checked_and_confirms_nothing():
    symbol = Symbol()
    symbol.price(a=1_000, b=1_000, c=1_000, d=1_500)
    symbol.books.set_health(symbol.instruments["a"], Health.STALE, Reason.GAP, 0.0)
    assert symbol.review(0.0) == {"d"}
    assert symbol.mark("d") is UNCONFIRMED  # of two others
    symbol.price(a=1_000, d=1_000)
    assert symbol.review(1.0) == set()
    empty = Delta(symbol.instruments["d"], Raw(b'[["999","0"]]'), Raw(b"[]"))
    assert symbol.books.change(empty, 2.0) is None
    assert symbol.review(11.0) == set()
    symbol.price(d=1_000)
    assert symbol.review(12.0) == set()
    assert symbol.review(22.0) == {"d"}


def test_two_that_disagree_are_both_marked_and_a_third_and_fourth_decide():
    symbol = Symbol()
    symbol.price(a=1_000, b=1_500)
    assert symbol.review(0.0) == {"a", "b"}
    assert symbol.mark("a") is symbol.mark("b") is UNCONFIRMED
    symbol.price(c=1_000, d=1_000)
    assert symbol.review(1.0) == {"b"}
    assert (symbol.mark("a"), symbol.mark("b")) == (UNCONFIRMED, CONFLICT)
    assert symbol.review(11.0) == {"a"}
    assert symbol.mark("a") is None


def test_a_book_that_is_closed_and_opened_again_is_checked_anew():
    symbol = Symbol()
    symbol.price(a=1_000, b=1_000, c=1_000, d=1_500)
    symbol.review(0.0)
    symbol.books.close(symbol.instruments.pop("d"))
    assert len(symbol.books.of("MEME/USDT")) == 3
    symbol.price(d=1_000)
    assert symbol.review(1.0) == set()
    assert symbol.mark("d") is None


# Equal books.


def test_the_dollars_of_a_base_are_pooled_and_other_quotes_are_not():
    assert pooled("BTC/USD") == ["BTC/USDC", "BTC/USDT"]
    assert pooled("BTC/EUR") == []


Level = tuple[int, int]  # ticks from the middle, amount


def side_of(levels: list[Level], sign: int) -> bytes:
    ticks = {abs(distance): amount for distance, amount in levels}
    return msgspec.json.encode(
        [[str(1_000_000 + sign * each), str(amount)] for each, amount in sorted(ticks.items())]
    )


class Dollars:
    """Books by exchange and symbol, filled with drawn levels."""

    def __init__(self):
        self.books = Books()
        self.instruments = {}

    def fill(self, exchange, symbol, bids, asks):
        key = exchange, symbol
        if key not in self.instruments:
            self.instruments[key] = Instrument(exchange, symbol, symbol)
            self.books.open(self.instruments[key])
        sides = Raw(side_of(bids, -1)), Raw(side_of(asks, 1))
        assert self.books.fill(Snapshot(self.instruments[key], *sides), 0.0) is None

    def review(self, now=0.0):
        return [book.instrument.exchange for book in review_twins(self.books, now)]

    def get(self, exchange, symbol):
        return self.books.get(self.instruments[exchange, symbol])


some_levels = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 10**12)),
    min_size=TWIN_LEVELS_MIN,
    max_size=40,
    unique_by=lambda level: level[0],
)


@given(some_levels, some_levels)
def test_of_two_equal_books_of_an_exchange_exactly_one_is_marked(bids, asks):
    world = Dollars()
    for symbol in ("BTC/USDC", "BTC/USD"):
        world.fill("gate", symbol, bids, asks)
    world.fill("kraken", "BTC/EUR", bids, asks)  # another symbol of another exchange
    assert world.review() == ["gate"]
    first, second = (world.get("gate", each) for each in ("BTC/USD", "BTC/USDC"))
    assert (first.mark, second.mark.reason) == (None, SHARED)
    assert second.mark.detail == "the same levels as gate BTC/USD"
    assert world.get("kraken", "BTC/EUR").mark is None
    assert world.review(1.0) == []


@given(some_levels, some_levels, st.data())
def test_a_difference_in_any_compared_level_makes_two_books(bids, asks, data):
    changed = [sorted(bids), sorted(asks)]
    side = data.draw(st.integers(0, 1))
    place = data.draw(st.integers(0, min(len(changed[side]), TWIN_LEVELS) - 1))
    distance, amount = changed[side][place]
    changed[side][place] = (distance, amount + 1)
    world = Dollars()
    world.fill("gate", "BTC/USD", bids, asks)
    world.fill("gate", "BTC/USDC", *changed)
    assert world.review() == []


@given(some_levels, some_levels)
def test_no_order_of_equal_books_is_counted_twice_in_a_merged_view(bids, asks):
    world, names = Dollars(), ["bequant", "hitbtc", "okx", "okxus"]
    for name in names:
        world.fill(name, "BTC/USD", bids, asks)
    world.review()
    for some in (names, names[1:], names[2:], names[:1]):
        members = StreamMembers(some, [world.instruments[each, "BTC/USD"] for each in some])
        members.refresh(world.books)
        assert [book.instrument.exchange for book in members.books] == some[:1]
        world.books.set_health(members.books[0].instrument, Health.STALE, Reason.GAP, 0.0)
        members.refresh(world.books)
        assert len(members.books) == min(1, len(some) - 1), "the next one stands in"
        world.fill(some[0], "BTC/USD", bids, asks)


def test_a_mark_of_an_equal_book_ends_when_it_was_not_equal_for_a_while():
    world, levels = Dollars(), [(each, each) for each in range(1, 9)]
    world.fill("okx", "BTC/USD", levels, levels)
    world.fill("okxus", "BTC/USD", levels, levels)
    assert world.review(0.0) == ["okxus"]
    world.fill("okxus", "BTC/USD", levels[1:], levels)
    assert world.review(TWINS_FOR_S - 1.0) == [], "streams of one book are not in step"
    assert world.review(TWINS_FOR_S) == ["okxus"]
    assert world.get("okxus", "BTC/USD").mark is None


def test_few_levels_prove_nothing():
    world, levels = Dollars(), [(each, 1) for each in range(1, TWIN_LEVELS_MIN)]
    for name in ("okx", "okxus"):
        world.fill(name, "BTC/USD", levels, levels)
    assert world.review() == []


def test_a_price_that_is_far_from_others_outweighs_an_equal_book():
    world, levels = Dollars(), [(each, 1) for each in range(1, 9)]
    for name in ("okx", "okxus"):
        world.fill(name, "BTC/USD", levels, levels)
    world.review()
    for name in ("a", "b", "c"):
        instrument = Instrument(name, "BTC/USD", name)
        world.books.open(instrument)
        bids, asks = (Raw(b'[["%d","1"]]' % price) for price in (500_000, 500_002))
        world.books.fill(Snapshot(instrument, bids, asks), 0.0)
    review(world.books.of("BTC/USD"), IdentityLimits(LIMIT, 10.0), 0.0)
    assert world.get("okxus", "BTC/USD").mark.reason is CONFLICT
