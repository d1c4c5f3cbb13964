"""Backpack spot: the whole book as diffs every 200 ms, seeded by REST.

Page: https://docs.backpack.exchange/#tag/Streams/Public/Depth (how to keep a local book: the body
of `/api/v1/depth`, then each `U` is the last `u + 1`, else the body again).

Confirmed:

    channel, verbs, ping, sequence, levels, depth: 2026-09-22, recorded: arbitrage-observatory,
        frames of perpetuals
    channel, verbs, sequence: 2026-10-23, third-party: ccxt 4.5.90
    limits: never: ours, the page states none

Sequencing: as for Binance. Deltas are held, the body drops those with `u <= lastUpdateId`, the
first kept contains `lastUpdateId + 1`. The body may be ahead of the stream. ccxt's `watchOrderBook`
agrees on the address, the requests, the fields and the join, and follows every change
(`depth.SOL_USDC`); frames recorded in 2026-09 (nemanull/arbitrage-observatory, its profile of the
exchange) had no gap in either stream.

    {"stream":"depth.200ms.SOL_USDC","data":{"e":"depth","E":1694687965941000,"T":1694687965940999,
     "s":"SOL_USDC","U":94978271,"u":94978275,"b":[["18.70","0.00"]],"a":[["18.71","1.52"]]}}
    {"id":null,"error":{"code":4006,"message":"Invalid stream"}}         names nothing

A zero amount removes a level, times are microseconds. The body has its numbers without padding, its
bids worst first, its `lastUpdateId` in quotes:

    {"lastUpdateId":"94978270","timestamp":1694687965941000,"bids":[["1","2"]],"asks":[]}

Requests are not acknowledged. Unknown and closed pairs are recognized by their refused body (400,
404); their streams are silent. The server's pings every 60 s are protocol frames; it answers ours.

Doubted in 2026-11: tokenized stocks and requests for quotes, which the list has since 2026 under
`marketType`: only SPOT is read.

Unconfirmed: any rate limit, which the page does not state (5 bodies a second and 91 streams on a
socket were served); the answer to too many requests; the age limit of a connection. Frames were
recorded of perpetuals, which share the socket and the channel with spot.
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
    combined_updates,
    control_reader,
    decode,
    join_by_rest,
    verbs,
)

STREAM: Final = "depth.200ms."
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
    interval_ms=200,
    limits=ExchangeLimits(
        topics=90,  # ours, as all of these: the page states none
        messages=(Limit(5, 1.0),),
        connects=(Limit(60, 60.0, Scope.ADDRESS),),
        fetches=(Limit(300, 60.0, Scope.ADDRESS),),
    ),
    silence_max_s=30.0,  # our pings are answered; data is promised only on a change
    snapshot_s=60.0,  # the books of a full socket are half a minute of the REST budget
)
