"""Decodes frames and REST bodies of exchanges, and encodes requests; independent of protocols.

Frames of books are decoded strictly to msgspec Structs whose levels stay `Raw` for the core.
Control frames (acknowledgements, errors, greetings, heartbeats) are decoded leniently by
`control_reader`: they decide what is requested but never the content of a book, so an unexpected
member must not cost the connection. Binary messages are read by field number (`protobuf_reader`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, TypeVar

import msgspec
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from msgspec import Meta, Raw, Struct
from msgspec.structs import fields

from onebook.exchanges.kit.contract import (
    NO_LEVELS,
    ROWS_MAX,
    UNTIMED,
    Outputs,
    ProtocolError,
    Send,
    each_of,
    microseconds,
)
from onebook.model import Instrument

# Exceptions of decoders for invalid bytes: msgspec's errors and bad UTF-8 are ValueErrors, nesting
# deeper than the interpreter allows is a RecursionError.
UNREADABLE: Final = (ValueError, RecursionError, DecodeError)
SEQUENCE_MAX: Final = 2**63 - 1
TEXT_MAX_CHARS: Final = 200  # of an exchange's message, as quoted in reasons
ABSENT: Final = Raw(NO_LEVELS)  # a side missing from a frame; equal to a side without levels
# An id of a book's state. -1 is what OKX sends as "nothing before this".
Sequence64 = Annotated[int, Meta(ge=-1, le=SEQUENCE_MAX)]
Checksum = Annotated[int, Meta(ge=-(2**31), le=2**32 - 1)]

COMMAS_PER_ITEM: Final = 8  # items are counted only above it: 400,000 commas take about 32 MB
NESTING_MAX: Final = 1_000  # the deepest nesting that msgspec decodes
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},"]', re.DOTALL)
_COMMA: Final = ord(",")

T = TypeVar("T")


class ErrorBody(Struct):
    """The error object of most exchanges."""

    code: int | str | None = None
    message: str = ""
    msg: str = ""
    description: str = ""
    data: Any = None


def time_in(body: bytes, member: str) -> int:
    """Return the time in an answer (`ServerTime.member`) as Unix microseconds.

    Raises:
        ProtocolError: There is no such time.
    """
    try:
        found = msgspec.json.decode(body)
        for name in filter(None, member.split(".")):
            found = found[int(name) if isinstance(found, list) else name]
        at_us = microseconds(found if isinstance(found, int) else str(found))
    except (*UNREADABLE, LookupError, TypeError) as error:
        raise ProtocolError(f"the answer has no time: {short(error)}") from None
    if at_us == UNTIMED:
        raise ProtocolError(f"the answer has no time, but {short(found)!r}")
    return at_us


class Dated(Struct, frozen=True):
    """A message that contains its sending time: `write` makes it from Unix milliseconds."""

    write: Callable[[int], object]


def send(message: object, *, urgent: bool = False, asks: Iterable[Instrument] = ()) -> Send:
    """Encode a message as a text frame; `asks` are the books that it requests."""
    if not isinstance(message, Dated):
        return Send(msgspec.json.encode(message), urgent, asks=tuple(asks))
    write = message.write
    return Send(b"", urgent, lambda now_ms: msgspec.json.encode(write(now_ms)), tuple(asks))


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Split a list into lists of at most `size` items, in order."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def short(text: object) -> str:
    """Truncate an exchange's message to `TEXT_MAX_CHARS`."""
    return str(text)[:TEXT_MAX_CHARS]


def decode(
    decoder: Callable[[bytes], T], body: bytes, *, what: str, items_max: int = ROWS_MAX
) -> T:
    """Decode a body that must have one shape, off the hot path.

    Raises:
        ProtocolError: The body has another shape, or a list or object in it has more items than
            both `items_max` and `ROWS_MAX`.
    """
    most = max(items_max, ROWS_MAX)
    # msgspec checks a length limit only after it has decoded all items.
    if body.count(b",") > most * COMMAS_PER_ITEM and has_more_items(body, most):
        raise ProtocolError(f"{what} cannot be read: a list has more than {most} items")
    try:
        return decoder(body)
    except UNREADABLE as error:
        raise ProtocolError(f"{what} cannot be read: {short(error)}") from None


def has_more_items(body: bytes, items_max: int) -> bool:
    """Return whether a list or object in a JSON body has more than `items_max` items.

    Stops at the first one. Invalid JSON returns False: its decoder reports the error.
    """
    commas = [0]  # per open list or object, the outermost first
    for match in _STRUCTURE.finditer(body):
        mark = body[match.start()]
        if mark == _COMMA:
            commas[-1] += 1
            if commas[-1] >= items_max:
                return True
        elif mark in b"[{":
            commas.append(0)
        elif mark in b"]}":
            commas.pop()
        elif match.end() - match.start() == 1:  # an unterminated string
            return False
        if not 0 < len(commas) <= NESTING_MAX:
            return False
    return False


