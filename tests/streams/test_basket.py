"""Quote baskets: books of several quotes in one view, against raw books in exact fractions."""

import random
import sys
from decimal import Decimal
from fractions import Fraction

import pytest

from core.conversions import World, decimals_of, expected, random_book
from onebook.fees import TakerFees, exchange_of, fee_of, symbol_of
from onebook.model import Health
from onebook.streams import StreamKey, ViewOptions
from onebook.streams.basket import conversion_steps, member_name
from onebook.streams.fill import fill_sizes

from .test_streams import Rig

OWN, USDC, USD = "BTC/USDT", "BTC/USDC", "BTC/USD"
SEEDS = 60  # `PYTHONPATH=tests python -m streams.test_basket 10000` runs more


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
        ("USDT/USD", True, ("binance",), ("binance:USD",)),
        ("USDT/USD", True, ("binance",), ("okx:USD",)),
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
    assert [each["reason"] for each in data["conversions"]] == ["gap", "gap", None]
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


# Random worlds

EXCHANGES = ("kraken", "okx")
QUOTES = {"USDC": "USDC/USDT", "USD": "USDT/USD"}
FEES = ("0", "0.1", "0.26", "-0.02")


def steps_of(listed, members):
    """Return {conversion: (through, members)} by the documented rule, found independently."""
    found = {}
    for member in members:
        exchange, _, quote = member.partition(":")
        if not quote:
            continue
        pair = QUOTES[quote]
        through = (
            (exchange,)
            if pair in listed[exchange]
            else tuple(each for each in EXCHANGES if pair in listed[each])
        )
        if through:
            alone = exchange if pair in listed[exchange] else ""
            found.setdefault((pair, alone), (through, []))[1].append(member)
    return found


def pooled(listed, members, books, fees, depth, scale_of):
    """Return the expected sides as [(price, {member: amount})], and the members left out."""
    sides = ({}, {})
    left_out = {each for each in members if books.get(where(each)) is None}
    converted = steps_of(listed, members)
    for (pair, _), (through, served) in converted.items():
        live = [books.get((each, pair)) for each in through]
        if all(each is None for each in live):
            left_out.update(served)
            continue
        world = World(
            [books.get(where(each)) for each in served],
            [fee_of(fees, *where(each)) or "0" for each in served],
            live,
            [fee_of(fees, each, pair) or "0" for each in through],
            pair.startswith("USDT"),
            [scale_of(*where(each)) for each in served],
        )
        for side in (0, 1):
            found = expected(world, side, decimals_of(world))
            for member, levels in zip(served, found, strict=True):
                for price, amount in levels:
                    sides[side].setdefault(price, {})[member] = amount
    for member in members:
        if ":" not in member and member not in left_out:
            for side in (0, 1):
                for price, amount in books[where(member)][side].items():
                    sides[side].setdefault(Fraction(price), {})[member] = Fraction(amount)
    ordered = [sorted(sides[0].items(), reverse=True), sorted(sides[1].items())]
    return [side[:depth] for side in ordered], left_out


def where(member):
    return exchange_of(member), symbol_of(member, OWN)


def fill_of(levels, size):
    """Return (amount, notional) of the cheapest fill."""
    amount = notional = Fraction(0)
    for price, parts in levels:
        taken = min(size - amount, sum(parts.values()))
        amount += taken
        notional += taken * price
    return amount, notional


def check(seed):
    """Let random books of a basket change, get lost and return; compare each update."""
    random_ = random.Random(seed)
    listed = {
        exchange: {OWN, USDC, USD} | {pair for pair in QUOTES.values() if random_.random() < 0.6}
        for exchange in EXCHANGES
    }
    every = [f"{exchange}{quote}" for exchange in EXCHANGES for quote in ("", ":USDC", ":USD")]
    served = {each for _, members in steps_of(listed, every).values() for each in members}
    members = sorted(each for each in every if ":" not in each or each in served)
    kind = random_.random()
    names = list(EXCHANGES) if kind < 0.5 else []
    if kind < 0.25:  # published fees differ by pair
        names = [f"{each}:{pair}" for each in EXCHANGES for pair in sorted(listed[each])]
    fees = {each: random_.choice(FEES) for each in names}
    depth, size = random_.choice((1, 4, 500)), random_.choice(("0.5", "3", "40"))
    options = {"depth": depth, "split": True, "mode": "delta", "interval_ms": 10}
    # Without fees a fill is gross; with fees routes have their own tests.
    options |= {"fees": TakerFees(fees)} if fees else {"fill": fill_sizes([size], [])}
    rig = rig_of(listed)
    stream = rig.streams.open(key_of(*members, **options))
    books, replayed = {}, ({}, {})

    def amount_scale(exchange, symbol):
        return rig.books.get(rig.feeds.instrument(exchange, symbol)).core.amount_scale

    for _ in range(5):
        for instrument in list(rig.feeds.wanted):
            place, symbol = (instrument.exchange, instrument.symbol), instrument.symbol
            mid, most = (100, 3) if symbol.startswith("BTC") else (1.01, 400)
            action = random_.random()
            if action < 0.15 and place in books:
                rig.lose(*place[:1], Health.STALE, symbol=symbol)
                del books[place]
            elif action < 0.7:
                book = random_book(random_, mid, most)
                if book is not None:
                    rig.snapshot(place[0], *(side.items() for side in book), symbol=symbol)
                    books[place] = book
        rig.heard.updates.clear()
        rig.time.run(5)
        if not rig.heard.updates:
            continue
        for _, _, message, _ in rig.heard.updates:
            if message["type"] == "aggregated_orderbook_update":
                replayed = ({}, {})
            for side, name in enumerate(("bids", "asks")):
                for level in message["data"][name]:
                    replayed[side].pop(level["price"], None)
                    if level["amount"]:
                        replayed[side][level["price"]] = level
        data = data_of(rig)
        most = 500 if "fill" in options else depth
        wanted, left_out = pooled(listed, members, books, fees, most, amount_scale)
        assert set(data["stale_exchanges"]) == left_out, seed
        for side, name in enumerate(("bids", "asks")):
            assert [level_of(each) for each in data[name]] == wanted[side][:depth], (seed, name)
            by_price = sorted(replayed[side].values(), key=lambda each: each["price"])
            assert (by_price if side else by_price[::-1]) == data[name], (seed, name)
        for side, name in enumerate(("sell", "buy")):
            for fill in data["fill"][name] if "fill" in options else ():
                found = Fraction(fill["amount"]), Fraction(fill["notional"])
                assert found == fill_of(wanted[side], Fraction(size)), (seed, name)
    rig.streams.close(stream)
    assert set(rig.feeds.wanted.values()) == {0}


def level_of(level):
    parts = zip(level["exchanges"], map(Fraction, level["amounts"]), strict=True)
    return Fraction(level["price"]), dict(parts)


@pytest.mark.parametrize("block", range(4))
def test_baskets_are_what_exact_fractions_say(block):
    for seed in range(block * SEEDS // 4, (block + 1) * SEEDS // 4):
        check(seed)


if __name__ == "__main__":
    for seed_ in range(int(sys.argv[1])):
        check(seed_)
    print(f"{sys.argv[1]} seeds: equal")
