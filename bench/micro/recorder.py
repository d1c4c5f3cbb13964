"""The history's recorder: CPU of recording and of closing an hour, as a share of the feeds' CPU.

Frames go through session, connector and books of four exchanges, with and without a recorder, its
thread and its fsync included (process time). `made` frames are those of `stream`, with 5 or 20
levels; `recorded` are those of OKX and Poloniex in the samples, where they are. Virtual time: so
many messages a second reach the recorder, which takes keyframes and writes every half second.

    python bench/micro/recorder.py [MESSAGES_PER_S]
"""

import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import ours

import bytes as recorded_frames
import stream
from onebook.archive.recorder import FLUSH_S, HistoryRecorder
from onebook.books import Books
from onebook.clock import ManualClock
from onebook.exchanges import EXCHANGES
from onebook.feeds.session import FeedSession
from onebook.feeds.stats import ExchangeStats
from onebook.model import Instrument
from onebook.simulator.kit.replay import scripts
from timing import RUNS, report

MESSAGES_PER_S = 5_000  # 525 books with ten changes a second
FRAMES = 5_000  # of each exchange
DEPTH, KRAKEN_DEPTH = 1_000, 80
EPOCH_US = 1_700_000_000_000_000
TIMES_PLAYED = 20  # the recorded frames, which are few


class Cost(NamedTuple):
    """CPU of one run in nanoseconds a frame; 0 for what did not run."""

    feeds: float
    close: float
    bytes: float


def made(levels: int) -> tuple[dict[str, ours.Snapshot], list[tuple[str, bytes]]]:
    """Return the snapshot of each exchange, and the frames of all in turn."""
    market = stream.Stream(DEPTH, seed=5)
    snapshot, changes = market.snapshot(), [market.frame(levels) for _ in range(FRAMES)]
    small = stream.Stream(KRAKEN_DEPTH, seed=5)
    short, few = small.snapshot(), [small.frame(levels) for _ in range(FRAMES)]
    summed = zip(few, ours.checksums(short, few)[1:], strict=True)
    frames = {
        "binance": [stream.binance(b, a, n) for n, (b, a) in enumerate(changes, 1)],
        "okx": [stream.okx(b, a, n) for n, (b, a) in enumerate(changes, 1)],
        "coinbase": [stream.coinbase(b, a) for b, a in changes],
        "kraken": [stream.kraken(b, a, checksum) for (b, a), checksum in summed],
    }
    snapshots = {name: short if name == "kraken" else snapshot for name in frames}
    turns = zip(*([(name, each) for each in found] for name, found in frames.items()), strict=True)
    return snapshots, [frame for turn in turns for frame in turn]


class Made:
    """Sessions with made frames."""

    def __init__(self, levels: int) -> None:
        self._snapshots, self.frames = made(levels)
        self.count = len(self.frames)

    def open(self, books: Books) -> None:
        self._feeds = {name: ours.Feed(name, each, books) for name, each in self._snapshots.items()}

    def play(self, start: int, stop: int, now: float) -> None:
        feeds = {name: feed.received for name, feed in self._feeds.items()}
        for name, frame in self.frames[start:stop]:
            feeds[name](frame, now)


class Recorded:
    """Sessions with the frames that were recorded, again and again."""

    def __init__(self) -> None:
        found = scripts(recorded_frames.RECORDED)
        self._instruments = {
            name: Instrument(
                name, "BTC/USDT", next(e.native for e in each.listings if e.symbol == "BTC/USDT")
            )
            for name, each in found.items()
        }
        self.frames = [
            (name, line.frame.encode())
            for name, each in found.items()
            for line in each.lines
            if line.native == self._instruments[name].native
        ]
        self.count = len(self.frames) * TIMES_PLAYED

    def open(self, books: Books) -> None:
        self._books = books
        for instrument in self._instruments.values():
            books.open(instrument)

    def play(self, start: int, stop: int, now: float) -> None:
        for at in range(start, stop):
            if at % len(self.frames) == 0:
                self._begin(now)
            name, frame = self.frames[at % len(self.frames)]
            self._sessions[name](frame, now)

    def _begin(self, now: float) -> None:
        self._sessions = {}
        for name, instrument in self._instruments.items():
            session = FeedSession(
                EXCHANGES[name], [instrument], books=self._books, stats=ExchangeStats(name)
            )
            session.opened(now)
            self._sessions[name] = session.received


async def cost(work: Made | Recorded, messages_per_s: int, *, record: bool) -> Cost:
    """Play all frames once."""
    books, clock = Books(), ManualClock(1.0, epoch_us=EPOCH_US)
    work.open(books)
    each = max(1, int(messages_per_s * FLUSH_S))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        recorder = HistoryRecorder(books, root, keep_days=1, keep_bytes=1 << 40, clock=clock)
        if record:
            await recorder.begin()
            await recorder.flush()
        gc.collect()
        gc.disable()
        began = time.process_time_ns()
        for start in range(0, work.count, each):
            clock.move_to(clock.now_s + FLUSH_S)
            work.play(start, min(work.count, start + each), clock.now_s)
            if record:
                recorder.take_keyframes()
                await recorder.flush()
        feeds = time.process_time_ns() - began
        gc.enable()
        assert len([*books.live()]) == len(books)
        close = size = 0
        if record:
            began = time.process_time_ns()
            for hour_us in recorder.folder.open_hours():
                recorder.folder.close_hour(hour_us)
            close = time.process_time_ns() - began
            size = _size(root)
            recorder._stop()
            recorder._thread.shutdown()
            recorder._closer.shutdown()
    return Cost(feeds / work.count, close / work.count, size / work.count)


def _size(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*.parquet"))


def works() -> Iterator[tuple[str, Made | Recorded]]:
    yield "5 levels", Made(5)
    yield "20 levels", Made(20)
    if all(path.exists() for path in recorded_frames.RECORDED):
        yield "recorded frames", Recorded()


def main(words: Sequence[str]) -> None:
    rate = int(words[0]) if words else MESSAGES_PER_S
    for name, work in works():
        plain, recorded = [], []
        for _ in range(RUNS):
            plain.append(asyncio.run(cost(work, rate, record=False)))
            recorded.append(asyncio.run(cost(work, rate, record=True)))
        feeds = statistics.median(each.feeds for each in plain)
        with_it = statistics.median(each.feeds for each in recorded)
        close = statistics.median(each.close for each in recorded)
        report(f"recorder, {name}", {"feeds": feeds, "feeds and recorder": with_it,
               "closing the hour": close}, "ns a frame")  # fmt: skip
        shares = {"recorder": 100 * (with_it - feeds) / feeds, "closing": 100 * close / feeds}
        report(f"recorder, {name}, share of the feeds", shares, "%")
        size = statistics.median(each.bytes for each in recorded)
        report(f"recorder, {name}, files", {"closed hour": size}, "bytes a frame")


if __name__ == "__main__":
    main(sys.argv[1:])
