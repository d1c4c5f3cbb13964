"""The ways a book is kept in sync with its exchange: objects that a connector has.

`Chain`: a snapshot on the socket, then deltas that each name the state they follow. `Unnumbered`:
the same without numbers. `WholeBooks`: each frame has the whole book. The fourth way is in
`join.py`: a snapshot that is asked for, joined with the deltas held back meanwhile; the fifth in
`quiet.py`: whole books that may stay away, and a body that stands in for them. None of them
holds levels; they decide which `Output` a message becomes. `Trackers` are those of one connection,
and follow its numbers where an exchange counts all frames of it.
"""

from typing import Protocol, TypeVar

from onebook.core.types import PAIRS, LevelShape
from onebook.exchanges.kit.contract import (
    NOTHING,
    Acknowledged,
    Delta,
    Gap,
    Output,
    Outputs,
    Snapshot,
)
from onebook.exchanges.kit.moments import UNTIMED, Moment
from onebook.model import Instrument


class Tracker(Protocol):
    """Keeps one instrument's book in sync."""

    instrument: Instrument

    @property
    def live(self) -> bool:
        """Whether deltas are followed."""

    def restart(self) -> object:
        """Wait for the next snapshot."""


K = TypeVar("K")
T = TypeVar("T", bound=Tracker)


class Trackers(dict[K, T]):
    """The trackers of a connection by the name or the id that its frames carry.

    `left` are those that were unsubscribed: their late frames are ignored. `due` is the number of
    the next frame where the exchange counts all frames of a connection, whatever they are about;
    None before the first.
    """

    __slots__ = ("due", "left")

    def __init__(self) -> None:
        super().__init__()
        self.left: set[K] = set()  # at most as many as the exchange names in one connection
        self.due: int | None = None

    def repeats(self, number: int) -> bool:
        """Whether a number is that of the last frame: this frame was sent twice."""
        return self.due is not None and number == self.due - 1

    def missed(self, number: int) -> tuple[Output, ...]:
        """Take the number of the next frame; a gap of every live book where it skips one."""
        due, self.due = self.due, number + 1
        if due is None or number == due or number == due - 1:
            return NOTHING
        reason = f"the connection is at frame {due - 1}, the next is {number}"
        live = [tracker for tracker in self.values() if tracker.live]
        for tracker in live:
            tracker.restart()
        return tuple(Gap(tracker.instrument, reason) for tracker in live)


class Chain:
    """Follows deltas that name the state before them, by equality and never by order.

    Exchanges restart their numbers downwards without losing anything (OKX at maintenance), so
    "greater than the last" would be wrong both ways.
    """

    __slots__ = ("delta_shape", "instrument", "last", "snapshot_shape")

    def __init__(
        self,
        instrument: Instrument,
        *,
        shape: LevelShape = PAIRS,
        snapshot_shape: LevelShape | None = None,
        delta_shape: LevelShape | None = None,
    ) -> None:
        self.instrument = instrument
        self.last: int | None = None  # the state the book is at; None until a snapshot
        self.snapshot_shape = snapshot_shape or shape
        self.delta_shape = delta_shape or shape

    @property
    def live(self) -> bool:
        """Whether deltas are followed."""
        return self.last is not None

    def restart(self) -> None:
        """Wait for the next snapshot."""
        self.last = None

    def snapshot(
        self, bids: bytes, asks: bytes, sequence: int, at: Moment = UNTIMED
    ) -> tuple[Output, ...]:
        """Start at a snapshot, whenever it comes."""
        self.last = sequence
        return (Snapshot(self.instrument, bids, asks, self.snapshot_shape, at=at),)

    def delta(
        self, bids: bytes, asks: bytes, previous: int, sequence: int, at: Moment = UNTIMED
    ) -> Outputs:
        """Follow a delta from state `previous` to state `sequence`."""
        last = self.last
        if previous == last:
            self.last = sequence
            return Delta(self.instrument, bids, asks, self.delta_shape, at)
        if last is None or sequence == last:  # before the snapshot, or sent twice
            return NOTHING
        self.last = None
        return (Gap(self.instrument, f"the book is at {last}, the delta follows {previous}"),)


class Unnumbered:
    """Follows deltas that have no numbers: only the order of the socket and what guards it."""

    __slots__ = ("delta_shape", "instrument", "live", "snapshot_shape")

    def __init__(
        self,
        instrument: Instrument,
        *,
        shape: LevelShape = PAIRS,
        snapshot_shape: LevelShape | None = None,
        delta_shape: LevelShape | None = None,
    ) -> None:
        self.instrument = instrument
        self.live = False
        self.snapshot_shape = snapshot_shape or shape
        self.delta_shape = delta_shape or shape

    def restart(self) -> None:
        """Wait for the next snapshot."""
        self.live = False

    def snapshot(self, bids: bytes, asks: bytes, at: Moment = UNTIMED) -> tuple[Output, ...]:
        """Start at a snapshot, whenever it comes."""
        self.live = True
        return (Snapshot(self.instrument, bids, asks, self.snapshot_shape, at=at),)

    def delta(self, bids: bytes, asks: bytes, at: Moment = UNTIMED) -> Outputs:
        """Follow a delta; nothing before the snapshot."""
        return Delta(self.instrument, bids, asks, self.delta_shape, at) if self.live else NOTHING


class WholeBooks:
    """Takes each frame as a snapshot: the whole book comes with every change.

    Args:
        instrument: Whose book it is.
        shape: Of its levels.
        unanswered: The exchange answers a subscription by the first frame of its book alone, which
            then acknowledges it.
    """

    __slots__ = ("_acknowledges", "_unanswered", "instrument", "shape")

    def __init__(
        self, instrument: Instrument, *, shape: LevelShape = PAIRS, unanswered: bool = False
    ) -> None:
        self.instrument = instrument
        self.shape = shape
        self._unanswered = self._acknowledges = unanswered

    @property
    def live(self) -> bool:
        """Whether deltas are followed: there are none."""
        return False

    def restart(self) -> None:
        """Let the next frame answer the next subscription."""
        self._acknowledges = self._unanswered

    def snapshot(
        self, bids: bytes, asks: bytes, at: Moment = UNTIMED, *, answers: bool = False
    ) -> tuple[Output, ...]:
        """Replace the book; `answers` where the frame answers a request."""
        snapshot = Snapshot(self.instrument, bids, asks, self.shape, at=at)
        if not (answers or self._acknowledges):
            return (snapshot,)
        self._acknowledges = False
        return (Acknowledged(self.instrument), snapshot)
