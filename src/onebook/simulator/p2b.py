"""Simulated P2B, public JSON-RPC: `depth.subscribe`, one market on a connection, no numbers.

A subscription replaces the previous one and is accepted for any name. A market that changes sends
its full book again every 60 s. Invalid JSON is answered with code 7. A socket is closed 60 s after
a frame was last sent to it. Levels are never merged: the only accepted interval is "0".
https://github.com/P2B-team/P2B-WSS-Public/blob/main/wss_documentation.md
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from onebook.simulator.kit import (
    ChannelKey,
    Dialect,
    ExchangeBoard,
    ExchangeRules,
    ListedSymbol,
    Now,
    Profile,
    PublishedBook,
    RestReply,
    SimulatedSession,
    TextChanges,
    answered,
    loaded,
)

LIMIT_MAX: Final = 100
FULL_S: Final = 60.0


class P2b(Dialect):
    """The protocol of apiws.p2pb2b.com and api.p2pb2b.com."""

    profile = Profile(depth=110, spread_ppm=35, offset_ppm_max=25)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTC_USDT", 2, 5),
        ListedSymbol("ETH/USDT", "ETH_USDT", 2, 4),
        ListedSymbol("SOL/USDT", "SOL_USDT", 3, 3),
        ListedSymbol("DOGE/USDT", "DOGE_USDT", 6, 1),
        ListedSymbol("ETH/BTC", "ETH_BTC", 6, 4),
    )
    rules = ExchangeRules(silence_max_s=60.0, heartbeat_s=1.0)

    def __init__(self, board: ExchangeBoard) -> None:
        super().__init__(board)
        self._changed: dict[ChannelKey, float] = {}

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer pings, subscriptions and unsubscriptions; ignores unknown methods."""
        request = loaded(frame)
        if request is None:
            return [_dumped({"error": {"code": 7, "message": "invalid format"}, "result": None})]
        number = request.get("id")
        if self._board.limits(session, now):
            return [_failed("too many requests", number)]
        match request:
            case {"method": "server.ping", "params": []}:
                return [_done("pong", number)]
            case {"method": "server.time"}:
                return [_done(now.ms // 1_000, number)]
            case {"method": "depth.subscribe", "params": [str(market), int(limit), "0"]}:
                if 1 <= limit <= LIMIT_MAX and not self._refused(market):
                    return self._subscribe(session, ChannelKey(market, limit), number, now)
                return [_failed("invalid argument", None if self._board.nameless else number)]
            case {"method": "depth.subscribe"}:
                return [_failed("invalid argument", number)]
            case {"method": "depth.unsubscribe"}:
                session.topics.clear()
                return [_done({"status": "success"}, number)]
        return []

    def _refused(self, market: str) -> bool:
        """Return whether a test had this name refused; the real exchange refuses none."""
        return market in self._board.refused

    def _subscribe(
        self, session: SimulatedSession, key: ChannelKey, number: Any, now: Now
    ) -> list[str]:
        session.topics.clear()
        ack = _done({"status": "success"}, number)
        known = self._board.lists(key.native)
        window = self._board.subscribe(session, key.native, key) if known else None
        if window is None:
            return [ack]
        session.heartbeats[key.native] = now.s
        return [ack, _full(window)]

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode the changes; a side without changes is absent."""
        self._changed[channel.key] = now.s
        sides = {"asks": changes.asks, "bids": changes.bids}
        changed = {side: levels for side, levels in sides.items() if levels}
        return _update(channel, False, changed)

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return the full book of a market that has changed since the last one a minute ago."""
        frames = []
        for topic, key in session.topics.items():
            sent_s = session.heartbeats.get(topic, now.s)
            window = self._board.channel(key) if now.s - sent_s >= FULL_S else None
            if window is not None and self._changed.get(key, 0.0) > sent_s:
                session.heartbeats[topic] = now.s
                frames.append(_full(window))
        return frames

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of markets."""
        if path != "/api/v2/public/markets":
            return None
        rows = [
            {
                "name": listing.native,
                "stock": listing.base,
                "money": listing.quote,
                "precision": {
                    "money": str(listing.price_decimals),
                    "stock": str(listing.amount_decimals),
                    "fee": "4",
                },
                "limits": {
                    "min_amount": listing.lot,
                    "max_amount": "0",
                    "step_size": listing.lot,
                    "min_price": listing.tick,
                    "max_price": "0",
                    "tick_size": listing.tick,
                    "min_total": "1",
                },
            }
            for listing in self._board.listings.values()
        ]
        return answered({"success": True, "errorCode": "", "message": "", "result": rows})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the market of a frame of a book."""
        match loaded(frame):
            case {"method": "depth.update", "params": [_, _, str(market)]}:
                return market
        return None


def _full(channel: PublishedBook) -> str:
    book = channel.snapshot()
    return _update(channel, True, {"asks": book.asks, "bids": book.bids})


def _update(channel: PublishedBook, full: bool, sides: dict[str, Any]) -> str:
    params = [full, sides, channel.listing.native]
    return _dumped({"method": "depth.update", "params": params, "id": None})


def _done(result: object, number: Any) -> str:
    return _dumped({"error": None, "result": result, "id": number})


def _failed(message: str, number: Any) -> str:
    return _dumped({"error": {"code": 1, "message": message}, "result": None, "id": number})


def _dumped(value: object) -> str:
    return json.dumps(value)  # with blanks, as on the real exchange


DIALECT: Final[type[Dialect]] = P2b
