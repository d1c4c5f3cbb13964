"""Simulated Gemini, current socket: `<symbol>@depth@100ms`, the whole book, and `@bookTicker`.

`@bookTicker` is real-time and without an event name; its `u` is of the range of the depth.

`U` of a frame is the `u` of the previous one. With `snapshot` in the address, a subscription is
answered by the whole book, `U == u`, before its acknowledgement. One unknown stream fails the whole
request. https://developer.gemini.com/websocket/streams
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

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
    answered,
    dumped,
    loaded,
)

DEPTH: Final = 5_000
INVALID: Final = -1013
TOO_MANY: Final = -1003
NS_PER_MS: Final = 1_000_000


class Gemini(Dialect):
    """The protocol of ws.gemini.com and api.gemini.com."""

    profile = Profile(depth=300, spread_ppm=8, offset_ppm_max=12)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "btcusdt", 2, 8),
        ListedSymbol("ETH/USDT", "ethusdt", 2, 6),
        ListedSymbol("BTC/USD", "btcusd", 2, 8),
        ListedSymbol("ETH/USD", "ethusd", 2, 6),
        ListedSymbol("ETH/BTC", "ethbtc", 5, 6),
    )
    rules = ExchangeRules(
        states=2,
        spelling=Spelling(price_places=3, amount_places=None),
        requests=(Most(7_000, 10.0),),
        connects=(Most(300, 300.0),),
        silence_max_s=86_400.0,  # a client that was silent for 130 s stayed connected
        ping_s=20.0,
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer pings, subscriptions and unsubscriptions; methods in any case."""
        request = loaded(frame) or {}
        method, streams = str(request.get("method")).lower(), request.get("params")
        if method == "ping":
            return [_ok(request)]
        if method not in ("subscribe", "unsubscribe") or not isinstance(streams, list):
            return [_error(request, 400, INVALID, "Invalid request")]
        if self._board.limits(session, now):
            return [_error(request, 429, TOO_MANY, "Rate limit exceeded")]
        unknown = [each for each in streams if not self._serves(str(each))]
        if unknown and self._board.nameless:
            return [_error({}, 400, INVALID, "Invalid parameters")]
        if unknown:
            return [_error(request, 400, INVALID, f"Invalid stream name: {unknown[0]}")]
        if method == "subscribe":
            return [*self._subscribe(session, streams, now), _ok(request)]
        for stream in streams:
            ticker = _channel(stream) == "bookTicker"
            session.topics.pop(stream.lower() if ticker else _native(stream), None)
        return [_ok(request)]

    def _serves(self, stream: str) -> bool:
        served = _channel(stream) in ("depth@100ms", "bookTicker")
        return served and self._board.lists(_native(stream))

    def _subscribe(self, session: SimulatedSession, streams: list[str], now: Now) -> list[str]:
        tickers = [stream for stream in streams if _channel(stream) == "bookTicker"]
        for stream in tickers:
            self._board.follow_top(session, stream.lower(), _native(stream), DEPTH)
        natives = [_native(stream) for stream in streams if stream not in tickers]
        windows = [
            self._board.subscribe(session, native, ChannelKey(native, DEPTH)) for native in natives
        ]
        if parse_qs(urlsplit(session.path).query).get("snapshot") != ["-1"]:
            return []
        return [
            _frame(window, window.snapshot(), window.sequence, now) for window in windows if window
        ]

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode a `depthUpdate` that starts at the state before it."""
        return _frame(channel, changes, channel.previous, now)

    def top(self, channel: PublishedBook, now: Now) -> str | None:
        """Encode a frame of `@bookTicker`; only of two sides, as others were not seen."""
        best = channel.top(1)
        if not best.bids or not best.asks:
            return None
        (bid, bid_amount), (ask, ask_amount) = best.bids[0], best.asks[0]
        prices = {"b": bid, "B": bid_amount, "a": ask, "A": ask_amount}
        head = {"u": channel.sequence, "E": now.ms * NS_PER_MS, "s": channel.listing.native}
        return dumped(head | prices)

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing: the socket sends protocol pings."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of symbols, in capitals."""
        if path != "/v1/symbols/details/all":
            return None
        return answered([_row(listing) for listing in self._board.listings.values()])

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the symbol of a `depthUpdate` or a book ticker."""
        message = loaded(frame) or {}
        return message.get("s") if message.get("e") == "depthUpdate" or "B" in message else None

    @staticmethod
    def is_top(frame: str) -> bool:
        """Return whether a frame is of `@bookTicker`."""
        return '"B":' in frame


def _channel(stream: str) -> str:
    return stream.partition("@")[2]


def _native(stream: str) -> str:
    return stream.partition("@")[0].lower()


def _row(listing: ListedSymbol) -> dict[str, Any]:
    return {
        "symbol": listing.native.upper(),
        "base_currency": listing.base,
        "quote_currency": listing.quote,
        "tick_size": float(listing.lot),
        "quote_increment": float(listing.tick),
        "min_order_size": listing.lot,
        "status": "open",
        "wrap_enabled": False,
        "product_type": "spot",
        "contract_type": "vanilla",
    }


def _frame(channel: PublishedBook, book: TextChanges, first: int, now: Now) -> str:
    return dumped(
        {
            "e": "depthUpdate",
            "E": now.ms * NS_PER_MS,
            "s": channel.listing.native,
            "U": first,
            "u": channel.sequence,
            "b": book.bids,
            "a": book.asks,
        }
    )


def _ok(request: dict[str, Any]) -> str:
    return dumped({"id": request.get("id"), "status": 200})


def _error(request: dict[str, Any], status: int, code: int, words: str) -> str:
    error = {"code": code, "msg": words}
    return dumped({"id": request.get("id"), "status": status, "error": error})


DIALECT: Final[type[Dialect]] = Gemini
