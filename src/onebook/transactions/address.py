"""The limit of this machine's address at an exchange, shared by its processes through a file.

Exchanges count requests by address, and ban an address that sends too many. If the limit were in
memory only, every worker and every command would use it in full. The file contains the times of the
last requests, by the machine's monotonic clock, and the end of a ban of the address. Times far
ahead of the clock date from before a reboot and are ignored. Requests from other machines are not
counted.

An exchange counts a request on arrival, at some time between sending and response. A unit is
therefore taken before sending and freed one period after the response, so that no delay can exceed
the limit.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable, Mapping
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

BUSY_S: Final = 0.001  # before retrying a file locked by another process
ALL_SENT_S: Final = 0.05  # before checking again a window full of unanswered requests
FLIGHT_S: Final = 60.0  # for which an unanswered request counts, such as one of a killed process
REFUSED_S_MAX: Final = 86_400.0  # a longer refusal comes from a wrong clock
FILE_MODE: Final = 0o600

REFUSED_AT: Final = 0  # offset of the end of a refusal (Unix time); the units follow

_TIME: Final = Struct("<d")

log = logging.getLogger("onebook.transactions")


def windows_of(
    exchange: str, limits: Mapping[str, CostLimit], clock: Clock, folder: Path | None
) -> dict[str, "AddressWindow"]:
    """The shared windows of an exchange's pools that count by address, by pool name."""
    if folder is None:
        return {}
    return {
        name: AddressWindow(limit, clock, folder / f"{exchange}-{name}")
        for name, limit in limits.items()
        if limit.scope is PoolScope.ADDRESS and limit.period_s
    }


class AddressWindow:
    """A rolling window over the requests of all processes. Must be closed.

    If the file is unusable, all requests pass; each process still has its own limit.

    Args:
        limit: The exchange's rule.
        path: The file; created by the first request.
    """

    def __init__(self, limit: CostLimit, clock: Clock, path: Path) -> None:
        self._units = int(limit.units)
        self._all = Struct(f"<{1 + self._units}d")
        self._period_s = limit.period_s + limit.margin_s
        self._clock = clock
        self._path: Path | None = path
        self._turn = asyncio.Lock()
        self._file: int | None = None

    @asynccontextmanager
    async def request(self, units: float, waits: Waits) -> AsyncIterator[None]:
        """Wait until units are free; they stay in use until one period after the context."""
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
            self._write(places, self._clock.monotonic())

    def refuse(self, seconds: float) -> None:
        """Record for all processes that the exchange refuses this address for some time."""
        self._write([REFUSED_AT], self._clock.wall_ms() / SECOND_MS + seconds)

    def refused_s(self) -> float:
        """Seconds for which the exchange still refuses this address."""
        left_s = self._read()[REFUSED_AT] - self._clock.wall_ms() / SECOND_MS
        return left_s if 0 < left_s <= REFUSED_S_MAX else 0.0

    def close(self) -> None:
        """Close the file; the limit is no longer shared."""
        self._path = None
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _taken(self, count: int) -> tuple[list[int], float]:
        """Take units: returns their slots in the file, or the seconds until enough are free."""
        file = self._opened()
        if file is None:
            return [], 0.0
        if not try_lock(file):
            return [], BUSY_S
        try:
            now_s = self._clock.monotonic()
            used_s = [
                at_s if at_s <= now_s + FLIGHT_S else -self._period_s for at_s in self._read()[1:]
            ]
            oldest = nsmallest(count, range(self._units), key=used_s.__getitem__)
            newest_s = used_s[oldest[-1]]
            if newest_s > now_s:
                return [], ALL_SENT_S
            if newest_s + self._period_s > now_s:
                return [], newest_s + self._period_s - now_s
            places = [1 + each for each in oldest]
            self._write(places, now_s + FLIGHT_S)
            return places, 0.0
        finally:
            if self._file is not None:
                flock(file, LOCK_UN)

    def _read(self) -> tuple[float, ...]:
        """Read all times of the file; unused slots are 0."""
        file, found = self._opened(), b""
        if file is not None:
            try:
                found = os.pread(file, self._all.size, 0)
            except OSError as error:
                self._fail(error)
        return self._all.unpack(found.ljust(self._all.size, b"\0"))

    def _write(self, places: Iterable[int], time_s: float) -> None:
        file = self._opened()
        if file is None:
            return
        try:
            for place in places:
                os.pwrite(file, _TIME.pack(time_s), place * _TIME.size)
        except OSError as error:  # such as a full disk
            self._fail(error)

    def _opened(self) -> int | None:
        if self._path is not None and self._file is None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            except OSError as error:
                self._fail(error)
        return self._file

    def _fail(self, error: OSError) -> None:
        """Stop sharing, and log why."""
        log.warning(
            "Cannot share a request limit with other processes through %s: %s.",
            self._path, error.strerror,
        )  # fmt: skip
        self.close()
