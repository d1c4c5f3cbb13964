"""Random baskets and bridges: order, fills, routes, crossings and deltas, in exact fractions.

Each seed is a world of raw books that change, get lost and return, while exchanges list conversion
pairs and delist them. Every level of every member is converted anew for each comparison. In half of
the worlds amounts are whole numbers, so that every split in lots is tried, and in the smallest of
them every pairing of units. `ONEBOOK_SEEDS` sets how many seeds, or which (`120:140`); `make soak`
runs 10,000.
"""

import os
import random
from fractions import Fraction
from itertools import permutations
from math import lcm
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from core.conversions import World, decimals_of, expected, random_book, taker
from onebook.fees import TakerFees, exchange_of, fee_of, symbol_of
from onebook.model import Health
from onebook.streams import StreamKey, ViewOptions
from onebook.streams.fill import fill_sizes

from .test_streams import Rig, parse

FIRST, _, END = os.environ.get("ONEBOOK_SEEDS", "120").rpartition(":")
SEEDS = range(int(FIRST or 0), int(END))
PER_TEST = 40
ROUNDS = 5
UNITS_MAX = 4  # a side of which every pairing is tried

EXCHANGES = ("gate", "kraken", "okx")
FEES = ("0", "0.1", "0.26", "-0.02", "-0.3")
CHAINS = (("1", "1", "1"), ("1", "2", "4"), ("5", "1", "10"), ("2", "1", "2"), ("3", "3", "1"))
PLACES = {  # the pair that converts each quote of a view
    "BTC/USDT": {"USDC": "USDC/USDT", "USD": "USDT/USD"},
    "SOL/BTC": {"USDT": "BTC/USDT", "USDC": "USDC/BTC"},
}


class Order(NamedTuple):
    """One level of a member: signed net price, so that the best is the lowest."""

    net: Fraction
    held: Fraction
    at: int
    name: str
    gross: Fraction


