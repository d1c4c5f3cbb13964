"""Binance in Simple Binary Encoding: layout, exponents, later versions, needed settings."""

import json
import random
import struct
from decimal import Decimal

import pytest

from exchanges.sbe_schema import decoded, encoded
from onebook.config import ExchangeSettings, FeedSettings
from onebook.core import Book, View
from onebook.errors import ConfigError
from onebook.exchanges import EXCHANGES
from onebook.exchanges.binance_sbe import LEVELS
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
    """A book that is at id 100."""
    book = CHANNEL.track(BTC)
    book.last = 100
    return {"BTCUSDT": book}


def levels(side: bytes) -> list[tuple[Decimal, Decimal]]:
    scale = Decimal("1e-8")
    return [(Decimal(price) * scale, Decimal(amount) * scale) for price, amount in json.loads(side)]


def test_a_third_party_decoder_reads_what_is_read_here() -> None:
    """Of random events as the simulated exchange writes them, with its own encoder."""
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
            assert json.loads(read) == [[each["price"], each["qty"]] for each in theirs[name]]
            assert levels(read) == [(Decimal(price), Decimal(qty)) for price, qty in sent]


def test_best_prices_are_read_at_their_own_exponents() -> None:
    top = CHANNEL.data(joined(), encoded(BEST))
    assert isinstance(top, TopOfBook)
    assert (top.sequence, top.at) == (103, 1_789_295_134_334_567)
    assert levels(top.bids) == [(Decimal("64250.01"), Decimal("1.5"))]
    assert levels(top.asks) == [(Decimal("64250.02"), Decimal("0.00007"))]
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
    assert top.asks == b"[]"


def test_a_later_version_may_lengthen_its_blocks() -> None:
    """SBE adds fields at the end of a block: the stated lengths lead to what follows."""
    frame = encoded(EVENT, version=1)
    block, more = frame[8:34], b"\x07" * 6
    group = b"".join(
        struct.pack("<HH", 24, len(EVENT[side]))
        + b"".join(struct.pack("<qqq", each["price"], each["qty"], 9) for each in EVENT[side])
        for side in ("bids", "asks")
    )
    longer = struct.pack("<HHHH", 32, 10_003, 1, 1) + block + more + group + b"\x07BTCUSDT"
    assert CHANNEL.data(joined(), longer) == CHANNEL.data(joined(), encoded(EVENT))


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
    assert delta.shape == LEVELS
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
