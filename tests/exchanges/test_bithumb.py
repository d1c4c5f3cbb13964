"""Bithumb, as conversations: what it says, what we answer."""

import json
from decimal import Decimal
from typing import Any

import pytest

from contract.oracle import Reader
from onebook.exchanges.bithumb import EXCHANGE
from onebook.exchanges.contract import (
    EXPECTED,
    UNKNOWN,
    Acknowledged,
    Connector,
    ProtocolError,
    Send,
    SlowDown,
    Snapshot,
    Unnamed,
)
from onebook.model import Instrument, InstrumentStatus

BTC = Instrument("bithumb", "BTC/KRW", "KRW-BTC")
ETH = Instrument("bithumb", "ETH/KRW", "KRW-ETH")

REQUESTS_REPLACE = True  # each names all books of the connection

# Why no test feeds it derivative rows.
NO_DERIVATIVES = "Bithumb trades spot alone"

# Messages of other channels and formats, and what changes no book. The ticker is the page's.
UNKNOWN_FRAMES = (
    b'{"status":"UP"}',
    b'{"type":"ticker","code":"KRW-BTC","opening_price":484500,"high_price":493100,'
    b'"trade_price":493100,"timestamp":1725927377287,"stream_type":"SNAPSHOT"}',
    b'{"ty":"orderbook","cd":"KRW-BTC","tms":1584486737444,"obu":[],"st":"SNAPSHOT"}',
    b"{}",
)


def damaged(frame: bytes) -> bytes:
    """A frame of a book without its levels."""
    return frame.replace(b'"orderbook_units"', b'"gone"')


UNITS = '{"ask_price":2,"bid_price":1,"ask_size":3,"bid_size":4}'


def book(code: str = "KRW-BTC", units: str = UNITS, **about: Any) -> bytes:
    members = {"type": "orderbook", "code": code, "timestamp": 1_725_927_377_820_000} | about
    return f'{json.dumps(members)[:-1]},"orderbook_units":[{units}],"level":1}}'.encode()


def asked(number: int, *codes: str) -> Send:
    listed = json.dumps(codes, separators=(",", ":"))
    return Send(
        f'[{{"ticket":"onebook-{number}"}},{{"type":"orderbook","codes":{listed}}},'
        '{"format":"DEFAULT"}]'.encode()
    )


def error(name: str, words: str) -> bytes:
    return json.dumps({"error": {"name": name, "message": words}}).encode()


def connected() -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    return connector


def test_each_request_names_everything_and_the_first_book_answers_it() -> None:
    connector = EXCHANGE.connector([BTC])
    assert connector.opened() == (asked(1, "KRW-BTC"),)
    assert connector.add([ETH]) == (asked(2, "KRW-BTC", "KRW-ETH"),)
    acknowledged, snapshot = connector.received(book("KRW-ETH"))
    assert acknowledged == Acknowledged(ETH)
    assert isinstance(snapshot, Snapshot)
    assert [type(out) for out in connector.received(book("KRW-ETH"))] == [Snapshot]
    assert connector.resync([ETH]) == (asked(3, "KRW-BTC", "KRW-ETH"),)
    assert connector.remove([BTC]) == (asked(4, "KRW-ETH"),)
    assert connector.received(book()) == ()


@pytest.mark.parametrize("timestamp", [1_725_927_377_820_000, 1_725_927_377_820])
def test_dust_and_padding_are_no_levels(timestamp: int) -> None:
    units = (
        '{"ask_price":478800,"bid_price":4.783E5,"ask_size":4.2,"bid_size":0.0001},'
        '{"ask_price":478900,"bid_price":478200,"ask_size":0.0000,"bid_size":1},'
        '{"ask_price":479000,"bid_price":0,"ask_size":7,"bid_size":0}'
    )
    connector, reader = connected(), Reader(EXCHANGE)
    (_, snapshot) = connector.received(book(units=units, timestamp=timestamp))
    assert snapshot.at_ms == 1_725_927_377_820  # type: ignore[union-attr]
    reader.read([snapshot])
    bids = {"478300": "0.0001", "478200": "1"}
    asks = {"478800": "4.2", "479000": "7"}
    assert reader.sides(BTC) == tuple(
        {Decimal(price): Decimal(amount) for price, amount in side.items()} for side in (bids, asks)
    )


def test_an_error_names_nobody() -> None:
    assert connected().received(error("NO_CODES", "why")) == (Unnamed("NO CODES: why"),)
    slow = error("TOO_MANY_REQUESTS", "why")
    assert connected().received(slow) == (SlowDown("TOO MANY REQUESTS: why"),)


def test_other_frames_are_ignored() -> None:
    assert connected().received(b'{"status":"UP"}') == EXPECTED
    assert connected().received(UNKNOWN_FRAMES[2]) == UNKNOWN


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (book(timestamp="x"), BTC),
        (damaged(book("KRW-ETH")), ETH),
        (book("KRW-XRP"), None),
        (b'{"type":"orderbook","code":7}', None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        connected().received(frame)
    assert caught.value.instrument is instrument


def test_the_quote_comes_first_in_the_names_of_pairs() -> None:
    rows = [
        {"market": "KRW-BTC", "korean_name": "비트코인", "english_name": "Bitcoin"},
        {"market": "BTC-FTC", "market_warning": "NONE"},
        {"market": "KRW"},
        {"market": 5},
        None,
    ]
    found = EXCHANGE.parse_instruments(json.dumps(rows).encode())
    assert [(one.symbol, one.native) for one in found] == [
        ("BTC/KRW", "KRW-BTC"),
        ("FTC2/BTC", "BTC-FTC"),
    ]
    assert {one.status for one in found} == {InstrumentStatus.TRADING}
