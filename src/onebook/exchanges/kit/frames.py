"""What every connector needs to read frames and bodies of exchanges; no protocol of its own.

The envelope of a frame is a msgspec Struct, levels stay `Raw` for the core. What
msgspec refuses (NaN, bad escapes, trailing junk, wrong types) is mapped to `ProtocolError` here or
in the connector; the core parses the bytes of levels.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
from google.protobuf.message import DecodeError
from msgspec import Meta, Raw, Struct

from onebook.core.types import SCALE_MAX
from onebook.exchanges.kit import currencies
from onebook.exchanges.kit.contract import (
    NO_LEVELS,
    ROWS_MAX,
    Instruments,
    Outputs,
    ProtocolError,
    Send,
    each_of,
)
from onebook.model import Instrument, InstrumentStatus

# Everything that decoders raise on bytes of strangers: errors of msgspec and bad UTF-8 are
# ValueErrors, nesting deeper than the interpreter allows is a RecursionError.
UNREADABLE: Final = (ValueError, RecursionError, DecodeError)

SEQUENCE_MAX: Final = 2**63 - 1
TEXT_MAX_CHARS: Final = 200  # of an exchange's own words in our reasons

ABSENT: Final = Raw(NO_LEVELS)  # a side that a frame lacks; equal to one without levels

# An id of a book's state. -1 is what OKX sends as "nothing before this".
Sequence64 = Annotated[int, Meta(ge=-1, le=SEQUENCE_MAX)]
Checksum = Annotated[int, Meta(ge=-(2**31), le=2**32 - 1)]

SYMBOL_CHARACTERS_MAX: Final = 40  # of a pair in our spelling
STEP_DECIMALS: Final = 12  # of a step that is a float, which holds so many exactly enough
NATIVE_CHARACTERS_MAX: Final = 64  # of the exchange's own name of it
# Letters and digits of any script (Binance lists Chinese names) and the marks that exchanges use:
# no blanks, control characters, bidirectional marks, quotes or HTML.
_NAME: Final = re.compile(r"[\w.\-:/$@+!()*#~]+")
_STEP: Final = re.compile(r"[0-9.eE+-]{0,32}")

COMMAS_PER_ITEM: Final = 8  # so few take no memory worth counting them: about 32 MB of 400,000
NESTING_MAX: Final = 1_000  # lists and objects inside each other; msgspec takes no more
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},"]', re.DOTALL)
_COMMA: Final = ord(",")

T = TypeVar("T")
Row = TypeVar("Row")


class ErrorBody(Struct):
    """An error as most exchanges write it, in an object of its own."""

    code: int | str | None = None
    message: str = ""
    msg: str = ""
    description: str = ""
    data: Any = None


class Dated(Struct, frozen=True):
    """A message that names the time at which it is sent: `write` makes it of Unix milliseconds."""

    write: Callable[[int], object]


def send(message: object, *, urgent: bool = False, asks: Iterable[Instrument] = ()) -> Send:
    """Make the text frame of a message; `asks` are the books that it requests."""
    if not isinstance(message, Dated):
        return Send(msgspec.json.encode(message), urgent, asks=tuple(asks))
    write = message.write
    return Send(b"", urgent, lambda now_ms: msgspec.json.encode(write(now_ms)), tuple(asks))


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Cut a list into lists of at most `size`, in order."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def short(text: object) -> str:
    """Cut an exchange's words so that a reason stays a reason."""
    return str(text)[:TEXT_MAX_CHARS]


def decode(
    decoder: Callable[[bytes], T], body: bytes, *, what: str, items_max: int = ROWS_MAX
) -> T:
    """Decode a body that must have one shape, off the hot path.

    Raises:
        ProtocolError: It has another shape, or so many items that they would take much memory: a
            list or object in it has more than `items_max`, or more than `ROWS_MAX` where that is
            less.
    """
    most = max(items_max, ROWS_MAX)
    # msgspec compares a length with its bound only when all items are decoded.
    if body.count(b",") > most * COMMAS_PER_ITEM and has_more_items(body, most):
        raise ProtocolError(f"{what} cannot be read: a list in them has more than {most} items")
    try:
        return decoder(body)
    except UNREADABLE as error:
        raise ProtocolError(f"{what} cannot be read: {short(error)}") from None


def has_more_items(body: bytes, items_max: int) -> bool:
    """Return whether a list or object of a JSON body has more than so many items.

    It stops at the first such one. A body that is no JSON has none: its decoder refuses it.
    """
    commas = [0]  # of each list or object that is open, the outermost first
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
        elif match.end() - match.start() == 1:  # a text without an end
            return False
        if not 0 < len(commas) <= NESTING_MAX:
            return False
    return False


