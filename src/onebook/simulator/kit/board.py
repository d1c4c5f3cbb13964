"""What one simulated exchange publishes: its listings, numbered windows of its books, its clients.

Pure: market in, values out. The protocol classes (`binance.py` ...) turn these values into the
bytes of their exchange; `server.py` owns the sockets and the clock. Faults that change what is
published (a refused symbol, an acknowledged but silent one) live here, those that change the
bytes of a frame in `faults.py`.
"""

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from onebook.clock import iso_us
from onebook.simulator.kit.listings import ListedSymbol, Profile
from onebook.simulator.kit.market import Levels, Side, SimulatedBook, decimal_text
from onebook.simulator.kit.windows import Most, Windows

TextLevels = list[tuple[str, str]]
Frame = str | bytes  # a text message, or a binary one
FIRST_SEQUENCE: Final = 1_000_000
POLICY_VIOLATION: Final = 1008
CONNECTION_ID: Final = "5f2c1a9b"


class Now(NamedTuple):
    """A moment: monotonic seconds for limits, Unix milliseconds for what is printed."""

    s: float
    ms: int

    def rfc3339(self) -> str:
        """The moment as text with microseconds."""
        return iso_us(self.ms * 1_000)


class TextChanges(NamedTuple):
    """Changed levels in the exchange's own digits; a zero amount = gone."""

    bids: TextLevels
    asks: TextLevels


class Spelling(NamedTuple):
    """How many decimals an exchange prints at least; None = as many as its step has."""

    price_places: int | None = 0
    amount_places: int | None = 0


class ExchangeRules(NamedTuple):
    """What an exchange demands of its clients, and how it prints its books."""

    spelling: Spelling = Spelling()
    silent_cuts: bool = False  # see `PublishedBook`
    single_levels: bool = False  # see `PublishedBook`
    replaced_levels: bool = False  # see `PublishedBook`
    signed_amounts: bool = False  # amounts of asks are negative, so that no sign is a fault
    messages: tuple[Most, ...] = (Most(100),)  # one more ends the connection
    requests: tuple[Most, ...] = ()  # one more is answered with "too many requests"
    connects: tuple[Most, ...] = ()  # one more is answered with 429
    fetches: tuple[Most, ...] = ()  # REST requests of all clients; beyond it they get 429
    silence_max_s: float = 60.0  # a client this silent is dropped ...
    traffic_counts: bool = True  # ... but frames to it count too
    heartbeat_s: float | None = None  # how often `Dialect.heartbeat` is asked
    ping_s: float | None = None  # protocol-level pings; None where it sends none
    status: Callable[[str], str] | None = None  # writes the state of its trading engine, if it does
    posted: tuple[str, ...] = ()  # paths that are asked for by POST, their query as JSON
    gzip: bool = False  # whether each of its messages is a binary one in gzip
    deflate: bool = False  # whether it accepts an offer of permessage-deflate (RFC 7692)
    checksum_field: str = "checksum"  # the member of its frames, where they have one


