"""Conversations with Kraken: its messages and our answers."""

import json

import pytest

from exchanges.sent import Sent
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    Alive,
    BookRefused,
    Connector,
    Delta,
    ProtocolError,
    SlowDown,
    Snapshot,
    Trading,
    Unnamed,
    Verify,
)
from onebook.exchanges.kit.contract import UNKNOWN
from onebook.exchanges.kraken import CHECKSUM, EXCHANGE, LEVELS
from onebook.model import Instrument, InstrumentStatus

BTC = Instrument("kraken", "BTC/USD", "BTC/USD")
DOGE = Instrument("kraken", "DOGE/EUR", "DOGE/EUR")

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"channel":"heartbeat"}',
    b'{"channel":"status","type":"update","data":[{"system":"online","api_version":"v2"}]}',
    b'{"method":"pong","req_id":1,"time_in":"now","time_out":"now"}',
    b'{"channel":"trade","type":"update","data":[{"symbol":"BTC/USD","price":1.0}]}',
    b"{}",
)


def item(symbol: str = "BTC/USD", checksum: str = "42") -> str:
    bids, asks = '[{"price":45283.5,"qty":0.10000000}]', "[]"
    return f'{{"symbol":"{symbol}","bids":{bids},"asks":{asks},"checksum":{checksum}}}'


def book(kind: str, *items: str) -> bytes:
    return f'{{"channel":"book","type":"{kind}","data":[{",".join(items)}]}}'.encode()


def asked(method: str, *natives: str) -> Sent:
    symbols = json.dumps(natives, separators=(",", ":"))
    params = f'{{"channel":"book","symbol":{symbols},"depth":100}}'
    return Sent(f'{{"method":"{method}","params":{params}}}'.encode())


def live() -> Connector:
    connector = EXCHANGE.connector([BTC, DOGE])
    connector.received(book("snapshot", item()))
    return connector


def test_subscribes_at_the_depth_that_the_book_is_cut_to() -> None:
    assert EXCHANGE.connector([BTC, DOGE]).opened() == (asked("subscribe", "BTC/USD", "DOGE/EUR"),)
    assert (EXCHANGE.depth, EXCHANGE.truncate) == (100, True)


def test_a_frame_has_the_time_that_its_item_names() -> None:
    connector = live()
    timed = item()[:-1] + ',"timestamp":"2023-10-06T17:35:55.440295Z"}'
    for kind in ("update", "snapshot"):
        assert connector.received(book(kind, timed))[0].at_ms == 1_696_613_755_440
    assert connector.received(book("update", item()))[0].at_ms == 0


def test_each_symbol_is_confirmed_by_itself() -> None:
    frame = (
        b'{"method":"subscribe","result":{"channel":"book","symbol":"DOGE/EUR","depth":100,'
        b'"snapshot":true},"success":true,"time_in":"a","time_out":"b"}'
    )
    assert EXCHANGE.connector([BTC, DOGE]).received(frame) == (Acknowledged(DOGE),)
    assert EXCHANGE.connector([BTC]).received(frame) == EXPECTED
    assert (
        EXCHANGE.connector([DOGE]).received(frame.replace(b'"subscribe"', b'"unsubscribe"'))
        == EXPECTED
    )


def test_every_book_frame_brings_its_checksum() -> None:
    connector = EXCHANGE.connector([BTC, DOGE])
    assert connector.received(book("update", item())) == (), "before the snapshot"
    snapshot, verify = connector.received(book("snapshot", item()))
    assert isinstance(snapshot, Snapshot)
    assert bytes(snapshot.bids) == b'[{"price":45283.5,"qty":0.10000000}]'
    assert snapshot.shape is LEVELS
    assert verify == Verify(BTC, CHECKSUM, 42)
    delta, verify = connector.received(book("update", item(checksum="4294967295")))
    assert isinstance(delta, Delta)
    assert delta.shape is LEVELS
    assert verify == Verify(BTC, CHECKSUM, 4_294_967_295)


def test_several_items_of_one_frame_are_taken_in_order() -> None:
    outputs = live().received(book("snapshot", item(), item("DOGE/EUR")))
    assert [out.instrument for out in outputs] == [BTC, BTC, DOGE, DOGE]  # type: ignore[union-attr]


def test_a_frame_of_the_same_shape_from_another_channel_is_ignored() -> None:
    assert live().received(book("update", item()).replace(b'"book"', b'"level3"')) == UNKNOWN


def test_resync_unsubscribes_and_subscribes() -> None:
    connector = live()
    assert connector.resync([BTC]) == (
        asked("unsubscribe", "BTC/USD"),
        asked("subscribe", "BTC/USD"),
    )
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
    assert isinstance(refused, BookRefused)
    assert refused.instrument is BTC
    assert "Currency pair not supported" in refused.reason


def test_a_refusal_that_names_no_symbol_may_be_about_any() -> None:
    words = "Subscription depth not supported"
    frame = {"error": words, "method": "subscribe", "success": False}
    assert live().received(json.dumps(frame).encode()) == (Unnamed(words),)


def test_a_rate_limit_asks_for_patience_and_refuses_nothing() -> None:
    words = "Exceeded msg rate"
    assert live().received(json.dumps({"Error": words}).encode()) == (SlowDown(words),)


@pytest.mark.parametrize("system", ["online", "maintenance", "cancel_only", "post_only"])
def test_the_status_says_whether_orders_are_matched(system: str) -> None:
    frame = {"channel": "status", "type": "update", "data": [{"system": system}]}
    assert live().received(json.dumps(frame).encode()) == (
        Trading(open=system == "online", reason=system),
    )


def test_a_heartbeat_is_one_of_the_connection() -> None:
    assert live().received(b'{"channel":"heartbeat"}') == (Alive(),)


@pytest.mark.derivatives
def test_rows_of_derivatives_are_no_instruments() -> None:
    row = {"symbol": "PF_XBTUSD", "type": "flexible_futures", "tradeable": True, "tickSize": 0.5}
    body = {"error": [], "result": {"PF_XBTUSD": row}}
    assert EXCHANGE.parse_instruments(json.dumps(body).encode()) == []


def test_crossed_requests_are_no_refusal() -> None:
    frame = b'{"error":"Already subscribed","method":"subscribe","success":false}'
    assert live().received(frame) == EXPECTED


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
