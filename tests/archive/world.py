"""Books under random changes, recorded with a clock of the test; nothing here waits."""

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

from onebook.archive.format import HOUR_US
from onebook.archive.recorder import HistoryRecorder
from onebook.books import Books, LiveBook
from onebook.clock import ManualClock
from onebook.core import View
from onebook.core.types import PAIRS
from onebook.exchanges.kit import Delta, Snapshot, TopOfBook
from onebook.fusing import TopCounts
from onebook.model import Health, Instrument, Reason

EPOCH_US = 495_000 * HOUR_US - 90_000_000  # a minute and a half before an hour begins
NAMES = ("binance", "kraken", "okx")
SYMBOL = "BTC/USDT"


def rows(random_: random.Random, side: int, count: int, zero: float) -> bytes:
    found = []
    for _ in range(count):
        price = 100 + (1 + random_.randrange(400)) * (1 if side else -1) * 0.05
        amount = 0 if random_.random() < zero else random_.randrange(1, 10**6) / 1000
        found.append(f'["{price:.2f}","{amount:.{random_.randrange(3, 6)}f}"]')
    return f"[{','.join(found)}]".encode()


class World:
    """Books of three exchanges under random changes, recorded with a clock of the test."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock(epoch_us=EPOCH_US)
        self.books = Books()
        self.root = root
        self.recorder = self.new_recorder()
        self.instruments = [Instrument(name, SYMBOL, name) for name in NAMES]
        self.sequence = 0
        self.live: list[tuple[int, int]] = []
        self.states: list[dict[str, tuple[str, str | None]]] = []  # of the same moments
        self.times: list[dict[str, tuple[int, ...]]] = []  # of books that are live
        self.steps_s = (0.001, 0.05, 0.7)

    def new_recorder(self) -> HistoryRecorder:
        return HistoryRecorder(
            self.books, self.root, keep_days=10, keep_bytes=1 << 40, clock=self.clock
        )

    def open(self) -> None:
        for at, each in enumerate(self.instruments):
            self.books.open(each, levels_max=(20_000, 50, 20_000)[at], window=(0, 50, 0)[at],
                            tops=TopCounts())  # fmt: skip

    def step(self) -> None:
        self.clock.move_to(self.clock.now_s + self.random.choice(self.steps_s))
        now, instrument = self.clock.now_s, self.random.choice(self.instruments)
        book = self.books.get(instrument)
        assert book is not None
        chance, self.sequence = self.random.random(), self.sequence + 1
        bids, asks = rows(self.random, 0, 3, 0.4), rows(self.random, 1, 3, 0.4)
        if book.health is Health.STALE and self.random.random() < 0.3:
            self.books.set_health(instrument, Health.SYNCING, Reason.SUBSCRIBING, now)
        elif book.health is not Health.LIVE or chance < 0.05:
            bids, asks = rows(self.random, 0, 30, 0.0), rows(self.random, 1, 35, 0.0)
            asked = self.random.choice((0, 30, 33))
            whole = Snapshot(
                instrument,
                bids,
                asks,
                levels_asked=asked,
                sequence=self.sequence,
                at=self.sent_us(),
            )
            self.books.fill(whole, now)
        elif chance < 0.08:
            reason = self.random.choice((Reason.GAP, Reason.DISCONNECTED))
            self.books.set_health(instrument, Health.STALE, reason, now, detail="a test")
        elif chance < 0.3:
            top = self.sequence + self.random.randrange(4)
            bid, ask = rows(self.random, 0, 1, 0.1), rows(self.random, 1, 1, 0.1)
            self.books.top(TopOfBook(instrument, top, bid, ask, PAIRS, self.sent_us()), now)
        else:
            self.books.change(
                Delta(instrument, bids, asks, sequence=self.sequence, at=self.sent_us()), now
            )
        self.live.append((self.clock.wall_us(), self.checksum(self.books)))
        self.times.append({
            each.instrument.exchange: self.times_of(each) for each in self.books.live()
        })  # fmt: skip
        self.states.append({
            each.instrument.exchange: (each.health, each.reason) for each in self.books
        })  # fmt: skip

    def sent_us(self) -> int:
        """Return when the exchange sent what arrives now; some messages have no time."""
        return self.clock.wall_us() - 7_000 - self.sequence if self.sequence % 5 else 0

    def times_of(self, book: LiveBook) -> tuple[int, ...]:
        """Return when the depth and the best price were sent and received."""
        times = book.times(self.clock.wall_us(), self.clock.now_s)
        return (times.depth.exchange_us or 0, times.depth.received_us,
                times.top.exchange_us or 0, times.top.received_us)  # fmt: skip

    def checksum(self, books: Books) -> int:
        view = View(NAMES, depth=500)
        found = {each.instrument.exchange: each for each in books.of(SYMBOL)}
        view.merge([
            found[name].core if name in found and found[name].health is Health.LIVE else None
            for name in NAMES
        ])  # fmt: skip
        return view.checksum()


async def run(world: World, steps: int) -> None:
    for at in range(steps):
        world.step()
        if at % 12 == 0:
            world.recorder.take_keyframes()
            await world.recorder.flush()
    await world.recorder.flush()
    if world.recorder.closing is not None:
        await asyncio.wrap_future(world.recorder.closing)


async def closed_hours(root: Path, seed: int) -> World:
    """Record changes across the end of an hour; both hours are closed, and nothing records."""
    world = World(root, seed)
    async with AsyncExitStack() as stack:
        stack.push_async_exit(world.recorder)
        await world.recorder.begin()
        world.open()
        await run(world, 700)
        world.clock.move_to(world.clock.now_s + HOUR_US / 1_000_000)
        await world.recorder.flush()
        assert world.recorder.closing is not None
        await asyncio.wrap_future(world.recorder.closing)
    return world
