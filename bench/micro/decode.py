"""Frames of a view at our clients: a binary update beside the JSON delta of the same change.

The simulated market of `bytes.py` with 20 levels a side, ten updates a second. What is timed is
the way from a received frame to a checked book, in two cases: the reader takes its best prices,
or every level. JSON is timed as arrays and as objects. The books of all forms must be equal. The
floor is protobuf alone: the message without a book.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(BENCH)]

import bytes as market  # noqa: E402
from onebook.client.packed import PackedBook, decode  # noqa: E402
from onebook.client.session import decoded  # noqa: E402
from onebook.client.shapes import require, shapes_of  # noqa: E402
from onebook.client.view import BookView  # noqa: E402
from onebook.streams import Stream  # noqa: E402
from onebook.streams.packed import with_subscription  # noqa: E402
from timing import RUNS, each, interleaved, report  # noqa: E402

SECONDS = 60.0
DEPTH = 20
NAMES = ("array", "object", market.PROTOBUF)
NODE = os.environ.get("BENCH_NODE", "node")
ROWS = {"best": "best prices read", "levels": "every level read"}


class Tape(market.Counter):
    """A publisher that keeps the updates of the delta streams of one depth."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: dict[str, list[bytes]] = {name: [] for name in NAMES}

    def publish(self, stream: Stream, payload: bytes, full: Callable[[], bytes]) -> None:
        self.published += 1
        options = stream.key.options
        if options.depth != DEPTH or options.mode != "delta":
            return
        if options.encoding == market.PROTOBUF:
            self.frames[market.PROTOBUF].append(with_subscription(payload, 1))
        else:
            self.frames[options.levels].append(payload)


def best(view: BookView) -> object:
    return view.best_bid, view.best_ask


def levels(view: BookView) -> object:
    return [*view.bids, *view.asks]


READ = {"best": best, "levels": levels}


def by_json(read: Callable[[BookView], object]) -> tuple[BookView, Callable[[bytes], None]]:
    view, shapes = BookView(market.SYMBOL), shapes_of({})

    def received(frame: bytes) -> None:
        message = decoded(frame.decode())
        require(message["type"], message, shapes[message["type"]])
        assert view.apply(message)
        read(view)

    return view, received


def by_protobuf(read: Callable[[BookView], object]) -> tuple[BookView, Callable[[bytes], None]]:
    view, book = BookView(market.SYMBOL), PackedBook(market.NAMES)

    def received(frame: bytes) -> None:
        assert view.apply_packed(decode(frame), book)
        read(view)

    return view, received


def in_python(frames: dict[str, list[bytes]]) -> None:
    for which, read in READ.items():
        ended: dict[str, object] = {}

        def cost(name: str, read=read, ended=ended) -> float:
            view, received = (by_protobuf if name == market.PROTOBUF else by_json)(read)
            took = each(received, frames[name])
            sides = [[level[:2] for level in side] for side in (view.bids, view.asks)]
            ended[name] = sides, view.market_stats["mid_price"]
            return took

        contenders = {name: lambda name=name: cost(name) for name in NAMES}
        binary = frames[market.PROTOBUF]
        contenders["protobuf alone"] = lambda binary=binary: each(decode, binary)
        costs = interleaved(contenders)
        assert ended["array"] == ended["object"] == ended[market.PROTOBUF], "the books differ"
        report(f"update to a book in Python, {ROWS[which]}", costs, "ns")


def in_javascript(frames: dict[str, list[bytes]]) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        texts = {name: [frame.decode() for frame in frames[name]] for name in NAMES[:2]}
        binary = [frame.hex() for frame in frames[market.PROTOBUF]]
        json.dump({**texts, market.PROTOBUF: binary, "table": market.NAMES}, file)
        file.flush()
        script = Path(__file__).with_suffix(".mjs")
        done = subprocess.run(
            [NODE, script, file.name, str(RUNS)], check=True, capture_output=True, text=True
        )
    for which, costs in json.loads(done.stdout).items():
        report(f"update to a book in JavaScript, {ROWS[which]}", costs, "ns")


def main() -> None:
    tape = Tape()
    market.simulated(SECONDS, tape)
    assert len({len(frames) for frames in tape.frames.values()}) == 1
    in_python(tape.frames)
    in_javascript(tape.frames)


if __name__ == "__main__":
    main()
