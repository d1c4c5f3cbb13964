"""The meter: bytes delivered to each key, counted in memory and flushed in idempotent batches.

A batch has a number that the store takes once, so that trying again after a doubtful answer never
counts twice; what a crash loses is what was counted since the last flush. The meter does not
close sockets: it tells `on_over` and `on_warning`.
"""

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec import Struct

from onebook.accounts.beat import every
from onebook.accounts.keys import Key, status_at
from onebook.accounts.periods import Period, iso_utc, period_after, period_at
from onebook.config import AccountsSettings
from onebook.errors import OnebookError
from onebook.model import DAY_MS, GIB_BYTES, KeyStatus
from onebook.store import Store, UsageCell

WARNING_PERCENT: Final = 80
CLOSE_TIMEOUT_S: Final = 10.0
CLOSE_PAUSE_S: Final = 0.2
GIB_DECIMALS: Final = 6

log = logging.getLogger("onebook.accounts")


class DataUsage(Struct, frozen=True):
    """How much of the allowance is used; GB are GiB."""

    used_gb: float
    limit_gb: float
    remaining_gb: float
    usage_percentage: float
    bytes_used: int
    bytes_limit: int


class BillingPeriod(Struct, frozen=True):
    """When the allowance is renewed."""

    reset_date: str
    days_until_reset: int
    next_reset: str


class UsageStatus(Struct, frozen=True):
    """What the usage means for the key."""

    limit_exceeded: bool
    warning_threshold: bool
    api_key_status: KeyStatus


class UsageReport(Struct, frozen=True):
    """The body of GET /data-usage, field by field as the specification has it."""

    user_id: str
    username: str
    billing_tier: str
    api_key_active: bool
    data_usage: DataUsage
    billing_period: BillingPeriod
    status: UsageStatus
    timestamp: str


class Mark(IntEnum):
    """How far a key is in its allowance."""

    WITHIN = 0
    WARNING = 1
    OVER = 2


def mark_of(used_bytes: int, allowance_bytes: int) -> Mark:
    """How far a number of bytes is in an allowance."""
    if used_bytes > allowance_bytes:
        return Mark.OVER
    if used_bytes * 100 >= allowance_bytes * WARNING_PERCENT:
        return Mark.WARNING
    return Mark.WITHIN


def usage_report(key: Key, used_bytes: int, *, allowance_bytes: int, now_ms: int) -> UsageReport:
    """Report what a key has used in the period that holds `now_ms`."""
    period = period_at(key.created_at_ms, now_ms)
    status = status_at(key, now_ms)
    mark = mark_of(used_bytes, allowance_bytes)
    return UsageReport(
        user_id=key.account_id,
        username=key.username,
        billing_tier=key.tier.value,
        api_key_active=status is KeyStatus.ACTIVE,
        data_usage=DataUsage(
            used_gb=_gib(used_bytes),
            limit_gb=_gib(allowance_bytes),
            remaining_gb=_gib(max(0, allowance_bytes - used_bytes)),
            usage_percentage=round(used_bytes * 100 / allowance_bytes, 2),
            bytes_used=used_bytes,
            bytes_limit=allowance_bytes,
        ),
        billing_period=BillingPeriod(
            reset_date=iso_utc(period.end_ms),
            days_until_reset=(period.end_ms - now_ms) // DAY_MS,
            next_reset=iso_utc(period_after(key.created_at_ms, period).end_ms),
        ),
        status=UsageStatus(
            limit_exceeded=mark is Mark.OVER,
            warning_threshold=mark is not Mark.WITHIN,
            api_key_status=status,
        ),
        timestamp=iso_utc(now_ms),
    )


async def stored_usage(store: Store, key: Key, now_ms: int) -> int:
    """The bytes of a key's current period that the store has, from every node."""
    period = period_at(key.created_at_ms, now_ms)
    return await store.usage(UsageCell(key.key_id, period.start_ms))


def _gib(count: int) -> float:
    return round(count / GIB_BYTES, GIB_DECIMALS)


class _Count:
    """What one key has used in its current period, and how far it has been told."""

    __slots__ = ("cell", "end_ms", "key", "told", "used_bytes")

    def __init__(self, key: Key, period: Period) -> None:
        self.key = key
        self.begin(period)

    def begin(self, period: Period) -> None:
        self.cell = UsageCell(self.key.key_id, period.start_ms)
        self.end_ms = period.end_ms
        self.used_bytes = 0
        self.told = Mark.WITHIN


class _Batch(NamedTuple):
    seq: int
    deltas: dict[UsageCell, int]


