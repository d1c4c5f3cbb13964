"""The join of a body with the deltas around it: how a book starts whose stream has no snapshot."""

from collections import deque
from typing import Final, NamedTuple

from msgspec.structs import replace

from onebook.core.types import PAIRS, LevelShape
from onebook.exchanges.kit.contract import (
    NOTHING,
    Delta,
    Fetch,
    Gap,
    Output,
    Outputs,
    Snapshot,
    StreamPosition,
)
from onebook.exchanges.kit.moments import UNTIMED, Moment

HELD_MAX: Final = 1_000  # deltas that wait for a body; the oldest go first
FETCHES_MAX: Final = 5  # bodies in a row that may be too old before the book is given up


class Held(NamedTuple):
    """A delta that waits for the REST body: it leads from state `first - 1` to `final`."""

    first: int
    final: int
    bids: bytes
    asks: bytes
    at: Moment


class Join:
    """Joins a REST snapshot with the deltas around it, by the rule Binance documents.

    Deltas are held while a body is on its way. Those that the body already contains are dropped,
    the first of the rest must contain the state after the body's, and every later one must start
    where the last ended. A body older than what is held is fetched again, `FETCHES_MAX` times.

    A book that is live can be seeded again: deltas are applied and held from the request on, and
    the body replaces the book together with those that come after it.

    Args:
        fetch: The request for a body.
        levels_asked: The limit of that request.
        exact: The first delta after the body must start at the body's own state. For deltas that
            are differences of two windows: one that starts before the body says nothing of a level
            that came and went meanwhile.
        restarts: The exchange may start its numbers again, lower, on an open socket: a delta that
            lies before the last one is a gap, and no body is too old after it.
    """

    __slots__ = (
        "_copying",
        "_exact",
        "_fetch",
        "_fetches",
        "_floor",
        "_held",
        "_levels_asked",
        "_proven",
        "_restarts",
        "_seed",
        "_streamed",
        "delta_shape",
        "instrument",
        "last",
        "snapshot_shape",
    )

    def __init__(
        self,
        fetch: Fetch,
        levels_asked: int = 0,
        *,
        shape: LevelShape = PAIRS,
        snapshot_shape: LevelShape | None = None,
        delta_shape: LevelShape | None = None,
        exact: bool = False,
        restarts: bool = False,
    ) -> None:
        self.instrument = fetch.instrument
        self.snapshot_shape = snapshot_shape or shape
        self.delta_shape = delta_shape or shape
        self.last: int | None = None  # the state the book is at; None while a body is awaited
        self._seed = -1  # the state of the body it started from
        self._floor = -1  # the newest state of the stream: a body before it is too old
        self._fetch = fetch
        self._levels_asked = levels_asked
        self._exact = exact
        self._restarts = restarts
        self._fetches = 0
        self._copying = False  # live, and a body was asked for
        self._streamed = -1  # the newest state of the stream before the last body
        self._proven = False  # the stream has delivered since it was subscribed
        self._held: deque[Held] = deque(maxlen=HELD_MAX)

    @property
    def live(self) -> bool:
        """Whether deltas are followed."""
        return self.last is not None

    def restart(self) -> tuple[Output, ...]:
        """Ask for a body; what is held stays held."""
        if self.last is not None:
            self._lose(self.last)
        self._copying = False
        self._fetches = 1
        return (self._fetch,)

    def reseed(self) -> tuple[Output, ...]:
        """Ask for another body without leaving the state the book is at."""
        if self.last is None:
            return NOTHING
        self._held.clear()
        self._copying = True
        self._fetches = 1
        return (replace(self._fetch, spare=True),)

    def abandon(self) -> None:
        """Expect no body for a live book any more."""
        if self._copying:
            self._copying = False
            self._held.clear()

    def invalidate(self) -> None:
        """Wait for a new subscription: the stream has to prove itself again."""
        self._proven = False
        self._streamed = -1

    @property
    def position(self) -> StreamPosition:
        """How far the stream has delivered, compared with the last body."""
        if self.last is None or self.last != self._seed:
            return StreamPosition.CURRENT
        if self._streamed < self.last:
            return StreamPosition.BEHIND
        return StreamPosition.CURRENT if self._proven else StreamPosition.UNPROVEN

    def delta(
        self, first: int, final: int, bids: bytes, asks: bytes, at: Moment = UNTIMED
    ) -> Outputs:
        """Follow a delta from state `first - 1` to state `final`."""
        if first - 1 == self.last:
            self.last = final
            if self._copying:
                self._hold(Held(first, final, bids, asks, at))
            return Delta(self.instrument, bids, asks, self.delta_shape, at)
        return self._unchained(Held(first, final, bids, asks, at))

    def _unchained(self, delta: Held) -> Outputs:
        last = self.last
        self._proven = True
        if last is None:
            self._hold(delta)
            return NOTHING
        if self._restarts and delta.final < last != self._seed:
            return self._restarted(delta, last)
        if delta.final <= last:  # sent before
            self._streamed = max(self._streamed, delta.final)
            return NOTHING
        # Only the first may overlap the body.
        if last == self._seed and delta.first <= last and not self._exact:
            self.last = delta.final
            if self._copying:
                self._hold(delta)
            return Delta(self.instrument, delta.bids, delta.asks, self.delta_shape, delta.at)
        self._lose(last)
        self._held.clear()
        self._hold(delta)
        return (Gap(self.instrument, f"the book is at {last}, the delta starts at {delta.first}"),)

    def _restarted(self, delta: Held, last: int) -> tuple[Output, ...]:
        """Forget all numbers: those that follow cannot be compared with them."""
        self._lose(last)
        self._floor = self._streamed = -1
        self._held.clear()
        self._hold(delta)
        return (Gap(self.instrument, f"the numbers fell from {last} to {delta.final}"),)

    def _lose(self, last: int) -> None:
        """Drop the state of the book; a body older than the stream is refused."""
        if last != self._seed:
            self._streamed = max(self._streamed, last)
        self._floor, self.last = last, None
        self._copying = False

    def _hold(self, delta: Held) -> None:
        """Keep one unbroken run: updates before a gap can never be applied."""
        if self._held:
            newest = self._held[-1].final
            if delta.final <= newest:
                return
            if delta.first != newest + 1:
                self._held.clear()
        self._held.append(delta)

    def seeded(
        self, bids: bytes, asks: bytes, sequence: int, at: Moment = UNTIMED
    ) -> tuple[Output, ...]:
        """Start at the body of a `Fetch`, then follow what was held."""
        last = self.last
        if last is not None and not self._copying:  # an answer to an earlier question
            return NOTHING
        rest = [delta for delta in self._held if delta.final > sequence]
        oldest = rest[0].first if rest else (self._floor if last is None else last) + 1
        if oldest > sequence + 1 or (self._exact and rest and oldest <= sequence):
            return self._again()
        self._listen(last)
        self._held.clear()
        self._copying = False
        self._seed = sequence
        self.last = rest[-1].final if rest else sequence
        if self._streamed < 0:  # nothing to compare with: the stream must deliver all from here on
            self._streamed = sequence
        shape = self.delta_shape
        snapshot = Snapshot(
            self.instrument, bids, asks, self.snapshot_shape, self._levels_asked, at
        )
        deltas = (Delta(self.instrument, one.bids, one.asks, shape, one.at) for one in rest)
        return (snapshot, *deltas)

    def _listen(self, last: int | None) -> None:
        """Note the stream's position, before the body's state replaces it."""
        last_held = self._held[-1].final if self._held else -1
        if last is not None and last != self._seed:
            last_held = max(last_held, last)
        if last_held >= 0:
            self._streamed = max(self._streamed, last_held)
            self._proven = True

    def _again(self) -> tuple[Output, ...]:
        live = self.last is not None
        if self._fetches < FETCHES_MAX:
            self._fetches += 1
            return (replace(self._fetch, spare=True) if live else self._fetch,)
        self._fetches = 0
        if live:
            self.abandon()
            return NOTHING
        return (Gap(self.instrument, f"{FETCHES_MAX} snapshots were older than the deltas"),)
