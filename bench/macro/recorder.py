"""Goal 15: what the history costs beside the feeds, recording and closing an hour.

30 feeds on loopback receive a frame of 20 levels each every 6 ms, 5,000 a second in all, paced by a
process on the other core; frames go through WebSocket, session, connector and books as in
`receive.py`. What counts is CPU per frame, kernel included. What the thread of the feeds does for
the recorder is the difference of windows with and without it, in turns, because a machine's speed
drifts within a minute by more than that. What other threads do is counted as it is, during a minute
with its flushes, fsync, a keyframe of each book and the merge. Then what was recorded is closed:
Parquet, quality, manifest. The floor is pyarrow alone with the same columns, as an Arrow file and
as a Parquet file of each book.

    recorder.py
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Final

import load
import pyarrow as pa
import pyarrow.parquet as pq
import receive
import uvloop
from pyarrow import ipc

from onebook.archive import segments
from onebook.archive.folder import HistoryFolder
from onebook.archive.format import (
    COMPRESSIONS,
    DICTIONARIES,
    ENCODINGS,
    HOUR_US,
    STATISTICS,
    ZSTD_LEVELS,
)
from onebook.archive.recorder import FLUSH_S, SEGMENTS_MERGED, HistoryRecorder
from onebook.books import Books
from onebook.clock import Clock
from onebook.feeds.feed import Feed
from onebook.feeds.stats import ExchangeStats
from onebook.model import Instrument
from onebook.rest import Rest
from timing import report

PACE_S: Final = 0.006
FIRST_S: Final = 3.0  # before it counts
WINDOW_S: Final = 6.0
WINDOWS: Final = 10  # of each kind
MINUTE_S: Final = SEGMENTS_MERGED * FLUSH_S
LATE_S: Final = 30.0  # of all together, on a busy machine
ROUNDS: Final = round((FIRST_S + 2 * WINDOWS * WINDOW_S + MINUTE_S + LATE_S) / PACE_S)
HOUR_START_US: Final = 472_222 * HOUR_US


class HourClock(Clock):
    """The clock of this machine, but an hour begins with the run."""

    def __init__(self) -> None:
        self._offset_us = HOUR_START_US - time.monotonic_ns() // 1_000

    def wall_us(self) -> int:
        return self._offset_us + time.monotonic_ns() // 1_000


class Cost:
    """CPU of this thread and of all others, per frame that was applied to books."""

    def __init__(self, books: Books) -> None:
        self.frames = 0
        books.subscribe(on_applied=self._applied)

    def _applied(self, *_: object) -> None:
        self.frames += 1

    async def of(self, awaited: Awaitable[object]) -> tuple[float, float]:
        """Return microseconds of this thread and of others while this is awaited."""
        frames, own, began = self.frames, time.thread_time(), time.process_time()
        await awaited
        took, own = time.process_time() - began, time.thread_time() - own
        frames = self.frames - frames
        return 1e6 * own / frames, 1e6 * (took - own) / frames


async def record(recorder: HistoryRecorder, seconds: float) -> None:
    """Record as the recorder does by itself, for some time."""
    await recorder.begin()
    for _ in range(round(seconds / FLUSH_S)):
        await asyncio.sleep(FLUSH_S)
        recorder.take_keyframes()
        await recorder.flush()
    recorder.pause()


async def measure(port: int, root: Path) -> None:
    books, clock = Books(), HourClock()
    cost = Cost(books)
    recorder = HistoryRecorder(books, root, keep_days=1, keep_bytes=1 << 40, clock=clock)
    async with Rest() as rest, asyncio.TaskGroup() as group:
        tasks = []
        for at in range(receive.FEEDS):
            name = f"exchange{at}"
            instrument = Instrument(name, "BTC/USDT", "BTC-USDT")
            books.open(instrument)
            feed = Feed(
                receive.exchange_at(port, name), [instrument], books=books, rest=rest,
                stats=ExchangeStats(name), quotas=receive.unlimited(),
            )  # fmt: skip
            tasks.append(group.create_task(feed.run()))
        await asyncio.sleep(FIRST_S)
        alone, recorded = [], []
        for _ in range(WINDOWS):
            alone.append(await cost.of(asyncio.sleep(WINDOW_S)))
            recorded.append(await cost.of(record(recorder, WINDOW_S)))
        _, others = await cost.of(record(recorder, MINUTE_S))
        assert any(each.merged for each in recorder.folder.segments(HOUR_START_US))
        assert len([*books.live()]) == receive.FEEDS
        for task in tasks:
            task.cancel()
    recorder.folder.merge_segments(HOUR_START_US)  # those of the windows, outside of what counts
    began = time.process_time()
    recorder.folder.close_hour(HOUR_START_US)
    closing = time.process_time() - began
    quality = recorder.folder.quality(HOUR_START_US, HOUR_START_US + HOUR_US)
    frames = sum(quality["messages"].to_pylist())
    feeds, own = (statistics.fmean(each for each, _ in windows) for windows in (alone, recorded))
    costs = {
        "feeds": feeds,
        "recording": own - feeds + others,
        "closing": 1e6 * closing / frames,
        "floor": 1e6 * floor(recorder.folder, root / "floor") / frames,
    }
    costs["recording and closing"] = costs["recording"] + costs["closing"]
    report("history of a frame of 20 levels", costs, "us a frame")


def floor(folder: HistoryFolder, path: Path) -> float:
    """Return the CPU seconds of pyarrow alone: what was recorded, as Arrow and as Parquet files."""
    took = 0.0
    for file in folder.closed_files(HOUR_START_US):
        if not file.endswith("BTC-USDT.parquet"):
            continue
        rows = pq.read_table(folder.root / file, read_dictionary=DICTIONARIES)
        messages = rows.select([each for each in segments.MESSAGES.names if each != "book"])
        began = time.process_time()
        with pa.OSFile(str(path), "wb") as sink, ipc.new_file(sink, messages.schema) as writer:
            writer.write_table(messages)
        pq.write_table(
            rows, path, compression=COMPRESSIONS, compression_level=ZSTD_LEVELS,
            use_dictionary=DICTIONARIES, column_encoding=ENCODINGS, write_statistics=STATISTICS,
        )  # fmt: skip
        took += time.process_time() - began
    return took


def main() -> None:
    if sys.argv[1:] == ["send"]:
        with suppress(ConnectionError):  # the feeds end first
            receive.send(ROUNDS, PACE_S)
        return
    load.settle_on(0)
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, __file__, "send"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as sender,
    ):  # fmt: skip
        assert sender.stdout is not None
        uvloop.run(measure(int(sender.stdout.readline()), Path(folder)))
        sender.kill()


if __name__ == "__main__":
    main()
