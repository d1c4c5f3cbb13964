"""Conversations with XT.com: its messages and our answers."""

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
    Fetch,
    Gap,
    ProtocolError,
    SlowDown,
    Snapshot,
    Unnamed,
)
from onebook.exchanges.xt import EXCHANGE
from onebook.model import Instrument, InstrumentStatus
from simulator.pure import Desk

BTC = Instrument("xt", "BTC/USDT", "btc_usdt")
LOBSTER = Instrument("xt", "龙虾/USDT", "龙虾_usdt")
FETCH_BTC = Fetch(BTC, "/v4/public/depth?symbol=btc_usdt&limit=500")
FETCH_LOBSTER = Fetch(LOBSTER, "/v4/public/depth?symbol=%E9%BE%99%E8%99%BE_usdt&limit=500")

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b"pong",
    b'{"topic":"trade","event":"trade@btc_usdt","data":{"s":"btc_usdt","p":"64926.98",'
    b'"q":"0.14120","b":false}}',
    b'{"topic":"depth","event":"depth@btc_usdt,20","data":{"s":"btc_usdt","i":123,"t":5,'
    b'"a":[["34000","1.2"]],"b":[["32000","0.2"]]}}',
    b'{"code":0,"msg":"success","id":"999","sessionId":"5e1597fffeb08f50"}',
    b"{}",
)

# As the page prints it.
DELTA = (
    b'{"topic":"depth_update","event":"depth_update@btc_usdt","data":{"s":"btc_usdt","fi":121,'
    b'"i":123,"a":[["34000","1.2"],["34001","2.3"]],"b":[["32000","0.2"],["31000","0.5"]]}}'
)


def delta(first: int, final: int) -> bytes:
    return DELTA.replace(b'"fi":121', b'"fi":%d' % first).replace(b'"i":123', b'"i":%d' % final)


def body(sequence: int) -> bytes:
    """A frame printed by ccxt."""
    bids, asks = [["22444.51", "0.129887"]], [["22446.19", "0.095330"]]
    result = {"timestamp": 1678169975184, "lastUpdateId": sequence, "bids": bids, "asks": asks}
    return json.dumps({"rc": 0, "mc": "SUCCESS", "ma": [], "result": result}).encode()


def answer(code: int, words: str, number: int = 1) -> bytes:
    return json.dumps({"code": code, "msg": words, "id": str(number)}).encode()


def asked(number: int, *natives: str) -> Sent:
    streams = ",".join(f'"depth_update@{native}"' for native in natives)
    return Sent(f'{{"method":"subscribe","params":[{streams}],"id":"{number}"}}'.encode())


def live(*, at: int = 120) -> Connector:
    connector = EXCHANGE.connector([BTC, LOBSTER])
    connector.opened()
    connector.received(answer(0, "success"))
    connector.fetched(BTC, body(at))
    return connector


def test_streams_are_asked_for_together_and_bodies_once_they_are_accepted() -> None:
    connector = EXCHANGE.connector([BTC, LOBSTER])
    assert connector.opened() == (asked(1, "btc_usdt", "龙虾_usdt"),)
    assert connector.received(answer(0, "success")) == (
        Acknowledged(BTC),
        FETCH_BTC,
        Acknowledged(LOBSTER),
        FETCH_LOBSTER,
    )
    assert connector.received(answer(0, "success")) == EXPECTED


def test_deltas_are_joined_with_the_body_and_a_hole_is_a_gap() -> None:
    connector = EXCHANGE.connector([BTC])
    connector.opened()
    connector.received(answer(0, "success"))
    assert connector.received(delta(115, 120)) == ()
    assert connector.received(DELTA) == ()
    assert connector.fetched(BTC, body(110)) == (FETCH_BTC,), "111 to 114 are missing"
    snapshot, held = connector.fetched(BTC, body(121))
    assert isinstance(snapshot, Snapshot)
    assert (snapshot.levels_asked, snapshot.at_ms) == (500, 1_678_169_975_184)
    assert isinstance(held, Delta)
    assert bytes(held.asks) == b'[["34000","1.2"],["34001","2.3"]]'
    assert held.at_ms == 0
    assert connector.received(delta(122, 123)) == ()
    assert isinstance(connector.received(delta(124, 124))[0], Delta)
    assert connector.received(delta(126, 126)) == (
        Gap(BTC, "the book is at 124, the delta starts at 126"),
    )
    assert connector.resync([BTC]) == (FETCH_BTC,)


