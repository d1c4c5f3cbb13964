"""Schema of the history's Parquet files (docs/reference/history.md), and messages as their rows.

A message is what was applied to one book at one time: one row, with its levels as lists. Prices and
amounts are integers: 12345 at a scale of 2 is 123.45.
"""

import json
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from onebook.core import TapeColumns, TapeKind, TapeMerger
from onebook.model import Instrument

VERSION: Final = 2
METADATA: Final = b"onebook.history"  # key of the version in a file's metadata
HOUR_US: Final = 3_600_000_000
MERGED_SIZE: Final = 8_192  # messages of a table of several books, at least


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


def file_name(symbol: str) -> str:
    """Return the name of a pair's files, without an ending."""
    return symbol.replace("/", "-")


def _time() -> pa.DataType:
    return pa.timestamp("us", tz="UTC")


LEVEL: Final = pa.struct(
    [
        pa.field("price", pa.int64(), nullable=False),
        pa.field("amount", pa.int64(), nullable=False),
    ]
)
LEVELS: Final = pa.list_(pa.field("element", LEVEL, nullable=False))
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
        pa.field("bids", LEVELS, nullable=False),
        pa.field("asks", LEVELS, nullable=False),
        pa.field("price_scale", pa.int8(), nullable=False),
        pa.field("amount_scale", pa.int8(), nullable=False),
        pa.field("best_bid", pa.int64()),
        pa.field("best_ask", pa.int64()),
        pa.field("bid_horizon", pa.int64()),
        pa.field("ask_horizon", pa.int64()),
        pa.field("updated", _time()),
        pa.field("audits", pa.int32()),
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
LEVEL_NUMBERS: Final = [
    f"{side}.list.element.{number.name}" for side in ("bids", "asks") for number in LEVEL
]
# Numbers of messages grow, stay the same, or stay near each other; those of levels share bytes.
ENCODINGS: Final = {
    each.name: "DELTA_BINARY_PACKED"
    for each in SCHEMA
    if pa.types.is_integer(each.type) or pa.types.is_timestamp(each.type)
} | dict.fromkeys(LEVEL_NUMBERS, "BYTE_STREAM_SPLIT")
# Only of levels: other numbers are small as they are encoded, and to begin a compression costs as
# much as to encode a column of a row group.
COMPRESSIONS: Final = dict.fromkeys(LEVEL_NUMBERS, "zstd")
ZSTD_LEVELS: Final = dict.fromkeys(LEVEL_NUMBERS, 1)  # 3 takes a tenth longer for 1 % less
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
    "best_bid": "best_bids",
    "best_ask": "best_asks",
    "bid_horizon": "bid_ends",
    "ask_horizon": "ask_ends",
}
ABSENT: Final = [each for each in NUMBERS if SCHEMA.field(each).nullable]  # if they are 0
CODES: Final[dict[int, Literal["b", "i", "q"]]] = {1: "b", 4: "i", 8: "q"}  # of numbers by width
STATE_COLUMNS: Final = (
    "updated", "audits", "levels_max", "window", "health", "reason", "detail", "twins",
)  # fmt: skip
# Columns of messages that pyarrow copies when messages are merged; the others are a tape's.
OTHERS: Final = ("run", "exchange", "symbol", *STATE_COLUMNS)
TEXT: Final = pa.dictionary(pa.int32(), pa.string())
MESSAGES: Final = pa.schema(
    {
        "run": pa.int64(),
        "message": pa.int64(),
        "exchange": TEXT,
        "symbol": TEXT,
        "kind": pa.int8(),
        "received": _time(),
        **{name: SCHEMA.field(name).type for name in (*NUMBERS, *STATE_COLUMNS)},
        "bids": LEVELS,
        "asks": LEVELS,
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
    updated: float | None = None  # monotonic seconds, as the next three only in keyframes
    audits: int | None = None
    levels_max: int | None = None
    window: int | None = None


def messages_of(
    run: int,
    columns: TapeColumns,
    books: Sequence[Instrument],
    states: Sequence[RecordedState],
    offset_us: int,
) -> pa.Table:
    """Return the messages of a tape, made from its buffers.

    Args:
        run: The run.
        columns: The messages.
        books: The books by their number on the tape.
        states: The states of keyframes and health messages.
        offset_us: Unix microseconds less monotonic ones.
    """
    count, book = len(columns.kinds), _numbers(pa.int32(), columns.books)
    found = _arrays_of(columns)
    found["run"] = pa.repeat(pa.scalar(run, pa.int64()), count)
    found["exchange"] = _texts([each.exchange for each in books]).take(book)
    found["symbol"] = _texts([each.symbol for each in books]).take(book)
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


class BookPlace(NamedTuple):
    """Where the messages of a book are: in one of several tables."""

    symbol: str
    exchange: str
    table: int
    start: int
    stop: int

    def of(self, table: Any) -> Any:
        """Return the messages of this book in its table."""
        return table.slice(self.start, self.stop - self.start)


def merged_by_book(
    tables: Sequence[pa.Table],
    symbol: str | None = None,
    exchanges: Collection[str] | None = None,
) -> tuple[list[BookPlace], Iterator[pa.Table]]:
    """Order messages by book; return where each book is, and tables of several books.

    pyarrow would join all levels before it orders them, in new memory of their whole size, which
    costs more than the copy.

    Args:
        tables: Messages; each is one batch at most.
        symbol: Books of other symbols are left out.
        exchanges: Books of other exchanges are left out.
    """
    others = pa.concat_tables([each.select(OTHERS) for each in tables])
    others = others.unify_dictionaries().combine_chunks()
    if not len(others):
        return [], iter(())
    symbols, names = (joined_array(others[name]) for name in ("symbol", "exchange"))
    pairs = [symbols.dictionary.to_pylist(), names.dictionary.to_pylist()]
    width = pa.scalar(len(pairs[1]), pa.int32())
    book = pc.add(pc.multiply(symbols.indices, width), names.indices)
    order = pc.array_sort_indices(book)
    if symbol is not None:
        wanted = pc.equal(symbols, symbol)
        if exchanges is not None:
            chosen = pa.array([*exchanges], pa.string())
            wanted = pc.and_(wanted, pc.is_in(names.cast(pa.string()), chosen))
        order = order.filter(wanted.take(order))
    runs = pc.run_end_encode(book.take(order))
    places: list[BookPlace] = []
    table = first = start = 0  # `first` is where the table begins
    for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        if start - first >= MERGED_SIZE:
            table, first = table + 1, start
        at, name = divmod(code, len(pairs[1]))
        places.append(BookPlace(pairs[0][at], pairs[1][name], table, start - first, end - first))
        start = end
    tapes, start = [], 0
    for each in tables:
        if len(each):
            tapes.append(_tape_of(each, book.slice(start, len(each))))
        start += len(each)
    sizes = {each.table: each.stop for each in places}.values()
    return places, _merged(TapeMerger(tapes), others, order, sizes)


def _merged(
    merger: TapeMerger, others: pa.Table, order: pa.Array, sizes: Iterable[int]
) -> Iterator[pa.Table]:
    """Yield tables of these sizes; `order` has the numbers of the messages."""
    start = 0
    for size in sizes:
        numbers = order.slice(start, size)
        found = _arrays_of(merger.columns(_memory(numbers.view(pa.int64()))))
        rest = others.take(numbers)
        found |= {name: joined_array(rest[name]) for name in OTHERS}
        yield pa.table([found[each.name] for each in MESSAGES], schema=MESSAGES)
        start += size


def _arrays_of(columns: TapeColumns) -> dict[str, pa.Array]:
    """Return the columns of messages that a tape has, from its buffers."""
    found = {
        "message": _numbers(pa.int64(), columns.numbers),
        "kind": _numbers(pa.int8(), columns.kinds),
        "received": _numbers(_time(), columns.received),
        "bids": _levels(columns.bid_starts, columns.bid_prices, columns.bid_amounts),
        "asks": _levels(columns.ask_starts, columns.ask_prices, columns.ask_amounts),
    }
    for name, source in NUMBERS.items():
        found[name] = _numbers(MESSAGES.field(name).type, getattr(columns, source))
    return found


def _tape_of(messages: pa.Table, books: pa.Array) -> list[memoryview]:
    """Return the buffers of messages in the order of `TapeColumns`: the inverse of `_arrays_of`."""
    found = {source: _buffer_of(messages[name]) for name, source in NUMBERS.items()}
    found["numbers"], found["books"] = _buffer_of(messages["message"]), _memory(books)
    found["kinds"], found["received"] = (
        _buffer_of(messages[name]) for name in ("kind", "received")
    )
    for side in ("bid", "ask"):
        names = (f"{side}_starts", f"{side}_prices", f"{side}_amounts")
        found |= zip(names, levels_of(messages[f"{side}s"]), strict=True)
    return [found[name] for name in TapeColumns._fields]


def _buffer_of(column: pa.ChunkedArray) -> memoryview:
    return _memory(joined_array(column))


def rows_of(messages: pa.Table) -> pa.Table:
    """Return messages as rows; texts are dictionaries."""
    messages = messages.unify_dictionaries()
    found = {name: joined_array(messages[name]) for name in SCHEMA.names}
    kind, received = found["kind"], found["received"]
    for name in ABSENT:
        numbers = found[name]
        found[name] = _without(numbers, pc.equal(numbers.view(pa.int64()), ZERO))
    # A snapshot is as new as its message.
    snapshots = _without(received, pc.not_equal(kind, IS_SNAPSHOT))
    found["updated"] = pc.coalesce(found["updated"], snapshots)
    found["kind"] = pa.DictionaryArray.from_arrays(kind.cast(pa.int32()), KINDS)
    fields = [each.with_type(found[each.name].type) for each in SCHEMA]
    return pa.Table.from_arrays(
        [found[each.name] for each in SCHEMA], schema=pa.schema(fields, SCHEMA.metadata)
    )


def _levels(starts: bytes, prices: bytes, amounts: bytes) -> pa.Array:
    columns = [_numbers(pa.int64(), each) for each in (prices, amounts)]
    levels = pa.StructArray.from_arrays(columns, fields=[*LEVEL])
    return pa.ListArray.from_arrays(_numbers(pa.int32(), starts), levels, type=LEVELS)


def _numbers(kind: pa.DataType, buffer: bytes) -> pa.Array:
    count = len(buffer) * 8 // kind.bit_width
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(buffer)])


