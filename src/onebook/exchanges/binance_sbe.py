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

A later version may lengthen a block at its end, so the stated lengths are used. Numbers are
mantissa x 10^exponent; that all exponents are from -8 to 0, as the prices and amounts of the JSON
have at most 8 decimals, is unconfirmed, and another exponent is an invalid frame. The ids are those
of the JSON streams, so sequencing and seeding are the same. Under load, best prices that are no
longer the newest are left out, which costs no correctness (`onebook.fusing`).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from struct import Struct, unpack_from
from typing import Final

import msgspec
from msgspec.structs import replace

from onebook.core.types import LevelShape
from onebook.exchanges.kit import (
    EXPECTED,
    NO_LEVELS,
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
BEST_PRICES: Final = 10_001
DEPTH: Final = 10_003
STREAMS: Final = ("@depth", "@bestBidAsk")
KEY_HEADER: Final = "X-MBX-APIKEY"
DECIMALS: Final = 8  # of the integers that the core gets
LEVELS: Final = LevelShape.rows(price_scale=DECIMALS, amount_scale=DECIMALS)

_HEADER: Final = Struct("<HHHH")
_BEST_PRICES: Final = Struct("<qqbbqqqq")
_DEPTH: Final = Struct("<qqqbb")
_GROUP: Final = Struct("<HH")
_LEVEL: Final = Struct("<qq")


def data(books: dict[str, Join], frame: bytes) -> Outputs | None:
    """Decode changed levels or best prices."""
    at, template = _block(frame)
    if template == DEPTH:
        return _depth(books, frame, at)
    if template == BEST_PRICES:
        return _best_prices(books, frame, at)
    return EXPECTED


def _block(frame: bytes) -> tuple[int, int]:
    """Return the end of a frame's root block, and its template.

    Raises:
        ValueError: It is not a frame of this schema.
    """
    if len(frame) < _HEADER.size or frame.startswith(b"{"):
        raise ValueError("it is not a binary frame")
    length, template, schema, _ = _HEADER.unpack_from(frame)
    if schema != SCHEMA:
        raise ValueError(f"schema {schema} is unknown, only {SCHEMA} is known")
    least = {DEPTH: _DEPTH.size, BEST_PRICES: _BEST_PRICES.size}.get(template, 0)
    if length < least:
        raise ValueError(f"a block of {length} bytes is too short")
    return _HEADER.size + length, template


def _depth(books: dict[str, Join], frame: bytes, at: int) -> Outputs | None:
    if len(frame) < at:
        raise ValueError("truncated block")
    time_us, first, final, price, amount = _DEPTH.unpack_from(frame, _HEADER.size)
    factors = _factor(price), _factor(amount)
    bids, at = _levels(frame, at, factors)
    asks, at = _levels(frame, at, factors)
    book = books.get(_symbol(frame, at))
    if book is None:
        return None
    if not 0 < first <= final:
        raise ValueError(f"the ids {first} to {final} are not a range")
    return book.delta(first, final, bids, asks, time_us)


def _best_prices(books: dict[str, Join], frame: bytes, at: int) -> Outputs | None:
    if len(frame) < at:
        raise ValueError("truncated block")
    time_us, sequence, price, amount, bid, bid_amount, ask, ask_amount = _BEST_PRICES.unpack_from(
        frame, _HEADER.size
    )
    book = books.get(_symbol(frame, at))
    if book is None:
        return None
    prices, amounts = _factor(price), _factor(amount)
    bids = b"[[%d,%d]]" % (bid * prices, bid_amount * amounts) if bid_amount else NO_LEVELS
    asks = b"[[%d,%d]]" % (ask * prices, ask_amount * amounts) if ask_amount else NO_LEVELS
    return TopOfBook(book.instrument, sequence, bids, asks, LEVELS, time_us)


def _factor(exponent: int) -> int:
    """Return what makes a mantissa an integer of `DECIMALS`."""
    if not -DECIMALS <= exponent <= 0:
        raise ValueError(f"the exponent {exponent} is not from -{DECIMALS} to 0")
    return int(10 ** (DECIMALS + exponent))


def _levels(frame: bytes, at: int, factors: tuple[int, int]) -> tuple[bytes, int]:
    """Return a group of levels as JSON rows of integers, and its end."""
    if len(frame) < at + _GROUP.size:
        raise ValueError("truncated group")
    length, count = _GROUP.unpack_from(frame, at)
    begin = at + _GROUP.size
    end = begin + length * count
    if (count and length < _LEVEL.size) or len(frame) < end:
        raise ValueError("truncated group")
    prices, amounts = factors
    rows: Iterable[tuple[int, int]]
    if length == _LEVEL.size:
        numbers = unpack_from(f"<{2 * count}q", frame, begin)
        rows = zip(numbers[::2], numbers[1::2], strict=True)
    else:
        starts = range(begin, end, length or 1)
        rows = [_LEVEL.unpack_from(frame, start) for start in starts]
    if prices == amounts == 1:
        return b"[%b]" % b",".join([b"[%d,%d]" % row for row in rows]), end
    return b"[%b]" % b",".join([b"[%d,%d]" % (p * prices, a * amounts) for p, a in rows]), end


def _symbol(frame: bytes, at: int) -> str:
    end = at + 1 + frame[at] if at < len(frame) else at
    if end == at or end > len(frame):
        raise ValueError("truncated symbol")
    return frame[at + 1 : end].decode()


def _named(frame: bytes) -> BookFrame | None:
    """Return the book of a binary frame; None if the frame is of another kind."""
    at, template = _block(frame)
    if template == BEST_PRICES:
        return BookFrame(_symbol(frame, at), top=True)
    if template != DEPTH:
        return None
    for _ in range(2):
        _, at = _levels(frame, at, (1, 1))
    return BookFrame(_symbol(frame, at))


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
        join_by_rest(path, levels, weight=weight, delta_shape=LEVELS),
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
