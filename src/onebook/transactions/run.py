"""Executes one query: a walker per source; merges, counts, verifies and describes the records.

A run owns every task it starts; closing it stops all requests. Field names of the answer follow the
documented interface; our own fields come after them.

Over 800 lines, because the walkers of a run and the description of its answer (coverage, errors,
summary) share one state.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, Protocol

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from onebook.clock import Clock
from onebook.errors import ExchangeFailed
from onebook.transactions.accounts import NamingReader
from onebook.transactions.adapter import (
    BranchingReader,
    CollectedPart,
    Coverage,
    ErrorEntry,
    EventType,
    FailureReason,
    JoiningReader,
    Page,
    PageReader,
    PendingExport,
    Source,
    SourceFailed,
    Window,
)
from onebook.transactions.collected import (
    ALWAYS_MS,
    NOT_COLLECTED,
    OLDER_NOT_KEPT,
    WALK,
    StoredAccount,
    StoredRanges,
    from_store,
    list_name,
    part_name,
)
from onebook.transactions.cursor import DONE, GIVEN_UP, CursorState, Place, as_key, key_digest
from onebook.transactions.exchange import AccountSession, ExchangeAdapter
from onebook.transactions.merge import HELD_MAX, Demand, Once, Outlet, Range, merged
from onebook.transactions.metrics import RECORDS, UNKNOWN, UNREADABLE
from onebook.transactions.reconciliation import ComparingReader, HoldingsReading, Verification
from onebook.transactions.record import FIRST, Record, RecordKey
from onebook.transactions.request import Query, TransactionsRequest, expand, left_out
from onebook.transactions.verify import Verifier
from onebook.transactions.walk import Walker
from onebook.transactions.windows import Bookmark, fitted

LIMIT_REACHED: Final = "limit_reached"
DEADLINE: Final = "deadline"
FAILED_BEFORE: Final = "failed_before"
UNREADABLE_RECORD: Final = "unreadable_record"
OUT_OF_ORDER: Final = "out_of_order"
HIDDEN: Final = "hidden_from_key"  # the key can only see a part of the range
NOT_OPENED: Final = FailureReason.NOT_OPENED.value  # nothing is missing
# Reasons why rows of an exchange's exports are missing now; see `Page.lack`.
NOT_EXPORTED: Final = (
    FailureReason.EXPORT_PENDING.value,
    FailureReason.EXPORT_FAILED.value,
    FailureReason.EXPORTS_FULL.value,
)
# Reasons that this page or an earlier one is incomplete.
LACKING: Final = (FAILED_BEFORE, UNREADABLE_RECORD, *NOT_EXPORTED)

# Types that have the same name on every exchange.
SINGULAR: Final = {
    "deposits": "deposit",
    "withdrawals": "withdrawal",
    "transfers": "transfer",
    "holdings": "balance",
    "conversions": "conversion",
    "fees": "fee",
}
LONG_ANSWER: Final = 5_000  # above this number of records, reading ahead pays off


class AnyQuery(Protocol):
    """The fields of a query, for one account or several, that its answer repeats."""

    @property
    def request(self) -> TransactionsRequest:
        """The request."""
        ...

    @property
    def requested_types(self) -> tuple[str, ...]:
        """The requested types, or the default."""
        ...

    @property
    def limit(self) -> int | None:
        """Records of the answer; None for all."""
        ...

    @property
    def from_ms(self) -> int:
        """Oldest record time, inclusive."""
        ...

    @property
    def to_ms(self) -> int:
        """Newest record time, inclusive."""
        ...


class Totals:
    """Counts of the records of an answer.

    Args:
        singular: The documented singular names of the exchange's own types.
    """

    def __init__(self, singular: Mapping[str, str]) -> None:
        self._singular = singular
        self.count = 0
        self.by_type: Counter[str] = Counter()
        self.unknown = 0  # records of kind `other`
        self.oldest_ms: int | None = None
        self.newest_ms: int | None = None

    def add(self, record: Record) -> None:
        """Count one record."""
        self.count += 1
        self.by_type[singular_of(record, self._singular)] += 1
        self.unknown += is_unknown(record)
        self.cover(record.timestamp)

    def cover(self, at_ms: int | None) -> None:
        """Extend the range to include a time, if given."""
        if at_ms is None:
            return
        self.oldest_ms = at_ms if self.oldest_ms is None else min(self.oldest_ms, at_ms)
        self.newest_ms = at_ms if self.newest_ms is None else max(self.newest_ms, at_ms)

    def summary(self, query: "AnyQuery") -> dict[str, Any]:
        """The documented `summary`; for an empty answer it shows the requested range.

        If there are records of kind `other`, it also contains their number.
        """
        start = query.from_ms if self.oldest_ms is None else self.oldest_ms
        end = query.to_ms if self.newest_ms is None else self.newest_ms
        unknown = {"unknown_kinds": self.unknown} if self.unknown else {}
        return {
            "total_count": self.count,
            "by_type": dict(sorted(self.by_type.items())),
            "date_range": {"start": start, "end": end},
        } | unknown


class SourcePart(Struct, frozen=True):
    """How far one source has been read.

    Args:
        walker: Its walker; None for a source that earlier pages finished or gave up.
        lost_before_ms: Time before which the exchange lacks records, as found on earlier pages.
        flawed_before: Code of the reason why the records of earlier pages are incomplete.
        stored: The stored part of its query, if the answer uses it.
        boundary_ms: The time before which the store is read instead of the exchange; None: the
            store only adds what the exchange no longer keeps.
    """

    source: Source
    walker: Walker | None
    given_up: bool = False
    lost_before_ms: int | None = None
    flawed_before: str | None = None
    stored: StoredRanges | None = None
    boundary_ms: int | None = None

    @property
    def from_store(self) -> bool:
        """Whether it is read from the store."""
        return self.source.walk.startswith(WALK)

    @property
    def adds(self) -> bool:
        """Whether the store adds what the exchange no longer keeps."""
        return self.from_store and self.stored is not None and self.boundary_ms is None

    @property
    def kept_from_ms(self) -> int | None:
        """Time from which the exchange still has all records; None: it has the entire range."""
        return self.lost_before_ms if self.walker is None else self.walker.kept_from_ms

    @property
    def flaw(self) -> str | None:
        """The code of why the delivered records are incomplete; None without evidence that they
        are."""
        if self.walker is not None and self.walker.disordered:
            return OUT_OF_ORDER
        if self.walker is not None and self.walker.hidden:
            return HIDDEN
        if self.walker is not None and self.walker.lack is not None:
            return self.walker.lack.reason.value
        if self.walker is not None and self.walker.unreadable:
            return UNREADABLE_RECORD
        return self.flawed_before


class Merging:
    """State shared by all runs of an answer, whose records form one sequence.

    Args:
        limit: Records of the answer; None for all.
        unplaced: See `Once`.
    """

    def __init__(self, limit: int | None, unplaced: Iterable[str] = ()) -> None:
        self.progress = asyncio.Event()
        self.demand = Demand(limit)
        self.once = Once(unplaced)


async def emitted(
    runs: Sequence["Run"],
    merging: Merging,
    *,
    limit: int | None,
    deadline_s: float,
    clock: Clock,
) -> AsyncGenerator[list[Record]]:
    """The records of several runs in order, in batches, to the limit, the end or the deadline."""
    until_s = clock.monotonic() + deadline_s
    try:
        async with asyncio.timeout(deadline_s):
            for run in runs:
                await run.open()
    except TimeoutError:
        for run in runs:
            run.stop()
        return
    outlets = [outlet for run in runs for outlet in run.outlets]
    async with aclosing(
        merged(outlets, merging.progress, limit=limit, demand=merging.demand, once=merging.once)
    ) as batches:
        while True:
            try:
                async with asyncio.timeout(until_s - clock.monotonic()):
                    batch = await anext(batches, None)
            except TimeoutError:
                for run in runs:
                    run.stop()
                return
            if batch is None or all(run.fatal is not None for run in runs):
                return
            last = batch[-1][0]
            if len(runs) == 1:
                yield runs[0].count_delivered([record for _, record in batch], last)
                continue
            of: dict[str, list[Record]] = {}
            for _, record in batch:
                assert record.account is not None
                of.setdefault(str(record.account.name), []).append(record)
            for run in runs:
                run.count_delivered(of.get(str(run.query.account), []), last)
            yield [record for _, record in batch]


class FailingReader:
    """Reader of an unreadable source: every page fails."""

    def __init__(self, failure: SourceFailed) -> None:
        self._failure = failure

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        """Fail."""
        raise self._failure


class Run:
    """One query while it is executed.

    Args:
        account_id: Identifies the exchange credentials in cursors.
        merging: State shared by the runs of an answer for several accounts; their records then name
            the accounts.
        stored: The collected records of the account, if the answer uses them.
        readings: Our own readings of the holdings, for the verification.
        tap: Wraps the reader to observe its reads; repeated reads are not counted.
    """

    def __init__(
        self,
        query: Query,
        adapter: ExchangeAdapter,
        account: AccountSession,
        clock: Clock,
        *,
        account_id: str,
        merging: "Merging | None" = None,
        stored: StoredAccount | None = None,
        readings: Sequence[HoldingsReading] = (),
        tap: Callable[[PageReader], PageReader] | None = None,
    ) -> None:
        self.query = query
        self.totals = Totals(adapter.entry.singular)
        self.verifier: Verifier | None = None
        self._adapter = adapter
        self._account_id = account_id
        self._clock = clock
        self._merging = merging or Merging(query.limit, query.state.unplaced if query.state else ())
        self._counting = tap is None
        self._last = FIRST
        self._unreadable_counted = 0
        self._stopped = LIMIT_REACHED
        self._limited = False  # at the deadline, by the exchange's rate limits
        self._account = account
        self._reader: PageReader = account.reader
        if query.account.label or merging is not None:
            self._reader = NamingReader(account.reader, query.account)
        self._stored = stored
        self._stored_reader: PageReader | None = stored
        if stored is not None and merging is not None and not query.account.label:
            self._stored_reader = NamingReader(stored, query.account)
        if tap is not None:
            self._reader = tap(self._reader)
        self._outlets: dict[str, Outlet] = {}
        sources = self._readable()
        views = {each.type for each in adapter.sources.values() if each.walk}
        requested = {adapter.sources[name].type for name in query.sources}
        self._dropped = frozenset(views - requested)
        self._branched = [each for each in sources if each.branched]
        self._parts: list[SourcePart] = []
        self._add([each for each in sources if not each.branched])
        self._add_stored(sources)
        if query.request.verify:
            asked = {source.type for source in sources}
            if stored is not None and stored.only:
                asked = requested
            self.verifier = Verifier(
                adapter.entry,
                below_ms=self._top_ms if query.state else query.to_ms + 1,
                asked=asked,
                moving=self._moving(),
                orders=adapter.entry.bookkeeping.trades in query.requested_types,
                readings=readings,
            )

    @property
    def accounts(self) -> list[str] | None:
        """None: the answer is for one account."""
        return None

    @property
    def wallet(self) -> str:
        """The wallet name of all records in files for tax tools."""
        return self.display

    @property
    def display(self) -> str:
        """The name of the exchange and the account for people."""
        display, label = self._adapter.entry.display, self.query.account.label
        return f"{display} ({label})" if label else display

    @property
    def left_out(self) -> tuple[str, ...]:
        """Types that move money but were not requested."""
        return left_out(self.query.sources, self._adapter)

    @property
    def walkers(self) -> list[Walker]:
        """The walkers of this run; several sources can share one."""
        found = (part.walker for part in self._parts)
        return list(dict.fromkeys(walker for walker in found if walker is not None))

    @property
    def scope(self) -> str:
        """Digest of the queries to read, including branches that were found."""
        names = sorted(part.source.name for part in self._parts)
        return hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest()

    @property
    def _top_ms(self) -> int:
        """Newest time of this answer: the end of the range, or the end of the previous page."""
        state = self.query.state
        return self.query.to_ms if state is None else min(self.query.to_ms, -state.after[0])

    def _readable(self) -> list[Source]:
        """The sources to read, without those whose optional key is not set.

        Such a source fails if its type was requested by name and no other source serves that type.
        """
        sources = {name: self._adapter.sources[name] for name in self.query.sources}
        if self._stored is not None and self._stored.only:
            return []
        served = {each.type for each in sources.values() if self._has_key(each)}
        return [
            each
            for each in sources.values()
            if self._has_key(each)
            or (self.query.request.transaction_types and each.type not in served)
        ]

    def _moving(self) -> list[str]:
        """The types whose records add up to every change of the holdings."""
        adapter = self._adapter
        sources = [adapter.sources[name] for name in expand(adapter.entry.summing, adapter)]
        apart = (EventType.LEDGER, EventType.HOLDINGS)
        types = {each.type for each in sources if self._has_key(each)}
        return sorted(types.difference(apart))

    def _has_key(self, source: Source) -> bool:
        return not source.needs or self._account.has(source.needs)

    def _add_stored(self, readable: list[Source]) -> None:
        """Start reading the stored part of the requested sources."""
        stored = self._stored
        if stored is None:
            return
        sources = [self._adapter.sources[name] for name in self.query.sources]
        found = [each for each in sources if each.window_ms and stored.of(each) is not None]
        if stored.only:
            found += [each for each in sources if not each.window_ms]
            types = {each.type for each in found}
            lacking = [each for each in sources if each not in found and each.type not in types]
            self._add([from_store(each) for each in lacking], _not_collected())
        else:  # the account has lost a key, but the records read with it are still stored
            names = {each.name for each in readable}
            found = [each for each in found if each.name in names or not self._has_key(each)]
        self._add([from_store(each) for each in found])

    def _add(self, sources: list[Source], failure: SourceFailed | None = None) -> None:
        """Start reading sources; those of one walk are read once."""
        views: dict[str, list[Source]] = {}
        for source in sources:
            views.setdefault(source.query, []).append(source)
        for found in views.values():
            self._parts += self._begun(found, failure)

    async def _add_branches(self) -> None:
        """Find the branches of branched sources, once for each walk, and start reading them."""
        reader = self._reader
        while self._branched:
            source = self._branched[0]
            assert isinstance(reader, BranchingReader)
            names: list[str] = []
            failure: SourceFailed | None = None
            if self._begun_at(source) != GIVEN_UP:
                try:
                    names = await reader.branches(source)
                except SourceFailed as failed:
                    failure = failed
            views = [each for each in self._branched if each.query == source.query]
            self._branched = [each for each in self._branched if each.query != source.query]
            if names:
                self._add([branch_of(view, name) for name in names for view in views])
            else:
                self._add(views, failure or _no_branches())

    def _begun(self, views: list[Source], failure: SourceFailed | None) -> list[SourcePart]:
        """Start a walker for one query; returns the parts for the sources that are views of it."""
        types = tuple(each.type for each in views)
        source = replace(fitted(views[0], self.query.limit), views=types)
        state = self.query.state
        place = self._begun_at(source)
        lost_before_ms = state.kept.get(source.query) if state else None
        flawed_before = state.flaws.get(source.query) if state else None
        stored, boundary_ms = self._in_store(source)
        walker = None
        if place not in (DONE, GIVEN_UP):
            reader = self._reader
            if not self._has_key(source):
                failure = self._without_key()
            if source.walk.startswith(WALK):
                assert self._stored_reader is not None
                reader = self._stored_reader
            if failure is not None:
                reader = FailingReader(failure)
            wanted = self._range(source, boundary_ms, as_key(place))
            added = stored is not None and boundary_ms is None
            limit = self.query.limit
            walker = Walker(
                source,
                reader,
                wanted,
                now_ms=self._clock.wall_ms,
                progress=self._merging.progress,
                outlet=self._outlet(source, wanted, added=added),
                demand=self._merging.demand,
                long=limit is None or limit >= LONG_ANSWER,
                lost_before_ms=lost_before_ms,
                begin=state.bookmarks.get(source.query) if state else None,
            )
        return [
            SourcePart(
                each,
                walker,
                given_up=place == GIVEN_UP,
                lost_before_ms=lost_before_ms,
                flawed_before=flawed_before,
                stored=self._in_store(each)[0],
                boundary_ms=boundary_ms,
            )
            for each in views
        ]

    def _in_store(self, source: Source) -> tuple[StoredRanges | None, int | None]:
        """The stored part of a source, and the time from which the exchange is read."""
        if self._stored is None or not source.window_ms:
            return None, None
        exchange = self._unbranched(source)
        found = self._stored.of(exchange)
        if found is None:
            return None, None
        name, state = list_name(exchange), self.query.state
        if state is not None and not self._stored.only:
            # Keep the boundary of the first page, even if more was collected since.
            return found.of(exchange), state.boundaries.get(name)
        every = self._adapter.sources.values()
        of_list = [each for each in every if each.window_ms and list_name(each) == name]
        now_ms = self._clock.wall_ms()
        boundary_ms = self._stored.boundary_ms(of_list, self.query.from_ms, now_ms)
        return found.of(exchange), boundary_ms

    def _unbranched(self, source: Source) -> Source:
        """The exchange's source of a branch, or of a source that is read from the store."""
        return self._adapter.sources[source.name.partition("/")[0]]

    def _range(self, source: Source, boundary_ms: int | None, after: RecordKey) -> Range:
        """The ranges of a source to read from the exchange and from the store."""
        from_ms, to_ms = self.query.from_ms, self.query.to_ms
        if boundary_ms is not None and source.walk.startswith(WALK):
            to_ms = min(to_ms, boundary_ms - 1)
        elif boundary_ms is not None:
            from_ms = max(from_ms, boundary_ms)
        return Range(from_ms, to_ms, after=after)

    def _outlet(self, source: Source, wanted: Range, *, added: bool) -> Outlet:
        """The outlet of a source: shared with the sources with which it is joined.

        Args:
            added: Whether the store adds to its list.
        """
        name = source.joint or source.query
        if (source.join_ms or added) and not source.joint:  # one for all branches of a source
            name = name.removesuffix(_suffix(source.branch))
        if name not in self._outlets:
            reader, join = self._reader, None
            if isinstance(reader, JoiningReader):
                join = partial(reader.join, source)
            self._outlets[name] = Outlet(
                wanted,
                self._merging.progress,
                join=join,
                join_ms=source.join_ms,
                dropped=self._dropped if source.walk else frozenset(),
                held_max=min(HELD_MAX, self.query.limit or HELD_MAX),
            )
            name_of_list = name.removeprefix(WALK)
            listed, stored = self._outlets.get(name_of_list), self._outlets.get(WALK + name_of_list)
            if added and listed is not None and stored is not None:
                stored.add_to(listed)
        return self._outlets[name]

    def _without_key(self) -> SourceFailed:
        return SourceFailed(
            FailureReason.NO_CREDENTIALS,
            f"The operator has not set the key that {self.display} requires for this type.",
        )

    def _begun_at(self, source: Source) -> Place:
        """Position at which this page of a source begins."""
        state, name = self.query.state, source.query
        if state is None:
            return FIRST.negative_ms, FIRST.record_id
        if source.branch and name not in state.others:  # a branch that earlier pages did not find
            name = name.removesuffix(_suffix(source.branch))
        return state.place(name)

    async def records(self, deadline_s: float) -> AsyncGenerator[list[Record]]:
        """The records in order, in batches, until the limit, the end or the deadline."""
        limit = self.query.limit
        async with aclosing(
            emitted([self], self._merging, limit=limit, deadline_s=deadline_s, clock=self._clock)
        ) as batches:
            async for batch in batches:
                yield batch

    async def open(self) -> None:
        """Start the walkers that need a request first."""
        if self._branched:
            await self._add_branches()

    @property
    def outlets(self) -> list[Outlet]:
        """The outlets of this run's records, once the run is open."""
        return list(self._outlets.values())

    def count_delivered(self, batch: list[Record], last: RecordKey) -> list[Record]:
        """Count delivered records; all records before a position have been delivered."""
        # The place in the sequence, which for a snapshot is not its time.
        self._last = last
        return self._counted(batch)

    def stop(self) -> None:
        """Stop at the deadline."""
        self._stopped = DEADLINE
        self._limited = self._account.limited
        branched, self._branched = self._branched, []
        self._add(branched, self._rate_limited() if self._limited else _not_found_yet())

    def _counted(self, batch: list[Record]) -> list[Record]:
        if not self._counting:
            return batch
        exchange = self.query.account.exchange
        for name, count in Counter([record.type for record in batch]).items():
            RECORDS.labels(exchange, name).inc(count)
        unreadable = sum(walker.unreadable for walker in self.walkers)
        UNREADABLE.labels(exchange).inc(unreadable - self._unreadable_counted)
        self._unreadable_counted = unreadable
        unknown = self.totals.unknown
        for record in batch:
            self.totals.add(record)
            if self.verifier is not None:
                self.verifier.add(record)
        UNKNOWN.labels(exchange).inc(self.totals.unknown - unknown)
        return batch

    @property
    def fatal(self) -> SourceFailed | None:
        """The failure that makes the entire account unreadable; else None."""
        failures = (walker.failure for walker in self.walkers)
        return next((failure for failure in failures if failure and failure.fatal), None)

    @property
    def reached_ms(self) -> int:
        """Time down to which all records have been delivered."""
        walking = [w.reached for w in self.walkers if not w.exhausted and w.failure is None]
        came_ms = -min(walking).negative_ms if walking else self.query.from_ms
        return min(max(came_ms, self.query.from_ms), self.query.to_ms)

    @property
    def waiting_s(self) -> float:
        """Seconds until the next request is allowed; 0 while a request is in flight."""
        return self._adapter.waiting_s

    @property
    def exports(self) -> list[PendingExport]:
        """Unfinished exports that this answer waits for, or omits."""
        return self._account.pending_exports

    def nothing_but_failure(self) -> SourceFailed | None:
        """The failure of the answer if nothing could be read; see `raise_if_nothing`."""
        if self.fatal is not None:
            return self.fatal
        failures = [walker.failure for walker in self.walkers if walker.failure]
        # A source with nothing to request did not succeed either.
        asked = [each for each in self.walkers if each.pages or each.failure or each.absent]
        if self._limited or self.uncollected:  # the exchange did not fail
            return None
        if failures and len(failures) == len(asked) and not self.totals.count:
            return failures[0]
        if self.cut_off and not self.totals.count and not self._advanced():
            return self._account.trouble or SourceFailed(
                FailureReason.UNREACHABLE,
                f"{self.display} did not respond before the deadline.",
                retryable=True,
            )
        return None

    @property
    def uncollected(self) -> bool:
        """Whether the answer is empty because none of its types was ever collected."""
        failures = [walker.failure for walker in self.walkers]
        return bool(failures) and all(
            each is not None and each.reason is FailureReason.NOT_COLLECTED for each in failures
        )

    @property
    def cut_off(self) -> bool:
        """Whether the deadline ended this answer."""
        return self._stopped == DEADLINE

    def _advanced(self) -> bool:
        """Whether the next page would begin at another position than this one."""
        return any(
            part.walker is not None
            and part.walker.failure is None
            and self._place(part) > self._begun_at(part.source)
            for part in self._parts
        )

    @property
    def limited_by(self) -> str:
        """The exchange whose rate limit allowed no record before the deadline; "" otherwise."""
        return self._adapter.entry.display if self._limited and not self.totals.count else ""

    def _rate_limited(self) -> SourceFailed:
        return SourceFailed(
            FailureReason.RATE_LIMITED,
            f"{self._adapter.entry.display}'s rate limit delays the requests.",
            retryable=True,
        )

    def raise_if_nothing(self) -> None:
        """Raise if nothing could be read.

        Raises:
            ExchangeFailed: See `nothing_but_failure`.
        """
        failure = self.nothing_but_failure()
        if failure is not None:
            raise exchange_failed(failure)

    def coverage(self) -> list[Coverage]:
        """Coverage of the range, by type."""
        entries = coverage_of(
            self.query,
            self._parts,
            last=self._last,
            stopped=self._stopped,
            top_ms=self._top_ms,
        )
        omitted = self._adapter.entry.omitted
        return [
            replace(entry, omitted=omitted.get(entry.transaction_type, UNSET)) for entry in entries
        ]

    def coverage_of_parts(self) -> dict[str, Coverage]:
        """Coverage of the range by query; see `part_name`."""
        last, stopped, top_ms = self._last, self._stopped, self._top_ms
        return _worst(
            (
                part_name(self._unbranched(part.source)),
                _entry(self.query, part, last=last, stopped=stopped, top_ms=top_ms),
            )
            for part in self._parts
        )

    def errors(self) -> list[ErrorEntry]:
        """Errors, by type."""
        trouble = self._account.trouble if self.cut_off else None
        if self._limited:
            trouble = self._rate_limited()
        lacking = {(each.transaction_type, each.reason) for each in self.coverage()}
        return errors_of(self._parts, cut_off=self.cut_off, trouble=trouble, lacking=lacking)

    def verification(self) -> Verification | None:
        """The verification, if it was requested."""
        if self.verifier is None:
            return None
        reader = self._account.reader
        return self.verifier.report(
            cut=not all(walker.exhausted for walker in self.walkers),
            covered={entry.transaction_type: entry.from_ms for entry in self.coverage()},
            compared=reader.compared if isinstance(reader, ComparingReader) else None,
        )

    def state(self, key_id: str, *, always: bool = False) -> CursorState | None:
        """State of the next page; None if every source has been read completely.

        Args:
            always: Return the state in any case, because other accounts of the answer continue.
        """
        places = {part.source.query: self._place(part) for part in self._parts}
        if not always and all(place in (DONE, GIVEN_UP) for place in places.values()):
            return None
        before = self.query.state
        last = max(self._last, as_key(before.after)) if before else self._last
        after = (last.negative_ms, last.record_id)
        return CursorState(
            digest=self.query.digest,
            key=key_digest(key_id),
            account=self._account_id,
            now_ms=self.query.now_ms,
            from_ms=self.query.from_ms,
            to_ms=self.query.to_ms,
            after=after,
            others={name: place for name, place in places.items() if place != after},
            bookmarks=self._bookmarks(places),
            kept={
                p.source.query: p.kept_from_ms for p in self._parts if p.kept_from_ms is not None
            },
            unplaced=self._merging.once.unplaced,
            flaws={p.source.query: p.flaw for p in self._parts if p.flaw is not None},
            boundaries={
                list_name(self._unbranched(p.source)): p.boundary_ms
                for p in self._parts
                if p.boundary_ms is not None and p.boundary_ms != ALWAYS_MS
            },
        )

    def _bookmarks(self, places: dict[str, Place]) -> dict[str, Bookmark]:
        """The exchange's cursors at which unfinished sources continue."""
        found: dict[str, Bookmark] = {}
        for part in self._parts:
            place = places[part.source.query]
            if part.walker is None or place in (DONE, GIVEN_UP):
                continue
            bookmark = part.walker.bookmark(as_key(place))
            if bookmark is not None:
                found[part.source.query] = bookmark
        return found

    def _place(self, part: SourcePart) -> Place:
        """Position of a source before which all records have been delivered."""
        walker = part.walker
        if walker is None:
            return GIVEN_UP if part.given_up else DONE
        if walker.exhausted:
            return DONE
        if walker.failure is not None and not walker.failure.retryable:
            return GIVEN_UP
        # A finished walker lacks what it shares with a failed one; a snapshot is resumed by ids.
        if walker.failure or walker.outlet.failure or not part.source.window_ms:
            came = walker.delivered
        else:
            came = max(self._last, walker.reached)
        return came.negative_ms, came.record_id

    async def close(self) -> None:
        """Stop all requests."""
        await asyncio.gather(*(walker.close() for walker in self.walkers))
        await self._account.close()


