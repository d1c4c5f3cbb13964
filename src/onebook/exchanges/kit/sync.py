"""Sequencing strategies that keep a book in sync with its exchange, without holding its levels.

- `Chain`: a snapshot on the socket, then deltas that each name the previous state.
- `Unnumbered`: the same without numbers.
- `WholeBooks`: each frame has the whole book.
- `Join`: a snapshot that is requested, by REST or on the socket, joined with the deltas held back
  meanwhile.
- `Shallow`: the best prices of a faster book of fewer levels, joined in the same way.
- `QuietBook`: whole books on a stream that may stay silent, started and checked by REST bodies.

Each turns messages of one instrument into outputs. `Trackers` holds the strategies of one
connection, and checks its frame numbers if an exchange counts all frames of a connection.
"""

from collections import deque
from typing import Final, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from onebook.core import Book
from onebook.core.types import PAIRS, LevelError, LevelShape
from onebook.exchanges.kit.contract import (
    NOTHING,
    UNTIMED,
    Acknowledged,
    Delta,
    Fetch,
    Gap,
    Moment,
    Output,
    Outputs,
    Send,
    Snapshot,
    StreamPosition,
    TopOfBook,
)
from onebook.model import Instrument

HELD_MAX: Final = 1_000  # deltas that wait for a body; the oldest are dropped first
FETCHES_MAX: Final = 5  # consecutive bodies that are too old before the book has a gap
SHALLOW_STARTS_MAX: Final = 20  # of one shallow book on a connection, with those after a loss
SHALLOW_WAIT: Final = 200  # deltas held for a requested shallow book before it is requested again
COMPARED: Final = 25  # best levels a side that must be equal in a body and the stream


class Tracker(Protocol):
    """A sequencing strategy: keeps the book of one instrument in sync."""

    instrument: Instrument

    @property
    def live(self) -> bool:
        """Whether the book has a snapshot, so that deltas apply."""

    def restart(self) -> object:
        """Invalidate the book until the next snapshot."""


K = TypeVar("K")
T = TypeVar("T", bound=Tracker)


class Trackers(dict[K, T]):
    """The trackers of a connection by the name or id in its frames.

    `left` holds unsubscribed names or ids, whose late frames are ignored. `due` is the expected
    number of the next frame if the exchange counts all frames of a connection; None before the
    first.
    """

    __slots__ = ("due", "left")

    def __init__(self) -> None:
        super().__init__()
        self.left: set[K] = set()  # bounded by the names that one connection subscribes
        self.due: int | None = None

    def repeats(self, number: int) -> bool:
        """Return whether this is the number of the last frame, which was sent twice."""
        return self.due is not None and number == self.due - 1

    def missed(self, number: int) -> tuple[Output, ...]:
        """Count a frame by its number; if numbers are missing, every live book has a gap."""
        due, self.due = self.due, number + 1
        if due is None or number == due or number == due - 1:
            return NOTHING
        reason = f"the connection is at frame {due - 1}, the next is {number}"
        live = [tracker for tracker in self.values() if tracker.live]
        for tracker in live:
            tracker.restart()
        return tuple(Gap(tracker.instrument, reason) for tracker in live)


class DeltaBook:
    """Instrument and level shapes of a strategy whose snapshots and deltas arrive on the socket."""

    __slots__ = ("delta_shape", "instrument", "snapshot_shape")

    def __init__(
        self,
        instrument: Instrument,
        *,
        shape: LevelShape = PAIRS,
        snapshot_shape: LevelShape | None = None,
        delta_shape: LevelShape | None = None,
    ) -> None:
        self.instrument = instrument
        self.snapshot_shape = snapshot_shape or shape
        self.delta_shape = delta_shape or shape
        self.restart()

    def restart(self) -> None:
        """Invalidate the book until the next snapshot."""
        raise NotImplementedError


