"""Simulated bitFlyer: JSON-RPC, `lightning_board_snapshot`, 300 levels in every frame.

The real exchange sends a snapshot about every 5 s; this one sends it after each change, at the rate
of the simulator. A subscription is not answered by a book, and unknown products are accepted too.
The page does not state the limit of requests and the words of its error.
https://lightning.bitflyer.com/docs
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
    TextLevels,
    answered,
    dumped,
    loaded,
)

DEPTH: Final = 300
TOPIC: Final = "lightning_board_snapshot_"
METHODS: Final = ("subscribe", "unsubscribe")
PARSE_ERROR, NO_METHOD, BAD_PARAMS, REPEATED, TOO_MANY = -32700, -32601, -32602, -32009, -32000


class Bitflyer(Dialect):
    """The protocol of ws.lightstream.bitflyer.com and api.bitflyer.com.

    The real exchange has pairs in JPY, BTC, USD and EUR; USDT pairs are for the common market.
    """

    profile = Profile(depth=310, spread_ppm=40, offset_ppm_max=20)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTC_USDT", 0, 8),
        ListedSymbol("ETH/USDT", "ETH_USDT", 1, 7),
        ListedSymbol("BTC/USD", "BTC_USD", 1, 8),
        ListedSymbol("ETH/BTC", "ETH_BTC", 5, 7),
    )
    rules = ExchangeRules(
        messages=(Most(100),), fetches=(Most(500, 300.0),), silence_max_s=60.0, ping_s=15.0
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer subscriptions and unsubscriptions, one channel per request."""
        request = loaded(frame)
        if request is None:
            return [_failed(None, PARSE_ERROR, "Parse error")]
        number, method, params = (request.get(name) for name in ("id", "method", "params"))
        if method not in METHODS:
            return [_failed(number, NO_METHOD, "Method not found")]
        topic = params.get("channel") if isinstance(params, dict) else None
        if not isinstance(topic, str):
            return [_failed(number, BAD_PARAMS, "Invalid params")]
        if not topic.startswith(TOPIC):
            return [_failed(number, BAD_PARAMS, "invalid channel")]
        if self._board.limits(session, now):
            return [_failed(number, TOO_MANY, "Too many requests")]
        if method == "unsubscribe":
            session.topics.pop(topic, None)
        elif topic in session.topics:
            return [_failed(number, REPEATED, "already subscribed")]
        else:
            self._subscribe(session, topic)
        return [dumped({"jsonrpc": "2.0", "id": number, "result": True})]

    def _subscribe(self, session: SimulatedSession, topic: str) -> None:
        native = topic.removeprefix(TOPIC)
        if self._board.lists(native):
            channel = self._board.subscribe(session, topic, ChannelKey(native, DEPTH))
            if channel is not None:
                channel.snapshot()  # ends a phantom; not sent

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode the whole book after a change."""
        book = channel.whole(changes)
        sides = f'"bids":[{_levels(book.bids)}],"asks":[{_levels(book.asks)}]'
        topic = f'"channel":"{TOPIC}{channel.listing.native}"'
        params = f'{{{topic},"message":{{"mid_price":{book.asks[0][0]},{sides}}}}}'
        return f'{{"jsonrpc":"2.0","method":"channelMessage","params":{params}}}'

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing: the socket sends protocol pings."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of markets."""
        if path != "/v1/getmarkets":
            return None
        listings = self._board.listings.values()
        return answered([{"product_code": each.native, "market_type": "Spot"} for each in listings])

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the product of a board snapshot."""
        params: Any = (loaded(frame) or {}).get("params")
        topic = str(params.get("channel", "")) if isinstance(params, dict) else ""
        return topic.removeprefix(TOPIC) if topic.startswith(TOPIC) else None


def _levels(levels: TextLevels) -> str:
    return ",".join(f'{{"price":{price},"size":{size}}}' for price, size in levels)


def _failed(number: object, code: int, message: str) -> str:
    return dumped({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}})


DIALECT: Final[type[Dialect]] = Bitflyer
