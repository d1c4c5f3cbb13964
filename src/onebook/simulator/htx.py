"""Simulated HTX, MBP feed: `market.$symbol.mbp.$levels` at `/feed`, every message in gzip.

With 150 levels a frame has the changes of 100 ms; with 20 levels it is sent at each change of these
levels. Both name the states of the market by one `seqNum`, so that a number of 20 levels is that of
a state that the next frame of 150 levels includes.

A subscription sends only deltas, numbered by `prevSeqNum` and `seqNum`. The whole book is the
answer to `req`, which a connection may send once in 100 ms (here counted over a second, together
with all other requests). With 5 and 20 levels, a side that did not change is absent. With 150 and
400 levels it is empty, and if nothing changed within 100 ms a frame with two empty sides is sent;
the page announces that these will behave like 5 and 20 levels (`Htx.aligned`). 400 levels have no
`req`. The server pings every 5 s, and closes before the next ping if two in a row were not answered
by the matching pong. Numbers are printed like Java doubles.
https://www.htx.com/en-us/opend/newApiPages/?id=7ec5362b-7773-11ed-9966-0242ac110003
https://www.huobi.com/support/en-us/detail/900001526643/
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final, NamedTuple

from onebook.simulator.kit import (
    TOP,
    ChannelKey,
    Dialect,
    Dropped,
    ExchangeBoard,
    ExchangeRules,
    ListedSymbol,
    Most,
    Now,
    Profile,
    PublishedBook,
    RestReply,
    SimulatedSession,
    TextChanges,
    TextLevels,
    answered,
    dumped,
    loaded,
)

TOPIC: Final = re.compile(r"market\.(?P<native>[^.]+)\.mbp\.(?P<levels>5|20|150|400)")
BOTH_SIDES_FROM: Final = 150
REQUEST_LEVELS: Final = (5, 20, 150)
TICK_LEVELS: Final = 20  # sent at each change
DEEP_LEVELS: Final = 150  # sent every 100 ms
PINGS_UNANSWERED_MAX: Final = 2
PING_S: Final = 5.0
PING_EXPIRED: Final = 1003
PLAIN_FROM, PLAIN_BELOW = Decimal("1E-3"), Decimal("1E7")


class TickBook(NamedTuple):
    """The 20 best levels as they were sent last, and the number of that state."""

    sequence: int
    bids: dict[str, str]
    asks: dict[str, str]


class Htx(Dialect):
    """The protocol of api.huobi.pro."""

    aligned = False  # whether 150 and 400 levels omit empty sides and empty frames

    profile = Profile(depth=180, spread_ppm=6, offset_ppm_max=10)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "btcusdt", 2, 6),
        ListedSymbol("ETH/USDT", "ethusdt", 2, 4),
        ListedSymbol("SOL/USDT", "solusdt", 4, 4),
        ListedSymbol("DOGE/USDT", "dogeusdt", 6, 2),
        ListedSymbol("ETH/BTC", "ethbtc", 6, 4),
    )
    rules = ExchangeRules(
        clock=("/v1/common/timestamp", lambda now: {"status": "ok", "data": now.ms}),
        requests=(Most(10, 1.0),),
        silence_max_s=86_400.0,  # silent clients are detected by pings
        heartbeat_s=0.1,
        gzip=True,
        states=4,
    )

    def __init__(self, board: ExchangeBoard) -> None:
        super().__init__(board)
        self._ticks: dict[str, TickBook] = {}

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer `pong`, `sub`, `unsub` and `req`; a list of topics is answered topic by topic."""
        message = loaded(frame)
        if message is None:
            return [_error("not json string", None, now)]
        if "pong" in message:
            if str(message["pong"]) in session.marks:
                session.marks.clear()
            return []
        number = message.get("id")
        if self._board.limits(session, now):
            return [_error("429 too many request", number, now)]
        acts = {"sub": self._subscribe, "unsub": self._unsubscribe, "req": self._request}
        for verb, act in acts.items():
            if verb in message:
                wanted = message[verb]
                topics = wanted if isinstance(wanted, list) else [wanted]
                return [reply for topic in topics for reply in act(session, topic, number, now)]
        return [_error("invalid topic", number, now)]

    def _subscribe(
        self, session: SimulatedSession, topic: object, number: object, now: Now
    ) -> list[str]:
        key = _key(topic)
        if key is None or not self._board.lists(key.native):
            return [self._invalid(topic, number, now)]
        if key.depth == TICK_LEVELS:
            self._board.follow_top(session, str(topic), key.native, DEEP_LEVELS)
        else:
            self._board.subscribe(session, str(topic), key)
        return [_done({"subbed": topic}, number, now)]

    def _unsubscribe(
        self, session: SimulatedSession, topic: object, number: object, now: Now
    ) -> list[str]:
        key = _key(topic)
        muted = key is not None and key.native in self._board.muted
        if session.topics.pop(str(topic), None) is None and not muted:
            return [_error("unsub with not subbed topic", number, now)]
        return [_done({"unsubbed": topic}, number, now)]

    def _request(
        self, session: SimulatedSession, topic: object, number: object, now: Now
    ) -> list[str]:
        key = _key(topic)
        if key is None or key.depth not in REQUEST_LEVELS or not self._board.lists(key.native):
            return [self._invalid(topic, number, now)]
        if key.native in self._board.muted:
            return []
        if key.depth == TICK_LEVELS:
            tick = self._tick(key.native)
            if tick is None:
                return []
            levels = TextChanges([*tick.bids.items()], [*tick.asks.items()])
            sequence = tick.sequence
        else:
            window = self._board.channel(key)
            if window is None:
                return []
            levels, sequence = window.snapshot(), window.sequence
        sides = ",".join(_sides(levels, both=True))
        book = f'"data":{{"seqNum":{sequence},{sides}}}'
        return [f"{_done({'rep': topic}, number, now)[:-1]},{book}}}"]

    def _invalid(self, topic: object, number: object, now: Now) -> str:
        key = _key(topic)
        if self._board.nameless:
            return _error("invalid symbol", None, now)
        if key is None:
            return _error(f"invalid topic {topic}", number, now)
        return _error(f"invalid mbp.{key.depth}.symbol {key.native}", number, now)

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode the difference from the previous window."""
        return self._update(channel, channel.previous, changes, now)

    def top(self, channel: PublishedBook, now: Now) -> str | None:
        """Encode the change of the 20 best levels, if these changed."""
        native = channel.listing.native
        if channel.key.depth != DEEP_LEVELS:
            return None
        before, after = self._tick(native), _tick_book(channel)
        assert before is not None
        bids = _changed(before.bids, after.bids)
        asks = _changed(before.asks, after.asks)
        if not bids and not asks:
            return None
        self._ticks[native] = after
        sides = "".join(f",{side}" for side in _sides(TextChanges(bids, asks), both=False))
        tick = f'"seqNum":{after.sequence},"prevSeqNum":{before.sequence}{sides}'
        topic = f"market.{native}.mbp.{TICK_LEVELS}"
        return f'{{"ch":"{topic}","ts":{now.ms},"tick":{{{tick}}}}}'

    def _tick(self, native: str) -> TickBook | None:
        """Return the 20 best levels as sent last; at first those of the newest state."""
        if native not in self._ticks:
            window = self._board.channel(ChannelKey(native, DEEP_LEVELS))
            if window is None:
                return None
            self._ticks[native] = _tick_book(window)
        return self._ticks[native]

    def _update(self, channel: PublishedBook, previous: int, changes: TextChanges, now: Now) -> str:
        both = channel.key.depth >= BOTH_SIDES_FROM and not self.aligned
        tick = f'"seqNum":{channel.sequence},"prevSeqNum":{previous}'
        tick += "".join(f",{side}" for side in _sides(changes, both=both))
        topic = f"market.{channel.listing.native}.mbp.{channel.key.depth}"
        return f'{{"ch":"{topic}","ts":{now.ms},"tick":{{{tick}}}}}'

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return frames without changes and pings, or disconnect after two without a pong."""
        frames = [] if self.aligned else self._unchanged(session, now)
        if now.s - session.heartbeats.get("ping", session.opened_s) < PING_S:
            return frames
        if len(session.marks) >= PINGS_UNANSWERED_MAX:
            raise Dropped("ping check expired", PING_EXPIRED)
        session.heartbeats["ping"] = now.s
        session.marks.add(str(now.ms))
        return [*frames, dumped({"ping": now.ms})]

    def _unchanged(self, session: SimulatedSession, now: Now) -> list[str]:
        frames = []
        for topic, key in session.topics.items():
            if key.depth == TOP:
                continue
            channel = self._board.channel(key) if key.depth >= BOTH_SIDES_FROM else None
            if channel is None:
                continue
            if session.heartbeats.get(topic) == channel.updates:
                empty = TextChanges([], [])
                frames.append(self._update(channel, channel.sequence, empty, now))
            session.heartbeats[topic] = channel.updates
        return frames

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of symbols."""
        if path != "/v2/settings/common/symbols":
            return None
        rows = [
            {
                "sc": listing.native,
                "dn": listing.symbol,
                "bc": listing.base.lower(),
                "bcdn": listing.base,
                "qc": listing.quote.lower(),
                "qcdn": listing.quote,
                "state": "online",
                "te": True,
                "cd": False,
                "whe": False,
                "sp": "main",
                "tpp": listing.price_decimals,
                "tap": listing.amount_decimals,
                "ttp": 8,
                "fp": 8,
                "tags": "",
            }
            for listing in self._board.listings.values()
        ]
        return answered({"status": "ok", "data": rows, "ts": str(now.ms), "full": 1})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the symbol of a delta or of a whole book."""
        message = loaded(frame) or {}
        key = _key(message.get("ch")) or (_key(message.get("rep")) if "data" in message else None)
        return key.native if key else None

    @staticmethod
    def is_top(frame: str) -> bool:
        """Return whether a frame is a change of the 20 best levels."""
        return frame.startswith('{"ch":') and f'.mbp.{TICK_LEVELS}"' in frame


