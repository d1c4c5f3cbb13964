"""The limit of this machine's address at an exchange, shared by its processes through a file.

Exchanges count requests by address and ban one that sends too many. A limit in memory alone would
give every worker and every command all of it. The file holds the time of each of the last requests,
by the machine's monotonic clock, and until when the exchange refuses the address. Times far ahead
of the clock are of before a reboot, and void. Other machines behind the same address are not seen.

An exchange counts a request when it arrives, some time between its sending and its answer: a place
is taken by the one and freed a period after the other, so that no delay makes too many of them.
"""

import asyncio
import errno
import logging
import mmap
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from fcntl import LOCK_UN, flock
from heapq import nsmallest
from math import ceil
from pathlib import Path
from struct import Struct
from typing import Final

from onebook.clock import Clock
from onebook.files import try_lock
from onebook.model import SECOND_MS
from onebook.transactions.limits import Waits
from onebook.transactions.pools import CostLimit, PoolScope

BUSY_S: Final = 0.001  # until a file that another process has locked is tried again
ALL_SENT_S: Final = 0.05  # until a window that is full of unanswered requests is looked at again
FLIGHT_S: Final = 60.0  # that a request without an answer counts, as of a process that was killed
REFUSED_S_MAX: Final = 86_400.0  # a longer refusal is of a clock that was wrong
FILE_MODE: Final = 0o600

_TIME: Final = Struct("<d")  # the file: refused until (Unix time), and a time for each unit

log = logging.getLogger("onebook.transactions")


def windows_of(
    exchange: str, limits: Mapping[str, CostLimit], clock: Clock, folder: Path | None
) -> dict[str, "AddressWindow"]:
    """The windows of the pools of an exchange that count by address, by name of the pool."""
    if folder is None:
        return {}
    return {
        name: AddressWindow(limit, clock, folder / f"{exchange}-{name}")
        for name, limit in limits.items()
        if limit.scope is PoolScope.ADDRESS and limit.period_s
    }


class AddressWindow:
    """A rolling window over the requests of all processes. Close it.

    Where the file cannot be opened, all requests pass: each process has its own limit besides.

    Args:
        limit: The exchange's rule.
        path: The file; created by the first request.
    """

    def __init__(self, limit: CostLimit, clock: Clock, path: Path) -> None:
        self._units = int(limit.units)
        self._all = Struct(f"<{self._units}d")
        self._period_s = limit.period_s + limit.margin_s
        self._clock = clock
        self._path: Path | None = path
        self._turn = asyncio.Lock()
        self._file = -1
        self._times: mmap.mmap | None = None

    @asynccontextmanager
    async def request(self, units: float, waits: Waits) -> AsyncIterator[None]:
        """Wait until units are free, and use them for the context and a period more."""
        count = min(ceil(units), self._units)
        async with self._turn:
            places, wait_s = self._taken(count)
            while wait_s > 0:
                with waits.waiting(wait_s):
                    await self._clock.sleep(wait_s)
                places, wait_s = self._taken(count)
        try:
            yield
        finally:
            if self._times is not None:
                for place in places:
                    _TIME.pack_into(self._times, place, self._clock.monotonic())

    def refuse(self, seconds: float) -> None:
        """Note for all processes that the exchange refuses this address for a while."""
        if (times := self._opened()) is not None:
            _TIME.pack_into(times, 0, self._clock.wall_ms() / SECOND_MS + seconds)

    def refused_s(self) -> float:
        """Seconds for which the exchange refuses this address."""
        if (times := self._opened()) is None:
            return 0.0
        (until_s,) = _TIME.unpack_from(times)
        left_s = float(until_s) - self._clock.wall_ms() / SECOND_MS
        return left_s if 0 < left_s <= REFUSED_S_MAX else 0.0

    def close(self) -> None:
        """Close the file; nothing is shared from now on."""
        self._path = None
        if self._times is not None:
            self._times.close()
            self._times = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _taken(self, count: int) -> tuple[list[int], float]:
        """Take units: their places in the file, and the seconds to wait if too few are free."""
        if (times := self._opened()) is None:
            return [], 0.0
        if not try_lock(self._file):
            return [], BUSY_S
        try:
            now_s = self._clock.monotonic()
            used_s = [
                at_s if at_s <= now_s + FLIGHT_S else -self._period_s
                for at_s in self._all.unpack_from(times, _TIME.size)
            ]
            oldest = nsmallest(count, range(self._units), key=used_s.__getitem__)
            newest_s = used_s[oldest[-1]]
            if newest_s > now_s:
                return [], ALL_SENT_S
            if newest_s + self._period_s > now_s:
                return [], newest_s + self._period_s - now_s
            places = [(1 + each) * _TIME.size for each in oldest]
            for place in places:
                _TIME.pack_into(times, place, now_s + FLIGHT_S)
            return places, 0.0
        finally:
            flock(self._file, LOCK_UN)

    def _opened(self) -> mmap.mmap | None:
        if self._path is not None:
            path, self._path = self._path, None  # tried once
            try:
                self._open(path)
            except OSError as error:
                log.warning(
                    "Other processes of this machine do not share a request limit: %s: %s.",
                    path, error.strerror,
                )  # fmt: skip
        return self._times

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        size = _TIME.size + self._all.size
        # Written, not only extended: a page that a full disk cannot hold would end the process when
        # it is first used.
        missing = max(0, size - os.fstat(self._file).st_size)
        if os.pwrite(self._file, bytes(missing), size - missing) < missing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._times = mmap.mmap(self._file, size)
