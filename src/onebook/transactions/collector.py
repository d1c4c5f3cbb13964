"""Reads accounts into the store, newest first, in batches that survive a kill.

Each list is read from its settled time to now, then its older gaps. Each batch is written in one
transaction with the range that it completes, so that nothing counts as covered unless it is stored.
A lease ensures that one process at a time collects an account. Accounts are collected concurrently,
because the first collection of one can take days by its exchange's limits; so are the lists of an
account, because many exchanges limit each list on its own.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.config import TransactionSettings
from onebook.errors import DatabaseUnavailable, OnebookError
from onebook.model import MINUTE_MS, SECOND_MS
from onebook.store.database import FactStore
from onebook.store.leases import Lease, LeaseStore
from onebook.store.rows import RangeRow
from onebook.transactions.accounts import AccountName, account_name
from onebook.transactions.adapter import Coverage, Environment, ErrorEntry, Source
from onebook.transactions.collected import (
    ALWAYS_MS,
    FORGET_ROWS,
    FORGOTTEN,
    OLDER_NOT_KEPT,
    Collection,
    Seal,
    StoredList,
    identity_fact,
    list_name,
    part_name,
    reading_of,
    rows_of,
)
from onebook.transactions.limits import Slots
from onebook.transactions.metrics import COLLECT_EVERY, COLLECTED, COLLECTED_AGE, COLLECTIONS
from onebook.transactions.record import Record
from onebook.transactions.request import Query, TransactionsRequest
from onebook.transactions.run import HIDDEN, OUT_OF_ORDER, UNREADABLE_RECORD, Run
from onebook.transactions.service import Transactions
from onebook.transactions.verify import SNAPSHOT_LAG_MS
from onebook.transactions.windows import floor_ms

COLLECTOR: Final = "collection"  # with the account, stands in for the id of an API key
# An exchange may show the newest events late; holdings are compared with a range that ends no
# earlier than this.
HEAD_MS: Final = SNAPSHOT_LAG_MS
LEASE_MS: Final = 3 * MINUTE_MS
RENEW_S: Final = 30.0
WRITE_ROWS: Final = 1_000  # per transaction
GAPS_MAX: Final = 100  # read per list in one collection
DEADLINE_S: Final = 24 * 3_600.0  # per gap
TICK_S: Final = 60.0  # maximum between two checks for due accounts
CONCURRENT_MAX: Final = 8  # accounts collected at the same time by one process
LISTS_AT_ONCE: Final = 4  # of an account
FLAWS: Final = (UNREADABLE_RECORD, OUT_OF_ORDER)
OK, BUSY, FAILED, INCOMPLETE = "ok", "busy", "failed", "incomplete"

log = logging.getLogger("onebook.transactions")


class CollectionBusy(OnebookError):
    """Another process is collecting this account."""

    def __init__(self, account: str) -> None:
        super().__init__(f"Another process is collecting {account}.")


class CollectionFull(OnebookError):
    """The account has reached its maximum number of records."""

    def __init__(self, account: str, records_max: int) -> None:
        super().__init__(
            f"{account} has {records_max:,} collected records, the limit set by "
            "transactions.collected_records_max; raise that setting."
        )


class AnotherAccount(OnebookError):
    """The credentials belong to another account than the records collected under their name."""

    def __init__(self, account: AccountName, environment: Environment) -> None:
        super().__init__(
            f"The credentials of {account} belong to another account than the records that were "
            "collected under this name. Store them under another name, such as "
            f"{account.exchange}:new, or delete the records with onebook transactions "
            f"forget {account}{environment.option}."
        )


class Step(Struct):
    """Progress of a collection.

    Args:
        name: The list that was read last.
        share: The part of the time ranges of all lists that was read, 0 to 1.
        records: Records read.
        new: Records that were not stored before.
        reached_ms: The time down to which that list was read; None before its first records.
    """

    account: str
    name: str = ""
    share: float = 0.0
    records: int = 0
    new: int = 0
    reached_ms: int | None = None


class Collected(Struct, frozen=True):
    """The result of a collection of one account.

    Args:
        records: Records read.
        new: Records that were not stored before.
        errors: Types that could not be read.
        gaps: Lists that are not stored as far back as the exchange keeps them.
        refused: Whether reading ended early because the exchange refuses the whole account. It then
            does not count as collected.
    """

    account: str
    environment: Environment
    records: int
    new: int
    errors: tuple[ErrorEntry, ...]
    gaps: tuple[str, ...]
    refused: bool = False

    @property
    def complete(self) -> bool:
        """Whether everything that the exchange keeps is stored."""
        return not self.errors and not self.gaps


class Forgotten(NamedTuple):
    """The numbers of deleted records and readings of an account."""

    records: int
    readings: int


class CollectedAccount(Struct, frozen=True):
    """An account of an exchange in one of its environments."""

    name: AccountName
    environment: Environment

    @classmethod
    def of(cls, text: str, environment: Environment = Environment.MAINNET) -> "CollectedAccount":
        """Read an account's name, such as `kraken:treasury`."""
        return cls(account_name(text), environment)

    @property
    def place(self) -> tuple[AccountName, Environment]:
        """The name and the environment."""
        return self.name, self.environment

    @property
    def fact(self) -> str:
        """The name of the fact that stores the time of its last collection."""
        return f"collected_at_ms/{self.environment.value}/{self.name}"

    @property
    def problem_fact(self) -> str:
        """The name of the fact that says why the last collection failed; "" if it did not."""
        return f"collected_problem/{self.environment.value}/{self.name}"


