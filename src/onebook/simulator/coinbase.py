"""Coinbase Exchange's side of `level2_batch`: a snapshot, then changes without numbers.

One unknown product refuses the whole request; a client that subscribes nothing within 5 s is
dropped; the `heartbeat` channel speaks once a second for each product.
https://docs.cdp.coinbase.com/exchange/websocket-feed/channels#level2-batch-channel
"""

from collections.abc import Mapping
from typing import Any, Final

from onebook.simulator.board import (
    Answer,
    Board,
    Channel,
    Dialect,
    Dropped,
    Key,
    Now,
    Rules,
    Session,
    Spelling,
    TextChanges,
    answered,
    dumped,
    loaded,
)
from onebook.simulator.listings import Listing, Profile
from onebook.simulator.windows import Most

DEPTH: Final = 5_000
TOO_MANY_STREAMS: Final = "too many L2 streams requested in a single session"
FIRST_SUBSCRIBE_S: Final = 5.0
CHANNELS: Final = ("level2_batch", "heartbeat")


class Coinbase:
    """The protocol of ws-feed.exchange.coinbase.com and api.exchange.coinbase.com."""

    profile = Profile(depth=400, spread_ppm=6, offset_ppm_max=10)
    listings: tuple[Listing, ...] = (
        Listing("BTC/USDT", "BTC-USDT", 2, 8),
        Listing("ETH/USDT", "ETH-USDT", 2, 8),
        Listing("SOL/USDT", "SOL-USDT", 2, 8),
        Listing("DOGE/USDT", "DOGE-USDT", 5, 1),
        Listing("BTC/USD", "BTC-USD", 2, 8),
        Listing("ETH/USD", "ETH-USD", 2, 8),
        Listing("ETH/BTC", "ETH-BTC", 5, 8),
    )
    rules = Rules(
        spelling=Spelling(price_places=None, amount_places=8),
        messages=(Most(100, 1.0, per_address=True),),
        requests=(Most(20, 1.0, per_address=True),),  # 8 a second, and bursts of 20
        silence_max_s=90.0,
        heartbeat_s=1.0,
    )

    def __init__(self, board: Board) -> None:
        self._board = board

    def opened(self, session: Session, now: Now) -> list[str]:
        """Coinbase says nothing first."""
        return []

    def received(self, session: Session, frame: str, now: Now) -> list[str]:
        """Subscribe and unsubscribe."""
        request = loaded(frame) or {}
        kind = request.get("type")
        if kind not in ("subscribe", "unsubscribe"):
            return [_error("Failed to parse message", "Type is not valid")]
        if self._board.limits(session, now):
            return [_error(f"Failed to {kind}", "rate limit exceeded")]
        wanted = _wanted(request)
        problem = self._problem(wanted)
        if problem and self._board.nameless:
            return [dumped({"type": "error", "message": TOO_MANY_STREAMS})]
        if problem:
            return [_error(f"Failed to {kind}", problem)]
        act = self._subscribe if kind == "subscribe" else self._unsubscribe
        snapshots = act(session, wanted)
        return [self._subscriptions(session), *snapshots]

    def _problem(self, wanted: list[tuple[str, str]]) -> str:
        for channel, native in wanted:
            if channel not in CHANNELS:
                return f"{channel} is not a valid channel"
            if not self._board.lists(native):
                return f"{native} is not a valid product"
        return ""

    def _subscribe(self, session: Session, wanted: list[tuple[str, str]]) -> list[str]:
        snapshots = []
        for channel, native in wanted:
            if channel == "heartbeat":
                session.marks.add(native)
                continue
            window = self._board.subscribe(session, native, Key(native, DEPTH))
            if window:
                snapshots.append(_snapshot(window))
        return snapshots

    def _unsubscribe(self, session: Session, wanted: list[tuple[str, str]]) -> list[str]:
        for channel, native in wanted:
            if channel == "heartbeat":
                session.marks.discard(native)
            else:
                session.topics.pop(native, None)
        return []

    def _subscriptions(self, session: Session) -> str:
        listed = {"level2_batch": [*session.topics], "heartbeat": sorted(session.marks)}
        channels = [
            {"name": name, "product_ids": natives, "account_ids": None}
            for name, natives in listed.items()
            if natives
        ]
        return dumped({"type": "subscriptions", "channels": channels})

    def delta(self, channel: Channel, changes: TextChanges, now: Now) -> str:
        """An `l2update`."""
        sides = (("buy", changes.bids), ("sell", changes.asks))
        return dumped(
            {
                "type": "l2update",
                "product_id": channel.listing.native,
                "changes": [[side, *level] for side, levels in sides for level in levels],
                "time": now.rfc3339(),
            }
        )

    def heartbeat(self, session: Session, now: Now) -> list[str]:
        """One frame for each product of the heartbeat channel.

        Raises:
            Dropped: Nothing was subscribed in time.
        """
        idle = not session.topics and not session.marks
        if idle and now.s - session.opened_s > FIRST_SUBSCRIBE_S:
            raise Dropped("No subscription within 5 s.")
        return [
            dumped(
                {
                    "type": "heartbeat",
                    "last_trade_id": 1,
                    "product_id": native,
                    "sequence": int(now.s),
                    "time": now.rfc3339(),
                }
            )
            for native in sorted(session.marks)
        ]

    def get(self, path: str, query: Mapping[str, str], now: Now) -> Answer | None:
        """The products."""
        if path != "/products":
            return None
        return answered(
            [
                {
                    "id": listing.native,
                    "base_currency": listing.base,
                    "quote_currency": listing.quote,
                    "quote_increment": listing.tick,
                    "base_increment": listing.lot,
                    "status": "online",
                    "trading_disabled": False,
                }
                for listing in self._board.listings.values()
            ]
        )

    @staticmethod
    def native_of(frame: str) -> str | None:
        """The product of a snapshot or an `l2update`."""
        message = loaded(frame) or {}
        book = message.get("type") in ("snapshot", "l2update")
        return message.get("product_id") if book else None


def _wanted(request: dict[str, Any]) -> list[tuple[str, str]]:
    """(channel, product) of a request; a channel may bring its own products."""
    common = request.get("product_ids", [])
    pairs = []
    for channel in request.get("channels", []):
        named = isinstance(channel, dict)
        natives = channel.get("product_ids", common) if named else common
        pairs += [(channel["name"] if named else channel, native) for native in natives]
    return pairs


def _snapshot(channel: Channel) -> str:
    book = channel.snapshot()
    return dumped(
        {
            "type": "snapshot",
            "product_id": channel.listing.native,
            "bids": book.bids,
            "asks": book.asks,
        }
    )


def _error(message: str, reason: str) -> str:
    return dumped({"type": "error", "message": message, "reason": reason})


DIALECT: Final[type[Dialect]] = Coinbase
