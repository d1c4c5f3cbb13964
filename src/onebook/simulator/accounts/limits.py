"""Rate limits of a simulated exchange: rolling windows, and addresses that are shut out."""

from collections import deque


class RollingCount:
    """How many requests came in a rolling window."""

    def __init__(self, count: int, period_s: float) -> None:
        self.count = count
        self.period_ms = round(period_s * 1_000)
        self._times: deque[int] = deque()

    def take(self, now_ms: int) -> tuple[bool, int, int]:
        """Count a request: whether it may pass, how many are left, when one more frees up."""
        while self._times and self._times[0] <= now_ms - self.period_ms:
            self._times.popleft()
        if len(self._times) >= self.count:
            return False, 0, self._times[0] + self.period_ms
        self._times.append(now_ms)
        return True, self.count - len(self._times), now_ms


class AddressBans:
    """The limit of all requests of an address; one that breaks it is shut out for a while."""

    def __init__(self, count: int, period_s: float, *, ban_s: float) -> None:
        self._count = count
        self._period_s = period_s
        self._ban_ms = round(ban_s * 1_000)
        self._windows: dict[str, RollingCount] = {}
        self._banned: dict[str, int] = {}

    def refuses(self, address: str, now_ms: int) -> bool:
        """Count a request; whether it is refused."""
        if self._banned.get(address, 0) > now_ms:
            return True
        window = self._windows.setdefault(address, RollingCount(self._count, self._period_s))
        passed, _, _ = window.take(now_ms)
        if not passed:
            self.ban(address, now_ms)
        return not passed

    def ban(self, address: str, now_ms: int) -> None:
        """Shut an address out from now on."""
        self._banned[address] = now_ms + self._ban_ms
