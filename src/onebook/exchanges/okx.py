"""OKX spot: 400 levels a side every 100 ms, snapshot on the socket.

Page: https://www.okx.com/docs-v5/en/#order-book-trading-market-data-ws-order-book-channel

In step: each update's `prevSeqId` equals the `seqId` before it (which may fall at maintenance);
a snapshot comes only after a subscription, so repair is unsubscribe and subscribe.

Frames:

    {"event":"subscribe","arg":{"channel":"books","instId":"BTC-USDT"},"connId":"a4d3ae55"}
    {"arg":{"channel":"books","instId":"BTC-USDT"},"action":"snapshot","data":[{"asks":
     [["8476.98","415","0","13"]],"bids":[["8476.97","256","0","12"]],"ts":"1597026383085",
     "checksum":0,"prevSeqId":-1,"seqId":123456}]}                  then "action":"update"
    {"event":"error","code":"60018","msg":"Wrong URL or channel:books,instId:X-Y doesn't exist."}
    {"event":"notice","code":"64008","msg":"The connection will soon be closed ..."}
    pong                                                             to our text `ping`

An update with empty sides and `prevSeqId == seqId` is a sign of life. `checksum` has been 0 since
2026 and is checked only where it is not; recordings of 2022 have it and no ids, so that ids are
all -1 there and chain trivially. `books-l2-tbt` (10 ms) needs a login of a VIP account.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from onebook.core import Reader
from onebook.exchanges.contract import (
    NOTHING,
    TEXT_25,
    Acknowledged,
    Closing,
    Exchange,
    Heartbeat,
    Output,
    ProtocolError,
    Verify,
)
from onebook.exchanges.frames import (
    UNREADABLE,
    Checksum,
    Sequence64,
    batches,
    decode,
    instrument_of,
    instruments_of,
    send,
    short,
)
from onebook.exchanges.roster import Roster
from onebook.exchanges.subscriptions import Subscriptions
from onebook.exchanges.sync import Chain
from onebook.model import Instrument

CHANNEL: Final = "books"
ARGS_PER_FRAME: Final = 100  # about 5 KB of the 64 KB that arguments may have
SERVICE_UPGRADE: Final = "64008"

PONG: Final = b"pong"


class Arg(Struct, gc=False, rename="camel", tag_field="channel", tag=CHANNEL):
    """What a frame is about."""

    inst_id: str = ""


class Item(Struct, gc=False, rename="camel"):
    """A book or a change of it."""

    asks: Raw
    bids: Raw
    checksum: Checksum = 0
    prev_seq_id: Sequence64 = -1
    seq_id: Sequence64 = -1


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
    code: str = ""
    msg: str = ""


class Listing(Struct, rename="camel"):
    """A row of the instrument list."""

    inst_id: str
    state: str
    base_ccy: str = ""
    quote_ccy: str = ""
    tick_sz: str = ""
    lot_sz: str = ""


class Listings(Struct):
    """The instrument list."""

    data: list[Raw]
    code: str = "0"


_data = Reader(Update | Whole).read
_control = msgspec.json.Decoder(Control).decode
_listings = msgspec.json.Decoder(Listings).decode


class Okx:
    """The protocol state of one connection."""

    def __init__(self, instruments: Sequence[Instrument]) -> None:
        self._roster = Roster(instruments, Chain)
        self._books = self._roster.trackers
        asked = Subscriptions(self._roster, _requested)
        self.opened, self.fetched, self.resync = asked.opened, asked.fetched, asked.resync
        self.add, self.remove = asked.add, asked.remove

    def received(self, frame: bytes) -> tuple[Output, ...]:
        """Act on one frame."""
        try:
            message = _data(frame)
        except UNREADABLE as error:
            return NOTHING if frame == PONG else self._control(frame, error)
        native = message.arg.inst_id
        book = self._books.get(native)
        if book is None:
            return self._roster.absent(native)
        items, whole = message.data, type(message) is Whole
        if len(items) == 1 and not whole and not items[0].checksum:  # nearly all
            item = items[0]
            return book.delta(item.bids, item.asks, item.prev_seq_id, item.seq_id)
        return tuple(out for item in items for out in _followed(book, item, whole=whole))

    def _control(self, frame: bytes, error: Exception) -> tuple[Output, ...]:
        message = decode(_control, frame, what="a frame")
        arg = message.arg if isinstance(message.arg, dict) else {}
        instrument = self._roster.known(str(arg.get("instId")))
        match message.event:
            case "subscribe" if instrument and arg.get("channel") == CHANNEL:
                return (Acknowledged(instrument),)
            case "error":
                return self._roster.refused(message.msg)
            case "notice" if message.code == SERVICE_UPGRADE:
                return (Closing(short(message.msg)),)
            case "" if arg.get("channel") == CHANNEL:
                raise ProtocolError(f"a frame of books is damaged: {short(error)}", instrument)
        return NOTHING


def _followed(book: Chain, item: Item, *, whole: bool) -> tuple[Output, ...]:
    if whole:
        outputs = book.snapshot(item.bids, item.asks, item.seq_id)
    else:
        outputs = book.delta(item.bids, item.asks, item.prev_seq_id, item.seq_id)
    if item.checksum and book.last is not None:
        return (*outputs, Verify(book.instrument, TEXT_25, item.checksum))
    return outputs


def _requested(operation: str, instruments: Sequence[Instrument]) -> tuple[Output, ...]:
    return tuple(
        send(
            {
                "op": operation,
                "args": [{"channel": CHANNEL, "instId": one.native} for one in batch],
            }
        )
        for batch in batches(instruments, ARGS_PER_FRAME)
    )


def parse_instruments(body: bytes) -> list[Instrument]:
    """Read `/api/v5/public/instruments`."""
    listings = decode(_listings, body, what="the instruments")
    if listings.code != "0":
        raise ProtocolError(f"the instruments are refused with code {short(listings.code)}")
    return instruments_of(listings.data, Listing, _listed)


def _listed(row: Listing) -> Instrument | None:
    """Rows before their opening may have empty currencies, so the id is what counts."""
    base, _, quote = row.inst_id.partition("-")
    return instrument_of(
        "okx",
        row.inst_id,
        base=base,
        quote=quote,
        trading=row.state == "live",
        tick=row.tick_sz,
        lot=row.lot_sz,
    )


EXCHANGE: Final = Exchange(
    name="okx",
    display="OKX",
    ws_url="wss://ws.okx.com:8443/ws/v5/public",
    rest_url="https://www.okx.com",
    instruments_path="/api/v5/public/instruments?instType=SPOT",
    parse_instruments=parse_instruments,
    connector=Okx,
    depth=400,
    instruments_per_socket=100,  # each repair is two of 480 requests an hour
    frames_per_s=3.0,
    connects_per_minute=60.0,  # 3 a second by the page
    fetches_per_minute=300.0,
    heartbeat=Heartbeat(b"ping", every_s=10.0),  # 30 s without is closed
    silence_max_s=15.0,  # a healthy socket answers each ping
    former_names=("okex", "okex5"),
)
