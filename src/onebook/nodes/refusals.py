"""Counts rejected messages of other nodes by cause, and logs them once per sender and cause."""

import logging
from collections.abc import Hashable
from typing import Final, Literal, get_args

from prometheus_client import Counter

from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.nodes.payloads import RefusalCause, WireError

log = logging.getLogger("onebook.nodes")

AGAIN_S: Final = 600.0
KINDS_MAX: Final = 100

Message = Literal["heartbeat", "interest", "keys", "book", "list", "request"]

REFUSED: Final = Counter(
    "onebook_nats_refused", "Rejected messages of other nodes.", ["message", "cause"]
)
for _message in get_args(Message):
    for _cause in RefusalCause:
        REFUSED.labels(_message, _cause)


class FirstSightings:
    """Detects the first occurrence of a kind in `AGAIN_S`, for a bounded number of kinds. Sans-I/O.

    A sender with invented names causes at most `KINDS_MAX` log lines in that time.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, float] = {}

    def first(self, kind: Hashable, now: float) -> bool:
        """Return whether this kind is new or has not occurred recently; False above the limit."""
        if now - self._seen.get(kind, float("-inf")) < AGAIN_S:
            return False
        self._seen.pop(kind, None)
        while self._seen and now - next(iter(self._seen.values())) >= AGAIN_S:
            del self._seen[next(iter(self._seen))]
        if len(self._seen) >= KINDS_MAX:
            return False
        self._seen[kind] = now
        return True


class Refusals:
    """Counts and logs messages of other nodes that this node rejects."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._sightings = FirstSightings()

    def first(self, what: str, node: int) -> bool:
        """Return whether to log a line about a node (see `FirstSightings`)."""
        return self._sightings.first((what, node), self._clock.monotonic())

    def unknown(self, message: Message) -> None:
        """Count a message of a node without heartbeats, such as any node just after a start."""
        REFUSED.labels(message, RefusalCause.UNKNOWN_NODE).inc()

    def refused(self, message: Message, error: WireError, sender: int | None) -> None:
        """Count a rejected message; log the first one of its sender and cause."""
        REFUSED.labels(message, error.cause).inc()
        if self._sightings.first((message, sender, error.cause), self._clock.monotonic()):
            log.warning(
                "Rejected a message (%s) from %s: %s. Further rejections are counted but not "
                "logged.",
                message,
                "an unnamed node" if sender is None else f"node {sender:x}",
                error,
            )
