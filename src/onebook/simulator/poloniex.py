"""Simulated Poloniex, spot protocol: `book_lv2`, 20 levels, chained by `lastId`.

A client that sends no ping for 30 s is disconnected, however busy its connection.
https://api-docs.poloniex.com/spot/websocket/market-data
"""

from collections.abc import Mapping
from typing import Final

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

DEPTH: Final = 20
CHANNEL: Final = "book_lv2"


class Poloniex(Dialect):
    """The protocol of ws.poloniex.com and api.poloniex.com."""

    profile = Profile(depth=30, spread_ppm=40, offset_ppm_max=20)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTC_USDT", 2, 6),
        ListedSymbol("ETH/USDT", "ETH_USDT", 2, 6),
        ListedSymbol("SOL/USDT", "SOL_USDT", 3, 3),
        ListedSymbol("DOGE/USDT", "DOGE_USDT", 6, 3),
        ListedSymbol("ETH/BTC", "ETH_BTC", 6, 6),
    )
    rules = ExchangeRules(
        clock=("/timestamp", lambda now: {"serverTime": now.ms}),
        messages=(Most(500),),
        silence_max_s=30.0,
        traffic_counts=False,
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer pings, subscriptions and unsubscriptions."""
        request = loaded(frame) or {}
        event, natives = request.get("event"), request.get("symbols", [])
        if event == "ping" or frame == "ping":
            return ['{"event":"pong"}']
        if event not in ("subscribe", "unsubscribe") or request.get("channel") != [CHANNEL]:
            return [_error("Bad request")]
        if self._board.limits(session, now):
            return [_error("too many requests")]
        unknown = [native for native in natives if not self._board.lists(native)]
        if unknown and self._board.nameless:
            return [dumped({"message": "no valid symbols", "event": "error"})]
        if unknown:
            return [_error(f"Invalid symbols: {','.join(unknown)}")]
        ack = dumped({"event": event, "channel": CHANNEL, "symbols": natives})
        if event == "subscribe":
            return [ack, *self._subscribe(session, natives, now)]
        for native in natives:
            session.topics.pop(native, None)
        return [ack]

    def _subscribe(self, session: SimulatedSession, natives: list[str], now: Now) -> list[str]:
        windows = [
            self._board.subscribe(session, native, ChannelKey(native, DEPTH)) for native in natives
        ]
        return [_frame(window, "snapshot", window.snapshot(), now) for window in windows if window]

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode an update."""
        return _frame(channel, "update", changes, now)

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing: the client sends pings."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of markets."""
        if path != "/markets":
            return None
        return answered(
            [
                {
                    "symbol": listing.native,
                    "baseCurrencyName": listing.base,
                    "quoteCurrencyName": listing.quote,
                    "displayName": listing.symbol,
                    "state": "NORMAL",
                    "symbolTradeLimit": {
                        "symbol": listing.native,
                        "priceScale": listing.price_decimals,
                        "quantityScale": listing.amount_decimals,
                        "minQuantity": listing.lot,
                        "minAmount": "1",
                    },
                }
                for listing in self._board.listings.values()
            ]
        )

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the symbol of a `book_lv2` frame with data."""
        message = loaded(frame) or {}
        book = message.get("channel") == CHANNEL and message.get("data")
        return message["data"][0].get("symbol") if book else None


def _frame(channel: PublishedBook, action: str, book: TextChanges, now: Now) -> str:
    data = {
        "symbol": channel.listing.native,
        "createTime": now.ms,
        "asks": book.asks,
        "bids": book.bids,
        "lastId": channel.previous,
        "id": channel.sequence,
        "ts": now.ms,
    }
    return dumped({"channel": CHANNEL, "data": [data], "action": action})


def _error(message: str) -> str:
    return dumped({"event": "error", "message": message})


DIALECT: Final[type[Dialect]] = Poloniex
