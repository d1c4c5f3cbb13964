"""Compact, numbered messages about one book from a feeds node to gateways. Sans-I/O.

Every message begins with `HEAD` (little-endian): wire version, kind, sending node, epoch and
sequence number. A node numbers the messages of one book from 1 without gaps, and starts a new epoch
whenever it opens the book. The rest of a message:

    SNAPSHOT  age in ms, levels asked, the exchange's number and time, bytes of the shape, bytes of
              the bids; shape, bids, asks
    DELTA     the exchange's number and time, bytes of the shape, bytes of the bids; shape, bids,
              asks
    TOP       the same for the best bid and ask of a faster channel
    HEALTH    MessagePack array: state, reason code, detail
    MARK nothing: its number is that of the last message, whose loss it reveals

A SNAPSHOT over `PLAIN_BYTES_MAX` has the bit `DEFLATED`, and its rest is compressed with zlib. Only
`snapshot_of` inflates it, which a receiver calls once the sending node is known.

Level text is the exchange's unchanged text in its shape, so that nothing is rounded or reformatted;
the shape is the MessagePack of a `core.types.LevelShape`. The reply to a snapshot request is a
SNAPSHOT, or a HEALTH if the book is not live, with the number of the last published message; it is
empty if the node does not have the book.
"""

import struct
import zlib
from enum import IntEnum
from typing import Any, Final

from isal import isal_zlib
from msgspec import Struct, msgpack

from onebook.books import LiveBook
from onebook.core.types import FRAME_LEVELS_MAX, LEVELS_MAX, LevelShape
from onebook.exchanges.kit import Delta, Snapshot, TopOfBook, microseconds
from onebook.model import Health, Instrument, Reason
from onebook.nodes.payloads import (
    NODE_MAX,
    SEQ_MAX,
    Epoch,
    NodeId,
    PayloadReader,
    RefusalCause,
    Seq,
    WireError,
    require_size,
)

VERSION: Final = 3
HEAD: Final = struct.Struct("<BBQIQ")
SNAPSHOT_HEAD: Final = struct.Struct("<IIqQHI")
DELTA_HEAD: Final = struct.Struct("<qQHI")  # the number may be negative; the time is in us or 0
AGE_MS_MAX: Final = 2**32 - 1
DEFLATED: Final = 0x80
PLAIN_BYTES_MAX: Final = 65_536
FRAME_BYTES_MAX: Final = 16 << 20  # published or inflated; the longest of exchanges have 5 MB
DEFLATE_LEVEL: Final = 1
SHAPES_MAX: Final = 4_096  # decoded shapes kept; there are fewer than 100
SHAPE_BYTES_MAX: Final = 1_024
STATE_BYTES_MAX: Final = 65_536


class Kind(IntEnum):
    """The kind of a message."""

    SNAPSHOT = 1
    DELTA = 2
    HEALTH = 3
    MARK = 4
    TOP = 5


class NodeMessage(Struct, frozen=True, gc=False):
    """One message: sender, number, and the part that depends on its kind."""

    kind: Kind
    node: NodeId
    epoch: Epoch
    seq: Seq
    body: Any  # a memoryview, sliced instead of copied
    deflated: bool = False


class BookState(Struct, frozen=True, array_like=True):
    """The health of a book and its reason."""

    health: Health
    reason: str = ""
    detail: str = ""


_KINDS: Final = {int(kind): kind for kind in Kind}
_shape_bytes: dict[LevelShape, bytes] = {}
_shapes: dict[bytes, LevelShape] = {}
_state = PayloadReader(BookState, bytes_max=STATE_BYTES_MAX)
_shape = PayloadReader(LevelShape, bytes_max=SHAPE_BYTES_MAX)


def snapshot_frame(node: int, epoch: int, seq: int, snapshot: Snapshot, age_ms: int = 0) -> bytes:
    """Encode a whole book, which makes it live; `age_ms` is the age of its data."""
    shape, bids = _bytes_of(snapshot.shape), bytes(snapshot.bids)
    head = SNAPSHOT_HEAD.pack(
        min(age_ms, AGE_MS_MAX),
        snapshot.levels_asked,
        snapshot.sequence,
        microseconds(snapshot.at),
        len(shape),
        len(bids),
    )
    body = b"".join((head, shape, bids, snapshot.asks))
    kind = int(Kind.SNAPSHOT)
    if len(body) > PLAIN_BYTES_MAX:
        kind, body = kind | DEFLATED, isal_zlib.compress(body, DEFLATE_LEVEL)
    return HEAD.pack(VERSION, kind, node, epoch, seq) + body


def delta_frame(node: int, epoch: int, seq: int, delta: Delta | TopOfBook) -> bytes:
    """Encode changed levels of a live book, or its top (the hot path)."""
    kind = 2 if type(delta) is Delta else 5
    shape, bids = _bytes_of(delta.shape), delta.bids
    return b"".join(
        (
            HEAD.pack(VERSION, kind, node, epoch, seq),
            DELTA_HEAD.pack(
                delta.sequence, microseconds(delta.at), len(shape), len(memoryview(bids))
            ),
            shape,
            bids,
            delta.asks,
        )
    )


def health_frame(
    node: int, epoch: int, seq: int, health: Health, reason: Reason | None, detail: str
) -> bytes:
    """Encode that a book is not live and why."""
    state = BookState(health, reason or "", detail)
    return HEAD.pack(VERSION, Kind.HEALTH, node, epoch, seq) + msgpack.encode(state)


def mark_frame(node: int, epoch: int, seq: int) -> bytes:
    """Encode the number of the last message."""
    return HEAD.pack(VERSION, Kind.MARK, node, epoch, seq)


