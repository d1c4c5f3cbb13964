"""WOO X, as conversations: what it says, what we answer."""

import json
from typing import Any

import pytest

from exchanges.sent import Sent
from onebook.core import Book
from onebook.exchanges import resolve
from onebook.exchanges.contract import (
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
from onebook.exchanges.engine import OMITTED
from onebook.exchanges.woo import EXCHANGE
from onebook.model import Instrument, InstrumentStatus
from simulator.pure import Desk

BTC = Instrument("woo", "BTC/USDT", "SPOT_BTC_USDT")
ETH = Instrument("woo", "ETH/USDT", "SPOT_ETH_USDT")
FETCH_BTC = Fetch(BTC, "/v3/public/orderbook?symbol=SPOT_BTC_USDT&maxLevel=50")

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"cmd":"PONG","success":true,"time":1790137718411}',
    b'{"id":"99","cmd":"UNSUBSCRIBE","success":true,"time":1790137718411,'
    b'"data":["orderbookupdate@SPOT_BTC_USDT@50"]}',
    b'{"topic":"bbo@SPOT_BTC_USDT","ts":1790137718411,"data":{"s":"SPOT_BTC_USDT",'
    b'"bid":"86821","bidSize":"0.1","ask":"87244","askSize":"0.0002"}}',
    b"{}",
)

# As the page prints it.
DELTA = (
    b'{"topic":"orderbookupdate@SPOT_BTC_USDT@50","ts":1618826337580,"data":{"s":"SPOT_BTC_USDT",'
    b'"prevTs":1618826337380,"asks":[["56749.15","3.92864"],["56749.8","0"]],'
    b'"bids":[["56745.2","1.03895025"],["56744.6","1.0807"]],"ts":1618826337570}}'
)
BEFORE, AFTER = 1_618_826_337_380, 1_618_826_337_570


def delta(previous: int, final: int) -> bytes:
    told = DELTA.replace(b"%d" % BEFORE, b"%d" % previous)
    return told.replace(b"%d" % AFTER, b"%d" % final)


def body(at: int) -> bytes:
    """As ccxt prints it."""
    asks = [{"price": "56749.8", "quantity": "0.032126"}]
    bids = [{"price": "56700", "quantity": "1.714147"}]
    return json.dumps(
        {"success": True, "timestamp": at, "data": {"asks": asks, "bids": bids}}
    ).encode()


def topic(native: str) -> str:
    return f"orderbookupdate@{native}@50"


def asked(command: str, number: int, *natives: str) -> Sent:
    topics = ",".join(f'"{topic(native)}"' for native in natives)
    return Sent(f'{{"id":"{number}","cmd":"{command}","params":[{topics}]}}'.encode())


def accepted(number: int, *natives: str) -> bytes:
    answer = {"id": str(number), "cmd": "SUBSCRIBE", "success": True, "time": 5}
    return json.dumps(answer | {"data": [topic(native) for native in natives]}).encode()


def refused(words: str, number: str = "", command: str = "ERROR") -> bytes:
    answer = {"id": number, "cmd": command, "success": False, "time": 5, "data": words}
    return json.dumps(answer).encode()


def live(at: int = BEFORE) -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    connector.received(accepted(1, "SPOT_BTC_USDT", "SPOT_ETH_USDT"))
    connector.fetched(BTC, body(at))
    return connector


def test_topics_are_asked_for_ten_at_a_time() -> None:
    many = [Instrument("woo", f"C{rank}/USDT", f"SPOT_C{rank}_USDT") for rank in range(11)]
    first, second = (json.loads(out.frame) for out in EXCHANGE.connector(many).opened())  # type: ignore[union-attr]
    assert [len(each["params"]) for each in (first, second)] == [10, 1]


def test_what_the_answer_leaves_out_is_refused_unless_it_was_accepted_before() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    assert connector.opened() == (asked("SUBSCRIBE", 1, "SPOT_BTC_USDT", "SPOT_ETH_USDT"),)
    assert connector.resync([BTC]) == (asked("SUBSCRIBE", 2, "SPOT_BTC_USDT"),)
    assert connector.received(accepted(1, "SPOT_BTC_USDT")) == (
        Acknowledged(BTC),
        FETCH_BTC,
        BookRefused(ETH, OMITTED),
    )
    assert connector.received(accepted(2)) == EXPECTED, "it is subscribed already"


