"""Conversations with WOO X: its messages and our answers."""

import json
from typing import Any

import pytest

from exchanges.sent import Sent
from onebook.core import Book
from onebook.exchanges import resolve
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    BookRefused,
    Connector,
    Fetch,
    ProtocolError,
    SlowDown,
    Snapshot,
    Unnamed,
)
from onebook.exchanges.kit.engine import OMITTED
from onebook.exchanges.woo import EXCHANGE
from onebook.model import Instrument, InstrumentStatus
from simulator.pure import Desk

BTC = Instrument("woo", "BTC/USDT", "SPOT_BTC_USDT")
ETH = Instrument("woo", "ETH/USDT", "SPOT_ETH_USDT")
FETCH_BTC = Fetch(BTC, "/v3/public/orderbook?symbol=SPOT_BTC_USDT&maxLevel=10&rpi=true")

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"cmd":"PONG","success":true,"time":1790137718411}',
    b'{"id":"99","cmd":"UN_SUBSCRIBE","success":true,"time":1759568478343,'
    b'"data":["orderbook10@SPOT_BTC_USDT"]}',
    b'{"topic":"orderbookupdate@SPOT_BTC_USDT@50","ts":1790137719188,"data":{"ts":1790137719188,'
    b'"bids":[],"asks":[["87243","0"]],"prevTs":1790137716988,"s":"SPOT_BTC_USDT"}}',
    b'{"topic":"bbo@SPOT_BTC_USDT","ts":1790137719048,"data":{"ts":1790137719048,"bp":"86821",'
    b'"bq":"0.35032","ap":"87243","aq":"0.32790","s":"SPOT_BTC_USDT"}}',
    b"{}",
)

# As it was recorded in 2026-09 of a perpetual, with three levels a side.
BOOK = (
    b'{"topic":"orderbook10@SPOT_BTC_USDT","ts":1790137719008,"data":{"ts":1790137718138,"bids":'
    b'[["87062","13.89220"],["87061","2.81143"],["87059","2.99505"]],"asks":[["87063","4.53491"],'
    b'["87064","6.71940"],["87065","0.21559"]],"s":"SPOT_BTC_USDT"}}'
)
MADE_MS = 1_790_137_718_138


def body(at: int) -> bytes:
    """A frame printed by ccxt."""
    asks = [{"price": "56749.8", "quantity": "0.032126"}]
    bids = [{"price": "56700", "quantity": "1.714147"}]
    return json.dumps(
        {"success": True, "timestamp": at, "data": {"asks": asks, "bids": bids}}
    ).encode()


def topic(native: str) -> str:
    return f"orderbook10@{native}"


def asked(command: str, number: int, *natives: str) -> Sent:
    topics = ",".join(f'"{topic(native)}"' for native in natives)
    return Sent(f'{{"id":"{number}","cmd":"{command}","params":[{topics}]}}'.encode())


def accepted(number: int, *natives: str) -> bytes:
    answer = {"id": str(number), "cmd": "SUBSCRIBE", "success": True, "time": 5}
    return json.dumps(answer | {"data": [topic(native) for native in natives]}).encode()


def refused(words: str, number: str = "", command: str = "ERROR") -> bytes:
    answer = {"id": number, "cmd": command, "success": False, "time": 5, "data": words}
    return json.dumps(answer).encode()


def subscribed() -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    connector.received(accepted(1, "SPOT_BTC_USDT", "SPOT_ETH_USDT"))
    return connector


def test_topics_are_asked_for_ten_at_a_time() -> None:
    many = [Instrument("woo", f"C{rank}/USDT", f"SPOT_C{rank}_USDT") for rank in range(11)]
    first, second = (json.loads(out.frame) for out in EXCHANGE.connector(many).opened())  # type: ignore[union-attr]
    assert [len(each["params"]) for each in (first, second)] == [10, 1]


