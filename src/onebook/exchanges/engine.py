"""The engine of a connection: what every connector shares, around the functions of one exchange.

An exchange states a `BookChannel`: pure module-level functions that write requests and read frames.
`Engine` owns the rest: the roster, the numbering and batching of requests, who was accepted or
refused, which instruments an error is about, resync, adding and removing, a welcome to wait for.
`SeededEngine` is for exchanges whose subscription brings deltas only and whose books start at a
body that is asked for, by REST or on the socket.
"""

from collections.abc import Callable, Iterable, Sequence
from types import MethodType
from typing import Any

from msgspec import Struct

from onebook.exchanges.contract import (
    EXPECTED,
    HEARTBEAT,
    NOTHING,
    Acknowledged,
    Alive,
    Closing,
    Fetch,
    Gap,
    Ignored,
    Output,
    ProtocolError,
    Refused,
    Send,
    SlowDown,
    Standing,
    Trading,
    Unnamed,
)
from onebook.exchanges.frames import UNREADABLE, batches, send, short
from onebook.exchanges.moments import UNTIMED, Moment
from onebook.exchanges.roster import Requests, Roster, is_rate_limit, native
from onebook.exchanges.sync import Join, Tracker, Trackers
from onebook.model import Instrument


class Accepted(Struct, frozen=True):
    """The exchange accepted subscriptions: by name, or those of a numbered request.

    `channel` is the id that frames of the name carry (`BookChannel.channel_ids`). Where the answer
    lists the names that are accepted, `omission` says why others are refused.
    """

    names: Sequence[str] = ()
    number: int | str | None = None
    channel: int | None = None
    omission: str = ""


class Rejected(Struct, frozen=True):
    """The exchange refused a request.

    Args:
        words: Its reason; names in it are the ones that are refused.
        names: Those that it states apart from its reason.
        number: Of the request; None where this exchange does not number them.
        whole: One bad name costs the whole request: the others of it are subscribed again.
        repeated: The names are subscribed already, which is no refusal.
    """

    words: str
    number: int | str | None = None
    whole: bool = False
    repeated: bool = False
    names: Sequence[str] = ()


class BookFrame(Struct, frozen=True):
    """A frame of a book that `data` did not take: it is damaged, or its book is not followed.

    `name` is "" where it names none or several, or where it has a `channel` id instead.
    """

    name: str = ""
    channel: int | None = None


class SocketSeed(Struct, frozen=True):
    """The whole book of a name, as it was requested on the socket (`BookChannel.request`)."""

    name: str
    bids: bytes
    asks: bytes
    sequence: int
    at: Moment = UNTIMED


class SeedRefused(Struct, frozen=True):
    """The whole book of a name will not come; its subscription is not touched."""

    name: str
    words: str


class Welcome(Struct, frozen=True):
    """The exchange is ready for requests (`BookChannel.welcomes`)."""


Written = Callable[[Sequence[Any], int], object]
Plain = (
    Accepted
    | Rejected
    | BookFrame
    | SocketSeed
    | SeedRefused
    | Welcome
    | Send
    | SlowDown
    | Trading
    | Ignored
    | Alive
    | Closing
)


class Counted(Struct, frozen=True):
    """What a frame that is not of a book says, where the exchange counts these frames too.

    A damaged frame of a book is a `BookFrame` without its number: the next frame shows the gap.
    """

    number: int
    event: Plain


Event = Plain | Counted


class BookChannel(Struct, frozen=True):
    """An exchange's order book channel: pure functions and what the engine must know of them.

    Args:
        data: Decodes a frame of a book and turns it into outputs (the hot path). For every other
            frame it raises what msgspec raises, or returns None and has changed nothing.
        control: Reads every frame that `data` does not take.
        subscribe: Writes the request for some names; the number is this request's own.
        unsubscribe: Writes its opposite; None where each request replaces those before it, so that
            `subscribe` always names everything that is on the connection.
        track: Makes what keeps one book in step (`sync`).
        names_per_request: The most names in one request; where requests replace, `Limits.topics`.
        key: The name in the frames, where it is not the native one.
        pause: Writes the request that comes before a repeated subscription, where it differs from
            `unsubscribe`.
        seed: Reads the REST body that starts a book: `bids`, `asks`, `sequence`, and `at` where it
            names its time.
        request: Writes the request for the whole book of one name, where it comes on the socket as
            a `SocketSeed` or `SeedRefused` and not by REST.
        welcomes: Whether the exchange must greet a connection before it takes requests.
        configure: A message that is sent first on each connection, before any request.
        channel_ids: Whether frames name a book by an id that the acknowledgement of its
            subscription assigned (`Accepted.channel`). `data` then gets the books by these ids,
            and `unsubscribe` and `pause` get ids.
        acknowledges: Whether it answers a subscription that it accepts. Where it does not, what
            was requested counts as accepted, and only its data shows whether it is.
    """

    data: Callable[[Trackers[Any, Any], bytes], Iterable[Output] | None]
    control: Callable[[bytes], Event]
    subscribe: Written
    unsubscribe: Written | None
    track: Callable[[Instrument], Tracker]
    names_per_request: int
    key: Callable[[Instrument], str] = native
    pause: Written | None = None
    seed: Callable[[bytes], Any] | None = None
    request: Written | None = None
    welcomes: bool = False
    configure: object | None = None
    channel_ids: bool = False
    acknowledges: bool = True


