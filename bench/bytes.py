"""Bytes an hour of each form of a view: {full, delta} x {object, array} x {plain, compressed},
and of protobuf, which is never compressed.

Two markets, both in virtual time, so that nothing waits: the simulator's (six exchanges, each
with a frame about 15 times a second) and, where the samples are there, what was recorded of OKX
and Poloniex. Books, streams, encoding and frames are the product's; what counts is the payload
as sent, which is what the product meters. `--write` puts the table into docs/performance.md;
`--seconds 2` is a trial of the simulated market alone.
"""

import argparse
import json
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench" / "micro"), str(ROOT / "bench" / "macro")]

from msgspec import Raw  # noqa: E402
from scale import NullPorts  # noqa: E402

from document import put  # noqa: E402
from onebook.books import Books  # noqa: E402
from onebook.clock import ManualClock  # noqa: E402
from onebook.exchanges import EXCHANGES  # noqa: E402
from onebook.exchanges.kit import Delta, Snapshot  # noqa: E402
from onebook.feeds.session import FeedSession  # noqa: E402
from onebook.feeds.stats import ExchangeStats  # noqa: E402
from onebook.gateway import frames  # noqa: E402
from onebook.gateway.fanout import FrameVariant  # noqa: E402
from onebook.model import GIB_BYTES, Instrument  # noqa: E402
from onebook.simulator import DIALECTS  # noqa: E402
from onebook.simulator.kit import ListedSymbol  # noqa: E402
from onebook.simulator.kit.market import LevelChanges, MarketBooks, decimal_text  # noqa: E402
from onebook.simulator.kit.replay import scripts  # noqa: E402
from onebook.streams import Stream, StreamKey, Streams, ViewOptions  # noqa: E402

SYMBOL = "BTC/USDT"
NAMES = ("binance", "bybit", "gate", "kraken", "kucoin", "okx")
DEPTHS = (20, 50)
MODES = ("full", "delta")
PROTOBUF = "protobuf"
FORMS = ("object", "array", PROTOBUF)
INTERVAL_MS = 100
SIMULATED_S = 120.0
FRAMES_HZ = (10.0, 20.0)  # of one exchange, at random in between
HOUR_S = 3_600.0
MONTH_HOURS = 30 * 24
ALLOWANCE_BYTES = 50 * GIB_BYTES
SAMPLES = Path(os.environ.get("ONEBOOK_SAMPLES", ROOT.parent / "shared" / "samples"))
RECORDED = [SAMPLES / "exchange_frames" / name for name in ("OKX.ws.1.0", "POLONIEX.ws.1.0")]

Key = tuple[int, str, str, bool]


class Sums(NamedTuple):
    """What a market brought in so many seconds: payload bytes of each form."""

    seconds: float
    updates: int
    sent: dict[Key, int]


