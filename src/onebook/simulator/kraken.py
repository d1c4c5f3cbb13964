"""Simulated Kraken, WebSocket v2 `book` channel: bare numbers and a CRC-32 of their digits.

Levels pushed out of the subscribed depth by better ones are not announced: clients truncate.
The checksum covers the best 10 asks, then bids: digits of price and qty as printed, without the
dot and leading zeros. https://docs.kraken.com/api/docs/guides/spot-ws-book-v2
"""

from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

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
    Spelling,
    TextChanges,
    TextLevels,
    answered,
    dumped,
    loaded,
)

DEPTHS: Final = (10, 25, 100, 500, 1_000)
CHECKSUM_LEVELS: Final = 10
HEARTBEAT_S: Final = 1.0
# Percent by the volume of 30 days in dollars, as in a recorded answer.
TAKER_FEES: Final = [[0, 0.26], [50_000, 0.24], [10_000_000, 0.1]]
MAKER_FEES: Final = [[0, 0.16], [50_000, 0.14], [10_000_000, 0]]
# REST still uses the old codes, the socket does not.
REST_CODES: Final = {"BTC": "XBT", "DOGE": "XDG"}


def status(system: str) -> str:
    """Encode the state of the trading engine."""
    data = {
        "version": "2.0.10",
        "system": system,
        "api_version": "v2",
        "connection_id": 12393906104898154338,
    }
    return dumped({"channel": "status", "type": "update", "data": [data]})


