"""Pagination of transactions; each page reports its coverage and errors."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from onebook.client.failures import NO_CLOSE_FRAME, Refused, Unavailable, pause_s

PAGE_RECORDS = 1_000
IDLE_PAGES_MAX = 5  # pages in a row without progress
OLDER_NOT_KEPT = "older_not_kept"  # the exchange keeps no older records: not an error
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Time = datetime | int
Post = Callable[[Mapping[str, Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class TransactionPage:
    """One page of transactions.

    `coverage` gives for each type the time from which the pages so far have delivered all records;
    `errors` lists what could not be read, and whether the next page retries it. `own_transfers` has
    the transfers between the accounts of a request for several, decided on this page: the pairs of
    all pages are those of the request, whatever the size of the pages. `verification` is the
    result of `verify=True`. Both are None in other answers.
    """

    records: list[dict[str, Any]]
    coverage: list[dict[str, Any]]
    errors: list[dict[str, Any]]
    partial: bool
    next_cursor: str | None
    summary: dict[str, Any]
    own_transfers: dict[str, Any] | None = None
    verification: dict[str, Any] | None = None

    @property
    def missing(self) -> list[dict[str, Any]]:
        """Entries of `coverage` that are incomplete although the exchange keeps the records."""
        return [
            each
            for each in self.coverage
            if not each["complete"] and each["reason"] != OLDER_NOT_KEPT
        ]


def request_of(
    exchange: str | Sequence[str],
    types: Sequence[str] | str,
    *,
    start: Time | None,
    end: Time | None,
    page_records: int,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """The request body of the first page."""
    account = exchange if isinstance(exchange, str) else list(exchange)
    body: dict[str, Any] = {"exchange": account, "limit": page_records, **options}
    if types:
        body["transaction_types"] = [types] if isinstance(types, str) else list(types)
    for name, time in (("start_time", start), ("end_time", end)):
        if time is not None:
            body[name] = _milliseconds(time)
    return body


class TransactionPages(AsyncIterator[TransactionPage]):
    """Iterates over all pages of a request, newest records first.

    A cancellation or `Unavailable` loses nothing: the next iteration requests the same page again.

    Raises, when it is iterated: Refused: The service refuses the request. Unavailable: The service
        cannot answer at the moment, or pages make no progress.
    """

    def __init__(self, post: Post, request: Mapping[str, Any]) -> None:
        self._post = post
        self._request = dict(request)
        self._last: TransactionPage | None = None
        self._idle = 0
        self._repeated = False  # the next page would repeat the records of the last one
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TransactionPage:
        before = self._last
        if self._closed or (before is not None and before.next_cursor is None):
            raise StopAsyncIteration
        if before is not None and self._idle >= IDLE_PAGES_MAX:
            raise Unavailable("no_progress", _why(before), details={"errors": before.errors})
        if self._repeated:
            raise Unavailable("no_progress", "The service returned the same cursor again.")
        if before is not None:
            self._request["cursor"] = before.next_cursor
        if self._idle:
            await asyncio.sleep(pause_s(NO_CLOSE_FRAME, self._idle))
        page = _page(await self._post(self._request))
        self._repeated = page.next_cursor == self._request.get("cursor") and bool(page.records)
        came_further = page.records or before is None or page.coverage != before.coverage
        self._idle = 0 if came_further else self._idle + 1
        self._last = page
        return page

    async def aclose(self) -> None:
        """End the iteration."""
        self._closed = True


class TransactionRecords(AsyncIterator[dict[str, Any]]):
    """Iterates over all records of some pages; see `TransactionPages`.

    Raises, when iterated: Refused: `incomplete`, after the last record, if some records could not
        be read.
    """

    def __init__(self, pages: TransactionPages, *, partial_allowed: bool) -> None:
        self._pages = pages
        self._partial_allowed = partial_allowed
        self._last: TransactionPage | None = None
        self._records: deque[dict[str, Any]] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        while not self._records:
            try:
                self._last = await anext(self._pages)
            except StopAsyncIteration:
                if self._last is not None and not self._partial_allowed:
                    require_complete(self._last)
                raise
            self._records.extend(self._last.records)
        return self._records.popleft()

    async def aclose(self) -> None:
        """End the iteration."""
        self._last = None
        self._records.clear()
        await self._pages.aclose()


def require_complete(page: TransactionPage) -> None:
    """Check the last page.

    Raises:
        Refused: Some records that the exchange keeps were not read.
    """
    if page.missing:
        details = {"errors": page.errors, "coverage": page.coverage}
        raise Refused("incomplete", _why(page), details=details)


def _why(page: TransactionPage) -> str:
    types = ", ".join(each["transaction_type"] for each in page.missing)
    causes = " ".join(dict.fromkeys(each["message"] for each in page.errors))
    return f"Not all records could be read ({types}). {causes}".strip()


def _page(answer: Mapping[str, Any]) -> TransactionPage:
    return TransactionPage(
        records=answer["transactions"],
        coverage=answer["coverage"],
        errors=answer["errors"],
        partial=answer["partial"],
        next_cursor=answer["next_cursor"],
        summary=answer["summary"],
        own_transfers=answer.get("own_transfers"),
        verification=answer.get("verification"),
    )


def _milliseconds(time: Time) -> int:
    if isinstance(time, int):
        return time
    if not isinstance(time, datetime):
        raise TypeError(f"A time must be a datetime or Unix ms as an int, not {time!r}.")
    if time.tzinfo is None:
        raise ValueError(f"{time} has no time zone: use datetime(..., tzinfo=UTC).")
    return (time - EPOCH) // timedelta(milliseconds=1)  # exact, unlike `timestamp`
