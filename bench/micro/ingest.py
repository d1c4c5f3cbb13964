"""Goals 1 and 2: a raw frame of 20 levels becomes a changed book, ours beside the peers.

The same changes in every exchange's own bytes. Ours is the whole path behind the socket: session,
connector with its sequence check, dispatch, health, the product's book. Kraken's frames carry a
checksum that ours verifies on each frame; the peers run without it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import ours
import peers

import stream
import timing
from timing import each, each_at, interleaved, report

FRAMES = 3_000
READ_FRAMES = 2_000
LEVELS = 20
DEPTH = 1_000
KRAKEN_DEPTH = 80


def ingest(
    name: str, frames: list[bytes], snapshot: ours.Snapshot, *, read_best: bool = False
) -> float:
    feed = ours.Feed(name, snapshot)
    received, best = feed.received, feed.book.core.best
    if read_best:
        cost = each(lambda frame: (received(frame, 1.0), best()), frames)
    else:
        cost = each_at(received, frames, 1.0)
    assert feed.book.health.value == "live", feed.book.reason
    return cost


def changes(count: int, depth: int = DEPTH) -> tuple[ours.Snapshot, list[ours.Snapshot]]:
    market = stream.Stream(depth, seed=5)
    return market.snapshot(), [market.frame(LEVELS) for _ in range(count)]


def tardis(snapshot: ours.Snapshot, frames: list[bytes]) -> dict[str, float]:
    """tardis-dev in node, right after: nothing where node or the package is missing."""
    root = os.environ.get("TARDIS_ROOT")
    if not root or not shutil.which("node"):
        return {}
    first = b'{"stream":"btcusdt@depthSnapshot","generated":true,"data":%b}'
    lines = [first % stream.binance_snapshot(*snapshot), *frames]
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(b"\n".join(lines))
        file.flush()
        script = Path(__file__).with_name("tardis.mjs")
        out = subprocess.run(
            ["node", script, file.name, str(timing.RUNS)],
            check=True,
            capture_output=True,
            text=True,
        )  # fmt: skip
    return {"tardis-dev": float(out.stdout) * 1_000}


def main() -> None:
    snapshot, made = changes(FRAMES)
    numbered = list(enumerate(made, start=1))
    frames = {
        "binance": [stream.binance(b, a, n) for n, (b, a) in numbered],
        "okx": [stream.okx(b, a, n) for n, (b, a) in numbered],
        "coinbase": [stream.coinbase(b, a) for _, (b, a) in numbered],
    }
    advanced = [stream.coinbase_advanced(b, a, n) for n, (b, a) in numbered]
    theirs: dict[str, dict[str, Callable[[], float]]] = {
        "binance": {
            "cryptofeed": lambda: peers.cryptofeed("BINANCE", frames["binance"], snapshot),
            "ccxt": lambda: peers.ccxt("binance", frames["binance"], snapshot),
        },
        "okx": {
            "cryptofeed": lambda: peers.cryptofeed("OKX", frames["okx"], snapshot),
            "ccxt": lambda: peers.ccxt("okx", frames["okx"], snapshot),
        },
        "coinbase": {"cryptofeed": lambda: peers.cryptofeed("COINBASE", advanced, snapshot)},
    }
    # Kraken's books end at 100 levels: a stream that never grows beyond them is exact for all.
    short, made = changes(FRAMES, KRAKEN_DEPTH)
    summed = zip(made, ours.checksums(short, made)[1:], strict=True)
    frames["kraken"] = [stream.kraken(b, a, checksum) for (b, a), checksum in summed]
    theirs["kraken"] = {"ccxt": lambda: peers.ccxt("kraken", frames["kraken"], short)}
    for name, contenders in theirs.items():
        first = short if name == "kraken" else snapshot
        own = {"onebook": lambda name=name, first=first: ingest(name, frames[name], first)}
        values = interleaved({**own, **contenders})
        if name == "binance":
            values |= tardis(snapshot, frames[name])
        report(f"frame of 20 levels, {name}", values, "ns")
    first = frames["binance"][:READ_FRAMES]
    values = interleaved(
        {
            "onebook": lambda: ingest("binance", first, snapshot, read_best=True),
            "cryptofeed": lambda: peers.cryptofeed("BINANCE", first, snapshot, read_best=True),
        }
    )
    report("frame of 20 levels and best price read, binance", values, "ns")


if __name__ == "__main__":
    sys.exit(main())
