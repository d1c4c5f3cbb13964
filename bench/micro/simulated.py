"""A simulated exchange without sockets, and our session on it, which can be opened again as it was.

The market moves only on command, and every client of the exchange gets each change as the
exchange would send it to that client.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from onebook.books import Books, LiveBook
from onebook.core.types import LEVELS_MAX
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit.contract import Exchange
from onebook.feeds.outbox import Request, Transmit
from onebook.feeds.session import FeedSession
from onebook.feeds.stats import ExchangeStats
from onebook.fusing import TopCounts
from onebook.simulator import DIALECTS
from onebook.simulator.kit.board import (
    ExchangeBoard,
    Frame,
    Now,
    PublishedBook,
    RestReply,
    TextChanges,
)
from onebook.simulator.kit.board import SimulatedSession as Client
from onebook.simulator.kit.market import MarketBooks

NOW = Now(1_000.0, 1_700_000_000_000)
OPENING_S = 5.0  # until what limits of the exchange delay has been sent
STEP_S = 0.5
HOST = "127.0.0.1"


class Case(NamedTuple):
    """A book channel of an exchange of the registry; `channel` is "" for the usual one."""

    name: str
    channel: str = ""

    @property
    def exchange(self) -> Exchange:
        """Its facts."""
        exchange = EXCHANGES[self.name]
        return exchange.channels[self.channel] if self.channel else exchange

    def __str__(self) -> str:
        return "-".join(filter(None, self))


class Simulated:
    """One exchange and its clients; the book of the first pair that it lists."""

    def __init__(self, name: str) -> None:
        kind = DIALECTS[name]
        self.name = name
        self.rules = kind.rules
        self.market = MarketBooks({name: kind.offer()}, seed=1)
        self.board = ExchangeBoard(kind.listings, self.market.books(name), rules=self.rules)
        self.listing = kind.listings[0]
        self._dialect = kind(self.board)

    def connect(self, url: str, now: Now = NOW) -> tuple[Client, list[bytes]]:
        """Open a connection; returns what the exchange says first."""
        client = Client(_target(url), now_s=now.s)
        self.board.sessions.append(client)
        return client, _encoded(self._dialect.opened(client, now))

    def received(self, client: Client, frame: str, now: Now = NOW) -> list[bytes]:
        """Answer a frame of a client."""
        return _encoded(self._dialect.received(client, frame, now))

    def rest(self, method: str, url: str, now: Now = NOW, *, body: bytes = b"{}") -> bytes:
        """Answer a REST request; `body` is what a POST sends.

        Raises:
            LookupError: There is no such path.
        """
        parts = urlsplit(url)
        if method == "GET":
            answer = self._dialect.get(parts.path, dict(parse_qsl(parts.query)), now)
        else:
            answer = self._posted(parts.path, body, now)
        if answer is None:
            raise LookupError(f"{self.name} answers no {method} {url}")
        return answer.body

    def _posted(self, path: str, body: bytes, now: Now) -> RestReply | None:
        desk = self._dialect
        if path in desk.rules.posted:
            return desk.get(path, json.loads(body), now)
        return desk.post(path, HOST, now)

    def window(self, client: Client) -> PublishedBook | None:
        """The window of the pair that a client follows."""
        keys = [key for key in client.topics.values() if key.native == self.listing.native]
        return next((each for each in self.board.followed() if each.key in keys), None)

    def step(self) -> list[tuple[PublishedBook, TextChanges]]:
        """Move the market until some window changes, and return what changed in each."""
        while not (changed := self._changed()):
            self.market.move()
            for _ in self.market.step(self.name, {self.listing.symbol}):
                pass
        return changed

    def move(self) -> None:
        """Move the market by one state, without sending it."""
        for _ in self.market.step(self.name, {self.listing.symbol}):
            pass

    def tops_of(self, client: Client, now: Now) -> list[bytes]:
        """The frames of the newest best prices as a client gets them; none if they are equal."""
        keys = [*client.topics.values()]
        frames = [frame for key, frame in self.board.collect(self._dialect, now) if key in keys]
        return _encoded(each for frame in frames for each in client.formed([frame], frame))

    def depth_of(self, client: Client, now: Now) -> list[bytes]:
        """The frames of the depth with all states since the last."""
        window = self.window(client)
        assert window is not None
        frames = []
        while (changes := window.advance()) is not None:
            frames += self.frames_of(client, window, changes, now)
        return frames

    def _changed(self) -> list[tuple[PublishedBook, TextChanges]]:
        changes = [(window, window.advance()) for window in self.board.followed()]
        return [(window, each) for window, each in changes if each is not None]

    def frames_of(
        self, client: Client, window: PublishedBook, changes: TextChanges, now: Now = NOW
    ) -> list[bytes]:
        """The frames of a change as a client gets them, with its own numbers if it has such."""
        frame = self._dialect.delta(window, changes, now)
        return _encoded(client.formed([frame], frame))


class Heard(NamedTuple):
    """What reached our session while it was opened: a frame, or the body of its request."""

    bytes: bytes
    is_body: bool
    at: float


class Ours:
    """Our session on a simulated exchange."""

    def __init__(self, simulated: Simulated, case: Case) -> None:
        self._exchange = case.exchange
        self._simulated = simulated
        self._heard: list[Heard] = []
        self.tops = TopCounts()
        body = self._exchange.instruments_body
        method = "GET" if body is None else "POST"
        listed = self._exchange.parse_instruments(
            simulated.rest(method, self._exchange.instruments_path, body=body or b"")
        )
        native = simulated.listing.native
        self._instrument = next(each for each in listed if each.native == native)
        self.client, first = simulated.connect(self._address())
        self.session, self.book = self._made()
        self.hear(first, NOW.s)
        self._subscribe()

    def _address(self) -> str:
        connect = self._exchange.connect
        if connect is None:
            return self._exchange.ws_url
        answer = self._simulated.rest(connect.method, connect.path)
        return connect.address(answer, [self._instrument]).url

    def _made(self) -> tuple[FeedSession, LiveBook]:
        books, exchange = Books(), self._exchange
        levels_max = exchange.depth if exchange.truncate else LEVELS_MAX
        tops = self.tops if exchange.tops else None
        book = books.open(self._instrument, levels_max=levels_max, window=exchange.depth, tops=tops)
        session = FeedSession(
            exchange, [self._instrument], books=books,
            stats=ExchangeStats(exchange.name), jitter=lambda: 0.0,
        )  # fmt: skip
        session.opened(NOW.s)
        return session, book

    def _subscribe(self) -> None:
        """Carry frames and bodies both ways until everything that waits for a limit is sent."""
        for step in range(int(OPENING_S / STEP_S)):
            now = Now(NOW.s + step * STEP_S, NOW.ms + int(step * STEP_S * 1_000))
            while actions := self.session.drain(now.s):
                for action in actions:
                    match action:
                        case Transmit(frame):
                            text = frame.decode()
                            self.hear(self._simulated.received(self.client, text, now), now.s)
                        case Request(fetch):
                            body = self._simulated.rest("GET", fetch.path, now)
                            self._take(self.session, Heard(body, True, now.s))

    def hear(self, frames: Iterable[bytes], at: float = NOW.s + OPENING_S) -> None:
        """Hand frames of the exchange to the session."""
        for frame in frames:
            self._take(self.session, Heard(frame, False, at))

    def _take(self, session: FeedSession, heard: Heard) -> None:
        if session is self.session:
            self._heard.append(heard)
        if heard.is_body:
            session.fetched(self._instrument, heard.bytes, heard.at)
        else:
            session.received(heard.bytes, heard.at)

    def again(self) -> tuple[FeedSession, LiveBook]:
        """Open another session that has heard the same."""
        session, book = self._made()
        for heard in self._heard:
            session.drain(heard.at)
            self._take(session, heard)
        return session, book


def _target(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _encoded(frames: Iterable[Frame]) -> list[bytes]:
    """Frames as they leave the socket, inflated where the exchange compresses them."""
    return [frame.encode() if isinstance(frame, str) else frame for frame in frames]