class Kraken(Dialect):
    """The protocol of ws.kraken.com/v2 and api.kraken.com."""

    profile = Profile(depth=130, spread_ppm=10, offset_ppm_max=12)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTC/USDT", 1, 8),
        ListedSymbol("ETH/USDT", "ETH/USDT", 2, 8),
        ListedSymbol("SOL/USDT", "SOL/USDT", 2, 8),
        ListedSymbol("DOGE/USDT", "DOGE/USDT", 7, 8),
        ListedSymbol("BTC/USD", "BTC/USD", 1, 8),
        ListedSymbol("ETH/USD", "ETH/USD", 2, 8),
        ListedSymbol("ETH/BTC", "ETH/BTC", 5, 8),
        ListedSymbol("BTC/USDC", "BTC/USDC", 1, 8),
        ListedSymbol("USDC/USDT", "USDC/USDT", 4, 8),
        ListedSymbol("USDT/USD", "USDT/USD", 5, 8),
    )
    rules = ExchangeRules(
        spelling=Spelling(price_places=None, amount_places=None),
        silent_cuts=True,
        messages=(Most(50),),
        connects=(Most(150, 600.0),),
        silence_max_s=60.0,
        heartbeat_s=HEARTBEAT_S,
        status=status,
    )

    def opened(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return the system status."""
        return [status(self._board.system)]

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer pings, subscriptions and unsubscriptions; each symbol has its own answer."""
        request = loaded(frame) or {}
        method, params = request.get("method"), request.get("params", {})
        if method == "ping":
            return [dumped(_timed({"method": "pong"}, request, now))]
        if method not in ("subscribe", "unsubscribe") or params.get("channel") != "book":
            return [_failed(request, "Unsupported method or channel", "", now)]
        act = self._subscribe if method == "subscribe" else self._unsubscribe
        if self._board.limits(session, now):
            return [dumped({"Error": "Exceeded msg rate"})]
        return [
            reply
            for symbol in params.get("symbol", [])
            for reply in act(session, symbol, request, now)
        ]

    def _subscribe(
        self, session: SimulatedSession, symbol: str, request: dict[str, Any], now: Now
    ) -> list[str]:
        depth = request["params"].get("depth", 10)
        if depth not in DEPTHS:
            return [_failed(request, "Depth not supported", symbol, now)]
        if not self._board.lists(symbol) and self._board.nameless:
            return [_failed(request, "Subscription depth not supported", "", now)]
        if not self._board.lists(symbol):
            return [_failed(request, f"Currency pair not supported {symbol}", symbol, now)]
        if symbol in session.topics:
            return [_failed(request, "Already subscribed", symbol, now)]
        window = self._board.subscribe(session, symbol, ChannelKey(symbol, depth))
        replies = [_done(request, symbol, depth, now)]
        if window is not None and request["params"].get("snapshot", True):
            replies.append(_frame(window, "snapshot", window.snapshot(), now))
        return replies

    def _unsubscribe(
        self, session: SimulatedSession, symbol: str, request: dict[str, Any], now: Now
    ) -> list[str]:
        key = session.topics.pop(symbol, None)
        if key is None:
            return [_failed(request, "Subscription Not Found", symbol, now)]
        return [_done(request, symbol, key.depth, now)]

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode an update with the checksum of the book after it."""
        return _frame(channel, "update", changes, now)

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return a frame a second for a client with a subscription, regardless of other frames.

        The page promises it only for idle connections; recordings under load have all of them.
        """
        return ['{"channel":"heartbeat"}'] if session.topics else []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the asset pairs, in the old codes."""
        if path != "/0/public/AssetPairs":
            return None
        pairs = {}
        for listing in self._board.listings.values():
            base, quote = (REST_CODES.get(code, code) for code in (listing.base, listing.quote))
            pairs[f"{base}{quote}"] = {
                "altname": f"{base}{quote}",
                "wsname": f"{base}/{quote}",
                "base": _legacy(base),
                "quote": _legacy(quote),
                "pair_decimals": listing.price_decimals,
                "lot_decimals": listing.amount_decimals,
                "fees": TAKER_FEES,
                "fees_maker": MAKER_FEES,
                "fee_volume_currency": "ZUSD",
                "ordermin": listing.lot,
                "costmin": "0.5",
                "tick_size": listing.tick,
                "status": "online",
            }
        return answered({"error": [], "result": pairs})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the symbol of a `book` frame."""
        message = loaded(frame) or {}
        book = message.get("channel") == "book" and message.get("data")
        return message["data"][0].get("symbol") if book else None


def checksum(bids: TextLevels, asks: TextLevels) -> int:
    """Return Kraken's CRC-32 of the best 10 asks, then bids."""
    levels = asks[:CHECKSUM_LEVELS] + bids[:CHECKSUM_LEVELS]
    digits = "".join(text.replace(".", "").lstrip("0") for level in levels for text in level)
    return crc32(digits.encode())


def _frame(channel: PublishedBook, kind: str, book: TextChanges, now: Now) -> str:
    """Format the JSON by hand, so that numbers keep the digits of the checksum."""
    top = channel.top(CHECKSUM_LEVELS)
    return (
        f'{{"channel":"book","type":"{kind}","data":[{{"symbol":"{channel.listing.native}",'
        f'"bids":{_levels(book.bids)},"asks":{_levels(book.asks)},'
        f'"checksum":{checksum(top.bids, top.asks)},"timestamp":"{now.rfc3339()}"}}]}}'
    )


def _levels(levels: TextLevels) -> str:
    objects = (f'{{"price":{price},"qty":{amount}}}' for price, amount in levels)
    return f"[{','.join(objects)}]"


def _done(request: dict[str, Any], symbol: str, depth: int, now: Now) -> str:
    result = {"channel": "book", "depth": depth, "snapshot": True, "symbol": symbol}
    reply = {"method": request["method"], "result": result, "success": True}
    return dumped(_timed(reply, request, now))


def _failed(request: dict[str, Any], text: str, symbol: str, now: Now) -> str:
    reply = {"error": text, "method": request.get("method"), "success": False, "symbol": symbol}
    return dumped(_timed(reply, request, now))


def _timed(reply: dict[str, Any], request: dict[str, Any], now: Now) -> dict[str, Any]:
    number = {"req_id": request["req_id"]} if "req_id" in request else {}
    return reply | {"time_in": now.rfc3339(), "time_out": now.rfc3339()} | number


def _legacy(code: str) -> str:
    prefixes = {"XBT": "X", "ETH": "X", "XDG": "X", "USD": "Z"}
    return prefixes.get(code, "") + code


DIALECT: Final[type[Dialect]] = Kraken
