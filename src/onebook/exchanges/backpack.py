"""Backpack spot: the whole book as diffs in real time, seeded by REST.

Page: https://docs.backpack.exchange/#tag/Streams/Public/Depth (how to keep a local book: fetch
`/api/v1/depth`, then each `U` must be the last `u + 1`; otherwise fetch again).

Confirmed:

    channel, verbs, ping, sequence, levels, depth: 2026-09-22, recorded: arbitrage-observatory,
        frames of perpetuals
    channel, verbs, sequence: 2026-10-23, third-party: ccxt 4.5.90
    limits: never: our choice, the page states none

Sequencing: as for Binance. Deltas are buffered until the REST body arrives, those with
`u <= lastUpdateId` are dropped, and the first one kept contains `lastUpdateId + 1`. The body may be
ahead of the stream. ccxt's `watchOrderBook` agrees on the address, the stream, the requests, the
fields and the join. Frames recorded in 2026-09 (nemanull/arbitrage-observatory, its profile of the
exchange) have no gap in this stream and in the one of every 200 ms (`depth.200ms.SOL_USDC`), whose
prices are 100 ms older on average; this one sent about 180 frames a second for BTC against five.

    {"stream":"depth.SOL_USDC","data":{"e":"depth","E":1694687965941000,"T":1694687965940999,
     "s":"SOL_USDC","U":94978271,"u":94978275,"b":[["18.70","0.00"]],"a":[["18.71","1.52"]]}}
    {"id":null,"error":{"code":4006,"message":"Invalid stream"}}       without the stream's name

An amount of zero removes a level; times are in microseconds. In the REST body, numbers are not
padded, bids are sorted worst first, and `lastUpdateId` is a string:

    {"lastUpdateId":"94978270","timestamp":1694687965941000,"bids":[["1","2"]],"asks":[]}

Requests are not acknowledged. The streams of unknown and closed pairs are silent, so these pairs
are recognized by the status of their REST request (400, 404). The server sends protocol pings
every 60 s and answers ours.

As of 2026-11: since 2026 the list also has tokenized stocks and requests for quotes, with another
`marketType`. Only rows of type SPOT are read.

Unconfirmed: any rate limit, since the page states none (5 bodies a second and 91 streams on a
socket were served); the answer to too many requests; the age limit of a connection. The recorded
frames are of perpetuals, which share the socket and the channel with spot.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from onebook.exchanges.kit import (
    BookChannel,
    BookFrame,
    DepthBody,
    ErrorBody,
    Event,
    Exchange,
    ExchangeLimits,
    Ignored,
    Limit,
    ListReader,
    RequestRejected,
    Scope,
    SeededEngine,
    ServerTime,
    combined_updates,
    control_reader,
    decode,
    join_by_rest,
    verbs,
)

STREAM: Final = "depth."
SEED_LEVELS: Final = 1_000


class Control(Struct):
    """The members of control frames."""

    stream: str = ""
    error: ErrorBody | None = None


_control = control_reader(Control)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    if message.error is not None:
        return RequestRejected(message.error.message)
    if message.stream.startswith(STREAM):
        return BookFrame(message.stream.removeprefix(STREAM))
    return Ignored(known=False)


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe books."""
    return {"method": verb, "params": [STREAM + name for name in names]}


INSTRUMENTS: Final = ListReader(
    "backpack",
    native="symbol",
    base="baseSymbol",
    quote="quoteSymbol",
    spot={"marketType": ("SPOT",)},  # others: PERP, IPERP, DATED, PREDICTION, RFQ
    trading={"orderBookState": ("Open",)},  # others: Closed, CancelOnly, LimitOnly, PostOnly
    tick="filters.price.tickSize",
    lot="filters.quantity.stepSize",
    least_amount="filters.quantity.minQuantity",
)


BOOKS: Final = BookChannel(
    combined_updates("depth"),
    control,
    *verbs(request, "SUBSCRIBE", "UNSUBSCRIBE"),
    join_by_rest("/api/v1/depth?symbol={symbol}&limit={levels}", SEED_LEVELS),
    names_per_request=50,  # 91 were served
    seed=msgspec.json.Decoder(DepthBody, strict=False).decode,  # the sequence is in quotes
    acknowledges=False,
)

EXCHANGE: Final = Exchange(
    name="backpack",
    display="Backpack",
    ws_url="wss://ws.backpack.exchange",
    rest_url="https://api.backpack.exchange",
    instruments_path="/api/v1/markets",
    parse_instruments=INSTRUMENTS,
    connector=partial(SeededEngine, BOOKS),
    depth=0,
    interval_ms=0,
    time=ServerTime("/api/v1/time"),
    limits=ExchangeLimits(
        topics=90,  # our choice, as are the other limits: undocumented
        messages=(Limit(5, 1.0),),
        connects=(Limit(60, 60.0, Scope.ADDRESS),),
        fetches=(Limit(300, 60.0, Scope.ADDRESS),),
    ),
    silence_max_s=30.0,  # our pings are answered; data arrives only on a change
    snapshot_s=60.0,  # the books of a full socket use half a minute of the REST budget
)
