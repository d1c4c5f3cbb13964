"""The limit of this machine's address at an exchange, shared by its processes through a file.

Exchanges count requests by address and ban one that sends too many. A limit in memory alone would
give every worker and every command all of it. The file holds the time of each of the last requests,
and until when the exchange refuses the address, by the machine's monotonic clock. Times far ahead
of it are of before a reboot, and void. Other machines behind the same address are not seen.

An exchange counts a request when it arrives, some time between its sending and its answer: a place
is taken by the one and freed a period after the other, so that no delay makes too many of them.
"""

import asyncio
import fcntl
import logging
import mmap
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from struct import Struct
from typing import Final

from onebook.clock import Clock
from onebook.transactions.limits import Rate, Waits

BUSY_S: Final = 0.001  # until a file that another process has locked is tried again
ALL_SENT_S: Final = 0.05  # until a window that is full of unanswered requests is looked at again
FLIGHT_S: Final = 60.0  # that a request without an answer counts, as of a process that was killed

_TIME: Final = Struct("<d")  # the file: refused until, and a time for each place

log = logging.getLogger("onebook.transactions")


class AddressWindow:
    """A rolling window over the requests of all processes. Close it.

    Where the file cannot be opened, all requests pass: each process has its own limit besides.

    Args:
        rate: The exchange's limit of an address.
        path: The file; created by the first request. None: nothing is shared.
        display: The exchange's name, for the log.
    """

    def __init__(self, rate: Rate, clock: Clock, path: Path | None, *, display: str) -> None:
        self._places = Struct(f"<{rate.count}d")
        self._period_s = rate.period_s + rate.margin_s
        self._clock = clock
        self._path = path
        self._display = display
        self._turn = asyncio.Lock()
        self._file = -1
        self._times: mmap.mmap | None = None

    @asynccontextmanager
    async def request(self, waits: Waits) -> AsyncIterator[None]:
        """Wait for a place, and hold it for the context and a period more."""
        async with self._turn:
            place, wait_s = self._taken()
            while wait_s > 0:
                with waits.waiting(wait_s):
                    await self._clock.sleep(wait_s)
                place, wait_s = self._taken()
        try:
            yield
        finally:
            if self._times is not None:
                _TIME.pack_into(self._times, place, self._clock.monotonic())

    def refuse(self, seconds: float) -> None:
        """Note for all processes that the exchange refuses this address for a while."""
        if (times := self._opened()) is not None:
            _TIME.pack_into(times, 0, self._clock.monotonic() + seconds)

    def refused_s(self, seconds_max: float) -> float:
        """Seconds for which the exchange refuses this address, at most a given number."""
        if (times := self._opened()) is None:
            return 0.0
        (until_s,) = _TIME.unpack_from(times)
        left_s = float(until_s) - self._clock.monotonic()
        return left_s if 0 < left_s <= seconds_max else 0.0

    def close(self) -> None:
        """Close the file; nothing is shared from now on."""
        self._path = None
        if self._times is not None:
            self._times.close()
            self._times = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _taken(self) -> tuple[int, float]:
        """Take a place: where it is in the file, and the seconds to wait if there is none."""
        if (times := self._opened()) is None:
            return 0, 0.0
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0, BUSY_S
        try:
            now_s = self._clock.monotonic()
            used_s = [
                at_s if at_s <= now_s + FLIGHT_S else -self._period_s
                for at_s in self._places.unpack_from(times, _TIME.size)
            ]
            oldest_s = min(used_s)
            if oldest_s > now_s:  # all are without an answer
                return 0, ALL_SENT_S
            if oldest_s + self._period_s > now_s:
                return 0, oldest_s + self._period_s - now_s
            place = (1 + used_s.index(oldest_s)) * _TIME.size
            _TIME.pack_into(times, place, now_s + FLIGHT_S)
            return place, 0.0
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _opened(self) -> mmap.mmap | None:
        if self._path is not None:
            path, self._path = self._path, None  # tried once
            try:
                self._open(path)
            except OSError as error:
                log.warning(
                    "%s: other processes of this machine do not share the request limit: %s: %s.",
                    self._display, path, error.strerror,
                )  # fmt: skip
        return self._times

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = _TIME.size + self._places.size
        if os.fstat(self._file).st_size < size:
            os.ftruncate(self._file, size)
        self._times = mmap.mmap(self._file, size)
