"""Whether the interface of an exchange can work now."""

import asyncio
from typing import Any

import pytest

from onebook.errors import ConfigError, ServiceUnavailable
from onebook.transactions.adapter import RequestVerdict
from onebook.transactions.standing import KEPT_S, ExchangeStanding, Standings


class Scripted:
    """An adapter, a vault and a clock, as far as standings look at them."""

    def __init__(self) -> None:
        self.stored: Any = object()
        self.said: RequestVerdict | None = None
        self.now_s = 0.0
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

    def standings(self) -> Standings:
        return Standings({"x": self}, self.get, lambda: self.now_s)  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("stored", "failure", "expected"),
    [
        (object(), None, ExchangeStanding.OPERATIONAL),
        (None, None, ExchangeStanding.MISSING),
        (ConfigError("no key"), None, ExchangeStanding.MISSING),
        (ServiceUnavailable("away"), None, ExchangeStanding.UNKNOWN),
        (object(), "authentication_failed", ExchangeStanding.REFUSED),
        (object(), "circuit_open", ExchangeStanding.UNREACHABLE),
        (object(), "exchange_error", ExchangeStanding.OPERATIONAL),
    ],
)
async def test_a_standing(stored: Any, failure: str | None, expected: ExchangeStanding) -> None:
    here = Scripted()
    here.stored = stored
    here.said = RequestVerdict(0, failure)
    assert await here.standings().all() == {"x": expected}


async def test_the_vault_is_looked_into_once_in_a_while() -> None:
    here = Scripted()
    standings = here.standings()
    for now_s in (0.0, KEPT_S / 2, KEPT_S):
        here.now_s = now_s
        await standings.all()
    assert here.asked == 2


async def test_a_vault_that_does_not_answer_delays_no_health_and_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Health waited for the database, 12 s, and answered "ready" with what was true before."""
    monkeypatch.setattr("onebook.transactions.standing.LOOK_S", 0.01)
    here = Scripted()
    here.hangs = asyncio.Event()
    standings = here.standings()
    async with asyncio.timeout(5):
        found = await asyncio.gather(*(standings.all() for _ in range(20)))
        assert found == [{"x": ExchangeStanding.UNKNOWN}] * 20
        here.hangs.set()
        while await standings.all() != {"x": ExchangeStanding.OPERATIONAL}:
            await asyncio.sleep(0)
        here.hangs.clear()
        here.now_s += KEPT_S
        assert await standings.all() == {"x": ExchangeStanding.OPERATIONAL}, "what was found last"
    assert here.asked == 2
    await standings.close()