def test_what_the_answer_leaves_out_is_refused_unless_it_was_accepted_before() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    assert connector.opened() == (asked("SUBSCRIBE", 1, "SPOT_BTC_USDT", "SPOT_ETH_USDT"),)
    assert connector.resync([BTC]) == (asked("SUBSCRIBE", 2, "SPOT_BTC_USDT"),)
    assert connector.received(accepted(1, "SPOT_BTC_USDT")) == (
        Acknowledged(BTC),
        BookRefused(ETH, OMITTED),
    )
    assert connector.received(accepted(2)) == EXPECTED, "it is subscribed already"


def test_a_removed_book_is_unsubscribed_by_the_exchange_s_own_verb() -> None:
    """https://github.com/ccxt/ccxt/pull/29578: the verb has an underscore."""
    connector = subscribed()
    assert connector.remove([BTC]) == (asked("UN_SUBSCRIBE", 2, "SPOT_BTC_USDT"),)


def test_each_frame_is_the_whole_book_with_the_time_it_was_made() -> None:
    connector = subscribed()
    for _ in range(2):
        (out,) = connector.received(BOOK)
        assert isinstance(out, Snapshot)
        assert (out.instrument, out.at_ms, out.levels_asked) == (BTC, MADE_MS, 0)
        assert json.loads(bytes(out.bids))[0] == ["87062", "13.89220"]
        assert json.loads(bytes(out.asks))[-1] == ["87065", "0.21559"]


def test_a_book_of_which_no_frame_came_is_that_of_rest_with_the_same_orders() -> None:
    connector = subscribed()
    assert connector.resync([BTC]) == (FETCH_BTC,)
    (out,) = connector.fetched(BTC, body(MADE_MS))
    assert isinstance(out, Snapshot)
    assert (out.instrument, out.at_ms) == (BTC, MADE_MS)
    book = Book(10)
    book.replace(out.bids, out.asks, out.shape)
    assert book.top(1) == ([("56700", "1.714147")], [("56749.8", "0.032126")])


def test_a_body_that_is_older_than_the_last_frame_is_dropped() -> None:
    connector = subscribed()
    connector.received(BOOK)
    connector.reseed(BTC)  # type: ignore[attr-defined]
    assert connector.fetched(BTC, body(MADE_MS - 1)) == ()


def test_a_resync_leaves_the_stream_and_takes_it_again() -> None:
    connector = subscribed()
    connector.received(BOOK)
    assert connector.resync([BTC]) == (
        asked("UN_SUBSCRIBE", 2, "SPOT_BTC_USDT"),
        asked("SUBSCRIBE", 3, "SPOT_BTC_USDT"),
    )


def test_a_request_that_is_refused_costs_its_topics_and_an_error_without_a_number_none() -> None:
    connector = subscribed()
    connector.add([Instrument("woo", "A/USDT", "SPOT_A_USDT")])
    (out,) = connector.received(refused("Command type invalid!", "2", "SUBSCRIBE"))
    assert isinstance(out, BookRefused)
    assert out.instrument.symbol == "A/USDT"
    assert subscribed().received(refused("Invalid request.")) == (Unnamed("Invalid request."),)
    slow = refused("Too many requests", "1", "SUBSCRIBE")
    assert subscribed().received(slow) == (SlowDown("Too many requests"),)


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (BOOK.replace(b'"bids":', b'"b":'), BTC),
        (BOOK.replace(b'"asks":', b'"a":'), BTC),
        (BOOK.replace(b'"ts":1790137718138', b'"ts":"x"'), BTC),
        (BOOK[:-4], None),
    ],
    ids=["bids", "asks", "time", "end"],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        subscribed().received(frame)
    assert caught.value.instrument is instrument


@pytest.mark.parametrize(
    "bad", [b"[]", b'{"success":false,"message":"invalid symbol SPOT_BTC_USDT"}', b"502"]
)
def test_a_body_that_is_no_book_names_its_instrument(bad: bytes) -> None:
    connector = subscribed()
    connector.resync([BTC])
    with pytest.raises(ProtocolError, match="SPOT_BTC_USDT") as caught:
        connector.fetched(BTC, bad)
    assert caught.value.instrument is BTC