class Basket:
    """One random world: which pairs are listed, the fees, and the raw books that are live."""

    def __init__(self, seed):
        self.random = random_ = random.Random(seed)
        self.symbol, self.conversions = random_.choice([*PLACES.items()])
        self.is_small = random_.random() < 0.5
        base, _, self.own = self.symbol.partition("/")
        owns = [each for each in EXCHANGES if self.own == "USDT" or random_.random() < 0.5]
        self.listed = {
            exchange: {f"{base}/{quote}" for quote in self.conversions}
            | {self.symbol for _ in range(exchange in owns)}
            | {pair for pair in self.conversions.values() if random_.random() < 0.6}
            for exchange in EXCHANGES
        }
        every = [f"{exchange}:{quote}" for exchange in EXCHANGES for quote in self.conversions]
        served = {each for members in self.steps(every).values() for each in members}
        self.members = sorted([*owns, *served])
        kind = random_.random()
        names = list(EXCHANGES) if kind < 0.75 else []
        if kind < 0.25:  # published fees differ by pair
            pairs = {*self.conversions.values()}
            names = [f"{e}:{pair}" for e in EXCHANGES for pair in sorted(self.listed[e] | pairs)]
        self.fees = TakerFees({each: random_.choice(FEES) for each in names})
        self.books = {}
        self.rules = {}  # (lot, least, least notional) by exchange and symbol

    def where(self, member):
        return exchange_of(member), symbol_of(member, self.symbol)

    def fee(self, exchange, symbol):
        return fee_of(self.fees, exchange, symbol) or "0"

    def fee_at(self, member):
        return self.fee(*self.where(member))

    def steps(self, members):
        """Return {(pair, through): members} by the documented rule."""
        found = {}
        for member in members:
            exchange, _, quote = member.partition(":")
            if not quote:
                continue
            pair = self.conversions[quote]
            is_own = pair in self.listed[exchange]
            through = (exchange,) if is_own else tuple(self.converting(pair))
            if through:
                found.setdefault((pair, through), []).append(member)
        return found

    def converting(self, pair):
        return [each for each in EXCHANGES if pair in self.listed[each] and self.takes_part(each)]

    def takes_part(self, exchange):
        """Whether an exchange has a book in the view; while the members are unknown, each has."""
        return any(exchange_of(each) == exchange for each in getattr(self, "members", EXCHANGES))

    def levels(self, scale_of):
        """Return {member: levels}, every level of each live member, by side, and those left out."""
        left_out = {each for each in self.members if self.books.get(self.where(each)) is None}
        steps = self.steps(self.members)
        converted = {member for members in steps.values() for member in members}
        left_out |= {each for each in self.members if ":" in each and each not in converted}
        sides = ({}, {})
        for (pair, through), served in steps.items():
            live = [self.books.get((each, pair)) for each in through]
            if all(each is None for each in live):
                left_out.update(served)
                continue
            world = World(
                [self.books.get(self.where(each)) for each in served],
                [self.fee_at(each) for each in served],
                live,
                [self.fee(each, pair) for each in through],
                pair.startswith(f"{self.own}/"),
                [scale_of(*self.where(each)) for each in served],
            )
            for side in (0, 1):
                found = expected(world, side, decimals_of(world))
                sides[side].update(zip(served, found, strict=True))
        for member in self.members:
            if ":" not in member and member not in left_out:
                for side in (0, 1):
                    rows = self.books[self.where(member)][side].items()
                    best_first = sorted((Fraction(p), Fraction(a)) for p, a in rows)
                    sides[side][member] = best_first if side else best_first[::-1]
        return sides, left_out

    def orders(self, levels, side):
        """Return every level of every member in the order to take them, by price after fees."""
        sign = 1 if side else -1
        return sorted(
            Order(sign * taker(str(price), self.fee_at(name), side), -amount, at, name, price)
            for at, name in enumerate(self.members)
            for price, amount in levels.get(name, ())
        )

    def change(self, rig, stashed):
        """Change, lose or restore random books, and change lists: many at once, or one."""
        random_ = self.random
        places = list(rig.feeds.wanted)
        if random_.random() < 0.5:
            places = [random_.choice(places)]
        for exchange in EXCHANGES:
            for pair in sorted({*self.conversions.values()}):
                if random_.random() < 0.1 * (len(places) > 1):
                    if pair in self.listed[exchange]:
                        self.listed[exchange].discard(pair)
                        stashed[exchange, pair] = rig.feeds.listed.pop((exchange, pair))
                    else:
                        self.listed[exchange].add(pair)
                        rig.feeds.listed[exchange, pair] = stashed[exchange, pair]
                    rig.feeds.on_read(exchange)
        for instrument in places:
            place = exchange, symbol = instrument.exchange, instrument.symbol
            if symbol not in self.listed[exchange]:
                continue
            is_rate = symbol in self.conversions.values()
            action = random_.random()
            if action < (0.5 if len(places) == 1 else 0.15) and place in self.books:
                rig.lose(exchange, Health.STALE, symbol=symbol)
                del self.books[place]
            elif action < 0.7:
                mid = random_.choice((99, 100, 101))
                book = random_book(random_, *((1.01, 400) if is_rate else (mid, 3)))
                if book is not None and self.is_small and not is_rate:
                    book = tuple({p: str(random_.randrange(1, 4)) for p in side} for side in book)
                if book is not None:
                    rig.snapshot(exchange, *(side.items() for side in book), symbol=symbol)
                    self.books[place] = book


def rig_of(world):
    """Return a rig whose exchanges list the pairs of a world, and the pairs to be listed later."""
    rig, stashed = Rig((), ()), {}
    lots = dict(zip(EXCHANGES, world.random.choice(CHAINS), strict=True))
    for exchange in EXCHANGES:
        symbols = world.listed[exchange] | {*world.conversions.values()}
        for place, instrument in Rig((exchange,), sorted(symbols)).feeds.listed.items():
            listed = instrument
            if world.is_small:
                least = str(world.random.choice((0, 0, 2, 4)))
                notional = str(world.random.choice((0, 0, 250)))
                listed = replace(
                    instrument, lot=lots[exchange], least_amount=least, least_notional=notional
                )
                world.rules[place] = int(lots[exchange]), int(least), int(notional)
            here = place[1] in world.listed[exchange]
            (rig.feeds.listed if here else stashed)[place] = listed
    return rig, stashed


