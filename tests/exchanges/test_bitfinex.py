"""Conversations with Bitfinex: its messages and our answers; a recording of 2021."""

import json
from binascii import crc32
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from contract.oracle import Reader
from contract.recorded import frames
from exchanges.sent import Sent
from onebook.core import Book
from onebook.exchanges.bitfinex import CHECKSUM, EXCHANGE, LEVELS
from onebook.exchanges.kit import (
    EXPECTED,
    HEARTBEAT,
    Acknowledged,
    Alive,
    BookRefused,
    Closing,
    Connector,
    Delta,
    Gap,
    Output,
    ProtocolError,
    SlowDown,
    Snapshot,
    Trading,
    Unnamed,
    Verify,
)
from onebook.model import Instrument

BTC = Instrument("bitfinex", "BTC/USD", "tBTCUSD")
DOGE = Instrument("bitfinex", "DOGE/USDT", "tDOGE:UST")
AT = 1_700_000_000_000

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"event":"info","version":2,"serverId":"083b","platform":{"status":1}}',
    b'{"event":"conf","status":"OK","flags":229376}',
    b'{"event":"pong","ts":1511545528111,"cid":1234}',
    b'{"event":"unsubscribed","status":"OK","chanId":5}',
    b'{"event":"error","msg":"unsubscribe: invalid","code":10400,"chanId":5}',
    b'{"event":"subscribed","channel":"ticker","chanId":224555,"symbol":"tBTCUSD"}',
    b'{"event":"info","code":5000,"msg":"hello"}',
    b"{}",
)


def damaged(frame: bytes) -> bytes:
    """A frame without its levels."""
    channel, _, *rest = json.loads(frame)
    return json.dumps([channel, None, *rest]).encode()


def said(**message: object) -> bytes:
    return json.dumps(message).encode()


def book_frame(channel: int, payload: str, number: int) -> bytes:
    return f"[{channel},{payload},{number},{AT}]".encode()


def subscribed(native: str, channel: int) -> bytes:
    book = {"channel": "book", "prec": "P0", "freq": "F0", "len": "250", "subId": 1}
    return said(event="subscribed", chanId=channel, symbol=native, pair=native[1:], **book)


def asked(native: str, number: int) -> Sent:
    return Sent(
        f'{{"event":"subscribe","channel":"book","symbol":"{native}","prec":"P0","freq":"F0",'
        f'"len":"250","subId":{number}}}'.encode()
    )


def live() -> Connector:
    """BTC is channel 17, with its snapshot in frame 1; DOGE is acknowledged as 18."""
    connector = EXCHANGE.connector([BTC, DOGE])
    connector.opened()
    connector.received(subscribed("tBTCUSD", 17))
    connector.received(subscribed("tDOGE:UST", 18))
    connector.received(book_frame(17, "[[7254.7,3,3.3],[7254.8,1,-0.5]]", 1))
    return connector


def test_frames_are_configured_before_the_books_are_asked_for_one_by_one() -> None:
    assert EXCHANGE.connector([BTC, DOGE]).opened() == (
        Sent(b'{"event":"conf","flags":229376}'),
        asked("tBTCUSD", 1),
        asked("tDOGE:UST", 2),
    )


def test_a_book_starts_at_its_snapshot_and_follows_single_levels() -> None:
    connector = EXCHANGE.connector([BTC])
    assert connector.received(subscribed("tBTCUSD", 17)) == (Acknowledged(BTC),)
    assert connector.received(book_frame(17, "[7254.7,0,1]", 1)) == (), "before the snapshot"
    (snapshot,) = connector.received(book_frame(17, "[[7254.7,3,3.3],[7254.8,1,-0.5]]", 2))
    assert isinstance(snapshot, Snapshot)
    assert (bytes(snapshot.bids), snapshot.shape) == (b"[[7254.7,3,3.3],[7254.8,1,-0.5]]", LEVELS)
    (delta,) = connector.received(book_frame(17, "[7254.7,0,1]", 3))
    assert isinstance(delta, Delta)
    assert (snapshot.at_ms, delta.at_ms) == (AT, AT)
    assert (bytes(delta.bids), delta.shape) == (b"[7254.7,0,1]", LEVELS)
    book = Book()
    book.replace(snapshot.bids, snapshot.asks, snapshot.shape)
    assert book.top(9) == ([("7254.7", "3.3")], [("7254.8", "0.5")])
    book.apply(delta.bids, delta.asks, delta.shape)
    assert book.top(9) == ([], [("7254.8", "0.5")])


