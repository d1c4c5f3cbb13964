"""Rising nonces for each exchange key, across the tasks, processes and restarts of a machine.

A nonce is Unix time in nanoseconds, the finest unit used by exchange clients: after a nonce in a
finer unit, a key refuses all in a coarser one. The file of a key stores its last nonce, so that the
clock may step back. Its lock is held from creating the nonce until the answer, because requests
must arrive in the order of their nonces. Nodes on other machines share only the clock: if two
requests of a key overtake each other, one is refused and retried.
"""

import hashlib
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from onebook.clock import Clock
from onebook.files import try_lock
from onebook.transactions.adapter import FailureReason, SourceFailed

LOCK_PAUSE_S: Final = 0.02
LOCK_WAIT_S: Final = 120.0  # several attempts of another process, including their timeouts
FILE_MODE: Final = 0o600
DIGITS_MAX: Final = 20  # of an unsigned 64-bit number

log = logging.getLogger("onebook.transactions")


class Nonces:
    """The nonces of an exchange's keys.

    Args:
        folder: Folder of their files; None: nonces rise only within this process.
        exchange: Part of the file names, which do not reveal the key.
    """

    def __init__(self, folder: Path | None, exchange: str, clock: Clock) -> None:
        self._folder = folder
        self._exchange = exchange
        self._clock = clock
        self._last: dict[str, int] = {}

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator["KeyTurn"]:
        """Lock the key, so that no other process of this machine can use it.

        Raises:
            SourceFailed: Another process holds it too long.
        """
        descriptor = self._open(key)
        if descriptor is None:
            yield KeyTurn(self, key, None)
            return
        try:
            await self._lock(descriptor)
            yield KeyTurn(self, key, descriptor)
        finally:
            os.close(descriptor)

    def next(self, key: str, descriptor: int | None) -> int:
        """A nonce above all previous ones."""
        last = self._last.get(key, 0)
        if descriptor is not None:
            text = os.pread(descriptor, DIGITS_MAX, 0)
            last = max(last, int(text) if text.isdigit() else 0)
        nonce = max(self._clock.wall_us() * 1_000, last + 1)
        self._last[key] = nonce
        if descriptor is not None:
            os.pwrite(descriptor, b"%d" % nonce, 0)
        return nonce

    def _open(self, key: str) -> int | None:
        if self._folder is None:
            return None
        name = hashlib.sha256(f"onebook nonce {self._exchange} {key}".encode()).hexdigest()[:32]
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = self._folder / name
            return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            log.warning(
                "Cannot store nonces in %s (%s): do not use one %s key in two processes.",
                self._folder, error.strerror, self._exchange,
            )  # fmt: skip
            self._folder = None
            return None

    async def _lock(self, descriptor: int) -> None:
        until_s = self._clock.monotonic() + LOCK_WAIT_S
        while not try_lock(descriptor):
            if self._clock.monotonic() >= until_s:
                raise SourceFailed(
                    FailureReason.RATE_LIMITED,
                    "Another process is using the same exchange key.",
                    retryable=True,
                )
            await self._clock.sleep(LOCK_PAUSE_S)


class KeyTurn:
    """Exclusive use of a key."""

    def __init__(self, nonces: Nonces, key: str, descriptor: int | None) -> None:
        self._nonces = nonces
        self._key = key
        self._descriptor = descriptor

    def nonce(self) -> int:
        """The nonce of the next request."""
        return self._nonces.next(self._key, self._descriptor)
