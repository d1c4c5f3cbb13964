"""Conversations with Bitget: its messages and our answers; a recording of 2022."""

import json
from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from msgspec import Raw

from contract.oracle import Reader, Side
from contract.recorded import frames
from exchanges.sent import Sent
from onebook.exchanges.bitget import EXCHANGE
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    BookRefused,
    Connector,
    Delta,
    Gap,
    Heartbeat,
    Ignored,
    ProtocolError,
    SlowDown,
    Snapshot,
    TopOfBook,
    Unnamed,
)
from onebook.model import Instrument, InstrumentStatus
from onebook.simulator.kit import Dropped
from simulator.pure import Desk

BTC = Instrument("bitget", "BTC/USDT", "BTCUSDT")
ETH = Instrument("bitget", "ETH/USDT", "ETHUSDT")

# Messages of other channels and families, and what changes no book.
UNKNOWN_FRAMES = (
    b"pong",
    b'{"action":"update","arg":{"instType":"usdt-futures","topic":"books","symbol":"BTCUSDT"},'
    b'"data":[{"a":[],"b":[["0.00519","30828.52"]],"seq":427583480559,"pseq":427583461144,'
    b'"ts":"1789456512452","maxdepth":"1000"}],"ts":1789456512454}',
    b'{"action":"snapshot","arg":{"instType":"spot","topic":"ticker","symbol":"BTCUSDT"},'
    b'"data":[{"lastPrice":"1"}]}',
    b'{"event":"unsubscribe","arg":{"instType":"spot","topic":"books","symbol":"BTCUSDT"}}',
    b'{"event":"subscribe","arg":{"instType":"spot","topic":"ticker","symbol":"BTCUSDT"}}',
    b"{}",
)

# As others recorded it from this socket, with the family changed.
UPDATE = (
    b'{"action":"update","arg":{"instType":"spot","topic":"books","symbol":"BTCUSDT"},'
    b'"data":[{"a":[],"b":[["0.00519","30828.52"]],"seq":427583480559,"pseq":427583461144,'
    b'"ts":"1789456512452","maxdepth":"1000"}],"ts":1789456512454}'
)
ARG = '{"instType":"spot","topic":"books","symbol":"BTCUSDT"}'
BEST = '{"instType":"spot","topic":"books1","symbol":"BTCUSDT"}'


def book(action: str, *items: dict[str, Any], native: str = "BTCUSDT") -> bytes:
    arg = {"instType": "spot", "topic": "books", "symbol": native}
    return json.dumps({"action": action, "arg": arg, "data": items, "ts": 1}).encode()


def item(previous: int | str, sequence: int | str) -> dict[str, Any]:
    return {"a": [], "b": [["1", "2"]], "seq": sequence, "pseq": previous, "ts": "5"}


def error(code: int | str, words: str) -> bytes:
    return json.dumps({"event": "error", "code": code, "msg": words, "connId": "a"}).encode()


def live(*, at: int = 10) -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.received(book("snapshot", item(0, at)))
    return connector


def kinds(outputs: Sequence[object]) -> list[type]:
    return [type(output) for output in outputs]


def test_subscribes_and_hears_it_accepted() -> None:
    connector = EXCHANGE.connector([BTC])
    assert connector.opened() == (Sent(f'{{"op":"subscribe","args":[{ARG},{BEST}]}}'.encode()),)
    ack = f'{{"event":"subscribe","arg":{ARG},"connId":"a"}}'.encode()
    assert connector.received(ack) == (Acknowledged(BTC),)
    assert connector.received(ack) == EXPECTED


def test_twenty_arguments_share_a_frame() -> None:
    instruments = [Instrument("bitget", f"C{rank}/USDT", f"C{rank}USDT") for rank in range(25)]
    frames = [json.loads(out.frame) for out in EXCHANGE.connector(instruments).opened()]  # type: ignore[union-attr]
    assert [len(frame["args"]) for frame in frames] == [20, 20, 10]


def test_updates_follow_by_the_previous_id_as_number_or_text() -> None:
    connector = live(at=427_583_461_144)
    (delta,) = connector.received(UPDATE)
    assert isinstance(delta, Delta)
    assert (bytes(delta.bids), delta.at_ms) == (b'[["0.00519","30828.52"]]', 1_789_456_512_452)
    connector.received(book("snapshot", item(0, "1483653649371725838")))
    text = item("1483653649371725838", "1483653649791156272")
    assert kinds(connector.received(book("update", text))) == [Delta]
    assert connector.received(book("update", text)) == ()
    several = (item(1483653649791156272, 3), item(3, 4), item(6, 7))
    assert kinds(connector.received(book("update", *several))) == [Delta, Delta, Gap]
    assert connector.received(book("update", item(7, 8))) == ()
    assert kinds(connector.received(book("snapshot", item(0, 9)))) == [Snapshot]


