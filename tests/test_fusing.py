"""Tops fused with the depth by number: the newest true state, in any order of arrival.

The oracle is a market whose every state is known: levels by number. Depth and tops are made of it,
delivered in any order that a line allows, and the shown book must be a state of that market.
"""

import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.books import Books, LiveBook
from onebook.core import View
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Delta, Output, Snapshot, TopOfBook
from onebook.fusing import AHEAD_MAX, DISAGREED, DISAGREED_MAX, OTHER_COUNTER, TopCounts
from onebook.model import Health, Instrument, Reason

BTC = Instrument("binance", "BTC/USDT", "BTCUSDT")
Levels = dict[int, int]


class State(NamedTuple):
    """Every level of the market at one number."""

    bids: Levels
    asks: Levels

    @property
    def top(self) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        return max(self.bids.items(), default=None), min(self.asks.items(), default=None)


def text(levels: dict[int, int] | list[tuple[int, int]]) -> bytes:
    pairs = levels.items() if isinstance(levels, dict) else levels
    return json.dumps([[str(price), str(amount)] for price, amount in pairs]).encode()


def changes(before: Levels, after: Levels) -> Levels:
    gone = dict.fromkeys(before.keys() - after.keys(), 0)
    return gone | {price: each for price, each in after.items() if before.get(price) != each}


def delta(states: list[State], first: int, last: int) -> Delta:
    old, new = states[first], states[last]
    return Delta(
        BTC, text(changes(old.bids, new.bids)), text(changes(old.asks, new.asks)), sequence=last
    )


def whole(states: list[State], number: int) -> Snapshot:
    state = states[number]
    return Snapshot(BTC, text(state.bids), text(state.asks), sequence=number)


def top(states: list[State], number: int) -> TopOfBook:
    bid, ask = states[number].top
    return TopOfBook(BTC, number, text([bid] if bid else []), text([ask] if ask else []))


@st.composite
def markets(draw: Any) -> list[State]:
    """States that move a little each; the spread is never crossed. State 0 is before any."""
    states = [State({}, {}), State({50: 1}, {52: 1})]
    for _ in range(draw(st.integers(1, 30))):
        bids, asks = dict(states[-1].bids), dict(states[-1].asks)
        mid = draw(st.integers(40, 60))
        bids = {price: each for price, each in bids.items() if price < mid}
        asks = {price: each for price, each in asks.items() if price > mid}
        for side, low, high in ((bids, 30, mid - 1), (asks, mid + 1, 70)):
            for _ in range(draw(st.integers(0, 2))):
                side[draw(st.integers(low, high))] = draw(st.integers(1, 9))
        states.append(State(bids, asks))
    return states


def shown(book: LiveBook, depth: int = 500) -> tuple[list[Any], list[Any]]:
    view = View(["binance"], depth=depth, arrays=True)
    view.merge([book.core])
    document = json.loads(view.full(b"{", b"}"))
    return document["bids"], document["asks"]


def expected(depth: State, best: State) -> tuple[list[Any], list[Any]]:
    """The top of one state, and the strictly worse levels of an older one."""
    bid, ask = best.top
    bids = [
        [*each] for each in sorted(depth.bids.items(), reverse=True) if bid and each[0] < bid[0]
    ]
    asks = [[*each] for each in sorted(depth.asks.items()) if ask and each[0] > ask[0]]
    return ([[*bid], *bids] if bid else []), ([[*ask], *asks] if ask else [])


def opened(counts: TopCounts | None = None) -> tuple[Books, LiveBook]:
    books = Books()
    return books, books.open(BTC, tops=counts or TopCounts())


def proven(states: list[State], counts: TopCounts | None = None) -> tuple[Books, LiveBook]:
    """A book at state 2 that has received the top of state 2: both channels share a counter."""
    books, book = opened(counts)
    execute(books, whole(states, 1))
    execute(books, top(states, 2))
    assert not book.core.overlaid
    execute(books, delta(states, 1, 2))
    return books, book


def execute(books: Books, output: Output) -> None:
    match output:
        case Delta():
            assert books.change(output, 1.0) is None
        case Snapshot():
            assert books.fill(output, 1.0) is None
        case TopOfBook():
            books.top(output)


