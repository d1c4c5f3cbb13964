"""Conversations with the simulated Bybit."""

import json

import pytest

from onebook.simulator.bybit import Bybit
from simulator.pure import Desk

TOPIC = "orderbook.200.BTCUSDT"
SUBSCRIBE = {"op": "subscribe", "args": [TOPIC], "req_id": "9"}


def test_a_subscription_is_acknowledged_then_snapshot_then_u_rises_by_one() -> None:
    desk = Desk("bybit")
    ack, snapshot = desk.say(SUBSCRIBE)
    assert desk.greeting == []
    assert ack == {
        "success": True,
        "ret_msg": "subscribe",
        "conn_id": "5f2c1a9b",
        "req_id": "9",
        "op": "subscribe",
    }
    assert (snapshot["topic"], snapshot["type"]) == (TOPIC, "snapshot")
    assert len(snapshot["data"]["b"]) == len(snapshot["data"]["a"]) == 200
    last = snapshot["data"]["u"]
    for _ in range(5):
        [delta] = map(json.loads, desk.step())
        assert (delta["type"], delta["data"]["u"]) == ("delta", last + 1)
        last += 1
    assert desk.say(SUBSCRIBE | {"op": "unsubscribe"})[0]["op"] == "unsubscribe"
    assert desk.step() == []


@pytest.mark.parametrize(
    ("topics", "words"),
    [
        ([TOPIC, "orderbook.200.NONO"], "topic:orderbook.200.NONO"),
        (["orderbook.7.BTCUSDT"], "topic:orderbook.7.BTCUSDT"),
        (["tickers.BTCUSDT"], "topic:tickers.BTCUSDT"),
        ([f"{TOPIC}{n}" for n in range(11)], "args size >10"),
        (["x" * 21_001], "args length"),
    ],
)
def test_a_request_with_one_bad_topic_is_refused_whole(topics: list[str], words: str) -> None:
    desk = Desk("bybit")
    [refusal] = desk.say(SUBSCRIBE | {"args": topics})
    assert refusal["success"] is False
    assert words in refusal["ret_msg"]
    assert desk.session.topics == {}


def test_a_second_subscription_of_a_topic_is_refused() -> None:
    desk = Desk("bybit")
    desk.say(SUBSCRIBE)
    [refusal] = desk.say(SUBSCRIBE)
    assert refusal["ret_msg"] == f"error:already subscribed,topic:{TOPIC}"


def test_heartbeat_and_unknown_operations() -> None:
    desk = Desk("bybit")
    [pong] = desk.say({"op": "ping"})
    assert (pong["success"], pong["ret_msg"], pong["op"]) == (True, "pong", "ping")
    assert desk.say({"op": "x"})[0]["success"] is False
    assert desk.say("x")[0]["success"] is False
    assert desk.dialect.heartbeat(desk.session, desk.now) == []


def test_rest_lists_the_instruments() -> None:
    status, body = Desk("bybit").get("/v5/market/instruments-info", category="spot")
    assert (status, body["retCode"]) == (200, 0)
    row = body["result"]["list"][0]
    assert (row["symbol"], row["status"]) == ("BTCUSDT", "Trading")
    assert row["priceFilter"] == {"tickSize": "0.01"}
    assert row["lotSizeFilter"] == {
        "basePrecision": "0.000001",
        "quotePrecision": "0.00000001",
        "minOrderQty": "0.000001",
        "minOrderAmt": "5",
    }
    assert Desk("bybit").get("/other") is None


def test_only_orderbook_frames_name_a_book() -> None:
    assert Bybit.native_of('{"topic":"orderbook.50.A"}') == "A"
    for other in ('{"topic":"tickers.A"}', '{"op":"ping"}', "x"):
        assert Bybit.native_of(other) is None
