"""Delays handshakes of addresses that violated the protocol before authentication.

The handshake is the most expensive thing that a client without a key can make the node do, so
closing a flooding socket does not help if the client reconnects at once. An address whose socket
was closed for a violation before authentication gets one handshake per pause, and the pause doubles
with each further violation.
"""

from typing import Final

from onebook.accounts.limits import network

FORGOTTEN_S: Final = 60.0  # after the last handshake that had to wait
ADDRESSES_MAX: Final = 10_000  # the oldest is dropped


class _Offender:
    __slots__ = ("next_s", "pause_s")

    def __init__(self, pause_s: float, next_s: float) -> None:
        self.pause_s = pause_s
        self.next_s = next_s  # when its next handshake may be answered


class Offenders:
    """Paces the handshakes of addresses, IPv6 by /64.

    Args:
        pause_s: Between two handshakes after one offence; 0 paces nothing.
        pause_max_s: The longest pause.
    """

    def __init__(self, pause_s: float, pause_max_s: float) -> None:
        self._pause_s = pause_s
        self._pause_max_s = max(pause_s, pause_max_s)
        self._found: dict[str, _Offender] = {}

    def offended(self, address: str, now_s: float) -> None:
        """A socket of an address was closed for an offence."""
        if not self._pause_s:
            return
        name = network(address)
        known = self._known(name, now_s)
        if known is None:
            self._found[name] = _Offender(self._pause_s, now_s + self._pause_s)
            if len(self._found) > ADDRESSES_MAX:
                del self._found[next(iter(self._found))]
        else:
            known.pause_s = min(2 * known.pause_s, self._pause_max_s)

    def wait_s(self, address: str, now_s: float) -> float:
        """Seconds for which a handshake of an address waits; the next one waits longer.

        At most twice the longest pause: handshakes beyond that are answered together.
        """
        if not self._found:
            return 0.0
        known = self._known(network(address), now_s)
        if known is None:
            return 0.0
        begins_s = min(max(known.next_s, now_s), now_s + 2 * self._pause_max_s)
        known.next_s = begins_s + known.pause_s
        return begins_s - now_s

    def _known(self, name: str, now_s: float) -> _Offender | None:
        known = self._found.get(name)
        if known is not None and now_s - known.next_s > FORGOTTEN_S:
            del self._found[name]
            return None
        return known