def test_an_update_may_reach_back_before_the_snapshot_unless_it_restarts() -> None:
    assert kinds(live(at=10).received(book("update", item(8, 12)))) == [Delta]
    restarted = live(at=10).received(book("update", item(0, 12)))
    assert restarted == (Gap(BTC, "the book is at 10, the delta follows 0"),)


def test_resync_unsubscribes_and_subscribes() -> None:
    connector = live()
    assert connector.resync([BTC]) == (
        Sent(f'{{"op":"unsubscribe","args":[{ARG},{BEST}]}}'.encode()),
        Sent(f'{{"op":"subscribe","args":[{ARG},{BEST}]}}'.encode()),
    )
    assert connector.received(book("update", item(10, 11))) == ()


def test_an_error_refuses_the_pair_it_names() -> None:
    words = '{"instType":"spot","symbol":"ETHUSDT","topic":"books"} doesn\'t exist'
    assert live().received(error(30001, words)) == (BookRefused(ETH, words),)
    assert live().received(error(30016, "Param error")) == (Unnamed("Param error"),)


@pytest.mark.parametrize("code", [30006, "30006", 30007])
def test_a_rate_limit_asks_for_patience_and_refuses_nothing(code: int | str) -> None:
    assert live().received(error(code, "request too many")) == (SlowDown("request too many"),)


def test_the_heartbeat_is_a_text_and_so_is_its_answer() -> None:
    assert EXCHANGE.heartbeat == Heartbeat(b"ping", 20.0)
    assert live().received(b"pong") == EXPECTED, "it proves a socket and no data"


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (book("update", item(10, 11)).replace(b'"a"', b'"gone"'), BTC),
        (book("update", item(10, -11)), BTC),
        (book("update", item(10, 2**63)), BTC),
        (book("update", item("x", 11)), BTC),
        (book("replace", item(10, 11)), BTC),
        (book("update", item(10, 11), native="NOBODY"), None),
    ],
    ids=["levels", "negative", "too_large", "text", "action", "stranger"],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        live(at=10).received(frame)
    assert caught.value.instrument is instrument


def row(**members: Any) -> dict[str, Any]:
    listed = {"symbol": "BTCUSDT", "category": "SPOT", "baseCoin": "BTC", "quoteCoin": "USDT"}
    listed |= {"pricePrecision": "2", "quantityPrecision": "6", "status": "online"}
    return listed | members


def test_instruments_are_read_row_by_row() -> None:
    other = row(symbol="OMNIUSDT", baseCoin="OMNI", status="offline", pricePrecision="")
    gray = row(symbol="牛来USDT", baseCoin="牛来", status="gray", quantityPrecision=0)
    rows = [row(), other, gray, row(symbol=5), {}, None]
    found = EXCHANGE.parse_instruments(json.dumps({"code": "00000", "data": rows}).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USDT", "BTCUSDT", "0.01", "0.000001"),
        ("BITGETOMNI/USDT", "OMNIUSDT", "", "0.000001"),
        ("牛来/USDT", "牛来USDT", "0.01", "1"),
    ]
    trading, halted = InstrumentStatus.TRADING, InstrumentStatus.HALTED
    assert [one.status for one in found] == [trading, halted, trading]


@pytest.mark.parametrize(
    ("state", "trades"),
    [
        ("online", True),
        ("limit_open", True),
        ("limit_close", True),
        ("restrictedAPI", True),
        ("listed", False),
        ("offline", False),
        ("unheard_of", False),
    ],
)
def test_a_pair_whose_orders_are_restricted_trades(state: str, trades: bool) -> None:
    body = {"code": "00000", "data": [row(status=state)]}
    (one,) = EXCHANGE.parse_instruments(json.dumps(body).encode())
    assert (one.status is InstrumentStatus.TRADING) is trades


def test_a_list_with_an_error_code_is_refused() -> None:
    with pytest.raises(ProtocolError, match="40034"):
        EXCHANGE.parse_instruments(b'{"code":"40034","msg":"Parameter error","data":[]}')


@pytest.mark.derivatives
@pytest.mark.parametrize("category", ["USDT-FUTURES", "COIN-FUTURES", "MARGIN"])
def test_rows_of_derivatives_are_no_instruments(category: str) -> None:
    body = {"code": "00000", "data": [row(category=category, type="perpetual")]}
    assert EXCHANGE.parse_instruments(json.dumps(body).encode()) == []


