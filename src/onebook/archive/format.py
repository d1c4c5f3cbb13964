"""Schema of the history's Parquet files (docs/reference/history.md), and messages as their rows.

A message is what was applied to one book at one time. It has one row for each of its levels, or one
row without a level. Prices and amounts are integers: 12345 at a scale of 2 is 123.45.
"""

import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from onebook.core import LevelColumns, LevelShape
from onebook.core.types import PAIRS
from onebook.exchanges.kit import NO_LEVELS

VERSION: Final = 1
METADATA: Final = b"onebook.history"  # key of the version in a file's metadata


class HistoryKind(StrEnum):
    """The kind of a message."""

    KEYFRAME = "keyframe"  # the whole state of a book, written once a minute
    SNAPSHOT = "snapshot"  # an exchange's whole book
    DELTA = "delta"  # changed levels with absolute amounts; 0 removes a level
    TOP = "top"  # best bid and ask over the levels; without a level: the levels are shown again
    HEALTH = "health"  # a changed health, reason or mark


def _time() -> pa.DataType:
    return pa.timestamp("us", tz="UTC")


SCHEMA: Final = pa.schema(
    [
        pa.field("exchange", pa.string(), nullable=False),
        pa.field("symbol", pa.string(), nullable=False),
        pa.field("run", pa.int64(), nullable=False),
        pa.field("message", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("received", _time(), nullable=False),
        pa.field("exchange_time", _time()),
        pa.field("sequence", pa.int64()),
        pa.field("side", pa.string()),
        pa.field("price", pa.int64()),
        pa.field("amount", pa.int64()),
        pa.field("price_scale", pa.int8()),
        pa.field("amount_scale", pa.int8()),
        pa.field("bid_horizon", pa.int64()),
        pa.field("ask_horizon", pa.int64()),
        pa.field("updated", _time()),
        pa.field("levels_max", pa.int32()),
        pa.field("window", pa.int32()),
        pa.field("health", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("twins", pa.string()),
    ],
    metadata={METADATA: json.dumps({"version": VERSION}).encode()},
)
LEVEL_COLUMNS: Final = ("side", "price", "amount")  # the others are those of the message
# Numbers that grow, or stay near each other.
GROWING: Final = (
    "run", "message", "received", "exchange_time", "sequence", "updated", "price",
)  # fmt: skip
ENCODINGS: Final = dict.fromkeys(GROWING, "DELTA_BINARY_PACKED")
DICTIONARIES: Final = [
    each.name
    for each in SCHEMA
    if each.name not in ENCODINGS and each.name not in ("bid_horizon", "ask_horizon")
]


class HistoryMessage(Struct, gc=False):
    """One message, before its levels are parsed."""

    exchange: str
    symbol: str
    number: int
    kind: HistoryKind
    received_us: int
    exchange_us: int | None = None
    sequence: int | None = None
    bids: Any = NO_LEVELS
    asks: Any = NO_LEVELS
    shape: LevelShape = PAIRS
    price_scale: int = 0
    amount_scale: int = 0
    bid_horizon: int | None = None
    ask_horizon: int | None = None
    updated_us: int | None = None
    levels_max: int | None = None
    window: int | None = None
    health: str | None = None
    reason: str | None = None
    detail: str | None = None
    twins: str | None = None


def table_of(run: int, messages: Sequence[HistoryMessage]) -> pa.Table:
    """Return the rows of messages.

    Raises:
        LevelError: A level does not fit the scale of its message.
    """
    columns = LevelColumns()
    for each in messages:
        columns.add(each.bids, each.asks, each.shape, each.price_scale, each.amount_scale)
    indices, sides, prices, amounts = columns.take()
    count = len(sides)
    index = _numbers(pa.int32(), indices, count)
    side = _numbers(pa.uint8(), sides, count)
    has_level = pc.less(side, 2)
    nothing = pa.scalar(None, pa.int64())
    levels = {
        "side": pc.if_else(has_level, pc.if_else(pc.equal(side, 0), "bid", "ask"), None),
        "price": pc.if_else(has_level, _numbers(pa.int64(), prices, count), nothing),
        "amount": pc.if_else(has_level, _numbers(pa.int64(), amounts, count), nothing),
    }
    of_messages = {
        "exchange": [each.exchange for each in messages],
        "symbol": [each.symbol for each in messages],
        "run": [run] * len(messages),
        "message": [each.number for each in messages],
        "kind": [each.kind for each in messages],
        "received": [each.received_us for each in messages],
        "exchange_time": [each.exchange_us for each in messages],
        "sequence": [each.sequence for each in messages],
        "price_scale": [each.price_scale for each in messages],
        "amount_scale": [each.amount_scale for each in messages],
    }
    # Few messages have these.
    rare = {
        "bid_horizon": "bid_horizon",
        "ask_horizon": "ask_horizon",
        "updated": "updated_us",
        "levels_max": "levels_max",
        "window": "window",
        "health": "health",
        "reason": "reason",
        "detail": "detail",
        "twins": "twins",
    }
    for name, attribute in rare.items():
        of_messages[name] = [getattr(each, attribute) for each in messages]
    arrays = []
    for field in SCHEMA:
        if field.name in LEVEL_COLUMNS:
            arrays.append(levels[field.name].cast(field.type))
        else:
            arrays.append(pa.array(of_messages[field.name], field.type).take(index))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _numbers(kind: pa.DataType, buffer: bytes, count: int) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(buffer)])


def messages_of(table: pa.Table) -> Iterator[HistoryMessage]:
    """Yield the messages of rows that are in order; bids and asks are groups (`LevelShape.group`).

    Numbers of the file are passed to the book unchanged, as integers at the message's scales.
    """
    for at, field in enumerate(SCHEMA):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(pa.int64()))
    rows = table.to_pydict()
    numbers, runs, exchanges = rows["message"], rows["run"], rows["exchange"]
    start, end = 0, len(numbers)
    while start < end:
        stop = start + 1
        place = runs[start], numbers[start], exchanges[start]
        while stop < end and (runs[stop], numbers[stop], exchanges[stop]) == place:
            stop += 1
        yield _message(rows, start, stop)
        start = stop


def _message(rows: dict[str, list[Any]], start: int, stop: int) -> HistoryMessage:
    sides: tuple[list[str], list[str]] = [], []
    price_scale, amount_scale = rows["price_scale"][start], rows["amount_scale"][start]
    for at in range(start, stop):
        side = rows["side"][at]
        if side is not None:
            level = f'["{rows["price"][at]}","{rows["amount"][at]}"]'
            sides[side == "ask"].append(level)
    bids, asks = (f"[{','.join(each)}]".encode() for each in sides)
    return HistoryMessage(
        exchange=rows["exchange"][start],
        symbol=rows["symbol"][start],
        number=rows["message"][start],
        kind=HistoryKind(rows["kind"][start]),
        received_us=rows["received"][start],
        exchange_us=rows["exchange_time"][start],
        sequence=rows["sequence"][start],
        bids=bids,
        asks=asks,
        shape=LevelShape.rows(price_scale=price_scale, amount_scale=amount_scale),
        price_scale=price_scale,
        amount_scale=amount_scale,
        bid_horizon=rows["bid_horizon"][start],
        ask_horizon=rows["ask_horizon"][start],
        updated_us=rows["updated"][start],
        levels_max=rows["levels_max"][start],
        window=rows["window"][start],
        health=rows["health"][start],
        reason=rows["reason"][start],
        detail=rows["detail"][start],
        twins=rows["twins"][start],
    )
