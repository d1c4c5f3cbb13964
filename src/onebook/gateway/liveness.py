"""Which connection of a key is dead: one that does not answer makes room for a new one."""

from collections.abc import Collection, Iterable

from onebook.gateway.protocol import Connection


def dead(connections: Iterable[Connection], silent_since_s: float) -> Connection | None:
    """The connection that has been silent for longest, and at least since then.

    One that is closing is dead at once. A client that is behind is not pinged: it was last heard
    of when it read something.
    """
    found = None
    for each in connections:
        if each.ended:
            return each
        since_s = each.progress_at if each.behind else each.ping_at
        if since_s and since_s <= silent_since_s:
            found, silent_since_s = each, since_s
    return found


def probe(connections: Iterable[Connection], now_s: float) -> list[Connection]:
    """Ping connections that have no ping to answer; the ones that may be dead."""
    probed = [each for each in connections if not each.ended and not each.behind]
    for each in probed:
        if not each.ping_at:
            each.ping(now_s)
    return probed


def unanswered(connections: Collection[Connection]) -> bool:
    """Whether one of these connections has a ping to answer."""
    return any(each.ping_at and not each.ended for each in connections)
