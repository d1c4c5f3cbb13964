"""Whether the transaction interface of each exchange can work now, for the public lists.

Credentials are looked for in the vault, at most once in `KEPT_S`, because health is asked for by
anyone and often. Whether the exchange still accepts them is what it last answered.
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Final

from onebook.errors import ConfigError, OnebookError
from onebook.transactions.adapter import Adapter, Environment
from onebook.transactions.failures import FailureReason

KEPT_S: Final = 5.0


class ExchangeStanding(StrEnum):
    """Whether an exchange can be asked for transactions."""

    OPERATIONAL = "operational"
    MISSING = "no_credentials"
    REFUSED = "credentials_refused"
    UNREACHABLE = "exchange_unreachable"
    UNKNOWN = "unknown"  # the vault cannot be read


# Failures of the last signed request that say something of the whole interface.
_FAILURES: Final = {
    FailureReason.AUTHENTICATION_FAILED.value: ExchangeStanding.REFUSED,
    FailureReason.UNREACHABLE.value: ExchangeStanding.UNREACHABLE,
    FailureReason.CIRCUIT_OPEN.value: ExchangeStanding.UNREACHABLE,
}


class Standings:
    """The standing of every exchange's mainnet account.

    Args:
        adapters: By the names of their exchanges.
        stored: The vault: gives the credentials of an exchange environment, None without.
        now_s: Monotonic seconds.
    """

    def __init__(
        self,
        adapters: Mapping[str, Adapter],
        stored: Callable[[str, Environment], Awaitable[object | None]],
        now_s: Callable[[], float],
    ) -> None:
        self._adapters = adapters
        self._stored = stored
        self._now_s = now_s
        self._found: dict[str, ExchangeStanding] = {}
        self._found_at_s = float("-inf")

    async def all(self) -> dict[str, ExchangeStanding]:
        """The standing of every exchange now."""
        now_s = self._now_s()
        if now_s - self._found_at_s >= KEPT_S:
            self._found = {name: await self._look(name) for name in self._adapters}
            self._found_at_s = now_s
        return {
            name: self._answered(name) if found is ExchangeStanding.OPERATIONAL else found
            for name, found in self._found.items()
        }

    def _answered(self, exchange: str) -> ExchangeStanding:
        verdict = self._adapters[exchange].verdict(Environment.MAINNET)
        failure = verdict.failure if verdict is not None else None
        return _FAILURES.get(failure or "", ExchangeStanding.OPERATIONAL)

    async def _look(self, exchange: str) -> ExchangeStanding:
        try:
            found = await self._stored(exchange, Environment.MAINNET)
        except ConfigError:  # there, but under a master key that is not
            found = None
        except OnebookError:
            return ExchangeStanding.UNKNOWN
        return ExchangeStanding.MISSING if found is None else ExchangeStanding.OPERATIONAL
