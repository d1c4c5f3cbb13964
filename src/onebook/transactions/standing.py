"""Whether the transaction interface of each exchange can work now, for the public lists.

Credentials are looked for in the vault, at most once in `KEPT_S`, because health is asked for by
anyone and often; a vault that does not answer delays no health. Whether the exchange still accepts
them is what it last answered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Final

from onebook.errors import ConfigError, OnebookError
from onebook.transactions.adapter import Adapter, Environment
from onebook.transactions.failures import FailureReason

KEPT_S: Final = 5.0
LOOK_S: Final = 0.5  # then the answer is what was found last


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
        self._found = dict.fromkeys(adapters, ExchangeStanding.UNKNOWN)
        self._found_at_s = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    async def all(self) -> dict[str, ExchangeStanding]:
        """The standing of every exchange now."""
        if self._looking is None and self._now_s() - self._found_at_s >= KEPT_S:
            self._looking = asyncio.create_task(self._look_at_all(), name="standings")
        if self._looking is not None:
            done, _ = await asyncio.wait((self._looking,), timeout=LOOK_S)
            for looked in done:
                looked.result()
        return {
            name: self._answered(name) if found is ExchangeStanding.OPERATIONAL else found
            for name, found in self._found.items()
        }

    async def close(self) -> None:
        """Cancel a look under way."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look_at_all(self) -> None:
        now_s = self._now_s()
        try:
            self._found = {name: await self._look(name) for name in self._adapters}
            self._found_at_s = now_s
        finally:
            self._looking = None

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