def frame_of(payload: bytes) -> NodeMessage:
    """Decode the head of a message.

    Raises:
        WireError: The payload is not a message of this version, or is too long.
    """
    require_size(payload, FRAME_BYTES_MAX)
    try:
        version, kind, node, epoch, seq = HEAD.unpack_from(payload)
    except struct.error:
        raise WireError(f"a message of {len(payload)} bytes has no head") from None
    known = _KINDS.get(kind & ~DEFLATED)
    if version != VERSION or known is None:
        raise WireError(f"a message of unknown version {version} or kind {kind}")
    deflated = bool(kind & DEFLATED)
    if deflated and known is not Kind.SNAPSHOT:
        raise WireError(f"a deflated message of kind {kind}", RefusalCause.INVALID)
    if node > NODE_MAX or seq > SEQ_MAX:
        raise WireError(f"node {node:x} or number {seq} out of range", RefusalCause.INVALID)
    return NodeMessage(known, node, epoch, seq, memoryview(payload)[HEAD.size :], deflated)


def snapshot_of(frame: NodeMessage, instrument: Instrument) -> tuple[Snapshot, int]:
    """Decode a whole book and its age in ms.

    Raises:
        WireError: The message cannot be decoded.
    """
    body = memoryview(_inflated(frame.body)) if frame.deflated else frame.body
    try:
        age_ms, levels_asked, sequence, at, shape_size, bids_size = SNAPSHOT_HEAD.unpack_from(body)
    except struct.error:
        raise WireError("a snapshot without sizes") from None
    if levels_asked > FRAME_LEVELS_MAX:
        raise WireError(f"a snapshot with a limit of {levels_asked} levels", RefusalCause.INVALID)
    shape, bids, asks = _parts(body, SNAPSHOT_HEAD.size, shape_size, bids_size)
    return Snapshot(instrument, bids, asks, shape, levels_asked, at, sequence), age_ms


def delta_of(frame: NodeMessage, instrument: Instrument) -> Delta | TopOfBook:
    """Decode changed levels, or a top.

    Raises:
        WireError: The message cannot be decoded.
    """
    try:
        sequence, at, shape_size, bids_size = DELTA_HEAD.unpack_from(frame.body)
    except struct.error:
        raise WireError("a delta without sizes") from None
    shape, bids, asks = _parts(frame.body, DELTA_HEAD.size, shape_size, bids_size)
    if frame.kind is Kind.TOP:
        return TopOfBook(instrument, sequence, bids, asks, shape, at)
    return Delta(instrument, bids, asks, shape, at, sequence)


def state_of(frame: NodeMessage) -> BookState:
    """Decode a book's health.

    Raises:
        WireError: The message cannot be decoded.
    """
    return _state.read(frame.body)


def _inflated(body: memoryview) -> bytes:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, FRAME_BYTES_MAX)
    except zlib.error as error:
        raise WireError(f"a body that cannot be inflated: {error}") from None
    if not inflater.eof:
        raise WireError(f"a body that is truncated or longer than {FRAME_BYTES_MAX} bytes")
    return plain


def _parts(
    body: Any, begin: int, shape_size: int, bids_size: int
) -> tuple[LevelShape, bytes, bytes]:
    shape_end = begin + shape_size
    bids_end = shape_end + bids_size
    if bids_end > len(body):
        raise WireError("a truncated message")
    return (
        _shape_of(bytes(body[begin:shape_end])),
        bytes(body[shape_end:bids_end]),
        bytes(body[bids_end:]),
    )


def _bytes_of(shape: LevelShape) -> bytes:
    encoded = _shape_bytes.get(shape)
    if encoded is None:
        if len(_shape_bytes) >= SHAPES_MAX:
            _shape_bytes.clear()
        encoded = _shape_bytes[shape] = msgpack.encode(shape)
    return encoded


def _shape_of(encoded: bytes) -> LevelShape:
    shape = _shapes.get(encoded)
    if shape is None:
        shape = _shape.read(encoded)
        if len(_shapes) >= SHAPES_MAX:
            _shapes.clear()
        _shapes[encoded] = shape
    return shape


NO_AMOUNT: Final = "0"  # of a row that is no level; its price only states the horizon


def snapshot_of_book(book: LiveBook) -> Snapshot:
    """Write every level of a live book as decimal text, exactly.

    A side with a horizon looks like an exchange's limited snapshot (`core.Book.replace`): it has at
    least as many rows as the limit, and the outermost row is the horizon. Both sides share one
    limit, so the side with a horizon is padded until it is longer than the other. The padding rows
    have no amount and come first, because the same price with an amount may follow.
    """
    sides = book.core.top(LEVELS_MAX)
    bounds = book.core.horizon()
    if bounds == (None, None):
        asked = 0
    else:
        unbounded = (levels for levels, bound in zip(sides, bounds, strict=True) if bound is None)
        asked = 1 + max((len(levels) for levels in unbounded), default=0)
    bids, asks = (
        _levels_text(levels if bound is None else _bounded(levels, bound, asked))
        for levels, bound in zip(sides, bounds, strict=True)
    )
    sequence = 0 if book.fusing is None else book.fusing.depth
    return Snapshot(book.instrument, bids, asks, levels_asked=asked, at=book.at, sequence=sequence)


def _bounded(levels: list[tuple[str, str]], bound: str, rows_min: int) -> list[tuple[str, str]]:
    missing = max(1, rows_min - len(levels))
    return [(bound, NO_AMOUNT)] * missing + levels


def _levels_text(rows: list[tuple[str, str]]) -> bytes:
    joined = ",".join([f'["{price}","{amount}"]' for price, amount in rows])
    return f"[{joined}]".encode()
