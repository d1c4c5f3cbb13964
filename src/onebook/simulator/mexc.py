"""Simulated MEXC, spot v3 protocol: requests in JSON text, changes in protobuf.

Each push has the versions `fromVersion..toVersion` of its changes; the book itself is available
only by REST (`/api/v3/depth`), with padded numbers and at most 2000 levels, whatever the request's
limit. A connection can have 30 channels; without any it is closed after 30 s, idle after 60 s. Some
pushes contain no changes (tardis-node's mapper tests for that); when is unknown, so here each
channel gets one every 10 s.
https://www.mexc.com/api-docs/spot-v3/websocket-market-streams
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClassesForFiles

from onebook.simulator.kit import (
    ChannelKey,
    Dialect,
    Dropped,
    ExchangeRules,
    Frame,
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
SEED_LEVELS_MAX: Final = 2_000
CHANNELS_MAX: Final = 30
UNSUBSCRIBED_S: Final = 30.0
EMPTY_S: Final = 10.0
EVENT: Final = "spot@public.aggre.depth.v3.api.pb@"
PACES: Final = ("10ms", "100ms")
TOO_MANY_CODE: Final = 429  # unconfirmed, as is the text

# The needed part of https://github.com/mexcdevelop/websocket-proto, in its own names.
PROTO: Final = {
    "PublicAggreDepthV3ApiItem": {1: "string price", 2: "string quantity"},
    "PublicAggreDepthsV3Api": {
        1: "repeated PublicAggreDepthV3ApiItem asks",
        2: "repeated PublicAggreDepthV3ApiItem bids",
        3: "string eventType",
        4: "string fromVersion",
        5: "string toVersion",
        6: "int64 lastOrderCreateTime",
    },
    "PushDataV3ApiWrapper": {
        1: "string channel",
        3: "string symbol",
        5: "int64 createTime",
        6: "int64 sendTime",
        313: "PublicAggreDepthsV3Api publicAggreDepths",
    },
}
SCALARS: Final = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "int64": FieldDescriptorProto.TYPE_INT64,
}


def _field(number: int, words: str) -> FieldDescriptorProto:
    *repeated, kind, name = words.split()
    field = FieldDescriptorProto(name=name, number=number)
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    field.type = SCALARS.get(kind, field.TYPE_MESSAGE)
    if kind not in SCALARS:
        field.type_name = f".{kind}"
    return field


_pool = DescriptorPool()
_pool.Add(
    FileDescriptorProto(
        name="mexc.proto",
        syntax="proto3",
        message_type=[
            DescriptorProto(name=name, field=[_field(*each) for each in fields.items()])
            for name, fields in PROTO.items()
        ],
    )
)
Push: Final = GetMessageClassesForFiles(["mexc.proto"], _pool)["PushDataV3ApiWrapper"]


class Mexc(Dialect):
    """The protocol of wbs-api.mexc.com and api.mexc.com."""

    profile = Profile(depth=500, spread_ppm=4, offset_ppm_max=10)
    listings: tuple[ListedSymbol, ...] = (
        ListedSymbol("BTC/USDT", "BTCUSDT", 2, 8),
        ListedSymbol("ETH/USDT", "ETHUSDT", 2, 5),
        ListedSymbol("SOL/USDT", "SOLUSDT", 2, 3),
        ListedSymbol("DOGE/USDT", "DOGEUSDT", 5, 2),
        ListedSymbol("ETH/BTC", "ETHBTC", 6, 4),
    )
    rules = ExchangeRules(
        clock=("/api/v3/time", lambda now: {"serverTime": now.ms}),
        spelling=Spelling(price_places=0, amount_places=0),
        messages=(Most(100),),
        fetches=(Most(300, 10.0),),
        silence_max_s=60.0,
        heartbeat_s=1.0,
    )

    def received(self, session: SimulatedSession, frame: str, now: Now) -> list[str]:
        """Answer SUBSCRIPTION, UNSUBSCRIPTION and PING, with the number of the request, or 0."""
        request = loaded(frame) or {}
        number, method, channels = (request.get(name) for name in ("id", "method", "params"))
        if method == "PING":
            return [_answer("PONG", number)]
        if method not in ("SUBSCRIPTION", "UNSUBSCRIPTION") or not isinstance(channels, list):
            return [_answer("Not Subscribed successfully! [].  Reason： Blocked! ", number)]
        if self._board.limits(session, now):
            return [_answer("Too Many Requests", number, TOO_MANY_CODE)]
        if method == "UNSUBSCRIPTION":
            for channel in channels:
                session.topics.pop(channel, None)
            return [_answer(",".join(channels), number)]
        refused = [channel for channel in channels if not self._subscribe(session, channel)]
        if not refused:
            return [_answer(",".join(channels), number)]
        taken = [channel for channel in channels if channel not in refused]
        shown = "" if self._board.nameless else ",".join(refused)
        before = f"Subscribed successful! [{','.join(taken)}]. " if taken else ""
        blocked = f"Not Subscribed successfully! [{shown}].  Reason： Blocked! "
        return [_answer(before + blocked, 0 if self._board.nameless else number)]

    def _subscribe(self, session: SimulatedSession, channel: str) -> bool:
        pace, _, native = channel.removeprefix(EVENT).partition("@")
        known = channel.startswith(EVENT) and pace in PACES and self._board.lists(native)
        full = len(session.topics) >= CHANNELS_MAX and channel not in session.topics
        if not known or full:
            return False
        if pace != PACES[0]:
            session.form = partial(_paced, pace=pace)
        self._board.subscribe(session, channel, ChannelKey(native, DEPTH))
        return True

    def delta(self, channel: PublishedBook, changes: TextChanges, now: Now) -> bytes:
        """Encode a push of `aggre.depth` at 10 ms."""
        native = channel.listing.native
        push = Push(channel=f"{EVENT}10ms@{native}", symbol=native, sendTime=now.ms)
        depths = push.publicAggreDepths
        for side, levels in ((depths.asks, changes.asks), (depths.bids, changes.bids)):
            for price, quantity in levels:
                side.add(price=price, quantity=quantity)
        depths.eventType = f"{EVENT}10ms"
        depths.fromVersion = str(channel.previous + 1)
        depths.toVersion = str(channel.sequence)
        depths.lastOrderCreateTime = now.ms
        frame: bytes = push.SerializeToString(deterministic=True)
        return frame

    def heartbeat(self, session: SimulatedSession, now: Now) -> list[Frame]:
        """Return pushes without changes; disconnects a client without subscriptions."""
        if not session.topics and now.s - session.opened_s > UNSUBSCRIBED_S:
            raise Dropped("No subscription within 30 s.")
        frames: list[Frame] = []
        for channel, key in session.topics.items():
            if now.s - session.heartbeats.setdefault(channel, now.s) >= EMPTY_S:
                session.heartbeats[channel] = now.s
                push = Push(channel=channel, symbol=key.native, sendTime=now.ms)
                frames.append(push.SerializeToString(deterministic=True))
        return frames

    def get(self, path: str, query: Mapping[str, str], now: Now) -> RestReply | None:
        """Answer `exchangeInfo` and `depth`."""
        if path == "/api/v3/exchangeInfo":
            return self._exchange_info(now)
        return self._depth(query) if path == "/api/v3/depth" else None

    def _depth(self, query: Mapping[str, str]) -> RestReply:
        native, limit = query.get("symbol", ""), int(query.get("limit", "100"))
        lists = self._board.lists(native) and native not in self._board.muted
        channel = self._board.channel(ChannelKey(native, DEPTH)) if lists else None
        if channel is None:
            return answered({"code": -1121, "msg": "Invalid symbol."}, 400)
        book, most = channel.snapshot(), min(limit, SEED_LEVELS_MAX)
        body = {
            "lastUpdateId": channel.sequence,
            "bids": _padded(channel.listing, book.bids[:most]),
            "asks": _padded(channel.listing, book.asks[:most]),
        }
        return answered(body)

    def _exchange_info(self, now: Now) -> RestReply:
        symbols = [
            {
                "symbol": listing.native,
                "status": "1",
                "baseAsset": listing.base,
                "baseAssetPrecision": listing.amount_decimals,
                "quoteAsset": listing.quote,
                "quotePrecision": listing.price_decimals,
                "quoteAssetPrecision": listing.price_decimals,
                "isSpotTradingAllowed": True,
                "isMarginTradingAllowed": False,
                "baseSizePrecision": "0",
                "quoteAmountPrecision": "1",
                "permissions": ["SPOT"],
                "filters": [],
                "makerCommission": "0",
                "takerCommission": "0.0005",
                "tradeSideType": 1,
            }
            for listing in self._board.listings.values()
        ]
        return answered({"timezone": "CST", "serverTime": now.ms, "symbols": symbols})

    @staticmethod
    def native_of(frame: str | bytes) -> str | None:
        """Return the symbol of a push of `aggre.depth`; None for text messages."""
        try:
            push = Push.FromString(frame) if isinstance(frame, bytes) else Push()
        except DecodeError:
            return None
        native: str = push.symbol
        return native if push.HasField("publicAggreDepths") else None


def _answer(words: str, number: object, code: int = 0) -> str:
    return dumped({"id": number or 0, "code": code, "msg": words})


def _padded(listing: ListedSymbol, levels: Iterable[tuple[str, str]]) -> TextLevels:
    places = (listing.price_decimals, listing.amount_decimals)
    return [(_filled(price, places[0]), _filled(amount, places[1])) for price, amount in levels]


def _filled(number: str, places: int) -> str:
    whole, _, fraction = number.partition(".")
    return f"{whole}.{fraction.ljust(places, '0')}" if places else whole


def _paced(frame: bytes, *, pace: str) -> bytes:
    """Name the channel of a client that follows a slower one."""
    push = Push.FromString(frame)
    push.channel = push.channel.replace(f"@{PACES[0]}@", f"@{pace}@")
    push.publicAggreDepths.eventType = f"{EVENT}{pace}"
    paced: bytes = push.SerializeToString(deterministic=True)
    return paced


DIALECT: Final[type[Dialect]] = Mexc