def test_the_simulator_refuses_what_bitget_refuses() -> None:
    desk, arg = Desk("bitget"), json.loads(ARG)
    ack, snapshot = desk.say({"op": "subscribe", "args": [arg]})
    assert (ack["event"], ack["arg"], snapshot["action"]) == ("subscribe", arg, "snapshot")
    (unknown,) = desk.say({"op": "subscribe", "args": [arg | {"symbol": "NOPEUSDT"}]})
    assert (unknown["code"], '"symbol":"NOPEUSDT"' in unknown["msg"]) == (30001, True)
    silent = desk.say({"op": "subscribe", "args": [arg | {"instType": "usdt-futures"}]})
    assert [each["event"] for each in silent] == ["subscribe"], "acknowledged, and no book"
    with pytest.raises(Dropped):
        desk.say({"op": "subscribe", "args": [arg] * 21})
    assert desk.get("/api/v3/market/instruments", category="MARGIN")[0] == 400


def places(rows: Sequence[Sequence[str]], most: tuple[int, ...]) -> tuple[int, ...]:
    """The maximum decimals of prices and of amounts."""
    columns = zip(*rows, strict=True)
    spelled = [max(len(text.partition(".")[2]) for text in column) for column in columns]
    return tuple(map(max, most, spelled or most))


def written(side: Side, decimals: tuple[int, ...]) -> list[str]:
    """The 25 best levels as the exchange wrote them then: padded with zeros."""
    price_places, amount_places = decimals
    levels = list(side.items())[:25]
    return [f"{price:.{price_places}f}:{amount:.{amount_places}f}" for price, amount in levels]


@pytest.mark.replayed("bitget", "BITGET.ws.2.0", differs="v2, retold in the shape of v3")
@pytest.mark.replayed("bitget", "BITGET.ws.1.0", differs="v2, retold in the shape of v3")
@pytest.mark.parametrize(("name", "frames_count"), [("BITGET.ws.1.0", 443), ("BITGET.ws.2.0", 194)])
def test_books_of_recorded_frames_have_the_checksums_of_2022(
    samples: Path, name: str, frames_count: int
) -> None:
    """Their members had other names and no ids then, and their levels were padded with zeros."""
    recorded = [json.loads(frame) for frame in frames(samples, name) if b'"action"' in frame]
    recorded = [each for each in recorded if each["arg"]["channel"] == "books"]
    natives = dict.fromkeys(each["arg"]["instId"] for each in recorded)
    books = {native: Instrument("bitget", native, native) for native in natives}
    connector, reader = EXCHANGE.connector([*books.values()]), Reader(EXCHANGE)
    decimals: dict[str, tuple[int, ...]] = dict.fromkeys(natives, (0, 0))
    last = dict.fromkeys(natives, 0)
    for sequence, each in enumerate(recorded, 1):
        native, (change,) = each["arg"]["instId"], each["data"]
        decimals[native] = places([*change["bids"], *change["asks"]], decimals[native])
        now = {"b": change["bids"], "a": change["asks"], "ts": change["ts"]}
        now |= {"seq": sequence, "pseq": last[native]}
        reader.read(connector.received(book(each["action"], now, native=native)))
        last[native] = sequence
        sides = reader.sides(books[native])
        assert sides is not None
        in_turn = zip_longest(*(written(side, decimals[native]) for side in sides))
        text = ":".join(level for level in chain(*in_turn) if level)
        assert crc32(text.encode()) == change["checksum"] % 2**32
    assert (len(recorded), reader.invalidated) == (frames_count, [])


def test_best_prices_are_a_top_of_the_numbers_of_the_book() -> None:
    data = '[{"a":[["101","3"]],"b":[["100","2"]],"seq":1304314508780744706,"pseq":0,"ts":"17"}]'
    frame = f'{{"action":"snapshot","arg":{BEST},"data":{data},"ts":18}}'.encode()
    bids, asks = Raw(b'[["100","2"]]'), Raw(b'[["101","3"]]')
    top = TopOfBook(BTC, 1304314508780744706, bids, asks, at="17")
    assert live().reader()(frame) == top


def test_refused_best_prices_cost_no_book() -> None:
    words = f"{BEST} doesn't exist"
    error = json.dumps({"event": "error", "code": 30001, "msg": words}).encode()
    assert live().received(error) == (Ignored(known=True, refused=words),)
