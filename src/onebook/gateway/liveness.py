"""Finds a dead connection of a key: one that does not answer a ping is closed for a new one."""

from collections.abc import Collection, Iterable

from onebook.gateway.registry import ClientPort


def dead(connections: Iterable[ClientPort], silent_since_s: float) -> ClientPort | None:
    """The connection that has been silent for longest, and at least since then.

    One that is closing counts as dead. A slow client is not pinged: what counts is when it last
    read something.
    """
    found = None
    for each in connections:
        if each.output.ended:
            return each
        since_s = each.silent_since_s
        if since_s and since_s <= silent_since_s:
            found, silent_since_s = each, since_s
    return found


def probe(connections: Iterable[ClientPort], now_s: float) -> list[ClientPort]:
    """Ping connections without an unanswered ping; returns those that may be dead."""
    probed = [each for each in connections if not each.output.ended and not each.output.behind]
    for each in probed:
        if not each.keepalive.ping_at:
            each.ping(now_s)
    return probed


def unanswered(connections: Collection[ClientPort]) -> bool:
    """Whether one of these connections has an unanswered ping."""
    return any(each.keepalive.ping_at and not each.output.ended for each in connections)
