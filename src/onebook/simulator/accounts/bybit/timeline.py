"""Event queue of a generated account, with one random generator and one counter."""

import hashlib
import heapq
from collections.abc import Callable
from random import Random
from typing import Final

HOUR_MS: Final = 3_600_000


class Timeline:
    """Runs the events of an account in order of time.

    Args:
        from_ms: When the account began, in Unix milliseconds.
        to_ms: Until when; what is scheduled later does not happen.
        seed: What its chances are made from.
    """

    def __init__(self, from_ms: int, to_ms: int, seed: int) -> None:
        self.from_ms = from_ms
        self.to_ms = to_ms
        self.random = Random(seed)  # noqa: S311  # a simulation
        self.last = 1_000_000
        self._queue: list[tuple[int, int, Callable[[int], None]]] = []

    def number(self) -> int:
        """The next number: it grows with each row and each scheduled event."""
        self.last += 1
        return self.last

    def somewhere(self) -> int:
        """A random time, at least an hour after the beginning."""
        return self.random.randrange(self.from_ms + HOUR_MS, self.to_ms)

    def at(self, at_ms: int, act: Callable[[int], None]) -> None:
        """Schedule an event; `act` is called with its time."""
        heapq.heappush(self._queue, (at_ms, self.number(), act))

    def run(self) -> None:
        """Run all scheduled events, and those that they schedule."""
        while self._queue:
            at_ms, _, act = heapq.heappop(self._queue)
            if at_ms <= self.to_ms:
                act(at_ms)


def uuid_of(seq: int) -> str:
    """An id in the form of a UUID, made from a number."""
    text = hashlib.md5(b"%d" % seq, usedforsecurity=False).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def hash_of(seq: int) -> str:
    """The hash of a blockchain transaction, made from a number."""
    return "0x" + hashlib.sha256(b"tx%d" % seq).hexdigest()
