"""Segments: Arrow files with the messages of an open hour, a tape's columns as they are.

    open/2026-11-27T14/RUN-NUMBER-FROM-TO.arrow        messages of all books since the last flush
    open/2026-11-27T14/RUN-FIRST-LAST-FROM-TO.arrow    merged: those of several flushes, by book

A segment has messages of one run. Their books, and the states of keyframes and health messages, are
in the metadata, because few messages have a state. The messages of a merged segment are in order of
the book, and its metadata says where each book is. Nothing is compressed: closing an hour would
spend more on it than on all of its own copies.
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from onebook.archive.format import (
    KINDS,
    LEVEL,
    LEVELS,
    SCHEMA,
    integers,
    joined_array,
    levels_of,
    memory,
)
from onebook.core import TapeColumns, TapeKind, TapeMerger

HEADER: Final = b"onebook.segment"  # key of the header in a file's metadata
MAGIC: Final = b"ARROW1"  # the end of an Arrow file
STREAM_AT: Final = 8  # where an Arrow file contains its stream
MERGED_SIZE: Final = 8_192  # messages of a batch of several books, at least
INT32, INT64 = pa.int32(), pa.int64()
ZERO: Final = pa.scalar(0, INT64)  # a scalar, because pyarrow tries to import numpy for an int
IS_SNAPSHOT: Final = pa.scalar(TapeKind.SNAPSHOT, pa.int8())
PAIR: Final = [*LEVEL]
NUMBERS: Final = (  # of each message, in the order of `TapeColumns`
    "message", "book", "kind", "price_scale", "amount_scale", "received", "exchange_time",
    "sequence", "bid_horizon", "ask_horizon", "best_bid", "best_ask",
)  # fmt: skip
TYPES: Final = [
    {"book": INT32, "kind": pa.int8()}.get(name) or SCHEMA.field(name).type for name in NUMBERS
]
MESSAGES: Final = pa.schema([*zip(NUMBERS, TYPES, strict=True), ("bids", LEVELS), ("asks", LEVELS)])
ABSENT: Final = [  # if they are 0
    name for name in NUMBERS if name in SCHEMA.names and SCHEMA.field(name).nullable
]


class RecordedState(NamedTuple):
    """The state of a book in a keyframe or a health message."""

    message: int  # its number
    book: int  # its number
    health: str
    reason: str | None
    detail: str
    twins: str | None
    updated: int | None = None  # Unix microseconds, as the next three only in keyframes
    audits: int | None = None
    levels_max: int | None = None
    window: int | None = None


STATE_COLUMNS: Final = RecordedState._fields[2:]


class BookPlace(NamedTuple):
    """Where the messages of a book are: in one of several batches."""

    book: int
    batch: int
    start: int
    stop: int
    states: Sequence[RecordedState]


class Header(NamedTuple):
    """What a segment says of its messages.

    Args:
        run: Their run.
        books: Exchange and symbol of each book by its number. A later segment of the run has the
            same books first.
        states: Those of keyframes and health messages, if the segment is not merged.
        places: Where each book is, if it is merged.
    """

    run: int
    books: Sequence[tuple[str, str]]
    states: Sequence[RecordedState] = ()
    places: Sequence[BookPlace] = ()


class Messages(NamedTuple):
    """The messages of a segment that is not merged."""

    header: Header
    batch: pa.RecordBatch

    def slice(self, start: int, stop: int) -> "Messages":
        """Return some of these messages, whose numbers have no gap."""
        batch = self.batch.slice(start, stop - start)
        first = batch["message"][0].as_py() if len(batch) else 0
        states = [each for each in self.header.states if 0 <= each.message - first < len(batch)]
        return Messages(self.header._replace(states=states), batch)


class BookMessages(NamedTuple):
    """The messages of a book in one segment, in order."""

    exchange: str
    symbol: str
    run: int
    batch: pa.RecordBatch
    states: Sequence[RecordedState]


class Segment(NamedTuple):
    """A segment by its name.

    Args:
        folder: The folder of its hour.
        run: The run.
        first: Number of the first flush whose messages it has.
        last: Number of the last one.
        start_us: When the first flush began.
        end_us: When the last one ended.
        merged: Whether its messages are in order of the book.
    """

    folder: Path
    run: int
    first: int
    last: int
    start_us: int
    end_us: int
    merged: bool = False

    @classmethod
    def at(cls, path: Path) -> "Segment":
        """Return the segment of a path."""
        run, first, *lasts, start_us, end_us = map(int, path.stem.split("-"))
        last = lasts[0] if lasts else first
        return cls(path.parent, run, first, last, start_us, end_us, bool(lasts))

    @property
    def path(self) -> Path:
        """Its file."""
        last = (self.last,) if self.merged else ()
        numbers = (self.run, self.first, *last, self.start_us, self.end_us)
        return self.folder / f"{'-'.join(map(str, numbers))}.arrow"


def messages_of(
    columns: TapeColumns,
    run: int,
    books: Sequence[tuple[str, str]],
    states: Sequence[RecordedState],
) -> Messages:
    """Return the messages of a tape, in its buffers."""
    return Messages(Header(run, books, states), _batch(columns))


def write(file: pa.NativeFile, header: Header, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a segment."""
    schema = MESSAGES.with_metadata({HEADER: msgspec.json.encode(header)})
    with ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def merged(
    parts: Sequence[Messages], books: Collection[int] | None = None
) -> tuple[Header, Iterator[pa.RecordBatch]]:
    """Order the messages of segments of one run by book.

    pyarrow would join all levels before it orders them, in new memory of their whole size, which
    costs more than the copy.

    Args:
        parts: The segments, in order.
        books: Numbers of books; others are left out.
    """
    last = parts[-1].header
    book = pa.concat_arrays([each.batch["book"] for each in parts])
    order = pc.array_sort_indices(book)
    if books is not None:
        order = order.filter(pc.is_in(book, pa.array([*books], INT32)).take(order))
    states: dict[int, list[RecordedState]] = {}
    for part in parts:
        for state in part.header.states:
            states.setdefault(state.book, []).append(state)
    runs = pc.run_end_encode(book.take(order))
    places: list[BookPlace] = []
    at = first = start = 0  # `first` is where the batch begins
    for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        if start - first >= MERGED_SIZE:
            at, first = at + 1, start
        places.append(BookPlace(number, at, start - first, end - first, states.get(number, ())))
        start = end
    merger = TapeMerger([_tape_of(each.batch) for each in parts])
    sizes = {each.batch: each.stop for each in places}.values()
    return Header(last.run, last.books, (), places), _merged(merger, order.view(INT64), sizes)


