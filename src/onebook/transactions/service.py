"""Endpoints 6 and 10 without HTTP: executes transaction requests of any exchange.

The requested types become a set of sources, which are walked independently and merged newest first
(`walk`), up to the limit; the answer reports coverage, failures and the cursor of the next page. A
run owns every task it starts; leaving it stops all requests.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, json
from msgspec.structs import replace

from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.config import TransactionSettings
from onebook.errors import (
    InvalidRequest,
    InvalidTransactionTypes,
    RateLimitExceeded,
    ServiceUnavailable,
)
from onebook.model import MINUTE_MS
from onebook.transactions.accounts import ACCOUNTS_MAX, ALL, AccountName, account_name
from onebook.transactions.adapter import (
    AccountInfo,
    AdapterEntry,
    Environment,
    FailureReason,
    PageReader,
    SourceFailed,
)
from onebook.transactions.availability import AvailabilityCache
from onebook.transactions.collected import (
    CollectedIdentity,
    Collection,
    StoredAccount,
    fingerprint,
)
from onebook.transactions.credentials import Credentials, Vault
from onebook.transactions.cursor import Cursors
from onebook.transactions.exchange import AccountSession, ExchangeAdapter
from onebook.transactions.export import writer
from onebook.transactions.export_jobs import ExportJobs
from onebook.transactions.joint import JointQuery, JointRun
from onebook.transactions.live import (
    LIVE_LIMITS,
    AccountRun,
    LiveAccounts,
    LiveLimits,
    LiveSubscription,
    Subscriber,
)
from onebook.transactions.metrics import KEY, NODE, REFUSED, RUNNING, UNKNOWN, UNREADABLE
from onebook.transactions.own_transfers import TransferSide
from onebook.transactions.private import PrivateStream, StreamOpening
from onebook.transactions.reconciliation import HoldingsReading
from onebook.transactions.record import Record, encode
from onebook.transactions.request import (
    Query,
    TransactionsRequest,
    environment_of,
    expand,
    find,
    joint_digest,
    limit_of,
    one_of,
    plan,
    reach_ms,
    refuse_forgotten,
)
from onebook.transactions.run import (
    LACKING,
    Merging,
    Run,
    exchange_failed,
    filters_of,
    message_of,
)

UNIFIED_TYPES: Final = {
    "deposits": "Deposit transactions (incoming funds)",
    "withdrawals": "Withdrawal transactions (outgoing funds)",
    "trades": "Spot trading transactions",
    "spot_trades": "Spot market trades",
    "futures": "Futures/derivatives trading",
    "derivatives": "Derivative trading transactions",
    "transfers": "Internal transfers between accounts",
    "holdings": "Current account balances",
    "balances": "Account balance snapshots",
}
BUSY_RETRY_S: Final = 5.0
EXCHANGE: Final = "exchange"  # a value of `source` in a request
EXPORT_RECORDS_MAX: Final = 1_000_000  # per file, which takes 0.5 GB of disk until it is sent
LIVE: Final = "live"  # stands for an API key where keys share limits
UNREAD_S: Final = 30.0  # without read progress of the client before a streamed answer is ended

log = logging.getLogger("onebook.transactions")


class Validation(Struct, frozen=True):
    """Answer of endpoint 6; `info` is set if the credentials are valid."""

    exchange: str
    message: str
    info: AccountInfo | None

    def body(self) -> dict[str, Any]:
        """Return the documented answer."""
        body = {
            "success": self.info is not None,
            "message": self.message,
            "exchange": self.exchange,
        }
        if self.info is None:
            return body | {"error": "authentication_failed"}
        account = {
            "account_type": self.info.account_type,
            "status": self.info.status,
            "read_only": self.info.read_only,
            "unavailable_types": list(self.info.unavailable_types),
            "warnings": list(self.info.warnings),
            "expires_at": self.info.expires_at,
        }
        return body | {"credentials_source": "internal", "account_info": account}


class Export(Struct, frozen=True):
    """A finished file: its number of rows, and whether it has all records of the range."""

    rows: int
    complete: bool


class Transactions:
    """The transaction service of a node. Must be closed.

    Args:
        adapters: The exchanges.
        vault: The operator's credentials.
        cursor_secret: Signs cursors; the same on every node of a service.
        settings: Deadlines and the number of concurrent queries.
        clock: Time and sleeping.
        unread_s: Seconds without read progress by the client before a streamed answer is ended.
        collection: The collected records of the accounts; None if there is no collection.
        live_limits: Intervals and bounds of live subscriptions.
        exports: The exports of the adapters, closed with them; None if there are none.
    """

    def __init__(
        self,
        adapters: Iterable[ExchangeAdapter],
        vault: Vault,
        *,
        cursor_secret: bytes,
        settings: TransactionSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        unread_s: float = UNREAD_S,
        collection: Collection | None = None,
        live_limits: LiveLimits = LIVE_LIMITS,
        exports: ExportJobs | None = None,
    ) -> None:
        self._exports = exports
        self.collection = collection
        self.unread_s = unread_s
        self._adapters = {adapter.entry.name: adapter for adapter in adapters}
        for name in self._adapters:
            # `increase` misses the first count of an absent sample.
            UNREADABLE.labels(name)
            UNKNOWN.labels(name)
        self._vault = vault
        self._cursors = Cursors(cursor_secret)
        self._settings = settings or TransactionSettings()
        self._clock = clock
        self._running: Counter[str] = Counter()
        self._owners: dict[str, str] = {}  # ids of accounts, by the fingerprint of a key
        self.availability = AvailabilityCache(self._adapters, vault.get, clock)
        self.live = LiveAccounts(self, clock=clock, limits=live_limits)

    @property
    def exchanges(self) -> tuple[AdapterEntry, ...]:
        """Facts of the exchanges, for endpoints 4, 5 and 7."""
        return tuple(adapter.entry for adapter in self._adapters.values())

    def forget_exports(self, exchange: str, environment: Environment) -> int:
        """Delete the exports of an exchange's accounts on this host; return the number of files."""
        if self._exports is None:
            return 0
        return self._exports.files.forget(exchange, environment.value)

    async def accounts(self) -> list[tuple[AccountName, Environment]]:
        """The accounts with credentials."""
        rows = [(account_name(row.exchange), row) for row in await self._vault.listed()]
        return [
            (name, Environment(row.environment))
            for name, row in rows
            if name.exchange in self._adapters
        ]

    async def require_account(self, account: str, environment: Environment) -> None:
        """Require usable credentials of an account.

        Raises:
            InvalidExchange: The exchange is not supported.
            InvalidRequest: The credentials are missing, or the account's label is malformed.
        """
        adapter = find(self._adapters, account)
        credentials = await self._vault.get(account, environment)
        message = _unusable(adapter, environment, credentials, account_name(account).label)
        if message:
            raise InvalidRequest(message)

    @property
    def adapters(self) -> Mapping[str, ExchangeAdapter]:
        """The exchanges by name."""
        return self._adapters

    @property
    def running(self) -> int:
        """Number of running requests."""
        return self._running.total()

    async def close(self) -> None:
        """Close every connection."""
        await self.live.close()
        await self.availability.close()
        if self._exports is not None:
            await self._exports.close()
        for adapter in self._adapters.values():
            await adapter.close()

    def plan(self, request: TransactionsRequest, *, key_id: str, streamed: bool = False) -> Query:
        """Check a request for one account without any request to an exchange.

        Raises:
            InvalidExchange, InvalidTransactionTypes, InvalidDateRange, InvalidRequest
        """
        adapter = find(self._adapters, one_of(request))
        return plan(
            request,
            adapter,
            self._cursors,
            key_id=key_id,
            now_ms=self._clock.wall_ms(),
            streamed=streamed,
            lenient=self._may_be_stored(request),
        )

    def _may_be_stored(self, request: TransactionsRequest) -> bool:
        return self.collection is not None and request.source != EXCHANGE

    async def prepare(
        self,
        request: TransactionsRequest,
        *,
        key_id: str,
        streamed: bool = False,
        summing: bool = False,
    ) -> Query | JointQuery:
        """Check a request for one account or several without any request to an exchange.

        Args:
            summing: Whether a request without types gets those that add up to every balance.

        Raises:
            InvalidExchange, InvalidTransactionTypes, InvalidDateRange, InvalidRequest
            ServiceUnavailable: `all` accounts are requested, but none has credentials.
        """
        if isinstance(request.exchange, str) and request.exchange != ALL:
            filled = await self._filled(request, summing=summing)
            return self.plan(filled, key_id=key_id, streamed=streamed)
        digest, states = joint_digest(request), {}
        transfers: tuple[TransferSide, ...] = ()
        if request.cursor:
            before = self._cursors.open_joint(request.cursor, digest=digest, key_id=key_id)
            states, transfers = before.states, before.transfers
        now_ms, parts = self._clock.wall_ms(), []
        names = list(states) or await self._named(request)
        for name in names:
            part = request.model_copy(update={"exchange": name, "cursor": None})
            adapter = find(self._adapters, name)
            known = [
                word for word in part.transaction_types if word in adapter.entry.sources_by_type
            ]
            if part.transaction_types and not known:
                continue
            part = part.model_copy(update={"transaction_types": known})
            part = await self._filled(part, summing=summing)
            parts.append(
                plan(
                    part,
                    adapter,
                    self._cursors,
                    key_id=key_id,
                    now_ms=now_ms,
                    streamed=streamed,
                    state=states.get(name),
                    joined=True,
                )
            )
        self._refuse_unknown(request, names)
        return JointQuery(
            request=request,
            parts=tuple(parts),
            requested_types=tuple(
                dict.fromkeys(word for part in parts for word in part.requested_types)
            ),
            limit=limit_of(request, streamed=streamed),
            digest=digest,
            transfers=transfers,
        )

    async def _filled(self, request: TransactionsRequest, *, summing: bool) -> TransactionsRequest:
        """Complete the types and the start of a request for everything in an account."""
        if request.everything and request.start_time is not None:
            raise InvalidRequest("Give either start_time or everything.")
        if summing and not request.transaction_types:
            types = self.summing(one_of(request))
            request = request.model_copy(update={"transaction_types": types})
        if request.everything and not request.cursor:  # a cursor has the start
            # A minute later: the start of what an exchange keeps moves forward while we read.
            start_ms = self.reach_ms(request) + MINUTE_MS
            stored = await self._stored(request)
            if stored is not None and stored.from_ms is not None:
                # Ranges before an exchange began are stored as complete.
                start_ms = min(start_ms, max(stored.from_ms, self._begins_ms(request)))
            request = request.model_copy(update={"start_time": start_ms})
        return request

    async def _stored(self, request: TransactionsRequest) -> StoredAccount | None:
        """The collected records of a request's account, if its answer uses them."""
        if request.source == EXCHANGE:
            return None
        only = request.source is not None
        if self.collection is None:
            if only:
                raise InvalidRequest("Field source: this service does not collect records.")
            return None
        stored = await self.collection.account(
            account_name(one_of(request)),
            environment_of(testnet=request.testnet, demo=request.demo),
            now_ms=self._clock.wall_ms(),
            only=only,
            include_raw=request.include_raw,
        )
        return stored if only or stored.to_ms is not None else None

    async def _named(self, request: TransactionsRequest) -> list[str]:
        """The accounts of a request; `all` means those with credentials."""
        if not isinstance(request.exchange, str):
            if not 1 <= len(request.exchange) <= ACCOUNTS_MAX:
                raise InvalidRequest(f"Field exchange must name 1 to {ACCOUNTS_MAX} accounts.")
            if ALL in request.exchange:
                raise InvalidRequest(
                    f'Field exchange must be "{ALL}" alone, or a list of accounts without it.'
                )
            return list(dict.fromkeys(request.exchange))
        environment = environment_of(testnet=request.testnet, demo=request.demo)
        rows = await self._vault.listed()
        found = [
            row.exchange
            for row in rows
            if row.environment == environment
            and account_name(row.exchange).exchange in self._adapters
        ]
        if not found:
            raise ServiceUnavailable(
                f"The operator has set no {environment.value} credentials "
                f"(onebook credentials set EXCHANGE{environment.option})."
            )
        return found[:ACCOUNTS_MAX]

    def _refuse_unknown(self, request: TransactionsRequest, names: list[str]) -> None:
        """Reject types that no account has."""
        entries = [find(self._adapters, name).entry for name in names]
        known = {word for entry in entries for word in entry.sources_by_type}
        for word in request.transaction_types:
            if word not in known:
                raise InvalidTransactionTypes(
                    f"Transaction type {word[:40]!r} is unknown to all of these exchanges.",
                    details={"supported_types": sorted(known)},
                )

    def _entry_of(self, query: Query) -> AdapterEntry:
        return self._adapters[query.account.exchange].entry

    def summing(self, exchange: str) -> list[str]:
        """The types of an exchange whose records add up to the change of every balance.

        Raises:
            InvalidExchange: The exchange is not supported.
        """
        return list(find(self._adapters, exchange).entry.summing)

    def reach_ms(self, request: TransactionsRequest) -> int:
        """The oldest time at which a request may begin.

        Raises:
            InvalidExchange, InvalidTransactionTypes
        """
        adapter = find(self._adapters, one_of(request))
        sources = expand(tuple(request.transaction_types) or adapter.entry.default, adapter)
        return reach_ms(sources, adapter, self._clock.wall_ms())

    def _begins_ms(self, request: TransactionsRequest) -> int:
        """The oldest time at which a requested type can have records."""
        adapter = find(self._adapters, one_of(request))
        sources = expand(tuple(request.transaction_types) or adapter.entry.default, adapter)
        found = (adapter.sources[name] for name in sources)
        return min((each.begins_ms for each in found if each.window_ms), default=0)

    async def validate(
        self, exchange: str, *, testnet: bool = False, demo: bool = False, key_id: str = ""
    ) -> Validation:
        """Check the operator's credentials with the exchange.

        Raises:
            InvalidExchange: The exchange is not supported.
            InvalidRequest: Two environments are requested, or the account's label is malformed.
            ExchangeFailed: The exchange is unreachable.
        """
        adapter = find(self._adapters, exchange)
        environment = environment_of(testnet=testnet, demo=demo)
        credentials = await self._vault.get(exchange, environment)
        name = account_name(exchange)
        why_not = _unusable(adapter, environment, credentials, name.label)
        if credentials is None or why_not:
            return Validation(exchange, why_not, None)
        return await validated(adapter, environment, credentials, name=name, key_id=key_id)

    @asynccontextmanager
    async def run(
        self,
        query: Query | JointQuery,
        *,
        key_id: str,
        patient: bool = False,
        background: bool = False,
    ) -> AsyncIterator[Run | JointRun]:
        """Start a query; leaving the block stops all requests.

        Args:
            patient: Whether to wait until exchanges have made their exports, which takes hours.
            background: Whether no client waits for the records: requests of clients go first.

        Raises:
            InvalidRequest: There are no testnet or demo credentials, or the cursor belongs to other
                credentials.
            RateLimitExceeded: The key has reached its limit of concurrent requests.
            ServiceUnavailable: There are no credentials, or they belong to another account than the
                collected one, or too many requests are running.
        """
        parts = query.parts if isinstance(query, JointQuery) else (query,)
        accounts = []
        for part in parts:
            stored = await self._stored(part.request)
            known = stored is not None and stored.only
            account = await self._account(
                part, key_id, known=known, patient=patient, background=background
            )
            if stored is not None and not stored.only:
                await self._refuse_another(part)
            bounded = self._bounded(part, stored)
            readings = await self._own_readings(bounded, stored)
            accounts.append((bounded, *account, stored, readings))
        self._refuse_beyond(key_id)
        self._running[key_id] += 1
        RUNNING.inc()
        try:
            merging = None
            if isinstance(query, JointQuery):
                states = (part.state for part in parts)
                unplaced = [each for state in states if state for each in state.unplaced]
                merging = Merging(query.limit, unplaced)
            runs = [
                Run(
                    part,
                    self._adapters[part.account.exchange],
                    account,
                    self._clock,
                    account_id=account_id,
                    merging=merging,
                    stored=stored,
                    readings=readings,
                )
                for part, account, account_id, stored, readings in accounts
            ]
            run: Run | JointRun = runs[0]
            if isinstance(query, JointQuery) and merging is not None:
                run = JointRun(query, runs, merging, self._clock)
            try:
                yield run
            finally:
                await run.close()
        finally:
            self._running[key_id] -= 1
            RUNNING.dec()
            if not self._running[key_id]:
                del self._running[key_id]

    async def _own_readings(
        self, query: Query, stored: StoredAccount | None
    ) -> list[HoldingsReading]:
        """Readings of the holdings, if an exchange is verified with them."""
        proven = self._adapters[query.account.exchange].entry.bookkeeping.readings
        if stored is None or not query.request.verify or not proven:
            return []
        try:
            return await stored.readings(query.from_ms, query.to_ms)
        except SourceFailed:  # the records report the failure
            return []

    def _bounded(self, query: Query, stored: StoredAccount | None) -> Query:
        """A query of a collected account; without an end, it ends where the collection does.

        Raises:
            InvalidDateRange: Neither the exchange nor the collection has any part of the range.
        """
        if stored is None:
            if self._may_be_stored(query.request) and query.state is None:
                adapter = self._adapters[query.account.exchange]
                if not query.joined:
                    refuse_forgotten(query.to_ms, query.sources, adapter, self._clock.wall_ms())
            return query
        if not stored.only or query.state is not None or query.request.end_time is not None:
            return query
        to_ms = query.to_ms if stored.to_ms is None else min(query.to_ms, stored.to_ms)
        return replace(query, to_ms=to_ms, from_ms=min(query.from_ms, to_ms))

    async def subscriptions(
        self, query: Query | JointQuery, subscriber: Subscriber
    ) -> list[LiveSubscription]:
        """Create a subscription for each account of a query, before its history is read."""
        joint = isinstance(query, JointQuery)
        return [
            LiveSubscription(
                part,
                [self._adapters[part.account.exchange].sources[name] for name in part.sources],
                subscriber,
                joint=joint,
                key=await self.key_of(part.account, part.environment),
                limits=self.live.limits,
            )
            for part in (query.parts if isinstance(query, JointQuery) else (query,))
        ]

    # `LivePorts`

    @asynccontextmanager
    async def read(
        self, query: Query, tap: Callable[[PageReader], PageReader]
    ) -> AsyncIterator[AccountRun]:
        """Start a follower's query; leaving the block stops all requests.

        Raises:
            InvalidRequest, ServiceUnavailable: There are no credentials.
        """
        account, account_id = await self._account(query, LIVE, background=True)
        adapter = self._adapters[query.account.exchange]
        run = Run(query, adapter, account, self._clock, account_id=account_id, tap=tap)
        try:
            yield AccountRun(run, account_id, fingerprint(account.api_key))
        finally:
            await run.close()

    async def opening(self, query: Query, facts: PrivateStream) -> StreamOpening:
        """Prepare a connection to a private stream of an account.

        Raises:
            InvalidRequest, ServiceUnavailable: There are no credentials.
            SourceFailed: The exchange issues no token.
        """
        credentials = await self._credentials(query)
        return await self._adapters[query.account.exchange].opening(
            facts,
            query.environment,
            credentials,
            account_id=self._cursors.account(credentials.api_key),
            name=query.account,
            key_id=LIVE,
        )

    def streams_of(self, query: Query) -> tuple[PrivateStream, ...]:
        """The private streams of an account."""
        return self._adapters[query.account.exchange].streams(query.environment)

    def poll_factor(self, query: Query) -> float:
        """The polling interval of an account's exchange relative to other exchanges."""
        return self._adapters[query.account.exchange].poll_factor

    def _refuse_beyond(self, key_id: str) -> None:
        if self._running[key_id] >= self._settings.runs_per_key_max:
            REFUSED.labels(KEY).inc()
            raise RateLimitExceeded(
                f"This API key has {self._running[key_id]} running transaction requests, which "
                "is its limit; wait for one to end.",
                retry_after_s=BUSY_RETRY_S,
            )
        if self._running.total() >= self._settings.runs_max:
            REFUSED.labels(NODE).inc()
            raise ServiceUnavailable(
                "Too many transaction requests are being answered; try again shortly.",
                retry_after_s=BUSY_RETRY_S,
            )

    async def _account(
        self,
        query: Query,
        key_id: str,
        *,
        known: bool = False,
        patient: bool = False,
        background: bool = False,
    ) -> tuple[AccountSession, str]:
        """The account of a query, and the id of its credentials for cursors.

        Args:
            known: Whether everything is read from the store, which needs no credentials.
            patient, background: See `run`.
        """
        adapter = self._adapters[query.account.exchange]
        credentials = Credentials("", "") if known else await self._credentials(query)
        account_id = self._cursors.account(credentials.api_key)
        if query.state is not None and query.state.account != account_id:
            raise InvalidRequest(
                f"Field cursor belongs to other {adapter.entry.display} credentials than the "
                "current ones; request the first page again."
            )
        account = adapter.account(
            query.environment,
            credentials,
            name=query.account,
            include_raw=query.request.include_raw,
            key_id=key_id,
            range_ms=(query.from_ms, query.to_ms),
            patient=patient,
            background=background,
        )
        return account, account_id

    async def key_of(self, name: AccountName, environment: Environment) -> str:
        """The fingerprint of the API key of an account; "" without one."""
        credentials = await self._vault.get(str(name), environment)
        return "" if credentials is None else fingerprint(credentials.api_key)

    async def identity(self, name: AccountName, environment: Environment) -> CollectedIdentity:
        """Return the account to which the credentials of a name belong; looked up once per key.

        Raises:
            ServiceUnavailable: There are no credentials.
            ExchangeFailed: The exchange does not answer.
        """
        adapter = self._adapters[name.exchange]
        credentials = await self._vault.get(str(name), environment)
        if credentials is None:
            raise ServiceUnavailable(_unusable(adapter, environment, None, name.label))
        key = fingerprint(credentials.api_key)
        if key not in self._owners:
            found = await validated(adapter, environment, credentials, name=name, key_id=LIVE)
            if found.info is None:
                raise ServiceUnavailable(found.message)
            self._owners[key] = found.info.owner
        return CollectedIdentity(key, self._owners[key])

    async def _refuse_another(self, query: Query) -> None:
        """Refuse to join what was collected with the records of another account.

        Raises:
            ServiceUnavailable: The credentials now belong to another account.
        """
        assert self.collection is not None
        name, environment = query.account, query.environment
        before = await self.collection.identity(name, environment)
        if before is None or before.key == await self.key_of(name, environment):
            return
        if before.differs(await self.identity(name, environment)):
            raise ServiceUnavailable(
                f"The operator's credentials of {name} belong to a different account than its "
                "collected records; choose one of the two in the field source."
            )

    async def _credentials(self, query: Query) -> Credentials:
        adapter = self._adapters[query.account.exchange]
        credentials = await self._vault.get(str(query.account), query.environment)
        message = _unusable(adapter, query.environment, credentials, query.account.label)
        if credentials is None or message:
            # The client's choice: only an exchange's first account is the operator's to provide.
            if query.environment is not Environment.MAINNET or query.account.label:
                raise InvalidRequest(message)
            raise ServiceUnavailable(message)
        return credentials

    async def fetch(
        self,
        query: Query | JointQuery,
        *,
        key_id: str,
        on_batch: Callable[[Run | JointRun, list[Record]], None] | None = None,
    ) -> bytes:
        """Return the JSON answer of endpoint 10.

        Args:
            on_batch: Called with the run and each batch of records, and with none at the end of an
                answer that lacks exports.

        Raises:
            ExchangeFailed: Nothing could be read.
            InvalidRequest, ServiceUnavailable: See `run`.
        """
        started_s = self._clock.monotonic()
        parts: list[bytes] = []
        async with (
            self.run(query, key_id=key_id) as run,
            aclosing(run.records(self._settings.deadline_s)) as batches,
        ):
            async for batch in batches:
                parts += [b"," if parts else b"", b",".join([encode(record) for record in batch])]
                if on_batch is not None:
                    on_batch(run, batch)
            if on_batch is not None and run.exports:
                on_batch(run, [])
            run.raise_if_nothing()
            head, tail = self._envelope(run, key_id, spent_s=self._clock.monotonic() - started_s)
        # Copy what may be many megabytes only once.
        return b"".join(
            [json.encode(head)[:-1], b',"transactions":[', *parts, b"],", json.encode(tail)[1:]]
        )

    async def stream(self, query: Query | JointQuery, *, key_id: str) -> AsyncGenerator[bytes]:
        """Yield the NDJSON answer of endpoint 10: one record per line, then a summary line.

        Raises, before the first line:
            ExchangeFailed: Nothing could be read.
            InvalidRequest, ServiceUnavailable: See `run`.
        """
        started_s = self._clock.monotonic()
        async with (
            self.run(query, key_id=key_id) as run,
            aclosing(run.records(self._settings.stream_deadline_s)) as batches,
        ):
            async for batch in batches:
                yield b"".join([encode(record) + b"\n" for record in batch])
            failure = run.nothing_but_failure()
            if failure is not None and not run.totals.count:
                raise exchange_failed(failure)
            head, tail = self._envelope(run, key_id, spent_s=self._clock.monotonic() - started_s)
        if failure is not None:  # lines were already sent: the summary reports it
            error = exchange_failed(failure)
            head |= {"success": False, "error": error.code, "message": error.message}
        yield json.encode({"type": "summary"} | head | tail) + b"\n"

    async def export(
        self, query: Query | JointQuery, form: str, path: Path, *, key_id: str
    ) -> "Export":
        """Write all records of a query to a file of one of `export.FORMS`.

        Raises:
            ExchangeFailed: Nothing could be read.
            InvalidRequest: The file cannot hold the records. For other cases see `run`.
            ServiceUnavailable: See `run`.
        """
        async with (
            self.run(query, key_id=key_id) as run,
            aclosing(run.records(self._settings.stream_deadline_s)) as batches,
        ):
            # In a thread, because order books share this loop; in a single one, so that closing
            # follows the last batch even if the request is cancelled.
            threads = ThreadPoolExecutor(1, "export")
            do = partial(asyncio.get_running_loop().run_in_executor, threads)
            try:
                file = await do(partial(writer, form, path, exchange=run.wallet))
                try:
                    async for batch in batches:
                        await do(file.write, batch)
                        if run.totals.count > EXPORT_RECORDS_MAX:
                            raise InvalidRequest(
                                f"More than {EXPORT_RECORDS_MAX:,} records: request a shorter "
                                "range, or an NDJSON stream."
                            )
                finally:
                    await do(file.close)
            finally:
                threads.shutdown(wait=False)
            run.raise_if_nothing()
            coverage, errors = run.coverage(), run.errors()
        return Export(file.rows, complete=not errors and all(entry.complete for entry in coverage))

    def _envelope(
        self, run: Run | JointRun, key_id: str, *, spent_s: float
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The fields before the records and those after them."""
        query, totals, errors = run.query, run.totals, run.errors()
        own_transfers = run.own_transfers() if isinstance(run, JointRun) else None
        coverage, next_cursor = run.coverage(), self._next(run, key_id)
        head: dict[str, Any] = {
            "success": True,
            "message": message_of(
                totals.count,
                len({entry.transaction_type for entry in coverage}),
                accounts=len(run.accounts or ()),
                cut_off=run.cut_off,
                limited=run.limited_by,
                uncollected=run.uncollected,
            ),
            "exchange": query.request.exchange,
            "total_transactions": totals.count,
            "processing_time": round(spent_s, 3),
        }
        if run.accounts is not None:
            head["accounts"] = run.accounts
        tail: dict[str, Any] = {
            "summary": totals.summary(query),
            "filters_applied": filters_of(query),
            "partial": bool(errors) or any(part.reason in LACKING for part in coverage),
            "errors": errors,
            "coverage": coverage,
            "next_cursor": next_cursor,
        }
        if own_transfers is not None:
            tail["own_transfers"] = own_transfers
        if query.request.verify:
            tail["verification"] = run.verification()
        return head, tail

    def _next(self, run: Run | JointRun, key_id: str) -> str | None:
        """The cursor of the next page; None after the last page."""
        if isinstance(run, Run):
            state = run.state(key_id)
            return None if state is None else self._cursors.seal(state)
        states = run.states(key_id)
        if states is None:
            return None
        return self._cursors.seal_joint(
            states, run.undecided_transfers, digest=run.query.digest, key_id=key_id
        )


async def validated(
    adapter: ExchangeAdapter,
    environment: Environment,
    credentials: Credentials,
    *,
    name: AccountName | None = None,
    key_id: str = "",
) -> Validation:
    """Check credentials with the exchange, whether stored or not.

    Raises:
        ExchangeFailed: The exchange is unreachable.
    """
    name = name or AccountName(adapter.entry.name, "")
    exchange = str(name)
    try:
        account = adapter.account(environment, credentials, name=name, key_id=key_id)
        info = await account.reader.check()
    except SourceFailed as failure:
        if failure.reason is FailureReason.AUTHENTICATION_FAILED:
            return Validation(exchange, failure.message, None)
        raise exchange_failed(failure) from None
    return Validation(exchange, "The internal credentials are valid.", info)


def _unusable(
    adapter: ExchangeAdapter,
    environment: Environment,
    credentials: Credentials | None,
    label: str = "",
) -> str:
    """Why the operator's credentials are unusable; "" if they are usable."""
    entry = adapter.entry
    if environment not in adapter.environments:
        return f"{entry.display} has no {environment.value}."
    if credentials is None:
        name, of = AccountName(entry.name, label), f" for the account {label}" if label else ""
        return (
            f"The operator has set no {entry.display} {environment.value} credentials{of} "
            f"(onebook credentials set {name}{environment.option})."
        )
    missing = [
        field.label
        for field in entry.fields
        if not field.optional and not credentials.fields.get(field.name)
    ]
    if not missing:
        return ""
    return (
        f"The operator's {entry.display} {environment.value} credentials lack "
        f"{', '.join(missing)}; set them again."
    )
