"""One seed, one life of a fused book: chaos on both channels of a market whose states are known.

    PYTHONPATH=tests python tests/proofs/fusing.py 10000    # seeds 0 to 9,999, by hand

The exchange sends several states per message of the depth, and best prices at most of them. On the
way, messages of the depth are lost (the book is then resynced some messages later), and best prices
are lost, thinned out, duplicated, late or out of order. Sometimes the exchange restarts its counter
at a low number while older best prices are still on the way; a channel keeps the order of both
lives of the counter, as one socket does. After each message, a live book must show the newest state
that it received, and never a state of another life.

The same runs with channels that are ordered by time, where several states have the same time, and
with best prices from a chained book with few levels.
"""

import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Final, NamedTuple

from onebook.books import Books, LiveBook
from onebook.core import View
from onebook.core.types import PAIRS
from onebook.exchanges.kit import (
    Delta,
    Fetch,
    Output,
    Send,
    Shallow,
    Snapshot,
    TopOfBook,
    best_prices_at,
    levels_at,
)
from onebook.exchanges.kit.contract import each_of
from onebook.fusing import TopCounts
from onebook.model import Health, Instrument, Reason

BTC = Instrument("binance", "BTC/USDT", "BTCUSDT")
MESSAGES = 60
RESTARTS_FROM = 100_000  # the numbers of two lives differ by more than the length of a life
Side = dict[int, int]
Level = tuple[int, int]


class Numbered(NamedTuple):
    """The market at one number of one life of the counter.

    The number may be a time shared by several states; `index` is their true order.
    """

    life: int
    number: int
    bids: Side
    asks: Side
    index: int = 0

    @property
    def top(self) -> tuple[Level | None, Level | None]:
        return max(self.bids.items(), default=None), min(self.asks.items(), default=None)


def text(levels: Side | list[Level]) -> bytes:
    pairs = levels.items() if isinstance(levels, dict) else levels
    return json.dumps([[str(price), str(amount)] for price, amount in pairs]).encode()


def changed(before: Side, after: Side) -> Side:
    gone = dict.fromkeys(before.keys() - after.keys(), 0)
    return gone | {price: each for price, each in after.items() if before.get(price) != each}


class Window(NamedTuple):
    """The best levels of a state, as last sent by a chained channel of few levels."""

    number: int
    bids: Side
    asks: Side


