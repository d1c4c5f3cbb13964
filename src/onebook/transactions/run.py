"""One query being executed: a walker for each source, merged, counted and proven.

A run owns every task it starts; closing it stops all asking.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from onebook.errors import ExchangeFailed
from onebook.transactions.adapter import AccountReader, Adapter
from onebook.transactions.answer import (
    DEADLINE,
    LIMIT_REACHED,
    Coverage,
    ErrorEntry,
    SourcePart,
    Totals,
    coverage_of,
    errors_of,
)
from onebook.transactions.clock import ServiceClock
from onebook.transactions.counters import RECORDS, UNREADABLE
from onebook.transactions.cursor import DONE, GIVEN_UP, CursorState, Place, as_key, key_digest
from onebook.transactions.failures import FailureReason, SourceFailed
from onebook.transactions.merge import Once, merged
from onebook.transactions.proof import Verification
from onebook.transactions.query import Query, left_out
from onebook.transactions.record import FIRST, Record
from onebook.transactions.verify import Verifier
from onebook.transactions.walk import Bookmark, Demand, Range, Walker, fitted

LONG_ANSWER: Final = 5_000  # records from which on reading ahead pays


class Run:
    """One query being executed.

    Args:
        account: The name of the exchange credentials in cursors.
    """

    def __init__(
        self,
        query: Query,
        adapter: Adapter,
        reader: AccountReader,
        clock: ServiceClock,
        *,
        account: str,
    ) -> None:
        self.query = query
        self.totals = Totals(adapter.entry.singular)
        self.verifier: Verifier | None = None
        self._adapter = adapter
        self._account = account
        self._clock = clock
        self._progress = asyncio.Event()
        self._last = FIRST
        self._unreadable_counted = 0
        self._stopped = LIMIT_REACHED
        self._reader = reader
        self._demand = Demand(query.limit)
        self._once = Once(query.state.unplaced if query.state else ())
        self._parts = [self._part(name, reader) for name in query.sources]
        if query.request.verify:
            self.verifier = Verifier(
                adapter.entry,
                below_ms=self._top_ms if query.state else query.to_ms + 1,
                asked={part.source.type for part in self._parts},
                orders=adapter.entry.books.trades in query.words,
            )

    @property
    def display(self) -> str:
        """The exchange's name for people."""
        return self._adapter.entry.display

    @property
    def left_out(self) -> tuple[str, ...]:
        """Types that move money and that were not requested."""
        return left_out(self.query.sources, self._adapter)

    @property
    def walkers(self) -> list[Walker]:
        """The walkers of this run."""
        return [part.walker for part in self._parts if part.walker is not None]

    @property
    def _top_ms(self) -> int:
        """Where this answer begins: the end of the range, or where the page before it came to."""
        state = self.query.state
        return self.query.to_ms if state is None else min(self.query.to_ms, -state.after[0])

    def _part(self, name: str, reader: AccountReader) -> SourcePart:
        source, state = fitted(self._adapter.sources[name], self.query.limit), self.query.state
        place = self._begun_at(name)
        lost_before_ms = state.kept.get(name) if state else None
        flawed_before = state.flaws.get(name) if state else None
        if place in (DONE, GIVEN_UP):
            return SourcePart(
                source,
                None,
                given_up=place == GIVEN_UP,
                lost_before_ms=lost_before_ms,
                flawed_before=flawed_before,
            )
        wanted = Range(self.query.from_ms, self.query.to_ms, after=as_key(place))
        limit = self.query.limit
        walker = Walker(
            source,
            reader,
            wanted,
            now_ms=self._clock.now_ms,
            progress=self._progress,
            demand=self._demand,
            long=limit is None or limit >= LONG_ANSWER,
            lost_before_ms=lost_before_ms,
            begin=state.bookmarks.get(name) if state else None,
        )
        return SourcePart(source, walker, flawed_before=flawed_before)

    def _begun_at(self, name: str) -> Place:
        """Where this page of a source begins."""
        state = self.query.state
        return state.place(name) if state else (FIRST.negative_ms, FIRST.record_id)

    async def records(self, deadline_s: float) -> AsyncGenerator[list[Record]]:
        """The records in order, in batches, until the limit, the end or the deadline."""
        until_s = self._clock.now_s() + deadline_s
        async with aclosing(
            merged(
                self.walkers,
                self._progress,
                limit=self.query.limit,
                demand=self._demand,
                once=self._once,
            )
        ) as batches:
            while True:
                try:
                    async with asyncio.timeout(until_s - self._clock.now_s()):
                        batch = await anext(batches, None)
                except TimeoutError:
                    self._stopped = DEADLINE
                    return
                if batch is None or self.fatal is not None:
                    return
                # The place in the sequence, which for a snapshot is not its time.
                self._last = batch[-1][0]
                yield self._counted([record for _, record in batch])

    def _counted(self, batch: list[Record]) -> list[Record]:
        exchange = self.query.request.exchange
        for name, count in Counter([record.type for record in batch]).items():
            RECORDS.labels(exchange, name).inc(count)
        unreadable = sum(walker.unreadable for walker in self.walkers)
        UNREADABLE.labels(exchange).inc(unreadable - self._unreadable_counted)
        self._unreadable_counted = unreadable
        for record in batch:
            self.totals.add(record)
            if self.verifier is not None:
                self.verifier.add(record)
        return batch

    @property
    def fatal(self) -> SourceFailed | None:
        """A failure after which nothing of this account can be read."""
        failures = (walker.failure for walker in self.walkers)
        return next((failure for failure in failures if failure and failure.fatal), None)

    @property
    def came_to_ms(self) -> int:
        """The time down to which everything has been read and passed on."""
        walking = [w.came_to for w in self.walkers if not w.exhausted and w.failure is None]
        came_ms = -min(walking).negative_ms if walking else self.query.from_ms
        return min(max(came_ms, self.query.from_ms), self.query.to_ms)

    @property
    def waiting_s(self) -> float:
        """How long the exchange's limits let nothing be asked; 0 while anything is asked."""
        return self._adapter.waiting_s

    def nothing_but_failure(self) -> SourceFailed | None:
        """The failure to answer with: the account as a whole, or every source without a record."""
        if self.fatal is not None:
            return self.fatal
        failures = [walker.failure for walker in self.walkers if walker.failure]
        # A source that had nothing to ask did not succeed either.
        asked = [walker for walker in self.walkers if walker.pages or walker.failure]
        if failures and len(failures) == len(asked) and not self.totals.count:
            return failures[0]
        if self.cut_off and not self.totals.count and not self._came_further():
            return self._reader.trouble or SourceFailed(
                FailureReason.UNREACHABLE,
                f"{self.display} gave nothing within the time of one answer.",
                retryable=True,
            )
        return None

    @property
    def cut_off(self) -> bool:
        """Whether the deadline ended this answer."""
        return self._stopped == DEADLINE

    def _came_further(self) -> bool:
        """Whether a page that begins where this one ended would begin further on."""
        return any(
            part.walker is not None
            and part.walker.failure is None
            and self._place(part) > self._begun_at(part.source.name)
            for part in self._parts
        )

    def raise_if_nothing(self) -> None:
        """Raise if there is nothing to show but failure.

        Raises:
            ExchangeFailed: See `nothing_but_failure`.
        """
        failure = self.nothing_but_failure()
        if failure is not None:
            raise exchange_failed(failure)

    def coverage(self) -> list[Coverage]:
        """How much of the range the answer holds, by type."""
        return coverage_of(
            self.query,
            self._parts,
            last=self._last,
            stopped=self._stopped,
            top_ms=self._top_ms,
        )

    def errors(self) -> list[ErrorEntry]:
        """What went wrong, by type."""
        trouble = self._reader.trouble if self.cut_off else None
        return errors_of(self._parts, cut_off=self.cut_off, trouble=trouble)

    def verification(self) -> Verification | None:
        """What was proven, where it was asked for."""
        if self.verifier is None:
            return None
        return self.verifier.report(
            cut=not all(walker.exhausted for walker in self.walkers),
            covered={entry.transaction_type: entry.from_ms for entry in self.coverage()},
        )

    def state(self, key_id: str) -> CursorState | None:
        """Where the next page begins; None when every source has come to its end."""
        places = {part.source.name: self._place(part) for part in self._parts}
        if all(place in (DONE, GIVEN_UP) for place in places.values()):
            return None
        before = self.query.state
        last = max(self._last, as_key(before.after)) if before else self._last
        after = (last.negative_ms, last.record_id)
        return CursorState(
            digest=self.query.digest,
            key=key_digest(key_id),
            account=self._account,
            now_ms=self.query.now_ms,
            from_ms=self.query.from_ms,
            to_ms=self.query.to_ms,
            after=after,
            others={name: place for name, place in places.items() if place != after},
            bookmarks=self._bookmarks(places),
            kept={p.source.name: p.kept_from_ms for p in self._parts if p.kept_from_ms is not None},
            unplaced=self._once.unplaced,
            flaws={p.source.name: p.flaw for p in self._parts if p.flaw is not None},
        )

    def _bookmarks(self, places: dict[str, Place]) -> dict[str, Bookmark]:
        """Where unfinished sources go on by the exchange's own cursor."""
        found: dict[str, Bookmark] = {}
        for part in self._parts:
            place = places[part.source.name]
            if part.walker is None or place in (DONE, GIVEN_UP):
                continue
            bookmark = part.walker.bookmark(as_key(place))
            if bookmark is not None:
                found[part.source.name] = bookmark
        return found

    def _place(self, part: SourcePart) -> Place:
        """How far a source has come: everything before its place has been delivered."""
        walker = part.walker
        if walker is None:
            return GIVEN_UP if part.given_up else DONE
        if walker.exhausted:
            return DONE
        if walker.failure is not None and not walker.failure.retryable:
            return GIVEN_UP
        if walker.failure or not part.source.window_ms:  # a snapshot goes by its own ids
            came = walker.delivered
        else:
            came = max(self._last, walker.came_to)
        return came.negative_ms, came.record_id

    async def close(self) -> None:
        """Stop all asking."""
        await asyncio.gather(*(walker.close() for walker in self.walkers))


def exchange_failed(failure: SourceFailed) -> ExchangeFailed:
    """A failure of a source as the error of a request."""
    details = {"reason": failure.reason.value, "exchange_code": failure.exchange_code}
    return ExchangeFailed(failure.message, details=details, retry_after_s=failure.retry_after_s)
