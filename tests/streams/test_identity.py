"""Which books of a symbol are of another coin, judged by tables and by properties."""

from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from onebook.books import Books
from onebook.exchanges.contract import Delta, Snapshot
from onebook.model import Health, Instrument, Reason
from onebook.streams.identity import (
    CONFLICT,
    MOVES,
    UNCONFIRMED,
    IdentityLimits,
    PriceVerdict,
    Top,
    judge,
    review,
)

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
    """Tops near one price and one more that is far away, at a drawn place."""
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
    assert set(MOVES) == set(product((None, UNCONFIRMED, CONFLICT), PriceVerdict))
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
