"""Quote baskets: books of several quotes in one view; `test_pooled.py` has random ones."""

import json
import random
from decimal import Decimal

import pytest

from core.conversions import random_book
from onebook.fees import TakerFees, exchange_of, symbol_of
from onebook.model import Instrument
from onebook.streams import StreamKey, ViewOptions
from onebook.streams.basket import conversion_steps, member_name
from onebook.streams.fill import fill_sizes

from .test_streams import Rig

OWN, USDC, USD = "BTC/USDT", "BTC/USDC", "BTC/USD"


def rig_of(listed):
    """Return a rig whose exchanges list these symbols."""
    rig = Rig((), ())
    for exchange, symbols in listed.items():
        rig.feeds.listed.update(Rig((exchange,), symbols).feeds.listed)
    return rig


def opened(rig, key, **books):
    """Open a stream over live books, by exchange and symbol, and let it publish."""
    stream = rig.streams.open(key)
    for exchange, of in books.items():
        for symbol, (bids, asks) in of.items():
            rig.snapshot(exchange, bids, asks, symbol)
    rig.time.run(2)
    return stream


def key_of(*members, quotes=("USD", "USDC"), symbol=OWN, **options):
    return StreamKey(symbol, tuple(sorted(members)), ViewOptions(quotes=quotes, **options))


def data_of(rig):
    return rig.heard.updates[-1][3]["data"]


LISTED = {
    "kraken": (OWN, USDC, "USDC/USDT"),
    "okx": (OWN, USD),
    "binance": (USD, "USDT/USD"),
}
BOOKS = {
    "kraken": {
        OWN: ([("99", "1")], [("101", "1")]),
        USDC: ([("99.5", "2")], [("100", "2")]),
        "USDC/USDT": ([("0.999", "500")], [("1.001", "150"), ("1.002", "500")]),
    },
    "okx": {OWN: ([("99", "5")], [("101", "4")]), USD: ([("98", "1")], [("102", "1")])},
    "binance": {USD: ([], [("99", "1")]), "USDT/USD": ([("1.25", "900")], [("1.28", "900")])},
}
MEMBERS = ("kraken", "kraken:USDC", "okx", "okx:USD", "binance:USD")


def test_a_member_is_an_exchange_or_an_exchange_and_a_quote():
    assert member_name("kraken", "USDT", "USDT") == "kraken"
    assert member_name("kraken", "USD", "USDT") == "kraken:USD"
    assert [exchange_of(each) for each in ("kraken", "kraken:USD")] == ["kraken"] * 2
    assert [symbol_of(each, OWN) for each in ("kraken", "kraken:USD")] == [OWN, USD]


def test_a_conversion_is_the_own_exchanges_else_that_of_all():
    steps = conversion_steps(sorted(MEMBERS), OWN, lambda exchange, pair: pair in LISTED[exchange])
    assert [(step.symbol, step.inverse, step.through, step.members) for step in steps] == [
        ("USDT/USD", True, ("binance",), ("binance:USD", "okx:USD")),
        ("USDC/USDT", False, ("kraken",), ("kraken:USDC",)),
    ]
    lost = conversion_steps(["a:EUR", "b"], OWN, lambda exchange, pair: False)
    assert lost == []


def test_books_of_all_quotes_are_one_view_with_the_name_of_each():
    rig = rig_of(LISTED)
    opened(rig, key_of(*MEMBERS, split=True, ages=True), **BOOKS)
    data = data_of(rig)
    assert [(each["price"], each["exchanges"], each["amounts"]) for each in data["asks"]] == [
        (Decimal("79.2"), ["binance:USD"], [1]),
        (Decimal("81.6"), ["okx:USD"], [1]),
        (Decimal("100.1"), ["kraken:USDC"], [1]),
        (Decimal("100.2"), ["kraken:USDC"], [1]),
        (101, ["kraken", "okx"], [1, 4]),
    ]
    assert [each["price"] for each in data["bids"]] == [
        Decimal("99.4005"),
        99,
        Decimal("76.5625"),
    ]
    assert data["market_stats"]["participating_exchanges"] == 5
    assert data["stale_exchanges"] == []
    (kraken,) = (each for each in data["conversions"] if each["symbol"] == "USDC/USDT")
    assert kraken == {
        "symbol": "USDC/USDT",
        "members": ["kraken:USDC"],
        "exchanges": ["kraken"],
        "stale_exchanges": [],
        "bid": [Decimal("0.999"), 500],
        "ask": [Decimal("1.001"), 150],
        "age_ms": kraken["age_ms"],
        "reason": None,
    }
    assert set(data["ages"]) == set(MEMBERS)