class Chain(DeltaBook):
    """Chains deltas that contain the previous state's number, which must equal the book's.

    Equality, not order: exchanges restart their numbers at lower ones without a loss (OKX at
    maintenance), and a higher number does not prove that nothing was lost.
    """

    __slots__ = ("last",)

    last: int | None  # state of the book; None until a snapshot

    @property
    def live(self) -> bool:
        """Whether the book has a snapshot, so that deltas apply."""
        return self.last is not None

    def restart(self) -> None:
        """Invalidate the book until the next snapshot."""
        self.last = None

    def snapshot(
        self,
        bids: bytes,
        asks: bytes,
        sequence: int,
        at: Moment = UNTIMED,
        order: int | None = None,
    ) -> tuple[Output, ...]:
        """Start or replace the book; `order` is its number among best prices, if another one."""
        self.last = sequence
        number = sequence if order is None else order
        return (Snapshot(self.instrument, bids, asks, self.snapshot_shape, at=at, sequence=number),)

    def delta(
        self,
        bids: bytes,
        asks: bytes,
        previous: int,
        sequence: int,
        at: Moment = UNTIMED,
        order: int | None = None,
    ) -> Outputs:
        """Apply a delta from state `previous` to state `sequence`; `order` as in `snapshot`."""
        last = self.last
        if previous == last:
            self.last = sequence
            number = sequence if order is None else order
            return Delta(self.instrument, bids, asks, self.delta_shape, at, number)
        if last is None or sequence == last:  # before the snapshot, or sent twice
            return NOTHING
        self.last = None
        return (Gap(self.instrument, f"the book is at {last}, the delta follows {previous}"),)


class Unnumbered(DeltaBook):
    """Applies deltas without numbers, in the order of the socket."""

    __slots__ = ("live",)

    live: bool

    def restart(self) -> None:
        """Invalidate the book until the next snapshot."""
        self.live = False

    def snapshot(self, bids: bytes, asks: bytes, at: Moment = UNTIMED) -> tuple[Output, ...]:
        """Start or replace the book."""
        self.live = True
        return (Snapshot(self.instrument, bids, asks, self.snapshot_shape, at=at),)

    def delta(self, bids: bytes, asks: bytes, at: Moment = UNTIMED) -> Outputs:
        """Apply a delta; ignored before the snapshot."""
        return Delta(self.instrument, bids, asks, self.delta_shape, at) if self.live else NOTHING


class WholeBooks:
    """Treats each frame as a snapshot: the exchange sends the whole book at every change.

    Args:
        instrument: The instrument.
        shape: How a level is written.
        unanswered: The exchange does not acknowledge a subscription except by the first frame of
            its book.
    """

    __slots__ = ("_acknowledges", "_timed", "_unanswered", "instrument", "shape")

    def __init__(
        self,
        instrument: Instrument,
        *,
        shape: LevelShape = PAIRS,
        unanswered: bool = False,
        timed: bool = False,
    ) -> None:
        self.instrument = instrument
        self.shape = shape
        self._timed = timed
        self._unanswered = self._acknowledges = unanswered

    @property
    def live(self) -> bool:
        """Always False: there are no deltas."""
        return False

    def restart(self) -> None:
        """Expect a new subscription, which the next frame may acknowledge."""
        self._acknowledges = self._unanswered

    def snapshot(
        self, bids: bytes, asks: bytes, at: Moment = UNTIMED, *, answers: bool = False
    ) -> tuple[Output, ...]:
        """Replace the book; `answers` says whether the frame answers the subscription."""
        number = time_number(at) if self._timed else 0
        snapshot = Snapshot(self.instrument, bids, asks, self.shape, at=at, sequence=number)
        if not (answers or self._acknowledges):
            return (snapshot,)
        self._acknowledges = False
        return (Acknowledged(self.instrument), snapshot)


class Held(NamedTuple):
    """A delta that waits for a body: from state `first - 1` to state `final`."""

    first: int
    final: int
    bids: bytes
    asks: bytes
    at: Moment
    shape: LevelShape


