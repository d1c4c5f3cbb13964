"""Coinbase (Exchange feed): the whole book, changes in batches of 50 ms, snapshot on the socket.

Page: https://docs.cdp.coinbase.com/exchange/websocket-feed/channels#level2-channel

Confirmed:

    channel, verbs, levels: 2026-08-21, third-party: JKorf Coinbase.Net
    ping, limits, sequence, depth: 2026-01, page: docs.cdp.coinbase.com, as of 2026

Sequencing: changes have neither a number nor a checksum, so only the order of the socket protects
the book. `heartbeat` (one a second and product) tells a quiet book from a dead one; its `sequence`
counts messages of other channels. To resync, unsubscribe and subscribe.

Frames:

    {"type":"subscriptions","channels":[{"name":"level2_batch","product_ids":["BTC-USD"]}]}
    {"type":"snapshot","product_id":"BTC-USD","bids":[["10101.10","0.45"]],
     "asks":[["10102.55","0.57"]]}
    {"type":"l2update","product_id":"BTC-USD","time":"2026-08-14T20:42:27.265Z",
     "changes":[["buy","10101.80","0.162"]]}                      "0.00000000" removes
    {"type":"heartbeat","sequence":90,"last_trade_id":20,"product_id":"BTC-USD","time":"..."}
    {"type":"error","message":"Failed to subscribe","reason":"X-Y is not a valid product"}

`level2` has required a login since 2023, `level2_batch` does not. The snapshot of a busy product is
one frame of several MB. An error fails its whole request, so unanswered subscriptions are repeated.

`coinbase_advanced` is another feed of the same books with numbered frames. It also has the
instrument list of both feeds.

As of 2026-11 it is unknown whether `level2_batch` stays available without a key; projects that
began in 2026 use it. The number of products per connection is kept far below what others use.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from onebook.core import LevelShape
from onebook.exchanges.coinbase_advanced import ADVANCED, INSTRUMENTS
from onebook.exchanges.kit import (
    NO_LEVELS,
    Accepted,
    Alive,
    BookChannel,
    BookFrame,
    Engine,
    Event,
    Exchange,
    ExchangeLimits,
    Ignored,
    Limit,
    LossDetection,
    Outputs,
    RequestRejected,
    Scope,
    Unnumbered,
    control_reader,
    decode,
    text_in,
    texts_of,
    verbs,
)

CHANNEL: Final = "level2_batch"
CHANNELS: Final = (CHANNEL, "heartbeat")
CHANGES: Final = LevelShape.rows(side=0, price=1, amount=2)


class Change(Struct, gc=False, tag_field="type", tag="l2update"):
    """Changed levels."""

    product_id: str
    changes: Raw
    time: str = ""


class BookMessage(Struct, gc=False, tag_field="type", tag="snapshot"):
    """The whole book."""

    product_id: str
    bids: Raw
    asks: Raw
    time: str = ""


class HeartbeatFrame(Struct, gc=False, tag_field="type", tag="heartbeat"):
    """The heartbeat of a product."""

    product_id: str


class Control(Struct):
    """The members of control frames."""

    type: str = ""
    product_id: str = ""
    channels: Any = None
    message: str = ""
    reason: str = ""


_read = msgspec.json.Decoder(Change | HeartbeatFrame | BookMessage).decode
_control = control_reader(Control)


def data(books: dict[str, Unnumbered], frame: bytes) -> Outputs | None:
    """Decode a frame of a book, or its heartbeat."""
    message: Change | HeartbeatFrame | BookMessage = _read(frame)
    book = books.get(message.product_id)
    if book is None:
        return None
    if type(message) is Change:
        return book.delta(message.changes, NO_LEVELS, message.time)
    if type(message) is BookMessage:
        return book.snapshot(message.bids, message.asks, message.time)
    return (Alive(book.instrument),)


def control(frame: bytes) -> Event:
    """Decode a control frame."""
    message = decode(_control, frame, what="a frame")
    match message.type:
        case "subscriptions":
            return Accepted(_subscribed(message.channels))
        case "error":
            return RequestRejected(f"{message.message}: {message.reason}", whole=True)
        case "l2update" | "snapshot":
            return BookFrame(message.product_id)
        case "" if message.product_id:
            return BookFrame(message.product_id)
        case "heartbeat":
            return Ignored(known=True)  # of a product that was unsubscribed
    return Ignored(known=False)


def _subscribed(channels: Any) -> list[str]:
    """Decode the list of all subscriptions that the exchange sends after each request."""
    listed = channels if isinstance(channels, list) else []
    books = [each for each in listed if text_in(each, "name") == CHANNEL]
    return [name for each in books for name in texts_of(each.get("product_ids"))]


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe books and heartbeats."""
    return {"type": verb, "product_ids": names, "channels": CHANNELS}


def pause(names: Sequence[str], number: int) -> object:
    """Encode the unsubscription of books only; heartbeats continue."""
    return {"type": "unsubscribe", "product_ids": names, "channels": [CHANNEL]}


BOOKS: Final = BookChannel(
    data,
    control,
    *verbs(request),
    partial(Unnumbered, delta_shape=CHANGES),
    pause=pause,
    names_per_request=50,
)

EXCHANGE: Final = Exchange(
    name="coinbase",
    display="Coinbase",
    ws_url="wss://ws-feed.exchange.coinbase.com",
    rest_url="https://api.exchange.coinbase.com",
    instruments_path="/products",
    parse_instruments=INSTRUMENTS,
    connector=partial(Engine, BOOKS),
    depth=0,
    interval_ms=50,
    guard=LossDetection.ORDER,
    time=ADVANCED.time,
    limits=ExchangeLimits(
        topics=50,  # each adds its whole book and a heartbeat a second
        messages=(Limit(100, 1.0, Scope.ADDRESS),),
        # 8 a second and address; of connections or subscriptions is undocumented, so both.
        requests=(Limit(8, 1.0, Scope.ADDRESS),),
        connects=(Limit(8, 1.0, Scope.ADDRESS),),
        fetches=(Limit(300, 60.0, Scope.ADDRESS),),
    ),
    silence_max_s=5.0,
    heartbeat_max_s=5.0,  # each product sends a heartbeat every second
    quiet_max_s=5.0,  # only the heartbeats of a product show that its book is still alive
    former_names=("coinbasepro", "coinbaseexchange", "coinbaseadvanced", "gdax"),
    channels={"advanced": ADVANCED},
)
