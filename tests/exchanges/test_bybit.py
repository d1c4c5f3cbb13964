"""Conversations with Bybit: its messages and our answers."""

import json
from typing import Any

import pytest
from msgspec import Raw

from exchanges.sent import Sent
from onebook.exchanges.bybit import EXCHANGE, NO_LEVELS
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    BookHalted,
    BookRefused,
    Connector,
    Delta,
    Gap,
    Ignored,
    ProtocolError,
    Send,
    SlowDown,
    Snapshot,
    TopOfBook,
    Unnamed,
)
from onebook.model import Instrument, InstrumentStatus

BTC = Instrument("bybit", "BTC/USDT", "BTCUSDT")
ETH = Instrument("bybit", "ETH/USDT", "ETHUSDT")
SOL = Instrument("bybit", "SOL/USDT", "SOLUSDT")

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"success":true,"ret_msg":"pong","conn_id":"a","op":"ping"}',
    b'{"topic":"publicTrade.BTCUSDT","type":"snapshot","ts":1,"data":[{"s":"BTCUSDT"}]}',
    b'{"topic":"orderbook.50.BTCUSDT","type":"delta","ts":1,"data":{"s":"BTCUSDT","b":[],'
    b'"a":[],"u":5,"seq":1}}',
    b"{}",
)


def book(kind: str, sequence: int, native: str = "BTCUSDT", **more: Any) -> bytes:
    data = {"s": native, "b": [["1", "2"]], "a": [], "u": sequence, "seq": 7} | more
    topic = f"orderbook.200.{native}"
    return json.dumps({"topic": topic, "ts": 1, "type": kind, "data": data, "cts": 1}).encode()


def reply(number: str, *, success: bool, words: str = "subscribe", op: str = "subscribe") -> bytes:
    return json.dumps(
        {"success": success, "ret_msg": words, "conn_id": "a", "req_id": number, "op": op}
    ).encode()


def live(*, at: int = 10) -> Connector:
    connector = EXCHANGE.connector([BTC, ETH, SOL])
    connector.opened()
    connector.received(book("snapshot", at))
    return connector


def kinds(outputs: tuple[object, ...]) -> list[type]:
    return [type(output) for output in outputs]


def test_subscribes_ten_topics_a_frame() -> None:
    instruments = [Instrument("bybit", f"C{rank}/USDT", f"C{rank}USDT") for rank in range(21)]
    frames = [json.loads(out.frame) for out in EXCHANGE.connector(instruments).opened()]  # type: ignore[union-attr]
    assert [len(frame["args"]) for frame in frames] == [10, 10, 1] * 2
    assert [frame["req_id"] for frame in frames] == ["1", "2", "3", "4", "5", "6"]
    assert frames[0]["args"][0] == "orderbook.200.C0USDT"
    assert frames[3]["args"][0] == "orderbook.1.C0USDT"


def test_an_answer_accepts_what_its_request_asked_for() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    answer = reply("1", success=True)
    assert connector.received(answer) == (Acknowledged(BTC), Acknowledged(ETH))
    assert connector.received(answer) == EXPECTED


def test_deltas_rise_by_one() -> None:
    connector = live(at=10)
    assert kinds(connector.received(book("delta", 11))) == [Delta]
    assert connector.received(book("delta", 11)) == ()
    assert connector.received(book("delta", 13)) == (
        Gap(BTC, "the book is at 11, the delta follows 12"),
    )
    assert connector.received(book("delta", 14)) == ()


@pytest.mark.parametrize(("kind", "sequence"), [("snapshot", 900), ("snapshot", 1), ("delta", 1)])
def test_a_snapshot_replaces_the_book_at_any_time_and_u_1_is_one(kind: str, sequence: int) -> None:
    connector = live(at=10)
    assert kinds(connector.received(book(kind, sequence))) == [Snapshot]
    assert kinds(connector.received(book("delta", sequence + 1))) == [Delta]


@pytest.mark.parametrize(
    "frame",
    [book("delta", 1, b=[]), book("snapshot", 1, b=[]), book("snapshot", 900, b=[])],
    ids=["delta", "restart", "snapshot"],
)
def test_a_book_without_levels_is_halted(frame: bytes) -> None:
    connector = live(at=10)
    assert connector.received(frame) == (BookHalted(BTC, NO_LEVELS),)
    assert connector.received(book("delta", 2)) == ()
    assert connector.received(book("delta", 11)) == (), "nothing is shown before a snapshot"
    assert kinds(connector.received(book("snapshot", 20))) == [Snapshot]


def test_a_change_that_leaves_both_sides_as_they_are_is_no_book_without_levels() -> None:
    assert kinds(live(at=10).received(book("delta", 11, b=[]))) == [Delta]


def test_the_time_of_a_frame_is_when_it_was_made_and_not_that_of_the_matching() -> None:
    connector = live()
    times = b'"ts": 1672304484978', b'"cts": 1672304484976'
    for kind, sequence in (("delta", 11), ("snapshot", 12)):
        frame = book(kind, sequence).replace(b'"ts": 1', times[0]).replace(b'"cts": 1', times[1])
        assert times[1] in frame
        assert [out.at_ms for out in connector.received(frame)] == [1_672_304_484_978]