def test_an_unknown_pair_is_refused_and_the_rest_of_its_request_asked_for_again() -> None:
    connector = EXCHANGE.connector([BTC, LOBSTER])
    connector.opened()
    words = "checkSymbol error, symbol:龙虾_usdt"
    assert connector.received(answer(1, words)) == (
        BookRefused(LOBSTER, words),
        asked(2, "btc_usdt"),
    )
    assert connector.received(answer(0, "success", 2)) == (Acknowledged(BTC), FETCH_BTC)


def test_an_error_without_an_id_refuses_nothing() -> None:
    invalid = b'{"code":1,"msg":"Invalid parameter"}'
    assert live().received(invalid) == (Unnamed("Invalid parameter"),)
    assert live().received(answer(1, "Too many requests")) == (SlowDown("Too many requests"),)


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (DELTA.replace(b'"i":123', b'"i":-5'), BTC),
        (DELTA.replace(b'"fi":121', b'"fi":null'), BTC),
        (DELTA.replace(b'"b":', b'"c":'), BTC),
        (DELTA[:-9], None),
    ],
    ids=["id", "first", "bids", "end"],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        live().received(frame)
    assert caught.value.instrument is instrument


@pytest.mark.parametrize(
    "bad", [b"[]", b'{"rc":1,"mc":"SYMBOL_001","ma":[],"result":null}', b"<html>"]
)
def test_a_body_that_is_no_book_names_its_instrument(bad: bytes) -> None:
    connector = EXCHANGE.connector([BTC])
    connector.opened()
    with pytest.raises(ProtocolError, match="btc_usdt") as caught:
        connector.fetched(BTC, bad)
    assert caught.value.instrument is BTC


def row(**members: Any) -> dict[str, Any]:
    """A frame printed by ccxt."""
    listed = {"id": 640, "symbol": "xt_usdt", "state": "ONLINE", "stateTime": 1554048000000}
    listed |= {"tradingEnabled": True, "openapiEnabled": True, "nextState": None}
    listed |= {"baseCurrency": "xt", "quoteCurrency": "usdt", "filters": []}
    return listed | {"pricePrecision": 4, "quantityPrecision": 2} | members


def test_instruments_are_read_row_by_row() -> None:
    off = row(symbol="a_usdt", baseCurrency="a", tradingEnabled=False, pricePrecision=None)
    closed = row(symbol="b_usdt", baseCurrency="b", state="DELISTED")
    manual = row(symbol="c_usdt", baseCurrency="c", openapiEnabled=False)
    rows = [row(), off, closed, manual, row(symbol=5), {}, None]
    listed = {"rc": 0, "mc": "SUCCESS", "ma": [], "result": {"time": 1, "symbols": rows}}
    found = EXCHANGE.parse_instruments(json.dumps(listed).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("XT/USDT", "xt_usdt", "0.0001", "0.01"),
        ("A/USDT", "a_usdt", "", "0.01"),
        ("B/USDT", "b_usdt", "0.0001", "0.01"),
        ("C/USDT", "c_usdt", "0.0001", "0.01"),
    ]
    assert [one.status for one in found] == [
        InstrumentStatus.TRADING,
        *[InstrumentStatus.HALTED] * 3,
    ]


@pytest.mark.derivatives
def test_rows_of_derivatives_are_no_instruments() -> None:
    future = {"id": 52, "symbol": "xt_usdt", "contractType": "PERPETUAL", "state": 0}
    future |= {"productType": "perpetual", "baseCoin": "xt", "quoteCoin": "usdt"}
    future |= {"pricePrecision": 4, "quantityPrecision": 0, "tradeSwitch": True}
    listed = {"rc": 0, "result": {"symbols": [future]}}
    assert EXCHANGE.parse_instruments(json.dumps(listed).encode()) == []


def test_the_simulator_refuses_what_xt_refuses() -> None:
    desk = Desk("xt")
    request = {"method": "subscribe", "params": ["depth_update@btc_usdt"], "id": "7"}
    assert [desk.say(request)[0][each] for each in ("code", "id")] == [0, "7"]
    (strange,) = desk.say(request | {"params": ["depth_update@BTC_USDT"]})
    assert strange["msg"] == "checkSymbol error, symbol:BTC_USDT"
    (channel,) = desk.say(request | {"params": ["nope@btc_usdt"]})
    assert (channel["code"], channel["msg"]) == (1, "args error: nope@btc_usdt")
    assert desk.say(request | {"method": "SUBSCRIBE"})[0]["msg"] == "Invalid method"
    assert "id" not in desk.say("hello")[0]
    assert desk.say("ping") == ["pong"]
    status, refused = desk.get("/v4/public/depth", symbol="nope_usdt")
    assert (status, refused["rc"], refused["result"]) == (200, 1, None)
    _, found = desk.get("/v4/public/depth", symbol="btc_usdt", limit="1000")
    assert len(found["result"]["bids"]) == 300
