"""Conversations with Bitstamp: its messages and our answers."""

import json
from typing import Any

import pytest

from exchanges.sent import Sent
from onebook.exchanges.bitstamp import EXCHANGE
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    Closing,
    Connector,
    Fetch,
    ProtocolError,
    Send,
    SlowDown,
    Snapshot,
    Unnamed,
)
from onebook.exchanges.kit.contract import UNKNOWN
from onebook.model import Instrument, InstrumentStatus
from simulator.pure import Desk

BTC = Instrument("bitstamp", "BTC/USD", "btcusd")
ETH = Instrument("bitstamp", "ETH/USD", "ethusd")

# Messages of other channels, and what changes no book. The trade is the page's own.
UNKNOWN_FRAMES = (
    b'{"event":"bts:heartbeat","channel":"","data":{"status":"success"}}',
    b'{"event":"bts:unsubscription_succeeded","channel":"order_book_btcusd","data":{}}',
    b'{"data":{"id":212337562,"timestamp":"1643643584","amount":0.0028,"amount_str":"0.00280000",'
    b'"price":38416,"price_str":"38416","type":0,"microtimestamp":"1643643584587000"},'
    b'"channel":"live_trades_btcusd","event":"trade"}',
    b'{"data":{"timestamp":"1583656800","microtimestamp":"1583656800237527","bids":[["1","0"]],'
    b'"asks":[]},"event":"data","channel":"diff_order_book_btcusd"}',
    b"{}",
)

MARKET: dict[str, Any] = {
    "name": "BTC/USD",
    "market_symbol": "btcusd",
    "base_currency": "BTC",
    "base_decimals": 8,
    "counter_currency": "USD",
    "counter_decimals": 2,
    "trading": "Enabled",
    "market_type": "SPOT",
}


def book(native: str = "btcusd", **members: Any) -> bytes:
    levels = {"bids": [["8732.02", "0.00002478"]], "asks": [["8735.67", "2.00000000"]]}
    times = {"timestamp": "1583656800", "microtimestamp": "1583656800237527"}
    message = {"data": times | levels | members, "event": "data"}
    return json.dumps(message | {"channel": f"order_book_{native}"}).encode()


def asked(event: str, native: str) -> Sent:
    return Sent(f'{{"event":"bts:{event}","data":{{"channel":"order_book_{native}"}}}}'.encode())


def error(words: str) -> bytes:
    told = {"event": "bts:error", "channel": "", "data": {"code": None, "message": words}}
    return json.dumps(told).encode()


def accepted(native: str) -> bytes:
    channel = f"order_book_{native}"
    message = {"event": "bts:subscription_succeeded", "channel": channel, "data": {}}
    return json.dumps(message).encode()


def body(**members: Any) -> bytes:
    return json.dumps(json.loads(book(**members))["data"]).encode()


def connected() -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    return connector


def test_each_channel_is_asked_for_alone_in_less_than_512_bytes() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    assert connector.opened() == (asked("subscribe", "btcusd"), asked("subscribe", "ethusd"))
    frame = b'{"event":"bts:subscription_succeeded","channel":"order_book_ethusd","data":{}}'
    assert connector.received(frame) == (Acknowledged(ETH),)
    assert connector.received(frame) == EXPECTED
    longest = Instrument("bitstamp", "A/B", "n" * 64)
    (request,) = EXCHANGE.connector([longest]).opened()
    assert isinstance(request, Send)
    assert len(request.frame) < 512


def test_every_frame_is_the_whole_book_with_its_time() -> None:
    connector = connected()
    for _ in range(2):
        (out,) = connector.received(book())
        assert isinstance(out, Snapshot)
        assert (out.instrument, out.at_ms) == (BTC, 1_583_656_800_237)
        assert json.loads(bytes(out.asks)) == [["8735.67", "2.00000000"]]


def test_resync_unsubscribes_and_subscribes() -> None:
    again = (asked("unsubscribe", "btcusd"), asked("subscribe", "btcusd"))
    connector = connected()
    connector.received(accepted("btcusd"))
    connector.received(book())
    assert connector.resync([BTC]) == again


def test_a_book_of_which_no_frame_came_is_the_best_of_the_whole_one_by_rest() -> None:
    connector = connected()
    connector.received(accepted("btcusd"))
    assert connector.resync([BTC]) == (Fetch(BTC, "/api/v2/order_book/btcusd/?group=1"),)
    (out,) = connector.fetched(BTC, body())
    assert isinstance(out, Snapshot)
    assert (out.instrument, out.at_ms) == (BTC, 1_583_656_800_237)
    assert EXCHANGE.truncate, "the channel keeps fewer levels in sync"


@pytest.mark.parametrize("content", [b"[]", b"<html>", b'{"bids":[],"asks":[]}'])
def test_a_body_that_cannot_be_read_names_its_instrument(content: bytes) -> None:
    connector = connected()
    connector.received(accepted("btcusd"))
    connector.resync([BTC])
    with pytest.raises(ProtocolError, match="the book of btcusd") as caught:
        connector.fetched(BTC, content)
    assert caught.value.instrument is BTC


def test_an_error_names_no_instrument() -> None:
    words = "Bad subscription string."
    assert connected().received(error(words)) == (Unnamed(words),)
    assert connected().received(error("Too many requests.")) == (SlowDown("Too many requests."),)


def test_a_request_to_reconnect_announces_the_end() -> None:
    frame = b'{"event":"bts:request_reconnect","channel":"","data":""}'
    assert connected().received(frame) == (Closing("the exchange asks to reconnect"),)


def test_the_channel_of_differences_is_not_read_as_whole_books() -> None:
    frame = book().replace(b'"order_book_', b'"diff_order_book_')
    assert connected().received(frame) == UNKNOWN


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (book(microtimestamp=5), BTC),
        (book().replace(b'"asks"', b'"tasks"'), BTC),
        (b'{"event":"data","channel":"order_book_ethusd"}', ETH),
        (book("xrpusd"), None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        connected().received(frame)
    assert caught.value.instrument is instrument


def test_the_simulated_exchange_refuses_in_the_words_of_the_real_one() -> None:
    """Probed in 2026-09."""
    desk = Desk("bitstamp")
    for request, words in (
        ("ping", "Incorrect JSON format."),
        ({"event": "bts:ping"}, "Bad subscription string."),
        ({"event": "bts:subscribe"}, "Bad subscription string."),
        (
            {"event": "bts:subscribe", "data": {"channel": "order_book_BTCUSD"}},
            "Invalid channel provided.",
        ),
    ):
        (answer,) = desk.say(request)
        assert (answer["event"], answer["data"]["message"]) == ("bts:error", words)


@pytest.mark.derivatives
def test_instruments_are_read_row_by_row_and_perpetuals_are_none() -> None:
    rows = [
        MARKET,
        MARKET | {"market_symbol": "ustusd", "base_currency": "UST", "trading": "Disabled"},
        MARKET | {"market_symbol": "btcusd-perp", "market_type": "PERPETUAL"},
        MARKET | {"market_symbol": 5},
        None,
    ]
    found = EXCHANGE.parse_instruments(json.dumps(rows).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USD", "btcusd", "0.01", "0.00000001"),
        ("USTC/USD", "ustusd", "0.01", "0.00000001"),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]
