"""An exchange without sockets: the simulator's dialect, a small board, one client at a time."""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import parse_qsl, urlsplit

from contract.oracle import Side, Sides, decimal
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Connector, Exchange, Output, ProtocolError, Send, Unnamed
from onebook.simulator import DIALECTS
from onebook.simulator.kit import (
    TOP,
    ChannelKey,
    Dialect,
    Dropped,
    ExchangeBoard,
    Frame,
    Now,
    PublishedBook,
    SimulatedSession,
)
from onebook.simulator.kit.market import MarketBooks, Offer

LISTED = 3
LEVELS = 12  # of a side, where the window of a client holds more
WINDOW_MAX = 100  # of the windows that a client must cut
BEYOND = 12  # levels that such a window does not hold, so that some leave it and some enter
START = Now(1_000.0, 1_700_000_000_000)
HOST = "127.0.0.1"

# Every book channel of every exchange: the usual one by the exchange's name.
CHANNELS = dict(EXCHANGES) | {
    f"{name}.{channel}": facts
    for name, exchange in EXCHANGES.items()
    for channel, facts in exchange.channels.items()
}


def levels(exchange: Exchange) -> int:
    """The number of levels per side of the exchange's books."""
    return exchange.depth + BEYOND if 0 < exchange.depth <= WINDOW_MAX else LEVELS


def list_body(exchange: Exchange, dialect: Dialect, now: Now) -> bytes:
    """The instrument list of a simulated exchange, requested as its facts state."""
    url = urlsplit(exchange.instruments_path)
    if exchange.instruments_body is None:
        answer = dialect.get(url.path, dict(parse_qsl(url.query)), now)
    elif url.path in dialect.rules.posted:
        answer = dialect.get(url.path, json.loads(exchange.instruments_body), now)
    else:
        answer = dialect.post(url.path, HOST, now)
    assert answer is not None, url.path
    return answer.body


