"""Availability of an exchange's transactions."""

import asyncio
from typing import Any

import pytest

from onebook.clock import ManualClock
from onebook.errors import ConfigError, ServiceUnavailable
from onebook.transactions.adapter import RequestVerdict
from onebook.transactions.availability import LOOKUP_INTERVAL_S, Availability, AvailabilityCache


class Scripted:
    """The parts of an adapter, a vault and a clock that availability uses."""

    def __init__(self) -> None:
        self.stored: Any = object()
        self.said: RequestVerdict | None = None
        self.clock = ManualClock()
        self.asked = 0
        self.hangs: asyncio.Event | None = None

    def verdict(self, environment: str) -> RequestVerdict | None:
        return self.said

    async def get(self, exchange: str, environment: str) -> object | None:
        self.asked += 1
        if self.hangs is not None:
            await self.hangs.wait()
        if isinstance(self.stored, Exception):
            raise self.stored
        return self.stored

    def availability(self) -> AvailabilityCache:
        return AvailabilityCache({"x": self}, self.get, self.clock)  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("stored", "failure", "expected"),
    [
        (object(), None, Availability.OPERATIONAL),
        (None, None, Availability.MISSING),
        (ConfigError("no key"), None, Availability.MISSING),
        (ServiceUnavailable("away"), None, Availability.UNKNOWN),
        (object(), "authentication_failed", Availability.REFUSED),
        (object(), "circuit_open", Availability.UNREACHABLE),
        (object(), "exchange_error", Availability.OPERATIONAL),
    ],
)
async def test_a_standing(stored: Any, failure: str | None, expected: Availability) -> None:
    here = Scripted()
    here.stored = stored
    here.said = RequestVerdict(0, failure)
    assert await here.availability().all() == {"x": expected}


async def test_the_vault_is_looked_into_once_in_a_while() -> None:
    here = Scripted()
    availability = here.availability()
    for now_s in (0.0, LOOKUP_INTERVAL_S / 2, LOOKUP_INTERVAL_S):
        here.clock.move_to(now_s)
        await availability.all()
    assert here.asked == 2


async def test_a_vault_that_does_not_answer_delays_no_health_and_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Health waited 12 s for the database, and returned an outdated "ready"."""
    monkeypatch.setattr("onebook.transactions.availability.LOOKUP_TIMEOUT_S", 0.01)
    here = Scripted()
    here.hangs = asyncio.Event()
    availability = here.availability()
    async with asyncio.timeout(5):
        found = await asyncio.gather(*(availability.all() for _ in range(20)))
        assert found == [{"x": Availability.UNKNOWN}] * 20
        here.hangs.set()
        while await availability.all() != {"x": Availability.OPERATIONAL}:
            await asyncio.sleep(0)
        here.hangs.clear()
        here.clock.move_to(here.clock.now_s + LOOKUP_INTERVAL_S)
        assert await availability.all() == {"x": Availability.OPERATIONAL}, "what was found last"
    assert here.asked == 2
    await availability.close()
