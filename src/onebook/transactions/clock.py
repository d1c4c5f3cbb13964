"""The clock of the transaction service; tests replace it with a virtual one."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class ServiceClock(Struct, frozen=True):
    """Wall clock in Unix ms, monotonic seconds, and waiting."""

    now_ms: Callable[[], int] = _now_ms
    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


REAL: Final = ServiceClock()
