"""Imports recordings of other programs into a history.

Sources are merged by time and played into books, which a `HistoryRecorder` records with a clock of
their own. The hours are made beside the history and moved into it when all are complete, so that an
import that ends early changes nothing.
"""

import gzip
import heapq
import io
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from onebook.archive.folder import HistoryFolder
from onebook.archive.format import HOUR_US
from onebook.archive.recorder import HistoryRecorder
from onebook.books import Books
from onebook.clock import ManualClock, iso_us
from onebook.exchanges import EXCHANGES, NAMES
from onebook.exchanges.kit import Delta, Snapshot
from onebook.library.replay import Tape, tapes_of
from onebook.model import Health, Instrument, Reason

STAGING: Final = "import"  # folder of the hours that are not complete yet
FLUSH_US: Final = 10_000_000
SILENCE_US: Final = 60_000_000  # without any message: this time was not recorded
KEEP_DAYS: Final = 1_000_000
KEEP_BYTES: Final = 1 << 62
LINE_CHARACTERS_MAX: Final = 1_000
TIME_MAX_US: Final = 32_503_680_000_000_000  # the year 3000; nanoseconds exceed it
# Columns of tardis.dev's incremental_book_L2 (docs.tardis.dev/downloadable-csv-files/data-types).
TARDIS_COLUMNS: Final = (
    "exchange", "symbol", "timestamp", "local_timestamp", "is_snapshot", "side", "price", "amount",
)  # fmt: skip
# Their names of exchanges that have another one here. Unconfirmed: read on no file of ours.
TARDIS_EXCHANGES: Final = {
    "binance-us": "binanceus", "crypto-com": "cryptocom", "gate-io": "gate", "huobi": "htx",
    "okex": "okx",
}  # fmt: skip
_NUMBER: Final = re.compile(r"\d{1,18}(\.\d{1,18})?")

Act = Callable[[Books, float], None]
Event = tuple[int, Act]  # Unix microseconds, and what happens then


class ImportRefused(ValueError):
    """Files that cannot be imported; the message names the file, its line, or the hour."""


class ImportSource(Protocol):
    """A file to import, in order of time."""

    size: int
    """Bytes of the file."""
    position: int
    """Bytes that were read."""

    def events(self) -> Iterator[Event]:
        """Yield what happened, in order of time."""


class ImportedHistory(NamedTuple):
    """What an import added.

    Args:
        hours: The start of each hour, in microseconds since 1970.
        events: Number of messages of the files.
    """

    hours: tuple[int, ...]
    events: int


class RecordedFile:
    """A recording of `onebook record`, or a raw data file of cryptofeed; it is read whole."""

    def __init__(self, path: Path) -> None:
        self.size = path.stat().st_size
        self.position = 0
        self._path = path

    def events(self) -> Iterator[Event]:
        """Yield the recorded entries.

        Raises:
            RecordingError: The file is not a recording; the message has the line.
        """
        tapes = tapes_of([self._path], NAMES)
        self.position = self.size
        for tape in tapes:
            if tape.entries:
                yield round(tape.entries[0].at * 1_000_000), partial(_open_books, tape)
        entries = ([(entry.at, tape, entry) for entry in tape.entries] for tape in tapes)
        for at, tape, entry in heapq.merge(*entries, key=lambda each: each[0]):
            yield round(at * 1_000_000), partial(_play, tape, entry)


def _open_books(tape: Tape, books: Books, now: float) -> None:
    tape.open_books(books)


def _play(tape: Tape, entry: object, books: Books, now: float) -> None:
    tape.tick(now)
    tape.play(entry, now, books)  # type: ignore[arg-type]


