"""Conversations with Deribit: its messages and our answers."""

import json
from typing import Any

import pytest

from exchanges.sent import Sent
from onebook.exchanges.deribit import EXCHANGE, LEVELS
from onebook.exchanges.kit import (
    EXPECTED,
    HEARTBEAT,
    Acknowledged,
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
    Trading,
    Unnamed,
)
from onebook.exchanges.kit.engine import OMITTED
from onebook.model import Instrument, InstrumentStatus
from onebook.simulator.kit import Dropped, Now
from simulator.pure import Desk

BTC = Instrument("deribit", "BTC/USDC", "BTC_USDC")
ETH = Instrument("deribit", "ETH/USDC", "ETH_USDC")

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"jsonrpc":"2.0","id":0,"result":"ok","testnet":false}',
    b'{"jsonrpc":"2.0","id":0,"result":{"version":"1.2.26"},"testnet":false}',
    b'{"jsonrpc":"2.0","method":"heartbeat","params":{"type":"heartbeat"}}',
    b'{"jsonrpc":"2.0","method":"subscription","params":{"channel":"trades.BTC_USDC.100ms",'
    b'"data":[{"price":1.0}]}}',
    b"{}",
)
TEST_REQUEST = b'{"jsonrpc":"2.0","method":"heartbeat","params":{"type":"test_request"}}'


def book(kind: str, change: int, previous: int | None = None, native: str = "BTC_USDC") -> bytes:
    data: dict[str, Any] = {"type": kind, "timestamp": 1_655_395_057_025, "change_id": change}
    if previous is not None:
        data["prev_change_id"] = previous
    data |= {"instrument_name": native, "bids": [["new", 20977, 0.109]], "asks": []}
    params = {"channel": f"book.{native}.100ms", "data": data}
    return json.dumps({"jsonrpc": "2.0", "method": "subscription", "params": params}).encode()


def asked(method: str, number: int, *natives: str) -> Sent:
    books = [f"book.{native}.100ms" for native in natives]
    quotes = [f"quote.{native}" for native in natives]
    channels = json.dumps([*books, *quotes], separators=(",", ":"))
    return Sent(
        f'{{"jsonrpc":"2.0","id":{number},"method":"public/{method}",'
        f'"params":{{"channels":{channels}}}}}'.encode()
    )


def answer(number: int, **members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "testnet": False} | members).encode()


def opened() -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    return connector


def live(at: int = 10) -> Connector:
    connector = opened()
    connector.received(book("snapshot", at))
    return connector


def kinds(outputs: Any) -> list[type]:
    return [type(output) for output in outputs]


def test_heartbeats_are_asked_for_before_the_books() -> None:
    first, _, books = EXCHANGE.connector([BTC, ETH]).opened()
    assert isinstance(first, Send)
    assert json.loads(first.frame) == {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "public/set_heartbeat",
        "params": {"interval": 10},
    }
    assert books == asked("subscribe", 1, "BTC_USDC", "ETH_USDC")


def test_a_test_request_is_answered_at_once_and_shows_that_the_exchange_lives() -> None:
    frame = b'{"jsonrpc":"2.0","id":0,"method":"public/test","params":{}}'
    assert opened().received(TEST_REQUEST) == (Sent(frame, urgent=True), *HEARTBEAT)


def test_the_result_of_a_request_accepts_its_books() -> None:
    connector = opened()
    channels = ["book.BTC_USDC.100ms", "book.ETH_USDC.100ms"]
    assert connector.received(answer(1, result=channels)) == (
        Acknowledged(BTC),
        Acknowledged(ETH),
    )
    connector.resync([BTC])
    assert connector.received(answer(2, result=[])) == EXPECTED, "the unsubscription"
    assert connector.received(answer(3, result=channels[:1])) == (Acknowledged(BTC),)


def test_a_book_that_the_result_of_its_request_omits_is_refused() -> None:
    omitted = BookRefused(BTC, OMITTED)
    connector = opened()
    assert connector.received(answer(1, result=["book.ETH_USDC.100ms"])) == (
        Acknowledged(ETH),
        omitted,
    )
    connector.resync([BTC])
    assert connector.received(answer(2, result=[])) == EXPECTED, "the unsubscription"
    assert [*connector.received(answer(3, result=[]))][-1] == omitted