def test_an_empty_book_is_a_snapshot() -> None:
    (snapshot,) = live().received(book_frame(18, "[]", 2))
    assert isinstance(snapshot, Snapshot)
    assert snapshot.instrument is DOGE


def test_a_whole_book_replaces_a_live_one_and_a_frame_sent_twice_changes_nothing() -> None:
    connector = live()
    (delta,) = connector.received(book_frame(17, "[7254.7,1,2]", 2))
    assert isinstance(delta, Delta)
    assert connector.received(book_frame(17, "[7254.7,1,2]", 2)) == ()
    for number, levels in ((3, "[[7254.6,3,3.3]]"), (4, "[]")):
        (snapshot,) = connector.received(book_frame(17, levels, number))
        assert isinstance(snapshot, Snapshot)
    gap, _ = connector.received(book_frame(17, "[[7254.7,3,3.3]]", 2))
    assert gap == Gap(BTC, "the connection is at frame 4, the next is 2")


def test_a_checksum_is_of_the_book_as_it_is_then() -> None:
    connector = live()
    frame = f'[17,"cs",-1108044634,2,{AT}]'.encode()
    assert connector.received(frame) == (Verify(BTC, CHECKSUM, -1_108_044_634),)
    assert connector.received(f'[18,"cs",5,3,{AT}]'.encode()) == (), "before its snapshot"


def test_the_checksum_has_signed_amounts_and_numbers_as_javascript_writes_them() -> None:
    book = Book()
    rows = b"[[7254.7,3,3.3],[0.5,1,1.5e-7],[2e-8,9,7],[7254.8,1,-0.5]]"
    book.replace(rows, b"[]", LEVELS)
    unsigned = crc32(b"7254.7:3.3:7254.8:-0.5:0.5:1.5e-7:2e-8:7")
    assert book.crc(CHECKSUM) == unsigned


def test_heartbeats_are_counted_and_those_of_no_book_yet_are_the_connections() -> None:
    connector = live()
    assert connector.received(book_frame(17, '"hb"', 2)) == (Alive(BTC),)
    assert connector.received(book_frame(99, '"hb"', 3)) == HEARTBEAT
    (delta,) = connector.received(book_frame(17, "[7254.7,1,2]", 4))
    assert isinstance(delta, Delta)


def test_a_number_that_is_skipped_is_a_gap_of_each_live_book() -> None:
    connector = live()
    connector.received(book_frame(18, "[[0.1,1,5]]", 2))
    outputs = list(connector.received(book_frame(18, '"hb"', 4)))
    reason = "the connection is at frame 2, the next is 4"
    assert outputs == [Gap(BTC, reason), Gap(DOGE, reason), Alive(DOGE)]
    assert connector.received(book_frame(17, "[7254.7,1,2]", 5)) == ()


def test_resync_leaves_the_channel_and_the_same_id_may_come_again() -> None:
    connector = live()
    assert connector.resync([BTC]) == (
        Sent(b'{"event":"unsubscribe","chanId":17}'),
        asked("tBTCUSD", 4),
    )
    assert connector.received(book_frame(17, "[7254.7,1,2]", 2)) == (), "late"
    assert connector.received(b'{"event":"unsubscribed","status":"OK","chanId":17}') == EXPECTED
    assert connector.received(subscribed("tBTCUSD", 17)) == (Acknowledged(BTC),)
    (snapshot,) = connector.received(book_frame(17, "[[7254.7,3,3.3]]", 3))
    assert isinstance(snapshot, Snapshot)


