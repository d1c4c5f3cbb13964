"""Request checks of a simulated exchange: time stamps, rate limits, bans, injected faults."""

from collections import Counter, defaultdict, deque
from collections.abc import Hashable
from random import Random


def in_time(stamp_ms: int, now_ms: int, *, behind_ms: int, ahead_ms: int) -> bool:
    """Return whether the time stamp of a request is within the allowed clock difference."""
    return now_ms - behind_ms <= stamp_ms < now_ms + ahead_ms


class RisingStamps:
    """The highest stamp (nonce) of each key: the next one must be higher, or new within a
    window."""

    def __init__(self) -> None:
        self._highest: dict[Hashable, int] = {}
        self._recent: dict[Hashable, set[int]] = defaultdict(set)

    def accept(self, key: Hashable, stamp: int, *, window: int = 0) -> bool:
        """Record a stamp if it is higher than all previous ones; returns whether it is.

        With a `window`, a stamp that is lower by less than the window is accepted once.
        """
        highest, recent = self._highest.get(key, -1), self._recent[key]
        if stamp < 0 or stamp <= highest - window or stamp == highest or stamp in recent:
            return False
        self._highest[key] = highest = max(highest, stamp)
        if window:
            recent.add(stamp)
            self._recent[key] = {each for each in recent if each > highest - window}
        return True

    def highest(self, key: Hashable) -> int:
        """Return the highest stamp of a key; -1 if it has none."""
        return self._highest.get(key, -1)


class DecayingCounter:
    """A counter that rises by the cost of each request and decays continuously.

    Args:
        maximum: Requests that would raise it above this are refused.
        per_s: Its decay per second.
    """

    def __init__(self, maximum: float, per_s: float) -> None:
        self.maximum = maximum
        self._per_ms = per_s / 1_000
        self._level = 0.0
        self._at_ms = 0

    def count_request(self, cost: float, now_ms: int) -> bool:
        """Count a request; returns whether it is allowed. A refused request costs nothing."""
        self._sink(now_ms)
        if self._level + cost > self.maximum:
            return False
        self._level += cost
        return True

    def wait_s(self, cost: float, now_ms: int) -> float:
        """Return the seconds until a request of this cost is allowed."""
        self._sink(now_ms)
        return max(0.0, self._level + cost - self.maximum) / self._per_ms / 1_000

    def _sink(self, now_ms: int) -> None:
        self._level = max(0.0, self._level - (now_ms - self._at_ms) * self._per_ms)
        self._at_ms = now_ms


class Lockouts:
    """Locks a key out after consecutive failures.

    Args:
        strikes: Consecutive failures that cause a lockout.
        lockout_s: Duration of a lockout in seconds.
    """

    def __init__(self, strikes: int, *, lockout_s: float) -> None:
        self._strikes = strikes
        self._lockout_ms = round(lockout_s * 1_000)
        self._failures: Counter[Hashable] = Counter()
        self._until_ms: dict[Hashable, int] = {}

    def locked(self, key: Hashable, now_ms: int) -> bool:
        """Return whether a key is locked out; a request during a lockout prolongs it."""
        if self._until_ms.get(key, 0) <= now_ms:
            return False
        self.lock(key, now_ms)
        return True

    def lock(self, key: Hashable, now_ms: int) -> None:
        """Lock a key out from now on."""
        self._until_ms[key] = now_ms + self._lockout_ms

    def strike(self, key: Hashable, now_ms: int) -> None:
        """Count a failure."""
        self._failures[key] += 1
        if self._failures[key] >= self._strikes:
            self._failures[key] = 0
            self.lock(key, now_ms)

    def clear(self, key: Hashable) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)


class RollingCount:
    """Counts requests in a rolling window."""

    def __init__(self, count: int, period_s: float) -> None:
        self.count = count
        self.period_ms = round(period_s * 1_000)
        self._times: deque[int] = deque()

    def count_request(self, now_ms: int) -> tuple[bool, int, int]:
        """Count a request; returns whether it is allowed, how many are left, and when one frees
        up."""
        while self._times and self._times[0] <= now_ms - self.period_ms:
            self._times.popleft()
        if len(self._times) >= self.count:
            return False, 0, self._times[0] + self.period_ms
        self._times.append(now_ms)
        return True, self.count - len(self._times), now_ms


class AddressBans:
    """The request limit of an address; an address that exceeds it is banned for some time."""

    def __init__(self, count: int, period_s: float, *, ban_s: float) -> None:
        self._count = count
        self._period_s = period_s
        self._ban_ms = round(ban_s * 1_000)
        self._windows: dict[str, RollingCount] = {}
        self._banned: dict[str, int] = {}

    def refuses(self, address: str, now_ms: int) -> bool:
        """Count a request; returns whether it is refused."""
        if self._banned.get(address, 0) > now_ms:
            return True
        window = self._windows.setdefault(address, RollingCount(self._count, self._period_s))
        passed, _, _ = window.count_request(now_ms)
        if not passed:
            self.ban(address, now_ms)
        return not passed

    def ban(self, address: str, now_ms: int) -> None:
        """Ban an address from now on."""
        self._banned[address] = now_ms + self._ban_ms


class AccountFaults:
    """Injected faults of a simulated exchange, queued by path or random; the exchange defines the
    kinds.

    Args:
        rate: Share of requests that fail at random.
        kinds: Faults to choose from at random.
        slow_s: Duration of a slow answer in seconds.
    """

    def __init__(
        self, *, rate: float = 0.0, kinds: tuple[str, ...] = (), seed: int = 1, slow_s: float = 1.0
    ) -> None:
        self.rate = rate
        self.slow_s = slow_s
        self.served: Counter[tuple[str, str]] = Counter()
        self.kinds = kinds
        self._random = Random(seed)  # noqa: S311  # a simulation
        self._queued: dict[str, deque[str]] = defaultdict(deque)

    def queue(self, path: str, *kinds: str) -> None:
        """Let the next requests of a path fail with these faults, in this order."""
        self._queued[path].extend(kinds)

    def next(self, path: str) -> str:
        """Return the fault of this request; "" for none."""
        queued = self._queued[path]
        kind = queued.popleft() if queued else self._drawn()
        if kind:
            self.served[path, kind] += 1
        return kind

    def _drawn(self) -> str:
        if not self.kinds or self._random.random() >= self.rate:
            return ""
        return self._random.choice(self.kinds)