def items_reader(
    read: Callable[[bytes], Any],
    channel: str,
    follow: Callable[[Any, str, Any], Outputs],
) -> Callable[[dict[str, Any], bytes], Outputs | None]:
    """Make the `BookChannel.data` of frames whose `data` lists items of several books.

    Such a frame has a `channel` and a `kind`, and each item its `symbol`. `follow` gets the book of
    an item, the kind and the item.
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
    """Find the symbol in the data of a damaged frame; "" where it names none or several."""
    match items:
        case [{"symbol": str(symbol)}]:
            return symbol
    return ""


def texts_of(items: object) -> list[str]:
    """List the texts of a decoded list; nothing where it is none."""
    return [item for item in items if isinstance(item, str)] if isinstance(items, list) else []


def text_in(value: object, member: str) -> str:
    """Find the text of a member of a decoded object; "" where there is none."""
    text = value.get(member) if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""


def instruments_of(
    rows: Collection[Raw],
    row_type: type[Row],
    build: Callable[[Row], Instrument | None],
    *,
    rows_max: int = ROWS_MAX,
) -> Instruments:
    """Read an exchange's list row by row; a row that is odd is left out, the rest is kept.

    Raises:
        ProtocolError: There are more rows than `rows_max`.
    """
    checked_rows(rows, rows_max)
    row_decode = msgspec.json.Decoder(row_type).decode

    def built() -> Iterator[Instrument | None]:
        for raw in rows:
            try:
                row = row_decode(raw)
            except UNREADABLE:
                continue
            yield build(row)

    return sound_ones(built())


def checked_rows(rows: Collection[object], rows_max: int) -> None:
    """Check how long a list is.

    Raises:
        ProtocolError: There are more rows than `rows_max`.
    """
    if len(rows) > rows_max:
        raise ProtocolError(f"the list has {len(rows)} rows, more than {rows_max}")


def sound_ones(instruments: Iterable[Instrument | None]) -> Instruments:
    """Keep the instruments whose names are sound, and count the others; None is no instrument."""
    found = Instruments()
    for instrument in instruments:
        if instrument is None:
            continue
        if sound(instrument):
            found.append(instrument)
        else:
            found.refused += 1
    return found


def sound(instrument: Instrument) -> bool:
    """Return whether the names of an instrument may stand in logs, pages and other systems."""
    return (
        len(instrument.symbol) <= SYMBOL_CHARACTERS_MAX
        and len(instrument.native) <= NATIVE_CHARACTERS_MAX
        and _NAME.fullmatch(instrument.symbol) is not None
        and _NAME.fullmatch(instrument.native) is not None
        and _STEP.fullmatch(instrument.tick) is not None
        and _STEP.fullmatch(instrument.lot) is not None
        and all(0 <= scale <= SCALE_MAX for scale in instrument.scales)
    )


def instrument_of(
    exchange: str,
    native: str,
    *,
    base: str,
    quote: str,
    trading: bool,
    tick: str = "",
    lot: str = "",
    scales: tuple[int, int] = (0, 0),
) -> Instrument | None:
    """Make an instrument with our symbol; None where a part of its name is missing.

    `base` and `quote` are the exchange's own codes, which `currencies` translates. A "/" inside one
    would make the symbol ambiguous.
    """
    if not (native and base and quote) or "/" in base or "/" in quote:
        return None
    status = InstrumentStatus.TRADING if trading else InstrumentStatus.HALTED
    codes = f"{base}/{quote}".upper()
    symbol = currencies.symbol_of(exchange, codes)
    steps = _plain(tick), _plain(lot)
    return Instrument(exchange, symbol, native, *steps, status, codes, scales=scales)


def _plain(step: str) -> str:
    """Write a step without the zeros that some exchanges pad it with."""
    return step.rstrip("0").rstrip(".") if "." in step else step


def plain_step(step: float | None) -> str:
    """Write a step that came as a JSON number, such as 1e-8, without an exponent.

    An integer beyond every float is "inf", which is not `sound`.
    """
    try:
        return "" if step is None else f"{step:.{STEP_DECIMALS}f}"
    except OverflowError:
        return "inf"


def step_of(decimals: int | str | None) -> str:
    """Write the step of so many decimals, a number or its digits: 2 is "0.01", 0 is "1".

    "" where it is not sensible.
    """
    if isinstance(decimals, str):
        decimals = int(decimals) if decimals.isdecimal() and len(decimals) < 3 else None
    if decimals is None or not 0 <= decimals <= 18:
        return ""
    return f"0.{'1':0>{decimals}}" if decimals else "1"
