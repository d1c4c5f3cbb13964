"""Crossings: against all pairings of single units in exact fractions, and in streams."""

import random
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from itertools import permutations

from msgspec.structs import replace

from onebook.core import Book, View
from onebook.crossings import Crossing, crossings
from onebook.fees import TakerFees, fee_factors
from onebook.fill import BUY, SELL
from onebook.streams.fill import route_side
from onebook.transfers import CoinTransfer, NetworkTransfer, no_transfers

from .test_net_streams import FEES, NAMES, key
from .test_streams import Rig, levels

SEEDS = 2_000


def found_in(books, fees, least):
    names = [*books]
    scale, factors = fee_factors(fees[name] for name in names)
    cores = []
    for bids, asks in books.values():
        core = Book(100)
        core.replace(levels(bids), levels(asks))
        cores.append(core)
    view = View(names, depth=100, split=True, fees=[fees[name] for name in names])
    view.merge(cores)
    merged = view.levels()
    asks, bids = (route_side(merged, name, factors, scale) for name in (BUY, SELL))
    return crossings(asks, bids, names, least)


def market(rng):
    """Books of few units around one price, so that they cross often."""
    names = ["a", "b", "c"][: rng.randint(2, 3)]

    def side(low, high):
        prices = rng.sample(range(low, high), rng.randint(0, 2))
        return [(f"{price / 10}", f"{rng.randint(1, 2)}") for price in prices]

    books = {name: (side(95, 106), side(95, 106)) for name in names}
    for bids, asks in books.values():  # no book is crossed in itself
        if bids and asks and max(float(p) for p, _ in bids) >= min(float(p) for p, _ in asks):
            asks.clear()
    fees = {name: rng.choice(["0", "0.1", "0.26", "1", "-0.05"]) for name in names}
    return books, fees, rng.choice(["0", "0.5"])


def units(books, fees, side, sign):
    """Each unit as (net price, gross price, exchange)."""
    return [
        (Fraction(price) * (1 + sign * Fraction(fees[name]) / 100), Fraction(price), name)
        for name, book in books.items()
        for price, amount in book[side]
        for _ in range(int(amount))
    ]


def best_pairing(asked, bidden):
    """The maximum profit over all pairings of single units, by brute force."""
    nothing = [None] * len(bidden)
    return max(
        sum(max(Fraction(), bid[0] - ask[0]) for ask, bid in zip(order, bidden, strict=True) if ask)
        for order in permutations([*asked, *nothing], len(bidden))
    )


def test_no_pairing_of_units_earns_more():
    tried = 0
    for seed in range(SEEDS):
        rng = random.Random(seed)
        books, fees, least = market(rng)
        found = found_in(books, fees, least)
        asked, bidden = units(books, fees, 1, 1), units(books, fees, 0, -1)
        pairs = zip(sorted(asked), sorted(bidden, reverse=True), strict=False)
        factor = 1 + Fraction(least) / 100
        matched = [(a, b) for a, b in pairs if b[0] > a[0] and b[0] >= a[0] * factor]
        total = sum(Fraction(each.profit) for each in found)
        assert total == sum(bid[0] - ask[0] for ask, bid in matched), seed
        assert sum(each.amount for each in found) == len(matched), seed
        for side, offered in (("buy", asked), ("sell", bidden)):
            taken = Counter()
            for each in found:
                taken[getattr(each, side)] += each.amount
            assert taken <= Counter(unit[2] for unit in offered), seed
        for each in found:
            assert each.profit > 0, seed
            assert each.gross >= each.profit or "-" in "".join(fees.values()), seed
            assert each.buy_limit <= each.sell_limit or "-" in "".join(fees.values()), seed
        if least == "0" and matched and len(asked) <= 3 and len(bidden) <= 3:
            assert total == best_pairing(asked, bidden), seed
            tried += 1
    assert tried > 50


def test_a_crossing_states_its_limits_before_fees_and_its_profit_after_both():
    books = {"kraken": ([("101", "1"), ("100.9", "5")], []), "okx": ([], [("100", "2")])}
    (found,) = found_in(books, {"kraken": "0.26", "okx": "0.1"}, "0.5")
    assert found == Crossing(
        "okx", "kraken", Decimal(2), Decimal(100), Decimal("100.9"), Decimal("1.9"),
        Decimal("1.17506"), Decimal("0.586943"),
    )  # fmt: skip


APART = {"kraken": ([("99", "1")], [("101", "1")]), "okx": ([("99", "1")], [("100", "2")])}


def crossing_rig(transfers=no_transfers, **options):
    rig = Rig(NAMES, transfers=transfers)
    rig.opened(key(crossings="0", **options), **APART)
    rig.time.run(0.1)
    return rig


def shown(rig):
    return rig.heard.updates[-1][2]["data"]["crossings"]


