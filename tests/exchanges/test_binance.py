"""Conversations with Binance: its messages and our answers."""

import json
import re
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from core.both import EACH
from exchanges.sent import Sent
from onebook.exchanges.binance import BOOKS, EXCHANGE, INSTRUMENTS, SEED_PATH
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    BookRefused,
    Closing,
    Delta,
    Fetch,
    Gap,
    Ignored,
    Output,
    ProtocolError,
    SeededEngine,
    Send,
    Snapshot,
    StreamPosition,
    TopOfBook,
    Unnamed,
    join_by_rest,
)
from onebook.exchanges.kit.sync import FETCHES_MAX, HELD_MAX
from onebook.model import Instrument, InstrumentStatus

BTC = Instrument("binance", "BTC/USDT", "BTCUSDT")
ETH = Instrument("binance", "ETH/USDT", "ETHUSDT")
FETCH_BTC = Fetch(BTC, "/api/v3/depth?symbol=BTCUSDT&limit=1000", 50)
SPARE_BTC = replace(FETCH_BTC, spare=True)
ACK = b'{"result":null,"id":1}'


# Messages of other channels, and what changes no book.
def damaged(frame: bytes) -> bytes:
    """A frame without levels, or a binary one without a first id; both still name the book."""
    if frame.startswith(b"{"):
        return re.sub(rb'"[ab]":', b'"gone":', frame)
    return frame[:16] + bytes(8) + frame[24:]


UNKNOWN_FRAMES = (
    b'{"stream":"btcusdt@trade","data":{"e":"trade","s":"BTCUSDT","p":"1","q":"2"}}',
    b'{"stream":"!ticker@arr","data":[{"e":"24hrTicker","s":"BTCUSDT"}]}',
    b'{"result":["btcusdt@depth@100ms"],"id":99}',
    b"{}",
)


def event(first: int, final: int, native: str = "BTCUSDT", *, at: int = 1) -> bytes:
    data = {"e": "depthUpdate", "E": at, "s": native, "U": first, "u": final}
    data |= {"b": [["1.0", f"{final}"]], "a": []}
    return json.dumps({"stream": f"{native.lower()}@depth@100ms", "data": data}).encode()


def body(sequence: int) -> bytes:
    return json.dumps({"lastUpdateId": sequence, "bids": [["1.0", "9"]], "asks": []}).encode()


def seeded(levels: int) -> SeededEngine:
    return SeededEngine(replace(BOOKS, track=join_by_rest(SEED_PATH, levels)), [BTC])


def acknowledged(*instruments: Instrument) -> SeededEngine:
    connector = SeededEngine(BOOKS, instruments or (BTC,))
    connector.opened()
    connector.received(ACK)
    return connector


def joined(sequence: int = 100) -> SeededEngine:
    connector = acknowledged()
    connector.fetched(BTC, body(sequence))
    return connector


def summary(outputs: tuple[Output, ...]) -> list[object]:
    """Outputs in short form: the kind, and for deltas the amount, which is `u` here."""
    return [
        bytes(output.bids).decode().split('"')[3] if isinstance(output, Delta) else type(output)
        for output in outputs
    ]


def test_subscribes_many_in_one_frame_and_no_more_than_100() -> None:
    instruments = [Instrument("binance", f"C{rank}/USDT", f"C{rank}USDT") for rank in range(401)]
    frames = [
        json.loads(out.frame)
        for out in SeededEngine(BOOKS, instruments).opened()
        if type(out) is Send
    ]
    assert [len(frame["params"]) for frame in frames] == [200] * 4 + [2]
    assert [frame["id"] for frame in frames] == [1, 2, 3, 4, 5]
    assert frames[0]["method"] == "SUBSCRIBE"
    assert frames[0]["params"][:2] == ["c0usdt@depth@100ms", "c0usdt@bookTicker"]


def test_the_body_is_asked_for_when_the_stream_is_confirmed() -> None:
    connector = SeededEngine(BOOKS, [BTC])
    (asked,) = connector.opened()
    assert asked == Sent(
        b'{"method":"SUBSCRIBE","params":["btcusdt@depth@100ms","btcusdt@bookTicker"],"id":1}'
    )
    assert connector.received(ACK) == (Acknowledged(BTC), FETCH_BTC)
    assert connector.received(ACK) == EXPECTED, "an answer counts once"


