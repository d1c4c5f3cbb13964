"""Updates as values: exact numbers in every form, whatever the levels are."""

import math
import sys
from decimal import Context, Decimal, localcontext
from struct import pack, unpack_from
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onebook.core.types import LEVEL_FORM, PART_FORM, Levels
from onebook.library import BookLevel, BookUpdate, Health, MissingPackage, Reason
from onebook.library.update import BestLevels, ExchangeCondition, Naming

NAMES = ("binance", "okx", "kraken")
EXACT = Context(prec=200)
NARROW = 10**18  # below it a number is packed

# A level: price, amount, and the part of each exchange that has one.
Row = tuple[int, int, list[tuple[int, int]]]


@st.composite
def sides(draw: Any, ends: int) -> list[Row]:
    rows = []
    for price in draw(st.lists(st.integers(1, ends), max_size=6, unique=True)):
        members = draw(st.lists(st.integers(0, len(NAMES) - 1), min_size=1, unique=True))
        parts = [(member, draw(st.integers(1, ends // 4))) for member in sorted(members)]
        rows.append((price, sum(part for _, part in parts), parts))
    return rows


@st.composite
def books(draw: Any) -> tuple[Levels, list[Row], list[Row]]:
    wide = draw(st.booleans())
    split = draw(st.booleans())
    ends = 10**30 if wide else NARROW
    bids = sorted(draw(sides(ends)), reverse=True)
    asks = sorted(draw(sides(ends)))
    packed = [_packed(rows, wide=wide) for rows in (bids, asks)]
    parts = [_parts(rows if split else [], wide=wide) for rows in (bids, asks)]
    scales = draw(st.integers(0, 18)), draw(st.integers(0, 18))
    return levels_of(*scales, *packed, *parts), bids, asks


def levels_of(
    price_scale: int, amount_scale: int, bids: Any, asks: Any, bid_parts: Any, ask_parts: Any
) -> Levels:
    """The levels of a view, with new objects for the best ones."""
    best = [_first(side) if side else None for side in (bids, asks)]
    return Levels(price_scale, amount_scale, bids, asks, bid_parts, ask_parts, *best)


def _first(side: Any) -> tuple[int, int, int]:
    row = unpack_from(LEVEL_FORM, side) if isinstance(side, bytes) else side[0]
    price, amount, members = row
    return price, amount, members


def _packed(rows: list[Row], *, wide: bool) -> Any:
    triples = [
        (price, amount, sum(1 << member for member, _ in parts)) for price, amount, parts in rows
    ]
    return triples if wide else b"".join(pack(LEVEL_FORM, *each) for each in triples)


def _parts(rows: list[Row], *, wide: bool) -> Any:
    amounts = [part for _, _, parts in rows for _, part in parts]
    return amounts if wide else b"".join(pack(PART_FORM, each) for each in amounts)


def update_of(levels: Levels, **changes: Any) -> BookUpdate:
    conditions = tuple(ExchangeCondition(name, Health.LIVE, True, None, "") for name in NAMES)
    naming = Naming(NAMES)
    best_bid, best_ask = BestLevels(naming).of(levels)
    values = {
        "best_bid": best_bid,
        "best_ask": best_ask,
        "symbol": "BTC/USDT",
        "number": 1,
        "time_us": 1_700_000_000_123_456,
        "_levels": levels,
        "_naming": naming,
        "_conditions": conditions,
        "_observed": [(9.0, ("10", "20")), (10.5, (None, "19.5")), (10.0, ("12", None))],
        "_now": 10.0,
    }
    return BookUpdate(**{**values, **changes})


def value(mantissa: int, scale: int) -> Decimal:
    return Decimal(mantissa).scaleb(-scale, EXACT)


@given(book=books())
def test_every_form_of_a_side_holds_the_same_levels(
    book: tuple[Levels, list[Row], list[Row]],
) -> None:
    levels, bids, asks = book
    update = update_of(levels)
    prices, amounts = levels.price_scale, levels.amount_scale
    with localcontext(Context(prec=3)):  # a caller's context rounds nothing
        for side, rows in ((update.bids, bids), (update.asks, asks)):
            split = bool(levels.bid_parts or levels.ask_parts)
            expected = [
                BookLevel(
                    value(price, prices),
                    value(amount, amounts),
                    tuple(NAMES[member] for member, _ in parts),
                    tuple(value(part, amounts) for _, part in parts) if split else (),
                )
                for price, amount, parts in rows
            ]
            assert len(side) == len(expected)
            assert list(side) == expected
            assert [side[at] for at in range(len(side))] == expected
            assert [side[at] for at in range(-len(side), 0)] == expected
            assert side[1:4] == expected[1:4]
            assert side.ints() == [(price, amount) for price, amount, _ in rows]
            assert side.decimals() == [[each.price, each.amount] for each in expected]
            assert side.attributions() == [each.exchanges for each in expected]
            # The nearest float to the exact number is what Python reads from its text.
            assert side.floats() == [
                [float(f"{each.price:f}"), float(f"{each.amount:f}")] for each in expected
            ]
            with pytest.raises(IndexError):
                side[len(side)]


@given(book=books())
def test_best_prices_mid_and_spread_are_exact(book: tuple[Levels, list[Row], list[Row]]) -> None:
    levels, bids, asks = book
    update = update_of(levels)
    with localcontext(Context(prec=3)):
        mid, spread, crossed = update.mid, update.spread, update.crossed
    bid = update.best_bid
    assert (bid is None) == (not bids)
    assert bid is None or bid == update.bids[0]
    assert not asks or update.best_ask == update.asks[0]
    if bid is None or update.best_ask is None:
        assert (mid, spread, crossed) == (None, None, False)
        return
    best = value(bids[0][0], levels.price_scale), value(asks[0][0], levels.price_scale)
    assert (bid.price, update.best_ask.price) == best
    assert mid is not None
    assert EXACT.multiply(mid, Decimal(2)) == EXACT.add(*best)
    assert spread == EXACT.subtract(best[1], best[0])
    assert crossed is (best[0] >= best[1])


def test_each_update_has_the_best_levels_that_its_view_had() -> None:
    best = BestLevels(Naming(NAMES))
    same = pack(LEVEL_FORM, 12345, 67, 1)
    other = pack(LEVEL_FORM, 12345, 68, 2)
    price, amount = Decimal("123.45"), Decimal("0.067")
    for scales, rows, expected in (
        ((2, 3), same, (price, amount, ("binance",), ())),
        ((3, 3), same, (Decimal("12.345"), amount, ("binance",), ())),
        ((2, 3), other, (price, Decimal("0.068"), ("okx",), ())),
        ((2, 3), b"", None),
        ((2, 3), same, (price, amount, ("binance",), ())),
    ):
        assert best.of(levels_of(*scales, rows, rows, b"", b"")) == (expected, expected)


@given(book=books())
def test_ccxt_gets_pairs_of_floats_and_the_time(book: tuple[Levels, list[Row], list[Row]]) -> None:
    update = update_of(book[0])
    got = update.to_ccxt()
    assert got == {
        "symbol": "BTC/USDT",
        "bids": update.bids.floats(),
        "asks": update.asks.floats(),
        "timestamp": 1_700_000_000_123,
        "datetime": "2023-11-14T22:13:20.123Z",
        "nonce": None,
    }
    assert all(math.isfinite(number) for level in got["bids"] + got["asks"] for number in level)


@settings(max_examples=25)
@given(book=books())
def test_pandas_gets_the_same_levels(book: tuple[Levels, list[Row], list[Row]]) -> None:
    pytest.importorskip("pandas")
    update = update_of(book[0])
    for exact in (False, True):
        frame = update.to_pandas(exact=exact)
        assert [*frame.columns] == ["side", "price", "amount", "exchanges"]
        for name, side in (("bid", update.bids), ("ask", update.asks)):
            rows = frame[frame["side"] == name]
            pairs = [list(each) for each in zip(rows["price"], rows["amount"], strict=True)]
            assert pairs == (side.decimals() if exact else side.floats())
            assert [tuple(each) for each in rows["exchanges"]] == side.attributions()
        assert frame.attrs["symbol"] == "BTC/USDT"


@settings(max_examples=25)
@given(book=books())
def test_polars_gets_the_same_levels(book: tuple[Levels, list[Row], list[Row]]) -> None:
    polars = pytest.importorskip("polars")
    update = update_of(book[0])
    frame = update.to_polars()
    pairs = [list(each) for each in zip(frame["price"], frame["amount"], strict=True)]
    assert pairs == update.bids.floats() + update.asks.floats()
    assert [tuple(each) for each in frame["exchanges"]] == (
        update.bids.attributions() + update.asks.attributions()
    )
    frame = update.to_polars(exact=True)
    assert frame.schema["price"] == polars.Decimal(38, update.price_scale)
    pairs = [list(each) for each in zip(frame["price"], frame["amount"], strict=True)]
    assert pairs == update.bids.decimals() + update.asks.decimals()


def test_numbers_beyond_polars_decimal_are_refused_when_exact() -> None:
    pytest.importorskip("polars")
    update = update_of(levels_of(0, 18, [(1, 10**38, 1)], [], [], []))
    with pytest.raises(ValueError, match="more digits than polars' Decimal at 18 decimals"):
        update.to_polars(exact=True)
    assert update.to_polars()["amount"].to_list() == [1e20]


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_package_that_is_not_there_is_named(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    update = update_of(levels_of(2, 3, b"", b"", b"", b""))
    with pytest.raises(MissingPackage, match=f"needs {package}.*pip install {package}") as caught:
        getattr(update, f"to_{package}")()
    assert isinstance(caught.value, ImportError)


def test_the_horizon_is_where_the_first_of_the_shown_exchanges_ends() -> None:
    update = update_of(levels_of(2, 3, b"", b"", b"", b""))
    assert update.horizon == (Decimal(12), Decimal("19.5"))
    healths = update.exchanges
    assert healths["okx"].horizon == (None, Decimal("19.5"))
    assert [each.age_s for each in healths.values()] == [1.0, 0.0, 0.0]


def test_what_is_left_out_is_reported_with_its_reason() -> None:
    conditions = (
        ExchangeCondition("binance", Health.STALE, False, Reason.GAP, "numbers"),
        ExchangeCondition("okx", Health.LIVE, True, None, ""),
    )
    update = update_of(
        levels_of(2, 3, b"", b"", b"", b""), _conditions=conditions, _observed=[(9.0, (None, "3"))]
    )
    assert (update.stale, update.live) == (("binance",), True)
    binance = update.exchanges["binance"]
    assert (binance.state, binance.reason, binance.detail) == ("stale", "gap", "numbers")
    assert (binance.age_s, binance.horizon) == (None, (None, None))
    assert update.exchanges["okx"].horizon == (None, Decimal(3))
    with pytest.raises(ValueError, match="of 2 exchanges"):
        _ = update.exchange
    assert repr(update) == "<BookUpdate BTC/USDT #1: - / - (binance stale, okx)>"