@given(states=markets(), data=st.data())
def test_the_shown_book_is_the_newest_known_state(states: list[State], data: Any) -> None:
    """Depth of several states at a time, and tops that are early, late, lost or out of order."""
    books, book = opened()
    last = len(states) - 1
    d, t, outlived, proven, shows = 1, 0, 0, False, False
    execute(books, whole(states, 1))
    while d < last:
        if data.draw(st.booleans(), label="a top"):
            number = data.draw(st.integers(1, last), label="its number")
            if number > max(t, d):
                t, outlived = number, 0
                shows = proven
            execute(books, top(states, number))
        else:
            number = data.draw(st.integers(d + 1, last), label="depth up to")
            execute(books, delta(states, d, number))
            proven |= d < t <= number
            d = number
            if t > d:
                outlived += 1
                if outlived == AHEAD_MAX:
                    return  # switched off, as below
        newest = max(d, t) if shows else d
        assert shown(book) == expected(states[d], states[newest])
    assert book.fusing is not None
    assert not book.fusing.off


@given(states=markets(), data=st.data())
def test_a_book_that_is_not_live_shows_no_top(states: list[State], data: Any) -> None:
    books, book = opened()
    last = len(states) - 1
    execute(books, top(states, last))
    assert book.health is not Health.LIVE
    execute(books, whole(states, 1))
    assert shown(book) == expected(states[1], states[1])  # a top of before is forgotten
    execute(books, top(states, last))
    books.set_health(BTC, Health.STALE, Reason.GAP, 2.0)
    execute(books, top(states, last))
    assert shown(book) == ([], [])
    number = data.draw(st.integers(1, last))
    execute(books, whole(states, number))
    assert shown(book) == expected(states[number], states[number])


def test_a_top_that_stays_ahead_is_of_another_counter() -> None:
    states = [State({}, {})] + [State({50 - n: 1}, {60: n}) for n in range(1, 20)]
    counts = TopCounts()
    books, book = proven(states, counts)
    execute(books, _renumbered(states, 10**9))
    for number in range(3, 3 + AHEAD_MAX - 1):
        execute(books, delta(states, number - 1, number))
        assert book.core.overlaid
    execute(books, delta(states, AHEAD_MAX + 1, AHEAD_MAX + 2))
    assert not book.core.overlaid
    assert book.fusing is not None
    assert book.fusing.off == OTHER_COUNTER
    execute(books, _renumbered(states, 10**9 + 1))
    execute(books, delta(states, AHEAD_MAX + 2, AHEAD_MAX + 3))
    assert not book.core.overlaid
    assert (counts.ahead, counts.off) == (1, 1)


@pytest.mark.parametrize("offset", [10**9, -(10**9), 100])
def test_tops_of_another_counter_are_never_shown(offset: int) -> None:
    states = [State({}, {})] + [State({50 - n: 1}, {60: n}) for n in range(1, 20)]
    books, book = opened()
    begin = 2 * 10**9
    execute(books, Snapshot(BTC, text({49: 1}), text({60: 1}), sequence=begin + 1))
    for number in range(2, 19):
        execute(books, _renumbered(states, begin + offset + number))
        assert not book.core.overlaid
        change = delta(states, number - 1, number)
        execute(books, Delta(BTC, change.bids, change.asks, sequence=begin + number))


def _renumbered(states: list[State], number: int) -> TopOfBook:
    best = top(states, 2)
    return TopOfBook(BTC, number, best.bids, best.asks)


def test_two_disagreements_at_equal_numbers_end_it() -> None:
    states = [State({}, {})] + [State({50 - n: 1}, {60: n}) for n in range(1, 20)]
    counts = TopCounts()
    books, book = proven(states, counts)
    for at in range(2, DISAGREED_MAX + 2):
        assert book.fusing is not None
        assert not book.fusing.off
        wrong = top(states, at)
        execute(books, TopOfBook(BTC, at + 1, wrong.bids, wrong.asks))
        assert book.core.overlaid
        execute(books, delta(states, at, at + 1))
        assert shown(book) == expected(states[at + 1], states[at + 1])  # the depth is shown
    assert book.fusing is not None
    assert book.fusing.off == DISAGREED
    assert (counts.disagreed, counts.agreed, counts.off) == (DISAGREED_MAX, 0, 1)


