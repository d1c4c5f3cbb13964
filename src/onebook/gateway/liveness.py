"""Finds a dead connection of a key: one that does not answer a ping is closed for a new one."""

from collections.abc import Collection, Iterable
from typing import Protocol, TypeVar

from onebook.gateway.keepalive import Keepalive


class Probed(Protocol):
    """A connection that may be pinged."""

    ended: bool
    behind: bool
    keepalive: Keepalive

    @property
    def silent_since_s(self) -> float:
        """Since when it has not answered or, where it is behind, not read; 0 if neither."""

    def ping(self, now_s: float) -> None:
        """Send a ping."""


C = TypeVar("C", bound=Probed)


def dead(connections: Iterable[C], silent_since_s: float) -> C | None:
    """The connection that has been silent for longest, and at least since then.

    One that is closing counts as dead. A slow client is not pinged: what counts is when it last
    read something.
    """
    found = None
    for each in connections:
        if each.ended:
            return each
        since_s = each.silent_since_s
        if since_s and since_s <= silent_since_s:
            found, silent_since_s = each, since_s
    return found


def probe(connections: Iterable[C], now_s: float) -> list[C]:
    """Ping connections without an unanswered ping; returns those that may be dead."""
    probed = [each for each in connections if not each.ended and not each.behind]
    for each in probed:
        if not each.keepalive.ping_at:
            each.ping(now_s)
    return probed


def unanswered(connections: Collection[Probed]) -> bool:
    """Whether one of these connections has an unanswered ping."""
    return any(each.keepalive.ping_at and not each.ended for each in connections)