def _merged(merger: TapeMerger, order: pa.Array, sizes: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Yield batches of these sizes; `order` has the numbers of the messages."""
    start = 0
    for size in sizes:
        yield _batch(merger.columns(memory(order.slice(start, size))))
        start += size


def read(path: Path) -> Messages:
    """Read a segment that is not merged.

    It is read as the stream that the file contains after its first eight bytes: pyarrow reads the
    footer of a file in another thread, which costs more than the segment.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is incomplete, or of an earlier build.
    """
    file = pa.memory_map(str(path)).read_buffer()
    if file.slice(max(file.size - len(MAGIC), 0)).to_pybytes() != MAGIC:
        raise ValueError(f"{path.name} is incomplete")
    options = ipc.IpcReadOptions(use_threads=False)
    reader = ipc.open_stream(file.slice(STREAM_AT), options=options)
    return Messages(_header(reader.schema, path), reader.read_next_batch())


def read_merged(
    path: Path, symbol: str | None = None, exchanges: Collection[str] | None = None
) -> Iterator[BookMessages]:
    """Yield the books of a merged segment, of a symbol and some exchanges if they are named.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is damaged, or of an earlier build.
    """
    # Without threads, which cost more than a column: nothing is decompressed.
    options = ipc.IpcReadOptions(use_threads=False)
    reader = ipc.open_file(pa.memory_map(str(path)), options=options)
    header = _header(reader.schema, path)
    wanted = _wanted(header.books, symbol, exchanges)
    places = [each for each in header.places if each.book in wanted]
    batches = {at: reader.get_batch(at) for at in {each.batch for each in places}}
    yield from _books(header, places, batches)


def read_small(
    paths: Iterable[Path], symbol: str, exchanges: Collection[str] | None = None
) -> Iterator[BookMessages]:
    """Yield the books of a symbol in segments of one run that are not merged.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file is damaged, or of an earlier build.
    """
    parts = [read(path) for path in paths]
    header, batches = merged(parts, _wanted(parts[-1].header.books, symbol, exchanges))
    yield from _books(header, header.places, dict(enumerate(batches)))


def read_earlier(path: Path) -> Messages | None:
    """Read a segment of an earlier build, which had a column for everything; None if it is not one.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is damaged.
    """
    reader = ipc.open_file(pa.memory_map(str(path)))
    if HEADER in (reader.schema.metadata or {}):
        return None
    messages = reader.read_all()
    pairs = [*zip(*(messages[name].to_pylist() for name in ("exchange", "symbol")), strict=True)]
    numbers = {pair: at for at, pair in enumerate(dict.fromkeys(pairs))}
    book = pa.array([numbers[pair] for pair in pairs], INT32)
    messages = messages.append_column("book", book)
    place = messages.schema.get_field_index("updated")
    messages = messages.set_column(place, "updated", messages["updated"].cast(INT64))
    stated = messages.filter(pc.is_valid(messages["health"]))
    states = zip(*(stated[name].to_pylist() for name in RecordedState._fields), strict=True)
    header = Header(Segment.at(path).run, [*numbers], [RecordedState(*each) for each in states])
    columns = [joined_array(messages[name]) for name in MESSAGES.names]
    return Messages(header, pa.RecordBatch.from_arrays(columns, schema=MESSAGES))


def books_in(segment: Segment) -> set[tuple[str, str]]:
    """Return exchange and symbol of each book in a segment.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is damaged, or of an earlier build.
    """
    if segment.merged:
        return {(each.exchange, each.symbol) for each in read_merged(segment.path)}
    header, batch = read(segment.path)
    return {header.books[at] for at in pc.unique(batch["book"]).to_pylist()}


def rows_of(parts: Iterable[BookMessages]) -> pa.Table:
    """Return the messages of one book as rows; texts are dictionaries."""
    tables = []
    for _, of_run in groupby(parts, lambda each: each.run):
        some = [*of_run]
        messages = pa.Table.from_batches([each.batch for each in some], MESSAGES)
        states = [state for each in some for state in each.states]
        tables.append(_rows(some[0], messages, states))
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).unify_dictionaries()


def _rows(book: BookMessages, messages: pa.Table, states: Sequence[RecordedState]) -> pa.Table:
    count = len(messages)
    found = {name: joined_array(messages[name]) for name in MESSAGES.names}
    kind, received = found["kind"], found["received"]
    for name in ABSENT:
        found[name] = _without(found[name], pc.equal(found[name].view(INT64), ZERO))
    found["run"] = pa.repeat(pa.scalar(book.run, INT64), count)
    first = pa.repeat(pa.scalar(0, INT32), count)
    for name in ("exchange", "symbol"):
        text = pa.array([getattr(book, name)], pa.string())
        found[name] = pa.DictionaryArray.from_arrays(first, text)
    found["kind"] = pa.DictionaryArray.from_arrays(kind.cast(pa.int32()), KINDS)
    found |= _state_columns(found["message"], states)
    # A snapshot is as new as its message.
    snapshots = _without(received, pc.not_equal(kind, IS_SNAPSHOT))
    found["updated"] = pc.coalesce(found["updated"], snapshots)
    fields = [each.with_type(found[each.name].type) for each in SCHEMA]
    return pa.Table.from_arrays(
        [found[each.name] for each in SCHEMA], schema=pa.schema(fields, SCHEMA.metadata)
    )


def _state_columns(messages: pa.Array, states: Sequence[RecordedState]) -> dict[str, pa.Array]:
    """Return the columns of states, null where a message has none."""
    if not states:
        return {name: pa.nulls(len(messages), SCHEMA.field(name).type) for name in STATE_COLUMNS}
    numbers = integers(messages, INT64)
    places = array("i", [len(states)]) * len(messages)  # the last value, which is null
    for place, state in enumerate(states):
        places[bisect_left(numbers, state.message)] = place
    place = _numbers(INT32, places.tobytes())
    columns = zip(*(each[2:] for each in states), strict=True)
    return {
        name: pa.array([*values, None], SCHEMA.field(name).type).take(place)
        for name, values in zip(STATE_COLUMNS, columns, strict=True)
    }


def _books(
    header: Header, places: Iterable[BookPlace], batches: dict[int, pa.RecordBatch]
) -> Iterator[BookMessages]:
    for each in places:
        batch = batches[each.batch].slice(each.start, each.stop - each.start)
        yield BookMessages(*header.books[each.book], header.run, batch, each.states)


def _wanted(
    books: Sequence[tuple[str, str]], symbol: str | None, exchanges: Collection[str] | None
) -> set[int]:
    return {
        at
        for at, (exchange, its_symbol) in enumerate(books)
        if symbol in (None, its_symbol) and (exchanges is None or exchange in exchanges)
    }


def _header(schema: pa.Schema, path: Path) -> Header:
    content = (schema.metadata or {}).get(HEADER)
    if content is None:
        raise ValueError(
            f"{path.name} was written by an earlier build; the recorder converts it when it starts"
        )
    try:
        return msgspec.json.decode(content, type=Header)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path.name} is damaged: {error}") from error


def _batch(columns: TapeColumns) -> pa.RecordBatch:
    """Return the columns of a tape as Arrow, in the same buffers."""
    found = [*map(_numbers, TYPES, columns[: len(TYPES)])]
    for starts, prices, amounts in (
        (columns.bid_starts, columns.bid_prices, columns.bid_amounts),
        (columns.ask_starts, columns.ask_prices, columns.ask_amounts),
    ):
        levels = [_numbers(INT64, prices), _numbers(INT64, amounts)]
        pairs = pa.StructArray.from_arrays(levels, fields=PAIR)
        found.append(pa.ListArray.from_arrays(_numbers(INT32, starts), pairs, type=LEVELS))
    return pa.RecordBatch.from_arrays(found, schema=MESSAGES)


def _tape_of(batch: pa.RecordBatch) -> list[memoryview]:
    """Return the buffers of messages in the order of `TapeColumns`: the inverse of `_batch`."""
    *numbers, bids, asks = batch.columns
    (bid_starts, *bid_levels), (ask_starts, *ask_levels) = levels_of(bids), levels_of(asks)
    return [*map(memory, numbers), bid_starts, ask_starts, *bid_levels, *ask_levels]


def _numbers(kind: pa.DataType, buffer: Any) -> pa.Array:
    count = len(buffer) * 8 // kind.bit_width
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(buffer)])


def _without(numbers: pa.Array, absent: pa.Array) -> pa.Array:
    return pc.if_else(absent, pa.scalar(None, numbers.type), numbers)
