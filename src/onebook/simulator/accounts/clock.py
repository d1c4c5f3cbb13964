"""The clock of a simulated exchange, and what it accepts of its clients' clocks."""

import time
from collections.abc import Hashable


def wall_ms() -> int:
    """The time now, Unix ms."""
    return time.time_ns() // 1_000_000


def in_time(stamp_ms: int, now_ms: int, *, behind_ms: int, ahead_ms: int) -> bool:
    """Whether a request came at the time that it names: so far behind, less far ahead."""
    return now_ms - behind_ms <= stamp_ms < now_ms + ahead_ms


class RisingStamps:
    """Remembers the highest stamp (nonce) of each key: the next must be higher."""

    def __init__(self) -> None:
        self._highest: dict[Hashable, int] = {}

    def accept(self, key: Hashable, stamp: int) -> bool:
        """Whether a stamp is higher than all before; one that is not changes nothing."""
        if stamp <= self._highest.get(key, -1):
            return False
        self._highest[key] = stamp
        return True