def branch_of(source: Source, name: str) -> Source:
    """The source of one branch of a source."""
    suffix = _suffix(name)
    walk = source.walk + suffix if source.walk else ""
    return replace(source, name=source.name + suffix, walk=walk, branch=name)


def _suffix(branch: str) -> str:
    """The suffix of a branch's name: short, because cursors contain it."""
    return "/" + hashlib.blake2b(branch.encode(), digest_size=6).hexdigest() if branch else ""


def _no_branches() -> SourceFailed:
    return SourceFailed(FailureReason.NOT_OPENED, "There is nothing to read.")


def _not_collected() -> SourceFailed:
    return SourceFailed(
        FailureReason.NOT_COLLECTED, "This account has no collected records of this type."
    )


def _not_found_yet() -> SourceFailed:
    return SourceFailed(
        FailureReason.UNREACHABLE, "The deadline passed before the first request.", retryable=True
    )


def exchange_failed(failure: SourceFailed) -> ExchangeFailed:
    """Convert a failure of a source to the error of a request."""
    details = {"reason": failure.reason.value, "exchange_code": failure.exchange_code}
    return ExchangeFailed(failure.message, details=details, retry_after_s=failure.retry_after_s)


def singular_of(record: Record, own: Mapping[str, str]) -> str:
    """The documented singular name of a record's type."""
    if record.kind == "order":
        return "order"
    return own.get(record.type) or SINGULAR.get(record.type, record.type)


