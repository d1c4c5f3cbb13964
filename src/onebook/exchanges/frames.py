"""What every connector needs to read frames and bodies of exchanges; no protocol of its own.

The envelope of a frame is a msgspec Struct that `core.Reader` reads, levels stay raw bytes for the
core. What msgspec refuses (NaN, bad escapes, trailing junk, wrong types) is mapped to
`ProtocolError` here or in the connector; the bytes of levels are the core's to judge.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from onebook.exchanges.contract import ProtocolError, Send
from onebook.model import Instrument, InstrumentStatus

# Everything that msgspec raises on bytes of strangers: its errors and bad UTF-8 are ValueErrors,
# nesting deeper than the interpreter allows is a RecursionError.
UNREADABLE: Final = (ValueError, RecursionError)

SEQUENCE_MAX: Final = 2**63 - 1
TEXT_MAX_CHARS: Final = 200  # of an exchange's own words in our reasons

# An id of a book's state. -1 is what OKX sends as "nothing before this".
Sequence64 = Annotated[int, Meta(ge=-1, le=SEQUENCE_MAX)]
Checksum = Annotated[int, Meta(ge=-(2**31), le=2**32 - 1)]

T = TypeVar("T")
Row = TypeVar("Row", bound=Struct)


def send(message: object) -> Send:
    """Make the text frame of a message."""
    return Send(msgspec.json.encode(message))


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Cut a list into lists of at most `size`, in order."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def short(text: object) -> str:
    """Cut an exchange's words so that a reason stays a reason."""
    return str(text)[:TEXT_MAX_CHARS]


def decode(decoder: Callable[[bytes], T], body: bytes, *, what: str) -> T:
    """Decode a body that must have one shape, off the hot path."""
    try:
        return decoder(body)
    except UNREADABLE as error:
        raise ProtocolError(f"{what} cannot be read: {short(error)}") from None


def symbol_of(items: object) -> str:
    """Find the symbol in the data of a damaged frame; "" where it names none or several."""
    match items:
        case [{"symbol": str(symbol)}]:
            return symbol
    return ""


def instruments_of(
    rows: Iterable[Raw], row_type: type[Row], build: Callable[[Row], Instrument | None]
) -> list[Instrument]:
    """Read an exchange's list row by row; a row that is odd is left out, the rest is kept."""
    row_decode = msgspec.json.Decoder(row_type).decode
    found = []
    for raw in rows:
        try:
            row = row_decode(raw)
        except UNREADABLE:
            continue
        instrument = build(row)
        if instrument is not None:
            found.append(instrument)
    return found


def instrument_of(
    exchange: str,
    native: str,
    *,
    base: str,
    quote: str,
    trading: bool,
    tick: str = "",
    lot: str = "",
) -> Instrument | None:
    """Make an instrument with our symbol; None where a part of its name is missing.

    A "/" inside a currency would make the symbol ambiguous.
    """
    if not (native and base and quote) or "/" in base or "/" in quote:
        return None
    status = InstrumentStatus.TRADING if trading else InstrumentStatus.HALTED
    symbol = f"{base}/{quote}".upper()
    return Instrument(exchange, symbol, native, _plain(tick), _plain(lot), status)


def _plain(step: str) -> str:
    """Write a step without the zeros that some exchanges pad it with."""
    return step.rstrip("0").rstrip(".") if "." in step else step


def step_of(decimals: int | None) -> str:
    """Write the step of so many decimals: 2 is "0.01", 0 is "1"; "" where it is not sensible."""
    if decimals is None or not 0 <= decimals <= 18:
        return ""
    return f"0.{'1':0>{decimals}}" if decimals else "1"
