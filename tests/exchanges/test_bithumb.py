"""Bithumb: the differences from Upbit, whose protocol it uses."""

import json
from decimal import Decimal
from typing import Any

import pytest

from contract.oracle import Reader
from exchanges.sent import Sent
from onebook.exchanges import upbit
from onebook.exchanges.bithumb import EXCHANGE
from onebook.exchanges.kit import Acknowledged, Connector, ProtocolError, Unnamed
from onebook.model import Instrument

BTC = Instrument("bithumb", "BTC/KRW", "KRW-BTC")
ETH = Instrument("bithumb", "ETH/KRW", "KRW-ETH")

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


def connected() -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    return connector


@pytest.mark.parametrize(
    "timestamp", [1_725_927_377_820_000, 1_725_927_377_820, "1725927377820000"]
)
def test_dust_and_padding_are_no_levels(timestamp: int | str) -> None:
    units = (
        '{"ask_price":478800,"bid_price":4.783E5,"ask_size":4.2,"bid_size":0.0001},'
        '{"ask_price":478900,"bid_price":478200,"ask_size":0.0000,"bid_size":1},'
        '{"ask_price":479000,"bid_price":0,"ask_size":7,"bid_size":0}'
    )
    connector, reader = connected(), Reader(EXCHANGE)
    acknowledged, snapshot = connector.received(book(units=units, timestamp=timestamp))
    assert acknowledged == Acknowledged(BTC)
    assert snapshot.at_ms == 1_725_927_377_820  # type: ignore[union-attr]
    reader.read([snapshot])
    bids = {"478300": "0.0001", "478200": "1"}
    asks = {"478800": "4.2", "479000": "7"}
    assert reader.sides(BTC) == tuple(
        {Decimal(price): Decimal(amount) for price, amount in side.items()} for side in (bids, asks)
    )


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (book(timestamp=None), BTC),
        (damaged(book("KRW-ETH")), ETH),
        (book("KRW-XRP"), None),
        (b'{"type":"orderbook","code":7}', None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        connected().received(frame)
    assert caught.value.instrument is instrument


def test_it_is_upbit_with_names_and_limits_of_its_own() -> None:
    assert EXCHANGE.instruments_path == upbit.EXCHANGE.instruments_path
    assert EXCHANGE.limits.topics == upbit.EXCHANGE.limits.topics
    (request,) = EXCHANGE.connector([BTC]).opened()
    assert request == Sent(
        b'[{"ticket":"onebook-1"},{"type":"orderbook","codes":["KRW-BTC"]},{"format":"DEFAULT"}]'
    )
    assert connected().received(b'{"error":{"name":"NO_CODES","message":"why"}}') == (
        Unnamed("NO CODES: why"),
    )


def test_its_symbols_are_its_own() -> None:
    found = EXCHANGE.parse_instruments(b'[{"market":"KRW-BTC"},{"market":"BTC-FTC"}]')
    assert [(one.exchange, one.symbol, one.native) for one in found] == [
        ("bithumb", "BTC/KRW", "KRW-BTC"),
        ("bithumb", "FTC2/BTC", "BTC-FTC"),
    ]