def items_reader(
    read: Callable[[bytes], Any],
    channel: str,
    follow: Callable[[Any, str, Any], Outputs],
) -> Callable[[dict[str, Any], bytes], Outputs | None]:
    """Make the `BookChannel.data` of frames that list items of several books.

    A frame has a `channel`, a `kind` and `data`, a list of items with a `symbol`. `follow` is
    called with the book of an item, the kind and the item.
    """

    def data(books: dict[str, Any], frame: bytes) -> Outputs | None:
        message = read(frame)
        if message.channel != channel:
            return None
        items = message.data
        if len(items) == 1:
            item = items[0]
            book = books.get(item.symbol)
            return None if book is None else follow(book, message.kind, item)
        followed = [(books.get(item.symbol), item) for item in items]
        return tuple(
            out
            for book, item in followed
            if book
            for out in each_of(follow(book, message.kind, item))
        )

    return data


def symbol_of(items: object) -> str:
    """Return the symbol of a damaged frame's only item; "" if it has none or several."""
    match items:
        case [{"symbol": str(symbol)}]:
            return symbol
    return ""


def texts_of(items: object) -> list[str]:
    """Return the strings of a decoded list; empty if it is not a list."""
    return [item for item in items if isinstance(item, str)] if isinstance(items, list) else []


def text_in(value: object, member: str) -> str:
    """Return a string member of a decoded object; "" if absent or of another type."""
    text = value.get(member) if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""


# Control frames

NOT_THERE: Final = Raw(b"")
S = TypeVar("S", bound=Struct)


def control_reader(kind: type[S]) -> Callable[[bytes], S]:
    """Make the lenient decoder of an exchange's control frames.

    A member that is null or of another type counts as absent. Numbers and their text are
    interchangeable, because exchanges write ids and codes either way; an `ErrorBody` may also be a
    bare string or code. Anything but a JSON object raises one of `UNREADABLE`.

    Args:
        kind: Its attributes are the members to decode; each needs a default.
    """
    members = [(each.name, _member(each.type)) for each in fields(kind)]
    envelope = msgspec.defstruct(
        "Envelope",
        [(each.name, Raw, NOT_THERE) for each in fields(kind)],
        rename={each.name: each.encode_name for each in fields(kind)},
    )
    decode_envelope = msgspec.json.Decoder(envelope).decode

    def read(frame: bytes) -> S:
        found = decode_envelope(frame)
        values = {}
        for name, member in members:
            raw = getattr(found, name)
            if raw is not NOT_THERE:
                with suppress(*UNREADABLE):
                    values[name] = member(raw)
        return kind(**values)

    return read


def _member(kind: Any) -> Callable[[Raw], Any]:
    """Make the decoder of one member; a value on which it raises counts as absent."""
    if kind == ErrorBody | None:
        return _error
    decode = msgspec.json.Decoder(kind, strict=False).decode
    return _text if kind in (str, str | None) else decode


def _text(raw: Raw) -> str:
    value = _any(raw)
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a string")
    return bytes(raw).decode()


def _error(raw: Raw) -> ErrorBody | None:
    value = _any(raw)
    if isinstance(value, dict):
        return _error_object(raw)
    if isinstance(value, str):
        return ErrorBody(message=value) if value else None
    if isinstance(value, int) and value is not True:
        return ErrorBody(code=value) if value else None
    return ErrorBody() if value else None


_any: Final = msgspec.json.Decoder().decode
_error_object: Final = control_reader(ErrorBody)


# Protobuf, by field number: no .proto, no generated module

TEXT: Final = FieldDescriptorProto.TYPE_STRING  # invalid UTF-8 raises
BYTES: Final = FieldDescriptorProto.TYPE_BYTES  # bytes, or an undecoded sub-message
INT64: Final = FieldDescriptorProto.TYPE_INT64


def protobuf_reader(**members: tuple[int, int]) -> Callable[[bytes], Any]:
    """Make the decoder of protobuf messages with these fields: name=(number, type).

    The library skips all other fields. An absent field reads as empty, the last one of a repeated
    field counts, and an invalid message raises `DecodeError`, one of `UNREADABLE`. Levels that the
    core scans (`LevelShape.protobuf`) are declared as `BYTES`, which creates no objects for levels:
    sub-messages and bytes are the same on the wire.
    https://protobuf.dev/programming-guides/encoding/
    """
    message = DescriptorProto(name="Message")
    for name, (number, kind) in members.items():
        message.field.add(
            name=name, number=number, type=kind, label=FieldDescriptorProto.LABEL_OPTIONAL
        )
    file = FileDescriptorProto(name="message.proto", syntax="proto3", message_type=[message])
    pool = DescriptorPool()
    pool.Add(file)
    read: Callable[[bytes], Any] = GetMessageClass(pool.FindMessageTypeByName("Message")).FromString
    return read
