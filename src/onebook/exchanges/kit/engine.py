"""Sans-I/O state machines of one exchange connection, driven by the functions of a `BookChannel`.

`Engine` owns everything that does not depend on the exchange: the instruments, numbering and
batching of requests, accepted and refused subscriptions, attribution of errors, resync, adding and
removing instruments, waiting for a welcome. `SeededEngine` is for exchanges that send only deltas
and whose books start at a body requested by REST or on the socket. `QuietEngine` is for streams of
whole books that may stay silent until the next change (`sync.QuietBook`).
"""

from collections.abc import Callable, Iterable, Sequence
from types import MethodType
from typing import Any, Final

from onebook.exchanges.kit.channel import (
    Accepted,
    BookChannel,
    BookFrame,
    Counted,
    ExchangeReady,
    FastChannel,
    Plain,
    RequestRejected,
    SeedRefused,
    SocketSeed,
    Written,
)
from onebook.exchanges.kit.codec import UNREADABLE, batches, send, short
from onebook.exchanges.kit.contract import (
    EXPECTED,
    HEARTBEAT,
    NOTHING,
    UNTIMED,
    Acknowledged,
    BookRefused,
    Fetch,
    Gap,
    Ignored,
    Output,
    Outputs,
    ProtocolError,
    Renewed,
    Send,
    SlowDown,
    SnapshotFailed,
    StreamPosition,
    Unnamed,
    each_of,
)
from onebook.exchanges.kit.roster import (
    SENDINGS_MAX,
    Requests,
    Roster,
    TopsRequest,
    is_rate_limit,
    is_unavailable,
)
from onebook.exchanges.kit.sync import Join, QuietBook, Trackers
from onebook.model import Instrument

# Limit of control frames and damaged frames: decoded they take up to 30 times as much memory.
CONTROL_BYTES_MAX: Final = 1 << 20
OMITTED: Final = "missing from the exchange's list of accepted subscriptions"


