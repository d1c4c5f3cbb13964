"""Simulated Bitget, v3 public protocol: `books` of 1000 levels, chained by `pseq`, and `books1`.

Both have one `seq`. `books1` is sent whole at each change of the best prices, and once with the
subscription; its `pseq` is not 0 but names nothing that a client keeps.

Clients must send text `ping`: one that sends nothing for two minutes is disconnected even while it
receives data. The arguments of a request may have up to 4096 bytes and are answered one by one;
more than 20 close the connection. A pair under another `instType` is acknowledged and then silent.
https://www.bitget.com/docs/uta/websocket/public/Order-Book-Channel
"""

from collections.abc import Mapping
from typing import Any, Final

from onebook.simulator.kit import (
    CONNECTION_ID,
    ChannelKey,
    Dialect,
    Dropped,
    ExchangeRules,
    ListedSymbol,
    Most,
    Now,
    Profile,
    PublishedBook,
    RestReply,
    SimulatedSession,
    TextChanges,
    answered,
    dumped,
    loaded,
)

DEPTH: Final = 1_000
ARGUMENTS_MAX: Final = 20
ARGUMENTS_BYTES_MAX: Final = 4_096
CHANNELS_MAX: Final = 1_000
NO_PREVIOUS: Final = 0
CHECKSUM: Final = 1_153_969_492  # from an update of 2026-04-28; its rule is unknown
FAMILIES: Final = ("spot", "usdt-futures", "usdc-futures", "coin-futures")


class Bitget(Dialect):
    """The protocol of ws.bitget.com and api.bitget.com."""

    profile = Profile(depth=400, spread_ppm=5, offset_ppm_max=10)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTCUSDT", 2, 6),
        ListedSymbol("ETH/USDT", "ETHUSDT", 2, 4),
        ListedSymbol("SOL/USDT", "SOLUSDT", 2, 4),
        ListedSymbol("DOGE/USDT", "DOGEUSDT", 5, 4),
        ListedSymbol("ETH/BTC", "ETHBTC", 5, 4),
    )
    rules = ExchangeRules(
        clock=(
            "/api/v2/public/time",
            lambda now: {
                "code": "00000",
                "msg": "success",
                "requestTime": now.ms,
                "data": {"serverTime": str(now.ms)},
            },
        ),
        states=2,
        messages=(Most(10),),
        requests=(Most(240, 3_600.0),),
        connects=(Most(300, 300.0),),
        silence_max_s=120.0,
        traffic_counts=False,
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer `ping`, subscriptions and unsubscriptions; each argument has its own answer."""
        if frame == "ping":
            return ["pong"]
        request = loaded(frame) or {}
        operation, args = request.get("op"), request.get("args")
        if operation not in ("subscribe", "unsubscribe") or not isinstance(args, list):
            return [_error(30003, "INVALID op")]
        if len(dumped(args)) > ARGUMENTS_BYTES_MAX:
            return [_error(30016, "Param error")]
        if len(args) > ARGUMENTS_MAX:
            raise Dropped("too many arguments")
        if self._board.limits(session, now):
            return [_error(30006, "request too many")]
        act = {"subscribe": self._subscribe, "unsubscribe": self._unsubscribe}[operation]
        return [reply for arg in args for reply in act(session, arg, now)]

    def _subscribe(self, session: SimulatedSession, arg: dict[str, Any], now: Now) -> list[str]:
        family, native = arg.get("instType"), str(arg.get("symbol"))
        topic = arg.get("topic")
        if topic not in ("books", "books1") or family not in FAMILIES or self._board.nameless:
            return [_error(30016, "Param error")]
        if not self._board.lists(native) or len(session.topics) >= CHANNELS_MAX:
            return [_error(30001, f"{dumped(arg)} doesn't exist")]
        ack = _answer("subscribe", arg)
        if family != "spot":
            return [ack]
        if topic == "books1":
            window = self._board.follow_top(session, _top_topic(native), native, DEPTH)
            return [ack] if window is None else [ack, self.top(window, now)]
        window = self._board.subscribe(session, native, ChannelKey(native, DEPTH))
        if window is None:
            return [ack]
        return [ack, _frame(window, "snapshot", window.snapshot(), NO_PREVIOUS, now)]

    def _unsubscribe(self, session: SimulatedSession, arg: dict[str, Any], now: Now) -> list[str]:
        native = str(arg.get("symbol"))
        session.topics.pop(native if arg.get("topic") == "books" else _top_topic(native), None)
        return [_answer("unsubscribe", arg)]

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode an update of `books`."""
        return _frame(channel, "update", changes, channel.previous, now)

    def top(self, channel: PublishedBook, now: Now) -> str:
        """Encode a frame of `books1`."""
        return _frame(channel, "snapshot", channel.top(1), channel.previous, now, topic="books1")

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing: the client sends pings."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the instruments of the requested category."""
        if path != "/api/v3/market/instruments":
            return None
        if query.get("category") != "SPOT":
            return answered({"code": "40034", "msg": "Parameter category error", "data": None}, 400)
        rows = [
            {
                "symbol": listing.native,
                "category": "SPOT",
                "baseCoin": listing.base,
                "quoteCoin": listing.quote,
                "pricePrecision": str(listing.price_decimals),
                "quantityPrecision": str(listing.amount_decimals),
                "minOrderQty": "0",
                "minOrderAmount": "1",
                "status": "online",
            }
            for listing in self._board.listings.values()
        ]
        return answered({"code": "00000", "msg": "success", "requestTime": now.ms, "data": rows})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the pair of a `books` or `books1` frame; None for a frame without data."""
        message = loaded(frame) or {}
        arg = message.get("arg") or {}
        is_book = arg.get("topic") in ("books", "books1") and "data" in message
        return arg.get("symbol") if is_book else None

    @staticmethod
    def is_top(frame: str) -> bool:
        """Return whether a frame is of `books1`."""
        return '"books1"' in frame


def _top_topic(native: str) -> str:
    return f"books1:{native}"


def _frame(
    channel: PublishedBook,
    action: str,
    book: TextChanges,
    previous: int,
    now: Now,
    *,
    topic: str = "books",
) -> str:
    native = channel.listing.native
    item = {
        "a": book.asks,
        "b": book.bids,
        "seq": channel.sequence,
        "pseq": previous,
        "ts": str(now.ms),
        "maxdepth": str(DEPTH),
        "checksum": 0 if action == "snapshot" else CHECKSUM,
    }
    arg = {"instType": "spot", "topic": topic, "symbol": native}
    return dumped({"action": action, "arg": arg, "data": [item], "ts": now.ms})


def _answer(event: str, arg: dict[str, Any]) -> str:
    return dumped({"event": event, "arg": arg, "connId": CONNECTION_ID})


def _error(code: int, words: str) -> str:
    return dumped({"event": "error", "code": code, "msg": words, "connId": CONNECTION_ID})


DIALECT: Final[type[Dialect]] = Bitget