class Collector:
    """Collects accounts.

    Args:
        service: Reads the exchanges and owns the collection.
        facts: Stores when an account was collected last.
    """

    def __init__(
        self,
        service: Transactions,
        facts: FactStore,
        *,
        settings: TransactionSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        assert service.collection is not None
        self._service = service
        self._collection = service.collection
        self._leases = LeaseStore(self._collection.store.database)
        self._facts = facts
        self._settings = settings or TransactionSettings()
        self._clock = clock
        self._holder = secrets.token_hex(8)
        # Half of what the node runs, so that clients are answered meanwhile
        self._queries = Slots(max(1, self._settings.runs_max // 2))
        self._collected_ms: dict[CollectedAccount, int] = {}
        self._logged: dict[str, str] = {}  # why an account was not collected completely, by name

    async def accounts(self) -> list[CollectedAccount]:
        """The accounts with credentials."""
        return [CollectedAccount(*each) for each in await self._service.accounts()]

    async def run(self) -> None:
        """Collect every account whenever it is due, until cancelled.

        At most `CONCURRENT_MAX` are collected at once.
        """
        every_s = self._settings.collect_every
        COLLECT_EVERY.set(every_s)
        running: dict[CollectedAccount, asyncio.Task[None]] = {}
        room = asyncio.Semaphore(CONCURRENT_MAX)
        try:
            while True:
                running = {account: task for account, task in running.items() if not task.done()}
                for account in await self._due(every_s):
                    if account not in running:
                        running[account] = asyncio.create_task(
                            self._collect_quietly(account, room), name=f"collect {account.name}"
                        )
                await self._clock.sleep(min(TICK_S, every_s))
        finally:
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)

    async def _due(self, every_s: float) -> list[CollectedAccount]:
        """The accounts to collect, the one that has waited longest first."""
        try:
            accounts, found = await self.accounts(), []
            for account in accounts:
                last = await self._facts.get(account.fact)
                self._note(account, last)
                if last is None or self._clock.wall_ms() - int(last) >= every_s * SECOND_MS:
                    found.append(account)
        except DatabaseUnavailable:  # logged by the store
            return []
        for gone in self._collected_ms.keys() - set(accounts):
            del self._collected_ms[gone]
        return sorted(found, key=lambda account: self._collected_ms[account])

    def _note(self, account: CollectedAccount, last: str | None) -> None:
        """Show the age of a collection; of an account without one, since it is known."""
        if last is not None:
            self._collected_ms[account] = int(last)
        else:
            self._collected_ms.setdefault(account, self._clock.wall_ms())
        exchange = account.name.exchange
        COLLECTED_AGE.labels(exchange).set_function(partial(self._age_s, exchange))

    def _age_s(self, exchange: str) -> float:
        """Seconds since the account of an exchange that waits longest was collected."""
        now_ms = self._clock.wall_ms()
        ages = (
            now_ms - at_ms
            for account, at_ms in self._collected_ms.items()
            if account.name.exchange == exchange
        )
        return max([0, *ages]) / SECOND_MS

    async def _collect_quietly(self, account: CollectedAccount, room: asyncio.Semaphore) -> None:
        name = f"{account.name} ({account.environment.value})"
        try:
            async with room:
                done = await self.collect(account)
        except (CollectionBusy, DatabaseUnavailable):
            return
        except OnebookError as error:
            self._log_once(name, "failed", error.message)
            return
        except Exception:
            log.exception("Collecting %s failed.", name)
            return
        what = sorted({error.transaction_type for error in done.errors} | set(done.gaps))
        self._log_once(name, f"is incomplete ({', '.join(what)})", problem_of(done))

    def _log_once(self, name: str, what: str, why: str) -> None:
        """Log a problem when it begins or changes, because collections are repeated."""
        if why and self._logged.get(name) != what + why:
            log.warning("The collection of %s %s: %s", name, what, why)
        self._logged[name] = what + why

    async def collect(
        self, account: CollectedAccount, on_progress: Callable[[Step], None] = lambda step: None
    ) -> Collected:
        """Read the new records and the gaps of an account.

        Raises:
            CollectionBusy: Another process is collecting the account.
            CollectionFull: The account has reached its maximum number of records.
            AnotherAccount: The credentials belong to another account than the stored records.
            LeaseLost: Another process took over because this one was stopped for too long.
            ConfigError: The master key of the sealed records is missing.
            InvalidRequest, ServiceUnavailable: There are no credentials.
        """
        exchange = account.name.exchange
        outcome = FAILED
        try:
            async with self._leased(account) as lease:
                work = AccountCollection(
                    account,
                    self._service,
                    self._collection,
                    lease=lease,
                    queries=self._queries,
                    settings=self._settings,
                    clock=self._clock,
                    on_progress=on_progress,
                )
                await self._check_identity(account)
                done = await work.collect()
                outcome = FAILED if done.refused else OK if done.complete else INCOMPLETE
                if not done.refused:
                    await self._facts.put(account.fact, str(self._clock.wall_ms()))
                await self._facts.put(account.problem_fact, problem_of(done))
                return done
        except CollectionBusy:
            outcome = BUSY
            raise
        except OnebookError as error:
            with suppress(DatabaseUnavailable):
                await self._facts.put(account.problem_fact, error.message)
            raise
        finally:
            COLLECTIONS.labels(exchange, outcome).inc()

    async def _check_identity(self, account: CollectedAccount) -> None:
        """Refuse credentials of another account; remember the key, and whose it is."""
        name, environment = account.place
        before = await self._collection.identity(name, environment)
        if before is not None and before.key == await self._service.key_of(name, environment):
            return
        try:
            found = await self._service.identity(name, environment)
        except OnebookError:
            if before is None:
                return  # nothing can be mixed, and reading reports the failure
            raise
        if before is not None:
            if before.differs(found):
                raise AnotherAccount(name, environment)
            if not (before.owner and found.owner):
                found = replace(found, owner=found.owner or before.owner, doubtful=True)
                log.warning(
                    "The API key of %s was replaced, and %s does not report which account the new "
                    "key belongs to. Make sure it is the account collected before.",
                    name,
                    name.exchange,
                )
        await self._collection.keep_identity(name, environment, found)

    async def forget(self, account: CollectedAccount, before_ms: int | None) -> Forgotten:
        """Delete the collected records of an account, all of them or those older than a time.

        The exchange's exports on this host, which are older than its lists, are deleted too.
        Records deleted by time are not collected again; after everything was deleted, the next
        collection starts from scratch.

        Raises:
            CollectionBusy: The account is being collected.
        """
        store = self._collection.store
        name, environment = str(account.name), account.environment.value
        until_ms = ALWAYS_MS if before_ms is None else before_ms
        async with self._leased(account) as lease:
            lists = await store.lists(name, environment)
            parts = [each.list_id for each in lists if "/" in each.name]
            if before_ms is not None and before_ms > 0:
                # First, so that deleted records never count as covered.
                gone = RangeRow(0, before_ms - 1, FORGOTTEN)
                await store.replace_ranges(lease(), parts, gone)
            count = 0
            for each in lists:
                while ids := await store.ids(each.list_id, until_ms, FORGET_ROWS):
                    count += await store.delete_records(lease(), each.list_id, ids)
            readings = await store.delete_readings(lease(), name, environment, until_ms)
            self._service.forget_exports(account.name.exchange, account.environment)
            if before_ms is None:
                await store.delete_lists(lease(), [each.list_id for each in lists])
                identity = identity_fact(*account.place)
                await self._facts.remove([account.fact, account.problem_fact, identity])
        return Forgotten(count, readings)

    def lease(self, account: CollectedAccount) -> Lease:
        """Take the lease of an account."""
        name = f"collect/{account.environment.value}/{account.name}"
        return Lease(name, self._holder, self._clock.wall_ms() + LEASE_MS)

    @asynccontextmanager
    async def _leased(self, account: CollectedAccount) -> AsyncIterator[Callable[[], Lease]]:
        if not await self._leases.acquire(self.lease(account), self._clock.wall_ms()):
            raise CollectionBusy(str(account.name))
        renewing = asyncio.create_task(self._renew(account), name=f"lease {account.name}")
        try:
            yield lambda: self.lease(account)
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            with suppress(DatabaseUnavailable):  # then the lease expires
                await self._leases.release(self.lease(account))

    async def _renew(self, account: CollectedAccount) -> None:
        """Renew the lease while the exchange's limits delay the reading."""
        while True:
            await self._clock.sleep(RENEW_S)
            with suppress(DatabaseUnavailable):
                await self._leases.acquire(self.lease(account), self._clock.wall_ms())


class AccountCollection:
    """One collection of one account.

    Args:
        lease: The current lease.
        queries: Running queries of all collections of this process.
        settings: Contains the maximum number of records.
    """

    def __init__(
        self,
        account: CollectedAccount,
        service: Transactions,
        collection: Collection,
        *,
        lease: Callable[[], Lease],
        queries: Slots,
        settings: TransactionSettings,
        clock: Clock,
        on_progress: Callable[[Step], None],
    ) -> None:
        self._account = account
        self._service = service
        self._collection = collection
        self._lease = lease
        self._queries = queries
        self._settings = settings
        self._clock = clock
        self._on_progress = on_progress
        self._key_id = f"{COLLECTOR} {account.environment} {account.name}"
        self._progress = Step(str(account.name))
        self._shares: dict[str, float] = {}  # of `Step.share`, by list
        self._errors: dict[tuple[str, str], ErrorEntry] = {}
        self._gaps: set[str] = set()
        self._count = 0  # records of the account in the store
        self._writing = asyncio.Lock()  # one write at a time, so that the count is exact
        self._refused = False
        self._top_ms = 0  # the newest time read in every list

    async def collect(self) -> Collected:
        """Read every list; see `Collector.collect`."""
        account, progress = self._account, self._progress
        self._top_ms = self._clock.wall_ms() - HEAD_MS
        seal = await self._collection.seal(account.name, account.environment)
        stored = await self._stored()
        self._count = sum(each.row.records for each in stored.values())
        await self._read_holdings(seal)
        lists: dict[str, list[Source]] = {}
        for source in self._service.adapters[account.name.exchange].sources.values():
            if source.window_ms:
                lists.setdefault(list_name(source), []).append(source)
        self._shares = dict.fromkeys(lists, 0.0)
        await self._collect_lists(lists, seal)
        return Collected(
            str(account.name),
            account.environment,
            progress.records,
            progress.new,
            tuple(self._errors[each] for each in sorted(self._errors)),
            tuple(name for name in lists if name in self._gaps),
            self._refused,
        )

    async def _collect_lists(self, lists: dict[str, list[Source]], seal: Seal) -> None:
        """Collect lists concurrently, until the exchange refuses the account."""
        waiting = iter(lists.items())

        async def work() -> None:
            for name, sources in waiting:
                await self._collect_list(name, sources, seal)
                self._shares[name] = 1.0
                if self._refused:
                    break

        tasks = [asyncio.create_task(work()) for _ in range(self._at_once)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def _at_once(self) -> int:
        """How many lists are read concurrently."""
        adapter = self._service.adapters[self._account.name.exchange]
        return 1 if adapter.sequential else min(LISTS_AT_ONCE, self._settings.runs_per_key_max)

    async def _stored(self) -> dict[str, StoredList]:
        account = self._account
        now_ms = self._clock.wall_ms()
        return await self._collection.lists(account.name, account.environment, now_ms)

    async def _collect_list(self, name: str, sources: list[Source], seal: Seal) -> None:
        """Read the new records and the gaps of a list."""
        store, account = self._collection.store, self._account
        names = [name, *dict.fromkeys(part_name(each) for each in sources)]
        for each in names:
            await store.add_list(str(account.name), account.environment.value, each)
        tried: set[RangeRow] = set()
        for _ in range(GAPS_MAX):
            found = (await self._stored())[name]
            todo = self._gaps_of(found, sources)
            if not tried and found.settled_ms is not None:  # read the newest part again
                oldest_ms = min(self._oldest_ms(each, found) for each in sources)
                newest_ms = max(found.settled_ms, oldest_ms)
                older = [(gap.from_ms, min(gap.to_ms, newest_ms - 1)) for gap in todo]
                todo = [RangeRow(newest_ms, self._top_ms)]
                todo += [RangeRow(*gap) for gap in older if gap[0] <= gap[1]]
            todo = [gap for gap in todo if gap not in tried]
            if not todo:
                break
            tried.add(todo[0])
            if not await self._read(found, sources, todo[0], seal) or self._refused:
                return
        if self._gaps_of((await self._stored())[name], sources):
            self._gaps.add(name)

    def _gaps_of(self, stored: StoredList, sources: list[Source]) -> list[RangeRow]:
        """The ranges that any query of a list lacks, newest first."""
        found = {
            (gap.from_ms, gap.to_ms)
            for each in sources
            if not each.needs or stored.of(each).ranges or not stored.row.scope
            for gap in stored.of(each).gaps(self._oldest_ms(each, stored), self._top_ms)
        }
        return [RangeRow(*gap) for gap in sorted(found, key=lambda gap: (-gap[1], gap[0]))]

    def _oldest_ms(self, source: Source, stored: StoredList) -> int:
        """The oldest time to collect: 0 if the exchange has the whole history of a source."""
        oldest_ms = floor_ms(source, self._clock.wall_ms())
        return max(0 if oldest_ms <= source.begins_ms else oldest_ms, stored.forgotten_to_ms + 1)

    async def _read(
        self, stored: StoredList, sources: list[Source], gap: RangeRow, seal: Seal
    ) -> bool:
        """Read one range of a list into the store; return False if its key is absent."""
        query = self._query(sources, gap)
        held: list[Record] = []
        scope = stored.row.scope
        async with (
            self._queries.slot(self._key_id),
            self._service.run(query, key_id=self._key_id, background=True) as run,
            aclosing(run.records(DEADLINE_S)) as batches,
        ):
            assert isinstance(run, Run)
            self._show(stored.row.name, run, sources)
            async for batch in batches:
                held += batch
                if len(held) >= WRITE_ROWS:
                    scope = await self._write(stored, scope, run, held, seal)
                    held = []
                self._show(stored.row.name, run, sources)
            asked = bool(run.walkers)
            if asked:
                await self._write(stored, scope, run, held, seal, ended=True)
            for error in run.errors():
                self._errors[error.transaction_type, error.error] = error
            self._refused = self._refused or run.fatal is not None
            return asked

    def _query(self, sources: list[Source], gap: RangeRow) -> Query:
        account, environment = self._account.name, self._account.environment
        request = TransactionsRequest(
            exchange=str(account),
            testnet=environment is Environment.TESTNET,
            demo=environment is Environment.DEMO,
            start_time=gap.from_ms,
            end_time=gap.to_ms,
            include_raw=True,
            source="exchange",
        )
        return Query(
            request=request,
            account=account,
            environment=environment,
            requested_types=(),
            sources=tuple(each.name for each in sources),
            now_ms=self._clock.wall_ms(),
            from_ms=gap.from_ms,
            to_ms=gap.to_ms,
            limit=None,
            state=None,
            digest="",
        )

    async def _write(
        self,
        stored: StoredList,
        scope: str,
        run: Run,
        records: list[Record],
        seal: Seal,
        *,
        ended: bool = False,
    ) -> str:
        """Write records together with the range that they complete; return the scope of the
        list."""
        store, list_id = self._collection.store, stored.row.list_id
        if scope != run.scope:
            scope = run.scope
            parts = list(stored.part_ids.values())
            await store.forget_ranges(self._lease(), list_id, scope, parts)
        sealed = self._collection.sealed
        rows = rows_of(records, stored.row.name, seal, sealed=sealed)
        covered = [
            (stored.part_ids[name], each)
            for name, entry in run.coverage_of_parts().items()
            for each in covered_by(entry, run.query, ended=ended)
        ]
        async with self._writing:
            if self._count + len(records) > self._settings.collected_records_max:
                name, records_max = str(self._account.name), self._settings.collected_records_max
                raise CollectionFull(name, records_max)
            new = await store.write(self._lease(), list_id, rows, covered)
            self._count += new
        self._progress.records += len(records)
        self._progress.new += new
        COLLECTED.labels(self._account.name.exchange).inc(new)
        return scope

    def _show(self, name: str, run: Run, sources: list[Source]) -> None:
        query = run.query
        # A list that is read from its beginning has no records before the exchange began.
        from_ms = max(query.from_ms, min(each.begins_ms for each in sources))
        reached_ms = max(run.reached_ms, from_ms)
        self._shares[name] = (query.to_ms - reached_ms) / max(1, query.to_ms - from_ms)
        self._progress.name = name
        self._progress.share = sum(self._shares.values()) / len(self._shares)
        self._progress.reached_ms = reached_ms if reached_ms < query.to_ms else None
        self._on_progress(self._progress)

    async def _read_holdings(self, seal: Seal) -> None:
        """Store the current holdings as a reading of our own."""
        account, at_ms = self._account, self._clock.wall_ms()
        adapter = self._service.adapters[account.name.exchange]
        sources = [each for each in adapter.sources.values() if not each.window_ms]
        if not sources:
            return
        query = self._query(sources, RangeRow(0, at_ms))
        records: list[Record] = []
        async with (
            self._queries.slot(self._key_id),
            self._service.run(query, key_id=self._key_id, background=True) as run,
            aclosing(run.records(DEADLINE_S)) as batches,
        ):
            async for batch in batches:
                records += batch
            errors = run.errors()
        for error in errors:
            self._errors[error.transaction_type, error.error] = error
        if not errors:
            reading = reading_of(records, at_ms, seal, sealed=self._collection.sealed)
            await self._collection.store.add_reading(
                self._lease(), str(account.name), account.environment.value, reading
            )


def problem_of(done: Collected) -> str:
    """Why a collection is not complete; "" if it is."""
    if done.errors:
        return done.errors[0].message
    if done.gaps:
        return f"The exchange keeps older records that were not read: {', '.join(done.gaps)}."
    return ""


def covered_by(entry: Coverage, query: Query, *, ended: bool) -> list[RangeRow]:
    """The range that a query has read, and the range that the exchange no longer keeps."""
    from_ms = _start_of(entry)
    if from_ms is None:
        return []
    found = []
    if from_ms <= entry.to_ms:
        flaw = entry.reason if entry.reason in FLAWS else ""
        found.append(RangeRow(from_ms, entry.to_ms, flaw or ""))
    if ended and entry.reason == OLDER_NOT_KEPT and from_ms > query.from_ms:
        found.append(RangeRow(query.from_ms, from_ms - 1, OLDER_NOT_KEPT))
    return found


def _start_of(entry: Coverage) -> int | None:
    """The time from which a type was read completely; None if unknown."""
    if entry.from_ms is None:
        return None
    if entry.complete or entry.reason in (OLDER_NOT_KEPT, HIDDEN, *FLAWS):
        return entry.from_ms
    return entry.from_ms + 1  # this millisecond may be incomplete