def test_what_a_lost_conversion_book_converts_leaves_the_view_in_the_same_turn():
    rig = rig_of(LISTED)
    stream = opened(rig, key_of(*MEMBERS, interval_ms=60_000), **BOOKS)
    rig.heard.statuses.clear()
    at, number = rig.time.now_s, stream.update_number
    rig.lose("binance", symbol="USDT/USD")
    rig.time.run(0)
    assert stream.update_number == number + 1
    assert rig.heard.updates[-1][0] == at
    data = data_of(rig)
    assert data["stale_exchanges"] == ["binance:USD", "okx:USD"]
    assert [each["reason"] for each in data["conversions"]] == ["gap", None]
    assert data["conversions"][0]["bid"] is None
    assert [each["price"] for each in data["asks"]] == [Decimal("100.1"), Decimal("100.2"), 101]
    told = {each["exchange"]: each for _, _, each in rig.heard.statuses}
    assert sorted(told) == ["binance:USD", "okx:USD"]
    assert (told["okx:USD"]["symbol"], told["okx:USD"]["state"]) == (OWN, "stale")
    assert told["okx:USD"]["reason"] == "gap"
    assert "USDT/USD on binance" in told["okx:USD"]["detail"]
    rig.heard.statuses.clear()
    rig.snapshot("binance", *BOOKS["binance"]["USDT/USD"], symbol="USDT/USD")
    rig.time.run(60)
    assert data_of(rig)["stale_exchanges"] == []
    assert {each["state"] for _, _, each in rig.heard.statuses} == {"live"}


def test_a_conversion_pair_that_an_exchange_lists_later_is_used_as_soon_as_it_is_read():
    rig = rig_of(LISTED)
    stream = opened(rig, key_of(*MEMBERS, interval_ms=60_000), **BOOKS)
    rig.heard.statuses.clear()
    number = stream.update_number
    rig.feeds.listed["okx", "USDT/USD"] = late = Instrument("okx", "USDT/USD", "USDT-USD")
    rig.time.run(120)
    assert stream.update_number == number
    rig.feeds.on_read("binance")
    assert late not in rig.feeds.wanted
    rig.feeds.on_read("okx")
    assert rig.feeds.wanted[late] == 1
    rig.time.run(0)
    assert data_of(rig)["stale_exchanges"] == ["okx:USD"]
    told = [(each["exchange"], each["state"], each["reason"]) for _, _, each in rig.heard.statuses]
    assert told == [("okx:USD", "stale", "subscribing")]
    rig.snapshot("okx", [("1.2", "900")], [("1.25", "900")], symbol="USDT/USD")
    rig.time.run(60)
    data = data_of(rig)
    assert data["stale_exchanges"] == []
    assert [
        (each["symbol"], each["exchanges"], each["members"]) for each in data["conversions"]
    ] == [
        ("USDT/USD", ["binance"], ["binance:USD"]),
        ("USDT/USD", ["okx"], ["okx:USD"]),
        ("USDC/USDT", ["kraken"], ["kraken:USDC"]),
    ]
    assert Decimal("85") in [each["price"] for each in data["asks"]]  # 102 / 1.2
    assert rig.heard.statuses[-1][2]["state"] == "live"
    number = stream.update_number
    rig.feeds.on_read("okx")  # the same list again
    rig.time.run(120)
    assert stream.update_number == number
    rig.streams.close(stream)
    assert set(rig.feeds.wanted.values()) == {0}


def test_a_conversion_pair_that_is_delisted_is_replaced_or_its_books_leave_the_view():
    listed = {**LISTED, "okx": (OWN, USD, "USDT/USD")}
    rig = rig_of(listed)
    books = {**BOOKS, "okx": {**BOOKS["okx"], "USDT/USD": ([("1.2", "900")], [("1.25", "900")])}}
    stream = opened(rig, key_of(*MEMBERS, interval_ms=60_000), **books)
    assert Decimal("85") in [each["price"] for each in data_of(rig)["asks"]]
    gone = rig.feeds.listed.pop(("okx", "USDT/USD"))
    number = stream.update_number
    rig.feeds.on_read("okx")
    rig.time.run(0)
    assert stream.update_number == number + 1
    assert data_of(rig)["stale_exchanges"] == []
    assert Decimal("81.6") in [each["price"] for each in data_of(rig)["asks"]]  # 102 / 1.25
    assert rig.feeds.wanted[gone] == 0
    rig.heard.statuses.clear()
    gone = rig.feeds.listed.pop(("binance", "USDT/USD"))
    rig.feeds.on_read("binance")
    rig.time.run(0)
    assert data_of(rig)["stale_exchanges"] == ["binance:USD", "okx:USD"]
    assert [each["symbol"] for each in data_of(rig)["conversions"]] == ["USDC/USDT"]
    told = [(each["exchange"], each["state"], each["reason"]) for _, _, each in rig.heard.statuses]
    assert told == [(name, "offline", "no_conversion") for name in ("binance:USD", "okx:USD")]
    rig.feeds.listed["binance", "USDT/USD"] = gone
    rig.feeds.on_read("binance")
    rig.time.run(60)
    assert data_of(rig)["stale_exchanges"] == []
    rig.streams.close(stream)
    assert set(rig.feeds.wanted.values()) == {0}


