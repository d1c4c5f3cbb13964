"""Availability of each exchange's transactions, for the public lists and health.

Credentials are looked up in the vault at most once per `LOOKUP_INTERVAL_S`, because health is
requested often and by anyone; a vault that does not answer never delays it. The last answer of the
exchange shows whether it accepts the credentials.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Final

from onebook.clock import SYSTEM_CLOCK, Clock
from onebook.errors import ConfigError, OnebookError
from onebook.transactions.adapter import Environment, FailureReason
from onebook.transactions.exchange import ExchangeAdapter

LOOKUP_INTERVAL_S: Final = 5.0
LOOKUP_TIMEOUT_S: Final = 0.5  # then the previous result is used


class Availability(StrEnum):
    """Whether transactions of an exchange can be requested."""

    OPERATIONAL = "operational"
    MISSING = "no_credentials"
    REFUSED = "credentials_refused"
    UNREACHABLE = "exchange_unreachable"
    UNKNOWN = "unknown"  # the vault cannot be read


# Failures of the last signed request that affect every type of transaction.
_FAILURES: Final = {
    FailureReason.AUTHENTICATION_FAILED.value: Availability.REFUSED,
    FailureReason.UNREACHABLE.value: Availability.UNREACHABLE,
    FailureReason.CIRCUIT_OPEN.value: Availability.UNREACHABLE,
}


class AvailabilityCache:
    """The availability of every exchange's mainnet account.

    Args:
        adapters: By exchange name.
        stored: Returns the stored credentials of an exchange environment, None if absent.
        clock: Monotonic time.
    """

    def __init__(
        self,
        adapters: Mapping[str, ExchangeAdapter],
        stored: Callable[[str, Environment], Awaitable[object | None]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._adapters = adapters
        self._stored = stored
        self._clock = clock
        self._found = dict.fromkeys(adapters, Availability.UNKNOWN)
        self._found_at_s = float("-inf")
        self._lookup: asyncio.Task[None] | None = None

    async def all(self) -> dict[str, Availability]:
        """The availability of every exchange now."""
        if self._lookup is None and self._clock.monotonic() - self._found_at_s >= LOOKUP_INTERVAL_S:
            self._lookup = asyncio.create_task(self._refresh(), name="availability")
        if self._lookup is not None:
            done, _ = await asyncio.wait((self._lookup,), timeout=LOOKUP_TIMEOUT_S)
            for lookup in done:
                lookup.result()
        return {
            name: self._answered(name) if found is Availability.OPERATIONAL else found
            for name, found in self._found.items()
        }

    async def close(self) -> None:
        """Cancel a running lookup."""
        if self._lookup is not None:
            self._lookup.cancel()
            await asyncio.gather(self._lookup, return_exceptions=True)

    async def _refresh(self) -> None:
        now_s = self._clock.monotonic()
        try:
            self._found = {name: await self._state(name) for name in self._adapters}
            self._found_at_s = now_s
        finally:
            self._lookup = None

    def _answered(self, exchange: str) -> Availability:
        verdict = self._adapters[exchange].verdict(Environment.MAINNET)
        failure = verdict.failure if verdict is not None else None
        return _FAILURES.get(failure or "", Availability.OPERATIONAL)

    async def _state(self, exchange: str) -> Availability:
        try:
            found = await self._stored(exchange, Environment.MAINNET)
        except ConfigError:  # encrypted under a master key that is missing
            found = None
        except OnebookError:
            return Availability.UNKNOWN
        return Availability.MISSING if found is None else Availability.OPERATIONAL