class TardisFile:
    """A file of tardis.dev's `incremental_book_L2`: CSV, plain or as gzip.

    Args:
        path: The file.
        symbols: Our pair of each symbol of the file.
    """

    def __init__(self, path: Path, symbols: Mapping[str, str]) -> None:
        self.size = path.stat().st_size
        self.position = 0
        self._path, self._symbols = path, symbols
        self._instruments: dict[tuple[str, str], Instrument] = {}

    def events(self) -> Iterator[Event]:
        """Yield the messages: rows of one symbol with one arrival time.

        Raises:
            ImportRefused: A line is invalid.
        """
        with self._path.open("rb") as file:
            try:
                yield from self._messages(self._lines(file))
            except (OSError, EOFError, zlib.error) as error:
                raise ImportRefused(f"{self._path}: cannot be decompressed: {error}.") from None

    def _lines(self, file: BinaryIO) -> Iterator[tuple[int, list[str]]]:
        packed = self._path.suffix == ".gz"
        with io.TextIOWrapper(gzip.GzipFile(fileobj=file) if packed else file, "utf-8") as text:
            number = 0
            while line := _line(text, f"{self._path}, line {number + 1}"):
                number += 1
                self.position = file.tell()
                yield number, line.rstrip("\r\n").split(",")

    def _messages(self, lines: Iterator[tuple[int, list[str]]]) -> Iterator[Event]:
        _, header = next(lines, (0, []))
        if tuple(header) != TARDIS_COLUMNS:
            raise ImportRefused(
                f"{self._path}, line 1: the columns must be {','.join(TARDIS_COLUMNS)}."
            )
        snapshots: dict[Instrument, bool] = {}  # whether the last message was of one
        message: _Message | None = None
        last_us = 0
        for number, row in lines:
            where = f"{self._path}, line {number}"
            if len(row) != len(TARDIS_COLUMNS):
                raise ImportRefused(f"{where}: {len(row)} columns of {len(TARDIS_COLUMNS)}.")
            exchange, symbol, sent, received, whole, side, price, amount = row
            if whole not in ("true", "false") or side not in ("bid", "ask"):
                raise ImportRefused(f"{where}: is_snapshot or side is invalid: {whole}, {side}.")
            if not (_NUMBER.fullmatch(price) and _NUMBER.fullmatch(amount)):
                raise ImportRefused(f"{where}: price or amount is invalid: {price}, {amount}.")
            at_us, sent_us = _time_us(received, where), _time_us(sent, where)
            if at_us < last_us:
                raise ImportRefused(f"{where}: local_timestamp is before that of the line before.")
            last_us = at_us
            instrument = self._instrument(exchange, symbol, where)
            head = (at_us, instrument, whole == "true")
            if message is None or message.head != head:
                if message is not None:
                    yield message.head[0], message.act(snapshots)
                # Without a time of the exchange, tardis repeats the arrival time.
                message = _Message(head, sent_us if sent_us != at_us else 0, where, [], [])
            (message.bids if side == "bid" else message.asks).append(f'["{price}","{amount}"]')
        if message is not None:
            yield message.head[0], message.act(snapshots)

    def _instrument(self, exchange: str, native: str, where: str) -> Instrument:
        found = self._instruments.get((exchange, native))
        if found is not None:
            return found
        name = TARDIS_EXCHANGES.get(exchange, exchange)
        if name not in EXCHANGES:
            raise ImportRefused(f"{where}: unknown exchange {exchange!r}.")
        symbol = self._symbols.get(native)
        if symbol is None:
            raise ImportRefused(
                f"{where}: the pair of {native} is unknown; give it, such as "
                f"--symbol {native}=BTC/USDT."
            )
        found = self._instruments[exchange, native] = Instrument(name, symbol, native)
        return found


class _Message(NamedTuple):
    """Rows of a CSV file that arrived together."""

    head: tuple[int, Instrument, bool]
    sent_us: int
    where: str
    bids: list[str]
    asks: list[str]

    def act(self, snapshots: dict[Instrument, bool]) -> Act:
        """Return what applies it; a snapshot may consist of several messages."""
        _, instrument, whole = self.head
        replaces = whole and not snapshots.get(instrument, False)
        snapshots[instrument] = whole
        bids, asks = (f"[{','.join(side)}]".encode() for side in (self.bids, self.asks))
        output: Snapshot | Delta
        if replaces:
            output = Snapshot(instrument, bids, asks, at=self.sent_us)
        else:
            output = Delta(instrument, bids, asks, at=self.sent_us)
        return partial(_apply, output, self.where)


def _apply(output: Snapshot | Delta, where: str, books: Books, now: float) -> None:
    if isinstance(output, Snapshot):
        books.open(output.instrument)
        reason = books.fill(output, now)
    else:
        reason = books.change(output, now)
    if reason is Reason.LEVELS:
        raise ImportRefused(f"{where}: the levels of this message are invalid.")


