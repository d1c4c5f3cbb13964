"""Streams: at their own pace, the live books of a symbol become one encoded update for everyone.

A stream is one view of one symbol: exchanges, depth, interval and form. It is merged lazily, when
it is due, and encoded once for all of its clients. Work per exchange frame is constant: the first
change of a book moves the clean streams of that book to a queue, and later changes find nothing
to move. One callback, asked for through the clock, empties the queue.

The honesty rule lives here: only books that are live are merged, a book that stops being live
makes its streams publish at once, whatever their interval, and the names of those left out stand
in every update.

No sockets and no event loop: time and the callback come in (`Clock`); the gateway's hub
is the `Publisher`. Who listens to a stream is the hub's business.
"""

import hashlib
import heapq
import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Final, NamedTuple, Protocol

import msgspec

from onebook.books import Books, LiveBook
from onebook.core import Book, View
from onebook.model import GIB_BYTES, Health, Instrument

FIRST_UPDATE_S: Final = 3.0  # a new stream says what it knows after so long, even if nothing lives
MERGE_PACE_S: Final = 0.01  # after a merge that changed nothing visible, the next waits so long
PUBLISHES_PER_TICK_MAX: Final = 256  # then the event loop gets its turn
RATE_KNOWN_S: Final = 1.0  # a younger stream says nothing about what it will cost
THIRTY_DAYS_S: Final = 30 * 86_400

FULL: Final = "full"
DELTA: Final = "delta"
OBJECT: Final = "object"
ARRAY: Final = "array"

log = logging.getLogger("onebook.streams")
_json = msgspec.json.encode


class StreamKey(NamedTuple):
    """What makes two subscriptions the same stream.

    `exchanges` is sorted; `group` is the price step in its shortest decimal text, "" for none.
    """

    symbol: str
    exchanges: tuple[str, ...]
    depth: int = 20
    interval_ms: int = 100
    mode: str = FULL
    levels: str = OBJECT
    split: bool = False
    group: str = ""

    @property
    def id(self) -> str:
        """The public name of the stream, the same for every client and on every node."""
        return "sub_" + hashlib.sha256(_json(self)).hexdigest()[:12]


class Handle(Protocol):
    """A callback that can still be cancelled."""

    def cancel(self) -> None:
        """Do not call."""


class Clock(Protocol):
    """Where time comes from, and who calls back."""

    def monotonic(self) -> float:
        """Seconds that only grow, on the same scale as `call_at`."""

    def wall_us(self) -> int:
        """Microseconds since 1970, UTC."""

    def call_at(self, when: float, callback: Callable[[], None], /) -> Handle:
        """Call back at a monotonic time."""


class Supervisor(Protocol):
    """Who connects to exchanges; reference counted."""

    def want(self, instrument: Instrument) -> None:
        """Somebody looks at this book."""

    def unwant(self, instrument: Instrument) -> None:
        """One less looks at it."""


class Catalogue(Protocol):
    """Who knows the instruments."""

    def instrument(self, exchange: str, symbol: str) -> Instrument | None:
        """The instrument of a symbol on an exchange."""


class Publisher(Protocol):
    """Who carries updates to clients; every call is synchronous and never waits for a reader."""

    def publish(self, stream: "Stream", payload: bytes, full: Callable[[], bytes]) -> None:
        """An update of a stream; `full` builds the whole book of the same update number."""

    def status(self, stream: "Stream", payload: bytes) -> None:
        """An exchange of the stream changed its health."""

    def flush(self) -> None:
        """Everything of this tick was handed over: write."""


class _Members:
    """The instruments behind a view, and those of their books that may be shown now."""

    __slots__ = ("books", "cores", "instruments", "live", "names", "stale_json")

    def __init__(self, names: Sequence[str], instruments: Sequence[Instrument | None]) -> None:
        self.names = names
        self.instruments = instruments
        self.books: list[LiveBook] = []
        self.cores: list[Book | None] = []
        self.live = False
        self.stale_json = b"[]"

    def refresh(self, books: Books) -> None:
        """Look again at whose book is live; needed whenever a health changed."""
        found = [books.get(each) if each is not None else None for each in self.instruments]
        shown = [
            book if book is not None and book.health is Health.LIVE else None for book in found
        ]
        self.books = [book for book in shown if book is not None]
        self.cores = [book.core if book is not None else None for book in shown]
        self.live = bool(self.books)
        self.stale_json = _json(
            [name for name, book in zip(self.names, shown, strict=True) if book is None]
        )


