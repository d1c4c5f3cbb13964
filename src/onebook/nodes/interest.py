"""Interest: gateways' subscriptions to books, as numbered changes or in full. Sans-I/O.

A gateway numbers its changes; its heartbeat contains the last number. A feeds node that missed a
change, or has just started, requests all subscriptions of the gateway.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta, Struct, msgpack

from onebook.nodes.payloads import NodeId, PayloadReader, RefusalCause, Seq, WireError, require_size

PAGE_KEYS: Final = 10_000  # per page of all subscriptions, so that it fits into a NATS message

PAGES_MAX: Final = 100
PAGE_DIGITS_MAX: Final = 4

Key = Annotated[str, Meta(pattern=r"^[^ ]+ .+$")]  # the text of a `BookKey`


class Interest(Struct, frozen=True, kw_only=True):
    """A change of one gateway's subscriptions, or (`whole`) a page of all of them."""

    gateway: NodeId
    seq: Seq
    added: list[Key] = []
    dropped: list[Key] = []
    whole: bool = False
    pages: Annotated[int, Meta(ge=1, le=PAGES_MAX)] = 1


_interest = PayloadReader(Interest)


def encode_interest(interest: Interest) -> bytes:
    """Encode a change of interest."""
    return msgpack.encode(interest)


def interest_of(payload: bytes, *, whole: bool) -> Interest:
    """Decode a change, or a page of all subscriptions.

    Raises:
        WireError: The payload is invalid.
    """
    found = _interest.read(payload)
    if found.whole is not whole:
        raise WireError(
            "a page of all subscriptions" if found.whole else "a change", RefusalCause.INVALID
        )
    return found


def page_asked(payload: bytes) -> int:
    """Decode the page number of a request.

    Raises:
        WireError: The request contains no number.
    """
    require_size(payload, PAGE_DIGITS_MAX)
    if not payload.isdigit():
        raise WireError("a request for a page without its number")
    return int(payload)


class LocalInterest:
    """This gateway's subscriptions, and their unpublished changes."""

    def __init__(self, gateway: int) -> None:
        self.seq = 0
        self.keys: dict[str, None] = {}
        self._gateway = gateway
        self._added: dict[str, None] = {}
        self._dropped: dict[str, None] = {}

    def add(self, key: str) -> None:
        """Subscribe to a book."""
        self.keys[key] = None
        if key in self._dropped:
            del self._dropped[key]
        else:
            self._added[key] = None

    def drop(self, key: str) -> None:
        """Unsubscribe from a book."""
        del self.keys[key]
        if key in self._added:
            del self._added[key]
        else:
            self._dropped[key] = None

    def changes(self) -> list[Interest]:
        """Return the changes since the last call, as messages to publish in order."""
        added, dropped = [*self._added], [*self._dropped]
        self._added, self._dropped = {}, {}
        found = []
        while added or dropped:
            self.seq += 1
            found.append(
                Interest(
                    gateway=self._gateway,
                    seq=self.seq,
                    added=added[:PAGE_KEYS],
                    dropped=dropped[:PAGE_KEYS],
                )
            )
            added, dropped = added[PAGE_KEYS:], dropped[PAGE_KEYS:]
        return found

    def page(self, number: int) -> Interest:
        """Return one page of all published subscriptions."""
        published = [key for key in self.keys if key not in self._added] + [*self._dropped]
        begin = number * PAGE_KEYS
        return Interest(
            gateway=self._gateway,
            seq=self.seq,
            added=published[begin : begin + PAGE_KEYS],
            whole=True,
            pages=max(1, -(-len(published) // PAGE_KEYS)),
        )


class GatewayInterest:
    """The subscriptions of all gateways, as known to one feeds node."""

    def __init__(self) -> None:
        self._of: dict[int, set[str]] = {}
        self._seq: dict[int, int] = {}
        self._count: Counter[str] = Counter()

    def keys(self) -> Iterable[str]:
        """The books that at least one gateway subscribes to."""
        return self._count.keys()

    def __contains__(self, key: str) -> bool:
        return key in self._count

    def changed(self, interest: Interest) -> bool:
        """Apply a change; return False if an earlier one is missing, to request all of them."""
        known = self._seq.get(interest.gateway)
        if known is None or interest.seq > known + 1:
            return False
        if interest.seq == known + 1:
            self._seq[interest.gateway] = interest.seq
            self._apply(interest.gateway, interest.added, interest.dropped)
        return True

    def replaced(self, gateway: int, seq: int, keys: Iterable[str]) -> None:
        """Replace a gateway's subscriptions."""
        wanted = set(keys)
        before = self._of.get(gateway, set())
        self._seq[gateway] = seq
        self._apply(gateway, wanted - before, before - wanted)

    def current(self, gateway: int, seq: int) -> bool:
        """Whether all changes up to this number are known."""
        return self._seq.get(gateway, -1) >= seq

    def gateways(self) -> list[int]:
        """The gateways whose interest is known."""
        return [*self._seq]

    def forget(self, gateway: int) -> None:
        """Remove a gateway that has left."""
        self._seq.pop(gateway, None)
        self._apply(gateway, (), self._of.pop(gateway, set()).copy())

    def _apply(self, gateway: int, added: Iterable[str], dropped: Iterable[str]) -> None:
        mine = self._of.setdefault(gateway, set()) if gateway in self._seq else set(dropped)
        for key in added:
            if key not in mine:
                mine.add(key)
                self._count[key] += 1
        for key in dropped:
            if key in mine:
                mine.discard(key)
                self._count[key] -= 1
                if not self._count[key]:
                    del self._count[key]
