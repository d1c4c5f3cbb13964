"""Observes the traffic of one exchange, its connector and its books, without changing anything.

An `Observer` gets every frame (the feeds use it as their recorder), the connector's outputs
(through `observed`), and the health of the books. If REST bodies seed the books, it requests
another body for a live book and compares both at the same sequence number.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from onebook.books import Books, LiveBook
from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.core import Book
from onebook.core.types import LevelError
from onebook.exchanges.kit import (
    Alive,
    BookHalted,
    BookRefused,
    Closing,
    Connector,
    Delta,
    Exchange,
    Ignored,
    LossDetection,
    Output,
    ProtocolError,
    Seeded,
    SlowDown,
    Snapshot,
    SnapshotFailed,
    StreamPosition,
    TopOfBook,
    Trading,
    Unnamed,
    best_prices_at,
    levels_at,
)
from onebook.exchanges.kit.contract import milliseconds
from onebook.feeds.connection import TOO_LONG, FrameRecorder
from onebook.fusing import TopCounts
from onebook.model import Health, Instrument, Reason
from onebook.ops.livecheck.forms import Redactor, form_of
from onebook.ops.livecheck.report import Comparison, FindingKind

COMPARED_LEVELS: Final = 25  # best levels per side
COMPARED_TRIES_MAX: Final = 5  # consecutive bodies that are newer than the stream
FORMS_MAX: Final = 40  # per exchange; frames of other forms are only counted
DATA_FORMS_MAX: Final = 20  # depth frames and tops whose form is recorded
SETTLED_S: Final = 2.0  # after this, no frames of a book's last subscription arrive
WORDS_MAX: Final = 20  # different texts per kind of finding
INTERVALS_MAX: Final = 20_000  # per book
LEADS_MAX: Final = 20_000  # per exchange
AHEAD_MAX: Final = 1_000  # tops per book that the depth has not reached
SENT_MAX: Final = 10_000

Levels = tuple[list[tuple[str, str]], list[tuple[str, str]]]


class Ahead(NamedTuple):
    """A top that the depth has not reached yet: its number and time of arrival."""

    number: int
    at: float


class FollowedBook(Struct, eq=False):
    """Observations of one followed book; times are monotonic seconds."""

    instrument: Instrument
    acquired_at: float
    live_at: float | None = None
    health: Health = Health.SYNCING
    reason: Reason | None = None
    detail: str = ""
    data_frames: int = 0
    heard_at: float | None = None  # last data or heartbeat of this book
    intervals_s: deque[float] = field(default_factory=lambda: deque(maxlen=INTERVALS_MAX))
    bids: int = 0  # maximum number of levels
    asks: int = 0
    one_sided: int = 0  # inspections in which a side of the live book was empty
    behind: int = 0  # consecutive bodies that were newer than the stream
    awaits_body: bool = False
    wants_body: bool = False
    before: tuple[float, Levels] | None = None  # the book before its second subscription
    resubscribed: bool = False
    best: TopOfBook | None = None  # newest top of the fast channel
    tied: TopOfBook | None = None  # top of the same time as the last levels
    ahead: deque[Ahead] = field(default_factory=lambda: deque(maxlen=AHEAD_MAX))


class Noted(Struct):
    """Number of occurrences, and the first example."""

    count: int = 0
    example: str = ""
    symbol: str = ""


class Observer:
    """Observations of one exchange.

    Args:
        exchange: The exchange's facts.
        books: The exchange's books.
        redactor: Redacts examples and texts of the exchange.
        recorder: Records the frames, if requested.
        clock: Returns the time of frames.
    """

    def __init__(
        self,
        exchange: Exchange,
        books: Books,
        *,
        redactor: Redactor,
        recorder: FrameRecorder | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.exchange = exchange
        self.followed: dict[Instrument, FollowedBook] = {}
        self.connections = self.frames = self.bytes = self.largest = 0
        self.outputs: Counter[str] = Counter()
        self.forms: dict[tuple[str, str], Noted] = {}
        self.noted: dict[tuple[FindingKind, str, str], Noted] = {}
        self.comparisons: list[Comparison] = []
        self.sent: deque[float] = deque(maxlen=SENT_MAX)
        self.heartbeats: deque[float] = deque(maxlen=SENT_MAX)  # sent by the exchange
        self.pings: deque[float] = deque(maxlen=SENT_MAX)  # sent by us
        self.heard_at: float | None = None  # last data or heartbeat of the connection
        self.unheard_max_s = 0.0
        self.late_max_s = 0.0  # maximum delay of this process
        self.ages_s: tuple[float, float] | None = None  # minimum and maximum age of data
        self.tops: TopCounts | None = None  # of the fast best prices, if any
        self.tied = self.tied_equal = 0  # comparisons at the same timestamp
        self.leads_s: deque[float] = deque(maxlen=LEADS_MAX)  # new tops before the depth
        self._books = books
        self._redactor = redactor
        self._recorder = recorder
        self._clock = clock
        self._names: tuple[str, ...] = ()
        self._stopped = False
        # When a book last became live, stopped being live, or was seeded.
        self._moved_at = clock.monotonic()
        books.subscribe(on_health=self._health_changed)

    def follow(self, instrument: Instrument) -> None:
        """Start observing a book."""
        self.followed[instrument] = FollowedBook(instrument, self._clock.monotonic())
        names = {text for each in self.followed for text in _spellings(each)}
        self._names = tuple(sorted(names, key=len, reverse=True))

    def observed(self) -> Exchange:
        """Return the exchange's facts with an observed connector."""
        make = self.exchange.connector

        def connector(instruments: Sequence[Instrument]) -> Connector:
            inner = make(instruments)
            kind = WatchedSeeded if isinstance(inner, Seeded) else WatchedConnector
            return kind(inner, self)

        return replace(self.exchange, connector=connector)

    def stop(self) -> None:
        """Stop counting, because the check closes its own connections."""
        self._stopped = True

    def note(
        self, kind: FindingKind, detail: str = "", *, symbol: str = "", example: str = ""
    ) -> None:
        """Count a finding; once a kind has enough texts, others count as the last one."""
        if self._stopped:
            return
        key = (kind, symbol, self._redactor.text(detail))
        if key not in self.noted and sum(1 for each in self.noted if each[0] is kind) >= WORDS_MAX:
            key = (kind, "", "others")
        noted = self.noted.setdefault(key, Noted(example=example, symbol=symbol))
        noted.count += 1

    # Traffic on the sockets: a `FrameRecorder`

    def opened(self, url: str, t: float) -> None:
        """Observe an opened connection."""
        self.connections += not self._stopped
        self.heard_at = t
        if self._recorder is not None:
            self._recorder.opened(url, t)

    def frame_in(self, url: str, t: float, frame: bytes) -> None:
        """Observe a message that arrived."""
        if not self._stopped:
            self.frames += 1
            self.bytes += len(frame)
            self.largest = max(self.largest, len(frame))
        if self._recorder is not None:
            self._recorder.frame_in(url, t, frame)

    def frame_out(self, url: str, t: float, frame: bytes) -> None:
        """Observe a text frame that was sent."""
        if not self._stopped:
            self.sent.append(t)
            heartbeat = self.exchange.heartbeat
            if heartbeat is not None and frame == heartbeat.frame:
                self.pings.append(t)
        if self._recorder is not None:
            self._recorder.frame_out(url, t, frame)

    def http(self, url: str, t: float, body: bytes) -> None:
        """Observe a REST body that arrived."""
        if self._recorder is not None:
            self._recorder.http(url, t, body)

    # Outputs of the connector

    def read(self, frame: bytes, outputs: Sequence[Output]) -> None:
        """Count the outputs of a frame."""
        if self._stopped:
            return
        now = self._clock.monotonic()
        if not outputs:
            self._without_output(frame, now)
        for output in outputs:
            kind = type(output).__name__.lower()
            self.outputs[kind] += 1
            match output:
                case Snapshot() | Delta():
                    self._data(output, now)
                    if self.outputs["snapshot"] + self.outputs["delta"] <= DATA_FORMS_MAX:
                        self._form("data", frame)
                    continue
                case TopOfBook():
                    self._best(output, now)
                    if self.outputs[kind] <= DATA_FORMS_MAX:
                        self._form("best prices", frame)
                    continue
                case Alive(instrument):
                    self.heartbeats.append(now)
                    self._heard(instrument, now)
                case Ignored(known=False):
                    kind = "unknown"
                    self.note(
                        FindingKind.UNKNOWN_FRAMES,
                        form_of(frame, self._names),
                        example=self._redactor.frame(frame),
                    )
                case Ignored(refused=words) if words:
                    self._refused(FindingKind.REQUEST_REFUSED, words, frame)
                case Unnamed(words):
                    self._refused(FindingKind.REQUEST_REFUSED, words, frame)
                case BookRefused(instrument, words):
                    self._refused(FindingKind.REFUSED, words, frame, instrument.symbol)
                case SlowDown(words):
                    self._refused(FindingKind.SLOW_DOWN, words, frame)
                case SnapshotFailed(instrument, words):
                    self._refused(FindingKind.REFUSED, words, frame, instrument.symbol)
                case Closing(words):
                    self._refused(FindingKind.CLOSE_ANNOUNCED, words, frame)
                case BookHalted(instrument, words):
                    self._refused(FindingKind.MAINTENANCE, words, frame, instrument.symbol)
                case Trading(open=False, reason=words):
                    self._refused(FindingKind.MAINTENANCE, words, frame)
            self._form(kind, frame)

    def _without_output(self, frame: bytes, now: float) -> None:
        """Count a frame without outputs.

        This is a finding only if all books have been live and unchanged for a while: deltas that
        wait for a body or are older than one, and late frames of an unsubscribed book, have no
        outputs either.
        """
        live = all(each.health is Health.LIVE for each in self.followed.values())
        if not live or now - self._moved_at < SETTLED_S:
            self.outputs["held_or_late"] += 1
            return
        self.outputs["nothing"] += 1
        self._form("nothing", frame)
        self.note(FindingKind.NO_CONSEQUENCE, example=self._redactor.frame(frame))

    def _refused(self, kind: FindingKind, words: str, frame: bytes, symbol: str = "") -> None:
        self.note(kind, words, symbol=symbol, example=self._redactor.frame(frame))

    def unreadable(self, frame: bytes, error: Exception) -> None:
        """Count a frame or body that the connector could not read."""
        if self._stopped:
            return
        self.outputs["unreadable"] += 1
        if isinstance(error, ProtocolError):
            kind, words = FindingKind.UNREADABLE_FRAMES, error.reason
            symbol = error.instrument.symbol if error.instrument is not None else ""
        else:
            kind, words, symbol = FindingKind.DEFECT, type(error).__name__, ""
        self.note(kind, _without_numbers(words), symbol=symbol, example=self._redactor.frame(frame))
        self._form("unreadable", frame)

    def _data(self, output: Snapshot | Delta, now: float) -> None:
        book = self.followed.get(output.instrument)
        if book is None:
            return
        book.data_frames += 1
        self._heard(output.instrument, now)
        self._reached(book, output, now)
        if output.at_ms:
            age_s = self._clock.wall_ms() / 1_000 - output.at_ms / 1_000
            least, most = self.ages_s or (age_s, age_s)
            self.ages_s = min(least, age_s), max(most, age_s)

    def _best(self, top: TopOfBook, now: float) -> None:
        book = self.followed.get(top.instrument)
        if book is None:
            return
        last, book.best = book.best, top
        if last is None or (top.bids, top.asks) != (last.bids, last.asks):
            book.ahead.append(Ahead(top.sequence, now))

    def _reached(self, book: FollowedBook, levels: Snapshot | Delta, now: float) -> None:
        """Measure the lead of the newest top that these levels include."""
        self._compare_tied(book)
        best, number = book.best, levels.sequence
        if best is not None and _same_time(best, levels):
            book.tied = best
        newest: Ahead | None = None
        while book.ahead and book.ahead[0].number <= number:
            newest = book.ahead.popleft()
        if newest is not None and book.health is Health.LIVE:
            self.leads_s.append(now - newest.at)

    def _compare_tied(self, book: FollowedBook) -> None:
        """Compare the last levels with best prices of the same time, which fusing never does."""
        tied, book.tied = book.tied, None
        live = self._books.get(book.instrument)
        if tied is None or live is None or live.health is not Health.LIVE:
            return
        other = Book()
        try:
            other.replace(tied.bids, tied.asks, tied.shape)
        except LevelError:
            return
        self.tied += 1
        self.tied_equal += other.top(1) == live.core.top(1)

    def _heard(self, instrument: Instrument | None, now: float) -> None:
        if self.heard_at is not None:
            self.unheard_max_s = max(self.unheard_max_s, now - self.heard_at)
        self.heard_at = now
        book = self.followed.get(instrument) if instrument is not None else None
        if book is not None:
            if book.heard_at is not None:
                book.intervals_s.append(now - book.heard_at)
            book.heard_at = now

    def _form(self, kind: str, frame: bytes) -> None:
        key = (kind, self._redactor.text(form_of(frame, self._names)))
        if key not in self.forms and len(self.forms) >= FORMS_MAX:
            return
        noted = self.forms.setdefault(key, Noted())
        noted.count += 1
        noted.example = noted.example or self._redactor.frame(frame)

    # Books

    def _health_changed(self, book: LiveBook, previous: Health) -> None:
        followed = self.followed.get(book.instrument)
        if followed is None or self._stopped or book.reason is Reason.NOT_WANTED:
            return
        now, symbol = self._clock.monotonic(), book.instrument.symbol
        self._moved_at = now
        followed.health, followed.reason = book.health, book.reason
        followed.detail = self._redactor.text(book.detail)
        if book.health is Health.LIVE:
            if followed.live_at is None:
                followed.live_at = now
            if followed.before is not None:
                self._compare_in_time(followed, book, now)
            return
        followed.heard_at = None  # so that the pause does not count as an interval of the exchange
        assert book.reason is not None
        self._invalidated(book, book.reason, symbol)

    def _invalidated(self, book: LiveBook, reason: Reason, symbol: str) -> None:
        detail = _without_numbers(book.detail)
        words = f"{reason}: {detail}" if detail else reason.value
        match reason:
            case (
                Reason.SUBSCRIBING
                | Reason.RENEWING
                | Reason.CLOSING
                | Reason.REFUSED
                | Reason.HALTED
            ):
                return  # already counted as an output, or not a fault
            case Reason.UNREACHABLE:
                self.note(FindingKind.UNREACHABLE, book.detail)
            case Reason.RATE_LIMITED | Reason.MAINTENANCE if book.health is Health.OFFLINE:
                self.note(FindingKind.UNREACHABLE, words)
            case Reason.PROTOCOL_ERROR if TOO_LONG in book.detail:
                self.note(FindingKind.FRAME_TOO_LARGE, book.detail)
            case Reason.DISCONNECTED:
                self.note(FindingKind.CLOSED, book.detail)
            case Reason.SILENT:
                self.note(FindingKind.SILENT, words)
            case Reason.QUIET | Reason.DEAD_STREAM:
                self.note(FindingKind.SILENT, words, symbol=symbol)
            case _:
                self.note(FindingKind.STALE, words, symbol=symbol)

    def look(self) -> None:
        """Inspect the live books: their levels, and whether two of them are identical."""
        live = [
            book
            for each in self.followed
            if (book := self._books.get(each)) is not None and book.health is Health.LIVE
        ]
        for book in live:
            followed = self.followed[book.instrument]
            followed.bids = max(followed.bids, book.core.bid_count)
            followed.asks = max(followed.asks, book.core.ask_count)
            if not (book.core.bid_count and book.core.ask_count):
                followed.one_sided += 1
                sides = f"{book.core.bid_count} bids, {book.core.ask_count} asks"
                self.note(FindingKind.EMPTY_BOOK, sides, symbol=book.instrument.symbol)
        for at, book in enumerate(live):
            for other in live[at + 1 :]:
                if _same(book.core, other.core):
                    both = f"{book.instrument.symbol} and {other.instrument.symbol}"
                    self.note(FindingKind.SAME_BOOK, both)

    # Comparisons

    def want_bodies(self) -> None:
        """Request another snapshot of each seeded live book with its next frame."""
        for book in self.followed.values():
            book.wants_body = self.exchange.guard is not LossDetection.WHOLE

    def wanted(self, instrument: Instrument) -> bool:
        """Return whether to request a snapshot of this book now."""
        followed = self.followed.get(instrument)
        book = self._books.get(instrument)
        if followed is None or book is None or self._stopped:
            return False
        if not followed.wants_body or book.health is not Health.LIVE:
            return False
        followed.wants_body = False
        return True

    def requested(self, instrument: Instrument) -> None:
        """Record that a body was requested for a live book."""
        if instrument in self.followed and self.exchange.guard is not LossDetection.WHOLE:
            self.followed[instrument].awaits_body = True

    def seeded(self, instrument: Instrument, outputs: Sequence[Output], connector: Seeded) -> None:
        """Compare a live book with the snapshot that is about to replace it.

        The outputs bring the body to the last state of the stream, so that both books have the same
        state unless the body is newer.
        """
        self._moved_at = self._clock.monotonic()
        followed, book = self.followed.get(instrument), self._books.get(instrument)
        mine = [
            each
            for each in outputs
            if isinstance(each, Snapshot | Delta) and each.instrument is instrument
        ]
        if followed is None or book is None or not mine or type(mine[0]) is not Snapshot:
            return
        awaited, followed.awaits_body = followed.awaits_body, False
        if not awaited or book.health is not Health.LIVE or self._stopped:
            return
        if connector.position(instrument) is StreamPosition.BEHIND:
            followed.behind += 1
            if followed.behind < COMPARED_TRIES_MAX:
                followed.wants_body = True
            return
        followed.behind = 0
        self.comparisons.append(self._compared(followed, book, mine))

    def _compared(
        self, followed: FollowedBook, book: LiveBook, outputs: Sequence[Snapshot | Delta]
    ) -> Comparison:
        symbol = followed.instrument.symbol
        other = Book()
        try:
            for each in outputs:
                if type(each) is Snapshot:
                    other.replace(each.bids, each.asks, each.shape, each.levels_asked)
                else:
                    other.apply(each.bids, each.asks, each.shape)
        except LevelError as error:
            return Comparison(symbol, "none", detail=f"levels that cannot be read: {error}")
        levels, differing, first = _differences(
            other.top(COMPARED_LEVELS), book.core.top(COMPARED_LEVELS), self.exchange.depth
        )
        if differing:
            self.note(FindingKind.DIFFERS, f"{differing} of {levels} levels", symbol=symbol)
        return Comparison(symbol, "ids", levels, differing, detail=first)

    def will_resubscribe(self, instrument: Instrument) -> None:
        """Remember a live book that is about to be resubscribed."""
        book, followed = self._books.get(instrument), self.followed[instrument]
        if book is not None:
            followed.resubscribed = True
            followed.heard_at = None
            followed.health, followed.reason = Health.SYNCING, Reason.SUBSCRIBING
            followed.before = self._clock.monotonic(), book.core.top(COMPARED_LEVELS)

    def _compare_in_time(self, followed: FollowedBook, book: LiveBook, now: float) -> None:
        assert followed.before is not None
        then, before = followed.before
        followed.before = None
        after = book.core.top(COMPARED_LEVELS)
        levels, differing, _ = _differences(before, after, self.exchange.depth)
        apart_s = round(now - then, 3)
        symbol = followed.instrument.symbol
        self.comparisons.append(Comparison(symbol, "time", levels, differing, apart_s))
        if _apart(before, after):
            words = f"no price overlaps with those of a second subscription {apart_s:.1f} s later"
            self.note(FindingKind.DIFFERS, words, symbol=symbol)


