"""Endpoints 6 and 10 without HTTP: from a request to records, whatever the exchange.

Types become a set of sources, each walked independently (`walk`), merged newest first (`merge`),
cut at the limit, and told honestly: what is covered, what failed, where it goes on. A run owns
every task it starts; leaving it stops all asking.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from msgspec import Struct, json

from onebook.config import TransactionSettings
from onebook.errors import (
    ExchangeFailed,
    InvalidRequest,
    RateLimitExceeded,
    ServiceUnavailable,
)
from onebook.transactions.adapter import (
    AccountInfo,
    Adapter,
    Environment,
    ExchangeEntry,
    Reader,
)
from onebook.transactions.answer import (
    DEADLINE,
    FAILED_BEFORE,
    LIMIT_REACHED,
    Coverage,
    ErrorEntry,
    Part,
    Totals,
    coverage_of,
    errors_of,
    filters_of,
    message_of,
)
from onebook.transactions.clock import REAL, Clock
from onebook.transactions.counters import KEY, NODE, RECORDS, REFUSED, RUNNING
from onebook.transactions.credentials import Vault
from onebook.transactions.cursor import DONE, GIVEN_UP, Cursors, Place, State, as_key, key_digest
from onebook.transactions.failures import Reason, SourceFailed
from onebook.transactions.merge import merged
from onebook.transactions.proof import Verification
from onebook.transactions.query import Ask, Query, expand, find, plan, reach_ms
from onebook.transactions.record import FIRST, Record, encode
from onebook.transactions.standing import Standings
from onebook.transactions.verify import Verifier
from onebook.transactions.walk import Demand, Range, Walker, fitted

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
LONG_ANSWER: Final = 5_000  # records from which on reading ahead pays

log = logging.getLogger("onebook.transactions")


class Validation(Struct, frozen=True):
    """What endpoint 6 answers; `info` is there if the credentials are good."""

    exchange: str
    message: str
    info: AccountInfo | None

    def body(self) -> dict[str, Any]:
        """The documented answer."""
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


class Transactions:
    """The transaction service of a node. Close it."""

    def __init__(
        self,
        adapters: Iterable[Adapter],
        vault: Vault,
        *,
        cursor_secret: bytes,
        settings: TransactionSettings | None = None,
        clock: Clock = REAL,
    ) -> None:
        self._adapters = {adapter.entry.name: adapter for adapter in adapters}
        self._vault = vault
        self._cursors = Cursors(cursor_secret)
        self._settings = settings or TransactionSettings()
        self._clock = clock
        self._running: Counter[str] = Counter()
        self.standings = Standings(self._adapters, vault.get, clock.now_s)

    @property
    def exchanges(self) -> tuple[ExchangeEntry, ...]:
        """What endpoints 4, 5 and 7 are answered from."""
        return tuple(adapter.entry for adapter in self._adapters.values())

    @property
    def unread_s(self) -> float:
        """How long a stream waits for a client that reads nothing."""
        return self._settings.unread_s

    @property
    def running(self) -> int:
        """Answers being made now."""
        return self._running.total()

    async def close(self) -> None:
        """Let go of every connection."""
        for adapter in self._adapters.values():
            await adapter.close()

    def plan(self, ask: Ask, *, key_id: str, streamed: bool = False) -> Query:
        """Check a request without asking any exchange.

        Raises:
            InvalidExchange, InvalidTransactionTypes, InvalidDateRange, InvalidRequest
        """
        adapter = find(self._adapters, ask.exchange)
        return plan(
            ask,
            adapter,
            self._cursors,
            key_id=key_id,
            now_ms=self._clock.now_ms(),
            streamed=streamed,
        )

    def reach_ms(self, ask: Ask) -> int:
        """The oldest time that a request may begin at.

        Raises:
            InvalidExchange, InvalidTransactionTypes
        """
        adapter = find(self._adapters, ask.exchange)
        sources = expand(ask.transaction_types or adapter.entry.default, adapter)
        return reach_ms(sources, adapter, self._clock.now_ms())

    async def validate(self, exchange: str, *, testnet: bool, key_id: str = "") -> Validation:
        """Ask the exchange whether the operator's credentials are good.

        Raises:
            InvalidExchange: There is no such exchange.
            ExchangeFailed: It could not be asked.
        """
        adapter = find(self._adapters, exchange)
        environment = _environment(testnet=testnet)
        credentials = await self._vault.get(exchange, environment)
        if credentials is None:
            return Validation(exchange, _no_credentials(adapter.entry, environment), None)
        try:
            reader = adapter.reader(environment, credentials, include_raw=False, key_id=key_id)
            info = await reader.account()
        except SourceFailed as failure:
            if failure.reason is Reason.AUTHENTICATION_FAILED:
                return Validation(exchange, failure.message, None)
            raise _exchange_failed(failure) from None
        return Validation(exchange, "The internal credentials are valid.", info)

    @asynccontextmanager
    async def run(self, query: Query, *, key_id: str) -> AsyncIterator["Run"]:
        """Begin to carry a query out; leaving the block stops all asking.

        Raises:
            InvalidRequest: There are no testnet credentials.
            RateLimitExceeded: The key has as many requests under way as it may.
            ServiceUnavailable: There are no credentials, or too much is being asked at once.
        """
        reader = await self._reader(query, key_id)
        self._refuse_beyond(key_id)
        self._running[key_id] += 1
        RUNNING.inc()
        try:
            run = Run(query, self._adapters[query.ask.exchange], reader, self._clock)
            try:
                yield run
            finally:
                await run.close()
        finally:
            self._running[key_id] -= 1
            RUNNING.dec()
            if not self._running[key_id]:
                del self._running[key_id]

    def _refuse_beyond(self, key_id: str) -> None:
        if self._running[key_id] >= self._settings.runs_per_key_max:
            REFUSED.labels(KEY).inc()
            raise RateLimitExceeded(
                f"This API key has {self._running[key_id]} transaction requests under way, which "
                "is its limit; wait for one to end.",
                retry_after_s=BUSY_RETRY_S,
            )
        if self._running.total() >= self._settings.runs_max:
            REFUSED.labels(NODE).inc()
            raise ServiceUnavailable(
                "Too many transaction requests are being answered; try again shortly.",
                retry_after_s=BUSY_RETRY_S,
            )

    async def _reader(self, query: Query, key_id: str) -> Reader:
        adapter = self._adapters[query.ask.exchange]
        credentials = await self._vault.get(query.ask.exchange, query.environment)
        if credentials is None:
            message = _no_credentials(adapter.entry, query.environment)
            if query.environment is Environment.TESTNET:
                raise InvalidRequest(message)
            raise ServiceUnavailable(message)
        return adapter.reader(
            query.environment, credentials, include_raw=query.ask.include_raw, key_id=key_id
        )

    async def fetch(
        self, query: Query, *, key_id: str, on_batch: Callable[["Run"], None] | None = None
    ) -> bytes:
        """The JSON answer of endpoint 10.

        Args:
            on_batch: Called with the run after each batch of records.

        Raises:
            ExchangeFailed: Nothing at all could be read.
            InvalidRequest, ServiceUnavailable: See `run`.
        """
        started_s = self._clock.now_s()
        parts: list[bytes] = []
        async with (
            self.run(query, key_id=key_id) as run,
            aclosing(run.records(self._settings.deadline_s)) as batches,
        ):
            async for batch in batches:
                parts += [encode(record) for record in batch]
                if on_batch is not None:
                    on_batch(run)
            run.raise_if_nothing()
            head, tail = self._envelope(run, key_id, spent_s=self._clock.now_s() - started_s)
        return b'%s,"transactions":[%s],%s' % (
            json.encode(head)[:-1],
            b",".join(parts),
            json.encode(tail)[1:],
        )

    async def stream(self, query: Query, *, key_id: str) -> AsyncGenerator[bytes]:
        """The NDJSON answer of endpoint 10: a record a line, then one summary line.

        Raises, before the first line:
            ExchangeFailed: Nothing at all could be read.
            InvalidRequest, ServiceUnavailable: See `run`.
        """
        started_s = self._clock.now_s()
        async with (
            self.run(query, key_id=key_id) as run,
            aclosing(run.records(self._settings.stream_deadline_s)) as batches,
        ):
            async for batch in batches:
                yield b"".join([encode(record) + b"\n" for record in batch])
            failure = run.nothing_but_failure()
            if failure is not None and not run.totals.count:
                raise _exchange_failed(failure)
            head, tail = self._envelope(run, key_id, spent_s=self._clock.now_s() - started_s)
        if failure is not None:  # lines are out already: the summary is where it can be said
            error = _exchange_failed(failure)
            head |= {"success": False, "error": error.code, "message": error.message}
        yield json.encode({"type": "summary"} | head | tail) + b"\n"

    def _envelope(
        self, run: "Run", key_id: str, *, spent_s: float
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What stands before the records and what stands after them."""
        query, totals, errors = run.query, run.totals, run.errors()
        coverage, state = run.coverage(), run.state(key_id)
        head = {
            "success": True,
            "message": message_of(totals.count, len(coverage), cut_off=run.cut_off),
            "exchange": query.ask.exchange,
            "total_transactions": totals.count,
            "processing_time": round(spent_s, 3),
        }
        tail: dict[str, Any] = {
            "summary": totals.summary(query),
            "filters_applied": filters_of(query),
            "partial": bool(errors) or any(part.reason == FAILED_BEFORE for part in coverage),
            "errors": errors,
            "coverage": coverage,
            "next_cursor": None if state is None else self._cursors.seal(state),
        }
        if query.ask.verify:
            tail["verification"] = run.verification()
        return head, tail


