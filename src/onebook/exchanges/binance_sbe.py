"""Binance spot in Simple Binary Encoding: depth every 20 ms and real-time best prices, for a key.

Page: https://developers.binance.com/docs/binance-spot-api-docs/sbe-market-data-streams (schema
`stream_1_0.xml`: id 1, version 0). A channel of `binance`, chosen with
`feeds.overrides.binance.channel = "sbe"`. Its handshake needs an Ed25519 API key of the operator
(`feeds.overrides.binance.api_key`); the key needs no permissions and nothing is signed. Where the
key is refused, the books are followed in JSON instead.

Confirmed:

    channel, verbs, ping, limits, sequence, levels, depth: 2026-07-21, page: SBE market data streams

Requests, their answers and `serverShutdown` are JSON as on the other socket; events are binary
frames, little endian:

    header    blockLength u16, templateId u16, schemaId u16, version u16
    10001     best prices: eventTime i64 us, bookUpdateId i64, priceExponent i8, qtyExponent i8,
              bidPrice i64, bidQty i64, askPrice i64, askQty i64; symbol
    10003     depth: eventTime i64 us, firstBookUpdateId i64, lastBookUpdateId i64,
              priceExponent i8, qtyExponent i8; bids and asks, each as blockLength u16,
              numInGroup u16 and that many of price i64, qty i64; symbol
    symbol    length u8, UTF-8

A later version may lengthen a block at its end, so the stated lengths are used; a frame of a later
version in which the symbol is not last is invalid. Numbers are mantissa x 10^exponent; that all
exponents are from -8 to 0, as the prices and amounts of the JSON have at most 8 decimals, is
unconfirmed, and another exponent is an invalid frame. The ids are those of the JSON streams, so
sequencing and seeding are the same. Under load, best prices that are no longer the newest are left
out, which costs no correctness (`onebook.fusing`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import Final

import msgspec
from msgspec.structs import replace

from onebook.core.types import LevelShape
from onebook.exchanges.kit import (
    EXPECTED,
    BookChannel,
    BookFrame,
    DepthBody,
    Event,
    Exchange,
    Ignored,
    Join,
    Outputs,
    SeededEngine,
    TopOfBook,
    decode,
    join_by_rest,
    verbs,
)

SCHEMA: Final = 1
VERSION: Final = 0
BEST_PRICES: Final = 10_001
DEPTH: Final = 10_003
STREAMS: Final = ("@depth", "@bestBidAsk")
KEY_HEADER: Final = "X-MBX-APIKEY"
DECIMALS_MAX: Final = 8  # of a price or amount

_HEADER: Final = Struct("<HHHH")
_BEST_PRICES: Final = Struct("<qqbb16s16s")  # each side as price and amount, like a level
_DEPTH: Final = Struct("<qqqbb")
_BLOCK_MIN: Final = {BEST_PRICES: _BEST_PRICES.size, DEPTH: _DEPTH.size}
_GROUP: Final = Struct("<HH")
_LEVEL: Final = Struct("<qq")
_ONE_LEVEL: Final = _GROUP.pack(_LEVEL.size, 1)
_NO_AMOUNT: Final = bytes(8)
_SHAPES: Final = {
    (-prices, -amounts): LevelShape.group(price_scale=prices, amount_scale=amounts)
    for prices in range(DECIMALS_MAX + 1)
    for amounts in range(DECIMALS_MAX + 1)
}  # by the exponents of prices and amounts


def data(books: dict[str, Join], frame: bytes) -> Outputs | None:
    """Decode changed levels or best prices; the core reads the levels."""
    at, template, version = _block(frame)
    if template == DEPTH:
        time_us, first, final, price, amount = _DEPTH.unpack_from(frame, _HEADER.size)
        asks = _group_end(frame, at)
        end = _group_end(frame, asks)
        book = books.get(_symbol(frame, end, version))
        if book is None:
            return None
        if not 0 < first <= final:
            raise ValueError(f"the ids {first} to {final} are not a range")
        shape = _shape(price, amount)
        return book.delta(first, final, frame[at:asks], frame[asks:end], time_us, shape)
    if template == BEST_PRICES:
        time_us, sequence, price, amount, bid, ask = _BEST_PRICES.unpack_from(frame, _HEADER.size)
        book = books.get(_symbol(frame, at, version))
        if book is None:
            return None
        shape = _shape(price, amount)
        return TopOfBook(book.instrument, sequence, _top(bid), _top(ask), shape, time_us)
    return EXPECTED


def _block(frame: bytes) -> tuple[int, int, int]:
    """Return the end of a frame's root block, its template and the version of its schema.

    Raises:
        ValueError: It is not a frame of this schema.
    """
    if len(frame) < _HEADER.size or frame.startswith(b"{"):
        raise ValueError("it is not a binary frame")
    length, template, schema, version = _HEADER.unpack_from(frame)
    if schema != SCHEMA:
        raise ValueError(f"schema {schema} is unknown, only {SCHEMA} is known")
    if length < _BLOCK_MIN.get(template, 0):
        raise ValueError(f"a block of {length} bytes is too short")
    end = _HEADER.size + length
    if len(frame) < end:
        raise ValueError("truncated block")
    return end, template, version


def _group_end(frame: bytes, at: int) -> int:
    """Return the end of a group of levels."""
    begin = at + _GROUP.size
    if len(frame) < begin:
        raise ValueError("truncated group")
    length, count = _GROUP.unpack_from(frame, at)
    end: int = begin + length * count
    if len(frame) < end:
        raise ValueError("truncated group")
    return end


def _symbol(frame: bytes, at: int, version: int) -> str:
    """Return the symbol here, which must be the last field of the frame."""
    end = at + 1 + frame[at] if at < len(frame) else at
    if end == at or end > len(frame):
        raise ValueError("truncated symbol")
    if end < len(frame):
        raise ValueError(f"version {version} of the schema has other fields than version {VERSION}")
    return frame[at + 1 :].decode()


def _shape(price: int, amount: int) -> LevelShape:
    shape = _SHAPES.get((price, amount))
    if shape is None:
        exponent = amount if -DECIMALS_MAX <= price <= 0 else price
        raise ValueError(f"the exponent {exponent} is not from -{DECIMALS_MAX} to 0")
    return shape


def _top(level: bytes) -> bytes:
    """Return a side of the best prices as a group."""
    return b"" if level.endswith(_NO_AMOUNT) else _ONE_LEVEL + level


def _named(frame: bytes) -> BookFrame | None:
    """Return the book of a binary frame; None if the frame is of another kind."""
    at, template, version = _block(frame)
    if template == BEST_PRICES:
        return BookFrame(_symbol(frame, at, version), top=True)
    if template != DEPTH:
        return None
    end = _group_end(frame, _group_end(frame, at))
    return BookFrame(_symbol(frame, end, version))


def control_of(text: Callable[[bytes], Event]) -> Callable[[bytes], Event]:
    """Return the `BookChannel.control` of this channel, given that of the text frames."""

    def control(frame: bytes) -> Event:
        if frame.startswith(b"{"):
            return text(frame)
        return decode(_named, frame, what="a frame") or Ignored(known=False)

    return control


def request(names: Sequence[str], number: int, verb: str) -> object:
    """Encode a request to subscribe or unsubscribe books."""
    streams = [f"{name.lower()}{each}" for name in names for each in STREAMS]
    return {"method": verb, "params": streams, "id": number}


def channel_of(
    json: Exchange, control: Callable[[bytes], Event], seed: tuple[str, int, int]
) -> Exchange:
    """Return the facts of this channel, given those of the JSON channel.

    Args:
        json: The facts, which also take over where the key is refused.
        control: The decoder of its control frames.
        seed: Path, levels and weight of the REST body that starts a book.
    """
    path, levels, weight = seed
    books = BookChannel(
        data,
        control_of(control),
        *verbs(request, "SUBSCRIBE", "UNSUBSCRIBE"),
        join_by_rest(path, levels, weight=weight),
        names_per_request=100,  # of two streams each
        seed=msgspec.json.Decoder(DepthBody).decode,
    )
    return replace(
        json,
        ws_url="wss://stream-sbe.binance.com/ws",
        connector=partial(SeededEngine, books),
        interval_ms=20,
        key_header=KEY_HEADER,
        instead=json,
    )
