"""Conversations with Upbit: its messages and our answers; a recording of 2021."""

import ast
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from contract.oracle import Reader
from contract.recorded import timed_frames
from exchanges.sent import Sent
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    Connector,
    ProtocolError,
    Renewed,
    SlowDown,
    Snapshot,
    Unnamed,
)
from onebook.exchanges.kit.contract import UNKNOWN
from onebook.exchanges.upbit import EXCHANGE
from onebook.model import Instrument, InstrumentStatus

BTC = Instrument("upbit", "BTC/KRW", "KRW-BTC")
ETH = Instrument("upbit", "ETH/KRW", "KRW-ETH")

# Why no test feeds it derivative rows.
NO_DERIVATIVES = "Upbit trades spot alone"

# Messages of other channels and formats, and what changes no book. The trade was recorded.
UNKNOWN_FRAMES = (
    b'{"status":"UP"}',
    b'{"ty":"trade","cd":"KRW-LAMB","tms":1618678262712,"tp":127.0,"tv":46.48838371,"ab":"BID",'
    b'"pcp":123.00000000,"c":"RISE","cp":4.00000000,"sid":1618678262000003,"st":"REALTIME"}',
    b'{"type":"orderbook","code":"KRW-BTC","timestamp":1584486737444,"orderbook_units":[],'
    b'"stream_type":"SNAPSHOT"}',
    b"{}",
)


def damaged(frame: bytes) -> bytes:
    """A frame of a book without its levels."""
    return frame.replace(b'"obu"', b'"gone"')


def book(
    code: str = "KRW-BTC",
    units: str = '{"ap":2,"bp":1,"as":3,"bs":4}',
    stream: str = "SNAPSHOT",
    **about: Any,
) -> bytes:
    members = {"ty": "orderbook", "cd": code, "tms": 1_618_678_262_640} | about
    return f'{json.dumps(members)[:-1]},"obu":[{units}],"st":"{stream}","lv":0}}'.encode()


def asked(number: int, *codes: str) -> Sent:
    listed = json.dumps(codes, separators=(",", ":"))
    return Sent(
        f'[{{"ticket":"onebook-{number}"}},{{"type":"orderbook","codes":{listed}}},'
        '{"format":"SIMPLE"}]'.encode()
    )


def error(name: str, words: str) -> bytes:
    return json.dumps({"error": {"name": name, "message": words}}).encode()


def connected() -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    return connector


def test_each_request_names_everything_and_the_first_book_answers_it() -> None:
    connector = EXCHANGE.connector([BTC])
    assert connector.opened() == (asked(1, "KRW-BTC"),)
    assert connector.add([ETH]) == (asked(2, "KRW-BTC", "KRW-ETH"), Renewed(BTC))
    acknowledged, snapshot = connector.received(book("KRW-ETH"))
    assert acknowledged == Acknowledged(ETH)
    assert isinstance(snapshot, Snapshot)
    realtime = book("KRW-ETH", stream="REALTIME")
    assert [type(out) for out in connector.received(realtime)] == [Snapshot]
    assert connector.resync([ETH]) == (asked(3, "KRW-BTC", "KRW-ETH"), Renewed(BTC))
    assert connector.remove([BTC]) == (asked(4, "KRW-ETH"), Renewed(ETH))
    assert connector.received(book()) == ()


def test_numbers_may_have_exponents_and_what_is_padded_or_empty_is_no_level() -> None:
    units = (
        '{"ap":1.16539E8,"bp":1.1653E8,"as":0.5,"bs":2.0E-4},'
        '{"ap":1.1654E8,"bp":1.1652E8,"as":0.0000,"bs":1},{"ap":1.1655E8,"bp":0,"as":7,"bs":0}'
    )
    connector, reader = connected(), Reader(EXCHANGE)
    (_, snapshot) = connector.received(book(units=units))
    assert snapshot.at_ms == 1_618_678_262_640  # type: ignore[union-attr]
    reader.read([snapshot])
    bids = {"116530000": "0.0002", "116520000": "1"}
    asks = {"116539000": "0.5", "116550000": "7"}
    assert reader.sides(BTC) == tuple(
        {Decimal(price): Decimal(amount) for price, amount in side.items()} for side in (bids, asks)
    )


def test_an_error_names_no_instrument() -> None:
    assert connected().received(error("NO_CODES", "why")) == (Unnamed("NO CODES: why"),)
    slow = error("TOO_MANY_REQUESTS", "why")
    assert connected().received(slow) == (SlowDown("TOO MANY REQUESTS: why"),)


def test_other_frames_are_ignored() -> None:
    assert connected().received(b'{"status":"UP"}') == EXPECTED
    assert connected().received(UNKNOWN_FRAMES[2]) == UNKNOWN


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (book(tms="x"), BTC),
        (damaged(book("KRW-ETH")), ETH),
        (book("KRW-XRP"), None),
        (b'{"ty":"orderbook","cd":7}', None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        connected().received(frame)
    assert caught.value.instrument is instrument


def test_the_quote_comes_first_in_the_names_of_pairs() -> None:
    rows = [
        {"market": "KRW-BTC", "korean_name": "비트코인", "english_name": "Bitcoin"},
        {"market": "USDT-TON", "market_event": {"warning": True}},
        {"market": "KRW"},
        {"market": 5},
        None,
    ]
    found = EXCHANGE.parse_instruments(json.dumps(rows).encode())
    assert [(one.symbol, one.native) for one in found] == [
        ("BTC/KRW", "KRW-BTC"),
        ("TOKAMAKNETWORK/USDT", "USDT-TON"),
    ]
    assert {one.status for one in found} == {InstrumentStatus.TRADING}


@pytest.mark.replayed("upbit", "UPBIT.ws.62.0")
def test_every_recorded_book_equals_its_frame(samples: Path) -> None:
    frames = [
        (at, frame)
        for at, text in timed_frames(samples, "UPBIT.ws.62.0")
        if b'"orderbook"' in (frame := ast.literal_eval(text.decode()))
    ]
    codes = {json.loads(frame)["cd"] for _, frame in frames}
    instruments = {code: Instrument("upbit", code, code) for code in codes}
    connector, reader = EXCHANGE.connector([*instruments.values()]), Reader(EXCHANGE)
    for at, frame in frames:
        outputs = list(connector.received(frame))
        reader.read(outputs)
        message = json.loads(frame, parse_float=Decimal, parse_int=Decimal)
        units = message["obu"]
        bids = {unit["bp"]: unit["bs"] for unit in units}
        asks = {unit["ap"]: unit["as"] for unit in units}
        assert reader.sides(instruments[message["cd"]]) == (bids, asks)
        assert 0 < at * 1_000 - outputs[-1].at_ms < 2_000  # type: ignore[union-attr]
    assert (len(frames), len(codes), reader.invalidated) == (145, 5, [])
