"""Kraken, as conversations: what it says, what we answer."""

import json

import pytest

from onebook.exchanges.contract import (
    DIGITS_10,
    OBJECTS,
    Acknowledged,
    Delta,
    ProtocolError,
    Refused,
    Send,
    Snapshot,
    Verify,
)
from onebook.exchanges.kraken import EXCHANGE, Kraken
from onebook.model import Instrument, InstrumentStatus

BTC = Instrument("kraken", "BTC/USD", "BTC/USD")
DOGE = Instrument("kraken", "DOGE/EUR", "DOGE/EUR")


def item(symbol: str = "BTC/USD", checksum: str = "42") -> str:
    bids, asks = '[{"price":45283.5,"qty":0.10000000}]', "[]"
    return f'{{"symbol":"{symbol}","bids":{bids},"asks":{asks},"checksum":{checksum}}}'


def book(kind: str, *items: str) -> bytes:
    return f'{{"channel":"book","type":"{kind}","data":[{",".join(items)}]}}'.encode()


def asked(method: str, *natives: str) -> Send:
    symbols = json.dumps(natives, separators=(",", ":"))
    params = f'{{"channel":"book","symbol":{symbols},"depth":100}}'
    return Send(f'{{"method":"{method}","params":{params}}}'.encode())


def live() -> Kraken:
    connector = Kraken([BTC, DOGE])
    connector.received(book("snapshot", item()))
    return connector


def test_subscribes_at_the_depth_that_the_book_is_cut_to() -> None:
    assert Kraken([BTC, DOGE]).opened() == (asked("subscribe", "BTC/USD", "DOGE/EUR"),)
    assert (EXCHANGE.depth, EXCHANGE.truncate) == (100, True)


def test_each_symbol_is_confirmed_by_itself() -> None:
    frame = (
        b'{"method":"subscribe","result":{"channel":"book","symbol":"DOGE/EUR","depth":100,'
        b'"snapshot":true},"success":true,"time_in":"a","time_out":"b"}'
    )
    assert Kraken([BTC, DOGE]).received(frame) == (Acknowledged(DOGE),)
    assert Kraken([BTC]).received(frame) == ()
    assert Kraken([DOGE]).received(frame.replace(b'"subscribe"', b'"unsubscribe"')) == ()


def test_every_book_frame_brings_its_checksum() -> None:
    connector = Kraken([BTC, DOGE])
    assert connector.received(book("update", item())) == (), "before the snapshot"
    snapshot, verify = connector.received(book("snapshot", item()))
    assert isinstance(snapshot, Snapshot)
    assert bytes(snapshot.bids) == b'[{"price":45283.5,"qty":0.10000000}]'
    assert snapshot.shape == OBJECTS
    assert verify == Verify(BTC, DIGITS_10, 42)
    delta, verify = connector.received(book("update", item(checksum="4294967295")))
    assert isinstance(delta, Delta)
    assert delta.shape == OBJECTS
    assert verify == Verify(BTC, DIGITS_10, 4_294_967_295)


def test_several_items_of_one_frame_are_taken_in_order() -> None:
    outputs = live().received(book("snapshot", item(), item("DOGE/EUR")))
    assert [out.instrument for out in outputs] == [BTC, BTC, DOGE, DOGE]  # type: ignore[union-attr]


def test_a_frame_of_the_same_shape_from_another_channel_is_ignored() -> None:
    assert live().received(book("update", item()).replace(b'"book"', b'"level3"')) == ()


def test_resync_unsubscribes_and_subscribes() -> None:
    connector = live()
    assert connector.resync(BTC) == (asked("unsubscribe", "BTC/USD"), asked("subscribe", "BTC/USD"))
    assert connector.received(book("update", item())) == ()


@pytest.mark.parametrize(
    "frame",
    [
        {"error": "Currency pair not supported BTC/USD", "method": "subscribe"},
        {"error": "Currency pair not supported", "method": "subscribe", "symbol": "BTC/USD"},
    ],
)
def test_a_refusal_names_its_symbol(frame: dict[str, str]) -> None:
    (refused,) = live().received(json.dumps(frame | {"success": False}).encode())
    assert isinstance(refused, Refused)
    assert refused.instrument is BTC
    assert "Currency pair not supported" in refused.reason


def test_a_refusal_that_names_no_symbol_may_be_about_any() -> None:
    with pytest.raises(ProtocolError, match="depth") as caught:
        live().received(b'{"error":"Invalid depth","method":"subscribe","success":false}')
    assert caught.value.instrument is None


def test_crossed_requests_are_no_refusal() -> None:
    frame = b'{"error":"Already subscribed","method":"subscribe","success":false}'
    assert live().received(frame) == ()


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (book("replace", item()), BTC),
        (book("update", item(checksum="-2147483649")), BTC),
        (book("update", item().replace("asks", "tasks")), BTC),
        (book("update", item(), item("DOGE/EUR", checksum='""')), None),
        (b'{"channel":"book","type":"update"}', None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        live().received(frame)
    assert caught.value.instrument is instrument


def test_instruments_get_the_names_of_the_v2_socket() -> None:
    row = {"altname": "XBTUSD", "status": "online", "tick_size": "0.1", "lot_decimals": 8}
    pairs = {
        "XXBTZUSD": row | {"wsname": "XBT/USD"},
        "XDGEUR": row | {"wsname": "XDG/EUR", "status": "cancel_only", "lot_decimals": 0},
        "ETHXBT": row | {"wsname": "ETH/XBT", "status": "limit_only", "lot_decimals": 99},
        "XBTUSD.d": row,
        "MARGIN": row | {"wsname": "XBT/USD:BTNL"},
        "ODD": row | {"wsname": "ALONE"},
        "WORSE": [],
    }
    found = EXCHANGE.parse_instruments(json.dumps({"error": [], "result": pairs}).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USD", "BTC/USD", "0.1", "0.00000001"),
        ("DOGE/EUR", "DOGE/EUR", "0.1", "1"),
        ("ETH/BTC", "ETH/BTC", "0.1", ""),
    ]
    trading = [one.status is InstrumentStatus.TRADING for one in found]
    assert trading == [True, False, True]


def test_a_list_with_an_error_is_refused() -> None:
    with pytest.raises(ProtocolError, match="EService:Unavailable"):
        EXCHANGE.parse_instruments(b'{"error":["EService:Unavailable"]}')