def test_a_native_of_any_script_is_quoted_in_the_path() -> None:
    coin = Instrument("binance", "币安/USDT", "币安USDT")
    connector = SeededEngine(BOOKS, [coin])
    connector.opened()
    _, fetch = connector.received(ACK)
    assert fetch == Fetch(coin, "/api/v3/depth?symbol=%E5%B8%81%E5%AE%89USDT&limit=1000", 50)


def test_deltas_are_held_until_the_body_and_those_it_contains_are_dropped() -> None:
    connector = acknowledged()
    for first, final in ((90, 95), (96, 100), (101, 105), (106, 106)):
        assert connector.received(event(first, final)) == ()
    assert summary(connector.fetched(BTC, body(102))) == [Snapshot, "105", "106"]
    assert summary(connector.received(event(107, 109))) == ["109"]
    assert connector.fetched(BTC, body(200)) == (), "a late answer changes nothing"


def test_the_time_of_an_event_stays_with_it_while_it_is_held() -> None:
    connector = acknowledged()
    times = (1_672_515_782_136, 1_672_515_782_236)
    for sequence, at in zip((101, 102), times, strict=True):
        assert connector.received(event(sequence, sequence, at=at)) == ()
    snapshot, *held = connector.fetched(BTC, body(100))
    (last,) = connector.received(event(103, 103, at=1_672_515_782_336))
    assert [out.at_ms for out in (snapshot, *held, last)] == [0, *times, 1_672_515_782_336]


def test_a_body_that_ends_where_the_first_held_delta_starts_joins() -> None:
    connector = acknowledged()
    connector.received(event(101, 105))
    assert summary(connector.fetched(BTC, body(100))) == [Snapshot, "105"]


def test_a_held_delta_that_ends_where_the_body_does_is_contained_in_it() -> None:
    connector = acknowledged()
    for first, final in ((96, 100), (101, 105)):
        connector.received(event(first, final))
    assert summary(connector.fetched(BTC, body(100))) == [Snapshot, "105"]


def test_a_body_newer_than_all_that_is_held_stands_alone() -> None:
    connector = acknowledged()
    connector.received(event(101, 105))
    assert summary(connector.fetched(BTC, body(110))) == [Snapshot]
    assert connector.received(event(106, 108)) == ()
    assert summary(connector.received(event(109, 112))) == ["112"], "the first may overlap the body"


def test_only_the_first_delta_after_the_body_may_overlap() -> None:
    connector = joined(100)
    assert summary(connector.received(event(99, 103))) == ["103"]
    assert summary(connector.received(event(103, 104))) == [Gap]


def test_a_body_older_than_the_deltas_is_fetched_again_then_given_up() -> None:
    connector = acknowledged()
    connector.received(event(101, 105))
    for _ in range(FETCHES_MAX - 1):
        assert connector.fetched(BTC, body(99)) == (FETCH_BTC,)
    (gap,) = connector.fetched(BTC, body(99))
    assert isinstance(gap, Gap)
    assert connector.resync([BTC]) == (FETCH_BTC,)
    assert summary(connector.fetched(BTC, body(100))) == [Snapshot, "105"]


def test_a_missing_number_is_a_gap_and_what_showed_it_is_held() -> None:
    connector = joined(100)
    assert summary(connector.received(event(101, 103))) == ["103"]
    (gap,) = connector.received(event(105, 106))
    assert gap == Gap(BTC, "the book is at 103, the delta starts at 105")
    assert connector.resync([BTC]) == (FETCH_BTC,)
    assert connector.fetched(BTC, body(103)) == (FETCH_BTC,), "104 is still missing"
    assert summary(connector.fetched(BTC, body(104))) == [Snapshot, "106"]


def test_a_delta_sent_before_is_ignored() -> None:
    connector = joined(100)
    connector.received(event(101, 103))
    assert connector.received(event(101, 103)) == ()
    assert connector.received(event(90, 95)) == ()


def test_a_hole_among_the_held_deltas_drops_what_lies_before_it() -> None:
    connector = acknowledged()
    for first, final in ((101, 102), (101, 102), (105, 106), (107, 108)):
        connector.received(event(first, final))
    assert connector.fetched(BTC, body(101)) == (FETCH_BTC,)
    assert summary(connector.fetched(BTC, body(104))) == [Snapshot, "106", "108"]