class FusedLife:
    """A book, its exchange, and the events between them."""

    def __init__(self, seed: int, *, timed: bool = False) -> None:
        self.timed = timed  # the channels have no common number and are ordered by time
        self.rng = Random(seed)
        self.counts = TopCounts()
        self.books = Books()
        self.book: LiveBook = self.books.open(BTC, tops=self.counts)
        self.view = View(["binance"], depth=500, arrays=True)
        self.now = Numbered(0, self.rng.randint(1, 10**9), {50: 1}, {52: 1})
        self.sent = self.now  # the state of the last message of the depth
        self.lost = False
        self.underway: list[Numbered] = []  # best prices that arrive late
        self.depth = self.now  # as known to the client
        self.best = self.now
        self.sharing = False  # the depth has passed a received top of this life
        self.shown = 0  # states in which a top was ahead of the depth

    def run(self) -> None:
        self.fill()
        for _ in range(MESSAGES):
            self.rng.choice(
                (self.move,) * 8
                + (self.send,) * 6
                + (self.top,) * 8
                + (self.late,) * 3
                + (self.lose, self.restart)
            )()
            self.check()

    # The exchange

    def move(self) -> None:
        """Change the market; some changes have no message of best prices."""
        bids, asks = dict(self.now.bids), dict(self.now.asks)
        mid = self.rng.randint(45, 57)
        bids = {price: each for price, each in bids.items() if price < mid}
        asks = {price: each for price, each in asks.items() if price > mid}
        for side, low, high in ((bids, 40, mid - 1), (asks, mid + 1, 62)):
            for _ in range(self.rng.randint(0, 2)):
                side[self.rng.randint(low, high)] = self.rng.randint(1, 9)
        step = self.rng.choice((0, 0, 1, 7) if self.timed else (1, 1, 1, 7))
        number, index = self.now.number + step, self.now.index + 1
        self.now = Numbered(self.now.life, number, bids, asks, index)

    def of_levels(self, state: Numbered) -> int:
        return levels_at(state.number) if self.timed else state.number

    def of_top(self, state: Numbered) -> int:
        return best_prices_at(state.number) if self.timed else state.number

    def restart(self) -> None:
        """Restart the counter far below; the next message of the depth reveals it."""
        if self.now.number < RESTARTS_FROM:
            return
        self.move()
        while self.underway:  # a channel preserves order
            self.deliver_top(self.underway.pop(0))
            self.check()
        number = self.rng.randint(1, self.now.number // 1_000)
        before = self.sent
        self.now = self.now._replace(life=self.now.life + 1, number=number)
        self.sent = self.now
        change = Delta(
            BTC,
            text(changed(before.bids, self.now.bids)),
            text(changed(before.asks, self.now.asks)),
            sequence=self.of_levels(self.now),
        )
        late = [before._replace(number=before.number + each) for each in (1, 2)]
        if self.lost or self.book.health is not Health.LIVE:
            self.fill()
        else:
            assert self.books.change(change, 1.0) is None
            self.pass_to(self.now)
        self.check()
        for top in late[: self.rng.randint(0, 2)]:  # older ones, after the restart of the depth
            self.deliver_top(top)
            self.check()

    def send(self) -> None:
        """Send a message of the depth with all changes since the last one."""
        before, self.sent = self.sent, self.now
        if before == self.now:
            return
        if self.lost:
            if self.rng.random() < 0.5:
                self.fill()
            return
        if self.rng.random() < 0.05:
            self.fill()  # the exchange sends a whole book in between
            return
        change = Delta(
            BTC,
            text(changed(before.bids, self.now.bids)),
            text(changed(before.asks, self.now.asks)),
            sequence=self.of_levels(self.now),
        )
        assert self.books.change(change, 1.0) is None
        self.pass_to(self.now)

    def lose(self) -> None:
        """Lose a message of the depth: the connector reports a gap."""
        self.move()
        self.sent = self.now
        self.lost = True
        self.books.set_health(BTC, Health.STALE, Reason.GAP, 2.0)

    def top(self) -> None:
        """Send best prices of this state: immediately, late, twice or not at all."""
        match self.rng.choice(("now", "now", "now", "late", "twice", "lost")):
            case "now":
                self.deliver_top(self.now)
            case "late":
                self.underway.append(self.now)
            case "twice":
                self.deliver_top(self.now)
                self.check()
                self.deliver_top(self.now)

    def late(self) -> None:
        """Deliver best prices out of order, after newer ones."""
        if self.underway:
            self.deliver_top(self.underway.pop(self.rng.randrange(len(self.underway))))

    # The client, and the expected display

    def fill(self) -> None:
        self.lost = False
        self.sent = self.now
        state = self.now
        number = self.of_levels(state)
        whole = Snapshot(BTC, text(state.bids), text(state.asks), sequence=number)
        assert self.books.fill(whole, 1.0) is None
        self.pass_to(state)

    def pass_to(self, state: Numbered) -> None:
        before, self.depth = self.depth, state
        if state.life != before.life:
            self.best, self.sharing = state, False
        elif self.best.number <= state.number:
            self.sharing |= before.number < self.best.number
            self.best = state

    def deliver_top(self, state: Numbered) -> None:
        bid, ask = state.top
        sides = text([bid] if bid else []), text([ask] if ask else [])
        self.books.top(TopOfBook(BTC, self.of_top(state), *sides))
        live = self.book.health is Health.LIVE
        if live and state.life == self.depth.life and state.number > self.best.number:
            self.best = state

    def check(self) -> None:
        """A live book shows levels of the depth below the best prices of one state of this life."""
        self.view.merge([self.book.core])
        document = json.loads(self.view.full(b"{", b"}"))
        shown = document["bids"], document["asks"]
        if self.book.health is not Health.LIVE:
            assert shown == ([], []), "a book that is not live is shown"
            return
        fused = self.book.core.overlaid
        best = self.best if fused else self.depth
        assert shown == expected(self.depth, best), f"{self.depth}\n{best}\n{shown}"
        assert not fused or self.sharing
        assert not fused or best.number > self.depth.number
        assert best.index >= self.depth.index, "an older state is shown over the levels"
        self.shown += fused


class ShallowLife(FusedLife):
    """The best prices come from a chained book with few levels, whose messages are also lost.

    A message contains the changes of its levels since the last one; a requested whole book is that
    of the last message, and arrives some messages later.
    """

    LEVELS = 3

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        again = Send(b"again")
        self.shallow = Shallow(Fetch(BTC, ""), again, levels=self.LEVELS, shape=PAIRS)
        self.window = self.window_now()
        self.requested = len(self.shallow.follow())  # whole books on the way
        self.states = {self.now.number: self.now}
        self.lost_messages = 0

    def window_now(self) -> Window:
        bids = dict(sorted(self.now.bids.items(), reverse=True)[: self.LEVELS])
        asks = dict(sorted(self.now.asks.items())[: self.LEVELS])
        return Window(self.now.number, bids, asks)

    def move(self) -> None:
        super().move()
        self.states[self.now.number] = self.now

    def restart(self) -> None:
        """Do nothing: its counter never restarts."""

    def top(self) -> None:
        """Deliver or lose a message, sometimes after the answer to a request."""
        if self.requested and self.rng.random() < 0.5:
            self.answer()
        before, after = self.window, self.window_now()
        bids, asks = changed(before.bids, after.bids), changed(before.asks, after.asks)
        if not bids and not asks:
            return
        self.window = after
        if self.rng.random() < 0.1:
            self.lost_messages += 1
            return
        numbers = before.number + 1, after.number
        self.take(each_of(self.shallow.delta(*numbers, text(bids), text(asks))))

    def answer(self) -> None:
        self.requested -= 1
        window = self.window
        self.take(self.shallow.seeded(text(window.bids), text(window.asks), window.number))

    def take(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            if isinstance(output, Send):
                self.requested += 1
                continue
            assert isinstance(output, TopOfBook)
            state = self.states[output.sequence]
            bid, ask = state.top
            levels = json.loads(output.bids), json.loads(output.asks)
            assert [*map(numbers_of, levels)] == [[each] if each else [] for each in (bid, ask)]
            self.deliver_top(state)


def numbers_of(levels: list[list[str]]) -> list[Level]:
    return [(int(price), int(amount)) for price, amount in levels]


def expected(depth: Numbered, best: Numbered) -> tuple[list[list[int]], list[list[int]]]:
    """The best levels of one state, and the strictly worse levels of an older one."""
    bid, ask = best.top
    bids = [
        [*each] for each in sorted(depth.bids.items(), reverse=True) if bid and each[0] < bid[0]
    ]
    asks = [[*each] for each in sorted(depth.asks.items()) if ask and each[0] > ask[0]]
    return ([[*bid], *bids] if bid else []), ([[*ask], *asks] if ask else [])


LIVES: Final[dict[str, Callable[[int], FusedLife]]] = {
    "by number": FusedLife,
    "by time": partial(FusedLife, timed=True),
    "of a shallow book": ShallowLife,
}


def lives(seeds: range, kind: str = "by number") -> tuple[int, int, int]:
    """Run all lives; return the shown tops, agreements, and books that ended ignoring tops."""
    shown = agreed = off = 0
    for seed in seeds:
        life = LIVES[kind](seed)
        try:
            life.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from None
        assert life.counts.disagreed == 0, seed
        shown += life.shown
        agreed += life.counts.agreed
        off += life.counts.off
    return shown, agreed, off


if __name__ == "__main__":
    seeds = range(int(sys.argv[1]))
    for kind in LIVES:
        print(f"{len(seeds)} seeds {kind}: shown, agreed, off: {lives(seeds, kind)}")
