"""Simulated KuCoin, two spot protocols on one port: a token in the address selects the classic one.

UTA (https://www.kucoin.com/docs-new/3470221w0): binary frames, the best 500 levels as a snapshot
and numbered changes. A request has one symbol; unknown symbols are accepted and stay silent; a
second subscription is accepted without another snapshot. Of its depths only `increment@10ms` is
simulated.

Classic (https://www.kucoin.com/docs-new/3470068w0): text frames with every numbered change, and
rows that only use up a number; the book is available by REST. The error message for an unknown
symbol is from 2019.

UTA greets each connection in a different form: `message` as recorded in 2026-09, `data` as the
change log announced on 2026-08-27, `op` and `type` as read by KuCoin's own client
(kucoin_universal_sdk 1.3.2). It accepts the ping of that client and the older one.

A client that is silent for 60 s is disconnected, however busy its connection. The limits of UTA are
those of the change log since 2026-02-09; the classic feed also accepts 100 messages in 10 s.
"""

from collections.abc import Mapping
from itertools import cycle
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

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

BEST: Final = 500
WHOLE: Final = 1 << 20  # levels of the classic feed's window
DEPTH: Final = "increment@10ms"
TOPICS_MAX: Final = 200
PING_MIN_S: Final = 1.0  # pings closer together close a UTA connection
TOPIC: Final = "/market/level2:"
CLASSIC: Final = "classic"
WELCOMES: Final[tuple[dict[str, object], ...]] = (
    {"message": "welcome", "pingInterval": 18_000},
    {"data": "welcome", "pingInterval": 18_000, "pingTimeout": 10_000},
    {"op": "welcome", "pingInterval": 18_000, "pingTimeout": 10_000},
    {"type": "welcome", "pingInterval": 18_000, "pingTimeout": 10_000},
)
CLASSIC_TOPICS_MAX: Final = 400
BATCH_MAX: Final = 100
TOKEN_S: Final = 86_400.0
TOO_MUCH: Final = 509
NO_TOPIC: Final = "topic does not exist"


