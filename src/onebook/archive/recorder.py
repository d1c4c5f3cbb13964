"""Records everything that books apply, into a `HistoryFolder`.

A book copies what it applies to a tape (`core.BookTape`); a thread takes the tape every 0.75 s
and writes it. If the tape or the disk is full, recording stops and books do not: coverage then
ends, and begins again with the state of every book. Only one recorder writes to a folder; a second
one waits.
"""

import asyncio
import logging
import os
import sys
import threading
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from prometheus_client import Counter, Gauge

from onebook.archive.folder import HistoryFolder
from onebook.archive.format import HOUR_US
from onebook.archive.segments import Messages, RecordedState, Segment, messages_of
from onebook.archive.stores import FileStore
from onebook.archive.uploads import Uploader
from onebook.books import LIVE, Books, LiveBook
from onebook.clock import SYSTEM_CLOCK, Clock, iso_us
from onebook.core import BookTape, TapeKind
from onebook.exchanges.kit import Delta, Snapshot, TopOfBook, microseconds
from onebook.model import Health, Instrument

log = logging.getLogger("onebook.archive")

FLUSH_S: Final = 0.75  # a crash loses this and the time of one write: a second at most
KEYFRAME_S: Final = 60.0
KEYFRAMES_TURN_S: Final = 0.01  # of the event loop; books that are due later come in the next turn
UPLOAD_RETRY_S: Final = 60.0  # after a store refused
RETRY_S: Final = 10.0  # after a failure, or while another recorder has the folder
TAPE_ROWS_MAX: Final = 8_000_000  # levels of a tape, 17 bytes each: until the thread takes it
SEGMENTS_MERGED: Final = 80  # a minute of segments becomes one
CLOCK_STEP_US: Final = 1_000_000  # a larger step of the clock ends a run
OFFSET_TRIES: Final = 5
UNUSABLE: Final = (OSError, ValueError)  # files, or levels, that cannot be read or written
DAY_US: Final = 24 * HOUR_US

MESSAGES: Final = Counter("onebook_history_messages", "Messages of books written to the history.")
LOST: Final = Counter("onebook_history_lost", "Messages of books missing from the history.")
FAILING: Final = Gauge("onebook_history_failing", "1 while the books cannot be recorded.")
LAG: Final = Gauge(
    "onebook_history_lag_seconds", "Time since books were last written completely; 0 if none are."
)
QUEUED: Final = Gauge("onebook_history_queued", "Messages of books that wait to be written.")
WAITING: Final = Gauge(
    "onebook_history_upload_waiting", "Closed hours that the history's store does not have yet."
)


# Integers, because a member of an enum is slower to pass.
KEYFRAME, SNAPSHOT, DELTA, TOP, HEALTH = map(int, TapeKind)