class RestReply(NamedTuple):
    """A REST answer."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Dropped(Exception):
    """The exchange ends the connection."""

    def __init__(self, reason: str, code: int = POLICY_VIOLATION) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class ChannelKey(NamedTuple):
    """The window of a book that a client subscribes to."""

    native: str
    depth: int


class PublishedBook:
    """One book as an exchange publishes it: a window of `depth` levels, numbered.

    `sequence` counts changed levels, `updates` counts frames; `previous` is the sequence before
    the last frame. With `silent_cuts` a level that better ones push out of the window is not
    announced as gone (kraken); with `single_levels` each level that changed is a frame of its own,
    and `advance` is called until nothing is left (bitfinex); with `replaced_levels` a level whose
    amount changed is removed and added in one frame (independentreserve). A `phantom` is a bid that
    no ask was matched with: it stays, and keeps the published book crossed, until a client asks for
    a snapshot.
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

    def advance(self) -> TextChanges | None:
        """Move the window to the current book; None where nothing in it changed."""
        bids, bids_now = self._difference(self._book.bids, self.bids, self._phantoms)
        asks, asks_now = self._difference(self._book.asks, self.asks, {})
        if not bids and not asks:
            return None
        if self._single_levels:
            return self._one(bids, asks)
        self.bids, self.asks = bids_now, asks_now
        return self._numbered(bids, asks)

    def haunt(self) -> TextChanges:
        """Publish a bid 1 % above the best ask."""
        best = next(iter(self.asks))
        price = best + best // 100 + 1
        self._phantoms[price] = 1
        self.bids = self._phantoms | self.bids
        return self._numbered([(price, 1)], [])

    def snapshot(self) -> TextChanges:
        """The whole window, without phantoms."""
        for price in self._phantoms:
            self.bids.pop(price, None)
        self._phantoms = {}
        return self.top(self.key.depth)

    def top(self, count: int) -> TextChanges:
        """The best levels of what is published."""
        bids, asks = list(self.bids.items()), list(self.asks.items())
        return TextChanges(self._texts(bids[:count]), self._texts(asks[:count]))

    def whole(self, changes: TextChanges) -> TextChanges:
        """The whole window with these changes in it, which a fault may have altered."""
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
        """The window, or its best levels, as the shortest decimal texts, without phantoms."""
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
        """The window in units of tick and lot, without phantoms."""
        bids = {price: each for price, each in self.bids.items() if price not in self._phantoms}
        return bids, dict(self.asks)

    def labelled(self, native: str) -> "PublishedBook":
        """The same window under another name."""
        other = copy.copy(self)
        other.listing = self.listing._replace(native=native)
        other.key = self.key._replace(native=native)
        return other

    def _one(self, bids: Levels, asks: Levels) -> TextChanges:
        """Change one level: removed ones first, so that the window is never crossed."""
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
        self.sequence += len(bids) + len(asks)
        self.updates += 1
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
    """One client's connection on the exchange's side; times are monotonic seconds."""

    def __init__(self, path: str, *, now_s: float) -> None:
        self.path = path
        self.topics: dict[str, ChannelKey] = {}  # what the client called it -> the window
        self.started: list[str] = []  # natives subscribed since the server's last check
        self.marks: set[str] = set()  # the protocol's own notes, such as heartbeat products
        self.form: Callable[[Any], Frame] | None = None  # how this client gets its book frames
        self.binary = False  # whether its text frames come as binary ones
        self.heartbeats: dict[str, float] = {}  # when a topic last had a heartbeat of its own
        self.opened_s = self.received_s = self.sent_s = self.heartbeat_s = now_s
        self.requests = Windows(())
        self.messages = Windows(())

    def formed(self, frames: list[Frame], true: Frame) -> list[Frame]:
        """Give frames this client's form; where `true` was lost on the way, it was formed before.

        A form may number them.
        """
        if self.form is None:
            return frames
        if not frames:
            self.form(true)
        return [self.form(frame) for frame in frames]

    def received(self, now_s: float) -> None:
        """A frame came from the client.

        Raises:
            Dropped: It was one too many.
        """
        self.received_s = now_s
        if not self.messages.takes(now_s):
            raise Dropped("Too many messages.")


