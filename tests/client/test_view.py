"""The client's copy of a view: full updates, deltas, gaps, checksums."""

import json
import zlib
from decimal import Decimal

import pytest

from onebook.client import BookLevel, BookProblem, BookView, Crossing
from onebook.routes import Rules
from onebook.transfers import CoinTransfer, NetworkTransfer, Transferable


def message(kind, number, bids, asks, **more):
    text = json.dumps(
        {
            "type": kind,
            "symbol": "BTC/USDT",
            "timestamp": "2026-11-20T10:00:00.000000Z",
            "update_number": number,
            "data": {"bids": bids, "asks": asks, "market_stats": {}, "stale_exchanges": []},
            **more,
        }
    )
    return json.loads(text, parse_float=Decimal)


def crc(text):
    return zlib.crc32(text.encode())


def delta(number, bids, asks, *, checksum, previous=None):
    return message(
        "aggregated_orderbook_delta",
        number,
        bids,
        asks,
        previous_update_number=number - 1 if previous is None else previous,
        checksum=checksum,
    )


def opened():
    view = BookView("BTC/USDT")
    assert view.apply(message("aggregated_orderbook_update", 1, [[100, 1]], [[101.5, 2]]))
    return view


def test_a_full_update_replaces_the_view():
    view = opened()
    assert view.apply(message("aggregated_orderbook_update", 9, [[99, 4]], []))
    assert (view.bids, view.asks, view.update_number) == (
        [BookLevel(Decimal(99), Decimal(4))],
        [],
        9,
    )


def test_a_short_update_is_the_best_levels_and_nothing_else():
    view = opened()
    best = {"type": "best", "symbol": "BTC/USDT", "bid": [Decimal("100.5"), 3], "ask": None}
    assert view.apply(best | {"ages": {"okx": 4}})
    assert view.best_bid == BookLevel(Decimal("100.5"), Decimal(3))
    assert (view.asks, view.ages, view.update_number) == ([], {"okx": 4}, 2)
    assert (view.timestamp, view.time_us, view.market_stats) == ("", 0, {})


def test_skipped_states_are_those_of_the_last_update_only():
    view = opened()
    view.apply(message("aggregated_orderbook_update", 9, [[99, 4]], [], skipped=7))
    assert view.skipped == 7
    view.apply(message("aggregated_orderbook_update", 10, [[99, 4]], []))
    assert view.skipped == 0


def test_a_delta_changes_adds_and_removes_levels_in_order():
    view = opened()
    change = delta(
        2, [[100, 0], [99.5, 3], [99.75, 1]], [[101.25, 7]],
        checksum=crc("99.75:1:99.5:3:101.25:7:101.5:2"),
    )  # fmt: skip
    assert view.apply(change)
    assert [str(level.price) for level in view.bids] == ["99.75", "99.5"]
    assert [str(level.price) for level in view.asks] == ["101.25", "101.5"]


def test_a_hole_between_deltas_asks_for_a_resync():
    assert not opened().apply(delta(3, [[100, 2]], [], checksum=0, previous=2))


def test_a_wrong_checksum_asks_for_a_resync():
    assert not opened().apply(delta(2, [[100, 2]], [], checksum=1))


FILL = {
    "by": "amount", "size": 1, "amount": 1, "notional": Decimal("100.5"), "worst": Decimal("100.5"),
    "average": Decimal("100.5"), "levels": 1, "complete": True, "uncovered": ["okx"],
    "split": [{"exchange": "okx", "amount": 1, "notional": Decimal("100.5")}],
}  # fmt: skip


def test_fills_are_exact_and_those_of_the_last_message():
    view = opened()
    update = message("aggregated_orderbook_update", 2, [[100, 1]], [])
    update["data"]["fill"] = {"buy": [], "sell": [FILL]}
    assert view.apply(update)
    (found,) = view.fills["sell"]
    assert (found.direction, found.average, found.size) == ("sell", Decimal("100.5"), Decimal(1))
    assert found.split == {"okx": (Decimal(1), Decimal("100.5"))}
    view.lose(BookProblem("connection_lost", "It was lost."))
    assert view.fills == {}


def test_ages_and_coverage_are_those_of_the_last_message_and_go_with_the_connection():
    view = opened()
    assert (view.ages, view.coverage) == ({}, {})
    update = message("aggregated_orderbook_update", 2, [[100, 1]], [])
    update["data"] |= {"ages": {"okx": 5}, "coverage": {"okx": {"bids": 99, "asks": None}}}
    assert view.apply(update)
    assert (view.ages, view.coverage) == ({"okx": 5}, {"okx": {"bids": 99, "asks": None}})
    view.lose(BookProblem("connection_lost", "It was lost."))
    assert (view.ages, view.coverage) == ({}, {})


def test_object_levels_have_their_attribution():
    view = BookView("BTC/USDT")
    level = {"price": 1.5, "amount": 3, "exchanges": ["a", "b"], "amounts": [1, 2]}
    assert view.apply(message("aggregated_orderbook_update", 1, [level], []))
    assert view.bids == [
        BookLevel(Decimal("1.5"), Decimal(3), ("a", "b"), (Decimal(1), Decimal(2))),
    ]


