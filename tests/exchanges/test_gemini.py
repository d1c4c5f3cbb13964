"""Conversations with Gemini: its messages and our answers."""

import json
from typing import Any

import pytest

from exchanges.sent import Sent
from onebook.exchanges.gemini import EXCHANGE
from onebook.exchanges.kit import (
    Acknowledged,
    BookRefused,
    Connector,
    Delta,
    Gap,
    Ignored,
    ProtocolError,
    SlowDown,
    Snapshot,
    TopOfBook,
    Unnamed,
)
from onebook.model import Instrument, InstrumentStatus
from simulator.pure import Desk

BTC = Instrument("gemini", "BTC/USD", "btcusd")
ETH = Instrument("gemini", "ETH/USD", "ethusd")

# The frame that the page prints.
PAGE = (
    b'{"e":"depthUpdate","E":1751508260659505382,"s":"btcusd","U":12345677,"u":12345678,'
    b'"b":[["45000.50","1.25000000"],["45000.25","0.00000000"]],"a":[["45001.00","0.75000000"]]}'
)

# Messages of other streams, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"u":1,"E":1751508438600117161,"s":"btcusd","b":"1","B":"1"}',
    b'{"lastUpdateId":1,"symbol":"btcusd","bids":[["1","1"]],"asks":[["2","1"]]}',
    b'{"id":"99","status":200}',
    b"{}",
)


def update(first: int, final: int, native: str = "btcusd") -> bytes:
    message = {"e": "depthUpdate", "E": 1, "s": native, "U": first, "u": final}
    return json.dumps(message | {"b": [["1.500", "2.0000"]], "a": []}).encode()


def asked(method: str, number: int, *natives: str, stream: str = "@depth@100ms") -> Sent:
    streams = json.dumps([native + stream for native in natives], separators=(",", ":"))
    return Sent(f'{{"id":"{number}","method":"{method}","params":{streams}}}'.encode())


def tops(method: str, number: int, *natives: str) -> Sent:
    return asked(method, number, *natives, stream="@bookTicker")


def refusal(code: int, words: str, number: object = "1") -> bytes:
    error = {"code": code, "msg": words}
    return json.dumps({"id": number, "status": 400, "error": error}).encode()


def opened(*instruments: Instrument) -> Connector:
    connector = EXCHANGE.connector(instruments or (BTC, ETH))
    connector.opened()
    return connector


def live(at: int) -> Connector:
    connector = opened()
    connector.received(update(at, at))
    return connector


def kinds(outputs: Any) -> list[type]:
    return [type(output) for output in outputs]


def test_all_books_are_asked_for_in_one_request_and_accepted_by_its_number() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    assert connector.opened() == (
        asked("subscribe", 1, "btcusd", "ethusd"),
        tops("subscribe", 2, "btcusd", "ethusd"),
    )
    assert kinds(connector.received(update(7, 7))) == [Snapshot], "it comes before the answer"
    assert connector.received(b'{"id":"1","status":200}') == (Acknowledged(BTC), Acknowledged(ETH))


def test_the_answer_may_come_between_the_snapshots_of_its_request() -> None:
    """A recorded frame of three books."""
    connector = opened()
    assert kinds(connector.received(update(7, 7))) == [Snapshot]
    assert kinds(connector.received(b'{"id":"1","status":200}')) == [Acknowledged, Acknowledged]
    assert kinds(connector.received(update(9, 9, "ethusd"))) == [Snapshot]


def test_a_change_that_ends_where_the_snapshot_stands_changes_nothing() -> None:
    """A recorded frame of BTC/USD."""
    connector = live(1_764_559_652_998_238)
    assert connector.received(update(1_764_559_652_998_127, 1_764_559_652_998_238)) == ()
    next_one = update(1_764_559_652_998_238, 1_764_559_652_998_335)
    assert kinds(connector.received(next_one)) == [Delta]


def test_the_frame_of_the_page_is_read() -> None:
    (delta,) = live(12345677).received(PAGE)
    assert isinstance(delta, Delta)
    assert bytes(delta.asks) == b'[["45001.00","0.75000000"]]'
    assert delta.at_ms == 1_751_508_260_659


def test_a_frame_starts_at_the_state_of_the_last_one() -> None:
    connector = live(10)
    assert kinds(connector.received(update(10, 14))) == [Delta]
    assert kinds(connector.received(update(12, 15))) == [Delta], "one that overlaps is contiguous"
    assert connector.received(update(12, 15)) == ()
    assert kinds(connector.received(update(16, 19))) == [Gap]
    assert connector.received(update(19, 21)) == ()


def test_a_frame_that_starts_one_after_the_last_state_is_a_gap() -> None:
    """The frame from 10 to 11 was lost, hidden because ranges overlap by one."""
    assert kinds(live(10).received(update(11, 12))) == [Gap]


