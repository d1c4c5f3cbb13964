"""Records of one source into order while more are coming; each id once."""

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from onebook.transactions.record import FIRST, Record, RecordKey, key_of

RECENT_MAX: Final = 2_000  # ids that a repeated row is known by

Keyed = tuple[RecordKey, Record]


class Range:
    """What is asked of a walker.

    Args:
        from_ms: Oldest record time, inclusive.
        to_ms: Newest record time, inclusive.
        after: The place of the last record that was delivered before; only later ones count.
    """

    __slots__ = ("after", "from_ms", "to_ms")

    def __init__(self, from_ms: int, to_ms: int, *, after: RecordKey = FIRST) -> None:
        self.from_ms = from_ms
        self.to_ms = to_ms
        self.after = after


class Sorter:
    """Puts records into order while more are coming, and lets each id pass once."""

    def __init__(self, wanted: Range) -> None:
        self._wanted = wanted
        self._held: list[Keyed] = []
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._last = FIRST
        self.disordered = 0
        self.duplicates = 0

    def push(self, records: list[Record], *, snapshot: bool) -> None:
        """Add records; those out of range or already delivered are dropped."""
        for record in records:
            key = key_of(record)
            if not (self._snapshot_wanted(key) if snapshot else self._in_range(key)):
                continue
            if record.transactionId in self._seen:
                self.duplicates += 1
                continue
            self._seen[record.transactionId] = None
            heapq.heappush(self._held, (key, record))

    def _in_range(self, key: RecordKey) -> bool:
        wanted = self._wanted
        return wanted.from_ms <= -key.negative_ms <= wanted.to_ms and key > wanted.after

    def _snapshot_wanted(self, key: RecordKey) -> bool:
        """Every page takes a snapshot of its own time, so what was given out goes by id."""
        return key.record_id > self._wanted.after.record_id

    def release(self, watermark_ms: int) -> Iterator[Keyed]:
        """Every held record that is later than the watermark, in order."""
        while self._held and self._held[0][0].negative_ms < -watermark_ms:
            keyed = heapq.heappop(self._held)
            if keyed[0] < self._last:
                self.disordered += 1
            else:
                self._last = keyed[0]
            yield keyed
        while len(self._seen) - len(self._held) > RECENT_MAX:
            self._seen.popitem(last=False)