def test_changes_follow_the_change_before_them() -> None:
    connector = opened()
    assert connector.received(book("change", 10, 9)) == ()
    (snapshot,) = connector.received(book("snapshot", 10))
    assert isinstance(snapshot, Snapshot)
    (delta,) = connector.received(book("change", 17, 10))
    assert isinstance(delta, Delta)
    assert (snapshot.shape, delta.shape) == (LEVELS, LEVELS)
    assert (delta.at_ms, bytes(delta.bids)) == (1_655_395_057_025, b'[["new", 20977, 0.109]]')
    assert kinds(connector.received(book("change", 20, 18))) == [Gap]
    assert connector.received(book("change", 21, 20)) == ()


QUOTE = (
    b'{"jsonrpc":"2.0","method":"subscription","params":{"channel":"quote.BTC_USDC","data":{'
    b'"timestamp":1655395057100,"instrument_name":"BTC_USDC","best_bid_price":20987.0,'
    b'"best_bid_amount":0.487,"best_ask_price":null,"best_ask_amount":0.0}}}'
)


def test_best_prices_of_a_later_millisecond_than_the_levels_are_later() -> None:
    connector = opened()
    (snapshot,) = connector.received(book("snapshot", 10))
    (delta,) = connector.received(book("change", 17, 10))
    (top,) = connector.received(QUOTE)
    (tied,) = connector.received(QUOTE.replace(b"1655395057100", b"1655395057025"))
    assert isinstance(snapshot, Snapshot)
    assert isinstance(delta, Delta)
    assert isinstance(top, TopOfBook)
    assert isinstance(tied, TopOfBook)
    assert tied.sequence < snapshot.sequence == delta.sequence < top.sequence
    assert (top.at, bytes(top.bids), bytes(top.asks)) == (
        1_655_395_057_100,
        b"[[20987.0,0.487]]",
        b"[]",
    )
    connector.remove([BTC])
    assert connector.received(QUOTE) == ()


@pytest.mark.parametrize("at", [b"-1", b"1e3", b"99999999999999999", b'"5"'])
def test_best_prices_of_an_impossible_time_are_ignored(at: bytes) -> None:
    assert live().received(QUOTE.replace(b"1655395057100", at)) == (Ignored(known=False),)


def test_resync_unsubscribes_and_subscribes() -> None:
    connector = live()
    again = (asked("unsubscribe", 2, "BTC_USDC"), asked("subscribe", 3, "BTC_USDC"))
    assert connector.resync([BTC]) == again
    assert connector.received(book("change", 11, 10)) == ()


def test_an_error_is_about_its_request() -> None:
    data = {"reason": "value must be a list", "param": "channels"}
    error = {"message": "Invalid params", "data": data, "code": -32602}
    connector = opened()
    words = "Invalid params value must be a list"
    assert [*map(type, connector.received(answer(1, error=error)))] == [Send, Send]
    assert connector.received(answer(2, error=error)) == (BookRefused(BTC, words),)
    assert connector.received(answer(9, error=error)) == (Unnamed(words),)


def platform(data: dict[str, object]) -> bytes:
    params = {"channel": "platform_state", "data": data}
    return json.dumps({"jsonrpc": "2.0", "method": "subscription", "params": params}).encode()


def test_maintenance_of_the_platform_halts_its_books() -> None:
    connector = EXCHANGE.connector([BTC])
    requests = [json.loads(out.frame) for out in connector.opened()]
    assert requests[1]["params"] == {"channels": ["platform_state"]}
    accepted = answer(requests[1]["id"], result=["platform_state"])
    assert connector.received(accepted) == EXPECTED
    (halted,) = connector.received(platform({"maintenance": True}))
    assert halted == Trading(open=False, reason="maintenance of the platform")
    (resumed,) = connector.received(platform({"maintenance": False}))
    assert isinstance(resumed, Trading)
    assert resumed.open
    lock = platform({"price_index": "btc_usdc", "locked": True})
    assert connector.received(lock) == EXPECTED, "it is about derivatives, as far as is known"


