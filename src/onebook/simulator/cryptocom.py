"""Simulated Crypto.com, Exchange v1 market protocol: `book.<pair>.50`, chained by `pu`.

Clients must answer `public/heartbeat`, which is sent every 30 s: one that never does is
disconnected at the third. An unchanged book sends an empty update about every 5 s. Each channel of
a request has its own answer; a connection may have 400. Text that is not JSON is not answered.
https://exchange-docs.crypto.com/exchange/v1/rest-ws/index.html#book-instrument_name-depth
"""

from collections.abc import Mapping
from typing import Any, Final

from onebook.simulator.kit import (
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
    Spelling,
    TextChanges,
    TextLevels,
    answered,
    dumped,
    loaded,
)

DEPTHS: Final = ("10", "50")
FREQUENCIES_MS: Final = (10, 100)
CHANNELS_MAX: Final = 400
HEARTBEAT: Final = "public/heartbeat"
HEARTBEAT_S: Final = 30.0
UNANSWERED_MAX: Final = 2
UNCHANGED_S: Final = 5.0
NORMAL_CLOSURE: Final = 1000
BAD_REQUEST: Final = 40003
TOO_MANY_CHANNELS: Final = 40107
TOO_MANY_REQUESTS: Final = 42901
UNCHANGED: Final = TextChanges([], [])


