"""MEXC spot (v3): the whole book as protobuf diffs every 10 ms, seeded by REST.

Page: https://www.mexc.com/api-docs/spot-v3/websocket-market-streams (how to keep a local book:
section "How to Properly Maintain a Local Copy of the Order Book"); field numbers:
https://github.com/mexcdevelop/websocket-proto. ccxt's `watchOrderBook` agrees on the channel, the
fields and the body; tardis-node agrees on the join.

Confirmed:

    channel, verbs, ping, depth: 2026-10-23, third-party: ccxt 4.5.90
    sequence, levels: 2026-08-22, third-party: tardis-node 18.2.0
    levels: 2026-06-17, page: websocket-proto
    limits, channel: 2025-08-08, page: spot_v3_en, aggre.depth at 10ms or 100ms
    fees: 2026-10-03, recorded: a spot row in the tests of ergo-arbitrage, as a fraction

Sequencing: deltas are buffered from the acknowledgement until the REST body arrives. Those with
`toVersion <= lastUpdateId` are dropped. The first one kept contains `lastUpdateId + 1`; after it,
each `fromVersion` is the last `toVersion + 1`. (Rule 6 of the page omits the 1; a body that ends
where a delta starts joins.)

Binary messages are a `PushDataV3ApiWrapper`: channel = 1, symbol = 3, sendTime = 6 (ms), and in 313
a `PublicAggreDepthsV3Api`: asks = 1 and bids = 2 (price = 1, quantity = 2; "0" removes),
eventType = 3, fromVersion = 4, toVersion = 5. A side without changes is absent. A push without
field 313 is ignored (tardis-node also skips it, in two places): if it should have had a change, the
next push reveals the gap.

Text messages are JSON; a refusal also has code 0, and an unknown pair is "blocked":

    {"id":1,"code":0,"msg":"spot@public.aggre.depth.v3.api.pb@10ms@BTCUSDT"}
    {"id":1,"code":0,"msg":"Not Subscribed successfully! [spot@...@NONO].  Reason: Blocked! "}
    {"id":0,"code":0,"msg":"PONG"}

REST body, `/api/v3/depth`: {"lastUpdateId":160,"bids":[["0.0024","10"]],"asks":[["0.0026","100"]]};
tardis-node reads a `timestamp` (ms) beside them. A limit above 2000 is silently cut to 2000 (seen
by others; the page says 5000), so 1000 are requested: a side with fewer levels is then a whole
side. Numbers are padded in the body and trimmed in deltas.

The exchange closes a connection without a subscription after 30 s, one without data or ping after
60 s, and any connection after 24 h. Requests have one pair each, so that each answer concerns one
pair. The answer to an unsubscription also contains the channel, so answers are distinguished by
their number.

As of 2026-11 some pairs have books although their `isSpotTradingAllowed` is false. They are left
out, because orders by API cannot trade against these books and leveraged tokens are among them.

Unconfirmed: whether a server sends id 0 to a numbered request (then the channel counts); the answer
to too many requests; whether an unsubscription makes room for another of the 30; how many
connections an address may open.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from onebook.core.types import LevelShape
from onebook.exchanges.kit import (
    BYTES,
    EXPECTED,
    INT64,
    NO_LEVELS,
    SEQUENCE_MAX,
    TEXT,
    Accepted,
    BookChannel,
    BookFrame,
    DepthBody,
    Event,
    Exchange,
    ExchangeLimits,
    FeeColumn,
    Heartbeat,
    Ignored,
    Join,
    Limit,
    ListReader,
    Outputs,
    RequestRejected,
    Scope,
    SeededEngine,
    Sequence64,
    ServerTime,
    control_reader,
    decode,
    join_by_rest,
    protobuf_reader,
    verbs,
)
from onebook.model import Instrument

CHANNEL: Final = "spot@public.aggre.depth.v3.api.pb@10ms@"
REFUSED: Final = "Not Subscribed"
LEVELS: Final = LevelShape.protobuf(price=1, amount=2, bids=2, asks=1)
SEED_LEVELS: Final = 1_000


class TextMessage(Struct):
    """The members of text messages."""

    msg: str = ""
    code: int = 0
    id: Sequence64 | None = None


_push = protobuf_reader(channel=(1, TEXT), depths=(313, BYTES), sent_ms=(6, INT64))
_versions = protobuf_reader(first=(4, BYTES), final=(5, BYTES))
_answer = control_reader(TextMessage)


def data(books: dict[str, Join], frame: bytes) -> Outputs | None:
    """Decode a delta."""
    push = _push(frame)
    book = books.get(push.channel)
    if book is None:
        return None
    levels: bytes = push.depths
    if not levels:
        return EXPECTED
    versions = _versions(levels)
    first, final = int(versions.first), int(versions.final)
    if not 0 < first <= final <= SEQUENCE_MAX:
        raise ValueError(f"the versions {first} to {final} are not a range")
    return book.delta(first, final, levels, NO_LEVELS, push.sent_ms)


def control(frame: bytes) -> Event:
    """Decode a control message."""
    if not frame.startswith(b"{"):
        channel: str = decode(_push, frame, what="a frame").channel
        return BookFrame(channel) if channel.startswith(CHANNEL) else Ignored(known=False)
    answer = decode(_answer, frame, what="a frame")
    if answer.msg == "PONG":
        return Ignored(known=True)
    if answer.code or answer.msg.startswith(REFUSED):
        return RequestRejected(answer.msg, answer.id)
    if answer.id:
        return Accepted(number=answer.id)
    names = [name for name in answer.msg.split(",") if name.startswith(CHANNEL)]
    return Accepted(names) if names else Ignored(known=False)


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe books."""
    return {"method": verb, "params": names, "id": number}


