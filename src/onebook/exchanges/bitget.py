"""Bitget spot (v3): 1000 levels a side about every 50 ms, snapshot on the socket.

Page: https://www.bitget.com/docs/uta/websocket/public/Order-Book-Channel. Frames of 2026-09,
recorded by others from futures on this socket, agree with it and with those of v2; ccxt's
`watchOrderBook` reads the same members. The v2 socket ("maintenance only") has 500 levels.

In step: `pseq` of each update equals the `seq` before it (no gap in 280,000 frames); the page
allows the first one to reach back before the snapshot. A `pseq` of 0 is a restart: a gap. Repair is
unsubscribe and subscribe.

Frames:

    {"action":"snapshot","arg":{"instType":"spot","topic":"books","symbol":"BTCUSDT"},"data":[
     {"a":[["101","3"]],"b":[["100","2"]],"seq":1304314508780744705,"pseq":0,
     "ts":"1746698732562"}],"ts":1746698732563}                      then "action":"update"
    {"event":"subscribe","arg":{"instType":"spot","topic":"books","symbol":"BTCUSDT"},"connId":"a"}
    {"event":"error","code":30001,"msg":"{\\"instType\\":\\"spot\\",\\"symbol\\":\\"NO\\",...}
     doesn't exist","connId":"a"}
    pong                                                             to our text `ping`

The page writes `seq` as a text, the wire as a number: both are read. The time of a frame is that of
its item, when the book was made. A book that does not change is silent. A client that sends no
`ping` is dropped after about two minutes, even while it gets data. A frame of 25 or more arguments
dropped the connection, one of 20 did not: 10 are sent. Errors 30006 and 30007 ask for fewer
requests.

The checksum of earlier years (25 levels in turn as they were spelled, in all recorded frames of
2022) is 0 or absent and not read.

Unconfirmed: spot frames of this socket, which were not recorded; whether unsubscriptions count
among the 240 requests an hour. ccxt says that books of tokenized stocks may bring an object where
others bring a list: those are not shown.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.core import Reader
from onebook.exchanges.contract import (
    ROWS_MAX,
    Exchange,
    Heartbeat,
    Ignored,
    Instruments,
    Output,
    ProtocolError,
    SlowDown,
)
from onebook.exchanges.engine import (
    Accepted,
    BookChannel,
    BookFrame,
    Engine,
    Event,
    Rejected,
)
from onebook.exchanges.frames import (
    SEQUENCE_MAX,
    decode,
    instrument_of,
    instruments_of,
    short,
    step_of,
    text_in,
)
from onebook.exchanges.limits import Limit, Limits, Scope
from onebook.exchanges.sync import Chain
from onebook.model import Instrument

TOPIC: Final = "books"
SPOT: Final = "spot"
RESTARTED: Final = 0  # `pseq` of an update after a restart, and of every snapshot
NO_NUMBER: Final = Raw(b"0")
PONG: Final = b"pong"
TOO_MANY: Final = ("30006", "30007")
SUCCESS: Final = "00000"
TRADING: Final = ("online", "gray")


class Arg(Struct, gc=False, tag_field="topic", tag=TOPIC):
    """What a frame is about."""

    symbol: str
    family: str = field(name="instType")


class Item(Struct, gc=False):
    """A book or a change of it."""

    bids: Raw = field(name="b")
    asks: Raw = field(name="a")
    sequence: Raw = field(name="seq")
    previous: Raw = field(name="pseq", default=NO_NUMBER)
    ts: str = ""


class Update(Struct, gc=False, tag_field="action", tag="update"):
    """Changes of a book."""

    arg: Arg
    data: tuple[Item, ...]


class Whole(Update, tag="snapshot"):
    """A whole book."""


class Control(Struct):
    """Every frame that is not of a book."""

    event: str = ""
    arg: Any = None
    code: int | str = ""
    msg: str = ""


class Listing(Struct, rename="camel"):
    """A row of the instrument list."""

    symbol: str
    category: str
    base_coin: str
    quote_coin: str
    status: str
    price_precision: int | str = ""
    quantity_precision: int | str = ""


class Listings(Struct):
    """The instrument list."""

    data: list[Raw]
    code: str = SUCCESS


_read = Reader(Update | Whole).read
_control = msgspec.json.Decoder(Control).decode
_listings = msgspec.json.Decoder(Listings).decode


def data(books: dict[str, Chain], frame: bytes) -> tuple[Output, ...] | None:
    """Follow a frame of a book."""
    message: Update | Whole = _read(frame)
    book = books.get(message.arg.symbol)
    if book is None or message.arg.family != SPOT:
        return None
    items, follow = message.data, _replaced if type(message) is Whole else _changed
    if len(items) == 1:
        return follow(book, items[0])
    return tuple(out for item in items for out in follow(book, item))


def _replaced(book: Chain, item: Item) -> tuple[Output, ...]:
    return book.snapshot(item.bids, item.asks, _number(item.sequence), item.ts)


def _changed(book: Chain, item: Item) -> tuple[Output, ...]:
    """Follow an update; one that reaches back before the book's state contains it."""
    previous, sequence, last = _number(item.previous), _number(item.sequence), book.last
    if last is not None and RESTARTED < previous < last < sequence:
        previous = last
    return book.delta(item.bids, item.asks, previous, sequence, item.ts)