class Cryptocom(Dialect):
    """The protocol of stream.crypto.com and api.crypto.com."""

    profile = Profile(depth=70, spread_ppm=8, offset_ppm_max=10)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USD", "BTC_USD", 2, 5),
        ListedSymbol("ETH/USD", "ETH_USD", 2, 4),
        ListedSymbol("BTC/USDT", "BTC_USDT", 2, 5),
        ListedSymbol("ETH/USDT", "ETH_USDT", 2, 4),
        ListedSymbol("SOL/USDT", "SOL_USDT", 3, 3),
    )
    rules = ExchangeRules(
        spelling=Spelling(price_places=None, amount_places=None),
        messages=(Most(100),),
        silence_max_s=86_400.0,  # silent clients are detected by heartbeats
        heartbeat_s=1.0,
        ping_s=5.0,
    )

    def __init__(self, board: ExchangeBoard) -> None:
        super().__init__(board)
        self._changed: dict[ChannelKey, float] = {}

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer `subscribe` and `unsubscribe`, and record answers to heartbeats."""
        request = loaded(frame)
        if request is None:
            return []
        number, method = request.get("id"), request.get("method")
        if method == "public/respond-heartbeat":
            if str(number) in session.marks:
                session.marks.clear()
            return []
        if method not in ("subscribe", "unsubscribe"):
            return [_answer(number, str(method), BAD_REQUEST, message="No such method")]
        if self._board.limits(session, now):
            return [_answer(number, method, TOO_MANY_REQUESTS, message="TOO_MANY_REQUESTS")]
        params = request.get("params") or {}
        channels = [str(each) for each in params.get("channels", [])]
        if method == "unsubscribe":
            for channel in channels:
                session.topics.pop(channel, None)
            return [_answer(number, method)]
        return [
            reply
            for channel in channels
            for reply in self._subscribe(session, channel, params, number, now)
        ]

    def _subscribe(
        self,
        session: SimulatedSession,
        channel: str,
        params: dict[str, Any],
        number: object,
        now: Now,
    ) -> list[str]:
        key = _key(channel)
        if self._board.nameless:
            return [_answer(number, "subscribe", BAD_REQUEST, message="Invalid request")]
        problem = self._problem(key, params)
        if problem:
            return [_answer(number, "subscribe", BAD_REQUEST, channel=channel, message=problem)]
        if len(session.topics) >= CHANNELS_MAX:
            words = "Maximum subscriptions exceeded"
            return [_answer(number, "subscribe", TOO_MANY_CHANNELS, message=words)]
        ack = _answer(number, "subscribe", channel=channel)
        if channel in session.topics or key is None:
            return [ack]
        window = self._board.subscribe(session, channel, key)
        return [ack] if window is None else [ack, _whole(window, now)]

    def _problem(self, key: ChannelKey | None, params: dict[str, Any]) -> str:
        if key is None:
            return "Invalid depth"
        if not self._board.lists(key.native):
            return "Unknown symbol"
        if params.get("book_subscription_type") != "SNAPSHOT_AND_UPDATE":
            return "Invalid book_subscription_type"
        if params.get("book_update_frequency") not in FREQUENCIES_MS:
            return "Unsupported depth/interval combination"
        return ""

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode the difference from the previous window."""
        self._changed[channel.key] = now.s
        return _update(channel, changes, channel.previous, now)

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return the heartbeat of the connection, and empty updates of unchanged books."""
        frames = []
        if now.s - session.heartbeats.setdefault(HEARTBEAT, session.opened_s) >= HEARTBEAT_S:
            if len(session.marks) >= UNANSWERED_MAX:
                raise Dropped("", NORMAL_CLOSURE)
            session.heartbeats[HEARTBEAT] = now.s
            session.marks.add(str(now.ms))
            frames.append(_answer(now.ms, HEARTBEAT))
        for topic, key in session.topics.items():
            spoke_s = max(self._changed.get(key, 0.0), session.heartbeats.setdefault(topic, now.s))
            window = self._board.channel(key) if now.s - spoke_s >= UNCHANGED_S else None
            if window is not None:
                session.heartbeats[topic] = now.s
                frames.append(_update(window, UNCHANGED, window.sequence, now))
        return frames

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of instruments."""
        if path != "/exchange/v1/public/get-instruments":
            return None
        rows = [
            {
                "symbol": listing.native,
                "inst_type": "CCY_PAIR",
                "display_name": listing.symbol,
                "base_ccy": listing.base,
                "quote_ccy": listing.quote,
                "quote_decimals": listing.price_decimals,
                "quantity_decimals": listing.amount_decimals,
                "price_tick_size": listing.tick,
                "qty_tick_size": listing.lot,
                "tradable": True,
            }
            for listing in self._board.listings.values()
        ]
        answer = {"id": -1, "method": "public/get-instruments", "code": 0}
        return answered(answer | {"result": {"data": rows}})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the pair of a `book` or `book.update` frame."""
        result = (loaded(frame) or {}).get("result") or {}
        return result.get("instrument_name") if "subscription" in result else None


def _key(channel: str) -> ChannelKey | None:
    prefix, _, rest = channel.partition(".")
    native, _, depth = rest.rpartition(".")
    return ChannelKey(native, int(depth)) if prefix == "book" and depth in DEPTHS else None


def _answer(number: object, method: str, code: int = 0, **more: str) -> str:
    return dumped({"id": number, "method": method, "code": code} | more)


def _whole(channel: PublishedBook, now: Now) -> str:
    book = channel.snapshot()
    item = {"asks": _rows(book.asks), "bids": _rows(book.bids), **_times(now)}
    return _pushed(channel, "book", item | {"u": channel.sequence, "cs": 1})


def _update(channel: PublishedBook, changes: TextChanges, previous: int, now: Now) -> str:
    levels = {"asks": _rows(changes.asks), "bids": _rows(changes.bids)}
    ids = {"u": channel.sequence, "pu": previous, "cs": 1}
    return _pushed(channel, "book.update", {"update": levels, **_times(now), **ids})


def _times(now: Now) -> dict[str, int]:
    return {"t": now.ms, "tt": now.ms - 6}


def _pushed(channel: PublishedBook, kind: str, item: dict[str, Any]) -> str:
    native, depth = channel.listing.native, channel.key.depth
    result = {
        "instrument_name": native,
        "subscription": f"book.{native}.{depth}",
        "channel": kind,
        "depth": depth,
        "data": [item],
    }
    return dumped({"id": -1, "method": "subscribe", "code": 0, "result": result})


def _rows(levels: TextLevels) -> list[tuple[str, str, str]]:
    """Add the number of orders to each level; a removed level has no decimals."""
    gone = {amount: not amount.strip("0.") for _, amount in levels}
    return [(price, "0", "0") if gone[amount] else (price, amount, "1") for price, amount in levels]


DIALECT: Final[type[Dialect]] = Cryptocom
