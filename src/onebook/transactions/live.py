"""Live records: pushes new records of accounts to subscriptions that have received the history.

One `AccountFollower` per account reads the newest part of the exchange's lists repeatedly, for all
subscriptions of this node: immediately when the private stream (`private`) reports an event, and at
intervals, because streams lose messages and do not announce everything. Pushed records always come
from the lists, so a record has the same id and form as in a later fetch.

A subscription belongs to the account of its history. If the operator replaces the credentials, it
continues with another key of the same account, and ends if the key belongs to another one.

Each subscription remembers what it has delivered: a record is pushed when its id is new, and again
when its content has changed. There is no queue: if a subscription cannot take records, reading
later resumes where it stopped. Each read begins where the last complete one began, less an overlap,
so the first read after a gap closes it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from random import Random
from typing import Final, Protocol

from msgspec import UNSET, Struct
from msgspec.structs import replace

from onebook.backoff import Backoff
from onebook.clock import Clock
from onebook.errors import OnebookError, ServiceUnavailable
from onebook.model import DAY_MS, SECOND_MS
from onebook.transactions import metrics
from onebook.transactions.accounts import AccountName, named
from onebook.transactions.adapter import (
    BranchingReader,
    Environment,
    ErrorEntry,
    EventRow,
    JoiningReader,
    Page,
    PageReader,
    Source,
    Window,
)
from onebook.transactions.collected import CollectedIdentity
from onebook.transactions.private import AccountStream, PrivateStream, StreamHint, StreamOpening
from onebook.transactions.record import FIRST, Record, encode, key_of
from onebook.transactions.request import Query
from onebook.transactions.run import Run

STREAM, POLLING = "stream", "polling"
LIVE, INTERRUPTED, ENDED = "live", "interrupted", "ended"  # states of a subscription
GRAIN_MS: Final = 1_000  # reads begin at whole seconds: lists that filter by seconds lose none
UNTIMED: Final = "timestamp"  # in `incomplete`: the time is that of the read

log = logging.getLogger("onebook.transactions.live")


class LiveLimits(Struct, frozen=True, kw_only=True):
    """Intervals and bounds of live transactions; `_s` are seconds."""

    poll_s: float = 30.0  # between reads of types that no stream announces
    net_s: float = 300.0  # between reads of types that the stream announces
    hint_s: float = 0.1  # from a stream message to the read, which serves several messages
    pace_s: float = 1.0  # between the starts of two reads
    unannounced_pace_s: float = 5.0  # the same for types that the stream does not announce
    echoes_s: tuple[float, ...] = (2.0, 10.0)  # reads after a message: lists can lag behind streams
    sweep_s: float = 3_600.0  # between rereads of the time in which late records are expected
    sweep_ms: int = 7 * DAY_MS
    sweep_share: float = 0.05  # maximum share of the time spent on these rereads
    overlap_ms: int = 600_000  # by which each read overlaps the previous one
    deadline_s: float = 600.0  # per read
    retry_s: float = 1.0  # after a failed read or a lost stream; doubles
    retry_max_s: float = 60.0
    batch_records: int = 1_000  # sorted and delivered together
    ids_max: int = 100_000  # remembered per subscription


LIVE_LIMITS: Final = LiveLimits()


class LivePart(Struct, frozen=True):
    """How one type of a subscription is kept up to date.

    Args:
        source: `stream` or `polling`.
        delay_s: Seconds from the listing by the exchange to the push, in normal operation.
    """

    transaction_type: str
    source: str
    delay_s: float


class LiveStatus(Struct, frozen=True):
    """State of a subscription on one account.

    Args:
        state: `live`; `interrupted` while the exchange cannot be read; or `ended`, because the
            operator's credentials now belong to another account.
        reason: Why it is interrupted or ended, why there is no stream, or, once, that the API key
            was replaced; as a sentence; null otherwise.
        read_to_ms: Everything up to here has been pushed, Unix ms.
        errors: Types that cannot be read.
    """

    account: str
    state: str
    reason: str | None
    read_to_ms: int
    types: tuple[LivePart, ...]
    errors: tuple[ErrorEntry, ...]


class LiveRecord(Struct, frozen=True):
    """A record to push: its JSON, and whether other content was pushed for it before."""

    account: str
    changed: bool
    payload: bytes


class Subscriber(Protocol):
    """Receives what a subscription pushes."""

    @property
    def slow(self) -> bool:
        """Whether it cannot take records now."""
        ...

    def push(self, record: LiveRecord) -> None:
        """Receive a record."""
        ...

    def status(self, status: LiveStatus) -> None:
        """Receive the state of the subscription after each change."""
        ...


class TaggingReader:
    """A reader that notes the query of each record.

    Several words of a request can stand for parts of one type, so the type alone does not show
    whether a record was requested.
    """

    def __init__(self, reader: PageReader, queries: dict[str, set[str]]) -> None:
        self._reader = reader
        self._queries = queries

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        """Fetch one page; see `PageReader`."""
        return self._tagged(source, await self._reader.page(source, window, cursor))

    async def join(self, source: Source, groups: list[list[EventRow]]) -> Page:
        """Join rows; see `JoiningReader`."""
        assert isinstance(self._reader, JoiningReader)
        return self._tagged(source, await self._reader.join(source, groups))

    async def branches(self, source: Source) -> list[str]:
        """Find branches; see `BranchingReader`."""
        assert isinstance(self._reader, BranchingReader)
        return await self._reader.branches(source)

    def _tagged(self, source: Source, page: Page) -> Page:
        for record in page.records:
            self._queries.setdefault(record.transactionId, set()).add(root_of(source))
        return page


def root_of(source: Source) -> str:
    """The name of a source's query, or of all queries joined with it."""
    return source.joint or source.query.partition("/")[0]


