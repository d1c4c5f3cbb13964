"""Books, listings, sessions and rate limits of a simulated exchange.

Pure: market in, values out. Dialects (`binance.py` ...) convert these values to the bytes of their
exchange; `loopback.py` owns the sockets. Faults of content (a refused symbol, one that is
acknowledged but silent) are here, faults in the bytes of a frame in `server.py`. Each dialect
states its rate limits from its own source and enforces them independently of the client's
(`onebook.exchanges.kit.limits`), so that neither can hide an error of the other.
"""

import copy
import json
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Self

from onebook.clock import Clock, iso_us
from onebook.simulator.kit.market import (
    Levels,
    ListedSymbol,
    Offer,
    Profile,
    Side,
    SimulatedBook,
    decimal_text,
)

TextLevels = list[tuple[str, str]]
Frame = str | bytes  # a text message, or a binary one
FIRST_SEQUENCE: Final = 1_000_000
POLICY_VIOLATION: Final = 1008
TOP: Final = 0  # `ChannelKey.depth` of a client that subscribes to `Dialect.top`
CONNECTION_ID: Final = "5f2c1a9b"


class Most(NamedTuple):
    """At most `most` actions within `per_s` seconds, per connection or per address."""

    most: int
    per_s: float = 1.0
    per_address: bool = False


class Windows:
    """Sliding windows that count the actions of one connection.

    Args:
        limits: Limits that apply at once.
        address: Windows of the address, shared by its connections.
        breaches: Counts the refused actions by `kind`.
        kind: The counted kind of action.
    """

    def __init__(
        self,
        limits: Iterable[Most],
        address: dict[Most, deque[float]] | None = None,
        *,
        breaches: Counter[str] | None = None,
        kind: str = "",
    ) -> None:
        self._breaches = Counter[str]() if breaches is None else breaches
        self._kind = kind
        shared = {} if address is None else address
        self._windows = [
            (most, shared.setdefault(most, deque()) if most.per_address else deque[float]())
            for most in limits
        ]

    def allow(self, now_s: float, weight: int = 1) -> bool:
        """Count an action of this weight if the limits allow it; returns whether they did."""
        for most, window in self._windows:
            while window and window[0] <= now_s - most.per_s:
                window.popleft()
        if any(len(window) + weight > most.most for most, window in self._windows):
            self._breaches[self._kind] += 1
            return False
        for _, window in self._windows:
            window.extend((now_s,) * weight)
        return True


class Now(NamedTuple):
    """A point in time: monotonic seconds for limits, Unix milliseconds for messages."""

    s: float
    ms: int

    @classmethod
    def of(cls, clock: Clock) -> Self:
        """Read a clock."""
        return cls(clock.monotonic(), clock.wall_ms())

    def rfc3339(self) -> str:
        """Format it with microseconds."""
        return iso_us(self.ms * 1_000)


class TextChanges(NamedTuple):
    """Changed levels in the exchange's own digits; a zero amount removes a level."""

    bids: TextLevels
    asks: TextLevels


class Spelling(NamedTuple):
    """Minimum decimals of printed numbers; None for the decimals of the step."""

    price_places: int | None = 0
    amount_places: int | None = 0


class ExchangeRules(NamedTuple):
    """Limits of an exchange, and how it prints its books."""

    spelling: Spelling = Spelling()
    silent_cuts: bool = False  # see `PublishedBook`
    single_levels: bool = False  # see `PublishedBook`
    replaced_levels: bool = False  # see `PublishedBook`
    signed_amounts: bool = False  # asks have negative amounts, so a negative amount is not a fault
    messages: tuple[Most, ...] = (Most(100),)  # beyond it the connection is closed
    requests: tuple[Most, ...] = ()  # beyond it "too many requests"
    connects: tuple[Most, ...] = ()  # beyond it 429
    states: int = 1  # market states per depth message; `Dialect.top` sends each best price
    fetches: tuple[Most, ...] = ()  # REST requests of all clients; beyond it 429
    silence_max_s: float = 60.0  # silence after which a client is disconnected ...
    traffic_counts: bool = True  # ... if frames sent to it also break the silence
    heartbeat_s: float | None = None  # interval of `Dialect.heartbeat`
    ping_s: float | None = None  # interval of protocol pings; None for none
    status: Callable[[str], str] | None = (
        None  # encodes the state of its trading engine, if published
    )
    clock: tuple[str, Callable[[Now], object]] | None = None  # path and body of its time, by GET
    posted: tuple[str, ...] = ()  # paths requested by POST, with the query as JSON
    gzip: bool = False  # whether messages are gzip in binary frames
    deflate: bool = False  # whether it accepts permessage-deflate (RFC 7692)
    checksum_field: str = "checksum"  # the checksum member of its frames