def _without(numbers: pa.Array, absent: pa.Array) -> pa.Array:
    return pc.if_else(absent, pa.scalar(None, numbers.type), numbers)


def _texts(texts: Sequence[str]) -> pa.Array:
    return pa.array(texts, pa.string()).dictionary_encode()


def joined_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; `combine_chunks` would copy it even if it is one."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def integers(column: pa.ChunkedArray, kind: pa.DataType) -> memoryview:
    """Return a column as integers of this type, 0 for null."""
    array = joined_array(column).view(kind)
    return _memory(pc.fill_null(array, 0) if array.null_count else array)


def levels_of(column: pa.ChunkedArray) -> tuple[memoryview, memoryview, memoryview]:
    """Return where the levels of each message begin, their prices and their amounts."""
    array = joined_array(column)
    if not len(array):
        return memoryview(bytes(4)).cast("i"), memoryview(b"").cast("q"), memoryview(b"").cast("q")
    prices, amounts = (array.values.field(at) for at in range(2))
    return _memory(array.offsets), _memory(prices), _memory(amounts)


def codes(column: pa.ChunkedArray, texts: pa.Array) -> memoryview:
    """Return a column of dictionaries as positions in `texts`."""
    array = joined_array(column.unify_dictionaries())
    return _memory(pc.index_in(array.dictionary, texts).cast(pa.int8()).take(array.indices))


def _memory(array: pa.Array) -> memoryview:
    width = array.type.bit_width // 8
    buffer = array.buffers()[1]
    start = array.offset * width
    bytes_ = memoryview(buffer or b"").cast("B")[start : start + len(array) * width]
    return bytes_.cast(CODES[width])
