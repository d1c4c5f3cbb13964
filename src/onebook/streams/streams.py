"""Streams: live books of a symbol, merged at an interval and encoded once for all clients.

A stream is one view of one symbol: exchanges, depth, interval and form. It is merged lazily, when
it is due, and encoded once for all of its clients. Work per exchange frame is constant: the first
change of a book moves the clean streams of that book to a queue, and later changes find nothing to
move. One timer empties the queue, in which the keys of clients take turns.

Only live books are merged; books that the identity guard quarantined, or found to be equal to
another book of the view, are left out. A book that stops being merged makes its streams publish at
once, whatever their interval, and every update names those left out.

No sockets and no event loop: time and timers come from a `Clock`; the gateway's fan-out is the
`Publisher` and knows the subscribers.
"""

import heapq
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from onebook.books import Books, LiveBook
from onebook.clock import Clock, Handle, iso_us
from onebook.config import StreamSettings
from onebook.fees import exchange_of, symbol_of
from onebook.model import Health, Instrument, Reason
from onebook.signals import Signal
from onebook.streams.basket import BasketMembers
from onebook.streams.identity import IdentityGuard
from onebook.streams.members import StreamMembers, condition
from onebook.streams.stream import BookRequest, Stream, StreamKey, members_of
from onebook.transfers import Transfers, no_transfers

FIRST_SECONDS: Final = 10.0  # a younger stream adds members without waiting for its interval ...
JOIN_PACE_S: Final = 1.0  # ... but not more often than this
QUEUE_SLACK: Final = 64  # obsolete queue entries that are tolerated
MERGE_PACE_S: Final = 0.01  # minimum time between two merges, if the first changed nothing
PUBLISHES_PER_TICK_MAX: Final = 256  # then yield to the event loop,
PUBLISHING_MAX_S: Final = 0.002  # or once publishing and writing have lasted this long
SATURATED_S: Final = 0.05  # due streams that wait longer than this count as saturation

log = logging.getLogger("onebook.streams")
_json = msgspec.json.encode


T = TypeVar("T")


class FairQueue(Generic[T]):
    """First in, first out for each owner; owners take turns, one item each."""

    def __init__(self) -> None:
        # In round-robin order; none is empty.
        self._lanes: OrderedDict[str, deque[T]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, owner: str, item: T) -> None:
        """Add an item of an owner; an owner without items is queued after all others."""
        lane = self._lanes.get(owner)
        if lane is None:
            lane = self._lanes[owner] = deque()
        lane.append(item)
        self._size += 1

    def take(self) -> T:
        """Remove the next item of the owner whose turn it is.

        Raises:
            IndexError: The queue is empty.
        """
        if not self._lanes:
            raise IndexError("the queue is empty")
        owner, lane = self._lanes.popitem(last=False)
        item = lane.popleft()
        self._size -= 1
        if lane:
            self._lanes[owner] = lane
        return item

    def keep(self, wanted: Callable[[T], bool]) -> None:
        """Drop the cancelled items; the others keep their places."""
        lanes = ((owner, deque(filter(wanted, lane))) for owner, lane in self._lanes.items())
        self._lanes = OrderedDict((owner, lane) for owner, lane in lanes if lane)
        self._size = sum(map(len, self._lanes.values()))


class BookSupervisor(Protocol):
    """Subscriptions to books of exchanges, reference counted."""

    def acquire(self, instrument: Instrument) -> None:
        """Subscribe to a book."""

    def release(self, instrument: Instrument) -> None:
        """Drop one subscription to a book."""


class InstrumentLookup(Protocol):
    """Looks up instruments; `on_read` is called with an exchange after its list was read."""

    on_read: Signal[[str]]

    def instrument(self, exchange: str, symbol: str) -> Instrument | None:
        """Return the instrument of a symbol on an exchange."""


class Publisher(Protocol):
    """Fan-out of updates to clients; every call is synchronous and never waits for a reader."""

    def publish(self, stream: Stream, payload: bytes, full: Callable[[], bytes]) -> None:
        """Send an update of a stream; `full` builds the whole book with the same update number."""

    def status(self, stream: Stream, payload: bytes) -> None:
        """Send a changed health of an exchange of the stream."""

    def flush(self, ends_at: float) -> bool:
        """Write the updates of this tick, which are complete; return whether some are left.

        Some are written even if the time is over.
        """