class RestReply(NamedTuple):
    """A REST response."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Dropped(Exception):
    """The exchange closes the connection."""

    def __init__(self, reason: str, code: int = POLICY_VIOLATION) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class ChannelKey(NamedTuple):
    """A window of a book that clients subscribe to."""

    native: str
    depth: int


class PublishedBook:
    """One book as an exchange publishes it: a numbered window of `depth` levels.

    `sequence` counts changed levels, `updates` counts frames; `previous` is the sequence before
    the last frame. With `silent_cuts` no message removes a level that better ones push out of the
    window (kraken). With `single_levels` each changed level has its own frame, and `advance` is
    called until nothing is left (bitfinex). With `replaced_levels` a level whose amount changed is
    removed and added in one frame (independentreserve). A `phantom` is a bid above the best ask: it
    keeps the published book crossed until a client requests a snapshot. `collect` applies a state
    without sending it, as an exchange does between two depth messages.
    """

    def __init__(self, book: SimulatedBook, key: ChannelKey, *, rules: ExchangeRules) -> None:
        self.listing = book.listing
        self.key = key
        self.previous = self.sequence = FIRST_SEQUENCE
        self.updates = 1
        self.bids = dict(book.bids.top(key.depth))
        self.asks = dict(book.asks.top(key.depth))
        self._book = book
        self._price_places = _places(rules.spelling.price_places, self.listing.price_decimals)
        self._amount_places = _places(rules.spelling.amount_places, self.listing.amount_decimals)
        self._silent_cuts = rules.silent_cuts
        self._single_levels = rules.single_levels
        self._replaced_levels = rules.replaced_levels
        self._phantoms: dict[int, int] = {}
        self._unsent: tuple[dict[int, int], dict[int, int]] = {}, {}
        self._newest: PublishedBook | None = None  # ahead of the last message

    @property
    def newest(self) -> "PublishedBook":
        """The window at its newest state, of which the next message may be due."""
        return self if self._newest is None else self._newest

    def advance(self) -> TextChanges | None:
        """Move the window to the current book; None if nothing in it changed."""
        newest = self.newest
        bids, bids_now = self._difference(self._book.bids, newest.bids, self._phantoms)
        asks, asks_now = self._difference(self._book.asks, newest.asks, {})
        if not bids and not asks and newest.sequence == self.sequence:
            return None
        if self._single_levels:
            return self._one(bids, asks)
        self.bids, self.asks = bids_now, asks_now
        return self._numbered(bids, asks)

    def collect(self) -> "PublishedBook":
        """Move the newest state to the current book; the next message includes these changes."""
        newest = copy.copy(self.newest)
        bids, newest.bids = self._difference(self._book.bids, newest.bids, self._phantoms)
        asks, newest.asks = self._difference(self._book.asks, newest.asks, {})
        for unsent, changed in zip(self._unsent, (bids, asks), strict=True):
            unsent.update(changed)
        newest.sequence += len(bids) + len(asks)
        newest._newest = None
        self._newest = newest
        return newest

    def cross(self) -> TextChanges:
        """Publish a bid 1 % above the best ask."""
        best = next(iter(self.asks))
        price = best + best // 100 + 1
        self._phantoms[price] = 1
        self.bids = self._phantoms | self.bids
        return self._numbered([(price, 1)], [])

    def snapshot(self) -> TextChanges:
        """Return the whole window, without phantoms."""
        for price in self._phantoms:
            self.bids.pop(price, None)
        self._phantoms = {}
        return self.top(self.key.depth)

    def top(self, count: int) -> TextChanges:
        """Return the best published levels."""
        bids, asks = list(self.bids.items()), list(self.asks.items())
        return TextChanges(self._texts(bids[:count]), self._texts(asks[:count]))

    def whole(self, changes: TextChanges) -> TextChanges:
        """Return the whole window with these changes, which a fault may have altered, applied."""
        top = self.top(self.key.depth)
        bids, asks = (
            list(
                (
                    dict(side) | {price: amount for price, amount in changed if amount.strip("0.")}
                ).items()
            )
            for side, changed in zip(top, changes, strict=True)
        )
        return TextChanges(bids, asks)

    def truth(self, count: int | None = None) -> tuple[dict[str, str], dict[str, str]]:
        """Return the window, or its best levels, as shortest decimal text, without phantoms."""
        listing = self.listing
        true_bids = (each for each in self.bids.items() if each[0] not in self._phantoms)
        bids, asks = (
            {
                decimal_text(price, listing.price_decimals): decimal_text(
                    amount, listing.amount_decimals
                )
                for price, amount in islice(levels, count)
            }
            for levels in (true_bids, self.asks.items())
        )
        return bids, asks

    def levels(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the window in units of tick and lot, without phantoms."""
        bids = {price: each for price, each in self.bids.items() if price not in self._phantoms}
        return bids, dict(self.asks)

    def labelled(self, native: str) -> "PublishedBook":
        """Return the same window under another native name."""
        other = copy.copy(self)
        other.listing = self.listing._replace(native=native)
        other.key = self.key._replace(native=native)
        return other

    def _one(self, bids: Levels, asks: Levels) -> TextChanges:
        """Change one level, removals first, so that the window is never crossed."""
        changed = [(level, True) for level in bids] + [(level, False) for level in asks]
        (price, amount), is_bid = min(changed, key=lambda each: each[0][1] != 0)
        window = {**(self.bids if is_bid else self.asks), price: amount}
        kept = {each: window[each] for each in sorted(window, reverse=is_bid) if window[each]}
        if is_bid:
            self.bids = kept
            return self._numbered([(price, amount)], [])
        self.asks = kept
        return self._numbered([], [(price, amount)])

    def _numbered(self, bids: Levels, asks: Levels) -> TextChanges:
        self.previous = self.sequence
        self.sequence = self.newest.sequence + len(bids) + len(asks)
        self._newest = None
        self.updates += 1
        unsent, self._unsent = self._unsent, ({}, {})
        bids, asks = (
            list((before | dict(changed)).items()) if before else changed
            for before, changed in zip(unsent, (bids, asks), strict=True)
        )
        return TextChanges(self._texts(bids), self._texts(asks))

    def _difference(
        self, side: Side, before: dict[int, int], phantoms: dict[int, int]
    ) -> tuple[Levels, dict[int, int]]:
        now = phantoms | dict(side.top(self.key.depth))
        changed = [level for level in now.items() if before.get(level[0]) != level[1]]
        gone = [
            (price, 0)
            for price in before
            if price not in now and not (self._silent_cuts and price in side.amounts)
        ]
        if self._replaced_levels:
            gone += [(price, 0) for price, _ in changed if price in before]
        return gone + changed, now

    def _texts(self, levels: Levels) -> TextLevels:
        price_decimals, amount_decimals = self.listing[2:]
        return [
            (
                decimal_text(price, price_decimals, places=self._price_places),
                decimal_text(amount, amount_decimals, places=self._amount_places),
            )
            for price, amount in levels
        ]