def test_held_deltas_have_a_bound_and_the_oldest_go() -> None:
    connector = acknowledged()
    for sequence in range(1, HELD_MAX + 11):
        connector.received(event(sequence, sequence))
    assert connector.fetched(BTC, body(9)) == (FETCH_BTC,)
    assert len(connector.fetched(BTC, body(10))) == HELD_MAX + 1


def test_a_resync_of_a_live_book_refuses_a_body_older_than_the_book_was() -> None:
    connector = joined(100)
    connector.received(event(101, 105))
    assert connector.resync([BTC]) == (FETCH_BTC,)
    assert connector.fetched(BTC, body(104)) == (FETCH_BTC,)
    assert summary(connector.fetched(BTC, body(105))) == [Snapshot]


def test_a_resync_before_the_confirmation_asks_for_the_stream_again() -> None:
    connector = SeededEngine(BOOKS, [BTC])
    connector.opened()
    (asked,) = connector.resync([BTC])
    assert asked == Sent(
        b'{"method":"SUBSCRIBE","params":["btcusdt@depth@100ms","btcusdt@bookTicker"],"id":2}'
    )
    assert connector.received(b'{"result":null,"id":2}') == (Acknowledged(BTC), FETCH_BTC)
    assert connector.received(ACK) == EXPECTED, "the book is on its way already"


def test_a_body_says_how_many_levels_were_asked_for() -> None:
    (snapshot,) = acknowledged().fetched(BTC, body(100))
    assert isinstance(snapshot, Snapshot)
    assert snapshot.levels_asked == 1_000


# Seeding a live book again


def test_a_live_book_follows_its_stream_until_the_body_and_then_from_it() -> None:
    connector = joined(100)
    connector.received(event(101, 103))
    assert connector.reseed(BTC) == (SPARE_BTC,)
    for first, final in ((104, 105), (106, 107), (108, 108)):
        assert summary(connector.received(event(first, final))) == [str(final)]
    assert summary(connector.fetched(BTC, body(106))) == [Snapshot, "107", "108"]
    assert summary(connector.received(event(109, 110))) == ["110"]
    assert connector.fetched(BTC, body(200)) == (), "a late answer changes nothing"


def test_a_second_body_newer_than_the_stream_stands_alone_and_the_stream_catches_up() -> None:
    connector = joined(100)
    connector.received(event(101, 103))
    connector.reseed(BTC)
    assert connector.position(BTC) is StreamPosition.CURRENT
    assert summary(connector.fetched(BTC, body(107))) == [Snapshot]
    assert connector.position(BTC) is StreamPosition.BEHIND
    assert connector.received(event(104, 106)) == ()
    assert connector.position(BTC) is StreamPosition.BEHIND
    assert summary(connector.received(event(107, 108))) == ["108"], "the first may overlap the body"
    assert connector.position(BTC) is StreamPosition.CURRENT


def test_a_stream_that_ends_exactly_at_the_body_is_not_behind() -> None:
    connector = joined(100)
    connector.received(event(101, 103))
    connector.reseed(BTC)
    connector.fetched(BTC, body(105))
    assert connector.received(event(104, 105)) == ()
    assert connector.position(BTC) is StreamPosition.CURRENT


def test_a_second_body_older_than_the_book_is_asked_for_again_then_left_alone() -> None:
    connector = joined(100)
    connector.received(event(101, 105))
    connector.reseed(BTC)
    for _ in range(FETCHES_MAX - 1):
        assert connector.fetched(BTC, body(104)) == (SPARE_BTC,)
    assert connector.fetched(BTC, body(104)) == ()
    assert summary(connector.received(event(106, 107))) == ["107"], "the book has stayed"
    assert connector.fetched(BTC, body(107)) == ()


def test_a_gap_while_a_body_is_awaited_is_a_gap_and_the_body_seeds_the_book() -> None:
    connector = joined(100)
    connector.reseed(BTC)
    connector.received(event(101, 103))
    assert summary(connector.received(event(105, 106))) == [Gap]
    assert connector.resync([BTC]) == (FETCH_BTC,)
    assert summary(connector.fetched(BTC, body(104))) == [Snapshot, "106"]


def test_an_abandoned_body_changes_nothing_and_its_copies_are_dropped() -> None:
    connector = joined(100)
    connector.reseed(BTC)
    connector.received(event(101, 103))
    connector.abandon(BTC)
    assert connector.fetched(BTC, body(103)) == ()
    assert summary(connector.received(event(104, 104))) == ["104"]