class Streams:
    """All open streams, the queue of those that are due, and the timer that publishes them."""

    def __init__(
        self,
        *,
        books: Books,
        supervisor: BookSupervisor,
        catalogue: InstrumentLookup,
        publisher: Publisher,
        clock: Clock,
        settings: StreamSettings | None = None,
        transfers: Transfers = no_transfers,
        stamp: Callable[[int], str] = iso_us,
        guarded: bool = True,
    ) -> None:
        self.publisher = publisher
        self._stamp = stamp  # writes the times of messages from microseconds since 1970
        self.published_total = 0
        self.saturated_total = 0  # times that due streams waited for `SATURATED_S`
        self._backlog_since: float | None = None  # when the first of them had to wait
        self._unwritten = False  # the publisher has updates of an earlier tick
        self._books = books
        self._supervisor = supervisor
        self._catalogue = catalogue
        self._transfers = transfers
        self._clock = clock
        self._open: dict[StreamKey, Stream] = {}
        # Clean streams by book: emptied by the first change, refilled by the publish, so that each
        # frame of a burst costs one look-up. Dictionaries, because the order of a set is always the
        # same and favours some streams.
        self._clean: dict[Instrument, dict[Stream, None]] = {}
        self._of: dict[Instrument, dict[Stream, None]] = {}
        self._requests: dict[Instrument, dict[BookRequest, None]] = {}
        self._ready: FairQueue[Stream] = FairQueue()
        self._later: list[tuple[float, int, Stream | BookRequest]] = []
        self._requests_open = 0
        self._order = count()
        self._handle: Handle | None = None
        self._armed_at = float("inf")
        self.guard: IdentityGuard | None = None
        if guarded:
            self.guard = IdentityGuard(
                books,
                clock=clock,
                settings=settings or StreamSettings(),
                on_status=self._status_changed,
            )
        else:  # the marks of the books are recorded
            books.subscribe(on_health=lambda book, _: self._status_changed(book))
        books.subscribe(on_changed=self.on_changed)
        catalogue.on_read.subscribe(self._list_read)

    def __len__(self) -> int:
        return len(self._open)

    # Subscriptions

    @property
    def backlog(self) -> int:
        """Streams that are due and not yet published."""
        return len(self._ready)

    def open(self, key: StreamKey, owner: str = "") -> Stream:
        """Add a subscriber to the stream of a key, which is created if it is new.

        Under load, owners are served round-robin; a stream of several owners counts as an owner.
        """
        stream = self._open.get(key)
        if stream is None:
            now = self._clock.monotonic()
            stream = self._open[key] = Stream(
                key, self._members(key), now, self._stamp, self._clock, self._transfers
            )
            stream.owner = owner
            self._join(stream)
        else:
            if stream.owner != owner:
                stream.owner = stream.id
            self._follow_lists(stream)
        stream.users += 1
        return stream

    def expected_gb(self, key: StreamKey) -> float | None:
        """GiB that a stream costs a client in 30 days; None while unknown."""
        stream = self._open.get(key)
        return stream.expected_gb(self._clock.monotonic()) if stream is not None else None

    def find(self, key: StreamKey) -> Stream:
        """Return the open stream of this key."""
        return self._open[key]

    def close(self, stream: Stream) -> None:
        """Remove a subscriber; the last one ends the stream."""
        stream.users -= 1
        if stream.users:
            return
        del self._open[stream.key]
        stream.due = stream.view = stream.fills = None
        for instrument in stream.members.needed():
            self._detach(stream, instrument)

    def fetch(
        self,
        key: StreamKey,
        answer: Callable[[bytes], None],
        *,
        message_id: str | int | float | None = None,
    ) -> Callable[[], None]:
        """Answer once with the book of a key, without a subscription.

        The answer is sent when a stream would have its first update: see `Opening`. Returns the
        function that cancels the request.
        """
        now = self._clock.monotonic()
        members = self._members(key)
        request = BookRequest(
            key,
            members,
            now,
            message_id=message_id,
            answer=answer,
            stamp=self._stamp,
            transfers=self._transfers,
        )
        request.due = now
        self._requests_open += 1
        for instrument in members.needed():
            self._supervisor.acquire(instrument)
            self._requests.setdefault(instrument, {})[request] = None
        self._answer_or_plan(request, now)
        return lambda: self._forget(request)

    def publish_now(self, stream: Stream) -> None:
        """Merge a stream for a request; changes are published to all of its subscribers.

        Thus no client misses an update number. Within the interval (at most a second) after an
        update nothing is merged, so that one client's requests do not slow down the others. A
        stream without an interval publishes its changes in the next turn anyway.
        """
        now = self._clock.monotonic()
        is_due = stream.due is not None and stream.due <= now
        if is_due and stream.update_number and not stream.interval_s:
            return
        pace = max(self._pace(stream), stream.merged_at + MERGE_PACE_S)
        pace = min(pace, stream.published_at + JOIN_PACE_S)
        if stream.update_number and not is_due and now < pace:
            return
        options = stream.key.options
        stream.forced = stream.forced or options.ages or options.coverage or options.times
        self._publish(stream, now)
        self._unwritten = self.publisher.flush(now + PUBLISHING_MAX_S)
        if self._unwritten:
            self._arm(now)

    # Callbacks of books

    def on_changed(self, book: LiveBook) -> None:
        """Handle new levels of a live book (the hot path)."""
        waiting = self._clean.get(book.instrument)
        if waiting:
            self._wake(waiting, self._clock.monotonic())

    def awaits(self, instrument: Instrument) -> bool:
        """Return whether the next change of a book makes a stream due."""
        return any(stream.due is None for stream in self._clean.get(instrument, ()))

    def _status_changed(self, book: LiveBook) -> None:
        """Notify subscribers of a book's changed health or mark; leaving live publishes at once."""
        instrument = book.instrument
        streams = self._of.get(instrument)
        if streams:
            statuses = [self._status(book, shown=shown) for shown in (False, True)]
            now = self._clock.monotonic()
            for stream in tuple(streams):
                if not stream.key.options.quotes:
                    self.publisher.status(stream, statuses[stream.members.shows(book)])
                if book.health is Health.OFFLINE:
                    self._follow_lists(stream)
                self._reschedule(stream, now)
                self._send_member_statuses(stream)
            self._arm(now)
        requests = self._requests.get(instrument)
        if requests:
            now = self._clock.monotonic()
            for request in tuple(requests):
                self._answer_or_plan(request, now)

    def _list_read(self, exchange: str) -> None:
        """Use the conversions that an exchange lists now."""
        now = self._clock.monotonic()
        for stream in tuple(self._open.values()):
            members = stream.members
            if isinstance(members, BasketMembers):
                needed, merged = members.needed(), members.merged()
                if members.follow_list(exchange):
                    self._replace(stream, needed)
                    self._reschedule(stream, now, merged)
                    self._send_member_statuses(stream)
                    self._arm(now)

    def tick(self, now: float) -> float | None:
        """Publish due streams; returns when the next one is due, None without one.

        A tick with much to publish or to write continues in later turns of the event loop.
        """
        ends_at = self._clock.monotonic() + PUBLISHING_MAX_S
        if self._unwritten:
            self._unwritten = self.publisher.flush(ends_at)
            if self._unwritten:
                return now
        for _ in range(PUBLISHES_PER_TICK_MAX):
            due = self._next_due(now)
            if due is None:
                break
            if isinstance(due, Stream):
                self._try_publish(due, now)
            else:
                self._answer(due)
            if self._clock.monotonic() >= ends_at:
                break
        self._unwritten = self.publisher.flush(ends_at)
        self._count_saturation(now)
        if self._ready or self._unwritten:
            return now
        return self._later[0][0] if self._later else None

    def _count_saturation(self, now: float) -> None:
        """Count how often due streams waited for `SATURATED_S`."""
        if not self._ready:
            self._backlog_since = None
        elif self._backlog_since is None:
            self._backlog_since = now
        elif now - self._backlog_since >= SATURATED_S:
            self._backlog_since = now
            self.saturated_total += 1

    # The queue

    def _join(self, stream: Stream) -> None:
        for instrument in stream.members.needed():
            self._attach(stream, instrument)
        stream.members.refresh(self._books)
        now = self._clock.monotonic()
        self._enqueue(stream, now, stream.opening.due(stream.members, now))

    def _attach(self, stream: Stream, instrument: Instrument) -> None:
        self._supervisor.acquire(instrument)
        self._of.setdefault(instrument, {})[stream] = None
        self._clean.setdefault(instrument, {})

    def _detach(self, stream: Stream, instrument: Instrument) -> None:
        self._clean[instrument].pop(stream, None)
        self._of[instrument].pop(stream, None)
        if not self._of[instrument]:
            del self._of[instrument], self._clean[instrument]
        self._supervisor.release(instrument)

    def _follow_lists(self, stream: Stream) -> None:
        """Replace instruments of the stream that exchanges have relisted."""
        before = stream.members.needed()
        for members, symbol in _groups(stream):
            for at, name in enumerate(members.names):
                listed = self._catalogue.instrument(exchange_of(name), symbol_of(name, symbol))
                if listed is not None:
                    members.instruments[at] = listed
        if self._replace(stream, before):
            self._reschedule(stream, self._clock.monotonic())

    def _replace(self, stream: Stream, before: list[Instrument]) -> bool:
        """Subscribe to the books that a stream needs now, and release the others."""
        after = stream.members.needed()
        if after == before:
            return False
        for instrument in before:
            if instrument not in after:
                self._detach(stream, instrument)
        for instrument in after:
            if instrument not in before:
                self._attach(stream, instrument)
        return True

    def _wake(self, waiting: dict[Stream, None], now: float) -> None:
        # The order of publishing: first come, first served. If no other waits, all begin together;
        # the order is then reversed, or the same streams would be last each time.
        for stream in waiting if self._ready else reversed(waiting):
            if stream.due is None:
                self._enqueue(stream, now, self._pace(stream))
        waiting.clear()

    def _pace(self, stream: Stream) -> float:
        """The earliest time of the next update of a stream; without an interval: the next turn."""
        if not stream.interval_s:
            return stream.paced_at
        return max(stream.paced_at + stream.interval_s, stream.merged_at + MERGE_PACE_S)

    def _enqueue(self, stream: Stream, now: float, due: float) -> None:
        if due <= now:
            stream.due = now
            self._ready.put(stream.owner, stream)
            if len(self._ready) > self._entries_max():
                self._ready.keep(lambda each: each.due is not None)
        else:
            stream.due = due
            self._push(due, stream)
        self._arm(stream.due)

    def _push(self, due: float, waiting: Stream | BookRequest) -> None:
        """Queue for later; obsolete entries are dropped when there are more of them than others."""
        heapq.heappush(self._later, (due, next(self._order), waiting))
        if len(self._later) > self._entries_max():
            self._later = [entry for entry in self._later if entry[2].due == entry[0]]
            heapq.heapify(self._later)

    def _entries_max(self) -> int:
        return 2 * (len(self._open) + self._requests_open) + QUEUE_SLACK

    def _reschedule(self, stream: Stream, now: float, before: list[object] | None = None) -> None:
        """Reschedule a stream after the health or mark of a book, or what it merges, changed."""
        if before is None:
            before = stream.members.merged()
        stream.members.refresh(self._books)
        if not stream.update_number:
            due = stream.opening.due(stream.members, now)
            if due != stream.due:
                self._enqueue(stream, now, due)
            return
        after = stream.members.merged()
        if after == before:
            return
        stream.forced = True
        left = any(each not in after for each in before)
        due = now if left else self._pace_of_joining(stream, now)
        if stream.due is None or due < stream.due:
            self._enqueue(stream, now, due)

    def _pace_of_joining(self, stream: Stream, now: float) -> float:
        """The earliest time at which a member that became live is added."""
        pace = self._pace(stream)
        if now - stream.opening.opened_at >= FIRST_SECONDS:
            return pace
        return min(pace, stream.published_at + JOIN_PACE_S)

    def _next_due(self, now: float) -> Stream | BookRequest | None:
        """The next stream to publish, or the next request to answer."""
        while self._later and self._later[0][0] <= now:
            due, _, waiting = heapq.heappop(self._later)
            if waiting.due != due:  # it was published, answered or closed meanwhile
                continue
            if isinstance(waiting, BookRequest):
                return waiting
            self._ready.put(waiting.owner, waiting)
        while self._ready:
            stream = self._ready.take()
            # Published meanwhile; it may be due again later.
            if stream.due is not None and stream.due <= now:
                return stream
        return None

    def _publish(self, stream: Stream, now: float) -> None:
        due, stream.due = stream.due, None
        for instrument in stream.members.needed():
            self._clean[instrument][stream] = None
        stream.merged_at = now
        if stream.merge() or stream.forced:
            stream.forced = False
            stream.published_at = now
            stream.pace_from(due, now)
            self.published_total += 1
            payload = stream.advance(self._clock.wall_us(), now)
            stream.bytes_published += len(payload)
            self.publisher.publish(stream, payload, stream.full)

    def _try_publish(self, stream: Stream, now: float) -> None:
        """Publish a stream; an exception in one view must not stop the others."""
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

    def _answer_or_plan(self, request: BookRequest, now: float) -> None:
        """Answer a request now, or schedule the answer."""
        request.members.refresh(self._books)
        due = request.opening.due(request.members, now)
        if due <= now:
            self._answer(request)
        elif due != request.due:
            request.due = due
            self._push(due, request)
            self._arm(due)

    def _answer(self, request: BookRequest) -> None:
        self._forget(request)
        request.members.refresh(self._books)
        request.answer(request.encode(self._clock.wall_us(), self._clock.monotonic()))

    def _forget(self, request: BookRequest) -> None:
        """Cancel a pending request."""
        if request.due is None:
            return
        request.due = None
        self._requests_open -= 1
        for instrument in request.members.needed():
            self._requests[instrument].pop(request, None)
            if not self._requests[instrument]:
                del self._requests[instrument]
            self._supervisor.release(instrument)

    def _arm(self, at: float) -> None:
        """Schedule `_fire` at this time, unless it is scheduled earlier."""
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
        """Cancel the callbacks."""
        if self.guard is not None:
            self.guard.stop()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _members(self, key: StreamKey) -> StreamMembers:
        return members_of(key, self._catalogue.instrument)

    def marks(self, stream: Stream) -> list[bytes]:
        """Statuses for a new subscriber: live members with a mark, those that nothing converts."""
        members = stream.members
        if isinstance(members, BasketMembers):
            states = [
                (name, book.instrument, members.state_of(name, book))
                for name, book in self._marked(members)
                if not members.lacks_conversion(name)
            ] + members.unconverted()
            return [
                self._state_json(instrument, state, name, stream)
                for name, instrument, state in states
            ]
        return [self._status(book, shown=members.shows(book)) for _, book in self._marked(members)]

    def _marked(self, members: StreamMembers) -> Iterator[tuple[str, LiveBook]]:
        for name, instrument in zip(members.names, members.instruments, strict=True):
            book = None if instrument is None else self._books.get(instrument)
            if book is not None and book.mark is not None and book.health is Health.LIVE:
                yield name, book

    def _send_member_statuses(self, stream: Stream) -> None:
        """Send the statuses of the members of a basket whose state has changed."""
        if isinstance(stream.members, BasketMembers):
            for name, instrument, state in stream.members.changed_states(self._books):
                status = self._state_json(instrument, state, name, stream)
                self.publisher.status(stream, status)

    def _status(self, book: LiveBook, *, shown: bool) -> bytes:
        return self._state_json(book.instrument, condition(book, shown=shown))

    def _state_json(
        self,
        instrument: Instrument,
        found: tuple[Health, Reason | None, str],
        member: str = "",
        stream: Stream | None = None,
    ) -> bytes:
        """Encode the state of a book, or of a member of a basket, as an `exchange_status`."""
        state, reason, detail = found
        status = {
            "type": "exchange_status",
            "symbol": instrument.symbol if stream is None else stream.key.symbol,
            "exchange": member or instrument.exchange,
            "state": state,
            "reason": reason or "",
            "detail": detail,
            "timestamp": self._stamp(self._clock.wall_us()),
        }
        return _json(status | {"via": instrument.via} if instrument.via else status)


def _groups(stream: Stream) -> list[tuple[StreamMembers, str]]:
    """Return the members of a stream, and those of its conversions, with their symbols."""
    members = stream.members
    found = [(members, stream.key.symbol)]
    if isinstance(members, BasketMembers):
        found += [(each.books, each.step.symbol) for each in members.steps]
    return found