def options_of(world):
    """Choose the options of a view at random."""
    random_ = world.random
    options = {"depth": random_.choice((1, 4, 500)), "split": True, "mode": "delta"}
    sizes = [random_.choice(("1", "5", "12") if world.is_small else ("0.5", "3", "40"))]
    if not world.fees:
        return options | {"fill": fill_sizes(sizes, ["250"])}
    options |= {"fees": world.fees, "net": random_.random() < 0.6}
    if random_.random() < 0.6:
        options["crossings"] = random_.choice(("0", "0", "0.5"))
    if random_.random() < 0.7:
        options["fill"] = fill_sizes(
            sizes,
            ["250"],
            limit=random_.choice((None, None, "99.5", "101")),
            exclude=random_.choice(((), (), ("okx",))),
            max_exchanges=random_.choice((None, 1, 2)) if world.is_small else None,
        )
    return options


class Replayed:
    """The levels of a view by price, from its first update and the deltas after it."""

    def __init__(self):
        self.sides = ({}, {})

    def take(self, message):
        if message["type"] == "aggregated_orderbook_update":
            self.sides = ({}, {})
        for side, name in enumerate(("bids", "asks")):
            for level in message["data"][name]:
                self.sides[side].pop(level["price"], None)
                if level["amount"]:
                    self.sides[side][level["price"]] = level

    def levels(self, side):
        found = sorted(self.sides[side].values(), key=lambda each: each["price"])
        return found if side else found[::-1]


def check(seed):
    """Change a world, and compare its view with the raw books."""
    world = Basket(seed)
    if not world.members:
        return set()
    rig, stashed = rig_of(world)
    options = options_of(world)
    key = StreamKey(
        world.symbol,
        tuple(world.members),
        ViewOptions(quotes=tuple(sorted(world.conversions)), interval_ms=10, **options),
    )
    stream = rig.streams.open(key)
    replayed, seen = Replayed(), set()

    def amount_scale(exchange, symbol):
        return rig.books.get(rig.feeds.instrument(exchange, symbol)).core.amount_scale

    for _ in range(ROUNDS):
        rig.heard.updates.clear()
        world.change(rig, stashed)
        rig.time.run(5)
        for _, _, message, _ in rig.heard.updates:
            replayed.take(message)
        data = parse(stream.full())["data"]
        levels, left_out = world.levels(amount_scale)
        assert set(data["stale_exchanges"]) == left_out, seed
        for side, name in enumerate(("bids", "asks")):
            check_levels(world, data[name], levels[side], side, options, seed)
            assert replayed.levels(side) == data[name], (seed, name)
        sides = [world.orders(levels[side], side) for side in (0, 1)]
        if "fill" in options:
            for side, name in enumerate(("sell", "buy")):
                for route in data["fill"][name]:
                    if world.fees:
                        seen |= check_route(world, route, sides[side], side, options, seed)
                    else:
                        check_fill(route, sides[side], side, seed)
        if "crossings" in options:
            seen |= check_crossings(world, data["crossings"], sides, options["crossings"], seed)
    rig.streams.close(stream)
    assert set(rig.feeds.wanted.values()) == {0}
    return seen


def check_levels(world, shown, levels, side, options, seed):
    """Compare the levels of a side: in order, with the price and the amount of each member."""
    found = {}
    for name in world.members:
        for price, amount in levels.get(name, ()):
            ranked = taker(str(price), world.fee_at(name), side) if options.get("net") else price
            found.setdefault(ranked, {})[name] = price, amount
    best_first = sorted(found.items(), reverse=side == 0)[: options["depth"]]
    assert [level_of(each) for each in shown] == best_first, (seed, side)


def level_of(level):
    amounts = map(Fraction, level["amounts"])
    gross = map(Fraction, level.get("gross") or [level["price"]] * len(level["exchanges"]))
    return (
        Fraction(level["price"]),
        dict(zip(level["exchanges"], zip(gross, amounts, strict=True), strict=True)),
    )