def is_unknown(record: Record) -> bool:
    """Whether the exchange's type of an event is unknown; excludes unreadable rows."""
    return record.kind == "other" and "amount" not in record.incomplete


def message_of(
    count: int,
    types: int,
    *,
    accounts: int = 0,
    cut_off: bool = False,
    limited: str = "",
    uncollected: bool = False,
) -> str:
    """The documented sentence, or the reason why the answer is empty or ends early.

    Args:
        types: Number of different types.
        accounts: Number of accounts of an answer for several; 0: it is for one.
        limited: The exchange whose rate limit allowed no record before the deadline; "" otherwise.
        uncollected: Whether none of the types was ever collected.
    """
    if uncollected:
        return "Nothing has been collected yet for these transaction types"
    records = f"{count} transaction{'' if count == 1 else 's'}"
    kinds = f"{types} transaction type{'' if types == 1 else 's'}"
    if accounts:
        kinds += f" of {accounts} account{'' if accounts == 1 else 's'}"
    if limited:
        return f"{limited}'s rate limit delayed the answer beyond the deadline; use next_cursor"
    if cut_off:
        return f"Parsed {records} from {kinds} until the deadline; continue with next_cursor"
    return f"Successfully parsed {records} from {kinds}"


def filters_of(query: "AnyQuery") -> dict[str, Any]:
    """The documented echo of the request."""
    return {
        "start_time": query.from_ms if query.request.everything else query.request.start_time,
        "end_time": query.request.end_time,
        "transaction_types": list(query.requested_types),
        "limit": query.limit,
    }