def test_array_levels_with_split_say_the_same():
    view = BookView("BTC/USDT")
    level = [1.5, 3, [["a", 1], ["b", 2]]]
    assert view.apply(message("aggregated_orderbook_update", 1, [level], []))
    assert view.bids[0].exchanges == ("a", "b")
    assert view.bids[0].amounts == (1, 2)


def test_a_status_is_kept_by_exchange():
    view = opened()
    status = {"type": "exchange_status", "exchange": "okx", "state": "stale"}
    assert view.apply(status)
    assert view.states == {"okx": "stale"}


def test_a_lost_connection_shows_nothing():
    view = opened()
    view.lose(BookProblem("unreachable", "Nothing listens there."))
    assert not view.live
    assert str(view.problem) == "Nothing listens there."
    assert (view.bids, view.asks) == ([], [])


def test_times_are_those_of_the_last_update():
    view = opened()
    assert view.times is None
    layers = {
        "top": {"exchange": 5, "received": 9},
        "depth": {"exchange": None, "received": 8},
        "offset": 3,
        "error": None,
    }
    times = {"merged": 10, "sent": 11, "exchanges": {"okx": layers}}
    update = message("aggregated_orderbook_update", 2, [[99, 4]], [])
    update["data"]["times"] = times
    view.apply(update)
    assert view.times == (10, 11, {"okx": ((5, 9), (None, 8), 3, None)})
    view.apply(message("aggregated_orderbook_update", 3, [[99, 4]], []))
    assert view.times is None


def test_a_view_by_net_prices_has_gross_prices_and_routes():
    view = opened()
    route = {
        "by": "amount",
        "size": 1,
        "amount": 1,
        "notional": 100,
        "average": 100,
        "fees": 1,
        "net": 101,
        "net_average": 101,
        "worst": 101,
        "extra": 0,
        "unplaced": 0,
        "complete": True,
        "exact": True,
        "oldest_ms": 12,
        "unknown_rules": ["okx"],
        "uncovered": [],
        "split": [{"exchange": "okx", "amount": 1, "notional": 100, "fee": 1, "limit": 100}],
    }
    level = [101, 1, [["okx", 1, 100]]]
    update = message("aggregated_orderbook_update", 1, [], [level])
    update["data"]["fill"] = {"buy": [route], "sell": []}
    assert view.apply(update)
    assert view.asks[0].gross == (Decimal(100),)
    (found,) = view.fills["buy"]
    assert (found.net, found.oldest_ms) == (Decimal(101), 12)
    assert found.split["okx"].limit == 100
    with pytest.raises(ValueError, match="open the book without net"):
        view.fill("buy", amount=1)


def test_a_short_crossing_has_the_best_levels_and_the_crossings():
    view = opened()
    figures = {
        "amount": 1.5,
        "buy_limit": 100,
        "sell_limit": 101,
        "gross": 1.5,
        "profit": 0.9561,
        "percent": 0.636763,
        "buy_age_ms": 12,
        "sell_age_ms": 3,
    }
    networks = [{"network": "BTC", "deposit": True, "withdraw": None, "withdraw_fee": 0.0005}]
    coin = {"via": "ccxt", "read_at_ms": 7, "deposit": True, "withdraw": None, "networks": networks}
    moved = {"coin": "BTC", "possible": None, "buy": None, "sell": coin}
    began = {"phase": "began", "buy": "okx", "sell": "kraken", "lasted_ms": 0, **figures}
    began |= {"transferable": moved}
    ended = {"phase": "ended", "buy": "xt", "sell": "okx", "lasted_ms": 240}
    head = {"type": "crossing", "symbol": "BTC/USDT", "bid": [101, 2], "ask": [100, 1]}
    text = json.dumps(head | {"crossings": [ended, began]})
    assert view.apply(json.loads(text, parse_float=Decimal))
    assert view.best_bid.price == 101
    last, first = view.crossings
    assert last == ("ended", "xt", "okx", 240, None, None, None, None)
    assert first.crossing == Crossing(
        "okx", "kraken", *map(Decimal, ("1.5", "100", "101", "1.5", "0.9561", "0.636763"))
    )
    assert (first.buy_age_ms, first.sell_age_ms) == (12, 3)
    network = NetworkTransfer("BTC", True, None, Decimal("0.0005"))
    sell = CoinTransfer("ccxt", 7, True, None, (network,))
    assert first.transferable == Transferable("BTC", None, None, sell)
    view.apply(message("aggregated_orderbook_update", 3, [[99, 4]], []))
    assert view.crossings == ()


def test_a_book_routes_an_order_after_fees():
    view = opened()
    asks = [[100, 1, [["okx", 1]]], [101, 3, [["kraken", 2], ["okx", 1]]]]
    assert view.apply(message("aggregated_orderbook_update", 1, [], asks))
    route = view.route("buy", amount=2, fees={"okx": "2", "*": "0.1"})
    assert {name: part.amount for name, part in route.split.items()} == {"kraken": 2}
    assert route.net == Decimal("202.202")
    alone = view.route("buy", amount=2, fees={"okx": "2"}, max_exchanges=1)
    assert {*alone.split} == {"okx"}
    lots = {"kraken": Rules(Decimal(2)), "okx": Rules(Decimal("0.5"))}
    cut = view.route("buy", amount="2.6", fees={"*": "0"}, rules=lots, limit=100)
    assert (cut.amount, cut.complete) == (1, False)