def test_an_exchange_that_counts_anew_is_followed() -> None:
    states = [State({}, {})] + [State({50 - n: 1}, {60: n}) for n in range(1, 9)]
    """Tops from before the restart have higher numbers, and may arrive after it."""
    books, book = opened()
    execute(books, Snapshot(BTC, text(states[1].bids), text(states[1].asks), sequence=1_000))
    execute(books, _renumbered(states, 1_001))
    execute(books, Delta(BTC, b"[]", b"[]", sequence=1_002))
    execute(books, _renumbered(states, 1_004))
    assert book.core.overlaid
    change = delta(states, 1, 3)
    execute(books, Delta(BTC, change.bids, change.asks, sequence=7))
    assert not book.core.overlaid
    assert shown(book) == expected(states[3], states[3])
    execute(books, _renumbered(states, 1_005))
    assert shown(book) == expected(states[3], states[3])


def test_a_top_proves_no_depth() -> None:
    states = [State({}, {})] + [State({50 - n: 1}, {60: n}) for n in range(1, 9)]
    books, book = opened()
    execute(books, whole(states, 1))
    before = book.updated_at
    books.top(top(states, 5))
    assert book.updated_at == before


def test_an_unreadable_top_is_dropped_alone() -> None:
    states = [State({}, {})] + [State({50 - n: 1}, {60: n}) for n in range(1, 9)]
    counts = TopCounts()
    books, book = proven(states, counts)
    execute(books, top(states, 3))
    execute(books, TopOfBook(BTC, 4, b'[["NaN","1"]]', b"[]"))
    assert shown(book) == expected(states[2], states[2])
    assert book.health is Health.LIVE
    assert (counts.refused, counts.shown) == (1, 1)


class Frame(NamedTuple):
    at_ns: int
    bytes: bytes


def recorded(path: Path) -> Iterator[Frame]:
    with gzip.open(path) as lines:
        for line in lines:
            at, _, frame = line.partition(b" ")
            yield Frame(int(at), frame.strip())


@pytest.mark.parametrize("native", ["BTCUSDT", "ETHUSDT"])
def test_recorded_tops_and_depth_agree_at_every_number(samples: Path, native: str) -> None:
    """Both channels of Binance, through the connector; the truth is read by another path.

    At each depth message the shown best must be the newest recorded top of a number up to its own,
    unless that top skipped a state that the depth has (`facts`: 2 of 12,960).
    """
    instrument = Instrument("binance", f"{native[:3]}/USDT", native)
    counts = TopCounts()
    books = Books()
    book = books.open(instrument, tops=counts)
    connector = EXCHANGES["binance"].connector([instrument])

    def act(outputs: Any) -> None:
        for output in (outputs,) if isinstance(outputs, Delta | TopOfBook) else outputs or ():
            execute(books, output)

    act(connector.opened())
    act(connector.received(b'{"result":null,"id":1}'))
    read = connector.reader()
    newest: dict[str, Any] = {}
    path = samples / "top_and_depth" / f"binance_spot_{native.lower()}_20240808.gz"
    compared = differing = leading = 0
    for _, frame in recorded(path):
        message = json.loads(frame, parse_float=Decimal)
        if "lastUpdateId" in message:
            if book.health is not Health.LIVE:
                act(connector.fetched(instrument, frame))
            continue
        data = message["data"]
        if data.get("e") == "trade":
            continue
        act(read(frame))
        if "B" in data:
            newest = data
        if book.health is not Health.LIVE or not newest:
            continue
        bids, asks = shown(book, depth=1)
        if data.get("e") == "depthUpdate":
            if newest["u"] > data["u"] or not book.core.bid_count or not book.core.ask_count:
                continue
            compared += 1
            best = [float(newest[each]) for each in "bBaA"]
            differing += [*bids[0], *asks[0]] != best
        elif data["u"] > book.fusing.depth and counts.shown:  # type: ignore[union-attr]
            leading += 1
            assert [*bids[0], *asks[0]] == [float(data[each]) for each in "bBaA"]
    assert compared > 1_000
    assert differing <= 2
    assert leading > 10_000
    assert counts.agreed > 300
    assert counts.disagreed == counts.ahead == counts.off == counts.refused == 0
