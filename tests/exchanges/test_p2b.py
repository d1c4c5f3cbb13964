"""Conversations with P2B: its messages and our answers; one connection per market."""

import asyncio
import json
from typing import Any

import pytest

from exchanges.sent import Sent
from feeds.toy import limited
from onebook.books import Books
from onebook.config import FeedSettings
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    BookRefused,
    Connector,
    Delta,
    Limit,
    ProtocolError,
    Scope,
    SlowDown,
    Snapshot,
    Unnamed,
)
from onebook.exchanges.p2b import EXCHANGE
from onebook.feeds import Catalogue, Supervisor
from onebook.model import Health, Instrument, InstrumentStatus
from onebook.rest import Rest
from onebook.simulator import SimulatedExchanges

BTC = Instrument("p2b", "BTC/USDT", "BTC_USDT")

REQUESTS_REPLACE = True  # a connection has one market

# Why no test feeds it derivative rows.
NO_DERIVATIVES = "P2B lists no derivatives"

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"error": null, "result": "pong", "id": 0}',
    b'{"error": null, "result": {"status": "success"}, "id": 99}',
    b'{"method": "price.update", "params": ["BTC_USDT", "19639.94"], "id": null}',
    b'{"method": "deals.update", "params": ["BTC_USDT", [{"id": 1, "price": "2"}]], "id": null}',
    b"{}",
)


def book(full: Any, market: str = "BTC_USDT", **sides: object) -> bytes:
    sides = sides or {"asks": [["19509.81", "0.277"]], "bids": [["19509.8", "1"]]}
    return json.dumps({"method": "depth.update", "params": [full, sides, market]}).encode()


def failed(code: int, message: str, number: int | None) -> bytes:
    error = {"code": code, "message": message}
    return json.dumps({"error": error, "result": None, "id": number}).encode()


def success(number: int) -> bytes:
    return b'{"error": null, "result": {"status": "success"}, "id": %d}' % number


def asked(number: int) -> Sent:
    params = '["BTC_USDT",100,"0"]'
    return Sent(f'{{"method":"depth.subscribe","params":{params},"id":{number}}}'.encode())


def opened() -> Connector:
    connector = EXCHANGE.connector([BTC])
    connector.opened()
    return connector


def live() -> Connector:
    connector = opened()
    connector.received(success(1))
    connector.received(book(True))
    return connector


def kinds(outputs: Any) -> list[type]:
    return [type(output) for output in outputs]


def test_a_connection_is_asked_for_one_market() -> None:
    assert EXCHANGE.limits.topics == 1
    connector = EXCHANGE.connector([BTC])
    assert connector.opened() == (asked(1),)
    assert connector.received(success(1)) == (Acknowledged(BTC),)
    assert connector.received(success(1)) == EXPECTED


def test_a_full_book_replaces_whenever_it_comes_and_changes_follow() -> None:
    connector = opened()
    assert connector.received(book(False)) == (), "before the full book"
    assert kinds(connector.received(book(True))) == [Snapshot]
    assert kinds(connector.received(book(False))) == [Delta]
    assert kinds(connector.received(book(True))) == [Snapshot]


def test_a_side_that_did_not_change_is_absent() -> None:
    (delta,) = live().received(book(False, asks=[["2", "0"]]))
    assert isinstance(delta, Delta)
    assert (bytes(delta.bids), bytes(delta.asks), delta.at_ms) == (b"[]", b'[["2", "0"]]', 0)


def test_a_resync_subscribes_again_which_replaces() -> None:
    connector = live()
    assert connector.resync([BTC]) == (asked(2),)
    assert connector.received(book(False)) == ()
    assert connector.received(success(2)) == (Acknowledged(BTC),)
    assert kinds(connector.received(book(True))) == [Snapshot]
    assert connector.remove([BTC]) == (), "its connection ends instead"


def test_an_error_refuses_the_market_of_its_request() -> None:
    assert opened().received(failed(1, "invalid argument", 1)) == (
        BookRefused(BTC, "invalid argument"),
    )
    assert live().received(failed(7, "invalid format", None)) == (Unnamed("invalid format"),)
    assert opened().received(failed(1, "too many requests", 1)) == (SlowDown("too many requests"),)


def test_our_ping_comes_well_before_the_sixty_seconds() -> None:
    assert EXCHANGE.heartbeat is not None
    assert json.loads(EXCHANGE.heartbeat.frame)["method"] == "server.ping"
    assert EXCHANGE.heartbeat.every_s <= 30.0
    assert live().received(UNKNOWN_FRAMES[0]) == EXPECTED, "it proves a socket and no data"


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (book(1), BTC),
        (book(True, sides=[]), BTC),
        (book(True, "XRP_USDT"), None),
        (b'{"method": "depth.update", "params": [true, {}]}', None),
        (book(True)[:-5], None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        live().received(frame)
    assert caught.value.instrument is instrument


ROW = {"name": "ETH_BTC", "stock": "ETH", "money": "BTC"} | {
    "limits": {"step_size": "0.0001", "tick_size": "0.00001", "max_price": "0"}
}


def listed(*rows: object) -> list[Instrument]:
    return EXCHANGE.parse_instruments(json.dumps({"success": True, "result": rows}).encode())


def test_instruments_are_read_row_by_row() -> None:
    unlimited = {"limits": {"step_size": "0", "tick_size": "0.0"}}
    found = listed(ROW, ROW | {"name": "A_BTC"} | unlimited, ROW | {"name": 5}, {}, None)
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("ETH/BTC", "ETH_BTC", "0.00001", "0.0001"),
        ("ETH/BTC", "A_BTC", "", ""),
    ]
    assert {one.status for one in found} == {InstrumentStatus.TRADING}


def test_a_row_without_both_currencies_is_no_pair() -> None:
    """P2B lists no derivatives; rows that are not pairs of two currencies are skipped."""
    assert listed(ROW | {"money": ""}, {"name": "BTC_PERP", "contract": True}) == []


async def test_every_market_gets_a_connection_of_its_own() -> None:
    settings = FeedSettings()
    async with SimulatedExchanges(["p2b"], seed=3, rate_hz=0) as simulated, Rest() as rest:
        at_once = (Limit(6_000, 60.0, Scope.ADDRESS),)
        exchanges = {"p2b": limited(simulated.exchanges()["p2b"], connects=at_once)}
        books, changed = Books(), asyncio.Event()
        books.subscribe(on_changed=lambda book: changed.set())
        books.subscribe(on_health=lambda book, previous: changed.set())
        async with (
            Catalogue(exchanges, rest=rest, settings=settings) as catalogue,
            Supervisor(
                exchanges, books=books, rest=rest, catalogue=catalogue, settings=settings
            ) as supervisor,
        ):
            assert await catalogue.first_read()
            symbols = catalogue.pairs("p2b")
            for symbol in symbols:
                instrument = catalogue.instrument("p2b", symbol)
                assert instrument is not None
                supervisor.acquire(instrument)

            def equal() -> bool:
                return all(
                    book.health is Health.LIVE
                    and tuple(map(dict, book.core.top(100)))
                    == tuple(simulated["p2b"].book(book.instrument.symbol))
                    for book in books
                )

            async with asyncio.timeout(30):
                for _ in range(3):
                    while not equal():
                        changed.clear()
                        await changed.wait()
                    simulated.step()
            assert simulated["p2b"].clients == len(symbols) == 5
