"""Simulated Coinbase, `level2_batch` of Exchange: a snapshot, then changes without numbers.

One unknown product fails the whole request; a client that does not subscribe within 5 s is
disconnected; the `heartbeat` channel sends one frame a second for each product.
https://docs.cdp.coinbase.com/exchange/websocket-feed/channels#level2-batch-channel

The same port has Advanced Trade's `level2` and `heartbeats`: a request with a single `channel`
selects it, and every message of such a connection is numbered from 0. At most 30 products. Our
choice, since the page does not say: the error message for unknown products, and that they fail
their whole request. The request limits are those of Exchange. `client_id` is on the page but not in
real frames.
https://docs.cdp.coinbase.com/coinbase-app/advanced-trade-apis/websocket/websocket-channels
"""

from collections.abc import Mapping
from typing import Any, Final

from onebook.simulator.kit import (
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
TOO_MANY_STREAMS: Final = "too many L2 streams requested in a single session"
FIRST_SUBSCRIBE_S: Final = 5.0
CHANNELS: Final = ("level2_batch", "heartbeat")
ADVANCED_DEPTH: Final = 5_001  # tells its windows from those of Exchange
ADVANCED_PRODUCTS_MAX: Final = 30
HEARTBEATS: Final = "heartbeats"
NUMBER: Final = '"sequence_num":-1,'
EPOCH: Final = "1970-01-01T00:00:00Z"


class Numbers:
    """Numbers every message of a connection to Advanced Trade."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, frame: str) -> str:
        """Add the number to a frame."""
        number, self._next = self._next, self._next + 1
        return frame.replace(NUMBER, f'"sequence_num":{number},', 1)


class Coinbase(Dialect):
    """The protocols of ws-feed.exchange and advanced-trade-ws, and of api.exchange.coinbase.com."""

    profile = Profile(depth=400, spread_ppm=6, offset_ppm_max=10)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTC-USDT", 2, 8),
        ListedSymbol("ETH/USDT", "ETH-USDT", 2, 8),
        ListedSymbol("SOL/USDT", "SOL-USDT", 2, 8),
        ListedSymbol("DOGE/USDT", "DOGE-USDT", 5, 1),
        ListedSymbol("BTC/USD", "BTC-USD", 2, 8),
        ListedSymbol("ETH/USD", "ETH-USD", 2, 8),
        ListedSymbol("ETH/BTC", "ETH-BTC", 5, 8),
    )
    rules = ExchangeRules(
        clock=("/time", lambda now: {"iso": now.rfc3339(), "epoch": now.ms / 1_000}),
        spelling=Spelling(price_places=None, amount_places=8),
        messages=(Most(100, 1.0, per_address=True),),
        requests=(Most(20, 1.0, per_address=True),),  # 8 a second with bursts of 20
        fetches=(Most(10),),
        silence_max_s=90.0,
        heartbeat_s=1.0,
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer subscriptions and unsubscriptions."""
        request = loaded(frame) or {}
        kind = request.get("type")
        if kind not in ("subscribe", "unsubscribe"):
            return [_error("Failed to parse message", "Type is not valid")]
        advanced = isinstance(request.get("channel"), str)
        if self._board.limits(session, now):
            words = "rate limit exceeded"
            return [_refused(words) if advanced else _error(f"Failed to {kind}", words)]
        if advanced:
            return self._advanced(session, kind, request, now)
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

    def _subscribe(self, session: SimulatedSession, wanted: list[tuple[str, str]]) -> list[str]:
        snapshots = []
        for channel, native in wanted:
            if channel == "heartbeat":
                session.marks.add(native)
                continue
            window = self._board.subscribe(session, native, ChannelKey(native, DEPTH))
            if window:
                snapshots.append(_snapshot(window))
        return snapshots

    def _unsubscribe(self, session: SimulatedSession, wanted: list[tuple[str, str]]) -> list[str]:
        for channel, native in wanted:
            if channel == "heartbeat":
                session.marks.discard(native)
            else:
                session.topics.pop(native, None)
        return []

    def _subscriptions(self, session: SimulatedSession) -> str:
        listed = {"level2_batch": [*session.topics], "heartbeat": sorted(session.marks)}
        channels = [
            {"name": name, "product_ids": natives, "account_ids": None}
            for name, natives in listed.items()
            if natives
        ]
        return dumped({"type": "subscriptions", "channels": channels})

    # Advanced Trade

    def _advanced(
        self, session: SimulatedSession, kind: str, request: dict[str, Any], now: Now
    ) -> list[str]:
        numbers = session.form = session.form or Numbers()
        natives = request.get("product_ids", [])
        answers: list[str] = []
        if request["channel"] == HEARTBEATS:
            (session.marks.add if kind == "subscribe" else session.marks.discard)(HEARTBEATS)
        elif request["channel"] != "level2":
            return [_refused("channel is not supported")]
        elif kind == "unsubscribe":
            for native in natives:
                session.topics.pop(native, None)
        else:
            unknown = [native for native in natives if not self._board.lists(native)]
            if unknown and not self._board.nameless:
                return [_refused(f"{unknown[0]} is not a product")]
            if unknown or len({*session.topics, *natives}) > ADVANCED_PRODUCTS_MAX:
                return [_refused(TOO_MANY_STREAMS)]
            keys = [ChannelKey(native, ADVANCED_DEPTH) for native in natives]
            windows = [self._board.subscribe(session, key.native, key) for key in keys]
            answers = [
                _l2_data(window, "snapshot", window.snapshot(), now) for window in windows if window
            ]
        listed = {"level2": [*session.topics], HEARTBEATS: [HEARTBEATS] if session.marks else []}
        subscribed = {name: products for name, products in listed.items() if products}
        answers.append(_enveloped("subscriptions", {"subscriptions": subscribed}, now))
        return [str(numbers(answer)) for answer in answers]

    # Both protocols

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode an `l2update`, or `l2_data` of Advanced Trade, depending on the window."""
        if channel.key.depth == ADVANCED_DEPTH:
            return _l2_data(channel, "update", changes, now)
        sides = (("buy", changes.bids), ("sell", changes.asks))
        return dumped(
            {
                "type": "l2update",
                "product_id": channel.listing.native,
                "changes": [[side, *level] for side, levels in sides for level in levels],
                "time": now.rfc3339(),
            }
        )

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return one frame for each product of the heartbeat channel.

        Raises:
            Dropped: The client did not subscribe in time.
        """
        idle = not session.topics and not session.marks
        if idle and now.s - session.opened_s > FIRST_SUBSCRIBE_S:
            raise Dropped("No subscription within 5 s.")
        if session.form is not None:
            fields = {"current_time": now.rfc3339(), "heartbeat_counter": int(now.s)}
            return [str(session.form(_enveloped(HEARTBEATS, fields, now)))] if session.marks else []
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

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of products."""
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
                    "min_market_funds": "1",
                    "status": "online",
                    "trading_disabled": False,
                }
                for listing in self._board.listings.values()
            ]
        )

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the product of a snapshot, an `l2update` or `l2_data`."""
        message = loaded(frame) or {}
        match message:
            case {"channel": "l2_data", "events": [{"product_id": str(native)}]}:
                return native
        book = message.get("type") in ("snapshot", "l2update")
        return message.get("product_id") if book else None


def _wanted(request: dict[str, Any]) -> list[tuple[str, str]]:
    """List (channel, product) of a request; a channel may have its own products."""
    common = request.get("product_ids", [])
    pairs = []
    for channel in request.get("channels", []):
        named = isinstance(channel, dict)
        natives = channel.get("product_ids", common) if named else common
        pairs += [(channel["name"] if named else channel, native) for native in natives]
    return pairs


def _snapshot(channel: PublishedBook) -> str:
    book = channel.snapshot()
    return dumped(
        {
            "type": "snapshot",
            "product_id": channel.listing.native,
            "bids": book.bids,
            "asks": book.asks,
        }
    )


def _refused(message: str) -> str:
    """Encode an error of Advanced Trade, which has no number."""
    return dumped({"type": "error", "message": message})


def _l2_data(channel: PublishedBook, kind: str, book: TextChanges, now: Now) -> str:
    at = EPOCH if kind == "snapshot" else now.rfc3339()
    updates = [
        {"side": side, "event_time": at, "price_level": price, "new_quantity": amount}
        for side, levels in (("bid", book.bids), ("offer", book.asks))
        for price, amount in levels
    ]
    event = {"type": kind, "product_id": channel.listing.native, "updates": updates}
    return _enveloped("l2_data", event, now)


def _enveloped(channel: str, event: dict[str, Any], now: Now) -> str:
    """Encode a message of Advanced Trade, still without its number."""
    head = dumped({"channel": channel, "timestamp": now.rfc3339()})
    return f'{head[:-1]},{NUMBER}"events":{dumped([event])}}}'


def _error(message: str, reason: str) -> str:
    return dumped({"type": "error", "message": message, "reason": reason})


DIALECT: Final[type[Dialect]] = Coinbase
