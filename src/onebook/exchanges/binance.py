"""Binance spot: the whole book as diffs every 100 ms, seeded by REST, with real-time best prices.

Page: https://developers.binance.com/docs/binance-spot-api-docs/web-socket-streams
(how to keep a local book: section "How to manage a local order book correctly").

Confirmed:

    channel, verbs, ping, limits, sequence, levels, depth: 2026-09-18, page: CHANGELOG.md of the API

Sequencing: deltas are buffered from the acknowledgement until the REST body arrives. Those with
`u <= lastUpdateId` are dropped. The first one kept contains `lastUpdateId + 1`; after it, each `U`
is the last `u + 1`.

Frames of the combined stream:

    {"stream":"bnbbtc@depth@100ms","data":{"e":"depthUpdate","E":1672515782136,"s":"BNBBTC",
     "U":157,"u":160,"b":[["0.0024","10"]],"a":[["0.0026","100"]]}}     a delta; "0" removes
    {"stream":"bnbbtc@bookTicker","data":{"u":158,"s":"BNBBTC","b":"0.0024","B":"10",
     "a":"0.0026","A":"100"}}                                     the best bid and ask, whole
    {"result":null,"id":1}                                               a request was accepted
    {"code":2,"msg":"Invalid request: ...","id":1}                       a request was refused
    {"error":{"code":2,"msg":"Invalid request: ..."},"id":1}             the same, newer servers
    {"stream":"!serverShutdown","data":{"e":"serverShutdown","E":1672515782136}}

The address must be that of combined streams (`/stream`). Below `/ws`, events have no `stream` and
`data` members, and are ignored.

Both streams share one counter: `u` of a `bookTicker` is the number of the last change that it
includes. A `bookTicker` has no time, is sent whenever the best price or its amount changes, may
skip short-lived states, and says nothing about lost depth frames (`onebook.fusing`). In recordings
of both channels (BTCUSDT, ETHUSDT, 2024-08-08) every best price equals that of the depth with the
same number.

REST body, `/api/v3/depth`: {"lastUpdateId":160,"bids":[["0.0024","10"]],"asks":[["0.0026","100"]]}

The server sends protocol pings every 20 s, which the feed's socket answers. A book that does not
change is silent. Levels beyond the 1000 of the REST body are unknown (a limit of 5000 would cost
five times the budget), so the book ends there and is reseeded before the price approaches its end.
A misspelt stream is acknowledged and delivers nothing; this is detected when a REST body is newer
than the stream.

Checked in 2026-11: the changelog up to 2026-09-18 does not change the JSON book streams. Pairs in
CANCEL_ONLY are listed as halted because their orders are not matched.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onebook.exchanges import binance_sbe
from onebook.exchanges.kit import (
    Accepted,
    BookChannel,
    BookFrame,
    Closing,
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
    Sequence64,
    ServerTime,
    combined_updates,
    control_reader,
    decode,
    join_by_rest,
    text_in,
    verbs,
)

BEST_PRICES: Final = "@bookTicker"
STREAMS: Final = ("@depth@100ms", BEST_PRICES)
SEED_LEVELS: Final = 1_000
SEED_PATH: Final = "/api/v3/depth?symbol={symbol}&limit={levels}"
SEED_WEIGHT: Final = 50


class Control(Struct):
    """The members of control frames."""

    id: Sequence64 | str | None = None
    e: str = ""
    s: str = ""
    code: int | None = None
    msg: str = ""
    error: ErrorBody | None = None
    data: Any = None


_control = control_reader(Control)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    bare = {"e": message.e, "s": message.s}  # an event of an address without combined streams
    event = message.data if isinstance(message.data, dict) else bare
    if event.get("e") == "serverShutdown":
        return Closing("the exchange announced a shutdown of this server")
    if event.get("e") == "depthUpdate":
        return BookFrame(text_in(event, "s"))
    if "B" in event:
        return BookFrame(text_in(event, "s"), top=True)
    if message.error or message.code is not None:
        return RequestRejected(message.error.msg if message.error else message.msg, message.id)
    return Accepted(number=message.id) if message.id else Ignored(known=False)


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe books."""
    streams = [f"{name.lower()}{each}" for name in names for each in STREAMS]
    return {"method": verb, "params": streams, "id": number}


INSTRUMENTS: Final = ListReader(
    "binance",
    rows="symbols",
    native="symbol",
    base="baseAsset",
    quote="quoteAsset",
    spot={"isSpotTradingAllowed": (True,)},
    trading={"status": ("TRADING",)},
    tick="filters[filterType=PRICE_FILTER].tickSize",
    lot="filters[filterType=LOT_SIZE].stepSize",
    least_amount="filters[filterType=LOT_SIZE].minQty",
    least_notional="filters[filterType=NOTIONAL].minNotional",
)

BOOKS: Final = BookChannel(
    combined_updates("depthUpdate", BEST_PRICES),
    control,
    *verbs(request, "SUBSCRIBE", "UNSUBSCRIBE"),
    join_by_rest(SEED_PATH, SEED_LEVELS, weight=SEED_WEIGHT),
    names_per_request=100,  # of two streams each
    seed=msgspec.json.Decoder(DepthBody).decode,
)

_JSON: Final = Exchange(
    name="binance",
    display="Binance",
    ws_url="wss://stream.binance.com:9443/stream",
    rest_url="https://api.binance.com",
    instruments_path="/api/v3/exchangeInfo?showPermissionSets=false",
    parse_instruments=INSTRUMENTS,
    connector=partial(SeededEngine, BOOKS),
    depth=0,
    interval_ms=100,
    time=ServerTime("/api/v3/time", "serverTime"),
    tops=True,
    limits=ExchangeLimits(
        topics=200,  # of 1024 allowed: a lost socket must not cost an hour of REST budget
        messages=(Limit(5, 1.0),),  # beyond it we are disconnected, repeatedly banned
        connects=(Limit(300, 300.0, Scope.ADDRESS),),
        # Of 6000 allowed; the rest is for the instrument list and other programs.
        fetches=(Limit(5_000, 60.0, Scope.ADDRESS),),
    ),
    holds={403: 600.0},  # its firewall; our choice: the duration is undocumented
    silence_max_s=30.0,  # the server pings every 20 s; data arrives only on a change
    snapshot_s=300.0,  # the books of a full socket use two minutes of the REST budget
    lifetime_s=86_000.0,  # it closes connections after 24 h
)

EXCHANGE: Final = replace(
    _JSON,
    channels={"sbe": binance_sbe.channel_of(_JSON, control, (SEED_PATH, SEED_LEVELS, SEED_WEIGHT))},
)
