"""Simulated Hyperliquid: `l2Book`, whole books of 20 levels, or of 5 if `fast`, and `bbo`.

`time` is that of the block: each state of a coin has its own, the same in both channels. `bbo` is
sent after each block, not with the subscription; an empty side is null.

A connection is greeted by a text that is not JSON, which the exchange's own clients expect. A
request has one subscription, which is echoed with its defaults filled in. An unknown coin closes
the connection: on the real exchange without a close frame, here with one. Books are sent at the
rate of the simulator. The list is `spotMeta`, by POST to `/info`; coins of other chains have
different names there.
https://hyperliquid.gitbook.io/hyperliquid-docs/for-developers/api/websocket/subscriptions
"""

from collections.abc import Mapping
from typing import Any, Final

from onebook.simulator.kit import (
    ChannelKey,
    Dialect,
    Dropped,
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
    TextLevels,
    answered,
    dumped,
    loaded,
)

SLOW_DEPTH: Final = 20
FAST_DEPTH: Final = 5
BLOCKS_MAX: Final = 64  # whose times are remembered
BRIDGED: Final = {"BTC": "UBTC", "ETH": "UETH", "SOL": "USOL", "USDT": "USDT0"}
GREETING: Final = "Websocket connection established."
NO_REQUEST: Final = "Error parsing JSON into valid websocket request: "
TOO_MANY: Final = "Too many requests"  # unconfirmed


class Hyperliquid(Dialect):
    """The protocol of api.hyperliquid.xyz."""

    profile = Profile(depth=30, spread_ppm=30, offset_ppm_max=20)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "UBTC/USDT0", 1, 5),
        ListedSymbol("ETH/USDT", "@151", 1, 4),
        ListedSymbol("SOL/USDT", "@156", 2, 3),
    )
    rules = ExchangeRules(
        states=2,
        messages=(Most(2_000, 60.0, per_address=True),),
        connects=(Most(30, 60.0),),
        fetches=(Most(1_200, 60.0),),
        silence_max_s=60.0,
        posted=("/info",),
    )

    def __init__(self, board: ExchangeBoard) -> None:
        super().__init__(board)
        self._blocks: dict[tuple[str, int], dict[int, int]] = {}

    def weight(self, path: str, query: Mapping[str, str]) -> int:
        """Return 20, the weight of the list."""
        return 20

    def opened(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return a greeting that is not JSON."""
        return [GREETING]

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer pings, subscriptions and unsubscriptions."""
        request = loaded(frame) or {}
        method, filled = request.get("method"), _filled(request.get("subscription"))
        if method == "ping":
            return ['{"channel":"pong"}']
        if method not in ("subscribe", "unsubscribe") or filled is None:
            return [_error(NO_REQUEST + frame)]
        if self._board.limits(session, now):
            return [_error(TOO_MANY)]
        answer = {"method": method, "subscription": filled}
        echo = dumped({"channel": "subscriptionResponse", "data": answer})
        if method == "subscribe":
            return self._subscribe(session, filled, echo, now)
        left = session.topics.pop(dumped(filled), None)
        return [echo if left else _error(f"Already unsubscribed: {dumped(filled)}")]

    def _subscribe(
        self, session: SimulatedSession, filled: dict[str, Any], echo: str, now: Now
    ) -> list[str]:
        topic = dumped(filled)
        if topic in session.topics:
            return [_error(f"Already subscribed: {topic}")]
        if not self._board.lists(filled["coin"]):
            raise Dropped("")
        if filled["type"] == "bbo":
            self._board.follow_top(session, topic, filled["coin"], FAST_DEPTH)
            return [echo]
        depth = FAST_DEPTH if filled["fast"] else SLOW_DEPTH
        window = self._board.subscribe(session, topic, ChannelKey(filled["coin"], depth))
        return [echo, *([self._frame(window, window.snapshot(), now)] if window else [])]

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode the whole book after a change."""
        return self._frame(channel, channel.whole(changes), now)

    def top(self, channel: PublishedBook, now: Now) -> str | None:
        """Encode a frame of `bbo`; only the book of 5 levels has one here."""
        if channel.key.depth != FAST_DEPTH:
            return None
        bbo = [next(iter(_levels(side)), None) for side in channel.top(1)]
        data = {"coin": channel.listing.native, "time": self._time(channel, now), "bbo": bbo}
        return dumped({"channel": "bbo", "data": data})

    def _frame(self, channel: PublishedBook, book: TextChanges, now: Now) -> str:
        levels = [_levels(book.bids), _levels(book.asks)]
        time = self._time(channel, now)
        data = {"coin": channel.listing.native, "time": time, "levels": levels}
        return dumped({"channel": "l2Book", "data": data})

    def _time(self, channel: PublishedBook, now: Now) -> int:
        """Return the time of the block with this state, after those of all states before."""
        blocks = self._blocks.setdefault((channel.listing.symbol, channel.key.depth), {})
        if channel.sequence not in blocks:
            blocks[channel.sequence] = max(now.ms, max(blocks.values(), default=0) + 1)
            if len(blocks) > BLOCKS_MAX:
                del blocks[min(blocks)]
        return blocks[channel.sequence]

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing: the client sends pings."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer `spotMeta`."""
        if path != "/info":
            return None
        if query.get("type") != "spotMeta":
            return RestReply(422, b"Failed to deserialize the JSON body into the target type")
        listings = list(self._board.listings.values())
        codes = list(dict.fromkeys(code for one in listings for code in (one.quote, one.base)))
        decimals = {one.base: one.amount_decimals for one in listings}
        tokens = [
            {
                "name": BRIDGED.get(code, code),
                "szDecimals": decimals.get(code, 2),
                "weiDecimals": 8,
                "index": index,
                "isCanonical": False,
            }
            for index, code in enumerate(codes)
        ]
        universe = [
            {
                "tokens": [codes.index(one.base), codes.index(one.quote)],
                "name": one.native,
                "index": index,
                "isCanonical": "/" in one.native,
            }
            for index, one in enumerate(listings)
        ]
        return answered({"universe": universe, "tokens": tokens})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the coin of a frame of `l2Book` or `bbo`."""
        message = loaded(frame) or {}
        return message["data"]["coin"] if message.get("channel") in ("l2Book", "bbo") else None

    @staticmethod
    def is_top(frame: str) -> bool:
        """Return whether a frame is of `bbo`."""
        return frame.startswith('{"channel":"bbo"')


def _filled(wanted: Any) -> dict[str, Any] | None:
    """Return a book subscription with its defaults filled in; None for anything else."""
    match wanted:
        case {"type": "l2Book", "coin": str(coin)}:
            how = {"nSigFigs": None, "mantissa": None, "fast": wanted.get("fast") is True}
            return {"type": "l2Book", "coin": coin} | how
        case {"type": "bbo", "coin": str(coin)}:
            return {"type": "bbo", "coin": coin}
    return None


def _levels(side: TextLevels) -> list[dict[str, object]]:
    return [{"px": price, "sz": amount, "n": 1} for price, amount in side]


def _error(words: str) -> str:
    return dumped({"channel": "error", "data": words})


DIALECT: Final[type[Dialect]] = Hyperliquid
