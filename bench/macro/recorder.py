"""Goal 15: what the history costs beside the feeds, recording and closing an hour.

30 feeds on loopback receive a frame of 20 levels each every 6 ms, 5,000 a second in all, paced by a
process on the other core; frames go through WebSocket, session, connector and books as in
`receive.py`. After some seconds a recorder writes them into a folder for a minute, with its flushes
every 0.75 s, one keyframe of each book and the merge of the minute. Then the feeds run alone
again, and what was recorded is closed: Parquet, quality, manifest. What counts is CPU of the whole
process per frame, kernel and threads included. A book has 10,000 messages here and 36,000 in an
hour of ten a second, so what closing costs once a book counts more than threefold.

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
import receive
import uvloop

from onebook.archive.format import HOUR_US
from onebook.archive.recorder import FLUSH_S, HistoryRecorder
from onebook.books import Books
from onebook.clock import Clock
from onebook.feeds.feed import Feed
from onebook.feeds.stats import ExchangeStats
from onebook.model import Instrument
from onebook.rest import Rest
from timing import report

PACE_S: Final = 0.006
FIRST_S: Final = 3.0  # before it counts
ALONE_S: Final = 10.0
MINUTE_S: Final = 60.5  # with a keyframe of each book
LATE_S: Final = 30.0  # on a busy machine, until the minute is merged
ROUNDS: Final = round((FIRST_S + 2 * ALONE_S + MINUTE_S + LATE_S) / PACE_S)
HOUR_START_US: Final = 472_222 * HOUR_US


class HourClock(Clock):
    """The clock of this machine, but an hour begins with the run."""

    def __init__(self) -> None:
        self._offset_us = HOUR_START_US - time.monotonic_ns() // 1_000

    def wall_us(self) -> int:
        return self._offset_us + time.monotonic_ns() // 1_000


class Applied:
    """Counts the frames that were applied to books."""

    def __init__(self, books: Books) -> None:
        self.count = 0
        books.subscribe(on_applied=self._applied)

    def _applied(self, *_: object) -> None:
        self.count += 1

    async def cost(self, awaited: Awaitable[object]) -> float:
        """Return microseconds of CPU per frame while this is awaited."""
        count, began = self.count, time.process_time()
        await awaited
        took = time.process_time() - began
        return 1e6 * took / (self.count - count)


async def merged(recorder: HistoryRecorder) -> None:
    """Record until the first minute is merged."""
    await asyncio.sleep(MINUTE_S)
    async with asyncio.timeout(LATE_S):
        while not any(each.merged for each in recorder.folder.segments(HOUR_START_US)):
            await asyncio.sleep(FLUSH_S)


async def measure(port: int, root: Path) -> None:
    books, clock = Books(), HourClock()
    applied = Applied(books)
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
        alone = [await applied.cost(asyncio.sleep(ALONE_S))]
        async with recorder:
            count = applied.count
            recorded = await applied.cost(merged(recorder))
            count = applied.count - count
        assert len([*books.live()]) == receive.FEEDS
        alone.append(await applied.cost(asyncio.sleep(ALONE_S)))
        for task in tasks:
            task.cancel()
    began = time.process_time()
    recorder.folder.close_hour(HOUR_START_US)
    closing = 1e6 * (time.process_time() - began) / count
    feeds = statistics.fmean(alone)
    costs = {"feeds": feeds, "recording": recorded - feeds, "closing": closing}
    costs["recording and closing"] = costs["recording"] + closing
    report("history of a frame of 20 levels", costs, "us a frame")


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
