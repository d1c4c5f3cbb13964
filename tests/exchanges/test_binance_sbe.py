"""Binance in Simple Binary Encoding: layout, exponents, later versions, needed settings."""

import json
import random
import struct
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest

from core.oracle import text_of
from exchanges.sbe_schema import decoded, encoded
from onebook.config import ExchangeSettings, FeedSettings
from onebook.core import Book, LevelShape, View
from onebook.errors import ConfigError
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import BookFrame, Delta, ProtocolError, TopOfBook
from onebook.exchanges.kit.sync import Join
from onebook.feeds import enabled
from onebook.model import Instrument
from onebook.simulator.binance import _encoded as simulated

SBE = EXCHANGES["binance"].channels["sbe"]
CHANNEL = SBE.connector.args[0]
BTC = Instrument("binance", "BTC/USDT", "BTCUSDT")
EVENT = {
    "eventTime": 1_789_295_134_334_567,
    "firstBookUpdateId": 101,
    "lastBookUpdateId": 104,
    "priceExponent": -8,
    "qtyExponent": -8,
    "bids": [{"price": 6_425_000_000_000, "qty": 150_000_000}],
    "asks": [{"price": 6_425_010_000_000, "qty": 0}, {"price": 6_425_020_000_000, "qty": 1}],
    "symbol": "BTCUSDT",
}
BEST = {
    "eventTime": 1_789_295_134_334_567,
    "bookUpdateId": 103,
    "priceExponent": -2,
    "qtyExponent": -5,
    "bidPrice": 6_425_001,
    "bidQty": 150_000,
    "askPrice": 6_425_002,
    "askQty": 7,
    "symbol": "BTCUSDT",
}


def joined() -> dict[str, Join]:
    """A book at id 100."""
    book = CHANNEL.track(BTC)
    book.last = 100
    return {"BTCUSDT": book}


def levels(side: bytes, shape: LevelShape) -> list[tuple[str, str]]:
    """The levels of a side as a book holds them, best ask first."""
    book = Book()
    book.replace(b"", side, shape)
    return book.top(1_000)[1]


def expected(rows: Iterable[tuple[Any, Any]], scale: int = 0) -> list[tuple[str, str]]:
    """The last amount of each price, without zero amounts."""
    held = {Decimal(price).scaleb(-scale): Decimal(amount).scaleb(-scale) for price, amount in rows}
    return [(text_of(price), text_of(held[price])) for price in sorted(held) if held[price]]


def test_a_third_party_decoder_reads_what_is_read_here() -> None:
    """Random events as the simulated exchange encodes them, with its own encoder."""
    draw = random.Random(7)

    def side(count: int) -> list[tuple[str, str]]:
        return [
            (f"{draw.randint(1, 10**9) / 100:.2f}", f"{draw.randint(0, 10**12) / 10**8:.8f}")
            for _ in range(count)
        ]

    for number in range(200):
        data = {
            "e": "depthUpdate",
            "E": draw.randint(1, 2**41),
            "s": "BTCUSDT",
            "U": 101,
            "u": 101 + number,
            "b": side(draw.randint(0, 30)),
            "a": side(draw.randint(0, 30)),
        }
        frame = simulated(json.dumps({"stream": "btcusdt@depth", "data": data}))
        theirs, ours = decoded(frame), CHANNEL.data(joined(), frame)
        assert isinstance(ours, Delta)
        assert (ours.at, ours.sequence) == (theirs["eventTime"], theirs["lastBookUpdateId"])
        for name, read, sent in (("bids", ours.bids, data["b"]), ("asks", ours.asks, data["a"])):
            seen = levels(read, ours.shape)
            assert seen == expected([(each["price"], each["qty"]) for each in theirs[name]], 8)
            assert seen == expected(sent)


def test_best_prices_are_read_at_their_own_exponents() -> None:
    top = CHANNEL.data(joined(), encoded(BEST))
    assert isinstance(top, TopOfBook)
    assert (top.sequence, top.at) == (103, 1_789_295_134_334_567)
    assert levels(top.bids, top.shape) == [("64250.01", "1.5")]
    assert levels(top.asks, top.shape) == [("64250.02", "0.00007")]
    book = Book(100)
    book.replace(b"[[64250,1]]", b"[[64251,1]]")
    assert book.overlay(top.bids, top.asks, top.shape) is None
    view = View(["binance"], depth=1)
    view.merge([book])
    shown = json.loads(view.full(b"{", b"}"))
    assert (shown["bids"][0]["price"], shown["asks"][0]["price"]) == (64250.01, 64250.02)


def test_a_side_without_an_amount_is_empty() -> None:
    top = CHANNEL.data(joined(), encoded(BEST | {"askQty": 0}))
    assert isinstance(top, TopOfBook)
    assert levels(top.bids, top.shape) == [("64250.01", "1.5")]
    assert levels(top.asks, top.shape) == []


