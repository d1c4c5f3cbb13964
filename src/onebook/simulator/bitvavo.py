"""Simulated Bitvavo: the channel `book` and the action `getBook`.

A subscription sends only deltas, numbered one by one; its answer lists every subscription of the
socket. An unknown market is named in an error of code 205, which fails the whole request (our
choice). A subscription of a halted market is accepted, but its book is refused. Deltas are unsorted
with padded prices, books are sorted and unpadded. Subscriptions and actions cost points, a thousand
a minute and address. The server sends protocol pings every 50 s.
https://docs.bitvavo.com/docs/websocket-api/book-subscription
https://docs.bitvavo.com/docs/websocket-api/get-order-book
https://docs.bitvavo.com/docs/rate-limits
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
    Spelling,
    TextChanges,
    TextLevels,
    answered,
    dumped,
    loaded,
)

FULL: Final = 5_000  # deeper than any simulated book
LEVELS_MAX: Final = 1_000
NANOSECONDS: Final = 1_000_000  # of a millisecond


class Bitvavo(Dialect):
    """The protocol of ws.bitvavo.com and api.bitvavo.com, with USDT pairs instead of euros."""

    profile = Profile(depth=150, spread_ppm=25, offset_ppm_max=20)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTC-USDT", 2, 8),
        ListedSymbol("ETH/USDT", "ETH-USDT", 2, 8),
        ListedSymbol("SOL/USDT", "SOL-USDT", 3, 8),
        ListedSymbol("DOGE/USDT", "DOGE-USDT", 6, 8),
        ListedSymbol("ETH/BTC", "ETH-BTC", 6, 8),
    )
    rules = ExchangeRules(
        clock=("/v2/time", lambda now: {"time": now.ms}),
        spelling=Spelling(price_places=None),
        messages=(Most(5_000),),
        requests=(Most(1_000, 60.0, per_address=True),),
        fetches=(Most(1_000, 60.0),),
        silence_max_s=86_400.0,  # silent clients are detected by pings
        ping_s=50.0,
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer subscriptions, unsubscriptions and `getBook`."""
        request = loaded(frame)
        if request is None:
            return [dumped({"errorCode": 102, "error": "Invalid JSON."})]
        action = request.get("action")
        if self._board.limits(session, now):
            return [_error(action, 110, "Your rate limit is exceeded.")]
        match request:
            case {"action": "getBook", "market": str(market)}:
                return self._book(market, request, now)
            case {"action": "subscribe", "channels": [{"name": "book", "markets": [*markets]}]}:
                return self._subscribe(session, markets)
            case {"action": "unsubscribe", "channels": [{"name": "book", "markets": [*markets]}]}:
                for market in markets:
                    session.topics.pop(market, None)
                return [_state("unsubscribed", session)]
        return [_error("unknown", 415, "Invalid action. Please check the request.")]

    def _subscribe(self, session: SimulatedSession, markets: list[Any]) -> list[str]:
        bad = next((market for market in markets if not self._board.lists(str(market))), None)
        if bad is not None:
            return [_error("subscribe", *self._unlisted(bad))]
        muted = [market for market in markets if market in self._board.muted]
        for market in markets:
            self._board.subscribe(session, market, ChannelKey(market, FULL))
        return [_state("subscribed", session, muted)]

    def _book(self, market: str, request: dict[str, Any], now: Now) -> list[str]:
        head = {"action": "getBook", "requestId": request.get("requestId")}
        window = self._board.channel(ChannelKey(market, FULL))
        if window is None or not self._board.lists(market):
            return [_error("getBook", *self._unlisted(market), head | {"market": market})]
        if market in self._board.muted:
            words = f"getBook is not available for {market} in state HALTED"
            return [_error("getBook", 431, words, head | {"market": market})]
        whole = window.snapshot()
        depth = min(int(request.get("depth", LEVELS_MAX)), LEVELS_MAX)
        trimmed = TextChanges(_trimmed(whole.bids[:depth]), _trimmed(whole.asks[:depth]))
        return [dumped({**head, "response": _book(window, trimmed, now)})]

    def _unlisted(self, market: str) -> tuple[int, str]:
        name = "" if self._board.nameless else f" {market}"
        return 205, f"market parameter{name} is invalid."

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode an update with unsorted levels."""
        unsorted = TextChanges(changes.bids[::-1], changes.asks[::-1])
        return dumped({"event": "book", **_book(channel, unsorted, now)})

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing: the socket sends protocol pings."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of markets."""
        if path != "/v2/markets":
            return None
        return answered([_market(listing) for listing in self._board.listings.values()])

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the market of a delta or of a whole book."""
        message = loaded(frame) or {}
        if message.get("event") == "book":
            return message.get("market")
        whole = message.get("action") == "getBook" and message.get("response")
        return whole.get("market") if whole else None


def _market(listing: ListedSymbol) -> dict[str, object]:
    return {
        "market": listing.native,
        "status": "trading",
        "base": listing.base,
        "quote": listing.quote,
        "pricePrecision": None,
        "minOrderInQuoteAsset": "5.00",
        "minOrderInBaseAsset": "0.001",
        "orderTypes": ["market", "limit"],
        "quantityDecimals": listing.amount_decimals,
        "tickSize": listing.tick,
    }


def _book(channel: PublishedBook, book: TextChanges, now: Now) -> dict[str, object]:
    return {
        "market": channel.listing.native,
        "nonce": channel.updates,
        "bids": book.bids,
        "asks": book.asks,
        "timestamp": now.ms * NANOSECONDS,
    }


def _trimmed(levels: TextLevels) -> TextLevels:
    return [
        (price.rstrip("0").rstrip(".") if "." in price else price, amount)
        for price, amount in levels
    ]


def _state(event: str, session: SimulatedSession, silent: list[str] | None = None) -> str:
    markets = list(dict.fromkeys([*session.topics, *(silent or [])]))
    return dumped({"event": event, "subscriptions": {"book": markets}})


def _error(action: object, code: int, words: str, about: dict[str, Any] | None = None) -> str:
    return dumped({"action": action, **(about or {}), "errorCode": code, "error": words})


DIALECT: Final[type[Dialect]] = Bitvavo
