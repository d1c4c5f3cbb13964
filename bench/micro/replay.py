"""Goal 3: recorded frames of 20 levels to books, as `onebook.replay` plays them, on one core.

`played` is session, connector and book, of frames that were read before; `from the file` also reads
the recording and makes an update of 20 levels after each frame. `session alone` gives the same
frames to the same session as a socket does: the floor of playing them.
"""

import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ingest
import ours

import onebook
import stream
from onebook.books import Books
from onebook.exchanges import EXCHANGES
from onebook.feeds.outbox import Transmit
from onebook.feeds.recording import ConnectionOpened, Received, Recorder
from onebook.library.replay import tapes_of
from timing import each_at, interleaved, report

FRAMES = 5_000
INTERVAL_S = 0.001
DEPTH = 20
NAME = "coinbase"


def record(path: Path, snapshot: ours.Snapshot, made: list[ours.Snapshot]) -> None:
    url = EXCHANGES[NAME].ws_url
    session = ours.Feed(NAME, ([], [])).session
    with Recorder(path, epoch_s=1_700_000_000.0) as recorder:
        recorder.opened(url, 0.0)
        for effect in session.drain(0.0):
            if isinstance(effect, Transmit):
                recorder.frame_out(url, 0.0, effect.frame)
        recorder.frame_in(url, 0.0, stream.coinbase_snapshot(*snapshot))
        for number, (bids, asks) in enumerate(made, start=1):
            recorder.frame_in(url, number * INTERVAL_S, stream.coinbase(bids, asks))


def played(path: Path) -> Callable[[], float]:
    (tape,) = tapes_of([path], [NAME])
    first, *changes = [each for each in tape.entries if isinstance(each, Received)]
    opened = next(each for each in tape.entries if isinstance(each, ConnectionOpened))

    def run() -> float:
        books = Books()
        tape.open_books(books)
        for entry in (opened, first):
            tape.play(entry, entry.at, books)
        assert len([*books.live()]) == 1
        gc.collect()
        gc.disable()
        began = time.perf_counter_ns()
        for entry in changes:
            tape.play(entry, entry.at, books)
        took = time.perf_counter_ns() - began
        gc.enable()
        assert len([*books.live()]) == 1
        return took / len(changes)

    return run


def from_file(path: Path) -> float:
    began = time.perf_counter_ns()
    count = sum(1 for _ in onebook.replay(path, depth=DEPTH))
    took = time.perf_counter_ns() - began
    assert count >= FRAMES * 0.9, count
    return took / FRAMES


def main() -> None:
    snapshot, made = ingest.changes(FRAMES)
    frames = [stream.coinbase(bids, asks) for bids, asks in made]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{NAME}.rec"
        record(path, snapshot, made)
        contenders = {
            "session alone": lambda: each_at(ours.Feed(NAME, snapshot).received, frames, 1.0),
            "played": played(path),
            "from the file": lambda: from_file(path),
        }
        report("replayed frame of 20 levels", interleaved(contenders), "ns")


if __name__ == "__main__":
    main()