def coverage_of(
    query: Query, parts: list[SourcePart], *, last: RecordKey, stopped: str, top_ms: int
) -> list[Coverage]:
    """One entry per type, from the worst of its sources."""
    entries = [
        _entry(query, part, last=last, stopped=stopped, top_ms=top_ms)
        for part in parts
        # Otherwise it is included in the entry of the exchange; see `_with_store`.
        if not part.adds or part.given_up or (part.walker and not part.walker.exhausted)
    ]
    return list(_worst((each.transaction_type, each) for each in entries).values())


def _worst(entries: Iterable[tuple[str, Coverage]]) -> dict[str, Coverage]:
    found: dict[str, Coverage] = {}
    for name, entry in entries:
        before = found.get(name)
        found[name] = _worse(before, entry) if before else entry
    return found


def _entry(
    query: Query, part: SourcePart, *, last: RecordKey, stopped: str, top_ms: int
) -> Coverage:
    source, walker = part.source, part.walker
    floor = None if walker is None or source.keeps_ms is None else walker.floor_ms
    reached: tuple[int | None, str | None] = (query.from_ms, None)
    if part.given_up:
        reached = (None, FAILED_BEFORE)
    elif walker is not None:
        reached = _reached(query, walker, last=last, stopped=stopped)
    elif part.kept_from_ms is not None:
        reached = (min(part.kept_from_ms, query.to_ms), OLDER_NOT_KEPT)
    from_ms, reason = reached
    collected: CollectedPart | UnsetType = UNSET
    if part.stored is not None:
        top_ms, from_ms, reason, collected = _with_store(query, part, (top_ms, from_ms, reason))
    if part.flaw == HIDDEN and reason in (None, OLDER_NOT_KEPT):
        reason = HIDDEN
    if part.flaw not in NOT_EXPORTED:
        reason = reason or part.flaw
    elif reason in (OLDER_NOT_KEPT, NOT_COLLECTED):  # unless the store has it
        reason = part.flaw
    if walker is not None and walker.hidden_after_ms is not None:
        top_ms = min(top_ms, walker.hidden_after_ms)
        from_ms = None if from_ms is None else min(from_ms, top_ms)
    complete = reason is None
    if complete and walker is not None and walker.absent:
        reason = NOT_OPENED
    return Coverage(source.type, from_ms, top_ms, complete, reason, floor, collected=collected)


