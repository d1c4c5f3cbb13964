"""Simulated Deribit, JSON-RPC socket: `book.<instrument>.100ms`, chained by `prev_change_id`.

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
        spelling=Spelling(price_places=1, amount_places=1),
        messages=(Most(100, 1.0, per_address=True),),  # a burst; 20 a second sustained
        requests=(Most(10, 1.0, per_address=True),),
        silence_max_s=86_400.0,  # silent clients are detected by test requests
        heartbeat_s=1.0,
        status=status,
    )

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
        natives = [native for each in channels if (native := _native(str(each)))]
        known = [native for native in natives if self._board.lists(native)]
        if self._board.nameless and known != natives:
            return [_error({}, INVALID_PARAMS, "Invalid params", "")]
        accepted = [PLATFORM] if PLATFORM in channels else []
        done = _result(request, [*accepted, *(f"book.{native}.100ms" for native in known)])
        if method == "public/unsubscribe":
            for native in known:
                session.topics.pop(native, None)
            return [done]
        fresh = [native for native in known if native not in session.topics]
        windows = [self._board.subscribe(session, each, ChannelKey(each, DEPTH)) for each in fresh]
        return [done, *(_frame(each, each.snapshot(), None, now) for each in windows if each)]

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode a change."""
        return _frame(channel, changes, channel.previous, now)

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
                "instrument_type": "linear",
            }
            for listing in self._board.listings.values()
        ]
        return answered({"jsonrpc": "2.0", "result": rows, "testnet": False})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the instrument of a `book` notification."""
        message = loaded(frame) or {}
        if message.get("method") != "subscription":
            return None
        native: str | None = message["params"]["data"].get("instrument_name")
        return native


def _native(channel: str) -> str:
    """Return the instrument of a channel that is simulated; "" for any other."""
    match channel.split("."):
        case ["book", native, "100ms"]:
            return native
    return ""


def _frame(channel: PublishedBook, book: TextChanges, previous: int | None, now: Now) -> str:
    """Format the JSON by hand, so that numbers keep their digits."""
    native = channel.listing.native
    kind = "snapshot" if previous is None else "change"
    chained = "" if previous is None else f'"prev_change_id":{previous},'
    first = "new" if previous is None else "change"
    return (
        '{"jsonrpc":"2.0","method":"subscription","params":{'
        f'"channel":"book.{native}.100ms","data":{{"type":"{kind}","timestamp":{now.ms},'
        f'"instrument_name":"{native}",{chained}"change_id":{channel.sequence},'
        f'"bids":{_levels(book.bids, first)},"asks":{_levels(book.asks, first)}}}}}}}'
    )


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
