"""LBank spot (WebSocket 2): the best 100 levels a side, whole in every frame.

Pages: https://www.lbank.com/docs/index.html ("WebSocket API (Market Data)", 2026-07), and
`API-For-Spot-EN` of https://github.com/LBank-exchange/lbank-official-api-docs.

Confirmed:

    channel, verbs, ping, sequence, levels, depth: 2026-10-23, third-party: ccxt 4.5.90
    channel, levels: 2026-07, page: index.html
    limits: never: our choice, the page states none of the socket

Sequencing: every frame has the whole book, so a lost frame does no harm. The only answer to a
subscription is the first frame of its book, or an error.

Frames; numbers are JSON numbers, times are Beijing's (UTC+8) without a zone:

    {"action":"subscribe","subscribe":"depth","depth":"100","pair":"btc_usdt"}
    {"depth":{"asks":[[0.0252,0.5833]],"bids":[[0.025135,3.962]]},"count":100,"type":"depth",
     "pair":"eth_btc","SERVER":"V2","TS":"2019-06-28T17:49:22.722"}
    {"action":"ping","ping":"0ca8f854-7ba7-4341-9d86-d3327e52804e"}      to be answered in a minute
    {"SERVER":"V2","message":"Missing parameter ['pair']","status":"error","TS":"..."}

Both sides send pings; the answer to ours proves that a socket is alive. ccxt 4.5.90 and
GoCryptoTrader read the same frames; ccxt notes that protocol pings are not answered reliably, so
ours is the JSON one. The time zone follows from the page's own example (`2018-08-03T17:32:00` is
1533288720) and from a frame that ccxt quotes. The perpetuals' socket is another product; in a wire
probe of 2026-09 its books of quiet pairs stopped changing. The list of pairs has no state and no
perpetuals.

As of 2026-11 one client says that only the server needs to ping. We do both, since an unnecessary
ping does no harm.

Unconfirmed, as no recording of this socket is known: that a subscription returns the book at once
and not with its next change; how often books and pings are sent; the words of the refusal of an
unknown pair and of one request too many; every limit of the socket.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.exchanges.kit import (
    ROWS_MAX,
    BookChannel,
    BookFrame,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    Heartbeat,
    Ignored,
    Instruments,
    Limit,
    LossDetection,
    Outputs,
    RequestRejected,
    Scope,
    Send,
    ServerTime,
    WholeBooks,
    control_reader,
    decode,
    instrument_of,
    instruments_of,
    step_of,
)
from onebook.model import Instrument

DEPTH: Final = 100
ZONE: Final = "+08:00"


class SideLevels(Struct, gc=False):
    """Both sides of a book."""

    bids: Raw
    asks: Raw


class BookMessage(Struct, gc=False, tag_field="type", tag="depth"):
    """A frame with a whole book."""

    pair: str
    depth: SideLevels
    at: str = field(name="TS", default="")


class Control(Struct):
    """The members of control frames."""

    type: str = ""
    pair: str = ""
    action: str = ""
    ping: Any = ""
    status: str = ""
    message: str = ""


class Listing(Struct, rename="camel"):
    """A row of the instrument list; its numbers are strings."""

    symbol: str
    price_accuracy: str = ""
    quantity_accuracy: str = ""
    min_tran_qua: str = ""


class Listings(Struct):
    """The instrument list."""

    data: list[Raw]


_read = msgspec.json.Decoder(BookMessage).decode
_control = control_reader(Control)
_listings = msgspec.json.Decoder(Listings).decode


def data(books: dict[str, WholeBooks], frame: bytes) -> Outputs | None:
    """Decode a whole book."""
    message: BookMessage = _read(frame)
    book = books.get(message.pair)
    if book is None:
        return None
    return book.snapshot(message.depth.bids, message.depth.asks, message.at + ZONE)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    if message.type == "depth":
        return BookFrame(message.pair)
    if message.action == "ping":
        pong = {"action": "pong", "pong": message.ping}
        return Send(msgspec.json.encode(pong), urgent=True)
    if message.status == "error":
        return RequestRejected(message.message)
    return Ignored(known=message.action == "pong")


def subscribe(names: Sequence[str], number: int, *, action: str = "subscribe") -> object:
    """Encode the subscription of a book."""
    return {"action": action, "subscribe": "depth", "depth": str(DEPTH), "pair": names[0]}


def parse_instruments(body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    """Parse `/v2/accuracy.do`: spot only, without a trading state."""
    rows = decode(_listings, body, what="the pairs", items_max=rows_max).data
    return instruments_of(rows, Listing, _listed, rows_max=rows_max)


def _listed(row: Listing) -> Instrument | None:
    base, _, quote = row.symbol.rpartition("_")
    return instrument_of(
        "lbank",
        row.symbol,
        base=base,
        quote=quote,
        trading=True,
        tick=step_of(row.price_accuracy),
        lot=step_of(row.quantity_accuracy),
        least_amount=row.min_tran_qua,
    )


BOOKS: Final = BookChannel(
    data=data,
    control=control,
    subscribe=subscribe,
    unsubscribe=partial(subscribe, action="unsubscribe"),
    track=partial(WholeBooks, unanswered=True),
    names_per_request=1,
)

EXCHANGE: Final = Exchange(
    name="lbank",
    display="LBank",
    ws_url="wss://www.lbkex.net/ws/V2/",
    rest_url="https://api.lbkex.com",
    instruments_path="/v2/accuracy.do",
    parse_instruments=parse_instruments,
    connector=partial(Engine, BOOKS),
    depth=DEPTH,
    guard=LossDetection.WHOLE,
    time=ServerTime("/v2/timestamp.do", "data"),
    limits=ExchangeLimits(
        topics=50,  # our choice, as are the limits below except the last
        messages=(Limit(10, 1.0),),
        connects=(Limit(60, 60.0, Scope.ADDRESS),),
        fetches=(Limit(150, 10.0, Scope.ADDRESS),),  # of 200 allowed
    ),
    heartbeat=Heartbeat(b'{"action":"ping","ping":"onebook"}', every_s=15.0),
    silence_max_s=35.0,  # two pings without an answer
    snapshot_s=30.0,
)