def test_a_book_that_is_not_live_is_not_seeded_again() -> None:
    assert acknowledged().reseed(BTC) == ()
    assert joined().reseed(ETH) == ()


# A stream that delivers nothing


def test_a_stream_that_never_delivered_owes_what_a_second_body_shows() -> None:
    connector = joined(100)
    assert connector.position(BTC) is StreamPosition.UNPROVEN
    connector.reseed(BTC)
    connector.fetched(BTC, body(100))
    assert connector.position(BTC) is StreamPosition.UNPROVEN, "a quiet market moves nothing"
    connector.reseed(BTC)
    connector.fetched(BTC, body(105))
    assert connector.position(BTC) is StreamPosition.BEHIND


def test_deltas_that_came_before_the_first_body_prove_the_stream() -> None:
    connector = acknowledged()
    connector.received(event(90, 100))
    connector.fetched(BTC, body(100))
    assert connector.position(BTC) is StreamPosition.CURRENT
    connector = acknowledged()
    connector.received(event(90, 100))
    connector.fetched(BTC, body(104))
    assert connector.position(BTC) is StreamPosition.BEHIND


def test_a_resync_does_not_forget_how_far_the_stream_had_delivered() -> None:
    connector = joined(100)
    connector.received(event(101, 103))
    connector.resync([BTC])
    connector.fetched(BTC, body(109))
    assert connector.position(BTC) is StreamPosition.BEHIND


def test_a_dead_stream_is_left_and_subscribed_anew() -> None:
    connector = joined(100)
    (left,) = connector.invalidate(BTC)
    assert left == Sent(
        b'{"method":"UNSUBSCRIBE","params":["btcusdt@depth@100ms","btcusdt@bookTicker"],"id":2}'
    )
    assert connector.received(b'{"result":null,"id":2}') == EXPECTED
    (asked,) = connector.resync([BTC])
    assert asked == Sent(
        b'{"method":"SUBSCRIBE","params":["btcusdt@depth@100ms","btcusdt@bookTicker"],"id":3}'
    )
    assert connector.received(b'{"result":null,"id":3}') == (Acknowledged(BTC), FETCH_BTC)
    connector.fetched(BTC, body(120))
    assert connector.position(BTC) is StreamPosition.UNPROVEN


# Against full knowledge: random seeds, price walks and re-seeds

moves = st.tuples(st.just("move"), st.integers(-6, 6), st.integers(1, 3))
reads = st.tuples(st.just("read"), st.integers(1, 5), st.just(0))  # frames delivered
asks = st.tuples(st.just("reseed"), st.just(0), st.just(0))
bodies = st.tuples(st.just("body"), st.integers(0, 6), st.just(0))  # how old the answer is


