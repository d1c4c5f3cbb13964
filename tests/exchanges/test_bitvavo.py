"""Conversations with Bitvavo: its messages and our answers."""

import json
from typing import Any

import pytest

from exchanges.sent import Sent
from onebook.exchanges.bitvavo import EXCHANGE
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    BookRefused,
    Connector,
    Delta,
    Gap,
    ProtocolError,
    Send,
    SlowDown,
    Snapshot,
    SnapshotFailed,
    Unnamed,
)
from onebook.model import Instrument, InstrumentStatus
from simulator.pure import Desk

BTC = Instrument("bitvavo", "BTC/EUR", "BTC-EUR")
ETH = Instrument("bitvavo", "ETH/EUR", "ETH-EUR")
ACK = b'{"event":"subscribed","subscriptions":{"book":["BTC-EUR"]}}'
GET = b'{"action":"getBook","requestId":%d,"market":"BTC-EUR","depth":1000}'

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"event":"ticker","market":"BTC-EUR","bestBid":"9156.8","bestBidSize":"0.12840531"}',
    b'{"event":"trade","timestamp":1590779594547,"market":"BTC-EUR","id":"450c","amount":"0.05",'
    b'"price":"198.46","side":"buy"}',
    b'{"event":"subscribed","subscriptions":{"ticker":["BTC-EUR"]}}',
    b'{"event":"unsubscribed","subscriptions":{"book":[]}}',
    b'{"action":"getTime","response":{"time":1539180275424}}',
    b"{}",
)


def update(nonce: int) -> bytes:
    book = {"market": "BTC-EUR", "nonce": nonce, "bids": [["9209.30", "0"]], "asks": []}
    book |= {"timestamp": 1_542_967_486_256_123_456}
    return json.dumps({"event": "book"} | book).encode()


def whole(nonce: int) -> bytes:
    book = {"market": "BTC-EUR", "nonce": nonce, "timestamp": 1_542_967_486_256_000_000}
    book |= {"bids": [["4999.9", "0.015"]], "asks": [["5001.1", "0.015"]]}
    return json.dumps({"action": "getBook", "requestId": 2, "response": book}).encode()


def error(action: str, code: int, words: str, **more: object) -> bytes:
    return json.dumps({"action": action, "errorCode": code, "error": words} | more).encode()


def acknowledged() -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    connector.received(ACK)
    return connector


def live(*, at: int = 10) -> Connector:
    connector = acknowledged()
    connector.received(whole(at))
    return connector


def kinds(outputs: Any) -> list[type]:
    return [type(output) for output in outputs]


def test_markets_share_a_request_and_each_book_is_requested_once_it_is_accepted() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    channels = b'"channels":[{"name":"book","markets":["BTC-EUR","ETH-EUR"]}]'
    assert connector.opened() == (Sent(b'{"action":"subscribe",' + channels + b"}"),)
    assert connector.received(ACK) == (Acknowledged(BTC), Sent(GET % 2))
    both = ACK.replace(b'["BTC-EUR"]', b'["BTC-EUR","ETH-EUR"]')
    assert kinds(connector.received(both)) == [Acknowledged, Send], "each once"


def test_deltas_up_to_the_book_are_dropped_and_the_next_follows_it() -> None:
    connector = acknowledged()
    for nonce in (8, 9, 10):
        assert connector.received(update(nonce)) == ()
    snapshot, delta = connector.received(whole(9))
    assert isinstance(snapshot, Snapshot)
    assert (bytes(snapshot.bids), snapshot.levels_asked) == (b'[["4999.9", "0.015"]]', 1_000)
    assert bytes(delta.bids) == b'[["9209.30", "0"]]'  # type: ignore[union-attr]
    assert (snapshot.at_ms, delta.at_ms) == (1_542_967_486_256,) * 2  # type: ignore[union-attr]
    assert kinds(connector.received(update(11))) == [Delta]
    assert connector.received(update(11)) == ()
    gap = connector.received(update(13))
    assert gap == (Gap(BTC, "the book is at 11, the delta starts at 13"),)


def test_a_book_is_requested_again_after_a_restart_of_the_numbers() -> None:
    connector = live(at=900)
    connector.received(update(901))
    assert connector.received(update(5)) == (Gap(BTC, "the numbers fell from 901 to 5"),)
    assert connector.resync([BTC]) == (Sent(GET % 3),)
    assert kinds(connector.received(whole(5))) == [Snapshot]
    assert kinds(connector.received(update(6))) == [Delta]


