"""Simulated Gate, spot v4 protocol: `spot.obu`, 50 or 400 levels chained by `U` and `u`.

`spot.book_ticker` has the `u` of the book and is sent at each change of the best prices, with ""
for an empty side; its payload lists pairs.

A stream can be subscribed once per connection; a second request is refused until the stream is
unsubscribed. Every request contains its time; on public channels any time is accepted, as in the
page's examples. https://www.gate.com/docs/developers/apiv4/ws/en/#order-book-v2-api
"""

from collections.abc import Mapping
from typing import Any, Final

from onebook.simulator.kit import (
    CONNECTION_ID,
    TOP,
    ChannelKey,
    Dialect,
    ExchangeRules,
    ListedSymbol,
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

LEVELS: Final = ("50", "400")
LEVELS_DEEP: Final = 400
BAD_FORMAT: Final = 1
BAD_ARGUMENT: Final = 2


class Gate(Dialect):
    """The protocol of api.gateio.ws."""

    profile = Profile(depth=400, spread_ppm=6, offset_ppm_max=10)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTC_USDT", 1, 6),
        ListedSymbol("ETH/USDT", "ETH_USDT", 2, 4),
        ListedSymbol("SOL/USDT", "SOL_USDT", 2, 3),
        ListedSymbol("DOGE/USDT", "DOGE_USDT", 5, 2),
        ListedSymbol("ETH/BTC", "ETH_BTC", 6, 4),
    )
    rules = ExchangeRules(
        clock=("/api/v4/spot/time", lambda now: {"server_time": now.ms}), states=2
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer `spot.ping`, subscriptions and unsubscriptions."""
        request = loaded(frame) or {}
        if not isinstance(request.get("time"), int) or "channel" not in request:
            return [_refused({}, BAD_FORMAT, "Invalid request body format", now)]
        if request["channel"] == "spot.ping":
            pong = {"time": now.ms // 1_000, "channel": "spot.pong", "event": ""}
            return [dumped(pong | {"error": None, "result": None})]
        event, streams = request.get("event"), request.get("payload")
        if event not in ("subscribe", "unsubscribe") or not isinstance(streams, list):
            return [_refused(request, BAD_ARGUMENT, "Invalid argument provided", now)]
        if self._board.limits(session, now):
            return [_refused(request, BAD_ARGUMENT, "Too many requests", now)]
        if request["channel"] == "spot.book_ticker":
            return [self._tickers(session, request, now)]
        if event == "unsubscribe":
            for stream in streams:
                session.topics.pop(str(stream), None)
            return [_accepted(request, now)]
        return self._subscribe(session, request, now)

    def _tickers(self, session: SimulatedSession, request: dict[str, Any], now: Now) -> str:
        natives = [str(native) for native in request["payload"]]
        unknown = [native for native in natives if not self._board.lists(native)]
        if unknown:
            return self._unknown(request, ChannelKey(unknown[0], TOP), now)
        for native in natives:
            if request["event"] == "subscribe":
                self._board.follow_top(session, f"ticker.{native}", native, LEVELS_DEEP)
            else:
                session.topics.pop(f"ticker.{native}", None)
        return _accepted(request, now)

    def _subscribe(self, session: SimulatedSession, request: dict[str, Any], now: Now) -> list[str]:
        streams = [str(stream) for stream in request["payload"]]
        keys = {stream: _key(stream) for stream in streams}
        for stream, key in keys.items():
            if request["channel"] != "spot.obu" or key is None or not self._board.lists(key.native):
                return [self._unknown(request, key, now)]
            if stream in session.topics:
                return [_refused(request, BAD_ARGUMENT, f"Alert sub {stream}", now)]
        windows = [
            self._board.subscribe(session, stream, key) for stream, key in keys.items() if key
        ]
        frames = [_frame(window, window.snapshot(), now, full=True) for window in windows if window]
        return [_accepted(request, now), *frames]

    def _unknown(self, request: dict[str, Any], key: ChannelKey | None, now: Now) -> str:
        if self._board.nameless:
            return _refused({}, BAD_ARGUMENT, "Invalid argument provided", now)
        native = key.native if key else ""
        return _refused(request, BAD_ARGUMENT, f"unknown currency pair: {native}", now)

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode the changes since the last frame; a side without changes is absent."""
        return _frame(channel, changes, now, full=False)

    def top(self, channel: PublishedBook, now: Now) -> str:
        """Encode a frame of `spot.book_ticker`."""
        best = channel.top(1)
        (bid, bid_amount), (ask, ask_amount) = ([*side, ("", "")][0] for side in best)
        result = {
            "t": now.ms,
            "u": channel.sequence,
            "s": channel.listing.native,
            "b": bid,
            "B": bid_amount,
            "a": ask,
            "A": ask_amount,
        }
        head = {"time": now.ms // 1_000, "time_ms": now.ms, "channel": "spot.book_ticker"}
        return dumped(head | {"event": "update", "result": result})

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing: the socket sends protocol pings."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the lists of currency pairs and of currencies."""
        listings = self._board.listings.values()
        if path == "/api/v4/spot/currencies":
            codes = dict.fromkeys(code for each in listings for code in (each.base, each.quote))
            return answered([_currency(code) for code in codes])
        if path != "/api/v4/spot/currency_pairs":
            return None
        rows = [
            {
                "id": listing.native,
                "base": listing.base,
                "quote": listing.quote,
                "fee": "0.2",
                "min_base_amount": listing.lot,
                "min_quote_amount": "3",
                "amount_precision": listing.amount_decimals,
                "precision": listing.price_decimals,
                "trade_status": "tradable",
                "delisting_time": 0,
                "st_tag": False,
                "type": "normal",
            }
            for listing in listings
        ]
        return answered(rows)

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the pair of a frame with a book or with best prices."""
        message = loaded(frame) or {}
        result = message.get("result")
        if Gate.is_top(frame):
            return result.get("s") if isinstance(result, dict) else None
        if message.get("channel") != "spot.obu" or not isinstance(result, dict):
            return None
        key = _key(str(result.get("s")))
        return key.native if key else None

    @staticmethod
    def is_top(frame: str) -> bool:
        """Return whether a frame is of `spot.book_ticker`."""
        return '"spot.book_ticker"' in frame


def _currency(code: str) -> dict[str, object]:
    """Describe a currency with one network of its own; USDC cannot be deposited."""
    closed = code == "USDC"
    chain = {
        "name": code,
        "addr": "",
        "withdraw_disabled": False,
        "withdraw_delayed": False,
        "deposit_disabled": closed,
    }
    return {
        "currency": code,
        "name": code,
        "delisted": False,
        "withdraw_disabled": False,
        "withdraw_delayed": False,
        "deposit_disabled": closed,
        "trade_disabled": False,
        "fixed_rate": "",
        "chain": code,
        "chains": [chain],
    }


def _key(stream: str) -> ChannelKey | None:
    prefix, _, rest = stream.partition(".")
    native, _, levels = rest.rpartition(".")
    return ChannelKey(native, int(levels)) if prefix == "ob" and levels in LEVELS else None


def _frame(channel: PublishedBook, book: TextChanges, now: Now, *, full: bool) -> str:
    ids = {"u": channel.sequence} if full else {"U": channel.previous + 1, "u": channel.sequence}
    sides = {"b": book.bids, "a": book.asks}
    result = {
        "t": now.ms,
        **({"full": True} if full else {}),
        "s": f"ob.{channel.listing.native}.{channel.key.depth}",
        **ids,
        **{side: levels for side, levels in sides.items() if levels or full},
    }
    return dumped({"channel": "spot.obu", "result": result, "time_ms": now.ms})


def _answer(request: dict[str, Any], now: Now) -> dict[str, Any]:
    fields = {
        name: request[name] for name in ("id", "channel", "event", "payload") if name in request
    }
    return {"time": now.ms // 1_000, "time_ms": now.ms, "conn_id": CONNECTION_ID} | fields


def _accepted(request: dict[str, Any], now: Now) -> str:
    return dumped(_answer(request, now) | {"result": {"status": "success"}})


def _refused(request: dict[str, Any], code: int, words: str, now: Now) -> str:
    error = {"error": {"code": code, "message": words}, "result": {"status": "fail"}}
    return dumped(_answer(request, now) | error)


DIALECT: Final[type[Dialect]] = Gate
