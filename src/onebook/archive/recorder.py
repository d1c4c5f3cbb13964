"""Records everything that books apply, into a `HistoryFolder`.

A change costs the event loop one append; a thread parses and writes twice a second. If the queue or
the disk is full, recording stops and books do not: coverage then ends, and begins again with the
state of every book. Only one recorder writes to a folder; a second one waits.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from prometheus_client import Counter, Gauge

from onebook.archive.folder import HOUR_US, HistoryFolder, Segment
from onebook.archive.format import HistoryKind, HistoryMessage, table_of
from onebook.books import LIVE, Books, LiveBook
from onebook.clock import SYSTEM_CLOCK, Clock, iso_us
from onebook.core import LevelShape
from onebook.core.types import SCALE_MAX
from onebook.exchanges.kit import Delta, Moment, Snapshot, TopOfBook, microseconds
from onebook.model import Health, Instrument

log = logging.getLogger("onebook.archive")

FLUSH_S: Final = 0.5  # a crash loses this and the time of one write
KEYFRAME_S: Final = 60.0
KEYFRAMES_TURN_S: Final = 0.01  # of the event loop; books that are due later come in the next turn
RETRY_S: Final = 10.0  # after a failure, or while another recorder has the folder
QUEUE_MESSAGES_MAX: Final = 200_000
SEGMENTS_MERGED: Final = 120  # a minute of segments becomes one
CLOCK_STEP_US: Final = 1_000_000  # a larger step of the clock ends a run
OFFSET_TRIES: Final = 5
UNUSABLE: Final = (OSError, ValueError)  # files, or levels, that cannot be read or written
DAY_US: Final = 24 * HOUR_US

MESSAGES: Final = Counter("onebook_history_messages", "Messages of books written to the history.")
LOST: Final = Counter("onebook_history_lost", "Messages of books missing from the history.")
FAILING: Final = Gauge("onebook_history_failing", "1 while the books cannot be recorded.")


class CopiedLevels(NamedTuple):
    """Both sides of a book as integers at its scales; the thread prints them."""

    bids: list[tuple[int, int]]
    asks: list[tuple[int, int]]
    at: Moment


Change = tuple[HistoryKind, LiveBook, float, Any, int, int, Any]


class HistoryRecorder:
    """Records books while entered.

    Args:
        books: The books; all that are open are recorded.
        root: The folder of the history.
        keep_days: Age at which an hour is deleted.
        keep_bytes: Size of all closed hours, beyond which the oldest are deleted.
        clock: The time.
    """

    def __init__(
        self,
        books: Books,
        root: Path,
        *,
        keep_days: int,
        keep_bytes: int,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._books = books
        self.folder = HistoryFolder(root)
        self._keep_days, self._keep_bytes = keep_days, keep_bytes
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "history")
        self._queue: list[Change] = []
        self._known: dict[LiveBook, float] = {}  # when the last keyframe was taken
        self._overlaid: set[LiveBook] = set()
        self.recording = False
        self._failed = False  # and logged
        self._run = self._number = self._segment = 0
        self._offset_us = self._last_us = self._start_us = 0
        self._hour_us = 0
        self._task: asyncio.Task[None] | None = None
        books.subscribe(
            on_health=self._health_changed, on_applied=self._applied, on_marked=self._marked
        )

    async def __aenter__(self) -> Self:
        await self.begin()
        self._task = asyncio.create_task(self._keep_recording(), name="history")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.recording:
            await self.flush()
        self._stop()
        FAILING.set(0)
        self._thread.shutdown()
        self.folder.unlock()

    async def _keep_recording(self) -> None:
        while True:
            await self._clock.sleep(FLUSH_S if self.recording else RETRY_S)
            if self.recording:
                self.take_keyframes()
                await self.flush()
            else:
                await self.begin()

    # On the event loop, for each change

    def _applied(self, book: LiveBook, output: Snapshot | Delta | TopOfBook, now: float) -> None:
        """Queue what was applied to a live book (the hot path)."""
        if not self.recording or not self._knows(book):
            return
        core = book.core
        if type(output) is Delta:
            self._put(
                (HistoryKind.DELTA, book, now, output, core.price_scale, core.amount_scale, None)
            )
            if book in self._overlaid and not core.overlaid:
                self._uncover(book, now)
        elif isinstance(output, Snapshot):
            self._put(
                (HistoryKind.SNAPSHOT, book, now, output, core.price_scale, core.amount_scale,
                 core.horizon())
            )  # fmt: skip
            if core.overlaid:
                self._cover(book, now)
            elif book in self._overlaid:
                self._uncover(book, now)
        elif core.overlaid:
            self._overlaid.add(book)
            self._put(
                (HistoryKind.TOP, book, now, output, core.price_scale, core.amount_scale, None)
            )
        else:
            self._uncover(book, now)

    def _health_changed(self, book: LiveBook, previous: Health) -> None:
        if self.recording and self._knows(book):
            self._overlaid.discard(book)
            self._put((HistoryKind.HEALTH, book, self._clock.monotonic(), None, 0, 0, _state(book)))
            if self._books.get(book.instrument) is not book:
                self._known.pop(book, None)

    def _marked(self, book: LiveBook) -> None:
        if self.recording and self._knows(book):
            self._put((HistoryKind.HEALTH, book, self._clock.monotonic(), None, 0, 0, _state(book)))

    def _put(self, change: Change) -> None:
        self._queue.append(change)
        if len(self._queue) > QUEUE_MESSAGES_MAX:
            self._fail(f"{QUEUE_MESSAGES_MAX} messages wait to be written")

    def _knows(self, book: LiveBook) -> bool:
        """Return whether a book has a keyframe; otherwise take it, which has the change."""
        if book in self._known:
            return True
        self._take_keyframe(book)
        return False

    def _uncover(self, book: LiveBook, now: float) -> None:
        self._overlaid.discard(book)
        self._put((HistoryKind.TOP, book, now, None, 0, 0, None))

    def _cover(self, book: LiveBook, now: float) -> None:
        """Queue the overlaid top of a book."""
        core = book.core
        self._overlaid.add(book)
        unit = 10 ** (SCALE_MAX - core.price_scale)
        bids, asks = (
            [(price // unit, amount) for price, amount in core.bins(side, 0, 1)]
            or [(1, 0)]  # an amount of 0: this side is shown empty
            for side in (0, 1)
        )
        self._put((HistoryKind.TOP, book, now, CopiedLevels(bids, asks, book.at), core.price_scale,
                   core.amount_scale, None))  # fmt: skip

    def _take_keyframe(self, book: LiveBook) -> None:
        now, core = self._clock.monotonic(), book.core
        self._known[book] = now
        sides = CopiedLevels(core.ladder(0), core.ladder(1), book.at)
        extra = (core.horizon(), book.updated_at, book.levels_max, book.window, _state(book))
        self._put(
            (HistoryKind.KEYFRAME, book, now, sides, core.price_scale, core.amount_scale, extra)
        )
        self._overlaid.discard(book)
        if core.overlaid:
            self._cover(book, now)

    def take_keyframes(self) -> None:
        """Take keyframes that are due, as many as fit in a turn, and forget closed books."""
        now = self._clock.monotonic()
        for book in [each for each in self._known if self._books.get(each.instrument) is not each]:
            self._known.pop(book)
        for book in self._books:
            if now - self._known.get(book, float("-inf")) >= KEYFRAME_S:
                self._take_keyframe(book)
                if self._clock.monotonic() - now > KEYFRAMES_TURN_S:
                    return

    # Runs

    async def begin(self) -> None:
        """Begin a run with the state of every book, if the folder is free and writable."""
        loop = asyncio.get_running_loop()
        try:
            if not self.folder.locked and not await loop.run_in_executor(
                self._thread, self.folder.lock
            ):
                self._report("another recorder uses it")
                return
            hour_us = self._clock.wall_us() // HOUR_US * HOUR_US
            await loop.run_in_executor(self._thread, self._close_hours, hour_us)
        except UNUSABLE as error:
            self._report(_why(error))
            return
        self._offset_us = self._measured_offset_us()
        self._run = self._start_us = self._now_us()
        self._last_us = self._start_us
        self._hour_us = self._start_us // HOUR_US * HOUR_US
        self._number = self._segment = 0
        self._queue, self._known, self._overlaid = [], {}, set()
        self.recording = True
        for book in self._books:
            self._take_keyframe(book)

    def _fail(self, why: str) -> None:
        self._stop()
        self._report(why)

    def _stop(self) -> None:
        LOST.inc(len(self._queue))
        self.recording = False
        self._queue = []

    def _report(self, why: str) -> None:
        FAILING.set(1)
        if not self._failed:
            self._failed = True
            log.warning(
                "Books are not recorded into %s: %s. Retrying every %g s.",
                self.folder.root, why, RETRY_S,
            )  # fmt: skip

    def _now_us(self) -> int:
        return self._offset_us + round(self._clock.monotonic() * 1_000_000)

    def _measured_offset_us(self) -> int:
        """Return wall minus monotonic time, from the quickest of several readings."""
        readings = []
        for _ in range(OFFSET_TRIES):
            before = self._clock.monotonic()
            wall_us = self._clock.wall_us()
            readings.append((self._clock.monotonic() - before, wall_us - round(before * 1_000_000)))
        return min(readings)[1]

    async def flush(self) -> None:
        """Write what was queued."""
        end_us = max(self._now_us(), self._last_us)
        changes, self._queue = self._queue, []
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._write, changes, self._offset_us, end_us)
        except UNUSABLE as error:
            LOST.inc(len(changes))
            self._fail(_why(error))
            return
        MESSAGES.inc(len(changes))
        if self._failed:
            self._failed = False
            FAILING.set(0)
            log.info("Recording books into %s again.", self.folder.root)
        offset_us = self._measured_offset_us()
        if abs(offset_us - self._offset_us) > CLOCK_STEP_US:
            self._fail("the clock of this machine was set")
            await self.begin()
        elif self.recording:
            self._offset_us = offset_us

    # In the thread

    def _write(self, changes: list[Change], offset_us: int, end_us: int) -> None:
        messages: list[HistoryMessage] = []
        for change in changes:
            at_us = max(self._last_us, offset_us + round(change[2] * 1_000_000))
            self._last_us = min(at_us, end_us)
            messages.append(_message(change, self._number, self._last_us, offset_us))
            self._number += 1
        self._last_us = end_us
        while end_us >= self._hour_us + HOUR_US:
            next_us = self._hour_us + HOUR_US
            self._add_segment([each for each in messages if each.received_us < next_us], next_us)
            messages = [each for each in messages if each.received_us >= next_us]
            self._close_hours(next_us)
            self._hour_us = next_us
        self._add_segment(messages, end_us)
        if self._segment % SEGMENTS_MERGED == 0:
            self.folder.merge_segments(self._hour_us, SEGMENTS_MERGED)

    def _add_segment(self, messages: list[HistoryMessage], end_us: int) -> None:
        table = table_of(self._run, messages)
        number = self._segment
        segment = Segment(self.folder.root, self._run, number, number, self._start_us, end_us)
        self.folder.add_segment(table, segment)
        self._segment += 1
        self._start_us = end_us

    def _close_hours(self, before_us: int) -> None:
        for hour_us in self.folder.open_hours():
            if hour_us >= before_us:
                continue
            try:
                self.folder.close_hour(hour_us)
            except UNUSABLE as error:  # of one hour, whose segments can still be read
                log.error("Cannot close the hour %s of the history in %s: %s. Its segments stay.",
                          iso_us(hour_us), self.folder.root, _why(error))  # fmt: skip
        self.folder.keep(self._keep_bytes, before_us - self._keep_days * DAY_US)


def _state(book: LiveBook) -> tuple[str, str | None, str, str | None]:
    """Return health, reason, detail and equal books; the reason of a live book is its mark's."""
    if book.health is LIVE and book.mark is not None:
        twins = ",".join(sorted(_name(each.instrument) for each in book.twins))
        return book.health, book.mark.reason, book.mark.detail, twins or None
    return book.health, book.reason, book.detail, None