class WatchedConnector:
    """Delegates to a connector and also passes its outputs to the observer."""

    def __init__(self, inner: Connector, observer: Observer) -> None:
        self.inner = inner
        self.observer = observer

    def opened(self) -> Iterable[Output]:
        """Subscribe."""
        return self.inner.opened()

    def reader(self) -> Callable[[bytes], Iterable[Output] | Delta | None]:
        """Pass every frame to `received`, which observes it and its outputs."""
        return lambda frame: None

    def received(self, frame: bytes) -> Iterable[Output]:
        """Process one frame."""
        try:
            outputs = tuple(self.inner.received(frame))
        except Exception as error:
            self.observer.unreadable(frame, error)
            raise
        self.observer.read(frame, outputs)
        return outputs

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        """Process a body."""
        try:
            return tuple(self.inner.fetched(instrument, body))
        except Exception as error:
            self.observer.unreadable(body, error)
            raise

    def resync(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Subscribe again."""
        return self.inner.resync(instruments)

    def add(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Subscribe to more."""
        return self.inner.add(instruments)

    def remove(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Unsubscribe."""
        return self.inner.remove(instruments)


class WatchedSeeded(WatchedConnector):
    """`WatchedConnector` with seeded books; requests additional snapshots to compare."""

    inner: Seeded  # type: ignore[assignment]

    def received(self, frame: bytes) -> Iterable[Output]:
        """Process one frame; compare a body that arrives on the socket."""
        outputs = tuple(super().received(frame))
        seeds = [each.instrument for each in outputs if type(each) is Snapshot]
        for instrument in seeds:
            self.observer.seeded(instrument, outputs, self.inner)
        more = [
            output
            for instrument in {each.instrument for each in outputs if type(each) is Delta}
            if self.observer.wanted(instrument)
            for output in self.reseed(instrument)
        ]
        return (*outputs, *more)

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        """Process a REST body; if its book is live, compare the two."""
        outputs = tuple(super().fetched(instrument, body))
        self.observer.seeded(instrument, outputs, self.inner)
        return outputs

    def reseed(self, instrument: Instrument) -> Iterable[Output]:
        """Request another body."""
        self.observer.requested(instrument)
        return self.inner.reseed(instrument)

    def abandon(self, instrument: Instrument) -> None:
        """Expect no body."""
        self.inner.abandon(instrument)

    def position(self, instrument: Instrument) -> StreamPosition:
        """Compare the stream with the body."""
        return self.inner.position(instrument)

    def invalidate(self, instrument: Instrument) -> Iterable[Output]:
        """Unsubscribe from a dead stream."""
        return self.inner.invalidate(instrument)


def _same_time(best: TopOfBook, levels: Snapshot | Delta) -> bool:
    """Return whether both are numbered by one time, the same for both."""
    at_ms = milliseconds(best.at)
    return (best.sequence, levels.sequence) == (best_prices_at(at_ms), levels_at(at_ms))


def _spellings(instrument: Instrument) -> set[str]:
    native = instrument.native
    return {each for each in (native, native.lower(), instrument.symbol) if each}


def _without_numbers(words: str) -> str:
    """Mask numbers, so that texts that differ only in numbers count as one."""
    return "".join("#" if each.isdigit() else each for each in words)


def _same(one: Book, other: Book) -> bool:
    mine = one.top(COMPARED_LEVELS)
    return min(map(len, mine)) >= 2 and mine == other.top(COMPARED_LEVELS)


def _differences(one: Levels, other: Levels, depth: int) -> tuple[int, int, str]:
    """Return the number of compared levels, of differing ones, and the first difference."""
    levels = differing = 0
    first = ""
    for side, mine, theirs in zip(("bid", "ask"), one, other, strict=True):
        count = min(len(mine), depth or len(mine))
        levels += count
        for at in range(count):
            found = theirs[at] if at < len(theirs) else None
            if found is None or found != mine[at]:
                differing += 1
                first = first or f"{side} {at + 1} is {found}, the other book has {mine[at]}"
    return levels, differing, first


def _apart(one: Levels, other: Levels) -> bool:
    """Return whether the price ranges of the best levels do not overlap on a side."""
    for mine, theirs in zip(one, other, strict=True):
        if not mine or not theirs:
            continue
        low, high = sorted((float(mine[0][0]), float(mine[-1][0])))
        least, most = sorted((float(theirs[0][0]), float(theirs[-1][0])))
        if high < least or most < low:
            return True
    return False