class SimulatedSession:
    """The exchange's side of one client connection; times are monotonic seconds."""

    def __init__(self, path: str, *, now_s: float) -> None:
        self.path = path
        self.topics: dict[str, ChannelKey] = {}  # by the client's name of the topic
        self.started: list[str] = []  # natives subscribed since the last check
        self.marks: set[str] = set()  # notes of the dialect, such as heartbeat products
        self.form: Callable[[Any], Frame] | None = None  # converts book frames for this client
        self.binary = False  # whether text frames are sent as binary ones
        self.heartbeats: dict[str, float] = {}  # time of the last heartbeat of a topic
        self.opened_s = self.received_s = self.sent_s = self.heartbeat_s = now_s
        self.requests = Windows(())
        self.messages = Windows(())

    def formed(self, frames: list[Frame], true: Frame) -> list[Frame]:
        """Convert frames for this client; `true` is the original, numbered even if it is lost."""
        if self.form is None:
            return frames
        if not frames:
            self.form(true)
        return [self.form(frame) for frame in frames]

    def received(self, now_s: float) -> None:
        """Count a frame of the client.

        Raises:
            Dropped: The client exceeds the limit.
        """
        self.received_s = now_s
        if not self.messages.allow(now_s):
            raise Dropped("Too many messages.")