def test_a_book_that_nothing_converts_stays_closed_and_joins_when_a_pair_is_listed():
    """Each new subscriber hears of it once; its book is opened with the conversion."""
    listed = {**LISTED, "binance": (USD,)}
    rig = rig_of(listed)
    books = {**BOOKS, "binance": {}, "okx": {OWN: BOOKS["okx"][OWN]}}
    key = key_of(*MEMBERS, interval_ms=60_000)
    stream = opened(rig, key, **books)
    lost = ["binance:USD", "okx:USD"]
    assert data_of(rig)["stale_exchanges"] == lost
    assert not [each for each in rig.feeds.wanted if each.symbol == USD]
    assert not [each for *_, each in rig.heard.statuses if each["exchange"] in lost]
    for _ in range(2):
        told = [json.loads(each) for each in rig.streams.marks(rig.streams.open(key))]
        assert [(each["exchange"], each["state"], each["reason"]) for each in told] == [
            (name, "offline", "no_conversion") for name in lost
        ]
    rig.feeds.listed["binance", "USDT/USD"] = Instrument("binance", "USDT/USD", "USDT-USD")
    rig.feeds.on_read("binance")
    for name, symbol in (("binance", "USDT/USD"), ("binance", USD), ("okx", USD)):
        rig.snapshot(name, *BOOKS[name][symbol], symbol=symbol)
    rig.time.run(60)
    assert data_of(rig)["stale_exchanges"] == []
    for _ in range(3):
        rig.streams.close(stream)
    assert set(rig.feeds.wanted.values()) == {0}


def test_one_of_several_books_of_a_conversion_that_is_lost_is_an_update_in_the_same_turn():
    """The member stays, because another book converts it: at its price."""
    listed = {"kraken": ("USDT/USD", OWN), "binance": ("USDT/USD", OWN), "okx": (USD,)}
    rig = rig_of(listed)
    books = {
        "kraken": {"USDT/USD": ([("1.2", "900")], [("1.28", "900")]), OWN: ([], [("101", "1")])},
        "binance": {"USDT/USD": ([("1.25", "900")], [("1.28", "900")]), OWN: ([], [("102", "1")])},
        "okx": {USD: ([], [("100", "1")])},
    }
    stream = opened(rig, key_of("kraken", "binance", "okx:USD", interval_ms=60_000), **books)
    assert data_of(rig)["asks"][0]["price"] == 80  # 100 / 1.25
    number = stream.update_number
    rig.lose("binance", symbol="USDT/USD")
    rig.time.run(0)
    assert stream.update_number == number + 1
    assert data_of(rig)["asks"][0]["price"] == Decimal("83.3333333334")
    (step,) = data_of(rig)["conversions"]
    assert step["stale_exchanges"] == ["binance"]


def test_a_change_of_a_conversion_book_is_an_update():
    rig = rig_of(LISTED)
    stream = opened(rig, key_of(*MEMBERS), **BOOKS)
    number = stream.update_number
    rig.delta("kraken", [], [("1.001", "0")], symbol="USDC/USDT")
    rig.time.run(1)
    assert stream.update_number == number + 1
    assert Decimal("100.1") not in [each["price"] for each in data_of(rig)["asks"]]


def test_each_book_is_subscribed_once_and_released():
    rig = rig_of(LISTED)
    stream = opened(rig, key_of(*MEMBERS), **BOOKS)
    assert set(rig.feeds.wanted.values()) == {1}
    assert {each.symbol for each in rig.feeds.wanted} == {OWN, USDC, USD, "USDC/USDT", "USDT/USD"}
    rig.streams.close(stream)
    assert set(rig.feeds.wanted.values()) == {0}


def test_a_bridge_is_a_basket_whose_own_pair_nobody_has_to_list():
    rig = rig_of({"kraken": ("SOL/USDT", "BTC/USDT")})
    books = {
        "SOL/USDT": ([("150", "10")], [("151", "10")]),
        "BTC/USDT": ([("100000", "1")], [("100100", "1")]),
    }
    key = key_of("kraken:USDT", quotes=("USDT",), symbol="SOL/BTC")
    opened(rig, key, kraken=books)
    data = data_of(rig)
    (bid,), (ask,) = data["bids"], data["asks"]
    assert (bid["price"], ask["price"]) == (Decimal("0.001498501498"), Decimal("0.00151"))
    assert bid["exchanges"] == ["kraken:USDT"]


