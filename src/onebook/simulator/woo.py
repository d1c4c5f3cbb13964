"""Simulated WOO X, public v3 socket: `orderbook10`, whole, and deltas that spot does not get.

Written from a probe of the socket (nemanull/arbitrage-observatory, its profile of WOO X of
2026-09-22) and, for spot and the verbs, from ccxt's pull request 29578 of 2026-08:

- the commands are SUBSCRIBE and UN_SUBSCRIBE, in any case; any other is an ERROR;
- the answer is a success that lists the accepted topics, without unknown ones, those already
  subscribed, and those beyond a hundred;
- a request with more than ten topics is refused as a whole, with the message for an unknown
  command, although the page allows twenty;
- `orderbookupdate` is accepted for spot and sends nothing.

It is unknown whether `orderbook10` of spot sends a frame at the subscription: here the first frame
is sent with the next change. REST has the same book with `rpi=true`, otherwise without the
retail-only orders: here these make the best level of each side.
https://developer.woox.io/api-reference/endpoint/websocket/ORDERBOOK10
"""

from collections.abc import Mapping
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
    answered,
    dumped,
    loaded,
)

CHANNEL: Final = "orderbook10"
DEPTH: Final = 10
SILENT: Final = "orderbookupdate"
SILENT_DEPTHS: Final = ("50", "200", "500")
TOPICS_MAX: Final = 100
PER_REQUEST_MAX: Final = 10
BODY_LEVELS: Final = "100"  # default of a request
RETAIL: Final = 1  # levels a side that consist of retail-only orders


class Woo(Dialect):
    """The protocol of wss.woox.io and api.woox.io."""

    profile = Profile(depth=20, spread_ppm=60, offset_ppm_max=40)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "SPOT_BTC_USDT", 2, 6),
        ListedSymbol("ETH/USDT", "SPOT_ETH_USDT", 2, 5),
        ListedSymbol("SOL/USDT", "SPOT_SOL_USDT", 2, 3),
        ListedSymbol("DOGE/USDT", "SPOT_DOGE_USDT", 5, 1),
    )
    rules = ExchangeRules(
        clock=(
            "/v3/public/systemInfo",
            lambda now: {
                "success": True,
                "data": {"status": 0, "msg": "System is functioning properly."},
                "timestamp": now.ms,
            },
        ),
        spelling=Spelling(price_places=None, amount_places=None),
        messages=(Most(200),),
        connects=(Most(100, 300.0),),
        fetches=(Most(10),),
        silence_max_s=86_400.0,  # protocol pings and pongs keep a connection open
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer PING, SUBSCRIBE and UN_SUBSCRIBE."""
        request = loaded(frame)
        if request is None:
            return [_refused("", "ERROR", "Invalid request.", now)]
        command, number = str(request.get("cmd")).upper(), request.get("id", "")
        topics = [str(topic) for topic in request.get("params") or []]
        if command == "PING":
            return [dumped({"cmd": "PONG", "success": True, "time": now.ms})]
        if command not in ("SUBSCRIBE", "UN_SUBSCRIBE"):
            return [_refused(number, "ERROR", "Command type invalid!", now)]
        if len(topics) > PER_REQUEST_MAX:
            return [_refused(number, command, "Command type invalid!", now)]
        if self._board.limits(session, now):
            return [_refused(number, command, "Too many requests", now)]
        done = [topic for topic in topics if self._does(session, command, topic)]
        answer = {"id": number, "cmd": command, "success": True, "time": now.ms, "data": done}
        return [dumped(answer)]

    def _does(self, session: SimulatedSession, command: str, topic: str) -> bool:
        """Return whether a topic is accepted; `marks` holds topics without data."""
        live = {*session.topics, *session.marks}
        if command == "UN_SUBSCRIBE":
            session.topics.pop(topic, None)
            session.marks.discard(topic)
            return topic in live
        channel, _, rest = topic.partition("@")
        native, _, depth = rest.partition("@")
        whole = channel == CHANNEL and not depth
        silent = channel == SILENT and depth in SILENT_DEPTHS
        if not (whole or silent) or not self._board.lists(native):
            return False
        if topic in live or len(live) >= TOPICS_MAX:
            return False
        followed = None if silent else self._follow(session, topic, ChannelKey(native, DEPTH))
        if followed is None:
            session.marks.add(topic)
        return True

    def _follow(
        self, session: SimulatedSession, topic: str, key: ChannelKey
    ) -> PublishedBook | None:
        channel = self._board.subscribe(session, topic, key)
        if channel is not None:
            channel.snapshot()  # ends a phantom; not sent
        return channel

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode the whole window after a change."""
        native = channel.listing.native
        book = channel.whole(changes)
        data = {"ts": now.ms, "bids": book.bids, "asks": book.asks, "s": native}
        return dumped({"topic": f"{CHANNEL}@{native}", "ts": now.ms, "data": data})

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing: clients may send pings."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer `instruments` and `orderbook`."""
        if path == "/v3/public/instruments":
            rows = [_row(listing) for listing in self._board.listings.values()]
            return answered({"success": True, "data": {"rows": rows}, "timestamp": now.ms})
        return self._orderbook(query, now) if path == "/v3/public/orderbook" else None

    def _orderbook(self, query: Mapping[str, str], now: Now) -> RestReply:
        native, most = query.get("symbol", ""), int(query.get("maxLevel", BODY_LEVELS))
        lists = self._board.lists(native) and native not in self._board.muted
        channel = self._board.channel(ChannelKey(native, DEPTH)) if lists else None
        if channel is None:
            return answered({"success": False, "message": f"invalid symbol {native}"}, 400)
        book = channel.snapshot()
        first = 0 if query.get("rpi") == "true" else RETAIL
        sides = {
            side: [{"price": price, "quantity": amount} for price, amount in rows[first:][:most]]
            for side, rows in (("asks", book.asks), ("bids", book.bids))
        }
        return answered({"success": True, "timestamp": now.ms, "data": sides})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the symbol of an `orderbook10` frame."""
        message = loaded(frame) or {}
        book = str(message.get("topic", "")).startswith(f"{CHANNEL}@")
        return message["data"]["s"] if book else None


def _row(listing: ListedSymbol) -> dict[str, object]:
    return {
        "symbol": listing.native,
        "status": "TRADING",
        "baseAsset": listing.base,
        "baseAssetMultiplier": 1,
        "quoteAsset": listing.quote,
        "quoteTick": listing.tick,
        "baseTick": listing.lot,
        "baseMin": listing.lot,
        "minNotional": "1",
        "orderMode": "NORMAL",
    }


def _refused(number: object, command: str, words: str, now: Now) -> str:
    answer = {"id": number, "cmd": command, "success": False, "time": now.ms, "data": words}
    return dumped(answer)


DIALECT: Final[type[Dialect]] = Woo