def test_a_refusal_names_its_topic_and_the_others_are_asked_for_again() -> None:
    connector = EXCHANGE.connector([BTC, ETH, SOL])
    connector.opened()
    words = "Invalid symbol :[orderbook.200.ETHUSDT]"
    assert connector.received(reply("1", success=False, words=words)) == (
        BookRefused(ETH, words),
        Sent(
            b'{"op":"subscribe","args":["orderbook.200.BTCUSDT","orderbook.200.SOLUSDT"],'
            b'"req_id":"3"}'
        ),
        Sent(
            b'{"op":"subscribe","args":["orderbook.1.BTCUSDT","orderbook.1.SOLUSDT"],"req_id":"4"}'
        ),
    )
    assert connector.received(reply("3", success=True)) == (Acknowledged(BTC), Acknowledged(SOL))


def test_already_subscribed_is_no_refusal() -> None:
    connector = EXCHANGE.connector([BTC])
    connector.opened()
    words = "error:already subscribed,topic:orderbook.200.BTCUSDT"
    assert connector.received(reply("1", success=False, words=words)) == (Acknowledged(BTC),)


def test_a_refusal_that_names_no_topic_is_of_what_was_asked_for_alone() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    answer = reply("1", success=False, words="args is empty")
    assert kinds(connector.received(answer)) == [Send] * 4  # each for its levels and best prices
    second = reply("3", success=False, words="args is empty")
    assert connector.received(second) == (BookRefused(BTC, "args is empty"),)
    assert connector.received(answer) == (Unnamed("args is empty"),)


def test_a_refusal_without_a_request_number_touches_no_live_book() -> None:
    frame = b'{"success":false,"ret_msg":"args is empty","conn_id":"a","op":"subscribe"}'
    assert live().received(frame) == (Unnamed("args is empty"),)
    slower = frame.replace(b"args is empty", b"Too many visits!")
    assert live().received(slower) == (SlowDown("Too many visits!"),)


@pytest.mark.derivatives
def test_rows_of_derivatives_are_no_instruments() -> None:
    row = {"symbol": "BTCUSDT", "baseCoin": "BTC", "quoteCoin": "USDT", "status": "Trading"}
    linear = row | {"contractType": "LinearPerpetual", "settleCoin": "USDT"}
    body = {"result": {"category": "spot", "list": [linear]}}
    assert EXCHANGE.parse_instruments(json.dumps(body).encode()) == []
    body["result"] = {"category": "linear", "list": [row]}
    with pytest.raises(ProtocolError, match="linear"):
        EXCHANGE.parse_instruments(json.dumps(body).encode())


def test_resync_unsubscribes_and_subscribes() -> None:
    connector = live(at=10)
    frames = [json.loads(out.frame) for out in connector.resync([BTC])]  # type: ignore[union-attr]
    assert [frame["op"] for frame in frames] == ["unsubscribe"] * 2 + ["subscribe"] * 2
    both = [["orderbook.200.BTCUSDT"], ["orderbook.1.BTCUSDT"]]
    assert [frame["args"] for frame in frames] == both * 2
    assert connector.received(reply("3", success=True, op="unsubscribe")) == EXPECTED
    assert connector.received(book("delta", 11)) == ()
    assert connector.received(reply("5", success=True)) == (Acknowledged(BTC),)


def test_the_answer_to_a_ping_says_nothing() -> None:
    assert EXCHANGE.heartbeat is not None
    assert EXCHANGE.heartbeat.frame == b'{"op":"ping"}'
    pong = b'{"success":true,"ret_msg":"pong","conn_id":"a","op":"ping"}'
    assert live().received(pong) == EXPECTED, "it proves a socket and no data"


@pytest.mark.parametrize(
    "frame",
    [
        book("delta", 11, s="ETHUSDT"),
        book("replace", 11),
        book("delta", 11, u="11"),
        book("delta", 11, u=None),
        book("delta", 11).replace(b'"b"', b'"x"'),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        live(at=10).received(frame)
    assert caught.value.instrument is BTC


def test_instruments_are_read_row_by_row() -> None:
    row = {
        "symbol": "BTCUSDT",
        "baseCoin": "BTC",
        "quoteCoin": "USDT",
        "status": "Trading",
        "lotSizeFilter": {"basePrecision": "0.000001", "minOrderQty": "0.00004"},
        "priceFilter": {"tickSize": "0.01"},
    }
    bare = {"symbol": "AUSDT", "baseCoin": "A", "quoteCoin": "USDT", "status": "PreLaunch"}
    rows = [row, bare, row | {"priceFilter": []}, row | {"symbol": ""}, [], None]
    found = EXCHANGE.parse_instruments(json.dumps({"result": {"list": rows}}).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USDT", "BTCUSDT", "0.01", "0.000001"),
        ("A/USDT", "AUSDT", "", ""),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]


def test_best_prices_and_levels_are_ordered_by_the_cross_sequence() -> None:
    connector = live(at=10)
    best = json.loads(book("snapshot", 99, seq=12))
    best["topic"] = "orderbook.1.BTCUSDT"
    frame = json.dumps(best, separators=(",", ":")).encode()
    assert connector.reader()(frame) == TopOfBook(BTC, 12, Raw(b'[["1","2"]]'), Raw(b"[]"), at=1)
    (change,) = connector.received(book("delta", 11, seq=15))
    assert isinstance(change, Delta)
    assert change.sequence == 15
    (whole,) = connector.received(book("snapshot", 1, seq=3))
    assert isinstance(whole, Snapshot)
    assert whole.sequence == 3


def test_refused_best_prices_cost_no_book() -> None:
    connector = EXCHANGE.connector([BTC, ETH, SOL])
    connector.opened()
    words = "Invalid symbol :[orderbook.1.ETHUSDT]"
    refused = connector.received(reply("2", success=False, words=words))
    assert refused == (Ignored(known=True, refused=words),)