class Meter:
    """Counts bytes per key and period; `on_over` and `on_warning` are set by the app.

    Both are called from `flush`, at most half a second after the byte that crossed the mark, and
    never from `add`, which runs in the middle of a fan-out.
    """

    def __init__(
        self,
        store: Store,
        clock_ms: Callable[[], int],
        *,
        allowance_bytes: int = AccountsSettings().allowance_bytes,
    ) -> None:
        self.on_over: Callable[[str], None] = lambda key_id: None
        self.on_warning: Callable[[str, UsageReport], None] = lambda key_id, report: None
        self.allowance_bytes = allowance_bytes
        self._store = store
        self._clock_ms = clock_ms
        self._node_epoch = secrets.token_hex(16)
        self._seq = 0
        self._counts: dict[str, _Count] = {}
        self._pending: defaultdict[UsageCell, int] = defaultdict(int)
        self._unconfirmed: _Batch | None = None
        self._flushing = asyncio.Lock()

    async def open(self, *keys: Key) -> None:
        """Load what keys have used; once a key is open, its bytes can be added."""
        now_ms = self._clock_ms()
        unknown = (key for key in keys if key.key_id not in self._counts)
        new = [_Count(key, period_at(key.created_at_ms, now_ms)) for key in unknown]
        if new:
            used_bytes = await self._store.usage_of({count.cell for count in new})
            for count in new:
                self._begin(count, used_bytes.get(count.cell, 0))
        for key in keys:
            self._counts[key.key_id].key = key

    def _begin(self, count: _Count, used_bytes: int) -> None:
        if self._counts.setdefault(count.key.key_id, count) is count:
            # Who is over, or was warned, before we knew the key is not told again.
            count.used_bytes = used_bytes
            count.told = mark_of(used_bytes, self.allowance_bytes)

    def add(self, key_id: str, count_bytes: int) -> None:
        """Count bytes handed to an open key."""
        count = self._current(key_id, self._clock_ms())
        count.used_bytes += count_bytes
        self._pending[count.cell] += count_bytes

    def used(self, key_id: str, now_ms: int) -> int:
        """The bytes an open key has used in the period that holds `now_ms`."""
        return self._current(key_id, now_ms).used_bytes

    def over(self, key_id: str) -> bool:
        """Whether an open key has used more than its allowance."""
        used_bytes = self.used(key_id, self._clock_ms())
        return mark_of(used_bytes, self.allowance_bytes) is Mark.OVER

    def report(self, key_id: str, now_ms: int) -> UsageReport:
        """What an open key has used, as a client is told."""
        count = self._current(key_id, now_ms)
        return usage_report(
            count.key, count.used_bytes, allowance_bytes=self.allowance_bytes, now_ms=now_ms
        )

    def pending_bytes(self) -> int:
        """Bytes that a crash would lose now."""
        waiting = self._unconfirmed.deltas.values() if self._unconfirmed else ()
        return sum(self._pending.values()) + sum(waiting)

    def _current(self, key_id: str, now_ms: int) -> _Count:
        count = self._counts[key_id]
        if now_ms >= count.end_ms:
            count.begin(period_at(count.key.created_at_ms, now_ms))
        return count

    async def flush(self) -> None:
        """Write what was counted since the last flush; tell who crossed a mark.

        Raises:
            ServiceUnavailable: The store does not answer. Nothing is lost: the next flush tries
                the same batch under the same number.
        """
        async with self._flushing:
            # Before the store, because a store that is away must not lift the limit.
            self._tell(list(self._pending))
            await self._deliver()
            self._unconfirmed = self._next_batch()
            await self._deliver()

    def _next_batch(self) -> _Batch | None:
        if not self._pending:
            return None
        deltas, self._pending = self._pending, defaultdict(int)
        self._seq += 1
        return _Batch(self._seq, deltas)

    async def _deliver(self) -> None:
        batch = self._unconfirmed
        if batch is None:
            return
        number = (self._node_epoch, batch.seq)
        totals = await self._store.apply_usage(number, batch.deltas, self._clock_ms())
        self._unconfirmed = None
        # The totals hold what other nodes delivered to the same keys.
        for cell, total in (totals or {}).items():
            count = self._counts[cell.key_id]
            if count.cell == cell:
                count.used_bytes = total + self._pending.get(cell, 0)
        self._tell(batch.deltas)

    def _tell(self, cells: Iterable[UsageCell]) -> None:
        for cell in cells:
            count = self._counts[cell.key_id]
            mark = mark_of(count.used_bytes, self.allowance_bytes)
            if mark <= count.told:
                continue
            count.told = mark
            if mark is Mark.OVER:
                self.on_over(cell.key_id)
            else:
                self.on_warning(cell.key_id, self.report(cell.key_id, self._clock_ms()))

    async def run(self, interval_s: float) -> None:
        """Flush until cancelled."""
        await every(interval_s, self.flush, what="Writing usage to the database")

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Flush what is left, trying again for a while if the store does not answer."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if await self._flushed():
                        return
                    await asyncio.sleep(CLOSE_PAUSE_S)
        except TimeoutError:
            log.error("%d bytes of usage could not be written", self.pending_bytes())

    async def _flushed(self) -> bool:
        try:
            await self.flush()
        except OnebookError:
            return False
        return True
