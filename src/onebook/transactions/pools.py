"""Rate limits of an exchange in units: rolling windows and decaying counters, shared fairly.

A call costs units of one or more pools: of its path, its key, or this address. A `CostLimit` is the
exchange's rule for a pool; a `Pool` tracks the units in use. API keys of this service take turns,
before the background (live reads and collections), and our own count is corrected by pool states
that answers report (`PoolState`).

A refusal means that another program uses the pool too, or that it is smaller than assumed: the pool
then counts as full and its pace is halved, until successes have restored it.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from contextlib import nullcontext
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from onebook.clock import Clock
from onebook.model import DAY_MS
from onebook.transactions.adapter import FailureReason, SourceFailed
from onebook.transactions.limits import Waits

BLOCK_S_MAX: Final = 90.0  # upper bound of a reset time that an exchange sends
WAIT_S_MAX: Final = 900.0  # for longer waits, a request fails at once and reports when to retry
TIMER_S: Final = 1e-4  # how early a timer may fire
RESERVED_FROM_S: Final = 30.0  # shorter windows free up before a user notices
LATENCY_S: Final = 0.5  # by which requests may arrive closer together than they were sent
PACE_MIN: Final = 1 / 8
PACE_REGAINED: Final = 1.02  # per success
NEGLIGIBLE: Final = 1e-9  # units
CLIENT_TURNS: Final = 4  # in a row, then one of the background if it waits
CLIENT_SHARE: Final = 0.5  # of a counter, which the background leaves to clients: costs no pace
OTHERS: Final = "(others)"  # units that another program used


class PoolScope(StrEnum):
    """The scope of a pool: which requests it counts together."""

    KEY = "key"
    USER = "user"
    ADDRESS = "address"


class CostLimit(Struct, frozen=True):
    """An exchange's rule for a pool.

    Args:
        units: Units in one rolling window, or the maximum of a decaying counter.
        period_s: The rolling window; 0 for a counter.
        sinks: Units per second by which a counter decays; 0 for a window.
        start: Units before an answer states the limit; 0: `units`.
        scope: Which requests it counts together.
    """

    units: float
    period_s: float = 0.0
    sinks: float = 0.0
    start: float = 0.0
    scope: PoolScope = PoolScope.KEY

    def scaled(self, factor: float) -> "CostLimit":
        """The rule of an account with higher limits; those of an address are unchanged."""
        if self.scope is PoolScope.ADDRESS:
            return self
        if self.sinks:
            return replace(self, sinks=self.sinks * factor)
        return replace(self, units=self.units * factor, start=self.start * factor)

    @property
    def margin_s(self) -> float:
        """Safety margin: exchanges count requests on arrival, and latency varies."""
        return 0.03 if self.period_s <= 5 else LATENCY_S

    @property
    def renewal_s(self) -> float:
        """Seconds in which a full pool becomes empty."""
        return self.units / self.sinks if self.sinks else self.period_s


class Budget(Struct, frozen=True):
    """An exchange's rule for requests that are limited to a few per day or month, such as exports.

    Use is counted in the database (`ExportStore.spend`), across restarts and processes, in any
    period of this many days, so that no calendar day or month exceeds the limit either.

    Args:
        units: Requests in a period.
        days: The period: 1 for a daily limit, 31 for a monthly one.
        what: What is requested, in the plural.
        left: How many of them are left to the user, who has the same limit.
    """

    units: int
    days: int
    what: str = "requests"
    left: int = 0

    @property
    def period_ms(self) -> int:
        """The period in milliseconds."""
        return self.days * DAY_MS

    @property
    def text(self) -> str:
        """The rule in words."""
        period = "a day" if self.days == 1 else f"in {self.days} days"
        rest = f", of which {self.left} are left to you" if self.left else ""
        return f"{self.units} {self.what} {period}{rest}"


class PoolState(Struct, frozen=True, kw_only=True):
    """The state of a pool as reported in an answer.

    Args:
        units: Size of the pool; None if not stated. A size above the limit's has no effect.
        used: Units in use, this call included; None if not stated.
        cost: Units that this call cost; None: as planned.
        blocked_s: Seconds without further requests.
        refused: Whether the call was refused because the pool is used up.
    """

    units: float | None = None
    used: float | None = None
    cost: float | None = None
    blocked_s: float = 0.0
    refused: bool = False


class UnitGrant:
    """Units granted to one call; `units` is the part that still counts."""

    __slots__ = ("key", "planned", "units", "until_s")

    def __init__(self, key: str, units: float, until_s: float) -> None:
        self.key = key
        self.units = units
        self.planned = units
        self.until_s = until_s

    def correct_cost(self, cost: float) -> None:
        """Replace the planned cost by the actual one."""
        self.units = max(0.0, self.units + cost - self.planned)
        self.planned = cost


class Usage(Protocol):
    """The grants that still count in a pool, the oldest first."""

    grants: deque[UnitGrant]

    def add(self, key: str, units: float, now_s: float) -> UnitGrant:
        """Count units from now on."""
        ...

    def forget(self, now_s: float, pace: float) -> None:
        """Drop grants that no longer count."""
        ...

    def freed_s(self, units: float, now_s: float, pace: float) -> float:
        """Seconds until this many of the units in use are free again."""
        ...


class WindowUsage:
    """Grants of a rolling window: each counts for the whole period."""

    def __init__(self, limit: CostLimit) -> None:
        self.grants: deque[UnitGrant] = deque()
        self._counts_s = limit.period_s + limit.margin_s

    def add(self, key: str, units: float, now_s: float) -> UnitGrant:
        """Count units for the period."""
        grant = UnitGrant(key, units, now_s + self._counts_s)
        self.grants.append(grant)
        return grant

    def forget(self, now_s: float, pace: float) -> None:
        """Drop the grants whose period has ended."""
        # The margin covers timers that fire slightly early.
        while self.grants and self.grants[0].until_s <= now_s + TIMER_S:
            self.grants.popleft()

    def freed_s(self, units: float, now_s: float, pace: float) -> float:
        """Seconds until enough of the oldest grants have expired."""
        for grant in self.grants:
            units -= grant.units
            if units <= NEGLIGIBLE:
                return max(0.0, grant.until_s - now_s)
        return 0.0


class CounterUsage:
    """Grants of a counter that decays continuously, the oldest first."""

    def __init__(self, limit: CostLimit, now_s: float) -> None:
        self.grants: deque[UnitGrant] = deque()
        self._sinks = limit.sinks
        self._at_s = now_s

    def add(self, key: str, units: float, now_s: float) -> UnitGrant:
        """Count units until they have decayed."""
        grant = UnitGrant(key, units, 0.0)
        self.grants.append(grant)
        return grant

    def forget(self, now_s: float, pace: float) -> None:
        """Let the counter decay."""
        decayed = (now_s - self._at_s) * self._sinks * pace
        self._at_s = now_s
        while self.grants and decayed > 0:
            taken = min(decayed, self.grants[0].units)
            self.grants[0].units -= taken
            decayed -= taken
            if self.grants[0].units <= NEGLIGIBLE:
                self.grants.popleft()

    def freed_s(self, units: float, now_s: float, pace: float) -> float:
        """Seconds until this many units have decayed."""
        return max(0.0, units) / (self._sinks * pace)


class QueuedCall:
    """The first waiting call of an API key; `woken` is set while it waits without a timer."""

    __slots__ = ("background", "key", "units", "woken")

    def __init__(self, key: str, units: float, *, background: bool) -> None:
        self.key = key
        self.units = units
        self.background = background
        self.woken: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Let it look again whether it is its turn."""
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)


