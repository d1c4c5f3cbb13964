"""Fills: exact costs of sizes, against a model that takes one order after the other."""

import json
from decimal import Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.both import EACH
from onebook import core as default
from onebook.fill import BookEnds
from onebook.fill import fills as priced
from onebook.streams import StreamKey, ViewOptions, fill
from onebook.streams.fill import FILL_LEVELS_MAX, FILL_SIZES_MAX, FillSizes, fill_side, fill_sizes

from .test_streams import BOOK, Rig, parse

NAMES = ("kraken", "okx", "xt")
PRICE = st.integers(1, 40).map(lambda n: str(Decimal(n) / 4))
NUMBER = st.builds(
    lambda mantissa, scale: f"{Decimal(mantissa).scaleb(-scale):f}",
    st.integers(1, 10**6),
    st.integers(0, 6),
)
SIDE = st.lists(st.tuples(PRICE, NUMBER), max_size=12, unique_by=lambda level: level[0])
WIDE = Context(prec=200)


def model(side, sizes, by, *, buys):
    """The oracle: single orders, best price first, within a price the largest, then by name."""
    orders = [
        (Fraction(price), Fraction(amount), name)
        for name, rows in side.items()
        for price, amount in rows
    ]
    orders.sort(key=lambda order: (order[0] if buys else -order[0], -order[1], order[2]))
    for size in sizes:
        wanted, amount, cost, split, prices = Fraction(size), Fraction(0), Fraction(0), {}, []
        for price, held, name in orders:
            left = wanted - amount if by == "amount" else (wanted - cost) / price
            if left <= 0:
                break
            part = min(held, left)
            amount, cost = amount + part, cost + part * price
            split[name] = split.get(name, 0) + part
            prices.append(price)
        yield amount, cost, split, prices, (amount if by == "amount" else cost) == wanted


def merged(core, sides):
    view = core.View(NAMES, depth=FILL_LEVELS_MAX, split=True)
    books = []
    for name in NAMES:
        book = core.Book()
        bids, asks = (json.dumps(side.get(name, [])).encode() for side in sides)
        book.replace(bids, asks)
        books.append(book)
    view.merge(books)
    return view.levels()


def fills(levels, direction, sizes, names, ends):
    side = fill_side(levels, direction)
    return priced(side, direction, sizes.amounts, sizes.notionals, names, ends)


@pytest.mark.parametrize("core", EACH)
@given(
    bids=st.dictionaries(st.sampled_from(NAMES), SIDE),
    asks=st.dictionaries(st.sampled_from(NAMES), SIDE),
    sizes=st.lists(NUMBER, min_size=1, max_size=4),
    by=st.sampled_from(("amount", "notional")),
)
def test_a_fill_is_what_single_orders_would_give(core, bids, asks, sizes, by):
    levels = merged(core, (bids, asks))
    asked = fill_sizes(sizes, []) if by == "amount" else fill_sizes([], sizes)
    texts = asked.amounts or asked.notionals
    for direction, side in (("buy", asks), ("sell", bids)):
        found = fills(levels, direction, asked, NAMES, [])
        expected = [*model(side, texts, by, buys=direction == "buy")]
        assert [each.size for each in found] == sorted({Decimal(size) for size in sizes})
        for got, (amount, cost, split, prices, complete) in zip(found, expected, strict=True):
            cut = Fraction(1, 10**18)  # the only step that is not exact: notional / price
            assert 0 <= amount - Fraction(got.amount) <= (cut if by == "notional" else 0)
            assert Fraction(got.notional) == cost
            assert got.complete == complete
            assert sum(map(Fraction, (part.notional for part in got.split.values()))) == cost
            assert sum(Fraction(part.amount) for part in got.split.values()) == Fraction(got.amount)
            for name, part in split.items():
                assert 0 <= part - Fraction(got.split[name].amount) <= cut
            assert (got.worst is None) == (not prices)
            assert got.levels == len(set(prices))
            if prices:
                assert Fraction(got.worst) == prices[-1]
                exact = WIDE.divide(got.notional, got.amount)
                assert abs(got.average - exact) <= abs(exact) * Decimal("1e-17")


def test_what_is_not_known_further_out_is_named_exactly_where_it_matters():
    sides = {}, {"okx": [("100", "1"), ("102", "5")], "kraken": [("101", "1")]}
    levels = merged(default, sides)
    ends = [
        BookEnds("kraken", None, Decimal(101)),
        BookEnds("okx", None, Decimal(102)),
        BookEnds("xt", None, None),
    ]
    found = fills(levels, "buy", fill_sizes(["1", "2", "2.5", "8"], []), NAMES, ends)
    assert [each.uncovered for each in found] == [(), (), ("kraken",), ("kraken", "okx")]
    assert [each.complete for each in found] == [True, True, True, False]
    assert found[3].amount == 7
    assert found[2].split == {
        "kraken": (Decimal(1), Decimal(101)),
        "okx": (Decimal("1.5"), Decimal(151)),
    }


