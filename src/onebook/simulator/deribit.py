"""Simulated Deribit, JSON-RPC socket: `book.<instrument>.100ms`, chained by `prev_change_id`.

`quote.<instrument>` is sent at each change of the best prices. `timestamp` is the time of the last
change in both channels, in milliseconds, so that several states may have one time. A side without
orders has the price null.

The answer to a subscription lists its known channels. Test requests are sent at the client's
interval, and heartbeats on an idle connection; if one is unanswered when the next is due, the
connection is closed. Numbers are JSON numbers with a decimal point.
https://docs.deribit.com/subscriptions/orderbook/bookinstrument_nameinterval
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
    Spelling,
    TextChanges,
    TextLevels,
    answered,
    dumped,
    loaded,
)

DEPTH: Final = 5_000
CHANNELS_MAX: Final = 500
INTERVAL_MIN_S: Final = 10
TOO_MANY: Final = 10028
BAD_REQUEST: Final = 11050
INVALID_PARAMS: Final = -32602
NO_METHOD: Final = -32601
UNANSWERED: Final = "unanswered public/test"
INTERVAL: Final = "interval of heartbeats"  # seconds, set by the client
LAST: Final = "last heartbeat"
PLATFORM: Final = "platform_state"
STATES_MAX: Final = 64  # of one book, whose times are remembered


def status(system: str) -> str:
    """Encode the notification that maintenance starts or ends."""
    data = {"maintenance": system != "online"}
    return _notified("subscription", {"channel": PLATFORM, "data": data})


class Deribit(Dialect):
    """The protocol of www.deribit.com."""

    profile = Profile(depth=200, spread_ppm=15, offset_ppm_max=15)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTC_USDT", 1, 4),
        ListedSymbol("ETH/USDT", "ETH_USDT", 2, 4),
        ListedSymbol("ETH/BTC", "ETH_BTC", 5, 4),
    )
    rules = ExchangeRules(
        clock=(
            "/api/v2/public/get_time",
            lambda now: {
                "jsonrpc": "2.0",
                "result": now.ms,
                "usIn": now.ms * 1_000,
                "usOut": now.ms * 1_000,
                "usDiff": 0,
                "testnet": False,
            },
        ),
        spelling=Spelling(price_places=1, amount_places=1),
        messages=(Most(100, 1.0, per_address=True),),  # a burst; 20 a second sustained
        requests=(Most(10, 1.0, per_address=True),),
        silence_max_s=86_400.0,  # silent clients are detected by test requests
        heartbeat_s=1.0,
        status=status,
        states=4,
    )

    def __init__(self, board: ExchangeBoard) -> None:
        super().__init__(board)
        self._changed: dict[str, dict[int, int]] = {}

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer a request by its method."""
        request = loaded(frame)
        if request is None:
            error = {"message": "bad_request", "code": BAD_REQUEST, "data": "invalid json"}
            return [dumped({"jsonrpc": "2.0", "error": error})]
        if not isinstance(request.get("params", {}), dict):
            return [_error({}, INVALID_PARAMS, "Invalid params", "invalid format")]
        params = request.get("params", {})
        match request.get("method"):
            case "public/test":
                session.marks.discard(UNANSWERED)
                return [_result(request, {"version": "1.2.26"})]
            case "public/set_heartbeat":
                return self._set_heartbeat(session, request, params.get("interval"), now)
            case "public/subscribe" | "public/unsubscribe" as method:
                return self._listen(session, request, method, params.get("channels"), now)
        return [_error(request, NO_METHOD, "Method not found", "")]

    def _set_heartbeat(
        self, session: SimulatedSession, request: dict[str, Any], interval: object, now: Now
    ) -> list[str]:
        if not isinstance(interval, int) or interval < INTERVAL_MIN_S:
            return [_error(request, INVALID_PARAMS, "Invalid params", "value is too small")]
        session.heartbeats |= {INTERVAL: interval, LAST: now.s}
        return [_result(request, "ok")]

    def _listen(
        self,
        session: SimulatedSession,
        request: dict[str, Any],
        method: str,
        channels: object,
        now: Now,
    ) -> list[str]:
        if not isinstance(channels, list):
            return [_error(request, INVALID_PARAMS, "Invalid params", "value must be a list")]
        if self._board.limits(session, now):
            return [_error(request, TOO_MANY, "too_many_requests", "")]
        if len(channels) > CHANNELS_MAX:
            return [_error(request, INVALID_PARAMS, "Invalid params", "too many channels")]
        named = {str(each): native for each in channels if (native := _native(str(each)))}
        known = {each: native for each, native in named.items() if self._board.lists(native)}
        if self._board.nameless and known != named:
            return [_error({}, INVALID_PARAMS, "Invalid params", "")]
        accepted = [PLATFORM] if PLATFORM in channels else []
        done = _result(request, [*accepted, *known])
        if method == "public/unsubscribe":
            for channel in known:
                session.topics.pop(channel, None)
            return [done]
        frames = [self._begun(session, *each, now) for each in known.items()]
        return [done, *filter(None, frames)]

    def _begun(self, session: SimulatedSession, channel: str, native: str, now: Now) -> str | None:
        """Subscribe to a channel; returns its first frame, none for an open one."""
        if channel in session.topics:
            return None
        if channel.startswith("quote."):
            window = self._board.follow_top(session, channel, native, DEPTH)
            return self.top(window, now) if window else None
        window = self._board.subscribe(session, channel, ChannelKey(native, DEPTH))
        return self._frame(window, window.snapshot(), None, now) if window else None

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode a change."""
        return self._frame(channel, changes, channel.previous, now)

    def top(self, channel: PublishedBook, now: Now) -> str:
        """Encode a notification of `quote`."""
        native = channel.listing.native
        bid, ask = ([*side, ("null", "0.0")][0] for side in channel.top(1))
        return (
            '{"jsonrpc":"2.0","method":"subscription","params":{'
            f'"channel":"quote.{native}","data":{{"timestamp":{self._time(channel, now)},'
            f'"instrument_name":"{native}","best_bid_price":{bid[0]},"best_bid_amount":{bid[1]},'
            f'"best_ask_price":{ask[0]},"best_ask_amount":{ask[1]}}}}}}}'
        )

    def _time(self, channel: PublishedBook, now: Now) -> int:
        """Return the time of the last change, which is that of this state."""
        changed = self._changed.setdefault(channel.listing.native, {})
        if channel.sequence not in changed:
            changed[channel.sequence] = now.ms
            if len(changed) > STATES_MAX:
                del changed[min(changed)]
        return changed[channel.sequence]

    def _frame(
        self, channel: PublishedBook, book: TextChanges, previous: int | None, now: Now
    ) -> str:
        """Format the JSON by hand, so that numbers keep their digits."""
        native = channel.listing.native
        kind = "snapshot" if previous is None else "change"
        chained = "" if previous is None else f'"prev_change_id":{previous},'
        first = "new" if previous is None else "change"
        return (
            '{"jsonrpc":"2.0","method":"subscription","params":{'
            f'"channel":"book.{native}.100ms","data":{{"type":"{kind}",'
            f'"timestamp":{self._time(channel, now)},'
            f'"instrument_name":"{native}",{chained}"change_id":{channel.sequence},'
            f'"bids":{_levels(book.bids, first)},"asks":{_levels(book.asks, first)}}}}}}}'
        )

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Return a test request at the client's interval, and a heartbeat if it is idle.

        Raises:
            Dropped: The last test request was not answered.
        """
        if INTERVAL not in session.heartbeats:
            return []
        interval_s = session.heartbeats[INTERVAL]
        if now.s - session.heartbeats[LAST] < interval_s:
            return []
        if UNANSWERED in session.marks:
            raise Dropped("A test request was not answered.")
        session.heartbeats[LAST] = now.s
        session.marks.add(UNANSWERED)
        idle = now.s - session.sent_s >= interval_s
        kinds = ("heartbeat", "test_request") if idle else ("test_request",)
        return [_notified("heartbeat", {"type": kind}) for kind in kinds]

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the list of spot instruments."""
        if path != "/api/v2/public/get_instruments":
            return None
        rows = [
            {
                "kind": "spot",
                "instrument_name": listing.native,
                "base_currency": listing.base,
                "quote_currency": listing.quote,
                "counter_currency": listing.quote,
                "tick_size": float(listing.tick),
                "min_trade_amount": float(listing.lot),
                "is_active": True,
                "maker_commission": 0.0,
                "taker_commission": 0.0005,
                "instrument_type": "linear",
            }
            for listing in self._board.listings.values()
        ]
        return answered({"jsonrpc": "2.0", "result": rows, "testnet": False})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the instrument of a `book` or `quote` notification."""
        message = loaded(frame) or {}
        if message.get("method") != "subscription":
            return None
        native: str | None = message["params"]["data"].get("instrument_name")
        return native

    @staticmethod
    def is_top(frame: str) -> bool:
        """Return whether a frame is of `quote`."""
        return '"channel":"quote.' in frame


def _native(channel: str) -> str:
    """Return the instrument of a channel that is simulated; "" for any other."""
    match channel.split("."):
        case ["book", native, "100ms"] | ["quote", native]:
            return native
    return ""


def _levels(levels: TextLevels, kind: str) -> str:
    rows = (
        f'["{kind if float(amount) else "delete"}",{price},{amount}]' for price, amount in levels
    )
    return f"[{','.join(rows)}]"


def _notified(method: str, params: object) -> str:
    return dumped({"jsonrpc": "2.0", "method": method, "params": params})


def _result(request: dict[str, Any], result: object) -> str:
    number = {"id": request["id"]} if "id" in request else {}
    return dumped({"jsonrpc": "2.0"} | number | {"result": result, "testnet": False})


def _error(request: dict[str, Any], code: int, words: str, reason: str) -> str:
    error = {"message": words, "code": code} | ({"data": {"reason": reason}} if reason else {})
    number = {"id": request["id"]} if "id" in request else {}
    return dumped({"jsonrpc": "2.0"} | number | {"error": error, "testnet": False})


DIALECT: Final[type[Dialect]] = Deribit