class Venue:
    """What the contract suite needs of an exchange: its true books and its protocol.

    Args:
        levels_max: Levels per side at most; by default more than the windows that clients cut.
    """

    def __init__(self, name: str, seed: int = 1, *, levels_max: int = WINDOW_MAX + BEYOND) -> None:
        self._exchange = CHANNELS[name]
        kind = DIALECTS[self._exchange.name]
        profile = kind.profile._replace(
            depth=min(kind.profile.depth, levels(self._exchange), levels_max)
        )
        offer = Offer(kind.listings[:LISTED], profile)
        self.name = name
        self.random = random.Random(seed)
        self.now = START
        self.asked = 0  # frames of the client
        self._limited = 0, -1
        self._market = MarketBooks({name: offer}, seed=seed)
        self._board = ExchangeBoard(offer.listings, self._market.books(name), rules=kind.rules)
        self._dialect = kind(self._board)
        self.listed = list_body(self._exchange, self._dialect, self.now)
        self.instruments = self._exchange.parse_instruments(self.listed)
        self.natives = [each.native for each in self.instruments]
        self.greeting = self.connect()
        self._keys: dict[str, ChannelKey] = {}

    def connect(self) -> list[bytes]:
        """Connect a client in place of the last one; return the exchange's greeting."""
        self._session, greeting = self._opened()
        self._board.sessions[:] = [self._session]
        return greeting

    def _opened(self) -> tuple[SimulatedSession, list[bytes]]:
        url, connect = self._exchange.ws_url, self._exchange.connect
        if connect is not None:
            answer = self._dialect.post(connect.path, HOST, self.now)
            assert answer is not None, connect.path
            url = connect.address(answer.body, self.instruments).url
        session = SimulatedSession(url.partition(urlsplit(url).netloc)[2], now_s=self.now.s)
        return session, encoded(self._dialect.opened(session, self.now))

    def wait(self, seconds: float) -> None:
        """Advance the time."""
        self.now = Now(self.now.s + seconds, self.now.ms + round(seconds * 1_000))

    @property
    def subscribed(self) -> set[str]:
        return {key.native for key in self._session.topics.values()}

    def newest(self, native: str) -> Sides:
        """The newest book, which may be ahead of the depth (`top`)."""
        bids, asks = self.window(native).newest.truth()
        return decimals(bids), decimals(asks)

    def sides(self, native: str) -> Sides:
        """The book as a client must have it."""
        bids, asks = self.window(native).truth()
        return decimals(bids), decimals(asks)

    def changed(self, native: str) -> bytes:
        """Change the book and publish it."""
        window = self.window(native)
        while (changes := window.advance()) is None:
            self._market.move()
            for _ in self._market.step(self.name, {window.listing.symbol}):
                pass
        frame = self._dialect.delta(window, changes, self.now)
        return encoded(self._session.formed([frame], frame))[0]

    def top(self, native: str) -> bytes:
        """Change the book and send its best prices ahead of the depth."""
        window = self.window(native)
        sequence, frame = window.newest.sequence, None
        while frame is None or window.newest.sequence == sequence:
            self._market.move()
            for _ in self._market.step(self.name, {window.listing.symbol}):
                pass
            frame = self._dialect.top(window.collect(), self.now)
        return encoded(self._session.formed([frame], frame))[0]

    def pending(self, native: str) -> bytes:
        """Send the depth up to the last state of `top`."""
        window = self.window(native)
        changes = window.advance()
        assert changes is not None
        frame = self._dialect.delta(window, changes, self.now)
        return encoded(self._session.formed([frame], frame))[0]

    @property
    def subscribed_tops(self) -> set[str]:
        return {key.native for key in self._session.topics.values() if key.depth == TOP}

    @property
    def subscribed_levels(self) -> set[str]:
        return {key.native for key in self._session.topics.values() if key.depth != TOP}

    def limit(self, requests: int, after: int = 0) -> None:
        """Answer some later requests with "too many requests"."""
        if after == 0:
            self._board.limited = requests
        else:
            self._limited = requests, self.asked + after

    def answers(self, frame: bytes) -> Iterator[bytes]:
        """The replies to a client's frame."""
        requests, at = self._limited
        if self.asked == at:
            self._board.limited = requests
        self.asked += 1
        yield from encoded(self._dialect.received(self._session, frame.decode(), self.now))

    def heartbeats(self) -> list[bytes]:
        """The frames that the exchange sends unasked; called once a second."""
        if self._dialect.rules.heartbeat_s is None:
            return []
        return encoded(self._dialect.heartbeat(self._session, self.now))

    def body(self, path: str) -> bytes:
        """The response to a GET request."""
        url = urlsplit(path)
        answer = self._dialect.served(url.path, dict(parse_qsl(url.query)), self.now)
        assert answer is not None, path
        return answer.body

    def unnamed_error(self) -> bytes:
        """An error that names no instrument and no request of the client."""
        return next(self._unnamed([*self._requests(self.natives[-1:]), "nonsense"]))

    def refuse(self, native: str) -> None:
        """Refuse a native from now on, with errors without a name."""
        self._board.nameless = True
        self._board.refused.add(native)

    def acknowledges(self) -> bool:
        """Whether accepted subscriptions are acknowledged."""
        return any(self._aside(request) for request in self._requests(self.natives[:1]))

    def refuses(self) -> bool:
        """Whether subscribing to an unknown native returns an error instead of nothing."""
        return any(self._unnamed(self._requests(self.natives[-1:])))

    def rate_limit_error(self) -> bytes:
        """The reply to a request beyond the limit."""
        self.limit(1)
        (answer,) = self._aside(self._requests(self.natives[-1:])[-1])
        return answer

    def _unnamed(self, requests: Iterable[str]) -> Iterator[bytes]:
        """The errors for requests with a delisted native, without its name."""
        self._board.nameless = True
        self._board.refused.add(self.natives[-1])
        answers = [each for request in requests for each in self._aside(request)]
        self._board.nameless = False
        self._board.refused.clear()
        return filter(self._is_unnamed, answers)

    def _is_unnamed(self, frame: bytes) -> bool:
        try:
            outputs = self._exchange.connector(self.instruments).received(frame)
        except ProtocolError:
            return False
        return any(isinstance(out, Unnamed) for out in outputs)

    def _aside(self, frame: str, session: SimulatedSession | None = None) -> list[bytes]:
        session = session or self._opened()[0]
        try:
            return encoded(self._dialect.received(session, frame, self.now))
        except Dropped:
            return []

    def _requests(self, natives: Sequence[str]) -> list[str]:
        some = [each for each in self.instruments if each.native in natives]
        outputs = greeted(self._exchange.connector(some), self.greeting)
        return [out.at(self.now.ms).decode() for out in outputs if isinstance(out, Send)]

    def _key(self, native: str) -> ChannelKey:
        """The window of a book that the connector follows."""
        if native not in self._keys:
            session, _ = self._opened()
            for request in self._requests([native]):
                self._aside(request, session)
            topics = {key for key in session.topics.values() if key.depth != TOP}
            (self._keys[native],) = topics
        return self._keys[native]

    def window(self, native: str) -> PublishedBook:
        window = self._board.channel(self._key(native))
        assert window is not None
        return window


def greeted(connector: Connector, greeting: Iterable[bytes]) -> Iterator[Output]:
    """The messages of a connector after the connection and the exchange's greeting."""
    yield from connector.opened()
    for frame in greeting:
        yield from connector.received(frame)


def encoded(frames: Iterable[Frame]) -> list[bytes]:
    return [frame.encode() if isinstance(frame, str) else frame for frame in frames]


def decimals(side: dict[str, str]) -> Side:
    return {decimal(price): decimal(amount) for price, amount in side.items()}
