"""Goal 11: what one exchange costs, from 2 of them to 25, all in one view.

Each exchange brings a frame of 20 levels 20 times a second of virtual time; one stream over all
of them, top 50 with attribution, is published 10 times a second through the product's `Streams`.
Sessions, connectors, books, streams and views are the product's; only the clock is made, so that
nothing waits. `merge and encode` is the stream's own share, which grows with its members.
"""

import gc
import time
from collections.abc import Callable

import ours

import stream
from onebook.books import Books
from onebook.clock import ManualClock
from onebook.model import Instrument
from onebook.signals import Signal
from onebook.streams import Stream, StreamKey, Streams, ViewOptions
from timing import interleaved, report

COUNTS = (2, 8, 25)
FRAME_S = 0.05
FRAMES = 300
LEVELS = 20
DEPTH = 1_000
TOP = 50
SYMBOL = "BTC/USDT"


class NullPorts:
    """A publisher without clients, and a supervisor and a catalogue of what is there."""

    def __init__(self) -> None:
        self.instruments: dict[str, Instrument] = {}
        self.on_read: Signal[[str]] = Signal()
        self.published = 0

    def publish(self, stream: Stream, payload: bytes, full: Callable[[], bytes]) -> None:
        self.published += 1

    def status(self, stream: Stream, payload: bytes) -> None: ...

    def flush(self, ends_at: float) -> None: ...

    def acquire(self, instrument: Instrument) -> None: ...

    def release(self, instrument: Instrument) -> None: ...

    def instrument(self, exchange: str, symbol: str) -> Instrument | None:
        return self.instruments.get(exchange)


class Service:
    """So many exchanges with one view over them all."""

    def __init__(self, count: int) -> None:
        self.books, ports = Books(), NullPorts()
        self.clock = ManualClock(1.0, epoch_us=1_700_000_000_000_000)
        self.feeds: list[ours.Feed] = []
        self.frames: list[list[bytes]] = []
        for number in range(count):
            market = stream.Stream(DEPTH, seed=100 + number)
            feed = ours.Feed("binance", market.snapshot(), self.books, name=f"exchange{number:02}")
            ports.instruments[feed.instrument.exchange] = feed.instrument
            made = (market.frame(LEVELS) for _ in range(FRAMES))
            self.feeds.append(feed)
            self.frames.append([stream.binance(b, a, n) for n, (b, a) in enumerate(made, start=1)])
        self.streams = Streams(
            books=self.books, supervisor=ports, catalogue=ports, publisher=ports,
            clock=self.clock,
        )  # fmt: skip
        self.ports = ports

    def watch(self) -> None:
        self.streams.open(StreamKey(SYMBOL, tuple(self.ports.instruments), ViewOptions(depth=TOP)))

    def live(self) -> float:
        """Let every frame come in; nanoseconds of each."""
        receivers = [feed.received for feed in self.feeds]
        gc.collect()
        gc.disable()
        began = time.perf_counter_ns()
        for frames in zip(*self.frames, strict=True):
            self.clock.move_to(self.clock.now_s + FRAME_S)
            for received, frame in zip(receivers, frames, strict=True):
                received(frame, self.clock.now_s)
        took = time.perf_counter_ns() - began
        gc.enable()
        return took / FRAMES / len(self.feeds)


def cost(count: int, *, watched: bool) -> float:
    service = Service(count)
    if watched:
        service.watch()
    taken = service.live()
    assert service.ports.published == 0 or watched
    assert not watched or service.ports.published >= FRAMES * FRAME_S * 10 * 0.9
    return taken


def main() -> None:
    contenders = {
        f"{count} exchanges{', published' if watched else ''}": (
            lambda count=count, watched=watched: cost(count, watched=watched)
        )
        for count in COUNTS
        for watched in (False, True)
    }
    report("frame of one exchange among others", interleaved(contenders), "ns")


if __name__ == "__main__":
    main()
