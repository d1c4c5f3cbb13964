"""WOO X's side of its public v3 socket: `orderbookupdate` deltas, the book itself by REST.

Deltas name the time of their state and of the state before. The answer to a request lists the
topics that are accepted: unknown ones, and those that are subscribed already, are left out. More
than ten topics in a request are refused together, as recorded, where the page says twenty.
https://developer.woox.io/api-reference/endpoint/websocket/Orderbook_update
"""

from collections.abc import Mapping
from typing import Final

from onebook.simulator.board import (
    BoardDialect,
    ChannelKey,
    Dialect,
    ExchangeRules,
    Now,
    PublishedBook,
    RestReply,
    SimulatedSession,
    Spelling,
    TextChanges,
    answered,
    dumped,
    loaded,
)
from onebook.simulator.listings import ListedSymbol, Profile
from onebook.simulator.windows import Most

CHANNEL: Final = "orderbookupdate"
DEPTHS: Final = ("50", "200", "500")
TOPICS_MAX: Final = 100
PER_REQUEST_MAX: Final = 10
BODY_LEVELS: Final = "100"  # where a request names no number
STARTED_MS: Final = 1_650_000_000_000  # what a state is named by: a time that each change moves


class Woo(BoardDialect):
    """The protocol of wss.woox.io and api.woox.io."""

    profile = Profile(depth=70, spread_ppm=60, offset_ppm_max=40)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "SPOT_BTC_USDT", 2, 6),
        ListedSymbol("ETH/USDT", "SPOT_ETH_USDT", 2, 5),
        ListedSymbol("SOL/USDT", "SPOT_SOL_USDT", 2, 3),
        ListedSymbol("DOGE/USDT", "SPOT_DOGE_USDT", 5, 1),
    )
    rules = ExchangeRules(
        spelling=Spelling(price_places=None, amount_places=None),
        messages=(Most(200),),
        connects=(Most(100, 300.0),),
        fetches=(Most(10),),
        silence_max_s=86_400.0,  # pongs and pings of the protocol are what keeps a connection
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """PING, SUBSCRIBE and UNSUBSCRIBE."""
        request = loaded(frame)
        if request is None:
            return [_refused("", "ERROR", "Invalid request.", now)]
        command, number = str(request.get("cmd")), request.get("id", "")
        topics = [str(topic) for topic in request.get("params") or []]
        if command == "PING":
            return [dumped({"cmd": "PONG", "success": True, "time": now.ms})]
        if command not in ("SUBSCRIBE", "UNSUBSCRIBE"):
            return [_refused(number, "ERROR", "Command type invalid!", now)]
        if len(topics) > PER_REQUEST_MAX:
            return [_refused(number, command, "Command type invalid!", now)]
        if self._board.limits(session, now):
            return [_refused(number, command, "Too many requests", now)]
        done = [topic for topic in topics if self._does(session, command, topic)]
        answer = {"id": number, "cmd": command, "success": True, "time": now.ms, "data": done}
        return [dumped(answer)]

    def _does(self, session: SimulatedSession, command: str, topic: str) -> bool:
        if command == "UNSUBSCRIBE":
            return session.topics.pop(topic, None) is not None
        channel, _, rest = topic.partition("@")
        native, _, depth = rest.partition("@")
        known = channel == CHANNEL and depth in DEPTHS and self._board.lists(native)
        if not known or topic in session.topics or len(session.topics) >= TOPICS_MAX:
            return False
        self._board.subscribe(session, topic, ChannelKey(native, int(depth)))
        return True

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """What changed since the last frame of this depth."""
        native, depth = channel.key
        data = {
            "s": native,
            "prevTs": STARTED_MS + channel.previous,
            "asks": changes.asks,
            "bids": changes.bids,
            "ts": STARTED_MS + channel.sequence,
        }
        return dumped({"topic": f"{CHANNEL}@{native}@{depth}", "ts": now.ms, "data": data})

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """None: a client may ping."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """`instruments` and `orderbook`."""
        if path == "/v3/public/instruments":
            rows = [_row(listing) for listing in self._board.listings.values()]
            return answered({"success": True, "data": {"rows": rows}, "timestamp": now.ms})
        return self._orderbook(query) if path == "/v3/public/orderbook" else None

    def _orderbook(self, query: Mapping[str, str]) -> RestReply:
        native, levels = query.get("symbol", ""), query.get("maxLevel", BODY_LEVELS)
        depth = next((int(each) for each in DEPTHS if int(each) >= int(levels)), int(DEPTHS[-1]))
        lists = self._board.lists(native) and native not in self._board.muted
        channel = self._board.channel(ChannelKey(native, depth)) if lists else None
        if channel is None:
            return answered({"success": False, "message": f"invalid symbol {native}"}, 400)
        book = channel.snapshot()
        sides = {
            side: [{"price": price, "quantity": amount} for price, amount in rows[: int(levels)]]
            for side, rows in (("asks", book.asks), ("bids", book.bids))
        }
        state = STARTED_MS + channel.sequence
        return answered({"success": True, "timestamp": state, "data": sides})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """The symbol of an `orderbookupdate` frame."""
        message = loaded(frame) or {}
        delta = str(message.get("topic", "")).startswith(f"{CHANNEL}@")
        return message["data"]["s"] if delta else None


def _row(listing: ListedSymbol) -> dict[str, object]:
    return {
        "symbol": listing.native,
        "status": "TRADING",
        "baseAsset": listing.base,
        "baseAssetMultiplier": 1,
        "quoteAsset": listing.quote,
        "quoteTick": listing.tick,
        "baseTick": listing.lot,
        "minNotional": "1",
        "orderMode": "NORMAL",
    }


def _refused(number: object, command: str, words: str, now: Now) -> str:
    answer = {"id": number, "cmd": command, "success": False, "time": now.ms, "data": words}
    return dumped(answer)


DIALECT: Final[type[Dialect]] = Woo