def _with_store(
    query: Query, part: SourcePart, answered: tuple[int, int | None, str | None]
) -> tuple[int, int | None, str | None, CollectedPart | UnsetType]:
    """Add the stored part to what was answered: newest and oldest time, and reason."""
    top_ms, from_ms, reason = answered
    stored, newest_ms = part.stored, top_ms
    assert stored is not None
    if part.adds:
        return top_ms, from_ms, reason, UNSET
    if part.from_store and stored.to_ms is None:  # its list is stored, but not this query
        return top_ms, None, reason or NOT_COLLECTED, UNSET
    if part.from_store:
        assert part.boundary_ms is not None
        assert stored.to_ms is not None
        newest_ms = min(top_ms, part.boundary_ms - 1, stored.to_ms)
        if part.boundary_ms == ALWAYS_MS:
            top_ms = newest_ms
        if reason is not None:  # not read completely
            return top_ms, from_ms, reason, UNSET
    elif part.boundary_ms is None and reason == OLDER_NOT_KEPT and from_ms is not None:
        newest_ms = from_ms - 1
    else:
        return top_ms, from_ms, reason, UNSET
    if newest_ms < query.from_ms:  # the entire range is newer
        return top_ms, from_ms, reason, UNSET
    reach_ms, lacking = stored.reach(query.from_ms, newest_ms)
    if reach_ms is None:
        kept_from_ms = newest_ms + 1 if newest_ms < top_ms else None
        return top_ms, kept_from_ms, lacking, UNSET
    if lacking is None and top_ms < query.to_ms and part.boundary_ms == ALWAYS_MS:
        lacking = NOT_COLLECTED
    return top_ms, reach_ms, lacking, CollectedPart(reach_ms, newest_ms)


