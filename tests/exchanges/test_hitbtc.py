"""Conversations with HitBTC: its messages and our answers; a recording of 2021."""

import json
from pathlib import Path
from typing import Any

import pytest

from contract.oracle import Dicts, Reader
from contract.recorded import frames
from exchanges.sent import Sent
from onebook.exchanges.hitbtc import EXCHANGE
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    BookRefused,
    Connector,
    Delta,
    Gap,
    ProtocolError,
    SlowDown,
    Snapshot,
    Unnamed,
)
from onebook.exchanges.kit.engine import OMITTED
from onebook.model import Instrument, InstrumentStatus
from simulator.pure import Desk

BTC = Instrument("hitbtc", "BTC/USDT", "BTCUSDT")
ETH = Instrument("hitbtc", "ETH/USDT", "ETHUSDT")

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"ch":"ticker/1s","data":{"BTCUSDT":{"t":1633806854642,"a":"2","A":"1","b":"1","B":"1"}}}',
    b'{"ch":"orderbook/D20/100ms","data":{"BTCUSDT":{"t":1,"s":9,"a":[["2","1"]],"b":[]}}}',
    b'{"ch":"trades","update":{"BTCUSDT":[{"t":1,"i":2,"p":"1","q":"1","s":"buy"}]}}',
    b'{"result":{"ch":"trades","subscriptions":["BTCUSDT"]},"id":1}',
    b'{"jsonrpc":"2.0","result":true,"id":7}',
    b"{}",
)


def book(kind: str, sequence: int, native: str = "BTCUSDT") -> bytes:
    change = {"t": 1633806854817, "s": sequence, "a": [["2", "1"]], "b": [["1", "3"]]}
    return json.dumps({"ch": "orderbook/full", kind: {native: change}}).encode()


def listed(number: int, *natives: str) -> bytes:
    result = {"ch": "orderbook/full", "subscriptions": natives}
    return json.dumps({"result": result, "id": number}).encode()


def error(code: int, message: str, number: int | None) -> bytes:
    failure = {"code": code, "message": message, "description": ""}
    return json.dumps({"jsonrpc": "2.0", "error": failure, "id": number}).encode()


def asked(method: str, number: int, *natives: str) -> Sent:
    symbols = json.dumps(natives, separators=(",", ":"))
    head = f'{{"method":"{method}","ch":"orderbook/full",'
    return Sent(f'{head}"params":{{"symbols":{symbols}}},"id":{number}}}'.encode())


def live(*, at: int = 10) -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    connector.received(listed(1, "BTCUSDT", "ETHUSDT"))
    connector.received(book("snapshot", at))
    return connector


def kinds(outputs: Any) -> list[type]:
    return [type(output) for output in outputs]


def test_the_answer_to_a_request_lists_what_was_taken_and_the_rest_is_refused() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    assert connector.opened() == (asked("subscribe", 1, "BTCUSDT", "ETHUSDT"),)
    answer = connector.received(listed(1, "ETHUSDT"))
    assert answer == (Acknowledged(ETH), BookRefused(BTC, OMITTED))
    assert connector.received(listed(1)) == EXPECTED, "it was answered before"


def test_fifty_symbols_share_a_request() -> None:
    instruments = [Instrument("hitbtc", f"C{rank}/USDT", f"C{rank}USDT") for rank in range(70)]
    opened = EXCHANGE.connector(instruments).opened()
    sizes = [len(json.loads(out.frame)["params"]["symbols"]) for out in opened]  # type: ignore[union-attr]
    assert sizes == [50, 20]


def test_asks_and_bids_and_the_time_are_handed_on_as_they_came() -> None:
    connector = live(at=10)
    for kind, sequence in (("update", 11), ("snapshot", 30)):
        (out,) = connector.received(book(kind, sequence))
        assert (bytes(out.asks), bytes(out.bids)) == (b'[["2", "1"]]', b'[["1", "3"]]')
        assert out.at_ms == 1_633_806_854_817


def test_an_update_follows_the_number_before_its_own() -> None:
    connector = live(at=10)
    assert kinds(connector.received(book("update", 11))) == [Delta]
    assert connector.received(book("update", 11)) == (), "it was sent twice"
    gap = connector.received(book("update", 13))
    assert gap == (Gap(BTC, "the book is at 11, the delta follows 12"),)
    assert connector.received(book("update", 14)) == ()
    assert kinds(connector.received(book("snapshot", 3))) == [Snapshot]


def test_an_update_without_levels_advances_the_book() -> None:
    connector = live(at=10)
    empty = book("update", 11).replace(b'[["2", "1"]]', b"[]").replace(b'[["1", "3"]]', b"[]")
    connector.received(empty)
    assert kinds(connector.received(book("update", 12))) == [Delta]


def test_books_that_share_a_frame_are_followed_each() -> None:
    connector = live(at=10)
    frame = json.loads(book("snapshot", 5, "ETHUSDT"))
    frame["snapshot"]["STRANGE"] = frame["snapshot"]["ETHUSDT"]
    frame["snapshot"]["BTCUSDT"] = frame["snapshot"]["ETHUSDT"]
    outputs = connector.received(json.dumps(frame).encode())
    assert [out.instrument for out in outputs] == [ETH, BTC]