def test_a_later_version_may_lengthen_its_blocks() -> None:
    """SBE adds fields at the end of a block: the stated lengths lead to the next part."""
    frame = encoded(EVENT, version=1)
    block, more = frame[8:34], b"\x07" * 6
    group = b"".join(
        struct.pack("<HH", 24, len(EVENT[side]))
        + b"".join(struct.pack("<qqq", each["price"], each["qty"], 9) for each in EVENT[side])
        for side in ("bids", "asks")
    )
    longer = struct.pack("<HHHH", 32, 10_003, 1, 1) + block + more + group + b"\x07BTCUSDT"
    read, same = (CHANNEL.data(joined(), frame) for frame in (longer, encoded(EVENT)))
    assert isinstance(read, Delta)
    assert isinstance(same, Delta)
    books = Book(), Book()
    for book, delta in zip(books, (read, same), strict=True):
        book.apply(delta.bids, delta.asks, delta.shape)
    assert books[0].top(9) == books[1].top(9) == ([("64250", "1.5")], [("64250.2", "0.00000001")])


@pytest.mark.parametrize("event", [EVENT, BEST], ids=["depth", "best"])
def test_a_later_version_with_other_fields_is_refused(event: dict[str, Any]) -> None:
    """New groups and texts follow those of this version, so the symbol is elsewhere."""
    frame = encoded(event, version=1)
    symbol = frame[-8:]
    for longer in (frame + b"\x03new", frame[:-8] + b"\x10\x00\x00\x00" + symbol):
        with pytest.raises(ValueError, match=r"other fields than version 0|truncated symbol"):
            CHANNEL.data(joined(), longer)
        with pytest.raises(ProtocolError, match=r"other fields than version 0|truncated symbol"):
            CHANNEL.control(longer)


def test_deltas_that_wait_for_the_body_keep_their_own_exponents() -> None:
    book = CHANNEL.track(BTC)
    coarse = EVENT | {
        "firstBookUpdateId": 105, "lastBookUpdateId": 106, "priceExponent": -2, "qtyExponent": 0,
        "bids": [{"price": 6_425_001, "qty": 3}], "asks": [],
    }  # fmt: skip
    for event in (EVENT, coarse):
        assert not CHANNEL.data({"BTCUSDT": book}, encoded(event))
    start, *deltas = book.seeded(b'[["64249","1"]]', b'[["64250.1","1"]]', 100)
    core = Book()
    core.replace(start.bids, start.asks, start.shape)
    for delta in deltas:
        core.apply(delta.bids, delta.asks, delta.shape)
    assert core.top(9)[0] == [("64250.01", "3"), ("64250", "1.5"), ("64249", "1")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"priceExponent": -9}, "the exponent -9 is not"),
        ({"qtyExponent": 1}, "the exponent 1 is not"),
        ({"firstBookUpdateId": 105}, "the ids 105 to 104 are not a range"),
        ({"firstBookUpdateId": -1}, "are not a range"),
    ],
)
def test_an_event_that_cannot_be_names_its_book(change: dict[str, int], words: str) -> None:
    frame = encoded(EVENT | change)
    with pytest.raises(ValueError, match=words):
        CHANNEL.data(joined(), frame)
    assert CHANNEL.control(frame) == BookFrame("BTCUSDT")
    assert CHANNEL.control(encoded(BEST | {"priceExponent": 3})) == BookFrame("BTCUSDT", top=True)


def test_another_schema_is_an_error_in_one_sentence() -> None:
    frame = encoded(EVENT, schema_id=3)
    with pytest.raises(ValueError, match="schema 3 is unknown"):
        CHANNEL.data(joined(), frame)
    with pytest.raises(ProtocolError, match="schema 3 is unknown, only 1 is known"):
        CHANNEL.control(frame)


def test_every_cut_of_a_frame_is_an_error_and_no_other() -> None:
    for frame in (encoded(EVENT), encoded(BEST)):
        for end in range(len(frame)):
            with pytest.raises(ValueError, match=r"truncated|binary|short|decode"):
                CHANNEL.data(joined(), frame[:end])


def test_deltas_are_scaled_integers_that_a_book_holds_exactly() -> None:
    delta = CHANNEL.data(joined(), encoded(EVENT))
    assert isinstance(delta, Delta)
    assert delta.shape == LevelShape.group(price_scale=8, amount_scale=8)
    book = Book(100)
    book.replace(b"[[64249,1]]", b"[[64250.1,1]]")
    assert book.apply(delta.bids, delta.asks, delta.shape) is None
    assert book.top(9) == ([("64250", "1.5"), ("64249", "1")], [("64250.2", "0.00000001")])


def test_the_channel_needs_a_key_and_keeps_the_operator_s_addresses() -> None:
    def chosen(**settings: str) -> FeedSettings:
        override = ExchangeSettings(channel="sbe", ws_url="ws://127.0.0.1:1/ws", **settings)
        return FeedSettings(exchanges=("binance",), overrides={"binance": override})

    with pytest.raises(ConfigError, match=r"'sbe' needs feeds\.overrides\.binance\.api_key"):
        enabled(EXCHANGES, chosen())
    settings = chosen(api_key="secret")
    exchange = enabled(EXCHANGES, settings)["binance"]
    assert exchange.ws_url == "ws://127.0.0.1:1/ws"
    assert exchange.instead is not None
    assert exchange.instead.ws_url == "ws://127.0.0.1:1/ws"
    assert "secret" not in f"{settings!r}{exchange!r}"
    assert EXCHANGES["binanceus"].channels == {}
