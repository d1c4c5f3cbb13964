"""bitFlyer spot: the best 300 levels a side; a snapshot about every 5 s.

Page: https://bf-lightning-api.readme.io/docs/realtime-board-snapshot (read in the copy at
https://tokyo559.com/post-7387; the probe below quotes the same sentences of the page). The list is
`getmarkets` of https://lightning.bitflyer.com/docs.

Confirmed:

    channel, verbs, ping, sequence, levels, depth: 2026-09-23, recorded: arbitrage-observatory
    limits: never: our choice, the page states none

Sequencing: every frame of `lightning_board_snapshot` has the whole book, so a lost frame does no
harm. The subscription itself does not send a book. The changes in between (`lightning_board`) have
no numbers and miss deletions: in a recording of 2021, 20 of 35 snapshots of spot books differ from
the previous snapshot plus the changes, 4 of them at the best price. Therefore changes are not used,
and a book is up to 5 s old.

Frames; an answer repeats the number of its request:

    {"jsonrpc":"2.0","method":"subscribe","params":{"channel":"lightning_board_snapshot_BTC_JPY"},
     "id":1}
    {"jsonrpc":"2.0","id":1,"result":true}
    {"jsonrpc":"2.0","method":"channelMessage","params":{"channel":"lightning_board_snapshot_BTC_JPY",
     "message":{"mid_price":5860954.0,"bids":[{"price":5854504.0,"size":0.1}],"asks":[]}}}
    {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"invalid channel"}}   -32009: repeated

Frames have no time. A price of 0 stands for the market orders of an auction and is skipped. Unknown
products are accepted and silent. The server sends protocol pings every 15 s. cryptofeed agrees on
address, channels and the shape of frames, but also applies the changes.

A wire probe of 2026-09-23 (nemanull/arbitrage-observatory) agrees. The first book arrived 0.6 to
3.7 s after the request, later ones every 4.9 to 5.1 s, with 300 levels a side, sorted, although the
page says that they need not be; the changes missed deletions there too. A name without a known
prefix was refused with -32602. The probe quotes the page as stating no limit, and as restricting
addresses that connect very often or repeat errors.

Checked in 2026-11: tardis-node uses the same deltas, and nothing newer was found.

Unconfirmed: that the text of the error for too many requests says so; how many requests and
connections are too many; that every spot book is sent every 5 s even if nothing changes (it was in
the recording).
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Raw, Struct

from onebook.core import LevelShape
from onebook.exchanges.kit import (
    Accepted,
    BookChannel,
    BookFrame,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    Ignored,
    Limit,
    ListReader,
    LossDetection,
    Outputs,
    RequestRejected,
    RpcControl,
    Scope,
    WholeBooks,
    control_reader,
    decode,
    text_in,
    verbs,
)
from onebook.model import Instrument

CHANNEL: Final = "lightning_board_snapshot_"
LEVELS: Final = LevelShape.objects("price", "size", skip_zero_price=True)
REPEATED: Final = "-32009"


class Board(Struct, gc=False):
    """A whole book."""

    bids: Raw
    asks: Raw


class Message(Struct, gc=False):
    """A whole book and its channel."""

    channel: str
    message: Board


class BookMessage(Struct, gc=False, tag_field="method", tag="channelMessage"):
    """A frame with a whole book."""

    params: Message


_read = msgspec.json.Decoder(BookMessage).decode
_control = control_reader(RpcControl)


def topic(instrument: Instrument) -> str:
    """Return the channel of an instrument, as in its frames."""
    return CHANNEL + instrument.native


def data(books: dict[str, WholeBooks], frame: bytes) -> Outputs | None:
    """Decode a whole book."""
    message: BookMessage = _read(frame)
    params = message.params
    book = books.get(params.channel)
    return None if book is None else book.snapshot(params.message.bids, params.message.asks)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    if message.error is not None:
        repeated = str(message.error.code) == REPEATED
        return RequestRejected(message.error.message, message.id, repeated=repeated)
    if message.result is True:
        return Accepted(number=message.id)
    channel = text_in(message.params, "channel")
    if message.method == "channelMessage" and channel.startswith(CHANNEL):
        return BookFrame(channel)
    return Ignored(known=False)


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe a book."""
    return {"jsonrpc": "2.0", "method": verb, "params": {"channel": names[0]}, "id": number}


INSTRUMENTS: Final = ListReader(
    "bitflyer",  # the list has neither steps nor states
    native="product_code",
    separator="_",
    spot={"market_type": ("Spot",)},
)

BOOKS: Final = BookChannel(
    data, control, *verbs(request), partial(WholeBooks, shape=LEVELS), key=topic
)

EXCHANGE: Final = Exchange(
    name="bitflyer",
    display="bitFlyer",
    ws_url="wss://ws.lightstream.bitflyer.com/json-rpc",
    rest_url="https://api.bitflyer.com",
    instruments_path="/v1/getmarkets",
    parse_instruments=INSTRUMENTS,
    connector=partial(Engine, BOOKS),
    depth=300,
    interval_ms=5_000,
    guard=LossDetection.WHOLE,
    timed=False,
    limits=ExchangeLimits(
        topics=20,  # our choice: more than the pairs that it lists
        messages=(Limit(10, 1.0),),  # our choice: undocumented
        connects=(Limit(60, 60.0, Scope.ADDRESS),),  # our choice: undocumented
        fetches=(Limit(300, 300.0, Scope.ADDRESS),),  # of 500 in five minutes
    ),
    silence_max_s=20.0,  # the server pings every 15 s
    quiet_max_s=60.0,  # each book is sent about every 5 s
    snapshot_s=20.0,
)