class Join:
    """Joins a requested snapshot (a body) with the deltas around it, by Binance's published rule.

    Deltas are held until the body arrives. Those that it already contains are dropped, the first
    remaining one must contain the state after it, and each later one must start where the previous
    one ended. A body older than the held deltas is requested again, up to `FETCHES_MAX` times.

    A live book can be reseeded: from the request on, deltas are both applied and held, and the body
    with the deltas after it replaces the book.

    Args:
        fetch: The request for a body.
        levels_asked: The limit of that request.
        exact: The first delta after the body must start at the body's state. For deltas that are
            differences of two windows: one that starts earlier lacks levels that appeared and
            disappeared in between.
        restarts: The exchange may restart its numbers at lower ones on an open socket: a delta
            with a lower number is then a gap, after which any body is new enough.
        shallow: A faster book of fewer levels, whose best prices are shown over this one.
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
        "shallow",
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
        shallow: "Shallow | None" = None,
    ) -> None:
        self.instrument = fetch.instrument
        self.shallow = shallow
        self.snapshot_shape = snapshot_shape or shape
        self.delta_shape = delta_shape or shape
        self.last: int | None = None  # state of the book; None while a body is awaited
        self._seed = -1  # state of the last body
        self._floor = -1  # newest state of the stream: an older body is too old
        self._fetch = fetch
        self._levels_asked = levels_asked
        self._exact = exact
        self._restarts = restarts
        self._fetches = 0
        self._copying = False  # live, and a body was requested
        self._streamed = -1  # newest state of the stream before the last body
        self._proven = False  # the stream has delivered since its subscription
        self._held: deque[Held] = deque(maxlen=HELD_MAX)

    @property
    def live(self) -> bool:
        """Whether the book has a snapshot, so that deltas apply."""
        return self.last is not None

    def restart(self) -> tuple[Output, ...]:
        """Request a body; held deltas are kept."""
        if self.last is not None:
            self._lose(self.last)
        self._copying = False
        self._fetches = 1
        return (self._fetch,)

    def reseed(self) -> tuple[Output, ...]:
        """Request another body while the book stays live."""
        if self.last is None:
            return NOTHING
        self._held.clear()
        self._copying = True
        self._fetches = 1
        return (replace(self._fetch, spare=True),)

    def abandon(self) -> None:
        """Stop waiting for the body of a live book."""
        if self._copying:
            self._copying = False
            self._held.clear()

    def invalidate(self) -> None:
        """Expect a new subscription: the stream is unproven again."""
        self._proven = False
        self._streamed = -1
        if self.shallow is not None:
            self.shallow.leave()

    @property
    def position(self) -> StreamPosition:
        """State of the stream compared with the last body."""
        if self.last is None or self.last != self._seed:
            return StreamPosition.CURRENT
        if self._streamed < self.last:
            return StreamPosition.BEHIND
        return StreamPosition.CURRENT if self._proven else StreamPosition.UNPROVEN

    def delta(
        self,
        first: int,
        final: int,
        bids: bytes,
        asks: bytes,
        at: Moment = UNTIMED,
        shape: LevelShape | None = None,
    ) -> Outputs:
        """Apply or hold a delta from state `first - 1` to state `final`.

        `shape` is for exchanges whose deltas differ in their scales; default: `delta_shape`.
        """
        if first - 1 == self.last:
            self.last = final
            if self._copying:
                self._hold(Held(first, final, bids, asks, at, shape or self.delta_shape))
            return Delta(self.instrument, bids, asks, shape or self.delta_shape, at, final)
        return self._unchained(Held(first, final, bids, asks, at, shape or self.delta_shape))

    def _unchained(self, delta: Held) -> Outputs:
        last = self.last
        self._proven = True
        if last is None:
            self._hold(delta)
            return NOTHING
        if self._restarts and delta.final < last != self._seed:
            return self._restarted(delta, last)
        if delta.final <= last:  # sent twice, or contained in the body
            self._streamed = max(self._streamed, delta.final)
            return NOTHING
        # Only the first may overlap the body.
        if last == self._seed and delta.first <= last and not self._exact:
            self.last = delta.final
            if self._copying:
                self._hold(delta)
            return Delta(
                self.instrument, delta.bids, delta.asks, delta.shape, delta.at, delta.final
            )
        self._lose(last)
        self._held.clear()
        self._hold(delta)
        return (Gap(self.instrument, f"the book is at {last}, the delta starts at {delta.first}"),)

    def _restarted(self, delta: Held, last: int) -> tuple[Output, ...]:
        """Reset all numbers: the following ones are not comparable."""
        self._lose(last)
        self._floor = self._streamed = -1
        self._held.clear()
        self._hold(delta)
        return (Gap(self.instrument, f"the numbers fell from {last} to {delta.final}"),)

    def _lose(self, last: int) -> None:
        """Invalidate the book; later bodies must not be older than the stream."""
        if last != self._seed:
            self._streamed = max(self._streamed, last)
        self._floor, self.last = last, None
        self._copying = False

    def _hold(self, delta: Held) -> None:
        """Hold one unbroken run of deltas: those before a gap can never be applied."""
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
        """Start the book at the body of a `Fetch`, then apply the held deltas."""
        last = self.last
        if last is not None and not self._copying:  # of an earlier request
            return NOTHING
        rest = [delta for delta in self._held if delta.final > sequence]
        oldest = rest[0].first if rest else (self._floor if last is None else last) + 1
        if oldest > sequence + 1 or (self._exact and rest and oldest <= sequence):
            return self._again()
        self._record_stream(last)
        self._held.clear()
        self._copying = False
        self._seed = sequence
        self.last = rest[-1].final if rest else sequence
        if self._streamed < 0:  # nothing was delivered yet: compare from here on
            self._streamed = sequence
        snapshot = Snapshot(
            self.instrument, bids, asks, self.snapshot_shape, self._levels_asked, at, sequence
        )
        deltas = (
            Delta(self.instrument, one.bids, one.asks, one.shape, one.at, one.final) for one in rest
        )
        return (snapshot, *deltas)

    def _record_stream(self, last: int | None) -> None:
        """Record the newest state of the stream before the body's state replaces it."""
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


