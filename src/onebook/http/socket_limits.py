"""Limits of open sockets, for all clients together and for one address.

A socket over a limit gets 503 (the node is full) or 429 (its address has too many).
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from prometheus_client import Counter, Gauge

RETRY_AFTER_S: Final = 5
PROBES_MAX: Final = 16  # additional sockets of this machine and trusted proxies, for health checks

SOCKETS: Final = Gauge("onebook_sockets", "Open sockets of clients, HTTP and WebSocket.")
REFUSED: Final = Counter("onebook_sockets_refused", "Sockets closed when accepted.", ["reason"])

# Create every sample at 0, because PromQL's `increase` ignores the first value of a new one.
for _reason in ("full", "address"):
    REFUSED.labels(_reason)

log = logging.getLogger("onebook.http")


class SocketSlot(Protocol):
    """A counted open socket."""

    def leave(self) -> None:
        """Stop counting the socket, which is closed."""


class AddressCounter(Protocol):
    """Counts the open sockets of addresses."""

    def enter(self, address: str) -> SocketSlot | None:
        """Count an open socket of an address; None if the address has reached its limit."""

    def trusts(self, peer: str) -> bool:
        """Return whether a peer is on this machine or a trusted proxy."""

    def socket_headers(self, retry_after_s: int) -> dict[str, str]:
        """Return the header fields of an answer to an address with too many sockets."""


class CountedSocket:
    """One open socket, counted for the node and for its address until `leave`."""

    __slots__ = ("_counted", "_slot")

    def __init__(self, counted: "Sockets", slot: SocketSlot | None) -> None:
        self._counted: Sockets | None = counted
        self._slot = slot

    def leave(self) -> None:
        """Stop counting the socket, which is closed."""
        counted, self._counted = self._counted, None
        if counted is None:
            return
        counted.release()
        if self._slot is not None:
            self._slot.leave()


class Sockets:
    """The number of open client sockets.

    Args:
        sockets_max: Returns the maximum sockets of all clients; called for each socket.
        probes_max: Additional sockets of trusted peers, for health checks of a full node.
    """

    def __init__(
        self, address_limiter: AddressCounter, *, sockets_max: Callable[[], int], probes_max: int
    ) -> None:
        self.count = 0
        self._address_limiter = address_limiter
        self._sockets_max = sockets_max
        self._probes_max = probes_max
        self._full = False

    def enter(self, peer: str) -> CountedSocket | int:
        """Count a socket, or return the HTTP status of its refusal."""
        trusted = self._address_limiter.trusts(peer)
        if self.count >= self._sockets_max() + (self._probes_max if trusted else 0):
            REFUSED.labels("full").inc()
            if not self._full:
                log.warning("The node is full: %d sockets; more are refused with 503.", self.count)
            self._full = True
            return 503
        slot = None
        if not trusted:
            slot = self._address_limiter.enter(peer)
            if slot is None:
                REFUSED.labels("address").inc()
                return 429
        self.count += 1
        SOCKETS.set(self.count)
        return CountedSocket(self, slot)

    def headers(self, status: int) -> dict[str, str]:
        """Return header fields with the time of the next attempt and the limit."""
        if status not in (429, 503):
            return {}
        if status == 429:
            return self._address_limiter.socket_headers(RETRY_AFTER_S)
        return {"Retry-After": str(RETRY_AFTER_S)}

    def release(self) -> None:
        """Stop counting a socket; called by its `CountedSocket`."""
        self.count -= 1
        SOCKETS.set(self.count)
        if self._full and self.count < self._sockets_max():
            log.info("The node is below its socket limit again: %d sockets.", self.count)
            self._full = False
