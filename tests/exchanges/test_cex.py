"""Conversations with CEX.IO Spot Trading: its messages and our answers."""

import json
from typing import Any

import pytest

from exchanges.sent import Sent
from onebook.exchanges.cex import EXCHANGE
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    BookRefused,
    Closing,
    Connector,
    Delta,
    Gap,
    ProtocolError,
    SlowDown,
    Snapshot,
    Unnamed,
)
from onebook.exchanges.kit.contract import UNKNOWN
from onebook.model import Instrument, InstrumentStatus

BTC = Instrument("cex", "BTC/USD", "BTC-USD")
ETH = Instrument("cex", "ETH/USDT", "ETH-USDT")

# Why no test feeds it derivative rows.
NO_DERIVATIVES = "CEX.IO Spot Trading lists no derivatives"

# Messages of other calls, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"e":"pong"}',
    b'{"e":"connected"}',
    b'{"e":"order_book_unsubscribe","oid":"9","data":{"pair":"BTC-USD"},"ok":"ok"}',
    b'{"e":"tradeUpdate","data":{"pair":"BTC-USD","trades":[]},"ok":"ok"}',
    b'{"e":"get_ticker","oid":"9","data":{"BTC-USD":{"bestBid":"1","bestAsk":"2"}},"ok":"ok"}',
    b"{}",
)
GREETING = b'{"e":"connected"}'


def snapshot(sequence: int, *, pair: str = "BTC-USD", oid: str = "1") -> bytes:
    data = {"seqId": sequence, "pair": pair, "bids": [["86875", "0.04"]], "asks": [["86876", "1"]]}
    message = {"e": "order_book_subscribe", "oid": oid, "data": data, "ok": "ok"}
    return json.dumps(message).encode()


def increment(sequence: Any, *, pair: str = "BTC-USD", **sides: Any) -> bytes:
    data = {"seqId": sequence, "pair": pair, "bids": [["86775", "0.00000000"]], "asks": []} | sides
    return json.dumps({"e": "order_book_increment", "data": data, "ok": "ok"}).encode()


def error(words: str, oid: str, event: str = "order_book_subscribe") -> bytes:
    return json.dumps({"e": event, "oid": oid, "data": {"error": words}}).encode()


def asked(number: int, pair: str, event: str = "order_book_subscribe") -> Sent:
    return Sent(f'{{"e":"{event}","oid":"{number}","data":{{"pair":"{pair}"}}}}'.encode())


def opened() -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    connector.received(GREETING)
    return connector


def live(*, at: int = 10) -> Connector:
    connector = opened()
    connector.received(snapshot(at))
    return connector


def kinds(outputs: Any) -> list[type]:
    return [type(output) for output in outputs]


def test_nothing_is_asked_for_before_the_greeting_and_each_pair_alone() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    assert connector.opened() == ()
    assert connector.received(GREETING) == (asked(1, "BTC-USD"), asked(2, "ETH-USDT"))
    assert connector.received(GREETING) == EXPECTED


def test_the_snapshot_is_the_answer_to_its_subscription() -> None:
    acknowledged, book = opened().received(snapshot(8_676_229))
    assert acknowledged == Acknowledged(BTC)
    assert isinstance(book, Snapshot)
    assert bytes(book.bids) == b'[["86875", "0.04"]]'
    assert book.at_ms == 0, "frames name no time"


def test_an_increment_is_the_next_number_of_its_pair() -> None:
    connector = live(at=10)
    connector.received(snapshot(500, pair="ETH-USDT"))
    assert kinds(connector.received(increment(11))) == [Delta]
    assert kinds(connector.received(increment(501, pair="ETH-USDT"))) == [Delta]
    assert connector.received(increment(11)) == ()
    assert connector.received(increment(13)) == (
        Gap(BTC, "the book is at 11, the delta follows 12"),
    )
    assert connector.received(increment(14)) == ()
    assert kinds(connector.received(snapshot(14))) == [Acknowledged, Snapshot]


def test_a_lower_number_is_a_restart_of_the_exchange() -> None:
    assert kinds(live(at=8_676_230).received(increment(1))) == [Gap]


def test_a_resync_is_one_request_whose_answer_the_increments_go_on_from() -> None:
    connector = live(at=10)
    assert connector.resync([BTC]) == (asked(3, "BTC-USD"),)
    assert connector.received(increment(11)) == ()
    assert kinds(connector.received(snapshot(11, oid="3"))) == [Acknowledged, Snapshot]
    assert kinds(connector.received(increment(12))) == [Delta]


def test_an_error_refuses_the_pair_of_its_request_or_that_it_names() -> None:
    words = "Currency pair ETH-USDT is not supported"
    assert opened().received(error(words, "2")) == (BookRefused(ETH, words),)
    assert opened().received(error(words, "77")) == (BookRefused(ETH, words),)
    words = "Invalid request"
    assert opened().received(error(words, "1")) == (BookRefused(BTC, words),)
    assert opened().received(error(words, "77")) == (Unnamed(words),)
    words = "market_data is on maintenance"
    assert opened().received(error(words, "1")) == (SlowDown(words, True, (BTC,)),)
    words = "Not subscribed to BTC-USD"
    assert live().received(error(words, "3", "order_book_unsubscribe")) == EXPECTED


def test_too_many_requests_ask_for_patience_and_the_end_is_announced() -> None:
    words = "API rate limit reached"
    assert opened().received(error(words, "1")) == (SlowDown(words),)
    assert kinds(live().received(b'{"e":"disconnected"}')) == [Closing]


def test_our_ping_comes_within_the_ten_seconds_of_the_page() -> None:
    assert EXCHANGE.heartbeat is not None
    assert EXCHANGE.heartbeat.every_s <= 5.0
    assert json.loads(EXCHANGE.heartbeat.frame) == {"e": "ping"}
    assert live().received(b'{"e":"pong"}') == EXPECTED, "it proves a socket and no data"
    assert live().received(UNKNOWN_FRAMES[3]) == UNKNOWN


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (increment("11"), BTC),
        (increment(2**63), BTC),
        (increment(11).replace(b"asks", b"tasks"), BTC),
        (snapshot(11, pair="ETH-USDT").replace(b"bids", b"kids"), ETH),
        (increment(11, pair="XRP-USD"), None),
        (increment(11)[:-5], None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        live(at=10).received(frame)
    assert caught.value.instrument is instrument


ROW = {"base": "AI", "quote": "USD", "baseLotSize": "0.000001", "pricePrecision": "4"}


def listed(*rows: object) -> list[Instrument]:
    return EXCHANGE.parse_instruments(json.dumps({"ok": "ok", "data": rows}).encode())


def test_instruments_are_asked_for_by_post_and_read_row_by_row() -> None:
    assert EXCHANGE.instruments_body == b"{}"
    found = listed(ROW, ROW | {"base": "BTC", "baseLotSize": "1", "pricePrecision": ""}, {}, None)
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("AI/USD", "AI-USD", "0.0001", "0.000001"),
        ("BTC/USD", "BTC-USD", "", "1"),
    ]
    assert {one.status for one in found} == {InstrumentStatus.TRADING}


def test_a_row_without_both_currencies_is_no_pair() -> None:
    """CEX.IO lists no derivatives; rows that are not pairs of two currencies are skipped."""
    assert listed(ROW | {"quote": ""}, {"contract": "BTC-PERP"}, ROW | {"base": None}) == []
