"""Conversations with Hyperliquid: its messages and our answers."""

import json
from typing import Any

import pytest

from exchanges.sent import Sent
from onebook.core import Book
from onebook.exchanges.hyperliquid import EXCHANGE
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    BookRefused,
    Connector,
    Ignored,
    ProtocolError,
    SlowDown,
    Snapshot,
    TopOfBook,
    Unnamed,
)
from onebook.model import Instrument
from onebook.simulator.kit import Dropped
from simulator.pure import Desk

HYPE = Instrument("hyperliquid", "HYPE/USDC", "@107")
PURR = Instrument("hyperliquid", "PURR/USDC", "PURR/USDC")

# Messages of other channels, as they were recorded, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"channel":"pong"}',
    b'{"channel":"subscriptionResponse","data":{"method":"unsubscribe","subscription":'
    b'{"type":"l2Book","coin":"BTC","nSigFigs":5,"mantissa":null,"fast":false}}}',
    b'{"channel":"error","data":"Already unsubscribed: {\\"type\\":\\"l2Book\\",'
    b'\\"coin\\":\\"BTC\\",\\"nSigFigs\\":null,\\"mantissa\\":null,\\"fast\\":false}"}',
    b"Websocket connection established.",
    b"{}",
)

# Recorded of a perpetual, here of another coin.
BOOK = (
    b'{"channel":"l2Book","data":{"coin":"@107","time":1790232236546,"levels":[[{"px":"84143.0",'
    b'"sz":"10.25923","n":36},{"px":"84142.0","sz":"1.65875","n":7}],[{"px":"84144.0",'
    b'"sz":"50.66449","n":18},{"px":"84150.0","sz":"0.00711","n":2}]]}}'
)
REPEATED = (
    b'{"channel":"error","data":"Already subscribed: {\\"type\\":\\"l2Book\\",'
    b'\\"coin\\":\\"@107\\",\\"nSigFigs\\":null,\\"mantissa\\":null,\\"fast\\":true}"}'
)


def damaged(frame: bytes) -> bytes:
    """Damage the time: both sides of a book are in one member."""
    return frame.replace(b'"time":', b'"at":')


def asked(method: str, coin: str, *, fast: str = "true") -> Sent:
    subscription = f'{{"type":"l2Book","coin":"{coin}","fast":{fast}}}'
    return Sent(f'{{"method":"{method}","subscription":{subscription}}}'.encode())


def best(method: str, coin: str) -> Sent:
    return Sent(f'{{"method":"{method}","subscription":{{"type":"bbo","coin":"{coin}"}}}}'.encode())


def accepted(coin: str) -> bytes:
    subscription = {"type": "l2Book", "coin": coin, "nSigFigs": None, "mantissa": None}
    data = {"method": "subscribe", "subscription": subscription | {"fast": True}}
    return json.dumps({"channel": "subscriptionResponse", "data": data}).encode()


def error(words: str) -> bytes:
    return json.dumps({"channel": "error", "data": words}).encode()


def opened() -> Connector:
    connector = EXCHANGE.connector([HYPE, PURR])
    connector.opened()
    return connector


def test_each_book_is_asked_for_alone_and_the_echo_accepts_it() -> None:
    connector = EXCHANGE.connector([HYPE, PURR])
    assert connector.opened() == (
        asked("subscribe", "@107"),
        asked("subscribe", "PURR/USDC"),
        best("subscribe", "@107"),
        best("subscribe", "PURR/USDC"),
    )
    assert connector.received(accepted("PURR/USDC")) == (Acknowledged(PURR),)
    assert connector.received(accepted("PURR/USDC")) == EXPECTED


def test_the_greeting_is_no_damaged_frame() -> None:
    (greeting,) = Desk("hyperliquid").greeting
    assert opened().received(greeting.encode()) == EXPECTED


