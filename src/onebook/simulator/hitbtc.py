"""Simulated HitBTC, public protocol, API v3: `orderbook/full`, numbered frame by frame.

The answer to a request lists the accepted symbols, without unknown ones. A symbol that is already
subscribed is acknowledged without a second snapshot. A client may send ten requests a second, with
a burst of ten more. The server sends protocol pings every 30 s.
https://api.hitbtc.com/#subscribe-to-full-order-book
"""

from collections.abc import Mapping
from typing import Any, Final

from onebook.simulator.kit import (
    ChannelKey,
    Dialect,
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

CHANNEL: Final = "orderbook/full"
DEPTH: Final = 1_000  # deeper than any simulated book


class Hitbtc(Dialect):
    """The protocol of api.hitbtc.com."""

    profile = Profile(depth=150, spread_ppm=30, offset_ppm_max=20)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTCUSDT", 2, 5),
        ListedSymbol("ETH/USDT", "ETHUSDT", 2, 4),
        ListedSymbol("SOL/USDT", "SOLUSDT", 3, 3),
        ListedSymbol("DOGE/USDT", "DOGEUSDT", 6, 0),
        ListedSymbol("ETH/BTC", "ETHBTC", 6, 4),
    )
    rules = ExchangeRules(
        requests=(Most(20, 1.0),),
        connects=(Most(100, 60.0),),
        silence_max_s=86_400.0,  # silent clients are detected by pings
        ping_s=30.0,
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer subscriptions and unsubscriptions."""
        request = loaded(frame)
        if request is None:
            return [_error(1, "Invalid json", None)]
        number, params = request.get("id"), request.get("params")
        symbols = params.get("symbols") if isinstance(params, dict) else None
        acts = {"subscribe": self._subscribe, "unsubscribe": self._unsubscribe}
        act = acts.get(str(request.get("method")))
        if act is None:
            return [_error(404, "Unsupported API method", number)]
        if request.get("ch") != CHANNEL:
            return [_error(2003, "Unknown channel", number)]
        if not isinstance(symbols, list):
            return [_error(10001, "Validation error", number)]
        if self._board.limits(session, now):
            return [_error(429, "Too many requests", number)]
        return act(session, [str(symbol) for symbol in symbols], number, now)

    def _subscribe(
        self, session: SimulatedSession, symbols: list[str], number: Any, now: Now
    ) -> list[str]:
        taken = [symbol for symbol in symbols if self._board.lists(symbol)]
        if self._board.nameless and len(taken) < len(symbols):
            return [_error(2001, "Symbol not found", None)]
        frames = [_listed(taken, number)]
        for symbol in taken:
            if symbol in session.topics:
                continue
            window = self._board.subscribe(session, symbol, ChannelKey(symbol, DEPTH))
            if window is not None:
                frames.append(_frame(window, "snapshot", window.snapshot(), now))
        return frames

    def _unsubscribe(
        self, session: SimulatedSession, symbols: list[str], number: Any, now: Now
    ) -> list[str]:
        for symbol in symbols:
            session.topics.pop(symbol, None)
        return [_listed(list(session.topics), number)]

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode an update."""
        return _frame(channel, "update", changes, now)

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing: the socket sends protocol pings."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of symbols."""
        if path != "/api/3/public/symbol":
            return None
        return answered({each.native: _facts(each) for each in self._board.listings.values()})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the symbol of a frame that carries a book."""
        message = loaded(frame) or {}
        if message.get("ch") != CHANNEL:
            return None
        return next(iter(message.get("snapshot") or message.get("update") or ()), None)


def _facts(listing: ListedSymbol) -> dict[str, object]:
    return {
        "type": "spot",
        "base_currency": listing.base,
        "quote_currency": listing.quote,
        "status": "working",
        "quantity_increment": listing.lot,
        "tick_size": listing.tick,
        "take_rate": "0.0025",
        "make_rate": "0.001",
        "fee_currency": listing.quote,
    }


def _frame(channel: PublishedBook, kind: str, book: TextChanges, now: Now) -> str:
    change = {"t": now.ms, "s": channel.updates, "a": book.asks, "b": book.bids}
    return dumped({"ch": CHANNEL, kind: {channel.listing.native: change}})


def _listed(symbols: list[str], number: Any) -> str:
    return dumped({"result": {"ch": CHANNEL, "subscriptions": symbols}, "id": number})


def _error(code: int, message: str, number: Any) -> str:
    error = {"code": code, "message": message, "description": ""}
    return dumped({"error": error} | ({} if number is None else {"id": number}))


DIALECT: Final[type[Dialect]] = Hitbtc
