"""Simulated Binance, spot protocol: combined and raw streams, REST snapshots, no checksum.

The socket of binary events (SBE) is on the same port: the address `/ws`, without a stream.
https://developers.binance.com/docs/binance-spot-api-docs/sbe-market-data-streams

Each event has the numbers `U..u` of its changes; the book itself is available only by REST
(`/api/v3/depth`). Unknown streams are acknowledged and stay silent.
https://github.com/binance/binance-spot-api-docs/blob/master/web-socket-streams.md
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Final
from urllib.parse import parse_qs, urlsplit

from onebook.simulator.kit import (
    TOP,
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

DEPTH: Final = 5_000
TOO_MANY_CODE: Final = 5  # unconfirmed, as is the text
STREAMS_MAX: Final = 1_024
SCHEMA_ID, SCHEMA_VERSION = 1, 0
BEST_BID_ASK: Final = 10_001
DEPTH_DIFF: Final = 10_003
_EXPONENTS: Final = bytes([256 - 8, 256 - 8])  # of prices and of amounts: -8 each, as int8


class Binance(Dialect):
    """The protocol of stream.binance.com and api.binance.com."""

    profile = Profile(depth=500, spread_ppm=3, offset_ppm_max=6)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTCUSDT", 2, 5),
        ListedSymbol("ETH/USDT", "ETHUSDT", 2, 4),
        ListedSymbol("SOL/USDT", "SOLUSDT", 2, 3),
        ListedSymbol("DOGE/USDT", "DOGEUSDT", 5, 0),
        ListedSymbol("ETH/BTC", "ETHBTC", 5, 4),
    )
    rules = ExchangeRules(
        clock=("/api/v3/time", lambda now: {"serverTime": now.ms}),
        states=3,
        spelling=Spelling(price_places=8, amount_places=8),
        messages=(Most(5),),
        connects=(Most(300, 300.0),),
        fetches=(Most(6_000, 60.0),),
        silence_max_s=86_400.0,  # pongs keep a connection open
        ping_s=20.0,
    )
    weights: tuple[tuple[int, int], ...] = ((100, 5), (500, 25), (1_000, 50), (5_000, 250))

    def opened(self, session: SimulatedSession, now: Now) -> list[str]:
        """Subscribe to streams of the URL: `/stream?streams=a/b` wraps frames, `/ws/a` does not."""
        url = urlsplit(session.path)
        if url.path.rstrip("/") == "/ws":
            session.form = _encoded
            streams = []
        elif url.path.startswith("/ws"):
            session.form = _raw
            streams = url.path.removeprefix("/ws").strip("/").split("/")
        else:
            streams = parse_qs(url.query).get("streams", [""])[0].split("/")
        for stream in filter(None, streams):
            self._subscribe(session, stream)
        return []

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer SUBSCRIBE, UNSUBSCRIBE and LIST_SUBSCRIPTIONS; anything else is an error."""
        request = loaded(frame)
        if request is None:
            return [_error(3, "Invalid JSON: expected value at line 1 column 1", None)]
        number, streams = request.get("id"), request.get("params", [])
        if self._board.limits(session, now):
            return [_error(TOO_MANY_CODE, "Too many requests", number)]
        match request.get("method"):
            case "SUBSCRIBE":
                for stream in streams:
                    self._subscribe(session, stream)
            case "UNSUBSCRIBE":
                for stream in streams:
                    session.topics.pop(stream, None)
            case "LIST_SUBSCRIPTIONS":
                return [dumped({"result": list(session.topics), "id": number})]
            case method:
                return [_error(2, f"Invalid request: unknown variant `{method}`", number)]
        return [dumped({"result": None, "id": number})]

    def _subscribe(self, session: SimulatedSession, stream: str) -> None:
        symbol, _, channel = stream.partition("@")
        if len(session.topics) >= STREAMS_MAX:
            raise Dropped("Too many streams.")
        if not self._board.lists(symbol.upper()):
            return
        if channel in ("depth", "depth@100ms"):
            self._board.subscribe(session, stream, ChannelKey(symbol.upper(), DEPTH))
        elif channel in ("bookTicker", "bestBidAsk") and symbol.upper() not in self._board.muted:
            session.topics[stream] = ChannelKey(symbol.upper(), TOP)

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode a `depthUpdate` of the combined stream."""
        native = channel.listing.native
        data = {
            "e": "depthUpdate",
            "E": now.ms,
            "s": native,
            "U": channel.previous + 1,
            "u": channel.sequence,
            "b": changes.bids,
            "a": changes.asks,
        }
        return dumped({"stream": f"{native.lower()}@depth@100ms", "data": data})

    def top(self, channel: PublishedBook, now: Now) -> str:
        """Encode a `bookTicker` of the combined stream: without event name and time."""
        native = channel.listing.native
        best = channel.top(1)
        (bid, bid_amount), (ask, ask_amount) = best.bids[0], best.asks[0]
        data = {
            "u": channel.sequence,
            "s": native,
            "b": bid,
            "B": bid_amount,
            "a": ask,
            "A": ask_amount,
        }
        return dumped({"stream": f"{native.lower()}@bookTicker", "data": data})

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing: the socket sends protocol pings."""
        return []

    def weight(self, path: str, query: Mapping[str, str]) -> int:
        """Return 20 for the instruments, 1 for the time; that of a book depends on its levels."""
        if path != "/api/v3/depth":
            return 1 if path == "/api/v3/time" else 20
        limit = int(query.get("limit", "100"))
        return next((weight for most, weight in self.weights if limit <= most), self.weights[-1][1])

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer `exchangeInfo` and `depth`."""
        if path == "/api/v3/exchangeInfo":
            return self._exchange_info(now)
        return self._depth(query) if path == "/api/v3/depth" else None

    def _depth(self, query: Mapping[str, str]) -> RestReply:
        native, limit = query.get("symbol", ""), int(query.get("limit", "100"))
        lists = self._board.lists(native) and native not in self._board.muted
        channel = self._board.channel(ChannelKey(native, DEPTH)) if lists else None
        if channel is None:
            return answered({"code": -1121, "msg": "Invalid symbol."}, 400)
        book = channel.snapshot()
        body = {
            "lastUpdateId": channel.sequence,
            "bids": book.bids[:limit],
            "asks": book.asks[:limit],
        }
        headers = (("X-MBX-USED-WEIGHT-1M", str(self.weight("/api/v3/depth", query))),)
        return answered(body)._replace(headers=headers)

    def _exchange_info(self, now: Now) -> RestReply:
        symbols = [
            {
                "symbol": listing.native,
                "status": "TRADING",
                "baseAsset": listing.base,
                "baseAssetPrecision": 8,
                "quoteAsset": listing.quote,
                "quotePrecision": 8,
                "isSpotTradingAllowed": True,
                "filters": [
                    {"filterType": "PRICE_FILTER", "tickSize": _padded(listing.tick)},
                    {
                        "filterType": "LOT_SIZE",
                        "minQty": _padded(listing.lot),
                        "maxQty": "9000.00000000",
                        "stepSize": _padded(listing.lot),
                    },
                    {
                        "filterType": "NOTIONAL",
                        "minNotional": "5.00000000",
                        "applyMinToMarket": True,
                    },
                ],
            }
            for listing in self._board.listings.values()
        ]
        return answered({"timezone": "UTC", "serverTime": now.ms, "symbols": symbols})

    @staticmethod
    def native_of(frame: str | bytes) -> str | None:
        """Return the symbol of a `depthUpdate`, wrapped or raw, or of a binary event."""
        if isinstance(frame, bytes) and not frame.startswith(b"{"):
            return _symbol_of(frame)
        message = loaded(frame if isinstance(frame, str) else frame.decode()) or {}
        data = message.get("data", message)
        is_book = isinstance(data, dict) and (data.get("e") == "depthUpdate" or "B" in data)
        return data["s"] if is_book else None

    @staticmethod
    def is_top(frame: str | bytes) -> bool:
        """Return whether a frame is a `bookTicker`, wrapped or raw, or a binary one."""
        if isinstance(frame, bytes):
            return frame[2:4] == BEST_BID_ASK.to_bytes(2, "little")
        return '"B":' in frame


def _encoded(frame: str) -> bytes:
    """Encode the event of a combined frame in Simple Binary Encoding (schema 1, version 0)."""
    event = json.loads(frame)["data"]
    symbol: bytes = event["s"].encode()
    tail = bytes([len(symbol)]) + symbol
    if "B" in event:
        numbers = ((event[name], event[more]) for name, more in (("b", "B"), ("a", "A")))
        best = b"".join(_level(*each) for each in numbers)
        # The text frame has no time, so that of the last depth is not known here.
        body = _int64(0) + _int64(event["u"]) + _EXPONENTS + best
        return _header(BEST_BID_ASK, body) + body + tail
    body = _int64(event["E"] * 1_000) + _int64(event["U"]) + _int64(event["u"]) + _EXPONENTS
    groups = b"".join(
        (16).to_bytes(2, "little")
        + len(event[side]).to_bytes(2, "little")
        + b"".join(_level(*level) for level in event[side])
        for side in ("b", "a")
    )
    return _header(DEPTH_DIFF, body) + body + groups + tail


def _header(template: int, body: bytes) -> bytes:
    fields = (len(body), template, SCHEMA_ID, SCHEMA_VERSION)
    return b"".join(each.to_bytes(2, "little") for each in fields)


def _level(price: str, amount: str) -> bytes:
    return _int64(_mantissa(price)) + _int64(_mantissa(amount))


def _mantissa(number: str) -> int:
    return int(Decimal(number).scaleb(8))


def _int64(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def _symbol_of(frame: bytes) -> str:
    """Return the symbol, which ends a binary event."""
    length = next(n for n in range(1, len(frame)) if frame[-n - 1] == n and frame[-n:].isalnum())
    return frame[-length:].decode()


def _raw(frame: str) -> str:
    """Unwrap a combined frame."""
    return frame[frame.index('"data":') + len('"data":') : -1]


def _error(code: int, message: str, number: object) -> str:
    return dumped({"code": code, "msg": message, "id": number})


def _padded(step: str) -> str:
    whole, _, fraction = step.partition(".")
    return f"{whole}.{fraction.ljust(8, '0')}"


DIALECT: Final[type[Dialect]] = Binance
