"""Simulated Backpack, public streams: `depth` diffs without a snapshot, books by `/api/v1/depth`.

Valid requests are not answered at all, not even for an unknown or closed pair, whose stream stays
silent. Errors have no number. Socket frames pad numbers to the steps, REST bodies do not; REST
lists bids worst first and accepts only some limits.
https://docs.backpack.exchange/#tag/Streams/Public/Depth
"""

import re
from collections.abc import Mapping
from functools import partial
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
    Spelling,
    TextChanges,
    TextLevels,
    answered,
    dumped,
    loaded,
)

DEPTH: Final = 5_000
STREAM: Final = re.compile(r"depth\.((?P<pace>\d+)ms\.)?(?P<native>\w[\w.]*)")
PACES: Final = (None, "200", "600", "1000")
LIMITS: Final = ("5", "10", "20", "50", "100", "500", "1000")
PARSE_ERROR: Final = (4002, "Parse error")
INVALID_STREAM: Final = (4006, "Invalid stream")
INVALID_WINDOW: Final = (4008, "Invalid depth window")
TOO_MANY: Final = (4029, "Too many requests.")  # unconfirmed: the text of REST


class Backpack(Dialect):
    """The protocol of ws.backpack.exchange and api.backpack.exchange."""

    profile = Profile(depth=500, spread_ppm=8, offset_ppm_max=20)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTC_USDT", 1, 5),
        ListedSymbol("ETH/USDT", "ETH_USDT", 2, 4),
        ListedSymbol("SOL/USDT", "SOL_USDT", 2, 2),
    )
    rules = ExchangeRules(
        clock=("/api/v1/time", lambda now: now.ms),
        spelling=Spelling(price_places=None, amount_places=None),
        messages=(Most(10),),  # unconfirmed, as are the limits below
        silence_max_s=120.0,
        ping_s=60.0,
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Handle SUBSCRIBE and UNSUBSCRIBE; only errors are answered."""
        request = loaded(frame) or {}
        method, streams = request.get("method"), request.get("params")
        if method not in ("SUBSCRIBE", "UNSUBSCRIBE") or not isinstance(streams, list):
            return [_error(*PARSE_ERROR)]
        if self._board.limits(session, now):
            return [_error(*TOO_MANY)]
        if method == "UNSUBSCRIBE":
            for stream in streams:
                session.topics.pop(stream, None)
            return []
        return [reply for stream in streams for reply in self._subscribe(session, str(stream))]

    def _subscribe(self, session: SimulatedSession, stream: str) -> list[str]:
        match = STREAM.fullmatch(stream)
        if match is None:
            return [_error(*INVALID_STREAM)]
        if match["pace"] not in PACES:
            return [_error(*INVALID_WINDOW)]
        if match["pace"] is not None:
            session.form = partial(_paced, pace=match["pace"])
        if self._board.lists(match["native"]):
            self._board.subscribe(session, stream, ChannelKey(match["native"], DEPTH))
        return []

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode the changes in real time, bids worst first."""
        native = channel.listing.native
        data = {
            "E": now.ms * 1_000,
            "T": now.ms * 1_000 - 215,
            "U": channel.previous + 1,
            "a": changes.asks,
            "b": changes.bids[::-1],
            "e": "depth",
            "s": native,
            "u": channel.sequence,
        }
        return dumped({"data": data, "stream": f"depth.{native}"})

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing: the socket sends protocol pings."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer `markets` and `depth`."""
        if path == "/api/v1/markets":
            return answered([_market(listing) for listing in self._board.listings.values()])
        return self._depth(query, now) if path == "/api/v1/depth" else None

    def _depth(self, query: Mapping[str, str], now: Now) -> RestReply:
        native, limit = query.get("symbol", ""), query.get("limit", "1000")
        if limit not in LIMITS:
            return RestReply(400, b"failed to parse parameter `limit`")
        lists = self._board.lists(native) and native not in self._board.muted
        channel = self._board.channel(ChannelKey(native, DEPTH)) if lists else None
        if channel is None:
            problem = {"code": "INVALID_CLIENT_REQUEST", "message": "Invalid market symbol"}
            return answered(problem, 400)
        book = channel.snapshot()
        body = {
            "asks": _trimmed(book.asks[: int(limit)]),
            "bids": _trimmed(book.bids[: int(limit)])[::-1],
            "lastUpdateId": str(channel.sequence),
            "timestamp": now.ms * 1_000,
        }
        return answered(body)

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the symbol of a `depth` event."""
        data = (loaded(frame) or {}).get("data")
        return data["s"] if isinstance(data, dict) and data.get("e") == "depth" else None


def _market(listing: ListedSymbol) -> dict[str, object]:
    return {
        "symbol": listing.native,
        "baseSymbol": listing.base,
        "quoteSymbol": listing.quote,
        "marketType": "SPOT",
        "orderBookState": "Open",
        "filters": {
            "price": {"minPrice": listing.tick, "maxPrice": None, "tickSize": listing.tick},
            "quantity": {"minQuantity": listing.lot, "stepSize": listing.lot},
        },
    }


def _trimmed(levels: TextLevels) -> TextLevels:
    return [(_plain(price), _plain(amount)) for price, amount in levels]


def _plain(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _error(code: int, message: str) -> str:
    return dumped({"id": None, "error": {"code": code, "message": message}})


def _paced(frame: str, *, pace: str) -> str:
    """Name the stream of a client that follows a slower one."""
    return frame.replace('"stream":"depth.', f'"stream":"depth.{pace}ms.')


DIALECT: Final[type[Dialect]] = Backpack