def _tick_book(window: PublishedBook) -> TickBook:
    bids, asks = window.top(TICK_LEVELS)
    return TickBook(window.sequence, dict(bids), dict(asks))


def _changed(before: dict[str, str], after: dict[str, str]) -> TextLevels:
    """List the levels that changed, and with an amount of zero those that left the 20 best."""
    gone = [(price, "0") for price in before if price not in after]
    return gone + [(price, each) for price, each in after.items() if before.get(price) != each]


def _key(topic: object) -> ChannelKey | None:
    match = TOPIC.fullmatch(topic) if isinstance(topic, str) else None
    return ChannelKey(match["native"], int(match["levels"])) if match else None


def _done(what: dict[str, object], number: object, now: Now) -> str:
    return dumped({"id": number, "status": "ok", **what, "ts": now.ms})


def _error(words: str, number: object, now: Now) -> str:
    named = {} if number is None else {"id": number}
    error = {"status": "error", "ts": now.ms, "err-code": "bad-request", "err-msg": words}
    return dumped(error | named)


def _sides(book: TextChanges, *, both: bool) -> list[str]:
    sides = {"bids": book.bids, "asks": book.asks}
    return [f'"{side}":{_rows(rows)}' for side, rows in sides.items() if rows or both]


def _rows(levels: TextLevels) -> str:
    return f"[{','.join(f'[{_double(price)},{_double(amount)}]' for price, amount in levels)}]"


def _double(text: str) -> str:
    """Format a number like Java's `Double.toString`: 5.3E-4, 0.001, 12.0, 1.25E7."""
    number = Decimal(text)
    if not number.is_finite():
        return text
    if not number or PLAIN_FROM <= abs(number) < PLAIN_BELOW:
        return text if "." in text else f"{text}.0"
    digits = "".join(map(str, number.normalize().as_tuple().digits))
    return f"{digits[0]}.{digits[1:] or '0'}E{number.adjusted()}"


DIALECT: Final[type[Dialect]] = Htx
