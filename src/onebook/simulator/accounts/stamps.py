"""Which timestamps and nonces of its clients a simulated exchange accepts."""

from collections.abc import Hashable


def in_time(stamp_ms: int, now_ms: int, *, behind_ms: int, ahead_ms: int) -> bool:
    """Whether a request's timestamp is at most `behind_ms` old and less than `ahead_ms` ahead."""
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