def _number(raw: bytes) -> int:
    """Read a number, or the digits of one in a text."""
    number = int(bytes(raw).strip(b'"'))
    if not 0 <= number <= SEQUENCE_MAX:
        raise ValueError(f"{number} is no id")
    return number


def control(frame: bytes) -> Event:
    """Read a frame that is not of a book."""
    if frame == PONG:
        return Ignored(known=True)
    message = decode(_control, frame, what="a frame")
    is_book = (text_in(message.arg, "topic"), text_in(message.arg, "instType")) == (TOPIC, SPOT)
    name = text_in(message.arg, "symbol") if is_book else ""
    match message.event:
        case "subscribe" if name:
            return Accepted([name])
        case "error" if str(message.code) in TOO_MANY:
            return SlowDown(short(message.msg))
        case "error":
            return Rejected(message.msg)
        case "" if is_book:
            return BookFrame(name)
    return Ignored(known=message.event in ("subscribe", "unsubscribe"))


def request(names: Sequence[str], number: int, *, operation: str) -> object:
    """Ask for books, or for them no longer."""
    args = [{"instType": SPOT, "topic": TOPIC, "symbol": name} for name in names]
    return {"op": operation, "args": args}


def parse_instruments(body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    """Read `/api/v3/market/instruments`."""
    listings = decode(_listings, body, what="the instruments")
    if listings.code != SUCCESS:
        raise ProtocolError(f"the instruments are refused with code {short(listings.code)}")
    return instruments_of(listings.data, Listing, _listed, rows_max=rows_max)


def _listed(row: Listing) -> Instrument | None:
    if row.category.lower() != SPOT:
        return None
    return instrument_of(
        "bitget",
        row.symbol,
        base=row.base_coin,
        quote=row.quote_coin,
        trading=row.status in TRADING,
        tick=_step(row.price_precision),
        lot=_step(row.quantity_precision),
    )


def _step(decimals: int | str) -> str:
    text = str(decimals)
    return step_of(int(text) if text.isdecimal() else None)


BOOKS: Final = BookChannel(
    data=data,
    control=control,
    subscribe=partial(request, operation="subscribe"),
    unsubscribe=partial(request, operation="unsubscribe"),
    track=Chain,
    names_per_request=10,
)

EXCHANGE: Final = Exchange(
    name="bitget",
    display="Bitget",
    ws_url="wss://ws.bitget.com/v3/ws/public",
    rest_url="https://api.bitget.com",
    instruments_path="/api/v3/market/instruments?category=SPOT",
    parse_instruments=parse_instruments,
    connector=partial(Engine, BOOKS),
    depth=1_000,
    interval_ms=50,
    limits=Limits(
        topics=50,  # advised, of 1,000; each repair is two of 240 requests an hour
        messages=(Limit(10, 1.0),),
        requests=(Limit(240, 3_600.0),),
        connects=(Limit(300, 300.0, Scope.ADDRESS),),
        fetches=(Limit(20, 1.0, Scope.ADDRESS),),
        connections=100,
    ),
    heartbeat=Heartbeat(b"ping", every_s=20.0),
    silence_max_s=30.0,  # a healthy socket answers each ping
)