def row(**members: Any) -> dict[str, Any]:
    """A frame printed by ccxt."""
    listed = {"symbol": "SPOT_AAVE_USDT", "status": "TRADING", "baseAsset": "AAVE"}
    listed |= {"baseAssetMultiplier": 1, "quoteAsset": "USDT", "quoteMin": "0"}
    listed |= {"quoteTick": "0.01", "baseTick": "0.0001", "bidFloorRatio": None}
    return listed | members


@pytest.mark.derivatives
def test_instruments_are_read_and_only_spot_is_taken() -> None:
    perpetual = row(symbol="PERP_AAVE_USDT", fundingIntervalHours=8)
    halted = row(symbol="SPOT_B_USDT", baseAsset="B", status="SUSPENDED")
    rows = [row(), perpetual, halted, row(symbol=7), {}, None]
    listed = {"success": True, "data": {"rows": rows}, "timestamp": 1751512951338}
    found = EXCHANGE.parse_instruments(json.dumps(listed).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("AAVE/USDT", "SPOT_AAVE_USDT", "0.01", "0.0001"),
        ("B/USDT", "SPOT_B_USDT", "0.01", "0.0001"),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]


def test_it_is_known_by_its_own_name_too() -> None:
    assert resolve("woox") == "woo"


def test_the_simulator_refuses_what_woo_refuses() -> None:
    desk = Desk("woo")
    request = {"id": "1", "cmd": "SUBSCRIBE", "params": [topic("SPOT_BTC_USDT")]}
    assert desk.say(request)[0]["data"] == [topic("SPOT_BTC_USDT")]
    assert desk.say(request)[0]["data"] == [], "it is subscribed already"
    wrong = [topic("PERP_BTC_USDT"), "orderbookupdate@SPOT_BTC_USDT@20", "nope@SPOT_BTC_USDT"]
    (none,) = desk.say(request | {"params": wrong})
    assert (none["success"], none["data"]) == (True, [])
    (many,) = desk.say(request | {"params": [topic(f"SPOT_{each}_USDT") for each in range(11)]})
    assert (many["cmd"], many["success"]) == ("SUBSCRIBE", False)
    for command in ("NOPE", "UNSUBSCRIBE"):
        (error,) = desk.say(request | {"cmd": command})
        assert (error["cmd"], error["data"]) == ("ERROR", "Command type invalid!")
    (left,) = desk.say(request | {"cmd": "UN_SUBSCRIBE"})
    assert (left["cmd"], left["data"]) == ("UN_SUBSCRIBE", [topic("SPOT_BTC_USDT")])
    assert desk.say(request | {"cmd": "subscribe"})[0]["data"] == [topic("SPOT_BTC_USDT")]
    assert desk.say("hello")[0]["data"] == "Invalid request."
    status, failure = desk.get("/v3/public/orderbook", symbol="SPOT_X_USDT")
    assert (status, failure["success"]) == (400, False)


def test_the_simulator_sends_spot_no_deltas() -> None:
    desk = Desk("woo")
    deltas, whole = "orderbookupdate@SPOT_BTC_USDT@50", topic("SPOT_BTC_USDT")
    request = {"id": "1", "cmd": "SUBSCRIBE", "params": [deltas]}
    assert desk.say(request)[0]["data"] == [deltas]
    assert desk.say(request)[0]["data"] == [], "it is subscribed already"
    assert not any(desk.step() for _ in range(50))
    desk.say(request | {"params": [whole]})
    frames = [json.loads(frame) for _ in range(50) for frame in desk.step()]
    assert {each["topic"] for each in frames} == {whole}
    assert {len(each["data"][side]) for each in frames for side in ("bids", "asks")} == {10}


def test_the_simulated_body_without_retail_orders_begins_behind_them() -> None:
    desk = Desk("woo")
    asked_for = {"symbol": "SPOT_BTC_USDT", "maxLevel": "10"}
    _, without = desk.get("/v3/public/orderbook", **asked_for)
    _, whole = desk.get("/v3/public/orderbook", **asked_for, rpi="true")
    assert (without["data"]["bids"], len(whole["data"]["bids"])) == (whole["data"]["bids"][1:], 10)