class Pool:
    """Units of one limit, granted to API keys in turn.

    In a pool that renews slowly, the first key could use up everything, so the last part
    (`reserve`) is only granted to keys that have had less than an even share.

    Calls of the background wait until no call of a client waits, and leave `CLIENT_SHARE` of a
    counter to clients, but get at least one of `CLIENT_TURNS` + 1 turns.

    Args:
        limit: The exchange's rule.
        reserve: Share of a slow pool (`RESERVED_FROM_S`) that one key leaves to others, 0 to 1.
    """

    def __init__(self, limit: CostLimit, clock: Clock, *, reserve: float = 0.0) -> None:
        self._limit = limit
        self._clock = clock
        self._units = limit.start or limit.units
        self._reserve = reserve if limit.renewal_s >= RESERVED_FROM_S else 0.0
        self._usage: Usage = (
            CounterUsage(limit, clock.monotonic()) if limit.sinks else WindowUsage(limit)
        )
        self._pace = 1.0
        self._waiting: Counter[str] = Counter()
        self._lines: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._queue: list[QueuedCall] = []  # in order of arrival
        self._client_turns = 0  # since the last turn of the background, while it waits
        self._blocked_until_s = 0.0

    async def acquire(
        self,
        waits: Waits | None = None,
        *,
        key: str = "",
        units: float = 1.0,
        background: bool = False,
    ) -> UnitGrant:
        """Wait until units are free; a cancelled wait uses none.

        Args:
            key: The API key of the request.
            units: The cost of the request; a cost above the pool's size waits for the whole pool.
            waits: Records the wait, for messages to users.
            background: Whether no client waits for the request.

        Raises:
            SourceFailed: The wait would be longer than `WAIT_S_MAX`.
        """
        self._waiting[key] += 1
        try:
            # Locks are FIFO: in order within a key, round-robin between keys.
            async with self._lines[key]:
                call = QueuedCall(key, units, background=background)
                self._queue.append(call)
                try:
                    return await self._granted(call, waits)
                finally:
                    self._queue.remove(call)
                    if self._queue:
                        self._next()[0].wake()
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key], self._lines[key]

    async def _granted(self, call: QueuedCall, waits: Waits | None) -> UnitGrant:
        """Take units when it is the call's turn.

        Only the next call has a timer; it wakes its successor when it leaves the queue.
        """
        while True:
            following, wait_s = self._next()
            if following is not call:
                following.wake()
                call.woken = asyncio.get_running_loop().create_future()
                await call.woken
                call.woken = None
            elif wait_s > 0:
                await self._wait(wait_s, waits)
            else:
                self._count_turn(call)
                return self._usage.add(call.key, call.units, self._clock.monotonic())

    def _next(self) -> tuple[QueuedCall, float]:
        """The next call to be granted units, and the seconds until then."""
        found: tuple[QueuedCall, float] | None = None
        for call in self._first_in_turn():
            over_share_s = self._over_share_s(call)
            wait_s = max(over_share_s, self._full_s(call.units))
            if found is None or wait_s < found[1]:
                found = call, wait_s
            if over_share_s <= 0:  # calls behind it wait for it
                break
        assert found is not None
        return found

    def _first_in_turn(self) -> list[QueuedCall]:
        """The waiting calls of clients or of the background, whichever has the next turn."""
        clients = [call for call in self._queue if not call.background]
        background = [call for call in self._queue if call.background]
        return background if not clients or (background and self._owed) else clients

    @property
    def _owed(self) -> bool:
        """Whether the next turn is the background's."""
        return self._client_turns >= CLIENT_TURNS

    def _count_turn(self, call: QueuedCall) -> None:
        waits = any(each.background for each in self._queue)
        self._client_turns = self._client_turns + 1 if waits and not call.background else 0

    async def _wait(self, wait_s: float, waits: Waits | None) -> None:
        if wait_s > WAIT_S_MAX:
            raise SourceFailed(
                FailureReason.RATE_LIMITED,
                f"The exchange's limit allows the next request in {round(wait_s / 60)} minutes.",
                retryable=True,
                retry_after_s=wait_s,
            )
        with waits.waiting(wait_s) if waits else nullcontext():
            await self._clock.sleep(wait_s)

    @property
    def _capacity(self) -> float:
        """Units that may be in use at once."""
        if self._limit.sinks:
            return max(1.0, self._units - self._limit.sinks * LATENCY_S)
        return max(1.0, self._units * self._pace)

    def _used(self) -> float:
        return sum(grant.units for grant in self._usage.grants)

    def _full_s(self, units: float) -> float:
        """Seconds until the pool has units for any key."""
        now_s = self._clock.monotonic()
        self._usage.forget(now_s, self._pace)
        blocked_s = self._blocked_until_s - now_s
        return max(blocked_s, self._freed_s(units, self._capacity, now_s))

    def _over_share_s(self, call: QueuedCall) -> float:
        """Seconds for which the rest of the pool is reserved for other keys; 0 if it is not."""
        now_s = self._clock.monotonic()
        self._usage.forget(now_s, self._pace)
        capacity = self._capacity
        open_to_all = capacity - round(capacity * self._reserve)
        if call.background and self._limit.sinks and not self._owed:
            open_to_all = min(open_to_all, capacity * (1 - CLIENT_SHARE))
        freed_s = self._freed_s(call.units, open_to_all, now_s)
        if freed_s <= 0 or call.background:
            return freed_s
        used: Counter[str] = Counter()
        for grant in self._usage.grants:
            used[grant.key] += grant.units  # type: ignore[assignment]
        share = capacity // (len({*used, *self._waiting}) + 1)
        return 0.0 if used[call.key] < max(1, share) else freed_s

    def _freed_s(self, units: float, capacity: float, now_s: float) -> float:
        """Seconds until units fit below a bound."""
        excess = self._used() + min(units, capacity) - capacity
        return self._usage.freed_s(excess, now_s, self._pace) if excess > NEGLIGIBLE else 0.0

    def observe(self, state: PoolState, grant: UnitGrant | None = None) -> None:
        """Correct the count by the pool state in the answer to a call.

        Args:
            grant: The units granted to the call.
        """
        now_s = self._clock.monotonic()
        self._usage.forget(now_s, self._pace)
        if state.units is not None and state.units > 0:
            self._units = min(state.units, self._limit.units)
        if state.cost is not None and grant is not None:
            grant.correct_cost(state.cost)
        if state.used is not None and (missing := state.used - self._used()) > NEGLIGIBLE:
            self._usage.add(OTHERS, missing, now_s)
        if state.blocked_s > 0:
            self.block(state.blocked_s)
        if not state.refused:
            self._pace = min(1.0, self._pace * PACE_REGAINED)
            return
        self._pace = max(PACE_MIN, self._pace / 2)
        if state.blocked_s <= 0 and (room := self._capacity - self._used()) > NEGLIGIBLE:
            self._usage.add(OTHERS, room, now_s)

    def block(self, wait_s: float) -> None:
        """Grant no units for some time."""
        until_s = self._clock.monotonic() + min(max(wait_s, 0.0), BLOCK_S_MAX)
        self._blocked_until_s = max(self._blocked_until_s, until_s)