class Stream:
    """One view of one symbol, and the state of the last update that was published."""

    __slots__ = (
        "_full",
        "_head_delta",
        "_head_full",
        "broken",
        "bytes_published",
        "due",
        "forced",
        "id",
        "interval_s",
        "key",
        "members",
        "merged_at",
        "opened_at",
        "published_at",
        "timestamp",
        "update_number",
        "users",
        "view",
    )

    def __init__(
        self, key: StreamKey, instruments: Sequence[Instrument | None], opened_at: float
    ) -> None:
        self.key = key
        self.opened_at = opened_at
        self.bytes_published = 0
        self.id = key.id
        self.interval_s = key.interval_ms / 1_000
        self.members = _Members(key.exchanges, instruments)
        self.view = _view(key)
        self.users = 0
        self.update_number = 0
        self.timestamp = b""
        self.published_at = self.merged_at = float("-inf")
        self.due: float | None = None  # when it is to be published; None while it is clean
        self.forced = True  # publish even if the merge shows no difference
        self.broken = False  # the last attempt to publish it failed
        self._full: bytes | None = None
        shared = b',"symbol":%b,"subscription_id":"%b"' % (_json(key.symbol), self.id.encode())
        self._head_full = b'{"type":"aggregated_orderbook_update"' + shared
        self._head_delta = b'{"type":"aggregated_orderbook_delta"' + shared

    @property
    def newest_at(self) -> float:
        """When the newest data of the view came in, in monotonic seconds."""
        return max((book.updated_at for book in self.members.books), default=self.published_at)

    def expected_gb(self, now: float) -> float | None:
        """GiB in 30 days at the rate so far, before compression; None while there is no rate."""
        lasted_s = now - self.opened_at
        if lasted_s < RATE_KNOWN_S or not self.bytes_published:
            return None
        return round(self.bytes_published / lasted_s * THIRTY_DAYS_S / GIB_BYTES, 3)

    def full(self) -> bytes:
        """The whole book of the last update, built once however many ask."""
        if self._full is None:
            self._full = self.full_for(None)
        return self._full

    def full_for(self, message_id: str | int | float | None) -> bytes:
        """The whole book of the last update as the answer to one client's message."""
        head = self._head_full
        if message_id is not None:
            head += b',"id":' + _json(message_id)
        return self.view.full(self._opened(head), self._closed(b""))

    def merge(self) -> bool:
        """Take in the books as they are now; whether anything visible changed."""
        return self.view.merge(self.members.cores)

    def advance(self, wall_us: int) -> bytes:
        """Make the merged state the next update and encode it in the stream's mode."""
        self.update_number += 1
        self.timestamp = iso_us(wall_us).encode()
        self._full = None
        if self.key.mode == FULL:
            return self.full()
        return self._delta() or self.full()

    def _delta(self) -> bytes | None:
        """The changed levels since the last update; None where there was no last update."""
        before = b',"previous_update_number":%d' % (self.update_number - 1)
        after = b',"checksum":%d' % self.view.checksum()
        delta = self.view.delta(self._opened(self._head_delta + before), self._closed(after))
        return delta if self.update_number > 1 else None

    def _opened(self, head: bytes) -> bytes:
        return b'%b,"update_number":%d,"timestamp":"%b","data":{' % (
            head,
            self.update_number,
            self.timestamp,
        )

    def _closed(self, after: bytes) -> bytes:
        return b',"stale_exchanges":%b}%b}' % (self.members.stale_json, after)


class _Question:
    """One look at a book without a subscription: answered by the first live book or in time."""

    __slots__ = ("answer", "due", "key", "members", "message_id")

    def __init__(
        self,
        key: StreamKey,
        members: _Members,
        *,
        message_id: str | int | float | None,
        answer: Callable[[bytes], None],
    ) -> None:
        self.key = key
        self.members = members
        self.message_id = message_id
        self.answer = answer
        self.due: float | None = None

    def encode(self, wall_us: int) -> bytes:
        """The book as it is now, as `aggregated_orderbook_data`."""
        view = _view(self.key)
        view.merge(self.members.cores)
        head = b'{"type":"aggregated_orderbook_data","symbol":%b,"timestamp":"%b"' % (
            _json(self.key.symbol),
            iso_us(wall_us).encode(),
        )
        if self.message_id is not None:
            head += b',"id":' + _json(self.message_id)
        return view.full(
            head + b',"data":{', b',"stale_exchanges":' + self.members.stale_json + b"}}"
        )


