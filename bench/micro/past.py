"""The history: the merged book of a past second, and replay into books and a merged view.

One hour of a pair on 35 exchanges is made in virtual time, with ten changes of five levels a second
and book, each at its own microsecond, through the recorder itself; `at` answers 20 levels at random
seconds of it from local files. Wall time, because the files are read in parallel, and CPU time,
which load disturbs less.

    python bench/micro/past.py [SECONDS]
"""

import asyncio
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ours import _pairs

import onebook
import stream
from onebook.archive.folder import HistoryFolder
from onebook.archive.playback import BookReplay
from onebook.archive.recorder import HistoryRecorder
from onebook.books import Books
from onebook.clock import ManualClock
from onebook.core import View
from onebook.exchanges.kit import Delta, Snapshot
from onebook.model import Instrument
from timing import report

EXCHANGES, CHANGES_PER_S, LEVELS, DEPTH = 35, 10, 5, 200
HOUR_S = 3_600
EPOCH_US = 1_699_999_200_000_000  # an hour begins
SYMBOL = "BTC/USDT"
STEP_S = 0.5
MERGE_US = 100_000
SHOWN = 20
TRIES = 40
FRAMES = 6_000  # made once, and used by all books in turn


async def record(folder: Path, seconds: int) -> int:
    """Record the hour and close it; return the number of changes."""
    market = stream.Stream(DEPTH, seed=3)
    snapshot = [_pairs(side) for side in market.snapshot()]
    frames = [tuple(_pairs(side) for side in market.frame(LEVELS)) for _ in range(FRAMES)]
    books, clock = Books(), ManualClock(1.0, epoch_us=EPOCH_US)
    recorder = HistoryRecorder(books, folder, keep_days=1, keep_bytes=1 << 40, clock=clock)
    instruments = [Instrument(f"exchange{at}", SYMBOL, SYMBOL) for at in range(EXCHANGES)]
    for each in instruments:
        books.open(each)
        books.fill(Snapshot(each, *snapshot), clock.now_s)
    await recorder.begin()
    count = 0
    for _ in range(int(seconds / STEP_S)):
        for _ in range(int(CHANGES_PER_S * STEP_S)):
            bids, asks = frames[count // EXCHANGES % FRAMES]
            for each in instruments:
                clock.move_to(clock.now_s + 1 / (CHANGES_PER_S * EXCHANGES))
                reason = books.change(Delta(each, bids, asks, sequence=count), clock.now_s)
                if reason is not None:  # the frames began again
                    books.fill(Snapshot(each, *snapshot), clock.now_s)
                count += 1
        recorder.take_keyframes()
        await recorder.flush()
    recorder._stop()
    recorder._thread.shutdown()
    recorder._closer.shutdown()
    for hour_us in recorder.folder.open_hours():
        recorder.folder.close_hour(hour_us)
    return count


def replayed(folder: Path, start_us: int, end_us: int) -> float:
    """Return changes a second of CPU into books, merged each 100 ms."""
    began = time.process_time()
    history = HistoryFolder(folder)
    hours = history.hours()
    rows = history.rows(hours, SYMBOL, start_us, end_us)
    (interval, *_) = history.coverage(hours)
    replays = []
    for exchange, table in sorted(rows.items()):
        replay = BookReplay(table, interval.run)
        if replay.seek(start_us):
            replays.append((replay, replay.open(Instrument(exchange, SYMBOL, SYMBOL))))
    view = View(sorted(rows), depth=SHOWN)
    for until_us in range(start_us, end_us, MERGE_US):
        for replay, book in replays:
            replay.play(book, until_us)
        view.merge([book.core for _, book in replays])
        view.full(b"", b"")
    count = EXCHANGES * CHANGES_PER_S * (end_us - start_us) // 1_000_000
    return count / (time.process_time() - began)


def played(folder: Path, start_us: int, end_us: int, interval_ms: int) -> float:
    """Return changes a second of CPU of the library's replay."""
    began = time.process_time()
    updates = onebook.replay(
        folder, SYMBOL, start=start_us, end=end_us, interval_ms=interval_ms, depth=SHOWN
    )
    for update in updates:
        assert update.best_bid is not None
    count = EXCHANGES * CHANGES_PER_S * (end_us - start_us) // 1_000_000
    return count / (time.process_time() - began)


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else HOUR_S
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        changes = asyncio.run(record(folder, seconds))
        size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
        print(f"{changes} changes, {size / changes:.1f} bytes each", file=sys.stderr)
        chance = random.Random(7)
        costs, cpu = [], []
        for _ in range(TRIES):
            at_us = EPOCH_US + chance.randrange(70, seconds) * 1_000_000
            began, busy = time.perf_counter(), time.process_time()
            update = onebook.history(folder, SYMBOL, at=at_us, depth=SHOWN)
            costs.append(1e3 * (time.perf_counter() - began))
            cpu.append(1e3 * (time.process_time() - busy))
            assert len(update.exchanges) == EXCHANGES
            assert len(update.bids) == SHOWN
        costs.sort()
        found = {
            "slowest": costs[-1],
            "median": statistics.median(costs),
            "p95": costs[int(0.95 * TRIES)],
            "CPU": statistics.median(cpu),
        }
        report("past, 20 levels over 35 exchanges", found, "ms")
        span = min(600, seconds - 100)
        speed = replayed(folder, EPOCH_US + 80_000_000, EPOCH_US + (80 + span) * 1_000_000)
        report("history replayed into books and a view", {"changes": speed}, "a second")
        start_us, end_us = EPOCH_US + 80_000_000, EPOCH_US + (80 + span) * 1_000_000
        speeds = {
            f"{each} ms": played(folder, start_us, end_us, each) for each in (0, 100, 1_000, 30_000)
        }
        report("onebook.replay by interval", speeds, "changes a second")


if __name__ == "__main__":
    main()
