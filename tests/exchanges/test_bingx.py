"""Conversations with BingX: its messages and our answers."""

import json
from typing import Any

import pytest

from core.both import EACH
from exchanges.sent import Sent
from onebook.core.types import LevelError
from onebook.exchanges.bingx import EXCHANGE
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    Alive,
    BookRefused,
    Connector,
    Delta,
    Gap,
    ProtocolError,
    Send,
    SlowDown,
    Snapshot,
    Unnamed,
)
from onebook.model import Instrument, InstrumentStatus

BTC = Instrument("bingx", "BTC/USDT", "BTC-USDT")
ETH = Instrument("bingx", "ETH/USDT", "ETH-USDT")

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"code":0,"data":{"E":1690214529432,"e":"trade","p":"29110.19","s":"BTC-USDT"},'
    b'"dataType":"BTC-USDT@trade","success":true}',
    b'{"code":0,"data":{"asks":[["84119.73","0.000011"]],"bids":[["83656.98","2.570805"]],'
    b'"lastUpdateId":13565694850},"dataType":"BTC-USDT@depth100","timestamp":1743241379958}',
    b"{}",
)

# As recorded, of the perpetuals' socket, and as the client of spot reads them.
LISTS = ([["86378.9", "0.0001"], ["86377.5", "0.0003"]], [["87169.5", "0.0000"]])
OBJECTS = ({"86378.9": "0.0001", "86377.5": "0.0003"}, {"87169.5": "0.0000"})


def book(action: str, sequence: int, sides: tuple[Any, Any] = OBJECTS, **more: object) -> bytes:
    item = {"action": action, "lastUpdateId": sequence, "bids": sides[0], "asks": sides[1]}
    return json.dumps({"code": 0, "dataType": "BTC-USDT@incrDepth", "data": item | more}).encode()


def live(*, at: int = 10) -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    connector.received(book("all", at))
    return connector


def test_each_topic_has_a_request_and_either_kind_of_answer_accepts_it() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    assert connector.opened() == (
        Sent(b'{"id":"1","reqType":"sub","dataType":"BTC-USDT@incrDepth"}'),
        Sent(b'{"id":"2","reqType":"sub","dataType":"ETH-USDT@incrDepth"}'),
    )
    spot = b'{"id":"1","code":0,"msg":"SUCCESS","timestamp":1690214699854}'
    other = b'{"id":"2","code":0,"msg":"","dataType":"","data":null}'
    assert connector.received(spot) == (Acknowledged(BTC),)
    assert connector.received(other) == (Acknowledged(ETH),)
    assert connector.received(spot) == EXPECTED


@pytest.mark.parametrize("core", EACH)
@pytest.mark.parametrize("sides", [LISTS, OBJECTS], ids=["lists", "objects"])
def test_both_forms_of_a_side_are_the_same_levels(core: Any, sides: tuple[Any, Any]) -> None:
    connector, held = EXCHANGE.connector([BTC]), core.Book()
    (whole,) = connector.received(book("all", 10, sides))
    assert isinstance(whole, Snapshot)
    assert held.replace(whole.bids, whole.asks, whole.shape) is None
    assert held.top(9) == ([("86378.9", "0.0001"), ("86377.5", "0.0003")], [])
    empty = type(sides[0])()
    (change,) = connector.received(book("update", 11, (empty, sides[0])))
    assert isinstance(change, Delta)
    assert bytes(change.bids) == b"[]"


@pytest.mark.parametrize(
    "side", [{"1": {"2": "3"}}, {"1": ["2"]}, {"1": "2,3"}, {"1": None}, {'1"': "2"}, {"": "1"}]
)
@pytest.mark.parametrize("core", EACH)
def test_an_object_that_is_no_side_is_refused_by_the_core(core: Any, side: Any) -> None:
    (whole,) = EXCHANGE.connector([BTC]).received(book("all", 10, (side, {})))
    assert isinstance(whole, Snapshot)
    with pytest.raises(LevelError):
        core.Book().replace(whole.bids, whole.asks, whole.shape)


def test_numbers_rise_with_holes_and_never_fall() -> None:
    connector = live(at=10)
    for sequence in (11, 13, 22):
        (out,) = connector.received(book("update", sequence))
        assert isinstance(out, Delta)
    assert connector.received(book("update", 22)) == ()
    (gap,) = connector.received(book("update", 21))
    assert isinstance(gap, Gap)
    assert connector.received(book("update", 23)) == ()
    unsubscribed, subscribed = connector.resync([BTC])
    assert isinstance(unsubscribed, Send)
    assert b'"unsub"' in unsubscribed.frame
    assert subscribed == Sent(b'{"id":"4","reqType":"sub","dataType":"BTC-USDT@incrDepth"}')


@pytest.mark.parametrize("name", ["timestamp", "time"])
def test_a_book_may_name_its_time_in_two_ways(name: str) -> None:
    (out,) = live().received(book("update", 11, **{name: 1_790_127_587_285}))
    assert isinstance(out, Delta)
    assert out.at_ms == 1_790_127_587_285


def test_a_ping_is_answered_at_once_and_shows_that_the_exchange_lives() -> None:
    ping = b'{"ping":"2177c68e4d0e","time":"2022-06-07T16:27:36.323+0800"}'
    pong = b'{"pong":"2177c68e4d0e","time":"2022-06-07T16:27:36.323+0800"}'
    assert live().received(ping) == (Sent(pong, urgent=True), Alive())
    assert live().received(b"Ping") == (Sent(b"Pong", urgent=True), Alive())


def test_an_error_refuses_its_request_a_rate_limit_nothing() -> None:
    connector = live()
    words = "dataType not support"
    refusal = {"id": "2", "code": 80015, "msg": words, "dataType": "", "data": None}
    assert connector.received(json.dumps(refusal).encode()) == (BookRefused(ETH, words),)
    limited = b'{"id":"1","code":100410,"msg":"rate limited"}'
    assert connector.received(limited) == (SlowDown("rate limited"),)
    nameless = b'{"code":100400,"msg":"not supported","timestamp":1790126693749}'
    assert connector.received(nameless) == (Unnamed("not supported"),)


@pytest.mark.parametrize(
    "frame",
    [
        book("replace", 11),
        book("update", 2**63),
        book("update", 11).replace(b'"bids"', b'"tips"'),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        live().received(frame)
    assert caught.value.instrument is BTC


@pytest.mark.derivatives
def test_the_list_is_read_with_its_steps_as_written_and_without_contracts() -> None:
    body = (
        b'{"code":0,"msg":"","data":{"symbols":['
        b'{"symbol":"BTC-USDT","status":1,"tickSize":0.01,"stepSize":0.00001,"minNotional":5},'
        b'{"symbol":"OFF-USDT","status":25,"tickSize":"0.1","stepSize":1},'
        b'{"symbol":"SHUT-USDT","status":1,"apiStateBuy":false,"apiStateSell":false},'
        b'{"symbol":"ETH-USDT","status":1,"contractId":"100","asset":"ETH"},'
        b'{"symbol":"NODASH","status":1},7]}}'
    )
    found = EXCHANGE.parse_instruments(body)
    assert [(one.symbol, one.tick, one.lot) for one in found] == [
        ("BTC/USDT", "0.01", "0.00001"),
        ("OFF/USDT", "0.1", "1"),
        ("SHUT/USDT", "", ""),
    ]
    halted = InstrumentStatus.HALTED
    assert [one.status for one in found] == [InstrumentStatus.TRADING, halted, halted]
    with pytest.raises(ProtocolError, match="100410"):
        EXCHANGE.parse_instruments(b'{"code":100410,"msg":"rate limited"}')