class Kucoin(Dialect):
    """The protocols of x-push-spot.kucoin.com, ws-api-spot.kucoin.com and api.kucoin.com."""

    profile = Profile(depth=510, spread_ppm=6, offset_ppm_max=10)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTC-USDT", 1, 8),
        ListedSymbol("ETH/USDT", "ETH-USDT", 2, 7),
        ListedSymbol("SOL/USDT", "SOL-USDT", 3, 4),
        ListedSymbol("DOGE/USDT", "DOGE-USDT", 5, 4),
        ListedSymbol("ETH/BTC", "ETH-BTC", 6, 7),
    )
    rules = ExchangeRules(
        clock=("/api/v1/timestamp", lambda now: {"code": "200000", "data": now.ms}),
        messages=(Most(100, 10.0),),
        connects=(Most(30, 60.0),),
        silence_max_s=60.0,
        traffic_counts=False,
    )

    def __init__(self, board: ExchangeBoard) -> None:
        super().__init__(board)
        self._tokens: dict[str, float] = {}  # time at which each was issued
        self._welcomes = cycle(WELCOMES)

    def opened(self, session: SimulatedSession, now: Now) -> list[str]:
        """Welcome the client after checking its token.

        Raises:
            Dropped: The token is unknown or a day old.
        """
        token = parse_qs(urlsplit(session.path).query).get("token")
        if token is None:
            session.binary = True
            return [dumped({"sessionId": "e8e46556"} | next(self._welcomes))]
        if now.s - self._tokens.get(token[0], -TOKEN_S) >= TOKEN_S:
            raise Dropped("token is invalid")
        session.marks.add(CLASSIC)
        return [dumped({"id": "NSkIrWGB1s", "type": "welcome"})]

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer pings, subscriptions and unsubscriptions in the client's protocol."""
        request = loaded(frame)
        if CLASSIC in session.marks:
            return [self._classic(session, request, now)] if request else [_error(None, 400, frame)]
        return self._uta(session, request, now) if request else []

    # UTA

    def _uta(self, session: SimulatedSession, request: dict[str, Any], now: Now) -> list[str]:
        number, native = request.get("id"), str(request.get("symbol"))
        if "ping" in (request.get("type"), request.get("op")):
            if now.s - session.heartbeats.get("ping", -PING_MIN_S) < PING_MIN_S:
                raise Dropped("ping too often")
            session.heartbeats["ping"] = now.s
            if "op" in request:
                return [dumped({"id": number, "op": "pong", "timestamp": now.ms})]
            return [dumped({"type": "pong", "id": number, "ts": now.ms * 1_000_000})]
        refusal = self._refusal(session, request, now)
        if refusal:
            return [dumped({"id": number, "result": False} | refusal)]
        ack = dumped({"id": number, "result": True})
        if request["action"].upper() == "UNSUBSCRIBE":
            session.topics.pop(native, None)
            return [ack]
        if native in session.topics or not self._board.lists(native):
            return [ack]
        window = self._board.subscribe(session, native, ChannelKey(native, BEST))
        return [ack, _obu(window, "snapshot", window.snapshot(), now)] if window else [ack]

    def _refusal(
        self, session: SimulatedSession, request: dict[str, Any], now: Now
    ) -> dict[str, str]:
        """Return why a request is refused, if it is. The last two are unconfirmed."""
        kind = request.get("tradeType")
        known = str(request.get("action")).upper() in ("SUBSCRIBE", "UNSUBSCRIBE")
        if not known or request.get("channel") != "obu" or request.get("depth") != DEPTH:
            return {"message": "invalid request data"}
        if "symbols" in request:
            return {"reason": "symbols are not supported for topic obu"}
        if kind != "SPOT":
            words = f'type = "public_{str(kind).lower()}" not allowed in current environment'
            return {"reason": f"topic Obu {words}"}
        if self._board.nameless and not self._board.lists(str(request.get("symbol"))):
            return {"message": "invalid request data"}
        if self._board.limits(session, now):
            return {"reason": "Too many requests"}
        if len(session.topics) >= TOPICS_MAX:
            return {"reason": f"exceed max subscription count limitation of {TOPICS_MAX}"}
        return {}

    # Classic

    def _classic(self, session: SimulatedSession, request: dict[str, Any], now: Now) -> str:
        number, kind, topic = request.get("id"), request.get("type"), str(request.get("topic"))
        if kind == "ping":
            return dumped({"id": number, "type": "pong", "timestamp": now.ms * 1_000})
        if kind not in ("subscribe", "unsubscribe"):
            return _error(number, 415, "type is not supported")
        natives = topic.removeprefix(TOPIC).split(",")
        error = self._classic_error(session, topic, natives, now)
        if error:
            return _error(number, *error)
        for native in natives:
            if kind == "unsubscribe":
                session.topics.pop(native, None)
            else:
                self._board.subscribe(session, native, ChannelKey(native, WHOLE))
        return dumped({"id": number, "type": "ack"})

    def _classic_error(
        self, session: SimulatedSession, topic: str, natives: list[str], now: Now
    ) -> tuple[int, str] | None:
        unknown = [native for native in natives if not self._board.lists(native)]
        if self._board.limits(session, now):
            return TOO_MUCH, "exceed max permits per second"
        for count, most, scope in (
            (len(natives), BATCH_MAX, "time"),
            (len({*session.topics, *natives}), CLASSIC_TOPICS_MAX, "session"),
        ):
            if count > most:
                return TOO_MUCH, f"exceed max subscription count limitation of {most} per {scope}"
        if not topic.startswith(TOPIC) or (unknown and self._board.nameless):
            return 404, NO_TOPIC
        return (404, f"topic {TOPIC}{unknown[0]} is not found") if unknown else None

    # Both protocols

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> str:
        """Encode a change in the protocol of its window."""
        if channel.key.depth == BEST:
            return _obu(channel, "delta", changes, now)
        return _update(channel, changes, now)

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[str]:
        """Send nothing: the client sends pings."""
        return []

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer the lists of symbols and currencies, and the best 100 levels of a book."""
        if path == "/api/v2/symbols":
            return _answered([_row(listing) for listing in self._board.listings.values()])
        if path == "/api/v3/currencies":
            listings = self._board.listings.values()
            codes = dict.fromkeys(code for each in listings for code in (each.base, each.quote))
            return _answered([_currency(code) for code in codes])
        if path == "/api/v1/market/orderbook/level2_100":
            return self._level2(query.get("symbol", ""), now)
        return None

    def _level2(self, native: str, now: Now) -> RestReply:
        lists = self._board.lists(native) and native not in self._board.muted
        channel = self._board.channel(ChannelKey(native, WHOLE)) if lists else None
        if channel is None:
            return answered({"code": "900001", "msg": "symbol not exists"}, 400)
        book = channel.snapshot()
        return _answered(
            {
                "time": now.ms,
                "sequence": str(channel.sequence),
                "bids": book.bids[:100],
                "asks": book.asks[:100],
            }
        )

    def post(self, path: str, host: str, now: Now) -> RestReply | None:
        """Answer a token and an address for one connection to the classic feed."""
        if path != "/api/v1/bullet-public":
            return None
        token = f"2neAiuYv{len(self._tokens)}=="
        self._tokens[token] = now.s
        server = {
            "endpoint": f"ws://{host}/",
            "encrypt": False,
            "protocol": "websocket",
            "pingInterval": 18_000,
            "pingTimeout": 10_000,
        }
        return _answered({"token": token, "instanceServers": [server]})

    @staticmethod
    def native_of(frame: str) -> str | None:
        """Return the symbol of a book frame of either protocol."""
        match loaded(frame):
            case {"T": "obu.SPOT", "d": {"s": str(native)}}:
                return native
            case {"subject": "trade.l2update", "data": {"symbol": str(native)}}:
                return native
        return None


def _obu(channel: PublishedBook, kind: str, book: TextChanges, now: Now) -> str:
    first = channel.sequence if kind == "snapshot" else channel.previous + 1
    data = {
        "a": book.asks,
        "b": book.bids,
        "s": channel.listing.native,
        "C": channel.sequence,
        "M": now.ms * 1_000_000,
        "O": first,
    }
    frame = {"T": "obu.SPOT", "dp": DEPTH, "t": kind, "P": now.ms * 1_000_000 + 719_896}
    return dumped(frame | {"d": data})


def _update(channel: PublishedBook, changes: TextChanges, now: Now) -> str:
    """Encode rows with their numbers, and one that only uses up a number."""
    native, first = channel.listing.native, channel.previous + 1
    asks = _numbered(changes.asks, first)
    bids = _numbered(changes.bids, first + len(asks))
    data = {
        "changes": {"asks": [*asks, ("0", "0", str(channel.sequence))], "bids": bids},
        "sequenceEnd": channel.sequence,
        "sequenceStart": first,
        "symbol": native,
        "time": now.ms,
    }
    frame = {"topic": TOPIC + native, "type": "message", "subject": "trade.l2update"}
    return dumped(frame | {"data": data})


def _numbered(levels: TextLevels, first: int) -> list[tuple[str, str, str]]:
    return [(*level, str(number)) for number, level in enumerate(levels, first)]


def _currency(code: str) -> dict[str, object]:
    """Describe a currency with one network of its own."""
    chain = {
        "chainName": code,
        "withdrawalMinSize": "0.001",
        "depositMinSize": "0.0002",
        "withdrawFeeRate": "0",
        "withdrawalMinFee": "0.0005",
        "isWithdrawEnabled": True,
        "isDepositEnabled": True,
        "confirms": 3,
        "preConfirms": 1,
        "contractAddress": "",
        "withdrawPrecision": 8,
        "maxWithdraw": None,
        "maxDeposit": None,
        "needTag": False,
        "chainId": code.lower(),
    }
    return {
        "currency": code,
        "name": code,
        "fullName": code,
        "precision": 8,
        "confirms": None,
        "contractAddress": None,
        "isMarginEnabled": True,
        "isDebitEnabled": True,
        "chains": [chain],
    }


def _row(listing: ListedSymbol) -> dict[str, object]:
    return {
        "symbol": listing.native,
        "name": listing.native,
        "baseCurrency": listing.base,
        "quoteCurrency": listing.quote,
        "feeCurrency": listing.quote,
        "market": listing.quote,
        "baseMinSize": listing.lot,
        "quoteMinSize": "0.1",
        "minFunds": "0.1",
        "baseIncrement": listing.lot,
        "quoteIncrement": listing.tick,
        "priceIncrement": listing.tick,
        "feeCategory": 1,
        "makerFeeCoefficient": "1.00",
        "takerFeeCoefficient": "1.00",
        "isMarginEnabled": True,
        "enableTrading": True,
    }


def _answered(data: object) -> RestReply:
    return answered({"code": "200000", "data": data})


def _error(number: object, code: int, words: str) -> str:
    return dumped({"id": number, "type": "error", "code": code, "data": words})


DIALECT: Final[type[Dialect]] = Kucoin