def test_a_crossing_begins_changes_lasts_and_ends():
    rig = crossing_rig()
    assert shown(rig) == []
    rig.delta("kraken", [("101", "1")], [])
    rig.time.run(0.1)
    (began,) = shown(rig)
    assert began == {
        "phase": "began",
        "buy": "okx",
        "sell": "kraken",
        "lasted_ms": 0,
        "amount": 1,
        "buy_limit": 100,
        "sell_limit": 101,
        "gross": 1,
        "profit": Decimal("0.6374"),  # 101 x 0.9974 - 100 x 1.001
        "percent": Decimal("0.636763"),
        "buy_age_ms": began["buy_age_ms"],
        "sell_age_ms": began["sell_age_ms"],
    }
    assert began["buy_age_ms"] > began["sell_age_ms"]
    rig.time.run(0.5)
    rig.delta("kraken", [("101", "1.5")], [])
    rig.time.run(0.1)
    (changed,) = shown(rig)
    assert (changed["phase"], changed["amount"]) == ("changed", Decimal("1.5"))
    assert changed["lasted_ms"] >= 500
    rig.delta("okx", [("98", "1")], [])
    rig.time.run(0.1)
    assert [each["phase"] for each in shown(rig)] == ["lasts"]
    rig.delta("kraken", [("101", "0")], [])
    rig.time.run(0.1)
    (ended,) = shown(rig)
    assert ended.keys() == {"phase", "buy", "sell", "lasted_ms"}
    assert ended["phase"] == "ended"
    rig.delta("okx", [("98", "2")], [])
    rig.time.run(0.1)
    assert shown(rig) == []


def test_a_crossing_states_whether_the_coin_can_be_moved():
    network = NetworkTransfer("BTC", True, None, Decimal("0.00002"))
    coins = {("kraken", "BTC"): CoinTransfer("ccxt", 7, True, None, (network,))}
    rig = crossing_rig(transfers=lambda *coin: coins.get(coin))
    rig.delta("kraken", [("101", "1")], [])
    rig.time.run(0.1)
    (began,) = shown(rig)
    assert (began["buy"], began["sell"]) == ("okx", "kraken")
    assert began["transferable"] == {
        "coin": "BTC",
        "possible": None,
        "buy": None,
        "sell": {
            "via": "ccxt", "read_at_ms": 7, "deposit": True, "withdraw": None,
            "networks": [
                {"network": "BTC", "deposit": True, "withdraw": None,
                 "withdraw_fee": Decimal("0.00002")},
            ],
        },
    }  # fmt: skip
    closed = CoinTransfer("ccxt", 8, None, False)
    coins["okx", "BTC"] = closed
    rig.delta("kraken", [("101", "2")], [])
    rig.time.run(0.1)
    assert shown(rig)[0]["transferable"]["possible"] is False
    coins.clear()
    rig.delta("kraken", [("101", "3")], [])
    rig.time.run(0.1)
    assert "transferable" not in shown(rig)[0]


def test_a_stale_exchange_ends_its_crossings():
    rig = crossing_rig()
    rig.delta("kraken", [("101", "1")], [])
    rig.time.run(0.1)
    rig.lose("okx")
    rig.time.run(0.1)
    assert [each["phase"] for each in shown(rig)] == ["ended"]


def test_on_crossing_only_crossings_are_sent():
    rig = crossing_rig(on="crossing", mode="delta")
    count = len(rig.heard.updates)
    rig.delta("okx", [("99.5", "1")], [])  # a better bid that crosses nothing
    rig.time.run(0.5)
    assert len(rig.heard.updates) == count
    rig.delta("kraken", [("101", "1")], [])
    rig.time.run(0.1)
    message = rig.heard.updates[-1][2]
    assert (message["type"], message["symbol"]) == ("crossing", "BTC/USDT")
    assert [each["phase"] for each in message["crossings"]] == ["began"]
    assert message["bid"][0] == 101


def test_fees_that_eat_the_difference_leave_no_crossing():
    rig = Rig(NAMES)
    assert FEES["kraken"] == "0.26"
    close = {"kraken": ([("100.3", "1")], []), "okx": ([], [("100", "1")])}
    rig.opened(key(crossings="0"), **close)
    rig.time.run(0.1)
    assert shown(rig) == []


def test_an_exchange_whose_rebates_exceed_its_spread_crosses_itself():
    """Such a conversion is a pair of its own: orders on both sides earn the difference."""
    books = {"okx": ([("100", "2")], [("100.1", "1")])}
    assert found_in(books, {"okx": "0"}, "0") == []
    (found,) = found_in(books, {"okx": "-0.1"}, "0")
    assert (found.buy, found.sell, found.amount) == ("okx", "okx", 1)
    assert found.gross == Decimal("-0.1")
    assert found.profit == Decimal("0.1001")  # 100 x 1.001 - 100.1 x 0.999
    coins = {("okx", "BTC"): CoinTransfer("ccxt", 7, True, True)}
    rig = Rig(NAMES, transfers=lambda *coin: coins.get(coin))
    fees = TakerFees(okx="-0.1", kraken="0.26")
    view = key(crossings="0")
    rig.opened(view._replace(options=replace(view.options, fees=fees)), **books)
    rig.time.run(5)
    (began,) = shown(rig)
    assert (began["buy"], began["sell"]) == ("okx", "okx")
    assert "transferable" not in began