def test_the_slow_channel_is_another_subscription_of_the_same_frames() -> None:
    slow = EXCHANGE.channels["slow"]
    connector = slow.connector([HYPE])
    assert connector.opened() == (asked("subscribe", "@107", fast="false"),)
    assert connector.remove([HYPE]) == (asked("unsubscribe", "@107", fast="false"),)
    assert (EXCHANGE.depth, slow.depth) == (5, 20)


def test_each_frame_replaces_the_book() -> None:
    connector = opened()
    (snapshot,) = connector.received(BOOK)
    assert isinstance(snapshot, Snapshot)
    assert (snapshot.at_ms, snapshot.levels_asked) == (1_790_232_236_546, 0)
    book = Book(5)
    book.replace(snapshot.bids, snapshot.asks, snapshot.shape)
    assert book.top(9) == (
        [("84143", "10.25923"), ("84142", "1.65875")],
        [("84144", "50.66449"), ("84150", "0.00711")],
    )
    delisted = b'{"channel":"l2Book","data":{"coin":"PURR/USDC","time":5,"levels":[[],[]]}}'
    (empty,) = connector.received(delisted)
    assert isinstance(empty, Snapshot)
    assert bytes(empty.bids) == bytes(empty.asks) == b"[]"


def test_resync_unsubscribes_and_subscribes() -> None:
    assert opened().resync([HYPE]) == (
        asked("unsubscribe", "@107"),
        best("unsubscribe", "@107"),
        asked("subscribe", "@107"),
        best("subscribe", "@107"),
    )


def test_an_error_is_about_the_coin_that_it_names() -> None:
    assert opened().received(REPEATED) == (Acknowledged(HYPE),)
    parsing = "Error parsing JSON into valid websocket request: "
    named = parsing + asked("subscribe", "PURR/USDC").frame.decode()
    (out,) = opened().received(error(named))
    assert isinstance(out, BookRefused)
    assert out.instrument is PURR
    assert opened().received(error(parsing + "hello")) == (Unnamed(parsing + "hello"),)
    assert opened().received(b'{"channel":"error"}') == (Unnamed("None"),)


def test_a_rate_limit_repeats_the_best_prices_that_were_not_accepted() -> None:
    """The error names no coin."""
    connector = opened()
    answer = '{"method":"subscribe","subscription":{"type":"bbo","coin":"@107"}}'
    connector.received(f'{{"channel":"subscriptionResponse","data":{answer}}}'.encode())
    too_many = error("Too many requests")
    slow = SlowDown("Too many requests")
    assert connector.received(too_many) == (slow, best("subscribe", "PURR/USDC"))
    connector.remove([PURR])
    assert connector.received(too_many) == (slow, best("unsubscribe", "PURR/USDC"))


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (damaged(BOOK), HYPE),
        (b'{"channel":"l2Book","data":{"coin":"@107","time":5,"levels":[[]]}}', HYPE),
        (b'{"channel":"l2Book","data":{"coin":"@107","time":5,"levels":null}}', HYPE),
        (BOOK.replace(b'"@107"', b"107"), None),
        (BOOK[:-3], None),
    ],
    ids=["time", "one_side", "levels", "coin", "end"],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        opened().received(frame)
    assert caught.value.instrument is instrument


def token(index: int, name: str, decimals: int = 2) -> dict[str, Any]:
    """A frame printed by ccxt."""
    row = {"name": name, "szDecimals": decimals, "weiDecimals": 8, "index": index}
    return row | {"tokenId": "0x6d1e7cde53ba9467b783cb7c530ce054", "isCanonical": True}