def test_the_page_s_delta_follows_a_body_of_its_own_state_and_no_other() -> None:
    connector = EXCHANGE.connector([BTC])
    connector.opened()
    connector.received(accepted(1, "SPOT_BTC_USDT"))
    assert connector.received(DELTA) == ()
    assert connector.fetched(BTC, body(BEFORE - 9_000)) == (FETCH_BTC,), "it lags behind"
    assert connector.fetched(BTC, body(BEFORE + 1)) == (FETCH_BTC,), "a state between two"
    snapshot, held = connector.fetched(BTC, body(BEFORE))
    assert isinstance(snapshot, Snapshot)
    assert isinstance(held, Delta)
    assert (snapshot.at_ms, held.at_ms, snapshot.levels_asked) == (0, 1_618_826_337_580, 0)
    book = Book(100)
    book.replace(snapshot.bids, snapshot.asks, snapshot.shape)
    book.apply(held.bids, held.asks, held.shape)
    bids, asks = book.top(9)
    assert bids[:2] == [("56745.2", "1.03895025"), ("56744.6", "1.0807")]
    assert asks == [("56749.15", "3.92864")]


def test_a_hole_is_a_gap_and_the_body_is_fetched_again() -> None:
    connector = live()
    assert isinstance(connector.received(DELTA)[0], Delta)
    assert connector.received(DELTA) == (), "sent twice"
    assert connector.received(delta(AFTER + 40, AFTER + 90)) == (
        Gap(BTC, f"the book is at {AFTER}, the delta starts at {AFTER + 41}"),
    )
    assert connector.resync([BTC]) == (FETCH_BTC,)


def test_a_request_that_is_refused_costs_its_topics_and_an_error_without_a_number_none() -> None:
    connector = live()
    connector.add([Instrument("woo", "A/USDT", "SPOT_A_USDT")])
    (out,) = connector.received(refused("Command type invalid!", "2", "SUBSCRIBE"))
    assert isinstance(out, BookRefused)
    assert out.instrument.symbol == "A/USDT"
    assert live().received(refused("Invalid request.")) == (Unnamed("Invalid request."),)
    slow = refused("Too many requests", "1", "SUBSCRIBE")
    assert live().received(slow) == (SlowDown("Too many requests"),)


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (delta(AFTER, AFTER), BTC),
        (DELTA.replace(b'"prevTs":', b'"prev":'), BTC),
        (DELTA.replace(b'"asks":', b'"a":'), BTC),
        (DELTA[:-4], None),
    ],
    ids=["no_time_passed", "previous", "asks", "end"],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        live().received(frame)
    assert caught.value.instrument is instrument


@pytest.mark.parametrize(
    "bad", [b"[]", b'{"success":false,"message":"invalid symbol SPOT_BTC_USDT"}', b"502"]
)
def test_a_body_that_is_no_book_names_its_instrument(bad: bytes) -> None:
    with pytest.raises(ProtocolError, match="SPOT_BTC_USDT") as caught:
        live().fetched(BTC, bad)
    assert caught.value.instrument is BTC


def row(**members: Any) -> dict[str, Any]:
    """As ccxt prints it."""
    listed = {"symbol": "SPOT_AAVE_USDT", "status": "TRADING", "baseAsset": "AAVE"}
    listed |= {"baseAssetMultiplier": 1, "quoteAsset": "USDT", "quoteMin": "0"}
    listed |= {"quoteTick": "0.01", "baseTick": "0.0001", "bidFloorRatio": None}
    return listed | members


@pytest.mark.derivatives
def test_instruments_are_read_and_only_spot_is_taken() -> None:
    perpetual = row(symbol="PERP_AAVE_USDT", fundingIntervalHours=8)
    halted = row(symbol="SPOT_B_USDT", baseAsset="B", status="SUSPENDED")
    rows = [row(), perpetual, halted, row(symbol=7), {}, None]
    listed = {"success": True, "data": {"rows": rows}, "timestamp": 1751512951338}
    found = EXCHANGE.parse_instruments(json.dumps(listed).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("AAVE/USDT", "SPOT_AAVE_USDT", "0.01", "0.0001"),
        ("B/USDT", "SPOT_B_USDT", "0.01", "0.0001"),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]


def test_it_is_known_by_its_own_name_too() -> None:
    assert resolve("woox") == "woo"


def test_the_simulator_refuses_what_woo_refuses() -> None:
    desk = Desk("woo")
    request = {"id": "1", "cmd": "SUBSCRIBE", "params": [topic("SPOT_BTC_USDT")]}
    assert desk.say(request)[0]["data"] == [topic("SPOT_BTC_USDT")]
    assert desk.say(request)[0]["data"] == [], "it is subscribed already"
    wrong = [topic("PERP_BTC_USDT"), "orderbookupdate@SPOT_BTC_USDT@20", "nope@SPOT_BTC_USDT"]
    (none,) = desk.say(request | {"params": wrong})
    assert (none["success"], none["data"]) == (True, [])
    (many,) = desk.say(request | {"params": [topic(f"SPOT_{each}_USDT") for each in range(11)]})
    assert (many["cmd"], many["success"]) == ("SUBSCRIBE", False)
    assert desk.say(request | {"cmd": "NOPE"})[0]["cmd"] == "ERROR"
    assert desk.say("hello")[0]["data"] == "Invalid request."
    status, failure = desk.get("/v3/public/orderbook", symbol="SPOT_X_USDT")
    assert (status, failure["success"]) == (400, False)
