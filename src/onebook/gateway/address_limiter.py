"""Connection limits per client address: attempts and open sockets; trusted proxies."""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from onebook.accounts.limits import AddressLimit, network

UNKNOWN: Final = "unknown"


class AddressSlot:
    """One counted socket of an address; `leave` uncounts it, once."""

    __slots__ = ("_address", "_address_limiter")

    def __init__(self, address_limiter: "AddressLimiter", address: str) -> None:
        self._address_limiter: AddressLimiter | None = address_limiter
        self._address = address

    def leave(self) -> None:
        """The socket is closed."""
        address_limiter, self._address_limiter = self._address_limiter, None
        if address_limiter is not None:
            address_limiter.left(self._address)


class AddressLimiter:
    """Counts connection attempts and open sockets by address, IPv6 by /64.

    Trusted are this machine and the proxies whose X-Forwarded-For is honoured: a proxy's own
    sockets are not counted, those of the addresses that it names are.
    """

    def __init__(
        self,
        connects_per_minute: int,
        forwarded_from: Iterable[str] = (),
        *,
        sockets_per_address_max: int = 0,
    ) -> None:
        self._attempts: AddressLimit | None = None
        self._sockets_max = 0
        self.limit(connects_per_minute, sockets_per_address_max)
        self._proxies = [ip_network(each, strict=False) for each in forwarded_from]
        self._sockets: dict[str, int] = {}

    def limit(self, connects_per_minute: int, sockets_per_address_max: int) -> None:
        """Set both limits; what was counted stays counted."""
        if not connects_per_minute:
            self._attempts = None
        elif self._attempts is None:
            self._attempts = AddressLimit("connects", connects_per_minute)
        else:
            self._attempts.per_minute = connects_per_minute
        self._sockets_max = sockets_per_address_max

    def attempt(self, address: str, now_s: float) -> dict[str, str]:
        """Count an attempt; the header fields of its refusal, none where it is allowed."""
        if self._attempts is None:
            return {}
        decision = self._attempts.take(address, now_s)
        return {} if decision.allowed else decision.headers()

    def enter(self, address: str) -> AddressSlot | None:
        """Count an open socket of an address; None where it has as many as it may."""
        name = network(address)
        count = self._sockets.get(name, 0)
        if self._sockets_max and count >= self._sockets_max:
            return None
        self._sockets[name] = count + 1
        return AddressSlot(self, name)

    def socket_headers(self, retry_after_s: int) -> dict[str, str]:
        """The header fields of a refusal: the sockets that an address may have open."""
        return {
            "RateLimit-Policy": f'"sockets";q={self._sockets_max}',
            "RateLimit": f'"sockets";r=0;t={retry_after_s}',
            "X-RateLimit-Limit": str(self._sockets_max),
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": str(retry_after_s),
            "Retry-After": str(retry_after_s),
        }

    def left(self, name: str) -> None:
        """A socket of an address is closed; called by its `AddressSlot`."""
        self._sockets[name] -= 1
        if not self._sockets[name]:
            del self._sockets[name]

    def address(self, peer: str, forwarded_for: str | None) -> str:
        """The client's address: the peer, or X-Forwarded-For from a trusted proxy."""
        if forwarded_for and self._is_proxy(peer):
            peer = forwarded_for.rpartition(",")[2].strip()
        return peer or UNKNOWN

    def trusts(self, peer: str) -> bool:
        """Whether a peer is on this machine or a trusted proxy."""
        address = _parsed(peer)
        return address is not None and (address.is_loopback or self._is_proxy(peer))

    def _is_proxy(self, peer: str) -> bool:
        address = _parsed(peer)
        return address is not None and any(address in each for each in self._proxies)


@lru_cache(maxsize=4_096)
def _parsed(peer: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(peer)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
