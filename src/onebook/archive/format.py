"""Schema of the history's Parquet files (docs/reference/history.md), and messages as their rows.

A message is what was applied to one book at one time. It has one row for each of its levels, or one
row without a level. Prices and amounts are integers: 12345 at a scale of 2 is 123.45.
"""

import json
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from onebook.core import NO_SIDE, TapeColumns, TapeKind
from onebook.model import Instrument

VERSION: Final = 1
METADATA: Final = b"onebook.history"  # key of the version in a file's metadata
HOUR_US: Final = 3_600_000_000


class HistoryKind(StrEnum):
    """The kind of a message, in the order of `TapeKind`."""

    KEYFRAME = "keyframe"  # the whole state of a book, written once a minute
    SNAPSHOT = "snapshot"  # an exchange's whole book
    DELTA = "delta"  # changed levels with absolute amounts; 0 removes a level
    TOP = "top"  # best bid and ask over the levels; without a level: the levels are shown again
    HEALTH = "health"  # a changed health, reason or mark


class Interval(NamedTuple):
    """A time in which one run recorded everything."""

    run: int
    start_us: int
    end_us: int


def hour_folder(hour_us: int) -> str:
    """Return the path of a closed hour's folder."""
    return f"{datetime.fromtimestamp(hour_us // 1_000_000, UTC):%Y/%m/%d/%H}"


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
KINDS: Final = pa.array([*HistoryKind], pa.string())
SIDES: Final = pa.array(["bid", "ask"], pa.string())
# Numbers that grow, stay the same, or stay near each other.
ENCODINGS: Final = {
    each.name: "DELTA_BINARY_PACKED"
    for each in SCHEMA
    if each.name != "amount" and not pa.types.is_string(each.type)
}
DICTIONARIES: Final = [each.name for each in SCHEMA if pa.types.is_string(each.type)]
ZERO: Final = pa.scalar(0, pa.int64())  # a scalar, because pyarrow tries to import numpy for an int
IS_SNAPSHOT: Final = pa.scalar(TapeKind.SNAPSHOT, pa.int8())
STATISTICS: Final = ["run", "message", "received"]
READ_COLUMNS: Final = [  # that a book is rebuilt from
    each for each in SCHEMA.names if each not in ("exchange", "symbol", "sequence")
]
# Messages of an open hour: the numbers of a tape as they are, levels as a list.
NUMBERS: Final = {  # columns of messages by their name in `TapeColumns`, but for time and place
    "exchange_time": "times",
    "sequence": "sequences",
    "price_scale": "price_scales",
    "amount_scale": "amount_scales",
    "bid_horizon": "bid_ends",
    "ask_horizon": "ask_ends",
}
STATE_COLUMNS: Final = (
    "updated", "levels_max", "window", "health", "reason", "detail", "twins",
)  # fmt: skip
TEXT: Final = pa.dictionary(pa.int32(), pa.string())
LEVELS: Final = pa.struct({"side": pa.uint8(), "price": pa.int64(), "amount": pa.int64()})
MESSAGES: Final = pa.schema(
    {
        "run": pa.int64(),
        "message": pa.int64(),
        "exchange": TEXT,
        "symbol": TEXT,
        "kind": pa.int8(),
        "received": _time(),
        **{name: SCHEMA.field(name).type for name in (*NUMBERS, *STATE_COLUMNS)},
        "levels": pa.list_(LEVELS),
    },
    metadata=SCHEMA.metadata,
)


class RecordedState(NamedTuple):
    """The state of a book in a keyframe or a health message."""

    message: int  # its index on the tape
    health: str
    reason: str | None
    detail: str
    twins: str | None
    updated: float | None = None  # monotonic seconds, as the next two only in keyframes
    levels_max: int | None = None
    window: int | None = None