class Shallow:
    """The best prices of a faster book of fewer levels, a chain with the numbers of the deep one.

    Its losses cost only the age of the best prices: it is requested again, a bounded number of
    times, while the deep book stays as it is.

    Args:
        fetch: Stands for the request; `again` is sent instead.
        again: Requests the whole shallow book on the socket.
        levels: Levels a side that the exchange sends.
        shape: How a level is written.
    """

    __slots__ = ("_again", "_book", "_join", "_shape", "_starts_left", "_waited", "followed")

    def __init__(self, fetch: Fetch, again: Send, *, levels: int, shape: LevelShape) -> None:
        self.followed = False  # its stream is subscribed
        self._join = Join(fetch, exact=True, shape=shape)
        self._again = again
        self._shape = shape
        self._book = Book(levels)
        self._starts_left = SHALLOW_STARTS_MAX
        self._waited = 0  # deltas since the last request

    def follow(self) -> tuple[Output, ...]:
        """Request the whole book: its stream has just been subscribed."""
        self.followed = True
        return self._start()

    def leave(self) -> None:
        """Expect a new subscription."""
        self.followed = False

    def delta(
        self, first: int, final: int, bids: bytes, asks: bytes, at: Moment = UNTIMED
    ) -> Outputs:
        """Apply or hold a delta; returns the best prices after it."""
        outputs = self._join.delta(first, final, bids, asks, at)
        if type(outputs) is Delta:  # nearly all
            return self._applied(outputs) or self._start()
        if outputs:
            return self._start()  # a gap
        if not self._join.live:
            self._waited += 1
            if self._waited >= SHALLOW_WAIT:
                return self._start()
        return NOTHING

    def seeded(
        self, bids: bytes, asks: bytes, sequence: int, at: Moment = UNTIMED
    ) -> tuple[Output, ...]:
        """Start at a requested book and the deltas held since; returns the best prices."""
        best: TopOfBook | None = None
        for output in self._join.seeded(bids, asks, sequence, at):
            if not isinstance(output, Snapshot | Delta):  # the book was older than the deltas
                return self._start()
            applied = self._applied(output)
            if applied is None:
                return self._start()
            best = applied
        return NOTHING if best is None else (best,)

    def _applied(self, change: Snapshot | Delta) -> TopOfBook | None:
        """Return the best prices after a change; None if it cannot be applied."""
        book = self._book
        put = book.replace if type(change) is Snapshot else book.apply
        try:
            refused = put(change.bids, change.asks, self._shape)
        except LevelError:
            refused = "unreadable"
        if refused is not None:
            return None
        bids, asks = book.best_pairs()
        return TopOfBook(change.instrument, change.sequence, bids, asks, at=change.at)

    def _start(self) -> tuple[Output, ...]:
        """Request the whole book, unless it was lost too often."""
        self._waited = 0
        self._join.restart()
        if not self._starts_left:
            return NOTHING
        self._starts_left -= 1
        return (self._again,)