def test_pairs_are_named_by_their_coins() -> None:
    tokens = [token(0, "USDC", 8), token(1, "PURR", 0), token(197, "UBTC", 5), token(268, "USDT0")]
    universe = [
        {"name": "PURR/USDC", "tokens": [1, 0], "index": 0, "isCanonical": True},
        {"name": "@142", "tokens": [197, 0], "index": 142, "isCanonical": False},
        {"name": "@166", "tokens": [268, 0], "index": 166, "isCanonical": False},
        {"name": "@7", "tokens": [7, 0], "index": 7},
        {"name": "@8", "tokens": [1], "index": 8},
    ]
    meta = {"universe": [*universe, None, 5], "tokens": [*tokens, None, {"name": "ODD"}]}
    found = EXCHANGE.parse_instruments(json.dumps(meta).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("PURR/USDC", "PURR/USDC", "0.00000001", "1"),
        ("BTC/USDC", "@142", "0.001", "0.00001"),
        ("USDT/USDC", "@166", "0.000001", "0.01"),
    ]
    assert found[1].codes == "UBTC/USDC"


@pytest.mark.derivatives
def test_rows_of_derivatives_are_no_instruments() -> None:
    perpetual = {"szDecimals": 5, "name": "BTC", "maxLeverage": 40, "marginTableId": 56}
    meta = {"universe": [perpetual], "tokens": [token(0, "USDC")], "marginTables": []}
    assert EXCHANGE.parse_instruments(json.dumps(meta).encode()) == []


def test_the_simulator_refuses_what_hyperliquid_refuses() -> None:
    desk = Desk("hyperliquid")
    wanted = {"type": "l2Book", "coin": "@151", "fast": True}
    request = {"method": "subscribe", "subscription": wanted}
    echo, book = desk.say(request)
    assert echo["data"]["subscription"] == wanted | {"nSigFigs": None, "mantissa": None}
    assert [len(side) for side in book["data"]["levels"]] == [5, 5]
    assert desk.say(request)[0]["data"].startswith("Already subscribed: ")
    _, slow = desk.say(request | {"subscription": wanted | {"fast": False}})
    assert [len(side) for side in slow["data"]["levels"]] == [20, 20]
    (several,) = desk.say(request | {"subscription": wanted | {"coin": ["@151", "@156"]}})
    assert several["data"].startswith("Error parsing JSON into valid websocket request: ")
    assert desk.say("hello")[0]["channel"] == "error"
    with pytest.raises(Dropped):
        desk.say(request | {"subscription": wanted | {"coin": "@9"}})
    assert desk.dialect.get("/info", {"type": "nope"}, desk.now).status == 422  # type: ignore[union-attr]


# Recorded of a perpetual, here of another coin.
BEST = (
    b'{"channel":"bbo","data":{"coin":"@107","time":1790232237145,"bbo":[{"px":"84143.0",'
    b'"sz":"10.25923","n":36},{"px":"84144.0","sz":"50.66422","n":18}]}}'
)


def test_best_prices_are_numbered_by_the_time_of_the_block_as_books_are() -> None:
    top = opened().reader()(BEST)
    assert isinstance(top, TopOfBook)
    assert (top.instrument, top.sequence, top.at) == (HYPE, 1790232237145, 1790232237145)
    assert top.bids == b'[{"px":"84143.0","sz":"10.25923","n":36}]'
    book = Book()
    assert book.overlay(top.bids, top.asks, top.shape) is None
    (snapshot,) = opened().received(BOOK)
    assert isinstance(snapshot, Snapshot)
    assert snapshot.sequence == 1790232236546


def test_an_empty_side_is_null() -> None:
    empty = BEST.replace(b'{"px":"84143.0","sz":"10.25923","n":36}', b"null")
    top = opened().reader()(empty)
    assert isinstance(top, TopOfBook)
    assert top.bids == b"[]"


def test_answers_about_best_prices_decide_nothing_of_a_book() -> None:
    echo = b'{"channel":"subscriptionResponse","data":{"method":"subscribe","subscription":'
    assert opened().received(echo + b'{"type":"bbo","coin":"@107"}}}') == EXPECTED
    words = 'Already subscribed: {"type":"bbo","coin":"@107"}'
    assert opened().received(error(words)) == (Ignored(known=True, refused=words),)
