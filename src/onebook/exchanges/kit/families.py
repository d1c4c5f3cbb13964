"""Message forms that several exchanges have in common, for connectors of the same protocol family.

Binance's form of depth updates and REST bodies (also Backpack, Gemini, MEXC, XT), and the control
frames of JSON-RPC (bitFlyer, Deribit, P2B, WhiteBIT).
"""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct, field

from onebook.core.types import PAIRS, LevelShape
from onebook.exchanges.kit.codec import ErrorBody, Sequence64
from onebook.exchanges.kit.contract import NO_LEVELS, UNTIMED, Fetch, Outputs, TopOfBook
from onebook.exchanges.kit.sync import Join
from onebook.model import Instrument

NO_PRICE: Final = (Raw(b'""'), Raw(b"null"))  # of an empty side
STREAM_BYTES_MAX: Final = 64  # the stream's name is within this many bytes of a frame's start


class DepthUpdate(Struct, gc=False):
    """Changes of a book in Binance's form; subclasses add the tag of the event."""

    native: str = field(name="s")
    first: Sequence64 = field(name="U")
    final: Sequence64 = field(name="u")
    bids: Raw = field(name="b")
    asks: Raw = field(name="a")
    at: int = field(name="E", default=UNTIMED)


class DepthBody(Struct):
    """A REST body in Binance's form: the whole book and the id of its last update."""

    sequence: Sequence64 = field(name="lastUpdateId")
    bids: Raw
    asks: Raw
    at: int = field(name="timestamp", default=UNTIMED)


class BestPrices(Struct, gc=False):
    """The best bid and ask in Binance's form (`bookTicker`)."""

    native: str = field(name="s")
    sequence: Sequence64 = field(name="u")
    bid: Raw = field(name="b")
    bid_amount: Raw = field(name="B")
    ask: Raw = field(name="a")
    ask_amount: Raw = field(name="A")
    at: int = field(name="E", default=UNTIMED)


def top_of(instrument: Instrument, best: BestPrices) -> TopOfBook:
    """Return the best bid and ask as an output; a side whose price is "" or null is empty."""
    bids = one_level(best.bid, best.bid_amount)
    asks = one_level(best.ask, best.ask_amount)
    return TopOfBook(instrument, best.sequence, bids, asks, at=best.at)


def one_level(price: Raw, amount: Raw) -> bytes:
    """Return a side of one level, from the JSON of its price and amount."""
    return NO_LEVELS if price in NO_PRICE else b"[[%b,%b]]" % (price, amount)


class RpcControl(Struct):
    """A JSON-RPC frame without book data: a response or another notification."""

    id: int | str | None = None
    method: str = ""
    params: Any = None
    result: Any = None
    error: ErrorBody | None = None


def combined_updates(
    event: str, best_prices: str = ""
) -> Callable[[dict[str, Join], bytes], Outputs | None]:
    """Make the `BookChannel.data` of combined streams: a `DepthUpdate` with this `e` in `data`.

    `best_prices` is the stream name of `BestPrices`, whose `data` has no `e`.
    """
    update = msgspec.defstruct(
        "Update", [], bases=(DepthUpdate,), tag_field="e", tag=event, gc=False
    )
    frame_type = msgspec.defstruct("Frame", [("data", update)], gc=False)
    read: Any = msgspec.json.Decoder(frame_type).decode

    stream = best_prices.encode()
    top_type = msgspec.defstruct("TopFrame", [("data", BestPrices)], gc=False)
    read_top: Any = msgspec.json.Decoder(top_type).decode

    def data(books: dict[str, Join], frame: bytes) -> Outputs | None:
        if stream and frame.find(stream, 0, STREAM_BYTES_MAX) > 0:
            best: BestPrices = read_top(frame).data
            book = books.get(best.native)
            return None if book is None else top_of(book.instrument, best)
        change: DepthUpdate = read(frame).data
        book = books.get(change.native)
        if book is None:
            return None
        return book.delta(change.first, change.final, change.bids, change.asks, change.at)

    return data


def join_by_rest(
    path: str, levels: int, *, weight: int = 1, delta_shape: LevelShape = PAIRS
) -> Callable[[Instrument], Join]:
    """Make the `BookChannel.track` of books that start at a REST body.

    Args:
        path: Path and query of the body; `{symbol}` and `{levels}` are replaced.
        levels: The limit of the request, in levels a side.
        weight: Its cost in the exchange's request budget.
        delta_shape: How a level of a delta is written; levels of bodies are pairs.
    """

    def join(instrument: Instrument) -> Join:
        symbol = quote(instrument.native)
        request = Fetch(instrument, path.format(symbol=symbol, levels=levels), weight)
        return Join(request, levels, delta_shape=delta_shape)

    return join
