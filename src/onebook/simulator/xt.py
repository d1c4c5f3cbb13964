"""Simulated XT.com, public spot streams: `depth_update` diffs, books by REST.

A request has a `method`, `params` and an `id` that is echoed; its streams are acknowledged together
or refused because of the first invalid one. REST refuses with status 200 and `rc` 1. A client that
sends no text `ping` for a minute is disconnected, however busy its connection.
https://doc.xt.com/docs/spot/WebSocket%20Public/RequestMessageFormat
"""

from collections.abc import Mapping
from typing import Final

from onebook.simulator.kit import (
    CONNECTION_ID,
    ChannelKey,
    Dialect,
    ExchangeRules,
    ListedSymbol,
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

DEPTH: Final = 5_000
BODY_LEVELS: Final = 50  # default of a request
BODY_LEVELS_MAX: Final = 500
TOPIC: Final = "depth_update"


class Xt(Dialect):
    """The protocol of stream.xt.com and sapi.xt.com."""

    profile = Profile(depth=300, spread_ppm=10, offset_ppm_max=25)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "btc_usdt", 2, 5),
        ListedSymbol("ETH/USDT", "eth_usdt", 2, 4),
        ListedSymbol("SOL/USDT", "sol_usdt", 2, 3),
        ListedSymbol("DOGE/USDT", "doge_usdt", 5, 1),
        ListedSymbol("ETH/BTC", "eth_btc", 5, 4),
    )
    rules = ExchangeRules(
        clock=(
            "/v4/public/time",
            lambda now: {"rc": 0, "mc": "SUCCESS", "ma": [], "result": {"serverTime": now.ms}},
        ),
        spelling=Spelling(price_places=None, amount_places=None),
        silence_max_s=60.0,
        traffic_counts=False,
        deflate=True,
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer the text `ping`, subscriptions and unsubscriptions."""
        if frame == "ping":
            return ["pong"]
        request = loaded(frame) or {}
        method, streams, number = (request.get(each) for each in ("method", "params", "id"))
        if not isinstance(streams, list):
            return [_answer(1, "Invalid parameter", None)]
        if method not in ("subscribe", "unsubscribe"):
            return [_answer(1, "Invalid method", number)]
        if self._board.limits(session, now):
            return [_answer(1, "Too many requests", number)]
        if method == "unsubscribe":
            for stream in streams:
                session.topics.pop(str(stream), None)
            return [_answer(0, "success", number)]
        return [self._subscribe(session, [str(stream) for stream in streams], number)]

    def _subscribe(self, session: SimulatedSession, streams: list[str], number: object) -> str:
        keys = {}
        for stream in streams:
            topic, _, native = stream.partition("@")
            if topic != TOPIC or not native:
                return _answer(1, f"args error: {stream}", number)
            if not self._board.lists(native):
                if self._board.nameless:
                    return _answer(1, "Invalid parameter", None)
                return _answer(1, f"checkSymbol error, symbol:{native}", number)
            keys[stream] = ChannelKey(native, DEPTH)
        for stream, key in keys.items():
            self._board.subscribe(session, stream, key)
        return _answer(0, "success", number)

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode the changes of 100 ms."""
        native = channel.listing.native
        data = {
            "s": native,
            "fi": channel.previous + 1,
            "i": channel.sequence,
            "a": changes.asks,
            "b": changes.bids,
        }
        return dumped({"topic": TOPIC, "event": f"{TOPIC}@{native}", "data": data})

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing: the client sends pings."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer `symbol` and `depth`."""
        if path == "/v4/public/symbol":
            symbols = [_symbol(listing) for listing in self._board.listings.values()]
            return _succeeded({"time": now.ms, "version": CONNECTION_ID, "symbols": symbols})
        return self._depth(query, now) if path == "/v4/public/depth" else None

    def _depth(self, query: Mapping[str, str], now: Now) -> RestReply:
        native = query.get("symbol", "")
        levels = min(int(query.get("limit", BODY_LEVELS)), BODY_LEVELS_MAX)
        lists = self._board.lists(native) and native not in self._board.muted
        channel = self._board.channel(ChannelKey(native, DEPTH)) if lists else None
        if channel is None:
            return answered({"rc": 1, "mc": "SYMBOL_001", "ma": [], "result": None})
        book = channel.snapshot()
        return _succeeded(
            {
                "timestamp": now.ms,
                "lastUpdateId": channel.sequence,
                "bids": book.bids[:levels],
                "asks": book.asks[:levels],
            }
        )

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the symbol of a `depth_update` event."""
        message = loaded(frame) or {}
        data = message.get("data")
        delta = message.get("topic") == TOPIC and isinstance(data, dict)
        return data["s"] if delta and data else None


def _symbol(listing: ListedSymbol) -> dict[str, object]:
    return {
        "id": 614,
        "symbol": listing.native,
        "state": "ONLINE",
        "tradingEnabled": True,
        "openapiEnabled": True,
        "baseCurrency": listing.base.lower(),
        "baseCurrencyPrecision": 10,
        "quoteCurrency": listing.quote.lower(),
        "quoteCurrencyPrecision": 8,
        "pricePrecision": listing.price_decimals,
        "quantityPrecision": listing.amount_decimals,
        "orderTypes": ["LIMIT", "MARKET"],
        "filters": [
            {"filter": "QUANTITY", "min": listing.lot, "max": None, "tickSize": listing.lot},
            {"filter": "QUOTE_QTY", "min": "5"},
        ],
    }


def _succeeded(result: object) -> RestReply:
    return answered({"rc": 0, "mc": "SUCCESS", "ma": [], "result": result})


def _answer(code: int, words: str, number: object) -> str:
    session = {"sessionId": CONNECTION_ID}
    return dumped({"code": code, "msg": words} | ({"id": number} if number else {}) | session)


DIALECT: Final[type[Dialect]] = Xt
