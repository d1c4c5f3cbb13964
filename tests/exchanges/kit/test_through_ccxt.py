"""The frames between ccxt and our sessions: commands, whole books, untrustworthy data."""

import json

import msgspec
import pytest

from onebook.config import CcxtSettings
from onebook.core import Book
from onebook.exchanges.kit.contract import (
    BookRefused,
    Gap,
    Ignored,
    ProtocolError,
    Send,
    Snapshot,
    Unnamed,
)
from onebook.exchanges.kit.through_ccxt import (
    BOOKS_MAX,
    QUIET_MAX_S,
    SNAPSHOT_S,
    CcxtConnector,
    exchange_of,
    parse_instruments,
)
from onebook.model import Instrument, InstrumentStatus

ONE = Instrument("bitopro", "BTC/TWD", "btc_twd", via="ccxt")
TWO = Instrument("bitopro", "ETH/TWD", "eth_twd", via="ccxt")


def commands(outputs):
    return [json.loads(each.frame) for each in outputs if isinstance(each, Send)]


def frame(kind, native="btc_twd", **more):
    return json.dumps({"type": kind, "native": native} | more).encode()


def test_it_watches_what_it_carries_and_leaves_what_is_removed():
    connector = CcxtConnector([ONE])
    assert commands(connector.opened()) == [{"watch": ["btc_twd"]}]
    assert commands(connector.add([ONE, TWO])) == [{"watch": ["eth_twd"]}]
    assert commands(connector.resync([TWO])) == [{"watch": ["eth_twd"]}]
    assert commands(connector.remove([TWO])) == [{"unwatch": ["eth_twd"]}]
    assert commands(connector.remove([TWO])) == commands(connector.resync([TWO])) == []
    late = frame("book", "eth_twd", bids=[], asks=[])
    assert connector.received(late) == (Ignored(known=True),)


def test_a_book_is_whole_and_ends_at_its_outermost_levels():
    connector = CcxtConnector([ONE])
    bids, asks = [["100.5", "1"], ["99", "2"]], [["101", "3"]]
    (snapshot,) = connector.received(frame("book", bids=bids, asks=asks, at=1_763_632_800_123))
    assert isinstance(snapshot, Snapshot)
    assert (snapshot.instrument, snapshot.at_ms) == (ONE, 1_763_632_800_123)
    book = Book()
    book.replace(snapshot.bids, snapshot.asks, snapshot.shape, snapshot.levels_asked)
    assert book.top(9) == ([("100.5", "1"), ("99", "2")], [("101", "3")])
    assert book.horizon() == ("99", "101")


def test_what_cannot_be_trusted_is_a_gap_and_a_refusal_is_of_one_book():
    connector = CcxtConnector([ONE, TWO])
    assert connector.received(frame("lost", words="NonceError")) == (Gap(ONE, "NonceError"),)
    assert connector.received(frame("refused", words="BadSymbol")) == (
        BookRefused(ONE, "BadSymbol"),
    )
    nameless = b'{"type":"unnamed","words":"BadRequest"}'
    assert connector.received(nameless) == (Unnamed("BadRequest"),)
    assert connector.received(b'{"type":"open"}') == (Ignored(known=True),)


@pytest.mark.parametrize(
    "broken",
    [b"", b"[]", b"{}", b'{"type":"book"}', b'{"type":"other","native":"btc_twd"}', b"\xff"],
)
def test_anything_else_is_a_protocol_error(broken):
    connector = CcxtConnector([ONE])
    with pytest.raises(ProtocolError):
        connector.reader()(broken)
    with pytest.raises(ProtocolError):
        connector.fetched(ONE, b"{}")


def test_the_depth_is_the_operators():
    settings = CcxtSettings(depth=7)
    exchange = exchange_of("bitopro", "BitoPro", settings)
    assert (exchange.via, exchange.depth, exchange.limits.topics) == ("ccxt", 7, BOOKS_MAX)
    assert (exchange.quiet_max_s, exchange.silence_max_s) == (QUIET_MAX_S, QUIET_MAX_S)
    assert exchange.snapshot_s == SNAPSHOT_S


def test_the_list_has_sound_names_alone_and_is_bounded():
    rows = [
        {"native": "btc_twd", "symbol": "BTC/TWD", "base": "BTC", "quote": "TWD", "tick": "1"},
        {"native": "x", "symbol": "A/B/C", "base": "A/B", "quote": "C"},
        {"native": "ev\u202eil", "symbol": "EVIL/TWD", "base": "EVIL", "quote": "TWD"},
        {"native": "half"},
    ]
    body = msgspec.json.encode(rows)
    found = parse_instruments("bitopro", body)
    assert [(each.symbol, each.native, each.tick, each.via) for each in found] == [
        ("BTC/TWD", "btc_twd", "1", "ccxt")
    ]
    assert found[0].status is InstrumentStatus.TRADING
    assert found.refused == 1
    with pytest.raises(ProtocolError, match="4 rows"):
        parse_instruments("bitopro", body, rows_max=3)