def walk(orders, size, *, notional=False):
    """Take orders until their amount or, with `notional`, their value is a size.

    Returns the amount and the signed value.
    """
    amount = value = Fraction(0)
    for net, held, *_ in orders:
        left = (size - abs(value)) / abs(net) if notional else size - amount
        taken = min(-held, left)
        amount, value = amount + taken, value + taken * net
    return amount, value


def check_fill(fill, orders, side, seed):
    """Compare a fill before fees with the cheapest orders."""
    size = Fraction(fill["size"])
    amount, value = walk(orders, size, notional=fill["by"] == "notional")
    if fill["by"] == "amount":
        assert (Fraction(fill["amount"]), Fraction(fill["notional"])) == (amount, abs(value)), seed
    else:
        assert abs(Fraction(fill["amount"]) - amount) <= Fraction(1, 10**15), seed


def check_route(world, route, orders, side, options, seed):
    """Compare a route with the best of all splits; return what it shows."""
    sizes, size = options["fill"], Fraction(route["size"])
    sign = 1 if side else -1
    usable = [
        each
        for each in orders
        if each.name.partition(":")[0] not in (sizes.exclude or ())
        and (not sizes.limit or sign * each.gross <= sign * Fraction(sizes.limit))
    ]
    parts = {each["exchange"]: each for each in route["split"]}
    amount, net = Fraction(route["amount"]), sign * Fraction(route["net"])
    check_parts(world, parts, usable, sign, seed)
    assert sum(Fraction(each["amount"]) for each in parts.values()) == amount, seed
    fees = sum(Fraction(each["fee"]) for each in parts.values())
    notional = sum(Fraction(each["notional"]) for each in parts.values())
    assert (Fraction(route["fees"]), Fraction(route["notional"])) == (fees, notional), seed
    assert notional + sign * fees == sign * net, seed
    assert {each for each in parts if ":" in each} <= {*route["unknown_rules"]}, seed
    if route["by"] == "notional":
        if side:
            assert sign * net <= size, seed
        return {"notional"}
    held = sum(-each.held for each in usable)
    assert Fraction(route["unplaced"]) == min(size, held) - amount, seed
    assert route["complete"] == (amount == size), seed
    assert Fraction(route["extra"]) == net - walk(usable, amount)[1] >= 0, seed
    if not world.is_small:
        assert (amount, net) == walk(usable, min(size, held)), seed
        return {"route"}
    best = best_split(world, usable, int(size), sizes.max_exchanges or len(world.members))
    near = best_split(world, near_orders(world, usable, size), int(size), sizes.max_exchanges or 99)
    if route["exact"]:
        assert (amount, net) in (best, near), seed
    else:
        assert (-amount, net) >= (-best[0], best[1]), seed
    return {"extra" if route["extra"] else "split", *(["search"] if not route["exact"] else [])}


def check_parts(world, parts, usable, sign, seed):
    """Check that each part is in its book and keeps the rules of its exchange."""
    for name, part in parts.items():
        own = [each for each in usable if each.name == name]
        amount, value = walk(own, Fraction(part["amount"]))
        gross = walk([each._replace(net=sign * each.gross) for each in own], amount)[1]
        assert amount == Fraction(part["amount"]), seed
        assert Fraction(part["notional"]) == sign * gross, seed
        assert sign * Fraction(part["fee"]) == sign * value - sign * gross, seed
        better = [-each.held for each in own if sign * each.gross < sign * Fraction(part["limit"])]
        assert sum(better) < amount, seed
        assert Fraction(part["limit"]) in {each.gross for each in own}, seed
        lot, least, least_notional = rules_of(world, name)
        assert amount % lot == 0 or not world.is_small, seed
        assert amount >= least, seed
        assert sign * gross >= least_notional, seed


def rules_of(world, name):
    """Return lot, minimum amount and minimum notional; that of a converted order is unknown."""
    lot, least, notional = world.rules.get(world.where(name), (1, 0, 0))
    return lot, least, 0 if ":" in name else notional