@pytest.mark.parametrize(
    "where",
    [{"symbol": "tDOGE:UST"}, {"subId": 2}, {"symbol": "tDOGE:UST", "subId": "2"}],
    ids=["by its symbol", "by the request", "by both"],
)
def test_a_refusal_is_of_its_symbol_or_its_request(where: dict[str, Any]) -> None:
    connector = EXCHANGE.connector([BTC, DOGE])
    connector.opened()
    frame = said(event="error", channel="book", msg="symbol: invalid", code=10300, **where)
    assert connector.received(frame) == (BookRefused(DOGE, "symbol: invalid (10300)"),)


def test_other_errors() -> None:
    connector = live()
    for message, output in (
        ({"msg": "unknown event", "code": 10000}, Unnamed("unknown event (10000)")),
        ({"msg": "not ready", "code": 11000}, SlowDown("not ready (11000)", unavailable=True)),
        ({"msg": "ratelimit: error", "code": 11010}, SlowDown("ratelimit: error (11010)")),
        ({"msg": "subscribe: dup", "code": 10301, "symbol": "tBTCUSD"}, Acknowledged(BTC)),
        (
            {"msg": "subscribe: limit", "code": 10305, "symbol": "tBTCUSD"},
            BookRefused(BTC, "subscribe: limit (10305)"),
        ),
    ):
        assert connector.received(said(event="error", **message)) == (output,)


@pytest.mark.parametrize(
    ("message", "output"),
    [
        ({"code": 20051, "msg": "Stopping"}, Closing("Stopping")),
        ({"code": 20060, "msg": "Entering"}, Trading(open=False, reason="Entering")),
        ({"code": 20061, "msg": "Over"}, Trading(open=True, reason="Over")),
        (
            {"version": 2, "platform": {"status": 0}},
            Trading(open=False, reason="the platform has status 0"),
        ),
    ],
    ids=["20051", "20060", "20061", "greeting"],
)
def test_what_the_exchange_announces(message: dict[str, Any], output: Output) -> None:
    assert live().received(said(event="info", **message)) == (output,)


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (b"[17,null,2,5]", BTC),
        (b"[18,[5],2]", DOGE),
        (b'[17,"te",2,5]', BTC),
        (b'[17,["a",1,1],2,5]', BTC),
        (b"[17,[ [7254.7,3,3.3]],2,5]", BTC),
        (b"[99,null,2,5]", None),
        (b"[]", None),
        (b'["x",[1,2,3],2,5]', None),
    ],
)
def test_a_damaged_frame_names_the_book_of_its_channel(
    frame: bytes, instrument: Instrument | None
) -> None:
    with pytest.raises(ProtocolError) as caught:
        live().received(frame)
    assert caught.value.instrument is instrument


@pytest.mark.derivatives
def test_instruments_are_exchange_pairs_by_the_names_of_others() -> None:
    pairs: list[object] = ["BTCUSD", "BTCUST", "DOGE:UST", "IOTBTC", "DUSK:USD"]
    pairs += ["BTCF0:USTF0", "TESTBTC:TESTUSD", "LONGER", "BTCUSDT", 5, ""]
    found = EXCHANGE.parse_instruments(json.dumps([pairs]).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USD", "tBTCUSD", "", "0.00000001"),
        ("BTC/USDT", "tBTCUST", "", "0.00000001"),
        ("DOGE/USDT", "tDOGE:UST", "", "0.00000001"),
        ("IOTA/BTC", "tIOTBTC", "", "0.00000001"),
        ("DUSK/USD", "tDUSK:USD", "", "0.00000001"),
        ("LON/GER", "tLONGER", "", "0.00000001"),
    ]


# The recording of 2021-04-17: SEQ_ALL alone, so no times and no checksums; other channels too.


