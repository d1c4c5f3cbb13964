"""Rebuilds the books of a symbol as they were at a past moment."""

from collections.abc import Collection
from typing import Final

import pyarrow.compute as pc
from msgspec import Struct

from onebook.archive.folder import HOUR_US, HistoryFolder, Interval
from onebook.archive.format import HistoryKind, HistoryMessage, messages_of
from onebook.books import Books, IdentityMark, LiveBook
from onebook.clock import iso_us
from onebook.core.types import LEVELS_MAX
from onebook.model import Health, Instrument, Reason
from onebook.orderbook import HistoryMissing

LOOK_BACK_US: Final = 130_000_000  # two keyframes and a late one


class Past(Struct):
    """The books of a moment; their times are seconds since 1970."""

    books: Books
    at_us: int


def books_at(
    folder: HistoryFolder, symbol: str, at_us: int, exchanges: Collection[str] | None = None
) -> Past:
    """Return the books of a symbol after the last message received until `at_us`.

    Raises:
        HistoryMissing: This moment was not recorded.
    """
    known = folder.hours()
    hours = [each for each in known if at_us - LOOK_BACK_US - HOUR_US < each <= at_us]
    interval = _interval(folder, known, hours, at_us)
    start_us = max(interval.start_us, at_us - LOOK_BACK_US)
    past = Past(Books(), at_us)
    found: dict[str, LiveBook] = {}
    last = -1
    rows = folder.rows(hours, symbol, start_us, at_us)
    for message in messages_of(rows.filter(pc.equal(rows.column("run"), interval.run))):
        if exchanges is not None and message.exchange not in exchanges:
            continue
        if message.number <= last:
            continue
        last = message.number
        book = found.get(message.exchange)
        if book is None:
            if message.kind is not HistoryKind.KEYFRAME:
                continue
            book = found[message.exchange] = past.books.open(
                Instrument(message.exchange, symbol, symbol),
                levels_max=message.levels_max or LEVELS_MAX,
                window=message.window or 0,
            )
        _apply(book, message, found)
    return past


def _interval(folder: HistoryFolder, known: list[int], hours: list[int], at_us: int) -> Interval:
    intervals = folder.coverage(hours)
    covering = [each for each in intervals if each.start_us <= at_us <= each.end_us]
    if covering:
        return covering[-1]
    nearest = folder.coverage(known)
    if not nearest:
        raise HistoryMissing(f"{folder.root} has no history.")
    before = [each.end_us for each in nearest if each.end_us < at_us]
    after = [each.start_us for each in nearest if each.start_us > at_us]
    sides = [f"it was recorded until {iso_us(max(before))}"] if before else []
    sides += [f"it was recorded from {iso_us(min(after))}"] if after else []
    raise HistoryMissing(f"{iso_us(at_us)} is missing in the history: {', and '.join(sides)}.")


def _apply(book: LiveBook, message: HistoryMessage, found: dict[str, LiveBook]) -> None:
    core = book.core
    if message.kind is HistoryKind.DELTA:
        core.apply(message.bids, message.asks, message.shape)
        book.updated_at = message.received_us / 1_000_000
        return
    if message.kind is HistoryKind.TOP:
        if message.bids == message.asks == b"[]":
            core.uncover()
        else:
            core.overlay(message.bids, message.asks, message.shape)
        return
    if message.kind is not HistoryKind.HEALTH:
        core.clear()
        core.replace(*_bounded(message), message.shape, _asked(message))
        book.updated_at = (message.updated_us or 0) / 1_000_000
    if message.kind is not HistoryKind.SNAPSHOT:
        _set_state(book, message, found)


def _set_state(book: LiveBook, message: HistoryMessage, found: dict[str, LiveBook]) -> None:
    book.health = Health(message.health or Health.OFFLINE)
    reason = None if message.reason is None else Reason(message.reason)
    live = book.health is Health.LIVE
    book.mark = IdentityMark(reason, message.detail or "") if live and reason else None
    book.reason = None if live else reason
    book.detail = "" if live else message.detail or ""
    twins = (each.partition(" ") for each in (message.twins or "").split(",") if each)
    symbol = message.symbol
    book.twins = {found[name]: 0.0 for name, _, of in twins if of == symbol and name in found}
    if not live:
        book.core.clear()


def _asked(message: HistoryMessage) -> int:
    """Return a limit that makes only sides with a horizon end there (`core.Book.replace`)."""
    if message.bid_horizon is None and message.ask_horizon is None:
        return 0
    unbounded = [
        side.count(b"[") - 1
        for side, end in ((message.bids, message.bid_horizon), (message.asks, message.ask_horizon))
        if end is None
    ]
    return 1 + max(unbounded, default=0)


def _bounded(message: HistoryMessage) -> tuple[bytes, bytes]:
    asked = _asked(message)
    return (
        _padded(message.bids, message.bid_horizon, asked),
        _padded(message.asks, message.ask_horizon, asked),
    )


def _padded(side: bytes, end: int | None, asked: int) -> bytes:
    """Add rows without an amount at the horizon, at least one, up to the limit."""
    if end is None:
        return side
    missing = max(1, asked - (side.count(b"[") - 1))
    rows = b",".join([b'["%d","0"]' % end] * missing)
    return b"[%b]" % rows if side == b"[]" else b"[%b,%b" % (rows, side[1:])