class Engine:
    """The protocol state of one connection whose subscriptions start with a snapshot."""

    def __init__(self, channel: BookChannel, instruments: Sequence[Instrument]) -> None:
        self._channel = channel
        self._books: Roster[Any] = Roster(instruments, channel.track, key=channel.key)
        self._followed: Trackers[Any, Any] = (
            self._books.channels if channel.channel_ids else self._books.trackers
        )
        self._data = MethodType(channel.data, self._followed)  # binds as cheaply as a method
        self._requests = Requests()
        self._accepted: set[str] = set()
        self._refused: set[str] = set()
        self._ready = not channel.welcomes
        # Exchanges send codes as numbers or as strings.
        self._too_many = frozenset(map(str, channel.too_many))
        self._unavailable = frozenset(map(str, channel.unavailable))
        # If requests replace each other, unsubscribing is a request for the remaining names.
        self._unsubscribe = channel.unsubscribe or channel.subscribe

    def opened(self) -> Iterable[Output]:
        """Subscribe to everything, or wait for the welcome."""
        configured = tuple(send(message) for message in self._channel.configure)
        return configured + self._subscribe(self._books.all())

    def reader(self) -> Callable[[bytes], Outputs | None]:
        """Return the function that processes frames of books (the hot path): the exchange's own."""
        return self._data

    def received(self, frame: bytes) -> Iterable[Output]:
        """Process one frame of any kind."""
        try:
            outputs = self._data(frame)
        except UNREADABLE as error:
            return self._control(frame, error)
        return self._control(frame, None) if outputs is None else each_of(outputs)

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        """Ignore the body: this engine requests nothing by REST."""
        return NOTHING

    def resync(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Subscribe again, the only way to get another snapshot."""
        again = self._books.restarted(instruments)
        pause = self._channel.pause
        if pause is None and not self._channel.renews:
            pause = self._channel.unsubscribe
        paused = NOTHING if pause is None else self._leave(pause, again)
        return paused + self._subscribe(again, repeats=True)

    def add(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Subscribe to more instruments."""
        return self._subscribe(self._books.add(instruments))

    def remove(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Unsubscribe from instruments."""
        gone = self._books.remove(instruments)
        self._forget(gone)
        if gone and self._channel.unsubscribes_all:
            left = self._leave(self._unsubscribe, gone[:1])
            stay = self._books.all()
            return (*left, *self._subscribe(stay), *(Renewed(one) for one in stay))
        return self._leave(self._unsubscribe, gone)

    # Requests

    def _subscribe(
        self, instruments: Sequence[Instrument], *, repeats: bool = False
    ) -> tuple[Output, ...]:
        self._forget(instruments)
        requests = self._requested(self._channel.subscribe, instruments, awaited=True)
        fast = self._channel.fast
        skipped = fast is None or fast.after_levels or (repeats and fast.lists_all)
        if requests and fast is not None and not skipped:
            requests += self._follow_tops(fast, instruments)
        if self._channel.acknowledges or not requests:
            return requests
        return (*requests, *self._confirm(instruments))

    def _follow_tops(
        self, fast: FastChannel, instruments: Sequence[Instrument]
    ) -> tuple[Output, ...]:
        if fast.lists_all:
            listed = self._books.all()
            instruments = [one for one in listed if self._channel.key(one) not in self._refused]
        return self._fast_requests(fast.subscribe, instruments, fast.names_per_request)

    def _leave_tops(self, instruments: Sequence[Instrument]) -> tuple[Output, ...]:
        fast = self._channel.fast
        if fast is None or not self._ready:
            return NOTHING
        return self._fast_requests(fast.unsubscribe, instruments, fast.names_per_request)

    def _fast_requests(
        self, write: Written, instruments: Sequence[Instrument], size: int
    ) -> tuple[Output, ...]:
        names = [self._channel.key(one) for one in instruments]
        requests = (TopsRequest(write, tuple(batch)) for batch in batches(names, size))
        return tuple(map(self._fast_request, requests))

    def _fast_request(self, request: TopsRequest) -> Send:
        return send(request.write(request.names, self._requests.issue_tops(request)))

    def _forget(self, instruments: Iterable[Instrument]) -> None:
        names = [self._channel.key(one) for one in instruments]
        self._accepted.difference_update(names)
        self._refused.difference_update(names)

    def _requested(
        self, write: Written, instruments: Sequence[Instrument], *, awaited: bool = False
    ) -> tuple[Output, ...]:
        if not self._ready:
            return NOTHING
        renewed: tuple[Output, ...] = NOTHING
        if self._channel.unsubscribe is None and instruments:
            everything = self._books.all()
            renewed = tuple(Renewed(one) for one in everything if one not in instruments)
            instruments = everything
        key = self._channel.key
        requests = (
            send(
                write(
                    [key(one) for one in batch],
                    self._requests.issue(batch if awaited else ()),
                ),
                asks=batch if awaited else (),
            )
            for batch in batches(instruments, self._channel.names_per_request)
        )
        return (*requests, *renewed)

    def _leave(self, write: Written, instruments: Sequence[Instrument]) -> tuple[Output, ...]:
        """Unsubscribe by name or id; an instrument without an id yet, once the id is assigned."""
        if not self._channel.channel_ids:
            return self._requested(write, instruments) + self._leave_tops(instruments)
        return self._leave_ids(write, self._books.release_ids(instruments))

    def _leave_ids(self, write: Written, ids: Sequence[int]) -> tuple[Output, ...]:
        each = batches(ids, self._channel.names_per_request)
        return tuple(send(write(batch, self._requests.issue(()))) for batch in each)

    # Control frames

    def _control(self, frame: bytes, error: Exception | None) -> Iterable[Output]:
        if len(frame) > CONTROL_BYTES_MAX:
            why = "not a frame of a book" if error is None else short(error)
            raise ProtocolError(f"a frame of {len(frame):,} bytes cannot be read: {why}")
        if frame in self._channel.expected:
            return EXPECTED
        event = self._channel.control(frame)
        if (
            isinstance(event, BookFrame)
            and event.channel is not None
            and error is None
            and self._books.ignore_unassigned(event.channel, self._refused)
        ):
            left = self._leave_ids(self._unsubscribe, [event.channel])
            return (*left, *each_of(self._data(frame) or NOTHING))
        if isinstance(event, Counted):
            lost = self._followed.missed(event.number)
            return (*lost, *self._act(event.event, None))
        return self._act(event, error)

    def _act(self, event: Plain, error: Exception | None) -> Iterable[Output]:
        match event:
            case Accepted(names, top=True):
                self._requests.accept_tops(names)
                return EXPECTED
            case Accepted(names, number, channel, lists_all=False):
                left = NOTHING if channel is None else self._assign(names, channel)
                return left + self._confirm([*self._named(names), *self._complete(number)])
            case Accepted():
                return self._accept_listed(event)
            case BookFrame(name, top=True):
                if name in self._books.trackers.left and name not in self._books.trackers:
                    return self._late_frame(name)
                return (Ignored(known=False),)
            case BookFrame(name, channel):
                if channel is not None:
                    name = self._books.name_of(channel)
                late = error is None or name in self._books.trackers.left
                if late and name not in self._books.trackers:
                    return self._late_frame(name)
                named = repr(short(name)) if name else "an unnamed book"
                reason = f"a frame of {named} is damaged: {short(error)}"
                raise ProtocolError(reason, self._books.known(name))
            case ExchangeReady():
                return self._welcomed()
            case SocketSeed():
                return self._seeded(event)
            case RequestRejected() | SeedRefused() if self._is_rate_limit(event):
                return self._slow_down(event)
            case RequestRejected() if event.top or self._requests.is_of_tops(event.number):
                return self._reject_tops(event)
            case RequestRejected() if self._is_unavailable(event):
                return self._postpone(event)
            case RequestRejected():
                return self._reject(event)
            case SeedRefused():
                return self._seed_refused(event)
            case Send(urgent=True):  # the answer to a ping, which the exchange sends unasked
                return (event, *HEARTBEAT)
        return (event,)

    def _late_frame(self, name: str) -> tuple[Output, ...]:
        """Ignore a frame of a removed book; after `LATE_MAX` of them unsubscribe again."""
        write = self._channel.unsubscribe
        if not self._books.absent(name) or write is None or self._channel.unsubscribes_all:
            return NOTHING
        left = send(write([name], self._requests.issue(())))
        fast = self._channel.fast
        if fast is None:
            return (left,)
        return left, self._fast_request(TopsRequest(fast.unsubscribe, (name,)))

    def _seeded(self, event: SocketSeed) -> tuple[Output, ...]:
        return EXPECTED

    def _seed_refused(self, event: SeedRefused) -> tuple[Output, ...]:
        return EXPECTED

    def _welcomed(self) -> tuple[Output, ...]:
        if self._ready:
            return EXPECTED
        self._ready = True
        return self._subscribe(self._books.all())

    def _assign(self, names: Iterable[str], channel: int) -> tuple[Output, ...]:
        """Record the id of a subscription; one that has since been removed is unsubscribed.

        If another book has the same id, both are subscribed again.
        """
        rivals = [one for name in names for one in self._books.release_conflicting(name, channel)]
        if rivals:
            reason = f"the exchange assigned id {channel} twice"
            left = self._leave_ids(self._unsubscribe, [channel])
            return (*left, *(Gap(one, reason) for one in rivals))
        former = [self._books.assign(name, channel) for name in names]
        ids = [each for each in former if each is not None]
        return self._leave_ids(self._unsubscribe, ids)

    def _confirm(self, instruments: Iterable[Instrument]) -> tuple[Output, ...]:
        """Report each subscription as acknowledged once, even if the exchange repeats it."""
        new = self._unanswered(instruments)
        self._accepted.update(self._channel.key(one) for one in new)
        return tuple(out for one in new for out in self._started(one)) or EXPECTED

    def _started(self, instrument: Instrument) -> tuple[Output, ...]:
        return (Acknowledged(instrument),)

    def _accept_listed(self, event: Accepted) -> tuple[Output, ...]:
        """Accept the instruments that the answer to a request lists, and refuse its others.

        Exchanges omit existing subscriptions, so an instrument is not refused if it was accepted
        before or is part of an unanswered request.
        """
        asked = self._complete(event.number)
        known = self._accepted.union(event.names)
        omitted = [
            one
            for one in asked
            if self._channel.key(one) not in known and not self._requests.pending_for(one)
        ]
        self._refused.update(self._channel.key(one) for one in omitted)
        return (*self._confirm(asked), *(BookRefused(one, OMITTED) for one in omitted))

    def _reject(self, event: RequestRejected) -> tuple[Output, ...]:
        """Refuse the instruments that an error names, otherwise the one of its request.

        If a request for several instruments is refused without a name, it is retried in halves,
        because only one of them may be the cause.
        """
        words = short(event.words)
        pending = self._requests.pending(event.number)
        asked = self._complete(event.number)
        named = self._about(event)
        if not (named or event.repeated) and len(asked) > 1 and self._channel.unsubscribe:
            return self._retry_in_halves(asked)
        named = named or asked
        if not named:  # of a request without current books
            return (Ignored(known=True, refused=words),) if pending else (Unnamed(words),)
        names = [self._channel.key(one) for one in named]
        self._forget(named)
        (self._accepted if event.repeated else self._refused).update(names)
        verdicts: tuple[Output, ...] = tuple(
            Acknowledged(one) if event.repeated else BookRefused(one, words) for one in named
        )
        fast = self._channel.fast
        if fast is not None and fast.lists_all and not event.repeated:
            verdicts += self._follow_tops(
                fast, ()
            )  # a refused name may have failed that request too
        return verdicts + (self._subscribe_rest(event, asked) if event.whole else NOTHING)

    def _about(self, event: RequestRejected) -> list[Instrument]:
        """List the instruments that an error names."""
        return self._named(event.names) or self._books.named_in(event.words)

    def _is_rate_limit(self, event: RequestRejected | SeedRefused) -> bool:
        """Return whether an error is about the rate of requests, not their content."""
        return str(event.code) in self._too_many or is_rate_limit(event.words)

    def _is_unavailable(self, event: RequestRejected) -> bool:
        """Return whether the exchange is unavailable, so that the request may succeed later."""
        return str(event.code) in self._unavailable or is_unavailable(event.words)

    def _slow_down(self, event: RequestRejected | SeedRefused) -> tuple[Output, ...]:
        if isinstance(event, SeedRefused):
            return (SlowDown(short(event.words)), *self._seed_refused(event))
        again = self._refused_tops(event.number)
        self._requests.complete(event.number)  # its answer is here
        return (SlowDown(short(event.words)), *again)

    def _reject_tops(self, event: RequestRejected) -> tuple[Output, ...]:
        """Repeat a refused request for best prices if the exchange is unavailable."""
        again = self._refused_tops(event.number) if self._is_unavailable(event) else NOTHING
        self._requests.complete(event.number)
        words = short(event.words)
        return (SlowDown(words), *again) if again else (Ignored(known=True, refused=words),)

    def _refused_tops(self, number: int | str | None) -> tuple[Output, ...]:
        """Repeat the requests for best prices that an error about the rate or a failure refused.

        The feed sends them after the pause, which is longer after each such error. The levels have
        a timeout that repeats their requests; these have none, because they may stay silent.
        """
        fast = self._channel.fast
        if fast is None:
            return NOTHING
        repeated: list[Output] = []
        for request in self._requests.refused_tops(number):
            if request.sendings >= SENDINGS_MAX:
                continue
            follow = request.write is fast.subscribe
            if follow and fast.lists_all:
                listed = [each for each in self._books.trackers if each not in self._refused]
            else:
                listed = [n for n in request.names if (n in self._books.trackers) is follow]
            if listed:
                again = TopsRequest(request.write, tuple(listed), request.sendings + 1)
                repeated.append(self._fast_request(again))
        return tuple(repeated)

    def _postpone(self, event: RequestRejected) -> tuple[Output, ...]:
        """Postpone the instruments that an error names, those of its request, or all."""
        pending = self._requests.pending(event.number)
        asked = self._complete(event.number)
        about = tuple(self._about(event) or asked)
        if pending and not about:
            return (Ignored(known=True, refused=short(event.words)),)
        return (SlowDown(short(event.words), unavailable=True, instruments=about),)

    def _subscribe_rest(
        self, event: RequestRejected, asked: Sequence[Instrument]
    ) -> tuple[Output, ...]:
        among = self._books.all() if event.number is None else asked
        return self._subscribe(self._unanswered(among))

    def _retry_in_halves(self, asked: Sequence[Instrument]) -> tuple[Output, ...]:
        """Repeat a request as two, until the refused instrument is alone in one."""
        rest = self._unanswered(asked)
        middle = (len(rest) + 1) // 2
        return (*self._subscribe(rest[:middle]), *self._subscribe(rest[middle:])) or EXPECTED

    def _unanswered(self, instruments: Iterable[Instrument]) -> list[Instrument]:
        """List the instruments that were neither accepted nor refused."""
        known = self._accepted | self._refused
        return [one for one in instruments if self._channel.key(one) not in known]

    def _named(self, names: Iterable[str]) -> list[Instrument]:
        return [one for one in map(self._books.known, names) if one]

    def _complete(self, number: int | str | None) -> list[Instrument]:
        """Complete a request; returns its instruments, without removed ones."""
        return [one for one in self._requests.complete(number) if self._books.find(one)]


class SeededEngine(Engine):
    """The protocol state of one connection whose books start at requested bodies."""

    @property
    def comparable(self) -> bool:
        """Whether bodies are requested by REST."""
        return self._channel.request is None

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        """Start a book at its REST body, unless books are requested on the socket."""
        if self._channel.seed is None:
            return NOTHING
        try:
            seed = self._channel.seed(body)
        except UNREADABLE as error:
            reason = f"the depth of {instrument.native} cannot be read: {short(error)}"
            raise ProtocolError(reason, instrument) from None
        book = self._join(instrument)
        if book is None:
            return NOTHING
        at = getattr(seed, "at", UNTIMED)
        return book.seeded(seed.bids, seed.asks, seed.sequence, at)

    def _seeded(self, event: SocketSeed) -> tuple[Output, ...]:
        book: Join | None = self._books.trackers.get(event.name)
        if book is None:
            return EXPECTED  # since removed
        body = event.bids, event.asks, event.sequence, event.at
        if not event.top:
            outputs = self._on_socket(book.seeded(*body)) + self._follow_shallow(book)
        else:
            outputs = NOTHING if book.shallow is None else book.shallow.seeded(*body)
        return outputs or EXPECTED

    def _follow_shallow(self, book: Join) -> tuple[Output, ...]:
        """Subscribe to the faster book of a live one, once."""
        fast, shallow = self._channel.fast, book.shallow
        if fast is None or shallow is None or shallow.followed or not book.live:
            return NOTHING
        return self._follow_tops(fast, [book.instrument]) + shallow.follow()

    def _seed_refused(self, event: SeedRefused) -> tuple[Output, ...]:
        named = self._named([event.name]) or self._books.named_in(event.words)
        book = self._join(named[0]) if named else None
        if book is None:
            return EXPECTED
        if book.last is None:
            return (SnapshotFailed(book.instrument, short(event.words)),)
        book.abandon()
        return EXPECTED  # a live book is unchanged

    def resync(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Fetch books again; subscribes only to unconfirmed streams."""
        unconfirmed: list[Instrument] = []
        fetches: list[Output] = []
        for one in instruments:
            if self._channel.key(one) in self._accepted:
                fetches += self._restarted(one)
            elif self._books.find(one):
                unconfirmed.append(one)
        return (*self._subscribe(unconfirmed), *fetches)

    def reseed(self, instrument: Instrument) -> Iterable[Output]:
        """Fetch another body for a live book."""
        book = self._join(instrument)
        return self._on_socket(book.reseed()) if book else NOTHING

    def abandon(self, instrument: Instrument) -> None:
        """Stop waiting for the body of a live book."""
        book = self._join(instrument)
        if book is not None:
            book.abandon()

    def position(self, instrument: Instrument) -> StreamPosition:
        """Compare the stream of an instrument with its last body."""
        book = self._join(instrument)
        return book.position if book else StreamPosition.CURRENT

    def invalidate(self, instrument: Instrument) -> Iterable[Output]:
        """Unsubscribe from a dead stream; the next resync subscribes to it again."""
        book = self._join(instrument)
        if book is None or self._channel.key(instrument) not in self._accepted:
            return NOTHING
        book.invalidate()
        self._forget([instrument])
        return self._leave(self._unsubscribe, [instrument])

    def _started(self, instrument: Instrument) -> tuple[Output, ...]:
        return (Acknowledged(instrument), *self._restarted(instrument))

    def _restarted(self, instrument: Instrument) -> tuple[Output, ...]:
        book = self._join(instrument)
        return self._on_socket(book.restart()) if book else NOTHING

    def _on_socket(self, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
        """Replace REST requests with requests on the socket, if the exchange has them."""
        write, key = self._channel.request, self._channel.key
        if write is None:
            return outputs
        return tuple(
            send(write([key(out.instrument)], self._requests.issue(())), asks=(out.instrument,))
            if isinstance(out, Fetch)
            else out
            for out in outputs
        )

    def _join(self, instrument: Instrument) -> Join | None:
        return self._books.find(instrument)


class QuietEngine(Engine):
    """The protocol state of one connection whose streams may stay silent.

    Its channel makes a `QuietBook` for each instrument; `seed` decodes `bids`, `asks` and `at`.
    """

    comparable = False  # bodies have no numbers

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        """Start a book at its body, or compare a live book with it."""
        book = self._book(instrument)
        if book is None or not book.awaits_body:
            return NOTHING
        read: Any = self._channel.seed
        try:
            seed = read(body)
        except UNREADABLE as error:
            reason = f"the book of {instrument.native} cannot be read: {short(error)}"
            raise ProtocolError(reason, instrument) from None
        return book.seeded(seed.bids, seed.asks, seed.at)

    def resync(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Fetch the books whose streams have delivered nothing; resubscribe the others."""
        quiet = [book for one in instruments if (book := self._book(one)) and book.no_frame_yet]
        fetches = tuple(out for book in quiet for out in book.request_body(spare=False))
        named = [book.instrument for book in quiet]
        again = self._books.restarted(one for one in instruments if one not in named)
        accepted = [one for one in again if self._channel.key(one) in self._accepted]
        return (*fetches, *self._leave(self._unsubscribe, accepted), *self._subscribe(again))

    def reseed(self, instrument: Instrument) -> Iterable[Output]:
        """Fetch a body to compare a live book with."""
        book = self._book(instrument)
        return NOTHING if book is None else book.request_body(spare=True)

    def abandon(self, instrument: Instrument) -> None:
        """Stop waiting for the body of a live book."""
        book = self._book(instrument)
        if book is not None:
            book.abandon()

    def position(self, instrument: Instrument) -> StreamPosition:
        """Compare the stream of an instrument with its last body."""
        book = self._book(instrument)
        return StreamPosition.CURRENT if book is None else book.position

    def invalidate(self, instrument: Instrument) -> Iterable[Output]:
        """Unsubscribe from a dead stream; the next resync subscribes to it again."""
        book = self._book(instrument)
        if book is None or self._channel.key(instrument) not in self._accepted:
            return NOTHING
        book.restart()
        self._forget([instrument])
        return self._leave(self._unsubscribe, [instrument])

    def _started(self, instrument: Instrument) -> tuple[Output, ...]:
        book = self._book(instrument)
        if book is not None:
            book.acknowledged()
        return (Acknowledged(instrument),)

    def _book(self, instrument: Instrument) -> QuietBook | None:
        return self._books.find(instrument)