class ExchangeBoard:
    """The listings, books and clients of one exchange.

    Args:
        listings: Its listings.
        books: The market's books by symbol; empty for a replay, whose frames are recorded.
        rules: Its rules.
    """

    def __init__(
        self,
        listings: Iterable[ListedSymbol],
        books: Mapping[str, SimulatedBook],
        *,
        rules: ExchangeRules,
    ) -> None:
        self.listings = {listing.native: listing for listing in listings}
        self.refused: set[str] = set()  # natives that are answered as unknown
        self.nameless = False  # whether refusals omit the native
        self.limited = 0  # number of requests to answer with "too many requests"
        self.system = "online"  # state of the trading engine
        self.muted: set[str] = set()  # natives that are acknowledged without data
        self.dead: set[str] = set()  # natives whose changes are numbered but not sent
        self.sessions: list[SimulatedSession] = []
        self._books = books
        self._rules = rules
        self._channels: dict[ChannelKey, PublishedBook] = {}

    def limits(self, session: SimulatedSession, now: Now) -> bool:
        """Return whether a request exceeds the limit, by the rules or by `limited`."""
        if not session.requests.allow(now.s):
            return True
        if not self.limited:
            return False
        self.limited -= 1
        return True

    def lists(self, native: str) -> bool:
        """Return whether the exchange currently lists a native."""
        return native in self.listings and native not in self.refused

    def subscribe(
        self, session: SimulatedSession, topic: str, key: ChannelKey
    ) -> PublishedBook | None:
        """Subscribe a client; returns the book whose snapshot is due, None for a muted one."""
        if key.native in self.muted:
            return None
        session.topics[topic] = key
        session.started.append(key.native)
        return self.channel(key)

    def follow_top(
        self, session: SimulatedSession, topic: str, native: str, depth: int
    ) -> PublishedBook | None:
        """Subscribe a client to the best prices of a native; returns its newest state."""
        if native in self.muted:
            return None
        session.topics[topic] = ChannelKey(native, TOP)
        window = self.channel(ChannelKey(native, depth))
        return None if window is None else window.newest

    def channel(self, key: ChannelKey) -> PublishedBook | None:
        """Return the current window; None for an unknown native or in a replay."""
        listing = self.listings.get(key.native)
        book = self._books.get(listing.symbol) if listing else None
        if book is None:
            return None
        if key not in self._channels:
            self._channels[key] = PublishedBook(book, key, rules=self._rules)
        channel = self._channels[key]
        if channel not in self.followed():  # the book may have changed for another window
            while channel.advance():
                pass
        return channel

    def collect(self, dialect: "Dialect", now: Now) -> Iterator[tuple[ChannelKey, Frame]]:
        """Move the newest state to each followed window's next message; yields frames of tops."""
        if dialect.rules.states > 1:
            for channel in self.followed():
                frame = dialect.top(channel.collect(), now)
                if frame is not None:
                    yield ChannelKey(channel.key.native, TOP), frame

    def windows(self) -> list[PublishedBook]:
        """List all windows that were ever subscribed."""
        return list(self._channels.values())

    def followed(self) -> list[PublishedBook]:
        """List the windows with subscribers."""
        keys = {key for session in self.sessions for key in session.topics.values()}
        return [channel for key, channel in self._channels.items() if key in keys]


class Dialect(ABC):
    """One exchange's protocol, from the exchange's side; pure. One object per exchange."""

    rules: ExchangeRules
    listings: tuple[ListedSymbol, ...]
    profile: Profile

    def __init__(self, board: ExchangeBoard) -> None:
        self._board = board

    @classmethod
    def offer(cls) -> Offer:
        """Return the parameters from which the market builds the books."""
        return Offer(cls.listings, cls.profile)

    def opened(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return the frames that the exchange sends first; none by default."""
        return []

    @abstractmethod
    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer one frame of a client."""

    @abstractmethod
    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> Frame:
        """Encode a change of the window as a frame."""

    def top(self, channel: PublishedBook, now: Now) -> Frame | None:
        """Encode the best bid and ask as a frame of the faster channel; None without one."""
        return None

    @abstractmethod
    def heartbeat(self, session: SimulatedSession, now: Now) -> Sequence[Frame]:
        """Return the heartbeat frames of the exchange."""

    @abstractmethod
    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer a REST request; None for an unknown path."""

    def served(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer a REST request, also one for the exchange's time; None for an unknown path."""
        clock = self.rules.clock
        if clock is not None and path == clock[0]:
            return answered(clock[1](now))
        return self.get(path, query, now)

    def post(self, path: str, host: str, now: Now) -> RestReply | None:
        """Answer a POST request to `host`, ignoring its body; None for an unknown path."""
        return None

    def weight(self, path: str, query: Mapping[str, str]) -> int:
        """Return the cost of a REST request in `ExchangeRules.fetches`."""
        return 1

    @staticmethod
    @abstractmethod
    def native_of(frame: Any) -> str | None:
        """Return the native name whose book a frame (text, or bytes) contains; None for others."""

    @staticmethod
    def is_top(frame: Any) -> bool:
        """Return whether a frame of a book is one of `top`."""
        return False


def loaded(frame: str) -> dict[str, Any] | None:
    """Decode a JSON object; None for anything else."""
    try:
        value = json.loads(frame)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def dumped(value: object) -> str:
    """Encode as compact JSON."""
    return json.dumps(value, separators=(",", ":"))


def answered(value: object, status: int = 200) -> RestReply:
    """Make a REST response with a JSON body."""
    return RestReply(status, dumped(value).encode())


def _places(wanted: int | None, step_decimals: int) -> int:
    return step_decimals if wanted is None else wanted
