"""Who may connect: attempts per address, and whose address it is."""

from collections.abc import Iterable
from ipaddress import ip_address, ip_network
from typing import Final

from onebook.accounts.limits import AddressLimit

UNKNOWN: Final = "unknown"


class Door:
    """Counts connection attempts by address, IPv6 by /64."""

    def __init__(self, connects_per_minute: int, forwarded_from: Iterable[str] = ()) -> None:
        self._attempts = (
            AddressLimit("connects", connects_per_minute) if connects_per_minute else None
        )
        self._proxies = [ip_network(each, strict=False) for each in forwarded_from]

    def knock(self, address: str, now_s: float) -> float:
        """Count an attempt; seconds until the next may succeed, 0 where this one may."""
        if self._attempts is None:
            return 0.0
        decision = self._attempts.take(address, now_s)
        return 0.0 if decision.allowed else max(decision.retry_after_s, 1.0)

    def address(self, peer: str, forwarded_for: str | None) -> str:
        """Whose attempt it is: the peer, or whom a proxy that we believe names."""
        if forwarded_for and self._believed(peer):
            peer = forwarded_for.rpartition(",")[2].strip()
        return peer or UNKNOWN

    def _believed(self, peer: str) -> bool:
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self._proxies)
