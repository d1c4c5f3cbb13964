"""The merged book at a past moment: `onebook.history`."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from os import PathLike

from msgspec.structs import replace

from onebook.clock import ManualClock, iso_us, us_of_iso
from onebook.library.book import DEPTH, options_of
from onebook.library.engine import names_of
from onebook.library.source import BookReader, BookSource, ReaderQueue
from onebook.library.update import BookUpdate
from onebook.orderbook import HistoryMissing, MissingPackage, Names
from onebook.streams.members import NOT_RECORDED

NEEDS_PYARROW = 'Reading a history needs pyarrow: pip install "onebook[history]".'


def history(
    folder: str | PathLike[str],
    symbol: str,
    *,
    at: datetime | str | int,
    exchanges: Names = None,
    depth: int = DEPTH,
    group: str | None = None,
    split: bool = False,
    within: str | None = None,
    proof: bool = False,
) -> BookUpdate:
    """Return the merged book of a pair as it was shown at a moment.

    Args:
        folder: The folder of the history, which `onebook serve` writes (`history.dir`), or the URL
            of an object store, such as `s3://bucket/prefix?region=eu-central-1`.
        symbol: The pair.
        at: A time with a zone, ISO 8601 text (UTC if without a zone), or microseconds since 1970.
        exchanges: The exchanges to merge; all recorded ones by default.
        depth: As in `order_book`, as are the other options.
        proof: Whether to prove that the files of this moment are in the chain of the history; the
            hour must be closed.

    Raises:
        HistoryMissing: This moment, or the pair, was not recorded, or has no proof yet.
        OSError: The folder or the store cannot be read.
        MissingPackage: `pip install "onebook[history]"` is required.
        ValueError: An option is out of range, or the URL is invalid.
    """
    with requiring_pyarrow():
        from onebook.archive.folder import HistoryFolder
        from onebook.archive.reader import books_at
    wanted = None if exchanges is None else names_of(exchanges)
    at_us = microseconds_of(at)
    files = HistoryFolder(folder)
    past = books_at(files, symbol, at_us, wanted)
    found = {book.instrument.exchange: book for book in past.books}
    if not found:
        where = f" on {', '.join(wanted)}" if wanted else ""
        raise HistoryMissing(f"No book of {symbol}{where} was recorded at {iso_us(at_us)}.")
    names = wanted or tuple(sorted(found))
    clock = ManualClock(at_us / 1_000_000)
    source = BookSource(symbol, names, past.books, 0.0)
    for name in names:
        if name in found:
            source.join(found[name].instrument)
        else:
            source.miss(name, *NOT_RECORDED[1:])
    options = options_of(depth, 0, group, split=split, within=within)
    reader = BookReader(source, options, ReaderQueue((), options, clock))
    update = reader.peek(at_us, at_us / 1_000_000)
    if not proof:
        return update
    try:
        proven = files.proof(past.hours, past.files)
    except LookupError as error:
        raise HistoryMissing(str(error)) from None
    return replace(update, proof={"symbol": symbol, "at": iso_us(at_us), **proven})


@contextmanager
def requiring_pyarrow() -> Iterator[None]:
    """Name the extra to install if an import needs pyarrow."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("pyarrow"):
            raise
        raise MissingPackage(NEEDS_PYARROW) from None


def microseconds_of(at: datetime | str | int) -> int:
    """Return a moment as microseconds since 1970.

    Raises:
        ValueError: The text is not ISO 8601, or the time has no zone.
    """
    if isinstance(at, int):
        return at
    if isinstance(at, str):
        try:
            return us_of_iso(at)
        except ValueError:
            raise ValueError(f"The time must be like 2026-11-27T14:03:00, not {at!r}.") from None
    if at.tzinfo is None:
        raise ValueError("The time has no zone; add tzinfo=UTC or another one.")
    return us_of_iso(at.astimezone(UTC).isoformat())
