"""The ways a book is kept in step with its exchange: objects that a connector has.

`Chain`: a snapshot on the socket, then deltas that each name the state they follow. `Unnumbered`:
the same without numbers. `Join`: a snapshot by REST, joined with the deltas that were held back
meanwhile. None of them holds levels; they decide which `Output` a message becomes.
"""

from collections import deque
from typing import Final, NamedTuple

from onebook.exchanges.contract import NOTHING, PAIRS, Delta, Fetch, Gap, Output, Snapshot
from onebook.model import Instrument

HELD_MAX: Final = 1_000  # deltas that wait for a REST body; the oldest go first
FETCHES_MAX: Final = 5  # bodies in a row that may be too old before the book is given up


class Chain:
    """Follows deltas that name the state before them, by equality and never by order.

    Exchanges restart their numbers downwards without losing anything (OKX at maintenance), so
    "greater than the last" would be wrong both ways.
    """

    __slots__ = ("instrument", "last")

    def __init__(self, instrument: Instrument) -> None:
        self.instrument = instrument
        self.last: int | None = None  # the state the book is at; None until a snapshot

    def restart(self) -> None:
        """Wait for the next snapshot."""
        self.last = None

    def snapshot(self, bids: bytes, asks: bytes, sequence: int) -> tuple[Output, ...]:
        """Start at a snapshot, whenever it comes."""
        self.last = sequence
        return (Snapshot(self.instrument, bids, asks),)

    def delta(self, bids: bytes, asks: bytes, previous: int, sequence: int) -> tuple[Output, ...]:
        """Follow a delta from state `previous` to state `sequence`."""
        last = self.last
        if previous == last:
            self.last = sequence
            return (Delta(self.instrument, bids, asks),)
        if last is None or sequence == last:  # before the snapshot, or told twice
            return NOTHING
        self.last = None
        return (Gap(self.instrument, f"the book is at {last}, the delta follows {previous}"),)


class Unnumbered:
    """Follows deltas that have no numbers: only the order of the socket and what guards it."""

    __slots__ = ("delta_shape", "instrument", "live", "snapshot_shape")

    def __init__(
        self, instrument: Instrument, *, snapshot_shape: int = PAIRS, delta_shape: int = PAIRS
    ) -> None:
        self.instrument = instrument
        self.live = False
        self.snapshot_shape = snapshot_shape
        self.delta_shape = delta_shape

    def restart(self) -> None:
        """Wait for the next snapshot."""
        self.live = False

    def snapshot(self, bids: bytes, asks: bytes) -> tuple[Output, ...]:
        """Start at a snapshot, whenever it comes."""
        self.live = True
        return (Snapshot(self.instrument, bids, asks, self.snapshot_shape),)

    def delta(self, bids: bytes, asks: bytes) -> tuple[Output, ...]:
        """Follow a delta; nothing before the snapshot."""
        return (Delta(self.instrument, bids, asks, self.delta_shape),) if self.live else NOTHING


class Held(NamedTuple):
    """A delta that waits for the REST body: it leads from state `first - 1` to `final`."""

    first: int
    final: int
    bids: bytes
    asks: bytes


class Join:
    """Joins a REST snapshot with the deltas around it, by the rule Binance documents.

    Deltas are held while a body is on its way. Those that the body already contains are dropped,
    the first of the rest must contain the state after the body's, and every later one must start
    where the last ended. A body older than what is held is fetched again, `FETCHES_MAX` times.
    """

    __slots__ = ("_fetch", "_fetches", "_floor", "_held", "_seed", "instrument", "last")

    def __init__(self, fetch: Fetch) -> None:
        self.instrument = fetch.instrument
        self.last: int | None = None  # the state the book is at; None while a body is awaited
        self._seed = -1  # the state of the body it started from
        self._floor = -1  # the newest state the stream has told of: a body before it is too old
        self._fetch = fetch
        self._fetches = 0
        self._held: deque[Held] = deque(maxlen=HELD_MAX)

    def restart(self) -> tuple[Output, ...]:
        """Ask for a body; what is held stays held."""
        if self.last is not None:
            self._floor, self.last = self.last, None
        self._fetches = 1
        return (self._fetch,)

    def delta(self, first: int, final: int, bids: bytes, asks: bytes) -> tuple[Output, ...]:
        """Follow a delta from state `first - 1` to state `final`."""
        if first - 1 == self.last:
            self.last = final
            return (Delta(self.instrument, bids, asks),)
        return self._unchained(Held(first, final, bids, asks))

    def _unchained(self, delta: Held) -> tuple[Output, ...]:
        last = self.last
        if last is None:
            self._hold(delta)
            return NOTHING
        if delta.final <= last:  # told before
            return NOTHING
        if last == self._seed and delta.first <= last:  # only the first may overlap the body
            self.last = delta.final
            return (Delta(self.instrument, delta.bids, delta.asks),)
        self.last = None
        self._hold(delta)
        return (Gap(self.instrument, f"the book is at {last}, the delta starts at {delta.first}"),)

    def _hold(self, delta: Held) -> None:
        """Keep one unbroken run: what lies before a hole can never be applied again."""
        if self._held:
            newest = self._held[-1].final
            if delta.final <= newest:
                return
            if delta.first != newest + 1:
                self._held.clear()
        self._held.append(delta)

    def seeded(self, bids: bytes, asks: bytes, sequence: int) -> tuple[Output, ...]:
        """Start at the body of a `Fetch`, then follow what was held."""
        if self.last is not None:  # an answer to an earlier question
            return NOTHING
        rest = [delta for delta in self._held if delta.final > sequence]
        oldest = rest[0].first if rest else self._floor + 1
        if oldest > sequence + 1:
            return self._again()
        self._held.clear()
        self._seed = sequence
        self.last = rest[-1].final if rest else sequence
        deltas = (Delta(self.instrument, one.bids, one.asks) for one in rest)
        return (Snapshot(self.instrument, bids, asks), *deltas)

    def _again(self) -> tuple[Output, ...]:
        if self._fetches < FETCHES_MAX:
            self._fetches += 1
            return (self._fetch,)
        self._fetches = 0
        return (Gap(self.instrument, f"{FETCHES_MAX} snapshots were older than the deltas"),)