def test_a_level_that_is_partly_needed_is_taken_from_the_largest_first():
    rows = {"xt": [("10", "2")], "okx": [("10", "2")], "kraken": [("10", "1")]}
    found = fills(merged(default, ({}, rows)), "buy", fill_sizes(["3"], []), NAMES, [])
    assert {name: part.amount for name, part in found[0].split.items()} == {"okx": 2, "xt": 1}


@pytest.mark.parametrize(
    ("amounts", "notionals", "words"),
    [
        ([], [], "name 1 to"),
        (["1"] * 3 + [str(n) for n in range(2, 7)], ["1", "2", "3"], f"1 to {FILL_SIZES_MAX}"),
        (["0"], [], "more than 0"),
        (["0.00"], [], "more than 0"),
        (["-1"], [], "positive decimal"),
        (["1e3"], [], "positive decimal"),
        (["."], [], "positive decimal"),
        (["٣"], [], "positive decimal"),
        ([], ["1" * 19], "positive decimal"),
        ([], ["0." + "0" * 18 + "1"], "at most 18 decimals"),
    ],
)
def test_sizes_that_are_none_are_refused(amounts, notionals, words):
    with pytest.raises(ValueError, match=words):
        fill_sizes(amounts, notionals)


def test_sizes_have_one_form():
    assert fill_sizes(["1.50", "01", "1.5"], ["100", "20.0"]) == FillSizes(
        ("1", "1.5"), ("20", "100")
    )


# In streams


def key(*exchanges, **options):
    return StreamKey("BTC/USDT", tuple(sorted(exchanges)), ViewOptions(**options))


SIZES = fill_sizes(["2"], [])


def test_an_update_carries_fills_over_whole_books_whatever_its_depth_and_step():
    rig = Rig()
    deep = ([("100", "1"), ("99", "2")], [("101", "1"), ("102", "2")])
    rig.opened(key("okx", depth=1, group="50", fill=SIZES), okx=deep)
    rig.time.run(1)
    data = rig.heard.updates[-1][2]["data"]
    assert len(data["asks"]) == 1
    (bought,), (sold,) = data["fill"]["buy"], data["fill"]["sell"]
    assert bought == {
        "by": "amount",
        "size": 2,
        "amount": 2,
        "notional": 203,
        "average": Decimal("101.5"),
        "worst": 102,
        "levels": 2,
        "complete": True,
        "uncovered": [],
        "split": [{"exchange": "okx", "amount": 2, "notional": 203}],
    }
    assert (sold["average"], sold["worst"]) == (Decimal("99.5"), 99)


def test_a_change_beyond_the_depth_is_an_update_only_where_it_changes_a_fill():
    rig = Rig()
    deep = [("101", "1"), ("102", "2"), ("103", "4")]
    rig.opened(key("okx", depth=1, levels="array", fill=SIZES), okx=([("100", "1")], deep))
    rig.time.run(1)
    seen = len(rig.heard.updates)
    rig.delta("okx", [], [("103", "5")])
    rig.time.run(1)
    assert len(rig.heard.updates) == seen
    rig.delta("okx", [], [("102", "0")])
    rig.time.run(1)
    assert len(rig.heard.updates) == seen + 1
    assert rig.heard.updates[-1][2]["data"]["fill"]["buy"][0]["worst"] == 103


def test_an_exchange_that_is_not_live_is_in_no_fill_and_an_empty_side_gives_null():
    rig = Rig()
    rig.opened(key("kraken", "okx", mode="delta", fill=SIZES), okx=BOOK, kraken=BOOK)
    rig.time.run(1)
    rig.lose("kraken")
    rig.time.run(1)
    fill_now = rig.heard.updates[-1][2]["data"]["fill"]
    assert {each["exchange"] for each in fill_now["buy"][0]["split"]} == {"okx"}
    rig.lose("okx")
    rig.time.run(1)
    bought = rig.heard.updates[-1][2]["data"]["fill"]["buy"][0]
    assert (bought["average"], bought["worst"], bought["complete"]) == (None, None, False)
    assert (bought["amount"], bought["split"]) == (0, [])


def test_a_look_carries_fills_and_a_view_without_them_makes_none(monkeypatch):
    rig = Rig()
    rig.opened(key("okx"), okx=BOOK)
    answers = []
    rig.streams.fetch(key("okx", fill=SIZES), answers.append)
    assert parse(answers[0])["data"]["fill"]["buy"][0]["size"] == 2
    monkeypatch.setattr(fill.FillView, "merge", None)
    rig.delta("okx", [("100", "9")], [])
    rig.time.run(1)
    assert "fill" not in rig.heard.updates[-1][2]["data"]


def test_sizes_make_another_stream():
    assert key("okx", fill=SIZES).id != key("okx").id
    assert key("okx", fill=SIZES).id != key("okx", fill=fill_sizes([], ["2"])).id


def test_cutting_is_down():
    levels = merged(default, ({}, {"okx": [("3", "9")]}))
    found = fills(levels, "buy", fill_sizes([], ["1"]), NAMES, [])
    assert found[0].amount == Decimal("0." + "3" * 18)
    assert found[0].notional == 1
