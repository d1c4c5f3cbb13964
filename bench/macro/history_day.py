"""A recorded day of 36 exchanges x 15 symbols: past books from local files and from an S3 server.

The day is made in virtual time, through books and the recorder itself, with `CHANGES_PER_S` changes
of five levels a second and book, far below real markets so that it ends within minutes. What a
moment reads is the same at higher rates, because a row group ends at about 16,000 levels. Then 200
random moments are rebuilt with 20 levels over 35 exchanges, from local files, and 20 from two hours
of the day that were copied to moto's S3 server. Wall time, and CPU time of this process, which load
disturbs less.

    python bench/macro/history_day.py [HOURS]
"""

import asyncio
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / each) for each in ("micro", ".")]

from ours import _pairs  # noqa: E402

import onebook  # noqa: E402
import stream  # noqa: E402
from onebook.archive.format import HOUR_US, hour_folder  # noqa: E402
from onebook.archive.recorder import HistoryRecorder  # noqa: E402
from onebook.archive.stores import FileStore  # noqa: E402
from onebook.books import Books  # noqa: E402
from onebook.clock import ManualClock  # noqa: E402
from onebook.exchanges import NAMES  # noqa: E402
from onebook.exchanges.kit import Delta, Snapshot  # noqa: E402
from onebook.model import Instrument  # noqa: E402
from timing import report  # noqa: E402

EXCHANGES: Final = [*NAMES, *(f"exchange{at}" for at in range(36))][:36]
SYMBOLS: Final = [f"COIN{at:02}/USDT" for at in range(15)]
CHANGES_PER_S: Final = 0.02  # of a book
LEVELS, DEPTH = 5, 50
HOURS: Final = 24
EPOCH_US: Final = 1_699_999_200_000_000  # an hour begins
FLUSH_S: Final = 10.0  # 0.75 in a node; a flush costs as much without changes
FRAMES: Final = 6_000  # made once, and used by all books in turn
SHOWN, MERGED = 20, 35
MOMENTS, STORE_MOMENTS, STORE_HOURS = 200, 20, 2
FIRST_S: Final = 130  # until every book has a keyframe
STARTED = re.compile(r"http://127\.0\.0\.1:(\d+)")


async def record(folder: Path, hours: int) -> int:
    """Record the hours and close them; return the number of changes."""
    market = stream.Stream(DEPTH, seed=3)
    snapshot = [_pairs(side) for side in market.snapshot()]
    frames = [tuple(_pairs(side) for side in market.frame(LEVELS)) for _ in range(FRAMES)]
    books, clock = Books(), ManualClock(1.0, epoch_us=EPOCH_US)
    recorder = HistoryRecorder(books, folder, keep_days=9_999, keep_bytes=1 << 40, clock=clock)
    instruments = [
        Instrument(exchange, symbol, symbol) for symbol in SYMBOLS for exchange in EXCHANGES
    ]
    for each in instruments:
        books.open(each)
        books.fill(Snapshot(each, *snapshot), clock.now_s)
    await recorder.begin()
    chance, count, places = random.Random(5), 0, dict.fromkeys(instruments, 0)
    each_flush = round(len(instruments) * CHANGES_PER_S * FLUSH_S)
    for _ in range(int(hours * 3_600 / FLUSH_S) + 1):
        for _ in range(each_flush):
            clock.move_to(clock.now_s + FLUSH_S / each_flush)
            instrument = chance.choice(instruments)
            place = places[instrument]
            places[instrument] = (place + 1) % FRAMES
            delta = Delta(instrument, *frames[place], sequence=count)
            if place == 0 or books.change(delta, clock.now_s) is not None:
                books.fill(Snapshot(instrument, *snapshot), clock.now_s)
            count += 1
        recorder.take_keyframes()
        await recorder.flush()
    await asyncio.wrap_future(recorder.closing)  # type: ignore[arg-type]
    recorder._stop()
    recorder._thread.shutdown()
    recorder._closer.shutdown()
    recorder.folder.unlock()
    return count


def asked(place: str | Path, start_us: int, end_us: int, count: int) -> dict[str, float]:
    """Rebuild random moments; return milliseconds."""
    chance = random.Random(7)
    costs, cpu = [], []
    for _ in range(count):
        at_us = chance.randrange(start_us // 1_000_000, end_us // 1_000_000) * 1_000_000
        symbol, names = chance.choice(SYMBOLS), EXCHANGES[:MERGED]
        began, busy = time.perf_counter(), time.process_time()
        update = onebook.history(place, symbol, at=at_us, depth=SHOWN, exchanges=names)
        costs.append(1e3 * (time.perf_counter() - began))
        cpu.append(1e3 * (time.process_time() - busy))
        assert len(update.exchanges) == MERGED
        assert len(update.bids) == SHOWN
    costs.sort()
    return {
        "median": statistics.median(costs),
        "p99": costs[int(0.99 * count)],
        "slowest": costs[-1],
        "CPU": statistics.median(cpu),
    }


@contextmanager
def s3_server() -> Iterator[str]:
    """Run moto's server on a free port of loopback; yields the URL of a bucket in it."""
    os.environ.update(
        AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_EC2_METADATA_DISABLED="true"
    )
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdout=log,
            stderr=log,
        )
        try:
            yield f"s3://day/history?scheme=http&region=us-east-1&endpoint_override={_address(log)}"
        finally:
            process.kill()
            process.wait()


def _address(log: object) -> str:
    for _ in range(600):
        log.seek(0)  # type: ignore[attr-defined]
        if found := STARTED.search(log.read()):  # type: ignore[attr-defined]
            return f"127.0.0.1:{found[1]}"
        time.sleep(0.1)
    raise SystemExit("moto's server did not start")


def copied(folder: Path, url: str) -> None:
    """Copy the first hours to a store."""
    _, options = url.split("?")
    FileStore(f"s3://day?{options}&allow_bucket_creation=true")._files.create_dir("day")
    store, local = FileStore(url), FileStore(folder)
    for hour in range(STORE_HOURS):
        for path in local.files(hour_folder(EPOCH_US + hour * HOUR_US)):
            store.copy_from(folder, path)


def main() -> None:
    hours = int(sys.argv[1]) if len(sys.argv) > 1 else HOURS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.process_time()
        changes = asyncio.run(record(folder, hours))
        size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
        made = {
            "changes": changes,
            "bytes": size,
            "CPU s": time.process_time() - began,
            "changes a second and book": CHANGES_PER_S,
        }
        report(f"history of {hours} hours, {len(EXCHANGES)} x {len(SYMBOLS)} books", made, "")
        start_us = EPOCH_US + FIRST_S * 1_000_000
        found = asked(folder, start_us, EPOCH_US + hours * HOUR_US, MOMENTS)
        report("past of a day, 20 levels over 35 exchanges", found, "ms")
        with s3_server() as url:
            copied(folder, url)
            found = asked(url, start_us, EPOCH_US + STORE_HOURS * HOUR_US, STORE_MOMENTS)
            report("past from S3 on loopback, 20 levels over 35 exchanges", found, "ms")


if __name__ == "__main__":
    main()