def channel_of(instrument: Instrument) -> str:
    """Return the channel of a pair."""
    return CHANNEL + instrument.native


INSTRUMENTS: Final = ListReader(
    "mexc",
    rows="symbols",
    native="symbol",
    base="baseAsset",
    quote="quoteAsset",
    spot={"isSpotTradingAllowed": (True,), "permissions": ("SPOT",)},
    trading={"status": ("1",)},  # 2: paused, 3: offline
    halted={"tradeSideType": (4, "4")},  # neither side may trade
    tick_decimals="quoteAssetPrecision",
    lot_decimals="baseAssetPrecision",
    least_amount="baseSizePrecision",
    least_notional="quoteAmountPrecision",
    taker=FeeColumn("takerCommission", fraction=True),
)

BOOKS: Final = BookChannel(
    data,
    control,
    *verbs(request, "SUBSCRIPTION", "UNSUBSCRIPTION"),
    join_by_rest("/api/v3/depth?symbol={symbol}&limit={levels}", SEED_LEVELS, delta_shape=LEVELS),
    key=channel_of,
    seed=msgspec.json.Decoder(DepthBody).decode,
)

EXCHANGE: Final = Exchange(
    name="mexc",
    display="MEXC",
    ws_url="wss://wbs-api.mexc.com/ws",
    rest_url="https://api.mexc.com",
    instruments_path="/api/v3/exchangeInfo",
    parse_instruments=INSTRUMENTS,
    lists_fees=True,
    connector=partial(SeededEngine, BOOKS),
    depth=0,
    interval_ms=10,
    time=ServerTime("/api/v3/time", "serverTime"),
    limits=ExchangeLimits(
        topics=30,  # the maximum
        messages=(Limit(50, 1.0),),  # of 100; beyond it we are disconnected, repeatedly banned
        connects=(Limit(60, 60.0, Scope.ADDRESS),),  # our choice: undocumented
        # Of 500 per path; its firewall has blocked an address at 20 a second.
        fetches=(Limit(100, 10.0, Scope.ADDRESS),),
    ),
    holds={403: 600.0},  # from the same firewall; our choice: the duration is undocumented
    heartbeat=Heartbeat(b'{"method":"PING"}', every_s=20.0),
    silence_max_s=30.0,  # our pings are answered; data arrives only on a change
    snapshot_s=300.0,  # the books of twenty full sockets use two minutes of the REST budget
    lifetime_s=86_000.0,  # it closes connections after 24 h
)
