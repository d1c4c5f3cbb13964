"""Time of a simulated world: it advances only on command."""

from datetime import datetime

from onebook.clock import ManualClock

EPOCH_US = 1_800_000_000_000_000


def seconds(timestamp: str) -> float:
    """The world's time of a timestamp with microseconds."""
    return datetime.fromisoformat(timestamp).timestamp() - EPOCH_US / 1_000_000


def world_clock() -> ManualClock:
    """The clock of a simulated world at its start."""
    return ManualClock(1_000.0, epoch_us=EPOCH_US)
