"""Conversations with bitFlyer: its messages and our answers; a recording of 2021."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from contract.oracle import Reader
from contract.recorded import frames
from exchanges.sent import Sent
from onebook.exchanges.bitflyer import EXCHANGE
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    BookRefused,
    Connector,
    Ignored,
    ProtocolError,
    SlowDown,
    Snapshot,
    Unnamed,
)
from onebook.exchanges.kit.contract import UNKNOWN
from onebook.model import Instrument

BTC = Instrument("bitflyer", "BTC/JPY", "BTC_JPY")
ETH = Instrument("bitflyer", "ETH/JPY", "ETH_JPY")
BOARD = "lightning_board_snapshot_"

# Messages of other channels, and what changes no book. The changes were recorded.
UNKNOWN_FRAMES = (
    b'{"jsonrpc":"2.0","method":"channelMessage","params":{"channel":"lightning_board_BTC_JPY",'
    b'"message":{"mid_price":2534243.0,"bids":[],"asks":[{"price":2534500.0,"size":0.0}]}}}',
    b'{"jsonrpc":"2.0","id":99,"result":true}',
    b"{}",
)


def book(native: str = "BTC_JPY", levels: str = '{"price":2E0,"size":1.5}') -> bytes:
    message = f'{{"mid_price":2.0,"bids":[],"asks":[{levels}]}}'
    params = f'{{"channel":"{BOARD}{native}","message":{message}}}'
    return f'{{"jsonrpc":"2.0","method":"channelMessage","params":{params}}}'.encode()


def asked(method: str, native: str, number: int) -> Sent:
    params = f'{{"channel":"{BOARD}{native}"}}'
    return Sent(f'{{"jsonrpc":"2.0","method":"{method}","params":{params},"id":{number}}}'.encode())


def error(number: int | None, code: int, words: str) -> bytes:
    told = {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": words}}
    return json.dumps(told).encode()


def connected() -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    return connector


def test_each_channel_is_asked_for_alone_and_accepted_by_its_number() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    requests = (asked("subscribe", "BTC_JPY", 1), asked("subscribe", "ETH_JPY", 2))
    assert connector.opened() == requests
    ack = b'{"jsonrpc":"2.0","id":2,"result":true}'
    assert connector.received(ack) == (Acknowledged(ETH),)
    assert connector.received(ack) == EXPECTED
    again = (asked("unsubscribe", "BTC_JPY", 3), asked("subscribe", "BTC_JPY", 4))
    assert connector.resync([BTC]) == again


def test_every_frame_is_the_whole_book_and_market_orders_are_no_level() -> None:
    connector, reader = connected(), Reader(EXCHANGE)
    for _ in range(2):
        (out,) = connector.received(book(levels='{"price":0,"size":9},{"price":2E0,"size":1.5}'))
        assert isinstance(out, Snapshot)
        assert out.at_ms == 0
        reader.read([out])
        assert reader.sides(BTC) == ({}, {Decimal(2): Decimal("1.5")})


def test_a_refusal_is_about_the_channel_of_its_request() -> None:
    assert connected().received(error(2, -32602, "why")) == (BookRefused(ETH, "why"),)
    assert connected().received(error(2, -32009, "twice")) == (Acknowledged(ETH),)
    assert connected().received(error(None, -32700, "Parse error")) == (Unnamed("Parse error"),)
    slow = error(2, -32000, "Too many requests")
    assert connected().received(slow) == (SlowDown("Too many requests"),)


def test_the_changes_between_are_not_followed() -> None:
    assert connected().received(UNKNOWN_FRAMES[0]) == UNKNOWN


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (book().replace(b'"asks"', b'"tasks"'), BTC),
        (book("ETH_JPY").replace(b'"message"', b'"massage"'), ETH),
        (book("XRP_JPY"), None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        connected().received(frame)
    assert caught.value.instrument is instrument


def test_levels_may_come_in_any_order() -> None:
    """The page does not promise one."""
    message = {
        "bids": [{"price": 1, "size": 1}, {"price": 3, "size": 3}, {"price": 2, "size": 2}],
        "asks": [{"price": 6, "size": 6}, {"price": 4, "size": 4}, {"price": 5, "size": 5}],
    }
    params = {"channel": BOARD + BTC.native, "message": message}
    told = {"jsonrpc": "2.0", "method": "channelMessage", "params": params}
    reader = Reader(EXCHANGE)
    reader.read(connected().received(json.dumps(told).encode()))
    bids, asks = reader.sides(BTC)
    assert (list(bids), list(asks)) == ([3, 2, 1], [4, 5, 6])


@pytest.mark.derivatives
def test_only_spot_rows_are_instruments() -> None:
    rows = [
        {"product_code": "BTC_JPY", "market_type": "Spot"},
        {"product_code": "FX_BTC_JPY", "market_type": "FX"},
        {"product_code": "BTCJPY24DEC2021", "alias": "BTCJPY_MAT1WK", "market_type": "Futures"},
        {"product_code": 5, "market_type": "Spot"},
        None,
    ]
    found = EXCHANGE.parse_instruments(json.dumps(rows).encode())
    assert [(one.symbol, one.native) for one in found] == [("BTC/JPY", "BTC_JPY")]


@pytest.mark.replayed("bitflyer", "BITFLYER.ws.1.0")
def test_every_recorded_snapshot_equals_its_frame(samples: Path) -> None:
    told = [json.loads(frame, parse_float=Decimal) for frame in frames(samples, "BITFLYER.ws.1.0")]
    books = [each["params"] for each in told if BOARD in each["params"]["channel"]]
    natives = {params["channel"].removeprefix(BOARD) for params in books}
    instruments = {native: Instrument("bitflyer", native, native) for native in natives}
    connector, reader = EXCHANGE.connector([*instruments.values()]), Reader(EXCHANGE)
    for frame in frames(samples, "BITFLYER.ws.1.0"):
        outputs = list(connector.received(frame))
        if BOARD.encode() not in frame:
            assert all(isinstance(out, Ignored) for out in outputs)
            continue
        reader.read(outputs)
        params = json.loads(frame, parse_float=Decimal, parse_int=Decimal)["params"]
        sides = tuple(
            {level["price"]: level["size"] for level in params["message"][side]}
            for side in ("bids", "asks")
        )
        assert reader.sides(instruments[params["channel"].removeprefix(BOARD)]) == sides
    assert (len(books), len(natives), reader.invalidated) == (60, 10, [])
