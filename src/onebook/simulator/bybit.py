"""Simulated Bybit, v5 spot protocol: `orderbook.<depth>.<symbol>`, `u` rises by one.

`orderbook.1` is always whole, with its own `u`; `seq` orders the books of all depths.

At most 10 topics per request and 21,000 characters of topics per connection; one unknown topic
fails the whole request. https://bybit-exchange.github.io/docs/v5/websocket/public/orderbook
If a pair has no book (delisting, auction, change of steps), `u` is 1 and both sides are empty:
https://bybit-exchange.github.io/docs/v5/websocket/public/full-ob (here in every channel).
"""

from collections.abc import Mapping
from typing import Final

from onebook.simulator.kit import (
    CONNECTION_ID,
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
    Spelling,
    TextChanges,
    answered,
    dumped,
    loaded,
)

ARGUMENTS_MAX: Final = 10
TOPICS_CHARACTERS_MAX: Final = 21_000
DEPTHS: Final = (1, 50, 200, 1_000)
DEPTH_OF_TOPS: Final = 200  # the window whose best prices `orderbook.1` has


class Bybit(Dialect):
    """The protocol of stream.bybit.com and api.bybit.com."""

    profile = Profile(depth=250, spread_ppm=5, offset_ppm_max=8)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTCUSDT", 2, 6),
        ListedSymbol("ETH/USDT", "ETHUSDT", 2, 5),
        ListedSymbol("SOL/USDT", "SOLUSDT", 2, 3),
        ListedSymbol("DOGE/USDT", "DOGEUSDT", 5, 1),
        ListedSymbol("ETH/BTC", "ETHBTC", 6, 5),
    )
    rules = ExchangeRules(
        clock=(
            "/v5/market/time",
            lambda now: {
                "retCode": 0,
                "retMsg": "OK",
                "result": {"timeSecond": str(now.ms // 1_000), "timeNano": f"{now.ms}000000"},
                "retExtInfo": {},
                "time": now.ms,
            },
        ),
        states=2,
        spelling=Spelling(price_places=None),
        connects=(Most(500, 300.0),),
        silence_max_s=600.0,
    )

    def __init__(self, board: ExchangeBoard) -> None:
        super().__init__(board)
        self._tops = 1  # `u` of the last frame of best prices

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer pings, subscriptions and unsubscriptions."""
        request = loaded(frame) or {}
        number, topics = request.get("req_id", ""), request.get("args", [])
        match request.get("op"):
            case "ping":
                return [_reply("ping", "pong", number)]
            case "subscribe":
                return self._subscribe(session, topics, number, now)
            case "unsubscribe":
                for topic in topics:
                    session.topics.pop(topic, None)
                return [_reply("unsubscribe", "", number)]
            case operation:
                text = f"error:request [op:{operation}] unknown"
                return [_reply(str(operation), text, number, success=False)]

    def _subscribe(
        self, session: SimulatedSession, topics: list[str], number: str, now: Now
    ) -> list[str]:
        if self._board.limits(session, now):
            return [_reply("subscribe", "Too many visits!", number, success=False)]
        problem = self._problem(session, topics)
        if problem and self._board.nameless:
            reply = {"success": False, "ret_msg": "args is invalid", "conn_id": CONNECTION_ID}
            return [dumped(reply | {"op": "subscribe"})]
        if problem:
            return [_reply("subscribe", problem, number, success=False)]
        frames = [self._started(session, topic, now) for topic in topics]
        return [_reply("subscribe", "subscribe", number), *filter(None, frames)]

    def _started(self, session: SimulatedSession, topic: str, now: Now) -> str | None:
        key = _key(topic)
        if key.depth == 1:
            window = self._board.follow_top(session, topic, key.native, DEPTH_OF_TOPS)
            return None if window is None else self.top(window, now)
        window = self._board.subscribe(session, topic, key)
        return None if window is None else _frame(window, "snapshot", window.snapshot(), now)

    def _problem(self, session: SimulatedSession, topics: list[str]) -> str:
        if len(topics) > ARGUMENTS_MAX:
            return f"args size >{ARGUMENTS_MAX}"
        if sum(map(len, [*session.topics, *topics])) > TOPICS_CHARACTERS_MAX:
            return "args length too long"
        for topic in topics:
            if topic in session.topics:
                return f"error:already subscribed,topic:{topic}"
            key = _key(topic)
            if key.depth not in DEPTHS or not self._board.lists(key.native):
                return f"error:handler not found,topic:{topic}"
        return ""

    def top(self, channel: PublishedBook, now: Now) -> str:
        """Encode a frame of `orderbook.1`."""
        best = channel.labelled(channel.listing.native)
        best.key = ChannelKey(channel.listing.native, 1)
        self._tops += 1
        return _frame(best, "snapshot", channel.top(1), now, updates=self._tops)

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode a `delta` frame."""
        return _frame(channel, "delta", changes, now)

    @staticmethod
    def bookless(channel: PublishedBook, now: Now) -> str:
        """Encode the frame of a pair without a book."""
        return _frame(channel, "delta", TextChanges([], []), now, updates=1)

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing: the client sends pings."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of instruments."""
        if path != "/v5/market/instruments-info":
            return None
        rows = [
            {
                "symbol": listing.native,
                "baseCoin": listing.base,
                "quoteCoin": listing.quote,
                "innovation": "0",
                "status": "Trading",
                "lotSizeFilter": {
                    "basePrecision": listing.lot,
                    "quotePrecision": "0.00000001",
                    "minOrderQty": listing.lot,
                    "minOrderAmt": "5",
                },
                "priceFilter": {"tickSize": listing.tick},
                "symbolType": "",
            }
            for listing in self._board.listings.values()
        ]
        result = {"category": "spot", "list": rows}
        return answered({"retCode": 0, "retMsg": "OK", "result": result, "time": now.ms})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the symbol of an `orderbook` frame."""
        topic = str((loaded(frame) or {}).get("topic", ""))
        return topic.rpartition(".")[2] if topic.startswith("orderbook.") else None

    @staticmethod
    def is_top(frame: str) -> bool:
        """Return whether a frame is of `orderbook.1`."""
        return str((loaded(frame) or {}).get("topic", "")).startswith("orderbook.1.")


def _key(topic: str) -> ChannelKey:
    channel, _, rest = topic.partition(".")
    depth, _, native = rest.partition(".")
    return ChannelKey(native, int(depth) if channel == "orderbook" and depth.isdecimal() else 0)


def _frame(channel: PublishedBook, kind: str, book: TextChanges, now: Now, updates: int = 0) -> str:
    native = channel.listing.native
    data = {
        "s": native,
        "b": book.bids,
        "a": book.asks,
        "u": updates or channel.updates,
        "seq": channel.sequence,
    }
    topic = f"orderbook.{channel.key.depth}.{native}"
    return dumped({"topic": topic, "ts": now.ms, "type": kind, "data": data, "cts": now.ms})


def _reply(operation: str, text: str, number: str, *, success: bool = True) -> str:
    return dumped(
        {
            "success": success,
            "ret_msg": text,
            "conn_id": CONNECTION_ID,
            "req_id": number,
            "op": operation,
        }
    )


DIALECT: Final[type[Dialect]] = Bybit