class Engine:
    """The protocol state of one connection whose subscriptions bring their own snapshots."""

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
        # Where requests replace each other, the one that names what stays.
        self._unsubscribe = channel.unsubscribe or channel.subscribe

    def opened(self) -> Iterable[Output]:
        """Subscribe to everything, or wait for the welcome."""
        first = self._channel.configure
        configured = NOTHING if first is None else (send(first),)
        return configured + self._subscribe(self._books.all())

    def reader(self) -> Callable[[bytes], Iterable[Output] | None]:
        """Return what reads frames of books (the hot path): the exchange's own function."""
        return self._data

    def received(self, frame: bytes) -> Iterable[Output]:
        """Act on one frame of any kind."""
        try:
            outputs = self._data(frame)
        except UNREADABLE as error:
            return self._control(frame, error)
        return self._control(frame, None) if outputs is None else outputs

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        """Ignore a body: nothing is asked for by REST."""
        return NOTHING

    def resync(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Subscribe again: the only way to another snapshot."""
        again = self._books.restarted(instruments)
        pause = self._channel.pause or self._channel.unsubscribe
        paused = NOTHING if pause is None else self._left(pause, again)
        return paused + self._subscribe(again)

    def add(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Subscribe to more."""
        return self._subscribe(self._books.add(instruments))

    def remove(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Unsubscribe."""
        gone = self._books.remove(instruments)
        self._forget(gone)
        return self._left(self._unsubscribe, gone)

    # Requests.

    def _subscribe(self, instruments: Sequence[Instrument]) -> tuple[Output, ...]:
        self._forget(instruments)
        asked = self._requested(self._channel.subscribe, instruments, awaited=True)
        if self._channel.acknowledges or not asked:
            return asked
        return (*asked, *self._confirm(instruments))

    def _forget(self, instruments: Iterable[Instrument]) -> None:
        names = [self._channel.key(one) for one in instruments]
        self._accepted.difference_update(names)
        self._refused.difference_update(names)

    def _requested(
        self, write: Written, instruments: Sequence[Instrument], *, awaited: bool = False
    ) -> tuple[Output, ...]:
        if not self._ready:
            return NOTHING
        if self._channel.unsubscribe is None and instruments:
            instruments = self._books.all()
        key = self._channel.key
        return tuple(
            send(
                write(
                    [key(one) for one in batch],
                    self._requests.issue(batch if awaited else ()),
                )
            )
            for batch in batches(instruments, self._channel.names_per_request)
        )

    def _left(self, write: Written, instruments: Sequence[Instrument]) -> tuple[Output, ...]:
        """Unsubscribe by name, or by id; what has no id yet is left once it gets one."""
        if not self._channel.channel_ids:
            return self._requested(write, instruments)
        return self._left_ids(write, self._books.leave(instruments))

    def _left_ids(self, write: Written, ids: Sequence[int]) -> tuple[Output, ...]:
        each = batches(ids, self._channel.names_per_request)
        return tuple(send(write(batch, self._requests.issue(()))) for batch in each)

    # What is no data.

    def _control(self, frame: bytes, error: Exception | None) -> Iterable[Output]:
        event = self._channel.control(frame)
        if isinstance(event, Counted):
            lost = self._followed.missed(event.number)
            return (*lost, *self._act(event.event, None))
        return self._act(event, error)

    def _act(self, event: Plain, error: Exception | None) -> Iterable[Output]:
        match event:
            case Accepted(names, number, channel, ""):
                left = NOTHING if channel is None else self._assign(names, channel)
                return left + self._confirm([*self._named(names), *self._answered(number)])
            case Accepted():
                return self._sift(event)
            case Rejected():
                return self._reject(event)
            case BookFrame(name, channel):
                if channel is not None:
                    name = self._books.name_of(channel)
                if error is None and name not in self._books.trackers:
                    return self._books.absent(name)
                reason = f"a frame of {short(name)!r} is damaged: {short(error)}"
                raise ProtocolError(reason, self._books.known(name))
            case Welcome():
                return self._welcomed()
            case SocketSeed():
                return self._seeded(event)
            case SeedRefused():
                return self._seed_refused(event)
            case Send(urgent=True):  # the answer to a ping, which the exchange sends unasked
                return (event, *HEARTBEAT)
        return (event,)

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
        """Note the id of a subscription; one that is not wanted any more is unsubscribed."""
        left = [self._books.assign(name, channel) for name in names]
        ids = [each for each in left if each is not None]
        return self._left_ids(self._unsubscribe, ids)

    def _confirm(self, instruments: Iterable[Instrument]) -> tuple[Output, ...]:
        """Acknowledge each subscription once, however often the exchange does."""
        settled = self._accepted | self._refused
        new = [one for one in instruments if self._channel.key(one) not in settled]
        self._accepted.update(self._channel.key(one) for one in new)
        return tuple(out for one in new for out in self._started(one)) or EXPECTED

    def _started(self, instrument: Instrument) -> tuple[Output, ...]:
        return (Acknowledged(instrument),)

    def _sift(self, event: Accepted) -> tuple[Output, ...]:
        """Accept what the answer to a request lists, refuse what it omits."""
        asked = self._answered(event.number)
        omitted = [one for one in asked if self._channel.key(one) not in event.names]
        self._refused.update(self._channel.key(one) for one in omitted)
        return (*self._confirm(asked), *(Refused(one, event.omission) for one in omitted))

    def _reject(self, event: Rejected) -> tuple[Output, ...]:
        """Refuse the instruments that an error names, else all of its request; else none."""
        words = short(event.words)
        if is_rate_limit(event.words):
            return (SlowDown(words),)
        asked = self._answered(event.number)
        named = self._named(event.names) or self._books.named_in(event.words) or asked
        if not named:
            return (Unnamed(words),)
        names = [self._channel.key(one) for one in named]
        self._forget(named)
        (self._accepted if event.repeated else self._refused).update(names)
        verdicts: tuple[Output, ...] = tuple(
            Acknowledged(one) if event.repeated else Refused(one, words) for one in named
        )
        return verdicts + (self._ask_rest(event, asked) if event.whole else NOTHING)

    def _ask_rest(self, event: Rejected, asked: Sequence[Instrument]) -> tuple[Output, ...]:
        settled = self._accepted | self._refused
        among = self._books.all() if event.number is None else asked
        return self._subscribe([one for one in among if self._channel.key(one) not in settled])

    def _named(self, names: Iterable[str]) -> list[Instrument]:
        return [one for one in map(self._books.known, names) if one]

    def _answered(self, number: int | str | None) -> list[Instrument]:
        """Whom an answer is about, without those removed meanwhile."""
        return [one for one in self._requests.answered(number) if self._books.find(one)]


class SeededEngine(Engine):
    """The protocol state of one connection whose books start at bodies that are asked for."""

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        """Start a book at its REST body, where books are not requested on the socket."""
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
            return EXPECTED  # it was removed meanwhile
        return (
            self._asking(book.seeded(event.bids, event.asks, event.sequence, event.at)) or EXPECTED
        )

    def _seed_refused(self, event: SeedRefused) -> tuple[Output, ...]:
        book: Join | None = self._books.trackers.get(event.name)
        if book is None:
            return EXPECTED
        if book.last is None:
            return (Gap(book.instrument, short(event.words)),)
        book.abandon()
        return EXPECTED  # a live book stays as it is

    def resync(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Fetch books again; a stream itself is asked for only if it never was confirmed."""
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
        return self._asking(book.reseed()) if book else NOTHING

    def abandon(self, instrument: Instrument) -> None:
        """Expect no body for a live book."""
        book = self._join(instrument)
        if book is not None:
            book.abandon()

    def standing(self, instrument: Instrument) -> Standing:
        """Compare the stream of an instrument with its last body."""
        book = self._join(instrument)
        return book.standing if book else Standing.CURRENT

    def distrust(self, instrument: Instrument) -> Iterable[Output]:
        """Unsubscribe from a stream that delivers nothing; a resync subscribes again."""
        book = self._join(instrument)
        if book is None or self._channel.key(instrument) not in self._accepted:
            return NOTHING
        book.distrust()
        self._forget([instrument])
        return self._left(self._unsubscribe, [instrument])

    def _started(self, instrument: Instrument) -> tuple[Output, ...]:
        return (Acknowledged(instrument), *self._restarted(instrument))

    def _restarted(self, instrument: Instrument) -> tuple[Output, ...]:
        book = self._join(instrument)
        return self._asking(book.restart()) if book else NOTHING

    def _asking(self, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
        """Ask on the socket for what would come by REST, where the exchange has it so."""
        write = self._channel.request
        if write is None:
            return outputs
        return tuple(
            self._requested(write, [out.instrument])[0] if isinstance(out, Fetch) else out
            for out in outputs
        )

    def _join(self, instrument: Instrument) -> Join | None:
        return self._books.find(instrument)