def test_only_the_first_frame_of_a_subscription_is_the_whole_book() -> None:
    connector = opened()
    assert connector.received(update(3, 5)) == ()
    assert kinds(connector.received(update(5, 5))) == [Snapshot]
    assert kinds(connector.received(update(5, 5))) == [Delta], "the state it is at, once more"
    assert kinds(connector.received(update(9, 9))) == [Gap]


def test_resync_unsubscribes_and_subscribes() -> None:
    connector = live(10)
    again = (
        asked("unsubscribe", 3, "btcusd"),
        tops("unsubscribe", 4, "btcusd"),
        asked("subscribe", 5, "btcusd"),
        tops("subscribe", 6, "btcusd"),
    )
    assert connector.resync([BTC]) == again
    assert connector.received(update(10, 11)) == (), "a late frame of the subscription before"
    assert kinds(connector.received(update(11, 11))) == [Snapshot]


def test_a_refusal_names_one_stream_and_the_rest_is_asked_for_again() -> None:
    words = "Invalid stream name: btcusd@depth@100ms"
    refused, *again = opened().received(refusal(-1013, words))
    assert refused == BookRefused(BTC, "Invalid stream name: btcusd")
    assert again == [asked("subscribe", 3, "ethusd"), tops("subscribe", 4, "ethusd")]


def test_other_errors_refuse_nothing() -> None:
    assert opened().received(refusal(-1013, "Invalid parameters", None)) == (
        Unnamed("Invalid parameters"),
    )
    assert opened().received(refusal(-1003, "Calm down")) == (SlowDown("Calm down"),)


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (update(10, 11).replace(b'"u": 11', b'"u": "x"'), BTC),
        (update(10, 11).replace(b'"a"', b'"gone"'), BTC),
        (update(10, 11).replace(b'"s": "btcusd"', b'"s": 5'), None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        live(10).received(frame)
    assert caught.value.instrument is instrument


def row(**members: Any) -> dict[str, Any]:
    return {
        "symbol": "BTCUSD",
        "base_currency": "BTC",
        "quote_currency": "USD",
        "tick_size": 1e-8,
        "quote_increment": 0.01,
        "status": "open",
        "product_type": "spot",
    } | members


def test_instruments_have_the_names_that_frames_have() -> None:
    other = row(symbol="2ZRLUSD", base_currency="2Z", quote_currency="RLUSD", tick_size=1)
    rows = [row(), other | {"status": "cancel_only"}, row(symbol=5), {}, None]
    found = EXCHANGE.parse_instruments(json.dumps(rows).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USD", "btcusd", "0.01", "0.00000001"),
        ("2Z/RLUSD", "2zrlusd", "0.01", "1"),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]


@pytest.mark.derivatives
@pytest.mark.parametrize("product", ["swap", "perpetual"])
def test_rows_of_derivatives_are_no_instruments(product: str) -> None:
    swap = row(symbol="BTCGUSDPERP", quote_currency="GUSD", product_type=product)
    assert EXCHANGE.parse_instruments(json.dumps([swap]).encode()) == []


def test_the_simulated_exchange_refuses_what_the_real_one_does() -> None:
    desk = Desk("gemini")
    request = {"id": 4, "method": "SUBSCRIBE", "params": ["BTCUSD@depth@100ms"]}
    bad = "nosuch@depth@100ms"
    (refused,) = desk.say(request | {"params": [*request["params"], bad]})
    assert refused == {
        "id": 4,
        "status": 400,
        "error": {"code": -1013, "msg": f"Invalid stream name: {bad}"},
    }
    assert desk.say(request | {"params": ["btcusd@level2"]})[0]["status"] == 400
    assert desk.say(request) == [{"id": 4, "status": 200}], "no snapshot without `snapshot`"
    assert desk.say({"id": 5, "method": "ping"}) == [{"id": 5, "status": 200}]


TICKER = b'{"u":12,"E":1751508438600117161,"s":"btcusd","b":"1","B":"3","a":"2","A":"4"}'


def test_a_ticker_is_a_top_of_the_ids_of_the_book() -> None:
    top = TopOfBook(BTC, 12, b'[["1","3"]]', b'[["2","4"]]', at=1751508438600117161)
    assert live(10).reader()(TICKER) == top


def test_a_ticker_of_one_side_states_no_best_prices() -> None:
    """Whether the other side is empty or unchanged is not documented."""
    partial = TICKER.replace(b',"a":"2","A":"4"', b"")
    assert live(10).received(partial) == (Ignored(known=False),)


def test_refused_tickers_cost_no_book() -> None:
    words = "Invalid stream name: btcusd@bookTicker"
    refused = opened().received(refusal(-1013, words, "2"))
    assert refused == (Ignored(known=True, refused=words),)
