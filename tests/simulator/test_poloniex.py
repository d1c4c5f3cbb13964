"""Conversations with the simulated Poloniex."""

import json

from onebook.simulator.poloniex import Poloniex
from simulator.pure import Desk

SUBSCRIBE = {"event": "subscribe", "channel": ["book_lv2"], "symbols": ["BTC_USDT", "ETH_USDT"]}
ACK = {"event": "subscribe", "channel": "book_lv2", "symbols": ["BTC_USDT", "ETH_USDT"]}


def test_a_subscription_is_acknowledged_then_snapshots_then_chained_updates() -> None:
    desk = Desk("poloniex")
    ack, *snapshots = desk.say(SUBSCRIBE)
    assert (desk.greeting, ack) == ([], ACK)
    last = {}
    for frame in snapshots:
        [data] = frame["data"]
        assert (frame["action"], len(data["bids"]), len(data["asks"])) == ("snapshot", 20, 20)
        last[data["symbol"]] = data["id"]
    assert list(last) == SUBSCRIBE["symbols"]
    for _ in range(5):
        for frame in map(json.loads, desk.step()):
            [data] = frame["data"]
            assert (frame["action"], data["lastId"]) == ("update", last[data["symbol"]])
            last[data["symbol"]] = data["id"]
    assert desk.say(SUBSCRIBE | {"event": "unsubscribe"}) == [ACK | {"event": "unsubscribe"}]
    assert desk.step() == []


def test_an_unknown_symbol_refuses_the_request() -> None:
    desk = Desk("poloniex")
    [error] = desk.say(SUBSCRIBE | {"symbols": ["BTC_USDT", "NO_NO"]})
    assert error == {"event": "error", "message": "Invalid symbols: NO_NO"}
    assert desk.session.topics == {}
    desk.board.muted.add("BTC_USDT")
    assert len(desk.say(SUBSCRIBE | {"symbols": ["BTC_USDT"]})) == 1


def test_both_pings_are_answered_and_nonsense_is_an_error() -> None:
    desk = Desk("poloniex")
    assert desk.say("ping") == desk.say({"event": "ping"}) == [{"event": "pong"}]
    assert desk.say("x") == [{"event": "error", "message": "Bad request"}]
    assert desk.say(SUBSCRIBE | {"channel": ["trades"]})[0]["event"] == "error"
    assert desk.dialect.heartbeat(desk.session, desk.now) == []


def test_rest_lists_the_markets() -> None:
    status, rows = Desk("poloniex").get("/markets")
    assert status == 200
    assert rows[0]["symbol"] == "BTC_USDT"
    assert rows[0]["symbolTradeLimit"] == {
        "symbol": "BTC_USDT",
        "priceScale": 2,
        "quantityScale": 6,
        "minQuantity": "0.000001",
        "minAmount": "1",
    }
    assert Desk("poloniex").get("/other") is None


def test_only_book_frames_name_a_book() -> None:
    assert Poloniex.native_of('{"channel":"book_lv2","data":[{"symbol":"A"}]}') == "A"
    for other in ('{"channel":"book_lv2","event":"subscribe"}', '{"channel":"trades"}', "x"):
        assert Poloniex.native_of(other) is None
