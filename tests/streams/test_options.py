"""Options for the timing and levels of updates: `interval_ms: 0`, `on`, `within`."""

import json
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.exchanges.kit import Delta, Snapshot, TopOfBook
from onebook.fusing import TopCounts
from onebook.model import Health, Instrument
from streams.test_streams import BOOK, START_US, Rig, key, levels

EXCHANGES = ("binance", "kraken")
PRICES = {"bids": range(95, 101), "asks": range(101, 107)}


def change(side, price, amount):
    sides = {"bids": [], "asks": []} | {side: [(price, amount)]}
    return sides["bids"], sides["asks"]


steps = st.lists(
    st.tuples(
        st.sampled_from(EXCHANGES),
        st.sampled_from([(side, price) for side in PRICES for price in PRICES[side]]),
        st.integers(0, 3),
        st.booleans(),  # whether the turn of the loop ends after it
    ),
    max_size=30,
)


def rig_with(*streams):
    """Books of two exchanges and streams of them, whose first updates are out."""
    rig = Rig(EXCHANGES)
    for exchange in EXCHANGES:
        rig.books.open(rig.feeds.instrument(exchange, "BTC/USDT"))
        rig.snapshot(exchange, *BOOK)
    opened = [rig.streams.open(each) for each in streams]
    rig.time.run()
    return rig, opened


def run(rig, life):
    for exchange, (side, price), amount, ends in life:
        rig.delta(exchange, *change(side, price, amount))
        if ends:
            rig.time.run()
    rig.time.run()


def updates_of(rig, stream):
    return [message for _, published, message, _ in rig.heard.updates if published is stream]


def best(message):
    data = message["data"]
    return [
        (side[0]["price"], side[0]["amount"]) if side else None
        for side in (data["bids"], data["asks"])
    ]


@given(life=steps)
def test_without_an_interval_each_turn_has_one_update_at_most_and_the_last_state_arrives(life):
    rig, (fast,) = rig_with(key(*EXCHANGES, interval_ms=0))
    turns = 1
    for exchange, (side, price), amount, ends in life:
        rig.delta(exchange, *change(side, price, amount))
        assert len(updates_of(rig, fast)) <= turns, "nothing is published within a frame"
        if ends:
            rig.time.run()
            turns += 1
            assert len(updates_of(rig, fast)) <= turns
    rig.time.run()
    assert rig.time.now_s == 1_000.0, "and none waited"
    rig.streams.publish_now(rig.streams.open(key(*EXCHANGES, ages=True)))
    assert updates_of(rig, fast)[-1]["data"]["bids"] == rig.heard.updates[-1][2]["data"]["bids"]
    numbers = [message["update_number"] for message in updates_of(rig, fast)]
    assert numbers == [*range(1, len(numbers) + 1)]


def test_a_request_adds_no_update_to_a_turn_that_has_one_coming():
    rig, (fast,) = rig_with(key(*EXCHANGES, interval_ms=0))
    rig.delta("kraken", *change("bids", 100, 9))
    for _ in range(3):
        rig.streams.publish_now(fast)
    assert len(updates_of(rig, fast)) == 1
    rig.time.run()
    assert len(updates_of(rig, fast)) == 2


@given(life=steps, mode=st.sampled_from(["full", "delta"]), interval_ms=st.sampled_from([0, 100]))
def test_updates_on_best_are_the_changes_of_the_best_of_the_full_view(life, mode, interval_ms):
    whole = key(*EXCHANGES, interval_ms=interval_ms)
    rig, (full, short) = rig_with(
        whole, key(*EXCHANGES, interval_ms=interval_ms, on="best", mode=mode, depth=1)
    )
    for exchange, (side, price), amount, ends in life:
        rig.delta(exchange, *change(side, price, amount))
        if ends:
            rig.time.run(0.2)
    rig.time.run(0.2)
    expected = []
    for state in map(best, updates_of(rig, full)):
        if not expected or state != expected[-1]:
            expected.append(state)
    seen = []
    for at, message in enumerate(updates_of(rig, short)):
        if mode == "full" or not at:
            assert message["type"] == "aggregated_orderbook_update"
            seen.append(best(message))
        else:
            assert message["type"] == "best"
            sides = message["bid"], message["ask"]
            seen.append([None if side is None else tuple(side) for side in sides])
    assert seen == expected


