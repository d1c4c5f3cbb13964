"""Conversations with Phemex: its messages and our answers; a recording of spot books."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from contract.oracle import Dicts, Reader
from contract.recorded import frames
from exchanges.sent import Sent
from onebook.core import Book
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    BookRefused,
    Connector,
    Delta,
    ProtocolError,
    Renewed,
    SlowDown,
    Snapshot,
    Unnamed,
)
from onebook.exchanges.phemex import DEPTH, EXCHANGE, shape
from onebook.model import Instrument, InstrumentStatus
from simulator.pure import Desk

BTC = Instrument("phemex", "BTC/USDT", "sBTCUSDT", scales=(8, 8))
SHIB = Instrument("phemex", "SHIB/USDT", "sSHIBUSDT", scales=(8, 2))

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"error":null,"id":0,"result":"pong"}',
    b'{"error":null,"id":99,"result":{"status":"success"}}',
    b'{"sequence":1188273,"symbol":"sBTCUSDT","trades":[[1573717116484024300,"Buy",86730000000,'
    b'210000]],"type":"incremental"}',
    b'{"spot_market24h":{"symbol":"sBTCUSDT","lastEp":892700000000},"timestamp":1590570810}',
    b"{}",
)

# The page's own frames, cut to a few levels.
WHOLE = (
    b'{"book":{"asks":[[892697000000,1781800],[892728000000,8431000]],"bids":[[892376000000,'
    b'6866500],[892354000000,14209000]]},"depth":30,"sequence":677996311,"symbol":"sBTCUSDT",'
    b'"timestamp":1590570810187570850,"type":"snapshot"}'
)
CHANGE = (
    b'{"book":{"asks":[[892696000000,1669700],[892697000000,10455500],[892728000000,0]],'
    b'"bids":[]},"depth":30,"sequence":677996548,"symbol":"sBTCUSDT",'
    b'"timestamp":1590570810819505422,"type":"incremental"}'
)


def asked(number: int, native: str) -> Sent:
    return Sent(f'{{"id":{number},"method":"orderbook.subscribe","params":["{native}"]}}'.encode())


def answer(number: int | None, code: int = 0, words: str = "") -> bytes:
    error = {"code": code, "message": words} if code else None
    result = None if code else {"status": "success"}
    return json.dumps({"error": error, "id": number, "result": result}).encode()


def live() -> Connector:
    connector = EXCHANGE.connector([BTC, SHIB])
    connector.opened()
    connector.received(WHOLE)
    return connector


def test_each_book_is_asked_for_alone_and_accepted_by_its_number() -> None:
    connector = EXCHANGE.connector([BTC, SHIB])
    assert connector.opened() == (asked(1, "sBTCUSDT"), asked(2, "sSHIBUSDT"))
    assert connector.received(answer(2)) == (Acknowledged(SHIB),)
    assert connector.received(answer(2)) == EXPECTED


def test_the_frames_of_the_page_are_read_at_the_scales_of_the_pair() -> None:
    connector = EXCHANGE.connector([BTC])
    assert connector.received(CHANGE) == (), "nothing before the snapshot"
    (snapshot,) = connector.received(WHOLE)
    (delta,) = connector.received(CHANGE)
    assert isinstance(snapshot, Snapshot)
    assert isinstance(delta, Delta)
    assert (snapshot.at_ms, delta.at_ms) == (1_590_570_810_187, 1_590_570_810_819)
    book = Book(DEPTH)
    book.replace(snapshot.bids, snapshot.asks, snapshot.shape)
    book.apply(delta.bids, delta.asks, delta.shape)
    assert book.top(9) == (
        [("8923.76", "0.068665"), ("8923.54", "0.14209")],
        [("8926.96", "0.016697"), ("8926.97", "0.104555")],
    )


def test_each_pair_is_read_at_its_own_scales() -> None:
    connector = EXCHANGE.connector([SHIB])
    frame = WHOLE.replace(b"sBTCUSDT", b"sSHIBUSDT").replace(b"892376000000", b"1234")
    (snapshot,) = connector.received(frame)
    assert isinstance(snapshot, Snapshot)
    assert snapshot.shape is shape(8, 2), "one object for all pairs of these scales"
    book = Book(DEPTH)
    book.replace(snapshot.bids, b"[]", snapshot.shape)
    assert ("0.00001234", "68665") in book.top(9)[0]


def test_a_resync_subscribes_again_and_a_snapshot_replaces_whenever_it_comes() -> None:
    connector = live()
    assert connector.resync([BTC]) == (asked(3, "sBTCUSDT"),)
    assert connector.received(CHANGE) == ()
    assert isinstance(connector.received(WHOLE)[0], Snapshot)
    assert isinstance(connector.received(WHOLE)[0], Snapshot), "each minute another"
    assert isinstance(connector.received(CHANGE)[0], Delta)


def test_leaving_one_book_leaves_all_and_the_others_are_asked_for_again() -> None:
    left = Sent(b'{"id":3,"method":"orderbook.unsubscribe","params":[]}')
    connector = live()
    assert connector.remove([BTC]) == (left, asked(4, "sSHIBUSDT"), Renewed(SHIB))
    assert connector.received(WHOLE) == ()


def test_a_refusal_is_about_the_book_of_its_request() -> None:
    words = "invalid argument"
    assert live().received(answer(2, 6001, words)) == (BookRefused(SHIB, words),)
    assert live().received(answer(None, 6001, words)) == (Unnamed(words),)
    many = "subscription limit exceeded"
    assert live().received(answer(1, 6015, many)) == (BookRefused(BTC, many),)
    assert live().received(answer(1, 1, "too many requests")) == (SlowDown("too many requests"),)


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (CHANGE.replace(b'"incremental"', b'"other"'), BTC),
        (CHANGE.replace(b'"timestamp":', b'"timestamp":"x","t":'), BTC),
        (CHANGE.replace(b'"bids":', b'"b":'), BTC),
        (CHANGE.replace(b'"sBTCUSDT"', b"5"), None),
        (CHANGE[:-3], None),
    ],
    ids=["type", "time", "bids", "symbol", "end"],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        live().received(frame)
    assert caught.value.instrument is instrument


def product(**members: Any) -> dict[str, Any]:
    """A frame printed by ccxt."""
    row = {"symbol": "sBTCUSDT", "code": 1001, "type": "Spot", "quoteCurrency": "USDT"}
    row |= {"priceScale": 8, "ratioScale": 8, "pricePrecision": 2, "baseCurrency": "BTC"}
    row |= {"baseTickSize": "0.000001 BTC", "quoteTickSize": "0.01 USDT", "status": "Listed"}
    return row | members


def body(*products: Any, currencies: list[Any] | None = None) -> bytes:
    listed = [{"currency": code, "valueScale": 8, "status": "Listed"} for code in ("BTC", "USDT")]
    listed += [{"currency": "SHIB", "valueScale": 2}, {"currency": "BAD", "valueScale": 19}]
    lists = {"currencies": currencies or listed, "products": products, "perpProductsV2": []}
    return json.dumps({"code": 0, "msg": "", "data": lists}).encode()


def test_instruments_have_the_scale_of_their_currency() -> None:
    shib = product(symbol="sSHIBUSDT", baseCurrency="SHIB", status="Delisted")
    unknown = product(symbol="sNEWUSDT", baseCurrency="NEW")
    wide = product(symbol="sBADUSDT", baseCurrency="BAD")
    found = EXCHANGE.parse_instruments(body(product(), shib, unknown, wide, {}, 7))
    assert [(one.symbol, one.native, one.tick, one.lot, one.scales) for one in found] == [
        ("BTC/USDT", "sBTCUSDT", "0.01", "0.000001", (8, 8)),
        ("SHIB/USDT", "sSHIBUSDT", "0.01", "0.000001", (8, 2)),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]
    assert found.refused == 1, "no book holds 19 decimals"


def test_an_odd_currency_costs_its_pairs_alone() -> None:
    odd = [None, {"currency": "SHIB"}, {"currency": "BTC", "valueScale": 8}]
    shib = product(symbol="sSHIBUSDT", baseCurrency="SHIB")
    found = EXCHANGE.parse_instruments(body(product(), shib, currencies=odd))
    assert [one.symbol for one in found] == ["BTC/USDT"]


@pytest.mark.derivatives
def test_rows_of_derivatives_are_no_instruments() -> None:
    inverse = {"symbol": "BTCUSD", "type": "Perpetual", "quoteCurrency": "USD", "priceScale": 4}
    inverse |= {"settleCurrency": "BTC", "contractSize": 1.0, "status": "Listed"}
    linear = product(symbol="BTCUSDT", type="PerpetualV2", priceScale=0)
    assert EXCHANGE.parse_instruments(body(inverse, linear)) == []


def test_the_simulator_refuses_what_phemex_refuses() -> None:
    desk = Desk("phemex")
    request = {"id": 7, "method": "orderbook.subscribe", "params": ["sBTCUSDT"]}
    for _ in range(2):
        accepted, whole = desk.say(request)
        assert accepted == {"error": None, "id": 7, "result": {"status": "success"}}
        assert (whole["type"], whole["depth"]) == ("snapshot", 30)
    (strange,) = desk.say(request | {"params": ["BTCUSDT"]})
    assert strange["error"] == {"code": 6001, "message": "invalid argument"}
    assert desk.say("hello")[0]["id"] is None
    assert desk.say({"id": 0, "method": "server.ping", "params": []})[0]["result"] == "pong"
    assert desk.dialect.heartbeat(desk.session, desk.now) == []
    minute = desk.now._replace(s=desk.now.s + 60)
    (again,) = desk.dialect.heartbeat(desk.session, minute)
    assert desk.dialect.heartbeat(desk.session, minute) == []
    assert json.loads(again)["type"] == "snapshot"
    desk.say({"id": 8, "method": "orderbook.unsubscribe", "params": []})
    assert desk.session.topics == {}


@pytest.mark.replayed("phemex", "PHEMEX.ws.1.0")
def test_recorded_spot_books_equal_dicts_and_the_snapshots_that_verify_them(samples: Path) -> None:
    """All currencies had a scale of 8 then; frames of contracts match no instrument here."""
    natives = ("sBCHUSDT", "sENJUSDT", "sGRTUSDT", "sLINKUSDT", "sSUSHIUSDT")
    books = {each: Instrument("phemex", each, each, scales=(8, 8)) for each in natives}
    connector, reader = EXCHANGE.connector([*books.values()]), Reader(EXCHANGE)
    truth = {native: Dicts(DEPTH) for native in natives}
    seen: Counter[str] = Counter()
    for frame in frames(samples, "PHEMEX.ws.1.0"):
        message = json.loads(frame)
        if "book" not in message:
            assert all(out in EXPECTED or not out.known for out in connector.received(frame))
            continue
        native = message["symbol"]
        if native not in books:
            with pytest.raises(ProtocolError, match=native):
                connector.received(frame)
            seen["contract"] += 1
            continue
        if message["type"] == "snapshot" and books[native] in reader.live:
            sides = {side: rows_of(message, side) for side in ("bids", "asks")}
            verified = Dicts(DEPTH)
            verified.replace(sides["bids"], sides["asks"])
            assert reader.sides(books[native]) == verified.sides
            seen["verified"] += 1
        reader.read(connector.received(frame))
        seen[message["type"]] += 1
        change = truth[native].replace if message["type"] == "snapshot" else truth[native].apply
        change(rows_of(message, "bids"), rows_of(message, "asks"))
        assert reader.sides(books[native]) == truth[native].sides
    assert seen == {"snapshot": 8, "incremental": 410, "contract": 919, "verified": 3}
    assert reader.invalidated == []


def rows_of(message: dict[str, Any], side: str) -> list[tuple[str, str]]:
    return [(f"{price}e-8", f"{amount}e-8") for price, amount in message["book"][side]]
