"""Conversations with Poloniex: its messages and our answers."""

import json
from typing import Any

import pytest

from exchanges.sent import Sent
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    BookRefused,
    Connector,
    Delta,
    Gap,
    ProtocolError,
    Snapshot,
    Unnamed,
)
from onebook.exchanges.kit.contract import UNKNOWN
from onebook.exchanges.poloniex import EXCHANGE
from onebook.model import Instrument, InstrumentStatus

BTC = Instrument("poloniex", "BTC/USDT", "BTC_USDT")
ETH = Instrument("poloniex", "ETH/USDT", "ETH_USDT")

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"event":"pong"}',
    b'{"channel":"trades","data":[{"symbol":"BTC_USDT","price":"1"}]}',
    b'{"event":"subscribe","channel":"trades","symbols":["BTC_USDT"]}',
    b'{"event":"unsubscribe","channel":"book_lv2","symbols":["BTC_USDT"]}',
    b"{}",
)


def item(previous: int, sequence: int, native: str = "BTC_USDT") -> dict[str, Any]:
    rows = {"symbol": native, "createTime": 1, "asks": [["2", "1"]], "bids": [["1", "0"]]}
    return rows | {"lastId": previous, "id": sequence, "ts": 1}


def book(action: str, *items: dict[str, Any]) -> bytes:
    return json.dumps({"channel": "book_lv2", "data": items, "action": action}).encode()


def asked(event: str, *natives: str) -> Sent:
    symbols = json.dumps(natives, separators=(",", ":"))
    return Sent(f'{{"event":"{event}","channel":["book_lv2"],"symbols":{symbols}}}'.encode())


def live(*, at: int = 10) -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.received(book("snapshot", item(at - 1, at)))
    return connector


def kinds(outputs: tuple[object, ...]) -> list[type]:
    return [type(output) for output in outputs]


def test_subscribes_and_hears_it_accepted() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    assert connector.opened() == (asked("subscribe", "BTC_USDT", "ETH_USDT"),)
    frame = b'{"event":"subscribe","channel":"book_lv2","symbols":["BTC_USDT","X_Y",7]}'
    assert connector.received(frame) == (Acknowledged(BTC),)
    assert connector.received(b'{"event":"subscribe","channel":"book_lv2"}') == EXPECTED


def test_updates_follow_by_the_last_id() -> None:
    connector = live(at=10)
    assert kinds(connector.received(book("update", item(10, 11)))) == [Delta]
    assert connector.received(book("update", item(12, 13))) == (
        Gap(BTC, "the book is at 11, the delta follows 12"),
    )


def test_the_time_of_a_frame_is_when_it_was_sent() -> None:
    connector = live(at=10)
    timed = {"createTime": 1_648_052_239_156, "ts": 1_648_052_239_192}
    for action in ("update", "snapshot"):
        (out,) = connector.received(book(action, item(10, 11) | timed))
        assert out.at_ms == 1_648_052_239_192


def test_an_update_before_the_snapshot_is_ignored() -> None:
    assert EXCHANGE.connector([BTC]).received(book("update", item(9, 10))) == ()


def test_every_snapshot_starts_anew() -> None:
    connector = live(at=10)
    assert kinds(connector.received(book("snapshot", item(98, 99)))) == [Snapshot]
    assert kinds(connector.received(book("update", item(99, 100)))) == [Delta]


def test_several_items_of_one_frame_are_taken_in_order() -> None:
    connector = live(at=10)
    connector.received(book("snapshot", item(4, 5, "ETH_USDT")))
    outputs = connector.received(book("update", item(10, 11), item(5, 6, "ETH_USDT")))
    assert [out.instrument for out in outputs] == [BTC, ETH]  # type: ignore[union-attr]


def test_a_frame_of_the_same_shape_from_another_channel_is_ignored() -> None:
    frame = book("update", item(10, 11)).replace(b'"book_lv2"', b'"book"')
    assert live(at=10).received(frame) == UNKNOWN


def test_resync_unsubscribes_and_subscribes() -> None:
    connector = live(at=10)
    again = (asked("unsubscribe", "BTC_USDT"), asked("subscribe", "BTC_USDT"))
    assert connector.resync([BTC]) == again
    assert connector.received(book("update", item(10, 11))) == ()


def test_an_error_refuses_the_symbol_it_names() -> None:
    words = "Invalid symbol: BTC_USDT."
    frame = json.dumps({"event": "error", "message": words}).encode()
    assert live().received(frame) == (BookRefused(BTC, words),)


@pytest.mark.parametrize("words", ["Bad request", "no valid symbols"])
def test_an_error_that_names_no_symbol_touches_no_live_book(words: str) -> None:
    frame = json.dumps({"message": words, "event": "error"}).encode()
    assert live().received(frame) == (Unnamed(words),)


@pytest.mark.parametrize("words", ["Already subscribed", "Not subscribed"])
def test_requests_that_crossed_refuse_nothing(words: str) -> None:
    connector = EXCHANGE.connector([BTC])
    connector.opened()
    frame = json.dumps({"message": words, "event": "error"}).encode()
    assert connector.received(frame) == EXPECTED


@pytest.mark.derivatives
def test_rows_of_derivatives_are_no_instruments() -> None:
    row = {
        "symbol": "BTC_USDT_PERP",
        "baseCurrencyName": "BTC",
        "quoteCurrencyName": "USDT",
        "state": "NORMAL",
    }
    assert EXCHANGE.parse_instruments(json.dumps([row]).encode()) == []


def test_the_heartbeat_comes_before_the_thirty_seconds() -> None:
    assert EXCHANGE.heartbeat is not None
    assert (EXCHANGE.heartbeat.frame, EXCHANGE.heartbeat.every_s) == (b'{"event":"ping"}', 20.0)
    assert live().received(b'{"event":"pong"}') == EXPECTED


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (book("replace", item(10, 11)), BTC),
        (book("update", item(10, 11) | {"id": "11"}), BTC),
        (book("update", item(10, 11)).replace(b'"asks"', b'"tasks"'), BTC),
        (book("update", item(10, 11), {}), None),
        (b'{"channel":"book_lv2"}', None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        live(at=10).received(frame)
    assert caught.value.instrument is instrument


def test_instruments_are_read_row_by_row() -> None:
    row = {
        "symbol": "BTC_USDT",
        "baseCurrencyName": "BTC",
        "quoteCurrencyName": "USDT",
        "state": "NORMAL",
        "symbolTradeLimit": {"symbol": "BTC_USDT", "priceScale": 2, "quantityScale": 6},
    }
    bare = {key: value for key, value in row.items() if key != "symbolTradeLimit"}
    rows = [row, bare | {"symbol": "A_B", "state": "PAUSE"}, row | {"symbol": 5}, {}, None]
    found = EXCHANGE.parse_instruments(json.dumps(rows).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USDT", "BTC_USDT", "0.01", "0.000001"),
        ("BTC/USDT", "A_B", "", ""),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]