class Exchange:
    """Every past state, so that a body may be arbitrarily old."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.mid = 1_000
        self.sides: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self.states = [(0, ({}, {}))]
        self.sequence = 0
        self.waiting: list[bytes] = []
        self.move(0, 40)

    def move(self, step: int, changes: int) -> None:
        self.mid += step
        changed: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for at, side in enumerate(self.sides):
            gone = [p for p in side if (p >= self.mid if at == 0 else p <= self.mid)]
            changed[at].update(dict.fromkeys(gone, 0))
        for _ in range(changes):
            distance, amount = self.random.randint(1, 30), self.random.randint(0, 3)
            at = self.random.randrange(2)
            changed[at][self.mid + (distance if at else -distance)] = amount
        for side, news in zip(self.sides, changed, strict=True):
            side.update(news)
            for price in [price for price, amount in side.items() if not amount]:
                del side[price]
        first = self.sequence + 1
        self.sequence += self.random.randint(1, 3)
        self.states.append((self.sequence, (dict(self.sides[0]), dict(self.sides[1]))))
        data = {"e": "depthUpdate", "s": "BTCUSDT", "U": first, "u": self.sequence}
        data |= {"b": rows_of(changed[0].items()), "a": rows_of(changed[1].items())}
        self.waiting.append(json.dumps({"stream": "x", "data": data}).encode())

    def body(self, age: int, levels: int) -> bytes:
        sequence, sides = self.states[max(0, len(self.states) - 1 - age)]
        bids, asks = (rows_of(best(sides, side)[:levels]) for side in (0, 1))
        return json.dumps({"lastUpdateId": sequence, "bids": bids, "asks": asks}).encode()


def best(sides: tuple[dict[int, int], ...], side: int) -> list[tuple[int, int]]:
    return sorted(sides[side].items(), reverse=not side)


def rows_of(levels: Iterable[tuple[int, int]]) -> list[list[str]]:
    return [[str(price), str(amount)] for price, amount in levels]


@pytest.mark.parametrize("core", EACH)
@given(
    script=st.lists(st.one_of(moves, moves, reads, reads, asks, bodies), max_size=60),
    levels=st.integers(1, 10),
    seed=st.integers(0, 2**32),
)
def test_what_a_live_book_shows_is_a_state_of_the_exchange_down_to_its_last_level(
    core: Any, script: list[tuple[str, int, int]], levels: int, seed: int
) -> None:
    exchange, book = Exchange(Random(seed)), core.Book()
    connector = seeded(levels)
    connector.opened()
    connector.received(ACK)
    tracker = connector._books.trackers["BTCUSDT"]
    live = False

    def carry(outputs: Iterable[Output]) -> None:
        nonlocal live
        for output in outputs:
            if isinstance(output, Snapshot):
                live = (
                    book.replace(output.bids, output.asks, output.shape, output.levels_asked)
                    is None
                )
            elif isinstance(output, Delta):
                assert live
                assert book.apply(output.bids, output.asks) is None
            else:
                assert isinstance(output, Fetch) or not live, "nothing is lost here"

    def check() -> None:
        if not live:
            return
        (true,) = [sides for at, sides in exchange.states if at == tracker.last]
        for side, shown in enumerate(book.top(99)):
            assert shown == [(str(p), str(a)) for p, a in best(true, side)[: len(shown)]]

    for action, count, changes in script:
        if action == "move":
            exchange.move(count, changes)
        elif action == "read":
            for frame in exchange.waiting[:count]:
                carry(connector.received(frame))
                check()
            del exchange.waiting[:count]
        elif action == "reseed":
            carry(connector.reseed(BTC))
        else:
            carry(connector.fetched(BTC, exchange.body(count, levels)))
        check()


def test_removing_unsubscribes_and_its_answer_says_nothing() -> None:
    connector = acknowledged(BTC, ETH)
    (asked,) = connector.remove([BTC])
    assert asked == Sent(
        b'{"method":"UNSUBSCRIBE","params":["btcusdt@depth@100ms","btcusdt@bookTicker"],"id":2}'
    )
    assert connector.received(b'{"result":null,"id":2}') == EXPECTED
    assert connector.received(event(1, 2)) == ()
    assert connector.fetched(BTC, body(1)) == ()
    assert summary(connector.fetched(ETH, body(1))) == [Snapshot]


@pytest.mark.parametrize(
    "frame",
    [
        b'{"code":2,"msg":"Invalid request: no such stream","id":1}',
        b'{"error":{"code":2,"msg":"Invalid request: no such stream"},"id":1}',
    ],
)
def test_an_error_refuses_what_its_request_asked_for_alone(frame: bytes) -> None:
    connector = SeededEngine(BOOKS, [BTC, ETH])
    connector.opened()
    reason = "Invalid request: no such stream"
    assert summary(connector.received(frame)) == [Send, Send]
    refused = connector.received(frame.replace(b'"id":1', b'"id":3'))
    assert refused == (BookRefused(ETH, reason),)
    assert connector.received(frame) == (Unnamed(reason),)


@pytest.mark.parametrize(
    "frame",
    [
        b'{"stream":"!serverShutdown","data":{"e":"serverShutdown","E":1}}',
        b'{"e":"serverShutdown","E":1}',
    ],
)
def test_an_announced_shutdown_is_passed_on(frame: bytes) -> None:
    (closing,) = joined().received(frame)
    assert isinstance(closing, Closing)


def test_a_bare_delta_is_of_the_symbol_that_it_names() -> None:
    """A frame in the form of `/ws` cannot be read, and invalidates only its own book."""
    bare = json.dumps(json.loads(event(101, 102))["data"]).encode()
    connector = acknowledged(BTC, ETH)
    with pytest.raises(ProtocolError, match=r"'BTCUSDT' is damaged: .*`data`") as caught:
        connector.received(bare)
    assert caught.value.instrument is BTC
    assert connector.received(b'{"e":"serverShutdown","E":1}') == (
        Closing("the exchange announced a shutdown of this server"),
    )


def test_a_delta_without_a_symbol_is_not_said_to_be_of_none() -> None:
    with pytest.raises(ProtocolError, match="of an unnamed book") as caught:
        acknowledged().received(event(101, 102).replace(b'"s"', b'"S"'))
    assert caught.value.instrument is None


def test_a_damaged_delta_names_its_instrument() -> None:
    with pytest.raises(ProtocolError, match="BTCUSDT") as caught:
        joined().received(event(1, 2).replace(b'"b"', b'"x"'))
    assert caught.value.instrument is BTC


def test_a_number_beyond_64_bits_is_damage() -> None:
    with pytest.raises(ProtocolError) as caught:
        joined().received(event(101, 10**30))
    assert caught.value.instrument is BTC


@pytest.mark.parametrize("bad", [b"<html>", b"[]", b'{"lastUpdateId":"1","bids":[],"asks":[]}'])
def test_a_body_that_is_no_book_names_its_instrument(bad: bytes) -> None:
    with pytest.raises(ProtocolError, match="BTCUSDT") as caught:
        acknowledged().fetched(BTC, bad)
    assert caught.value.instrument is BTC


def test_instruments_are_read_row_by_row() -> None:
    filters = [
        {"filterType": "PRICE_FILTER", "tickSize": "0.01000000", "minPrice": "0.01"},
        {"filterType": "LOT_SIZE", "stepSize": "1.00000000"},
        {"filterType": "ICEBERG_PARTS", "limit": 10},
    ]
    row = {
        "symbol": "BTCUSDT",
        "status": "TRADING",
        "baseAsset": "BTC",
        "quoteAsset": "USDT",
        "isSpotTradingAllowed": True,
        "filters": filters,
    }
    rows = [
        row,
        row | {"symbol": "OLDUSDT", "baseAsset": "OLD", "status": "BREAK", "filters": []},
        row | {"symbol": "FUTURE", "isSpotTradingAllowed": False},
        row | {"baseAsset": None},
        row | {"baseAsset": ""},
        row | {"quoteAsset": "A/B"},
        {"symbol": "HALF"},
        7,
        None,
    ]
    found = EXCHANGE.parse_instruments(json.dumps({"symbols": rows, "timezone": "UTC"}).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USDT", "BTCUSDT", "0.01", "1"),
        ("OLD/USDT", "OLDUSDT", "", ""),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]


def test_another_exchange_s_list_and_seeds_are_its_own() -> None:
    row = {"symbol": "XYZUSDT", "baseAsset": "XYZ", "quoteAsset": "USDT", "status": "TRADING"}
    body = json.dumps({"symbols": [row | {"isSpotTradingAllowed": True}]}).encode()
    (found,) = INSTRUMENTS.of("another")(body)
    assert found.exchange == "another"
    (fetch,) = join_by_rest(SEED_PATH, 500, weight=7)(found).restart()
    assert fetch == Fetch(found, "/api/v3/depth?symbol=XYZUSDT&limit=500", 7)


@pytest.mark.derivatives
def test_rows_of_derivatives_are_no_instruments() -> None:
    row = {
        "symbol": "BTCUSDT",
        "pair": "BTCUSDT",
        "contractType": "PERPETUAL",
        "status": "TRADING",
        "baseAsset": "BTC",
        "quoteAsset": "USDT",
    }
    margin = row | {"isSpotTradingAllowed": False}
    assert EXCHANGE.parse_instruments(json.dumps({"symbols": [row, margin]}).encode()) == []


TICKER = (
    b'{"stream":"btcusdt@bookTicker","data":{"u":50093239212,"s":"BTCUSDT","b":"61837.63000000",'
    b'"B":"3.78826000","a":"61837.64000000","A":"1.54698000"}}'
)


def test_a_book_ticker_is_a_top_of_the_numbers_of_the_depth() -> None:
    """A frame recorded on 2024-08-08."""
    read = acknowledged(BTC).reader()
    assert read(TICKER) == TopOfBook(
        BTC, 50093239212, b'[["61837.63000000","3.78826000"]]', b'[["61837.64000000","1.54698000"]]'
    )


def test_a_book_ticker_of_a_removed_book_is_late() -> None:
    connector = acknowledged(BTC, ETH)
    connector.remove([BTC])
    assert connector.reader()(TICKER) is None
    assert connector.received(TICKER) == ()


def test_a_damaged_book_ticker_costs_no_book() -> None:
    connector = acknowledged(BTC)
    damaged = TICKER.replace(b'"u":50093239212', b'"u":"x"')
    assert connector.received(damaged) == (Ignored(known=False),)
