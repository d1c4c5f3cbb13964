"""Conversations with Backpack: its messages and our answers."""

import json

import pytest

from exchanges.sent import Sent
from onebook.exchanges.backpack import EXCHANGE
from onebook.exchanges.kit import (
    Acknowledged,
    Connector,
    Delta,
    Fetch,
    Gap,
    ProtocolError,
    SlowDown,
    Snapshot,
    Unnamed,
)
from onebook.model import Instrument, InstrumentStatus

SOL = Instrument("backpack", "SOL/USDC", "SOL_USDC")
MU = Instrument("backpack", "MU.US/USDC", "MU.US_USDC")
FETCH_SOL = Fetch(SOL, "/api/v1/depth?symbol=SOL_USDC&limit=1000")
AT_US = 1_790_134_357_903_774

# Messages of other channels, and what changes no book; the first was recorded.
UNKNOWN_FRAMES = (
    b'{"data":{"A":"2.01178","B":"1.94230","E":1790134357267285,"a":"86656.0","b":"86655.9",'
    b'"e":"bookTicker","s":"BTC_USDT","u":6730019258},"stream":"bookTicker.BTC_USDT"}',
    b'{"data":{"E":1,"c":"86625","e":"ticker","s":"BTC_USDT"},"stream":"ticker.BTC_USDT"}',
    b"{}",
)


def delta(first: int, final: int, native: str = "SOL_USDC") -> bytes:
    """A recorded frame, changed to another pair."""
    data = {"E": AT_US, "T": AT_US - 3_328, "U": first, "a": [["2766.95", "6.9498"]]}
    data |= {"b": [["2754.43", "45.0537"], ["2755.33", "0.0000"]], "e": "depth"}
    data |= {"s": native, "u": final}
    return json.dumps({"data": data, "stream": f"depth.{native}"}).encode()


def body(sequence: int) -> bytes:
    """A frame printed by ccxt: bids worst first, the sequence in quotes."""
    bids, asks = [["1.0", "0.38647"], ["12.9", "1.00000"]], [["118318.3", "0.00633"]]
    book = {"asks": asks, "bids": bids, "lastUpdateId": str(sequence), "timestamp": AT_US}
    return json.dumps(book).encode()


def joined() -> Connector:
    connector = EXCHANGE.connector([SOL, MU])
    connector.opened()
    connector.fetched(SOL, body(100))
    return connector


def test_the_body_is_asked_for_with_the_stream_because_nothing_is_acknowledged() -> None:
    asked = b'{"method":"SUBSCRIBE","params":["depth.SOL_USDC"]}'
    assert EXCHANGE.connector([SOL]).opened() == (Sent(asked), Acknowledged(SOL), FETCH_SOL)


def test_deltas_are_joined_with_the_body_and_a_hole_is_a_gap() -> None:
    connector = EXCHANGE.connector([SOL])
    connector.opened()
    for first, final in ((90, 95), (96, 105)):
        assert connector.received(delta(first, final)) == ()
    snapshot, held = connector.fetched(SOL, body(100))
    assert isinstance(snapshot, Snapshot)
    assert isinstance(held, Delta)
    assert (snapshot.levels_asked, snapshot.at_ms, held.at_ms) == (1_000, *[AT_US // 1_000] * 2)
    (next_one,) = connector.received(delta(106, 106))
    assert isinstance(next_one, Delta)
    assert bytes(next_one.bids) == b'[["2754.43", "45.0537"], ["2755.33", "0.0000"]]'
    assert connector.received(delta(108, 109)) == (
        Gap(SOL, "the book is at 106, the delta starts at 108"),
    )
    assert connector.resync([SOL]) == (FETCH_SOL,)


def test_an_error_names_nothing_and_a_rate_limit_refuses_nothing() -> None:
    invalid = b'{"id":null,"error":{"code":4006,"message":"Invalid stream"}}'
    assert joined().received(invalid) == (Unnamed("Invalid stream"),)
    many = b'{"id":null,"error":{"code":1,"message":"Too many requests."}}'
    assert joined().received(many) == (SlowDown("Too many requests."),)


def test_a_pair_with_a_dot_in_its_name_is_distinguished_from_the_window() -> None:
    connector = joined()
    with pytest.raises(ProtocolError) as caught:
        connector.received(delta(1, 2, "MU.US_USDC").replace(b'"b"', b'"x"'))
    assert caught.value.instrument is MU
    (snapshot,) = connector.fetched(MU, body(7))
    assert isinstance(snapshot, Snapshot)


@pytest.mark.parametrize("bad", [b"404 not found", b"[]", body(5).replace(b'"5"', b'"-5"')])
def test_a_body_that_is_no_book_names_its_instrument(bad: bytes) -> None:
    connector = EXCHANGE.connector([SOL])
    connector.opened()
    with pytest.raises(ProtocolError, match="SOL_USDC") as caught:
        connector.fetched(SOL, bad)
    assert caught.value.instrument is SOL


@pytest.mark.derivatives
def test_the_list_is_read_and_only_spot_is_taken() -> None:
    row = {
        "symbol": "SOL_USDC",
        "baseSymbol": "SOL",
        "quoteSymbol": "USDC",
        "marketType": "SPOT",
        "orderBookState": "Open",
        "fundingInterval": None,
        "filters": {
            "price": {"minPrice": "0.01", "maxPrice": None, "tickSize": "0.01"},
            "quantity": {"minQuantity": "0.01", "stepSize": "0.01"},
            "leverage": None,
        },
    }
    others = [
        row | {"symbol": f"SOL_USDC_{kind}", "marketType": kind}
        for kind in ("PERP", "IPERP", "DATED", "PREDICTION", "RFQ")
    ]
    closed = row | {"symbol": "W_USDC", "baseSymbol": "W", "orderBookState": "PostOnly"}
    found = EXCHANGE.parse_instruments(json.dumps([row, *others, closed, 7, {}]).encode())
    assert [(one.symbol, one.tick, one.lot) for one in found] == [
        ("SOL/USDC", "0.01", "0.01"),
        ("W/USDC", "0.01", "0.01"),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]
