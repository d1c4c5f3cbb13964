"""Keepalive of one connection: pings, and the progress of a slow consumer.

Does no I/O and has no clock: the connection sends the pings, and closes if one is not answered.
"""

import random
import struct
from typing import Final

from onebook.config import GatewaySettings
from onebook.gateway.limits import SLOW_TIMEOUT_S

NEVER: Final = float("inf")


class Keepalive:
    """Ping schedule of a connection, its unanswered ping, and the progress of a slow consumer.

    All times are seconds of a monotonic clock.
    """

    __slots__ = ("_settings", "_unread_bytes", "due_s", "latency_ms", "ping_at", "progress_at")

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._unread_bytes = 0  # write buffer of a slow consumer at its last read
        self.progress_at = 0.0  # time of that read
        self.due_s = NEVER  # the next ping
        self.ping_at = 0.0  # when the unanswered ping was sent; 0 if there is none
        self.latency_ms = 0.0  # the last round trip

    def opened(self, now_s: float) -> None:
        """Schedule the first ping; the pings of all connections are spread over the interval."""
        self.due_s = now_s + random.random() * self._settings.ping_interval_s  # noqa: S311

    def ping(self, now_s: float) -> bytes:
        """Record a ping; returns its payload, which the pong must repeat."""
        self.ping_at = now_s
        return _payload(now_s)

    def ping_passed(self, now_s: float) -> None:
        """Schedule the next ping after one was due."""
        self.due_s = now_s + self._settings.ping_interval_s

    def pong(self, payload: bytes, now_s: float) -> bool:
        """Handle a pong; returns whether it answers our ping."""
        if not self.ping_at or payload != _payload(self.ping_at):
            return False
        self.latency_ms = max(0.0, (now_s - self.ping_at) * 1_000)
        self.ping_at = 0.0
        return True

    def unanswered(self, now_s: float) -> bool:
        """Whether a ping has been unanswered for the whole interval.

        The first ping is sent at connect, so the next one may be due before its pong can arrive.
        """
        return bool(self.ping_at) and now_s - self.ping_at >= self._settings.ping_interval_s

    def fell_behind(self, unread_bytes: int, now_s: float) -> None:
        """Start to check a slow consumer's progress; `unread_bytes` are in its write buffer."""
        self._unread_bytes, self.progress_at = unread_bytes, now_s

    def caught_up(self) -> None:
        """Count reading as proof of liveness, even if the pong is late."""
        self.ping_at = 0.0

    def stalled(self, unread_bytes: int, now_s: float) -> bool:
        """Whether a slow consumer has read nothing for `SLOW_TIMEOUT_S`."""
        if unread_bytes < self._unread_bytes:
            self._unread_bytes, self.progress_at = unread_bytes, now_s
            return False
        return now_s - self.progress_at >= SLOW_TIMEOUT_S

    @property
    def stalled_at_s(self) -> float:
        """When a slow consumer counts as stalled unless it reads."""
        return self.progress_at + SLOW_TIMEOUT_S


def _payload(now_s: float) -> bytes:
    return struct.pack("!d", now_s)