def test_a_resync_unsubscribes_and_subscribes_and_its_answers_refuse_nothing() -> None:
    connector = live(at=10)
    again = (asked("unsubscribe", 2, "BTCUSDT"), asked("subscribe", 3, "BTCUSDT"))
    assert connector.resync([BTC]) == again
    assert connector.received(book("update", 11)) == ()
    assert connector.received(listed(2, "ETHUSDT")) == EXPECTED
    assert connector.received(listed(3, "BTCUSDT")) == (Acknowledged(BTC),)


def test_an_error_refuses_what_its_request_asked_for() -> None:
    connector = EXCHANGE.connector([BTC])
    connector.opened()
    assert connector.received(error(2001, "Symbol not found", None)) == (
        Unnamed("Symbol not found"),
    )
    assert connector.received(error(2001, "Symbol not found", 1)) == (
        BookRefused(BTC, "Symbol not found"),
    )


def test_too_many_requests_ask_for_patience_and_refuse_nothing() -> None:
    connector = EXCHANGE.connector([BTC])
    connector.opened()
    assert connector.received(error(429, "Too many requests", 1)) == (
        SlowDown("Too many requests"),
    )


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (book("update", 11).replace(b'"s"', b'"n"'), BTC),
        (book("update", 2**63), BTC),
        (book("replace", 11), None),
        (b'{"ch":"orderbook/full","update":{}}', None),
        (b'{"ch":"orderbook/full","update":[]}', None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError, match="damaged") as caught:
        live(at=10).received(frame)
    assert caught.value.instrument is instrument


ROW = {
    "type": "spot",
    "base_currency": "BTC",
    "quote_currency": "USDT",
    "status": "working",
    "quantity_increment": "0.00001",
    "tick_size": "0.01",
}


def test_symbols_are_named_by_their_member() -> None:
    rows = {
        "BTCUSDT": ROW,
        "BITUSDT": ROW | {"base_currency": "BIT", "status": "suspended"},
        "ODD": {"type": "spot"},
        "NOROW": 5,
    }
    found = EXCHANGE.parse_instruments(json.dumps(rows).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USDT", "BTCUSDT", "0.01", "0.00001"),
        ("BITREWARDS/USDT", "BITUSDT", "0.01", "0.00001"),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]


@pytest.mark.derivatives
def test_rows_of_derivatives_are_no_instruments() -> None:
    future = {"type": "futures", "contract_type": "perpetual", "underlying": "BTC"}
    rows = {"BTCUSDT": ROW, "BTCUSDT_PERP": ROW | future, "ETHUSDT_PERP": future}
    found = EXCHANGE.parse_instruments(json.dumps(rows).encode())
    assert [one.native for one in found] == ["BTCUSDT"]


def test_a_list_with_an_error_is_refused() -> None:
    with pytest.raises(ProtocolError, match="error"):
        EXCHANGE.parse_instruments(b'{"error":{"code":429,"message":"Too many requests"}}')


@pytest.mark.replayed(
    "hitbtc", "FMFW.ws.1.0", differs="of FMFW, another exchange with the same engine"
)
def test_recorded_books_of_its_engine_are_equal_after_every_frame(samples: Path) -> None:
    recorded = frames(samples, "FMFW.ws.1.0")
    ack = next(frame for frame in recorded if b'"result":{"ch":"orderbook/full"' in frame)
    natives = json.loads(ack)["result"]["subscriptions"]
    instruments = {native: Instrument("hitbtc", native, native) for native in natives}
    connector, reader = EXCHANGE.connector([*instruments.values()]), Reader(EXCHANGE)
    connector.opened()
    accepted = connector.received(ack.replace(b'"id":1234', b'"id":1'))
    assert kinds(accepted) == [Acknowledged] * 10
    truth = {native: Dicts() for native in natives}
    followed = 0
    for frame in recorded:
        message = json.loads(frame)
        outputs = list(connector.received(frame))
        if message.get("ch") != "orderbook/full":
            continue
        for kind in ("snapshot", "update"):
            for native, change in message.get(kind, {}).items():
                read = truth[native].replace if kind == "snapshot" else truth[native].apply
                read(change["b"], change["a"])
        reader.read(outputs)
        followed += kinds(outputs) == [Delta]
        if message.get("update") and followed % 40 == 0:
            for native, instrument in instruments.items():
                assert reader.sides(instrument) == truth[native].sides
    assert (followed, reader.invalidated) == (869, [])


def test_the_simulated_exchange_refuses_with_the_codes_of_the_real_one() -> None:
    """Probed in 2026-09; a frame that is not JSON is answered without an `id`."""
    desk = Desk("hitbtc")
    subscription = {"method": "subscribe", "ch": "orderbook/full", "id": 7}
    for request, code, number in (
        ("ping", 1, None),
        (subscription | {"method": "nope"}, 404, 7),
        (subscription | {"ch": "orderbook/D30/100ms"}, 2003, 7),
    ):
        (answer,) = desk.say(request)
        assert (answer["error"]["code"], answer.get("id")) == (code, number)


def test_a_frame_with_data_in_place_of_a_snapshot_is_damage_to_its_book_alone() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    with pytest.raises(ProtocolError, match="neither a snapshot nor an update") as caught:
        connector.received(book("data", 5))
    assert caught.value.instrument is BTC