class Run:
    """One query being carried out."""

    def __init__(self, query: Query, adapter: Adapter, reader: Reader, clock: Clock) -> None:
        self.query = query
        self.totals = Totals()
        self.verifier: Verifier | None = None
        self._adapter = adapter
        self._clock = clock
        self._progress = asyncio.Event()
        self._last = FIRST
        self._stopped = LIMIT_REACHED
        self._reader = reader
        self._demand = Demand(query.limit)
        self._parts = [self._part(name, reader) for name in query.sources]
        if query.ask.verify:
            self.verifier = Verifier(
                below_ms=self._top_ms if query.state else query.to_ms + 1,
                asked={part.source.type for part in self._parts},
                orders="spot_orders" in query.words,
            )

    @property
    def display(self) -> str:
        """The exchange's name for people."""
        return self._adapter.entry.display

    @property
    def walkers(self) -> list[Walker]:
        """The walkers of this run."""
        return [part.walker for part in self._parts if part.walker is not None]

    @property
    def _top_ms(self) -> int:
        """Where this answer begins: the end of the range, or where the page before it came to."""
        state = self.query.state
        return self.query.to_ms if state is None else min(self.query.to_ms, -state.after[0])

    def _part(self, name: str, reader: Reader) -> Part:
        source, state = fitted(self._adapter.sources[name], self.query.limit), self.query.state
        place = self._begun_at(name)
        lost_before_ms = state.kept.get(name) if state else None
        if place in (DONE, GIVEN_UP):
            return Part(source, None, given_up=place == GIVEN_UP, lost_before_ms=lost_before_ms)
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
        )
        return Part(source, walker)

    def _begun_at(self, name: str) -> Place:
        """Where this page of a source begins."""
        state = self.query.state
        return state.place(name) if state else (FIRST.negative_ms, FIRST.record_id)

    async def records(self, deadline_s: float) -> AsyncGenerator[list[Record]]:
        """The records in order, in batches, until the limit, the end or the deadline."""
        until_s = self._clock.now_s() + deadline_s
        async with aclosing(
            merged(self.walkers, self._progress, limit=self.query.limit, demand=self._demand)
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
                yield self._heard([record for _, record in batch])

    def _heard(self, batch: list[Record]) -> list[Record]:
        for name, count in Counter([record.type for record in batch]).items():
            RECORDS.labels(self.query.ask.exchange, name).inc(count)
        for record in batch:
            self.totals.heard(record)
            if self.verifier is not None:
                self.verifier.heard(record)
        return batch

    @property
    def fatal(self) -> SourceFailed | None:
        """A failure after which nothing of this account can be read."""
        failures = (walker.failure for walker in self.walkers)
        return next((failure for failure in failures if failure and failure.fatal), None)

    @property
    def came_to_ms(self) -> int:
        """The time down to which everything has been read and handed on."""
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
                Reason.UNREACHABLE,
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
            raise _exchange_failed(failure)

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

    def state(self, key_id: str) -> State | None:
        """Where the next page begins; None when every source has come to its end."""
        places = {part.source.name: self._place(part) for part in self._parts}
        if all(place in (DONE, GIVEN_UP) for place in places.values()):
            return None
        before = self.query.state
        last = max(self._last, as_key(before.after)) if before else self._last
        after = (last.negative_ms, last.record_id)
        return State(
            digest=self.query.digest,
            key=key_digest(key_id),
            now_ms=self.query.now_ms,
            from_ms=self.query.from_ms,
            to_ms=self.query.to_ms,
            after=after,
            others={name: place for name, place in places.items() if place != after},
            kept={p.source.name: p.kept_from_ms for p in self._parts if p.kept_from_ms is not None},
        )

    def _place(self, part: Part) -> Place:
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


def _environment(*, testnet: bool) -> Environment:
    return Environment.TESTNET if testnet else Environment.MAINNET


def _no_credentials(entry: ExchangeEntry, environment: Environment) -> str:
    return f"The operator has set no {entry.display} {environment.value} credentials."


def _exchange_failed(failure: SourceFailed) -> ExchangeFailed:
    details = {"reason": failure.reason.value, "exchange_code": failure.exchange_code}
    return ExchangeFailed(failure.message, details=details, retry_after_s=failure.retry_after_s)
