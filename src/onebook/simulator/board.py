"""What one simulated exchange publishes: its listings, numbered windows of its books, its clients.

Pure: market in, values out. The protocol classes (`binance.py` ...) turn these values into the
bytes of their exchange; `server.py` owns the sockets and the clock. Faults that change what is
published (a refused symbol, an acknowledged but silent one) live here, those that change the
bytes of a frame in `faults.py`.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

from onebook.simulator.listings import Listing
from onebook.simulator.market import Book, Levels, Side, decimal_text

TextLevels = list[tuple[str, str]]
FIRST_SEQUENCE: Final = 1_000_000
RATE_WINDOW_S: Final = 1.0
POLICY_VIOLATION: Final = 1008
CONNECTION_ID: Final = "5f2c1a9b"


class Now(NamedTuple):
    """A moment: monotonic seconds for limits, Unix milliseconds for what is printed."""

    s: float
    ms: int

    def rfc3339(self) -> str:
        """The moment as text with microseconds."""
        text = datetime.fromtimestamp(self.ms / 1000, UTC).isoformat(timespec="microseconds")
        return text.replace("+00:00", "Z")


class TextChanges(NamedTuple):
    """Changed levels in the exchange's own digits; a zero amount = gone."""

    bids: TextLevels
    asks: TextLevels


class Spelling(NamedTuple):
    """How many decimals an exchange prints at least; None = as many as its step has."""

    price_places: int | None = 0
    amount_places: int | None = 0


class Rules(NamedTuple):
    """What an exchange demands of its clients, and how it prints its books."""

    spelling: Spelling = Spelling()
    silent_cuts: bool = False  # see `Channel`
    frames_per_s_max: int = 100
    silence_max_s: float = 60.0  # a client this silent is dropped ...
    traffic_counts: bool = True  # ... but frames to it count too
    heartbeat_s: float | None = None  # how often `Dialect.heartbeat` is asked
    ping_s: float | None = None  # protocol-level pings; None where it sends none


class Answer(NamedTuple):
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


class Key(NamedTuple):
    """Which window of which book a client listens to."""

    native: str
    depth: int


class Channel:
    """One book as an exchange publishes it: a window of `depth` levels, numbered.

    `sequence` counts changed levels, `updates` counts frames; `previous` is the sequence before
    the last frame. With `silent_cuts` a level that better ones push out of the window is not
    announced as gone (kraken). A `phantom` is a bid that no ask was matched with: it stays, and
    keeps the published book crossed, until somebody asks for a snapshot.
    """

    def __init__(self, book: Book, key: Key, *, rules: Rules) -> None:
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
        self._phantoms: dict[int, int] = {}

    def advance(self) -> TextChanges | None:
        """Move the window to the book as it is now; None where nothing in it changed."""
        bids, self.bids = self._difference(self._book.bids, self.bids, self._phantoms)
        asks, self.asks = self._difference(self._book.asks, self.asks, {})
        return self._numbered(bids, asks) if bids or asks else None

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

    def truth(self) -> tuple[dict[str, str], dict[str, str]]:
        """The window as the shortest decimal texts, without phantoms."""
        listing = self.listing
        bids, asks = (
            {
                decimal_text(price, listing.price_decimals): decimal_text(
                    amount, listing.amount_decimals
                )
                for price, amount in levels.items()
                if price not in self._phantoms
            }
            for levels in (self.bids, self.asks)
        )
        return bids, asks

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


class Session:
    """One client's connection as the exchange sees it; times are monotonic seconds."""

    def __init__(self, path: str, *, now_s: float) -> None:
        self.path = path
        self.topics: dict[str, Key] = {}  # what the client called it -> the window
        self.started: list[str] = []  # natives subscribed since the server last looked
        self.marks: set[str] = set()  # the protocol's own notes, such as heartbeat products
        self.form: Callable[[str], str] | None = None  # how this client gets its book frames
        self.opened_s = self.heard_s = self.said_s = self.beat_s = now_s
        self._frames: deque[float] = deque()

    def heard(self, now_s: float, *, frames_per_s_max: int) -> None:
        """A frame came from the client.

        Raises:
            Dropped: It was one too many within a second.
        """
        self.heard_s = now_s
        self._frames.append(now_s)
        while self._frames[0] <= now_s - RATE_WINDOW_S:
            self._frames.popleft()
        if len(self._frames) > frames_per_s_max:
            raise Dropped("Too many messages.")


class Board:
    """The listings, books and clients of one exchange.

    Args:
        listings: What it lists.
        books: The market's books by symbol; empty for a replay, where frames come from a file.
        rules: How it publishes them.
    """

    def __init__(
        self, listings: Iterable[Listing], books: Mapping[str, Book], *, rules: Rules
    ) -> None:
        self.listings = {listing.native: listing for listing in listings}
        self.refused: set[str] = set()  # natives that subscribing and REST answer as unknown
        self.muted: set[str] = set()  # natives that are acknowledged and then silent
        self.sessions: list[Session] = []
        self._books = books
        self._rules = rules
        self._channels: dict[Key, Channel] = {}

    def lists(self, native: str) -> bool:
        """Whether the exchange knows a native now."""
        return native in self.listings and native not in self.refused

    def subscribe(self, session: Session, topic: str, key: Key) -> Channel | None:
        """Let a client listen; the channel whose snapshot is due, None where none comes."""
        if key.native in self.muted:
            return None
        session.topics[topic] = key
        session.started.append(key.native)
        return self.channel(key)

    def channel(self, key: Key) -> Channel | None:
        """The window as it is now; None for an unknown native or in a replay."""
        listing = self.listings.get(key.native)
        book = self._books.get(listing.symbol) if listing else None
        if book is None:
            return None
        if key not in self._channels:
            self._channels[key] = Channel(book, key, rules=self._rules)
        # Nobody followed it for a while: its book may have moved under another window. A window
        # that is followed is up to date, so nothing is taken from its clients here.
        self._channels[key].advance()
        return self._channels[key]

    def followed(self) -> list[Channel]:
        """The windows that somebody listens to."""
        keys = {key for session in self.sessions for key in session.topics.values()}
        return [channel for key, channel in self._channels.items() if key in keys]


class Dialect(Protocol):
    """One exchange's protocol, seen from its own side; pure. Made once per exchange."""

    rules: Rules

    def __init__(self, board: Board) -> None: ...

    def opened(self, session: Session, now: Now) -> list[str]:
        """What the exchange says first."""

    def received(self, session: Session, frame: str, now: Now) -> list[str]:
        """Answer one frame of a client."""

    def delta(self, channel: Channel, changes: TextChanges, now: Now) -> str:
        """A change of the window as a frame."""

    def heartbeat(self, session: Session, now: Now) -> list[str]:
        """What the exchange sends to show that it lives."""

    def get(self, path: str, query: Mapping[str, str], now: Now) -> Answer | None:
        """Answer a REST request; None where there is no such path."""

    @staticmethod
    def native_of(frame: str) -> str | None:
        """The native whose order book a frame carries; None for any other frame."""


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


def answered(value: object, status: int = 200) -> Answer:
    """A REST answer with a JSON body."""
    return Answer(status, dumped(value).encode())


def _places(wanted: int | None, step_decimals: int) -> int:
    return step_decimals if wanted is None else wanted
