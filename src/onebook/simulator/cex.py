"""Simulated CEX.IO Spot Trading, public socket: `order_book_subscribe`, 20 numbered levels.

A subscription is answered by a snapshot, and so is a second one. Numbers are padded with zeros, and
the levels of an increment are unsorted. A request that has no `oid` or is not a JSON object, and
one beyond 100 a minute and address, close the connection with `disconnected`. A silent client is
disconnected after 60 s, as on the real exchange, not after the page's 10 s. The error message of
the limit is our choice.
https://trade.cex.io/docs/#websocket-public-api-calls-order-book-subscribe
"""

from collections.abc import Mapping
from typing import Any, Final

from onebook.simulator.kit import (
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
    Spelling,
    TextChanges,
    answered,
    dumped,
    loaded,
)

DEPTH: Final = 20
NORMAL: Final = 1000
LEAVING: Final = "leaving"
DISCONNECTED: Final = '{"e":"disconnected"}'
PAIRS: Final = "/api/spot/rest-public/get_pairs_info"


class Cex(Dialect):
    """The protocol of trade.cex.io."""

    profile = Profile(depth=24, spread_ppm=40, offset_ppm_max=25)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTC-USDT", 1, 8),
        ListedSymbol("ETH/USDT", "ETH-USDT", 2, 6),
        ListedSymbol("SOL/USDT", "SOL-USDT", 3, 6),
        ListedSymbol("DOGE/USDT", "DOGE-USDT", 5, 6),
        ListedSymbol("BTC/USD", "BTC-USD", 1, 8),
        ListedSymbol("ETH/BTC", "ETH-BTC", 6, 6),
    )
    rules = ExchangeRules(
        spelling=Spelling(amount_places=None),
        requests=(Most(100, 60.0, per_address=True),),
        silence_max_s=60.0,
        traffic_counts=False,
        heartbeat_s=1.0,
    )

    def opened(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return the greeting."""
        return ['{"e":"connected"}']

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer pings, subscriptions and unsubscriptions."""
        request = loaded(frame) or {}
        kind, oid = str(request.get("e")), request.get("oid")
        if kind == "ping":
            return ['{"e":"pong"}']
        if not isinstance(oid, str):
            session.marks.add(LEAVING)
            # The real exchange only disconnects; the message helps clients of the simulator.
            return [_reply(kind, "0", {"error": "Malformed message"}), DISCONNECTED]
        if self._board.limits(session, now):
            session.marks.add(LEAVING)
            return [_reply(kind, oid, {"error": "API rate limit reached"})]
        match request:
            case {"e": "order_book_subscribe", "data": {"pair": str(pair)}}:
                return self._subscribe(session, kind, oid, pair)
            case {"e": "order_book_unsubscribe", "data": {"pair": str(pair)}}:
                session.topics.pop(pair, None)
                return [_reply(kind, oid, {"pair": pair}, ok="ok")]
        session.marks.add(LEAVING)
        return [_reply(kind, oid, {"error": f"Unsupported message type {kind}"}), DISCONNECTED]

    def _subscribe(self, session: SimulatedSession, kind: str, oid: str, pair: str) -> list[str]:
        if not self._board.lists(pair):
            if self._board.nameless:
                return [_reply(kind, "0", {"error": "market_data is on maintenance"})]
            return [_reply(kind, oid, {"error": f"Currency pair {pair} is not supported"})]
        window = self._board.subscribe(session, pair, ChannelKey(pair, DEPTH))
        if window is None:
            return []
        return [_reply(kind, oid, _book(window, window.snapshot()), ok="ok")]

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode an increment, worst levels first."""
        worst_first = TextChanges(changes.bids[::-1], changes.asks[::-1])
        data = _book(channel, worst_first)
        return dumped({"e": "order_book_increment", "data": data, "ok": "ok"})

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing, but disconnect a client after an invalid request."""
        if LEAVING in session.marks:
            raise Dropped("A request was malformed or one too many.", NORMAL)
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer requests without parameters."""
        return None

    def post(self, path: str, host: str, now: Now) -> RestReply | None:
        """Answer the list of pairs."""
        if path not in (PAIRS, "/get_pairs_info"):
            return None
        rows = [
            {
                "base": listing.base,
                "quote": listing.quote,
                "baseMin": "0.0001",
                "baseMax": "1000",
                "baseLotSize": listing.lot,
                "quoteMin": "10",
                "quoteMax": "1000000",
                "quoteLotSize": "0.01000000",
                "basePrecision": str(listing.amount_decimals),
                "quotePrecision": "8",
                "pricePrecision": str(listing.price_decimals),
                "minPrice": "0.1",
                "maxPrice": "1000000",
            }
            for listing in self._board.listings.values()
        ]
        return answered({"ok": "ok", "data": rows})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the pair of a frame of a book."""
        match loaded(frame):
            case {
                "e": "order_book_subscribe" | "order_book_increment",
                "data": {"pair": str(pair)},
            }:
                return pair
        return None


def _book(channel: PublishedBook, book: TextChanges) -> dict[str, Any]:
    return {
        "seqId": channel.updates,
        "pair": channel.listing.native,
        "bids": book.bids,
        "asks": book.asks,
    }


def _reply(kind: str, oid: str, data: dict[str, Any], **more: str) -> str:
    return dumped({"e": kind, "oid": oid, "data": data} | more)


DIALECT: Final[type[Dialect]] = Cex