class Pools:
    """Every pool of an exchange, over its environments, hosts, keys and users.

    Args:
        limits: The rule of each pool by its name.
        reserve: See `Pool`.
        factor: Factor of the limits of accounts; see `CostLimit.scaled`.
    """

    def __init__(
        self,
        limits: Mapping[str, CostLimit],
        clock: Clock,
        *,
        reserve: float = 0.0,
        factor: float = 1.0,
    ) -> None:
        self._limits = {name: limit.scaled(factor) for name, limit in limits.items()}
        self._clock = clock
        self._reserve = reserve
        self._pools: dict[tuple[str, str, str], Pool] = {}
        self._users: dict[str, str] = {}

    def learn_user(self, key: str, user: str) -> None:
        """Record the user of a key: keys of one user share the pools that count by user."""
        self._users[key] = user

    def pool(self, name: str, environment: str, key: str) -> Pool:
        """The pool of a name for a key; "" for public requests."""
        limit = self._limits[name]
        if limit.scope is PoolScope.ADDRESS:
            owner = (name, "", "")
        elif limit.scope is PoolScope.USER:
            owner = (name, environment, self._users.get(key, key))
        else:
            owner = (name, environment, key)
        if owner not in self._pools:
            self._pools[owner] = Pool(limit, self._clock, reserve=self._reserve)
        return self._pools[owner]
