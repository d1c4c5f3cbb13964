"""Independent Reserve spot: 100 levels a side in real time, snapshot on the socket.

Pages: https://github.com/independentreserve/websockets/blob/master/orderbook-snapshot.md (the book
and how to keep it), the README next to it (heartbeats, errors) and, for the list,
https://www.independentreserve.com/features/api (REST). ccxt's watchOrderBook and frames recorded in
2026-09 agree.

Confirmed:

    channel, verbs, ping, sequence, levels, depth: 2026-09-22, recorded: arbitrage-observatory
    sequence: 2026-10-23, third-party: ccxt 4.5.90, the unsigned checksum
    limits: 2026-09-22, recorded: arbitrage-observatory, about 40 pairs on a socket

Sequencing: no numbers, but every frame has the unsigned CRC-32 of the ten best levels after it:
bids, then asks, each price and volume with eight decimals, without the point and leading zeros. The
exchange does not delete levels that leave the depth, so the book is truncated there
(`Exchange.truncate`). Another snapshot may arrive at any time, for example after a change of
currency rates, and replaces the book. To resync, unsubscribe and subscribe.

Frames:

    {"Event":"Subscriptions","Data":["btc-usd","eth-usd"],"Time":1676157556223}   all of the socket
    {"Channel":"orderbook/100/eth/usd","Event":"OrderBookSnapshot","Time":1676150558254,"Data":{
     "Bids":[{"Price":2198.09,"Volume":0.16143952}],"Offers":[{"Price":2201.25,"Volume":15}],
     "Crc32":1519697650}}                                  then "OrderBookChange"; volume 0 removes
    {"Event":"Heartbeat","Time":1676156208182}             about every second if otherwise idle
    {"Event":"Error","Data":"...","Time":1676157556223}    an unknown code in a request

A level that changes is removed and then added in the same frame. The address contains the depth.
Codes in frames are in lower case, and btc where xbt was requested. Pairs without a market are
acknowledged and silent. Changes may arrive before the snapshot. The exchange drops changes for a
client whose queue is full (the page names 1,000 messages a connection), which the next checksum
reveals: beyond about 40 pairs on a socket, checksums failed. Each coin has one book, shown in four
currencies. The list has coins only; we use the US dollar, as most other exchanges do.

A book can be crossed, with a valid checksum, by levels that REST does not show (seen in AUD); it is
then not shown. Unconfirmed: how `Subscriptions` spells the pairs of this channel (both spellings
seen elsewhere are read); the text of an `Error`; every limit, since no page states any.

Checked in 2026-11: ccxt 4.5.90 now compares the checksum as unsigned, as here.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from onebook.core import ChecksumLayout, ChecksumNumber, ChecksumOrder, LevelShape
from onebook.exchanges.kit import (
    ROWS_MAX,
    UNTIMED,
    Accepted,
    Alive,
    BookChannel,
    BookFrame,
    Checksum,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    Ignored,
    Instruments,
    Limit,
    LossDetection,
    Outputs,
    ProtocolError,
    RequestRejected,
    Scope,
    Unnumbered,
    Verify,
    control_reader,
    decode,
    each_of,
    instrument_of,
    instruments_of,
    short,
    step_of,
    texts_of,
    verbs,
)
from onebook.model import Instrument

DEPTH: Final = 100
CHANNEL: Final = f"orderbook/{DEPTH}/"
LEVELS: Final = LevelShape.objects(price="Price", amount="Volume")
CHECKSUM: Final = ChecksumLayout(10, ChecksumOrder.BIDS_ASKS, ChecksumNumber.DIGITS, decimals=8)
QUOTE: Final = "usd"
SOCKET_CODES: Final = {"xbt": "btc"}


class BookMessage(Struct, gc=False):
    """A snapshot or a delta."""

    bids: Raw = field(name="Bids")
    asks: Raw = field(name="Offers")
    checksum: Checksum = field(name="Crc32")


class Data(Struct, gc=False):
    """A frame with a snapshot or delta."""

    channel: str = field(name="Channel")
    event: str = field(name="Event")
    book: BookMessage = field(name="Data")
    at: int = field(name="Time", default=UNTIMED)


class Control(Struct, rename="pascal"):
    """The members of control frames."""

    event: str = ""
    channel: str = ""
    data: Any = None


class Places(Struct, rename="pascal", frozen=True):
    """The decimals of amounts and prices."""

    order_primary_currency: int | None = None
    order_secondary_currency: int | None = None


class Listing(Struct, rename="pascal"):
    """A row of the list of coins."""

    currency: str
    is_trade_enabled: bool
    decimal_places: Places = Places()


_read = msgspec.json.Decoder(Data).decode
_control = control_reader(Control)
_listings = msgspec.json.Decoder(list[Raw]).decode


def _name(channel: str) -> str:
    """Return the pair of a channel (`orderbook/100/eth/usd`) as in requests (`eth-usd`)."""
    return channel.removeprefix(CHANNEL).replace("/", "-")


def data(books: dict[str, Unnumbered], frame: bytes) -> Outputs | None:
    """Decode a frame of a book."""
    message: Data = _read(frame)
    book = books.get(_name(message.channel))
    if book is None:
        return None
    change = message.book
    if message.event == "OrderBookChange":
        outputs = book.delta(change.bids, change.asks, message.at)
    elif message.event == "OrderBookSnapshot":
        outputs = book.snapshot(change.bids, change.asks, message.at)
    else:
        raise ProtocolError(f"unknown event {short(message.event)!r} of a book", book.instrument)
    return outputs and each_of(outputs, Verify(book.instrument, CHECKSUM, change.checksum))


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    if message.channel.startswith(CHANNEL):
        return BookFrame(_name(message.channel))
    match message.event:
        case "Heartbeat":
            return Alive()
        case "Subscriptions":
            return Accepted([_name(each) for each in texts_of(message.data)])
        case "Error":
            return RequestRejected(str(message.data))
    return Ignored(known=False)


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe books."""
    return {"Event": verb, "Data": names}


