"""Simulated Bitstamp: `order_book`, the best 100 levels whole in every frame.

No frame follows an acknowledgement until the book changes; REST has the book. A client frame must
be shorter than 512 bytes; the 1,025th channel closes the connection. The page does not state the
limit of messages and the words of its error. https://www.bitstamp.net/websocket/v2/
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

DEPTH: Final = 100
TOPIC: Final = "order_book_"
BOOK_PATH: Final = "/api/v2/order_book/"
TOPICS_MAX: Final = 1_024
FRAME_BYTES: Final = 512
TOO_BIG: Final = 1009


class Bitstamp(Dialect):
    """The protocol of ws.bitstamp.net and www.bitstamp.net."""

    profile = Profile(depth=110, spread_ppm=30, offset_ppm_max=15)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "btcusdt", 0, 8),
        ListedSymbol("ETH/USDT", "ethusdt", 1, 8),
        ListedSymbol("BTC/USD", "btcusd", 0, 8),
        ListedSymbol("ETH/USD", "ethusd", 1, 8),
        ListedSymbol("ETH/BTC", "ethbtc", 8, 8),
    )
    rules = ExchangeRules(
        spelling=Spelling(price_places=None, amount_places=None),
        messages=(Most(100),),
        fetches=(Most(400), Most(10_000, 600.0)),
        silence_max_s=120.0,
        ping_s=54.0,
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer heartbeats, subscriptions and unsubscriptions, one channel per request."""
        if len(frame.encode()) >= FRAME_BYTES:
            raise Dropped("Message too big.", TOO_BIG)
        request = loaded(frame)
        if request is None:
            return [_error("Incorrect JSON format.")]
        event, data = request.get("event"), request.get("data")
        if event == "bts:heartbeat":
            return [_message("bts:heartbeat", "", {"status": "success"})]
        topic = data.get("channel") if isinstance(data, dict) else None
        if event not in ("bts:subscribe", "bts:unsubscribe") or not isinstance(topic, str):
            return [_error("Bad subscription string.")]
        if self._board.limits(session, now):
            return [_error("Too many requests.")]
        if not topic.startswith(TOPIC) or not topic.islower():
            return [_error("Invalid channel provided.")]
        if event == "bts:unsubscribe":
            session.topics.pop(topic, None)
            return [_message("bts:unsubscription_succeeded", topic, {})]
        self._subscribe(session, topic)
        return [_message("bts:subscription_succeeded", topic, {})]

    def _subscribe(self, session: SimulatedSession, topic: str) -> None:
        """Subscribe to a pair; an unknown one is acknowledged too."""
        native = topic.removeprefix(TOPIC)
        if not self._board.lists(native):
            return
        if topic not in session.topics and len(session.topics) >= TOPICS_MAX:
            raise Dropped("Too many subscriptions.")
        channel = self._board.subscribe(session, topic, ChannelKey(native, DEPTH))
        if channel is not None:
            channel.snapshot()  # ends a phantom; not sent

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode the whole book after a change."""
        levels = _levels(channel.whole(changes), now)
        return dumped({"data": levels, "channel": TOPIC + channel.listing.native, "event": "data"})

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing: the socket sends protocol pings."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of markets, and the whole book of one market."""
        if path == "/api/v2/markets/":
            return answered([_market(listing) for listing in self._board.listings.values()])
        if not path.startswith(BOOK_PATH):
            return None
        native = path.removeprefix(BOOK_PATH).rstrip("/")
        channel = self._board.channel(ChannelKey(native, DEPTH))
        if channel is None or native in self._board.muted:
            return answered({"status": "error", "reason": "Not found."}, 404)
        return answered(_levels(channel.snapshot(), now))

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the pair of an `order_book` frame with data."""
        message = loaded(frame) or {}
        topic = str(message.get("channel", ""))
        book = message.get("event") == "data" and topic.startswith(TOPIC)
        return topic.removeprefix(TOPIC) if book else None


def _levels(book: TextChanges, now: Now) -> dict[str, Any]:
    times = {"timestamp": str(now.ms // 1_000), "microtimestamp": str(now.ms * 1_000)}
    return times | {"bids": book.bids, "asks": book.asks}


def _market(listing: ListedSymbol) -> dict[str, Any]:
    return {
        "name": listing.symbol,
        "market_symbol": listing.native,
        "base_currency": listing.base,
        "base_decimals": listing.amount_decimals,
        "counter_currency": listing.quote,
        "counter_decimals": listing.price_decimals,
        "minimum_order_value": "10",
        "trading": "Enabled",
        "instant_and_market_orders": "Enabled",
        "description": listing.symbol,
        "market_type": "SPOT",
    }


def _message(event: str, topic: str, data: object) -> str:
    return dumped({"event": event, "channel": topic, "data": data})


def _error(message: str) -> str:
    return _message("bts:error", "", {"code": None, "message": message})


DIALECT: Final[type[Dialect]] = Bitstamp