def _line(text: io.TextIOWrapper, where: str) -> str:
    try:
        line = text.readline(LINE_CHARACTERS_MAX + 1)
    except UnicodeDecodeError:
        raise ImportRefused(f"{where}: it is not UTF-8.") from None
    if len(line) > LINE_CHARACTERS_MAX:
        raise ImportRefused(f"{where}: it is longer than {LINE_CHARACTERS_MAX:,} characters.")
    return line


def _time_us(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 18 and int(text) < TIME_MAX_US):
        raise ImportRefused(f"{where}: {text!r} is not a time in microseconds.")
    return int(text)


async def import_history(
    root: Path,
    sources: Sequence[ImportSource],
    *,
    signing_key: Ed25519PrivateKey | None = None,
    progress: Callable[[int], None] = lambda position: None,
) -> ImportedHistory:
    """Import files as hours of a history.

    Args:
        root: The folder of the history; created if it does not exist.
        sources: The files; they are merged by time.
        signing_key: Signs the manifests of the hours, if given.
        progress: Called with the number of bytes read.

    Raises:
        ImportRefused: A file is invalid, an hour is recorded already, or another process records
            into the folder. The history is unchanged.
        OSError: The folder cannot be written.
    """
    folder = HistoryFolder(root, signing_key)
    if not folder.lock():
        raise ImportRefused(f"Another process records into {root}; stop it first.")
    staging = root / STAGING
    try:
        shutil.rmtree(staging, ignore_errors=True)  # of an import that ended early
        count = await _record(staging, {*folder.hours()}, sources, progress)
        staged = HistoryFolder(staging)
        for hour_us in staged.open_hours():
            staged.close_hour(hour_us)
        return ImportedHistory(tuple(folder.adopt_hours(staged)), count)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        folder.unlock()


async def _record(
    staging: Path,
    recorded: set[int],
    sources: Sequence[ImportSource],
    progress: Callable[[int], None],
) -> int:
    """Record the events of all sources; return their number."""
    books, clock, count = Books(), ManualClock(), 0
    recorder: HistoryRecorder | None = None
    flush_us = 0
    try:
        for at_us, act in _merged(sources):
            if at_us // HOUR_US * HOUR_US in recorded:
                hour = iso_us(at_us)[:13]
                raise ImportRefused(f"The hour {hour} is recorded already; no hour is mixed.")
            if recorder is None:
                # Monotonic times begin at 1, because 0 stands for an unknown time.
                clock = ManualClock(1.0, epoch_us=at_us - 1_000_000)
                recorder = HistoryRecorder(
                    books, staging, keep_days=KEEP_DAYS, keep_bytes=KEEP_BYTES, clock=clock
                )
            at_us = max(at_us, clock.wall_us())
            if recorder.recording and at_us - clock.wall_us() > SILENCE_US:
                _move(clock, clock.wall_us() + 1)  # so that the last message can still be read
                for book in books:
                    books.set_health(
                        book.instrument, Health.STALE, Reason.DISCONNECTED, clock.now_s
                    )
                await _write(recorder)
                recorder.pause()
            if not recorder.recording:
                _move(clock, at_us)
                await recorder.begin()
                _require_recording(recorder)
                flush_us = at_us + FLUSH_US
            while at_us >= flush_us:
                _move(clock, flush_us)
                await _write(recorder)
                progress(sum(each.position for each in sources))
                flush_us += FLUSH_US
            _move(clock, at_us)
            act(books, clock.now_s)
            count += 1
        if recorder is None:
            raise ImportRefused("The files contain no messages.")
        await _write(recorder)
        return count
    finally:
        if recorder is not None:
            await recorder.__aexit__()


def _merged(sources: Iterable[ImportSource]) -> Iterator[Event]:
    return heapq.merge(*(each.events() for each in sources), key=lambda event: event[0])


def _move(clock: ManualClock, at_us: int) -> None:
    clock.move_to((at_us - clock.epoch_us) / 1_000_000)


async def _write(recorder: HistoryRecorder) -> None:
    recorder.take_keyframes()
    await recorder.flush()
    _require_recording(recorder)


def _require_recording(recorder: HistoryRecorder) -> None:
    if not recorder.recording:
        raise OSError(f"The hours cannot be written into {recorder.folder.root}.")


def source_of(path: Path, symbols: Mapping[str, str]) -> ImportSource:
    """Return the source of a file, by its name.

    Raises:
        OSError: It cannot be read.
    """
    if path.name.endswith((".csv", ".csv.gz")):
        return TardisFile(path, symbols)
    return RecordedFile(path)
