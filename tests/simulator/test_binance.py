"""Conversations with the simulated Binance."""

import json

import pytest

from onebook.simulator.binance import Binance, _raw
from onebook.simulator.kit import Dropped
from simulator.pure import Desk

SUBSCRIBE = {"method": "SUBSCRIBE", "params": ["btcusdt@depth@100ms"], "id": 7}


def test_a_subscription_is_acknowledged_and_brings_no_snapshot() -> None:
    desk = Desk("binance", "/stream")
    assert desk.greeting == []
    assert desk.say(SUBSCRIBE) == [{"result": None, "id": 7}]
    assert desk.say({"method": "LIST_SUBSCRIPTIONS", "id": 8}) == [
        {"result": ["btcusdt@depth@100ms"], "id": 8}
    ]
    assert desk.say(SUBSCRIBE | {"method": "UNSUBSCRIBE"}) == [{"result": None, "id": 7}]
    assert desk.step() == []


def test_events_are_numbered_without_a_hole_and_join_the_rest_book() -> None:
    desk = Desk("binance", "/stream?streams=btcusdt@depth@100ms")
    status, book = desk.get("/api/v3/depth", symbol="BTCUSDT", limit="5000")
    assert (status, len(book["bids"]), len(book["asks"])) == (200, 500, 500)
    last = book["lastUpdateId"]
    for _ in range(5):
        [frame] = map(json.loads, desk.step())
        assert frame["stream"] == "btcusdt@depth@100ms"
        data = frame["data"]
        assert (data["e"], data["s"], data["U"]) == ("depthUpdate", "BTCUSDT", last + 1)
        last = data["u"]
        for price, amount in data["b"] + data["a"]:
            assert len(price.split(".")[1]) == len(amount.split(".")[1]) == 8
    assert desk.get("/api/v3/depth", symbol="BTCUSDT")[1]["lastUpdateId"] == last


def test_raw_streams_are_not_wrapped() -> None:
    desk = Desk("binance", "/ws/btcusdt@depth/ethusdt@depth@100ms")
    assert list(desk.session.topics) == ["btcusdt@depth", "ethusdt@depth@100ms"]
    assert desk.session.form is _raw
    frame = desk.step()[0]
    assert json.loads(_raw(frame)) == json.loads(frame)["data"]


def test_unknown_streams_are_acknowledged_and_stay_silent() -> None:
    desk = Desk("binance", "/stream")
    params = ["nonono@depth@100ms", "btcusdt@trade"]
    assert desk.say({"method": "SUBSCRIBE", "params": params, "id": 1}) == [
        {"result": None, "id": 1}
    ]
    assert desk.step() == []
    assert desk.get("/api/v3/depth", symbol="NONONO") == (
        400,
        {"code": -1121, "msg": "Invalid symbol."},
    )


def test_errors_have_the_codes_of_the_page() -> None:
    desk = Desk("binance", "/stream")
    assert desk.say("{")[0]["code"] == 3
    assert desk.say({"method": "NO", "id": 1})[0] == {
        "code": 2,
        "msg": "Invalid request: unknown variant `NO`",
        "id": 1,
    }


def test_the_1025th_stream_ends_the_connection() -> None:
    desk = Desk("binance", "/stream")
    for number in range(1024):
        desk.session.topics[str(number)] = ("x", 1)  # type: ignore[assignment]
    with pytest.raises(Dropped, match="Too many streams"):
        desk.say(SUBSCRIBE)


def test_rest_lists_instruments_and_states_its_weight() -> None:
    desk = Desk("binance", "/stream")
    status, body = desk.get("/api/v3/exchangeInfo")
    assert status == 200
    assert body["symbols"][0]["filters"] == [
        {"filterType": "PRICE_FILTER", "tickSize": "0.01000000"},
        {
            "filterType": "LOT_SIZE",
            "minQty": "0.00001000",
            "maxQty": "9000.00000000",
            "stepSize": "0.00001000",
        },
        {"filterType": "NOTIONAL", "minNotional": "5.00000000", "applyMinToMarket": True},
    ]
    assert desk.get("/other") is None
    for limit, weight in (("100", "5"), ("500", "25"), ("1000", "50"), ("5000", "250")):
        query = {"symbol": "BTCUSDT", "limit": limit}
        answer = desk.dialect.get("/api/v3/depth", query, desk.now)
        assert answer is not None
        assert answer.headers == (("X-MBX-USED-WEIGHT-1M", weight),)


def test_only_depth_frames_name_a_book() -> None:
    assert Binance.native_of('{"data":{"e":"depthUpdate","s":"A"}}') == "A"
    assert Binance.native_of('{"e":"depthUpdate","s":"A"}') == "A"
    for other in ('{"data":{"e":"trade","s":"A"}}', '{"result":null}', "x", '{"data":1}'):
        assert Binance.native_of(other) is None
    assert Desk("binance").dialect.heartbeat(Desk("binance").session, Desk("binance").now) == []


def test_tops_lead_the_depth_and_have_its_numbers() -> None:
    desk = Desk("binance", "/stream?streams=btcusdt@depth@100ms/btcusdt@bookTicker")
    [depth] = (json.loads(frame)["data"] for frame in desk.step())
    tops = [json.loads(frame)["data"] for frame in desk.tops]
    numbers = [each["u"] for each in tops]
    assert len(tops) == 3
    assert numbers == sorted(numbers)
    assert depth["U"] <= numbers[0]
    assert numbers[-1] == depth["u"]
    body = desk.get("/api/v3/depth", symbol="BTCUSDT")[1]
    last = tops[-1]
    assert [[last["b"], last["B"]], [last["a"], last["A"]]] == [body["bids"][0], body["asks"][0]]
