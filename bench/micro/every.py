"""What a changed level costs at each book channel of the registry, ours beside ccxt's.

The whole path behind the socket, as in `ingest.py`, with frames of the simulated market: a frame
has as many levels as the market changed there, so that exchanges compare by the level. Both are
clients of one simulated exchange and get each change as the exchange sends it to them; in the end
both must have its book. There is no peer where ccxt has no order book of the exchange or follows
another of its channels.

    every.py [NAME ...]
"""

import asyncio
import sys
from collections.abc import Callable
from decimal import Decimal

from ccxt_books import Theirs, judge_of
from simulated import NOW, OPENING_S, Case, Ours, Simulated

from judges.ccxt_side import Levels
from onebook.exchanges import EXCHANGES
from onebook.model import Health
from onebook.simulator.kit import SimulatedSession as Client
from timing import each_at, interleaved, report

FRAMES = 1_000
STEPS_MAX = 100  # of the market, until ccxt has the book
# So many of the best levels of each book are compared with the exchange's: a window that is seeded
# once ends nearer after some time, and ccxt keeps what some exchanges push out of it unsaid.
LEVELS = 10


class Frames:
    """What one client gets: frames, and how many changed levels are in them."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.levels = 0

    def each_level(self, frame_ns: float) -> float:
        """From the nanoseconds of a frame to those of a level."""
        return frame_ns * len(self.frames) / self.levels


class Row:
    """One channel: its clients, opened, and the frames that follow."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.ours, self.theirs = Frames(), Frames()
        self._simulated = Simulated(case.name)
        self._us = Ours(self._simulated, case)
        self._ccxt: Theirs | None = None

    async def open(self) -> None:
        """Let ccxt subscribe beside us, and make the frames."""
        judge = judge_of(self.case)
        if judge is not None:
            self._ccxt = Theirs(self._simulated, judge)
            await self._join(self._ccxt)
            self._ccxt.keep()
        while len(self.ours.frames) < FRAMES:
            self._step(self.ours, self.theirs)

    async def _join(self, ccxt: Theirs) -> None:
        """Move the market until ccxt has the book."""
        await ccxt.open()
        for _ in range(STEPS_MAX):
            await ccxt.settle()
            if ccxt.client is not None and ccxt.book(LEVELS) == self._best(ccxt.client):
                return
            ours, theirs = Frames(), Frames()
            self._step(ours, theirs)
            self._us.hear(ours.frames)
            ccxt.hear(theirs.frames)
        raise AssertionError(f"ccxt has no book of {self.case}")

    def _step(self, ours: Frames, theirs: Frames) -> None:
        """Move the market once, and add what it makes each client hear."""
        changed = self._simulated.step()
        clients = [(ours, self._us.client)]
        if self._ccxt is not None and self._ccxt.client is not None:
            clients.append((theirs, self._ccxt.client))
        for into, client in clients:
            window = self._simulated.window(client)
            for each, changes in changed:
                if each is window:
                    into.frames += self._simulated.frames_of(client, window, changes)
                    into.levels += len(changes.bids) + len(changes.asks)

    def _best(self, client: Client) -> tuple[Levels, Levels]:
        """The book that the exchange shows a client."""
        window = self._simulated.window(client)
        if window is None:
            return [], []
        bids, asks = (
            [(Decimal(price), Decimal(amount)) for price, amount in list(side.items())[:LEVELS]]
            for side in window.truth()
        )
        return bids, asks

    def contenders(self) -> dict[str, Callable[[], float]]:
        """What is measured: each returns the nanoseconds of a changed level."""
        both = {"onebook": self._our_cost, "ccxt": self._their_cost}
        return both if self._ccxt is not None else {"onebook": self._our_cost}

    def _our_cost(self) -> float:
        session, book = self._us.again()
        took = each_at(session.received, self.ours.frames, NOW.s + OPENING_S)
        assert book.health is Health.LIVE, book.reason
        bids, asks = (
            [(Decimal(price), Decimal(amount)) for price, amount in side]
            for side in book.core.top(LEVELS)
        )
        assert (bids, asks) == self._best(self._us.client), f"another book: {self.case}"
        return self.ours.each_level(took)

    def _their_cost(self) -> float:
        assert self._ccxt is not None
        assert self._ccxt.client is not None
        took = self._ccxt.cost(self.theirs.frames)
        truth = self._best(self._ccxt.client)
        assert self._ccxt.book(LEVELS) == truth, f"another book of ccxt's: {self.case}"
        return self.theirs.each_level(took)

    async def close(self) -> None:
        """End."""
        if self._ccxt is not None:
            await self._ccxt.close()


async def measure(case: Case) -> None:
    """Report one row."""
    row = Row(case)
    try:
        await row.open()
        report(f"changed level, {case}", interleaved(row.contenders()), "ns")
    finally:
        await row.close()


def main() -> None:
    for name in sys.argv[1:] or EXCHANGES:
        for channel in ("", *EXCHANGES[name].channels):
            asyncio.run(measure(Case(name, channel)))


if __name__ == "__main__":
    main()