def parse_instruments(body: bytes, *, rows_max: int = ROWS_MAX) -> Instruments:
    """Parse `/Public/GetPrimaryCurrencyConfig2`."""
    rows = decode(_listings, body, what="the currencies", items_max=rows_max)
    return instruments_of(rows, Listing, _listed, rows_max=rows_max)


def _listed(row: Listing) -> Instrument | None:
    code = row.currency.lower()
    return instrument_of(
        "independentreserve",
        f"{SOCKET_CODES.get(code, code)}-{QUOTE}",
        base=row.currency,
        quote=QUOTE,
        trading=row.is_trade_enabled,
        tick=step_of(row.decimal_places.order_secondary_currency),
        lot=step_of(row.decimal_places.order_primary_currency),
    )


BOOKS: Final = BookChannel(
    data,
    control,
    *verbs(request, "Subscribe", "Unsubscribe"),
    partial(Unnumbered, shape=LEVELS),
    names_per_request=40,
)

EXCHANGE: Final = Exchange(
    name="independentreserve",
    display="Independent Reserve",
    ws_url=f"wss://websockets.independentreserve.com/orderbook/{DEPTH}",
    rest_url="https://api.independentreserve.com",
    instruments_path="/Public/GetPrimaryCurrencyConfig2",
    parse_instruments=parse_instruments,
    connector=partial(Engine, BOOKS),
    depth=DEPTH,
    interval_ms=0,
    truncate=True,
    guard=LossDetection.CHECKSUM,
    limits=ExchangeLimits(
        topics=40,
        messages=(Limit(5, 1.0),),
        connects=(Limit(1, 1.0, Scope.ADDRESS),),
        fetches=(Limit(30, 60.0, Scope.ADDRESS),),
    ),
    silence_max_s=15.0,
    heartbeat_max_s=65.0,  # one in 60 s is promised
)