class ExchangeBoard:
    """The listings, books and clients of one exchange.

    Args:
        listings: What it lists.
        books: The market's books by symbol; empty for a replay, where frames come from a file.
        rules: How it publishes them.
    """

    def __init__(
        self,
        listings: Iterable[ListedSymbol],
        books: Mapping[str, SimulatedBook],
        *,
        rules: ExchangeRules,
    ) -> None:
        self.listings = {listing.native: listing for listing in listings}
        self.refused: set[str] = set()  # natives that subscribing and REST answer as unknown
        self.nameless = False  # refusals do not name the native
        self.limited = 0  # so many requests are answered with "too many requests"
        self.system = "online"  # of the trading engine
        self.muted: set[str] = set()  # natives that are acknowledged and then silent
        self.dead: set[str] = set()  # natives whose changes are numbered and not sent
        self.sessions: list[SimulatedSession] = []
        self._books = books
        self._rules = rules
        self._channels: dict[ChannelKey, PublishedBook] = {}

    def limits(self, session: SimulatedSession, now: Now) -> bool:
        """Whether this request is over the limit, by the rules or because a test set it so."""
        if not session.requests.takes(now.s):
            return True
        if not self.limited:
            return False
        self.limited -= 1
        return True

    def lists(self, native: str) -> bool:
        """Whether the exchange knows a native now."""
        return native in self.listings and native not in self.refused

    def subscribe(
        self, session: SimulatedSession, topic: str, key: ChannelKey
    ) -> PublishedBook | None:
        """Subscribe a client; the channel whose snapshot is due, None where none comes."""
        if key.native in self.muted:
            return None
        session.topics[topic] = key
        session.started.append(key.native)
        return self.channel(key)

    def channel(self, key: ChannelKey) -> PublishedBook | None:
        """The current window; None for an unknown native or in a replay."""
        listing = self.listings.get(key.native)
        book = self._books.get(listing.symbol) if listing else None
        if book is None:
            return None
        if key not in self._channels:
            self._channels[key] = PublishedBook(book, key, rules=self._rules)
        channel = self._channels[key]
        if channel not in self.followed():  # its book may have moved under another window
            while channel.advance():
                pass
        return channel

    def windows(self) -> list[PublishedBook]:
        """Every window that a client ever asked for."""
        return list(self._channels.values())

    def followed(self) -> list[PublishedBook]:
        """The windows that have subscribers."""
        keys = {key for session in self.sessions for key in session.topics.values()}
        return [channel for key, channel in self._channels.items() if key in keys]


class Dialect(Protocol):
    """One exchange's protocol, seen from its own side; pure. Made once per exchange."""

    rules: ExchangeRules
    listings: tuple[ListedSymbol, ...]
    profile: Profile

    def __init__(self, board: ExchangeBoard) -> None: ...

    def opened(self, session: SimulatedSession, now: Now) -> list[str]:
        """The frames that the exchange sends first."""

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer one frame of a client."""

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> Frame:
        """A change of the window as a frame."""

    def heartbeat(self, session: SimulatedSession, now: Now) -> Sequence[Frame]:
        """What the exchange sends to show that it lives."""

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer a REST request; None where there is no such path."""

    @staticmethod
    def native_of(frame: Any) -> str | None:
        """The native whose order book a frame (text, or bytes) carries; None for any other."""


class BoardDialect:
    """What many dialects share: the board, and no frame before the first request."""

    def __init__(self, board: ExchangeBoard) -> None:
        self._board = board

    def opened(self, session: SimulatedSession, now: Now) -> list[str]:
        """No frame is sent first."""
        return []


@runtime_checkable
class Weigher(Protocol):
    """A dialect whose REST requests weigh more than one."""

    def weight(self, path: str, query: Mapping[str, str]) -> int:
        """What a request costs of `ExchangeRules.fetches`."""


@runtime_checkable
class PostDesk(Protocol):
    """What a dialect has beside `Dialect` where clients ask for something by POST.

    Bodies of requests are not looked at.
    """

    def post(self, path: str, host: str, now: Now) -> RestReply | None:
        """Answer a POST request that came to `host`; None where there is no such path."""


def loaded(frame: str) -> dict[str, Any] | None:
    """A JSON object; None for anything else."""
    try:
        value = json.loads(frame)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def dumped(value: object) -> str:
    """Compact JSON text."""
    return json.dumps(value, separators=(",", ":"))


def answered(value: object, status: int = 200) -> RestReply:
    """A REST answer with a JSON body."""
    return RestReply(status, dumped(value).encode())


def _places(wanted: int | None, step_decimals: int) -> int:
    return step_decimals if wanted is None else wanted