def test_routes_fills_and_crossings_are_of_the_pooled_book():
    rig = rig_of(LISTED)
    fees = TakerFees(kraken="0.1", okx="0", binance="0")
    sizes = fill_sizes(["3"], [])
    key = key_of(*MEMBERS, fees=fees, net=True, split=True, fill=sizes, crossings="0")
    opened(rig, key, **BOOKS)
    data = data_of(rig)
    (bought,) = data["fill"]["buy"]
    assert {each["exchange"]: each["amount"] for each in bought["split"]} == {
        "binance:USD": 1,
        "okx:USD": 1,
        "kraken:USDC": 1,
    }
    # 100 USDC at 1.001, after 0.1 % for BTC and 0.1 % for USDC
    price = Decimal("100") * Decimal("1.001") * Decimal("1.001")
    (level,) = (each for each in data["asks"] if each["gross"] == [price])
    assert level["price"] == price * Decimal("1.001")
    assert {(each["buy"], each["sell"]) for each in data["crossings"]} >= {
        ("binance:USD", "kraken:USDC")
    }


def test_a_book_can_be_requested_once():
    rig = rig_of(LISTED)
    answers = []
    for exchange, of in BOOKS.items():
        for symbol, (bids, asks) in of.items():
            rig.books.open(rig.feeds.instrument(exchange, symbol))
            rig.snapshot(exchange, bids, asks, symbol)
    rig.streams.fetch(key_of(*MEMBERS), answers.append)
    rig.time.run(3)
    assert b'"kraken:USDC"' in answers[0]
    assert b'"conversions":[{"symbol":"USDT/USD"' in answers[0]
    assert set(rig.feeds.wanted.values()) == {0}


def test_coverage_is_in_the_quote_of_the_view():
    rig = rig_of(LISTED)
    books = {**BOOKS, "kraken": {**BOOKS["kraken"], USDC: ([], [("100", "2"), ("300", "90")])}}
    opened(rig, key_of(*MEMBERS, coverage=True), **books)
    coverage = data_of(rig)["coverage"]
    # 650 USDC are known: what costs more has no known price.
    assert coverage["kraken:USDC"] == {"bids": None, "asks": Decimal("300.6")}
    assert coverage["okx:USD"] == {"bids": None, "asks": None}


FEES = ("0", "0.1", "0.26", "-0.02")
SHARED = {"okx": (USDC,), "bybit": (USDC,), "kraken": ("USDC/USDT",)}
TAKEN = ("bybit:USDC", "okx:USDC")


def bought_without(books, exclude, fees, size):
    """Return the routes of a size that exclude exchanges, and those of a view without them."""
    found = []
    for without in (exclude, []):
        members = [each for each in TAKEN if without or exchange_of(each) not in exclude]
        rig = rig_of(SHARED)
        fill = fill_sizes([size], [], exclude=without)
        # Another exchange of the view has the conversion book, and no book of the coin.
        key = key_of("kraken", *members, quotes=("USDC",), fees=TakerFees(fees), fill=fill)
        opened(rig, key, **books)
        found.append({side: of[0] for side, of in data_of(rig)["fill"].items()})
    return found


def test_an_excluded_exchange_has_used_up_the_best_conversion_levels():
    # The example of docs/explanation/net.md
    books = {
        "bybit": {USDC: ([], [("100", "1")])},
        "okx": {USDC: ([], [("101", "1")])},
        "kraken": {"USDC/USDT": ([], [("1.001", "101"), ("1.01", "900")])},
    }
    bound, exact = (each["buy"] for each in bought_without(books, ["bybit"], {"*": "0"}, "0.5"))
    assert [each["exchange"] for each in bound["split"]] == ["okx:USDC"]
    assert bound["average"] == Decimal("101") * Decimal("1.01")
    assert exact["average"] == Decimal("101") * Decimal("1.001")


@pytest.mark.parametrize("seed", range(40))
def test_the_route_of_an_exclusion_costs_at_least_what_it_costs_without_the_exchange(seed):
    random_ = random.Random(seed)
    books = {}
    for exchange, (symbol,) in SHARED.items():
        sides = [[], []]
        while not all(sides):
            mid, most = (1.01, 400) if exchange == "kraken" else (100, 3)
            book = random_book(random_, mid, most)
            sides = [list(side.items()) for side in book or ((), ())] if book else [[], []]
        books[exchange] = {symbol: sides}
    fees = {name: random_.choice(FEES) for name in SHARED}
    size = random_.choice(("0.5", "3"))
    bound, exact = bought_without(books, [random_.choice(("okx", "bybit"))], fees, size)
    for side, sign in (("buy", 1), ("sell", -1)):
        # A route that finds less conversion left may be shorter.
        assert bound[side]["amount"] <= exact[side]["amount"]
        if bound[side]["amount"] == exact[side]["amount"]:
            assert sign * bound[side]["net"] >= sign * exact[side]["net"]