class HistoryRecorder:
    """Records books while entered.

    Args:
        books: The books; all that are open are recorded.
        root: The folder of the history.
        keep_days: Age at which an hour is deleted.
        keep_bytes: Size of all closed hours, beyond which the oldest are deleted.
        signing_key: Signs the manifests of closed hours, if given.
        store: Closed hours are copied there, if given; an hour is kept until it was copied.
        clock: The time.
    """

    def __init__(
        self,
        books: Books,
        root: Path,
        *,
        keep_days: int,
        keep_bytes: int,
        signing_key: Ed25519PrivateKey | None = None,
        store: FileStore | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._books = books
        self.folder = HistoryFolder(root, signing_key)
        self._uploader = None if store is None else Uploader(root, store)
        self._upload_failed = False  # and logged
        self._upload_at = float("inf")  # the next try
        self._keep_days, self._keep_bytes = keep_days, keep_bytes
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "history")
        # Hours are closed here, so that no flush waits; the end of recording cancels it.
        self._closer = ThreadPoolExecutor(1, "history-close", _yield_to_others)
        self._ending = threading.Event()
        self.closing: Future[None] | None = None  # of the last hour that ended
        self._tape = BookTape(microseconds, TAPE_ROWS_MAX)
        self._read: BookTape | None = None  # the tape before, whose memory is used again
        # Of messages on the tape, whose numbers are their places there.
        self._states: list[RecordedState] = []
        self._numbers: dict[Instrument, int] = {}  # of the books on the tape
        self._known: dict[LiveBook, float] = {}  # when the last keyframe was taken
        self.recording = False
        self._failed = False  # and logged
        self._run = self._number = self._segment = 0
        self._offset_us = self._last_us = self._start_us = 0
        self._hour_us = 0
        self._written_at = 0.0  # monotonic; before this, everything is in a file
        self._task: asyncio.Task[None] | None = None
        books.subscribe(
            on_health=self._health_changed, on_applied=self._applied, on_marked=self._marked
        )

    async def __aenter__(self) -> Self:
        LAG.set_function(self._lag_s)
        QUEUED.set_function(lambda: self._tape.count if self.recording else 0)
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
        LAG.set_function(lambda: 0.0)
        QUEUED.set_function(lambda: 0)
        self._ending.set()
        self._thread.shutdown()
        self._closer.shutdown(cancel_futures=True)
        self.folder.unlock()

    async def _keep_recording(self) -> None:
        while True:
            await self._clock.sleep(FLUSH_S if self.recording else RETRY_S)
            if self.recording:
                self.take_keyframes()
                await self.flush()
                self.retry_upload()
            else:
                await self.begin()

    # On the event loop, for each change

    def _applied(self, book: LiveBook, output: Snapshot | Delta | TopOfBook, now: float) -> None:
        """Commit what was applied to a live book (the hot path)."""
        kind = DELTA
        if type(output) is not Delta:
            kind = SNAPSHOT if isinstance(output, Snapshot) else TOP
        if not book.core.commit(kind, now, output.sequence, output.at) and self.recording:
            self._missed(book)

    def _missed(self, book: LiveBook) -> None:
        """Begin to record a book; one that was known has a keyframe with this change."""
        if self._tape.full:
            self._fail("too many levels wait to be written")
        elif book not in self._known:
            self._take_keyframe(book)

    def _health_changed(self, book: LiveBook, previous: Health) -> None:
        self._marked(book)
        if self._books.get(book.instrument) is not book:
            self._forget(book)

    def _marked(self, book: LiveBook) -> None:
        if not self.recording:
            return
        message = self._tape.count
        if book.core.commit(HEALTH, self._clock.monotonic()):
            number = self._numbers[book.instrument]
            self._states.append(RecordedState(message, number, *_state(book)))
        else:
            self._missed(book)

    def _take_keyframe(self, book: LiveBook) -> None:
        now, message = self._clock.monotonic(), self._tape.count
        number = self._numbers.setdefault(book.instrument, len(self._numbers))
        if book not in self._known:
            book.core.record(self._tape, number)
        self._known[book] = now
        if book.core.keyframe(now, book.at):
            updated_at = book.updated_at
            self._states.append(
                RecordedState(
                    message,
                    number,
                    *_state(book),
                    self._offset_us + round(updated_at * 1_000_000) if updated_at else None,
                    book.audits,
                    book.levels_max,
                    book.window,
                )
            )
        else:
            self._missed(book)

    def _forget(self, book: LiveBook) -> None:
        if self._known.pop(book, None) is not None:
            book.core.record(None)

    def take_keyframes(self) -> None:
        """Take keyframes that are due, as many as fit in a turn, and forget closed books."""
        now = self._clock.monotonic()
        for book in [each for each in self._known if self._books.get(each.instrument) is not each]:
            self._forget(book)
        for book in self._books:
            if now - self._known.get(book, float("-inf")) >= KEYFRAME_S:
                self._take_keyframe(book)
                if self._clock.monotonic() - now > KEYFRAMES_TURN_S:
                    return

    def _lag_s(self) -> float:
        return self._clock.monotonic() - self._written_at if self.recording else 0.0

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
        except UNUSABLE as error:
            self._report(_why(error))
            return
        self._offset_us = self._measured_offset_us()
        self._run = self._start_us = self._now_us()
        self._last_us = self._start_us
        self._hour_us = self._start_us // HOUR_US * HOUR_US
        self.closing = self._closer.submit(self._close_hours, self._hour_us)
        self._number = self._segment = 0
        self._written_at = self._clock.monotonic()
        self.recording = True
        for book in self._books:
            if self.recording:
                self._take_keyframe(book)

    def _fail(self, why: str) -> None:
        self._stop()
        self._report(why)

    def pause(self) -> None:
        """End the run; `begin` begins another one."""
        self._stop()

    def _stop(self) -> None:
        LOST.inc(self._tape.count)
        self.recording = False
        for book in [*self._known]:
            self._forget(book)
        self._tape, self._states, self._numbers = BookTape(microseconds, TAPE_ROWS_MAX), [], {}

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

    def retry_upload(self) -> None:
        """Upload again, if the store refused a while ago."""
        if self._upload_failed and self._clock.monotonic() >= self._upload_at:
            self._upload_at = float("inf")
            self.closing = self._closer.submit(self._upload)

    async def flush(self) -> None:
        """Write what was queued."""
        taken_at = self._clock.monotonic()
        end_us = max(self._now_us(), self._last_us)
        tape, states, self._states = self._tape.swap(self._read), self._states, []
        self._read = None
        books = [(each.exchange, each.symbol) for each in self._numbers]
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(
                self._thread, self._write, tape, books, states, self._offset_us, end_us
            )
        except UNUSABLE as error:
            LOST.inc(tape.count)
            self._fail(_why(error))
            return
        MESSAGES.inc(tape.count)
        self._read = tape
        self._written_at = taken_at
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

    # Called in the recorder's thread

    def _write(
        self,
        tape: BookTape,
        books: Sequence[tuple[str, str]],
        states: Sequence[RecordedState],
        offset_us: int,
        end_us: int,
    ) -> None:
        columns = tape.columns(self._number, offset_us, self._last_us, end_us)
        states = [each._replace(message=self._number + each.message) for each in states]
        messages = messages_of(columns, self._run, books, states)
        self._number += tape.count
        self._last_us = end_us
        received = memoryview(columns.received).cast("q")
        start = 0
        while end_us >= self._hour_us + HOUR_US:
            next_us = self._hour_us + HOUR_US
            stop = bisect_left(received, next_us)
            self._add_segment(messages.slice(start, stop), next_us)
            self.closing = self._closer.submit(self._close_hours, next_us)
            self._hour_us, start = next_us, stop
        self._add_segment(messages.slice(start, tape.count), end_us)
        if self._segment % SEGMENTS_MERGED == 0:
            self.folder.merge_segments(self._hour_us, SEGMENTS_MERGED)

    def _add_segment(self, messages: Messages, end_us: int) -> None:
        number, folder = self._segment, self.folder.open_folder(self._hour_us)
        segment = Segment(folder, self._run, number, number, self._start_us, end_us)
        self.folder.add_segment(messages, segment)
        self._segment += 1
        self._start_us = end_us

    # Called in the closing thread

    def _close_hours(self, before_us: int) -> None:
        for hour_us in self.folder.open_hours():
            if hour_us >= before_us:
                continue
            try:
                if not self.folder.close_hour(hour_us, self._ending.is_set):
                    return
            except UNUSABLE as error:  # of one hour, whose segments can still be read
                log.error("Cannot close the hour %s of the history in %s: %s. Its segments stay.",
                          iso_us(hour_us), self.folder.root, _why(error))  # fmt: skip
        self._upload()
        needed = set() if self._uploader is None else self._uploader.pending(self.folder.hours())
        try:
            self.folder.keep(self._keep_bytes, before_us - self._keep_days * DAY_US, needed)
        except UNUSABLE as error:
            log.error("Cannot delete old hours of the history in %s: %s.",
                      self.folder.root, _why(error))  # fmt: skip

    def _upload(self) -> None:
        if self._uploader is None:
            return
        name = self._uploader.store.name
        try:
            self._uploader.upload(self._ending.is_set)
        except UNUSABLE as error:
            if not self._upload_failed:
                self._upload_failed = True
                log.warning("Closed hours of the history cannot be copied to %s: %s. They are kept "
                            "in %s; retrying every %g s.",
                            name, _why(error), self.folder.root, UPLOAD_RETRY_S)  # fmt: skip
            self._upload_at = self._clock.monotonic() + UPLOAD_RETRY_S
        else:
            if self._upload_failed:
                self._upload_failed = False
                log.info("Closed hours of the history are copied to %s again.", name)
        WAITING.set(len(self._uploader.pending(self.folder.hours())))


def _yield_to_others() -> None:
    """Give this thread the lowest priority."""
    if sys.platform == "linux":  # elsewhere a priority is that of the process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


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
