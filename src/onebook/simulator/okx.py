"""Simulated OKX, v5 public protocol: `books`, chained by `prevSeqId`, and `bbo-tbt`.

Both number the states of an instrument by one `seqId`; `bbo-tbt` is sent every 10 ms if the best
bid or ask changed, always whole, and once with the subscription.
An unchanged book sends an empty update about every 60 s. Each connection has 480 requests an hour.
The checksum is always 0, as on the exchange since 2026. A client that neither sends nor receives
anything for 30 s is disconnected; text `ping` is answered by text `pong`.
https://www.okx.com/docs-v5/en/#order-book-trading-market-data-ws-order-book-channel
"""

from collections.abc import Mapping
from typing import Any, Final

from onebook.simulator.kit import (
    CONNECTION_ID,
    TOP,
    ChannelKey,
    Dialect,
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

DEPTH: Final = 400
ARGUMENTS_BYTES_MAX: Final = 65_536
NO_PREVIOUS: Final = -1
UNCHANGED_S: Final = 60.0


class Okx(Dialect):
    """The protocol of ws.okx.com and www.okx.com."""

    profile = Profile(depth=400, spread_ppm=4, offset_ppm_max=8)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTC-USDT", 1, 8),
        ListedSymbol("ETH/USDT", "ETH-USDT", 2, 6),
        ListedSymbol("SOL/USDT", "SOL-USDT", 2, 6),
        ListedSymbol("DOGE/USDT", "DOGE-USDT", 5, 6),
        ListedSymbol("BTC/USD", "BTC-USD", 1, 8),
        ListedSymbol("ETH/USD", "ETH-USD", 2, 6),
        ListedSymbol("ETH/BTC", "ETH-BTC", 5, 6),
        ListedSymbol("BTC/USDC", "BTC-USDC", 1, 8),
        ListedSymbol("USDC/USDT", "USDC-USDT", 4, 6),
    )
    rules = ExchangeRules(
        clock=(
            "/api/v5/public/time",
            lambda now: {"code": "0", "data": [{"ts": str(now.ms)}], "msg": ""},
        ),
        states=2,
        requests=(Most(480, 3_600.0),),
        connects=(Most(3, 1.0),),
        silence_max_s=30.0,
        heartbeat_s=1.0,
    )

    def __init__(self, board: ExchangeBoard) -> None:
        super().__init__(board)
        self._changed: dict[ChannelKey, float] = {}

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer `ping`, subscriptions and unsubscriptions."""
        if frame == "ping":
            return ["pong"]
        request = loaded(frame) or {}
        operation, args = request.get("op"), request.get("args")
        if operation not in ("subscribe", "unsubscribe") or not isinstance(args, list):
            return [_error("60012", f"Invalid request: {frame[:200]}")]
        if len(dumped(args)) > ARGUMENTS_BYTES_MAX:
            return [_error("60013", "Invalid args: longer than 64 KB")]
        if self._board.limits(session, now):
            return [_error("60014", "Requests too frequent")]
        act = {"subscribe": self._subscribe, "unsubscribe": self._unsubscribe}[operation]
        return [reply for arg in args for reply in act(session, arg, now)]

    def _subscribe(self, session: SimulatedSession, arg: dict[str, Any], now: Now) -> list[str]:
        channel, native = arg.get("channel"), str(arg.get("instId"))
        if channel not in ("books", "bbo-tbt") or not self._board.lists(native):
            if self._board.nameless:
                return [_error("60012", "Illegal request")]
            text = f"Wrong URL or channel:{channel},instId:{native} doesn't exist."
            return [_error("60018", text)]
        ack = dumped({"event": "subscribe", "arg": arg, "connId": CONNECTION_ID})
        if channel == "bbo-tbt":
            window = self._board.follow_top(session, _top_topic(native), native, DEPTH)
            return [ack] if window is None else [ack, self.top(window, now)]
        window = self._board.subscribe(session, native, ChannelKey(native, DEPTH))
        if window is None:
            return [ack]
        return [ack, _frame(window, "snapshot", window.snapshot(), NO_PREVIOUS, now)]

    def _unsubscribe(self, session: SimulatedSession, arg: dict[str, Any], now: Now) -> list[str]:
        native = str(arg.get("instId"))
        session.topics.pop(native if arg.get("channel") == "books" else _top_topic(native), None)
        return [dumped({"event": "unsubscribe", "arg": arg, "connId": CONNECTION_ID})]

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode an update of `books`."""
        self._changed[channel.key] = now.s
        return _frame(channel, "update", changes, channel.previous, now)

    def top(self, channel: PublishedBook, now: Now) -> str:
        """Encode a frame of `bbo-tbt`."""
        best = channel.top(1)
        data = {
            "asks": _rows(best.asks),
            "bids": _rows(best.bids),
            "ts": str(now.ms),
            "seqId": channel.sequence,
        }
        arg = {"channel": "bbo-tbt", "instId": channel.listing.native}
        return dumped({"arg": arg, "data": [data]})

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return an empty update of each book that has not changed for a while."""
        frames = []
        for topic, key in session.topics.items():
            if key.depth == TOP:
                continue
            spoke_s = max(self._changed.get(key, 0.0), session.heartbeats.setdefault(topic, now.s))
            window = self._board.channel(key) if now.s - spoke_s >= UNCHANGED_S else None
            if window is not None:
                session.heartbeats[topic] = now.s
                frames.append(_frame(window, "update", UNCHANGED, window.sequence, now))
        return frames

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of instruments."""
        if path != "/api/v5/public/instruments":
            return None
        rows = [
            {
                "instType": "SPOT",
                "instId": listing.native,
                "baseCcy": listing.base,
                "quoteCcy": listing.quote,
                "state": "live",
                "tickSz": listing.tick,
                "lotSz": listing.lot,
                "minSz": listing.lot,
            }
            for listing in self._board.listings.values()
        ]
        return answered({"code": "0", "data": rows, "msg": ""})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the instrument of a frame of `books` or `bbo-tbt` with data."""
        message = loaded(frame) or {}
        arg = message.get("arg") or {}
        is_book = arg.get("channel") in ("books", "bbo-tbt") and "data" in message
        return arg.get("instId") if is_book else None

    @staticmethod
    def is_top(frame: str) -> bool:
        """Return whether a frame is of `bbo-tbt`."""
        return '"bbo-tbt"' in frame


UNCHANGED: Final = TextChanges([], [])


def _frame(channel: PublishedBook, action: str, book: TextChanges, previous: int, now: Now) -> str:
    data = {
        "asks": _rows(book.asks),
        "bids": _rows(book.bids),
        "ts": str(now.ms),
        "checksum": 0,
        "prevSeqId": previous,
        "seqId": channel.sequence,
    }
    arg = {"channel": "books", "instId": channel.listing.native}
    return dumped({"arg": arg, "action": action, "data": [data]})


def _top_topic(native: str) -> str:
    return f"bbo-tbt:{native}"


def _rows(levels: TextLevels) -> list[list[str]]:
    return [[price, amount, "0", _orders(amount)] for price, amount in levels]


def _orders(amount: str) -> str:
    return "0" if amount == "0" else "1"


def _error(code: str, message: str) -> str:
    return dumped({"event": "error", "code": code, "msg": message, "connId": CONNECTION_ID})


DIALECT: Final[type[Dialect]] = Okx