@pytest.mark.parametrize(
    ("code", "words"),
    [(10028, "too_many_requests"), (11051, "system_maintenance"), (13888, "timed_out")],
)
def test_an_error_that_passes_refuses_nothing(code: int, words: str) -> None:
    error = {"message": words, "code": code}
    unavailable = code != 10028
    about = (BTC, ETH) if unavailable else ()
    assert opened().received(answer(1, error=error)) == (SlowDown(words, unavailable, about),)


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (book("replace", 11, 10), BTC),
        (book("change", 11, 10).replace(b'"change_id": 11', b'"change_id": "x"'), BTC),
        (book("change", 11, 10).replace(b'"asks"', b'"gone"'), BTC),
        (book("change", 11, 10).replace(b'"book.BTC_USDC.100ms"', b'"book.x"'), None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        live().received(frame)
    assert caught.value.instrument is instrument


def row(**members: Any) -> dict[str, Any]:
    return {
        "kind": "spot",
        "instrument_name": "BTC_USDC",
        "base_currency": "BTC",
        "quote_currency": "USDC",
        "is_active": True,
        "tick_size": 1.0,
        "min_trade_amount": 1e-4,
    } | members


def listed(*rows: Any) -> list[Instrument]:
    return EXCHANGE.parse_instruments(json.dumps({"jsonrpc": "2.0", "result": rows}).encode())


def test_instruments_are_read_row_by_row() -> None:
    idle = row(instrument_name="ETH_BTC", base_currency="ETH", quote_currency="BTC")
    found = listed(row(), idle | {"is_active": False, "tick_size": 1e-5}, row(kind=None), None)
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USDC", "BTC_USDC", "1", "0.0001"),
        ("ETH/BTC", "ETH_BTC", "0.00001", "0.0001"),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]


@pytest.mark.derivatives
def test_derivatives_and_books_of_another_exchange_are_no_instruments() -> None:
    perpetual = row(kind="future", instrument_name="BTC_USDC-PERPETUAL")
    option = row(kind="option", instrument_name="BTC-28AUG26-63000-C", quote_currency="BTC")
    routed = row(instrument_name="SOL_USDC", base_currency="SOL", is_cbe_routed=True)
    assert listed(perpetual, option, routed) == []


def test_the_simulated_exchange_refuses_what_the_real_one_does() -> None:
    desk = Desk("deribit")
    request = json.loads(asked("subscribe", 4, "BTC_USDT").frame)
    assert desk.say(json.loads(asked("subscribe", 4, "NO_PE").frame))[0]["result"] == []
    assert desk.say(request | {"params": {"channels": "x"}})[0]["error"]["code"] == -32602
    assert desk.say(request | {"method": "public/nope"})[0]["error"]["code"] == -32601
    assert desk.say("hello")[0]["error"] == {
        "message": "bad_request",
        "code": 11050,
        "data": "invalid json",
    }
    done, snapshot, quote = desk.say(request)
    assert done["result"] == ["book.BTC_USDT.100ms", "quote.BTC_USDT"]
    assert quote["params"]["channel"] == "quote.BTC_USDT"
    assert "prev_change_id" not in snapshot["params"]["data"]
    assert len(desk.say(request)) == 1, "a second subscription brings no second snapshot"


def test_the_simulated_exchange_ends_a_connection_that_owes_an_answer() -> None:
    desk = Desk("deribit")
    interval = {"id": 1, "method": "public/set_heartbeat", "params": {"interval": 9}}
    assert "error" in desk.say(interval)[0]
    assert desk.say(interval | {"params": {"interval": 10}})[0]["result"] == "ok"
    later = [desk.now._replace(s=desk.now.s + seconds) for seconds in (9.0, 10.0, 20.0, 30.0)]
    assert desk.dialect.heartbeat(desk.session, later[0]) == []
    assert len(desk.dialect.heartbeat(desk.session, later[1])) == 2
    desk.say({"id": 2, "method": "public/test"})
    assert len(desk.dialect.heartbeat(desk.session, later[2])) == 2
    with pytest.raises(Dropped):
        desk.dialect.heartbeat(desk.session, later[3])


def test_the_simulated_exchange_sends_a_busy_connection_test_requests_alone() -> None:
    desk = Desk("deribit")
    for request in EXCHANGE.connector([]).opened():
        desk.say(request.frame.decode())  # type: ignore[union-attr]
    desk.session.sent_s = desk.now.s
    idle = Now(desk.now.s + 10.0, desk.now.ms + 10_000)
    both = desk.dialect.heartbeat(desk.session, idle)
    assert [json.loads(frame)["params"]["type"] for frame in both] == ["heartbeat", "test_request"]
    desk.say({"jsonrpc": "2.0", "id": 0, "method": "public/test", "params": {}})
    desk.session.sent_s = idle.s + 9.0
    busy = Now(idle.s + 10.0, idle.ms + 10_000)
    assert desk.dialect.heartbeat(desk.session, busy) == [TEST_REQUEST.decode()]
