"""Books with quiet streams: seeded and checked by REST, and dead if only REST moves."""

import json
from typing import Any

from contract.test_liveness import World
from onebook.exchanges.bitstamp import EXCHANGE
from onebook.exchanges.kit.contract import Connector, Fetch, Snapshot, StreamPosition
from onebook.feeds.limits import LIMITS
from onebook.feeds.reseeding import RETRY_S
from onebook.model import Health, Instrument, Reason

BTC = Instrument("bitstamp", "BTC/USD", "btcusd")
FETCH = Fetch(BTC, "/api/v2/order_book/btcusd/?group=1")
SPARE = Fetch(BTC, "/api/v2/order_book/btcusd/?group=1", spare=True)
QUIET_S = EXCHANGE.snapshot_s


def levels(at: int, amount: str = "1") -> dict[str, Any]:
    sides = {"bids": [["100", amount]], "asks": [["101", "1"]]}
    return {"timestamp": "1", "microtimestamp": str(1_583_656_800_000_000 + at)} | sides


def body(at: int, amount: str = "1") -> bytes:
    return json.dumps(levels(at, amount)).encode()


def frame(at: int, amount: str = "1") -> bytes:
    message = {"event": "data", "channel": "order_book_btcusd", "data": levels(at, amount)}
    return json.dumps(message).encode()


def acknowledged() -> Connector:
    connector = EXCHANGE.connector([BTC])
    connector.opened()
    connector.received(
        b'{"event":"bts:subscription_succeeded","channel":"order_book_btcusd","data":{}}'
    )
    return connector


def bids(outputs: Any) -> list[bytes]:
    assert all(isinstance(out, Snapshot) for out in outputs)
    return [bytes(out.bids) for out in outputs]


# The connector.


def test_a_frame_after_the_request_is_newer_than_the_body_whatever_its_time() -> None:
    connector = acknowledged()
    assert connector.resync([BTC]) == (FETCH,)
    assert bids(connector.received(frame(5, "2"))) == [b'[["100", "2"]]']
    assert connector.fetched(BTC, body(9)) == ()
    assert connector.position(BTC) is StreamPosition.CURRENT


def test_a_body_that_is_older_than_the_last_frame_is_dropped() -> None:
    connector = acknowledged()
    connector.received(frame(5, "2"))
    assert connector.reseed(BTC) == (SPARE,)
    assert connector.fetched(BTC, body(4)) == ()
    assert connector.reseed(BTC) == (SPARE,)
    connector.abandon(BTC)
    assert connector.fetched(BTC, body(6)) == (), "it is not expected any more"


def test_a_body_with_another_book_must_be_followed_by_a_frame() -> None:
    connector = acknowledged()
    connector.resync([BTC])
    assert len(bids(connector.fetched(BTC, body(1)))) == 1
    assert connector.position(BTC) is StreamPosition.UNPROVEN
    connector.reseed(BTC)
    assert len(bids(connector.fetched(BTC, body(2, "1.00")))) == 1
    assert connector.position(BTC) is StreamPosition.UNPROVEN, "the same book, written longer"
    connector.reseed(BTC)
    assert bids(connector.fetched(BTC, body(3, "7"))) == [b'[["100", "7"]]']
    assert connector.position(BTC) is StreamPosition.BEHIND
    connector.received(frame(4, "7"))
    assert connector.position(BTC) is StreamPosition.CURRENT


def test_what_is_not_on_the_connection_is_neither_asked_for_nor_compared() -> None:
    connector, other = acknowledged(), Instrument("bitstamp", "A/B", "ab")
    assert connector.reseed(other) == connector.invalidate(other) == ()
    assert connector.position(other) is StreamPosition.CURRENT
    connector.abandon(other)
    assert connector.fetched(other, body(1)) == ()


# With a session and the simulated exchange.


def started(*, quiet: bool = True) -> World:
    world = World("bitstamp", count=1)
    world.frozen = quiet
    world.run(1)
    return world


def test_a_book_without_a_change_is_shown_from_rest() -> None:
    world = started()
    world.run(QUIET_S - 2)
    assert world.health() == {(Health.SYNCING, Reason.SUBSCRIBING)}
    world.run(3)
    assert world.live()
    (instrument,) = world.instruments
    book = world.books.get(instrument)
    assert book is not None
    found, _ = book.core.top(200)
    assert len(found) == len(world.venue.sides(instrument.native)[0])
    world.run(700)
    assert world.live(), "REST says for minutes that nothing has changed"
    assert world.stats.invalidations == {Reason.NO_SNAPSHOT: 1}
    assert world.ends == []


def test_a_stream_that_brings_nothing_while_rest_moves_is_dead() -> None:
    world = started()
    world.run(QUIET_S + 1)
    assert world.live()
    (instrument,) = world.instruments
    world.venue.changed(instrument.native)
    world.run(LIMITS.probe_first_s + LIMITS.dead_stream_s + RETRY_S)
    assert world.stats.invalidations[Reason.DEAD_STREAM] == 1
    assert not world.shown()
    assert world.ends == []
    world.frozen = False
    world.run(2)
    assert world.live()