class ReadRecord:
    """A record that was read, encoded once for all subscriptions."""

    __slots__ = ("_bare", "_whole", "content", "queries", "record")

    def __init__(self, record: Record, queries: set[str]) -> None:
        self.record = record
        self.queries = queries
        self._bare = encode(replace(record, raw=UNSET))
        self._whole = self._bare if record.raw is UNSET else encode(record)
        self.content = content_of(record, self._bare)

    def payload(self, *, raw: bool) -> bytes:
        """The record as JSON."""
        return self._whole if raw else self._bare


def content_of(record: Record, bare: bytes | None = None) -> int:
    """The content that decides whether a record changed; excludes the time of the read."""
    if UNTIMED in record.incomplete:
        return hash(encode(replace(record, raw=UNSET, timestamp=0, datetime="")))
    return hash(encode(replace(record, raw=UNSET)) if bare is None else bare)


class DeliveredRecords:
    """Delivered records of a subscription: the content of each record that can still change.

    Args:
        from_ms: Older records are not pushed.
        ids_max: Above this number of records, `from_ms` rises.
    """

    def __init__(self, from_ms: int, ids_max: int) -> None:
        self.from_ms = from_ms
        self._ids_max = ids_max
        self._seen: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def note(self, record: Record, content: int) -> bool | None:
        """Remember a record; return whether it has changed, or None if it was delivered already."""
        before = self._seen.get(record.transactionId)
        self._seen[record.transactionId] = record.timestamp, content
        if before is None:
            return False
        return None if before[1] == content else True

    def forget(self, before_ms: int) -> None:
        """Forget records that will not be read again; if they are, they are not pushed."""
        if len(self._seen) > self._ids_max:
            times = sorted(at_ms for at_ms, _ in self._seen.values())
            before_ms = max(before_ms, times[-self._ids_max // 2])
        if before_ms > self.from_ms:
            self.from_ms = before_ms
            kept = self._seen.items()
            self._seen = {name: seen for name, seen in kept if seen[0] >= before_ms}


class LiveSubscription:
    """One account of a client's subscription: the records delivered, and those still to push.

    Create it before the history is read, `note` each of its records, then have it followed.

    Args:
        query: The query of the history.
        joint: Whether the history covers several accounts, so that records name theirs.
        key: Fingerprint of the API key before the history is read.
    """

    def __init__(
        self,
        query: Query,
        sources: Iterable[Source],
        subscriber: Subscriber,
        *,
        joint: bool,
        key: str,
        limits: LiveLimits,
    ) -> None:
        self.query = query
        self.identity = CollectedIdentity(key, doubtful=True)  # until its account was looked up
        self.ended = False
        self.notice: str | None = None  # the reason in the next state, once
        self.sources = {each.name: each for each in sources if each.window_ms}
        self.types = tuple(dict.fromkeys(each.type for each in self.sources.values()))
        self.unread = set(self.types)  # since the subscription began; until then it is not live
        self.subscriber = subscriber
        self.informed: LiveStatus | None = None
        self._roots = {(root_of(each), each.type) for each in self.sources.values()}
        self._name = AccountName(query.account.exchange, "") if joint else None
        self._floors: dict[str, int] = {}
        self._last = FIRST  # position of the oldest record of the history
        self._delivered = DeliveredRecords(query.from_ms, limits.ids_max)

    @property
    def from_ms(self) -> int:
        """Time before which records are not pushed."""
        return self._delivered.from_ms

    def note(self, record: Record) -> None:
        """Record that a record of the history was delivered."""
        self._last = max(self._last, key_of(record))
        self._delivered.note(record, content_of(record))

    def covered(self, kind: str, from_ms: int | None) -> None:
        """Record how far back the history of a type reaches; None: nothing of it was delivered.

        Older records are part of its next page, and so are those of the same time that come after
        its last record.
        """
        floor_ms = self.query.to_ms if from_ms is None else from_ms
        self._floors[kind] = max(floor_ms, self._floors.get(kind, 0))

    def push(self, found: Sequence[ReadRecord]) -> None:
        """Push the new records among those read, oldest first."""
        for each in found:
            record = each.record
            if self._name is not None and not self.query.account.label:
                record = named(record, self._name)
                each = ReadRecord(record, each.queries)
            if not self._wants(record, each.queries):
                continue
            changed = self._delivered.note(record, each.content)
            if changed is None:
                continue
            payload = each.payload(raw=self.query.request.include_raw)
            metrics.LIVE_RECORDS.labels(record.exchange).inc()
            self.subscriber.push(LiveRecord(self.query.name, changed, payload))

    def _wants(self, record: Record, queries: set[str]) -> bool:
        floor_ms = max(self._delivered.from_ms, self._floors.get(record.type, 0))
        if record.timestamp < floor_ms or self._is_of_next_page(record):
            return False
        return any((query, record.type) in self._roots for query in queries)

    def _is_of_next_page(self, record: Record) -> bool:
        """Whether a record comes after the last one of a history that ended at its time."""
        floor_ms = self._floors.get(record.type)
        if floor_ms is None or floor_ms <= self.query.from_ms:
            return False  # the history is whole
        ended_ms = -self._last.negative_ms
        return record.timestamp == floor_ms == ended_ms and key_of(record) > self._last

    def forget(self, before_ms: int) -> None:
        """See `DeliveredRecords.forget`."""
        self._delivered.forget(before_ms)

    def inform(self, status: LiveStatus) -> None:
        """Report the state if it differs from the last one reported, or if there is a notice."""
        before, self.informed = self.informed, status
        if self.notice is not None and status.state == LIVE:
            with_notice = replace(status, reason=self.notice)
            self.notice = None
            self.subscriber.status(with_notice)
        elif before is None or replace(before, read_to_ms=0) != replace(status, read_to_ms=0):
            self.subscriber.status(status)


class AccountRun(Struct, frozen=True):
    """A running read, and the identity of the credentials that it uses.

    Args:
        account_id: Stands for them in cursors and streams.
        key: Fingerprint of their API key.
    """

    run: Run
    account_id: str
    key: str


class LivePorts(Protocol):
    """The functions of the service that a follower needs; `service` imports this module."""

    def read(
        self, query: Query, tap: Callable[[PageReader], PageReader]
    ) -> AbstractAsyncContextManager[AccountRun]:
        """Start a query with the current credentials.

        Raises:
            OnebookError: There are no credentials.
        """
        ...

    async def opening(self, query: Query, facts: PrivateStream) -> StreamOpening:
        """Prepare a connection to a private stream.

        Raises:
            OnebookError, SourceFailed: It cannot be prepared.
        """
        ...

    async def identity(self, name: AccountName, environment: Environment) -> CollectedIdentity:
        """Return the account to which the current credentials of a name belong.

        Raises:
            OnebookError: There are no credentials, or the exchange does not answer.
        """
        ...

    def streams_of(self, query: Query) -> tuple[PrivateStream, ...]:
        """The private streams of an account."""
        ...

    def poll_factor(self, query: Query) -> float:
        """The polling interval of an account's exchange relative to other exchanges."""
        ...


class FollowedStream:
    """A private stream of a followed account, and whether it is open."""

    def __init__(self, facts: PrivateStream) -> None:
        self.facts = facts
        self.stream: AccountStream | None = None
        self.open = False
        self.why_lost: str | None = None


class AccountFollower:
    """Reads new records of one account for all of its subscriptions. Must be closed."""

    def __init__(
        self,
        query: Query,
        ports: LivePorts,
        *,
        limits: LiveLimits,
        clock: Clock,
        random: Random,
    ) -> None:
        self.subscriptions: list[LiveSubscription] = []
        self._name = query.name
        self._query = query
        self._ports = ports
        self._limits = limits
        self._clock = clock
        self._poll_s = limits.poll_s * ports.poll_factor(query)
        self._streams = [FollowedStream(facts) for facts in ports.streams_of(query)]
        self._missing = metrics.LIVE_STREAMS_MISSING.labels(query.account.exchange)
        self._missing.inc(len(self._streams))
        self._reason: str | None = None
        self._identity: CollectedIdentity | None = None  # the account of the last read
        self._identify_at = 0.0  # when to look for it again after a failure
        self._errors: tuple[ErrorEntry, ...] = ()
        self._read_to: dict[str, int] = {}
        self._rewound: dict[str, int] = {}
        self._refused_from: dict[str, int] = {}  # types that may not be read, and since when
        self._due: dict[str, float] = {}
        self._read_at: dict[str, float] = {}
        self._echo: dict[str, int] = {}  # by type: number of reads since the last stream message
        self._sweep_at = clock.monotonic() + limits.sweep_s
        self._wake = asyncio.Event()
        self._backoff = Backoff(limits.retry_s, limits.retry_max_s, random.random)
        self._tasks = [asyncio.create_task(self._run(), name=f"follow {self._name}")]
        for each in self._streams:
            each.stream = AccountStream(
                each.facts,
                partial(ports.opening, query, each.facts),
                name=self._name,
                happened=self._happened,
                changed=partial(self._stream_changed, each),
                backoff=Backoff(limits.retry_s, limits.retry_max_s, random.random),
                sleep=clock.sleep,
            )
            task = asyncio.create_task(each.stream.run(), name=f"stream {self._name}")
            self._tasks.append(task)

    def add(self, subscription: LiveSubscription) -> None:
        """Push to a subscription the records that its history lacks."""
        self.subscriptions.append(subscription)
        self._rewind(subscription.types, subscription.query.to_ms)

    def _rewind(self, types: Iterable[str], to_ms: int) -> None:
        """Reread types from a time, less the overlap, as soon as possible."""
        for kind in types:
            self._rewound[kind] = min(to_ms, self._rewound.get(kind, to_ms))
            self._due[kind] = 0.0
        self._wake.set()

    async def close(self) -> None:
        """End all requests and the streams."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in self._streams:
            self._set_open(each, open_=False)
        self._missing.dec(len(self._streams))

    # The streams

    def _happened(self, event: StreamHint) -> None:
        at_s = self._clock.monotonic() + self._limits.hint_s
        for kind in event.types or tuple(self._due):
            if kind not in self._due:
                continue
            if not self._announced(kind):
                at_s = max(at_s, self._read_at.get(kind, 0.0) + self._limits.unannounced_pace_s)
            self._due[kind] = min(self._due[kind], at_s)
            self._echo[kind] = 0
        self._wake.set()

    def _stream_changed(self, stream: FollowedStream, reason: str | None) -> None:
        stream.why_lost = reason
        if (reason is None) != stream.open:
            self._set_open(stream, open_=reason is None)
            # Events before the stream opened, or no longer announced.
            self._rewind(tuple(self._due), self._clock.wall_ms())
        self._inform()

    def _set_open(self, stream: FollowedStream, *, open_: bool) -> None:
        exchange = self._query.account.exchange
        if open_ and not stream.open:
            metrics.LIVE_STREAMS.labels(exchange).inc()
            self._missing.dec()
        if stream.open and not open_:
            metrics.LIVE_STREAMS.labels(exchange).dec()
            self._missing.inc()
            metrics.LIVE_STREAM_LOSSES.labels(exchange).inc()
        stream.open = open_

    def _announced(self, kind: str) -> bool:
        """Whether a stream announces what happens of a type now."""
        return any(each.open and kind in each.facts.types for each in self._streams)

    # Reading

    async def _run(self) -> None:
        while True:
            await self._until_due()
            began_s = self._clock.monotonic()
            try:
                read = await self._read_due(began_s)
            except OnebookError as error:
                self._fail(error.message)
                read = False
            except Exception:  # our own bug: the subscription continues with the next read
                log.exception("%s: reading new records failed.", self._name)
                self._fail("Internal error; it has been logged.")
                read = False
            outcome = "ok" if read else "failed"
            metrics.LIVE_READS.labels(self._query.account.exchange, outcome).inc()
            if read:
                self._backoff.reset()
            self._inform()
            spent_s = self._clock.monotonic() - began_s
            pause_s = 0.0 if read else self._backoff.next_s()
            await self._clock.sleep(max(pause_s, self._limits.pace_s - spent_s))

    async def _until_due(self) -> None:
        """Wait until a type has to be read."""
        while True:
            self._wake.clear()
            wanted = {kind for each in self._active for kind in each.types}
            self._due = {kind: at for kind, at in self._due.items() if kind in wanted}
            self._read_to = {kind: at for kind, at in self._read_to.items() if kind in wanted}
            wait_s = min(self._due.values(), default=3_600.0) - self._clock.monotonic()
            if wait_s <= 0:
                return
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _read_due(self, now_s: float) -> bool:
        """Read the types that are due; return whether all could be read."""
        limits, now_ms = self._limits, self._clock.wall_ms()
        sweeping = now_s >= self._sweep_at
        types = [kind for kind, at_s in self._due.items() if sweeping or at_s <= now_s]
        readers = self._active  # one that is added during the read needs another
        if not types or not readers:
            return True
        for kind in types:
            # Before the read, so that stream messages during the read cause another.
            self._due[kind] = now_s + self._next_s(kind)
            to_ms = self._rewound.pop(kind, now_ms)
            self._read_to[kind] = min(to_ms, self._read_to.get(kind, to_ms))
        from_ms = min(self._read_to[kind] for kind in types) - limits.overlap_ms
        if sweeping:
            oldest_ms = min(each.from_ms for each in self._active)
            from_ms = min(from_ms, max(now_ms - limits.sweep_ms, oldest_ms))
        from_ms = max(0, from_ms // GRAIN_MS * GRAIN_MS)
        failed = set(types)
        try:
            failed = await self._read(types, from_ms, now_ms)
        finally:
            for kind in failed:
                self._due[kind] = 0.0
        refused = {each.transaction_type for each in self._errors}
        for kind in types:
            if kind in refused:
                self._refused_from.setdefault(kind, self._read_to[kind])
            elif kind not in failed and kind in self._refused_from:
                self._rewind([kind], self._refused_from.pop(kind))
            if kind not in failed:
                self._read_to[kind] = now_ms
                self._read_at[kind] = now_s
        for each in readers:
            each.unread.difference_update(set(types) - failed)
        if sweeping:
            spent_s = self._clock.monotonic() - now_s
            self._sweep_at = now_s + max(limits.sweep_s, spent_s / limits.sweep_share)
        kept_ms = min(*self._read_to.values(), now_ms - limits.sweep_ms) - limits.overlap_ms
        for each in self.subscriptions:
            each.forget(kept_ms)
        return not failed

    def _next_s(self, kind: str) -> float:
        """Seconds until a type that was just read is read again."""
        echo = self._echo.get(kind, len(self._limits.echoes_s))
        if echo < len(self._limits.echoes_s):
            self._echo[kind] = echo + 1
            return self._limits.echoes_s[echo]
        return self._limits.net_s if self._announced(kind) else self._poll_s

    async def _read(self, types: list[str], from_ms: int, now_ms: int) -> set[str]:
        """Read and push; return the types that must be read again."""
        sources = {
            name: each
            for subscription in self._active
            for name, each in subscription.sources.items()
            if each.type in types
        }
        if not sources:
            return set()
        raw = any(each.query.request.include_raw for each in self._active)
        query = replace(
            self._query,
            request=self._query.request.model_copy(
                update={"transaction_types": [], "include_raw": raw, "verify": False}
            ),
            sources=tuple(sources),
            now_ms=now_ms,
            from_ms=from_ms,
            to_ms=now_ms,
            limit=None,
            state=None,
        )
        queries: dict[str, set[str]] = {}
        slow: set[str] = set()
        async with (
            self._ports.read(query, lambda reader: TaggingReader(reader, queries)) as reading,
            aclosing(self._batches(reading.run)) as batches,
        ):
            await self._check_identity(reading.key)
            for each in self._streams:
                stream = each.stream
                if stream and stream.account_id not in (None, reading.account_id):
                    stream.restart()
            async for batch in batches:
                slow |= self._deliver(batch, queries)
            fatal = reading.run.fatal
            errors = reading.run.errors()
        if fatal is not None:
            self._fail(fatal.message)
            return set(types)
        self._errors = tuple(each for each in errors if not each.retryable)
        again = [each for each in errors if each.retryable]
        if again:
            self._fail(again[0].message)
        elif self._reason is not None:
            log.info("%s: live transactions are complete again.", self._name)
            self._reason = None
        self._rewind(slow, from_ms)
        return {each.transaction_type for each in again}

    async def _check_identity(self, key: str) -> None:
        """End the subscriptions of another account than that of the key of a read.

        An exchange that does not report the account of a key is followed with the new key.

        Raises:
            OnebookError: The account of a new key is unknown now; nothing may be pushed.
        """
        replaced = [each for each in self._active if each.identity.key != key]
        if self._identity is None or self._identity.key != key:
            now_s, account = self._clock.monotonic(), self._query.account
            if not replaced and now_s < self._identify_at:
                return
            try:
                found = await self._ports.identity(account, self._query.environment)
            except OnebookError:
                self._identify_at = now_s + self._limits.net_s
                if replaced:
                    raise
                return
            if found.key != key:
                raise ServiceUnavailable(f"The API key of {account} was replaced during a read.")
            self._identity = found
        for each in self._active:
            was_replaced = each.identity.key != key
            if each.identity.differs(self._identity) or (was_replaced and each.identity.doubtful):
                self._end(each)
                continue
            if was_replaced:
                known = each.identity.owner and self._identity.owner
                each.notice = (
                    f"The API key of {self._name} was replaced by another one of the same account."
                    if known
                    else f"The API key of {self._name} was replaced; the exchange does not report "
                    "whether it belongs to the same account."
                )
            owner = self._identity.owner or each.identity.owner
            each.identity = replace(self._identity, owner=owner)

    def _end(self, subscription: LiveSubscription) -> None:
        """Push nothing more to a subscription, and say why."""
        log.warning("%s: live transactions ended: the key belongs to another account.", self._name)
        status = self._status(subscription)
        subscription.ended = True
        subscription.inform(
            replace(
                status,
                state=ENDED,
                reason=f"The credentials of {self._name} now belong to another account; "
                "subscribe again."
                if subscription.identity.owner
                else f"The credentials of {self._name} were replaced before their account was "
                "known; subscribe again.",
            )
        )

    @property
    def _active(self) -> list[LiveSubscription]:
        return [each for each in self.subscriptions if not each.ended]

    async def _batches(self, run: Run) -> AsyncGenerator[list[Record]]:
        """Yield the records of a run, oldest first within each batch."""
        found: list[Record] = []
        async with aclosing(run.records(self._limits.deadline_s)) as batches:
            async for batch in batches:
                found += batch
                if len(found) >= self._limits.batch_records:
                    yield found[::-1]
                    found = []
        yield found[::-1]

    def _deliver(self, records: list[Record], queries: dict[str, set[str]]) -> set[str]:
        """Push to every subscription; return the types of those that could not take records."""
        found = [ReadRecord(each, queries[each.transactionId]) for each in records]
        slow: set[str] = set()
        for each in self._active:
            if found and each.subscriber.slow:
                slow |= set(each.types)
            else:
                each.push(found)
        return slow

    # State

    def _fail(self, message: str) -> None:
        if self._reason is None:
            log.warning("%s: live transactions are interrupted: %s", self._name, message)
        self._reason = message

    def _inform(self) -> None:
        for each in self._active:
            if each.unread and self._reason is None:
                continue  # neither live nor interrupted: its first read has not ended
            try:
                each.inform(self._status(each))
            except Exception:  # our own bug: an unsent state must not end a subscription
                log.exception("%s: the state of a subscription was not sent.", self._name)

    @property
    def behind_s(self) -> float:
        """Seconds since the time up to which everything was pushed."""
        if not self._read_to:
            return 0.0
        return max(0, self._clock.wall_ms() - min(self._read_to.values())) / SECOND_MS

    def _why_no_stream(self) -> str | None:
        """Why a stream is not there, of the first that is not."""
        return next((each.why_lost for each in self._streams if each.why_lost), None)

    def parts(self, subscription: LiveSubscription) -> tuple[LivePart, ...]:
        """How each readable type of a subscription is kept up to date now."""
        failed = {each.transaction_type for each in self._errors}
        return tuple(
            LivePart(kind, STREAM, self._limits.echoes_s[-1])
            if self._announced(kind)
            else LivePart(kind, POLLING, self._poll_s)
            for kind in subscription.types
            if kind not in failed
        )

    def _status(self, subscription: LiveSubscription) -> LiveStatus:
        begun_ms = subscription.query.to_ms
        read_to = [
            min(self._read_to.get(kind, begun_ms), self._rewound.get(kind, 1 << 62))
            for kind in subscription.types
        ]
        return LiveStatus(
            account=self._name,
            state=LIVE if self._reason is None else INTERRUPTED,
            reason=self._reason or self._why_no_stream(),
            read_to_ms=min(read_to, default=begun_ms),
            types=self.parts(subscription),
            errors=tuple(e for e in self._errors if e.transaction_type in subscription.types),
        )


def _is_of(account: str, exchange: str) -> bool:
    return account.partition(":")[0] == exchange


class LiveAccounts:
    """The followers of a node, one per account with subscriptions. Must be closed."""

    def __init__(
        self,
        ports: LivePorts,
        *,
        clock: Clock,
        limits: LiveLimits = LIVE_LIMITS,
        random: Random | None = None,
    ) -> None:
        self.limits = limits
        self._ports = ports
        self._clock = clock
        self._random = random or Random()  # noqa: S311  # jitter
        self._followers: dict[tuple[str, Environment], AccountFollower] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def follow(self, subscription: LiveSubscription) -> None:
        """Start pushing to a subscription."""
        query = subscription.query
        place = query.name, query.environment
        follower = self._followers.get(place)
        if follower is None:
            follower = self._followers[place] = AccountFollower(
                query, self._ports, limits=self.limits, clock=self._clock, random=self._random
            )
            exchange = query.account.exchange
            metrics.LIVE_BEHIND.labels(exchange).set_function(partial(self._behind_s, exchange))
        follower.add(subscription)
        metrics.LIVE_SUBSCRIPTIONS.labels(query.account.exchange).inc()

    def parts(self, subscription: LiveSubscription) -> tuple[LivePart, ...]:
        """How each type of a subscription is or will be kept up to date."""
        query = subscription.query
        follower = self._followers.get((query.name, query.environment))
        if follower is not None:
            return follower.parts(subscription)
        poll_s = self.limits.poll_s * self._ports.poll_factor(query)
        return tuple(LivePart(kind, POLLING, poll_s) for kind in subscription.types)

    def _behind_s(self, exchange: str) -> float:
        """The maximum delay over the accounts of an exchange."""
        own = (each for (name, _), each in self._followers.items() if _is_of(name, exchange))
        return max((each.behind_s for each in own), default=0.0)

    def leave(self, subscription: LiveSubscription) -> None:
        """Stop pushing to a subscription; an account without subscriptions is no longer read."""
        query = subscription.query
        place = query.name, query.environment
        follower = self._followers.get(place)
        if follower is None or subscription not in follower.subscriptions:
            return
        follower.subscriptions.remove(subscription)
        metrics.LIVE_SUBSCRIPTIONS.labels(query.account.exchange).dec()
        if follower.subscriptions:
            return
        del self._followers[place]
        task = asyncio.create_task(follower.close(), name=f"unfollow {query.name}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all following."""
        followers, self._followers = list(self._followers.values()), {}
        await asyncio.gather(*self._ending, *(each.close() for each in followers))