def test_a_refusal_of_one_market_leaves_the_others_of_its_request() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    words = "market parameter ETH-EUR is invalid."
    others = b'{"action":"subscribe","channels":[{"name":"book","markets":["BTC-EUR"]}]}'
    assert connector.received(error("subscribe", 205, words)) == (
        BookRefused(ETH, words),
        Sent(others),
    )


def test_a_refusal_may_name_no_market() -> None:
    words = "market parameter is invalid."
    assert acknowledged().received(error("subscribe", 205, words)) == (Unnamed(words),)
    frame = json.dumps({"event": "error", "errorCode": 205, "error": words}).encode()
    assert live().received(frame) == (Unnamed(words),)


def test_a_request_for_a_book_that_fails_is_no_refused_subscription() -> None:
    words = "getBook is not available for BTC-EUR in state HALTED"
    named = error("getBook", 431, words, requestId=91, market="BTC-EUR")
    assert acknowledged().received(named) == (SnapshotFailed(BTC, words),)
    unnamed = error("getBook", 431, words, requestId=91)
    assert acknowledged().received(unnamed) == (SnapshotFailed(BTC, words),)
    wrapped = json.dumps({"event": "error", "errorCode": 431, "error": words}).encode()
    assert acknowledged().received(wrapped) == (SnapshotFailed(BTC, words),)
    assert live().received(named) == EXPECTED
    assert acknowledged().received(error("getBook", 400, "Unknown error.")) == EXPECTED
    assert live().received(error("unsubscribe", 205, "Unknown error.")) == EXPECTED


@pytest.mark.parametrize("action", ["subscribe", "getBook"])
@pytest.mark.parametrize("code", [103, 105, 110, 112])
def test_too_many_requests_ask_for_patience_and_refuse_nothing(action: str, code: int) -> None:
    first, *rest = acknowledged().received(error(action, code, words := "Slower, please."))
    assert first == SlowDown(words)
    assert rest == ([] if action == "subscribe" else [*EXPECTED])


@pytest.mark.parametrize(
    "frame",
    [
        update(11).replace(b": 11,", b': "11",'),
        update(11).replace(b'"bids"', b'"bits"'),
        update(2**63),
        whole(12).replace(b'"asks"', b'"tasks"'),
        whole(12).replace(b'"nonce"', b'"sequence"'),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes) -> None:
    with pytest.raises(ProtocolError, match="damaged") as caught:
        live(at=10).received(frame)
    assert caught.value.instrument is BTC


@pytest.mark.derivatives
def test_instruments_are_read_row_by_row() -> None:
    row = {"market": "BTC-EUR", "base": "BTC", "quote": "EUR", "status": "trading"}
    sized = {"pricePrecision": None, "tickSize": "0.10", "quantityDecimals": 8}
    rows = [
        row | sized,
        row | {"market": "MIOTA-EUR", "base": "MIOTA", "status": "halted", "tickSize": None},
        row | {"market": "NEW-EUR", "status": "auction"},
        row | {"market": 5},
        {"market": "BTC-EUR-PERP", "status": "trading"},  # no such row is known
        "row",
    ]
    found = EXCHANGE.parse_instruments(json.dumps(rows).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/EUR", "BTC-EUR", "0.1", "0.00000001"),
        ("IOTA/EUR", "MIOTA-EUR", "", ""),
        ("BTC/EUR", "NEW-EUR", "", ""),
    ]
    halted = InstrumentStatus.HALTED
    assert [one.status for one in found] == [InstrumentStatus.TRADING, halted, halted]


def test_a_list_with_an_error_is_refused() -> None:
    with pytest.raises(ProtocolError, match="instruments cannot be read"):
        EXCHANGE.parse_instruments(b'{"errorCode":110,"error":"Your rate limit is exceeded."}')


def test_the_simulated_exchange_refuses_in_the_words_of_the_real_one() -> None:
    desk = Desk("bitvavo")
    channels = [{"name": "book", "markets": ["BTC-USDT", "NOPE-EUR"]}]
    words = "market parameter NOPE-EUR is invalid."
    refused = {"errorCode": 205, "error": words}
    assert desk.say({"action": "subscribe", "channels": channels}) == [
        {"action": "subscribe"} | refused
    ]
    request = {"action": "getBook", "requestId": 90, "market": "NOPE-EUR"}
    assert desk.say(request) == [request | refused]
    desk.board.muted.add("BTC-USDT")
    (halted,) = desk.say(request | {"market": "BTC-USDT"})
    assert (halted["errorCode"], halted["market"]) == (431, "BTC-USDT")
    assert desk.say("hello") == [{"errorCode": 102, "error": "Invalid JSON."}]
    assert desk.say({"action": "nope"})[0]["errorCode"] == 415