def _reached(
    query: Query, walker: Walker, *, last: RecordKey, stopped: str
) -> tuple[int | None, str | None]:
    """The oldest time from which all records were delivered, and why it is not the start."""
    if walker.failure is not None:
        return _time_of(walker.delivered, query), walker.failure.reason.value
    if not walker.exhausted:
        came = max(last, walker.reached if stopped == DEADLINE else walker.delivered)
        return _time_of(came, query), stopped
    if walker.kept_from_ms is not None:
        return min(walker.kept_from_ms, query.to_ms), OLDER_NOT_KEPT
    return query.from_ms, None


def _time_of(place: RecordKey, query: Query) -> int | None:
    """The oldest time with complete records at a position; None before the first record."""
    # A position without an id precedes the records of its time.
    at_ms = -place.negative_ms + (not place.record_id)
    return at_ms if at_ms <= query.to_ms else None


def _worse(left: Coverage, right: Coverage) -> Coverage:
    worse = _worse_of(left, right)
    if worse.collected is UNSET:
        # The other part of the type: the range that both cover, as far back as the answer reaches.
        other = left.collected if worse is right else right.collected
        return worse if other is UNSET else replace(worse, collected=other)
    return worse


def _worse_of(left: Coverage, right: Coverage) -> Coverage:
    if left.complete != right.complete:
        return right if left.complete else left
    if left.complete and left.reason != right.reason:
        return left if left.reason is None else right
    # No coverage ranks below any coverage.
    reach = [entry.from_ms if entry.from_ms is not None else 1 << 62 for entry in (left, right)]
    return left if reach[0] >= reach[1] else right