def test_a_short_update_has_few_bytes_and_what_was_requested():
    life = ["kraken", *change("bids", 100, 9)]
    rig, (short, aged) = rig_with(
        key(*EXCHANGES, on="best", mode="delta", depth=1),
        key(*EXCHANGES, on="best", mode="delta", depth=1, ages=True),
    )
    rig.time.run(1)
    rig.delta(*life)
    rig.time.run(1)
    (payload,) = updates_of(rig, short)[1:]
    assert payload == {"type": "best", "symbol": "BTC/USDT", "bid": [100, 10], "ask": [101, 6]}
    assert len(json.dumps(payload, default=int, separators=(",", ":"))) < 70
    assert set(updates_of(rig, aged)[1]["ages"]) == set(EXCHANGES)


@pytest.mark.parametrize("mode", ["full", "delta"])
def test_on_best_an_exchange_that_leaves_is_a_whole_update_at_once(mode):
    rig, (short,) = rig_with(key(*EXCHANGES, on="best", mode=mode, depth=1))
    rig.lose("kraken", Health.STALE)
    rig.time.run()
    message = updates_of(rig, short)[-1]
    assert message["type"] == "aggregated_orderbook_update"
    assert message["data"]["stale_exchanges"] == ["kraken"]
    assert best(message) == [(100, 1), (101, 3)]


def test_times_are_the_exchanges_and_ours_and_null_where_none_is_known():
    rig, (stream,) = rig_with(key(*EXCHANGES, interval_ms=0, times=True))
    kraken = rig.feeds.instrument("kraken", "BTC/USDT")
    first = updates_of(rig, stream)[0]["data"]["times"]["exchanges"]["kraken"]
    assert first["depth"] == {"exchange": None, "received": START_US}
    assert (first["offset"], first["error"]) == (None, None)
    rig.time.run(1)
    sent_us = START_US + 990_000
    delta = Delta(kraken, levels([(100, 9)]), at=sent_us // 1_000)
    assert rig.books.change(delta, rig.time.now_s - 0.004) is None
    rig.books.get(kraken).measure()
    rig.time.run()
    times = updates_of(rig, stream)[-1]["data"]["times"]
    assert (times["merged"], times["sent"]) == (START_US + 1_000_000, START_US + 1_000_000)
    member = times["exchanges"]["kraken"]
    assert member["top"] == member["depth"]
    assert member["depth"] == {"exchange": sent_us, "received": START_US + 996_000}
    assert (member["offset"], member["error"]) == (pytest.approx(6_000, abs=2), None)
    assert times["exchanges"]["binance"]["depth"]["exchange"] is None


def test_a_fast_top_has_its_own_times_until_the_depth_passes_it():
    rig, _ = rig_with(key(*EXCHANGES, interval_ms=0, times=True))
    instrument = Instrument("okx", "BTC/USDT", "o")
    book = rig.books.open(instrument, tops=TopCounts())
    rig.books.fill(Snapshot(instrument, levels([(100, 1)]), levels([(101, 1)]), sequence=5), 1.0)
    first = TopOfBook(instrument, 6, levels([(100, 1)]), levels([(101, 1)]))
    rig.books.top(first, 1.0)  # the depth passes it, which proves the common counter
    assert rig.books.change(Delta(instrument, levels([(99, 1)]), sequence=6), 1.0) is None
    top = TopOfBook(instrument, 7, levels([(100, 2)]), levels([(101, 1)]), at=1_763_632_800_001)
    assert rig.books.top(top, 1_000.0)
    times = book.times(START_US, 1_000.0)
    assert times.top == (1_763_632_800_001_000, START_US)
    assert times.depth == (None, START_US - 999_000_000)
    later = Delta(instrument, levels([(100, 3)]), at=1_763_632_800_002, sequence=8)
    assert rig.books.change(later, 1_000.0) is None
    assert book.times(START_US, 1_000.0).top == (1_763_632_800_002_000, START_US)


@given(life=steps, within=st.sampled_from(["50", "100.5", "0.01", "9999"]))
def test_levels_within_a_distance_are_those_of_the_full_view(life, within):
    rig, (full, near) = rig_with(
        key(*EXCHANGES, interval_ms=0), key(*EXCHANGES, interval_ms=0, within=within)
    )
    run(rig, life)
    every = rig.streams.find(full.key)
    shown = json.loads(near.full(), parse_float=Decimal, parse_int=Decimal)["data"]
    data = json.loads(every.full(), parse_float=Decimal, parse_int=Decimal)["data"]
    prices = [Fraction(side[0]["price"]) for side in (data["bids"], data["asks"]) if side]
    mid = sum(prices) / len(prices) if prices else None
    for name, sign in (("bids", 1), ("asks", -1)):
        expected = [
            level
            for level in data[name]
            if sign * (mid - Fraction(level["price"])) / mid * 10_000 <= Fraction(within)
        ]
        assert shown[name] == expected