class Oracle:
    """A dict per side, keyed by number, and the checksum as the exchange's page describes it."""

    def __init__(self, rows: list[list[str]]) -> None:
        self.sides: tuple[dict[Decimal, Decimal], dict[Decimal, Decimal]] = ({}, {})
        self.texts: dict[Decimal, tuple[str, str]] = {}
        for row in rows:
            self.put(row)

    def put(self, row: list[str]) -> None:
        price, amount = Decimal(row[0]), Decimal(row[2])
        side = self.sides[amount < 0]
        side[price] = abs(amount)
        self.texts[price] = (row[0], row[2])
        if row[1] == "0":
            del side[price], self.texts[price]

    def checksum(self) -> int:
        bids, asks = sorted(self.sides[0], reverse=True), sorted(self.sides[1])
        turns = zip_longest(bids[:25], asks[:25])
        prices = [each for turn in turns for each in turn if each is not None]
        return crc32(":".join(text for price in prices for text in self.texts[price]).encode())


def recorded(samples: Path) -> list[Any]:
    book_frame = frames(samples, "BITFINEX.ws.11.0")
    return [json.loads(each, parse_float=str, parse_int=str) for each in book_frame]


@pytest.mark.replayed(
    "bitfinex", "BITFINEX.ws.11.0", differs="with the time that each frame has since"
)
def test_recorded_books_are_exact_after_every_frame(samples: Path) -> None:
    messages = recorded(samples)
    names = {
        each["chanId"]: each["symbol"]
        for each in messages
        if isinstance(each, dict) and each.get("channel") == "book"
    }
    instruments = {native: Instrument("bitfinex", native, native) for native in names.values()}
    connector, reader = EXCHANGE.connector([*instruments.values()]), Reader(EXCHANGE)
    connector.opened()
    oracles: dict[str, Oracle] = {}
    kinds: list[type[Output]] = []
    other: set[str] = set()  # channels of tickers and trades, which we do not ask for
    lines = frames(samples, "BITFINEX.ws.11.0")
    for line, message in zip(lines, messages, strict=True):
        if isinstance(message, dict):
            if message.get("channel") in ("ticker", "trades"):
                other.add(message["chanId"])
            reader.read(connector.received(line))
            continue
        channel, payload, number = message
        if channel in other:  # counted among ours: a heartbeat of another channel stands in
            line = f'[{channel},"hb",{number}]'.encode()
        outputs = list(connector.received(line[:-1] + b",1618677543829]"))
        kinds += [type(each) for each in outputs]
        reader.read(outputs)
        if channel in other or payload == "hb":
            continue
        if isinstance(payload[0], list):
            oracles[channel] = Oracle(payload)
        else:
            oracles[channel].put(payload)
        instrument, oracle = instruments[names[channel]], oracles[channel]
        assert reader.sides(instrument) == oracle.sides
        assert max(map(len, oracle.sides)) <= 100
        assert reader.live[instrument].crc(CHECKSUM) == oracle.checksum()
    assert (kinds.count(Snapshot), kinds.count(Delta)) == (7, 1_593)
    assert (reader.invalidated, len(reader.live)) == ([], 7)


def test_a_lost_recorded_frame_is_a_gap_whatever_it_was_of(samples: Path) -> None:
    lines = frames(samples, "BITFINEX.ws.11.0")
    instrument = Instrument("bitfinex", "DOG/USD", "tDOGUSD")
    of_book = [line for line in lines if line.startswith(b"[225206,")]
    start = next(n for n, line in enumerate(lines) if line in of_book)
    connector = EXCHANGE.connector([instrument])
    connector.received(subscribed("tDOGUSD", 225206))
    arrays = [line for line in lines[start:] if line.startswith(b"[")]
    lost = arrays.pop(20)
    outputs: list[Output] = []
    for line in arrays:
        number = json.loads(line)[-1]
        body = line[:-1] if line in of_book else f'[1,"hb",{number}'.encode()
        outputs += connector.received(body + b",1618677543829]")
    gap = f"the connection is at frame {json.loads(lost)[-1] - 1}, the next is "
    (found,) = [each for each in outputs if isinstance(each, Gap)]
    assert found.reason.startswith(gap)
