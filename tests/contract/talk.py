"""A conversation between a connector and its simulated exchange, without a network."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

from contract.oracle import Reader
from contract.venue import CHANNELS, Venue, greeted
from onebook.exchanges.kit import Connector, Fetch, Gap, LossDetection, Output, ProtocolError, Send
from onebook.model import Instrument

PACE_S = 1.0  # between two frames of ours: feeds keep to the limits of the exchange


class Step(NamedTuple):
    """A message of the exchange: a "delta" of `native`, another "frame", or a REST "body"."""

    kind: str
    native: str
    payload: bytes


class Talk:
    """Acts like a feed: forwards frames both ways, resyncs an invalid book.

    `heal` says whether an invalid book is resynced at once; `script` keeps what the exchange sent,
    so that the same conversation can be replayed with a frame left out.
    """

    def __init__(self, name: str, *, seed: int = 1, count: int = 2, heal: bool = True) -> None:
        self.name = name
        self.exchange = CHANNELS[name]
        self.venue = Venue(name, seed)
        self.instruments = self.venue.instruments[: min(count, self.exchange.limits.topics)]
        self.connector = self.exchange.connector(self.instruments)
        self.reader = Reader(self.exchange)
        self.heal = heal
        self.outputs: list[Output] = []
        self.script: list[Step] = []
        self._owed: deque[Callable[[], None]] = deque()

    def open(self) -> "Talk":
        self.act(self.begun())
        self.settle()
        return self

    def settle(self) -> None:
        """Where every frame has the whole book, the first may arrive only with the next change."""
        if self.exchange.guard is LossDetection.WHOLE:
            for instrument in self.instruments:
                if instrument not in self.reader.live:
                    self.change(instrument.native)

    def begun(self) -> list[Output]:
        """The connector's messages after the connection and the exchange's greeting."""
        self.script += [Step("frame", "", frame) for frame in self.venue.greeting]
        return list(greeted(self.connector, self.venue.greeting))

    def act(self, outputs: Iterable[Output]) -> list[Output]:
        """Execute outputs, and all outputs that result from them."""
        seen = list(outputs)
        self._take(seen)
        while self._owed:
            self._owed.popleft()()
        return seen

    def deliver(self, frame: bytes, native: str = "") -> list[Output]:
        self.script.append(Step("delta" if native else "frame", native, frame))
        return self.act(self._received(frame))

    def change(self, native: str) -> list[Output]:
        return self.deliver(self.venue.changed(native), native)

    def resync(self, instrument: Instrument) -> list[Output]:
        self.reader.live.pop(instrument, None)
        outputs = self.act(self.connector.resync([instrument]))
        self.settle()
        return outputs

    def check(self, *, live: bool = True) -> None:
        """Every book equals the exchange's, or is not live."""
        for instrument in self.instruments:
            sides = self.reader.sides(instrument)
            assert sides is not None or not live, f"{instrument.native} is not live"
            if sides is not None:
                assert sides == self.venue.sides(instrument.native), instrument.native

    def _received(self, frame: bytes) -> list[Output]:
        try:
            return list(self.connector.received(frame))
        except ProtocolError as error:
            invalid = [error.instrument] if error.instrument else self.instruments
            return [Gap(instrument, error.reason) for instrument in invalid]

    def _take(self, outputs: list[Output]) -> None:
        self.outputs += outputs
        before = len(self.reader.invalidated)
        self.reader.read(outputs)
        for output in outputs:
            match output:
                case Send():
                    self.venue.wait(PACE_S)
                    answers = self.venue.answers(output.at(self.venue.now.ms))
                    self._owed.extend(self._telling(answer) for answer in answers)
                case Fetch(instrument, path):
                    self._owed.append(self._fetching(instrument, path))
        if self.heal:
            invalid = dict.fromkeys(one for one, _ in self.reader.invalidated[before:])
            for instrument in invalid:
                self._take(list(self.connector.resync([instrument])))

    def _telling(self, frame: bytes) -> Callable[[], None]:
        def tell() -> None:
            self.script.append(Step("frame", "", frame))
            self._take(self._received(frame))

        return tell

    def _fetching(self, instrument: Instrument, path: str) -> Callable[[], None]:
        def fetch() -> None:
            body = self.venue.body(path)
            self.script.append(Step("body", instrument.native, body))
            self._take(list(self.connector.fetched(instrument, body)))

        return fetch


@cache
def opened(name: str) -> Talk:
    """A finished talk for tests that only read it: they get a connector from `reopened`."""
    return Talk(name).open()


def reopened(talk: Talk) -> Connector:
    """A connector that has read the talk's script: 20 times cheaper than another talk."""
    connector = talk.exchange.connector(talk.instruments)
    by_native = {instrument.native: instrument for instrument in talk.instruments}
    connector.opened()
    for step in talk.script:
        if step.kind == "body":
            connector.fetched(by_native[step.native], step.payload)
        else:
            connector.received(step.payload)
    return connector


def retold(talk: Talk, script: Iterable[Step]) -> Iterator[tuple[Step, Reader]]:
    """Replay a script to a new connector without answers; yields after each step."""
    connector = talk.exchange.connector(talk.instruments)
    reader = Reader(talk.exchange)
    by_native = {instrument.native: instrument for instrument in talk.instruments}
    reader.read(connector.opened())
    for step in script:
        if step.kind == "body":
            reader.read(connector.fetched(by_native[step.native], step.payload))
        else:
            reader.read(connector.received(step.payload))
        yield step, reader