class Streams:
    """Every open stream, which of them are due, and the one callback that publishes them."""

    def __init__(
        self,
        *,
        books: Books,
        supervisor: Supervisor,
        catalogue: Catalogue,
        publisher: Publisher,
        clock: Clock,
    ) -> None:
        self.publisher = publisher
        self.published_total = 0
        self._books = books
        self._supervisor = supervisor
        self._catalogue = catalogue
        self._clock = clock
        self._open: dict[StreamKey, Stream] = {}
        # Streams to tell of a change of this book: emptied by the first change, refilled by the
        # publish, so that a burst of frames costs one look-up each.
        self._clean: dict[Instrument, set[Stream]] = {}
        self._of: dict[Instrument, set[Stream]] = {}
        self._questions: dict[Instrument, set[_Question]] = {}
        self._ready: deque[Stream] = deque()
        self._later: list[tuple[float, int, Stream | _Question]] = []
        self._order = count()
        self._handle: Handle | None = None
        self._armed_at = float("inf")
        books.on_changed = self.on_changed
        books.on_health = self.on_health

    def __len__(self) -> int:
        return len(self._open)

    # What clients ask for

    def open(self, key: StreamKey) -> Stream:
        """The stream of this key, one subscriber more; made and connected when it is new."""
        stream = self._open.get(key)
        if stream is None:
            now = self._clock.monotonic()
            stream = self._open[key] = Stream(key, self._instruments(key), now)
            self._join(stream)
        stream.users += 1
        return stream

    def expected_gb(self, key: StreamKey) -> float | None:
        """What a stream is expected to cost a client; None for one that is new."""
        stream = self._open.get(key)
        return stream.expected_gb(self._clock.monotonic()) if stream is not None else None

    def find(self, key: StreamKey) -> Stream:
        """Return the open stream of this key."""
        return self._open[key]

    def close(self, stream: Stream) -> None:
        """One subscriber less; the last one ends the stream."""
        stream.users -= 1
        if stream.users:
            return
        del self._open[stream.key]
        stream.due = None
        for instrument in stream.members.instruments:
            if instrument is not None:
                self._clean[instrument].discard(stream)
                self._of[instrument].discard(stream)
                if not self._of[instrument]:
                    del self._of[instrument], self._clean[instrument]
                self._supervisor.unwant(instrument)

    def look(
        self,
        key: StreamKey,
        answer: Callable[[bytes], None],
        *,
        message_id: str | int | float | None = None,
    ) -> Callable[[], None]:
        """Answer once with the book of a key, without a subscription.

        At once if a book is live, else with the first that becomes live, and after
        `FIRST_UPDATE_S` with none. Returns what to call when nobody waits any more.
        """
        members = _Members(key.exchanges, self._instruments(key))
        question = _Question(key, members, message_id=message_id, answer=answer)
        for instrument in _known(members):
            self._supervisor.want(instrument)
            self._questions.setdefault(instrument, set()).add(question)
        members.refresh(self._books)
        now = self._clock.monotonic()
        question.due = now if members.live else now + FIRST_UPDATE_S
        if members.live:
            self._answer(question)
        else:
            heapq.heappush(self._later, (question.due, next(self._order), question))
            self._arm(question.due)
        return lambda: self._forget(question)

    def publish_now(self, stream: Stream) -> None:
        """Give a stream its first update now, whatever is live; nothing if it has had it."""
        if not stream.update_number:
            self._publish(stream, self._clock.monotonic())
            self.publisher.flush()

    # What books tell

    def on_changed(self, book: LiveBook) -> None:
        """A live book has new levels (the hot path)."""
        waiting = self._clean.get(book.instrument)
        if waiting:
            self._wake(waiting, self._clock.monotonic())

    def on_health(self, book: LiveBook, previous: Health) -> None:
        """A book's health changed: tell subscribers; leaving live publishes at once."""
        instrument = book.instrument
        streams = self._of.get(instrument)
        if streams:
            payload = self._status(book)
            now = self._clock.monotonic()
            for stream in streams:
                self.publisher.status(stream, payload)
                self._rejudge(stream, book.health, previous, now)
            self._arm(now)
        if book.health is Health.LIVE:
            for question in tuple(self._questions.get(instrument, ())):
                self._answer(question)

    def tick(self, now: float) -> float | None:
        """Publish what is due; when the next is due, None if nothing waits."""
        for _ in range(PUBLISHES_PER_TICK_MAX):
            stream = self._next_due(now)
            if stream is None:
                break
            self._try_publish(stream, now)
        self.publisher.flush()
        if self._ready:
            return now
        return self._later[0][0] if self._later else None

    # The queue

    def _join(self, stream: Stream) -> None:
        for instrument in _known(stream.members):
            self._supervisor.want(instrument)
            self._of.setdefault(instrument, set()).add(stream)
            self._clean.setdefault(instrument, set())
        stream.members.refresh(self._books)
        now = self._clock.monotonic()
        self._enqueue(stream, now, now if stream.members.live else now + FIRST_UPDATE_S)

    def _wake(self, waiting: set[Stream], now: float) -> None:
        for stream in waiting:
            if stream.due is None:
                self._enqueue(stream, now, self._pace(stream))
        waiting.clear()

    def _pace(self, stream: Stream) -> float:
        """The earliest time of the next update of a stream."""
        return max(stream.published_at + stream.interval_s, stream.merged_at + MERGE_PACE_S)

    def _enqueue(self, stream: Stream, now: float, due: float) -> None:
        if due <= now:
            stream.due = now
            self._ready.append(stream)
        else:
            stream.due = due
            heapq.heappush(self._later, (due, next(self._order), stream))
        self._arm(stream.due)

    def _rejudge(self, stream: Stream, health: Health, previous: Health, now: float) -> None:
        """A member's health changed: when must the stream say so?"""
        stream.members.refresh(self._books)
        if Health.LIVE not in (health, previous):
            return
        stream.forced = True
        leaving = previous is Health.LIVE
        due = now if leaving or not stream.update_number else self._pace(stream)
        if stream.due is None or due < stream.due:
            self._enqueue(stream, now, due)

    def _next_due(self, now: float) -> Stream | None:
        """The next stream to publish; questions on the way are answered."""
        while self._ready:
            stream = self._ready.popleft()
            if stream.due is not None:
                return stream
        while self._later and self._later[0][0] <= now:
            due, _, waiting = heapq.heappop(self._later)
            if waiting.due != due:  # it was published, answered or closed meanwhile
                continue
            if isinstance(waiting, Stream):
                return waiting
            self._answer(waiting)
        return None

    def _publish(self, stream: Stream, now: float) -> None:
        stream.due = None
        for instrument in _known(stream.members):
            self._clean[instrument].add(stream)
        stream.merged_at = now
        if stream.merge() or stream.forced:
            stream.forced = False
            stream.published_at = now
            self.published_total += 1
            payload = stream.advance(self._clock.wall_us())
            stream.bytes_published += len(payload)
            self.publisher.publish(stream, payload, stream.full)

    def _try_publish(self, stream: Stream, now: float) -> None:
        """Publish a stream; a defect that one view brings to light must not stop the others."""
        try:
            self._publish(stream, now)
        except Exception:
            if not stream.broken:
                log.exception("The stream %s could not be published.", stream.id)
            stream.broken = stream.forced = True
        else:
            if stream.broken:
                log.info("The stream %s is published again.", stream.id)
            stream.broken = False

    def _answer(self, question: _Question) -> None:
        self._forget(question)
        question.members.refresh(self._books)
        question.answer(question.encode(self._clock.wall_us()))

    def _forget(self, question: _Question) -> None:
        """Nobody waits for this answer any more."""
        if question.due is None:
            return
        question.due = None
        for instrument in _known(question.members):
            self._questions[instrument].discard(question)
            if not self._questions[instrument]:
                del self._questions[instrument]
            self._supervisor.unwant(instrument)

    def _arm(self, at: float) -> None:
        """Have `_fire` called at this time or before."""
        if at >= self._armed_at:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._armed_at = at
        self._handle = self._clock.call_at(at, self._fire)

    def _fire(self) -> None:
        self._handle = None
        self._armed_at = float("inf")
        due = self.tick(self._clock.monotonic())
        if due is not None:
            self._arm(due)

    def stop(self) -> None:
        """Ask for no more callbacks."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _instruments(self, key: StreamKey) -> list[Instrument | None]:
        return [self._catalogue.instrument(each, key.symbol) for each in key.exchanges]

    def _status(self, book: LiveBook) -> bytes:
        return _json(
            {
                "type": "exchange_status",
                "symbol": book.instrument.symbol,
                "exchange": book.instrument.exchange,
                "state": book.health,
                "reason": book.reason,
                "timestamp": iso_us(self._clock.wall_us()),
            }
        )


def iso_us(wall_us: int) -> str:
    """ISO 8601 in UTC with microseconds and Z."""
    seconds, micros = divmod(wall_us, 1_000_000)
    return f"{_whole_second(seconds)}.{micros:06d}Z"


def _view(key: StreamKey) -> View:
    return View(
        key.exchanges,
        depth=key.depth,
        group=key.group or None,
        split=key.split,
        arrays=key.levels == ARRAY,
    )


def _known(members: _Members) -> list[Instrument]:
    return [each for each in members.instruments if each is not None]


_second_text = (-1, "")


def _whole_second(seconds: int) -> str:
    """The text of a second; kept, because a thousand updates share it."""
    global _second_text
    if _second_text[0] != seconds:
        text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        _second_text = (seconds, text)
    return _second_text[1]
