"""Bytes of the history beside raw frames as gzip, and beside rows of cryptofeed's Parquet writer.

Frames of four exchanges, ten a second and book, go through session, connector and books into the
recorder. `made` frames are those of `stream`, with 5 or 20 levels; `recorded` are those of OKX and
Poloniex in the samples, where they are, each once, because repeated frames compress better than
real ones. `gzip` is a line of arrival time and
frame, a file for each minute and exchange, as tardis keeps them. `rows` are cryptostore's of the
same changes: a row for each level with side, price and size as floats, both times, and whether it
is a delta, written by pyarrow with its defaults (snappy). Both lack keyframes, which the history
has each minute. `floor` is xz of the changed prices and amounts alone, as the history's integers,
byte by byte of each number: no times, no exchange's numbers, nothing that a reader could find a
moment with. No clock.

    python bench/micro/history_bytes.py
"""

import asyncio
import gzip
import lzma
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import ours
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import bytes as recorded_frames
import stream
from onebook.archive.format import LEVEL, HistoryKind
from onebook.archive.recorder import FLUSH_S, HistoryRecorder
from onebook.books import Books, LiveBook
from onebook.clock import ManualClock
from onebook.core.reference.levels import read_levels
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Delta, Snapshot, microseconds
from onebook.feeds.session import FeedSession
from onebook.feeds.stats import ExchangeStats
from onebook.model import Instrument
from onebook.simulator.kit.replay import scripts
from timing import report

FRAMES: Final = 5_000  # of each exchange
DEPTH: Final = 1_000
KRAKEN_DEPTH: Final = 80
EPOCH_US: Final = 1_700_000_000_000_000
CHANGES_PER_S: Final = 10  # of one book
MINUTE_US: Final = 60_000_000
ROWS_WRITTEN: Final = 100_000  # of one call of the writer, which makes a row group of them
TEXTS: Final = ("feed", "symbol", "side")


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
    """Sessions with the frames that were recorded."""

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
        self.count = len(self.frames)

    def open(self, books: Books) -> None:
        self._sessions = {}
        for name, instrument in self._instruments.items():
            books.open(instrument)
            session = FeedSession(
                EXCHANGES[name], [instrument], books=books, stats=ExchangeStats(name)
            )
            session.opened(1.0)
            self._sessions[name] = session.received

    def play(self, start: int, stop: int, now: float) -> None:
        for name, frame in self.frames[start:stop]:
            self._sessions[name](frame, now)


def works() -> Iterator[tuple[str, Made | Recorded]]:
    yield "5 levels", Made(5)
    yield "20 levels", Made(20)
    if all(path.exists() for path in recorded_frames.RECORDED):
        yield "recorded frames", Recorded()


class PeerRows:
    """The rows that cryptostore makes of the changes of a book."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._books: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))

    def applied(self, book: LiveBook, output: Any, now: float) -> None:
        if not isinstance(output, Snapshot | Delta):
            return
        columns = self._books[book.instrument.exchange]
        received = self._clock.wall_us() / 1e6
        for side, levels in enumerate(read_levels(output.bids, output.asks, output.shape)):
            for price, amount in levels:
                row = {
                    "timestamp": microseconds(output.at) / 1e6 or received,
                    "receipt_timestamp": received,
                    "feed": book.instrument.exchange.upper(),
                    "symbol": "BTC-USDT",
                    "side": ("bid", "ask")[side],
                    "price": price.at(price.scale) / 10**price.scale,
                    "size": amount.at(amount.scale) / 10**amount.scale,
                    "delta": isinstance(output, Delta),
                }
                for name, value in row.items():
                    columns[name].append(value)

    def bytes(self) -> int:
        total = 0
        for columns in self._books.values():
            table = pa.table(
                {
                    name: pa.array(each).dictionary_encode() if name in TEXTS else pa.array(each)
                    for name, each in columns.items()
                }
            )
            sink = pa.BufferOutputStream()
            with pq.ParquetWriter(sink, table.schema) as writer:
                for start in range(0, len(table), ROWS_WRITTEN):
                    writer.write_table(table.slice(start, ROWS_WRITTEN))
            total += sink.getvalue().size
        return total


def floor(root: Path) -> int:
    """Return the bytes of the changed levels of a history, as small as xz makes them."""
    total = 0
    for path in _books(root):
        rows = pq.read_table(path)
        rows = rows.filter(pc.not_equal(rows["kind"], HistoryKind.KEYFRAME))
        for side in ("bids", "asks"):
            levels = rows[side].combine_chunks().flatten()
            for at in range(len(LEVEL)):
                total += _packed(levels.field(at))
    return total


def _packed(numbers: pa.Array) -> int:
    width = numbers.type.bit_width // 8
    first = numbers.offset * width
    whole = memoryview(numbers.buffers()[1] or b"")[first : first + len(numbers) * width]
    return len(lzma.compress(b"".join(bytes(whole[at::width]) for at in range(width)), preset=9))


def zipped(frames: list[tuple[str, bytes]], times_us: list[int]) -> int:
    """Return the bytes of the frames as gzip, a file for each minute and exchange."""
    files: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    for (name, frame), at_us in zip(frames, times_us, strict=True):
        stamp = datetime.fromtimestamp(at_us / 1e6, UTC).isoformat().encode()
        files[name, at_us // MINUTE_US].append(b"%b %b\n" % (stamp, frame))
    return sum(len(gzip.compress(b"".join(lines), 6)) for lines in files.values())


async def sizes(work: Made | Recorded) -> dict[str, float]:
    """Play all frames once; return bytes a frame of each form."""
    books, clock = Books(), ManualClock(1.0, epoch_us=EPOCH_US)
    peer = PeerRows(clock)
    books.subscribe(on_applied=peer.applied)
    work.open(books)
    names = {name for name, _ in work.frames}
    each = max(1, int(len(names) * CHANGES_PER_S * FLUSH_S))
    times_us: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        history = HistoryRecorder(books, root, keep_days=1, keep_bytes=1 << 40, clock=clock)
        await history.begin()
        for start in range(0, work.count, each):
            for at in range(start, min(work.count, start + each)):
                clock.move_to(clock.now_s + FLUSH_S / each)
                work.play(at, at + 1, clock.now_s)
                times_us.append(clock.wall_us())
            history.take_keyframes()
            await history.flush()
        for hour_us in history.folder.open_hours():
            history.folder.close_hour(hour_us)
        history._stop()
        history._thread.shutdown()
        history._closer.shutdown()
        ours_bytes, least = sum(path.stat().st_size for path in _books(root)), floor(root)
    found = {
        "history": ours_bytes, "gzip": zipped(work.frames, times_us), "rows": peer.bytes(),
        "floor": least,
    }  # fmt: skip
    return {name: size / work.count for name, size in found.items()}


def _books(root: Path) -> list[Path]:
    """Return the files of the books."""
    return [*root.glob("*/*/*/*/*/*.parquet")]


def main() -> None:
    for name, work in works():
        found = asyncio.run(sizes(work))
        report(f"bytes of the history, {name}", found, "bytes a frame")
        shares = {each: found["history"] / found[each] for each in ("gzip", "rows", "floor")}
        report(f"bytes of the history, {name}, share", shares, "of")
        report(f"bytes of the floor, {name}, share", {"gzip": found["floor"] / found["gzip"]}, "of")


if __name__ == "__main__":
    main()