class Counter(NullPorts):
    """A publisher that frames every update both ways and adds up what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[Key, int] = {}

    def publish(self, stream: Stream, payload: bytes, full: Callable[[], bytes]) -> None:
        super().publish(stream, payload, full)
        options = stream.key.options
        if options.encoding == PROTOBUF:
            frame = FrameVariant(packed=True, number=1).update(payload)
            for packed in (False, True):
                form = (options.depth, options.mode, PROTOBUF, packed)
                self.sent[form] = self.sent.get(form, 0) + frames.payload_length(frame)
            return
        for packed, frame in (
            (False, frames.text_frame(payload)),
            (True, frames.deflated_frame(payload)),
        ):
            form = (options.depth, options.mode, options.levels, packed)
            self.sent[form] = self.sent.get(form, 0) + frames.payload_length(frame)


class Harness:
    """Books and streams in virtual time."""

    def __init__(self, instruments: Iterable[Instrument], counter: Counter) -> None:
        self.books, self.counter = Books(), counter
        self.clock = ManualClock(1.0, epoch_us=1_700_000_000_000_000)
        for instrument in instruments:
            self.books.open(instrument)
            self.counter.instruments[instrument.exchange] = instrument
        self.streams = Streams(
            books=self.books, supervisor=self.counter, catalogue=self.counter,
            publisher=self.counter, clock=self.clock,
        )  # fmt: skip

    def watch(self) -> None:
        """Open a stream of every form."""
        names = tuple(sorted(self.counter.instruments))
        for depth in DEPTHS:
            for mode in MODES:
                for form in FORMS:
                    options = ViewOptions(
                        depth=depth,
                        interval_ms=INTERVAL_MS,
                        mode=mode,
                        levels="array" if form == "array" else "object",
                        encoding=PROTOBUF if form == PROTOBUF else None,
                    )
                    self.streams.open(StreamKey(SYMBOL, names, options))

    def change(self, delta: Delta, at: float) -> None:
        """Apply a change to its book."""
        reason = self.books.change(delta, at)
        assert reason is None, reason

    def sums(self, began: float) -> Sums:
        forms = len(DEPTHS) * len(MODES) * len(FORMS)
        updates = self.counter.published // forms
        return Sums(self.clock.now_s - began, updates, dict(self.counter.sent))


def simulated(seconds: float, counter: Counter | None = None) -> Sums:
    """Six exchanges of the simulator, each at its own pace."""
    harness, deltas = simulation(seconds, counter or Counter())
    harness.watch()
    began = harness.clock.now_s
    for at, delta in deltas:
        harness.clock.move_to(at)
        harness.change(delta, at)
    return harness.sums(began)


def simulation(seconds: float, counter: Counter) -> tuple[Harness, Iterator[tuple[float, Delta]]]:
    """Their books, and what changes them: the market moves when the next change is taken."""
    market = MarketBooks({name: DIALECTS[name].offer() for name in NAMES}, seed=7)
    listings = {
        name: next(each for each in DIALECTS[name].listings if each.symbol == SYMBOL)
        for name in NAMES
    }
    instruments = {
        name: Instrument(name, SYMBOL, listing.native) for name, listing in listings.items()
    }
    harness = Harness(instruments.values(), counter)
    for name, instrument in instruments.items():
        book = market.books(name)[SYMBOL]
        whole = LevelChanges(
            list(book.bids.top(len(book.bids))), list(book.asks.top(len(book.asks)))
        )
        harness.books.fill(Snapshot(instrument, *_raw(whole, listings[name])), harness.clock.now_s)

    def deltas() -> Iterator[tuple[float, Delta]]:
        for at, name in _arrivals(NAMES, harness.clock.now_s, seconds):
            market.move()
            for _, changes in market.step(name, [SYMBOL]):
                yield at, Delta(instruments[name], *_raw(changes, listings[name]))

    return harness, deltas()


def _arrivals(names: Sequence[str], began: float, seconds: float) -> Iterator[tuple[float, str]]:
    """When each exchange has a frame, in the order of time."""
    rand = random.Random(7)
    due = dict.fromkeys(names, began)
    while True:
        name = min(due, key=due.__getitem__)
        due[name] += 1 / rand.uniform(*FRAMES_HZ)
        if due[name] > began + seconds:
            return
        yield due[name], name


def _raw(changes: LevelChanges, listing: ListedSymbol) -> list[Raw]:
    return [
        Raw(
            json.dumps(
                [
                    [decimal_text(ticks, listing.price_decimals),
                     decimal_text(lots, listing.amount_decimals)]
                    for ticks, lots in side
                ]
            ).encode()
        )
        for side in changes
    ]  # fmt: skip


def recorded() -> Sums:
    """What was recorded of OKX and Poloniex, through their sessions, at the recorded pace."""
    found = scripts(RECORDED)
    instruments = {
        name: Instrument(
            name, SYMBOL, next(each.native for each in script.listings if each.symbol == SYMBOL)
        )
        for name, script in found.items()
    }
    harness = Harness(instruments.values(), Counter())
    sessions = {
        name: FeedSession(
            EXCHANGES[name], [instrument], books=harness.books,
            stats=ExchangeStats(name),
        )
        for name, instrument in instruments.items()
    }  # fmt: skip
    # The recordings were made one after the other: let each begin at our beginning.
    began = harness.clock.now_s
    lines = sorted(
        (began + line.at - script.lines[0].at, name, line.frame)
        for name, script in found.items()
        for line in script.lines
        if line.native == instruments[name].native
    )
    for session in sessions.values():
        session.opened(began)
    harness.watch()
    for at, name, frame in lines:
        harness.clock.move_to(at)
        sessions[name].received(frame.encode(), at)
    return harness.sums(began)


def table(sums: Sums) -> list[str]:
    """The Markdown table of one market."""
    rows = [
        "| depth | mode | form | bytes an hour | compressed | GB in 30 days | compressed "
        "| 50 GB last, days | compressed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for depth in DEPTHS:
        for mode in MODES:
            for form in FORMS:
                hourly = [
                    sums.sent[depth, mode, form, packed] / sums.seconds * HOUR_S
                    for packed in (False, True)
                ]
                month = [each * MONTH_HOURS / GIB_BYTES for each in hourly]
                days = [ALLOWANCE_BYTES / (each * 24) for each in hourly]
                rows.append(
                    f"| {depth} | {mode} | {form} | {hourly[0]:,.0f} | {hourly[1]:,.0f} "
                    f"| {month[0]:.1f} | {month[1]:.1f} | {days[0]:.1f} | {days[1]:.1f} |"
                )
    return rows


def document(seconds: float, *, recordings: bool) -> str:
    parts: list[str] = []
    markets: list[tuple[str, Callable[[], Sums]]] = [
        (f"Simulated market, six exchanges, {seconds:.0f} s", lambda: simulated(seconds))
    ]
    if recordings:
        markets.append(("Recorded market, OKX and Poloniex", recorded))
    for title, run in markets:
        sums = run()
        parts += [
            f"{title}: {sums.updates / sums.seconds:.1f} updates a second over "
            f"{sums.seconds:.0f} s, interval {INTERVAL_MS} ms, {SYMBOL}.",
            "",
            *table(sums),
            "",
        ]
    return "\n".join(parts).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put it into docs/performance.md")
    parser.add_argument("--seconds", type=float, help="a trial: so much of the simulated market")
    given = parser.parse_args()
    recordings = given.seconds is None and all(path.is_file() for path in RECORDED)
    text = document(given.seconds or SIMULATED_S, recordings=recordings)
    print(text)
    if given.write:
        put("bytes", text)


if __name__ == "__main__":
    main()
