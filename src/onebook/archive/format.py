"""Schema of the history's Parquet files (docs/reference/history.md).

A message is what was applied to one book at one time: one row, with its levels as lists. Prices and
amounts are integers: 12345 at a scale of 2 is 123.45.
"""

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

VERSION: Final = 2
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
STATISTICS: Final = ["run", "message", "received"]
READ_COLUMNS: Final = [  # that a book is rebuilt from
    each for each in SCHEMA.names if each not in ("exchange", "symbol", "sequence")
]
CODES: Final[dict[int, Literal["b", "i", "q"]]] = {1: "b", 4: "i", 8: "q"}  # of numbers by width


def joined_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; `combine_chunks` would copy it even if it is one."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def integers(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> memoryview:
    """Return a column as integers of this type, 0 for null."""
    array = joined_array(column).view(kind)
    return memory(pc.fill_null(array, 0) if array.null_count else array)


def levels_of(column: pa.Array | pa.ChunkedArray) -> tuple[memoryview, memoryview, memoryview]:
    """Return where the levels of each message begin, their prices and their amounts."""
    array = joined_array(column)
    if not len(array):
        return memoryview(bytes(4)).cast("i"), memoryview(b"").cast("q"), memoryview(b"").cast("q")
    prices, amounts = (array.values.field(at) for at in range(2))
    return memory(array.offsets), memory(prices), memory(amounts)


def codes(column: pa.ChunkedArray, texts: pa.Array) -> memoryview:
    """Return a column of dictionaries as positions in `texts`."""
    array = joined_array(column.unify_dictionaries())
    return memory(pc.index_in(array.dictionary, texts).cast(pa.int8()).take(array.indices))


def memory(array: pa.Array) -> memoryview:
    """Return the integers of an array without nulls, where they are."""
    width = array.type.bit_width // 8
    buffer = array.buffers()[1]
    start = array.offset * width
    bytes_ = memoryview(buffer or b"").cast("B")[start : start + len(array) * width]
    return bytes_.cast(CODES[width])
