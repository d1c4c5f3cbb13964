"""Simulated WhiteBIT, public JSON-RPC: `depth_subscribe`, chained by `past_update_id`.

`bookTicker_update` has the `update_id` of the depth and is sent at each change of the best prices,
and once with the subscription. Here a subscription replaces the markets of the previous one, the
stricter of the two readings of the page.

A subscription whose fourth parameter is false ends all others of the socket. An update omits a side
without changes. A market without changes for 10 s sends its full book, and so does one that is
subscribed again. Levels pushed out of the window by better ones are not announced (optional
according to the page; the real exchange does). A client that sends nothing for 60 s is
disconnected; frames to it do not count. (The real exchange also disconnects for invalid JSON.) The
ids are those of the current page; the previous one had none (`Whitebit.numbered`).
https://github.com/whitebit-exchange/api-docs (Public/websocket.md)
https://docs.whitebit.com/websocket/market-streams/depth
https://docs.whitebit.com/websocket/rate-limits
"""

from collections.abc import Mapping
from typing import Any, Final

from onebook.simulator.kit import (
    TOP,
    ChannelKey,
    Dialect,
    ExchangeBoard,
    ExchangeRules,
    ListedSymbol,
    Most,
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

LIMITS: Final = (1, 5, 10, 20, 30, 50, 100)
UNCHANGED_S: Final = 10.0


class Whitebit(Dialect):
    """The protocol of wss.whitebit.com and whitebit.com."""

    numbered = True  # whether books have ids

    profile = Profile(depth=120, spread_ppm=15, offset_ppm_max=12)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTC_USDT", 2, 6),
        ListedSymbol("ETH/USDT", "ETH_USDT", 2, 5),
        ListedSymbol("SOL/USDT", "SOL_USDT", 3, 3),
        ListedSymbol("DOGE/USDT", "DOGE_USDT", 6, 1),
        ListedSymbol("ETH/BTC", "ETH_BTC", 6, 5),
    )
    rules = ExchangeRules(
        states=2,
        silent_cuts=True,
        requests=(Most(200, 60.0),),  # the strictest limit on any of its pages
        connects=(Most(1_000, 60.0),),
        silence_max_s=60.0,
        traffic_counts=False,
        heartbeat_s=1.0,
    )

    def __init__(self, board: ExchangeBoard) -> None:
        super().__init__(board)
        self._changed: dict[ChannelKey, float] = {}

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer `ping`, `depth_subscribe` and `depth_unsubscribe`."""
        request = loaded(frame) or {}
        number = request.get("id")
        if self._board.limits(session, now):
            return [_failed(7, "too many requests", number)]
        match request:
            case {"method": "ping", "params": []}:
                return [_done("pong", number)]
            case {"method": "depth_subscribe", "params": [str(market), limit, "0", bool(several)]}:
                if limit in LIMITS:
                    return self._subscribe(session, ChannelKey(market, limit), several, number, now)
            case {"method": "depth_unsubscribe", "params": [*markets]}:
                for market in markets or _markets(session):
                    session.topics.pop(market, None)
                return [_done({"status": "success"}, number)]
            case {"method": "bookTicker_subscribe", "params": [*markets]}:
                return self._follow_tops(
                    session, markets or list(self._board.listings), number, now
                )
            case {"method": "bookTicker_unsubscribe", "params": [*markets]}:
                for market in markets or list(self._board.listings):
                    session.topics.pop(_top_topic(market), None)
                return [_done({"status": "success"}, number)]
        return [_failed(1, "invalid argument", number)]

    def _subscribe(
        self, session: SimulatedSession, key: ChannelKey, several: bool, number: Any, now: Now
    ) -> list[str]:
        if not self._board.lists(key.native):
            if self._board.nameless:
                return [_failed(1, "invalid argument", None)]
            return [_failed(9, f"market {key.native} does not exist", number)]
        if not several:
            for market in _markets(session):
                del session.topics[market]
        window = self._board.subscribe(session, key.native, key)
        session.heartbeats[key.native] = now.s
        ack = _done({"status": "success"}, number)
        return [ack] if window is None else [ack, self._full(window, now)]

    def _follow_tops(
        self, session: SimulatedSession, markets: list[str], number: Any, now: Now
    ) -> list[str]:
        unknown = [market for market in markets if not self._board.lists(market)]
        if unknown:
            return [_failed(9, f"market {unknown[0]} does not exist", number)]
        for topic, key in list(session.topics.items()):
            if key.depth == TOP:
                del session.topics[topic]
        windows = [
            self._board.follow_top(session, _top_topic(market), market, LIMITS[-1])
            for market in markets
        ]
        tops = [self.top(window, now) for window in windows if window is not None]
        return [_done({"status": "success"}, number), *(top for top in tops if top)]

    def top(self, channel: PublishedBook, now: Now) -> str | None:
        """Encode a frame of `bookTicker_update`; None without ids, which it always has."""
        best = channel.top(1)
        if not self.numbered or not best.bids or not best.asks:
            return None
        seconds = now.ms / 1_000
        rows = [seconds, seconds, channel.listing.native, channel.sequence]
        prices = [*best.bids[0], *best.asks[0]]
        return dumped({"id": None, "method": "bookTicker_update", "params": [[*rows, *prices]]})

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode an update."""
        self._changed[channel.key] = now.s
        sides = {"asks": changes.asks, "bids": changes.bids}
        changed = {side: levels for side, levels in sides.items() if levels}
        previous = {"past_update_id": channel.previous} if self.numbered else {}
        return self._update(channel, False, previous | changed, now)

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return the full book of each market that has not changed for a while."""
        frames = []
        for topic, key in session.topics.items():
            if key.depth == TOP:
                continue
            spoke_s = max(self._changed.get(key, 0.0), session.heartbeats.get(topic, 0.0))
            window = self._board.channel(key) if now.s - spoke_s >= UNCHANGED_S else None
            if window is not None:
                session.heartbeats[topic] = now.s
                frames.append(self._full(window, now))
        return frames

    def _full(self, channel: PublishedBook, now: Now) -> str:
        book = channel.snapshot()
        return self._update(channel, True, {"asks": book.asks, "bids": book.bids}, now)

    def _update(self, channel: PublishedBook, full: bool, more: dict[str, Any], now: Now) -> str:
        seconds = now.ms / 1_000
        number = {"update_id": channel.sequence} if self.numbered else {}
        book = {"timestamp": seconds, **number, "event_time": seconds} | more
        params = [full, book, channel.listing.native]
        return dumped({"id": None, "method": "depth_update", "params": params})

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of markets."""
        if path != "/api/v4/public/markets":
            return None
        rows = [
            {
                "name": listing.native,
                "stock": listing.base,
                "money": listing.quote,
                "stockPrec": str(listing.amount_decimals),
                "moneyPrec": str(listing.price_decimals),
                "feePrec": "6",
                "makerFee": "0.1",
                "takerFee": "0.1",
                "minAmount": "0.0001",
                "minTotal": "5",
                "tradesEnabled": True,
                "isCollateral": True,
                "type": "spot",
            }
            for listing in self._board.listings.values()
        ]
        return answered(rows)

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the market of a frame of a book or of best prices."""
        message = loaded(frame) or {}
        match message.get("method"):
            case "depth_update":
                market: str = message["params"][2]
            case "bookTicker_update":
                market = message["params"][0][2]
            case _:
                return None
        return market

    @staticmethod
    def is_top(frame: str) -> bool:
        """Return whether a frame is of `bookTicker_update`."""
        return '"bookTicker_update"' in frame


def _markets(session: SimulatedSession) -> list[str]:
    """List the markets whose depth a client follows."""
    return [topic for topic, key in session.topics.items() if key.depth != TOP]


def _top_topic(market: str) -> str:
    return f"bookTicker:{market}"


def _done(result: object, number: Any) -> str:
    return dumped({"id": number, "result": result, "error": None})


def _failed(code: int, message: str, number: Any) -> str:
    return dumped({"id": number, "result": None, "error": {"code": code, "message": message}})


DIALECT: Final[type[Dialect]] = Whitebit