def _name(instrument: Instrument) -> str:
    return f"{instrument.exchange} {instrument.symbol}"


def _why(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


def _text(side: list[tuple[int, int]]) -> bytes:
    return ("[" + ",".join([f"[{price},{amount}]" for price, amount in side]) + "]").encode()


def _message(change: Change, number: int, at_us: int, offset_us: int) -> HistoryMessage:
    kind, book, now, output, price_scale, amount_scale, extra = change
    message = HistoryMessage(book.instrument.exchange, book.instrument.symbol, number, kind, at_us)
    if isinstance(output, CopiedLevels):
        message.bids, message.asks = _text(output.bids), _text(output.asks)
        message.shape = LevelShape.rows(price_scale=price_scale, amount_scale=amount_scale)
    elif output is not None:
        message.bids, message.asks, message.shape = output.bids, output.asks, output.shape
        message.sequence = output.sequence or None
    if output is not None:
        message.price_scale, message.amount_scale = price_scale, amount_scale
        message.exchange_us = microseconds(output.at) or None
    if kind is HistoryKind.KEYFRAME:
        ends, updated_at, message.levels_max, message.window, extra = extra
    elif kind is HistoryKind.SNAPSHOT:
        ends, updated_at = extra, now
    if kind is HistoryKind.KEYFRAME or kind is HistoryKind.SNAPSHOT:
        message.bid_horizon, message.ask_horizon = (_mantissa(end, price_scale) for end in ends)
        message.updated_us = offset_us + round(updated_at * 1_000_000)
    if kind is HistoryKind.KEYFRAME or kind is HistoryKind.HEALTH:
        message.health, message.reason, message.detail, message.twins = extra
    return message


def _mantissa(price: str | None, scale: int) -> int | None:
    if price is None:
        return None
    whole, _, fraction = price.partition(".")
    return int(whole + fraction.ljust(scale, "0"))