def near_orders(world, usable, size):
    """Return the orders that hold a size and, of each member, one largest lot more."""
    lots = [rules_of(world, each)[0] for each in world.members]
    near, total = [], 0
    for order in usable:
        if total >= size + len(world.members) * lcm(*lots):
            break
        near.append(order)
        total -= order.held
    return near


def best_split(world, usable, size, most):
    """Return (amount, signed cost) of the best of all splits in lots over at most so many members.

    The members' amounts are tried one member after the other; of equal sums the cheapest is kept.
    """
    sums = {(0, 0): Fraction(0)}  # by amount and number of members
    for name in world.members:
        own = [each for each in usable if each.name == name]
        lot, least, least_notional = rules_of(world, name)
        choices = []
        for amount in range(lot, min(size, sum(-int(each.held) for each in own)) + 1, lot):
            gross = walk([each._replace(net=each.gross) for each in own], amount)[1]
            if amount >= least and gross >= least_notional:
                choices.append((amount, walk(own, amount)[1]))
        for (before, count), cost in [*sums.items()]:
            for amount, more in choices:
                state = before + amount, count + 1
                if state[0] <= size and state[1] <= most:
                    sums[state] = min(sums.get(state, cost + more), cost + more)
    amount, cost = min((-amount, cost) for (amount, _), cost in sums.items())
    return Fraction(-amount), cost


def check_crossings(world, shown, sides, least, seed):
    """Compare crossings with the pairing of the best orders, and of all units if they are few."""
    pairs = crossed(sides, Fraction(least))
    found = {}
    for each in shown:
        if each["phase"] != "ended":
            figures = ("amount", "gross", "profit", "buy_limit", "sell_limit")
            found[each["buy"], each["sell"]] = [Fraction(each[name]) for name in figures]
    assert found == pairs, seed
    bids, asks = ([*units(side)] for side in sides)
    seen = {"crossing" for _ in found} | {"self" for buy, sell in found if buy == sell}
    if least == "0" and world.is_small and max(len(bids), len(asks)) <= UNITS_MAX:
        total = sum((each[2] for each in found.values()), Fraction(0))
        assert total == best_pairing(asks, bids), seed
        seen.add("pairing")
    return seen


def crossed(sides, least):
    """Match the lowest asks with the highest bids; return the figures of each pair."""
    bids, asks = ([[each, -each.held] for each in side] for side in sides)
    pairs = {}
    while bids and asks:
        (bid, bid_held), (ask, ask_held) = bids[0], asks[0]
        if -bid.net <= ask.net or -bid.net < ask.net * (1 + least / 100):
            break
        taken = min(bid_held, ask_held)
        pair = pairs.setdefault((ask.name, bid.name), [Fraction(0)] * 5)
        pair[0] += taken
        pair[1] += (bid.gross - ask.gross) * taken
        pair[2] += (-bid.net - ask.net) * taken
        pair[3:] = ask.gross, bid.gross
        for side in (bids, asks):
            side[0][1] -= taken
            if not side[0][1]:
                del side[0]
    return pairs


def units(orders):
    for each in orders:
        yield from [abs(each.net)] * int(-each.held)


def best_pairing(asks, bids):
    """Return the most that any pairing of single units earns, by trying all of them."""
    nothing = [None] * len(bids)
    return max(
        sum(
            (max(Fraction(0), bid - ask) for ask, bid in zip(order, bids, strict=True) if ask),
            Fraction(0),
        )
        for order in permutations([*asks, *nothing], len(bids))
    )


@pytest.mark.parametrize("first", SEEDS[::PER_TEST])
def test_a_pooled_view_is_what_exact_fractions_say(first):
    last = min(first + PER_TEST, SEEDS.stop)
    print(f"ONEBOOK_SEEDS={first}:{last}")
    seen = set()
    for seed in range(first, last):
        seen |= check(seed)
    if last - first == PER_TEST:
        assert {"route", "split", "extra", "crossing", "notional"} <= seen
