"""CEX.IO Spot Trading: 20 levels a side, at most one change a second, snapshot on the socket.

Page: https://trade.cex.io/docs/#websocket-public-api-calls-order-book-subscribe (2026-03).

Confirmed:

    channel, verbs, ping, limits, sequence, levels, depth: 2026-09-22, recorded:
        arbitrage-observatory

Sequencing: each increment's `seqId` is the previous one + 1, counted per pair; a lower number
means that the exchange restarted. Levels that leave the 20 are removed by an increment. The answer
to a subscription is the snapshot. To resync, subscribe again, which costs a point: the answer is a
snapshot from which the increments continue.

Frames; no request is accepted before the greeting:

    {"e":"connected"}
    {"e":"order_book_subscribe","oid":"1","data":{"pair":"BTC-USD"}}                 to the exchange
    {"e":"order_book_subscribe","oid":"1","data":{"seqId":8676229,"pair":"BTC-USD",
     "bids":[["86875","0.04301025"]],"asks":[["86875.1","3.40529629"]]},"ok":"ok"}
    {"e":"order_book_increment","data":{"seqId":8676230,"pair":"BTC-USD",
     "bids":[["86775","0.00000000"]],"asks":[]},"ok":"ok"}              not sorted; zero removes
    {"e":"order_book_subscribe","oid":"1","data":{"error":"Currency pair X-Y is not supported"}}
    {"e":"pong"}                                                            to our {"e":"ping"}
    {"e":"disconnected"}                                                    it closes then

Frames have no time. A request without `oid`, a message that is not JSON, and exceeding the limit
each end the connection; a request can have only one pair. The page requires a message from the
client every 10 s; in practice 60 s were accepted. Public calls cost points, 100 a minute and
address, shared by REST and the socket. The list of pairs is requested by POST and has no state:
pairs that are being delisted stay in it, and some have no bid. There are no derivatives.

A wire probe of 2026-09 agrees (nemanull/arbitrage-observatory: 3,369 increments without a gap; two
second subscriptions of a pair, each answered by a snapshot with its last `seqId`). ccxt uses the
older socket, ws.cex.io, which now requires a login, and reads the same list.

Checked in 2026-11: other clients of 2026 use the same socket and a ping every 5 s. Their
`get_order_book` is not needed.

Unconfirmed: the words of the error for one request too many; that pings cost no point (a connection
that sent one every 5 s for 110 s was not refused).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.exchanges.kit import (
    ROWS_MAX,
    Acknowledged,
    BookChannel,
    BookFrame,
    Chain,
    Closing,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    ExchangeReady,
    Heartbeat,
    Ignored,
    Instruments,
    Limit,
    Outputs,
    RequestRejected,
    Scope,
    Sequence64,
    control_reader,
    decode,
    instrument_of,
    instruments_of,
    step_of,
    text_in,
)
from onebook.model import Instrument

SUBSCRIBE: Final = "order_book_subscribe"
INCREMENT: Final = "order_book_increment"
UNSUBSCRIBE: Final = "order_book_unsubscribe"


class BookMessage(Struct, gc=False):
    """A snapshot or a delta."""

    sequence: Sequence64 = field(name="seqId")
    pair: str
    bids: Raw
    asks: Raw


class Increment(Struct, gc=False, tag_field="e", tag=INCREMENT):
    """A frame with a delta."""

    data: BookMessage


class Subscribed(Struct, gc=False, tag_field="e", tag=SUBSCRIBE):
    """A frame with a whole book."""

    data: BookMessage


class Control(Struct):
    """The members of control frames."""

    event: str = field(name="e", default="")
    oid: str | None = None
    data: Any = None


class Listing(Struct):
    """A row of the instrument list; its numbers are strings."""

    base: str
    quote: str
    price_decimals: str = field(name="pricePrecision", default="")
    lot: str = field(name="baseLotSize", default="")
    least_amount: str = field(name="baseMin", default="")
    least_notional: str = field(name="quoteMin", default="")


class Listings(Struct):
    """The instrument list."""

    data: list[Raw]


_read = msgspec.json.Decoder(Increment | Subscribed).decode
_control = control_reader(Control)
_listings = msgspec.json.Decoder(Listings).decode


def data(books: dict[str, Chain], frame: bytes) -> Outputs | None:
    """Decode a frame of a book."""
    message: Increment | Subscribed = _read(frame)
    change = message.data
    book = books.get(change.pair)
    if book is None:
        return None
    if type(message) is Increment:
        return book.delta(change.bids, change.asks, change.sequence - 1, change.sequence)
    snapshot = book.snapshot(change.bids, change.asks, change.sequence)
    return (Acknowledged(book.instrument), *snapshot)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    error, pair = (text_in(message.data, member) for member in ("error", "pair"))
    match message.event:
        case "connected":
            return ExchangeReady()
        case "disconnected":
            return Closing("disconnected by the exchange")
        case "pong" | "order_book_unsubscribe":
            return Ignored(known=True)
        case "order_book_increment" if not error:
            return BookFrame(pair)
        case "order_book_subscribe" if pair and not error:
            return BookFrame(pair)
    return RequestRejected(error, message.oid) if error else Ignored(known=False)


def subscribe(names: Sequence[str], number: int, *, event: str = SUBSCRIBE) -> object:
    """Encode the subscription of a book."""
    return {"e": event, "oid": str(number), "data": {"pair": names[0]}}


def parse_instruments(body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    """Parse `get_pairs_info`: spot only, without a trading state."""
    rows = decode(_listings, body, what="the pairs", items_max=rows_max).data
    return instruments_of(rows, Listing, _listed, rows_max=rows_max)


def _listed(row: Listing) -> Instrument | None:
    return instrument_of(
        "cex",
        f"{row.base}-{row.quote}",
        base=row.base,
        quote=row.quote,
        trading=True,
        tick=step_of(row.price_decimals),
        lot=row.lot,
        least_amount=row.least_amount,
        least_notional=row.least_notional,
    )


BOOKS: Final = BookChannel(
    data=data,
    control=control,
    subscribe=subscribe,
    unsubscribe=partial(subscribe, event=UNSUBSCRIBE),
    track=Chain,
    names_per_request=1,
    welcomes=True,
    renews=True,
)

EXCHANGE: Final = Exchange(
    name="cex",
    display="CEX.IO",
    ws_url="wss://trade.cex.io/api/spot/ws-public",
    rest_url="https://trade.cex.io/api/spot/rest-public",
    instruments_path="/get_pairs_info",
    instruments_body=b"{}",
    parse_instruments=parse_instruments,
    connector=partial(Engine, BOOKS),
    depth=20,
    interval_ms=1000,
    timed=False,
    limits=ExchangeLimits(
        topics=30,  # as many as were seen; our choice: the rate below fills it in 15 s at best
        messages=(Limit(20, 1.0),),  # our choice
        requests=(Limit(90, 60.0, Scope.ADDRESS),),  # of 100 points; the rest is for REST
        connects=(Limit(60, 60.0, Scope.ADDRESS),),  # our choice
        # The list costs one of the same 100 points, but counts as 20 here, as everywhere.
        fetches=(Limit(40, 60.0, Scope.ADDRESS),),
    ),
    heartbeat=Heartbeat(b'{"e":"ping"}', every_s=5.0),  # the page requires 10 s
    silence_max_s=15.0,  # a pong is due within 10 s
    snapshot_s=20.0,
)