class QuietBook(WholeBooks):
    """Whole books on a stream that sends nothing until the next change, backed by REST bodies.

    A subscription sends no snapshot, so a book that does not change would never be shown, and a
    dead stream would look like a quiet one. A REST body therefore starts a book that has had no
    frame within `Exchange.snapshot_s` of the acknowledgement, and live books are compared with
    bodies from time to time. REST may lag behind the stream by seconds, so a body is used only if
    no frame has arrived since its request.

    Args:
        fetch: The request for a body.
        body_shape: How a level of a body is written; levels of frames are pairs.
    """

    __slots__ = (
        "_at",
        "_awaits_body",
        "_behind",
        "_body_shape",
        "_fetch",
        "_known",
        "_proven",
        "no_frame_yet",
    )

    def __init__(self, fetch: Fetch, *, body_shape: LevelShape = PAIRS) -> None:
        super().__init__(fetch.instrument)
        self.no_frame_yet = False  # since the acknowledgement
        self._fetch = fetch
        self._body_shape = body_shape
        self._awaits_body = False
        self._known: tuple[bytes, bytes, LevelShape] | None = None  # the newest frame or body
        self._at: Moment = UNTIMED
        self._proven = False  # a frame has arrived since the acknowledgement
        self._behind = False  # the last body differed from the last frame

    @property
    def awaits_body(self) -> bool:
        """Whether a body is awaited."""
        return self._awaits_body

    @property
    def position(self) -> StreamPosition:
        """State of the stream compared with the last body."""
        if self._behind:
            return StreamPosition.BEHIND
        proven = self._proven or self._known is None
        return StreamPosition.CURRENT if proven else StreamPosition.UNPROVEN

    def acknowledged(self) -> None:
        """Expect frames of a new subscription."""
        self.no_frame_yet = True
        self._proven = self._behind = False

    def restart(self) -> None:
        """Invalidate the book until the next frame."""
        super().restart()
        self._awaits_body = self.no_frame_yet = False
        self._known = None

    def request_body(self, *, spare: bool) -> tuple[Output, ...]:
        """Request a body."""
        self._awaits_body = True
        return (replace(self._fetch, spare=spare),)

    def abandon(self) -> None:
        """Stop waiting for the requested body."""
        self._awaits_body = False

    def snapshot(
        self, bids: bytes, asks: bytes, at: Moment = UNTIMED, *, answers: bool = False
    ) -> tuple[Output, ...]:
        """Replace the book with a frame."""
        self._awaits_body = self.no_frame_yet = self._behind = False
        self._proven = True
        self._known, self._at = (bids, asks, self.shape), at
        return super().snapshot(bids, asks, at, answers=answers)

    def seeded(self, bids: bytes, asks: bytes, at: Moment) -> tuple[Output, ...]:
        """Replace the book with a body, unless it is older than the last frame."""
        self._awaits_body = False
        if time_number(at) < time_number(self._at):
            return NOTHING
        body = (bids, asks, self._body_shape)
        self._behind = self._known is not None and top(*self._known) != top(*body)
        self._known, self._at = body, at
        return (Snapshot(self.instrument, *body, at=at),)


def time_number(at: Moment) -> int:
    """Return a timestamp as an integer for comparison; 0 if it is not a number."""
    if isinstance(at, int):
        return at
    return int(at) if at.isdecimal() and len(at) < 20 else UNTIMED


# Two channels without a common number are ordered by the exchange's time of each state. States of
# one tick of its clock have no order, so the levels count as the later of them: best prices are
# shown only if they are of a later tick, and the numbers are never equal.


def best_prices_at(at: int) -> int:
    """Number best prices by their time."""
    return 2 * at


def levels_at(at: int) -> int:
    """Number levels by their time."""
    return 2 * at + 1


def top(bids: bytes, asks: bytes, shape: LevelShape) -> object:
    """Return the best levels of a book; None if the text is invalid."""
    book = Book(COMPARED)
    try:
        book.replace(bids, asks, shape)
    except LevelError:
        return None
    return book.top(COMPARED)