def errors_of(
    parts: list[SourcePart],
    *,
    cut_off: bool = False,
    trouble: SourceFailed | None = None,
    lacking: Collection[tuple[str, str | None]] = (),
) -> list[ErrorEntry]:
    """The errors, one per type and reason.

    Args:
        cut_off: Whether the deadline ended the answer.
        trouble: The failure of the request that was being retried at the deadline.
        lacking: Types with the reason of their coverage.
    """
    found: dict[tuple[str, str], ErrorEntry] = {}
    unreadable: Counter[str] = Counter()
    for part in parts:
        walker = part.walker
        if walker is None:
            continue
        kind = part.source.type
        if walker.failure is not None:
            found.setdefault((kind, walker.failure.reason), _failed(kind, walker.failure))
        if walker.lack is not None and (kind, walker.lack.reason) in lacking:
            found.setdefault((kind, walker.lack.reason), _failed(kind, walker.lack))
        elif cut_off and not walker.exhausted:
            found.setdefault((kind, DEADLINE), _unfinished(kind, trouble))
        unreadable[kind] += walker.unreadable
    return [*found.values(), *(_unreadable(*each) for each in unreadable.items() if each[1])]


def _failed(kind: str, failure: SourceFailed) -> ErrorEntry:
    return ErrorEntry(
        kind, failure.reason.value, failure.message, failure.exchange_code, failure.retryable
    )


def _unfinished(kind: str, trouble: SourceFailed | None) -> ErrorEntry:
    message = "The deadline passed before this type was read completely; continue with next_cursor."
    if trouble is None:
        return ErrorEntry(kind, DEADLINE, message, None, retryable=True)
    return ErrorEntry(
        kind, DEADLINE, f"{trouble.message} {message}", trouble.exchange_code, retryable=True
    )


def _unreadable(kind: str, count: int) -> ErrorEntry:
    return ErrorEntry(
        kind,
        UNREADABLE_RECORD,
        f"Unreadable rows, returned as kind `other`: {count}. Identical ones may be returned once.",
        None,
        retryable=False,
    )
