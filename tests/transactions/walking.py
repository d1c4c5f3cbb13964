"""Walkers over a reader with scripted pages."""

import asyncio
from collections.abc import Callable
from typing import Any

from onebook.transactions.adapter import Page, Source, Window
from onebook.transactions.merge import Keyed, Range, merged
from onebook.transactions.record import FIRST, Record, RecordKey
from onebook.transactions.walk import Walker
from onebook.transactions.windows import Bookmark
from transactions.bybit_support import run
from transactions.test_record import record

SECOND = 1_000


def event(at_ms: int, name: str = "") -> Record:
    return record(timestamp=at_ms, transactionId=name or f"0x{at_ms:040x}")


def source(**fields: Any) -> Source:
    base = {"name": "s", "type": "t", "window_ms": 100, "page_rows": 3, "page_rows_least": 1}
    return Source(**(base | fields))


class Book:
    """A reader over a list of (filter time, record), paged by offset in the source's direction."""

    def __init__(self, *events: tuple[int, Record]) -> None:
        self.events = sorted(events, key=lambda one: (-one[0], one[1].transactionId))
        self.asked: list[tuple[Window, str]] = []
        self.answers: Callable[[Window, str], Page | Exception | None] = lambda w, c: None
        self.latency_s = 0.0

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        self.asked.append((window, cursor))
        await asyncio.sleep(self.latency_s)
        given = self.answers(window, cursor)
        if isinstance(given, Exception):
            raise given
        if given is not None:
            return given
        inside = [
            r for at, r in self.events if not source.ranged or window.from_ms <= at < window.to_ms
        ]
        if source.oldest_first:
            inside.reverse()
        start = int(cursor or 0)
        rows = inside[start : start + source.page_rows]
        following = str(start + len(rows)) if rows else ""
        return Page(rows, len(rows), following)

    async def check(self) -> Any:
        raise NotImplementedError


async def keyed_of(
    walkers: list[Walker], progress: asyncio.Event, *, limit: int | None = None
) -> list[Keyed]:
    outlets = [walker.outlet for walker in walkers]
    return [keyed async for batch in merged(outlets, progress, limit=limit) for keyed in batch]


def walked(
    book: Book,
    walked_source: Source,
    from_ms: int,
    to_ms: int,
    *,
    after: RecordKey = FIRST,
    now_ms: int = 10**6,
    begin: Bookmark | None = None,
) -> tuple[list[Record], Walker]:
    async def story() -> tuple[list[Record], Walker]:
        progress = asyncio.Event()
        walker = Walker(
            walked_source,
            book,
            Range(from_ms, to_ms, after=after),
            now_ms=lambda: now_ms,
            progress=progress,
            begin=begin,
        )
        found = [
            r async for batch in merged([walker.outlet], progress, limit=None) for _, r in batch
        ]
        await walker.close()
        return found, walker

    return run(story())


def simple(*times: int) -> Book:
    return Book(*[(at, event(at)) for at in times])