def messages_of(
    run: int,
    first: int,
    columns: TapeColumns,
    books: Sequence[Instrument],
    states: Sequence[RecordedState],
    offset_us: int,
) -> pa.Table:
    """Return the messages of a tape, made from its buffers.

    Args:
        run: The run.
        first: Number of the first message in its run.
        columns: The messages.
        books: The books by their number on the tape.
        states: The states of keyframes and health messages.
        offset_us: Unix microseconds less monotonic ones.
    """
    count, book = len(columns.kinds), _numbers(pa.int32(), columns.books)
    levels = zip(LEVELS, (columns.sides, columns.prices, columns.amounts), strict=True)
    rows = pa.StructArray.from_arrays(
        [_numbers(field.type, buffer) for field, buffer in levels], fields=[*LEVELS]
    )
    found = {
        "run": pa.repeat(pa.scalar(run, pa.int64()), count),
        "message": _numbers(pa.int64(), array("q", range(first, first + count)).tobytes()),
        "exchange": _texts([each.exchange for each in books]).take(book),
        "symbol": _texts([each.symbol for each in books]).take(book),
        "kind": _numbers(pa.int8(), columns.kinds),
        "received": _numbers(_time(), columns.received),
        "levels": pa.ListArray.from_arrays(_numbers(pa.int32(), columns.starts), rows),
    }
    for name, source in NUMBERS.items():
        found[name] = _numbers(MESSAGES.field(name).type, getattr(columns, source))
    if states:
        places = array("i", [len(states)]) * count  # the last value, which is null
        for place, state in enumerate(states):
            places[state.message] = place
        place = _numbers(pa.int32(), places.tobytes())
    for name in STATE_COLUMNS:
        kind = MESSAGES.field(name).type
        if not states:
            found[name] = pa.nulls(count, kind)
            continue
        values: list[Any] = [getattr(state, name) for state in states]
        if name == "updated":
            values = [at and offset_us + round(at * 1_000_000) for at in values]
        found[name] = pa.array([*values, None], kind).take(place)
    return pa.table([found[each.name] for each in MESSAGES], schema=MESSAGES)


def rows_of(messages: pa.Table) -> pa.Table:
    """Return the rows of messages; texts are dictionaries."""
    messages = messages.unify_dictionaries()
    levels = messages["levels"].combine_chunks()
    rows, of_row = levels.flatten(), pc.list_parent_indices(levels)
    side, price, amount = (rows.field(at) for at in range(3))
    absent = pc.equal(side, pa.scalar(NO_SIDE, pa.uint8()))
    kind, received = (messages[name].combine_chunks() for name in ("kind", "received"))
    of_messages = {
        name: messages[name].combine_chunks()
        for name in SCHEMA.names
        if name in MESSAGES.names and name not in ("kind", "received")
    }
    for name in ("exchange_time", "sequence", "bid_horizon", "ask_horizon"):  # 0 is unknown
        numbers = of_messages[name]
        of_messages[name] = _without(numbers, pc.equal(numbers.view(pa.int64()), ZERO))
    # A snapshot is as new as its message.
    snapshots = _without(received, pc.not_equal(kind, IS_SNAPSHOT))
    of_messages["updated"] = pc.coalesce(of_messages["updated"], snapshots)
    found = {name: column.take(of_row) for name, column in of_messages.items()}
    found |= {
        "kind": _named(kind.take(of_row), KINDS),
        "received": received.take(of_row),
        "side": _named(_without(side, absent), SIDES),
        "price": _without(price, absent),
        "amount": _without(amount, absent),
    }
    arrays = [found[each.name] for each in SCHEMA]
    fields = [each.with_type(found[each.name].type) for each in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, SCHEMA.metadata))


def _numbers(kind: pa.DataType, buffer: bytes) -> pa.Array:
    count = len(buffer) * 8 // kind.bit_width
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(buffer)])


def _without(numbers: pa.Array, absent: pa.Array) -> pa.Array:
    return pc.if_else(absent, pa.scalar(None, numbers.type), numbers)


def _texts(texts: Sequence[str]) -> pa.Array:
    return pa.array(texts, pa.string()).dictionary_encode()


def _named(codes: pa.Array, names: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(codes.cast(pa.int32()), names)


def integers(column: pa.ChunkedArray, kind: pa.DataType) -> memoryview:
    """Return a column as integers of this type, 0 for null."""
    array = column.combine_chunks().view(kind)
    return _memory(pc.fill_null(array, 0) if array.null_count else array)


def codes(column: pa.ChunkedArray, texts: pa.Array, absent: int) -> memoryview:
    """Return a column of dictionaries as positions in `texts`."""
    array = column.unify_dictionaries().combine_chunks()
    found = pc.index_in(array.dictionary, texts).cast(pa.int8()).take(array.indices)
    return _memory(pc.fill_null(found, absent))


def _memory(array: pa.Array) -> memoryview:
    width = array.type.bit_width // 8
    buffer = array.buffers()[1]
    start = array.offset * width
    bytes_ = memoryview(buffer or b"").cast("B")[start : start + len(array) * width]
    return bytes_.cast("b" if width == 1 else "q")
