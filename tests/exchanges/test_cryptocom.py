"""Conversations with Crypto.com: its messages and our answers."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from exchanges.sent import Sent
from onebook.exchanges.cryptocom import EXCHANGE
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
from onebook.simulator.kit import Dropped, Now
from simulator.pure import Desk

BTC = Instrument("cryptocom", "BTC/USD", "BTC_USD")
ETH = Instrument("cryptocom", "ETH/USD", "ETH_USD")

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"id":-1,"method":"subscribe","code":0,"result":{"instrument_name":"BTC_USD",'
    b'"subscription":"mark.BTC_USD","channel":"mark","data":[{"v":"86176.3","t":1790114562000}]}}',
    b'{"id":22,"method":"unsubscribe","code":0}',
    b'{"id":1,"method":"subscribe","code":0,"channel":"trade.BTC_USD"}',
    b"{}",
)

# As others recorded them in 2026-09, with the pair changed and the levels cut.
WHOLE = (
    b'{"id":-1,"method":"subscribe","code":0,"result":{"instrument_name":"ETH_USD",'
    b'"subscription":"book.ETH_USD.50","channel":"book","depth":50,"data":[{"asks":'
    b'[["2749.62","0.2008","2"],["2749.79","0.0001","1"]],"bids":[["2749.61","0.0786","2"]],'
    b'"t":1790114273395,"tt":1790114273346,"u":375554807297984,"cs":-1183713967}]}}'
)
CHANGE = (
    b'{"id":-1,"method":"subscribe","code":0,"result":{"instrument_name":"ETH_USD",'
    b'"subscription":"book.ETH_USD.50","channel":"book.update","depth":50,"data":[{"update":{'
    b'"asks":[["2749.79","0","0"],["2753.11","0.2616","1"]],"bids":[["2748.10","5.4582","1"]]},'
    b'"t":1790114273659,"tt":1790114273655,"u":375554807336512,"pu":375554807297984,'
    b'"cs":1522984915}]}}'
)
IDLE = (
    b'{"id":-1,"method":"subscribe","code":0,"result":{"instrument_name":"ETH_USD",'
    b'"subscription":"book.ETH_USD.50","channel":"book.update","depth":50,"data":[{"update":{'
    b'"asks":[],"bids":[]},"t":1790114280991,"tt":1790114275977,"u":375554807336512,'
    b'"pu":375554807336512,"cs":1172986441}]}}'
)


def update(*ids: tuple[int, int], native: str = "BTC_USD", kind: str = "book.update") -> bytes:
    levels = {"asks": [], "bids": [["1", "2", "1"]]}
    items = [{"update": levels, "t": 5, "u": final, "pu": previous} for previous, final in ids]
    return pushed(kind, *items, native=native)


def pushed(kind: str, *items: dict[str, Any], native: str = "BTC_USD") -> bytes:
    result = {"instrument_name": native, "subscription": f"book.{native}.50", "channel": kind}
    frame = {"id": -1, "method": "subscribe", "code": 0}
    return json.dumps(frame | {"result": result | {"data": items}}).encode()


def ack(native: str) -> bytes:
    channel = f"book.{native}.50"
    return json.dumps({"id": 1, "method": "subscribe", "code": 0, "channel": channel}).encode()


def live(*, at: int = 10) -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    book = {"asks": [], "bids": [["1", "1", "1"]], "u": at, "t": 5}
    connector.received(pushed("book", book))
    return connector


def kinds(outputs: Sequence[object]) -> list[type]:
    return [type(output) for output in outputs]


def test_subscribes_without_a_nonce_and_each_channel_is_accepted() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    asked = (
        b'{"id":1,"method":"subscribe","params":{"channels":["book.BTC_USD.50","book.ETH_USD.50"],'
        b'"book_subscription_type":"SNAPSHOT_AND_UPDATE","book_update_frequency":10}}'
    )
    assert connector.opened() == (Sent(asked),)
    assert connector.received(ack("ETH_USD")) == (Acknowledged(ETH),)
    assert connector.received(ack("BTC_USD")) == (Acknowledged(BTC),)
    assert connector.received(ack("BTC_USD")) == EXPECTED


def test_recorded_frames_are_read() -> None:
    connector = EXCHANGE.connector([ETH])
    (snapshot,) = connector.received(WHOLE)
    assert isinstance(snapshot, Snapshot)
    assert bytes(snapshot.bids) == b'[["2749.61","0.0786","2"]]'
    assert snapshot.at_ms == 1_790_114_273_395
    (delta,) = connector.received(CHANGE)
    assert isinstance(delta, Delta)
    assert bytes(delta.asks) == b'[["2749.79","0","0"],["2753.11","0.2616","1"]]'
    assert delta.at_ms == 1_790_114_273_659


def test_an_update_without_levels_is_the_heartbeat_of_its_book_and_no_data() -> None:
    connector = EXCHANGE.connector([ETH])
    assert connector.received(IDLE) == (), "there is no book yet"
    connector.received(WHOLE)
    (gap,) = connector.received(IDLE)
    assert isinstance(gap, Gap), "something was lost before it"
    connector.received(WHOLE)
    connector.received(CHANGE)
    assert connector.received(IDLE) == (Alive(ETH),)


def test_updates_follow_by_the_previous_id_even_downwards() -> None:
    connector = live(at=10)
    assert kinds(connector.received(update((10, 90_000), (90_000, 7)))) == [Delta, Delta]
    assert connector.received(update((90_000, 7))) == ()
    gap = connector.received(update((8, 9)))
    assert gap == (Gap(BTC, "the book is at 7, the delta follows 8"),)
    assert connector.received(update((9, 10))) == ()


def test_every_heartbeat_is_answered_at_once_with_its_id() -> None:
    frame = b'{"id":1790114291578,"method":"public/heartbeat","code":0}'
    answer = b'{"id":1790114291578,"method":"public/respond-heartbeat"}'
    assert live().received(frame) == (Sent(answer, urgent=True), Alive())


def test_resync_unsubscribes_and_subscribes() -> None:
    connector = live()
    off, on = connector.resync([BTC])
    assert off == Sent(b'{"id":1,"method":"unsubscribe","params":{"channels":["book.BTC_USD.50"]}}')
    assert isinstance(on, Send)
    assert json.loads(on.frame)["params"]["channels"] == ["book.BTC_USD.50"]
    assert connector.received(update((10, 11))) == ()


def test_an_error_refuses_the_channel_it_names() -> None:
    error = {"id": 11, "method": "subscribe", "code": 40003, "message": "Unknown symbol"}
    named = json.dumps(error | {"channel": "book.ETH_USD.50"}).encode()
    assert live().received(named) == (BookRefused(ETH, "Unknown symbol book.ETH_USD.50"),)
    assert live().received(json.dumps(error).encode()) == (Unnamed("Unknown symbol"),)
    full = {"id": 1, "method": "subscribe", "code": 40107}
    full["message"] = words = "Maximum subscriptions exceeded"
    assert live().received(json.dumps(full).encode()) == (Unnamed(words),), "its id misleads"


def test_a_rate_limit_asks_for_patience_and_refuses_nothing() -> None:
    frame = b'{"id":1,"method":"subscribe","code":42901,"message":"TOO_MANY_REQUESTS"}'
    assert live().received(frame) == (SlowDown("TOO_MANY_REQUESTS"),)


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (update((10, 11)).replace(b'"update"', b'"gone"'), BTC),
        (update((10, 11)).replace(b'"asks"', b'"gone"'), BTC),
        (update((10, 11), kind="book"), BTC),
        (update((10, 11), kind="book.other"), BTC),
        (update((10, 2**63)), BTC),
        (update((10, 11), native="NO_BODY"), None),
    ],
    ids=["levels", "side", "whole", "channel", "too_large", "stranger"],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        live(at=10).received(frame)
    assert caught.value.instrument is instrument


def row(**members: Any) -> dict[str, Any]:
    listed = {"symbol": "BTC_USD", "inst_type": "CCY_PAIR", "base_ccy": "BTC", "quote_ccy": "USD"}
    listed |= {"price_tick_size": "0.01", "qty_tick_size": "0.00001", "tradable": True}
    return listed | members


def listed(*rows: object, code: int = 0) -> bytes:
    return json.dumps({"id": 1, "code": code, "result": {"data": rows}}).encode()


def test_instruments_are_read_row_by_row() -> None:
    halted = row(symbol="ETH_USDT", base_ccy="ETH", quote_ccy="USDT", tradable=False)
    found = EXCHANGE.parse_instruments(listed(row(), halted, row(symbol=5), {}, None))
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USD", "BTC_USD", "0.01", "0.00001"),
        ("ETH/USDT", "ETH_USDT", "0.01", "0.00001"),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]
    with pytest.raises(ProtocolError, match="42901"):
        EXCHANGE.parse_instruments(listed(code=42_901))


@pytest.mark.derivatives
@pytest.mark.parametrize("kind", ["PERPETUAL_SWAP", "FUTURE", "VANILLA_OPTION"])
def test_rows_of_derivatives_are_no_instruments(kind: str) -> None:
    assert EXCHANGE.parse_instruments(listed(row(symbol="BTCUSD-PERP", inst_type=kind))) == []


def test_the_simulator_refuses_what_cryptocom_refuses() -> None:
    desk = Desk("cryptocom")
    params = {"channels": ["book.BTC_USD.50"], "book_subscription_type": "SNAPSHOT_AND_UPDATE"}
    request = {"id": 1, "method": "subscribe", "params": params | {"book_update_frequency": 10}}
    accepted, whole = desk.say(request)
    assert (accepted["code"], whole["result"]["channel"]) == (0, "book")
    (change,) = map(json.loads, desk.step())
    for made, recorded in ((whole, json.loads(WHOLE)), (change, json.loads(CHANGE))):
        assert list(made) == list(recorded), "members are in the order of the wire"
        assert list(made["result"]) == list(recorded["result"])
        assert list(made["result"]["data"][0]) == list(recorded["result"]["data"][0])
    assert desk.say(request) == [accepted], "one stream, and no other snapshot"
    (pace,) = desk.say({"id": 2, "method": "subscribe", "params": params})
    assert pace["message"] == "Unsupported depth/interval combination"
    (method,) = desk.say({"id": 3, "method": "public/nope"})
    assert (method["code"], method["message"]) == (40003, "No such method")
    assert desk.say("nonsense") == []


def test_a_client_that_answers_no_heartbeat_is_dropped_at_the_third() -> None:
    desk = Desk("cryptocom")

    def heartbeats(after_s: int) -> list[str]:
        now = Now(desk.now.s + after_s, desk.now.ms + after_s * 1_000)
        return desk.dialect.heartbeat(desk.session, now)

    (first,) = heartbeats(30)
    assert heartbeats(31) == []
    assert desk.say({"id": json.loads(first)["id"], "method": "public/respond-heartbeat"}) == []
    assert [len(heartbeats(60)), len(heartbeats(90))] == [1, 1]
    with pytest.raises(Dropped):
        heartbeats(120)
